//! Requests of Gemini clients: the path contains model and method, and names have two spellings.

use bytes::Bytes;
use shared::operation::Dialect;

use crate::request::{GeminiCall, GeminiKind, Head, HeadScan, Naming, ScanError, build};

fn scan(body: &str, pieces: usize) -> Result<Head, ScanError> {
    let call = GeminiCall { model: "p/m".to_owned(), stream: true, kind: GeminiKind::Generation };
    let mut scan = HeadScan::of_gemini(call);
    body.as_bytes().chunks(pieces).try_for_each(|piece| scan.push(piece))?;
    scan.finish()
}

fn built(body: &str, preamble: Option<&str>) -> String {
    let head = scan(body, body.len()).unwrap();
    let segments = [Bytes::copy_from_slice(body.as_bytes())];
    String::from_utf8(build(&segments, &head, Naming::Model("target"), true, preamble).concat()).unwrap()
}

#[test]
fn a_body_is_unchanged_but_for_its_model_and_the_gateways_members() {
    for (body, want) in [
        (r#"{ "contents" : [], "x":1 }"#, None),
        (r#"{"model":"models/p/m","contents":[]}"#, Some(r#"{"contents":[]}"#)),
        (r#"{"contents":[], "model":"p/m","affinity_key":"k"}"#, Some(r#"{"contents":[]}"#)),
    ] {
        assert_eq!(built(body, None), want.unwrap_or(body));
    }
}

#[test]
fn the_preamble_is_the_first_part_of_the_system_text() {
    for (body, want) in [
        (r#"{"contents":[]}"#, r#"{"systemInstruction":{"parts":[{"text":"P"}]},"contents":[]}"#),
        (
            r#"{"contents":[],"systemInstruction":null}"#,
            r#"{"contents":[],"systemInstruction":{"parts":[{"text":"P"}]}}"#,
        ),
        (
            r#"{"system_instruction":{"role":"user","parts":[{"text":"a"}]},"contents":[]}"#,
            r#"{"system_instruction":{"role":"user","parts":[{"text":"P"},{"text":"a"}]},"contents":[]}"#,
        ),
        (
            r#"{"systemInstruction":{"parts":{"text":"a"}},"contents":{}}"#,
            r#"{"systemInstruction":{"parts":[{"text":"P"},{"text":"a"}]},"contents":{}}"#,
        ),
        (
            r#"{"systemInstruction":{"parts":[]},"contents":[]}"#,
            r#"{"systemInstruction":{"parts":[{"text":"P"}]},"contents":[]}"#,
        ),
        (
            r#"{"systemInstruction":{},"contents":[]}"#,
            r#"{"systemInstruction":{"parts":[{"text":"P"}]},"contents":[]}"#,
        ),
    ] {
        assert_eq!(built(body, Some("P")), want, "{body}");
    }
}

#[test]
fn facts_are_read_in_either_spelling_and_at_any_split() {
    for body in [
        r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}},{"text":"abcd"}]}],
            "tools":[{"googleSearch":{}}],"generationConfig":{"maxOutputTokens":50,"candidateCount":2}}"#,
        r#"{"contents":[{"parts":[{"inline_data":{"data":"iVBORw0KGgo","mime_type":"image/png"}},{"text":"abcd"}]}],
            "tools":[{"google_search":{}}],"generation_config":{"max_output_tokens":"50","candidate_count":2}}"#,
    ] {
        for pieces in [1, 7, body.len()] {
            let head = scan(body, pieces).unwrap();
            assert_eq!(
                (head.model.as_str(), head.stream, head.has_image, head.has_tools),
                ("p/m", true, true, true)
            );
            assert_eq!((head.max_output_tokens, head.count), (Some(50), Some(2)), "{body}");
            assert_eq!((head.input.pictures, head.input.provider_tools), (1, 1), "{body}");
            assert!(head.input.text_bytes >= 4);
        }
    }
}

#[test]
fn an_unfit_request_is_refused_with_its_member() {
    for (body, param) in [
        (r#"{"model":"other","contents":[]}"#, "model"),
        (r#"{}"#, "contents"),
        (r#"{"contents":"x"}"#, "contents"),
        (
            r#"{"contents":[],"generationConfig":{"maxOutputTokens":"many"}}"#,
            "generationConfig.maxOutputTokens",
        ),
    ] {
        assert_eq!(scan(body, body.len()).unwrap_err().param.as_deref(), Some(param), "{body}");
    }
}

fn embedding(kind: GeminiKind, body: &str, pieces: usize) -> Result<Head, ScanError> {
    let mut scan = HeadScan::of_gemini(GeminiCall { model: "p/e".to_owned(), stream: false, kind });
    body.as_bytes().chunks(pieces).try_for_each(|piece| scan.push(piece))?;
    scan.finish()
}

#[test]
fn only_the_texts_of_a_request_for_embeddings_are_counted() {
    for (kind, body, bytes) in [
        (
            GeminiKind::Embedding,
            r#"{"model":"models/p/e","content":{"parts":[{"text":"abcd"}]},"taskType":"RETRIEVAL_QUERY"}"#,
            4,
        ),
        (
            GeminiKind::EmbeddingBatch,
            r#"{"requests":[{"model":"models/p/e","taskType":"RETRIEVAL_QUERY","content":{"parts":[{"text":"ab"}]}},
                {"model":"models/p/e","task_type":"RETRIEVAL_QUERY","content":{"parts":[{"text":"cde"}]}}]}"#,
            5,
        ),
    ] {
        for pieces in [1, 7, body.len()] {
            let head = embedding(kind, body, pieces).unwrap();
            assert_eq!(head.input.text_bytes, bytes, "{body}");
            assert_eq!((head.model.as_str(), head.dialect), ("p/e", Dialect::GeminiEmbeddings));
            assert_eq!(head.is_batch, kind == GeminiKind::EmbeddingBatch);
        }
    }
}

#[test]
fn a_request_for_embeddings_gets_no_system_text() {
    let body = r#"{"content":{"parts":[{"text":"a"}]},"affinity_key":"k"}"#;
    let head = embedding(GeminiKind::Embedding, body, body.len()).unwrap();
    let sent = build(&[Bytes::from_static(body.as_bytes())], &head, Naming::Model("e"), true, Some("P"));
    assert_eq!(sent.concat(), br#"{"content":{"parts":[{"text":"a"}]}}"#);
}

#[test]
fn an_unfit_request_for_embeddings_is_refused_with_its_member() {
    for (kind, body, param) in [
        (GeminiKind::Embedding, "{}", "content"),
        (GeminiKind::Embedding, r#"{"content":[]}"#, "content"),
        (GeminiKind::Embedding, r#"{"model":"x","content":{}}"#, "model"),
        (GeminiKind::EmbeddingBatch, r#"{"content":{}}"#, "requests"),
        (GeminiKind::EmbeddingBatch, r#"{"requests":{}}"#, "requests"),
    ] {
        assert_eq!(embedding(kind, body, body.len()).unwrap_err().param.as_deref(), Some(param), "{body}");
    }
}
