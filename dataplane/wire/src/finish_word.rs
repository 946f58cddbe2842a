//! The words of all protocols for the end of a model's output: the one table that says what they mean.
//!
//! An answer whose output ended as a failure is never complete, regardless of its content.

use shared::usage::Finish;

/// A way in which an answer fails although its status is a success.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedEnd {
    /// What happened, as a sentence.
    pub(crate) message: &'static str,
    /// The code of the error, if it has one of its own.
    pub(crate) code: Option<&'static str>,
    /// The HTTP status that the failure would have had.
    pub(crate) status: u16,
    /// True if the content of the chunk that ends the answer is the text of the error.
    pub(crate) content_is_error: bool,
}

/// Returns the meaning of a finish reason, stop reason or status of any protocol; `None` if it is empty.
pub(crate) fn finish(word: &[u8]) -> Option<Finish> {
    if word.is_empty() {
        return None;
    }
    Some(row(word).map_or(Finish::Other, |row| row.finish))
}

/// Returns the failure that a word stands for; `None` if the output ended well, or if the word is not known.
pub(crate) fn failed_end(word: &[u8]) -> Option<&'static FailedEnd> {
    row(word)?.failure
}

/// Returns true for a finish reason of a filter that withheld the answer, or the rest of it.
pub(crate) fn is_filtered(word: &str) -> bool {
    finish(word.as_bytes()) == Some(Finish::ContentFilter)
}

/// Returns true if a limit cut off the answer.
pub(crate) fn is_cut(finish: Option<Finish>) -> bool {
    matches!(finish, Some(Finish::Length | Finish::ContextFull))
}

/// Returns the `finish_reason` of chat for the word of another protocol. A failed end keeps its word, by which the
/// reader of the stream recognises it.
pub(crate) fn in_chat_words(theirs: &str, has_calls: bool) -> &str {
    match finish(theirs.as_bytes()) {
        Some(Finish::Length | Finish::ContextFull) => "length",
        Some(Finish::ContentFilter | Finish::Refusal) => "content_filter",
        Some(Finish::ToolCalls) => "tool_calls",
        Some(Finish::Error) => theirs,
        // Some vendors send the word for an ordinary end after a call.
        Some(Finish::Stop | Finish::StopSequence | Finish::Pause | Finish::Other) | None if has_calls => {
            "tool_calls"
        }
        Some(Finish::Stop | Finish::StopSequence | Finish::Pause | Finish::Other) | None => "stop",
    }
}

fn row(word: &[u8]) -> Option<&'static EndWord> {
    WORDS.iter().find(|row| row.word.as_bytes() == word)
}

struct EndWord {
    word: &'static str,
    finish: Finish,
    failure: Option<&'static FailedEnd>,
}

