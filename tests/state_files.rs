//! The files of a state: where each subject is stored, and that nothing is written elsewhere (STATE-1, M-119 to M-124).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::vendor::{Connected, Vendor, setup};
use crate::support::{Client, Yaml, chat, wait};

/// Returns the paths below `folder`, relative to it. Directories end with `/`; their files are left out if the name of
/// the directory is in `closed`.
fn paths(folder: &Path, closed: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        if path.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            if !closed.contains(&name.as_str()) {
                found.extend(paths(&path, closed).into_iter().map(|below| format!("{name}/{below}")));
            }
            found.insert(format!("{name}/"));
        } else {
            assert_eq!(mode, 0o600, "{}", path.display());
            found.insert(name);
        }
    }
    found
}

/// M-120, M-121, M-123, M-124: models, telemetry, usage, plain secrets, logs and backups have their files in the state,
/// which only the owner can access. The tokens of OAuth connections are cached in `gateway.db`: all other files may be
/// lost, and the connection still serves.
#[tokio::test]
async fn caches_logs_and_backups_are_in_the_state_directory_and_nowhere_else() {
    let setup = setup(&Yaml::new())
        .at_noon()
        .env("LLMGW_LOG_FILE", "true")
        .env("LLMGW_USAGE_DB", "true")
        .env("TMPDIR", "/proc/self/no-directory-for-temporary-files");
    let home = setup.config_path().parent().unwrap().to_owned();
    fs::create_dir(setup.state()).unwrap();
    fs::set_permissions(setup.state(), fs::Permissions::from_mode(0o700)).unwrap();
    let secrets = setup.state().join("secrets.json");
    fs::write(&secrets, "{}").unwrap();
    fs::set_permissions(secrets, fs::Permissions::from_mode(0o600)).unwrap();
    let connected = Connected::at(Vendor::start().await, setup.start().await).await;
    let admin = Admin(connected.gateway.client());
    admin.done("POST", "providers/partner/sync", json!({})).await;
    assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200);
    admin.done("POST", "backups", json!({})).await;
    wait::eventually("the backup", async || {
        let list = admin.done("GET", "backups", Value::Null).await;
        (list["is_running"] == false && list["data"][0]["checked_at_ms"].is_u64()).then_some(())
    })
    .await;
    let Connected { gateway, vendor, key, .. } = connected;
    let setup = gateway.kill().await;

    fs::set_permissions(setup.config_path(), fs::Permissions::from_mode(0o600)).unwrap();
    let names = paths(&home, &["journal"]);
    let known = |name: &str| {
        let beside = ["", "-wal", "-shm"];
        let is_database = |file: &str| beside.iter().any(|end| name == format!("state/{file}{end}"));
        ["gateway.db", "usage.db", "telemetry.db"].into_iter().any(is_database)
            || name.starts_with("state/logs/llmgw-") && name.ends_with(".log")
            || name.starts_with("state/backups/llmgw-backup-") && name.ends_with(".tar.zst")
    };
    let others: Vec<&str> = names.iter().map(String::as_str).filter(|name| !known(name)).collect();
    assert_eq!(
        others,
        [
            "config.yaml",
            "state/",
            "state/backups/",
            "state/backups/checks.json",
            "state/backups/lock",
            "state/catalog.json",
            "state/journal/",
            "state/lock",
            "state/logs/",
            "state/secrets.json",
        ]
    );
    for name in ["state/gateway.db", "state/usage.db", "state/telemetry.db"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    let count = |folder: &str| names.iter().filter(|name| name.starts_with(folder)).count();
    assert_eq!((count("state/logs/"), count("state/backups/")), (2, 4), "{names:?}");

    for name in names.iter().filter(|name| !name.ends_with('/') && name.starts_with("state/")) {
        if !name.starts_with("state/gateway.db") {
            fs::remove_file(home.join(name)).unwrap();
        }
    }
    let sign_ins = vendor.forms("/token").len();
    let gateway = setup.start().await;
    let client = Client::new(gateway.address(), Some(&key));
    assert_eq!(client.chat(chat::request("partner/m")).await.status, 200);
    assert_eq!(vendor.forms("/token").len(), sign_ins, "the tokens were not lost");
}
