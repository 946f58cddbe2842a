//! Captured exchanges (CFG-7, STATE-1): off by default, complete, bounded, sealed, and lost without harm.

use std::fs;

use serde_json::{Value, json};

use crate::secrets::Planted;
use crate::support::admin::Admin;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const PROMPT: &str = "captured prompt canary: four silver wrens";
const COMPLETION: &str = "captured answer canary: two copper owls";
const NEW_KEY: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

fn setup(yaml: &Yaml) -> Setup {
    Setup::new(yaml).env("LLMGW_LOG_REQUEST_BODIES", "true")
}

fn body(content: &str) -> String {
    json!({"model": "up/m", "messages": [{"role": "user", "content": content}]}).to_string()
}

/// Returns the captured exchange of a request once it is stored.
async fn exchange(gateway: &Gateway, request_id: &str) -> Value {
    let (client, path) = (gateway.client(), format!("/admin/api/requests/{request_id}/exchange"));
    wait::eventually("the captured exchange", async || {
        let answer = client.get(&path).await.unwrap();
        (answer.status == 200).then(|| answer.json())
    })
    .await
}

/// Sends a request that is answered with [`COMPLETION`]. Returns its id.
async fn sent(gateway: &Gateway, upstream: &Upstream) -> String {
    upstream.always(Answer::completion(COMPLETION));
    let answer = gateway.client().chat(body(PROMPT)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-request-id").unwrap().to_owned()
}

fn text<'a>(side: &'a Value, member: &str) -> &'a str {
    side[member].as_str().unwrap()
}

#[tokio::test]
async fn a_captured_exchange_shows_both_sides_of_the_gateway_in_each_attempt() {
    let upstreams = [Upstream::start().await, Upstream::start().await];
    upstreams[0].always(Answer::error(503));
    upstreams[1].always(Answer::events(&chat::events(&["four ", "five"])));
    let yaml = Yaml::line(&[upstreams[0].base_url(), upstreams[1].base_url()]);
    let gateway = setup(&yaml.policies("retry_max_attempts: 1")).start().await;
    let client = gateway.client().with("cookie", "planted=cookie");
    let mut flow = client.chat_flow(chat::stream_request("line")).await;
    let request_id = flow.headers.get("x-request-id").unwrap().to_str().unwrap().to_owned();
    let (events, _) = flow.rest().await;
    let received = events.iter().flat_map(|event| event.bytes.to_vec()).collect::<Vec<u8>>();

    let exchange = exchange(&gateway, &request_id).await;
    let sides = exchange["sides"].as_array().unwrap();
    let shown: Vec<_> = sides.iter().map(|side| (text(side, "side"), side["attempt"].as_u64())).collect();
    assert_eq!(
        shown,
        [
            ("client_request", None),
            ("upstream_request", Some(1)),
            ("upstream_response", Some(1)),
            ("upstream_request", Some(2)),
            ("upstream_response", Some(2)),
            ("client_response", None),
        ]
    );
    let [client_request, _, failed, sent, answered, client_response] = sides.as_slice() else { panic!() };
    assert_eq!(text(client_request, "body"), chat::stream_request("line"));
    assert!(text(failed, "head").contains("503"), "{failed}");
    assert!(
        text(sent, "body").contains(r#""model":"m""#) || text(sent, "body").contains(r#""model": "m""#),
        "{sent}"
    );
    assert!(text(answered, "body").contains("five"), "{answered}");
    assert_eq!(text(client_response, "body").as_bytes(), received, "what the client received");
    assert_eq!(client_response["bytes"], received.len());
    assert!(client_response["pieces_us"].as_array().is_some_and(|times| !times.is_empty()));
    for side in sides {
        assert_eq!((&side["cut"], &side["base64"]), (&json!(false), &json!(false)), "{side}");
    }
    for hidden in ["authorization: [hidden]", "cookie: [hidden]"] {
        assert!(text(client_request, "head").contains(hidden), "{client_request}");
    }
    let whole = exchange.to_string();
    for secret in [ADMIN_KEY, "upstream-secret", "planted=cookie"] {
        assert!(!whole.contains(secret), "{secret} in {whole}");
    }
    let audit = Admin(gateway.client()).done("GET", "audit?action=request.exchange", Value::Null).await;
    assert_eq!(audit["data"].as_array().unwrap().len(), 1, "each read is recorded: {audit}");
    gateway.logs("the prompts and answers of all requests are stored").await;
}

/// Proves M-114.
#[tokio::test]
async fn nothing_is_captured_by_default_and_the_answer_names_the_switch() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let request_id = sent(&gateway, &upstream).await;
    gateway.record_of(&request_id).await;
    let answer = gateway.client().get(&format!("/admin/api/requests/{request_id}/exchange")).await.unwrap();
    assert_eq!(answer.status, 404);
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("LLMGW_LOG_REQUEST_BODIES=true"), "{message}");
    let state = Admin(gateway.client()).done("GET", "state", Value::Null).await;
    assert_eq!(state["warnings"], json!([]));
}

