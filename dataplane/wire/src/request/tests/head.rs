//! Tests the facts that are read from request bodies, and which bodies are rejected.

use shared::operation::Dialect;

use crate::request::{Head, HeadScan, ScanError, ScanFault};

fn scan(body: &str) -> Result<Head, ScanError> {
    let mut scan = HeadScan::new(Dialect::Chat);
    scan.push(body.as_bytes())?;
    scan.finish()
}

#[test]
fn an_invalid_chat_request_is_rejected_with_the_reason() {
    let rows = [
        ("not JSON", "{nope}", None, "The body is not valid JSON: unexpected 'n' at byte 1."),
        (
            "cut short",
            r#"{"model":"#,
            None,
            "The body is not valid JSON: the document ends too early, at byte 9.",
        ),
        ("empty", "", None, "The body is not valid JSON: the document ends too early, at byte 0."),
        ("array", "[]", None, "The body must be a JSON object."),
        ("no model", r#"{"messages":[]}"#, Some("model"), "Missing required member: 'model'."),
        ("number", r#"{"model":4,"messages":[]}"#, Some("model"), "'model' must be a string."),
        ("null", r#"{"model":null,"messages":[]}"#, Some("model"), "'model' must be a string."),
        ("lone surrogate", r#"{"model":"\ud800","messages":[]}"#, Some("model"), "'model' must be a string."),
        ("no messages", r#"{"model":"m"}"#, Some("messages"), "Missing required member: 'messages'."),
        ("text", r#"{"model":"m","messages":"hi"}"#, Some("messages"), "'messages' must be an array."),
        ("object", r#"{"model":"m","messages":{}}"#, Some("messages"), "'messages' must be an array."),
        (
            "stream as text",
            r#"{"model":"m","messages":[],"stream":"true"}"#,
            Some("stream"),
            "'stream' must be true, false or null.",
        ),
        (
            "stream as number",
            r#"{"model":"m","messages":[],"stream":1}"#,
            Some("stream"),
            "'stream' must be true, false or null.",
        ),
    ];
    for (name, body, param, message) in rows {
        let error = scan(body).unwrap_err();
        assert_eq!((error.param.as_deref(), error.to_string().as_str()), (param, message), "{name}");
    }
}

#[test]
fn nesting_is_bounded() {
    let body = |levels: usize| {
        format!(r#"{{"model":"m","messages":[{}{}]}}"#, "[".repeat(levels), "]".repeat(levels))
    };
    assert!(scan(&body(126)).is_ok());
    assert_eq!(scan(&body(127)).unwrap_err().fault, ScanFault::TooDeep);
}

#[test]
fn repeats_are_bounded() {
    let body = |times: usize| format!(r#"{{{}"messages":[]}}"#, r#""model":"m","#.repeat(times));
    assert!(scan(&body(255)).is_ok());
    assert_eq!(scan(&body(256)).unwrap_err().fault, ScanFault::TooManyRepeats);
    assert_eq!(scan(&body(100_000)).unwrap_err().fault, ScanFault::TooManyRepeats);
}

#[test]
fn model_length_is_bounded() {
    let body = |length: usize| format!(r#"{{"model":"{}","messages":[]}}"#, "m".repeat(length));
    assert!(scan(&body(8 * 1024)).is_ok());
    assert_eq!(scan(&body(8 * 1024 + 1)).unwrap_err().fault, ScanFault::ModelTooLong);
}

#[test]
fn the_last_of_repeated_members_counts() {
    let head = scan(
        r#"{"model":1,"model":"a","model":"b","messages":"x","messages":[{"content":[{"type":"image_url"}]}],
            "messages":[],"stream":true,"stream":null,"tools":[{}],"tools":[],
            "stream_options":{"include_usage":true},"stream_options":{}}"#,
    )
    .unwrap();
    assert_eq!(head.model, "b");
    assert!(!head.stream && !head.has_image && !head.has_tools && !head.include_usage);
}

#[test]
fn escaped_member_names_are_read() {
    let head = scan(
        r#"{"m\u006fdel":"\u0067pt","\u006d\u0065\u0073\u0073\u0061\u0067\u0065\u0073":[{"content":[{"t\u0079pe":"image\u005furl"}]}],
            "str\u0065am":true,"stream_options":{"\u0069\u006e\u0063\u006c\u0075\u0064\u0065\u005f\u0075\u0073\u0061\u0067\u0065":true}}"#,
    )
    .unwrap();
    assert_eq!(head.model, "gpt");
    assert!(head.stream && head.has_image && head.include_usage);
}

#[test]
fn nested_members_of_the_same_name_are_ignored() {
    let head = scan(
        r#"{"metadata":{"model":"x","stream":true,"affinity_key":"k"},"model":"m",
            "messages":[{"model":"y","role":"user","content":"model","type":"image_url"}],"extra":[{"tools":[1]}]}"#,
    )
    .unwrap();
    assert_eq!(head.model, "m");
    assert!(!head.stream && !head.has_tools && !head.has_image);
    assert_eq!(head.affinity_key, None);
}

#[test]
fn images_are_detected_in_each_type_of_content_part() {
    for (kind, image) in [("image_url", true), ("input_image", true), ("image", true), ("text", false)] {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"image_url"}},{{"a":[{{}}],"type":"{kind}"}}]}}],"model":"m"}}"#
        );
        assert_eq!(scan(&body).unwrap().has_image, image, "{kind}");
    }
}

