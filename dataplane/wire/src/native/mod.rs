//! Reads answers in the client's own dialect with that dialect's reader.

mod collect;

use std::ops::Range;

use bytes::Bytes;
use shared::operation::Dialect;

use crate::envelope::{self, StreamError};
use crate::media::embeddings::VectorRewriter;
use crate::media::images;
use crate::request::VectorForm;
use crate::stream::{AnswerStream, StreamOptions};
use crate::{chat, gemini, messages, responses};

pub use self::collect::{COLLECTED_BYTES_MAX, collect, length_before_events};
pub use crate::passthrough::{HELD_BYTES_MAX, WholeAnswer};

/// Creates the relay for a streamed answer of a target that speaks the client's dialect. Dialects other than Messages,
/// Responses and images are read as chat, whose errors every OpenAI SDK recognises.
pub fn stream(dialect: Dialect, options: StreamOptions) -> Box<dyn AnswerStream> {
    if dialect == Dialect::Images {
        return Box::new(images::ImageStream::new(options));
    }
    match family(dialect) {
        DialectFamily::Chat => Box::new(chat::stream(options)),
        DialectFamily::Messages => Box::new(messages::stream(options)),
        DialectFamily::Responses => Box::new(responses::stream(options)),
        DialectFamily::Gemini => Box::new(gemini::stream(options)),
    }
}

/// Returns a whole chat answer with OpenAI's names added to its `usage`, which is at `part` and lacks some of them
/// (CHAT-3).
pub fn with_usage_names(body: Bytes, part: Range<usize>) -> Bytes {
    chat::with_names(body, part)
}

/// Reads a unary answer of any size in pieces and keeps only its usage and error.
#[derive(Debug)]
pub struct WholeScan(DialectScan);

#[derive(Debug)]
enum DialectScan {
    Chat(chat::ChatAnswerScan),
    /// An embeddings answer, whose usage has the names of chat, and the rewriter of its vectors.
    Embeddings(chat::ChatAnswerScan, Box<VectorRewriter>),
    Messages(messages::MessagesAnswerScan),
    Responses(responses::ResponsesAnswerScan),
    Gemini(gemini::GeminiAnswerScan),
}

impl WholeScan {
    /// Creates a scan for a new answer.
    pub fn new(dialect: Dialect) -> Self {
        Self(match family(dialect) {
            DialectFamily::Chat => DialectScan::Chat(chat::ChatAnswerScan::default()),
            DialectFamily::Messages => DialectScan::Messages(messages::MessagesAnswerScan::default()),
            DialectFamily::Responses => DialectScan::Responses(responses::ResponsesAnswerScan::default()),
            DialectFamily::Gemini => DialectScan::Gemini(gemini::GeminiAnswerScan::default()),
        })
    }

    /// Creates a scan for a new embeddings answer, whose vectors have to be in this form.
    pub fn of_embeddings(form: VectorForm) -> Self {
        let rewriter = Box::new(VectorRewriter::new(form));
        Self(DialectScan::Embeddings(chat::ChatAnswerScan::default(), rewriter))
    }

