//! Cuts input into pieces, for tests.

use bytes::Bytes;
use proptest::prelude::*;

use crate::stream::{AnswerStream, StreamState};

/// Returns `bytes` cut at `cuts`.
pub(crate) fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let bytes = Bytes::copy_from_slice(bytes);
    let mut from = 0;
    let ends = cuts.into_iter().chain([bytes.len()]);
    ends.map(|to| bytes.slice(std::mem::replace(&mut from, to)..to)).collect()
}

pub(crate) fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    proptest::collection::vec(any::<prop::sample::Index>(), 0..8)
}

/// Returns the output of a stream for `pieces`, and its state after them.
pub(crate) fn relay(mut stream: impl AnswerStream, pieces: &[Bytes]) -> (Vec<u8>, StreamState) {
    let mut out = Vec::new();
    for piece in pieces {
        stream.push(piece.clone(), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}
