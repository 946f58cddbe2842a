//! Backups, restores and rekeys that are killed in their middle (STATE-3, STATE-4): what is repeated ends as if nothing had
//! happened, and what was there before is intact. Upgrades, rollbacks, imports and moves of `usage.db` have such tests of
//! their own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Gateway, Yaml};

/// Base64 of 32 other bytes than those of the key of tests.
const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

/// Runs the command and kills it after `time`. Returns true if it had ended before, with success.
async fn killed_after(setup: &Setup, arguments: &[&str], time: Duration) -> bool {
    let mut command = setup.command(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    match tokio::time::timeout(time, child.wait()).await {
        Ok(ended) => ended.unwrap().success(),
        Err(_) => {
            child.kill().await.unwrap();
            false
        }
    }
}

/// Repeats the command, killed later each time, until it ends with success or is known to have done its work. Returns the
/// number of kills.
async fn until_done(setup: &Setup, arguments: &[&str], is_done: impl Fn() -> bool) -> u64 {
    let mut kills = 0;
    while !killed_after(setup, arguments, Duration::from_millis(4 + 13 * kills)).await && !is_done() {
        kills += 1;
    }
    kills
}

/// Returns a state with five humans, whose gateway has ended.
async fn stopped() -> Setup {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    for number in 0..5 {
        let client = gateway.client().with("idempotency-key", &format!("request-{number}"));
        let created = client.post("/admin/api/principals", format!(r#"{{"name": "p{number}"}}"#)).await;
        assert_eq!(created.status, 201, "{:?}", created.body);
    }
    gateway.kill().await
}

async fn humans(setup: Setup) -> usize {
    let gateway = setup.start().await;
    let list = gateway.client().get("/admin/api/principals").await.unwrap().json();
    list["data"].as_array().unwrap().len()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn archives(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "zst")).collect()
}

#[tokio::test]
async fn backups_and_restores_may_be_killed_at_any_time() {
    let setup = stopped().await;
    let output = setup.output_of(&["backup", "create"], 0).await;
    let first = PathBuf::from(output.lines().next().unwrap());
    let bytes = std::fs::read(&first).unwrap();
    let mut kills = until_done(&setup, &["backup", "create"], || false).await;
    let folder = first.parent().unwrap();
    let all = archives(folder);
    assert!(all.len() >= 2, "{all:?}");
    for archive in &all {
        assert!(setup.output_of(&["backup", "verify", text(archive)], 0).await.contains("is intact"));
    }
    assert!(std::fs::read(&first).unwrap() == bytes, "the earlier archive is the same");

    let target = folder.join("elsewhere");
    let restore = ["backup", "restore", text(&first), text(&target)];
    kills += until_done(&setup, &restore, || target.join("gateway.db").exists()).await;
    let restored = setup.env("LLMGW_STATE_DIR", text(&target));
    restored.output_of(&["doctor"], 0).await;
    assert_eq!(humans(restored).await, 5);
    figure("killed backups", format!("{kills} kills during backups and restores"));
}

#[tokio::test]
async fn a_rekey_may_be_killed_at_any_time() {
    let setup = stopped().await.env("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY);
    let kills = until_done(&setup, &["credentials", "rekey"], || false).await;
    let setup = setup
        .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY)
        .without("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY");
    assert!(setup.output_of(&["credentials", "verify"], 0).await.contains("all "));
    assert_eq!(humans(setup).await, 5);
    figure("killed rekeys", format!("{kills} kills during a rekey"));
}
