//! Stored responses by their IDs, through the real binary: fetched, streamed, deleted, cancelled and listed at the provider
//! and with the key that made them, also after kills, and for their owner alone.

mod by_model;
mod vendor;

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};

use self::vendor::{Vendor, events, input_items};
use crate::support::admin::{Admin, NewKey};
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, wait};

/// Two vendors behind `line`, and a target `chat` that speaks another protocol.
struct Rig {
    gateway: Gateway,
    vendors: [Vendor; 2],
    chat: Upstream,
    blue: String,
    red: NewKey,
}

impl Rig {
    async fn start() -> Self {
        let (vendors, chat) = ([Vendor::start("a").await, Vendor::start("b").await], Upstream::start().await);
        let gateway = Setup::new(&Yaml::new()).yaml(file(&vendors, &chat, &json!({}))).start().await;
        let admin = Admin(gateway.client());
        let blue = admin.key(json!({"project": admin.project("blue").await})).await.key;
        let red = admin.key(json!({"project": admin.project("red").await})).await;
        Self { gateway, vendors, chat, blue, red }
    }

    fn client(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.blue)).with("content-type", "application/json")
    }

    fn stranger(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.red.key)).with("content-type", "application/json")
    }

    /// Kills the gateway at once and starts it again, without what it keeps in a file.
    async fn kill(self) -> Self {
        let setup = self.gateway.kill().await;
        let _ = std::fs::remove_file(setup.state().join("affinity"));
        Self { gateway: setup.start().await, ..self }
    }

    /// Changes the settings of the first vendor.
    async fn reconfigure(&self, members: Value) {
        let admin = Admin(self.gateway.client());
        let before = admin.done("GET", "state", Value::Null).await["generation"].clone();
        self.gateway.write_config(file(&self.vendors, &self.chat, &members));
        self.gateway.signal(Signal::HUP);
        wait::eventually("the new configuration", async || {
            (admin.done("GET", "state", Value::Null).await["generation"] != before).then_some(())
        })
        .await;
    }
}

fn file(vendors: &[Vendor; 2], chat: &Upstream, members: &Value) -> String {
    let provider = |upstream: &Upstream, protocol: &str| {
        json!({"type": "compatible", "base_url": upstream.base_url(), "models": ["m"], "protocols": [protocol],
            "api_key": "vendor-key-number-one"})
    };
    let mut first = provider(&vendors[0].upstream, "responses");
    for (name, value) in members.as_object().unwrap() {
        first[name] = value.clone();
    }
    json!({
        "providers": {"a": first, "b": provider(&vendors[1].upstream, "responses"), "chat": provider(chat, "chat")},
        "endpoints": {"line": {"failover": [{"provider": "a", "model": "m"}, {"provider": "b", "model": "m"}]}},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 2,
            "circuit_cooldown_seconds": 3600}},
    })
    .to_string()
}

/// Makes a response and returns its ID.
async fn make(client: &Client, model: &str, members: Value) -> String {
    let mut body = json!({"model": model, "input": "hi"});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    let answer = client.post("/v1/responses", body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn send(client: &Client, method: &str, path: &str) -> Whole {
    // The header that a client sends with its bodies is left out where there is none.
    client.send(method, path, Bytes::new()).await.unwrap()
}

/// Asserts that the gateway knows no response of the caller with this ID, in whatever operation.
async fn assert_unknown(client: &Client, id: &str) {
    for (method, rest) in
        [("GET", ""), ("GET", "?stream=true"), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]
    {
        let answer = send(client, method, &format!("/v1/responses/{id}{rest}")).await;
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (404, "not_found"),
            "{method} {rest}: {answer:?}"
        );
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["type"], &error["param"]),
            (&json!("invalid_request_error"), &json!("response_id"))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("Response with id '{id}' not found.")), "{message}");
        assert!(message.contains("Use the 'id' of a response"), "{message}");
    }
}

