//! Tests that the upstream body has the expected edits and is otherwise unchanged.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use shared::operation::Dialect;

use crate::cutting::{cut, cuts};
use crate::request::{HeadScan, Naming, build};

fn upstream(pieces: &[Bytes], model: &str, usage: bool) -> Vec<u8> {
    let mut scan = HeadScan::new(Dialect::Chat);
    for piece in pieces {
        scan.push(piece).unwrap();
    }
    build(pieces, &scan.finish().unwrap(), Naming::Model(model), usage, None).concat()
}

/// (name, client body, upstream body with usage requested and the target model `T`)
const CHANGES: [(&str, &str, &str); 14] = [
    ("model alone", r#"{ "model" :"a", "messages":[]}"#, r#"{ "model" :"T", "messages":[]}"#),
    ("after the messages", r#"{"messages":["model"],"model":"a"}"#, r#"{"messages":["model"],"model":"T"}"#),
    (
        "repeated, once not a string",
        r#"{"model":[1,"}"],"x":1.50e+2,"model":"b","messages":[]}"#,
        r#"{"model":"T","x":1.50e+2,"model":"T","messages":[]}"#,
    ),
    (
        "own member first",
        r#"{"affinity_key" : "k" , "model":"a","messages":[]}"#,
        r#"{ "model":"T","messages":[]}"#,
    ),
    (
        "own member last",
        r#"{"model":"a","messages":[] , "affinity_key":"k" }"#,
        r#"{"model":"T","messages":[]  }"#,
    ),
    (
        "own members first and next to each other",
        r#"{"affinity_key":{"a":[1,2]},"fallback_timeout_ms":5,"affinity_key":"k","model":"a","messages":[]}"#,
        r#"{"model":"T","messages":[]}"#,
    ),
    (
        "own members around",
        r#"{"affinity_key":"k","model":"a","fallback_timeout_ms":5,"messages":[],"fallback_timeout_ms":6}"#,
        r#"{"model":"T","messages":[]}"#,
    ),
    (
        "usage inserted",
        r#"{"model":"a","stream":true,"messages":[]}"#,
        r#"{"model":"T","stream_options":{"include_usage":true},"stream":true,"messages":[]}"#,
    ),
    (
        "usage inserted into an empty object",
        r#"{"model":"a","stream":true,"messages":[],"stream_options":{ }}"#,
        r#"{"model":"T","stream":true,"messages":[],"stream_options":{"include_usage":true }}"#,
    ),
    (
        "usage inserted beside others",
        r#"{"model":"a","stream":true,"messages":[],"stream_options":{"include_obfuscation":false}}"#,
        r#"{"model":"T","stream":true,"messages":[],"stream_options":{"include_usage":true,"include_obfuscation":false}}"#,
    ),
    (
        "usage set",
        r#"{"stream_options":{"include_usage": false ,"x":{"include_usage":false}},"model":"a","stream":true,"messages":[]}"#,
        r#"{"stream_options":{"include_usage": true ,"x":{"include_usage":false}},"model":"T","stream":true,"messages":[]}"#,
    ),
    (
        "options null",
        r#"{"model":"a","stream_options":null,"stream":true,"messages":[]}"#,
        r#"{"model":"T","stream_options":{"include_usage":true},"stream":true,"messages":[]}"#,
    ),
    (
        "usage asked for already",
        r#"{"model":"a","stream_options":{"include_usage":true},"stream":true,"messages":[]}"#,
        r#"{"model":"T","stream_options":{"include_usage":true},"stream":true,"messages":[]}"#,
    ),
    (
        "no stream, no options",
        r#"{"model":"a","stream":false,"messages":[]}"#,
        r#"{"model":"T","stream":false,"messages":[]}"#,
    ),
];

#[test]
fn the_upstream_body_keeps_every_byte_that_need_not_change() {
    for (name, body, want) in CHANGES {
        for at in 0..=body.len() {
            let body = Bytes::from_static(body.as_bytes());
            let pieces = [body.slice(..at), body.slice(at..)];
            let got = upstream(&pieces, "T", true);
            assert_eq!(String::from_utf8(got).unwrap(), want, "{name}, cut at {at}");
        }
    }
}

#[test]
fn a_version_member_replaces_the_model_for_targets_that_need_it() {
    const VERSION: &str = r#""anthropic_version":"v-1""#;
    // (client body, upstream body; V is the version)
    for (body, want) in [
        (r#"{ "model" : "a" , "messages":[]}"#, r#"{ V , "messages":[]}"#),
        (r#"{"messages":[], "mo\u0064el":"a"}"#, r#"{"messages":[], V}"#),
        (r#"{"affinity_key":"k", "model":"a","messages":[]}"#, r#"{ V,"messages":[]}"#),
        (
            r#"{"anthropic_version":"x","model":"a","messages":[],"anthropic_version":{"y":1}}"#,
            r#"{V,"messages":[]}"#,
        ),
        (r#"{"model":"a","messages":[{"model":"a"}]}"#, r#"{V,"messages":[{"model":"a"}]}"#),
    ] {
        for at in 0..=body.len() {
            let body = Bytes::from_static(body.as_bytes());
            let pieces = [body.slice(..at), body.slice(at..)];
            let mut scan = HeadScan::new(Dialect::Messages);
            pieces.iter().for_each(|piece| scan.push(piece).unwrap());
            let head = scan.finish().unwrap();
            let text = |naming, preamble| {
                String::from_utf8(build(&pieces, &head, naming, false, preamble).concat()).unwrap()
            };
            assert_eq!(text(Naming::Version("v-1"), None), want.replace('V', VERSION), "cut at {at}");
            let system = format!(r#"{VERSION},"system":"First.""#);
            assert_eq!(text(Naming::Version("v-1"), Some("First.")), want.replace('V', &system));
            let both: Value = serde_json::from_str(&text(Naming::ModelAndVersion("T", "v-1"), None)).unwrap();
            assert_eq!((&both["model"], &both["anthropic_version"]), (&"T".into(), &"v-1".into()));
        }
    }
}

#[test]
fn usage_is_not_requested_from_targets_without_stream_options() {
    let body = Bytes::from_static(br#"{"model":"a","stream":true,"messages":[]}"#);
    assert_eq!(upstream(&[body], "T", false), br#"{"model":"T","stream":true,"messages":[]}"#);
}

#[test]
fn unchanged_bytes_are_not_copied() {
    let text = format!(r#"{{"model":"a","messages":["{}"]}}"#, "x".repeat(10_000));
    let body = Bytes::from(text);
    let mut scan = HeadScan::new(Dialect::Chat);
    scan.push(&body).unwrap();
    let parts = build(std::slice::from_ref(&body), &scan.finish().unwrap(), Naming::Model("T"), true, None);
    let last = parts.last().unwrap();
    assert_eq!(last.as_ptr_range().end, body.as_ptr_range().end);
    assert_eq!(parts.len(), 3);
}

/// JSON text of any form: irregular spacing, escapes, number forms, repeated names.
fn json_text(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,5})(\\.[0-9]{1,4})?([eE][+-]?[0-9])?",
        string_text(),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = json_text(depth - 1);
    let array = (proptest::collection::vec((space(), inner.clone(), space()), 0..4)).prop_map(|items| {
        let items: Vec<String> = items.into_iter().map(|(a, item, b)| format!("{a}{item}{b}")).collect();
        format!("[{}]", items.join(","))
    });
    let members = proptest::collection::vec((space(), string_text(), space(), inner, space()), 0..4);
    let object = members.prop_map(|members| object_text(&members));
    prop_oneof![leaf, array, object].boxed()
}

type Member = (String, String, String, String, String);

fn object_text(members: &[Member]) -> String {
    let members: Vec<String> =
        members.iter().map(|(a, key, b, value, c)| format!("{a}{key}{b}:{c}{value}{a}")).collect();
    format!("{{{}}}", members.join(","))
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "[ \t\r\n]{0,3}"]
}

fn string_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z:,{}\\[\\] ]{0,6}",
        Just("\\\"".to_owned()),
        Just("\\\\".to_owned()),
        Just("\\n".to_owned()),
        Just("\\u00e9".to_owned()),
        Just("\\ud83d\\ude80".to_owned()),
        Just("\u{1f680}".to_owned()),
        Just("model".to_owned()),
    ];
    proptest::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn other_name() -> impl Strategy<Value = String> {
    string_text().prop_map(|name| name.replacen('"', "\"k", 1))
}

/// A chat request with the known members at any position and in any number.
fn request_text() -> impl Strategy<Value = String> {
    let options = prop_oneof![
        Just("null".to_owned()),
        Just("{}".to_owned()),
        Just("{ \"include_usage\" : false }".to_owned()),
        Just("{\"include_usage\":true,\"include_usage\":null}".to_owned()),
        Just("{\"a\":{\"include_usage\":1},\"include\\u005fusage\":true}".to_owned()),
        json_text(1),
    ];
    let named = |name: &'static str, value: BoxedStrategy<String>| {
        (space(), Just(format!("\"{name}\"")), space(), value, space()).boxed()
    };
    let stream = prop_oneof![Just("true".to_owned()), Just("false".to_owned()), Just("null".to_owned())];
    let member = prop_oneof![
        named("model", string_text().boxed()),
        named("mo\\u0064el", string_text().boxed()),
        named("affinity_key", json_text(2)),
        named("fallback_timeout_ms", json_text(1)),
        named("stream_options", options.boxed()),
        named("stream", stream.boxed()),
        (space(), other_name(), space(), json_text(3), space()).boxed(),
    ];
    let required =
        (string_text(), proptest::collection::vec(json_text(2), 0..3), any::<prop::sample::Index>());
    (proptest::collection::vec(member, 0..9), required).prop_map(|(mut members, (model, messages, at))| {
        let plain = |name: &str, value: String| {
            (String::new(), format!("\"{name}\""), String::new(), value, String::new())
        };
        members.insert(at.index(members.len() + 1), plain("model", model));
        members.insert(at.index(members.len() + 1), plain("messages", format!("[{}]", messages.join(","))));
        object_text(&members)
    })
}

/// The expected upstream body, computed on a tree.
fn expected(text: &str, model: &str) -> Value {
    let mut body: Value = serde_json::from_str(text).unwrap();
    let stream = body["stream"] == true;
    let members = body.as_object_mut().unwrap();
    members.insert("model".to_owned(), model.into());
    members.remove("fallback_timeout_ms");
    members.remove("affinity_key");
    if stream {
        let options = members.entry("stream_options").or_insert(Value::Null);
        if options.is_null() {
            *options = serde_json::json!({});
        }
        if let Some(options) = options.as_object_mut() {
            options.insert("include_usage".to_owned(), true.into());
        }
    }
    body
}

/// True if `shorter` is `longer` with some bytes removed.
fn is_subsequence(shorter: &[u8], longer: &[u8]) -> bool {
    let mut longer = longer.iter();
    shorter.iter().all(|byte| longer.any(|other| other == byte))
}

proptest! {
    #[test]
    fn any_request_reaches_the_upstream_with_the_same_meaning(text in request_text(), model in "\\PC{0,8}", cuts in cuts()) {
        let pieces = cut(text.as_bytes(), &cuts);
        let got = upstream(&pieces, &model, true);
        let value: Value = serde_json::from_slice(&got).map_err(|error| {
            TestCaseError::fail(format!("{error}: {}", String::from_utf8_lossy(&got)))
        })?;
        prop_assert_eq!(value, expected(&text, &model));
    }

    #[test]
    fn unchanged_bytes_keep_their_order(text in request_text(), cuts in cuts()) {
        // With an empty target model and no usage requested, bytes are only removed.
        let got = upstream(&cut(text.as_bytes(), &cuts), "", false);
        prop_assert!(is_subsequence(&got, text.as_bytes()));
    }
}
