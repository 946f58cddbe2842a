//! Providers of extensions serve requests as all others do: byte-exact, signed, cancelled at once, with failover before
//! output, records, catalogs and tests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Socket, described, expect_signed, lab, new, path, secret, url};
use crate::support::admin::Admin;
use crate::support::figure::{figure, promised, times};
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

/// A gateway with the extension `companion`, whose provider `lab` is the provider `own`, and the endpoint `line`: first
/// `own/m`, then `up/m`.
pub(super) struct Rig {
    pub(super) gateway: Gateway,
    pub(super) admin: Admin,
    pub(super) extension: Upstream,
    pub(super) up: Upstream,
}

impl Rig {
    pub(super) async fn start() -> Self {
        Self::start_with("retry_max_attempts: 1\ncircuit_failure_threshold: 0", async |extension| {
            url(extension)
        })
        .await
    }

    async fn start_with(policies: &str, address: impl AsyncFn(&Upstream) -> String) -> Self {
        let (extension, up) = (lab().await, Upstream::start().await);
        up.always(Answer::completion("from the other"));
        let gateway = Gateway::start(&Yaml::one(up.base_url()).policies(policies)).await;
        let admin = Admin(gateway.client());
        admin.done("POST", "extensions", new("companion", &address(&extension).await)).await;
        admin.done("POST", "providers", own(&json!({}))).await;
        let line = json!([{"provider": "own", "model": "m"}, {"provider": "up", "model": "m"}]);
        admin.done("POST", "endpoints", json!({"name": "line", "failover": line})).await;
        Self { gateway, admin, extension, up }
    }

    async fn provider(&self) -> Value {
        self.admin.done("GET", "providers/own", Value::Null).await
    }
}

