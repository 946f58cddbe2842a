//! Upgrades: a state of every earlier schema version opens, the start keeps a snapshot of it, and `llmgw rollback` puts it
//! back. Both may be killed at any time (M-222).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const NOTHING: &str = "http://127.0.0.1:9/v1";

/// The scripts of all migrations, in order, each with its number.
fn migrations() -> Vec<(usize, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/control/src/db/sqlite_state/migrations");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let number = |path: &Path| path.file_name().unwrap().to_str().unwrap()[..4].parse().unwrap();
    paths.iter().map(|path| (number(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// Creates a stopped state of the newest version, whose keys and audit the older ones take over.
async fn newest() -> (Setup, PathBuf) {
    let mut gateway = Gateway::start(&Yaml::one(NOTHING)).await;
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    let setup = gateway.kill().await;
    let database = setup.state().join("gateway.db");
    (setup, database)
}

/// Creates the database of a release whose schema had `version`, in the shape that this release's migrations expect of it:
/// the same scripts, the same keys, a human of version 4 and sums of version 2.
fn make_database(from: &Path, to: &Path, version: usize) {
    let db = Connection::open(to).unwrap();
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    db.pragma_update(None, "application_id", 0x6c6c_6d67).unwrap();
    for (number, script) in migrations().iter().filter(|(number, _)| *number <= version) {
        db.execute_batch(script).unwrap();
        match number {
            2 => {
                let row = "INSERT INTO usage_hour VALUES (1, 'pj', 'k', 'p', 'm', 'e', 'o', 'c', 2, 3, 4, 5, 6, 7, 8, 9, 1)";
                db.execute(row, []).unwrap();
            }
            4 => {
                let row = "INSERT INTO principals (id, name, email, disabled, version, created_at_ms, updated_at_ms)
                           VALUES ('prn_old', 'Ada', NULL, 0, 1, 0, 0)";
                db.execute(row, []).unwrap();
            }
            _ => {}
        }
    }
    db.pragma_update(None, "user_version", version as i64).unwrap();
    db.execute("ATTACH ? AS newest", [from.to_str().unwrap()]).unwrap();
    let keys = "INSERT INTO vault SELECT * FROM newest.vault";
    if version < 3 {
        db.execute(&format!("{keys} WHERE name IN ('data_key', 'key_hash_key')"), []).unwrap();
    } else {
        db.execute(keys, []).unwrap();
        db.execute("INSERT INTO audit SELECT * FROM newest.audit", []).unwrap();
    }
    db.execute_batch("DETACH newest").unwrap();
    db.close().unwrap();
}

/// Replaces the state by one of this version. Returns the bytes of its database.
fn put_version(setup: &Setup, newest: &Path, version: usize) -> Vec<u8> {
    let _ = std::fs::remove_dir_all(setup.state());
    std::fs::create_dir(setup.state()).unwrap();
    let database = setup.state().join("gateway.db");
    make_database(newest, &database, version);
    std::fs::write(setup.state().join("catalog.json"), "{}").unwrap();
    std::fs::read(database).unwrap()
}

fn version_of(database: &Path) -> i64 {
    Connection::open(database).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// Keeps a copy of the newest state's database outside the state directory, where versions are put.
fn set_aside(setup: &Setup, database: &Path) -> PathBuf {
    let aside = setup.config_path().with_file_name("newest.db");
    std::fs::copy(database, &aside).unwrap();
    aside
}

#[tokio::test]
async fn a_state_of_every_schema_version_is_upgraded_and_rolled_back() {
    let (mut setup, database) = newest().await;
    let newest = set_aside(&setup, &database);
    let migrations = migrations();
    let versions = migrations.last().unwrap().0;
    for version in migrations.iter().map(|(number, _)| *number).filter(|number| *number < versions) {
        let before = put_version(&setup, &newest, version);
        let mut gateway = setup.start().await;
        let names = gateway.client().get("/admin/api/principals").await.unwrap().json().to_string();
        assert_eq!(names.contains("Ada"), version >= 4, "{version}: {names}");
        gateway.logs(&format!("the state has version {version}; it is copied")).await;
        gateway.signal(Signal::TERM);
        gateway.exit().await;
        setup = gateway.kill().await;
        setup.output_of(&["audit", "verify"], 0).await;
        assert_eq!(version_of(&database), versions as i64);
        let output = setup.output_of(&["rollback"], 0).await;
        assert!(output.contains(&format!("version {version} again")), "{output}");
        assert!(
            std::fs::read(&database).unwrap() == before,
            "version {version}: the database is the same bytes"
        );
        assert_eq!(std::fs::read(setup.state().join("catalog.json")).unwrap(), b"{}");
        assert_eq!(version_of(&setup.state().join("rolled-back/gateway.db")), versions as i64);
        let output = setup.output_of(&["rollback"], 74).await;
        assert!(output.contains("has no snapshot of an upgrade"), "{output}");
    }
    figure(
        "upgrades",
        format!("{} schema versions opened, and rolled back to the same bytes", migrations.len() - 1),
    );
}

/// Unpacks a state that the binary of an earlier release has made in use, and returns what its makers know of it. It has a
/// principal, a project with a key, a connection with a sealed credential and an endpoint of the API, a limit of the key,
/// and eight requests with that key; a kill ended the process that served the last three.
fn unpack(setup: &Setup, version: u32) -> Value {
    let folder = setup.state().parent().unwrap().to_owned();
    let archive = format!("{}/tests/states/{version:04}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let unpacked = std::process::Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&folder).status();
    assert!(unpacked.unwrap().success());
    serde_json::from_slice(&std::fs::read(folder.join("facts.json")).unwrap()).unwrap()
}

#[tokio::test]
async fn a_state_that_an_older_binary_filled_and_a_kill_left_goes_on() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::new()).env("LLMGW_RETENTION_USAGE_DAYS", "36500");
    let facts = unpack(&setup, 25);
    let text = |name: &str| facts[name].as_str().unwrap();
    let gateway = setup.start().await;
    gateway.logs("the state has version 25; it is copied").await;
    let admin = Admin(gateway.client());
    // Every request, those in the journal of the killed process too, and what they used.
    let records = gateway.records(8).await;
    assert_eq!(records.len(), 8);
    assert!(records.iter().all(|record| record["outcome"] == "completed" && record["key"] == text("key_id")));
    let quota = admin.done("GET", &format!("quotas/{}", text("quota")), Value::Null).await;
    assert_eq!((&quota["used"], &quota["limit"]), (&json!(80), &json!(1_000)), "{quota}");
    let names = admin.done("GET", "principals", Value::Null).await.to_string();
    assert!(names.contains(text("principal")) && names.contains("Ada"), "{names}");
    // The connection serves with the credential that was sealed then, the key of then, through the endpoint.
    let moved = Admin(gateway.client().with("if-match", "\"1\""))
        .call("PATCH", "providers/own", json!({"base_url": upstream.base_url()}))
        .await;
    assert_eq!(moved.status, 200, "{moved:?}");
    let client = Client::new(gateway.address(), Some(text("key")));
    assert_eq!(client.chat(chat::request("line")).await.status, 200);
    let authorization = upstream.request(0).await.header("authorization").map(str::to_owned);
    assert_eq!(authorization.as_deref(), Some("Bearer secret-of-an-older-release"));
    wait::eventually("the quota follows", async || {
        let used = admin.done("GET", &format!("quotas/{}", text("quota")), Value::Null).await;
        (used["used"].as_u64() > Some(80) && used["reserved"] == 0).then_some(())
    })
    .await;
    let mut gateway = gateway;
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    let setup = gateway.kill().await;
    for check in [["audit", "verify"], ["credentials", "verify"]] {
        setup.output_of(&check, 0).await;
    }
    // The way back.
    setup.output_of(&["rollback"], 0).await;
    assert_eq!(version_of(&setup.state().join("gateway.db")), 25);
}

#[tokio::test]
async fn a_rollback_needs_a_stopped_gateway_and_an_intact_snapshot() {
    let (setup, database) = newest().await;
    let newest = set_aside(&setup, &database);
    put_version(&setup, &newest, 9);
    let mut gateway = setup.start().await;
    let output = gateway.setup().output_of(&["rollback"], 75).await;
    assert!(output.contains("is in use by another process"), "{output}");
    let report = gateway.setup().output_of(&["doctor"], 0).await;
    assert!(report.contains("state of version 9 before its upgrade"), "{report}");
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    let setup = gateway.kill().await;
    let copy = setup.state().join("before-upgrade/gateway.db");
    let mut bytes = std::fs::read(&copy).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&copy, bytes).unwrap();
    let output = setup.output_of(&["rollback"], 1).await;
    assert!(
        output.contains("gateway.db does not match its checksum") && output.contains("nothing was changed"),
        "{output}"
    );
    assert_eq!(version_of(&database), migrations().last().unwrap().0 as i64);
}

#[tokio::test]
async fn an_upgrade_imports_the_files_of_models_and_prices_once() {
    let upstream = Upstream::start().await;
    let models = json!({"object": "list", "data": [{"id": "listed", "object": "model"}]});
    upstream.then(Answer::json(200, models.to_string()));
    let mut gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    Admin(gateway.client()).done("POST", "providers/up/sync", json!({})).await;
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    let setup = gateway.kill().await;
    let (catalog, prices) = (setup.state().join("catalog.json"), setup.state().join("prices.json"));
    let files = [
        (&catalog, std::fs::read(&catalog).unwrap()),
        (
            &prices,
            json!({"as_of": "2999-01-01", "lists": {"compatible": {"listed": {"prices": {"input": 7.5}}}}})
                .to_string()
                .into_bytes(),
        ),
    ];
    let newest = set_aside(&setup, &setup.state().join("gateway.db"));
    put_version(&setup, &newest, 27);
    files.iter().for_each(|(path, content)| std::fs::write(path, content).unwrap());

    let mut setup = setup;
    let mut imports = 0;
    for round in 0..3 {
        // Killed at once, and the files are lost.
        let gateway = setup.start().await;
        let rows = Admin(gateway.client()).done("GET", "catalog?provider=up", Value::Null).await;
        let row = rows["data"].as_array().unwrap().iter().find(|row| row["id"] == "up/listed");
        assert_eq!(row.map(|row| &row["prices"]["input"]), Some(&json!(7.5)), "round {round}: {rows}");
        imports += gateway.log().matches("is in the database now").count();
        setup = gateway.kill().await;
        for (path, content) in &files {
            assert_eq!(&std::fs::read(path).unwrap(), content, "round {round}: the copy");
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(imports, 2, "each file once");
    assert_eq!(upstream.requests().len(), 1, "no list was read again");
    // The way back has the file that the older release reads.
    setup.output_of(&["rollback"], 0).await;
    assert_eq!(std::fs::read(&catalog).unwrap(), files[0].1);
}

/// Runs the command and kills it after `time`. Returns true if it had ended before, with success.
async fn killed_after(setup: &Setup, command: &str, time: Duration) -> bool {
    let mut command = setup.command(&[command]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    match tokio::time::timeout(time, child.wait()).await {
        Ok(ended) => ended.unwrap().success(),
        Err(_) => {
            child.kill().await.unwrap();
            false
        }
    }
}

#[tokio::test]
async fn an_upgrade_and_a_rollback_may_be_killed_at_any_time() {
    let (setup, database) = newest().await;
    let newest = set_aside(&setup, &database);
    put_version(&setup, &newest, 9);
    let fill = "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 20000) \
                INSERT INTO principals SELECT 'p' || value, hex(randomblob(200)), NULL, 0, 1, 0, 0 FROM n";
    Connection::open(&database).unwrap().execute(fill, []).unwrap();
    let before = std::fs::read(&database).unwrap();
    let mut setup = setup;
    let mut kills = 0;
    for round in 0..3_u64 {
        for step in 0..8 {
            killed_after(&setup, "serve", Duration::from_millis(7 + 40 * step + 13 * round)).await;
            kills += 1;
        }
        let mut gateway = setup.start().await;
        gateway.signal(Signal::TERM);
        gateway.exit().await;
        setup = gateway.kill().await;
        assert_eq!(version_of(&database), migrations().last().unwrap().0 as i64);
        let is_done =
            || ["before-upgrade", "rolling-back"].iter().all(|name| !setup.state().join(name).exists());
        for step in 0.. {
            let time = Duration::from_millis(5 + 11 * step + round);
            if killed_after(&setup, "rollback", time).await || is_done() {
                break;
            }
            kills += 1;
        }
        assert!(
            std::fs::read(&database).unwrap() == before,
            "round {round}: the same bytes after {kills} kills"
        );
    }
    setup.output_of(&["doctor"], 0).await;
    figure(
        "upgrades",
        format!("{kills} kills during upgrades and rollbacks; the state was always one of the two"),
    );
}

#[tokio::test]
async fn a_gateway_refuses_a_state_whose_rollback_was_interrupted() {
    let (setup, database) = newest().await;
    let newest = set_aside(&setup, &database);
    put_version(&setup, &newest, 9);
    let gateway = setup.start().await;
    let setup = gateway.kill().await;
    std::fs::rename(setup.state().join("before-upgrade"), setup.state().join("rolling-back")).unwrap();
    let output = setup.output_of(&["serve"], 74).await;
    assert!(output.contains("run 'llmgw rollback'"), "{output}");
    let report: Value = serde_json::from_slice(&setup.run(&["doctor", "--json"]).await.stdout).unwrap();
    let fault =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["level"] == "fault").unwrap();
    assert_eq!(fault["repair"], "llmgw rollback", "{report:#}");
    setup.output_of(&["rollback"], 0).await;
    assert_eq!(version_of(&database), 9);
    wait::within(wait::PATIENCE, "a start after the rollback", setup.start()).await;
}