#[tokio::test]
async fn each_operation_goes_to_the_provider_that_made_the_response_and_its_bytes_pass() {
    let rig = Rig::start().await;
    let client = rig.client();
    for (vendor, model) in rig.vendors.iter().zip(["a/m", "b/m"]) {
        let provider = model.split('/').next();
        let id = make(&client, model, json!({})).await;
        let path = format!("/v1/responses/{id}");
        let from = vendor.upstream.requests().len();
        let got =
            send(&client, "GET", &format!("{path}?include[]=message.output_text.logprobs&include[]=x%20y"))
                .await;
        assert_eq!((got.status, got.header("x-llmgw-provider")), (200, provider), "{got:?}");
        assert_eq!(got.body, vendor.text_of(&id), "byte for byte");
        assert_eq!(got.header("content-type"), Some("application/json"));

        let listed = send(&client, "GET", &format!("{path}/input_items?limit=2&after=msg_9&order=asc")).await;
        assert_eq!(
            (listed.status, &*listed.body),
            (200, input_items(&id, "limit=2&after=msg_9&order=asc").as_bytes())
        );

        let refused = send(&client, "POST", &format!("{path}/cancel")).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert_eq!(refused.json()["error"]["message"], "Cannot cancel a synchronous response.");

        let heads: Vec<String> = vendor.upstream.requests()[from..]
            .iter()
            .map(|request| request.head.lines().next().unwrap().to_owned())
            .collect();
        assert_eq!(
            heads,
            [
                format!("GET {path}?include[]=message.output_text.logprobs&include[]=x%20y HTTP/1.1"),
                format!("GET {path}/input_items?limit=2&after=msg_9&order=asc HTTP/1.1"),
                format!("POST {path}/cancel HTTP/1.1"),
            ]
        );
    }
    assert!(rig.chat.requests().is_empty());
}

#[tokio::test]
async fn a_failed_response_a_long_one_and_its_stream_pass_unread() {
    let rig = Rig::start().await;
    let client = rig.client();
    let failed = make(&client, "a/m", json!({"metadata": {"fails": "later"}})).await;
    let got = send(&client, "GET", &format!("/responses/{failed}")).await;
    assert_eq!((got.status, &got.body), (200, &Bytes::from(rig.vendors[0].text_of(&failed))));

    let long = make(&client, "a/m", json!({"metadata": {"output": "long ".repeat(60_000)}})).await;
    let got = send(&client, "GET", &format!("/v1/responses/{long}")).await;
    assert!(got.body.len() > 300_000);
    assert_eq!((got.status, &got.body), (200, &Bytes::from(rig.vendors[0].text_of(&long))));

    for (query, from) in
        [("stream=true", 0), ("stream=true&starting_after=0", 1), ("starting_after=2&stream=true", 3)]
    {
        let got = send(&client, "GET", &format!("/v1/responses/{failed}?{query}")).await;
        assert_eq!(got.header("content-type"), Some("text/event-stream; charset=utf-8"), "{got:?}");
        assert_eq!(got.body, events(&failed)[from..].concat(), "{query}");
    }
}

#[tokio::test]
async fn a_response_that_is_fetched_many_times_is_billed_once() {
    let rig = Rig::start().await;
    let client = rig.client();
    let id = make(&client, "a/m", json!({})).await;
    for _ in 0..5 {
        assert_eq!(send(&client, "GET", &format!("/v1/responses/{id}")).await.status, 200);
    }
    send(&client, "GET", &format!("/v1/responses/{id}?stream=true")).await;
    let records = rig.gateway.records(7).await;
    let tokens = |record: &Value| {
        record["tokens"]["input"].as_u64().unwrap() + record["tokens"]["output"].as_u64().unwrap()
    };
    assert_eq!(records.iter().map(tokens).sum::<u64>(), 18, "{records:?}");
    for record in records.iter().filter(|record| record["operation"] == "stored_responses") {
        let told =
            ["status", "provider", "model", "cost_micro_usd", "outcome"].map(|name| record[name].clone());
        assert_eq!(told[..3], [json!(200), json!("a"), Value::Null], "{record}");
        assert_eq!((told[3].as_f64(), &told[4]), (Some(0.0), &json!("completed")), "{record}");
    }
    assert_eq!(records.iter().filter(|record| record["operation"] == "stored_responses").count(), 6);
}

