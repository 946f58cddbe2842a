//! The body of a request that is sent while it arrives from the client.

use std::cell::RefCell;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::request::length_of;

/// A body of known length whose segments arrive one by one. They are kept: a request that its first connection does not
/// process is sent again on another one.
#[derive(Debug)]
pub(crate) struct ArrivingBody {
    /// The length of the whole body.
    bytes: u64,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    segments: Vec<Bytes>,
    end: End,
    /// Wakes the sender that has sent all segments.
    sender: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Awaited,
    /// All segments have arrived.
    Reached,
    /// No further segment will arrive.
    Abandoned,
}

impl ArrivingBody {
    /// Returns a body of `bytes` that begins with `segments`.
    pub(crate) fn new(bytes: u64, segments: Vec<Bytes>) -> Self {
        Self { bytes, state: RefCell::new(State { segments, ..State::default() }) }
    }

    /// Returns the length of the whole body.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds segments that have arrived.
    pub(crate) fn extend(&self, segments: &[Bytes]) {
        self.change(|state| state.segments.extend_from_slice(segments));
    }

    /// Adds the last segments: all those of `whole` after the ones that have arrived. Returns false, and abandons the
    /// body, if it is not the beginning of `whole`, or differs from it in length.
    pub(crate) fn complete(&self, whole: &[Bytes]) -> bool {
        let rest = if length_of(whole) == self.bytes { self.rest_of(whole) } else { None };
        let end = if rest.is_some() { End::Reached } else { End::Abandoned };
        self.change(|state| {
            state.segments.extend(rest.into_iter().flatten());
            state.end = end;
        });
        end == End::Reached
    }

    /// Ends the body without its last segments: the request is cancelled.
    pub(crate) fn abandon(&self) {
        self.change(|state| {
            if state.end == End::Awaited {
                state.end = End::Abandoned;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let sender = {
            let mut state = self.state.borrow_mut();
            change(&mut state);
            state.sender.take()
        };
        if let Some(sender) = sender {
            sender.wake();
        }
    }

    /// Returns the segments of `whole` after those that have arrived; `None` if it does not begin with them.
    fn rest_of(&self, whole: &[Bytes]) -> Option<Vec<Bytes>> {
        let mut source = whole.iter();
        let mut current = Bytes::new();
        for arrived in &self.state.borrow().segments {
            let mut arrived = arrived.clone();
            while !arrived.is_empty() {
                if current.is_empty() {
                    current = source.next()?.clone();
                }
                let length = arrived.len().min(current.len());
                if !is_same(&arrived.split_to(length), &current.split_to(length)) {
                    return None;
                }
            }
        }
        Some(std::iter::once(current).filter(|rest| !rest.is_empty()).chain(source.cloned()).collect())
    }

    /// Returns the segment at `index`, or `None` after the last one. Of a body that has been abandoned, nothing more is sent.
    pub(super) fn poll_segment(
        &self,
        index: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let mut state = self.state.borrow_mut();
        match (state.segments.get(index), state.end) {
            // hyper resets an HTTP/2 stream with the code of this error.
            (_, End::Abandoned) => Poll::Ready(Some(Err(h2::Reason::CANCEL.into()))),
            (Some(segment), End::Awaited | End::Reached) => Poll::Ready(Some(Ok(segment.clone()))),
            (None, End::Reached) => Poll::Ready(None),
            (None, End::Awaited) => {
                state.sender = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns true if the whole body has arrived in fewer segments than `index` or as many.
    pub(super) fn ends_at(&self, index: usize) -> bool {
        let state = self.state.borrow();
        state.end == End::Reached && index >= state.segments.len()
    }
}

/// Returns true if both contain the same bytes. Usually they are the same slice of the client's body.
fn is_same(a: &Bytes, b: &Bytes) -> bool {
    a.as_ptr() == b.as_ptr() || a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(texts: &[&'static str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
    }

    fn read(body: &ArrivingBody) -> (String, Option<bool>) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut text = Vec::new();
        for index in 0.. {
            match body.poll_segment(index, &mut cx) {
                Poll::Ready(Some(Ok(segment))) => text.extend_from_slice(&segment),
                Poll::Ready(Some(Err(error))) => {
                    assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
                    return (String::from_utf8(text).unwrap(), Some(false));
                }
                Poll::Ready(None) => {
                    assert!(body.ends_at(index));
                    return (String::from_utf8(text).unwrap(), Some(true));
                }
                Poll::Pending => return (String::from_utf8(text).unwrap(), None),
            }
        }
        unreachable!()
    }

    #[test]
    fn a_body_is_completed_by_a_request_that_begins_with_it_alone() {
        for (whole, is_completed) in [
            (&["abcdef", "ghij"][..], true),
            (&["a", "bc", "defg", "hi", "j"], true),
            (&["abcdefghij"], true),
            (&["abcdef", "ghijk"], false),
            (&["abcdef", "ghi"], false),
            (&["abXdef", "ghij"], false),
            (&["ab"], false),
            (&[], false),
        ] {
            let body = ArrivingBody::new(10, segments(&["ab", "cd"]));
            body.extend(&segments(&["e"]));
            assert_eq!(read(&body), ("abcde".to_owned(), None));
            assert_eq!(body.complete(&segments(whole)), is_completed, "{whole:?}");
            let sent = if is_completed { "abcdefghij" } else { "" };
            assert_eq!(read(&body), (sent.to_owned(), Some(is_completed)), "{whole:?}");
            body.abandon();
            assert_eq!(read(&body).1, Some(is_completed), "{whole:?}");
        }
    }

    #[test]
    fn nothing_of_an_abandoned_body_is_sent() {
        let body = ArrivingBody::new(10, segments(&["ab"]));
        body.abandon();
        assert_eq!(read(&body), (String::new(), Some(false)));
    }
}
