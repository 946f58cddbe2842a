//! Properties of each route in the user's requirements, with and without `/v1`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::ADMIN_KEY;
use crate::support::raw::Raw;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

const CHAT: [&str; 3] = ["/v1/chat/completions", "/chat/completions", "/completions"];
const RESPONSES: [&str; 2] = ["/v1/responses", "/responses"];
const MESSAGES: [&str; 2] = ["/v1/messages", "/messages"];
const COUNT: [&str; 2] = ["/v1/messages/count_tokens", "/messages/count_tokens"];
const EMBEDDINGS: [&str; 2] = ["/v1/embeddings", "/embeddings"];
const SPEECH: [&str; 2] = ["/v1/audio/speech", "/audio/speech"];
const TRANSCRIPTIONS: [&str; 2] = ["/v1/audio/transcriptions", "/audio/transcriptions"];
const IMAGES: [&str; 2] = ["/v1/images/generations", "/images/generations"];
const VIDEOS: [&str; 2] = ["/v1/videos/generations", "/videos/generations"];

const FORM: &str = "multipart/form-data; boundary=edge";

fn form(model: &str) -> String {
    format!(
        "--edge\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--edge\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nsound\r\n--edge--\r\n"
    )
}

/// A request for a route: its path, its content type, and a function that builds its body for a model.
pub(crate) type Request = (&'static str, &'static str, Box<dyn Fn(&str) -> String>);

/// Returns a request for each route.
pub(crate) fn routes() -> Vec<Request> {
    let mut routes: Vec<Request> = Vec::new();
    let mut add = |paths: &[&'static str], body: fn(&str) -> Value| {
        for path in paths {
            routes.push((path, "application/json", Box::new(move |model| body(model).to_string())));
        }
    };
    add(&CHAT, |model| json!({"model": model, "messages": [{"role": "user", "content": "Hi."}]}));
    add(&RESPONSES, |model| json!({"model": model, "input": "Hi."}));
    add(&MESSAGES, message);
    add(&COUNT, message);
    add(&EMBEDDINGS, |model| json!({"model": model, "input": "Hi."}));
    add(&SPEECH, |model| json!({"model": model, "input": "Hi.", "voice": "alloy"}));
    add(&IMAGES, |model| json!({"model": model, "prompt": "A boat."}));
    add(&VIDEOS, |model| json!({"model": model, "prompt": "A boat."}));
    routes.extend(TRANSCRIPTIONS.map(|path| (path, FORM, Box::new(form) as Box<dyn Fn(&str) -> String>)));
    routes
}

fn message(model: &str) -> Value {
    json!({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]})
}

async fn post(
    client: &Client,
    path: &str,
    content_type: &str,
    body: String,
) -> crate::support::client::Whole {
    client.clone().with("content-type", content_type).send("POST", path, body.into()).await.unwrap()
}

pub(crate) const EVERYTHING: &str =
    "protocols: [chat, responses, messages, embeddings, speech, transcription, images, videos]";

/// Starts the providers `p0` and `p1`, which support all protocols natively, behind `line`; `p0` does not support
/// images.
async fn pair() -> (Gateway, [Upstream; 2]) {
    let upstreams = [Upstream::start().await, Upstream::start().await];
    let blind = format!("{EVERYTHING}\nmodels: [{{id: m, vision: false}}]");
    let yaml = Yaml::new()
        .provider_with("p0", upstreams[0].base_url(), &blind)
        .provider_with("p1", upstreams[1].base_url(), EVERYTHING)
        .endpoint("line", &[("p0", "m"), ("p1", "m")])
        .endpoint("blind", &[("p0", "m")]);
    (Gateway::start(&yaml).await, upstreams)
}

