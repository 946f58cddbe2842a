//! Backups through the API and the command line, and the contents of a restored state (STATE-3, M-118).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::process::{Flock, FlockType, Pid, Signal, fcntl_getlk, kill_process};
use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// Runs `backup create` and returns the path of the archive.
async fn create(setup: &Setup) -> PathBuf {
    let output = setup.output_of(&["backup", "create"], 0).await;
    let path = PathBuf::from(output.lines().next().unwrap());
    assert!(path.is_file(), "{output}");
    path
}

async fn backups(gateway: &Gateway) -> Value {
    gateway.client().get("/admin/api/backups").await.unwrap().json()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn a_restored_state_serves_with_the_same_key() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let client = gateway.client();
    assert_eq!(client.post("/admin/api/principals", r#"{"name": "before"}"#).await.status, 201);
    assert_eq!(client.chat(chat::request("m")).await.status, 200);
    gateway.records(1).await;
    let archive = create(gateway.setup()).await;
    assert_eq!(client.post("/admin/api/principals", r#"{"name": "after"}"#).await.status, 201);
    assert!(gateway.setup().output_of(&["backup", "verify", text(&archive)], 0).await.contains("is intact"));
    assert!(gateway.setup().output_of(&["backup", "list"], 0).await.contains("gateway.db"));

    let target = archive.with_file_name("elsewhere");
    let output = gateway.setup().output_of(&["backup", "restore", text(&archive), text(&target)], 0).await;
    assert!(output.contains("opens it") && output.contains("LLMGW_STATE_DIR"), "{output}");
    gateway.setup().output_of(&["backup", "restore", text(&archive), text(&target)], 74).await;
    let into_state = gateway.setup().output_of(&["backup", "restore", text(&archive)], 74).await;
    assert!(into_state.contains("not empty"), "the state of a gateway is not overwritten: {into_state}");

    let restored = gateway.kill().await.env("LLMGW_STATE_DIR", text(&target)).start().await;
    let names = restored.client().get("/admin/api/principals").await.unwrap().json();
    let names: Vec<&str> =
        names["data"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["before"]);
    assert_eq!(restored.records(1).await.len(), 1, "usage comes back too");
    assert_eq!(restored.client().chat(chat::request("m")).await.status, 200);
    let verified = restored.setup().run(&["audit", "verify"]).await;
    assert!(verified.status.success());
}

/// Copies of the state hold usage in plain text.
#[tokio::test]
async fn a_killed_verification_leaves_no_copy_of_the_state() {
    let temporary = tempfile::tempdir().unwrap();
    let gateway =
        Setup::new(&Yaml::one("http://127.0.0.1:9/v1")).env("TMPDIR", text(temporary.path())).start().await;
    let archive = create(gateway.setup()).await;
    let left = || {
        std::fs::read_dir(temporary.path()).unwrap().flatten().map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = gateway.setup().command(&["backup", "verify", text(&archive)]).spawn().unwrap();
        let pid = Pid::from_raw(command.id().unwrap().cast_signed()).unwrap();
        // Some copies are seen, unless the command is faster than this test.
        while left().is_empty() && command.try_wait().unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        let _ = kill_process(pid, signal);
        command.wait().await.unwrap();
        assert!(left().is_empty(), "{:?}", left());
    }
    // kill -9 cannot be caught; the next command deletes what it has left.
    let copy = temporary.path().join("llmgw-00000000000000ab");
    let leave = || {
        std::fs::create_dir(&copy).unwrap();
        std::fs::write(copy.join("gateway.db"), "in plain text").unwrap();
    };
    leave();
    gateway.setup().output_of(&["backup", "verify", text(&archive)], 0).await;
    assert!(left().is_empty(), "{:?}", left());
    leave();
    let _gateway = gateway.restart().await;
    assert!(left().is_empty(), "a start deletes it too: {:?}", left());
}

/// M-223: the command beside a running gateway that is written to.
#[tokio::test]
async fn a_backup_beside_a_busy_gateway_is_of_one_moment_and_disturbs_nobody() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let (client, stop) = (gateway.client(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let busy = tokio::spawn(async move {
        let mut made = 0;
        while !stopped.load(Ordering::Relaxed) && made < 400 {
            let body = json!({"name": format!("human {made}")}).to_string();
            assert_eq!(client.post("/admin/api/principals", body).await.status, 201);
            assert_eq!(client.chat(chat::request("m")).await.status, 200);
            made += 1;
        }
        made
    });
    let mut archive = create(gateway.setup()).await;
    for _ in 0..2 {
        archive = create(gateway.setup()).await;
    }
    stop.store(true, Ordering::Relaxed);
    let made = busy.await.unwrap();
    gateway.setup().output_of(&["backup", "verify", text(&archive)], 0).await;
    let target = archive.with_file_name("elsewhere");
    gateway.setup().output_of(&["backup", "restore", text(&archive), text(&target)], 0).await;
    let restored = gateway.kill().await.env("LLMGW_STATE_DIR", text(&target)).start().await;
    let names = restored.client().get("/admin/api/principals?limit=500").await.unwrap().json();
    let mut names: Vec<&str> =
        names["data"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_by_key(|name| name.trim_start_matches("human ").parse::<u32>().unwrap());
    let want: Vec<String> = (0..names.len()).map(|n| format!("human {n}")).collect();
    assert_eq!(names, want, "all that was written before one moment");
    assert!(!names.is_empty() && names.len() <= made);
    let report = restored.client().get("/admin/api/usage").await.unwrap().json();
    assert!(report["totals"]["requests"].as_u64().unwrap() <= made as u64);
    assert!(restored.setup().run(&["audit", "verify"]).await.status.success());
}

/// Closing any descriptor of a file drops all POSIX locks of the process on it (decision 0009). Without its lock on the database,
/// another process would take the write-ahead log for unused.
#[tokio::test]
async fn a_backup_leaves_the_gateway_its_locks_on_the_databases() {
    let gateway = Setup::new(&Yaml::one("http://127.0.0.1:9/v1")).env("LLMGW_USAGE_DB", "true").start().await;
    let holders = || {
        ["gateway.db", "usage.db"].map(|name| {
            let file = std::fs::File::open(gateway.state().join(name)).unwrap();
            fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).unwrap().and_then(|lock| lock.pid)
        })
    };
    let held = [Pid::from_raw(gateway.pid().cast_signed()); 2];
    assert_eq!(holders(), held);
    for number in 0..2 {
        let client = gateway.client().with("idempotency-key", &format!("backup-{number}"));
        assert_eq!(client.post("/admin/api/backups", "{}").await.status, 202);
        wait::eventually("the end of the backup", async || {
            let list = backups(&gateway).await;
            (list["is_running"] == false && list["data"].as_array()?.len() > number).then_some(())
        })
        .await;
        assert_eq!(holders(), held, "after {} backups", number + 1);
    }
}

#[tokio::test]
async fn the_api_creates_lists_and_prunes_backups() {
    let setup = Setup::new(&Yaml::one("http://127.0.0.1:9/v1")).env("LLMGW_BACKUP_KEEP", "2");
    let gateway = setup.start().await;
    let client = gateway.client();
    let mut newest = String::new();
    for number in 0..3 {
        let client = client.clone().with("idempotency-key", &format!("backup-{number}"));
        let begun = client.post("/admin/api/backups", "{}").await;
        assert_eq!(begun.status, 202, "{:?}", begun.body);
        newest = wait::eventually("another backup", async || {
            let list = backups(&gateway).await;
            let name = list["data"][0]["name"].as_str()?.to_owned();
            (list["is_running"] == false && name != newest).then_some(name)
        })
        .await;
        let again = client.post("/admin/api/backups", "{}").await;
        assert_eq!((again.status, again.header("idempotency-replayed")), (202, Some("true")));
    }
    let list = backups(&gateway).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!((&list["kept"], &list["last_failure"]), (&2.into(), &Value::Null));
    assert_eq!(list["data"][0]["manifest"]["files"][0]["name"], "gateway.db");
    let audit = wait::eventually("the end of it in the audit", async || {
        let path = format!("/admin/api/audit?object=backup/{newest}");
        let list = gateway.client().get(&path).await.unwrap().json();
        (!list["data"].as_array()?.is_empty()).then_some(list)
    })
    .await;
    assert_eq!(
        (&audit["data"][0]["actor"], &audit["data"][0]["outcome"]),
        (&"gateway".into(), &"done".into())
    );
    let field = client.post("/admin/api/backups", r#"{"to": "/etc"}"#).await;
    assert_eq!((field.status, &field.json()["error"]["param"]), (400, &"to".into()));
}

#[tokio::test]
async fn the_list_shows_an_archive_damaged_after_its_manifest() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let whole = create(gateway.setup()).await;
    let damaged = create(gateway.setup()).await;
    let mut bytes = std::fs::read(&damaged).unwrap();
    let place = bytes.len() - 3;
    bytes[place] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let list = wait::eventually("the check", async || {
        let list = backups(&gateway).await;
        (list["is_checking"] == false && list["data"][0]["checked_at_ms"].is_u64()).then_some(list)
    })
    .await;
    let fault = list["data"][0]["fault"].as_str().unwrap();
    assert!(fault.contains("cannot be decompressed"), "{list}");
    assert!(list["data"][0]["manifest"].is_object(), "{list}");
    assert_eq!(list["data"][1]["fault"], Value::Null, "{list}");
    let output = gateway.setup().output_of(&["backup", "list"], 0).await;
    let line = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        output.lines().find(|line| line.contains(name)).unwrap().to_owned()
    };
    assert!(line(&damaged).contains("damaged (it cannot be decompressed"), "{output}");
    assert!(!line(&whole).contains("damaged"), "{output}");
}

#[tokio::test]
async fn a_failed_backup_or_restore_reports_the_reason() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    std::fs::write(gateway.state().join("backups"), "a file where the directory should be").unwrap();
    let output = gateway.setup().output_of(&["backup", "create"], 74).await;
    assert!(output.contains("backups"), "{output}");
    std::fs::remove_file(gateway.state().join("backups")).unwrap();
    std::fs::create_dir(gateway.state().join("backups")).unwrap();
    // A folder with this name cannot be removed as a file, nor recreated as a draft while it is not empty.
    std::fs::write(gateway.state().join("backups/.draft"), "a file").unwrap();
    let client = gateway.client();
    assert_eq!(client.post("/admin/api/backups", "{}").await.status, 202);
    let list = wait::eventually("a failure", async || {
        let list = backups(&gateway).await;
        list["last_failure"].is_object().then_some(list)
    })
    .await;
    assert_eq!(list["is_running"], false);
    let archive = gateway.state().join("nothing.tar.zst");
    let missing =
        gateway.setup().output_of(&["backup", "restore", text(&archive), "/nowhere/at/all"], 74).await;
    assert!(missing.contains("nothing.tar.zst"), "{missing}");
    assert!(!Path::new("/nowhere").exists());
}

#[tokio::test]
async fn a_backup_repeated_with_its_idempotency_key_is_created_once() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let client = gateway.client().with("idempotency-key", "once");
    let asking: Vec<_> = (0..10)
        .map(|_| client.clone())
        .map(|client| tokio::spawn(async move { client.post("/admin/api/backups", "{}").await }))
        .collect();
    let mut begun = Vec::new();
    for answer in asking {
        let answer = answer.await.unwrap();
        if answer.status == 202 {
            begun.push(answer.json());
        } else {
            assert!(answer.status == 409 && answer.header("retry-after").is_some(), "{answer:?}");
        }
    }
    // During the backup and after it, the answer is the same and no second archive is created.
    let again = client.post("/admin/api/backups", "{}").await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (202, Some("true")));
    begun.push(again.json());
    begun.dedup();
    assert_eq!(begun.len(), 1, "{begun:?}");
    let list = wait::eventually("the end of the backup", async || {
        let list = backups(&gateway).await;
        (list["is_running"] == false).then_some(list)
    })
    .await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
}

/// Returns the names of the archives, newest first.
async fn names(gateway: &Gateway) -> Vec<String> {
    let list = backups(gateway).await;
    list["data"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the audit's actions on an archive, oldest first.
async fn actions(gateway: &Gateway, name: &str) -> Vec<String> {
    let audit = gateway.client().get(&format!("/admin/api/audit?object=backup/{name}")).await.unwrap().json();
    let actions =
        audit["data"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap().to_owned());
    actions.rev().collect()
}

#[tokio::test]
async fn an_archive_is_downloaded_verified_and_deleted_through_the_api() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let path = create(gateway.setup()).await;
    let bytes = std::fs::read(&path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let (client, uri) = (gateway.client(), format!("/admin/api/backups/{name}"));
    let head = client.send("HEAD", &uri, Bytes::new()).await.unwrap();
    let length = bytes.len().to_string();
    assert_eq!((head.status, head.header("content-length")), (200, Some(length.as_str())));
    let whole = client.get(&uri).await.unwrap();
    assert_eq!((whole.status, whole.header("content-type")), (200, Some("application/zstd")));
    assert_eq!(whole.header("content-length"), Some(length.as_str()));
    let disposition = format!("attachment; filename=\"{name}\"");
    assert_eq!(whole.header("content-disposition"), Some(disposition.as_str()));
    assert!(whole.body == bytes, "every byte as it is on the disk");

    let verified = client.post(&format!("{uri}/verify"), "{}").await;
    let verdict = verified.json();
    assert_eq!(
        (verified.status, &verdict["name"], &verdict["is_checking"]),
        (200, &name.into(), &false.into())
    );
    assert!(verdict["fault"].is_null() && verdict["checked_at_ms"].is_u64(), "{verdict}");
    let mut damaged = bytes.clone();
    let place = damaged.len() - 3;
    damaged[place] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    let verdict = client.post(&format!("{uri}/verify"), "{}").await.json();
    assert!(verdict["fault"].is_string(), "{verdict}");

    assert_eq!(client.send("DELETE", &uri, Bytes::new()).await.unwrap().status, 204);
    assert!(!path.exists() && names(&gateway).await.is_empty());
    assert_eq!(client.get(&uri).await.unwrap().status, 404);
    let done = ["backup.download", "backup.verify", "backup.verify", "backup.delete"];
    assert_eq!(actions(&gateway, name).await, done, "each use is in the audit, and a HEAD is none");
}

#[tokio::test]
async fn a_backup_name_cannot_reach_another_file() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let archive = create(gateway.setup()).await;
    let folder = archive.parent().unwrap();
    let others = ["lock", "checks.json", "llmgw-backup-x.tar.zst"];
    std::fs::write(folder.join(others[2]), "no archive").unwrap();
    let real = archive.file_name().unwrap().to_str().unwrap().to_owned();
    let names = others.map(str::to_owned).into_iter().chain(
        ["..%2fgateway.db", "%2e%2e%2f%2e%2e%2fconfig.yaml", "%2fetc%2fpasswd", "..", ".", "%00"]
            .map(str::to_owned),
    );
    let names = names.chain([format!("..%2fbackups%2f{real}"), format!("{real}%00"), format!("{real}%2f..")]);
    for name in names {
        let uri = format!("/admin/api/backups/{name}");
        for (method, uri) in
            [("GET", uri.clone()), ("DELETE", uri.clone()), ("POST", format!("{uri}/verify"))]
        {
            let answer = gateway.client().with("content-type", "application/json");
            let answer = answer.send(method, &uri, Bytes::new()).await.unwrap();
            assert!([400, 404, 405].contains(&answer.status), "{method} {uri}: {answer:?}");
        }
    }
    assert!(
        others.iter().all(|name| folder.join(name).exists()) && gateway.state().join("gateway.db").exists()
    );
    assert_eq!(names_left(folder), 1);
}

/// Returns the number of archives in a folder.
fn names_left(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with("Z.tar.zst")).count()
}

#[tokio::test]
async fn the_state_shows_the_last_intact_backup_and_its_failure() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let state = async || gateway.client().get("/admin/api/state").await.unwrap().json();
    let first = state().await;
    assert_eq!(first["backup"], json!({"last_good_at_ms": null, "last_failure": null}));
    assert_eq!(gateway.client().post("/admin/api/backups", "{}").await.status, 202);
    let made_at_ms =
        wait::eventually("an intact backup", async || state().await["backup"]["last_good_at_ms"].as_u64())
            .await;
    let archive = backups(&gateway).await["data"][0].clone();
    assert!(made_at_ms.abs_diff(archive["checked_at_ms"].as_u64().unwrap()) < 60_000, "{archive}");

    let folder = gateway.state().join("backups");
    let path = folder.join(archive["name"].as_str().unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
    wait::eventually("a damaged archive that is no backup", async || {
        backups(&gateway).await;
        state().await["backup"]["last_good_at_ms"].is_null().then_some(())
    })
    .await;

    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    gateway.client().post("/admin/api/backups", "{}").await;
    let failed = wait::eventually("a failure", async || {
        Some(state().await["backup"].clone()).filter(|backup| !backup["last_failure"].is_null())
    });
    assert!(failed.await["last_failure"]["message"].is_string());
}

/// A schedule makes backups, and the newest one is rehearsed (M-118).
#[tokio::test]
async fn scheduled_backups_and_rehearsals_are_in_the_table_of_jobs() {
    let setup = Setup::new(&Yaml::one("http://127.0.0.1:9/v1")).env("LLMGW_BACKUP_SCHEDULE", "* * * * *");
    let gateway = setup.start().await;
    create(gateway.setup()).await;
    let job = async |name: &str| {
        let state = gateway.client().get("/admin/api/state").await.unwrap().json();
        state["jobs"].as_array().unwrap().iter().find(|job| job["name"] == name).cloned().unwrap()
    };
    let planned = wait::eventually("the plan of the next backup", async || {
        Some(job("backup").await).filter(|job| job["next_at_ms"].is_u64())
    })
    .await;
    assert_eq!(planned["interval"], "* * * * *");
    assert_eq!(planned["next_at_ms"].as_u64().unwrap() % 60_000, 0, "{planned}");
    let ended = async |name: &str| {
        let time_max = wait::PATIENCE * 4;
        wait::eventually_within(time_max, name, async || {
            Some(job(name).await).filter(|job| job["last_ended_at_ms"].is_u64())
        })
        .await
    };
    assert_eq!(ended("restore_rehearsal").await["last_error"], Value::Null, "{}", gateway.log());
    gateway.logs("was rehearsed: it opens").await;
    assert_eq!(ended("backup").await["last_error"], Value::Null, "{}", gateway.log());
    let list = backups(&gateway).await;
    assert!(list["data"].as_array().unwrap().len() >= 2, "{list}");
    assert_eq!(ended("retention").await["last_error"], Value::Null);
}

#[tokio::test]
async fn a_schedule_that_cannot_be_read_is_refused_at_the_start() {
    let setup = Setup::new(&Yaml::one("http://127.0.0.1:9/v1")).env("LLMGW_BACKUP_SCHEDULE", "every night");
    let refused = setup.output_of(&["serve"], 78).await;
    assert!(refused.contains("LLMGW_BACKUP_SCHEDULE") && refused.contains("cron syntax"), "{refused}");
}
