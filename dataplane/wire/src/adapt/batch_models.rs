//! The models that the elements of Gemini's request for several embeddings name. Google requires each of them to be the
//! model of the path; they are the only bytes of such a request that differ between the client and a native target.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Rejection;
use super::splice::spliced;
use crate::json::quote;
use crate::request::bare_model;

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow)]
    requests: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct NamedRequest<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
}

/// Returns `body`, a request for several embeddings, with `model` in place of the client's `selector` in each element;
/// `None` if no element names a model, or if `body` has no shape in which they can be found. Rejects an element that
/// names another model than the path.
pub fn with_batch_models(body: &[u8], selector: &str, model: &str) -> Result<Option<Vec<u8>>, Rejection> {
    let Ok(batch) = serde_json::from_slice::<Batch<'_>>(body) else { return Ok(None) };
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (position, request) in batch.requests.into_iter().enumerate() {
        let Ok(request) = serde_json::from_str::<NamedRequest<'_>>(request.get()) else { continue };
        let Some(named) = request.model else { continue };
        let text = serde_json::from_str::<Cow<'_, str>>(named.get());
        if text.is_ok_and(|text| bare_model(&text) != bare_model(selector)) {
            let why = "must be the model of the path. Omit it, or send the same name.";
            return Err(Rejection::malformed(format!("requests.{position}.model"), why));
        }
        let start = named.get().as_ptr().addr().checked_sub(body.as_ptr().addr());
        let span = start.and_then(|start| Some(start..start.checked_add(named.get().len())?));
        edits.extend(span.map(|span| (span, quote(&format!("models/{model}")))));
    }
    Ok(if edits.is_empty() { None } else { spliced(body, &edits) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_models_of_a_batch_are_replaced() {
        let body = |models: [&str; 2]| {
            let [first, second] = models;
            format!(
                r#"{{ "requests":[{{"model":{first:?},"content":{{"parts":[{{"text":"models/p/e"}}]}}}}, {{"content":{{}},"model" : {second:?}}}, {{"content":1}}] }}"#
            )
        };
        let got = with_batch_models(body(["models/p/e", "p/e"]).as_bytes(), "p/e", "e").unwrap().unwrap();
        assert_eq!(String::from_utf8(got).unwrap(), body(["models/e", "models/e"]));
        let other = with_batch_models(body(["p/e", "models/x"]).as_bytes(), "p/e", "e").unwrap_err();
        assert_eq!(other.param, "requests.1.model");
        assert_eq!(with_batch_models(br#"{"requests":[{}]}"#, "p/e", "e"), Ok(None));
    }
}
