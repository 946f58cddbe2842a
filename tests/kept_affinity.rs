//! Stored responses and encrypted reasoning stay with their account over a restart: responses and conversations by the
//! database, which gets them with the records; reasoning by the file `affinity` of the state.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::{Admin, NewKey};
use crate::support::figure::is_full;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, wait};

/// An account whose answers have IDs and encrypted reasoning of their own.
async fn account(name: &'static str) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.answering(move |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let subject = body["metadata"]["conversation"].as_str().unwrap_or("none").to_owned();
        let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [],
            "encrypted_content": secret(name, &subject)});
        let response = json!({"id": id(name, &subject), "object": "response", "created_at": 1, "status": "completed",
            "error": null, "model": "m", "output": [reasoning],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}});
        Answer::json(200, response.to_string())
    });
    upstream
}

fn id(account: &str, conversation: &str) -> String {
    format!("resp_{account}_{conversation}")
}

fn secret(account: &str, conversation: &str) -> String {
    format!("gAAAAA-{account}-{conversation}-").repeat(20)
}

async fn ask(client: &Client, members: Value) -> (u16, Option<String>, Value) {
    let answer = client.post("/v1/responses", members.to_string()).await;
    let provider = answer.header("x-llmgw-provider").map(str::to_owned);
    (answer.status, provider, answer.json())
}

/// Begins conversations at both accounts.
async fn begin(client: &Client, name: &str, count: usize) {
    let mut asking = JoinSet::new();
    for n in 0..count {
        let (client, provider) = (client.clone(), ["p0", "p1"][n % 2]);
        let first = json!({"model": format!("{provider}/m"), "input": "hi", "metadata": {"conversation": format!("{name}{n}")}});
        asking.spawn(async move { ask(&client, first).await.0 });
    }
    assert!(asking.join_all().await.into_iter().all(|status| status == 200));
}

/// Goes on with each conversation at an endpoint of both accounts, by the ID of its response and by its reasoning.
async fn go_on(client: &Client, name: &str, count: usize) {
    let mut asking = JoinSet::new();
    for n in 0..count {
        let (client, provider) = (client.clone(), ["p0", "p1"][n % 2]);
        let conversation = format!("{name}{n}");
        let item = json!({"type": "reasoning", "id": "rs_1", "summary": [],
            "encrypted_content": secret(provider, &conversation)});
        let stored =
            json!({"model": "line", "input": "go on", "previous_response_id": id(provider, &conversation)});
        asking.spawn(async move {
            for members in [stored, json!({"model": "line", "input": [item]})] {
                let (status, served_by, answer) = ask(&client, members).await;
                assert_eq!((status, served_by.as_deref()), (200, Some(provider)), "{answer}");
            }
        });
    }
    asking.join_all().await;
}

/// Begins a hundred conversations at the second account, and returns when `count` of them are answered: their numbers.
async fn begin_until(client: &Client, name: &str, count: usize) -> Vec<usize> {
    let mut asking = JoinSet::new();
    for n in 0..100 {
        let client = client.clone();
        let first =
            json!({"model": "p1/m", "input": "hi", "metadata": {"conversation": format!("{name}{n}")}});
        asking.spawn(async move {
            let answer = client.send("POST", "/v1/responses", first.to_string().into()).await;
            (n, answer.is_ok_and(|answer| answer.status == 200))
        });
    }
    let mut answered = Vec::new();
    while answered.len() < count
        && let Some(ended) = asking.join_next().await
    {
        let (n, is_answered) = ended.unwrap();
        assert!(is_answered, "{name}{n}");
        answered.push(n);
    }
    answered
}

/// Goes on with each conversation by the ID of its response alone.
async fn go_on_stored(client: &Client, name: &str, count: usize) {
    let mut asking = JoinSet::new();
    for n in 0..count {
        let (client, provider) = (client.clone(), ["p0", "p1"][n % 2]);
        let stored = json!({"model": "line", "input": "go on",
            "previous_response_id": id(provider, &format!("{name}{n}"))});
        asking.spawn(async move {
            let (status, served_by, answer) = ask(&client, stored).await;
            assert_eq!((status, served_by.as_deref()), (200, Some(provider)), "{answer}");
        });
    }
    asking.join_all().await;
}

