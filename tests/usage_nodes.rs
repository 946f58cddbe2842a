//! Usage that other nodes stored: every report, limit, list and look-up counts it like that of this node.

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const PRICES: &str = "models: [{id: m, prices: {input: 3, output: 15}}]";
const REQUESTS: u64 = 3;

/// Makes node 1 have stored the same as node 0 in each table, with other rows of records.
const TWICE: &str = "
    INSERT INTO usage (id, first_ms, last_ms, exchanges, requests, names, rows)
        SELECT id + (1 << 40), first_ms, last_ms, exchanges, requests, names, rows FROM usage;
    CREATE TEMP TABLE hours AS SELECT * FROM usage_hour;
    CREATE TEMP TABLE days AS SELECT * FROM usage_day;
    CREATE TEMP TABLE shares AS SELECT * FROM quota_share;
    CREATE TEMP TABLE uses AS SELECT * FROM key_use;
    UPDATE hours SET node = 1;
    UPDATE days SET node = 1;
    UPDATE shares SET node = 1;
    UPDATE uses SET node = 1, hour = hour + 1;
    INSERT INTO usage_hour SELECT * FROM hours;
    INSERT INTO usage_day SELECT * FROM days;
    INSERT INTO quota_share SELECT * FROM shares;
    INSERT INTO key_use SELECT * FROM uses;
    UPDATE quota_window SET granted = 2 * granted;
    DELETE FROM row_sums;
    DELETE FROM usage_row_sums;
";

struct Seen {
    totals: Value,
    by_hour: Value,
    records: usize,
    exported: usize,
    quota: Value,
    own: Value,
    last_used_ms: u64,
}

async fn seen(gateway: &Gateway, key: &str, quota: &str, requests: u64) -> Seen {
    let (admin, holder) = (Admin(gateway.client()), Client::new(gateway.address(), Some(key)));
    let own = wait::eventually("the requests in the usage of the key", async || {
        let shown = holder.get("/v1/key").await.unwrap().json();
        (shown["usage"]["today"]["requests"] == requests).then_some(shown)
    })
    .await;
    let get = async |path: &str| admin.done("GET", path, Value::Null).await;
    let sums = get("usage?group_by=model,key&bucket=hour").await;
    let exported = gateway.client().get("/admin/api/usage/export?format=jsonl").await.unwrap().body;
    Seen {
        totals: get("usage").await["totals"].clone(),
        by_hour: sums["data"].clone(),
        records: gateway.records(usize::try_from(requests).unwrap()).await.len(),
        exported: String::from_utf8(exported.to_vec()).unwrap().lines().count(),
        quota: get(&format!("quotas/{quota}")).await,
        own,
        last_used_ms: get("keys").await["data"][0]["last_used_hour_ms"].as_u64().unwrap(),
    }
}

#[tokio::test]
async fn what_another_node_stored_counts_in_every_report_limit_list_and_look_up() {
    for apart in ["false", "true"] {
        let upstream = Upstream::start().await;
        upstream.always(Answer::completion("ok"));
        let yaml = Yaml::new().provider_with("up", upstream.base_url(), PRICES);
        let setup = Setup::new(&yaml).at_noon().env("LLMGW_USAGE_DB", apart);
        let mut gateway = setup.start().await;
        let admin = Admin(gateway.client());
        let project = admin.project("blue").await;
        let key = admin.key(json!({"project": project})).await;
        let quota = json!({"subject": {"kind": "key", "id": key.id}, "metric": "total_tokens",
            "window": "month", "limit": 1_000});
        let quota = admin.create("quotas", quota).await;
        let client = Client::new(gateway.address(), Some(&key.key));
        for _ in 0..REQUESTS {
            assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
        }
        let one = seen(&gateway, &key.key, &quota, REQUESTS).await;
        gateway.signal(Signal::TERM);
        gateway.exit().await;
        let setup = gateway.kill().await;
        let db = Connection::open(setup.state().join("gateway.db")).unwrap();
        if apart == "true" {
            db.execute("ATTACH ? AS usage_db", [setup.state().join("usage.db").to_str().unwrap()]).unwrap();
        }
        db.execute_batch(TWICE).unwrap();
        drop(db);
        let gateway = setup.start().await;
        let both = seen(&gateway, &key.key, &quota, 2 * REQUESTS).await;
        for figure in ["/requests", "/tokens/input", "/tokens/output"] {
            let of = |shown: &Value| shown.pointer(figure).and_then(Value::as_u64).unwrap();
            let twice = 2 * of(&one.totals);
            assert_eq!(
                (of(&both.totals), of(&both.by_hour[0])),
                (twice, twice),
                "{figure}: {:#}",
                both.totals
            );
        }
        assert_eq!(both.by_hour.as_array().unwrap().len(), 1, "one group of both nodes");
        let cost = |shown: &Value| shown["cost_micro_usd"].as_f64().unwrap();
        assert_eq!(cost(&both.totals), 2.0 * cost(&one.totals));
        assert_eq!((both.records, both.exported), (2 * one.records, 2 * one.exported));
        assert_eq!((&one.quota["used"], &both.quota["used"]), (&json!(54), &json!(108)));
        assert_eq!(both.own["limits"][0]["used"], 108);
        assert_eq!(cost(&both.own["usage"]["month"]), 2.0 * cost(&one.own["usage"]["month"]));
        assert_eq!(both.last_used_ms, one.last_used_ms + 3_600_000);
        // A new limit begins with the usage of both.
        let admin = Admin(gateway.client());
        let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
            "window": "day", "limit": 100});
        let limit = admin.create("quotas", limit).await;
        assert_eq!(admin.done("GET", &format!("quotas/{limit}"), Value::Null).await["used"], 2 * REQUESTS);
        // A record of node 1 only is found by its id.
        let records = gateway.records(6).await;
        let id = records[0]["request_id"].as_str().unwrap();
        let mut gateway = gateway;
        gateway.signal(Signal::TERM);
        gateway.exit().await;
        let setup = gateway.kill().await;
        let file = if apart == "true" { "usage.db" } else { "gateway.db" };
        let db = Connection::open(setup.state().join(file)).unwrap();
        db.execute_batch("DELETE FROM usage WHERE id < (1 << 40)").unwrap();
        let sums = if apart == "true" { "usage_row_sums" } else { "row_sums" };
        db.execute_batch(&format!("DELETE FROM {sums}")).unwrap();
        drop(db);
        let gateway = setup.start().await;
        let found = Admin(gateway.client()).done("GET", &format!("requests/{id}"), Value::Null).await;
        assert_eq!(found["request_id"], id);
    }
}
