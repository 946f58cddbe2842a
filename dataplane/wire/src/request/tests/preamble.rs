//! Tests the gateway's own system text (MSG-1): it is inserted before the request's own, and nothing else changes.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;

use crate::cutting::{cut, cuts};
use crate::request::{HeadScan, Naming, build};

fn upstream(dialect: Dialect, pieces: &[Bytes], preamble: Option<&str>) -> String {
    let mut scan = HeadScan::new(dialect);
    for piece in pieces {
        scan.push(piece).unwrap();
    }
    let built = build(pieces, &scan.finish().unwrap(), Naming::Model("T"), true, preamble).concat();
    String::from_utf8(built).unwrap()
}

/// (dialect, client body, upstream body with the preamble `Be "brief".`)
const PLACES: [(Dialect, &str, &str); 13] = [
    (
        Dialect::Chat,
        r#"{"model":"a","messages":[ {"role":"user","content":"x"}]}"#,
        r#"{"model":"T","messages":[{"role":"system","content":"Be \"brief\"."}, {"role":"user","content":"x"}]}"#,
    ),
    (
        Dialect::Chat,
        r#"{"messages":[ ],"model":"a","stream":true}"#,
        r#"{"messages":[{"role":"system","content":"Be \"brief\"."} ],"model":"T","stream_options":{"include_usage":true},"stream":true}"#,
    ),
    (
        Dialect::Messages,
        r#"{"model":"a","messages":[]}"#,
        r#"{"model":"T","system":"Be \"brief\".","messages":[]}"#,
    ),
    (
        Dialect::Messages,
        r#"{"model":"a","system": "Own." ,"messages":[]}"#,
        r#"{"model":"T","system": "Be \"brief\".\n\nOwn." ,"messages":[]}"#,
    ),
    (
        Dialect::Messages,
        r#"{"model":"a","system":"","messages":[]}"#,
        r#"{"model":"T","system":"Be \"brief\".","messages":[]}"#,
    ),
    (
        Dialect::Messages,
        r#"{"model":"a","system":null,"messages":[]}"#,
        r#"{"model":"T","system":"Be \"brief\".","messages":[]}"#,
    ),
    (
        Dialect::Messages,
        r#"{"messages":[],"system":[ ],"model":"a"}"#,
        r#"{"messages":[],"system":[{"type":"text","text":"Be \"brief\"."} ],"model":"T"}"#,
    ),
    (
        Dialect::Messages,
        r#"{"messages":[],"model":"a","system":[{"type":"text","text":"Own.","cache_control":{"type":"ephemeral"}}]}"#,
        r#"{"messages":[],"model":"T","system":[{"type":"text","text":"Be \"brief\"."},{"type":"text","text":"Own.","cache_control":{"type":"ephemeral"}}]}"#,
    ),
    (
        Dialect::Messages,
        r#"{"system":"a","model":"a","system":["b"],"messages":[{"system":"no"}]}"#,
        r#"{"system":"Be \"brief\".\n\na","model":"T","system":[{"type":"text","text":"Be \"brief\"."},"b"],"messages":[{"system":"no"}]}"#,
    ),
    (
        Dialect::Messages,
        r#"{"model":"a","system":7,"messages":[]}"#,
        r#"{"model":"T","system":7,"messages":[]}"#,
    ),
    (
        Dialect::Responses,
        r#"{"model":"b","model":"a","input":"x","affinity_key":"k"}"#,
        r#"{"model":"T","model":"T","instructions":"Be \"brief\".","input":"x"}"#,
    ),
    (
        Dialect::Responses,
        r#"{"input":[],"instructions":"Own.","model":"a","stream":true}"#,
        r#"{"input":[],"instructions":"Be \"brief\".\n\nOwn.","model":"T","stream":true}"#,
    ),
    (
        Dialect::Responses,
        r#"{"instructions":null,"model":"a","input":"x"}"#,
        r#"{"instructions":"Be \"brief\".","model":"T","input":"x"}"#,
    ),
];

#[test]
fn the_preamble_precedes_the_system_text_of_the_request() {
    for (dialect, body, want) in PLACES {
        let bytes = Bytes::from_static(body.as_bytes());
        for at in 0..=body.len() {
            let pieces = [bytes.slice(..at), bytes.slice(at..)];
            assert_eq!(upstream(dialect, &pieces, Some("Be \"brief\".")), want, "cut at {at}");
        }
    }
}

#[test]
fn without_a_preamble_nothing_is_inserted() {
    for (dialect, body, _) in PLACES {
        for none in [None, Some("")] {
            let got = upstream(dialect, &[Bytes::from_static(body.as_bytes())], none);
            assert!(!got.contains("brief") && !got.contains("system\",\"content"), "{got}");
            let model =
                body.replace(r#""model":"a""#, r#""model":"T""#).replace(r#""model":"b""#, r#""model":"T""#);
            let usage = r#","stream_options":{"include_usage":true}"#;
            assert_eq!(got.replace(usage, ""), model.replace(r#","affinity_key":"k""#, ""));
        }
    }
}

/// Returns the system text that the target reads.
fn system_text(dialect: Dialect, body: &Value) -> Vec<String> {
    let name = if dialect == Dialect::Messages { "system" } else { "instructions" };
    let own = if dialect == Dialect::Chat { &body["messages"] } else { &body[name] };
    let Some(own) = own.as_array() else { return vec![own.as_str().unwrap().to_owned()] };
    let text = |item: &Value| {
        [&item["content"], &item["text"]].into_iter().find_map(Value::as_str).map(str::to_owned)
    };
    own.iter().filter_map(text).collect()
}

proptest! {
    #[test]
    fn any_preamble_text_arrives_unchanged(
        preamble in "\\PC{1,20}",
        own in prop_oneof![Just(None), "\\PC{0,20}".prop_map(Some)],
        dialect in prop_oneof![Just(Dialect::Chat), Just(Dialect::Messages), Just(Dialect::Responses)],
        blocks in any::<bool>(),
        cuts in cuts(),
    ) {
        let mut body = json!({"model": "m", "messages": [], "input": "x"});
        if let Some(own) = &own {
            match (dialect, blocks) {
                (Dialect::Chat, _) => body["messages"] = json!([{"role": "system", "content": own}]),
                (Dialect::Messages, true) => body["system"] = json!([{"type": "text", "text": own}]),
                (Dialect::Messages, false) => body["system"] = json!(own),
                _ => body["instructions"] = json!(own),
            }
        }
        let text = serde_json::to_string_pretty(&body).unwrap();
        let got: Value =
            serde_json::from_str(&upstream(dialect, &cut(text.as_bytes(), &cuts), Some(&preamble))).unwrap();
        let read = system_text(dialect, &got);
        match own {
            None => prop_assert_eq!(read, [preamble]),
            Some(own) if read.len() == 2 => prop_assert_eq!(read, [preamble, own]),
            Some(own) if own.is_empty() => prop_assert_eq!(read, [preamble]),
            Some(own) => prop_assert_eq!(read, [format!("{preamble}\n\n{own}")]),
        }
    }
}
