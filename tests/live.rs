//! The live stream and the verdict through the real binary: what an operator sees without asking again.

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::client::Flow;
use crate::support::gateway::ADMIN_KEY;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

/// Opens the live stream and checks its head and first event.
pub(crate) async fn open(client: &Client, path: &str) -> Flow {
    let path = format!("/admin/api/{path}");
    let opening = client.open("GET", &path, Bytes::new());
    let mut flow = wait::within(wait::PATIENCE, "the live stream", opening).await.unwrap();
    assert_eq!(flow.status, 200, "{:?}", flow.headers);
    assert_eq!(flow.headers["content-type"], "text/event-stream");
    let (name, hello) = next(&mut flow).await;
    assert_eq!((name.as_str(), hello["version"].is_string()), ("hello", true), "{hello}");
    flow
}

/// Returns the name and the data of the next event.
async fn next(flow: &mut Flow) -> (String, Value) {
    let event = String::from_utf8(flow.event().await.bytes.to_vec()).unwrap();
    let (name, data) = event.trim().split_once('\n').unwrap();
    let (name, data) = (name.strip_prefix("event: ").unwrap(), data.strip_prefix("data: ").unwrap());
    (name.to_owned(), serde_json::from_str(data).unwrap())
}

/// Returns the data of the next event with this name for which `is_it` is true.
pub(crate) async fn event(flow: &mut Flow, wanted: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    wait::within(wait::PATIENCE, &format!("an event {wanted}"), async {
        loop {
            let (name, data) = next(flow).await;
            if name == wanted && is_it(&data) {
                return data;
            }
        }
    })
    .await
}

#[tokio::test]
async fn the_live_stream_shows_figures_providers_and_changes_as_they_happen() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let (client, admin) = (gateway.client(), Admin(gateway.client()));
    let mut live = open(&client, "live").await;
    let figures = event(&mut live, "figures", |_| true).await;
    assert_eq!(
        (&figures["requests"], &figures["verdict"]["state"]),
        (&json!(0), &json!("set_up")),
        "{figures}"
    );
    assert_eq!(figures["verdict"]["reasons"][0]["code"], "no_request");
    assert_eq!(figures["alerts"], json!({"total": 0, "bad": 0}));
    assert!(figures["first_content_us_p50"].is_null() && figures["connections"].as_u64().unwrap() >= 1);
    let providers = event(&mut live, "providers", |_| true).await;
    assert_eq!(
        (&providers[0]["provider"], &providers[0]["circuit"]["state"]),
        (&json!("up"), &json!("closed"))
    );

    for _ in 0..3 {
        assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
    }
    let figures = event(&mut live, "figures", |figures| figures["requests"] == 3).await;
    assert_eq!(
        ["completed", "attempts", "input", "output"].map(|name| figures[name].as_u64().unwrap()),
        [3, 3, 33, 21]
    );
    assert_eq!((&figures["verdict"]["state"], &figures["span_ms"]), (&json!("serving"), &json!(60_000)));
    let project = admin.project("agents").await;
    let change = event(&mut live, "change", |change| change["kind"] == "project.create").await;
    assert_eq!(change["object"], format!("project/{project}"));
    assert!(change["audit_id"].as_i64().unwrap() > 0 && change["text"].as_str().unwrap().contains("admin"));

    // One who comes later gets what the first frames of the others had.
    let mut late = open(&client, "live").await;
    let providers = event(&mut late, "providers", |_| true).await;
    assert_eq!((&providers[0]["attempts"], &providers[0]["failures"]), (&json!(3), &json!(0)));
    event(&mut late, "change", |change| change["kind"] == "project.create").await;
}

