//! Authentication and the scope of keys (AUTH-1 to AUTH-3, P19), and that no request chooses its destination (P23).

use bytes::Bytes;
use serde_json::json;

use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::Raw;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    (Gateway::start(&Yaml::one(upstream.base_url())).await, upstream)
}

/// Every route of the data plane that requires a key.
const DATA_ROUTES: [(&str, &str); 13] = [
    ("GET", "/v1/key"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/up/m"),
    ("GET", "/metrics"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/images/generations"),
    ("POST", "/v1/videos/generations"),
];

/// M-226.
#[tokio::test]
async fn every_route_except_health_requires_a_key() {
    let near_miss = format!("{}x", &ADMIN_KEY[..ADMIN_KEY.len() - 1]);
    for key in [None, Some(""), Some("wrong"), Some(near_miss.as_str()), Some(&ADMIN_KEY[1..])] {
        // A new one for each key: after 20 wrong keys they are slowed.
        let (gateway, upstream) = gateway().await;
        let client = Client::new(gateway.address(), key);
        for (method, path) in DATA_ROUTES {
            let body = if method == "POST" { chat::request("m") } else { String::new() };
            let answer = client.send(method, path, Bytes::from(body)).await.unwrap();
            assert_eq!(answer.status, 401, "{method} {path} with {key:?}");
        }
        for path in ["state", "requests", "usage"] {
            let answer = client.get(&format!("/admin/api/{path}")).await.unwrap();
            assert_eq!(answer.status, 401, "/admin/api/{path} with {key:?}");
        }
        assert_eq!(Client::new(gateway.address(), None).get("/health").await.unwrap().status, 200);
        assert_eq!(upstream.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_refusal_is_in_the_envelope_of_the_route_and_repeats_no_key() {
    let (gateway, _upstream) = gateway().await;
    let client = Client::new(gateway.address(), Some("sk-a-presented-key-that-is-wrong"));
    let answer = client.chat(chat::request("m")).await;
    assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
    let messages = client.post("/v1/messages", chat::request("m")).await;
    assert_eq!(messages.json()["type"], "error");
    assert_eq!(messages.json()["error"]["type"], "authentication_error");
    for answer in [answer, messages] {
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert!(!String::from_utf8_lossy(&answer.body).contains("sk-a-presented"));
    }
}

#[tokio::test]
async fn paths_of_anthropics_that_are_not_served_are_refused_in_its_envelope() {
    let (gateway, upstream) = gateway().await;
    let sdk = || gateway.client().with("anthropic-version", "2023-06-01");
    for (client, method, path) in [
        (gateway.client(), "POST", "/v1/messages/batches"),
        (gateway.client(), "GET", "/v1/messages/batches/msgbatch_1/results"),
        (sdk(), "POST", "/v1/files"),
        (sdk(), "GET", "/v1/skills"),
        (sdk(), "POST", "/v1/complete"),
        (sdk(), "GET", "/v1/models/nobody"),
    ] {
        let answer = client.send(method, path, "{}".into()).await.unwrap();
        assert_eq!(
            (answer.status, &answer.json()["error"]["type"]),
            (404, &json!("not_found_error")),
            "{path}"
        );
    }
    // The query of the beta namespace has no effect.
    let answer = sdk().post("/v1/messages?beta=true", r#"{"model":"nobody","messages":[]}"#).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
    let answer = gateway.client().get("/v1/models/nobody").await.unwrap();
    assert_eq!((answer.status, answer.error_code().as_str()), (404, "model_not_found"));
    let body = r#"{"model":"up/m","prompt":"Once"}"#;
    let answer = gateway.client().post("/completions", body).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("messages")));
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn both_key_headers_authenticate_and_x_api_key_takes_precedence() {
    let (gateway, _upstream) = gateway().await;
    let nobody = Client::new(gateway.address(), None);
    let bearer = |key: &str| format!("Bearer {key}");
    for (name, client, status) in [
        ("x-api-key", nobody.clone().with("x-api-key", ADMIN_KEY), 200),
        ("bearer", nobody.clone().with("authorization", &bearer(ADMIN_KEY)), 200),
        (
            "bearer in small letters",
            nobody.clone().with("authorization", &format!("bearer {ADMIN_KEY}")),
            200,
        ),
        (
            "right x-api-key, wrong bearer",
            nobody.clone().with("x-api-key", ADMIN_KEY).with("authorization", "Bearer no"),
            200,
        ),
        (
            "wrong x-api-key, right bearer",
            nobody.clone().with("x-api-key", "no").with("authorization", &bearer(ADMIN_KEY)),
            401,
        ),
        (
            "two x-api-keys that differ",
            nobody.clone().with("x-api-key", ADMIN_KEY).with("x-api-key", "no"),
            401,
        ),
        ("basic", nobody.clone().with("authorization", &format!("Basic {ADMIN_KEY}")), 401),
    ] {
        assert_eq!(client.chat(chat::request("m")).await.status, status, "{name}");
    }
}

#[tokio::test]
async fn each_further_static_key_is_an_administrator() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .env("LLMGW_API_KEYS", " second-static-key ,, third-static-key,");
    let gateway = setup.start().await;
    for key in ["second-static-key", "third-static-key"] {
        let client = Client::new(gateway.address(), Some(key));
        assert_eq!(client.chat(chat::request("m")).await.status, 200, "{key}");
        assert_eq!(client.get("/admin/api/state").await.unwrap().status, 200, "{key}");
    }
    assert_eq!(Client::new(gateway.address(), Some("")).chat(chat::request("m")).await.status, 401);
    let log = gateway.log();
    assert!(!log.contains("second-static-key") && !log.contains(ADMIN_KEY), "{log}");
}

#[tokio::test]
async fn administrators_are_shown_by_the_names_of_their_keys() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let (ops, old) = ("ops-key-0123456789", "old=key=with-equals-0123456789");
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .env("LLMGW_API_KEYS", format!("ops={ops},{old}"))
        .env("LLMGW_LOG_REQUESTS", "true");
    let gateway = setup.start().await;
    let client = |key: &str| Client::new(gateway.address(), Some(key));
    for key in [ops, old] {
        assert_eq!(client(key).chat(chat::request("m")).await.status, 200, "{key}");
    }
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    let records = gateway.records(3).await;
    let keys: Vec<_> = records.iter().map(|record| (&record["key"], &record["key_name"])).collect();
    for (key, name) in [("admin", json!(null)), ("admin:old", json!("old")), ("admin:ops", json!("ops"))] {
        assert!(keys.contains(&(&json!(key), &name)), "{keys:?}");
    }
    let usage = client(ops).get("/admin/api/usage?group_by=key&key=admin:ops").await.unwrap().json();
    assert_eq!(usage["data"][0]["names"], json!({"key": "ops"}));
    let made = client(ops).post("/admin/api/projects", r#"{"name": "by-ops"}"#).await;
    assert_eq!(made.status, 201);
    let audit = client(ops).get("/admin/api/audit?action=project.create").await.unwrap().json();
    assert_eq!(audit["data"][0]["actor"], "admin:ops");
    gateway.logs("admin:ops").await;
    let log = gateway.log();
    assert!(!log.contains(ops) && !log.contains("with-equals"), "{log}");
}

#[tokio::test]
async fn the_local_mode_serves_requests_and_no_admin_routes() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_ALLOW_UNAUTHENTICATED_API", "true");
    let gateway = setup.start().await;
    let nobody = Client::new(gateway.address(), None);
    assert_eq!(nobody.chat(chat::request("m")).await.status, 200);
    for path in ["state", "requests", "usage"] {
        assert_eq!(nobody.get(&format!("/admin/api/{path}")).await.unwrap().status, 401, "{path}");
    }
    for (origin, status) in [
        ("https://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1.evil.example", 403),
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:5173", 200),
        ("http://[::1]:80", 200),
    ] {
        let answer = nobody.clone().with("origin", origin).chat(chat::request("m")).await;
        assert_eq!(answer.status, status, "{origin}");
    }
    let admin = gateway.client().with("origin", "https://evil.example");
    assert_eq!(admin.chat(chat::request("m")).await.status, 200, "a valid key acts as itself");
}

#[tokio::test]
async fn the_local_mode_accepts_only_loopback_hosts() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_ALLOW_UNAUTHENTICATED_API", "true");
    let gateway = setup.start().await;
    for (host, status) in [
        ("evil.example", 403),
        ("evil.example:8787", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("192.168.1.5:8787", 403),
        ("localhost:8787", 200),
        ("LOCALHOST", 200),
        ("app.localhost", 200),
        ("127.0.0.1:8787", 200),
        ("[::1]:8787", 200),
    ] {
        let local = Client::new(gateway.address(), None).with("host", host);
        assert_eq!(local.chat(chat::request("m")).await.status, status, "{host}");
        assert_eq!(local.get("/v1/models").await.unwrap().status, status, "{host}");
        assert_eq!(local.get("/v1/key").await.unwrap().status, status, "{host}");
        let key = gateway.client().with("host", host);
        assert_eq!(key.chat(chat::request("m")).await.status, 200, "{host} with a key");
    }
    let refused = Client::new(gateway.address(), Some("any")).with("host", "evil.example");
    let answer = refused.post("/v1/messages", chat::request("m")).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (403, &json!("permission_error")));
    let mut absolute = Raw::open(gateway.address()).await;
    absolute
        .send("GET http://evil.example/v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!(absolute.reply().await.status, 403);
}

#[tokio::test]
async fn the_local_mode_is_refused_on_an_open_address() {
    let setup =
        Setup::new(&Yaml::new()).env("LLMGW_ALLOW_UNAUTHENTICATED_API", "true").env("LLMGW_HOST", "0.0.0.0");
    let output = setup.run(&["serve"]).await;
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LLMGW_ALLOW_UNAUTHENTICATED_API"));
}

#[tokio::test]
async fn the_clients_key_and_identity_never_reach_the_upstream() {
    let (gateway, upstream) = gateway().await;
    let client = gateway
        .client()
        .with("x-api-key", ADMIN_KEY)
        .with("cookie", "session=1")
        .with("x-forwarded-for", "10.0.0.1")
        .with("x-forwarded-user", "root")
        .with("forwarded", "for=10.0.0.1")
        .with("x-llmgw-sso-secret", "s")
        .with("x-stainless-lang", "rust");
    assert_eq!(client.chat(chat::request("m")).await.status, 200);
    let received = upstream.request(0).await;
    assert_eq!(received.header("authorization"), Some("Bearer upstream-secret-of-up"));
    for name in [
        "x-api-key",
        "cookie",
        "x-forwarded-for",
        "x-forwarded-user",
        "forwarded",
        "x-llmgw-sso-secret",
        "x-stainless-lang",
    ] {
        assert_eq!(received.header(name), None, "{name}");
    }
    assert!(!received.head.contains(ADMIN_KEY));
}

/// P23.
#[tokio::test]
async fn no_request_field_changes_destination_or_credential() {
    let (gateway, upstream) = gateway().await;
    let elsewhere = Upstream::start().await;
    let base = elsewhere.base_url();
    let fields = format!(
        r#"{{"api_base": "{base}", "base_url": "{base}", "api_key": "stolen", "custom_host": "{base}", "provider": {{"base_url": "{base}"}}, "#
    );
    let body = chat::request("m").replacen('{', &fields, 1);
    let client = gateway.client().with("x-portkey-custom-host", &base).with("x-llmgw-provider", "other");
    assert_eq!(client.chat(body).await.status, 200);
    assert_eq!(elsewhere.requests().len() + elsewhere.connections(), 0);
    assert_eq!(upstream.request(0).await.header("authorization"), Some("Bearer upstream-secret-of-up"));
}

#[tokio::test]
async fn an_upstreams_error_never_shows_its_credential() {
    let (gateway, upstream) = gateway().await;
    let secret = "upstream-secret-of-up";
    let whole = chat::error(&format!("Incorrect API key provided: {secret}."), "invalid_api_key");
    upstream.then(Answer::whole(401, &[("content-type", "application/json"), ("x-debug", secret)], whole));
    let answer = gateway.client().chat(chat::request("m")).await;
    assert_eq!(answer.status, 401);
    assert!(!String::from_utf8_lossy(&answer.body).contains(secret), "{:?}", answer.body);
    assert!(answer.headers.values().all(|value| !String::from_utf8_lossy(value.as_bytes()).contains(secret)));

    let event = chat::event(&chat::error(&format!("bad key {secret}"), "x"));
    for length in [event.len(), 7, 1] {
        let answer = event.chunks(length).fold(Answer::stream().chunk(chat::content("a")), Answer::chunk);
        upstream.then(answer.end());
        let (events, _) = gateway.client().chat_flow(chat::stream_request("m")).await.rest().await;
        let text: Vec<u8> = events.iter().flat_map(|event| event.bytes.to_vec()).collect();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("error") && !text.contains(secret), "in pieces of {length}: {text}");
    }
    assert!(!gateway.log().contains(secret));
}
