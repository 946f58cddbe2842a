//! Tests both envelopes and every shape of upstream error.

use serde_json::Value;
use shared::error_kind::ErrorKind;

use super::*;

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn gateway_error(family: EnvelopeFamily, kind: ErrorKind, message: &str, param: &str) -> Bytes {
    let error = GatewayError { param: Some(param), ..GatewayError::new(kind.row(), message) };
    error_body(family, &GatewayError { request_id: "req_1", ..error })
}

#[test]
fn gateway_errors_are_written_in_each_envelope() {
    let kind = ErrorKind::ModelNotFound;
    let ours = parse(&gateway_error(EnvelopeFamily::OpenAi, kind, "No \"x\".", "model"));
    let want = json!({"error": {"message": "No \"x\".", "type": "invalid_request_error",
        "code": "model_not_found", "param": "model", "request_id": "req_1"}});
    assert_eq!(ours, want);
    let ours = parse(&gateway_error(EnvelopeFamily::Anthropic, kind, "No.", "model"));
    let want = json!({"type": "error", "error": {"type": "not_found_error", "message": "No."},
        "request_id": "req_1"});
    assert_eq!(ours, want);
    let ours = parse(&gateway_error(EnvelopeFamily::Google, kind, "No.", "model"));
    let reason = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "MODEL_NOT_FOUND",
        "domain": "llmgw", "metadata": {"requestId": "req_1"}});
    let field = json!({"@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "model", "description": "No."}]});
    let want =
        json!({"error": {"code": 404, "message": "No.", "status": "NOT_FOUND", "details": [reason, field]}});
    assert_eq!(ours, want);
}

/// The rows are `vectors/gemini/error_*`.
#[test]
fn google_errors_have_the_details_by_which_its_clients_retry() {
    let quota = |name: &str| {
        json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": name, "quotaMetric": format!("llmgw/{name}")}]})
    };
    let retry =
        |delay: &str| json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay});
    for (kind, quota_name, wait_ms, (code, status), want) in [
        (ErrorKind::InvalidKey, None, None, (401, "UNAUTHENTICATED"), vec![]),
        (
            ErrorKind::QuotaExceeded,
            Some("RequestsPerMinutePerKey"),
            Some(7_000),
            (429, "RESOURCE_EXHAUSTED"),
            vec![quota("RequestsPerMinutePerKey"), retry("7s")],
        ),
        (
            ErrorKind::QuotaExceeded,
            Some("CostPerDayPerKey"),
            None,
            (429, "RESOURCE_EXHAUSTED"),
            vec![quota("CostPerDayPerKey")],
        ),
        (ErrorKind::UpstreamStatus, None, None, (503, "UNAVAILABLE"), vec![]),
        (ErrorKind::Overloaded, None, Some(1_500), (503, "UNAVAILABLE"), vec![retry("1.500s")]),
        (ErrorKind::UpstreamTimeout, None, None, (504, "DEADLINE_EXCEEDED"), vec![]),
    ] {
        let error = GatewayError {
            quota: quota_name,
            retry_after: wait_ms.map(Duration::from_millis),
            ..GatewayError::new(kind.row(), "No.")
        };
        let ours = parse(&error_body(EnvelopeFamily::Google, &error));
        assert_eq!((&ours["error"]["code"], &ours["error"]["status"]), (&json!(code), &json!(status)));
        let details = ours["error"]["details"].as_array().unwrap();
        assert_eq!(details[1..], want, "{kind:?}");
        assert_eq!(details[0]["reason"] == "API_KEY_INVALID", kind == ErrorKind::InvalidKey);
    }
}

