//! Errors of upstreams mean the same in every vendor's words: what follows from them, and the words in which each client
//! gets them.

use serde_json::{Value, json};

use crate::kinds::root;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// Starts a gateway with the endpoint `line`: a target of the kind `kind`, then a compatible one. `alone` has only the
/// first.
async fn line(kind: &str) -> (Gateway, Upstream, Upstream) {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    two.always(Answer::completion("second"));
    let url = if kind == "compatible" { one.base_url() } else { root(&one) };
    let mut first = json!({"type": kind, "base_url": url, "api_key": "planted-secret-0", "models": ["m"]});
    if kind == "bedrock" {
        first["region"] = "us-east-1".into();
    }
    let config = json!({
        "providers": {
            "p0": first,
            "p1": {"type": "compatible", "base_url": two.base_url(), "api_key": "k1", "models": ["m"]},
        },
        "endpoints": {
            "line": {"failover": [{"provider": "p0", "model": "m"}, {"provider": "p1", "model": "m"}]},
            "alone": {"failover": [{"provider": "p0", "model": "m"}]},
        },
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(config.to_string()).start().await, one, two)
}

fn messages_request(model: &str, stream: bool) -> String {
    json!({"model": model, "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "hi"}]})
        .to_string()
}

fn refused(status: u16, error: &Value) -> Answer {
    Answer::json(status, json!({"error": error}).to_string())
}

/// stdapi-ai/stdapi.ai#293, earendil-works/pi#129, zeroclaw-labs/zeroclaw#4124, MoonshotAI/kimi-cli#2011,
/// anomalyco/opencode#45834, cline/cline#3120, cline/kanban#505; OpenRouter with the words in `metadata.raw` alone.
#[tokio::test]
async fn a_context_that_is_too_long_fails_over_in_every_vendors_words() {
    let raw = json!({"error": {"message": "Prompt exceeds max length", "code": "1261"}}).to_string();
    let rows = [
        ("bedrock", 400, json!({"message": "Input is too long for requested model."})),
        (
            "gemini",
            400,
            json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
            "message": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."}}),
        ),
        ("compatible", 400, json!({"error": {"code": "1261", "message": "Prompt exceeds max length"}})),
        (
            "compatible",
            400,
            json!({"error": {"type": "invalid_request_error",
            "message": "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"}}),
        ),
        (
            "compatible",
            400,
            json!({"error": {"code": "invalid_parameter_error",
            "message": "Range of input length should be [1, 98304]"}}),
        ),
        (
            "compatible",
            400,
            json!({"code": "invalid-argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 136973 tokens."}),
        ),
        (
            "compatible",
            500,
            json!({"error": {"code": 500, "type": "server_error",
            "message": "the request exceeds the available context size, try increasing it"}}),
        ),
        (
            "compatible",
            413,
            json!({"error": {"code": "tokens_limit_reached",
            "message": "Request body too large for gpt-4o model. Max size: 8000 tokens."}}),
        ),
        (
            "compatible",
            400,
            json!({"error": {"message": "Provider returned error", "code": 400,
            "metadata": {"raw": raw, "provider_name": "Z.AI"}}}),
        ),
    ];
    for (kind, status, body) in rows {
        let (gateway, one, two) = line(kind).await;
        one.always(Answer::json(status, body.to_string()));
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!((answer.status, two.requests().len()), (200, 1), "{body}");
        let answer = gateway.client().chat(chat::request("alone")).await;
        assert_eq!((answer.status, &*answer.error_code()), (400, "context_length_exceeded"), "{body}");
        let answer = gateway.client().post("/v1/messages", messages_request("alone", false)).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"]), (400, &json!("invalid_request_error")), "{body}");
        assert!(error["message"].as_str().unwrap().starts_with("prompt is too long"), "{error}");
    }
}

/// musistudio/claude-code-router#1799, Menci/Floway#166: Claude Code compacts its conversation by these words alone.
#[tokio::test]
async fn claude_code_is_told_by_how_much_the_prompt_is_too_long() {
    let (gateway, one, _two) = line("compatible").await;
    let error = json!({"type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
        "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9011 tokens."});
    let events = format!("data: {}\n\n", json!({"error": error}));
    for answer in [refused(400, &error), Answer::events(&[events])] {
        one.always(answer);
        for stream in [false, true] {
            let answer = gateway.client().post("/v1/messages", messages_request("alone", stream)).await;
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert_eq!(answer.status, 400, "{message}");
            assert!(message.starts_with("prompt is too long: 9011 tokens > 8192 maximum"), "{message}");
        }
    }
    // Anthropic's own words stay as they are.
    let (gateway, one, _two) = line("anthropic").await;
    let message = "prompt is too long: 213462 tokens > 200000 maximum";
    one.always(Answer::json(
        400,
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).to_string(),
    ));
    let answer = gateway.client().post("/v1/messages", messages_request("alone", false)).await;
    assert_eq!(answer.json()["error"]["message"], message);
}

/// An error of the first target: its status, the error, the client's status and code, and whether the next target is asked.
type Case = (u16, Value, u16, &'static str, bool);

async fn follows(rows: Vec<Case>) {
    for (status, error, shown, code, fails_over) in rows {
        let (gateway, one, two) = line("compatible").await;
        one.always(refused(status, &error));
        let answer = gateway.client().chat(chat::request("alone")).await;
        assert_eq!((answer.status, &*answer.error_code()), (shown, code), "{error}");
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!((answer.status == 200, two.requests().len() == 1), (fails_over, fails_over), "{error}");
    }
}

/// MiniMax-AI/MiniMax-M2#62, Aider-AI/aider#4851, pollinations/pollinations#12136, MoonshotAI/Kimi-K2#5.
#[tokio::test]
async fn an_account_without_money_or_quota_fails_over_whatever_the_status() {
    let error = |name: &str, code: &str, message: &str| json!({name: code, "message": message});
    let suspended = "Account x is suspended, possibly due to reaching the monthly spending limit";
    let quota = "organization x exceeded current quota";
    follows(vec![
        (500, error("type", "api_error", "insufficient balance (1008)"), 402, "insufficient_quota", true),
        (
            400,
            error("code", "invalid_request_error", "Insufficient Balance"),
            402,
            "insufficient_quota",
            true,
        ),
        (412, error("code", "PRECONDITION_FAILED", suspended), 402, "insufficient_quota", true),
        (403, error("type", "exceeded_current_quota_error", quota), 403, "insufficient_quota", true),
    ])
    .await;
}

/// camel-ai/owl#432, 666ghj/BettaFish#108, OpenRouter's moderation; FerroxLabs/wayland#603, maxnowack/anthropic-proxy#4;
/// jin-bo/agentao#88, plainbook-ai/plainbook#25.
#[tokio::test]
async fn what_an_error_means_decides_what_follows() {
    let error = |code: Value, message: &str| json!({"code": code, "message": message});
    let inspected = "Input data may contain inappropriate content.";
    let throttled = json!({"type": "ThrottlingException", "message": "Too many tokens, please wait before trying again."});
    follows(vec![
        (400, error(json!("data_inspection_failed"), inspected), 400, "content_filter", false),
        (400, error(json!("invalid_request_error"), "Content Exists Risk"), 400, "content_filter", false),
        (403, error(json!(403), "Your input was flagged for \"x\"."), 403, "content_filter", false),
        (400, error(json!("invalid_model"), "Invalid model 'sonar'."), 400, "model_not_found", true),
        (400, error(json!(400), "google/x:free is not a valid model ID"), 400, "model_not_found", true),
        (400, throttled, 429, "rate_limit_exceeded", true),
        (400, error(json!(400), "API key expired. Please renew the API key."), 401, "400", true),
        (400, json!({"message": "'temperature' is too large"}), 400, "", false),
    ])
    .await;
}

/// A refusal by a filter says nothing about the target's health.
#[tokio::test]
async fn a_refusal_by_a_filter_opens_no_circuit() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::one(upstream.base_url()).policies("retry_max_attempts: 1\ncircuit_failure_threshold: 1");
    let gateway = Gateway::start(&yaml).await;
    upstream.always(refused(403, &json!({"code": 403, "message": "Your input was flagged"})));
    for _ in 0..3 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 403);
    }
    assert_eq!(upstream.requests().len(), 3);
}

