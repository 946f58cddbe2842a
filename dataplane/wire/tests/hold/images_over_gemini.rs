//! Invariants of an images client over Google's models: a prepared request contains the prompt, and an answer becomes
//! one that the client's SDK can read, or an error.

use serde_json::Value;
use shared::operation::Dialect;
use wire::adapt::BadAnswer;

use super::known_rules::known;
use super::{pieces, prepared};

/// Asserts the invariants for one input, which is both a request of the client and an answer of the target.
pub(crate) fn holds(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    for (model, prompt) in
        [("gemini-3-pro-image", "/contents/0/parts/0/text"), ("imagen-4.0", "/instances/0/prompt")]
    {
        let target = known(model);
        if let Ok(prepared) = prepared(Dialect::Images, Dialect::Gemini, &whole, &target) {
            let sent: Value = serde_json::from_slice(&prepared.body).unwrap();
            // The adaptation replaces half of a surrogate pair, which serde_json rejects. Of duplicate members it reads the
            // first and serde_json the last.
            let received = serde_json::from_slice::<Value>(&whole).ok();
            if let Some(received) = received.filter(|received| !repeats(&whole, received)) {
                assert_eq!(sent.pointer(prompt), Some(&received["prompt"]));
            }
        }
        let answers =
            prepared(Dialect::Images, Dialect::Gemini, br#"{"prompt":"x"}"#, &target).unwrap().answers;
        match answers.whole(&whole) {
            Ok(answer) => {
                let read: Value = serde_json::from_slice(&answer.body).unwrap();
                let images = read["data"].as_array().unwrap();
                let inline = |image: &Value| image["b64_json"].as_str().is_some_and(|data| !data.is_empty());
                assert!(!images.is_empty() && images.iter().all(inline));
                assert_eq!(answer.usage.is_some(), read["usage"].is_object());
            }
            Err(BadAnswer::Error(error)) => assert!(!error.message.is_empty()),
            Err(BadAnswer::Invalid(_) | BadAnswer::Nothing(_)) => {}
        }
        let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::new());
        pieces.iter().for_each(|piece| stream.push(bytes::Bytes::copy_from_slice(piece), &mut out));
        assert!(out.is_empty() && !stream.state().content, "no image comes as a stream");
    }
}

fn repeats(document: &[u8], read: &Value) -> bool {
    let mut document = document.to_vec();
    let tape = wire::json::parse(&mut document).unwrap();
    tape.as_value().as_object().unwrap().len() != read.as_object().unwrap().len()
}
