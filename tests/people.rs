//! Humans who signed in by single sign-on, through the real binary: what they see and use is theirs alone (AUTH-4, AUTH-7,
//! AUTH-8).

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::admin::{Admin, NewKey};
use crate::support::client::Flow;
use crate::support::vendor::{Browser, ORIGIN, Vendor, setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const SECRET: &str = "secret-of-the-proxy-of-people";
const CHAT: &str = "/admin/api/run/v1/chat/completions";

/// A human with an open session, and a project and a key of their own.
struct Person {
    id: String,
    admin: Admin,
    project: String,
    key: NewKey,
}

impl Person {
    /// Signs a human in, and makes them a member of a new project with a key that acts as them.
    async fn arrive(gateway: &Gateway, name: &str) -> Self {
        let (id, admin) = sign_in(gateway, name).await;
        let administrator = Admin(gateway.client());
        let project = administrator.project(&format!("project of {name}")).await;
        let path = format!("projects/{project}/members/{id}");
        administrator.done("PUT", &path, json!({"role": "member"})).await;
        let key = administrator.key(json!({"project": project, "acts_as": id})).await;
        Self { id, admin, project, key }
    }

    async fn data(&self, path: &str) -> Vec<Value> {
        self.admin.done("GET", path, Value::Null).await["data"].as_array().unwrap().clone()
    }

    /// Sends a request of the data plane with the person's key.
    fn client(&self, gateway: &Gateway) -> Client {
        Client::new(gateway.address(), Some(&self.key.key))
    }

    /// Returns a client whose runs have the key or human `id`.
    fn acting_as(&self, id: &str) -> Client {
        self.admin.0.clone().with("x-llmgw-run-as", id)
    }
}

/// Opens a session for a human whom the proxy asserts; returns the human's ID and a client with the session.
async fn sign_in(gateway: &Gateway, name: &str) -> (String, Admin) {
    let client = Client::new(gateway.address(), None)
        .with("origin", ORIGIN)
        .with("sec-fetch-site", "same-origin")
        .with("x-llmgw-sso-secret", SECRET)
        .with("x-forwarded-user", name);
    let opened = Admin(client.clone()).call("POST", "session", json!({"sso": true})).await;
    assert_eq!(opened.status, 201, "{opened:?}");
    let cookie = opened.header("set-cookie").unwrap().split("; ").next().unwrap().to_owned();
    let session = opened.json();
    let client = client.with("cookie", &cookie);
    let client = client.with("x-csrf-token", session["csrf_token"].as_str().unwrap());
    (session["human"]["id"].as_str().unwrap().to_owned(), Admin(client))
}

/// Starts a gateway behind a proxy that authenticates people, with two of them.
async fn start_with(yaml: &Yaml) -> (Gateway, [Person; 2]) {
    let gateway = setup(yaml)
        .env("LLMGW_SSO_ENABLED", "true")
        .env("LLMGW_SSO_SHARED_SECRET", SECRET)
        .env("LLMGW_SSO_AUTO_PROVISION", "true")
        .start()
        .await;
    let people = [Person::arrive(&gateway, "ada").await, Person::arrive(&gateway, "bob").await];
    (gateway, people)
}

async fn start() -> (Gateway, Upstream, [Person; 2]) {
    let upstream = Upstream::start().await;
    let (gateway, people) = start_with(&Yaml::one(upstream.base_url())).await;
    (gateway, upstream, people)
}

/// Opens a human's live stream.
async fn live(person: &Person, path: &str) -> Flow {
    let opening = person.admin.0.open("GET", path, Bytes::new());
    let flow = wait::within(wait::PATIENCE, "the live stream", opening).await.unwrap();
    assert_eq!(flow.status, 200, "{:?}", flow.headers);
    flow
}

/// Returns all events up to the first that contains `text`.
async fn until(flow: &mut Flow, text: &str) -> String {
    wait::within(wait::PATIENCE, text, async {
        let mut all = String::new();
        while !all.contains(text) {
            all.push_str(std::str::from_utf8(&flow.event().await.bytes).unwrap());
        }
        all
    })
    .await
}

#[tokio::test]
async fn a_humans_live_stream_contains_the_requests_of_their_projects_alone() {
    let (gateway, upstream, [ada, bob]) = start().await;
    upstream.always(Answer::hang_forever());
    let (clients, body) = ([bob.client(&gateway), ada.client(&gateway)], chat::request("up/m"));
    let waiting = clients.map(|client| {
        let body = body.clone();
        tokio::spawn(async move { client.chat(body).await })
    });
    let admin = Admin(gateway.client());
    wait::eventually("both requests run", async || {
        let running = admin.done("GET", "running", Value::Null).await;
        (running["data"].as_array().unwrap().len() == 2).then_some(())
    })
    .await;
    let mut stream = live(&ada, "/admin/api/live").await;
    let events = until(&mut stream, &ada.key.id).await;
    let path = format!("projects/{}/members/{}", ada.project, ada.id);
    let running = ada.data("running").await;
    assert_eq!(running.len(), 1);
    let request = running[0]["request_id"].as_str().unwrap();
    // Without the key, the membership ends.
    admin.done("PATCH", &format!("keys/{}", ada.key.id), json!({"state": "revoked"})).await;
    admin.done("DELETE", &path, Value::Null).await;
    let later = until(&mut stream, &format!("\"ended\":[\"{request}\"]")).await;
    for text in [&bob.key.id, &bob.project, "event: figures", "event: providers", "event: change"] {
        assert!(!events.contains(text) && !later.contains(text), "{text} in {events}{later}");
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_human_watches_only_keys_of_their_projects() {
    let (gateway, upstream, [ada, bob]) = start().await;
    upstream.always(Answer::completion("ok"));
    for key in [&bob.key.id, "key_of_nobody"] {
        let refused = ada.admin.call("GET", &format!("live?watch={key}"), Value::Null).await;
        assert_eq!(refused.status, 404, "{key}: {refused:?}");
        assert!(!String::from_utf8_lossy(&refused.body).contains(key));
    }
    let mut stream = live(&ada, &format!("/admin/api/live?watch={}", ada.key.id)).await;
    let _other = live(&bob, &format!("/admin/api/live?watch={}", bob.key.id)).await;
    assert_eq!(bob.client(&gateway).chat(chat::request("up/m")).await.status, 200);
    let rejected = Client::new(gateway.address(), Some("llmgw_of-nobody")).chat(chat::request("up/m")).await;
    assert_eq!(rejected.status, 401);
    let own = ada.client(&gateway).chat(chat::request("up/m")).await;
    let events = until(&mut stream, own.header("x-request-id").unwrap()).await;
    assert_eq!(events.matches("event: seen").count(), 1, "{events}");
}

#[tokio::test]
async fn a_human_sends_runs_with_their_own_keys_alone() {
    let (gateway, upstream, [ada, bob]) = start().await;
    upstream.always(Answer::completion("hello"));
    let admin = Admin(gateway.client());
    let path = format!("projects/{}/members/{}", ada.project, bob.id);
    admin.done("PUT", &path, json!({"role": "member"})).await;
    let colleague = admin.key(json!({"project": ada.project, "acts_as": bob.id})).await;
    let unowned = admin.key(json!({"project": ada.project})).await;
    for (id, status) in [
        (&bob.key.id, 404),
        (&"key_of_nobody".to_owned(), 404),
        (&colleague.id, 403),
        (&unowned.id, 403),
        (&ada.id, 403),
        (&bob.id, 403),
    ] {
        let refused = ada.acting_as(id).post(CHAT, chat::request("up/m")).await;
        assert_eq!(refused.status, status, "{id}: {refused:?}");
    }
    assert!(upstream.requests().is_empty());
    let answer = ada.acting_as(&ada.key.id).post(CHAT, chat::request("up/m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let id = answer.header("x-request-id").unwrap();
    let of_ada = ada.admin.done("GET", &format!("run/{id}"), Value::Null).await;
    let sides = of_ada["sides"].as_array().unwrap().iter().map(|side| side["side"].as_str().unwrap());
    assert_eq!(sides.collect::<Vec<_>>(), ["client_request", "client_response"]);
    let of_administrator = admin.done("GET", &format!("run/{id}"), Value::Null).await;
    assert_eq!(of_administrator["sides"].as_array().unwrap().len(), 4);
    assert_eq!(bob.admin.call("GET", &format!("run/{id}"), Value::Null).await.status, 404);
}

#[tokio::test]
async fn a_private_connection_of_one_human_does_not_exist_for_another() {
    let (gateway, upstream, [ada, bob]) = start().await;
    upstream.always(Answer::completion("ok"));
    let admin = Admin(gateway.client());
    let house = json!({"id": "house", "type": "echo", "models": ["large"], "owner": bob.id});
    admin.create("providers", house).await;
    let limit = json!({"subject": {"kind": "provider", "id": "house"}, "metric": "requests", "window": "day", "limit": 5});
    admin.create("quotas", limit).await;
    let lists = |person: &Person| {
        let (id, project, key) = (&person.id, &person.project, &person.key.id);
        [
            "providers".to_owned(),
            "quotas".to_owned(),
            "search?q=house".to_owned(),
            format!("principals/{id}/access?q=house"),
            format!("keys/{key}/access?q=house"),
        ]
        .into_iter()
        .chain([format!("projects/{project}/access?q=house")])
    };
    for path in lists(&ada) {
        assert_eq!(ada.data(&path).await, [json!(null); 0], "{path}");
    }
    for path in lists(&bob) {
        let rows = Value::from(bob.data(&path).await).to_string();
        assert!(rows.contains("house"), "{path}: {rows}");
    }
    for (method, path) in [
        ("GET", ""),
        ("POST", "/oauth/start"),
        ("DELETE", "/oauth"),
        ("PUT", &format!("/bindings/{}", ada.project)),
    ] {
        let body = if method == "POST" { json!({}) } else { Value::Null };
        let messages = ["house", "nothing"].map(|id| {
            let (person, path, body) = (&ada, format!("providers/{id}{path}"), body.clone());
            async move { person.admin.call(method, &path, body).await }
        });
        let [hidden, missing] = messages;
        let (hidden, missing) = (hidden.await, missing.await);
        assert_eq!((hidden.status, missing.status), (404, 404), "{path}");
        assert_eq!(hidden.json()["error"]["message"], missing.json()["error"]["message"]);
    }
    // An endpoint passes it over for her.
    let mixed = json!([{"provider": "house", "model": "large"}, {"provider": "up", "model": "m"}]);
    admin.done("POST", "endpoints", json!({"name": "mixed", "failover": mixed})).await;
    let answer = ada.client(&gateway).chat(chat::request("mixed")).await;
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert!(record["trace"].to_string().contains("house"), "{record}");
    let path = format!("requests/{}", record["request_id"].as_str().unwrap());
    let of_ada = ada.admin.done("GET", &path, Value::Null).await;
    assert!(!of_ada.to_string().contains("house") && of_ada.to_string().contains("up"), "{of_ada}");
    // Shared with her project, it is one of the selectors there.
    let share = format!("providers/house/bindings/{}", ada.project);
    admin.done("PUT", &share, Value::Null).await;
    assert_eq!(ada.data(&format!("keys/{}/access?q=house", ada.key.id)).await.len(), 1);
    // Its owner, who is no member of that project, does not learn of the keys there.
    let preview = bob.admin.done("DELETE", &format!("{share}?dry_run=true"), Value::Null).await;
    let effects = &preview["effects"];
    assert_eq!((&effects["loses"], &effects["keys_losing"]), (&json!([]), &json!(0)), "{effects}");
}

/// The callback carries no identity of the proxy: the cookie of the flow admits it, and the session that began the flow.
#[tokio::test]
async fn a_human_connects_their_own_account_and_with_their_own_session_alone() {
    let vendor = Vendor::start().await;
    let (gateway, [ada, bob]) = start_with(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    admin.create("providers", vendor.provider(&ada.id)).await;
    let mut other = vendor.provider(&bob.id);
    other["id"] = json!("other");
    admin.create("providers", other).await;
    let browser = |person: &Admin| Browser::of(person.0.clone(), &gateway);
    let of_bob = bob.admin.call("POST", "providers/other/oauth/start", json!({})).await;
    let cookie_of_bob = of_bob.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let (page, cookie) = browser(&ada.admin).begin(&json!({})).await;
    let callback = vendor.consent(&page);
    let (status, text) = browser(&bob.admin).callback(&callback, &cookie_of_bob).await;
    assert!(status == 400 && text.contains("Another browser began this sign-in"), "{text}");
    ada.admin.done("DELETE", "session", Value::Null).await;
    let (status, text) = browser(&ada.admin).callback(&callback, &cookie).await;
    assert!(status == 400 && text.contains("Not connected"), "her session has ended: {text}");
    assert_eq!(vendor.server.requests().len(), 0, "no code went to the vendor");
    let (_, again) = sign_in(&gateway, "ada").await;
    browser(&again).connect(&vendor, &json!({})).await;
    let shown = again.done("GET", "providers/partner", Value::Null).await;
    assert_eq!(shown["sign_in"]["state"], "connected", "{shown}");
    assert_eq!(ada.client(&gateway).chat(chat::request("partner/m")).await.status, 200);
    let refused = bob.client(&gateway).chat(chat::request("partner/m")).await;
    assert_eq!(refused.error_code(), "private_provider");
    let gone = again.done("DELETE", "providers/partner/oauth", Value::Null).await;
    assert_eq!(gone["revoked"], true, "{gone}");
}

#[tokio::test]
async fn a_human_sees_and_disconnects_a_provider_of_the_file_that_they_signed_in_to() {
    let vendor = Vendor::start().await;
    let mut provider = vendor.provider("");
    for name in ["id", "owner"] {
        provider.as_object_mut().unwrap().remove(name);
    }
    let config = json!({"providers": {"partner": provider}}).to_string();
    let gateway = setup(&Yaml::new())
        .yaml(config)
        .env("LLMGW_SSO_ENABLED", "true")
        .env("LLMGW_SSO_SHARED_SECRET", SECRET)
        .env("LLMGW_SSO_AUTO_PROVISION", "true")
        .start()
        .await;
    let (ada, client) = sign_in(&gateway, "ada").await;
    let start = client.call("POST", "providers/partner/oauth/start", json!({"owner": ada})).await;
    assert_eq!(start.status, 404, "a human does not take a provider that belongs to nobody: {start:?}");
    Browser::sign_in(&gateway).await.connect(&vendor, &json!({"owner": ada})).await;
    let shown = client.done("GET", "providers/partner", Value::Null).await;
    assert_eq!((&shown["owner"], &shown["sign_in"]["state"]), (&json!(ada), &json!("connected")));
    assert_eq!(client.done("DELETE", "providers/partner/oauth", Value::Null).await["revoked"], true);
}