/// open-webui/computer#293, diegosouzapw/OmniRoute#3044, reVrost/go-openrouter#21; compl-ai/compl-ai#20;
/// google-gemini/gemini-cli#19062.
#[tokio::test]
async fn what_the_vendor_behind_said_reaches_the_client_and_the_trace_without_secrets() {
    let raw = json!({"error": {"message": "tools.0.name: too long, key planted-secret-0", "param": "tools"}})
        .to_string();
    let rows = [
        (
            json!({"message": "Provider returned error", "code": 400,
                "metadata": {"raw": raw, "provider_name": "Fabricam"}}),
            "Provider returned error (Fabricam): tools.0.name: too long, key [redacted]",
            "/metadata/provider_name",
        ),
        (
            json!({"message": "Provider returned error", "code": 400,
                "metadata": {"raw": "z-ai/glm is busy upstream", "provider_name": "BaseTen"}}),
            "Provider returned error (BaseTen): z-ai/glm is busy upstream",
            "/metadata/raw",
        ),
        (
            json!({"message": "The response was filtered.", "code": "content_filter", "param": "prompt", "status": 400,
                "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {
                    "hate": {"filtered": false, "severity": "safe"},
                    "violence": {"filtered": true, "severity": "medium"}}}}),
            "The response was filtered. Filtered: violence (medium).",
            "/innererror/content_filter_result/violence",
        ),
        (
            json!({"code": 400, "message": "Request contains an invalid argument.", "status": "INVALID_ARGUMENT",
                "details": [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [
                    {"field": "tools[0].name", "description": "must start with a letter"}]}]}),
            "Request contains an invalid argument. (tools[0].name: must start with a letter)",
            "/details/0/fieldViolations/0/field",
        ),
    ];
    for (error, message, nested) in rows {
        let (gateway, one, _two) = line("compatible").await;
        one.always(refused(400, &error));
        let answer = gateway.client().chat(chat::request("alone")).await;
        let body = answer.json();
        assert_eq!((answer.status, &body["error"]["message"]), (400, &json!(message)), "{body}");
        assert!(body["error"].pointer(nested).is_some(), "{body}");
        assert!(!body.to_string().contains("planted-secret-0"), "{body}");
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert!(record["trace"].to_string().contains(&message[..20]), "{record}");
        assert!(!record.to_string().contains("planted-secret-0"), "{record}");
        let answer = gateway.client().post("/v1/messages", messages_request("alone", false)).await;
        assert_eq!(answer.json()["error"]["message"], message);
    }
}

