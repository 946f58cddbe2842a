//! The part of a response head that is known before any request arrives.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::id::{ModelId, ProviderId};

/// The header with the request ID.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header with the ID of the provider instance that answered.
pub const X_PROVIDER: HeaderName = HeaderName::from_static("x-llmgw-provider");
/// The header with the model that answered.
const X_MODEL: HeaderName = HeaderName::from_static("x-llmgw-model");
/// The header with the number of attempts.
pub const X_ATTEMPTS: HeaderName = HeaderName::from_static("x-llmgw-attempts");
/// The default content type.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The headers of every response from a model, with their default values: JSON, one attempt and an empty request ID.
/// Cloning them costs half of inserting them one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerHead(HeaderMap);

impl AnswerHead {
    /// Creates the response head for `model` at `provider`.
    pub fn new(provider: &ProviderId, model: &ModelId) -> Self {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        headers.insert(CONTENT_TYPE, JSON);
        name_target(&mut headers, provider, model);
        headers.insert(X_ATTEMPTS, FIRST);
        headers.insert(X_REQUEST_ID, HeaderValue::from_static(""));
        Self(headers)
    }

    /// Returns the headers of one response. The caller must still set the request ID.
    pub fn headers(&self, content_type: HeaderValue, attempts: u32) -> HeaderMap {
        let mut headers = self.0.clone();
        if content_type != JSON {
            headers.insert(CONTENT_TYPE, content_type);
        }
        if attempts != 1 {
            headers.insert(X_ATTEMPTS, HeaderValue::from(attempts));
        }
        headers
    }
}

/// Adds the target to the headers of a response. Skips an ID that is not a valid header value.
pub fn name_target(headers: &mut HeaderMap, provider: &ProviderId, model: &ModelId) {
    for (name, id) in [(X_PROVIDER, provider.as_str()), (X_MODEL, model.as_str())] {
        if let Ok(value) = HeaderValue::from_str(id) {
            headers.insert(name, value);
        }
    }
}

const FIRST: HeaderValue = HeaderValue::from_static("1");
const HEADERS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_its_target_its_type_and_its_attempts() {
        let head = AnswerHead::new(&ProviderId::new("up"), &ModelId::new("m\u{e9}\n"));
        let of = |headers: &HeaderMap, name: HeaderName| headers.get(name).cloned();
        let usual = head.headers(JSON, 1);
        assert_eq!(of(&usual, CONTENT_TYPE), Some(JSON));
        assert_eq!(of(&usual, X_PROVIDER), Some(HeaderValue::from_static("up")));
        assert_eq!(of(&usual, X_MODEL), None, "no header can hold it");
        assert_eq!(of(&usual, X_ATTEMPTS), Some(FIRST));
        let events = HeaderValue::from_static("text/event-stream");
        let other = head.headers(events.clone(), 3);
        assert_eq!(of(&other, CONTENT_TYPE), Some(events));
        assert_eq!(of(&other, X_ATTEMPTS), Some(HeaderValue::from_static("3")));
        assert_eq!(other.len(), usual.len());
    }
}
