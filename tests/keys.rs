//! Project keys from the outside: what they give access to, and that a revocation of any kind applies to the next
//! request (AUTH-4 to AUTH-6, ADM-9; M-043 to M-045, M-054 to M-057, M-078 to M-080, M-197, M-206).

use serde_json::{Value, json};
use shared::clock::unix_ms;
use tokio::task::JoinSet;

use crate::support::admin::{Admin, NewKey};
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, wait};

/// A gateway with a project, a human who owns it, and an upstream that answers everything.
struct Rig {
    gateway: Gateway,
    upstream: Upstream,
    admin: Admin,
    project: String,
    ada: String,
}

impl Rig {
    async fn start() -> Self {
        let upstream = Upstream::start().await;
        upstream.always(Answer::completion("ok"));
        let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
        let admin = Admin(gateway.client());
        let ada = admin.create("principals", json!({"name": "Ada", "email": "ada@example.com"})).await;
        let project = admin.project("blue").await;
        admin.done("PUT", &format!("projects/{project}/members/{ada}"), json!({"role": "owner"})).await;
        Self { gateway, upstream, admin, project, ada }
    }

    async fn key(&self) -> NewKey {
        self.admin.key(json!({"project": self.project, "acts_as": self.ada})).await
    }

    fn client(&self, key: &str) -> Client {
        Client::new(self.gateway.address(), Some(key))
    }

    /// Returns the status of a chat with this key.
    async fn chat(&self, key: &str) -> u16 {
        let answer = self.client(key).chat(chat::request("m")).await;
        assert!(answer.status != 401 || answer.error_code() == "invalid_api_key");
        answer.status
    }
}

#[tokio::test]
async fn a_new_key_works_at_once_and_records_its_project_and_human() {
    let rig = Rig::start().await;
    let key = rig.key().await;
    for client in [rig.client(&key.key), Client::new(rig.gateway.address(), None).with("x-api-key", &key.key)]
    {
        let answer = client.chat(chat::request("m")).await;
        assert_eq!(answer.status, 200);
        let record = rig.gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(record["key"], key.id);
        assert_eq!((&record["project"], &record["principal"]), (&json!(rig.project), &json!(rig.ada)));
        let shown = rig.admin.done("GET", &format!("keys/{}", key.id), Value::Null).await;
        let started = record["started_at_ms"].as_u64().unwrap();
        assert_eq!(shown["last_used_hour_ms"], started - started % 3_600_000);
    }
    let members = rig.admin.done("GET", &format!("projects/{}/members", rig.project), Value::Null).await;
    assert_eq!(
        (&members["data"][0]["principal"], &members["data"][0]["role"]),
        (&json!(rig.ada), &json!("owner"))
    );
    let shown = rig.admin.done("GET", &format!("keys/{}", key.id), Value::Null).await;
    assert_eq!(
        (&shown["prefix"], &shown["state"], &shown["acts_as"]),
        (&json!(key.key[..12]), &json!("active"), &json!(rig.ada))
    );
}

/// M-208.
#[tokio::test]
async fn disabling_and_enabling_a_key_or_its_owner_applies_to_the_next_request() {
    let rig = Rig::start().await;
    let key = rig.key().await;
    let (project, ada) = (format!("projects/{}", rig.project), format!("principals/{}", rig.ada));
    let path = format!("keys/{}", key.id);
    for (what, object, close, open) in [
        ("the key", &path, json!({"state": "disabled"}), json!({"state": "active"})),
        ("the project", &project, json!({"disabled": true}), json!({"disabled": false})),
        ("the human", &ada, json!({"disabled": true}), json!({"disabled": false})),
    ] {
        for round in 0..5 {
            assert_eq!(rig.chat(&key.key).await, 200, "{what}, round {round}");
            rig.admin.done("PATCH", object, close.clone()).await;
            assert_eq!(rig.chat(&key.key).await, 401, "{what} is disabled, round {round}");
            rig.admin.done("PATCH", object, open.clone()).await;
        }
    }
    rig.admin.done("PATCH", &path, json!({"acts_as": null})).await;
    rig.admin.done("PATCH", &ada, json!({"disabled": true})).await;
    assert_eq!(rig.chat(&key.key).await, 200, "it no longer acts as a human");
    rig.admin.done("PATCH", &path, json!({"state": "revoked"})).await;
    assert_eq!(rig.chat(&key.key).await, 401, "revoked");
    let revival = rig.admin.call("PATCH", &path, json!({"state": "active"})).await;
    assert_eq!((revival.status, revival.error_code().as_str()), (409, "conflict"));
    rig.admin.done("DELETE", &path, Value::Null).await;
    assert_eq!(rig.chat(&key.key).await, 401, "deleted");
    let records = rig.gateway.records(1).await;
    assert!(records.iter().all(|record| record["key"] == key.id), "what it used is still its own");
}