/// A stream whose head has been sent early gets the upstream's error too.
#[tokio::test]
async fn an_error_behind_keep_alives_keeps_its_meaning() {
    let upstream = Upstream::start().await;
    let gate = crate::support::Gate::new();
    let error = json!({"error": {"message": "Prompt exceeds max length", "code": "1261"}}).to_string();
    upstream.always(Answer::new().wait(&gate).send(format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{error}",
        error.len()
    )));
    let yaml = Yaml::one(upstream.base_url()).policies("retry_max_attempts: 1\ncircuit_failure_threshold: 0");
    let gateway = Setup::new(&yaml).env("LLMGW_STREAM_KEEPALIVE_SECONDS", "1").start().await;
    for (path, body, words) in [
        ("/v1/messages", messages_request("m", true), "prompt is too long"),
        ("/v1/chat/completions", chat::stream_request("m"), "context_length_exceeded"),
        (
            "/v1/responses",
            json!({"model": "m", "stream": true, "input": "hi"}).to_string(),
            "context_length_exceeded",
        ),
    ] {
        let mut flow = gateway.client().open("POST", path, body.into()).await.unwrap();
        assert_eq!(flow.status, 200, "{path}");
        gate.open(1);
        let bytes: Vec<u8> = flow.rest().await.0.iter().flat_map(|event| event.bytes.to_vec()).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains(words) && text.contains("error"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_path_of_another_vendor_names_the_one_to_use() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    for (path, other) in [
        ("/v1/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/complete", "/v1/messages"),
        ("/v1/images/edits", "/v1/images/generations"),
    ] {
        let answer = gateway.client().post(path, chat::request("m")).await;
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!((answer.status, message), (404, format!("{path} is not served; use {other}.")));
    }
    let long = format!("/v1/{}", "x".repeat(80));
    for (path, named) in [("/v1/rerank", "/v1/rerank"), ("/mcp", "/mcp"), (&*long, "This path")] {
        let answer = gateway.client().post(path, chat::request("m")).await;
        let want = format!("{named} is not served. GET / lists the paths that are.");
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (404, &json!(want)));
    }
    let answer = gateway.client().post("/completions", r#"{"model":"m","prompt":"hi"}"#).await;
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, &error["param"]), (400, &json!("messages")));
    assert!(error["message"].as_str().unwrap().contains("chat completions: send 'prompt'"), "{error}");
}
