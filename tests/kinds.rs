//! Every provider kind as its upstream sees it: the address, the credential, the signature (CFG-3, CFG-4).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use shared::provider::sigv4::{Signable, Signer};
use shared::secret::Secret;

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::upstream::Received;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// Returns a setup with one provider `p` with these settings.
pub(crate) fn with(settings: &Value) -> Setup {
    let config = json!({
        "providers": {"p": settings},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    Setup::new(&Yaml::new()).yaml(config.to_string())
}

/// Returns the upstream's address without `/v1`.
pub(crate) fn root(upstream: &Upstream) -> String {
    upstream.base_url().trim_end_matches("/v1").to_owned()
}

pub(crate) fn first_line(request: &Received) -> &str {
    request.head.lines().next().unwrap()
}

pub(crate) fn message() -> Answer {
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "stop_sequence": null, "content": [{"type": "text", "text": "hello"}],
        "usage": {"input_tokens": 3, "output_tokens": 1},
    });
    Answer::json(200, body.to_string())
}

pub(crate) fn generated() -> Answer {
    let body = json!({
        "candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4},
    });
    Answer::json(200, body.to_string())
}

#[tokio::test]
async fn anthropic_gets_its_key_and_its_version() {
    let upstream = Upstream::start().await;
    upstream.always(message());
    let settings =
        json!({"type": "anthropic", "base_url": root(&upstream), "api_key": "sk-ant-1", "models": ["m"]});
    let gateway = with(&settings).start().await;
    let body =
        json!({"model": "p/m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    for (version, beta) in [(None, None), (Some("2026-10-21"), Some("fine-1"))] {
        let mut client = gateway.client();
        if let (Some(version), Some(beta)) = (version, beta) {
            client = client.with("anthropic-version", version).with("anthropic-beta", beta);
        }
        let answer = client.post("/v1/messages", body.clone()).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let request = upstream.requests().pop().unwrap();
        assert_eq!(first_line(&request), "POST /v1/messages HTTP/1.1");
        assert_eq!((request.header("x-api-key"), request.header("authorization")), (Some("sk-ant-1"), None));
        assert_eq!(request.header("anthropic-version"), Some(version.unwrap_or("2023-06-01")), "once");
        assert_eq!(request.header("anthropic-beta"), beta);
    }
    // A client of another protocol does not send a version.
    assert_eq!(gateway.client().chat(chat::request("p/m")).await.status, 200);
    let request = upstream.requests().pop().unwrap();
    assert_eq!(first_line(&request), "POST /v1/messages HTTP/1.1");
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
}

#[tokio::test]
async fn gemini_requests_use_the_method_path_and_the_key_header() {
    let upstream = Upstream::start().await;
    upstream.always(generated());
    let settings =
        json!({"type": "gemini", "base_url": root(&upstream), "api_key": "AIza-1", "models": ["gemini-x"]});
    let gateway = with(&settings).start().await;
    let answer = gateway.client().chat(chat::request("p/gemini-x")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let chunk = json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]});
    upstream.then(Answer::events(&[chat::event(&chunk.to_string())]));
    assert_eq!(gateway.client().chat(chat::stream_request("p/gemini-x")).await.status, 200);
    let requests = upstream.requests();
    let lines: Vec<&str> = requests.iter().map(first_line).collect();
    assert_eq!(
        lines,
        [
            "POST /v1beta/models/gemini-x:generateContent HTTP/1.1",
            "POST /v1beta/models/gemini-x:streamGenerateContent?alt=sse HTTP/1.1"
        ]
    );
    for request in &requests {
        assert_eq!(
            (request.header("x-goog-api-key"), request.header("authorization")),
            (Some("AIza-1"), None)
        );
    }
}

#[tokio::test]
async fn azure_paths_name_the_deployment_or_are_shared() {
    for (base, version, want) in [
        (
            "",
            None,
            "POST /openai/deployments/my-gpt.4_1/chat/completions?api-version=2025-04-01-preview HTTP/1.1",
        ),
        (
            "",
            Some("2025-04-01-preview"),
            "POST /openai/deployments/my-gpt.4_1/chat/completions?api-version=2025-04-01-preview HTTP/1.1",
        ),
        ("/openai/v1", None, "POST /openai/v1/chat/completions HTTP/1.1"),
    ] {
        let upstream = Upstream::start().await;
        upstream.always(Answer::completion("hello"));
        let settings = json!({
            "type": "azure_openai", "base_url": format!("{}{base}", root(&upstream)), "api_key": "k",
            "api_version": version, "models": ["my-gpt.4_1"],
        });
        let gateway = with(&settings).start().await;
        assert_eq!(gateway.client().chat(chat::request("p/my-gpt.4_1")).await.status, 200);
        let request = upstream.request(0).await;
        assert_eq!((first_line(&request), request.header("api-key")), (want, Some("k")));
        assert_eq!(request.header("authorization"), None);
    }
}

