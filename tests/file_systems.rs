//! Configured paths that are not regular files, and file systems that do not respond: each is rejected by name and in
//! time, and nothing else waits for it.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::supervision::Faulty;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

const ARCHIVE: &str = "llmgw-backup-20260101T000000.000Z.tar.zst";

fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

async fn state(gateway: &Gateway) -> Value {
    gateway.client().get("/admin/api/state").await.unwrap().json()
}

#[tokio::test]
async fn a_fifo_among_the_backups_blocks_nothing() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let folder = gateway.state().join("backups");
    std::fs::create_dir(&folder).unwrap();
    let fifo = folder.join(ARCHIVE);
    make_fifo(&fifo);
    let list = gateway.client().get("/admin/api/backups").await.unwrap().json();
    assert_eq!(
        (&list["data"][0]["name"], &list["data"][0]["manifest"]),
        (&json!(ARCHIVE), &Value::Null),
        "{list}"
    );
    assert!(gateway.setup().output_of(&["backup", "list"], 0).await.contains("cannot be read"));
    for verb in ["verify", "restore"] {
        let refused = gateway.setup().output_of(&["backup", verb, fifo.to_str().unwrap()], 74).await;
        assert!(refused.contains("it is a FIFO, not a regular file"), "{verb}: {refused}");
    }
}

#[tokio::test]
async fn a_hung_backup_file_system_blocks_neither_the_api_nor_the_stop() {
    let faulty = Faulty::new();
    let mut gateway = faulty.apply(Setup::new(&Yaml::one("http://127.0.0.1:9/v1"))).start().await;
    let folder = gateway.state().join("backups");
    std::fs::create_dir(&folder).unwrap();
    faulty.begin("hang", folder.to_str().unwrap());
    let (client, sent_at) = (gateway.client(), Instant::now());
    let listing = tokio::spawn(async move { client.get("/admin/api/backups").await.unwrap() });
    assert_eq!(state(&gateway).await["auth_required"], true);
    assert!(!listing.is_finished(), "the API answers while the list waits");
    assert_eq!(wait::within(2 * wait::PATIENCE, "the list", listing).await.unwrap().status, 500);
    assert!(sent_at.elapsed() > Duration::from_secs(5), "the file system did hang");
    gateway.logs("its file system did not respond").await;
    let refused = gateway.setup().output_of(&["backup", "list"], 74).await;
    assert!(refused.contains("its file system did not respond"), "{refused}");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
}

#[tokio::test]
async fn a_configuration_replaced_by_a_fifo_keeps_the_last_valid_one() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let place = gateway.setup().config_path();
    let fifo = place.with_extension("fifo");
    make_fifo(&fifo);
    std::fs::rename(&fifo, &place).unwrap();
    gateway.logs("it is a FIFO, not a regular file").await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    assert!(state(&gateway).await["reload"]["last_error"].as_str().unwrap().contains("FIFO"));
    gateway.write_config(Yaml::one(upstream.base_url()).policies("retry_max_attempts: 1").text());
    wait::eventually("a good one again", async || {
        state(&gateway).await["reload"]["last_error"].is_null().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hung_configuration_file_system_blocks_neither_the_api_nor_the_stop() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let faulty = Faulty::new();
    let mut gateway = faulty.apply(Setup::new(&Yaml::one(upstream.base_url()))).start().await;
    faulty.begin("hang", gateway.setup().config_path().to_str().unwrap());
    let error = wait::eventually_within(2 * wait::PATIENCE, "the state reports it", async || {
        state(&gateway).await["reload"]["last_error"].as_str().map(str::to_owned)
    })
    .await;
    assert!(error.contains("its file system does not respond"), "{error}");
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
}

#[tokio::test]
async fn a_configured_path_that_is_no_regular_file_prevents_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    make_fifo(&fifo);
    let good = folder.path().join("good.pem");
    std::fs::write(&good, "").unwrap();
    let (fifo, good) = (fifo.to_str().unwrap(), good.to_str().unwrap());
    for (variables, what) in [
        (vec![("LLMGW_EXTRA_CA_FILE", "/dev/zero")], "/dev/zero"),
        (vec![("LLMGW_EXTRA_CA_FILE", fifo)], fifo),
        (vec![("LLMGW_TLS_CERT_FILE", fifo), ("LLMGW_TLS_KEY_FILE", good)], fifo),
        (vec![("LLMGW_TLS_CERT_FILE", good), ("LLMGW_TLS_KEY_FILE", "/dev/zero")], "/dev/zero"),
        (vec![("LLMGW_CONFIG", "/dev/zero")], "/dev/zero"),
        (vec![("LLMGW_CONFIG", fifo)], fifo),
        (vec![("LLMGW_CONFIG", "/nowhere/config.yaml"), ("LLMGW_CONFIG_SEED", fifo)], fifo),
    ] {
        let mut setup = Setup::new(&Yaml::one("http://127.0.0.1:9/v1"));
        for (name, value) in &variables {
            setup = setup.env(name, *value);
        }
        let refused = setup.output_of(&["serve"], 78).await;
        assert!(refused.contains(what) && refused.contains("not a regular file"), "{variables:?}: {refused}");
    }
}

#[tokio::test]
async fn a_hung_configuration_file_system_ends_the_start_with_the_path() {
    let faulty = Faulty::new();
    let setup = faulty.apply(Setup::new(&Yaml::one("http://127.0.0.1:9/v1")));
    faulty.begin("hang", setup.config_path().to_str().unwrap());
    let refused =
        wait::within(3 * wait::PATIENCE, "the end", setup.command(&["serve"]).output()).await.unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{stderr}");
    assert!(stderr.contains("config.yaml") && stderr.contains("its file system did not respond"), "{stderr}");
}