    /// Reads the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        match &mut self.0 {
            DialectScan::Chat(scan) | DialectScan::Embeddings(scan, _) => scan.push(piece),
            DialectScan::Messages(scan) => scan.push(piece),
            DialectScan::Responses(scan) => scan.push(piece),
            DialectScan::Gemini(scan) => scan.push(piece),
        }
    }

    /// Reads the next piece and appends the bytes for a chat client to `out`: unchanged, with OpenAI's names added to
    /// `usage`. A `usage` that is split between pieces is held back until it is complete.
    pub fn pass_chat(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        match &mut self.0 {
            DialectScan::Chat(scan) => scan.pass(piece, out),
            DialectScan::Embeddings(..)
            | DialectScan::Messages(_)
            | DialectScan::Responses(_)
            | DialectScan::Gemini(_) => {
                self.push(&piece);
                out.push(piece);
            }
        }
    }

    /// Reads the next piece and appends the bytes for a client of embeddings to `out`: vectors in the form that was asked
    /// for, everything else unchanged.
    pub fn pass_embeddings(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        self.push(&piece);
        match &mut self.0 {
            DialectScan::Embeddings(_, vectors) => vectors.push(piece, out),
            DialectScan::Chat(_)
            | DialectScan::Messages(_)
            | DialectScan::Responses(_)
            | DialectScan::Gemini(_) => out.push(piece),
        }
    }

    /// Ends the upstream's input: appends the bytes that are held back to `out`.
    pub fn release(&mut self, out: &mut Vec<Bytes>) {
        match &mut self.0 {
            DialectScan::Chat(scan) => scan.release(out),
            DialectScan::Embeddings(_, vectors) => vectors.release(out),
            DialectScan::Messages(_) | DialectScan::Responses(_) | DialectScan::Gemini(_) => {}
        }
    }

    /// Ends the answer, returns its result and resets the scan for another answer.
    pub fn finish(&mut self) -> WholeAnswer {
        match &mut self.0 {
            DialectScan::Chat(scan) | DialectScan::Embeddings(scan, _) => std::mem::take(scan).finish(),
            DialectScan::Messages(scan) => std::mem::take(scan).answer(),
            DialectScan::Responses(scan) => std::mem::take(scan).answer(),
            DialectScan::Gemini(scan) => std::mem::take(scan).answer(),
        }
    }
}

/// Reads a complete answer. Usually only its end is parsed, from `usage` on; `output_bytes` is then 0, because the
/// token counts are known.
pub fn whole_answer(dialect: Dialect, body: &[u8]) -> WholeAnswer {
    match family(dialect) {
        DialectFamily::Chat => chat::whole_answer(body),
        DialectFamily::Messages => messages::MessagesAnswerScan::answer_of(body),
        DialectFamily::Responses => responses::ResponsesAnswerScan::answer_of(body),
        DialectFamily::Gemini => gemini::GeminiAnswerScan::answer_of(body),
    }
}

/// Returns true if a complete chat answer has a choice. Parses all of it.
pub fn has_choice(body: &[u8]) -> bool {
    chat::has_choice(body)
}

/// Converts the unary answer `whole` to a stream, for a client that requested a stream and a target that cannot produce
/// one. `include_usage` affects chat only. `None` if `whole` is not an answer in its dialect.
pub fn synthesize_stream(dialect: Dialect, whole: &[u8], include_usage: bool) -> Option<Vec<u8>> {
    if dialect == Dialect::Images {
        return images::synthesize_stream(whole);
    }
    match family(dialect) {
        DialectFamily::Chat => chat::synthesize_stream(whole, include_usage),
        DialectFamily::Messages => messages::synthesize_stream(whole),
        DialectFamily::Responses => responses::synthesize_stream(whole),
        DialectFamily::Gemini => gemini::synthesize_stream(whole),
    }
}

/// Returns the event that reports a sanitized error of an upstream to a client of `dialect` whose stream has not begun.
/// No other event follows it.
pub fn error_event(dialect: Dialect, error: &StreamError, request_id: &str) -> Bytes {
    match family(dialect) {
        DialectFamily::Chat => envelope::event_of(&error.to_value()),
        DialectFamily::Messages => envelope::error_event(error),
        DialectFamily::Responses => responses::failed_event(error, request_id),
        DialectFamily::Gemini => envelope::google_stream_error(error),
    }
}

/// The dialect whose events and answers another dialect shares.
enum DialectFamily {
    Chat,
    Messages,
    Responses,
    Gemini,
}

fn family(dialect: Dialect) -> DialectFamily {
    match dialect {
        Dialect::Messages => DialectFamily::Messages,
        Dialect::Responses => DialectFamily::Responses,
        Dialect::Gemini | Dialect::GeminiEmbeddings => DialectFamily::Gemini,
        Dialect::Chat
        | Dialect::Embeddings
        | Dialect::Speech
        | Dialect::Transcription
        | Dialect::Images
        | Dialect::Videos
        | Dialect::Bedrock => DialectFamily::Chat,
    }
}

#[cfg(test)]
mod tests;
