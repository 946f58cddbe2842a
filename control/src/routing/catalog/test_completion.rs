//! A real request through the data plane, on the path that clients use, and its result. The request streams, so that
//! the time to the first content can be measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde_json::Value;
use shared::port::{Body, Handler, Insider, full};

use super::test_request::{TestEvent, TestProtocol, TestQuestion, message};

/// The result of a test request.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Trial {
    /// True if the response was complete and not empty.
    pub(crate) ok: bool,
    /// The status that a client would have received.
    pub(crate) status: u16,
    pub(crate) request_id: String,
    /// The dialect of the request.
    pub(crate) protocol: &'static str,
    /// Until the end of the answer, in milliseconds.
    pub(crate) latency_ms: u64,
    /// Until the first content, in milliseconds; null if there was none.
    pub(crate) first_content_ms: Option<u64>,
    /// The model that served the request, as reported by the upstream; null if it was not.
    pub(crate) served_model: Option<String>,
    /// The start of the answer.
    pub(crate) answer: String,
    /// The usage as the upstream reports it; null if it does not.
    pub(crate) usage: Option<Value>,
    /// The error that a client would have received; null if it would have received none.
    pub(crate) error: Option<String>,
}

/// Sends `question` through the data plane on behalf of `insider`.
pub(crate) async fn run(
    plane: &Arc<dyn Handler>,
    insider: Insider,
    protocol: TestProtocol,
    question: &TestQuestion<'_>,
) -> Trial {
    let began = Instant::now();
    let trial = Trial { protocol: protocol.name(), ..Trial::default() };
    let mut reading = CompletionReading { began, protocol, trial, line: Vec::new(), ended: false };
    let attempt = tokio::time::timeout(TIME_MAX, reading.exchange(plane, insider, question)).await;
    let mut trial = reading.trial;
    if attempt.is_err() {
        let seconds = TIME_MAX.as_secs();
        trial.error = Some(format!("It had no complete response within {seconds} s."));
    } else if trial.error.is_none() && !reading.ended {
        trial.error = Some("The response broke off.".to_owned());
    }
    trial.latency_ms = millis(began);
    trial.answer = cut(&trial.answer);
    let used = |name: &str| trial.usage.as_ref().and_then(|usage| usage.get(name)?.as_u64());
    let used = used("completion_tokens").or_else(|| used("output_tokens"));
    trial.ok =
        trial.error.is_none() && (trial.first_content_ms.is_some() || used.is_some_and(|used| used > 0));
    if trial.error.is_none() && !trial.ok {
        trial.error = Some("The response is empty.".to_owned());
    }
    trial
}

/// Builds a request for `path` on behalf of `insider`.
pub(crate) fn request(
    insider: Insider,
    path: &str,
    body: impl Into<Bytes>,
) -> Result<Request<Body>, http::Error> {
    let json = HeaderValue::from_static("application/json");
    Request::post(path).header(CONTENT_TYPE, json).extension(insider).body(full(body))
}

/// The client address of requests from inside the process.
pub(crate) const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The state of a response while it is read.
struct CompletionReading {
    began: Instant,
    protocol: TestProtocol,
    trial: Trial,
    /// The incomplete last line.
    line: Vec<u8>,
    ended: bool,
}

impl CompletionReading {
    async fn exchange(&mut self, plane: &Arc<dyn Handler>, insider: Insider, question: &TestQuestion<'_>) {
        let body = self.protocol.body(question).to_string();
        let Ok(request) = request(insider, self.protocol.path(), body) else { return };
        let response: Response<Body> = plane.handle(request, HERE).await;
        let (head, mut body) = response.into_parts();
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        self.trial.status = head.status.as_u16();
        self.trial.request_id = header("x-request-id").unwrap_or_default().to_owned();
        let is_stream = header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let mut whole = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            if is_stream {
                self.take(&data);
            } else if whole.len() + data.len() <= LINE_BYTES_MAX {
                whole.extend_from_slice(&data);
            }
        }
        if !is_stream {
            // A response of the gateway itself: an error envelope.
            self.ended = true;
            self.trial.error = Some(cut(message(&serde_json::from_slice(&whole).unwrap_or_default())));
        }
    }

    fn take(&mut self, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() <= LINE_BYTES_MAX {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.line(&line);
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { return };
        if data == b"[DONE]" {
            self.ended = true;
            return;
        }
        let Ok(event) = serde_json::from_slice::<Value>(data) else { return };
        let TestEvent { text, is_thought, model, usage, error, is_end } = self.protocol.read(&event);
        if let Some(error) = error {
            self.trial.error = Some(cut(error));
        }
        if let Some(model) = model {
            self.trial.served_model = Some(cut(model));
        }
        match (&mut self.trial.usage, usage) {
            // Some upstreams report input usage first and output usage later.
            (Some(Value::Object(known)), Some(Value::Object(more))) => known.extend(more.clone()),
            (_, None) => {}
            (known, Some(usage)) => *known = Some(usage.clone()),
        }
        self.ended |= is_end;
        if text.is_some() || is_thought {
            self.trial.first_content_ms.get_or_insert_with(|| millis(self.began));
        }
        if let Some(text) = text
            && self.trial.answer.len() < ANSWER_BYTES_MAX
        {
            self.trial.answer.push_str(text);
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(ANSWER_BYTES_MAX).collect()
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Long enough for a local server that has to load the model first.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(120);
const LINE_BYTES_MAX: usize = 1 << 20;
/// The approximate length of the answer that is shown.
const ANSWER_BYTES_MAX: usize = 2_000;
