//! Several keys of a provider on several gateways: a change at one node holds at all, and a session has the same key at each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{database, nodes};
use crate::support::admin::Admin;
use crate::support::gateway::Gateway;
use crate::support::{Answer, Upstream, Yaml};

const SESSIONS: usize = 30;

/// Sends a request of each session to a node. Returns the key with which each came to the upstream.
async fn keys_of_sessions(gateway: &Gateway, upstream: &Upstream) -> BTreeMap<usize, String> {
    let client = gateway.client();
    let mut keys = BTreeMap::new();
    for session in 0..SESSIONS {
        let body = json!({"model": "made/m", "affinity_key": format!("s{session}"),
            "messages": [{"role": "user", "content": "hi"}]});
        assert_eq!(client.chat(body.to_string()).await.status, 200);
        let last = upstream.requests().pop().unwrap();
        keys.insert(session, last.header("authorization").unwrap().to_owned());
    }
    keys
}

#[tokio::test]
async fn keys_of_a_provider_hold_at_every_node_and_a_session_has_one_key_at_all() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let nodes = nodes(&Yaml::new(), &database.url(), 2).await;
    let [one, two] = nodes.as_slice() else { unreachable!() };
    let made = json!({"id": "made", "type": "compatible", "base_url": upstream.base_url(), "models": ["m"],
        "api_keys": ["key-a", "key-b", "key-c"]});
    Admin(one.client()).done("POST", "providers", made).await;
    let all = keys_of_sessions(one, &upstream).await;
    assert_eq!(all, keys_of_sessions(two, &upstream).await);

    let kept = json!({"api_keys": [{"id": "c1"}, {"id": "c3"}]});
    Admin(two.client()).done("PATCH", "providers/made", kept).await;
    let left = keys_of_sessions(one, &upstream).await;
    assert_eq!(left, keys_of_sessions(two, &upstream).await);
    for (session, key) in &all {
        let moved = left[session] != *key;
        assert_eq!(moved, key == "Bearer key-b", "a removed key moves its own sessions alone: {session}");
    }
    let shown = Admin(one.client()).done("GET", "providers/made", Value::Null).await;
    let ids: Vec<_> = shown["api_keys"].as_array().unwrap().iter().map(|key| key["id"].clone()).collect();
    assert_eq!(ids, ["c1", "c3"]);
}
