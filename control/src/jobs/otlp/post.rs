//! One export: a POST with a message of OTLP, and the collector's answer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Uri};
use prost::Message as _;
use shared::clock::unix_ms;
use shared::port::{HttpClient, HttpLimits};
use shared::sanitize::diagnostic;

use super::message::ExportAnswer;
use crate::routing::config::Otlp;
use crate::writer::webhook::retry_after_ms;

/// The reason why an export failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PostFailure {
    pub(super) error: String,
    /// The pause that the collector asks for before the next try, or 0; `None` if another try would fail too.
    pub(super) retry_after_ms: Option<u64>,
}

/// Sends a message. Returns the number of spans or data points that the collector rejected.
pub(super) async fn post(
    http: &Arc<dyn HttpClient>,
    settings: &Otlp,
    endpoint: &Uri,
    body: Bytes,
) -> Result<u64, PostFailure> {
    let mut request = Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = endpoint.clone();
    request.headers_mut().extend(settings.headers.iter().cloned());
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    let limits = HttpLimits { timeout: settings.timeout, body_bytes_max: ANSWER_BYTES_MAX };
    let answer = http.send(request, limits).await.map_err(|error| {
        let secrets: Vec<&str> =
            settings.headers.iter().filter_map(|(_, value)| value.to_str().ok()).collect();
        let error = diagnostic(&error.to_string(), &secrets).chars().take(ERROR_CHARS_MAX).collect();
        PostFailure { error, retry_after_ms: Some(0) }
    })?;
    let status = answer.status().as_u16();
    if answer.status().is_success() {
        // An answer that cannot be read still has a status that confirms the delivery.
        let answer = ExportAnswer::decode(answer.into_body()).unwrap_or_default();
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected);
        return Ok(u64::try_from(rejected).unwrap_or(0));
    }
    let is_temporary = TEMPORARY.contains(&status);
    Err(PostFailure {
        error: format!("the collector returned status {status}"),
        retry_after_ms: is_temporary.then(|| retry_after_ms(answer.headers(), unix_ms())),
    })
}

/// The statuses after which OTLP permits another try.
const TEMPORARY: [u16; 4] = [429, 502, 503, 504];
const ANSWER_BYTES_MAX: usize = 64 << 10;
const ERROR_CHARS_MAX: usize = 300;