/// Asserts that a request that continues this response is refused in the words by which clients send everything again.
async fn assert_unknown(client: &Client, id: &str) {
    let (status, _, refused) =
        ask(client, json!({"model": "line", "input": "go on", "previous_response_id": id})).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("previous_response_not_found")),
        "{refused}"
    );
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains(id) && message.contains("Send the whole conversation"), "{message}");
}

struct Rig {
    gateway: Gateway,
    key_id: String,
    key: String,
    other_key: String,
    _accounts: [Upstream; 2],
}

impl Rig {
    async fn start() -> Self {
        Self::start_with("LLMGW_USAGE_DB", "false").await
    }

    async fn start_with(variable: &str, value: &str) -> Self {
        let accounts = [account("p0").await, account("p1").await];
        let yaml = Yaml::new()
            .provider_with("p0", accounts[0].base_url(), "protocols: [responses]")
            .provider_with("p1", accounts[1].base_url(), "protocols: [responses]")
            .endpoint("line", &[("p0", "m"), ("p1", "m")]);
        let gateway = Setup::new(&yaml).env(variable, value).start().await;
        let admin = Admin(gateway.client());
        let NewKey { id: key_id, key } = admin.key(json!({"project": admin.project("blue").await})).await;
        let other_key = admin.key(json!({"project": admin.project("red").await})).await.key;
        Self { gateway, key_id, key, other_key, _accounts: accounts }
    }

    fn client(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.key)).with("content-type", "application/json")
    }

    fn stranger(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.other_key)).with("content-type", "application/json")
    }

    /// Kills the gateway, and starts it again without the file of affinity.
    async fn kill(self) -> Self {
        let setup = self.gateway.kill().await;
        let _ = fs::remove_file(setup.state().join("affinity"));
        Self { gateway: setup.start().await, ..self }
    }

    /// Stops the gateway as a supervisor does, changes its state, and starts it again.
    async fn restart(mut self, change: impl FnOnce(&std::path::Path)) -> Self {
        self.gateway.signal(Signal::TERM);
        assert_eq!(self.gateway.exit().await.code(), Some(0), "{}", self.gateway.log());
        let setup = self.gateway.kill().await;
        change(&setup.state().join("affinity"));
        Self { gateway: setup.start().await, ..self }
    }
}

#[tokio::test]
async fn conversations_go_on_at_their_account_after_a_restart() {
    let count = if is_full() { 1_000 } else { 100 };
    let rig = Rig::start().await;
    begin(&rig.client(), "a", count).await;
    let rig = rig.restart(|_| ()).await;
    go_on(&rig.client(), "a", count).await;
    assert_unknown(&rig.stranger(), &id("p0", "a0")).await;

    // Reasoning of the last minute may be lost with the process; what is stored stays.
    begin(&rig.client(), "b", 10).await;
    let rig = Rig { gateway: rig.gateway.restart().await, ..rig };
    go_on(&rig.client(), "a", count).await;
    assert!(!rig.gateway.log().contains("cannot be used"), "{}", rig.gateway.log());
}

#[tokio::test]
async fn a_damaged_or_missing_file_of_affinity_forgets_no_stored_response() {
    let mut rig = Rig::start().await;
    let flip = |path: &std::path::Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[40] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let remove = |path: &std::path::Path| fs::remove_file(path).unwrap();
    for (name, change, is_logged) in
        [("damaged", &flip as &dyn Fn(&std::path::Path), true), ("missing", &remove, false)]
    {
        begin(&rig.client(), name, 2).await;
        rig = rig.restart(change).await;
        go_on_stored(&rig.client(), name, 2).await;
        let line = "affinity cannot be used (it is damaged";
        wait::eventually(name, async || (rig.gateway.log().contains(line) == is_logged).then_some(())).await;
    }
}