#[test]
fn google_errors_of_upstreams_keep_their_own_details() {
    let theirs = r#"{"error":{"code":429,"message":"Too many.","status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#;
    let ours = parse(&upstream_error(EnvelopeFamily::Google, answer(429, None, theirs), "req_1"));
    assert_eq!(ours, parse(theirs.as_bytes()));
    let theirs = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let ours = parse(&upstream_error(EnvelopeFamily::Google, answer(529, None, theirs), "req_1"));
    assert_eq!((&ours["error"]["code"], &ours["error"]["status"]), (&json!(503), &json!("UNAVAILABLE")));
}

#[test]
fn an_anthropic_thread_error_has_the_code_thread_unsupported_request() {
    let kind = ErrorKind::UnsupportedField;
    let ours = parse(&gateway_error(EnvelopeFamily::Anthropic, kind, "No.", "thread"));
    assert_eq!(ours["error"]["details"]["error_code"], "thread_unsupported_request");
    let ours = parse(&gateway_error(EnvelopeFamily::OpenAi, kind, "No.", "thread"));
    assert_eq!(ours["error"].get("details"), None);
}

#[test]
fn anthropic_error_details_are_forwarded_without_credentials() {
    let of = |details: Value| {
        let error = json!({"type": "rate_limit_error", "message": "No more.", "details": details});
        let body = json!({"type": "error", "error": error}).to_string();
        parse(&upstream_error(EnvelopeFamily::Anthropic, answer(429, None, &body), "req_1"))["error"].clone()
    };
    let error = of(json!({"error_code": "contract_spend_limit_reached", "by": "canary-secret"}));
    assert_eq!(error["details"]["error_code"], "contract_spend_limit_reached");
    assert!(!error.to_string().contains("canary-secret"), "{error}");
    assert_eq!(of(json!([{"@type": "of Google"}])).get("details"), None);
    assert_eq!(of(json!({"much": "x".repeat(5000)})).get("details"), None);
}

#[test]
fn a_stream_error_is_one_event() {
    let event = chat_stream_error(ErrorKind::UpstreamCut.row(), "Broke\noff.", "req_1");
    let text = std::str::from_utf8(&event).unwrap();
    let data = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
    assert!(!data.contains('\n'));
    assert_eq!(parse(data.as_bytes())["error"]["code"], "upstream_stream_broken");
}

fn answer<'a>(status: u16, content_type: Option<&'a str>, body: &'a str) -> UpstreamAnswer<'a> {
    UpstreamAnswer { status, content_type, body: body.as_bytes(), secrets: &["canary-secret"] }
}

