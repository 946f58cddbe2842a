//! Removes thoughts without a signature from a native Messages request, for targets that check signatures: another
//! vendor, or this gateway, wrote them, and the target would refuse the conversation. Every other byte is unchanged.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::model_rules::{ModelRules, ThinkingOff};

use super::splice::spliced;
use crate::claude::may_be_signature;

/// A request without unsigned thoughts.
#[derive(Debug, PartialEq, Eq)]
pub struct SignedRequest {
    /// The body.
    pub body: Vec<u8>,
    /// The members that were left out.
    pub dropped: Vec<&'static str>,
}

#[derive(Deserialize)]
struct Conversation<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageInput<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ContentBlock<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    signature: Option<Cow<'a, str>>,
}

/// Returns `body` without unsigned thoughts; `None` if it has none, or no shape in which they can be found. If a tool-use
/// turn that is still running loses its thoughts, thinking is turned off for the request as `rules` allow: a target
/// cannot start thinking in the middle of a turn.
pub fn without_unsigned_thoughts(body: &[u8], rules: &ModelRules) -> Option<SignedRequest> {
    let request: Conversation<'_> = serde_json::from_slice(body).ok()?;
    let messages: Vec<&RawValue> = serde_json::from_str(request.messages.get()).ok()?;
    let (mut kept, mut turn_is_unsigned, mut is_changed) = (Vec::with_capacity(messages.len()), false, false);
    for message in messages {
        let read = serde_json::from_str::<MessageInput<'_>>(message.get()).ok();
        let blocks = read.as_ref().and_then(|read| Some((read, blocks_of(read.content?)?)));
        let Some((read, blocks)) = blocks else {
            turn_is_unsigned &= read.is_some_and(|read| read.role != "user");
            kept.push(Cow::Borrowed(message.get()));
            continue;
        };
        let has = |kind: &str| blocks.iter().any(|(_, block)| block.kind == kind);
        if read.role == "user" {
            turn_is_unsigned &= blocks.iter().all(|(_, block)| block.kind == "tool_result");
        }
        if !blocks.iter().any(|(_, block)| block.is_unsigned()) {
            kept.push(Cow::Borrowed(message.get()));
            continue;
        }
        is_changed = true;
        let signed = blocks.iter().any(|(_, block)| block.kind.ends_with("thinking") && !block.is_unsigned());
        turn_is_unsigned |= has("tool_use") && !signed;
        let rest: Vec<&str> =
            blocks.iter().filter(|(_, block)| !block.is_unsigned()).map(|(raw, _)| raw.get()).collect();
        if !rest.is_empty() {
            let content = place(message.get().as_bytes(), read.content?)?;
            let (before, after) = (message.get().get(..content.start)?, message.get().get(content.end..)?);
            kept.push(Cow::Owned([before, "[", &rest.join(","), "]", after].concat()));
        }
    }
    if !is_changed {
        return None;
    }
    let mut edits = vec![(place(body, request.messages)?, format!("[{}]", kept.join(",")))];
    let mut dropped = vec![THOUGHTS];
    if let Some(thinking) = request.thinking.filter(|thinking| turn_is_unsigned && is_on(thinking)) {
        let span = place(body, thinking)?;
        let off = rules.thinking_off.unwrap_or(ThinkingOff::Thinking);
        if rules.thinks_by_default == Some(true) {
            let (_, value) = off.member().filter(|_| off.is_complete()).unzip();
            edits.extend(value.map(|value| (span, value.to_owned())));
        } else {
            edits.push((member_around(body, span)?, String::new()));
        }
        dropped.push("thinking");
    }
    edits.sort_by_key(|(span, _)| span.start);
    Some(SignedRequest { body: spliced(body, &edits)?, dropped })
}

/// The path of thoughts in the tables of losses.
const THOUGHTS: &str = "messages.*.content.*[thinking]";

impl ContentBlock<'_> {
    fn is_unsigned(&self) -> bool {
        let signature = self.signature.as_deref().unwrap_or_default();
        self.kind == "thinking" && !may_be_signature(signature.as_bytes())
    }
}

/// Returns the blocks of a content; `None` if it is a string or has another shape.
fn blocks_of(content: &RawValue) -> Option<Vec<(&RawValue, ContentBlock<'_>)>> {
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    blocks.into_iter().map(|raw| Some((raw, serde_json::from_str(raw.get()).ok()?))).collect()
}

fn is_on(thinking: &RawValue) -> bool {
    serde_json::from_str::<ContentBlock<'_>>(thinking.get())
        .is_ok_and(|thinking| matches!(&*thinking.kind, "enabled" | "adaptive"))
}

/// Returns the position of `value` in `text`, which contains it.
fn place(text: &[u8], value: &RawValue) -> Option<Range<usize>> {
    let start = value.get().as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let end = start.checked_add(value.get().len())?;
    (end <= text.len()).then_some(start..end)
}

