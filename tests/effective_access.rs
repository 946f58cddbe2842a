//! What a key, a project and a human may call, with the reasons (M-054, ADM-2).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::{Client, Gateway, Yaml, chat};

/// A gateway with two providers of the API, one of which is Ada's own, and the endpoints `line` and `empty`.
struct Rig {
    gateway: Gateway,
    admin: Admin,
    ada: String,
    project: String,
}

impl Rig {
    async fn start() -> Self {
        let gateway = Gateway::start(&Yaml::new()).await;
        let admin = Admin(gateway.client());
        let ada = admin.create("principals", json!({"name": "Ada"})).await;
        let project = admin.project("blue").await;
        admin.done("PUT", &format!("projects/{project}/members/{ada}"), json!({"role": "owner"})).await;
        let priced = json!([{"id": "m", "prices": {"input": 1, "output": 2}}, "n"]);
        admin.create("providers", json!({"id": "open", "type": "echo", "models": priced})).await;
        let own = json!({"id": "own", "type": "echo", "models": ["m", "x"], "owner": ada});
        admin.create("providers", own).await;
        admin.create("providers", json!({"id": "gone", "type": "echo", "models": ["z"]})).await;
        let line = json!([{"provider": "own", "model": "m"}, {"provider": "open", "model": "m"}]);
        admin.done("POST", "endpoints", json!({"name": "line", "failover": line})).await;
        let empty = json!({"name": "empty", "failover": [{"provider": "gone", "model": "z"}]});
        admin.done("POST", "endpoints", empty).await;
        admin.done("PATCH", "providers/gone", json!({"disabled": true})).await;
        Self { gateway, admin, ada, project }
    }

    async fn rows(&self, path: &str) -> Vec<Value> {
        let list = self.admin.done("GET", path, Value::Null).await;
        assert_eq!(list["next_cursor"], Value::Null);
        list["data"].as_array().unwrap().clone()
    }

    /// Returns each selector as `selector: reasons`, those that are allowed with a plus.
    async fn access(&self, path: &str) -> Vec<String> {
        let line = |row: &Value| {
            let reasons: Vec<_> =
                row["reasons"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let sign = if row["allowed"] == true { "+" } else { "" };
            format!("{sign}{} {}", row["selector"].as_str().unwrap(), reasons.join(",")).trim().to_owned()
        };
        self.rows(path).await.iter().map(line).collect()
    }
}

#[tokio::test]
async fn each_selector_is_listed_with_its_reasons_for_refusal() {
    let rig = Rig::start().await;
    let limits = json!([{"metric": "cost_micro_usd", "window": "day", "limit": 5_000_000}]);
    let settings = json!({"project": rig.project, "models": ["open/*", "own/x"], "endpoints": ["line"], "limits": limits});
    let key = rig.admin.key(settings).await;
    let access = rig.access(&format!("keys/{}/access", key.id)).await;
    let want = [
        "empty no_target",
        "+line private",
        "+m",
        "n no_price",
        "+open/m",
        "open/n no_price",
        "own/m not_allowed",
        "own/x private",
        "x private",
    ];
    assert_eq!(access, want);
    let client = Client::new(rig.gateway.address(), Some(&key.key));
    for row in rig.rows(&format!("keys/{}/access", key.id)).await {
        let answer = client.chat(chat::request(row["selector"].as_str().unwrap())).await;
        assert_eq!(row["allowed"] == true, answer.status == 200, "the gateway agrees: {row} {answer:?}");
    }
}

#[tokio::test]
async fn the_access_of_projects_and_humans_is_listed() {
    let rig = Rig::start().await;
    let project = format!("projects/{}", rig.project);
    rig.admin.done("PATCH", &project, json!({"models": ["open/*"]})).await;
    let of_project = rig.access(&format!("{project}/access?allowed=true")).await;
    assert_eq!(of_project, ["+line not_allowed", "+m", "+n", "+open/m", "+open/n"]);
    let of_human = rig.access(&format!("principals/{}/access?allowed=true", rig.ada)).await;
    assert_eq!(of_human, ["+line", "+n", "+open/m", "+open/n", "+own/m", "+own/x", "+x"]);
    let names = rig.access(&format!("principals/{}/access?kind=alias&allowed=false", rig.ada)).await;
    assert_eq!(names, ["m ambiguous"]);
}

#[tokio::test]
async fn every_selector_of_a_disabled_holder_has_its_reason() {
    let rig = Rig::start().await;
    let key = rig.admin.key(json!({"project": rig.project, "acts_as": rig.ada})).await.id;
    let (path, access) = (format!("keys/{key}"), format!("keys/{key}/access?q=OPEN/m"));
    for (object, close, reason) in [
        (format!("projects/{}", rig.project), json!({"disabled": true}), "project_disabled"),
        (format!("principals/{}", rig.ada), json!({"disabled": true}), "principal_disabled,project_disabled"),
        (path.clone(), json!({"state": "disabled"}), "key_disabled,principal_disabled,project_disabled"),
        (path, json!({"state": "revoked"}), "key_revoked,principal_disabled,project_disabled"),
    ] {
        rig.admin.done("PATCH", &object, close).await;
        assert_eq!(rig.access(&access).await, [format!("open/m {reason}")]);
    }
    let human = rig.access(&format!("principals/{}/access?q=open/m", rig.ada)).await;
    assert_eq!(human, ["open/m principal_disabled"]);
}

#[tokio::test]
async fn the_list_has_pages_and_unknown_holders_are_not_found() {
    let rig = Rig::start().await;
    let path = format!("projects/{}/access", rig.project);
    let whole = rig.rows(&path).await;
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = rig.admin.done("GET", &format!("{path}?limit=2{cursor}"), Value::Null).await;
        paged.extend(page["data"].as_array().unwrap().clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={}", next.replace('/', "%2F"));
    }
    assert_eq!(paged, whole);
    for path in ["keys/key_none/access", "projects/prj_none/access", "principals/prn_none/access"] {
        assert_eq!(rig.admin.call("GET", path, Value::Null).await.status, 404, "{path}");
    }
    let answer = rig.admin.call("GET", &format!("{path}?kind=thing"), Value::Null).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("kind")));
}

/// ADM-2: the same answer for the ID in the path and in the query.
#[tokio::test]
async fn access_is_asked_for_by_key_project_or_human() {
    let rig = Rig::start().await;
    let key =
        rig.admin.key(json!({"project": rig.project, "acts_as": rig.ada, "endpoints": ["line"]})).await.id;
    for (parameter, path, id) in
        [("key", "keys", &key), ("project", "projects", &rig.project), ("principal", "principals", &rig.ada)]
    {
        let rows = rig.rows(&format!("access/effective?{parameter}={id}")).await;
        assert_eq!(rows, rig.rows(&format!("{path}/{id}/access")).await, "{parameter}");
        assert!(
            rows.iter().any(|row| row["allowed"] == true) && rows.iter().any(|row| row["allowed"] == false)
        );
        let refused = rig.rows(&format!("access/effective?{parameter}={id}&allowed=false")).await;
        assert!(refused.iter().all(|row| !row["reasons"].as_array().unwrap().is_empty()), "{refused:?}");
    }
    for (query, status, param) in [
        ("", 400, json!("key")),
        ("key=none", 404, Value::Null),
        ("principal=none", 404, Value::Null),
        (&format!("key={key}&project={}", rig.project), 400, json!("project")),
        (&format!("key={key}&kind=none"), 400, json!("kind")),
    ] {
        let answer = rig.admin.call("GET", &format!("access/effective?{query}"), Value::Null).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (status, &param), "{query}");
    }
}