/// Signs the request that the upstream received a second time.
fn signed_again(request: &Received, path: &str) -> String {
    let signer = Signer {
        region: "eu-west-1".to_owned(),
        service: "bedrock",
        access_key_id: "AKIDEXAMPLE".to_owned(),
        secret_access_key: Secret::new("secret/of+aws".to_owned()),
        session_token: Some(Secret::new("session-token".to_owned())),
    };
    let path = path.parse().unwrap();
    let method = request.head.split(' ').next().unwrap();
    let signable = Signable {
        method,
        host: request.header("host").unwrap(),
        path: &path,
        content_type: request.header("content-type"),
        body: std::slice::from_ref(&request.body),
    };
    // Formatted as `20261121T102030Z`.
    let date = request.header("x-amz-date").unwrap();
    let date = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date).unwrap();
    let second = date.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second();
    let headers = signer.sign(&signable, u64::try_from(second).unwrap());
    headers.iter().find(|(name, _)| name == "authorization").unwrap().1.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn bedrock_requests_are_signed_over_the_sent_bytes() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let settings = json!({
        "type": "bedrock", "base_url": root(&upstream), "region": "eu-west-1", "protocols": ["chat"],
        "api_key": "${ENV:AWS_ID}:${ENV:AWS_SECRET}:${ENV:AWS_TOKEN}", "models": ["openai.gpt-oss-120b-1:0"],
    });
    let setup = with(&settings).env("AWS_ID", "AKIDEXAMPLE").env("AWS_SECRET", "secret/of+aws");
    let gateway = setup.env("AWS_TOKEN", "session-token").start().await;
    let body = chat::request("p/openai.gpt-oss-120b-1:0").replace("hello", "h\u{e9}llo \u{2603}");
    assert_eq!(gateway.client().chat(body).await.status, 200);
    let request = upstream.request(0).await;
    assert_eq!(first_line(&request), "POST /openai/v1/chat/completions HTTP/1.1");
    assert_eq!(request.header("x-amz-security-token"), Some("session-token"));
    let authorization = request.header("authorization").unwrap();
    assert!(authorization.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token"));
    assert_eq!(authorization, signed_again(&request, "/openai/v1/chat/completions"));

    let models = json!({"modelSummaries": [
        {"modelId": "amazon.nova-lite-v1:0", "modelName": "Nova Lite", "inputModalities": ["TEXT", "IMAGE"],
         "inferenceTypesSupported": ["ON_DEMAND"]},
        {"modelId": "anthropic.claude-x", "inferenceTypesSupported": ["INFERENCE_PROFILE"]},
    ]});
    let profiles = |id: &str, next: Option<&str>| {
        let list = json!([{"inferenceProfileId": id, "inferenceProfileName": "Claude X"}]);
        Answer::json(200, json!({"inferenceProfileSummaries": list, "nextToken": next}).to_string())
    };
    upstream.then(Answer::json(200, models.to_string()));
    upstream
        .then(profiles("eu.anthropic.claude-x", Some("a+b==")))
        .then(profiles("us.anthropic.claude-x", None));
    let synced = Admin(gateway.client()).done("POST", "providers/p/sync", json!({})).await;
    assert_eq!((&synced["ok"], &synced["models"]), (&json!(true), &json!(3)), "{synced}");
    assert_eq!(synced["skipped"]["without_usable_id"], 1, "one is reached by a profile alone");
    let paths = [
        "/foundation-models",
        "/inference-profiles?maxResults=1000",
        "/inference-profiles?maxResults=1000&nextToken=a%2Bb%3D%3D",
    ];
    for (request, path) in upstream.requests().iter().skip(1).zip(paths) {
        assert_eq!(first_line(request), format!("GET {path} HTTP/1.1"));
        assert_eq!(request.header("authorization").unwrap(), signed_again(request, path));
    }
    let catalog = Admin(gateway.client()).done("GET", "catalog?capability=vision", Value::Null).await;
    assert_eq!(catalog["data"][0]["id"], "p/amazon.nova-lite-v1:0");
    assert_eq!(catalog["data"][0]["display_name"], "Nova Lite");
}

