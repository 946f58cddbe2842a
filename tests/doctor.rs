//! `llmgw doctor`: each fault of a state or of its environment is reported with the command that repairs it, and nothing is
//! changed (M-223, M-225).

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::tls_upstream::ClientAuthority;
use crate::support::{Gateway, Yaml, clock, skipped, wait};

/// Base64 of 32 other bytes.
const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

/// Runs `doctor --json`, and compares its exit code with its counts.
async fn examine(setup: &Setup) -> Value {
    let output = setup.run(&["doctor", "--json"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let code = i32::from(report["faults"] != 0);
    assert_eq!(output.status.code(), Some(code), "{report}: {stderr}");
    report
}

/// Returns the first finding of this level whose text contains `mention`.
fn finding(report: &Value, level: &str, mention: &str) -> Value {
    let findings = report["findings"].as_array().unwrap();
    let matching =
        |finding: &&Value| finding["level"] == level && finding["text"].as_str().unwrap().contains(mention);
    findings
        .iter()
        .find(matching)
        .unwrap_or_else(|| panic!("no {level} with {mention:?} in {report:#}"))
        .clone()
}

fn repair(finding: &Value) -> String {
    finding["repair"].as_str().unwrap_or_else(|| panic!("{finding} has no repair")).to_owned()
}

/// Runs a repair as an operator would paste it.
async fn paste(setup: &Setup, command: &str) {
    let binary = Path::new(env!("CARGO_BIN_EXE_llmgw"));
    let script = format!("PATH='{}':\"$PATH\"; {command}", binary.parent().unwrap().display());
    let prepared = setup.command(&[]);
    let variables = prepared.as_std().get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", &script]).envs(variables);
    let output = wait::within(wait::PATIENCE, command, shell.output()).await.unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a setup with a state that a gateway created, with an archive of it, and stopped.
async fn stopped() -> (Setup, PathBuf) {
    let mut gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let provider = json!({"id": "stored", "type": "compatible", "base_url": "http://127.0.0.1:9/v1",
        "api_key": "a-stored-secret", "models": ["m"]});
    Admin(gateway.client()).create("providers", provider).await;
    let output = gateway.setup().run(&["backup", "create"]).await;
    let archive = PathBuf::from(String::from_utf8_lossy(&output.stdout).lines().next().unwrap());
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    (gateway.kill().await, archive)
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // SQLite creates and deletes the index of its write-ahead log for each reader.
    files.retain(|path| path.is_file() && !path.to_str().unwrap().ends_with("-shm"));
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[tokio::test]
async fn a_sound_state_has_no_fault_with_and_without_a_running_gateway() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let port = gateway.address().port().to_string();
    let report = examine_as(&gateway, &port).await;
    assert_eq!(report["faults"], 0, "{report:#}");
    finding(&report, "ok", "a running process holds the state");
    finding(&report, "ok", "a gateway answers on");
    finding(&report, "ok", "is intact, version");
    assert_eq!(repair(&finding(&report, "warning", "no intact archive")), "llmgw backup create");
    let setup = gateway.kill().await.env("LLMGW_PORT", &port);
    let before = contents(&setup.state());
    let report = examine(&setup).await;
    assert_eq!(report["faults"], 0, "{report:#}");
    finding(&report, "ok", "no process holds the state");
    finding(&report, "ok", "is free");
    assert!(contents(&setup.state()) == before, "the examination changes nothing");
    let text = String::from_utf8(setup.run(&["doctor"]).await.stdout).unwrap();
    assert!(
        text.contains("faults: 0, warnings: 1") && text.contains("repair: llmgw backup create"),
        "{text}"
    );
}

/// Examines the state of a running gateway with its actual port.
async fn examine_as(gateway: &Gateway, port: &str) -> Value {
    let mut command = gateway.setup().command(&["doctor", "--json"]);
    let output =
        wait::within(wait::PATIENCE, "doctor", command.env("LLMGW_PORT", port).output()).await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_new_directory_has_no_fault() {
    let setup = Setup::new(&Yaml::new());
    let report = examine(&setup).await;
    assert_eq!(report["faults"], 0, "{report:#}");
    finding(&report, "ok", "does not exist; 'llmgw serve' creates it");
    assert!(!setup.state().exists());
}

#[tokio::test]
async fn faults_of_the_environment_name_the_variable_and_its_repair() {
    let setup = || Setup::new(&Yaml::new());
    let missing = examine(&setup().without("LLMGW_API_KEY")).await;
    assert!(repair(&finding(&missing, "fault", "LLMGW_API_KEY")).contains("openssl rand"));
    let invalid = examine(&setup().env("LLMGW_WORKERS", "many")).await;
    assert!(repair(&finding(&invalid, "fault", "LLMGW_WORKERS")).starts_with("unset LLMGW_WORKERS"));
    let unknown = examine(&setup().env("LLMGW_PROT", "1")).await;
    finding(&unknown, "warning", "LLMGW_PROT is not a variable of llmgw");
    let broken = examine(&setup().yaml("providers:\n  a: {type: nothing}\n")).await;
    let fault = finding(&broken, "fault", "config.yaml:2");
    assert!(fault["subject"] == "configuration" && repair(&fault).contains("llmgw config check"));
    let tls = setup().env("LLMGW_TLS_CERT_FILE", "/nowhere.pem").env("LLMGW_TLS_KEY_FILE", "/nowhere.key");
    finding(&examine(&tls).await, "fault", "/nowhere.pem");
    let (folder, clients) = (tempfile::tempdir().unwrap(), ClientAuthority::new());
    let ending = clients.issue_for_days("a.test", 13).write(folder.path(), "ending");
    let yaml = Yaml::new().provider_with("up", "https://localhost:9/v1", &format!("tls:\n{ending}"));
    let ending = examine(&Setup::new(&yaml)).await;
    finding(&ending, "warning", "providers.up: tls.certificate: certificate 1 expires at ");
    let file = setup();
    std::fs::write(file.state(), "x").unwrap();
    finding(&examine(&file).await, "fault", "is not a directory");
}

#[tokio::test]
async fn a_port_in_use_is_reported_with_its_user() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream)
        }
    });
    let taken = examine(&Setup::new(&Yaml::new()).env("LLMGW_PORT", port)).await;
    assert!(repair(&finding(&taken, "fault", "another program")).contains("LLMGW_PORT"));
    let gateway = Gateway::start(&Yaml::new()).await;
    let port = gateway.address().port().to_string();
    let taken = examine(&Setup::new(&Yaml::new()).env("LLMGW_PORT", port)).await;
    finding(&taken, "fault", "the gateway of another state");
    let elsewhere = examine(&Setup::new(&Yaml::new()).env("LLMGW_HOST", "192.0.2.1")).await;
    assert!(repair(&finding(&elsewhere, "fault", "cannot listen on 192.0.2.1")).contains("LLMGW_HOST"));
}

