//! Reads a unary Responses answer, in pieces while it is relayed, or at once if it is short.

use serde_json::Value;
use shared::usage::Finish;

use super::envelope::Envelope;
use crate::envelope::StreamError;
use crate::json::{JsonPlace, TextLength};
use crate::passthrough::{Capture, DocumentFacts, Gather, WholeAnswer};

/// The depth of the members of a response that is the whole document.
const BASE: u32 = 1;

/// Reads an answer of any size in pieces and keeps only its usage and error.
#[derive(Debug, Default)]
pub(crate) struct ResponsesAnswerScan {
    gather: Gather<ResponseFacts>,
    broken: bool,
}

#[derive(Debug, Default)]
struct ResponseFacts(Envelope);

impl ResponsesAnswerScan {
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.broken = self.broken || self.gather.push(piece).is_err();
    }

    /// Returns the facts of the answer after its end. `error: null` is not an error; a failed response without a reason
    /// is.
    pub(crate) fn finish(self) -> WholeAnswer {
        let (ResponseFacts(response), whole) = self.gather.finish();
        let error_value =
            response.error.truthy().map(|raw| serde_json::from_slice(raw).unwrap_or_else(|_| NO_WORD.into()));
        let failure = (response.finish() == Some(Finish::Error)).then(StreamError::of_failed_response);
        let error_value = error_value.or_else(|| response.failed.then(|| Value::from(NO_WORD)));
        WholeAnswer {
            finish: response.finish(),
            usage: response.usage,
            extras: response.extras,
            may_have_failed: false,
            error: error_value.map(|error| StreamError::of_member(&error)).or(failure),
            is_json: !self.broken && whole.is_ok(),
            output_bytes: response.text_bytes,
            unnamed_usage: None,
        }
    }
}

/// Reads a complete answer.
pub(crate) fn whole_answer(body: &[u8]) -> WholeAnswer {
    let mut scan = ResponsesAnswerScan::default();
    scan.push(body);
    scan.finish()
}

impl DocumentFacts for ResponseFacts {
    fn capture(&mut self) -> &mut Capture {
        &mut self.0.error
    }

    fn begins(&mut self, at: JsonPlace) {
        self.0.begins(at, BASE);
    }

    fn ends(&mut self, at: JsonPlace) {
        self.0.ends(at, BASE);
    }

    fn open(&mut self, at: JsonPlace, object: bool) {
        self.0.open(at, BASE, object);
    }

    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        self.0.skips(at, BASE, object)
    }

    fn close(&mut self, at: JsonPlace) {
        self.0.close(at, BASE);
    }

    fn name(&mut self, depth: u32, name: &[u8]) {
        self.0.name(depth, BASE, name);
    }

    fn text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        self.0.text(at, BASE, length, glance);
    }

    fn scalar(&mut self, at: JsonPlace, raw: &[u8]) {
        self.0.scalar(at, BASE, raw);
    }
}

const NO_WORD: &str = "The upstream answered with an error.";