#[tokio::test]
async fn a_response_belongs_to_the_project_that_made_it() {
    let rig = Rig::start().await;
    let id = make(&rig.client(), "b/m", json!({})).await;
    let from = rig.vendors[1].upstream.requests().len();
    assert_unknown(&rig.stranger(), &id).await;
    assert_unknown(&rig.gateway.client(), &id).await;
    assert_unknown(&rig.client(), "resp_of_nobody").await;
    let plain = Client::new(rig.gateway.address(), None);
    assert_eq!(send(&plain, "GET", &format!("/v1/responses/{id}")).await.status, 401);
    assert_eq!(rig.vendors[1].upstream.requests().len(), from, "no provider is asked");
    assert!(rig.vendors[1].has(&id), "nobody else deletes it");
    // Another key of the same project reads it.
    let admin = Admin(rig.gateway.client());
    let project = admin.done("GET", "projects?limit=100", Value::Null).await;
    let blue =
        project["data"].as_array().unwrap().iter().find(|row| row["name"] == "blue").unwrap()["id"].clone();
    let second = admin.key(json!({"project": blue})).await.key;
    let colleague = Client::new(rig.gateway.address(), Some(&second));
    assert_eq!(send(&colleague, "GET", &format!("/v1/responses/{id}")).await.status, 200);
    // A key that may not make responses may not read them either.
    let chats = admin.key(json!({"project": blue, "routes": ["chat_completions"]})).await.key;
    let refused =
        send(&Client::new(rig.gateway.address(), Some(&chats)), "GET", &format!("/v1/responses/{id}")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "not_allowed"), "{refused:?}");
}

#[tokio::test]
async fn responses_are_found_after_a_kill_between_their_creation_and_their_use() {
    let mut rig = Rig::start().await;
    for round in 0..3 {
        let mut made = Vec::new();
        for model in ["a/m", "b/m", "a/m"] {
            made.push(make(&rig.client(), model, json!({})).await);
        }
        let kept_apart = make(&rig.client(), "a/m", json!({"store": false})).await;
        // Killed while the records are on their way to the database, or when they are there.
        if round == 1 {
            rig.gateway.records(8).await;
        }
        rig = rig.kill().await;
        let first = wait::eventually("the origins", async || {
            let got = send(&rig.client(), "GET", &format!("/v1/responses/{}", made[0])).await;
            (got.status != 503).then_some(got)
        })
        .await;
        assert_eq!(
            (first.status, first.body),
            (200, Bytes::from(rig.vendors[0].text_of(&made[0]))),
            "{round}"
        );
        let second = send(&rig.client(), "GET", &format!("/v1/responses/{}", made[1])).await;
        assert_eq!((second.status, second.header("x-llmgw-provider")), (200, Some("b")));
        assert_unknown(&rig.stranger(), &made[2]).await;
        assert_unknown(&rig.client(), &kept_apart).await;
    }
}

