//! The parts of a request that every snapshot of its response repeats.

use bytes::Bytes;

use super::event_writer::number;
use crate::adapt::Asking;
use crate::adapt::read::{Object, member, member_text};
use crate::json;

/// The constant parts of a snapshot, in the order in which they are written: `head` status `middle` output `tail` usage
/// `}`.
#[derive(Clone, Debug)]
pub(super) struct EchoedRequest {
    /// The middle part of every id in the answer.
    pub(super) seed: Box<str>,
    /// The members before `status`.
    pub(super) head: Bytes,
    /// The members between the status, with its error and details, and `output`.
    pub(super) middle: Bytes,
    /// The members between `output` and `usage`.
    pub(super) tail: Bytes,
}

impl EchoedRequest {
    pub(super) fn new(request: &Object<'_, '_>, asking: &Asking<'_>) -> Self {
        let mut head =
            format!(r#""id":"resp_{}","object":"response","created_at":"#, asking.seed).into_bytes();
        number(&mut head, asking.now_s);
        let mut middle = Vec::new();
        let put = |out: &mut Vec<u8>, name: &str, default: &str| {
            out.extend_from_slice(format!(r#","{name}":"#).as_bytes());
            match member(request, name) {
                Some(value) => json::write(value, out),
                None => out.extend_from_slice(default.as_bytes()),
            }
        };
        put(&mut middle, "instructions", "null");
        put(&mut middle, "max_output_tokens", "null");
        middle.extend_from_slice(format!(r#","model":{}"#, json::quote(asking.selector)).as_bytes());
        let mut tail = Vec::new();
        for (name, default) in [
            ("parallel_tool_calls", "true"),
            ("temperature", "null"),
            ("text", r#"{"format":{"type":"text"}}"#),
            ("tool_choice", r#""auto""#),
            ("tools", "[]"),
            ("top_p", "null"),
            ("user", "null"),
            ("metadata", "{}"),
        ] {
            put(&mut tail, name, default);
        }
        let of_reasoning = |name: &str| {
            let reasoning = member(request, "reasoning").and_then(|reasoning| reasoning.as_object());
            let word = reasoning.and_then(|reasoning| member_text(&reasoning, name));
            word.map_or_else(|| "null".to_owned(), json::quote)
        };
        let effort = of_reasoning("effort");
        // The strict rules leave it to the target whether there is a summary.
        let summary = asking.target.agents.map_or_else(|| "null".to_owned(), |_| of_reasoning("summary"));
        let fixed = format!(
            r#","previous_response_id":null,"reasoning":{{"effort":{effort},"summary":{summary}}},"store":false,"truncation":"disabled""#
        );
        tail.extend_from_slice(fixed.as_bytes());
        Self { seed: asking.seed.into(), head: head.into(), middle: middle.into(), tail: tail.into() }
    }
}