#[test]
fn invalid_values_of_gateway_members_are_ignored() {
    let rows = [
        ("5000", Some(5000)),
        ("0", Some(0)),
        ("-1", None),
        ("1.5", None),
        ("1e3", None),
        ("\"5000\"", None),
        ("null", None),
        ("[1]", None),
        ("99999999999999999999", None),
    ];
    for (value, want) in rows {
        let body = format!(r#"{{"model":"m","messages":[],"fallback_timeout_ms":{value}}}"#);
        assert_eq!(scan(&body).unwrap().fallback_timeout_ms, want, "{value}");
    }
    for (value, want) in [("\"a\\u0062\"", Some("ab")), ("\"\"", None), ("7", None), ("null", None)] {
        let body = format!(r#"{{"model":"m","messages":[],"affinity_key":{value}}}"#);
        assert_eq!(scan(&body).unwrap().affinity_key.as_deref(), want, "{value}");
    }
}

#[test]
fn the_largest_possible_reading_of_an_output_limit_applies() {
    // (members, tokens of one answer, true if unbounded, answers)
    let rows = [
        (r#""max_completion_tokens":1,"max_tokens":100000"#, Some(100_000), false, None),
        (r#""max_completion_tokens":7,"max_tokens":null"#, Some(7), false, None),
        (r#""max_tokens":5,"max_tokens":9,"max_tokens":6"#, Some(9), false, None),
        (r#""max_tokens":1e2"#, Some(100), false, None),
        (r#""max_tokens":100.0"#, Some(100), false, None),
        (r#""max_tokens":99999999999999999999"#, Some(u64::MAX), false, None),
        (r#""max_tokens":0,"max_completion_tokens":5"#, Some(5), true, None),
        (r#""max_tokens":-1"#, None, true, None),
        (r#""n":2,"best_of":1e1"#, None, false, Some(10)),
        (r#""\u006e":100.0"#, None, false, Some(100)),
        (r#""num_completions":3,"num_generations":4,"n":null"#, None, false, Some(4)),
        (r#""metadata":{"n":9,"max_tokens":9}"#, None, false, None),
    ];
    for (members, output, output_is_open, count) in rows {
        let head = scan(&format!(r#"{{"model":"m","messages":[],{members}}}"#)).unwrap();
        let read = (head.max_output_tokens, head.output_is_open, head.count);
        assert_eq!(read, (output, output_is_open, count), "{members}");
    }
}

#[test]
fn an_output_limit_that_is_no_whole_number_is_rejected_by_name() {
    let long = format!("0.{}1", "0".repeat(200));
    for name in ["max_tokens", "max_completion_tokens", "n", "best_of"] {
        for value in ["\"100\"", "1.5", "-2", "true", "[5]", "{}", "1e-1", long.as_str()] {
            let error =
                scan(&format!(r#"{{"model":"m","messages":[],"{name}":{value},"x":1}}"#)).unwrap_err();
            let message = format!("'{name}' must be a non-negative whole number or null.");
            assert_eq!((error.param.as_deref(), error.to_string()), (Some(name), message), "{value}");
        }
    }
}

#[test]
fn base64_data_does_not_count_as_text() {
    let data = "A".repeat(10_000);
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[
            {{"type":"text","text":"12345678"}},
            {{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}},
            {{"type":"input_audio","input_audio":{{"data":"{data}","format":"wav"}}}}]}}]}}"#
    );
    let bytes = scan(&body).unwrap().input.text_bytes;
    assert!((8..64).contains(&bytes), "{bytes}");
    let text = scan(r#"{"model":"m","messages":[{"content":"data: is not always a URL"}]}"#).unwrap();
    assert_eq!(text.input.text_bytes, 25);
}

/// Returns the error of a body cut in two at `cut`.
fn fault_of(body: &[u8], cut: usize) -> Option<String> {
    let (first, second) = body.split_at(cut);
    let mut scan = HeadScan::new(Dialect::Chat);
    let scanned = scan.push(first).and_then(|()| scan.push(second)).and_then(|()| scan.finish());
    scanned.err().map(|error| error.to_string())
}

#[test]
fn strings_hold_utf8_and_no_raw_control_characters() {
    let place = |marked: &[u8]| marked.iter().position(|byte| *byte == b'@').unwrap();
    for body in [
        br#"{"model":"m","messages":[{"role":"user","content":"a@b"}]}"#.as_slice(),
        br#"{"model":"@","messages":[]}"#,
        br#"{"model":"m","messages":[],"tools":[{"function":{"description":"\n@"}}]}"#,
        br#"{"model":"m","messages":[],"other":{"a@":["x"]}}"#,
        b"{\n\t\"model\": \"m\",\r\n\t\"messages\": [],\n\t\"user\": \"@\"\n}",
    ] {
        let at = place(body);
        for byte in [0, 1, b'\t', b'\n', b'\r', 0x1b, 0x1f, 0x80, 0xc0, 0xff] {
            let mut bad = body.to_vec();
            bad[at] = byte;
            for cut in 0..bad.len() {
                let error = fault_of(&bad, cut).unwrap_or_else(|| panic!("{byte:x} cut at {cut}"));
                let why = if byte < b' ' {
                    format!(
                        "The body is not valid JSON: the control character \\u{byte:04x} is not escaped at byte {at}."
                    )
                } else {
                    format!("The body is not valid JSON: invalid UTF-8 at byte {at}.")
                };
                assert_eq!(error, why, "cut at {cut}");
            }
        }
    }
}

#[test]
fn the_first_of_two_faults_is_reported_at_any_split() {
    for (body, why) in [
        (b"{\"a\":\"\xff\",}".as_slice(), "invalid UTF-8 at byte 6"),
        (b"{\"a\":\"\xc3\n\"}", "invalid UTF-8 at byte 6"),
        (b"{\"a\":\"\xe6\xbc\",}", "invalid UTF-8 at byte 6"),
        (b"{\"a\":\xff}", "unexpected '\\xff' at byte 5"),
        (b"{\"a\",\"\xff\"}", "unexpected ',' at byte 4"),
    ] {
        for cut in 0..=body.len() {
            let error = fault_of(body, cut).unwrap();
            assert_eq!(error, format!("The body is not valid JSON: {why}."), "cut at {cut}");
        }
    }
}

#[test]
fn text_in_any_script_and_with_blanks_between_tokens_is_taken() {
    let body =
        "{\n\t\"model\": \"m\",\r\n\t\"messages\": [{\"content\": \"é漢🙂\u{7f}\u{85}\\n\\u0000\"}]\n}";
    for cut in 0..body.len() {
        assert_eq!(fault_of(body.as_bytes(), cut), None, "cut at {cut}");
    }
}

/// A preview needs the model and the beginning of the conversation.
#[test]
fn the_beginning_of_a_body_is_previewed_if_it_determines_the_edits() {
    let preview = |dialect, body: &str| {
        let mut scan = HeadScan::new(dialect);
        scan.push(body.as_bytes()).unwrap();
        scan.preview().map(|head| (head.model, head.stream, head.edits.len()))
    };
    let of_model = |model: &str, stream, edits| Some((model.to_owned(), stream, edits));
    let (chat, messages) = (Dialect::Chat, Dialect::Messages);
    for (dialect, body, want) in [
        (chat, r#"{"model":"m","messages":[{"role":"user","content":"Hel"#, of_model("m", false, 1)),
        (chat, r#"{"model":"m\u0041","user":"u","messages":["#, of_model("mA", false, 1)),
        (chat, r#"{"model":"m","stream":false,"messages":["#, of_model("m", false, 1)),
        (chat, r#"{"model":"m","stream":true,"stream_options":{},"messages":["#, of_model("m", true, 2)),
        (chat, r#"{"model":"m","stream":true,"messages":["#, None),
        (messages, r#"{"model":"m","stream":true,"messages":["#, of_model("m", true, 1)),
        (chat, r#"{"messages":[{"role":"user","content":"Hel"#, None),
        (chat, r#"{"model":4,"messages":["#, None),
        (chat, r#"{"model":"m","stream":4,"messages":["#, None),
        (chat, r#"{"model":"m""#, None),
        (chat, r#"{"model":"m","messages":[],"user":"#, of_model("m", false, 2)),
        (chat, r#"{"messages":[],"model":"m","user":"#, of_model("m", false, 2)),
        (chat, r#"{"model":"m","messages":[],"stream":true,"user":"#, None),
        (messages, r#"{"model":"m","messages":[],"tools":["#, of_model("m", false, 1)),
        (Dialect::Responses, r#"{"model":"m","stream":true,"input":["#, of_model("m", true, 1)),
    ] {
        assert_eq!(preview(dialect, body), want, "{body}");
    }
}