#[tokio::test]
async fn a_deleted_response_is_forgotten_also_after_a_kill() {
    let rig = Rig::start().await;
    let client = rig.client();
    let (id, other) = (make(&client, "a/m", json!({})).await, make(&client, "a/m", json!({})).await);
    let deleted = send(&client, "DELETE", &format!("/v1/responses/{id}")).await;
    assert_eq!(deleted.json(), json!({"id": id, "object": "response.deleted", "deleted": true}));
    assert!(!rig.vendors[0].has(&id));
    let asked = rig.vendors[0].upstream.requests().len();
    assert_unknown(&client, &id).await;
    assert_eq!(rig.vendors[0].upstream.requests().len(), asked, "the provider is not asked again");
    let go_on = json!({"model": "line", "input": "go on", "previous_response_id": id}).to_string();
    let refused = client.post("/v1/responses", go_on).await;
    assert_eq!(refused.error_code(), "previous_response_not_found");
    for _ in 0..2 {
        assert_eq!(send(&client, "GET", &format!("/v1/responses/{other}")).await.status, 200);
    }
    let rig = rig.kill().await;
    wait::eventually("the origins", async || {
        let got = send(&rig.client(), "GET", &format!("/v1/responses/{other}")).await;
        (got.status == 200).then_some(())
    })
    .await;
    assert_unknown(&rig.client(), &id).await;
    // What the vendor has deleted by itself is forgotten with the first deletion.
    let gone = Client::new(rig.vendors[0].upstream.address(), None)
        .with("authorization", "Bearer vendor-key-number-one");
    assert_eq!(
        gone.send("DELETE", &format!("/v1/responses/{other}"), Bytes::new()).await.unwrap().status,
        200
    );
    let refused = send(&rig.client(), "DELETE", &format!("/v1/responses/{other}")).await;
    assert_eq!(refused.status, 404, "the vendor's own words: {refused:?}");
    assert_eq!(refused.json()["error"]["message"], format!("Response with id '{other}' not found."));
    assert_unknown(&rig.client(), &other).await;
}

#[tokio::test]
async fn a_provider_that_cannot_serve_a_response_any_more_is_named() {
    let rig = Rig::start().await;
    let client = rig.client();
    let id = make(&client, "a/m", json!({})).await;
    rig.gateway.records(1).await;
    let path = format!("/v1/responses/{id}");
    for (members, status, code, words) in [
        (json!({"disabled": true}), 503, "no_eligible_target", "'a', is disabled or deleted"),
        (
            json!({"base_url": rig.vendors[1].upstream.base_url()}),
            503,
            "no_eligible_target",
            "another address or key",
        ),
        (
            json!({"protocols": ["chat"]}),
            400,
            "unsupported_route",
            "'a', which made the response, does not serve",
        ),
    ] {
        rig.reconfigure(members.clone()).await;
        let refused = send(&client, "GET", &path).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (status, code), "{members}: {refused:?}");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{message}");
    }
    assert!(rig.vendors[1].upstream.requests().is_empty(), "no other provider is asked");
    rig.reconfigure(json!({"api_key": "vendor-key-number-one", "headers": {"x-team": "red"}})).await;
    assert_eq!(send(&client, "GET", &path).await.status, 200, "it is there again");
}

#[tokio::test]
async fn no_other_provider_is_asked_and_an_open_circuit_does_not_matter() {
    let rig = Rig::start().await;
    let client = rig.client();
    let id = make(&client, "a/m", json!({})).await;
    let body = json!({"model": "line", "input": "hi"}).to_string();
    for _ in 0..2 {
        rig.vendors[0].upstream.then(Answer::error(500));
        assert_eq!(client.post("/v1/responses", body.clone()).await.header("x-llmgw-provider"), Some("b"));
    }
    let asked = rig.vendors[1].upstream.requests().len();
    assert_eq!(
        send(&client, "GET", &format!("/v1/responses/{id}")).await.status,
        200,
        "the circuit of a is open"
    );
    for (status, want) in [(500, 500), (429, 429)] {
        rig.vendors[0].upstream.then(Answer::error(status));
        let refused = send(&client, "GET", &format!("/v1/responses/{id}")).await;
        assert_eq!(refused.status, want, "{refused:?}");
    }
    rig.vendors[0].upstream.then(Answer::whole(302, &[("location", "https://elsewhere.example/")], ""));
    let refused = send(&client, "GET", &format!("/v1/responses/{id}")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (502, "upstream_invalid_response"));
    rig.vendors[0]
        .upstream
        .then(Answer::new().send("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{").close());
    let refused = send(&client, "GET", &format!("/v1/responses/{id}")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (502, "upstream_invalid_response"));
    assert_eq!(rig.vendors[1].upstream.requests().len(), asked);
    let secret = json!({"error": {"message": "bad key vendor-key-number-one", "type": "x"}}).to_string();
    rig.vendors[0].upstream.then(Answer::json(400, secret));
    let refused = send(&client, "GET", &format!("/v1/responses/{id}")).await;
    assert!(!String::from_utf8_lossy(&refused.body).contains("vendor-key"), "{refused:?}");
}