type Row = (&'static str, u16, &'static str, &'static str, Option<&'static str>, Option<&'static str>);
/// (name, status, body, message, type, code)
const SHAPES: [Row; 27] = [
    (
        "xAI",
        400,
        r#"{"code":"invalid-argument","error":"Bad temperature"}"#,
        "Bad temperature",
        Some("invalid_request_error"),
        Some("invalid-argument"),
    ),
    (
        "Cerebras",
        404,
        r#"{"message":"no model","type":"not_found_error","param":"model","code":"model_not_found"}"#,
        "no model",
        Some("invalid_request_error"),
        Some("model_not_found"),
    ),
    ("Cohere", 400, r#"{"id":"x","message":"bad"}"#, "bad", Some("invalid_request_error"), None),
    (
        "NVIDIA",
        422,
        r#"{"title":"Unprocessable","status":422,"detail":"too long"}"#,
        "too long",
        Some("invalid_request_error"),
        None,
    ),
    (
        "ElevenLabs",
        401,
        r#"{"detail":{"status":"invalid_api_key","message":"bad key"}}"#,
        "bad key",
        Some("invalid_api_key"),
        None,
    ),
    (
        "Deepgram",
        400,
        r#"{"err_code":"Bad Request","err_msg":"no audio","request_id":"r"}"#,
        "no audio",
        Some("invalid_request_error"),
        None,
    ),
    (
        "Azure's filter",
        400,
        r#"{"error":{"message":"filtered","type":null,"param":"prompt","code":"content_filter","innererror":{"code":"x"}}}"#,
        "filtered",
        Some("invalid_request_error"),
        Some("content_filter"),
    ),
    (
        "Mistral",
        422,
        r#"{"object":"error","message":"bad","type":"invalid_request_error","code":3051}"#,
        "bad",
        Some("invalid_request_error"),
        Some("3051"),
    ),
    (
        "llama.cpp",
        503,
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
        "Loading model",
        Some("unavailable_error"),
        Some("503"),
    ),
    (
        "Bedrock",
        429,
        r#"{"message":"Too many requests"}"#,
        "Too many requests",
        Some("rate_limit_error"),
        Some("rate_limit_exceeded"),
    ),
    (
        "AWS with a type",
        400,
        r#"{"__type":"ValidationException","message":"bad"}"#,
        "bad",
        Some("ValidationException"),
        None,
    ),
    ("text", 400, r#"{"error":"bad thing"}"#, "bad thing", Some("invalid_request_error"), None),
    ("detail", 422, r#"{"detail":"bad"}"#, "bad", Some("invalid_request_error"), None),
    (
        "FastAPI list",
        422,
        r#"{"detail":[{"loc":["body","x"],"msg":"field required","type":"missing"},{"msg":"two"}]}"#,
        "field required; two",
        Some("missing"),
        None,
    ),
    ("message", 500, r#"{"message":"boom","code":7}"#, "boom", Some("server_error"), Some("7")),
    (
        "array",
        429,
        r#"[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#,
        "slow",
        Some("RESOURCE_EXHAUSTED"),
        Some("429"),
    ),
    (
        "errors",
        400,
        r#"{"errors":[{"message":"one"},{"message":"two"}]}"#,
        "one; two",
        Some("invalid_request_error"),
        None,
    ),
    (
        "Anthropic",
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
        "busy",
        Some("server_error"),
        Some("overloaded"),
    ),
    (
        "older vLLM",
        400,
        r#"{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}"#,
        "bad",
        Some("BadRequestError"),
        Some("400"),
    ),
    (
        "OAuth",
        401,
        r#"{"error":"invalid_grant","error_description":"expired"}"#,
        "invalid_grant",
        Some("authentication_error"),
        None,
    ),
    (
        "plain text",
        502,
        "upstream  connect\nerror",
        "The upstream answered with status 502: upstream connect error",
        Some("server_error"),
        Some("upstream_error"),
    ),
    (
        "HTML",
        503,
        "<html><head><title>503 Busy</title></head><body>x</body></html>",
        "The upstream answered with status 503: 503 Busy",
        Some("server_error"),
        Some("overloaded"),
    ),
    (
        "HTML without a title",
        502,
        "<!DOCTYPE html><p>x",
        "The upstream answered with status 502.",
        Some("server_error"),
        Some("upstream_error"),
    ),
    (
        "nothing",
        429,
        "",
        "The upstream answered with status 429.",
        Some("rate_limit_error"),
        Some("rate_limit_exceeded"),
    ),
    (
        "an event",
        400,
        "event: error\ndata: {\"error\":{\"message\":\"bad\"}}\n\n",
        "bad",
        Some("invalid_request_error"),
        None,
    ),
    (
        "binary",
        500,
        "\u{1}\u{2}\u{3}",
        "The upstream answered with status 500.",
        Some("server_error"),
        Some("upstream_error"),
    ),
    (
        "empty object",
        404,
        "{}",
        "The upstream answered with status 404: {}",
        Some("invalid_request_error"),
        None,
    ),
];

#[test]
fn upstream_errors_of_every_shape_are_understood() {
    for (name, status, body, message, kind, code) in SHAPES {
        let ours = parse(&upstream_error(EnvelopeFamily::OpenAi, answer(status, None, body), "req_1"));
        assert_eq!(ours["error"]["message"], message, "{name}");
        assert_eq!((&ours["error"]["type"], &ours["error"]["code"]), (&json!(kind), &json!(code)), "{name}");
        let ours = parse(&upstream_error(EnvelopeFamily::Anthropic, answer(status, None, body), "req_1"));
        assert_eq!(ours["error"]["message"], message, "{name}");
    }
}

#[test]
fn an_aws_error_type_in_a_header_is_added_to_the_body() {
    let rows = [
        (r#"{"message":"slow"}"#, "ThrottlingException:http://x/", Some("ThrottlingException")),
        (r#"{"Message":"no"}"#, "com.amazon.coral#AccessDeniedException", Some("AccessDeniedException")),
        (r#"{"__type":"Own","message":"a"}"#, "Other", Some("Own")),
        (r#"{"message":"a"}"#, "", None),
        ("<html>", "X", None),
    ];
    for (body, header, want) in rows {
        let body = with_error_type(body.as_bytes(), header);
        let body = String::from_utf8(body).unwrap();
        assert_eq!(
            answer(429, Some("application/json"), &body).diagnosis().kind.as_deref(),
            want,
            "{header}"
        );
    }
}

#[test]
fn upstream_errors_are_redacted() {
    let rows = [
        r#"{"error":{"message":"bad key canary-secret","code":"canary-secret","type":"x"}}"#,
        "<title>canary-secret</title>",
        "proxy said: canary-secret",
        r#"{"unknown":"canary-secret"}"#,
        r#"{"error":{"nested":{"deep":["canary-secret"]}}}"#,
        r#"{"error":{"message":"\u0063anary-secret"}}"#,
    ];
    for body in rows {
        for family in [EnvelopeFamily::OpenAi, EnvelopeFamily::Anthropic] {
            let ours = upstream_error(family, answer(401, None, body), "req_1");
            let text = std::str::from_utf8(&ours).unwrap();
            assert!(!text.contains("canary") && text.contains("[redacted]"), "{text}");
        }
    }
}

#[test]
fn long_error_messages_are_truncated() {
    let body = json!({"error": {"message": "ü".repeat(100_000), "code": "c".repeat(1000)}}).to_string();
    let ours = upstream_error(EnvelopeFamily::OpenAi, answer(500, None, &body), "req_1");
    assert!(ours.len() < 6_000, "{}", ours.len());
    assert!(
        upstream_error(EnvelopeFamily::OpenAi, answer(500, None, &"x ".repeat(100_000)), "r").len() < 1_000
    );
}

#[test]
fn statuses_are_derived_from_error_codes_and_types() {
    let rows = [
        (json!({"error":{"message":"m","code":429}}), Some(429)),
        (json!({"error":{"message":"m","code":"502"}}), Some(502)),
        (json!({"error":{"message":"m","type":"insufficient_quota"}}), Some(429)),
        (json!({"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}), Some(429)),
        (json!({"error":{"message":"m","type":"overloaded_error"}}), Some(503)),
        (json!({"error":{"message":"m","type":"server_error"}}), Some(500)),
        (
            json!({"error":{"message":"m","code":"context_length_exceeded","type":"invalid_request_error"}}),
            Some(400),
        ),
        (json!({"error":{"message":"m","code":"invalid_api_key","type":"invalid_request_error"}}), Some(401)),
        (json!({"error":{"message":"m","code":"model_not_found"}}), Some(404)),
        (json!({"error":{"message":"m"},"status":418}), Some(418)),
        (json!({"error":{"message":"m","code":99}}), None),
        (json!({"error":"m"}), None),
    ];
    for (document, want) in rows {
        assert_eq!(StreamError::of_document(&document).unwrap().status, want, "{document}");
    }
}

#[test]
fn every_dialect_has_an_envelope() {
    assert_eq!(EnvelopeFamily::of(Dialect::Messages), EnvelopeFamily::Anthropic);
    assert_eq!(EnvelopeFamily::of(Dialect::Chat), EnvelopeFamily::OpenAi);
}
