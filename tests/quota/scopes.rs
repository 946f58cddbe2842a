//! Limits on what runs at the same time.

use serde_json::json;
use tokio::task::JoinSet;

use super::{Rig, behind};
use crate::support::{Answer, Client, Gate, chat};

/// Sends `count` requests at once. Returns their statuses as they come in.
pub(super) fn at_once(client: &Client, count: usize, body: &str) -> JoinSet<u16> {
    let mut clients = JoinSet::new();
    for _ in 0..count {
        let (client, body) = (client.clone().with("content-type", "application/json"), body.to_owned());
        clients.spawn(async move {
            let answer = client.send("POST", "/v1/chat/completions", body.into()).await.unwrap();
            assert!(answer.status == 200 || answer.error_code() == "quota_exceeded", "{}", answer.status);
            answer.status
        });
    }
    clients
}

#[tokio::test]
async fn of_50_requests_at_once_as_many_run_as_the_limit_on_concurrent_ones_says() {
    let gate = Gate::new();
    let rig = Rig::over(behind(&gate, Answer::completion("ok"))).await;
    let key = json!({"kind": "key", "id": rig.key.id});
    let quota = rig.quota(json!({"subject": key, "metric": "concurrent_requests", "limit": 4})).await;
    for round in 1..=2 {
        let mut clients = at_once(&rig.client(), 50, &chat::request("m"));
        for _ in 0..46 {
            assert_eq!(clients.join_next().await.unwrap().unwrap(), 429);
        }
        assert_eq!(rig.standing(&quota).await, (0, 4, 0), "those that run hold it");
        let refused = rig.client().chat(chat::request("m")).await;
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("4 concurrent requests for this key"), "{message}");
        assert_eq!(refused.header("retry-after"), Some("1"), "any of them may end");
        gate.open(4);
        while let Some(status) = clients.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
        assert_eq!(rig.settled(&quota).await, (0, 4));
        assert_eq!(rig.upstream.requests().len(), 4 * round);
    }
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (0, 0, 4));
}
