//! Runs: requests of the data plane that an administrator sends from the console as a key or a human, and the recording
//! of both sides of the gateway.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::admin::{Admin, NewKey};
use crate::support::client::Whole;
use crate::support::figure::promised;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const CHAT: &str = "/admin/api/run/v1/chat/completions";

/// Starts the providers `p0` and `p1` behind `line`, and creates a project and a key.
async fn start() -> (Gateway, [Upstream; 2], NewKey) {
    let upstreams = [Upstream::start().await, Upstream::start().await];
    let gateway = Gateway::start(&Yaml::line(&[upstreams[0].base_url(), upstreams[1].base_url()])).await;
    let admin = Admin(gateway.client());
    let project = admin.project("agents").await;
    let key = admin.key(json!({"project": project, "endpoints": ["line"]})).await;
    (gateway, upstreams, key)
}

/// Returns an administrator's client that runs requests as `id`.
fn acting_as(gateway: &Gateway, id: &str) -> Client {
    gateway.client().with("x-llmgw-run-as", id)
}

async fn run(client: &Client, body: String) -> Whole {
    client.post(CHAT, body).await
}

fn sides(exchange: &Value) -> Vec<(String, Value)> {
    let sides = exchange["sides"].as_array().unwrap().iter();
    sides.map(|side| (side["side"].as_str().unwrap().to_owned(), side["attempt"].clone())).collect()
}

#[tokio::test]
async fn a_run_is_answered_as_the_data_plane_does_and_counts_for_its_key() {
    let (gateway, [first, _], key) = start().await;
    first.always(Answer::events(&chat::events(&["a", "b"])));
    let body = chat::stream_request_with_usage("line");
    let direct = Client::new(gateway.address(), Some(&key.key)).chat(body.clone()).await;
    let answer = run(&acting_as(&gateway, &key.id), body).await;
    assert_eq!((answer.status, &answer.body), (200, &direct.body));
    for name in ["content-type", "x-llmgw-provider", "x-llmgw-model", "x-llmgw-attempts", "cache-control"] {
        assert_eq!(answer.header(name), direct.header(name), "{name}");
    }
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((&record["key"], &record["outcome"]), (&json!(key.id), &json!("completed")), "{record}");
    let audit = Admin(gateway.client()).done("GET", "audit?action=request.run", Value::Null).await;
    assert_eq!(audit["data"].as_array().unwrap().len(), 1, "{audit}");
}

