//! Search over everything, suggestions from records, and lists with the names of what they point to (ADM-2).

use serde_json::{Value, json};

use crate::support::admin::{Admin, NewKey};
use crate::support::{Client, Gateway, Yaml, chat};

/// A gateway with an echo provider and endpoint, a project, two humans and a key that has made two requests.
struct Rig {
    admin: Admin,
    project: String,
    ada: String,
    key: NewKey,
    quota: String,
    request: String,
}

impl Rig {
    /// The gateway ends when it is dropped, so it is returned too.
    async fn start() -> (Gateway, Self) {
        let gateway = Gateway::start(&Yaml::new()).await;
        let admin = Admin(gateway.client());
        let ada = admin.create("principals", json!({"name": "Ada Blue", "email": "ada@example.com"})).await;
        admin.create("principals", json!({"name": "Grace"})).await;
        let project = admin.project("Blue").await;
        admin.project("red").await;
        admin.done("PUT", &format!("projects/{project}/members/{ada}"), json!({"role": "owner"})).await;
        let models = json!([{"id": "blue-1", "display_name": "Blue One"}, "other"]);
        admin.create("providers", json!({"id": "lab", "type": "echo", "models": models})).await;
        let line = json!([{"provider": "lab", "model": "blue-1"}]);
        admin.done("POST", "endpoints", json!({"name": "line", "failover": line})).await;
        let key = admin.key(json!({"project": project, "acts_as": ada})).await;
        let subject = json!({"kind": "project", "id": project});
        let quota = json!({"subject": subject, "metric": "requests", "window": "day", "limit": 9});
        let quota = admin.create("quotas", quota).await;
        let client = Client::new(gateway.address(), Some(&key.key));
        let mut request = String::new();
        let client = client.with("user-agent", "aider/0.86.1");
        for model in ["line", "line", "lab/other"] {
            let answer = client.chat(chat::request(model)).await;
            assert_eq!(answer.status, 200);
            request = answer.header("x-request-id").unwrap().to_owned();
        }
        (gateway, Self { admin, project, ada, key, quota, request })
    }

    async fn data(&self, path: &str) -> Vec<Value> {
        self.admin.done("GET", path, Value::Null).await["data"].as_array().unwrap().clone()
    }

    /// Returns `kind title` of what a search finds.
    async fn found(&self, text: &str) -> Vec<String> {
        let line =
            |row: &Value| format!("{} {}", row["kind"].as_str().unwrap(), row["title"].as_str().unwrap());
        self.data(&format!("search?q={text}")).await.iter().map(line).collect()
    }
}

#[tokio::test]
async fn search_finds_everything_by_name_id_and_prefix_the_best_first() {
    let (_gateway, rig) = Rig::start().await;
    let blue = ["project Blue", "model Blue One", "human Ada Blue", "quota Blue"];
    assert_eq!(rig.found("blue").await, blue);
    assert_eq!(rig.found("ADA@EXAMPLE.COM").await, ["human Ada Blue"]);
    assert_eq!(rig.found("lab").await, ["provider lab", "model Blue One", "model lab/other"]);
    assert_eq!(rig.found("lin").await, ["endpoint line"]);
    assert_eq!(rig.found(&rig.key.key[..12]).await, ["key a key"]);
    assert_eq!(rig.found(&rig.key.id).await, ["key a key"]);
    assert_eq!(rig.found(&rig.quota).await, ["quota Blue"]);
    assert_eq!(rig.found(&rig.request).await, [format!("request {}", rig.request)]);
    let beginning = &rig.request[..rig.request.len() - 1];
    assert!(rig.found(beginning).await.contains(&format!("request {}", rig.request)), "{beginning}");
    assert!(rig.found("nothing%20of%20this").await.is_empty());
    let key = &rig.data(&format!("search?q={}", &rig.key.key[..9])).await[0];
    assert_eq!(key["id"], rig.key.id);
    assert_eq!(key["subtitle"], json!(format!("{}…, Blue", &rig.key.key[..12])));
    assert_eq!(rig.data("search?q=blue&limit=1").await.len(), 1);
    for path in ["search", "search?q=%20", "search?q=x&limit=0", "search?q=x&limit=51"] {
        assert_eq!(rig.admin.call("GET", path, Value::Null).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn suggestions_are_the_names_of_records_with_how_often_they_occur() {
    let (_gateway, rig) = Rig::start().await;
    let models = rig.data("suggest?field=model").await;
    assert_eq!(models[0], json!({"value": "blue-1", "name": null, "requests": 2}));
    assert_eq!(models[1], json!({"value": "other", "name": null, "requests": 1}));
    assert_eq!(rig.data("suggest?field=model&q=BLUE").await, [models[0].clone()]);
    let keys = rig.data("suggest?field=key&q=a%20k").await;
    assert_eq!(keys, [json!({"value": rig.key.id, "name": "a key", "requests": 3})]);
    assert_eq!(rig.data("suggest?field=endpoint").await[0]["value"], "line");
    let clients = json!({"value": "aider/0.86.1", "name": null, "requests": 3});
    assert_eq!(rig.data("suggest?field=client&q=AIDER").await, [clients]);
    assert!(rig.data("suggest?field=error").await.is_empty(), "every request was served");
    assert_eq!(rig.data("suggest?field=principal&q=ada").await[0]["value"], json!(rig.ada));
    for path in ["suggest", "suggest?field=weather"] {
        let answer = rig.admin.call("GET", path, Value::Null).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("field")), "{path}");
    }
}

#[tokio::test]
async fn lists_are_searched_and_name_what_they_point_to() {
    let (_gateway, rig) = Rig::start().await;
    for (path, want) in [
        ("principals?q=BLUE", 1),
        ("principals?q=example", 1),
        ("principals?q=nobody", 0),
        ("projects?q=blu", 1),
        ("projects?q=e", 2),
        ("keys?q=A%20K", 1),
        ("keys?q=none", 0),
        ("providers?q=LA", 1),
        ("providers?q=zz", 0),
        ("endpoints?q=Lin", 1),
        ("endpoints?q=zz", 0),
        (&format!("keys?prefix={}", &rig.key.key[..12]), 1),
        (&format!("keys?prefix={}", &rig.key.key[..11]), 0),
    ] {
        assert_eq!(rig.data(path).await.len(), want, "{path}");
    }
    let names = |row: &Value| (row["project_name"].clone(), row["acts_as_name"].clone());
    let want = (json!("Blue"), json!("Ada Blue"));
    assert_eq!(names(&rig.data("keys").await[0]), want);
    let path = format!("keys/{}", rig.key.id);
    assert_eq!(names(&rig.admin.done("GET", &path, Value::Null).await), want);
    let member = &rig.data(&format!("projects/{}/members", rig.project)).await[0];
    assert_eq!(
        (&member["principal_name"], &member["principal_email"]),
        (&json!("Ada Blue"), &json!("ada@example.com"))
    );
    let quota = &rig.data("quotas").await[0];
    assert_eq!(quota["subject"], json!({"kind": "project", "id": rig.project, "name": "Blue"}));
}
