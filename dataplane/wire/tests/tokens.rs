//! Runs the test vectors for token counting in `fixtures/tokens`.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use serde_json::Value;
use wire::tokens::{ImageSize, family_of, milli_tokens};

fn cases(id: &str) -> Vec<Value> {
    let index = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tokens/index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let vectors = index["cases"].as_array().unwrap();
    assert!(
        vectors
            .iter()
            .all(|vector| ["estimate_text", "estimate_images"].contains(&vector["id"].as_str().unwrap()))
    );
    vectors.iter().find(|vector| vector["id"] == id).unwrap()["cases"].as_array().unwrap().clone()
}

#[test]
fn token_estimates_of_texts_match_the_reference() {
    for case in cases("estimate_text") {
        let milli = milli_tokens(case["text"].as_str().unwrap());
        assert_eq!(milli, case["milli"].as_u64().unwrap(), "{}", case["text"]);
        assert_eq!(milli.div_ceil(1_000), case["tokens"].as_u64().unwrap(), "{}", case["text"]);
    }
}

#[test]
fn token_estimates_of_images_match_the_reference() {
    for case in cases("estimate_images") {
        let number = |name: &str| case[name].as_u64().unwrap();
        let size = Some(ImageSize { width: number("w"), height: number("h") });
        assert_eq!(family_of("claude-sonnet-5").image_tokens(size), number("anthropic_patch28"), "{case}");
        assert_eq!(family_of("gpt-5.5").image_tokens(size), number("openai_patch32_x1.2"), "{case}");
    }
}