#[tokio::test]
async fn bedrock_requests_use_the_converse_api() {
    let upstream = Upstream::start().await;
    let settings = json!({
        "type": "bedrock", "base_url": root(&upstream), "region": "eu-west-1",
        "api_key": "AKIDEXAMPLE:secret/of+aws:session-token", "models": ["eu.anthropic.claude-x-v1:0"],
    });
    let gateway = with(&settings).start().await;
    let whole = json!({
        "output": {"message": {"role": "assistant", "content": [{"text": "hello"}]}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4}, "metrics": {"latencyMs": 1},
    });
    upstream.then(Answer::json(200, whole.to_string()));
    let answer = gateway.client().chat(chat::request("p/eu.anthropic.claude-x-v1:0")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello");
    let stream = include_bytes!("../dataplane/wire/fixtures/bedrock/converse_stream.bin");
    upstream.then(Answer::whole(200, &[("content-type", "application/vnd.amazon.eventstream")], stream));
    let answer = gateway.client().chat(chat::stream_request("p/eu.anthropic.claude-x-v1:0")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let hoped_for = ["application/json", "application/vnd.amazon.eventstream"];
    for (request, accept) in upstream.requests().iter().zip(hoped_for) {
        assert_eq!(request.header("accept"), Some(accept));
    }
    let named = [("content-type", "application/json"), ("x-amzn-errortype", "ThrottlingException:http://x/")];
    upstream.always(Answer::whole(429, &named, r#"{"message":"Too many requests"}"#));
    let answer = gateway.client().chat(chat::request("p/eu.anthropic.claude-x-v1:0")).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (429, &json!("ThrottlingException")));
    for (request, end) in upstream.requests().iter().zip(["converse", "converse-stream"]) {
        let path = format!("/model/eu.anthropic.claude-x-v1%3A0/{end}");
        assert_eq!(first_line(request), format!("POST {path} HTTP/1.1"));
        assert_eq!(request.header("authorization").unwrap(), signed_again(request, &path));
        assert!(request.json()["model"].is_null(), "the path names it");
    }
}

#[tokio::test]
async fn a_bedrock_api_key_is_a_bearer_token() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let settings = json!({
        "type": "bedrock", "base_url": root(&upstream), "region": "eu-west-1", "protocols": ["chat"],
        "api_key": "ABSKQmVkcm9jaw==", "models": ["m"],
    });
    let gateway = with(&settings).start().await;
    assert_eq!(gateway.client().chat(chat::request("p/m")).await.status, 200);
    let request = upstream.request(0).await;
    assert_eq!(request.header("authorization"), Some("Bearer ABSKQmVkcm9jaw=="));
    assert_eq!(request.header("x-amz-date"), None);
}

pub(crate) fn account(token_uri: &str) -> String {
    let key = include_str!("../control/src/common/credential/test_key.pem");
    json!({
        "type": "service_account", "project_id": "p-1", "private_key_id": "k1", "private_key": key,
        "client_email": "gateway@p-1.iam.gserviceaccount.com", "token_uri": token_uri,
    })
    .to_string()
}

pub(crate) fn token(token: &str, expires_in: u64) -> Answer {
    let body = json!({"access_token": token, "expires_in": expires_in, "token_type": "Bearer"});
    Answer::json(200, body.to_string())
}

#[tokio::test]
async fn vertex_requests_carry_renewed_tokens() {
    let (upstream, google) = (Upstream::start().await, Upstream::start().await);
    upstream.always(generated());
    google.then(token("ya29.first", 1)).always(token("ya29.second", 3_600));
    let settings = json!({
        "type": "vertex", "base_url": root(&upstream), "location": "europe-west4", "api_key": "${ENV:ACCOUNT}",
        "models": ["gemini-x"],
    });
    let gateway = with(&settings).env("ACCOUNT", account(&format!("{}/token", root(&google)))).start().await;
    let ask = async || gateway.client().chat(chat::request("p/gemini-x")).await;
    wait::eventually("the first token", async || (ask().await.status == 200).then_some(())).await;
    let request = upstream.request(0).await;
    assert_eq!(
        first_line(&request),
        "POST /v1/projects/p-1/locations/europe-west4/publishers/google/models/gemini-x:generateContent HTTP/1.1"
    );
    assert_eq!(request.header("authorization"), Some("Bearer ya29.first"));
    // The token is valid for a second and is renewed before it expires.
    wait::eventually("the second token", async || {
        ask().await;
        let last = upstream.requests().pop()?;
        (last.header("authorization") == Some("Bearer ya29.second")).then_some(())
    })
    .await;
    assert_eq!(google.requests().len(), 2, "asked once for each, whatever comes");
    let token_request = google.request(0).await;
    assert_eq!(first_line(&token_request), "POST /token HTTP/1.1");
    let form = String::from_utf8(token_request.body.to_vec()).unwrap();
    let assertion = form.split_once("&assertion=").unwrap().1;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(assertion.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], "gateway@p-1.iam.gserviceaccount.com");
    let shown = Admin(gateway.client()).done("GET", "providers/p", Value::Null).await;
    assert_eq!((&shown["state"], &shown["token"]["error"]), (&json!("ready"), &Value::Null));
    assert!(shown["token"]["expires_at_ms"].is_u64() && !shown.to_string().contains("ya29"), "{shown}");
    assert!(!gateway.log().contains("ya29"));
    // A renewed token is not a new credential: circuits and evidence are kept, and a sync lists the known models.
    let synced = Admin(gateway.client()).done("POST", "providers/p/sync", json!({})).await;
    assert_eq!((&synced["ok"], synced["models"].as_u64() > Some(2)), (&json!(true), true), "{synced}");
}

#[tokio::test]
async fn a_provider_without_a_token_is_not_connected_and_shows_the_reason() {
    let google = Upstream::start().await;
    let refusal = json!({"error": "invalid_grant", "error_description": "Invalid JWT Signature."});
    google.always(Answer::json(400, refusal.to_string()));
    let settings = json!({"type": "vertex", "api_key": "${ENV:ACCOUNT}", "models": ["gemini-x"]});
    let gateway = with(&settings).env("ACCOUNT", account(&format!("{}/token", root(&google)))).start().await;
    let shown = wait::eventually("a refusal", async || {
        let shown = Admin(gateway.client()).done("GET", "providers/p", Value::Null).await;
        shown["token"]["error"].is_string().then_some(shown)
    })
    .await;
    assert_eq!(shown["token"]["error"], "127.0.0.1: invalid_grant: Invalid JWT Signature.");
    let answer = wait::eventually("the reason", async || {
        let answer = gateway.client().chat(chat::request("p/gemini-x")).await;
        answer.json()["error"]["message"]
            .as_str()?
            .contains("there is no access token for its credential")
            .then_some(answer)
    })
    .await;
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    let shown = Admin(gateway.client()).done("GET", "providers/p", Value::Null).await;
    assert_eq!(shown["state"], "not_connected");
}

#[tokio::test]
async fn the_machine_account_authenticates_vertex_without_a_key() {
    let (upstream, metadata) = (Upstream::start().await, Upstream::start().await);
    upstream.always(generated());
    metadata.always(token("ya29.machine", 3_600));
    let settings =
        json!({"type": "vertex", "base_url": root(&upstream), "project": "p-2", "models": ["gemini-x"]});
    let host = root(&metadata).trim_start_matches("http://").to_owned();
    let gateway = with(&settings).env("GCE_METADATA_HOST", host).start().await;
    wait::eventually("the first token", async || {
        (gateway.client().chat(chat::request("p/gemini-x")).await.status == 200).then_some(())
    })
    .await;
    let request = upstream.request(0).await;
    assert_eq!(request.header("authorization"), Some("Bearer ya29.machine"));
    assert!(
        first_line(&request).starts_with("POST /v1/projects/p-2/locations/global/publishers/google/models/")
    );
    let token_request = metadata.request(0).await;
    assert_eq!(
        first_line(&token_request),
        "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1"
    );
    assert_eq!(token_request.header("metadata-flavor"), Some("Google"));
}

#[tokio::test]
async fn requests_follow_the_quirks_of_registry_providers() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::events(&chat::events(&["a"])));
    for (id, asks_usage) in [("mistral", false), ("groq", true)] {
        let settings =
            json!({"registry_id": id, "base_url": upstream.base_url(), "api_key": "k", "models": ["m"]});
        let gateway = with(&settings).start().await;
        assert_eq!(gateway.client().chat(chat::stream_request("p/m")).await.status, 200);
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.json()["stream_options"].is_object(), asks_usage, "{id}");
        upstream.then(Answer::events(&chat::events(&["a"])));
        Admin(gateway.client()).done("POST", "providers/p/test", json!({"model": "m"})).await;
        let tested = upstream.requests().pop().unwrap().json();
        let field = if asks_usage { "max_completion_tokens" } else { "max_tokens" };
        assert!(tested[field].is_u64(), "{id}: {tested}");
    }
}

