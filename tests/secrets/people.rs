//! Planted secrets of people who sign in: the proxy's secret, session cookies, CSRF tokens, and the keys that they mint.

use serde_json::{Value, json};

use super::{Planted, Watchers};
use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::vendor::{Browser, ORIGIN};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const SECRET: &str = "planted-secret-of-the-proxy/8d+1";
const WRONG: &str = "planted-wrong-secret-of-a-proxy";

/// Returns a client whose requests carry the headers of a proxy with this secret.
fn through_proxy(gateway: &Gateway, secret: &str) -> Client {
    Client::new(gateway.address(), None)
        .with("origin", ORIGIN)
        .with("sec-fetch-site", "same-origin")
        .with("x-llmgw-sso-secret", secret)
        .with("x-forwarded-user", "ada")
        .with("x-forwarded-groups", "llmgw-admin")
}

/// Signs a human in; returns a client with the session.
async fn sign_in(gateway: &Gateway) -> (Client, Value) {
    let client = through_proxy(gateway, SECRET);
    let opened = Admin(client.clone()).call("POST", "session", json!({"sso": true})).await;
    assert_eq!(opened.status, 201, "{opened:?}");
    let (session, cookie) = (opened.json(), opened.header("set-cookie").unwrap().to_owned());
    let client = client.with("cookie", cookie.split("; ").next().unwrap());
    (client.with("x-csrf-token", session["csrf_token"].as_str().unwrap()), session)
}

fn plant(planted: &mut Planted, name: &str, client: &Client) {
    planted.add(&format!("the session of {name}"), client.sends("cookie").split_once('=').unwrap().1);
    planted.add(&format!("the CSRF token of {name}"), client.sends("x-csrf-token"));
}

#[tokio::test]
async fn no_secret_of_a_signed_in_human_is_stored_logged_or_returned() {
    let (upstream, watchers) = (Upstream::start().await, Watchers::start().await);
    upstream.always(Answer::completion("hello"));
    let setup = watchers
        .setup(Setup::new(&Yaml::one(upstream.base_url())))
        .env("LLMGW_SSO_ENABLED", "true")
        .env("LLMGW_SSO_SHARED_SECRET", SECRET)
        .env("LLMGW_SSO_AUTO_PROVISION", "true");
    let gateway = setup.start().await;
    watchers.hook(&gateway).await;
    let mut planted = Planted::default();
    planted.add("the proxy's secret", SECRET);
    planted.add("a wrong secret", WRONG);
    planted.add("the administrator's key", ADMIN_KEY);
    let mut answers = Vec::new();
    let refused = Admin(through_proxy(&gateway, WRONG)).call("POST", "session", json!({"sso": true})).await;
    assert_eq!(refused.status, 401);
    answers.push(format!("{refused:?}"));
    let browser = Browser::sign_in(&gateway).await;
    plant(&mut planted, "the administrator", &browser.client);
    let (client, session) = sign_in(&gateway).await;
    plant(&mut planted, "a human", &client);
    let (ended, _) = sign_in(&gateway).await;
    plant(&mut planted, "a human who signs out", &ended);
    Admin(ended.clone()).done("DELETE", "session", Value::Null).await;
    let unproved = through_proxy(&gateway, SECRET).with("cookie", client.sends("cookie"));
    for client in [ended, unproved, through_proxy(&gateway, WRONG)] {
        let refused = Admin(client).call("POST", "projects", json!({"name": "p"})).await;
        assert!([401, 403].contains(&refused.status), "{refused:?}");
        answers.push(format!("{refused:?}"));
    }
    let human = session["human"]["id"].as_str().unwrap();
    let key = minted(&client, human).await;
    planted.add("the human's key", &key.1);
    answers.extend(used(&gateway, &client, &key).await);
    // What reaches an upstream has neither the secret nor the session.
    assert_eq!(upstream.requests().len(), 2);
    for sent in upstream.requests() {
        planted.expect_none("a request to an upstream", sent.head.as_bytes());
    }
    for path in ["state", "config", "principals", "projects", "keys", "requests", "audit?limit=500"] {
        answers.push(format!("{:?}", Admin(client.clone()).call("GET", path, Value::Null).await));
    }
    let (_, places) = planted.expect_nowhere(gateway, &watchers, &answers).await;
    figure("P18", format!("{} secrets of people: 0 found in {places}", planted.len()));
}

/// Mints and reveals a key of the human, with a key for the repetition of the request. Returns ID and key.
async fn minted(client: &Client, human: &str) -> (String, String) {
    let admin = Admin(client.clone());
    let project = admin.project("home").await;
    admin.done("PUT", &format!("projects/{project}/members/{human}"), json!({"role": "owner"})).await;
    let body = json!({"name": "hers", "project": project, "acts_as": human});
    let once = Admin(client.clone().with("idempotency-key", "minted-once"));
    let made = once.done("POST", "keys", body.clone()).await;
    assert_eq!(once.done("POST", "keys", body).await, made, "the stored answer");
    let [id, key] = ["id", "key"].map(|member| made[member].as_str().unwrap().to_owned());
    assert_eq!(admin.done("POST", &format!("keys/{id}/reveal"), json!({})).await["key"], key.as_str());
    (id, key)
}

/// Sends a run with the session, and a request with the key and everything that a browser and the proxy add. Returns the
/// answers, and what was recorded of them.
async fn used(gateway: &Gateway, client: &Client, (id, key): &(String, String)) -> Vec<String> {
    let run = client.clone().with("x-llmgw-run-as", id);
    let run = run.post("/admin/api/run/v1/chat/completions", chat::request("up/m")).await;
    assert_eq!(run.status, 200, "{run:?}");
    let request = client.clone().with("authorization", &format!("Bearer {key}"));
    let request = request.chat(chat::request("up/m")).await;
    assert_eq!(request.status, 200, "{request:?}");
    let mut answers = vec![format!("{run:?}"), format!("{request:?}")];
    for (answer, path) in [(run, "run/ID"), (request, "requests/ID/exchange")] {
        let request_id = answer.header("x-request-id").unwrap().to_owned();
        gateway.record_of(&request_id).await;
        let recorded = crate::support::wait::eventually(path, async || {
            let path = path.replace("ID", &request_id);
            let recorded = Admin(client.clone()).call("GET", &path, Value::Null).await;
            (recorded.status == 200).then(|| format!("{recorded:?}"))
        })
        .await;
        assert!(recorded.contains("client_request"), "{recorded}");
        answers.push(recorded);
    }
    answers
}