/// Returns the range of the member with the value at `value`, with one of the commas beside it.
fn member_around(body: &[u8], value: Range<usize>) -> Option<Range<usize>> {
    let before = body.get(..value.start)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let name = before.strip_suffix(b"\"")?;
    let start = memchr::memrchr(b'"', name)?;
    if let Some(rest) = body.get(..start)?.trim_ascii_end().strip_suffix(b",") {
        return Some(rest.len()..value.end);
    }
    let after = body.get(value.end..)?;
    let comma = after.len().checked_sub(after.trim_ascii_start().len())?;
    let has_comma = after.get(comma) == Some(&b',');
    Some(start..value.end.checked_add(if has_comma { comma.checked_add(1)? } else { 0 })?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SIGNED: &str = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h/+8=";

    fn sent(messages: &Value, thinking: &str, rules: &ModelRules) -> Option<(Value, Vec<&'static str>)> {
        let body = format!(r#"{{"model":"m", "messages" : {messages}{thinking} , "max_tokens":1.0}}"#);
        let signed = without_unsigned_thoughts(body.as_bytes(), rules)?;
        let text = String::from_utf8(signed.body).unwrap();
        assert!(text.starts_with(r#"{"model":"m", "messages" : ["#), "{text}");
        assert!(text.ends_with(r#" , "max_tokens":1.0}"#), "every other byte stays: {text}");
        Some((serde_json::from_str(&text).unwrap(), signed.dropped))
    }

    fn thought(signature: &Value) -> Value {
        json!({"type": "thinking", "thinking": "hm", "signature": signature})
    }

    fn user(content: &Value) -> Value {
        json!({"role": "user", "content": content})
    }

    fn assistant(blocks: &[Value]) -> Value {
        json!({"role": "assistant", "content": blocks})
    }

    const ENABLED: &str = r#","thinking":{"type":"enabled","budget_tokens":2000}"#;

    #[test]
    fn thoughts_of_other_vendors_are_left_out_and_signed_ones_stay() {
        // NousResearch/hermes-agent#24401 (empty), router-for-me/CLIProxyAPI#3052 (of OpenAI),
        // openclaw/openclaw#85192 (the name of a member), kaitranntt/ccs#415 (missing).
        let text = json!({"type": "text", "text": "one moment"});
        let foreign =
            [json!(""), json!("gAAAAABp7JIk-p-NNsh6kcHis7Jecs"), json!("reasoning_content"), Value::Null];
        for signature in foreign {
            let talk = json!([
                user(&json!("x")),
                assistant(&[thought(&signature), text.clone()]),
                user(&json!("y"))
            ]);
            let (body, dropped) = sent(&talk, ENABLED, &ModelRules::UNKNOWN).unwrap();
            assert_eq!(body["messages"][1]["content"], json!([text]), "{signature}");
            assert_eq!(
                (dropped, &body["thinking"]["type"]),
                (vec![THOUGHTS], &json!("enabled")),
                "a new turn"
            );
        }
        let talk = json!([user(&json!("x")), assistant(&[thought(&json!(SIGNED)), text]), user(&json!("y"))]);
        assert_eq!(sent(&talk, ENABLED, &ModelRules::UNKNOWN), None);
    }

    #[test]
    fn a_message_that_has_only_unsigned_thoughts_is_left_out() {
        let talk = json!([user(&json!("x")), assistant(&[thought(&json!(""))]), user(&json!("y"))]);
        let (body, _) = sent(&talk, "", &ModelRules::UNKNOWN).unwrap();
        assert_eq!(body["messages"], json!([user(&json!("x")), user(&json!("y"))]));
    }

    #[test]
    fn thinking_is_turned_off_within_a_running_tool_turn_that_lost_its_thoughts() {
        let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
        let result = user(&json!([{"type": "tool_result", "tool_use_id": "t", "content": "r"}]));
        let running = json!([user(&json!("x")), assistant(&[thought(&json!("")), call.clone()]), result]);
        let (body, dropped) = sent(&running, ENABLED, &ModelRules::UNKNOWN).unwrap();
        assert_eq!((body.get("thinking"), dropped), (None, vec![THOUGHTS, "thinking"]));
        assert_eq!(body["messages"][1]["content"], json!([call]));
        let by_default = ModelRules {
            thinks_by_default: Some(true),
            thinking_off: Some(ThinkingOff::Thinking),
            ..ModelRules::UNKNOWN
        };
        let (body, _) = sent(&running, ENABLED, &by_default).unwrap();
        assert_eq!(body["thinking"], json!({"type": "disabled"}));
        let (body, _) = sent(&running, "", &ModelRules::UNKNOWN).unwrap();
        assert_eq!(body.get("thinking"), None);
        let mut ended = running.as_array().unwrap().clone();
        ended.extend([assistant(&[json!({"type": "text", "text": "a"})]), user(&json!("more"))]);
        let (body, dropped) = sent(&json!(ended), ENABLED, &ModelRules::UNKNOWN).unwrap();
        assert_eq!((&body["thinking"]["type"], dropped), (&json!("enabled"), vec![THOUGHTS]), "it has ended");
    }

    #[test]
    fn a_first_member_is_removed_with_the_comma_after_it() {
        let body = br#"{ "thinking" : {"type":"adaptive"}, "messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use"}]}]}"#;
        let signed = without_unsigned_thoughts(body, &ModelRules::UNKNOWN).unwrap();
        let want = r#"{  "messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use"}]}]}"#;
        assert_eq!(String::from_utf8(signed.body).unwrap(), want);
    }

    #[test]
    fn a_body_of_another_shape_stays_as_it_is() {
        for body in [
            "{}",
            "x",
            r#"{"messages":{}}"#,
            r#"{"messages":[1,{"role":"user"},{"role":"user","content":[1]}]}"#,
        ] {
            assert_eq!(without_unsigned_thoughts(body.as_bytes(), &ModelRules::UNKNOWN), None, "{body}");
        }
    }
}
