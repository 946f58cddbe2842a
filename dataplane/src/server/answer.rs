//! Adapts the body of an answer for hyper's HTTP/1.1 connection. Short pieces that are ready at the same time are
//! joined: the result of one upstream read leaves as one chunk in one write.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use shared::port::BoxError;

use super::gate::GateState;
use super::io::ConnectionState;
use super::service::AnswerBody;

/// A body of the service. After it is dropped, the next flush ends the exchange.
#[derive(Debug)]
pub(super) struct Answer<B: AnswerBody> {
    body: B,
    state: Rc<ConnectionState>,
    gate_state: Rc<GateState>,
    ahead: Ahead,
    /// The turn in which the body was last pending. hyper asks several times in a turn, and whatever the body waits for
    /// begins another one.
    waited: Option<u32>,
}

/// The item found after the joined pieces.
#[derive(Debug)]
enum Ahead {
    Nothing,
    Item(Result<Frame<Bytes>, BoxError>),
    End,
}

/// Maximum bytes of a piece that is joined with others.
const SHORT_BYTES_MAX: usize = 4 << 10;
/// Size at which a joined piece takes no more pieces, in bytes.
const JOINED_BYTES_MAX: usize = 16 << 10;
/// Bytes waiting for the client above which the body is not polled.
const WAITING_BYTES_MAX: usize = 32 << 10;

impl<B: AnswerBody> Answer<B> {
    pub(super) fn new(body: B, state: Rc<ConnectionState>, gate_state: Rc<GateState>) -> Self {
        Self { body, state, gate_state, ahead: Ahead::Nothing, waited: None }
    }

    /// Ready if hyper may take more of the body. While it is pending, hyper flushes. A blocked socket wakes the
    /// connection itself; otherwise the task is woken here, to poll again after the flush.
    fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.gate_state.waiting() < WAITING_BYTES_MAX {
            return Poll::Ready(());
        }
        if !self.state.write_blocked.get() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let item = match std::mem::replace(&mut self.ahead, Ahead::Nothing) {
            Ahead::End => {
                self.ahead = Ahead::End;
                return Poll::Ready(None);
            }
            Ahead::Item(item) => return Poll::Ready(Some(item)),
            Ahead::Nothing => ready!(self.poll_body(cx)),
        };
        let frame = match item.transpose()?.map(Frame::into_data) {
            Some(Ok(piece)) if (1..=SHORT_BYTES_MAX).contains(&piece.len()) => {
                Some(Frame::data(self.join(piece, cx)))
            }
            Some(Ok(piece)) => Some(Frame::data(piece)),
            Some(Err(other)) => Some(other),
            None => None,
        };
        Poll::Ready(frame.map(Ok))
    }

    /// Polls the body, at most until it is pending in this turn.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let turn = Some(self.gate_state.turn());
        if self.waited == turn {
            return Poll::Pending;
        }
        let item = Pin::new(&mut self.body).poll_frame(cx);
        if item.is_pending() {
            self.waited = turn;
        }
        item
    }

    /// Returns `first` joined with the short pieces that are ready after it.
    fn join(&mut self, first: Bytes, cx: &mut Context<'_>) -> Bytes {
        let mut joined = BytesMut::new();
        while joined.len() < JOINED_BYTES_MAX && !self.body.is_end_stream() {
            let Poll::Ready(item) = self.poll_body(cx) else { break };
            let piece = match item.map(|item| item.map(Frame::into_data)) {
                None => {
                    self.ahead = Ahead::End;
                    break;
                }
                Some(Ok(Ok(piece))) if piece.len() <= SHORT_BYTES_MAX => piece,
                Some(Ok(Ok(piece))) => {
                    self.ahead = Ahead::Item(Ok(Frame::data(piece)));
                    break;
                }
                Some(Ok(Err(other))) => {
                    self.ahead = Ahead::Item(Ok(other));
                    break;
                }
                Some(Err(error)) => {
                    self.ahead = Ahead::Item(Err(error));
                    break;
                }
            };
            if joined.is_empty() {
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&piece);
        }
        if joined.is_empty() { first } else { joined.freeze() }
    }
}

impl<B: AnswerBody> Body for Answer<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        ready!(self.poll_room(cx));
        let state = Rc::clone(&self.state);
        let item = ready!(state.poll_as_task(|cx| self.poll_next(cx)));
        if let Some(Ok(frame)) = &item {
            self.gate_state.count_waiting(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(item)
    }

    fn is_end_stream(&self) -> bool {
        match self.ahead {
            Ahead::Nothing => self.body.is_end_stream(),
            Ahead::Item(_) => false,
            Ahead::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.ahead {
            Ahead::Nothing => self.body.size_hint(),
            Ahead::Item(_) => SizeHint::default(),
            Ahead::End => SizeHint::with_exact(0),
        }
    }
}

impl<B: AnswerBody> Drop for Answer<B> {
    fn drop(&mut self) {
        if self.body.is_cut() {
            self.gate_state.end();
        }
        self.gate_state.end_answer();
    }
}
