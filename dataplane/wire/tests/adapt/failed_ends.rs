//! Answers whose output ended as a failure, in the words of every vendor: each is an error for the client of every other
//! dialect, whole and streamed, wherever the stream is cut.

use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::usage::Finish;
use wire::adapt::{ADAPTATIONS, BadAnswer};

use crate::chat_over_bedrock::{delta as converse_delta, stop as converse_stop};
use crate::pair::{answers, cuttings, relay};

/// A target's word for a failed end, and the place where it was reported.
const WORDS: [(Dialect, &str, &str); 14] = [
    (Dialect::Chat, "error", "OleksandrChekhovskyi/hax#15"),
    (Dialect::Chat, "insufficient_system_resource", "genkit-ai/genkit#6259"),
    (Dialect::Chat, "abort", "vllm-project/vllm#57082"),
    (Dialect::Chat, "network_error", "NousResearch/hermes-agent#92161"),
    (Dialect::Messages, "error", "a server of Messages that passes the words of chat on"),
    (Dialect::Messages, "network_error", "Z.ai's words of chat in Messages"),
    (Dialect::Responses, "error", "a server of Responses that passes the words of chat on"),
    (Dialect::Gemini, "MALFORMED_FUNCTION_CALL", "Wei-Shaw/sub2api#7098, agentjido/req_llm#944"),
    (Dialect::Gemini, "UNEXPECTED_TOOL_CALL", "archestra-ai/archestra#5487"),
    (Dialect::Gemini, "TOO_MANY_TOOL_CALLS", "the reference of generateContent"),
    (Dialect::Gemini, "MALFORMED_RESPONSE", "the reference of generateContent"),
    (Dialect::Gemini, "MISSING_THOUGHT_SIGNATURE", "the reference of generateContent"),
    (Dialect::Bedrock, "malformed_tool_use", "anomalyco/opencode#46193"),
    (Dialect::Bedrock, "malformed_model_output", "UKGovernmentBEIS/inspect_ai#2941"),
];

fn whole(target: Dialect, word: &str) -> Value {
    match target {
        Dialect::Chat => {
            json!({"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": word}]})
        }
        Dialect::Messages => {
            json!({"type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": word})
        }
        Dialect::Responses => json!({
            "object": "response", "status": "incomplete", "incomplete_details": {"reason": word}, "output": [],
        }),
        Dialect::Gemini => {
            json!({"candidates": [{"index": 0, "finishReason": word, "finishMessage": "why"}]})
        }
        Dialect::Bedrock => json!({"output": {"message": {"content": [{"text": "a"}]}}, "stopReason": word}),
        other => panic!("no target speaks {other:?}"),
    }
}

/// Returns a stream with the text "a" that ends with `word`.
fn streamed(target: Dialect, word: &str) -> Vec<u8> {
    let events =
        |events: &[Value]| events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    let text = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]});
    match target {
        Dialect::Chat => {
            let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]});
            (events(&[text, end]) + "data: [DONE]\n\n").into_bytes()
        }
        Dialect::Messages => events(&[
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 1}}),
            json!({"type": "message_stop"}),
        ])
        .into_bytes(),
        Dialect::Responses => events(&[
            json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"}),
            json!({"type": "response.incomplete", "response": whole(target, word)}),
        ])
        .into_bytes(),
        Dialect::Gemini => {
            let parts = json!({"candidates": [{"index": 0, "content": {"parts": [{"text": "a"}]}}]});
            events(&[parts, whole(target, word)]).into_bytes()
        }
        Dialect::Bedrock => [converse_delta(0, &json!({"text": "a"})), converse_stop(word)].concat(),
        other => panic!("no target speaks {other:?}"),
    }
}

#[test]
fn every_vendors_failed_end_is_an_error_for_every_client() {
    for (target, word, _) in WORDS {
        for pair in ADAPTATIONS.iter().filter(|pair| pair.target == target && pair.client.is_conversation()) {
            let name = format!("{word} from {target:?} for {:?}", pair.client);
            let read = answers(pair, &Value::Null, false).whole(whole(target, word).to_string().as_bytes());
            assert!(
                matches!(&read, Err(BadAnswer::Error(error)) if error.status.is_some()),
                "{name}: {read:?}"
            );
            let stream = streamed(target, word);
            for pieces in cuttings(&stream) {
                let (out, state) = relay(&*answers(pair, &Value::Null, true), &pieces);
                let out = String::from_utf8(out).unwrap();
                assert!(state.error.is_some() && !state.done && state.content, "{name}: {out}");
                assert_eq!(state.finish, Some(Finish::Error), "{name}");
                assert!(out.contains("error") && !out.contains("[DONE]"), "{name}: {out}");
                assert!(
                    !out.contains("message_stop") && !out.contains("response.completed"),
                    "{name}: {out}"
                );
            }
        }
    }
}

#[test]
fn geminis_words_about_a_failed_end_reach_the_client() {
    let pair = ADAPTATIONS.iter().find(|pair| (pair.client, pair.target) == (Dialect::Chat, Dialect::Gemini));
    let body = whole(Dialect::Gemini, "MALFORMED_FUNCTION_CALL").to_string();
    let Err(BadAnswer::Error(error)) = answers(pair.unwrap(), &Value::Null, false).whole(body.as_bytes())
    else {
        panic!("the answer failed");
    };
    let want = "The model wrote a malformed tool call. Finish reason: MALFORMED_FUNCTION_CALL. why";
    assert_eq!((&*error.message, error.code.as_deref()), (want, Some("malformed_output")));
}

/// Wei-Shaw/sub2api#7098: Gemini sends only its usage.
#[test]
fn an_answer_of_gemini_without_candidates_is_invalid_unless_the_prompt_was_blocked() {
    let pair = ADAPTATIONS.iter().find(|pair| (pair.client, pair.target) == (Dialect::Chat, Dialect::Gemini));
    let read = |body: Value| answers(pair.unwrap(), &Value::Null, false).whole(body.to_string().as_bytes());
    let usage = json!({"promptTokenCount": 1});
    for body in [json!({"usageMetadata": usage}), json!({"candidates": [], "usageMetadata": usage})] {
        assert_eq!(read(body), Err(BadAnswer::Invalid("it has no candidates")));
    }
    let blocked = read(json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage})).unwrap();
    assert_eq!(blocked.finish, Some(Finish::ContentFilter));
}