#[tokio::test]
async fn a_running_request_is_on_the_live_stream_until_it_ends() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::hang_forever());
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let mut live = open(&gateway.client(), "live").await;
    let first = event(&mut live, "running", |_| true).await;
    assert_eq!(first, json!({"begun_or_changed": [], "ended": [], "more": 0}));
    let client = gateway.client();
    let asking = tokio::spawn(async move { client.chat(chat::request("up/m")).await });
    let begun =
        event(&mut live, "running", |running| running["begun_or_changed"][0]["stage"] == "waiting").await;
    let exchange = &begun["begun_or_changed"][0];
    assert_eq!((&exchange["provider"], &exchange["selector"]), (&json!("up"), &json!("up/m")), "{begun}");
    let figures = event(&mut live, "figures", |figures| figures["running"] == 1).await;
    assert_eq!(figures["requests"], 0, "it has not ended");
    let mut late = open(&gateway.client(), "live").await;
    event(&mut late, "providers", |providers| providers[0]["running"] == 1).await;
    let listed = event(&mut late, "running", |_| true).await;
    assert_eq!(listed["begun_or_changed"][0]["request_id"], exchange["request_id"]);
    asking.abort();
    let ended = event(&mut live, "running", |running| running["ended"][0].is_string()).await;
    assert_eq!(ended["ended"], json!([exchange["request_id"]]));
    event(&mut live, "figures", |figures| figures["running"] == 0 && figures["cancelled"] == 1).await;
}

#[tokio::test]
async fn a_page_that_watches_a_key_sees_its_requests_and_those_that_were_rejected() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let admin = Admin(gateway.client());
    let project = admin.project("agents").await;
    let key = admin.key(json!({"project": project})).await;
    let mut live = open(&gateway.client(), &format!("live?watch={}", key.id)).await;
    event(&mut live, "figures", |_| true).await;

    let own =
        Client::new(gateway.address(), Some(&key.key)).with("user-agent", "claude-cli/2.1.329 (external)");
    let stranger =
        Client::new(gateway.address(), Some("sk-ant-0123456789abcdef")).with("user-agent", "curl/8");
    assert_eq!(gateway.client().chat(chat::request("up/m")).await.status, 200, "another key is not watched");
    assert_eq!(stranger.chat(chat::request("up/m")).await.status, 401);
    assert_eq!(own.post("/v1/v1/chat/completions", chat::request("up/m")).await.status, 404);
    assert_eq!(own.chat(chat::request("gpt-4o")).await.status, 404);
    let unclear = json!({"model": "up/m", "messages": [], "stream": "perhaps"});
    assert_eq!(own.chat(unclear.to_string()).await.status, 400);
    assert_eq!(own.chat(chat::request("up/m")).await.status, 200);

    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(event(&mut live, "seen", |_| true).await);
    }
    let shown =
        |seen: &Value| ["status", "code", "path", "model", "key_prefix"].map(|name| seen[name].clone());
    let prefix = key.key.get(..12).unwrap();
    assert_eq!(
        seen.iter().map(shown).collect::<Vec<_>>(),
        [
            [json!(401), json!("invalid_api_key"), json!("/v1/chat/completions"), Value::Null, json!("sk-a")],
            [json!(404), json!("not_found"), json!("/v1/v1/chat/completions"), Value::Null, json!(prefix)],
            [
                json!(404),
                json!("model_not_found"),
                json!("/v1/chat/completions"),
                json!("gpt-4o"),
                json!(prefix)
            ],
            [json!(400), json!("invalid_request"), json!("/v1/chat/completions"), Value::Null, json!(prefix)],
            [json!(200), Value::Null, json!("/v1/chat/completions"), json!("up/m"), json!(prefix)],
        ]
    );
    let params: Vec<&Value> = seen.iter().map(|seen| &seen["param"]).collect();
    assert_eq!(params, [&Value::Null, &Value::Null, &json!("model"), &json!("stream"), &Value::Null]);
    assert_eq!((&seen[0]["address"], &seen[0]["client"]), (&json!("127.0.0.1"), &json!("curl/8")));
    assert!(seen[4]["client"].as_str().unwrap().starts_with("claude-cli/2.1.329"));
    let record = gateway.record_of(seen[4]["request_id"].as_str().unwrap()).await;
    assert_eq!((&record["key"], &record["outcome"]), (&json!(key.id), &json!("completed")));
}