#[tokio::test]
async fn a_running_stream_continues_after_its_key_is_revoked() {
    let rig = Rig::start().await;
    let key = rig.key().await;
    let gate = Gate::new();
    let answer = Answer::stream().chunk(chat::content("one")).wait(&gate).chunk(chat::content("two"));
    rig.upstream.then(answer.chunk(chat::finish()).chunk(chat::done()).end());
    let mut flow = rig.client(&key.key).chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    rig.admin.done("PATCH", &format!("keys/{}", key.id), json!({"state": "revoked"})).await;
    assert_eq!(rig.chat(&key.key).await, 401);
    gate.open(1);
    let (events, whole) = flow.rest().await;
    assert!(whole && events.len() >= 2, "{events:?}");
}

/// M-207.
#[tokio::test]
async fn a_key_expires_on_time_and_a_rotated_key_after_its_overlap() {
    let rig = Rig::start().await;
    let end = unix_ms() + 3_000;
    let short = rig.admin.key(json!({"project": rig.project, "expires_at": end})).await;
    let old = rig.key().await;
    let rotation = json!({"overlap_seconds": 2});
    let new = rig.admin.done("POST", &format!("keys/{}/rotate", old.id), rotation).await;
    assert_eq!(new["rotated_from"], old.id);
    let shown = rig.admin.done("GET", &format!("keys/{}", old.id), Value::Null).await;
    let keys = [(&old.key, shown["expires_at_ms"].as_u64().unwrap()), (&short.key, end)];
    for (key, _) in keys {
        assert_eq!(rig.chat(key).await, 200, "it opens until then");
    }
    for (key, end) in keys {
        wait::eventually("the end of the key", async || {
            let before = unix_ms();
            match rig.chat(key).await {
                200 if before < end => None,
                401 if unix_ms() >= end => Some(()),
                status => panic!("{status} at {before}, the end being {end}"),
            }
        })
        .await;
    }
    assert_eq!(rig.chat(new["key"].as_str().unwrap()).await, 200);
    let states = rig.admin.done("GET", "keys?state=expired", Value::Null).await;
    assert_eq!(states["data"].as_array().unwrap().len(), 2);
    let path = format!("keys/{}/rotate", new["id"].as_str().unwrap());
    let newest = rig.admin.done("POST", &path, json!({"overlap_seconds": 0})).await;
    assert_eq!(rig.chat(new["key"].as_str().unwrap()).await, 401);
    assert_eq!(rig.chat(newest["key"].as_str().unwrap()).await, 200);
}

