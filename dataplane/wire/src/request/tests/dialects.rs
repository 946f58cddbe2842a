//! Tests the facts that are read from requests in each dialect.

use shared::operation::Dialect;

use crate::request::{Head, HeadScan, ProviderState, ScanError};

fn scan(dialect: Dialect, body: &str) -> Result<Head, ScanError> {
    let mut scan = HeadScan::new(dialect);
    scan.push(body.as_bytes())?;
    let whole = scan.finish()?;
    let mut scan = HeadScan::new(dialect);
    body.as_bytes().chunks(1).for_each(|byte| scan.push(byte).unwrap());
    assert_eq!(format!("{:?}", scan.finish().unwrap()), format!("{whole:?}"), "in single bytes");
    Ok(whole)
}

#[test]
fn an_invalid_request_of_each_dialect_is_rejected_with_the_reason() {
    let rows = [
        (Dialect::Messages, r#"{"model":"m"}"#, "messages", "Missing required member: 'messages'."),
        (Dialect::Messages, r#"{"model":"m","messages":"x"}"#, "messages", "'messages' must be an array."),
        (Dialect::Messages, r#"{"messages":[]}"#, "model", "Missing required member: 'model'."),
        (Dialect::Responses, r#"{"model":"m"}"#, "input", "Missing required member: 'input'."),
        (Dialect::Responses, r#"{"model":"m","input":{}}"#, "input", "'input' must be a string or an array."),
        (
            Dialect::Responses,
            r#"{"model":"m","input":null}"#,
            "input",
            "'input' must be a string or an array.",
        ),
        (
            Dialect::Responses,
            r#"{"model":"m","input":7,"prompt":{"id":"p"}}"#,
            "input",
            "'input' must be a string or an array.",
        ),
        (
            Dialect::Responses,
            r#"{"model":"m","input":"","stream":1}"#,
            "stream",
            "'stream' must be true, false or null.",
        ),
        (Dialect::Speech, r#"{"model":"m","input":[]}"#, "input", "'input' must be a string."),
        (Dialect::Embeddings, r#"{"model":"m"}"#, "input", "Missing required member: 'input'."),
        (Dialect::Images, r#"{"model":"m","prompt":[]}"#, "prompt", "'prompt' must be a string."),
    ];
    for (dialect, body, param, message) in rows {
        let error = scan(dialect, body).unwrap_err();
        assert_eq!((error.param.as_deref(), error.to_string().as_str()), (Some(param), message), "{body}");
    }
}

#[test]
fn the_output_limit_is_read_from_the_member_of_the_dialect() {
    let rows = [
        (Dialect::Chat, r#""max_completion_tokens":7"#, Some(7)),
        (Dialect::Chat, r#""max_tokens":7"#, Some(7)),
        (Dialect::Chat, r#""max_output_tokens":7"#, None),
        (Dialect::Messages, r#""max_tokens":7"#, Some(7)),
        (Dialect::Messages, r#""max_completion_tokens":7"#, None),
        (Dialect::Responses, r#""max_output_tokens":7"#, Some(7)),
        (Dialect::Responses, r#""max_tokens":7"#, None),
    ];
    for (dialect, member, want) in rows {
        let body = format!(r#"{{"model":"m","messages":[],"input":[],{member}}}"#);
        assert_eq!(scan(dialect, &body).unwrap().max_output_tokens, want, "{dialect:?} {member}");
    }
}

#[test]
fn images_and_tools_are_detected_in_every_dialect() {
    let image = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}],
        "tools":[{"name":"f","input_schema":{"type":"object"}}]}"#;
    let head = scan(Dialect::Messages, image).unwrap();
    assert!(head.has_image && head.has_tools);
    let image = r#"{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}],
        "tools":[{"type":"function","name":"f"}],"messages":[{"content":[{"type":"text"}]}]}"#;
    let head = scan(Dialect::Responses, image).unwrap();
    assert!(head.has_image && head.has_tools);
    let plain = r#"{"model":"m","input":"image","instructions":"input_image","tools":[]}"#;
    let head = scan(Dialect::Responses, plain).unwrap();
    assert!(!head.has_image && !head.has_tools);
}

#[test]
fn input_text_is_counted_in_the_text_members_of_each_dialect() {
    let rows = [
        (Dialect::Responses, r#""input":"12345","instructions":"678""#, 8),
        (Dialect::Responses, r#""input":[{"content":"12345"}],"instructions":null"#, 5),
        (Dialect::Responses, r#""input":[{"type":"x","encrypted_content":"0123456789"}]"#, 1),
        (Dialect::Responses, r#""input":"1","messages":["not here"],"metadata":{"a":"nor here"}"#, 1),
        (Dialect::Messages, r#""messages":[{"content":"12345"}],"system":"678""#, 8),
        (Dialect::Messages, r#""messages":[],"system":[{"text":"678"},{"text":"9"}]"#, 4),
        (Dialect::Messages, r#""messages":[{"content":[{"thinking":"12","signature":"AAAAAAAAAA"}]}]"#, 2),
        (Dialect::Messages, r#""messages":["x"],"messages":["12345"],"system":"x","system":"6""#, 6),
        (Dialect::Messages, r#""messages":[],"tools":[{"a":1}]"#, 9),
        (Dialect::Chat, r#""messages":["12345"],"tools":"x""#, 8),
        (Dialect::Embeddings, r#""input":["12","345"]"#, 5),
    ];
    for (dialect, members, want) in rows {
        let head = scan(dialect, &format!(r#"{{"model":"m",{members}}}"#)).unwrap();
        assert_eq!(head.input.text_bytes, want, "{dialect:?} {members}");
    }
}

#[test]
fn a_plain_text_document_counts_as_text_and_a_base64_one_does_not() {
    let body = |kind: &str| {
        let source = format!(r#"{{"type":"{kind}","media_type":"","data":"{}"}}"#, "A".repeat(1000));
        format!(r#"{{"model":"m","messages":[{{"content":[{{"type":"document","source":{source}}}]}}]}}"#)
    };
    assert!(scan(Dialect::Messages, &body("text")).unwrap().input.text_bytes > 1000);
    assert!(scan(Dialect::Messages, &body("base64")).unwrap().input.text_bytes < 100);
}

#[test]
fn provider_state_members_of_a_responses_request_are_read() {
    let none = ProviderState::default();
    let rows = [
        (
            r#""background":false,"previous_response_id":null,"conversation":null,"include":[],"prompt":null"#,
            none.clone(),
        ),
        (r#""background":true"#, ProviderState { background: true, ..none.clone() }),
        (r#""store":false"#, ProviderState { store: Some(false), ..none.clone() }),
        (r#""store":true"#, ProviderState { store: Some(true), ..none.clone() }),
        (r#""store":null"#, none.clone()),
        (
            r#""previous_response_id":"resp_\u0031""#,
            ProviderState { previous_response_id: Some("resp_1".to_owned()), ..none.clone() },
        ),
        (
            r#""conversation":"conv_1""#,
            ProviderState { conversation: Some("conv_1".to_owned()), ..none.clone() },
        ),
        (
            r#""conversation":{"x":{"id":"no"},"id":"conv_2","y":"z"}"#,
            ProviderState { conversation: Some("conv_2".to_owned()), ..none.clone() },
        ),
        (r#""include":["reasoning.encrypted_content"]"#, ProviderState { include: true, ..none.clone() }),
        (r#""prompt":{"id":"p"}"#, ProviderState { prompt: true, ..none.clone() }),
        (
            r#""input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"},{"content":"x"}]"#,
            ProviderState { encrypted_content: true, ..none.clone() },
        ),
        (r#""input":[{"type":"reasoning","encrypted_content":null},{"encrypted_content":""}]"#, none.clone()),
        (r#""metadata":{"background":true,"encrypted_content":"x"},"include":["x"],"include":null"#, none),
    ];
    for (members, want) in rows {
        let head = scan(Dialect::Responses, &format!(r#"{{"model":"m","input":"x",{members}}}"#)).unwrap();
        assert_eq!(head.state, want, "{members}");
    }
    for (stored, names) in [
        (r#""previous_response_id":"resp_1""#, true),
        (r#""conversation":{"id":"conv_1"}"#, true),
        (r#""prompt":{"id":"p"}"#, true),
        (r#""input":null,"prompt":{"id":"p"}"#, true),
        (r#""conversation":{}"#, false),
    ] {
        let body = format!(r#"{{"model":"m",{stored}}}"#);
        assert_eq!(scan(Dialect::Responses, &body).is_ok(), names, "{stored}: input is stored");
    }
}

#[test]
fn members_of_other_dialects_are_ignored() {
    let body = r#"{"model":"m","messages":[],"background":true,"previous_response_id":"x","include":[1],"stream_options":{"include_usage":true}}"#;
    let head = scan(Dialect::Messages, body).unwrap();
    assert_eq!(head.state, ProviderState::default());
    assert!(!head.include_usage);
}

#[test]
fn requests_of_one_conversation_share_a_cache_key() {
    for dialect in [Dialect::Chat, Dialect::Responses] {
        let head =
            scan(dialect, r#"{"model":"m","messages":[],"input":"","prompt_cache_key":"thr\u0065ad"}"#);
        assert_eq!(head.unwrap().prompt_cache_key.as_deref(), Some("thread"), "{dialect:?}");
    }
}

#[test]
fn the_end_user_is_read_where_the_dialect_names_one() {
    for (dialect, members, want) in [
        (Dialect::Chat, r#""user":"ann\u0061""#, Some("anna")),
        (Dialect::Responses, r#""user":"anna","user":"bob""#, Some("bob")),
        (Dialect::Chat, r#""safety_identifier":"anna""#, Some("anna")),
        (Dialect::Responses, r#""user":"bob","safety_identifier":"anna""#, Some("anna")),
        (Dialect::Embeddings, r#""user":"anna""#, Some("anna")),
        (Dialect::Messages, r#""metadata":{"user_id":"anna","x":"y"}"#, Some("anna")),
        (
            Dialect::Messages,
            r#""metadata":{"x":{"user_id":"no"},"y":["user_id","no"],"user_id":"anna"}"#,
            Some("anna"),
        ),
        (Dialect::Messages, r#""metadata":{"user_id":"anna"},"metadata":null"#, None),
        (Dialect::Messages, r#""metadata":{"user_id":{"user_id":"no"},"z":"no"}"#, None),
        (Dialect::Messages, r#""metadata":{"user_id":7}"#, None),
        (Dialect::Messages, r#""user":"no""#, None),
        (Dialect::Chat, r#""metadata":{"user_id":"no"},"user":null"#, None),
        (Dialect::Chat, r#""user":"""#, None),
        (Dialect::Chat, r#""user":["no"]"#, None),
    ] {
        let head = scan(dialect, &format!(r#"{{"model":"m","messages":[],"input":"",{members}}}"#)).unwrap();
        assert_eq!(head.end_user.as_deref(), want, "{dialect:?} {members}");
        assert_eq!(head.model, "m");
    }
}

#[test]
fn a_request_for_a_costlier_tier_is_detected() {
    for (dialect, member, want) in [
        (Dialect::Chat, r#""service_tier":"priority""#, true),
        (Dialect::Chat, r#""service_tier":"auto","service_tier":"sc\u0061le""#, true),
        (Dialect::Chat, r#""service_tier":"flex""#, false),
        (Dialect::Chat, r#""service_tier":null"#, false),
        (Dialect::Responses, r#""service_tier":"priority","service_tier":"default""#, true),
        (Dialect::Messages, r#""service_tier":"standard_only""#, false),
        (Dialect::Messages, r#""speed":"fast""#, true),
        (Dialect::Messages, r#""inference_geo":"us""#, true),
    ] {
        let head = scan(dialect, &format!(r#"{{"model":"m","messages":[],"input":[],{member}}}"#)).unwrap();
        assert_eq!(head.has_tier, want, "{dialect:?} {member}");
    }
}

#[test]
fn tools_that_the_provider_runs_are_counted() {
    for (dialect, members, want) in [
        (Dialect::Responses, r#""tools":[{"type":"web_search"},{"type":"mcp","x":{"type":"mcp"}}]"#, 2),
        (Dialect::Responses, r#""tools":[{"type":"function","name":"web_search"}]"#, 0),
        (Dialect::Messages, r#""tools":[{"name":"s","type":"web_se\u0061rch_20250305"},{"name":"f"}]"#, 1),
        (Dialect::Chat, r#""tools":[{"type":"function","function":{"name":"f"}}]"#, 0),
        (Dialect::Chat, r#""web_search_options":{}"#, 1),
    ] {
        let head = scan(dialect, &format!(r#"{{"model":"m","messages":[],"input":[],{members}}}"#)).unwrap();
        assert_eq!(head.input.provider_tools, want, "{dialect:?} {members}");
    }
}

#[test]
fn the_quality_size_and_seconds_of_media_requests_are_read() {
    let wish = |dialect, members: &str| {
        let head = scan(dialect, &format!(r#"{{"model":"m","prompt":"x",{members}}}"#)).unwrap();
        head.media.map(|media| (media.picture.map(String::from), media.size.map(String::from), media.seconds))
    };
    let size = || Some("1024x1024".to_owned());
    let sort = Some("high/1024x1024".to_owned());
    for (members, want) in [
        (r#""quality":"high","size":"1024x1024""#, Some((sort, None, None))),
        (r#""quality":"auto","size":"1024x1024""#, Some((None, size(), None))),
        (r#""size":"1024x1024""#, Some((None, size(), None))),
        (r#""quality":"high""#, None),
    ] {
        assert_eq!(wish(Dialect::Images, members), want, "{members}");
    }
    for (members, want) in [
        (r#""size":"1280x720","seconds":8"#, Some((None, Some("1280x720".to_owned()), Some(8)))),
        (r#""resolution":"1080p","aspect_ratio":"9:16""#, Some((None, Some("1080p".to_owned()), None))),
    ] {
        assert_eq!(wish(Dialect::Videos, members), want, "{members}");
    }
    for (seconds, want) in [("8", Some(8)), ("\"8\"", Some(8)), ("8.0", Some(8)), ("\"x\"", None)] {
        let members = format!(r#""seconds":{seconds}"#);
        assert_eq!(
            wish(Dialect::Videos, &members),
            want.map(|seconds| (None, None, Some(seconds))),
            "{seconds}"
        );
    }
}