#[tokio::test]
async fn the_permissions_and_quotas_of_the_key_apply_to_a_run() {
    let (gateway, [first, _], key) = start().await;
    first.always(Answer::completion("hello"));
    let admin = Admin(gateway.client());
    let client = acting_as(&gateway, &key.id);
    let refused = run(&client, chat::request("p0/m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "not_allowed"), "only the endpoint");
    let quota = json!({
        "subject": {"kind": "key", "id": key.id}, "metric": "requests", "window": "hour", "limit": 1,
        "enforcement": "hard",
    });
    admin.done("POST", "quotas", quota).await;
    assert_eq!(run(&client, chat::request("line")).await.status, 200);
    let over = run(&client, chat::request("line")).await;
    assert_eq!((over.status, over.error_code().as_str()), (429, "quota_exceeded"));
    let direct = Client::new(gateway.address(), Some(&key.key)).chat(chat::request("line")).await;
    assert_eq!(direct.status, 429, "runs and requests count together");
}

#[tokio::test]
async fn a_run_as_a_human_may_use_what_is_theirs() {
    let (gateway, [first, _], _) = start().await;
    first.always(Answer::completion("hello"));
    let admin = Admin(gateway.client());
    let human = admin.create("principals", json!({"name": "Ada"})).await;
    let answer = run(&acting_as(&gateway, &human), chat::request("p0/m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((&record["key"], &record["principal"]), (&json!("run"), &json!(human)), "{record}");
    admin.done("PATCH", &format!("principals/{human}"), json!({"disabled": true})).await;
    assert_eq!(run(&acting_as(&gateway, &human), chat::request("p0/m")).await.status, 400);
}

#[tokio::test]
async fn a_humans_limit_counts_in_a_run_though_no_key_acts_as_them() {
    let (gateway, [first, _], _) = start().await;
    first.always(Answer::completion("hello"));
    let admin = Admin(gateway.client());
    let human = admin.create("principals", json!({"name": "Ada"})).await;
    let quota = json!({"subject": {"kind": "principal", "id": human}, "metric": "requests", "window": "day", "limit": 2});
    let quota = admin.create("quotas", quota).await;
    let client = acting_as(&gateway, &human);
    let used = async || admin.done("GET", &format!("quotas/{quota}"), Value::Null).await["used"].clone();
    assert_eq!(run(&client, chat::request("p0/m")).await.status, 200);
    assert_eq!(used().await, 1);
    assert_eq!(run(&client, chat::request("p0/m")).await.status, 200);
    let over = run(&client, chat::request("p0/m")).await;
    assert_eq!((over.status, over.error_code().as_str()), (429, "quota_exceeded"), "{over:?}");
    admin.done("PATCH", &format!("quotas/{quota}"), json!({"limit": 3})).await;
    assert_eq!(run(&client, chat::request("p0/m")).await.status, 200);
    assert_eq!(used().await, 3);
}

#[tokio::test]
async fn a_run_needs_a_key_or_human_and_a_path_of_the_data_plane() {
    let (gateway, [first, _], key) = start().await;
    let body = || chat::request("line");
    for (client, path, want) in [
        (gateway.client(), CHAT, 400),
        (acting_as(&gateway, "admin"), CHAT, 400),
        (acting_as(&gateway, "key_none"), CHAT, 400),
        (acting_as(&gateway, "prn_none"), CHAT, 400),
        (acting_as(&gateway, &key.id).with("x-llmgw-run-only", "p0"), CHAT, 400),
        (acting_as(&gateway, &key.id), "/admin/api/run/v1/models", 404),
        (acting_as(&gateway, &key.id), "/admin/api/run/state", 404),
        (Client::new(gateway.address(), Some(&key.key)).with("x-llmgw-run-as", &key.id), CHAT, 403),
        (Client::new(gateway.address(), None).with("x-llmgw-run-as", &key.id), CHAT, 401),
    ] {
        let answer = client.post(path, body()).await;
        assert_eq!(answer.status, want, "{path}: {answer:?}");
    }
    let answer = gateway.client().post(CHAT, body()).await;
    assert_eq!(answer.json()["error"]["param"], "x-llmgw-run-as");
    assert_eq!(first.requests().len(), 0);
}

#[tokio::test]
async fn a_run_in_a_session_needs_its_csrf_token() {
    let (gateway, [first, _], key) = start().await;
    first.always(Answer::completion("hello"));
    let session = Admin(gateway.client()).call("POST", "session", Value::Null).await;
    let cookie = session.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = Client::new(gateway.address(), None).with("cookie", &cookie).with("x-llmgw-run-as", &key.id);
    assert_eq!(run(&page, chat::request("line")).await.status, 403);
    let token = session.json()["csrf_token"].as_str().unwrap().to_owned();
    assert_eq!(run(&page.with("x-csrf-token", &token), chat::request("line")).await.status, 200);
    let sent = &first.request(0).await.head;
    assert!(!sent.contains("cookie") && !sent.contains(&token), "{sent}");
}

#[tokio::test]
async fn a_run_can_be_restricted_to_one_target_of_its_selector() {
    let (gateway, [first, second], key) = start().await;
    first.always(Answer::completion("first"));
    second.always(Answer::completion("second"));
    let client = acting_as(&gateway, &key.id);
    let answer = run(&client.clone().with("x-llmgw-run-only", "p1/m"), chat::request("line")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "second", "{answer:?}");
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!(record["endpoint"], "line", "{record}");
    let refused = run(&client.with("x-llmgw-run-only", "p2/m"), chat::request("line")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (400, "invalid_request"), "{refused:?}");
    assert_eq!((first.requests().len(), second.requests().len()), (0, 1));
}

#[tokio::test]
async fn a_run_shows_both_sides_and_no_credential() {
    let (gateway, [first, second], key) = start().await;
    // An upstream that quotes the key that it was called with.
    let quoting = json!({"error": {"message": "busy: upstream-secret-of-p0", "type": "e", "code": null}});
    first.always(Answer::json(503, quoting.to_string()));
    second.always(Answer::events(&chat::events(&["a", "b"])));
    let client = acting_as(&gateway, &key.id).with("user-agent", "the-page/1");
    let answer = run(&client, chat::stream_request("line")).await;
    assert_eq!(answer.status, 200);
    let id = answer.header("x-request-id").unwrap();
    let whole = gateway.client().get(&format!("/admin/api/run/{id}")).await.unwrap();
    let text = String::from_utf8(whole.body.to_vec()).unwrap();
    for secret in [ADMIN_KEY, "upstream-secret-of", &key.key] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let exchange = whole.json();
    assert_eq!(exchange["request_id"], id);
    let want = [
        ("client_request", Value::Null),
        ("upstream_request", json!(1)),
        ("upstream_response", json!(1)),
        ("upstream_request", json!(2)),
        ("upstream_response", json!(2)),
        ("client_response", Value::Null),
    ];
    assert_eq!(sides(&exchange), want.map(|(side, attempt)| (side.to_owned(), attempt)));
    let at = |index: usize, member: &str| exchange["sides"][index][member].clone();
    assert_eq!(at(0, "body"), chat::stream_request("line"));
    assert!(at(0, "head").as_str().unwrap().starts_with("POST /v1/chat/completions HTTP/1.1\n"));
    assert!(at(0, "head").as_str().unwrap().contains("\nuser-agent: the-page/1"), "{exchange}");
    let sent = second.request(0).await;
    assert_eq!(at(3, "body"), String::from_utf8(sent.body.to_vec()).unwrap());
    assert!(at(3, "head").as_str().unwrap().contains("\nauthorization: [hidden]"), "{exchange}");
    assert!(at(2, "head").as_str().unwrap().starts_with("HTTP/1.1 503 "), "{exchange}");
    assert!(at(2, "body").as_str().unwrap().contains("busy: [redacted]"), "{exchange}");
    let streamed = String::from_utf8(answer.body.to_vec()).unwrap();
    assert_eq!(at(5, "body"), streamed);
    assert!(at(4, "body").as_str().unwrap().contains("[DONE]"), "{exchange}");
    for side in exchange["sides"].as_array().unwrap() {
        let times: Vec<u64> =
            side["pieces_us"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert!(!times.is_empty() && times.is_sorted() && side["cut"] == false, "{side}");
    }
    let record = gateway.record_of(id).await;
    assert_eq!(record["trace"].as_array().unwrap().len(), 2, "{record}");
    let ordinary = Client::new(gateway.address(), Some(&key.key)).chat(chat::stream_request("line")).await;
    let path = format!("/admin/api/run/{}", ordinary.header("x-request-id").unwrap());
    assert_eq!(
        gateway.client().get(&path).await.unwrap().status,
        404,
        "requests of clients are not recorded"
    );
}

#[tokio::test]
async fn a_run_takes_bodies_of_any_type_up_to_the_limit_of_the_data_plane() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::json(
        200,
        json!({"text": "heard", "usage": {"type": "duration", "seconds": 3}}).to_string(),
    ));
    let members = "protocols: [transcription]";
    let gateway = Gateway::start(&Yaml::new().provider_with("up", upstream.base_url(), members)).await;
    let admin = Admin(gateway.client());
    let project = admin.project("agents").await;
    let key = admin.key(json!({"project": project})).await;
    let sound = "s".repeat(3 << 20);
    let body = format!(
        "--edge\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n--edge\r\ncontent-disposition: \
         form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{sound}\r\n--edge--\r\n"
    );
    let client = acting_as(&gateway, &key.id).with("content-type", "multipart/form-data; boundary=edge");
    let path = "/admin/api/run/v1/audio/transcriptions";
    let answer = client.send("POST", path, body.clone().into()).await.unwrap();
    assert_eq!((answer.status, &answer.json()["text"]), (200, &json!("heard")), "{answer:?}");
    assert!(upstream.request(0).await.body.len() > 3 << 20);
    let path = format!("run/{}", answer.header("x-request-id").unwrap());
    let exchange = admin.done("GET", &path, Value::Null).await;
    let request = &exchange["sides"][0];
    assert_eq!((request["body"].as_str().unwrap().len(), &request["cut"]), (256 << 10, &json!(true)));
}

#[tokio::test]
async fn a_run_over_the_body_limit_of_the_data_plane_is_refused_as_there() {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_MAX_REQUEST_BODY_BYTES", "65536");
    let gateway = setup.start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("agents").await;
    let key = admin.key(json!({"project": project})).await;
    let long = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(65_536)}]});
    let answer = run(&acting_as(&gateway, &key.id), long.to_string()).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (413, "request_too_large"), "{answer:?}");
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_a_run_lets_the_upstream_go() {
    let (gateway, [first, _], key) = start().await;
    first.then(Answer::hang_forever());
    first.then(Answer::stream().chunk(chat::role()).chunk(chat::content("a")).hang());
    let client = acting_as(&gateway, &key.id).with("content-type", "application/json");
    let open = async || client.open("POST", CHAT, chat::stream_request("line").into()).await;
    let waiting = tokio::time::timeout(Duration::from_millis(500), open());
    assert!(waiting.await.is_err(), "it hangs");
    first.closed(0).await;
    let flow = open().await.unwrap();
    let left = Instant::now();
    drop(flow);
    let taken = first.closed(1).await.saturating_duration_since(left);
    assert!(taken < promised(Duration::from_millis(250)), "{taken:?}");
}
