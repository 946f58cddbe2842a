//! Tests of unary answers.

use crate::chat::{ChatAnswerScan, synthesize_stream, whole_answer};
use crate::passthrough::WholeAnswer;

fn scan(answer: &[u8]) -> WholeAnswer {
    let mut scan = ChatAnswerScan::default();
    scan.push(answer);
    scan.finish()
}

#[test]
fn an_error_body_with_status_200_is_recognized() {
    let answer = scan(br#"{"error":{"message":"No capacity","code":503,"type":"overloaded"},"user_id":"u"}"#);
    let error = answer.error.unwrap();
    assert_eq!((error.message.as_str(), error.status), ("No capacity", Some(503)));
}

#[test]
fn falsy_error_members_of_a_response_are_no_errors() {
    for falsy in ["null", "false", "0", "\"\"", "{}", "[]", "{ }"] {
        let answer = scan(format!(r#"{{"choices":[{{}}],"error":{falsy}}}"#).as_bytes());
        assert_eq!(answer.error, None, "{falsy}");
        assert!(answer.is_json);
    }
}

#[test]
fn a_body_that_is_not_a_json_object_is_not_json() {
    for body in ["<html></html>", "", "[]", "{\"choices\":[", "{\"choices\":[]} x"] {
        assert!(!scan(body.as_bytes()).is_json, "{body}");
    }
}

#[test]
fn a_large_answer_passes_in_constant_memory() {
    let mut scan = ChatAnswerScan::default();
    scan.push(br#"{"choices":[{"message":{"content":""#);
    let piece = "x\\\"".repeat(20_000);
    for _ in 0..200 {
        scan.push(piece.as_bytes());
    }
    scan.push(br#""},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#);
    assert!(size_of_val(&scan) < 1024);
    let answer = scan.finish();
    assert_eq!(answer.output_bytes, 200 * 60_000);
    assert_eq!(answer.usage.unwrap().output, 2);
}

#[test]
fn usage_before_choices_and_repeated_usage_are_read() {
    let answer = scan(
        br#"{"usage":{"prompt_tokens":9,"completion_tokens":9},"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
    );
    assert_eq!(answer.usage.unwrap().input, 1, "the last one counts");
}

#[test]
fn a_body_that_is_no_completion_is_not_synthesized_into_a_stream() {
    for body in ["{}", "[]", "x", r#"{"choices":{}}"#, r#"{"choices":[1]}"#, r#"{"error":{"message":"x"}}"#] {
        assert_eq!(synthesize_stream(body.as_bytes(), true), None, "{body}");
    }
}

#[test]
fn a_whole_response_is_read_the_same_in_pieces() {
    let usage =
        r#""usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}"#;
    let bodies = [
        format!(r#"{{"id":"a","choices":[{{"message":{{"content":"hi"}}}}],{usage}}}"#),
        format!(r#" {{ {usage}, "choices":[{{"message":{{"content":"\"usage\":{{}}"}}}}] }} "#),
        format!(r#"{{"choices":[{{"message":{{"content":"x"}},{usage}}}]}}"#),
        format!(r#"{{"choices":[],"x_groq":{{{usage}}}}}"#),
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":1,"completion_tokens":1}},{usage}}}"#),
        format!(r#"{{"choices":[],"error":{{"message":"no","code":503}},{usage}}}"#),
        format!(r#"{{"choices":[],{usage}"#),
        format!(r#"{{"choices":[],{usage}}}}}"#),
        r#"{"choices":[{"message":{"content":"no usage"}}]}"#.to_owned(),
        r#"{"choices":[],"usage":null}"#.to_owned(),
        "<html>\"usage\":</html>".to_owned(),
        String::new(),
    ];
    for body in bodies {
        let mut scan = ChatAnswerScan::default();
        body.as_bytes().chunks(5).for_each(|piece| scan.push(piece));
        let (want, got) = (scan.finish(), whole_answer(body.as_bytes()));
        assert_eq!((got.usage, got.is_json, got.error), (want.usage, want.is_json, want.error), "{body}");
    }
}

#[test]
fn usage_names_are_added_to_a_response_at_any_split() {
    let usage = r#"{"input_tokens":7,"output_tokens":2,"cached_tokens":3}"#;
    let named = concat!(
        r#"{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":3},"#,
        r#""input_tokens":7,"output_tokens":2,"cached_tokens":3}"#
    );
    let choice = r#""choices":[{"message":{"content":"\"usage\":{}"},"usage":{"input_tokens":1}}]"#;
    for form in [
        format!(r#"{{"id":"a",{choice},"usage":USAGE}}"#),
        format!(r#" {{"usage" : USAGE , {choice} }} "#),
        format!(r#"{{"usage":{{"prompt_tokens":1,"completion_tokens":1}},{choice},"usage":USAGE}}"#),
        format!(r#"{{{choice},"usage":{{"prompt_tokens":1,"completion_tokens":1}}}}"#),
        format!(r#"{{{choice},"usage":USAGE"#),
        format!(r#"{{{choice},"usage":{{"input_tokens":7,"output"#),
    ] {
        let (body, want) = (form.replace("USAGE", usage), form.replace("USAGE", named));
        for cut in 0..body.len() {
            let (mut scan, mut out) = (ChatAnswerScan::default(), Vec::new());
            for piece in [&body[..cut], &body[cut..]] {
                scan.pass(bytes::Bytes::copy_from_slice(piece.as_bytes()), &mut out);
            }
            scan.release(&mut out);
            assert_eq!(String::from_utf8(out.concat()).unwrap(), want, "cut at {cut}");
        }
        let answer = whole_answer(body.as_bytes());
        if answer.is_json
            && let Some(part) = answer.unnamed_usage
        {
            let got = crate::chat::with_names(body.clone().into(), part);
            assert_eq!(String::from_utf8(got.to_vec()).unwrap(), want);
        }
    }
}