#[tokio::test]
async fn another_encryption_key_is_reported_without_being_shown() {
    let (setup, _) = stopped().await;
    let report = examine(&setup.env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY)).await;
    let fault = finding(&report, "fault", "is not the key");
    assert!(fault["subject"] == "secrets" && repair(&fault).contains("LLMGW_CREDENTIAL_ENCRYPTION_KEY"));
    assert!(!report.to_string().contains(OTHER_KEY));
}

#[tokio::test]
async fn pasting_the_repair_of_a_damaged_database_restores_the_newest_intact_archive() {
    let (setup, archive) = stopped().await;
    let newest = setup.run(&["backup", "create"]).await;
    let newest = PathBuf::from(String::from_utf8_lossy(&newest.stdout).lines().next().unwrap());
    let mut bytes = std::fs::read(&newest).unwrap();
    let place = bytes.len() - 3;
    bytes[place] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let database = setup.state().join("gateway.db");
    let mut bytes = std::fs::read(&database).unwrap();
    let middle = bytes.len() / 2;
    bytes[100..middle].fill(b'#');
    std::fs::write(&database, bytes).unwrap();
    let report = examine(&setup).await;
    assert!(repair(&finding(&report, "warning", "is damaged")).contains(newest.to_str().unwrap()));
    let command = repair(&finding(&report, "fault", "is damaged"));
    assert!(command.contains(archive.file_name().unwrap().to_str().unwrap()), "{command}");
    paste(&setup, &command).await;
    assert_eq!(examine(&setup).await["faults"], 0);
    let providers = setup.start().await.client().get("/admin/api/providers").await.unwrap().json();
    assert!(providers.to_string().contains("stored"), "{providers}");
}

