//! The request that goes upstream: address and credential from the snapshot alone, headers by allow-list,
//! body as slices of what the client sent (CHAT-4, LIM-4).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use shared::routing::{Origin, ProviderInstance};

use super::outgoing::Outgoing;

/// Everything about one attempt's request but where it goes.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) provider: Arc<ProviderInstance>,
    pub(crate) path: fn(&Origin) -> &PathAndQuery,
    /// The client's own headers, of which only [`FORWARDED`] ones go on.
    pub(crate) client_headers: &'a HeaderMap,
    pub(crate) request_id: &'a HeaderValue,
    pub(crate) stream: bool,
    pub(crate) segments: Vec<Bytes>,
}

/// What of the client's headers goes upstream in the chat dialect. None of them can change a destination, a
/// credential or an account.
const FORWARDED: [HeaderName; 1] = [HeaderName::from_static("openai-beta")];

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("llmgw/", env!("CARGO_PKG_VERSION")));

impl Draft<'_> {
    /// As HTTP/1.1: a path and a `Host`.
    pub(crate) fn http1(&self, origin: &Origin) -> Request<Outgoing> {
        let mut request = self.request(Uri::from((self.path)(origin).clone()));
        if let Ok(host) = HeaderValue::from_str(origin.authority.as_str()) {
            request.headers_mut().insert(HOST, host);
        }
        request
    }

    /// As HTTP/2: a whole URI.
    pub(crate) fn http2(&self, origin: &Origin) -> Request<Outgoing> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(if origin.tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
        parts.authority = Some(origin.authority.clone());
        parts.path_and_query = Some((self.path)(origin).clone());
        let mut request = self.request(Uri::from_parts(parts).unwrap_or_default());
        *request.version_mut() = Version::HTTP_2;
        request
    }

    fn request(&self, uri: Uri) -> Request<Outgoing> {
        let mut request = Request::new(Outgoing::new(self.segments.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.reserve(HEADERS_USUAL);
        for name in FORWARDED {
            if let Some(value) = self.client_headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, if self.stream { EVENT_STREAM } else { JSON });
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        headers.insert(USER_AGENT, AGENT);
        headers.insert(X_REQUEST_ID, self.request_id.clone());
        for (name, value) in &self.provider.headers {
            headers.insert(name.clone(), value.clone());
        }
        request
    }
}

/// Headers of an ordinary request, `Host` and the credential included.
const HEADERS_USUAL: usize = 10;
