//! Token counts by targets of other protocols, and by Claude on Vertex AI (MSG-3, M-139, M-140, M-176).

use serde_json::{Value, json};

use crate::kinds::{first_line, root};
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml};

const PREAMBLE: &str = "Speak plainly.";

/// Starts a gateway with a preamble and one provider `p` with these settings and the address of `upstream`.
async fn over(upstream: &Upstream, mut settings: Value) -> Gateway {
    settings["base_url"] = json!(root(upstream));
    let file = json!({"providers": {"p": settings}}).to_string();
    Setup::new(&Yaml::new()).yaml(file).env("LLMGW_GATEWAY_PREAMBLE", PREAMBLE).start().await
}

fn question(model: &str) -> String {
    json!({
        "model": format!("p/{model}"), "system": "Be brief.",
        "messages": [{"role": "user", "content": "What is the weather in Bergen?"}],
        "tools": [{"name": "weather", "description": "Tells the weather.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
    })
    .to_string()
}

async fn count(gateway: &Gateway, model: &str) -> Whole {
    gateway.client().post("/v1/messages/count_tokens", question(model)).await
}

/// Returns the member names of an object, sorted.
fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn token_counting_is_translated_for_gemini_vertex_and_bedrock() {
    let google = json!({"totalTokens": 31, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 31}]});
    let rows = [
        (
            json!({"type": "gemini", "api_key": "k", "models": ["g"]}),
            "g",
            "/v1beta/models/g:countTokens",
            google.clone(),
        ),
        (
            json!({"type": "vertex", "api_key": "ya29.x", "project": "p-1", "location": "eu", "models": ["g"]}),
            "g",
            "/v1/projects/p-1/locations/eu/publishers/google/models/g:countTokens",
            google,
        ),
        (
            json!({"type": "bedrock", "api_key": "k", "region": "eu-west-1", "models": ["c.x-v1:0"]}),
            "c.x-v1:0",
            "/model/c.x-v1%3A0/count-tokens",
            json!({"inputTokens": 31}),
        ),
    ];
    for (settings, model, path, answer) in rows {
        let upstream = Upstream::start().await;
        upstream.then(Answer::json(200, answer.to_string()));
        let gateway = over(&upstream, settings.clone()).await;
        let counted = count(&gateway, model).await;
        assert_eq!((counted.status, counted.json()), (200, json!({"input_tokens": 31})), "{path}");
        assert_eq!(
            (counted.header("x-llmgw-token-count"), counted.header("x-llmgw-provider")),
            (None, Some("p"))
        );
        let sent = upstream.request(0).await;
        assert_eq!(first_line(&sent), format!("POST {path} HTTP/1.1"));
        let body = sent.json();
        let request = match settings["type"].as_str().unwrap() {
            "gemini" => {
                assert_eq!(names(&body), ["generateContentRequest"]);
                assert_eq!(body["generateContentRequest"]["model"], "models/g");
                &body["generateContentRequest"]
            }
            "vertex" => {
                assert_eq!(names(&body), ["contents", "systemInstruction", "tools"]);
                &body
            }
            _ => {
                assert_eq!((names(&body), names(&body["input"])), (vec!["input"], vec!["converse"]));
                assert_eq!(names(&body["input"]["converse"]), ["messages", "system", "toolConfig"]);
                &body["input"]["converse"]
            }
        };
        for part in [PREAMBLE, "Be brief.", "What is the weather in Bergen?", "Tells the weather."] {
            assert!(request.to_string().contains(part), "{part}: {request}");
        }
        // A model that cannot count, or a failure of the gateway's own count request, is not reported as a client
        // error.
        for useless in
            [Answer::json(400, "{}"), Answer::json(404, "{}"), Answer::json(200, "{}"), Answer::new().close()]
        {
            upstream.then(useless);
            let estimated = count(&gateway, model).await;
            assert_eq!(
                (estimated.status, estimated.header("x-llmgw-token-count")),
                (200, Some("estimate")),
                "{path}"
            );
            assert!(estimated.json()["input_tokens"].as_u64().unwrap() > 10);
        }
        let records = gateway.client().get("/admin/api/requests").await.unwrap().json();
        assert_eq!(records["data"], json!([]), "counting is not recorded");
    }
}

/// The gateway's own system text is sent with each request, so it is included in native counts and in estimates.
#[tokio::test]
async fn the_preamble_is_counted() {
    let upstream = Upstream::start().await;
    let gateway = over(&upstream, json!({"type": "anthropic", "api_key": "k", "models": ["m"]})).await;
    upstream.then(Answer::json(200, r#"{"input_tokens":42}"#));
    assert_eq!(count(&gateway, "m").await.json(), json!({"input_tokens": 42}));
    assert_eq!(upstream.request(0).await.json()["system"], format!("{PREAMBLE}\n\nBe brief."));
    upstream.always(Answer::error(500));
    let with = count(&gateway, "m").await.json()["input_tokens"].as_u64().unwrap();
    let setup = gateway.kill().await.without("LLMGW_GATEWAY_PREAMBLE");
    let without = count(&setup.start().await, "m").await.json()["input_tokens"].as_u64().unwrap();
    assert!(with > without, "{with} {without}");
}

/// For counts, Vertex AI rejects some betas that it accepts for other requests.
#[tokio::test]
async fn vertex_gets_only_the_betas_it_accepts_for_counting() {
    let upstream = Upstream::start().await;
    let settings = json!({"type": "vertex", "api_key": "ya29.x", "project": "p-1", "location": "eu", "models": ["claude-x"]});
    let gateway = over(&upstream, settings).await;
    let client = gateway.client();
    let rows = [
        (
            "tool-search-tool-2025-10-19, interleaved-thinking-2025-05-14,claude-code-20250219",
            Some("interleaved-thinking-2025-05-14,claude-code-20250219"),
        ),
        ("tool-search-tool-2025-10-19", None),
    ];
    for (position, (betas, want)) in rows.into_iter().enumerate() {
        upstream.then(Answer::json(200, r#"{"input_tokens":42}"#));
        let client = client.clone().with("anthropic-beta", betas);
        let counted = client.post("/v1/messages/count_tokens", question("claude-x")).await;
        assert_eq!(counted.json(), json!({"input_tokens": 42}));
        let sent = upstream.request(position).await;
        assert_eq!(sent.header("anthropic-beta"), want);
        assert!(
            first_line(&sent).contains("/publishers/anthropic/models/count-tokens:rawPredict "),
            "{}",
            sent.head
        );
        assert_eq!(
            (&sent.json()["model"], &sent.json()["anthropic_version"]),
            (&json!("claude-x"), &json!("vertex-2023-10-16"))
        );
    }
}