#[tokio::test]
async fn a_captured_exchange_is_shown_to_administrators_only() {
    let upstream = Upstream::start().await;
    let gateway = setup(&Yaml::one(upstream.base_url())).start().await;
    let request_id = sent(&gateway, &upstream).await;
    exchange(&gateway, &request_id).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    for (key, status) in [(Some(key.key.as_str()), 403), (None, 401)] {
        let client = Client::new(gateway.address(), key);
        let answer = client.get(&format!("/admin/api/requests/{request_id}/exchange")).await.unwrap();
        assert_eq!(answer.status, status);
    }
}

#[tokio::test]
async fn a_body_beyond_its_bound_is_cut_and_its_length_is_exact() {
    const KEPT: usize = 256 << 10;
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion(COMPLETION));
    let gateway = setup(&Yaml::one(upstream.base_url())).start().await;
    let body = body(&"x".repeat(KEPT));
    let answer = gateway.client().chat(body.clone()).await;
    let exchange = exchange(&gateway, answer.header("x-request-id").unwrap()).await;
    let [request, sent, _, answered] = exchange["sides"].as_array().unwrap().as_slice() else { panic!() };
    for side in [request, sent] {
        assert_eq!((text(side, "body").len(), &side["cut"]), (KEPT, &json!(true)));
    }
    assert_eq!(request["bytes"], body.len());
    assert_eq!((text(answered, "body").as_bytes(), &answered["cut"]), (&*answer.body, &json!(false)));
}

/// Proves M-121 and, for telemetry, M-119: what is lost with the file matters to nothing else.
#[tokio::test]
async fn a_damaged_telemetry_db_is_created_again_and_nothing_else_is_lost() {
    let upstream = Upstream::start().await;
    let gateway = setup(&Yaml::one(upstream.base_url())).start().await;
    let request_id = sent(&gateway, &upstream).await;
    exchange(&gateway, &request_id).await;
    let stopped = gateway.kill().await;
    let file = stopped.state().join("telemetry.db");
    fs::write(&file, "not a database").unwrap();
    // SQLite would restore it from its write-ahead log.
    fs::remove_file(file.with_extension("db-wal")).unwrap();
    let gateway = stopped.start().await;
    gateway.record_of(&request_id).await;
    let answer = gateway.client().get(&format!("/admin/api/requests/{request_id}/exchange")).await.unwrap();
    assert_eq!(answer.status, 404);
    gateway.logs("only telemetry is lost").await;
    let again = sent(&gateway, &upstream).await;
    exchange(&gateway, &again).await;
}

#[tokio::test]
async fn a_captured_exchange_is_sealed_stays_readable_after_a_rekey_and_is_in_no_backup() {
    let upstream = Upstream::start().await;
    let gateway = setup(&Yaml::one(upstream.base_url())).env("LLMGW_LOG", "trace").start().await;
    let request_id = sent(&gateway, &upstream).await;
    exchange(&gateway, &request_id).await;
    let stopped = gateway.kill().await;
    let mut planted = Planted::default();
    planted.add("the prompt", PROMPT);
    planted.add("the answer", COMPLETION);
    planted.expect_none_below(&stopped.state());
    let created = stopped.output_of(&["backup", "create"], 0).await;
    let (archive, restored) = (created.lines().next().unwrap(), stopped.state().join("restored"));
    stopped.output_of(&["backup", "restore", archive, restored.to_str().unwrap()], 0).await;
    assert!(restored.join("gateway.db").exists() && !restored.join("telemetry.db").exists());

    let stopped = stopped.env("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", NEW_KEY);
    stopped.output_of(&["credentials", "rekey"], 0).await;
    let stopped = stopped.without("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY");
    let gateway = stopped.env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", NEW_KEY).start().await;
    let shown = exchange(&gateway, &request_id).await.to_string();
    assert!(shown.contains(PROMPT) && shown.contains(COMPLETION), "{shown}");
    planted.expect_none("the log", gateway.log().as_bytes());
}