#[tokio::test]
async fn paged_model_lists_are_read_to_the_end() {
    let upstream = Upstream::start().await;
    let settings = json!({"type": "anthropic", "base_url": root(&upstream), "api_key": "k", "models": []});
    let gateway = with(&settings).start().await;
    let page = |id: &str, more: bool| {
        let model = json!({
            "type": "model", "id": id, "display_name": "Claude", "created_at": "2026-01-01T00:00:00Z",
            "max_input_tokens": 200_000, "max_tokens": 64_000, "capabilities": {"image_input": {"supported": true}},
        });
        Answer::json(
            200,
            json!({"data": [model], "has_more": more, "first_id": id, "last_id": id}).to_string(),
        )
    };
    upstream.then(page("claude-1", true)).then(page("claude-2", false));
    let synced = Admin(gateway.client()).done("POST", "providers/p/sync", json!({})).await;
    assert_eq!((&synced["ok"], &synced["models"]), (&json!(true), &json!(2)), "{synced}");
    let requests = upstream.requests();
    let lines: Vec<&str> = requests.iter().map(first_line).collect();
    assert_eq!(
        lines,
        ["GET /v1/models?limit=1000 HTTP/1.1", "GET /v1/models?limit=1000&after_id=claude-1 HTTP/1.1"]
    );
    assert_eq!(requests[0].header("anthropic-version"), Some("2023-06-01"));
    let catalog = Admin(gateway.client()).done("GET", "catalog", Value::Null).await;
    let model = &catalog["data"][0];
    assert_eq!((&model["context_window"], &model["max_output_tokens"]), (&json!(200_000), &json!(64_000)));
    assert_eq!((&model["vision"], &model["created"]), (&json!(true), &json!(1_767_225_600)));
}