/// Returns a request for `POST providers` with the provider `own` and these further settings.
fn own(more: &Value) -> Value {
    let mut settings = json!({
        "id": "own", "type": "extension", "extension": "companion", "extension_provider": "lab", "models": ["m"],
        "api_key": "credential-of-the-lab-0001",
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

#[tokio::test]
async fn a_provider_of_an_extension_serves_chat_byte_for_byte_over_http_and_a_socket() {
    let mut sockets = Vec::new();
    for over_socket in [false, true] {
        let mut address = String::new();
        let rig = Rig::start_with("retry_max_attempts: 1", async |extension| url(extension)).await;
        if over_socket {
            sockets.push(Socket::before(&rig.extension));
            address = sockets[0].url();
            rig.admin.done("PATCH", "extensions/companion", json!({"url": address})).await;
        }
        rig.extension.then(Answer::completion("whole")).then(Answer::events(&chat::events(&["hel", "lo"])));
        let whole = rig.gateway.client().chat(chat::request("own/m")).await;
        assert_eq!((whole.status, &whole.body[..]), (200, chat::completion("whole").as_bytes()), "{address}");
        let mut flow = rig.gateway.client().chat_flow(chat::stream_request_with_usage("own/m")).await;
        let (events, ended) = flow.rest().await;
        let bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes.to_vec()).collect();
        assert_eq!((bytes, ended), (chat::events(&["hel", "lo"]).concat(), true));

        let requests = rig.extension.requests();
        let targets: Vec<&str> = requests.iter().map(path).collect();
        assert_eq!(targets, ["/v1/lab/invoke?dialect=chat", "/v1/lab/stream?dialect=chat"]);
        assert_ne!(expect_signed(&requests[0]), expect_signed(&requests[1]), "each call has its own ID");
        for request in &requests {
            assert_eq!(request.header("x-llmgw-credential"), Some("credential-of-the-lab-0001"));
            assert_eq!(request.json()["model"], "m");
        }
        let records = rig.gateway.records(2).await;
        for record in &records {
            assert_eq!((&record["provider"], &record["outcome"]), (&json!("own"), &json!("completed")));
            let tokens = &record["tokens"];
            assert_eq!((&tokens["input"], &tokens["output"]), (&json!(11), &json!(7)), "{record}");
        }
    }
}

#[tokio::test]
async fn a_provider_speaks_the_dialects_that_its_settings_list() {
    let rig = Rig::start().await;
    rig.admin.done("PATCH", "providers/own", json!({"protocols": ["messages"]})).await;
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 3, "output_tokens": 2},
    });
    rig.extension.then(Answer::json(200, message.to_string())).then(Answer::json(200, message.to_string()));
    let ask = json!({"model": "own/m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let native = rig.gateway.client().post("/v1/messages", ask.to_string()).await;
    assert_eq!((native.status, native.json()), (200, message), "{native:?}");
    let adapted = rig.gateway.client().chat(chat::request("own/m")).await;
    assert_eq!(adapted.json()["choices"][0]["message"]["content"], "hi", "{adapted:?}");
    assert_eq!(adapted.header("x-llmgw-adapted"), Some("messages"));
    let requests = rig.extension.requests();
    let targets: Vec<&str> = requests.iter().map(path).collect();
    assert_eq!(targets, ["/v1/lab/invoke?dialect=messages"; 2]);
    requests.iter().for_each(|request| drop(expect_signed(request)));
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_connection_to_the_extension_at_once() {
    const ROUNDS: usize = 10;
    let mut socket = None;
    for over_socket in [false, true] {
        let rig = Rig::start().await;
        if over_socket {
            let socket = socket.insert(Socket::before(&rig.extension));
            rig.admin.done("PATCH", "extensions/companion", json!({"url": socket.url()})).await;
        }
        rig.extension.always(Answer::stream().chunk(chat::role()).chunk(chat::content("a")).hang());
        let mut taken = Vec::new();
        for round in 0..ROUNDS {
            let mut flow = rig.gateway.client().chat_flow(chat::stream_request("line")).await;
            flow.event().await;
            flow.event().await;
            let left = Instant::now();
            drop(flow);
            taken.push(rig.extension.closed(round).await.saturating_duration_since(left));
        }
        let over = if over_socket { "over a socket" } else { "over TCP" };
        figure("P1", format!("a client leaves a stream of an extension {over}: {}", times(&mut taken)));
        assert!(taken[ROUNDS / 2] <= promised(Duration::from_millis(100)), "{taken:?}");
        assert_eq!(rig.up.requests().len(), 0, "no failover");
        let records = rig.gateway.records(ROUNDS).await;
        assert!(records.iter().all(|record| record["outcome"] == "cancelled"), "{records:?}");
    }
}

#[tokio::test]
async fn an_extension_that_fails_before_output_is_replaced_and_its_circuit_opens() {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 4\ncircuit_cooldown_seconds: 600";
    let rig = Rig::start_with(policies, async |extension| url(extension)).await;
    // Every answer ends its connection: a connection that breaks when it is used again is no failure of the provider.
    let unavailable = Answer::whole(503, &[("connection", "close")], chat::error("busy", "scripted")).close();
    let early = Answer::stream().chunk(chat::role()).reset();
    for answer in [unavailable, early, Answer::new().close(), Answer::new().reset()] {
        rig.extension.then(answer);
        let served = rig.gateway.client().chat(chat::request("line")).await;
        assert_eq!(served.json()["choices"][0]["message"]["content"], "from the other", "{served:?}");
    }
    let health = rig.admin.done("GET", "health/providers", Value::Null).await;
    let own = health["data"].as_array().unwrap().iter().find(|row| row["provider"] == "own").unwrap().clone();
    assert_eq!(own["circuit"]["state"], "open", "{own}");
    rig.gateway.client().chat(chat::request("line")).await;
    assert_eq!(rig.extension.requests().len(), 4, "an open circuit is not asked");

    // After output, the stream breaks off: there is no failover.
    rig.admin.done("PATCH", "extensions/companion", json!({"secret": other_secret()})).await;
    rig.extension.then(Answer::stream().chunk(chat::role()).chunk(chat::content("a")).reset());
    let mut flow = rig.gateway.client().chat_flow(chat::stream_request("line")).await;
    let (events, _) = flow.rest().await;
    assert_eq!(
        events[1].bytes,
        chat::content("a"),
        "a new secret is another upstream, whose circuit is closed"
    );
    assert_eq!(rig.up.requests().len(), 5, "no failover");
}

fn other_secret() -> String {
    secret().replace("whsec_", "whsec_AAAA")
}

#[tokio::test]
async fn changes_to_an_extension_apply_to_the_next_request() {
    let rig = Rig::start().await;
    let client = rig.gateway.client();
    rig.extension.then(Answer::completion("one")).then(Answer::completion("two"));
    assert_eq!(client.chat(chat::request("own/m")).await.status, 200);
    let patched = rig.admin.done("PATCH", "extensions/companion", json!({"enabled": false})).await;
    assert_eq!(patched["used_by"], json!(["own"]));
    let provider = rig.provider().await;
    assert_eq!(
        (&provider["state"], &provider["reason"]),
        (&json!("disabled"), &json!("Its extension 'companion' is disabled."))
    );
    assert_eq!(client.chat(chat::request("own/m")).await.status, 404);
    assert_eq!(client.chat(chat::request("line")).await.status, 200, "the endpoint has another target");

    let dry = rig.admin.done("PATCH", "extensions/companion?dry_run=true", json!({"enabled": true})).await;
    assert_eq!(dry["object"]["enabled"], true);
    rig.admin.done("PATCH", "extensions/companion", json!({"enabled": true, "secret": other_secret()})).await;
    assert_eq!(client.chat(chat::request("own/m")).await.status, 200);
    let sent = rig.extension.request(1).await;
    assert_eq!(sent.header("authorization"), Some(&*format!("Bearer {}", other_secret())));

    let refused = rig.admin.call("DELETE", "extensions/companion", Value::Null).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("Providers use it: own"));
    rig.admin.done("DELETE", "endpoints/line", Value::Null).await;
    rig.admin.done("DELETE", "providers/own", Value::Null).await;
    rig.admin.done("DELETE", "extensions/companion", Value::Null).await;
    let orphan = rig.admin.call("POST", "providers", own(&json!({}))).await;
    assert_eq!((orphan.status, &orphan.json()["error"]["param"]), (400, &json!("extension")), "{orphan:?}");
}

#[tokio::test]
async fn catalogs_and_test_completions_of_an_extension_work_as_those_of_any_provider() {
    let rig = Rig::start().await;
    let socket = Socket::before(&rig.extension);
    rig.admin.done("PATCH", "extensions/companion", json!({"url": socket.url()})).await;
    let synced = rig.admin.done("POST", "providers/own/sync", Value::Null).await;
    assert_eq!(synced["models"], 2, "{synced}");
    let listed = rig.gateway.client().get("/v1/models").await.unwrap().json();
    let ids: Vec<&str> =
        listed["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    assert!(ids.contains(&"own/n"), "{ids:?}");
    let prices = json!({"provider": "own", "model": "n", "facts": {"prices": {"input": 1, "output": 2}}});
    rig.admin.done("POST", "catalog/overrides", prices).await;
    rig.extension
        .answering(|request| described(request).unwrap_or_else(|| Answer::events(&chat::events(&["pong"]))));
    let trial = rig.admin.done("POST", "providers/own/test", json!({"model": "n"})).await;
    assert_eq!((&trial["ok"], &trial["answer"]), (&json!(true), &json!("pong")), "{trial}");
    assert_eq!(trial["record"]["cost_micro_usd"], 25.0, "{trial}");
    let evidence = &rig.provider().await["evidence"];
    assert!(evidence["inference"]["proven_at_ms"].is_u64() && evidence["catalog"]["synced_at_ms"].is_u64());
    rig.extension.requests().iter().for_each(|request| drop(expect_signed(request)));
}

/// A provider of the configuration file waits for its extension, which is stored in the database.
#[tokio::test]
async fn a_provider_of_the_file_is_connected_when_its_extension_is_added() {
    let extension = lab().await;
    let yaml = "providers:\n  lab:\n    type: extension\n    extension: companion\n    models: [m]\n";
    let gateway = crate::support::gateway::Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let admin = Admin(gateway.client());
    let provider = admin.done("GET", "providers/lab", Value::Null).await;
    assert_eq!(provider["state"], "faulty", "{provider}");
    assert!(provider["reason"].as_str().unwrap().contains("no extension 'companion'"), "{provider}");
    admin.done("POST", "extensions", new("companion", &url(&extension))).await;
    let provider = admin.done("GET", "providers/lab", Value::Null).await;
    assert_eq!((&provider["state"], &provider["extension_provider"]), (&json!("ready"), &json!("lab")));
    extension.then(Answer::completion("hi"));
    assert_eq!(gateway.client().chat(chat::request("lab/m")).await.status, 200);
    assert_eq!(extension.request(0).await.header("x-llmgw-credential"), None, "it has no credential");
    assert_eq!(admin.call("DELETE", "extensions/companion", Value::Null).await.status, 409);
}

#[tokio::test]
async fn a_stream_of_an_extension_arrives_event_by_event() {
    let rig = Rig::start().await;
    let gate = Gate::new();
    rig.extension.then(Answer::gated_events(&chat::events(&["a", "b"]), &gate));
    gate.open(2);
    let mut flow = rig.gateway.client().chat_flow(chat::stream_request("own/m")).await;
    assert_eq!(flow.event().await.bytes, chat::role());
    assert_eq!(flow.event().await.bytes, chat::content("a"));
    gate.open(9);
    let (events, ended) = flow.rest().await;
    assert_eq!((events.len(), ended), (3, true), "the usage chunk was not asked for");
}