/// A whole answer that is valid in every client protocol.
fn universal() -> Answer {
    let answer = json!({
        "id": "resp_1", "object": "response", "type": "message", "role": "assistant", "status": "completed",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    Answer::json(200, answer.to_string())
}

/// M-011, with a project key and with the administrator's key.
#[tokio::test]
async fn an_unknown_selector_is_404_on_every_route() {
    let (gateway, upstreams) = pair().await;
    let admin = Admin(gateway.client());
    let key = admin.key(json!({"project": admin.project("blue").await})).await;
    for client in [gateway.client(), Client::new(gateway.address(), Some(&key.key))] {
        for (path, content_type, body) in routes() {
            for model in ["nobody", "line/m", "p0/other", "LINE"] {
                let answer = post(&client, path, content_type, body(model)).await;
                assert_eq!(answer.status, 404, "{path} {model}: {:?}", answer.body);
                let error = &answer.json()["error"];
                let code = if path.contains("messages") { &error["type"] } else { &error["code"] };
                let want = if path.contains("messages") { "not_found_error" } else { "model_not_found" };
                assert_eq!(code, want, "{path} {model}");
            }
        }
    }
    assert!(upstreams.iter().all(|upstream| upstream.requests().is_empty()));
}

/// M-160 in each protocol with images, but not for an image that is only mentioned.
#[tokio::test]
async fn a_target_without_vision_is_skipped_on_every_conversation_route() {
    let (gateway, upstreams) = pair().await;
    for upstream in &upstreams {
        upstream.always(universal());
    }
    let png = "data:image/png;base64,iVBORw0KGgo=";
    let inline = json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let chat = json!({"messages": user(json!([{"type": "image_url", "image_url": {"url": png}}]))});
    let responses = json!({"input": user(json!([{"type": "input_image", "image_url": png}]))});
    let messages = json!({"max_tokens": 9, "messages": user(json!([{"type": "image", "source": inline}]))});
    let rows = [(&CHAT[..], &chat), (&RESPONSES[..], &responses), (&MESSAGES[..], &messages)];
    let client = gateway.client();
    for (paths, members) in rows {
        for path in paths {
            let request_of = |model: &str| {
                let mut body = members.clone();
                body["model"] = json!(model);
                body.to_string()
            };
            let answer = client.post(path, request_of("line")).await;
            assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")), "{path}");
            let refused = client.post(path, request_of("blind")).await;
            assert_eq!(refused.status, 400, "{path}");
            assert!(refused.json()["error"]["message"].as_str().unwrap().contains("image"), "{path}");
        }
    }
    assert!(upstreams[0].requests().is_empty());
}

/// M-160: the arguments and the schema of a tool are not content.
#[tokio::test]
async fn an_image_in_tool_arguments_or_a_schema_is_not_image_content() {
    let (gateway, upstreams) = pair().await;
    upstreams[0].always(universal());
    let input =
        json!({"type": "image", "source": {"type": "base64", "data": "x"}, "parts": [{"type": "image_url"}]});
    let call = json!([{"type": "tool_use", "id": "t", "name": "draw", "input": input}]);
    let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": "done"}]);
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "default": {"type": "image"}}}});
    let messages = json!({
        "model": "blind", "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "Draw."}, {"role": "assistant", "content": call}, {"role": "user", "content": result},
        ],
        "tools": [{"name": "draw", "input_schema": schema}],
    });
    let found = json!([{"type": "function", "name": "draw", "parameters": schema}]);
    let responses = json!({
        "model": "blind",
        "input": [
            {"type": "message", "role": "user", "content": "Draw."},
            {"type": "tool_search_output", "call_id": "c", "tools": found},
            {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "draw", "input_schema": schema}]},
        ],
    });
    let chat = json!({
        "model": "blind",
        "messages": [{"role": "user", "content": "Draw."}],
        "tools": [{"type": "function", "function": {"name": "draw", "parameters": schema}}],
    });
    for (path, body) in [(MESSAGES[0], messages), (RESPONSES[0], responses), (CHAT[0], chat)] {
        let answer = gateway.client().post(path, body.to_string()).await;
        assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p0")), "{path}");
    }
}

