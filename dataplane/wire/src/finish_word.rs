//! The words of all protocols for the end of a model's output.

use shared::usage::Finish;

/// Returns the meaning of a finish reason, stop reason or status of any protocol; `None` if it is empty.
pub(crate) fn finish(word: &[u8]) -> Option<Finish> {
    Some(match word {
        b"" => return None,
        b"stop" | b"end_turn" | b"eos" | b"completed" => Finish::Stop,
        b"stop_sequence" => Finish::StopSequence,
        b"length" | b"max_tokens" | b"max_output_tokens" => Finish::Length,
        b"model_length" | b"model_context_window_exceeded" => Finish::ContextFull,
        b"tool_calls" | b"tool_use" | b"function_call" => Finish::ToolCalls,
        b"content_filter" => Finish::ContentFilter,
        b"refusal" => Finish::Refusal,
        b"pause_turn" => Finish::Pause,
        b"error" | b"abort" | b"insufficient_system_resource" => Finish::Error,
        _ => Finish::Other,
    })
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
