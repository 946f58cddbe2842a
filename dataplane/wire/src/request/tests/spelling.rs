//! Tests member names that differ only in case from known ones.

use shared::operation::Dialect;

use crate::request::{HeadScan, ScanError};

fn fault_of(dialect: Dialect, body: &str) -> Option<ScanError> {
    let mut scan = HeadScan::new(dialect);
    scan.push(body.as_bytes()).and_then(|()| scan.finish().map(drop)).err()
}

/// Returns the spellings that a case-insensitive parser reads as `name`, each in raw and decoded form.
fn spellings(name: &str) -> Vec<(String, String)> {
    let upper = name.to_ascii_uppercase();
    let first = format!("{}{}", &upper[..1], &name[1..]);
    let last = format!("{}{}", &name[..name.len() - 1], &upper[name.len() - 1..]);
    let escape =
        |text: &str| text.chars().map(|byte| format!("\\u{:04x}", u32::from(byte))).collect::<String>();
    let mut all = vec![(escape(&upper), upper.clone())];
    all.extend([upper, first, last].map(|spelling| (spelling.clone(), spelling)));
    for (letter, other) in [('s', "\u{17f}"), ('k', "\u{212a}")] {
        if name.contains(letter) {
            let spelling = name.replacen(letter, other, 1);
            all.extend([(spelling.clone(), spelling.clone()), (escape(&spelling), spelling)]);
        }
    }
    all
}

/// Every top-level member that the gateway reads.
const MEMBERS: [(Dialect, &str, &str); 7] = [
    (
        Dialect::Chat,
        r#""messages":[]"#,
        "model stream tools fallback_timeout_ms affinity_key messages stream_options functions max_tokens \
         max_completion_tokens n best_of num_completions num_generations service_tier web_search_options \
         prompt_cache_key user safety_identifier",
    ),
    (
        Dialect::Messages,
        r#""messages":[]"#,
        "model stream tools fallback_timeout_ms affinity_key messages system max_tokens anthropic_version metadata \
         service_tier speed inference_geo",
    ),
    (
        Dialect::Responses,
        r#""input":"hi""#,
        "model stream tools fallback_timeout_ms affinity_key input instructions max_output_tokens service_tier \
         background store previous_response_id conversation include prompt prompt_cache_key user safety_identifier",
    ),
    (Dialect::Embeddings, r#""input":"hi""#, "model stream fallback_timeout_ms affinity_key input user"),
    (Dialect::Speech, r#""input":"hi""#, "model fallback_timeout_ms affinity_key input user"),
    (
        Dialect::Images,
        r#""prompt":"hi""#,
        "model stream fallback_timeout_ms affinity_key prompt n size quality response_format user",
    ),
    (
        Dialect::Videos,
        r#""prompt":"hi""#,
        "model fallback_timeout_ms affinity_key prompt n seconds operation",
    ),
];

#[test]
fn another_spelling_of_a_member_that_the_gateway_reads_is_refused() {
    for (dialect, input, names) in MEMBERS {
        for name in names.split_ascii_whitespace() {
            for (written, meant) in spellings(name) {
                for value in ["null", "true", "7", r#""x""#, "[]", "{}"] {
                    let body = format!(r#"{{"model":"m",{input},"{written}":{value}}}"#);
                    let error = fault_of(dialect, &body).unwrap_or_else(|| panic!("{dialect:?}: {body}"));
                    assert_eq!(error.param.as_deref(), Some(name), "{body}");
                    let message = error.to_string();
                    let want = format!(
                        "Unknown member '{meant}': write '{name}'. Some upstreams treat both as the same."
                    );
                    assert_eq!(message, want, "{body}");
                }
            }
        }
    }
}

#[test]
fn another_spelling_is_rejected_at_any_position() {
    for body in [
        r#"{"Model":"x","messages":[]}"#,
        r#"{"Model":"x","messages":[],"model":"m"}"#,
        r#"{"model":"m","messages":[],"\u004dodel":"x"}"#,
        r#"{"model":"m","messages":[],"mod\u0045l":"x"}"#,
    ] {
        let error = fault_of(Dialect::Chat, body).expect(body);
        assert_eq!(error.param.as_deref(), Some("model"), "{body}");
        for cut in 0..body.len() {
            let mut scan = HeadScan::new(Dialect::Chat);
            let cut = scan
                .push(&body.as_bytes()[..cut])
                .and_then(|()| scan.push(&body.as_bytes()[cut..]))
                .and_then(|()| scan.finish().map(drop));
            assert_eq!(cut, Err(error.clone()), "{body}");
        }
    }
}

#[test]
fn another_spelling_is_rejected_inside_nested_objects() {
    for (dialect, input, member, path) in [
        (
            Dialect::Chat,
            r#""messages":[]"#,
            r#""stream_options":{"Include_Usage":false}"#,
            "stream_options.include_usage",
        ),
        (
            Dialect::Chat,
            r#""messages":[]"#,
            "\"stream_options\":{\"include_u\u{17f}age\":false}",
            "stream_options.include_usage",
        ),
        (Dialect::Responses, r#""input":"hi""#, r#""conversation":{"ID":"conv_1"}"#, "conversation.id"),
    ] {
        let error = fault_of(dialect, &format!(r#"{{"model":"m",{input},{member}}}"#)).expect(member);
        assert_eq!(error.param.as_deref(), Some(path), "{member}");
    }
}

#[test]
fn other_member_names_are_not_taken_for_spellings() {
    for (dialect, member) in [
        (Dialect::Chat, r#""models":["x"]"#),
        (Dialect::Chat, r#""model_id":"x""#),
        (Dialect::Chat, r#""maxTokens":5"#),
        (Dialect::Chat, r#""streamOptions":{}"#),
        (Dialect::Chat, r#""Model ":"x""#),
        (Dialect::Chat, r#""N1":1"#),
        (Dialect::Chat, r#""modèl":"x""#),
        (Dialect::Chat, r#""metadata":{"Model":"x","N":1}"#),
        (Dialect::Chat, r#""tools":[{"Model":"x"}]"#),
        (Dialect::Chat, r#""stream_options":{"Include":{"Include_Usage":true}}"#),
        (Dialect::Chat, r#""Max_Output_Tokens":5"#),
        (Dialect::Messages, r#""metadata":{"Model":"x"}"#),
        (Dialect::Messages, r#""N":5"#),
        (Dialect::Messages, r#""\u006dodel":"x""#),
    ] {
        let body = format!(r#"{{"model":"m","messages":[],{member}}}"#);
        assert_eq!(fault_of(dialect, &body), None, "{member}");
    }
}
