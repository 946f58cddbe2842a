//! Tests of the chat dialect, by subject.

mod response;
mod stream;
mod traps;

use bytes::Bytes;

use crate::stream::{AnswerStream as _, StreamOptions, StreamState};

fn relay(pieces: &[Bytes], options: StreamOptions) -> (Vec<Bytes>, StreamState) {
    let (mut stream, mut out) = (super::stream(options), Vec::new());
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
