//! The body that a native chat target gets: the client's own bytes, cut at the few places that change.

use std::ops::Range;

use bytes::Bytes;

use super::head::ChatHead;
use crate::json::quote;

/// The upstream body as slices of `segments`, which `head` was read from. Every `model` becomes `model`, the
/// gateway's own members disappear, and a stream asks for usage if `request_usage`. All other bytes stay.
pub fn build(segments: &[Bytes], head: &ChatHead, model: &str, request_usage: bool) -> Vec<Bytes> {
    let mut edits =
        Vec::with_capacity(head.models.len().saturating_add(head.removed.len()).saturating_add(1));
    let ask = head.stream && request_usage;
    let model = Bytes::from(quote(model));
    for (index, span) in head.models.iter().enumerate() {
        let last = index.saturating_add(1) == head.models.len();
        let text = if ask && last && !head.has_options { with_options(&model) } else { model.clone() };
        edits.push((span.clone(), text));
    }
    edits.extend(head.removed.iter().map(|span| (span.clone(), Bytes::new())));
    if ask {
        let usage = head.usage_edits.iter();
        edits.extend(usage.map(|(span, text)| (span.clone(), Bytes::from_static(text.as_bytes()))));
    }
    edits.sort_by_key(|(span, _)| span.start);
    splice(segments, edits)
}

fn with_options(model: &[u8]) -> Bytes {
    [model, br#","stream_options":{"include_usage":true}"#].concat().into()
}

/// Replaces spans, sorted and apart, of the document that `segments` are the pieces of.
fn splice(segments: &[Bytes], edits: Vec<(Range<usize>, Bytes)>) -> Vec<Bytes> {
    let mut source = Source { segments: segments.iter(), current: Bytes::new(), offset: 0 };
    let mut out = Vec::with_capacity(segments.len().saturating_add(edits.len().saturating_mul(2)));
    for (span, text) in edits {
        source.advance(span.start, |slice| out.push(slice));
        if !text.is_empty() {
            out.push(text);
        }
        source.advance(span.end, drop);
    }
    source.advance(usize::MAX, |slice| out.push(slice));
    out
}

/// The document as a cursor over its pieces.
struct Source<'a> {
    segments: std::slice::Iter<'a, Bytes>,
    /// What is left of the piece under the cursor.
    current: Bytes,
    /// Where the cursor stands.
    offset: usize,
}

impl Source<'_> {
    /// Moves on to `end`, or to the end of the document, and hands over what lies between.
    fn advance(&mut self, end: usize, mut slice: impl FnMut(Bytes)) {
        loop {
            let wanted = end.saturating_sub(self.offset).min(self.current.len());
            if wanted > 0 {
                slice(self.current.split_to(wanted));
                self.offset = self.offset.saturating_add(wanted);
            }
            if self.offset >= end {
                return;
            }
            match self.segments.next() {
                Some(segment) => self.current = segment.clone(),
                None => return,
            }
        }
    }
}