#[tokio::test]
async fn a_provider_of_any_kind_can_be_made_by_the_api() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    for (id, settings) in [
        ("a", json!({"type": "anthropic", "api_key": "k"})),
        ("b", json!({"type": "bedrock", "api_key": "AKIDEXAMPLE:secret", "region": "us-east-1"})),
        ("g", json!({"registry_id": "gemini", "api_key": "k"})),
        ("v", json!({"type": "vertex", "project": "p", "api_key": "ya29.x"})),
        (
            "z",
            json!({"type": "azure_openai", "base_url": "https://r.openai.azure.com", "api_key": "k",
            "api_version": "2025-04-01-preview", "models": [{"id": "d", "max_output_tokens": 9}]}),
        ),
        ("s", json!({"type": "builtin_speech", "default_voice": "one"})),
        ("o", json!({"type": "ollama", "base_url": "http://127.0.0.1:11434/v1"})),
    ] {
        let mut body = settings;
        body["id"] = json!(id);
        let made = admin.done("POST", "providers", body).await;
        assert_eq!(made["state"], "ready", "{made}");
        assert!(!made.to_string().contains("AKIDEXAMPLE:secret"), "{made}");
    }
    let shown = admin.done("GET", "providers/z", Value::Null).await;
    assert_eq!(
        (&shown["api_version"], &shown["models"][0]["max_output_tokens"]),
        (&json!("2025-04-01-preview"), &json!(9))
    );
    let shown = admin.done("PATCH", "providers/o", json!({"models": ["x"]})).await;
    assert_eq!(shown["type"], "local_server", "another spelling of it");
    let shown = admin.done("PATCH", "providers/b", json!({"region": "eu-west-1"})).await;
    assert_eq!(shown["base_url"], "https://bedrock-runtime.eu-west-1.amazonaws.com");
    let refused = admin.call("PATCH", "providers/b", json!({"region": null})).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json().to_string().contains("region is missing"), "{:?}", refused.body);
}

#[tokio::test]
async fn chat_is_adapted_to_responses_only_where_configured() {
    let upstream = Upstream::start().await;
    let text = json!({"type": "output_text", "text": "hello", "annotations": []});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]});
    let body = json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": [message],
        "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
    });
    upstream.always(Answer::json(200, body.to_string()));
    for (forced, status) in [(false, 400), (true, 200)] {
        let settings = json!({
            "type": "openai", "base_url": upstream.base_url(), "api_key": "k", "force_api_support": forced,
            "models": [{"id": "m", "protocols": ["responses"]}],
        });
        let gateway = with(&settings).start().await;
        let answer = gateway.client().chat(chat::request("p/m")).await;
        assert_eq!(answer.status, status, "{forced}: {:?}", answer.body);
    }
    let requests = upstream.requests();
    let lines: Vec<&str> = requests.iter().map(first_line).collect();
    assert_eq!(lines, ["POST /v1/responses HTTP/1.1"]);
}
