//! Tests of the chat dialect, by what they are about.

mod head;
mod request;
mod response;
mod stream;
mod traps;

use bytes::Bytes;
use proptest::prelude::*;

use super::ChatStream;
use crate::stream::{AnswerStream as _, StreamOptions, StreamState};

/// `bytes` cut at `cuts`.
fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let bytes = Bytes::copy_from_slice(bytes);
    let mut from = 0;
    let ends = cuts.into_iter().chain([bytes.len()]);
    ends.map(|to| bytes.slice(std::mem::replace(&mut from, to)..to)).collect()
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    proptest::collection::vec(any::<prop::sample::Index>(), 0..8)
}

fn relay(pieces: &[Bytes], options: StreamOptions) -> (Vec<Bytes>, StreamState) {
    let (mut stream, mut out) = (ChatStream::new(options), Vec::new());
    for piece in pieces {
        stream.push(piece.clone(), &mut out);
    }
    stream.end(&mut out);
    (out, stream.state().clone())
}

fn relay_text(text: &str) -> (String, StreamState) {
    let (out, state) = relay(&[Bytes::copy_from_slice(text.as_bytes())], StreamOptions::default());
    (String::from_utf8(out.concat()).unwrap(), state)
}
