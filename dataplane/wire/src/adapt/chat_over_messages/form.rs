//! The parts shared by all answers to one request.

use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{self, ObjectWriter};
use crate::adapt::{Answers, Asking, BadAnswer, TranslatedAnswer};
use crate::stream::AnswerStream;

use super::stream::ChatChunks;
use super::{response, target_types};

/// The optional parts of the answer that the client requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// The usage at the end of a stream.
    pub(super) include_usage: bool,
    /// Signed thinking blocks.
    pub(super) thinking_blocks: bool,
    /// Calls in the legacy form (`function_call`).
    pub(super) functions: bool,
}

impl Wishes {
    /// Translates the stop reason into chat's `finish_reason`.
    pub(super) fn finish_reason(&self, stop_reason: &str, has_calls: bool) -> &'static str {
        match target_types::finish_reason(stop_reason, has_calls) {
            "tool_calls" if self.functions => "function_call",
            reason => reason,
        }
    }
}

/// The members shared by all answers to one request, and its optional parts.
#[derive(Debug)]
pub(super) struct ChatAnswerForm {
    /// The first members of an answer: `"id":"chatcmpl-..","object":"chat.completion`. `tail` holds the members after
    /// that.
    head: Vec<u8>,
    tail: Vec<u8>,
    pub(super) wishes: Wishes,
    /// Maps the target's tool names back to the client's.
    pub(super) names: ToolNames,
}

impl ChatAnswerForm {
    pub(super) fn new(asking: &Asking<'_>, wishes: Wishes, names: ToolNames) -> Self {
        let mut head = Vec::new();
        ObjectWriter::open(&mut head).text("id", &format!("chatcmpl-{}", asking.seed));
        head.extend_from_slice(br#","object":"chat.completion"#);
        let mut tail = br#"","created":"#.to_vec();
        write::number(&mut tail, asking.now_s);
        tail.extend_from_slice(br#","model":"#);
        write::string(&mut tail, asking.selector);
        tail.extend_from_slice(br#","choices":["#);
        Self { head, tail, wishes, names }
    }

    /// Writes the start of a complete answer, up to its choice.
    pub(super) fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.tail);
    }

    /// Returns the start of a chunk, up to its choice.
    pub(super) fn chunk(&self) -> Vec<u8> {
        [b"data: ", self.head.as_slice(), b".chunk", &self.tail].concat()
    }
}

impl Answers for ChatAnswerForm {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        response::whole(self, body)
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(ChatChunks::new(self, secrets))
    }
}