#[tokio::test]
async fn a_key_is_revealed_audited_and_never_listed() {
    let rig = Rig::start().await;
    let key = rig.key().await;
    let hidden = rig.admin.key(json!({"project": rig.project, "recoverable": false})).await;
    let reveal = |id: &str| format!("keys/{id}/reveal");
    let revealed = rig.admin.done("POST", &reveal(&key.id), Value::Null).await;
    assert_eq!(revealed, json!({"id": key.id, "key": key.key}));
    let refused = rig.admin.call("POST", &reveal(&hidden.id), Value::Null).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (409, "conflict"));

    let repeated = Admin(rig.admin.0.clone().with("idempotency-key", "again"));
    repeated.done("POST", &reveal(&key.id), Value::Null).await;
    rig.admin.done("PATCH", &format!("keys/{}", key.id), json!({"state": "revoked"})).await;
    assert_eq!(repeated.call("POST", &reveal(&key.id), Value::Null).await.status, 409, "never from memory");

    for path in ["keys", "audit", "state", "projects", "requests", &format!("keys/{}", key.id)] {
        let answer = rig.admin.call("GET", path, Value::Null).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        for secret in [&key.key, &hidden.key] {
            assert!(!text.contains(&secret[12..24]), "{path}: {text}");
        }
    }
    assert!(!rig.gateway.log().contains(&key.key[12..24]));
}

#[tokio::test]
async fn keys_and_their_states_survive_a_kill() {
    let rig = Rig::start().await;
    let (kept, revoked, off) = (rig.key().await, rig.key().await, rig.key().await);
    rig.admin.done("PATCH", &format!("keys/{}", revoked.id), json!({"state": "revoked"})).await;
    rig.admin.done("PATCH", &format!("keys/{}", off.id), json!({"state": "disabled"})).await;
    let last = rig.key().await;
    let gateway = rig.gateway.restart().await;
    let rig = Rig { admin: Admin(gateway.client()), gateway, ..rig };
    for (name, key, status) in [
        ("kept", &kept, 200),
        ("revoked", &revoked, 401),
        ("disabled", &off, 401),
        ("the last one", &last, 200),
    ] {
        assert_eq!(rig.chat(&key.key).await, status, "{name}");
    }
    let revealed = rig.admin.done("POST", &format!("keys/{}/reveal", last.id), Value::Null).await;
    assert_eq!(revealed["key"], last.key);
}

#[tokio::test]
async fn a_project_key_cannot_administer_and_a_near_miss_is_rejected() {
    let rig = Rig::start().await;
    let key = rig.key().await;
    let own = format!("keys/{}", key.id);
    for (method, path) in [
        ("GET", "projects"),
        ("POST", "projects"),
        ("GET", "keys"),
        ("POST", "keys"),
        ("GET", own.as_str()),
        ("PATCH", &own),
        ("DELETE", &own),
        ("POST", &format!("{own}/reveal")),
        ("POST", &format!("{own}/rotate")),
        ("PUT", &format!("projects/{}/members/{}", rig.project, rig.ada)),
        ("GET", "no/such/path"),
    ] {
        let answer = Admin(rig.client(&key.key)).call(method, path, json!({})).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (403, "forbidden"), "{method} {path}");
    }
    for place in [0, 6, 30, 48, 49, 54] {
        let mut near = key.key.clone().into_bytes();
        near[place] = if near[place] == b'x' { b'y' } else { b'x' };
        assert_eq!(rig.chat(&String::from_utf8(near).unwrap()).await, 401, "character {place}");
    }
    for near in [&key.key[..54], &key.key[1..], &format!("{}0", key.key), &key.id, &key.key[..12]] {
        assert_eq!(rig.chat(near).await, 401, "{near}");
    }
}

#[tokio::test]
async fn a_repeated_request_issues_one_key() {
    let rig = Rig::start().await;
    let admin = Admin(rig.admin.0.clone().with("idempotency-key", "mint-1"));
    let body = json!({"name": "k", "project": rig.project});
    let first = admin.done("POST", "keys", body.clone()).await;
    let again = admin.call("POST", "keys", body).await;
    assert_eq!((again.json(), again.header("idempotency-replayed")), (first.clone(), Some("true")));
    let listed = rig.admin.done("GET", "keys", Value::Null).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!(rig.chat(first["key"].as_str().unwrap()).await, 200);
}