#[tokio::test]
async fn stored_responses_survive_a_kill_and_stay_with_their_owner() {
    for apart in ["false", "true"] {
        let rig = Rig::start_with("LLMGW_USAGE_DB", apart).await;
        begin(&rig.client(), "a", 20).await;
        // Killed before or while the records are stored: the journal has the rest.
        let rig = rig.kill().await;
        go_on_stored(&rig.client(), "a", 20).await;
        assert_unknown(&rig.stranger(), &id("p0", "a0")).await;
        assert_unknown(&rig.client(), "resp_of_nobody").await;

        // The same once the records are stored, and in the middle of requests.
        begin(&rig.client(), "b", 8).await;
        rig.gateway.records(36).await;
        let mut rig = rig.kill().await;
        go_on_stored(&rig.client(), "b", 8).await;
        for round in 0..3 {
            let name = format!("c{round}-");
            let answered = begin_until(&rig.client(), &name, 20 + 20 * round).await;
            rig = rig.kill().await;
            for n in answered {
                let stored = json!({"model": "line", "input": "go on",
                    "previous_response_id": id("p1", &format!("{name}{n}"))});
                assert_eq!(ask(&rig.client(), stored).await.1.as_deref(), Some("p1"), "{name}{n}");
            }
        }
        assert!(!rig.gateway.log().contains("cannot be"), "{}", rig.gateway.log());
    }
}

#[tokio::test]
async fn conversations_survive_a_kill_and_belong_to_the_owner_that_used_them_first() {
    let rig = Rig::start().await;
    let request = json!({"model": "p1/m", "input": "hi", "conversation": "conv_1"});
    assert_eq!(ask(&rig.client(), request).await.0, 200);
    let rig = rig.kill().await;
    let go_on = json!({"model": "line", "input": "go on", "conversation": {"id": "conv_1"}});
    for _ in 0..2 {
        let (status, _, refused) = ask(&rig.stranger(), go_on.clone()).await;
        assert_eq!((status, &refused["error"]["code"]), (404, &json!("not_found")), "{refused}");
    }
    let (status, served_by, answer) = ask(&rig.client(), go_on).await;
    assert_eq!((status, served_by.as_deref()), (200, Some("p1")), "{answer}");
    let unknown = json!({"model": "line", "input": "hi", "conversation": "conv_2"});
    let (status, served_by, _) = ask(&rig.stranger(), unknown).await;
    assert_eq!((status, served_by.as_deref()), (200, Some("p0")), "an unknown one belongs to nobody yet");
}

#[tokio::test]
async fn an_explanation_after_a_kill_knows_the_target_of_a_stored_response() {
    let rig = Rig::start().await;
    begin(&rig.client(), "a", 2).await;
    let rig = rig.kill().await;
    let admin = Admin(rig.gateway.client());
    let body = json!({"model": "line", "input": "go on", "previous_response_id": id("p1", "a1")});
    let question = json!({"path": "/v1/responses", "key_id": rig.key_id, "body": body});
    let explained = admin.done("POST", "explain", question).await;
    assert_eq!(explained["candidates"][0]["provider"], "p1", "{explained}");
}

#[tokio::test]
async fn what_no_provider_stores_is_not_stored_here() {
    let rig = Rig::start().await;
    let request = |store: bool| json!({"model": "p1/m", "input": "hi", "store": store, "metadata": {"conversation": format!("s{store}")}});
    for store in [true, false] {
        assert_eq!(ask(&rig.client(), request(store)).await.0, 200);
    }
    let rig = rig.kill().await;
    let go_on = json!({"model": "line", "input": "go on", "previous_response_id": id("p1", "strue")});
    assert_eq!(ask(&rig.client(), go_on).await.1.as_deref(), Some("p1"));
    assert_unknown(&rig.client(), &id("p1", "sfalse")).await;
    let text = fs::read(rig.gateway.state().join("gateway.db")).unwrap();
    let id = id("p1", "strue");
    assert!(!text.windows(id.len()).any(|window| window == id.as_bytes()), "the ID itself is not stored");
}