/// The words, the most frequent ones first. A word that several vendors use has one meaning.
const WORDS: &[EndWord] = &[
    ends("stop", Finish::Stop),
    ends("tool_calls", Finish::ToolCalls),
    ends("end_turn", Finish::Stop),
    ends("tool_use", Finish::ToolCalls),
    ends("completed", Finish::Stop),
    ends("length", Finish::Length),
    ends("max_tokens", Finish::Length),
    ends("max_output_tokens", Finish::Length),
    ends("stop_sequence", Finish::StopSequence),
    ends("STOP", Finish::Stop),
    ends("MAX_TOKENS", Finish::Length),
    ends("function_call", Finish::ToolCalls),
    ends("content_filter", Finish::ContentFilter),
    ends("refusal", Finish::Refusal),
    ends("pause_turn", Finish::Pause),
    // Together and Text Generation Inference.
    ends("eos", Finish::Stop),
    ends("eos_token", Finish::Stop),
    // Mistral, Anthropic and Z.ai.
    ends("model_length", Finish::ContextFull),
    ends("model_context_window_exceeded", Finish::ContextFull),
    // Z.ai.
    ends("sensitive", Finish::ContentFilter),
    // Bedrock.
    ends("guardrail_intervened", Finish::ContentFilter),
    ends("content_filtered", Finish::ContentFilter),
    // Gemini.
    ends("SAFETY", Finish::ContentFilter),
    ends("RECITATION", Finish::ContentFilter),
    ends("BLOCKLIST", Finish::ContentFilter),
    ends("PROHIBITED_CONTENT", Finish::ContentFilter),
    ends("SPII", Finish::ContentFilter),
    ends("LANGUAGE", Finish::ContentFilter),
    ends("MODEL_ARMOR", Finish::ContentFilter),
    ends("IMAGE_SAFETY", Finish::ContentFilter),
    ends("IMAGE_PROHIBITED_CONTENT", Finish::ContentFilter),
    ends("IMAGE_RECITATION", Finish::ContentFilter),
    // OpenRouter, Mistral and vLLM; DashScope, whose chunk contains the error's text.
    fails("error", &ERROR),
    fails("error_finish", &ERROR_IN_CONTENT),
    // vLLM and SGLang.
    fails("abort", &ABORTED),
    // DeepSeek (genkit-ai/genkit#6259).
    fails("insufficient_system_resource", &NO_RESOURCES),
    // Z.ai and what is in front of it (NousResearch/hermes-agent#92161).
    fails("network_error", &INTERRUPTED),
    fails("network-error", &INTERRUPTED),
    // Cohere.
    fails("ERROR", &ERROR),
    fails("TIMEOUT", &INTERRUPTED),
    // Gemini (Wei-Shaw/sub2api#7098, agentjido/req_llm#944, archestra-ai/archestra#5487).
    fails("MALFORMED_FUNCTION_CALL", &MALFORMED_CALL),
    fails("UNEXPECTED_TOOL_CALL", &UNEXPECTED_CALL),
    fails("TOO_MANY_TOOL_CALLS", &TOO_MANY_CALLS),
    fails("MALFORMED_RESPONSE", &MALFORMED_OUTPUT),
    fails("MISSING_THOUGHT_SIGNATURE", &NO_SIGNATURE),
    // Bedrock.
    fails("malformed_tool_use", &MALFORMED_CALL),
    fails("malformed_model_output", &MALFORMED_OUTPUT),
];

const fn ends(word: &'static str, finish: Finish) -> EndWord {
    EndWord { word, finish, failure: None }
}

const fn fails(word: &'static str, failure: &'static FailedEnd) -> EndWord {
    EndWord { word, finish: Finish::Error, failure: Some(failure) }
}

/// The code of failures of the model itself: its output is unusable, and its server is healthy.
pub(crate) const MALFORMED_CODE: &str = "malformed_output";

static ERROR: FailedEnd = failed("The upstream ended its response with an error.", 502);
static ERROR_IN_CONTENT: FailedEnd =
    FailedEnd { content_is_error: true, ..failed("The upstream ended its response with an error.", 502) };
static ABORTED: FailedEnd = failed("The upstream aborted its response.", 502);
static INTERRUPTED: FailedEnd = failed("The upstream's response was interrupted.", 502);
static NO_RESOURCES: FailedEnd =
    failed("The upstream ran out of resources in the middle of its response.", 503);
static MALFORMED_CALL: FailedEnd = malformed("The model wrote a malformed tool call.");
static UNEXPECTED_CALL: FailedEnd = malformed("The model called a tool that the request does not offer.");
static TOO_MANY_CALLS: FailedEnd = malformed("The model called too many tools in a row.");
static MALFORMED_OUTPUT: FailedEnd = malformed("The model wrote a malformed response.");
static NO_SIGNATURE: FailedEnd = malformed("The upstream misses the signature of a thought.");

const fn failed(message: &'static str, status: u16) -> FailedEnd {
    FailedEnd { message, code: None, status, content_is_error: false }
}

