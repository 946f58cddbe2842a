//! Answers in the client's own dialect: the reader of each dialect, chosen by the dialect.

use std::ops::Range;

use bytes::Bytes;
use shared::operation::Dialect;

use crate::media::images;
use crate::stream::{AnswerStream, StreamOptions};
use crate::{chat, messages, responses};

pub use crate::passing::{HELD_BYTES_MAX, WholeAnswer};

/// An answer of a target that speaks the client's dialect, in events. What is neither Messages, Responses nor images
/// is read as chat, whose errors every SDK of OpenAI's knows.
pub fn stream(dialect: Dialect, options: StreamOptions) -> Box<dyn AnswerStream> {
    if dialect == Dialect::Images {
        return Box::new(images::ImageStream::new(options));
    }
    match kin(dialect) {
        Kin::Chat => Box::new(chat::stream(options)),
        Kin::Messages => Box::new(messages::stream(options)),
        Kin::Responses => Box::new(responses::stream(options)),
    }
}

/// A whole chat answer with OpenAI's names in its `usage`, which stands at `part` and lacks some (CHAT-3).
pub fn with_usage_names(body: Bytes, part: Range<usize>) -> Bytes {
    chat::with_names(body, part)
}

/// Reads a unary answer of any size in pieces and keeps none of it but its usage and error.
#[derive(Debug)]
pub struct WholeScan(DialectScan);

#[derive(Debug)]
enum DialectScan {
    Chat(chat::ChatAnswerScan),
    Messages(messages::MessagesAnswerScan),
    Responses(responses::ResponsesAnswerScan),
}

impl WholeScan {
    /// A scan before the first byte.
    pub fn new(dialect: Dialect) -> Self {
        Self(match kin(dialect) {
            Kin::Chat => DialectScan::Chat(chat::ChatAnswerScan::default()),
            Kin::Messages => DialectScan::Messages(messages::MessagesAnswerScan::default()),
            Kin::Responses => DialectScan::Responses(responses::ResponsesAnswerScan::default()),
        })
    }

    /// Reads the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        match &mut self.0 {
            DialectScan::Chat(scan) => scan.push(piece),
            DialectScan::Messages(scan) => scan.push(piece),
            DialectScan::Responses(scan) => scan.push(piece),
        }
    }

    /// Reads the next piece and appends to `out` what goes to a client of chat: the same bytes, with OpenAI's names in its
    /// `usage`. A `usage` that a cut goes through is held back until it has come.
    pub fn pass_chat(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        match &mut self.0 {
            DialectScan::Chat(scan) => scan.pass(piece, out),
            DialectScan::Messages(_) | DialectScan::Responses(_) => {
                self.push(&piece);
                out.push(piece);
            }
        }
    }

    /// The upstream sends no more: appends to `out` what is held back.
    pub fn release(&mut self, out: &mut Vec<Bytes>) {
        if let DialectScan::Chat(scan) = &mut self.0 {
            scan.release(out);
        }
    }

    /// The answer has ended. The scan then stands before another one.
    pub fn finish(&mut self) -> WholeAnswer {
        match &mut self.0 {
            DialectScan::Chat(scan) => std::mem::take(scan).finish(),
            DialectScan::Messages(scan) => std::mem::take(scan).finish(),
            DialectScan::Responses(scan) => std::mem::take(scan).finish(),
        }
    }
}

/// Reads an answer that is there as a whole. As a rule only its end is parsed, from `usage` on: `output_bytes` is
/// then 0, because the tokens are counted.
pub fn whole_answer(dialect: Dialect, body: &[u8]) -> WholeAnswer {
    match kin(dialect) {
        Kin::Chat => chat::whole_answer(body),
        Kin::Messages => messages::whole_answer(body),
        Kin::Responses => responses::whole_answer(body),
    }
}

/// The stream that says what the unary answer `whole` says, for a client that asked for a stream and a target that
/// cannot. `include_usage` matters to chat alone. `None` if `whole` is no answer in its dialect.
pub fn synthesize_stream(dialect: Dialect, whole: &[u8], include_usage: bool) -> Option<Vec<u8>> {
    if dialect == Dialect::Images {
        return images::synthesize_stream(whole);
    }
    match kin(dialect) {
        Kin::Chat => chat::synthesize_stream(whole, include_usage),
        Kin::Messages => messages::synthesize_stream(whole),
        Kin::Responses => responses::synthesize_stream(whole),
    }
}

/// Whose events and answers a dialect has.
enum Kin {
    Chat,
    Messages,
    Responses,
}

fn kin(dialect: Dialect) -> Kin {
    match dialect {
        Dialect::Messages => Kin::Messages,
        Dialect::Responses => Kin::Responses,
        Dialect::Chat
        | Dialect::Embeddings
        | Dialect::Speech
        | Dialect::Transcription
        | Dialect::Images
        | Dialect::Videos
        | Dialect::Gemini
        | Dialect::Bedrock => Kin::Chat,
    }
}

#[cfg(test)]
mod tests;