#[tokio::test]
async fn rows_changed_by_another_program_and_a_newer_database_are_reported() {
    let (setup, _) = stopped().await;
    let database = || rusqlite::Connection::open(setup.state().join("gateway.db")).unwrap();
    database().execute("UPDATE providers SET version = 7", []).unwrap();
    let changed = finding(&examine(&setup).await, "fault", "changed outside the gateway");
    assert!(repair(&changed).contains("llmgw backup restore"));
    // As an operator who has changed rows on purpose accepts them.
    database().execute("DELETE FROM row_sums", []).unwrap();
    assert_eq!(examine(&setup).await["faults"], 0);
    database().pragma_update(None, "user_version", 9_999).unwrap();
    let newer = finding(&examine(&setup).await, "fault", "has version 9999");
    assert!(repair(&newer).contains("start the newer llmgw"), "{newer}");
}

#[tokio::test]
async fn a_secret_that_does_not_open_and_a_tampered_audit_are_reported() {
    let (setup, _) = stopped().await;
    let database = rusqlite::Connection::open(setup.state().join("gateway.db")).unwrap();
    let sealed = "UPDATE providers SET credential = randomblob(length(credential))";
    assert_eq!(database.execute(sealed, []).unwrap(), 1);
    database.execute("UPDATE audit SET actor = 'somebody' WHERE id = 1", []).unwrap();
    database.execute("DELETE FROM row_sums", []).unwrap();
    drop(database);
    let report = examine(&setup).await;
    assert!(
        repair(&finding(&report, "fault", "1 stored secrets do not open")).contains("credentials verify")
    );
    assert!(repair(&finding(&report, "fault", "tampered")).contains("audit verify"));
}

#[tokio::test]
async fn a_missing_database_and_a_damaged_journal_are_reported() {
    let (setup, _) = stopped().await;
    let journal = setup.state().join("journal");
    std::fs::write(journal.join("0123456789abcdef-000001.usage"), "no record at all").unwrap();
    let report = examine(&setup).await;
    assert_eq!(report["faults"], 0, "{report:#}");
    finding(&report, "warning", "16 bytes in");
    std::fs::write(journal.join("notes.txt"), "x").unwrap();
    std::fs::remove_file(setup.state().join("gateway.db")).unwrap();
    let report = examine(&setup).await;
    assert!(repair(&finding(&report, "fault", "is missing")).contains("llmgw backup restore"));
}

#[tokio::test]
async fn a_damaged_or_foreign_usage_database_is_reported() {
    let (setup, _) = stopped().await;
    let usage = setup.state().join("usage.db");
    std::fs::write(&usage, "x").unwrap();
    let setup = setup.env("LLMGW_USAGE_DB", "true");
    let command = repair(&finding(&examine(&setup).await, "fault", "belongs to another state"));
    paste(&setup, &command).await;
    let mut gateway = setup.start().await;
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    let setup = gateway.kill().await;
    std::fs::write(&usage, "x").unwrap();
    assert!(
        repair(&finding(&examine(&setup).await, "fault", "usage.db is damaged")).contains("usage.db.damaged")
    );
}

#[tokio::test]
async fn permissions_of_other_users_are_reported_and_repaired() {
    use std::os::unix::fs::PermissionsExt as _;
    let (setup, _) = stopped().await;
    for path in [setup.state(), setup.state().join("gateway.db")] {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let command = repair(&finding(&examine(&setup).await, "warning", "other users have access to"));
        paste(&setup, &command).await;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
    }
}

#[tokio::test]
async fn files_of_another_user_are_reported_and_repaired() {
    let (setup, archive) = stopped().await;
    if !rustix::process::geteuid().is_root() {
        return skipped("only root may give files to another user");
    }
    for path in [setup.state().join("gateway.db"), setup.state().join("backups"), archive] {
        std::os::unix::fs::chown(&path, Some(65_532), None).unwrap();
        let found = finding(&examine(&setup).await, "fault", "does not belong to user 0");
        assert!(found["text"].as_str().unwrap().contains(path.to_str().unwrap()), "{found}");
        paste(&setup, repair(&found).strip_suffix(", as root").unwrap()).await;
    }
    assert_eq!(examine(&setup).await["faults"], 0);
}

#[tokio::test]
async fn a_clock_behind_the_audit_or_the_build_is_reported() {
    let (setup, _) = stopped().await;
    let long_ago = 1_000_000_000;
    // Without a C compiler the clock cannot be changed.
    let Some(environment) = clock::at(long_ago) else { return };
    let report = examine(&setup.with_clock(environment)).await;
    assert!(repair(&finding(&report, "fault", "behind the last record of the audit")).contains("set-ntp"));
    finding(&report, "fault", "before the build of this binary");
}
