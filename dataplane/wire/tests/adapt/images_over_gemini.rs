//! Images by Google's models: both forms of request and answer, refusals, and random answers.

use proptest::prelude::*;
use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::provider::path::Call;
use shared::usage::TokenCounts;
use wire::adapt::{Answers, BadAnswer, Prepared, Traits, TranslatedAnswer, find};

use crate::pair::{fixture, fixture_json, prepare};

const GEMINI: &str = "gemini-2.5-flash-image";
const IMAGEN: &str = "imagen-4.0-generate-001";

fn asked(body: &Value, model: &str) -> Prepared {
    let pair = find(Dialect::Images, Dialect::Gemini).unwrap();
    prepare(pair, body.to_string().as_bytes(), &Traits::of(model)).unwrap()
}

fn answers(model: &str) -> Box<dyn Answers> {
    asked(&json!({"model": "img", "prompt": "x"}), model).answers
}

fn whole(model: &str, body: &Value) -> Result<TranslatedAnswer, BadAnswer> {
    answers(model).whole(body.to_string().as_bytes())
}

fn read(whole: &TranslatedAnswer) -> Value {
    serde_json::from_slice(&whole.body).unwrap()
}

fn images(answer: &Value) -> Vec<&str> {
    answer["data"].as_array().unwrap().iter().map(|image| image["b64_json"].as_str().unwrap()).collect()
}

fn candidate(parts: &Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
}

fn inline(data: &str) -> Value {
    json!({"inlineData": {"mimeType": "image/png", "data": data}})
}

#[test]
fn the_recorded_request_is_said_in_either_form() {
    for (model, file, call) in
        [(GEMINI, "gemini_request", Call::Whole), (IMAGEN, "imagen_request", Call::Predict)]
    {
        let prepared = asked(&fixture_json("images/request.json"), model);
        let got: Value = serde_json::from_slice(&prepared.body).unwrap();
        assert_eq!(got, fixture_json(&format!("images/{file}.json")));
        assert_eq!(prepared.answers.call(false), call);
    }
}

#[test]
fn a_recorded_answer_of_gemini_is_the_recorded_one_of_openai() {
    let got = answers(GEMINI).whole(&fixture("images/gemini_response.json")).unwrap();
    assert_eq!(
        got.usage,
        Some(TokenCounts { input: 5, output: 14, image_output: 258, ..TokenCounts::default() })
    );
    let mut want = fixture_json("images/response.json");
    want["created"] = json!(1);
    want["usage"]["output_tokens_details"] = json!({"image_tokens": 258, "text_tokens": 14});
    for own in ["background", "quality", "size"] {
        want.as_object_mut().unwrap().remove(own);
    }
    assert_eq!(read(&got), want);
}

#[test]
fn images_of_imagen_come_in_their_order_without_those_held_back() {
    let got = answers(IMAGEN).whole(&fixture("images/imagen_response.json")).unwrap();
    let image = &fixture_json("images/response.json")["data"][0]["b64_json"];
    let want = json!({
        "created": 1, "output_format": "png",
        "data": [{"b64_json": image, "revised_prompt": "A photo of a tabby cat"}, {"b64_json": image}],
    });
    assert_eq!((read(&got), got.usage), (want, None));
}

#[test]
fn pictures_of_a_thought_and_what_is_no_picture_are_left_out() {
    let sound = json!({"inlineData": {"mimeType": "audio/wav", "data": "CCCC"}});
    let mut thought = inline("AAAA");
    thought["thought"] = json!(true);
    let said =
        candidate(&json!([thought, {"text": "Here:"}, inline("BBBB"), sound, inline(""), inline("DDDD")]));
    assert_eq!(images(&read(&whole(GEMINI, &said).unwrap())), ["BBBB", "DDDD"]);
}

#[test]
fn thoughts_and_the_cache_count_as_openai_counts_them() {
    let mut said = candidate(&json!([inline("AAAA")]));
    said["usageMetadata"] = json!({
        "promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 1290,
        "thoughtsTokenCount": 30, "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}],
    });
    let got = whole("gemini-3-pro-image", &said).unwrap();
    let usage = TokenCounts {
        input: 40,
        cache_read: 60,
        image_output: 1290,
        reasoning: 30,
        ..TokenCounts::default()
    };
    assert_eq!(got.usage, Some(usage));
    let want = json!({
        "input_tokens": 100, "input_tokens_details": {"text_tokens": 100, "image_tokens": 0},
        "output_tokens": 1320, "output_tokens_details": {"image_tokens": 1290, "text_tokens": 30},
        "total_tokens": 1420,
    });
    assert_eq!(read(&got)["usage"], want);
}