const fn malformed(message: &'static str) -> FailedEnd {
    FailedEnd { code: Some(MALFORMED_CODE), ..failed(message, 502) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shared::operation::Dialect;

    use super::*;
    use crate::native::{WholeScan, stream, whole_answer};
    use crate::stream::StreamOptions;

    const USAGE: &str =
        r#""usage":{"prompt_tokens":1,"completion_tokens":2,"input_tokens":1,"output_tokens":2}"#;

    #[test]
    fn a_whole_answer_has_its_finish_reason_at_any_place() {
        let content = r#"\"finish_reason\":\"length\""#;
        for (dialect, members, want) in [
            (
                Dialect::Chat,
                r#""choices":[{"message":{"content":"C"},"finish_reason":"tool_calls"}]"#,
                Some(Finish::ToolCalls),
            ),
            (
                Dialect::Chat,
                r#""choices":[{"finish_reason": "stop","message":{"content":"C"}}]"#,
                Some(Finish::Stop),
            ),
            (Dialect::Chat, r#""choices":[{"message":{"content":"C"},"finish_reason":null}]"#, None),
            (Dialect::Chat, r#""choices":[{"message":{"content":"C"}}]"#, None),
            (
                Dialect::Messages,
                r#""content":[{"type":"text","text":"C"}],"stop_reason":"max_tokens""#,
                Some(Finish::Length),
            ),
            (
                Dialect::Messages,
                r#""stop_reason":"a_new_one","content":[{"type":"text","text":"C"}]"#,
                Some(Finish::Other),
            ),
            (Dialect::Messages, r#""stop_reason":null,"content":[]"#, None),
            (
                Dialect::Responses,
                r#""status":"completed","incomplete_details":null,"output":[]"#,
                Some(Finish::Stop),
            ),
            (
                Dialect::Responses,
                r#""incomplete_details":{"reason":"content_filter"},"status":"incomplete""#,
                Some(Finish::ContentFilter),
            ),
            (
                Dialect::Responses,
                r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}"#,
                Some(Finish::Length),
            ),
            (Dialect::Responses, r#""status":"in_progress","output":[]"#, None),
        ] {
            let members = members.replace("\"C\"", &format!("\"{content}\""));
            for body in [format!("{{{members},{USAGE}}}"), format!("{{{members}}}")] {
                assert_eq!(whole_answer(dialect, body.as_bytes()).finish, want, "{body}");
                let mut scan = WholeScan::new(dialect);
                body.as_bytes().chunks(3).for_each(|piece| scan.push(piece));
                assert_eq!(scan.finish().finish, want, "in pieces: {body}");
            }
        }
    }

    #[test]
    fn every_word_has_one_row() {
        let words: std::collections::BTreeSet<&str> = WORDS.iter().map(|row| row.word).collect();
        assert_eq!(words.len(), WORDS.len());
        assert!(WORDS.iter().all(|row| (row.finish == Finish::Error) == row.failure.is_some()));
    }

    #[test]
    fn every_vendors_word_has_its_equivalent_in_chat() {
        for (word, has_calls, want) in [
            ("", false, "stop"),
            ("end_turn", false, "stop"),
            ("end_turn", true, "tool_calls"),
            ("STOP", true, "tool_calls"),
            ("stop_sequence", false, "stop"),
            ("pause_turn", false, "stop"),
            ("max_tokens", true, "length"),
            ("MAX_TOKENS", true, "length"),
            ("model_context_window_exceeded", false, "length"),
            ("tool_use", true, "tool_calls"),
            ("refusal", false, "content_filter"),
            ("guardrail_intervened", true, "content_filter"),
            ("SAFETY", false, "content_filter"),
            ("OTHER", false, "stop"),
            ("something_new", false, "stop"),
            ("malformed_tool_use", false, "malformed_tool_use"),
            ("MALFORMED_FUNCTION_CALL", true, "MALFORMED_FUNCTION_CALL"),
        ] {
            assert_eq!(in_chat_words(word, has_calls), want, "{word}");
        }
    }

    #[test]
    fn a_stream_has_its_last_finish_reason() {
        let text = r#"{"choices":[{"delta":{"content":"x"},"finish_reason":null}]}"#;
        let start = r#"{"type":"message_start","message":{"stop_reason":null,"usage":{"input_tokens":1}}}"#;
        for (dialect, events, want) in [
            (Dialect::Chat, &[text][..], None),
            (
                Dialect::Chat,
                &[text, r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#],
                Some(Finish::Length),
            ),
            (Dialect::Messages, &[start], None),
            (
                Dialect::Messages,
                &[start, r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#],
                Some(Finish::ToolCalls),
            ),
            (
                Dialect::Responses,
                &[r#"{"type":"response.created","response":{"status":"in_progress"}}"#],
                None,
            ),
            (
                Dialect::Responses,
                &[
                    r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
                ],
                Some(Finish::Length),
            ),
        ] {
            let bytes: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            for length in [1, 7, bytes.len()] {
                let mut stream = stream(dialect, StreamOptions::default());
                let mut out = Vec::new();
                let pieces = bytes.as_bytes().chunks(length).map(Bytes::copy_from_slice);
                pieces.for_each(|piece| stream.push(piece, &mut out));
                assert_eq!(stream.state().finish, want, "{bytes} in pieces of {length}");
            }
        }
    }
}
