//! Pairs that are two others: what comes out is what the two of them say one after the other, however it is cut, and
//! a path in a rejection is one of the client's.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Adaptation, Rejection, Traits, find};

use crate::pair::{answers, cuttings, fixture, fixture_json, prepare, relay};

fn chains() -> Vec<(&'static Adaptation, &'static Adaptation, &'static Adaptation)> {
    let chains = ADAPTATIONS.iter().filter_map(|pair| {
        let via = pair.via?;
        Some((pair, find(pair.client, via).unwrap(), find(via, pair.target).unwrap()))
    });
    chains.collect()
}

/// Streams that the vectors hold in a target's dialect.
fn streams(target: Dialect) -> Vec<Vec<u8>> {
    let index = fixture_json("conv/index.json");
    let wanted = format!("{}->chat stream", target.name());
    let cases = index["cases"].as_array().unwrap().iter().filter(|case| case["conv"] == *wanted);
    cases.map(|case| fixture(case["input"].as_str().unwrap())).collect()
}

#[test]
fn streams_go_through_both_steps() {
    let args = json!({"model": "m", "include_usage": true, "thinking": true});
    let mut seen = 0;
    for (chain, first, second) in chains() {
        let (both, near, far) =
            (answers(chain, &args, true), answers(second, &args, true), answers(first, &args, true));
        for input in streams(chain.target) {
            seen += 1;
            let (between, near_state) = relay(&*near, &[&input]);
            let (want, far_state) = relay(&*far, &[&between]);
            let (whole, state) = relay(&*both, &[&input]);
            assert_eq!(state.error.is_some(), near_state.error.is_some());
            assert_eq!((state.content, state.done), (far_state.content, far_state.done));
            assert_eq!(state.usage, near_state.usage);
            if state.done {
                assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&want));
            }
            for pieces in cuttings(&input) {
                assert!(relay(&*both, &pieces) == (whole.clone(), state.clone()));
            }
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn requests_and_whole_answers_go_through_both_steps() {
    for (chain, first, second) in chains() {
        let target = Traits::of("target-model");
        let request = match chain.client {
            Dialect::Responses => fixture("conv/e_stateless.in.json"),
            _ => fixture("conv/a_agent.in.json"),
        };
        let between = Traits { output_limit_field: "max_completion_tokens", mid_system: true, ..target };
        let told = prepare(first, &request, &between).unwrap();
        let want = prepare(second, &told.body, &target).unwrap();
        let got = prepare(chain, &request, &target).unwrap();
        assert_eq!(String::from_utf8_lossy(&got.body), String::from_utf8_lossy(&want.body));
    }
    let answer = fixture("conv/d_full.in.json");
    let chain = find(Dialect::Responses, Dialect::Messages).unwrap();
    let whole = answers(chain, &json!({"model": "m"}), false).whole(&answer).unwrap();
    let body: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!((&body["object"], &body["model"]), (&json!("response"), &json!("m")));
    assert_eq!(whole.usage.map(|usage| usage.input), Some(20));
}

fn rejection(client: Dialect, target: Dialect, request: &Value) -> Option<Rejection> {
    let chain = find(client, target)?;
    prepare(chain, request.to_string().as_bytes(), &Traits::of("m")).err()
}

#[test]
fn what_the_second_step_rejects_is_named_in_the_clients_words() {
    let rows = [
        (json!({"text": {"format": {"type": "json_object"}}}), "text.format"),
        (json!({"temperature": 1.5}), "temperature"),
        (
            json!({"input": [{"role": "user", "content": "x"}, {"role": "user", "content": [
                {"type": "input_text", "text": "x"},
                {"type": "input_image", "image_url": "data:image/bmp;base64,aGk="}]}]}),
            "input.1.content.1",
        ),
        (
            json!({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"},
                {"type": "function_call_output", "call_id": "c", "output": "r"}]}),
            "input.0",
        ),
    ];
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}});
    let request = json!({"max_tokens": 9, "system": "s", "messages": [{"role": "user", "content": [
        {"type": "text", "text": "x"}, image]}]});
    let refused = rejection(Dialect::Messages, Dialect::Gemini, &request).unwrap();
    assert_eq!(refused.param, "messages.0.content.1.source");
    for (more, param) in rows {
        let mut request = json!({"model": "m", "input": "x"});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let rejection = rejection(Dialect::Responses, Dialect::Messages, &request).unwrap();
        assert_eq!(rejection.param, param, "{more}");
        assert!(rejection.message.starts_with(&format!("'{param}' ")), "{}", rejection.message);
    }
}
