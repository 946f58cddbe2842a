//! Cloud providers: models of one vendor in the cloud of another, and their authentication (CFG-4).

use serde_json::{Value, json};

use tokio::task::JoinSet;

use crate::kinds::{account, first_line, generated, message, root, token, with};
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// The path of Claude on Vertex, up to the method.
const CLAUDE: &str =
    "/v1/projects/p-1/locations/europe-west1/publishers/anthropic/models/claude-sonnet-4-5@20250929";

async fn vertex(upstream: &Upstream) -> Gateway {
    let settings = json!({
        "type": "vertex", "base_url": root(upstream), "location": "europe-west1", "project": "p-1",
        "api_key": "ya29.given", "models": ["claude-sonnet-4-5@20250929", "gemini-x"],
    });
    with(&settings).start().await
}

/// A Messages stream with the text "hello".
pub(crate) fn message_stream() -> Answer {
    let events = [
        json!({"type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 1},
        }}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    let events = events.map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    Answer::events(&events)
}

#[tokio::test]
async fn claude_on_vertex_gets_the_bytes_of_a_messages_client() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    let body = |stream: &str| {
        format!(
            r#"{{"max_tokens" : 9, "model":"p/claude-sonnet-4-5@20250929", {stream}"affinity_key":"k","messages":[{{"role":"user","content":"h\u00e9llo"}}], "temperature":1.0}}"#
        )
    };
    let want = |stream: &str| {
        format!(
            r#"{{"max_tokens" : 9, "anthropic_version":"vertex-2023-10-16"{stream},"messages":[{{"role":"user","content":"h\u00e9llo"}}], "temperature":1.0}}"#
        )
    };
    let client = gateway.client().with("anthropic-version", "2023-06-01").with("anthropic-beta", "fine-1");
    upstream.then(message()).then(message_stream());
    let answer = client.post("/v1/messages", body("")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(answer.json()["content"][0]["text"], "hello");
    let streamed = client.post("/v1/messages", body(r#""stream":true,"#)).await;
    assert_eq!(streamed.status, 200, "{:?}", streamed.body);
    assert!(std::str::from_utf8(&streamed.body).unwrap().contains("event: message_stop"));
    for (request, method, stream) in [
        (upstream.request(0).await, "rawPredict", ""),
        (upstream.request(1).await, "streamRawPredict", r#", "stream":true"#),
    ] {
        assert_eq!(first_line(&request), format!("POST {CLAUDE}:{method} HTTP/1.1"));
        assert_eq!(std::str::from_utf8(&request.body).unwrap(), want(stream));
        assert_eq!(request.header("authorization"), Some("Bearer ya29.given"));
        let version = request.header("anthropic-version");
        assert_eq!(
            (version, request.header("anthropic-beta")),
            (None, Some("fine-1")),
            "the body contains it"
        );
    }
}

#[tokio::test]
async fn claude_on_vertex_serves_every_other_client_by_adaptation() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    let model = "p/claude-sonnet-4-5@20250929";
    upstream.then(message()).then(message_stream()).then(message());
    let answer = gateway.client().chat(chat::request(model)).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello", "{:?}", answer.body);
    let answer = gateway.client().chat(chat::stream_request(model)).await;
    assert!(std::str::from_utf8(&answer.body).unwrap().contains("[DONE]"), "{:?}", answer.body);
    let answer =
        gateway.client().post("/v1/responses", json!({"model": model, "input": "hi"}).to_string()).await;
    assert_eq!(answer.json()["output"][0]["content"][0]["text"], "hello", "{:?}", answer.body);
    for (request, method) in upstream.requests().iter().zip(["rawPredict", "streamRawPredict", "rawPredict"])
    {
        assert_eq!(first_line(request), format!("POST {CLAUDE}:{method} HTTP/1.1"));
        let body = request.json();
        assert_eq!(body["anthropic_version"], "vertex-2023-10-16");
        assert_eq!(body["stream"] == true, method == "streamRawPredict", "{body}");
        assert!(body["model"].is_null() && body["max_tokens"].is_u64(), "{body}");
        assert_eq!(request.header("anthropic-version"), None);
    }
    // Each publisher's models use their own protocol, within the same provider.
    upstream.then(generated());
    assert_eq!(gateway.client().chat(chat::request("p/gemini-x")).await.status, 200);
    let last = upstream.requests().pop().unwrap();
    assert!(
        first_line(&last).contains("/publishers/google/models/gemini-x:generateContent"),
        "{}",
        last.head
    );
    assert!(last.json()["anthropic_version"].is_null());
}

#[tokio::test]
async fn claude_on_vertex_counts_tokens() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    upstream.then(Answer::json(200, json!({"input_tokens": 14}).to_string()));
    let body =
        |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let count = async |model: &str| gateway.client().post("/v1/messages/count_tokens", body(model)).await;
    let answer = count("p/claude-sonnet-4-5@20250929").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 14})));
    let request = upstream.request(0).await;
    let path = "/v1/projects/p-1/locations/europe-west1/publishers/anthropic/models/count-tokens:rawPredict";
    assert_eq!(first_line(&request), format!("POST {path} HTTP/1.1"));
    let sent = request.json();
    assert_eq!(
        (&sent["model"], &sent["anthropic_version"]),
        (&json!("claude-sonnet-4-5@20250929"), &json!("vertex-2023-10-16"))
    );
    // Gemini counts the request in its own protocol.
    upstream.then(Answer::json(200, json!({"totalTokens": 3}).to_string()));
    let answer = count("p/gemini-x").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 3})));
    assert!(first_line(&upstream.request(1).await).contains("/google/models/gemini-x:countTokens "));
}