#[test]
fn a_refusal_is_what_openai_says_of_one() {
    let ended = |reason: &str| json!({"candidates": [{"finishReason": reason, "index": 0}]});
    let rows = [
        (fixture_json("gemini/response_blocked.json"), "SAFETY"),
        (json!({"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "No cats."}}), "No cats."),
        (ended("IMAGE_SAFETY"), "IMAGE_SAFETY"),
        (ended("IMAGE_PROHIBITED_CONTENT"), "IMAGE_PROHIBITED_CONTENT"),
        (ended("IMAGE_RECITATION"), "IMAGE_RECITATION"),
        (ended("PROHIBITED_CONTENT"), "PROHIBITED_CONTENT"),
        (
            json!({"candidates": [{"finishReason": "IMAGE_SAFETY", "finishMessage": "Unable to show it."}]}),
            "Unable to show it.",
        ),
        (json!({"predictions": [{"raiFilteredReason": "Filtered: 1."}]}), "Filtered: 1."),
    ];
    for (said, why) in rows {
        let Err(BadAnswer::Error(error)) = whole(GEMINI, &said) else { panic!("{said}") };
        assert_eq!((error.status, error.code.as_deref()), (Some(400), Some("moderation_blocked")), "{said}");
        assert_eq!(error.kind.as_deref(), Some("image_generation_user_error"));
        assert!(error.message.ends_with(why), "{}", error.message);
    }
}

#[test]
fn an_answer_without_an_image_says_what_came_instead() {
    let rows = [
        (
            candidate(&json!([{"text": "Which "}, {"text": "hm", "thought": true}, {"text": "cat?"}])),
            "Which cat?",
        ),
        (json!({"candidates": [{"finishReason": "NO_IMAGE"}]}), "NO_IMAGE"),
        (
            json!({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"text": " "}]}}]}),
            "MAX_TOKENS",
        ),
        (json!({"candidates": [{"finishReason": "STOP"}]}), ""),
        (json!({"candidates": []}), ""),
        (json!({"predictions": []}), ""),
        (json!({"predictions": [{"mimeType": "image/png"}]}), ""),
        (json!({}), ""),
    ];
    for (said, words) in rows {
        assert_eq!(whole(GEMINI, &said), Err(BadAnswer::Nothing(words.to_owned())), "{said}");
    }
}

#[test]
fn what_is_no_answer_of_the_target_is_an_error_or_nothing_at_all() {
    for model in [GEMINI, IMAGEN] {
        let Err(BadAnswer::Error(error)) = answers(model).whole(&fixture("gemini/error.json")) else {
            panic!("it is one")
        };
        assert_eq!(error.status, Some(429));
        for body in
            ["", "<html>", "7", r#"{"candidates":5}"#, r#"{"predictions":[{"bytesBase64Encoded":"AAAA"}"#]
        {
            assert!(matches!(answers(model).whole(body.as_bytes()), Err(BadAnswer::Invalid(_))), "{body}");
        }
    }
}

#[test]
fn a_stream_that_nobody_asked_for_is_an_error() {
    let (mut stream, mut out) = (answers(GEMINI).stream(Vec::new()), Vec::new());
    stream.push(fixture("gemini/stream.sse").into(), &mut out);
    stream.end(&mut out);
    assert!(out.is_empty() && !stream.state().content);
    assert_eq!(stream.state().error.as_ref().unwrap().status, Some(502));
}

#[test]
fn one_frame_of_a_still_image_is_a_still_image() {
    let body =
        json!({"model": "img", "prompt": "x", "frame_count": 1, "stream": false, "n": 1, "size": null});
    assert_eq!(asked(&body, GEMINI).body, asked(&json!({"prompt": "x"}), GEMINI).body);
}

/// A part of an answer, and the image that it is.
fn part() -> impl Strategy<Value = (Value, Option<String>)> {
    let data = "[A-Za-z0-9+/]{1,24}={0,2}";
    prop_oneof![
        ".{0,12}".prop_map(|text| (json!({"text": text}), None)),
        data.prop_map(|data| (inline(&data), Some(data))),
        data.prop_map(|data| {
            let mut part = inline(&data);
            part["thought"] = json!(true);
            (part, None)
        }),
    ]
}

proptest! {
    #[test]
    fn every_prompt_arrives_and_every_image_comes_back(
        prompt in ".{0,40}",
        parts in proptest::collection::vec(part(), 0..6),
        spaces in any::<bool>(),
    ) {
        let body = json!({"model": "img", "prompt": prompt});
        let sent: Value = serde_json::from_slice(&asked(&body, GEMINI).body).unwrap();
        prop_assert_eq!(&sent["contents"][0]["parts"][0]["text"], &json!(prompt));
        let sent: Value = serde_json::from_slice(&asked(&body, IMAGEN).body).unwrap();
        prop_assert_eq!(&sent["instances"][0]["prompt"], &json!(prompt));

        let said: Vec<&Value> = parts.iter().map(|(part, _)| part).collect();
        let predicted: Vec<Value> = parts.iter().map(|(_, data)| match data {
            Some(data) => json!({"mimeType": "image/png", "bytesBase64Encoded": data, "prompt": prompt}),
            None => json!({"raiFilteredReason": "no"}),
        }).collect();
        let want: Vec<&str> = parts.iter().filter_map(|(_, data)| data.as_deref()).collect();
        for (model, said) in [(GEMINI, candidate(&json!(said))), (IMAGEN, json!({"predictions": predicted}))] {
            let body = if spaces { format!("{said:#}\n") } else { said.to_string().replace('=', "\\u003d") };
            match answers(model).whole(body.as_bytes()) {
                Ok(whole) => {
                    let got = read(&whole);
                    prop_assert_eq!(images(&got), want.clone());
                    if model == IMAGEN {
                        prop_assert_eq!(&got["data"][0]["revised_prompt"], &json!(prompt));
                    }
                }
                Err(_) => prop_assert!(want.is_empty()),
            }
        }
    }
}