#[tokio::test]
async fn a_repeated_request_returns_no_unrecoverable_key() {
    let rig = Rig::start().await;
    let repeating = |name: &str| Admin(rig.admin.0.clone().with("idempotency-key", name));
    let hidden = json!({"name": "hidden", "project": rig.project, "recoverable": false});
    let first = repeating("hidden").done("POST", "keys", hidden.clone()).await;
    assert_eq!(rig.chat(first["key"].as_str().unwrap()).await, 200);
    let again = repeating("hidden").call("POST", "keys", hidden).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, Some("true")));
    assert_eq!((&again.json()["id"], &again.json()["key"]), (&first["id"], &Value::Null));

    let key = rig.key().await;
    let rotate = format!("keys/{}/rotate", key.id);
    let first = repeating("rotate").done("POST", &rotate, json!({})).await;
    let id = first["id"].as_str().unwrap();
    assert_eq!(
        repeating("rotate").done("POST", &rotate, json!({})).await["key"],
        first["key"],
        "recoverable"
    );
    rig.admin.done("PATCH", &format!("keys/{id}"), json!({"state": "revoked"})).await;
    let again = repeating("rotate").done("POST", &rotate, json!({})).await;
    assert_eq!((&again["id"], &again["key"]), (&json!(id), &Value::Null), "revoked");

    let audit = rig.admin.done("GET", &format!("audit?action=key.replay&object=key/{id}"), Value::Null).await;
    let revealed: Vec<&Value> =
        audit["data"].as_array().unwrap().iter().map(|row| &row["detail"]["after"]["revealed"]).collect();
    assert_eq!(revealed, [&json!(false), &json!(true)]);
}

