//! The state of the set-up (M-043): each step is done when its result exists, wherever it was made.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const STEPS: [&str; 8] = ["human", "project", "owner", "provider", "synced", "proven", "endpoint", "key"];

/// Returns the steps that are done, and the first request.
async fn done(gateway: &Gateway) -> (Vec<&'static str>, Value) {
    let setup = Admin(gateway.client()).done("GET", "setup", Value::Null).await;
    assert_eq!(setup.as_object().unwrap().len(), STEPS.len() + 1, "{setup}");
    let is_done = |step: &&str| setup[*step].as_bool().unwrap_or_else(|| panic!("{step}: {setup}"));
    (STEPS.into_iter().filter(is_done).collect(), setup["first_request"].clone())
}

#[tokio::test]
async fn each_step_of_the_set_up_is_ticked_when_its_result_exists() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    assert_eq!(done(&gateway).await, (vec![], Value::Null));
    let human = admin.create("principals", json!({"name": "Ada"})).await;
    let project = admin.project("agents").await;
    assert_eq!(done(&gateway).await.0, ["human", "project"]);
    admin.done("PUT", &format!("projects/{project}/members/{human}"), json!({"role": "owner"})).await;
    assert_eq!(done(&gateway).await.0, STEPS[..3]);

    let provider =
        json!({"id": "up", "type": "compatible", "base_url": upstream.base_url(), "models": ["m"]});
    admin.done("POST", "providers", provider).await;
    assert_eq!(done(&gateway).await.0, STEPS[..4], "declared models are no list that was read");
    upstream.then(Answer::json(200, json!({"object": "list", "data": [{"id": "m"}]}).to_string()));
    admin.done("POST", "providers/up/sync", json!({})).await;
    assert_eq!(done(&gateway).await.0, STEPS[..5]);
    upstream.then(Answer::error(500));
    assert_eq!(admin.done("POST", "providers/up/test", json!({"model": "m"})).await["ok"], false);
    assert_eq!(done(&gateway).await.0, STEPS[..5], "a test that failed proves nothing");
    upstream.always(Answer::events(&[chat::content("pong"), chat::finish(), chat::usage(), chat::done()]));
    assert_eq!(admin.done("POST", "providers/up/test", json!({"model": "m"})).await["ok"], true);
    assert_eq!(done(&gateway).await.0, STEPS[..6]);

    let target = json!({"name": "default", "failover": [{"provider": "up", "model": "m"}]});
    admin.done("POST", "endpoints", target).await;
    assert_eq!(done(&gateway).await.0, STEPS[..7]);
    let key = admin.key(json!({"project": project})).await;
    assert_eq!(
        done(&gateway).await,
        (STEPS.to_vec(), Value::Null),
        "tests of administrators are no request of a client"
    );

    let client = Client::new(gateway.address(), Some(&key.key));
    let unknown = client.chat(chat::request("no-such-model")).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(done(&gateway).await.1, Value::Null, "a request that failed");
    let first = client.chat(chat::stream_request("default")).await;
    assert_eq!(first.status, 200);
    assert_eq!(client.chat(chat::stream_request("default")).await.status, 200);
    let first = json!(first.header("x-request-id").unwrap());
    assert_eq!(done(&gateway).await, (STEPS.to_vec(), first));

    admin.done("PATCH", &format!("keys/{}", key.id), json!({"state": "disabled"})).await;
    assert_eq!(done(&gateway).await.0, STEPS[..7], "a key that cannot be used");
}

#[tokio::test]
async fn a_provider_of_the_configuration_counts_unless_it_is_disabled() {
    let yaml = "providers:\n  up: {type: openai, api_key: k}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    assert_eq!(done(&gateway).await.0, ["provider"]);
    let yaml = "providers:\n  off: {type: openai, api_key: k, disabled: true}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    assert_eq!(done(&gateway).await.0, Vec::<&str>::new());
}

#[tokio::test]
async fn an_answer_to_a_client_proves_a_provider_as_a_test_does() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::events(&[chat::content("pong"), chat::finish(), chat::usage(), chat::done()]));
    let gateway = Gateway::start(&Yaml::new().provider("up", upstream.base_url())).await;
    assert_eq!(done(&gateway).await.0, ["provider"]);
    assert_eq!(gateway.client().chat(chat::stream_request("up/m")).await.status, 200);
    assert_eq!(done(&gateway).await.0, ["provider", "proven"]);
}

#[tokio::test]
async fn the_providers_inside_the_gateway_and_endpoints_on_them_complete_no_step() {
    let yaml = "providers:\n  talk: {type: echo}\n  voice: {type: builtin_speech}\n  up: {type: openai, api_key: k, models: [m]}\n\
                endpoints:\n  smart: {failover: [{provider: talk, model: echo}]}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let admin = Admin(gateway.client());
    assert_eq!(admin.done("POST", "providers/talk/test", json!({"model": "echo"})).await["ok"], true);
    assert_eq!(done(&gateway).await.0, ["provider"], "the provider 'up' alone counts");
    let failover = json!([{"provider": "talk", "model": "echo"}, {"provider": "up", "model": "m"}]);
    admin.done("POST", "endpoints", json!({"name": "both", "failover": failover})).await;
    assert_eq!(done(&gateway).await.0, ["provider", "endpoint"], "one target at an upstream is enough");
}
