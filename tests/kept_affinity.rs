//! Stored responses and encrypted reasoning stay with their account over a restart: the file `affinity` of the state.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::Admin;
use crate::support::figure::is_full;
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

struct Rig {
    gateway: Gateway,
    key: String,
    other_key: String,
    _accounts: [Upstream; 2],
}

impl Rig {
    async fn start() -> Self {
        let accounts = [account("p0").await, account("p1").await];
        let yaml = Yaml::new()
            .provider_with("p0", accounts[0].base_url(), "protocols: [responses]")
            .provider_with("p1", accounts[1].base_url(), "protocols: [responses]")
            .endpoint("line", &[("p0", "m"), ("p1", "m")]);
        let gateway = Gateway::start(&yaml).await;
        let admin = Admin(gateway.client());
        let key = admin.key(json!({"project": admin.project("blue").await})).await.key;
        let other_key = admin.key(json!({"project": admin.project("red").await})).await.key;
        Self { gateway, key, other_key, _accounts: accounts }
    }

    fn client(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.key)).with("content-type", "application/json")
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
    let stranger = Client::new(rig.gateway.address(), Some(&rig.other_key));
    let stored = json!({"model": "line", "input": "go on", "previous_response_id": id("p0", "a0")});
    let (status, _, refused) = ask(&stranger, stored).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("previous_response_not_found")),
        "{refused}"
    );

    // What is not stored yet may be lost with the process; what is stored stays.
    begin(&rig.client(), "b", 10).await;
    let Rig { gateway, key, other_key, _accounts } = rig;
    let rig = Rig { gateway: gateway.restart().await, key, other_key, _accounts };
    go_on(&rig.client(), "a", count).await;
    assert!(!rig.gateway.log().contains("cannot be used"), "{}", rig.gateway.log());
}

#[tokio::test]
async fn a_damaged_or_missing_file_of_affinity_only_forgets() {
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
        let stored =
            json!({"model": "line", "input": "go on", "previous_response_id": id("p1", &format!("{name}1"))});
        let (status, _, refused) = ask(&rig.client(), stored).await;
        assert_eq!(
            (status, &refused["error"]["code"]),
            (400, &json!("previous_response_not_found")),
            "{name}"
        );
        let line = "affinity cannot be used (it is damaged";
        wait::eventually(name, async || (rig.gateway.log().contains(line) == is_logged).then_some(())).await;
    }
}