#[tokio::test]
async fn errors_of_claude_on_vertex_are_read_in_both_shapes() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    let own = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: too large"}});
    let googles =
        json!([{"error": {"code": 404, "status": "NOT_FOUND", "message": "Publisher Model was not found."}}]);
    upstream.then(Answer::json(400, own.to_string())).then(Answer::json(404, googles.to_string()));
    let body = json!({"model": "p/claude-sonnet-4-5@20250929", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    for (status, kind, message) in [
        (400, "invalid_request_error", "max_tokens: too large"),
        (404, "not_found_error", "Publisher Model was not found."),
    ] {
        let answer = gateway.client().post("/v1/messages", body.to_string()).await;
        let error: Value = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"]), (status, &json!(kind)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
}

#[tokio::test]
async fn vertex_takes_an_api_key_which_names_its_project_itself() {
    let upstream = Upstream::start().await;
    upstream.always(generated());
    let settings = json!({"type": "vertex", "base_url": root(&upstream), "api_key": "AIzaSyExpress", "models": ["gemini-x"]});
    let gateway = with(&settings).start().await;
    assert_eq!(gateway.client().chat(chat::request("p/gemini-x")).await.status, 200);
    let request = upstream.request(0).await;
    assert_eq!(first_line(&request), "POST /v1/publishers/google/models/gemini-x:generateContent HTTP/1.1");
    assert_eq!(
        (request.header("x-goog-api-key"), request.header("authorization")),
        (Some("AIzaSyExpress"), None)
    );
}

#[tokio::test]
async fn azure_requests_carry_tokens_of_an_application() {
    let (upstream, entra) = (Upstream::start().await, Upstream::start().await);
    upstream.always(Answer::completion("hello"));
    entra.then(token("eyJ.first", 1)).always(token("eyJ.second", 3_600));
    let settings = json!({
        "type": "azure_openai", "base_url": format!("{}/openai/v1", root(&upstream)), "models": ["d"],
        "api_key": "${ENV:AZURE_TENANT_ID}:${ENV:AZURE_CLIENT_ID}:${ENV:AZURE_CLIENT_SECRET}",
    });
    let setup = with(&settings).env("AZURE_TENANT_ID", "t-1").env("AZURE_CLIENT_ID", "c-1");
    let setup = setup.env("AZURE_CLIENT_SECRET", "the~secret").env("AZURE_AUTHORITY_HOST", root(&entra));
    let gateway = setup.start().await;
    // The first token is valid for a second and is renewed before it expires.
    let answer = wait::eventually("the second token", async || {
        let answer = gateway.client().chat(chat::request("p/d")).await;
        let last = upstream.requests().pop()?;
        (last.header("authorization") == Some("Bearer eyJ.second")).then_some(answer)
    })
    .await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let first = upstream.request(0).await;
    assert_eq!((first.header("authorization"), first.header("api-key")), (Some("Bearer eyJ.first"), None));
    let token_request = entra.request(0).await;
    assert_eq!(first_line(&token_request), "POST /t-1/oauth2/v2.0/token HTTP/1.1");
    assert_eq!(
        std::str::from_utf8(&token_request.body).unwrap(),
        "grant_type=client_credentials&client_id=c-1&client_secret=the~secret\
         &scope=https%3A%2F%2Fcognitiveservices.azure.com%2F.default"
    );
    assert_eq!(entra.requests().len(), 2, "token_request once for each, whatever comes");
    let shown = Admin(gateway.client()).done("GET", "providers/p", Value::Null).await;
    assert_eq!((&shown["state"], &shown["token"]["error"]), (&json!("ready"), &Value::Null));
    let visible = format!("{shown}{}", gateway.log());
    assert!(!visible.contains("the~secret") && !visible.contains("eyJ."), "{visible}");
}

#[tokio::test]
async fn a_managed_identity_authenticates_only_where_configured() {
    let (upstream, platform) = (Upstream::start().await, Upstream::start().await);
    upstream.always(Answer::completion("hello"));
    let end = shared::clock::unix_ms() / 1_000 + 86_000;
    let given = json!({"access_token": "eyJ.machine", "expires_on": end.to_string(), "token_type": "Bearer"});
    platform.always(Answer::json(200, given.to_string()));
    let settings = json!({
        "type": "azure_openai", "base_url": root(&upstream), "models": ["d"], "api_key": "managed_identity:c-1",
    });
    let setup = with(&settings).env("IDENTITY_ENDPOINT", format!("{}/msi/token", root(&platform)));
    let gateway = setup.env("IDENTITY_HEADER", "h-1").start().await;
    wait::eventually("the first token", async || {
        (gateway.client().chat(chat::request("p/d")).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(upstream.request(0).await.header("authorization"), Some("Bearer eyJ.machine"));
    let token_request = platform.request(0).await;
    assert_eq!(
        first_line(&token_request),
        "GET /msi/token?api-version=2019-08-01&resource=https%3A%2F%2Fcognitiveservices.azure.com&client_id=c-1 HTTP/1.1"
    );
    assert_eq!(token_request.header("x-identity-header"), Some("h-1"));
    // The machine's token is sent to Microsoft only.
    let elsewhere = json!({
        "id": "x", "type": "azure_openai", "base_url": "https://example.com", "api_key": "managed_identity", "models": ["d"],
    });
    let refused = Admin(gateway.client()).call("POST", "providers", elsewhere).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json().to_string().contains("openai.azure.com"), "{:?}", refused.body);
}

/// Starts a gateway whose provider `p` gets tokens from `google`: one that is valid for an hour, then another one.
async fn with_tokens(upstream: &Upstream, google: &Upstream, change: impl FnOnce(&mut Value)) -> Gateway {
    google.then(token("ya29.first", 3_600)).always(token("ya29.second", 3_600));
    let mut config = json!({
        "providers": {"p": {
            "type": "vertex", "base_url": root(upstream), "api_key": "${ENV:ACCOUNT}", "models": ["gemini-x"],
        }},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 1}},
    });
    change(&mut config);
    let setup = Setup::new(&Yaml::new()).yaml(config.to_string());
    let gateway = setup.env("ACCOUNT", account(&format!("{}/token", root(google)))).start().await;
    wait::eventually("the first token", async || {
        let shown = Admin(gateway.client()).done("GET", "providers/p", Value::Null).await;
        (shown["state"] == "ready").then_some(())
    })
    .await;
    gateway
}

fn expired() -> Answer {
    let message = "Request had invalid authentication credentials. Expected OAuth 2 access token.";
    let error = json!({"code": 401, "message": message, "status": "UNAUTHENTICATED"});
    Answer::json(401, json!({"error": error}).to_string())
}

#[tokio::test]
async fn a_request_with_a_refused_token_is_retried_with_a_new_token() {
    let (upstream, google) = (Upstream::start().await, Upstream::start().await);
    let gateway = with_tokens(&upstream, &google, |_| ()).await;
    upstream.then(expired()).always(generated());
    let answer = gateway.client().chat(chat::request("p/gemini-x")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let requests = upstream.requests();
    let tokens: Vec<_> = requests.iter().map(|request| request.header("authorization").unwrap()).collect();
    assert_eq!(tokens, ["Bearer ya29.first", "Bearer ya29.second"], "the circuit stays closed, too");
    assert_eq!(google.requests().len(), 2);
}

#[tokio::test]
async fn an_upstream_that_refuses_every_token_causes_one_renewal() {
    let (upstream, google) = (Upstream::start().await, Upstream::start().await);
    let gateway = with_tokens(&upstream, &google, |_| ()).await;
    upstream.always(expired());
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let client = gateway.client();
        asking.spawn(async move { client.chat(chat::request("p/gemini-x")).await.status });
    }
    let statuses = asking.join_all().await;
    // The second rejection is the upstream's final answer and opens the circuit.
    assert!(statuses.iter().all(|status| [401, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&401), "{statuses:?}");
    assert_eq!(google.requests().len(), 2, "one renewal for all of them");
    assert!(upstream.requests().len() <= 16, "each is sent twice at most");
    assert_eq!(gateway.client().chat(chat::request("p/gemini-x")).await.status, 503);
    assert_eq!(google.requests().len(), 2);
}

#[tokio::test]
async fn a_refused_token_fails_over_while_it_is_renewed() {
    let (upstream, google, other) =
        (Upstream::start().await, Upstream::start().await, Upstream::start().await);
    other.always(Answer::completion("from the other"));
    let gateway = with_tokens(&upstream, &google, |config| {
        config["providers"]["q"] =
            json!({"type": "compatible", "base_url": other.base_url(), "models": ["m"]});
        let members = [("p", "gemini-x"), ("q", "m")].map(|(p, m)| json!({"provider": p, "model": m}));
        config["endpoints"] = json!({"fast": {"failover": members}});
    })
    .await;
    upstream.then(expired()).always(generated());
    let answer = gateway.client().chat(chat::request("fast")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "from the other", "{:?}", answer.body);
    wait::eventually("the second token", async || (google.requests().len() == 2).then_some(())).await;
    wait::eventually("the first target", async || {
        let answer = gateway.client().chat(chat::request("fast")).await;
        (answer.json()["choices"][0]["message"]["content"] == "hello").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_response_keeps_its_provider_across_a_token_renewal() {
    let (upstream, entra) = (Upstream::start().await, Upstream::start().await);
    entra.then(token("eyJ.first", 3_600)).always(token("eyJ.second", 3_600));
    let response = |id: &str| {
        let text = json!({"type": "output_text", "text": "hello", "annotations": []});
        let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]});
        let body = json!({
            "id": id, "object": "response", "created_at": 1, "status": "completed", "model": "d", "output": [message],
            "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
        });
        Answer::json(200, body.to_string())
    };
    let settings = json!({
        "type": "azure_openai", "base_url": format!("{}/openai/v1", root(&upstream)), "models": ["d"],
        "api_key": "t-1:c-1:the~secret",
    });
    let gateway = with(&settings).env("AZURE_AUTHORITY_HOST", root(&entra)).start().await;
    let ask = async |body: Value| gateway.client().post("/v1/responses", body.to_string()).await;
    upstream.always(response("resp_1"));
    wait::eventually("the first token", async || {
        (ask(json!({"model": "p/d", "input": "hi"})).await.status == 200).then_some(())
    })
    .await;
    upstream.then(expired()).then(response("resp_2")).then(response("resp_3"));
    let next = json!({"model": "p/d", "input": "and?", "previous_response_id": "resp_1"});
    for id in ["resp_2", "resp_3"] {
        let answer = ask(next.clone()).await;
        assert_eq!((answer.status, &answer.json()["id"]), (200, &json!(id)), "{:?}", answer.body);
    }
    let last = upstream.requests().pop().unwrap();
    assert_eq!(last.header("authorization"), Some("Bearer eyJ.second"));
}
