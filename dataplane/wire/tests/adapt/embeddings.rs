//! Embeddings: OpenAI's clients at Gemini's models, and Gemini's clients at OpenAI's.

use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::provider::path::UpstreamCall;
use shared::usage::TokenCounts;
use wire::adapt::{Answers, BadAnswer, Traits, find};

use crate::pair::prepare;

fn answers(client: Dialect, target: Dialect, request: &Value) -> Box<dyn Answers + Send> {
    let pair = find(client, target).unwrap();
    prepare(pair, request.to_string().as_bytes(), &Traits::of("e")).unwrap().answers
}

fn text(text: &str) -> Value {
    json!({"content": {"parts": [{"text": text}]}})
}

#[test]
fn a_list_of_openai_becomes_the_answer_of_gemini_in_order() {
    let list = br#"{"object":"list","data":[{"index":1,"embedding":"AAAAPwAAgD4="},{"index":0,"embedding":[1.0, -1.50]}],
        "usage":{"prompt_tokens":5,"total_tokens":5}}"#;
    let batch = json!({"requests": [text("a"), text("b")]});
    let batch = answers(Dialect::GeminiEmbeddings, Dialect::Embeddings, &batch);
    let whole = batch.whole(list).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&whole.body),
        r#"{"embeddings":[{"values":[1.0, -1.50]},{"values":[0.5,0.25]}],"usageMetadata":{"promptTokenCount":5,"totalTokenCount":5}}"#
    );
    assert_eq!(whole.usage, Some(TokenCounts { input: 5, ..TokenCounts::ZERO }));
    assert_eq!(batch.call(false), UpstreamCall::Whole);
    let one = answers(Dialect::GeminiEmbeddings, Dialect::Embeddings, &text("a"));
    let whole = one.whole(br#"{"data":[{"embedding":[1]}]}"#).unwrap();
    assert_eq!((&whole.body[..], whole.usage), (&br#"{"embedding":{"values":[1]}}"#[..], None));
}

#[test]
fn the_answer_of_gemini_becomes_a_list_of_openai_in_the_form_that_was_asked_for() {
    let answer =
        br#"{"embeddings":[{"values":[0.5, 0.25]},{"values":[]}],"usageMetadata":{"promptTokenCount":7}}"#;
    for (format, first, second) in
        [("float", json!([0.5, 0.25]), json!([])), ("base64", json!("AAAAPwAAgD4="), json!(""))]
    {
        let request = json!({"input": ["a", "b"], "encoding_format": format});
        let answers = answers(Dialect::Embeddings, Dialect::GeminiEmbeddings, &request);
        let whole = answers.whole(answer).unwrap();
        let body: Value = serde_json::from_slice(&whole.body).unwrap();
        let item =
            |index: u64, vector: &Value| json!({"object": "embedding", "index": index, "embedding": vector});
        assert_eq!(
            body,
            json!({"object": "list", "data": [item(0, &first), item(1, &second)], "model": body["model"],
                "usage": {"prompt_tokens": 7, "total_tokens": 7}}),
        );
        assert_eq!(whole.usage, Some(TokenCounts { input: 7, ..TokenCounts::ZERO }));
        assert_eq!(answers.call(false), UpstreamCall::Batch);
    }
}

#[test]
fn an_answer_without_one_vector_for_each_text_is_refused() {
    let to_openai = answers(Dialect::GeminiEmbeddings, Dialect::Embeddings, &text("a"));
    let to_gemini = answers(Dialect::Embeddings, Dialect::GeminiEmbeddings, &json!({"input": "a"}));
    for (answers, body) in [
        (&to_openai, r#"{"data":[]}"#),
        (&to_openai, r#"{"data":[{"embedding":{"x":1}}]}"#),
        (&to_openai, r#"{"choices":[]}"#),
        (&to_gemini, r#"{"embeddings":[]}"#),
        (&to_gemini, r#"{"embeddings":[{"values":7}]}"#),
        (&to_gemini, r#"{"candidates":[]}"#),
    ] {
        let refused = answers.whole(body.as_bytes()).unwrap_err();
        assert!(matches!(refused, BadAnswer::Invalid(_)), "{body}: {refused:?}");
    }
    for answers in [&to_openai, &to_gemini] {
        let error = answers.whole(br#"{"error":{"code":429,"message":"No more."}}"#).unwrap_err();
        assert!(matches!(&error, BadAnswer::Error(error) if error.message == "No more."), "{error:?}");
    }
}