#[tokio::test]
async fn the_seventeenth_listener_is_rejected_until_one_leaves() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let client = gateway.client();
    let mut open_streams = Vec::new();
    for _ in 0..16 {
        open_streams.push(open(&client, "live").await);
    }
    let rejected = client.get("/admin/api/live").await.unwrap();
    assert_eq!((rejected.status, rejected.error_code().as_str()), (503, "overloaded"));
    assert!(rejected.header("retry-after").is_some());
    let message = rejected.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("16 of your live streams are running"), "{message}");
    let browser = client.clone().with("accept", "text/event-stream");
    let full = browser.get("/admin/api/live").await.unwrap();
    assert_eq!(full.body, "event: bye\ndata: {\"reason\":\"too_many\"}\n\n");
    drop(open_streams.pop());
    wait::eventually("room for a listener", async || {
        let flow = client.open("GET", "/admin/api/live", Bytes::new()).await.ok()?;
        (flow.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_live_stream_ends_with_its_session_and_with_the_process() {
    let mut gateway = Gateway::start(&Yaml::new()).await;
    let stranger = Client::new(gateway.address(), None);
    assert_eq!(stranger.get("/admin/api/live").await.unwrap().status, 401);
    let signed_in = stranger.post("/admin/api/session", format!(r#"{{"key": "{ADMIN_KEY}"}}"#)).await;
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let token = signed_in.json()["csrf_token"].as_str().unwrap().to_owned();
    let page = stranger.clone().with("cookie", &cookie);
    let mut live = open(&page, "live").await;
    event(&mut live, "figures", |_| true).await;
    let signing_out = page.clone().with("x-csrf-token", &token);
    assert_eq!(signing_out.send("DELETE", "/admin/api/session", Bytes::new()).await.unwrap().status, 204);
    assert_eq!(event(&mut live, "bye", |_| true).await, json!({"reason": "signed_out"}));
    assert!(live.next().await.is_none(), "the stream has ended");

    let mut live = open(&gateway.client(), "live").await;
    event(&mut live, "figures", |_| true).await;
    gateway.signal(Signal::TERM);
    let last = event(&mut live, "figures", |figures| figures["verdict"]["state"] == "draining").await;
    assert_eq!(last["verdict"]["reasons"][0]["code"], "draining", "{last}");
    assert_eq!(event(&mut live, "bye", |_| true).await, json!({"reason": "draining"}));
    assert!(live.next().await.is_none());
    assert!(gateway.exit().await.success());
}

#[tokio::test]
async fn the_state_names_the_failing_model_and_the_start_of_the_failure() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::error(500));
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 12\ncircuit_cooldown_seconds: 600";
    let gateway = Gateway::start(&Yaml::one(upstream.base_url()).policies(policies)).await;
    let client = gateway.client();
    let state = async |wanted: &str, codes: &[&str]| {
        wait::eventually(wanted, async || {
            let verdict = client.get("/admin/api/state").await.ok()?.json()["verdict"].clone();
            let reasons = verdict["reasons"].as_array()?.iter().map(|reason| reason["code"].clone());
            (verdict["state"] == wanted && reasons.collect::<Vec<_>>() == codes).then_some(verdict)
        })
        .await
    };
    let project = Admin(gateway.client()).project("agents").await;
    // A backup changes nothing that requests meet.
    Admin(gateway.client()).done("POST", "backups", json!({})).await;
    for _ in 0..4 {
        client.chat(chat::request("up/m")).await;
    }
    let serving = state("serving", &["requests"]).await;
    assert!(serving["change_before"].is_null(), "nothing to explain");
    client.chat(chat::request("up/m")).await;
    let failing = state("failing", &["requests_failing", "requests"]).await;
    let reason = &failing["reasons"][0];
    assert_eq!(
        (&reason["object"], &reason["figures"]),
        (&json!("up/m"), &json!({"requests": 5, "failed": 5}))
    );
    assert!(failing["since_ms"].as_u64().unwrap() > 1_700_000_000_000);
    let change = &failing["change_before"];
    assert_eq!(
        (&change["action"], &change["object"]),
        (&json!("project.create"), &json!(format!("project/{project}")))
    );
    for _ in 0..7 {
        client.chat(chat::request("up/m")).await;
    }
    state("failing", &["requests_failing", "circuit_open", "provider_failing", "requests"]).await;
}