/// M-165 by header and in the body.
#[tokio::test]
async fn a_spent_budget_stops_failover_on_every_conversation_route() {
    let (gateway, upstreams) = pair().await;
    for upstream in &upstreams {
        upstream.always(Answer::hang_forever());
    }
    let of_conversation =
        |path: &&str| CHAT.contains(path) || RESPONSES.contains(path) || MESSAGES.contains(path);
    for (path, content_type, body) in routes().into_iter().filter(|(path, ..)| of_conversation(path)) {
        let by_header = gateway.client().with("x-llmgw-fallback-timeout-ms", "50");
        let in_body = body("line").replacen('{', r#"{"fallback_timeout_ms":50,"#, 1);
        for (client, body) in [(by_header, body("line")), (gateway.client(), in_body)] {
            let answer = post(&client, path, content_type, body).await;
            assert_eq!(answer.status, 504, "{path}: {:?}", answer.body);
            assert!(String::from_utf8_lossy(&answer.body).contains("failover budget"), "{path}: {answer:?}");
        }
    }
}

/// M-166 by header and in the body.
#[tokio::test]
async fn an_affinity_key_starts_at_the_same_member_on_every_conversation_route() {
    let (gateway, upstreams) = pair().await;
    for upstream in &upstreams {
        upstream.always(universal());
    }
    let of_conversation =
        |path: &&str| CHAT.contains(path) || RESPONSES.contains(path) || MESSAGES.contains(path);
    let mut used = BTreeSet::new();
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        let mut members = BTreeSet::new();
        for (path, content_type, body) in routes().into_iter().filter(|(path, ..)| of_conversation(path)) {
            let by_header = gateway.client().with("x-llmgw-affinity-key", key);
            let in_body = body("line").replacen('{', &format!(r#"{{"affinity_key":"{key}","#), 1);
            for (client, body) in [(by_header, body("line")), (gateway.client(), in_body)] {
                let answer = post(&client, path, content_type, body).await;
                assert_eq!(answer.status, 200, "{path}: {:?}", answer.body);
                members.insert(answer.header("x-llmgw-provider").unwrap().to_owned());
            }
        }
        assert_eq!(members.len(), 1, "{key}");
        used.extend(members);
    }
    assert_eq!(used.len(), 2, "ten keys use both members");
}

/// M-173, M-211: not even if the target speaks the protocol.
#[tokio::test]
async fn background_is_refused_on_every_responses_route() {
    let (gateway, upstreams) = pair().await;
    for path in RESPONSES {
        for stream in [false, true] {
            for model in ["line", "p1/m", "m"] {
                let body = json!({"model": model, "input": "Hi.", "background": true, "stream": stream});
                let answer = gateway.client().post(path, body.to_string()).await;
                let error = &answer.json()["error"];
                assert_eq!((answer.status, &error["param"]), (400, &json!("background")), "{path} {model}");
            }
        }
    }
    assert!(upstreams.iter().all(|upstream| upstream.requests().is_empty()));
}

/// M-177: neither a native count nor an estimate uses a quota or is blocked by an exhausted one.
#[tokio::test]
async fn counting_uses_no_quota_on_every_counting_route() {
    let (gateway, upstreams) = pair().await;
    upstreams[0].always(Answer::json(200, r#"{"input_tokens":5}"#));
    let chat_only = Upstream::start().await;
    let admin = Admin(gateway.client());
    let estimated =
        json!({"id": "chatty", "type": "compatible", "base_url": chat_only.base_url(), "models": ["m"]});
    admin.done("POST", "providers", estimated).await;
    let limits = json!([
        {"metric": "requests", "window": "day", "limit": 1},
        {"metric": "total_tokens", "window": "day", "limit": 1},
    ]);
    let key = admin.key(json!({"project": admin.project("blue").await, "limits": limits})).await;
    let client = Client::new(gateway.address(), Some(&key.key));
    for path in COUNT {
        for (model, is_estimate) in [("blind", false), ("chatty/m", true)] {
            for _ in 0..3 {
                let answer = client.post(path, message(model).to_string()).await;
                let header = answer.header("x-llmgw-token-count");
                assert_eq!(
                    (answer.status, header),
                    (200, is_estimate.then_some("estimate")),
                    "{path} {model}"
                );
            }
        }
    }
    let quotas = admin.done("GET", &format!("quotas?key={}", key.id), Value::Null).await;
    let quotas = quotas["data"].as_array().unwrap();
    assert_eq!(quotas.len(), 2);
    for quota in quotas {
        assert_eq!((&quota["used"], &quota["reserved"]), (&json!(0), &json!(0)), "{quota}");
    }
}

/// M-212: one byte over the default limit; bodies at the limit pass (`limits.rs`).
#[tokio::test]
async fn a_body_past_sixty_four_mebibytes_is_413_on_every_route() {
    let (gateway, upstreams) = pair().await;
    for (path, content_type, _) in routes() {
        let limit = if COUNT.contains(&path) { 32 << 20 } else { 64 << 20 };
        let head = |bytes: u64| {
            format!(
                "POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ADMIN_KEY}\r\n\
                 content-type: {content_type}\r\ncontent-length: {bytes}\r\nexpect: 100-continue\r\n\r\n"
            )
        };
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(head(limit + 1)).await;
        let reply = connection.reply().await;
        assert!(reply.status == 413 && reply.text.contains("request_too_large"), "{path}: {reply:?}");
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(head(limit)).await;
        let begun = connection.read_until("100 Continue").await;
        assert!(begun.starts_with("HTTP/1.1 100"), "{path}: {begun}");
    }
    assert!(upstreams.iter().all(|upstream| upstream.requests().is_empty()));
}

/// M-214: exactly one upstream call, to the first target, although the second could serve the request.
#[tokio::test]
async fn only_the_first_target_is_called_on_every_single_target_route() {
    let (gateway, upstreams) = pair().await;
    upstreams[0].always(Answer::error(503));
    upstreams[1].always(universal());
    let mut calls = 0;
    for (path, content_type, body) in routes() {
        if [EMBEDDINGS, SPEECH, TRANSCRIPTIONS, IMAGES, VIDEOS].iter().any(|paths| paths.contains(&path)) {
            let answer = post(&gateway.client(), path, content_type, body("line")).await;
            calls += 1;
            assert_eq!(answer.status, 503, "{path}: {:?}", answer.body);
            assert_eq!(upstreams[0].requests().len(), calls, "{path}");
        }
    }
    assert!(upstreams[1].requests().is_empty());
}

/// M-162: the configuration schema, the providers page and the table of the pair state this.
#[test]
fn chat_over_responses_is_labelled_experimental() {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    let schema: Value = serde_json::from_str(&read("control/config.schema.json")).unwrap();
    let described = &schema["$defs"]["Provider"]["properties"]["force_api_support"]["description"];
    assert!(described.as_str().unwrap().contains("experimental"), "{described}");
    let providers = read("docs/providers.md");
    assert!(providers.contains("Chat over a model that speaks Responses alone is experimental"));
    let table = read("docs/adaptations.md");
    let section = table.split("\n## ").find(|section| section.starts_with("Chat over Responses"));
    assert!(section.unwrap().contains("**Experimental**"), "{section:?}");
}

/// M-187, M-217, M-223, M-228, M-229.
#[test]
fn the_docs_state_the_admin_api_contract_and_the_upgrade_steps() {
    for (page, part) in [
        ("admin-api", "every route needs an administrator key or a session"),
        ("admin-api", "not a versioned public contract"),
        ("admin-api", "there is no public OpenAPI description of it"),
        ("admin-api", "Only administrators can read it"),
        ("clients", "Give each client a [project key]"),
        ("oauth", "OAuth connections are experimental"),
        ("operations", "Back up offline before each upgrade"),
        ("operations", "`credentials rekey` and `credentials import` refuse while `serve` holds the state"),
    ] {
        let path = format!("{}/docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(part), "docs/{page}.md: {part}");
    }
}

/// M-036: a `.env` file in the working directory, the state directory or the home directory has no effect.
#[tokio::test]
async fn no_env_file_is_read() {
    let (gateway, _upstreams) = pair().await;
    let setup = gateway.kill().await;
    let folder = tempfile::tempdir().unwrap();
    let lines = "LLMGW_API_KEY=key-of-the-env-file-0123456789\nLLMGW_MAX_REQUEST_BODY_BYTES=2000\nLLMGW_METRICS_PUBLIC=true\n";
    for place in [folder.path().to_owned(), setup.state()] {
        std::fs::write(place.join(".env"), lines).unwrap();
    }
    let gateway = setup.env("HOME", folder.path().to_str().unwrap()).directory(folder.path()).start().await;
    let stranger = Client::new(gateway.address(), Some("key-of-the-env-file-0123456789"));
    assert_eq!(stranger.get("/v1/models").await.unwrap().status, 401);
    assert_eq!(Client::new(gateway.address(), None).get("/metrics").await.unwrap().status, 401);
    assert_eq!(gateway.client().get("/v1/models").await.unwrap().status, 200);
    let large = message(&"x".repeat(3_000)).to_string();
    assert_eq!(gateway.client().post("/v1/messages", large).await.status, 404);
    // Without the process's variables there are no keys, despite the file.
    let setup = gateway.kill().await.without("LLMGW_API_KEY");
    let output = setup.run(&["serve"]).await;
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LLMGW_API_KEY"));
}
