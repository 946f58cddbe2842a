//! Keys in `secrets.json` work, with a warning, and `credentials import` seals them (STATE-6, M-123).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::secrets::Planted;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml};

const PLAIN_KEY: &str = "planted-key-of-the-plain-file-5d21";

/// Sets up a provider that needs a key and has none in the configuration file.
async fn keyless() -> (Setup, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let url = upstream.base_url();
    let yaml = format!("providers:\n  up: {{type: openai, base_url: '{url}', models: [m]}}\n");
    (Setup::new(&Yaml::new()).yaml(yaml), upstream)
}

fn write_plain(state: &Path, text: &str) {
    std::fs::create_dir_all(state).unwrap();
    let file = state.join("secrets.json");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Sends a chat request and expects the upstream to receive `key`.
async fn expect_chat_with(gateway: &Gateway, upstream: &Upstream, key: &str) {
    let body = json!({"model": "up/m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let answer = gateway.client().chat(body).await;
    assert_eq!(answer.status, 200, "{:?}\n{}", answer.body, gateway.log());
    let requests = upstream.requests();
    assert_eq!(requests.last().unwrap().header("authorization"), Some(format!("Bearer {key}").as_str()));
}

#[tokio::test]
async fn plain_text_keys_work_before_and_after_they_are_sealed() {
    let mut planted = Planted::default();
    planted.add("the plain key", PLAIN_KEY);
    let (setup, upstream) = keyless().await;
    let setup = setup.env("LLMGW_LOG", "trace");
    write_plain(&setup.state(), &json!({"up": PLAIN_KEY}).to_string());
    let gateway = setup.start().await;
    expect_chat_with(&gateway, &upstream, PLAIN_KEY).await;
    gateway.logs("run 'llmgw credentials import'").await;
    planted.expect_none("the log", gateway.log().as_bytes());
    let refused = gateway.setup().output_of(&["credentials", "import"], 75).await;
    assert!(refused.contains("another process"), "{refused}");
    let shown = gateway.client().get("/admin/api/providers/up").await.unwrap();
    assert_eq!((&shown.json()["state"], &shown.json()["credential"]["set"]), (&json!("ready"), &json!(true)));
    planted.expect_none("the API", &shown.body);

    let setup = gateway.kill().await;
    for arguments in [&["config", "show"], &["config", "check"], &["credentials", "import"]] {
        planted.expect_none(&arguments.join(" "), setup.output_of(arguments, 0).await.as_bytes());
    }
    assert!(!setup.state().join("secrets.json").exists());
    assert!(planted.expect_none_below(&setup.state()) >= 2, "there is a database");
    let again = setup.output_of(&["credentials", "import"], 0).await;
    assert!(again.contains("nothing was changed"), "{again}");
    assert!(setup.output_of(&["credentials", "verify"], 0).await.contains("all "));

    let gateway = setup.start().await;
    expect_chat_with(&gateway, &upstream, PLAIN_KEY).await;
    assert!(!gateway.log().contains("credentials import"), "{}", gateway.log());
    let audit = gateway.client().get("/admin/api/audit?action=credential.import").await.unwrap();
    assert_eq!(audit.json()["data"].as_array().unwrap().len(), 1, "{:?}", audit.body);
    assert_eq!(audit.json()["data"][0]["object_id"], "up");
    planted.expect_none("the audit", &audit.body);
    planted.expect_none("the log", gateway.log().as_bytes());
    let setup = gateway.kill().await;
    planted.expect_none_below(&setup.state());
    assert!(setup.output_of(&["audit", "verify"], 0).await.contains("row"));
}

#[tokio::test]
async fn without_any_key_the_gateway_starts_and_reports_the_missing_key() {
    let (setup, upstream) = keyless().await;
    let output = setup.output_of(&["config", "check"], 0).await;
    assert!(
        output.contains("warning: providers.up: api_key is missing; write it as ${ENV:NAME}"),
        "{output}"
    );
    let gateway = setup.start().await;
    let body = json!({"model": "up/m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let answer = gateway.client().chat(body).await;
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("its API key is missing"));
    assert!(upstream.requests().is_empty());
    gateway.logs("the provider cannot be used: api_key is missing").await;
    let shown = gateway.client().get("/admin/api/providers/up").await.unwrap().json();
    assert_eq!(shown["state"], "faulty", "{shown}");
    assert!(shown["reason"].as_str().unwrap().starts_with("api_key is missing"), "{shown}");

    // A reload also reads the file beside the configuration.
    write_plain(&gateway.state(), r#"{"providers": {"up": {"api_key": "sk-late"}}}"#);
    let url = upstream.base_url();
    gateway.write_config(format!("providers:\n  up: {{type: openai, base_url: '{url}', models: [m, n]}}\n"));
    crate::support::wait::eventually("the reload", async || {
        let shown = gateway.client().get("/admin/api/providers/up").await.ok()?.json();
        (shown["state"] == "ready").then_some(())
    })
    .await;
    expect_chat_with(&gateway, &upstream, "sk-late").await;
}

#[tokio::test]
async fn an_import_killed_at_any_moment_loses_no_key() {
    const RUNS: u32 = 16;
    let (mut setup, upstream) = keyless().await;
    let mut whole = Duration::ZERO;
    let mut interrupted = 0;
    for number in 0..RUNS {
        let key = format!("sk-number-{number}");
        write_plain(&setup.state(), &json!({"up": key}).to_string());
        let mut child =
            setup.command(&["credentials", "import"]).stdout(std::process::Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        // The first run completes and measures the duration; the others are killed at moments spread over it.
        let moment = if number == 0 { Duration::from_secs(60) } else { whole * number / RUNS };
        match tokio::time::timeout(moment, child.wait()).await {
            Ok(status) => {
                assert!(status.unwrap().success());
                whole = began.elapsed();
            }
            Err(_) => {
                child.kill().await.unwrap();
                interrupted += 1;
            }
        }
        let gateway = setup.start().await;
        expect_chat_with(&gateway, &upstream, &key).await;
        setup = gateway.kill().await;
        setup.output_of(&["credentials", "import"], 0).await;
        for left in ["secrets.json", "secrets.json.imported"] {
            assert!(!setup.state().join(left).exists(), "{left} after run {number}");
        }
    }
    assert!(interrupted >= RUNS / 4, "{interrupted} of {RUNS} were interrupted");
    let gateway = setup.start().await;
    expect_chat_with(&gateway, &upstream, &format!("sk-number-{}", RUNS - 1)).await;
}
