//! Series through the real binary: figures by time, of clients and of upstreams.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

/// Returns the sum of one figure of a group.
fn sum(group: &Value, figure: &str) -> u64 {
    group["points"][figure].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).sum()
}

#[tokio::test]
async fn a_series_shows_failover_as_completed_requests_and_failed_attempts() {
    let (bad, good) = (Upstream::start().await, Upstream::start().await);
    bad.always(Answer::error(503));
    good.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::line(&[bad.base_url(), good.base_url()])).await;
    let (client, admin) = (gateway.client(), Admin(gateway.client()));
    for _ in 0..3 {
        assert_eq!(client.chat(chat::request("line")).await.status, 200);
    }
    assert_eq!(client.chat(chat::request("p1/m")).await.status, 200);
    assert_eq!(client.chat(chat::request("p0/m")).await.status, 503);
    assert_eq!(client.chat(chat::request("no-such-model")).await.status, 404);

    // The answers have arrived, so their records count without waiting.
    let series = admin.done("GET", "series?step=60", Value::Null).await;
    assert_eq!((&series["partial"], &series["step_ms"]), (&json!(false), &json!(60_000)));
    let all = &series["groups"][0];
    let figures =
        ["requests", "completed", "failed_over", "failed", "refused", "attempts", "attempt_failures"];
    assert_eq!(figures.map(|figure| sum(all, figure)), [6, 4, 3, 1, 1, 8, 4], "{series}");
    assert_eq!(["input", "output"].map(|figure| sum(all, figure)), [44, 28], "as the upstream reports it");
    let times = all["points"]["duration_us_p50"].as_array().unwrap();
    assert!(times.iter().any(|time| time.as_u64().is_some_and(|us| us > 0)), "{series}");

    let by_provider = admin.done("GET", "series?step=60&group_by=provider", Value::Null).await;
    let group = |provider: Value| {
        let groups = by_provider["groups"].as_array().unwrap();
        groups.iter().find(|group| group["group"]["provider"] == provider).unwrap().clone()
    };
    let figures = ["requests", "completed", "attempts", "attempt_failures"];
    assert_eq!(figures.map(|figure| sum(&group(json!("p0")), figure)), [1, 0, 4, 4]);
    assert_eq!(figures.map(|figure| sum(&group(json!("p1")), figure)), [4, 4, 4, 0]);
    assert_eq!(sum(&group(Value::Null), "refused"), 1, "no target was chosen");
}

#[tokio::test]
async fn runs_of_a_benchmark_are_compared_by_the_tags_of_their_keys() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::new().provider("up", upstream.base_url())).await;
    let admin = Admin(gateway.client());
    let project = admin.project("bench").await;
    let key = async |run: &str| {
        admin.key(json!({"project": project, "tags": {"run": run, "harness": "lm-eval"}})).await
    };
    let (first, second) = (key("a").await, key("b").await);
    for (key, tags, requests) in
        [(&first, "", 3), (&second, "", 2), (&second, "run=c", 1), (&first, "seed=7", 1)]
    {
        let client = Client::new(gateway.address(), Some(&key.key)).with("x-llmgw-tags", tags);
        for _ in 0..requests {
            assert_eq!(client.chat(chat::request("m")).await.status, 200);
        }
    }
    let asked = "series?step=all&group_by=tag:run";
    let series = admin.done("GET", asked, Value::Null).await;
    let groups = series["groups"].as_array().unwrap().iter();
    let found: Vec<(&str, u64)> =
        groups.map(|group| (group["group"]["tag:run"].as_str().unwrap(), sum(group, "completed"))).collect();
    assert_eq!(found, [("a", 4), ("b", 2), ("c", 1)], "{series}");
    assert!(series["groups"][0]["points"]["duration_us_p99"][0].as_u64().unwrap() > 0);
    assert_eq!(
        series["step_ms"],
        json!(series["to_ms"].as_u64().unwrap() - series["from_ms"].as_u64().unwrap())
    );
    let by_harness = admin.done("GET", "series?step=60&group_by=tag:harness", Value::Null).await;
    assert_eq!(sum(&by_harness["groups"][0], "requests"), 7);

    // A successor has the tags of its key, and a change counts for the requests that follow.
    let path = format!("keys/{}", first.id);
    let rotated = admin.done("POST", &format!("{path}/rotate"), json!({})).await;
    assert_eq!(rotated["tags"], json!({"run": "a", "harness": "lm-eval"}));
    admin.done("PATCH", &path, json!({"tags": {"run": "d"}})).await;
    assert_eq!(Client::new(gateway.address(), Some(&first.key)).chat(chat::request("m")).await.status, 200);
    let series = admin.done("GET", &format!("{asked}&tag.run=d"), Value::Null).await;
    assert_eq!(sum(&series["groups"][0], "completed"), 1, "{series}");
    let refused = admin.call("PATCH", &path, json!({"tags": {"Run": "x"}})).await;
    assert_eq!(
        (refused.status, refused.json()["error"]["param"].as_str()),
        (400, Some("tags")),
        "{refused:?}"
    );
}