#[tokio::test]
async fn with_several_keys_each_response_is_asked_for_with_its_own() {
    let rig = Rig::start().await;
    let keys = ["vendor-key-number-one", "vendor-key-number-two", "vendor-key-number-six"];
    let several = |keys: &[&str]| json!({"api_key": null, "api_keys": keys});
    rig.reconfigure(several(&keys)).await;
    let mut made = Vec::new();
    for _ in 0..12 {
        made.push(make(&rig.client(), "a/m", json!({})).await);
    }
    let requests = rig.vendors[0].upstream.requests();
    let used: Vec<_> =
        requests.iter().map(|request| request.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(used.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    let rig = rig.kill().await;
    let turned = [keys[2], keys[0], keys[1]];
    rig.reconfigure(several(&turned)).await;
    for (id, key) in made.iter().zip(&used) {
        let got = wait::eventually("the origins", async || {
            let got = send(&rig.client(), "GET", &format!("/v1/responses/{id}")).await;
            (got.status != 503).then_some(got)
        })
        .await;
        assert_eq!(got.status, 200, "the vendor knows a response by its key alone: {got:?}");
        let last = rig.vendors[0].upstream.requests().pop().unwrap();
        assert_eq!(last.header("authorization"), Some(key.as_str()));
    }
    rig.reconfigure(several(&turned[..2])).await;
    let lost = used.iter().position(|key| key.ends_with("two")).unwrap();
    rig.gateway.records(24).await;
    let refused = send(&rig.client(), "GET", &format!("/v1/responses/{}", made[lost])).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (503, "no_eligible_target"), "{refused:?}");
}

#[tokio::test]
async fn requests_count_in_quotas_and_tokens_do_not() {
    let rig = Rig::start().await;
    let admin = Admin(rig.gateway.client());
    let id = make(&rig.stranger(), "a/m", json!({})).await;
    let limit = |metric: &str, amount: u64| json!({"subject": {"kind": "key", "id": rig.red.id}, "metric": metric, "window": "day", "limit": amount});
    admin.create("quotas", limit("requests", 4)).await;
    admin.create("quotas", limit("total_tokens", 20)).await;
    let path = format!("/v1/responses/{id}");
    for left in [2, 1, 0] {
        let got = send(&rig.stranger(), "GET", &path).await;
        assert_eq!(got.status, 200, "{got:?}");
        assert_eq!(got.header("x-ratelimit-remaining-requests"), Some(left.to_string().as_str()));
    }
    let asked = rig.vendors[0].upstream.requests().len();
    let refused = send(&rig.stranger(), "GET", &path).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "quota_exceeded"), "{refused:?}");
    assert_eq!(rig.vendors[0].upstream.requests().len(), asked);
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let rig = Rig::start().await;
    for (method, path, status, allow) in [
        ("PUT", "/v1/responses/resp_1", 405, Some("GET, DELETE, OPTIONS")),
        ("GET", "/v1/responses/resp_1/cancel", 405, Some("POST, OPTIONS")),
        ("DELETE", "/v1/responses/resp_1/input_items", 405, Some("GET, OPTIONS")),
        ("GET", "/v1/responses/compact", 405, Some("POST, OPTIONS")),
        ("GET", "/v1/responses/resp_1/output", 404, None),
        ("GET", "/v1/responses/resp_1%2Finput_items", 404, None),
        ("GET", "/v1/responses/%2e%2e", 404, None),
    ] {
        let answer = send(&rig.client(), method, path).await;
        assert_eq!((answer.status, answer.header("allow")), (status, allow), "{method} {path}: {answer:?}");
    }
}