#[tokio::test]
async fn invalid_members_of_keys_and_projects_are_rejected_by_name() {
    let rig = Rig::start().await;
    let project = &rig.project;
    let stranger = rig.admin.create("principals", json!({"name": "Eve"})).await;
    let with = |field: &str, value: Value| {
        let mut body = json!({"name": "k", "project": project});
        body[field] = value;
        body
    };
    for (body, param) in [
        (json!({"project": project}), "name"),
        (json!({"name": "k"}), "project"),
        (with("name", json!(" ")), "name"),
        (with("project", json!("prj_none")), "project"),
        (with("acts_as", json!(stranger)), "acts_as"),
        (with("acts_as", json!("prn_none")), "acts_as"),
        (with("expires_at", json!("tomorrow")), "expires_at"),
        (with("expires_at", json!(1_000)), "expires_at"),
        (with("expires_at", json!("2020-01-01T00:00:00Z")), "expires_at"),
        (with("expires_at", json!([])), "expires_at"),
        (with("models", json!(["gpt-4o"])), "models"),
        (with("models", json!(vec!["p/m"; 1_001])), "models"),
        (with("endpoints", json!(["a/b"])), "endpoints"),
        (with("routes", json!(["chat"])), "routes"),
        (with("routes", json!(["metrics"])), "routes"),
        (with("quota", json!(5)), "quota"),
        (with("state", json!("active")), "state"),
    ] {
        let answer = rig.admin.call("POST", "keys", body.clone()).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
    let key = rig.key().await;
    let path = format!("keys/{}", key.id);
    for (body, param) in [
        (json!({"project": "other"}), "project"),
        (json!({"state": "expired"}), "state"),
        (json!({"expires_at": 5}), "expires_at"),
        (json!({"acts_as": stranger}), "acts_as"),
    ] {
        let answer = rig.admin.call("PATCH", &path, body.clone()).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
    for (method, path, body, status) in [
        ("POST", format!("{path}/rotate"), json!({"overlap_seconds": 40_000_000}), 400),
        ("POST", format!("{path}/rotate"), json!({"overlap_seconds": -1}), 400),
        ("POST", format!("{path}/reveal"), json!({"why": "x"}), 400),
        ("PUT", format!("projects/{project}/members/{stranger}"), json!({"role": "boss"}), 400),
        ("PUT", format!("projects/{project}/members/{stranger}"), json!({}), 400),
        ("PUT", format!("projects/{project}/members/prn_none"), json!({"role": "admin"}), 404),
        ("GET", "projects/prj_none/members".into(), Value::Null, 404),
        ("GET", "keys?state=broken".into(), Value::Null, 400),
        ("GET", "keys/key_none".into(), Value::Null, 404),
        ("POST", "projects".into(), json!({"name": "blue"}), 409),
        ("DELETE", format!("projects/{project}"), Value::Null, 409),
        ("DELETE", format!("principals/{}", rig.ada), Value::Null, 409),
        ("DELETE", format!("projects/{project}/members/{}", rig.ada), Value::Null, 409),
    ] {
        let answer = rig.admin.call(method, &path, body.clone()).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {answer:?}");
    }
    assert_eq!(rig.chat(&key.key).await, 200, "nothing of this has changed it");
}

#[tokio::test]
async fn an_edit_with_an_outdated_version_is_rejected() {
    let rig = Rig::start().await;
    let key = rig.key().await;
    let project = format!("projects/{}", rig.project);
    for (path, body) in
        [(format!("keys/{}", key.id), json!({"name": "n"})), (project, json!({"name": "green"}))]
    {
        let shown = rig.admin.call("GET", &path, Value::Null).await;
        let seen = Admin(rig.admin.0.clone().with("if-match", shown.header("etag").unwrap()));
        let changed = seen.call("PATCH", &path, body.clone()).await;
        assert_eq!((changed.status, changed.header("etag")), (200, Some("\"2\"")), "{path}");
        let late = seen.call("PATCH", &path, body).await;
        assert_eq!((late.status, late.error_code().as_str()), (412, "precondition_failed"), "{path}");
        assert_eq!(seen.call("DELETE", &path, Value::Null).await.status, 412, "{path}");
    }
}

#[tokio::test]
async fn lists_are_paged_and_filtered() {
    let rig = Rig::start().await;
    let other = rig.admin.project("red").await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(rig.key().await.id);
    }
    rig.admin.key(json!({"project": other})).await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("keys?limit=2&project={}&cursor={cursor}", rig.project);
        let page = rig.admin.done("GET", &path, Value::Null).await;
        seen.extend(
            page["data"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    ids.sort();
    assert_eq!(seen, ids);
    let mine = rig.admin.done("GET", &format!("projects?principal={}", rig.ada), Value::Null).await;
    let names: Vec<&Value> =
        mine["data"].as_array().unwrap().iter().map(|project| &project["name"]).collect();
    assert_eq!(names, ["blue"]);
    let blue = &mine["data"][0];
    assert_eq!((&blue["role"], &blue["members"]), (&json!("owner"), &json!(1)));
    assert_eq!(blue["keys"], json!(ids.len()));
    let acting = rig.admin.done("GET", &format!("keys?acts_as={}&state=active", rig.ada), Value::Null).await;
    assert_eq!(acting["data"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn keys_are_issued_and_revoked_concurrently() {
    let rig = Rig::start().await;
    let mut minting = JoinSet::new();
    for _ in 0..24 {
        let (admin, settings) = (rig.admin.clone(), json!({"project": rig.project}));
        minting.spawn(async move { admin.key(settings).await });
    }
    let keys = minting.join_all().await;
    let mut using = JoinSet::new();
    for (index, NewKey { id, key }) in keys.into_iter().enumerate() {
        let (admin, client) = (rig.admin.clone(), rig.client(&key));
        using.spawn(async move {
            let before = client.chat(chat::request("m")).await.status;
            let state = if index % 2 == 0 { "revoked" } else { "active" };
            admin.done("PATCH", &format!("keys/{id}"), json!({"state": state})).await;
            let after = client.chat(chat::request("m")).await.status;
            (before, after, state)
        });
    }
    for outcome in using.join_all().await {
        assert!(matches!(outcome, (200, 401, "revoked") | (200, 200, "active")), "{outcome:?}");
    }
}
