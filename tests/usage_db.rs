//! Usage in a separate database (STATE-1, M-122): absent unless configured, moved there and back by a start, and
//! equivalent to usage in `gateway.db`, whatever is killed, deleted or restored.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::{Admin, NewKey};
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, faults, wait};

const SWITCH: &str = "LLMGW_USAGE_DB";
/// The tokens that every exchange uses.
const TOKENS: u64 = 18;

/// A gateway with a key and a quota on it, over an upstream that returns `ok`.
struct Rig {
    gateway: Gateway,
    key: NewKey,
    quota: String,
    _upstream: Upstream,
}

impl Rig {
    async fn start(apart: bool) -> Self {
        Self::with(|setup| setup.env(SWITCH, apart.to_string())).await
    }

    async fn with(set: impl FnOnce(Setup) -> Setup) -> Self {
        let upstream = Upstream::start().await;
        upstream.always(Answer::completion("ok"));
        let gateway = set(Setup::new(&Yaml::one(upstream.base_url()))).start().await;
        let admin = Admin(gateway.client());
        let project = admin.project("blue").await;
        let key = admin.key(json!({"project": project})).await;
        let quota = json!({"subject": {"kind": "key", "id": key.id}, "metric": "total_tokens",
            "window": "total", "limit": 1_000_000});
        let quota = admin.create("quotas", quota).await;
        Self { gateway, key, quota, _upstream: upstream }
    }

    async fn chat(&self, count: usize) {
        let client = Client::new(self.gateway.address(), Some(&self.key.key));
        for _ in 0..count {
            assert_eq!(client.chat(chat::request("m")).await.status, 200);
        }
    }

    /// Kills the gateway and starts it again.
    async fn restart_with(self, set: impl FnOnce(Setup) -> Setup) -> Self {
        let gateway = set(self.gateway.kill().await).start().await;
        Self { gateway, ..self }
    }

    /// Stops the gateway as an operator does, and returns the set-up to start it again.
    async fn stopped(self) -> (Setup, NewKey, String, Upstream) {
        let mut gateway = self.gateway;
        gateway.signal(rustix::process::Signal::TERM);
        assert!(gateway.exit().await.success());
        (gateway.kill().await, self.key, self.quota, self._upstream)
    }

    async fn used(&self) -> u64 {
        used(&self.gateway, &self.quota).await
    }

    /// Waits until `gateway.db` has counted exactly this many exchanges in the quota.
    async fn counted(&self, exchanges: u64) {
        let want = i64::try_from(exchanges * TOKENS).unwrap();
        wait::eventually(&format!("{want} tokens in gateway.db"), async || {
            let sum = ask(self.gateway.setup(), "gateway.db", "SELECT sum(used) FROM quota_share");
            assert!(sum <= want, "{sum}: counted twice");
            (sum == want).then_some(())
        })
        .await;
    }

    /// Returns all reports about usage.
    async fn usage_reports(&self, count: usize) -> Value {
        usage_reports(&self.gateway, count).await
    }

    async fn state(&self) -> Value {
        Admin(self.gateway.client()).done("GET", "state", Value::Null).await
    }
}

async fn used(gateway: &Gateway, quota: &str) -> u64 {
    let admin = Admin(gateway.client());
    wait::eventually("a settled quota", async || {
        let shown = admin.done("GET", &format!("quotas/{quota}"), Value::Null).await;
        (shown["reserved"] == 0).then(|| shown["used"].as_u64().unwrap())
    })
    .await
}

async fn usage_reports(gateway: &Gateway, count: usize) -> Value {
    let records = gateway.records(count).await;
    assert_eq!(records.len(), count);
    let admin = Admin(gateway.client());
    let get = async |path| admin.done("GET", path, Value::Null).await;
    json!({
        "records": records,
        "sums": get("usage?group_by=model,key&bucket=hour").await["data"],
        "totals": get("usage").await["totals"],
        "key": get("keys").await["data"][0]["last_used_hour_ms"],
    })
}

fn ask(setup: &Setup, file: &str, sql: &str) -> i64 {
    Connection::open(setup.state().join(file)).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

fn tables_of_usage(setup: &Setup, file: &str) -> i64 {
    ask(
        setup,
        file,
        "SELECT count(*) FROM sqlite_schema WHERE name IN ('usage', 'usage_hour', 'usage_day', 'usage_journal')",
    )
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("usage.db"))
        .collect();
    names.sort();
    names
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &to)
        } else {
            drop(std::fs::copy(entry.path(), to))
        }
    }
}

/// M-122: by default `usage.db` does not exist; the switch moves all usage there, and its removal moves it back.
#[tokio::test]
async fn usage_moves_to_usage_db_and_back_unchanged() {
    let rig = Rig::with(|setup| setup).await;
    rig.chat(5).await;
    let before = rig.usage_reports(5).await;
    let state = rig.state().await;
    assert_eq!(state["usage"]["store"]["file"], "gateway.db", "absent by default: {state}");
    assert!(files(&rig.gateway.state()).is_empty());

    let rig = rig.restart_with(|setup| setup.env(SWITCH, "true")).await;
    assert_eq!((rig.usage_reports(5).await, rig.used().await), (before, 5 * TOKENS));
    let state = rig.state().await;
    let bytes = state["usage"]["store"]["bytes"].as_u64().unwrap();
    assert_eq!((&state["usage"]["store"]["file"], bytes > 10_000), (&json!("usage.db"), true), "{state}");
    let mode = std::fs::metadata(rig.gateway.state().join("usage.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(tables_of_usage(rig.gateway.setup(), "gateway.db"), 0);
    rig.chat(5).await;
    rig.counted(10).await;
    let before = rig.usage_reports(10).await;
    assert_eq!(rig.used().await, 10 * TOKENS);

    let rig = rig.restart_with(|setup| setup).await;
    assert_eq!(
        (rig.usage_reports(10).await, rig.used().await),
        (before.clone(), 10 * TOKENS),
        "a start changes nothing"
    );
    for command in [["audit", "verify"], ["credentials", "verify"]] {
        rig.gateway.setup().output_of(&command, 0).await;
    }
    let shown = rig.gateway.setup().output_of(&["config", "show"], 0).await;
    assert!(shown.contains("in usage.db, ") && shown.contains(SWITCH), "{shown}");

    let rig = rig.restart_with(|setup| setup.without(SWITCH)).await;
    assert_eq!((rig.usage_reports(10).await, rig.used().await), (before, 10 * TOKENS), "and back");
    assert!(files(&rig.gateway.state()).is_empty());
    rig.chat(1).await;
    rig.usage_reports(11).await;
    assert_eq!(rig.used().await, 11 * TOKENS);
    let shown = rig.gateway.setup().output_of(&["config", "show"], 0).await;
    assert!(shown.contains("in gateway.db, "), "{shown}");
}

#[tokio::test]
async fn a_move_to_usage_db_killed_at_any_step_keeps_every_record_once() {
    kill_at_steps_of_the_move(1, true).await;
}

#[tokio::test]
async fn a_move_from_usage_db_killed_at_any_step_keeps_every_record_once() {
    kill_at_steps_of_the_move(2, false).await;
}

/// Kills the process at every third step of a move, because a step takes two starts; a start with either setting then has every
/// record exactly once.
async fn kill_at_steps_of_the_move(first: usize, apart: bool) {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = faults::library(dir.path()) else { return };
    let rig = Rig::start(!apart).await;
    rig.chat(7).await;
    rig.usage_reports(7).await;
    let (mut setup, _, quota, _upstream) = rig.stopped().await;
    let base = dir.path().join("base");
    copy_dir(&setup.state(), &base);
    let mut steps = 0;
    for step in (first..).step_by(3) {
        std::fs::remove_dir_all(setup.state()).unwrap();
        copy_dir(&base, &setup.state());
        setup = setup.env(SWITCH, apart.to_string());
        let mut dying = setup.command(&["serve"]);
        dying.env("LD_PRELOAD", &library).env("DIE_AT", step.to_string());
        if outlives(dying).await {
            break;
        }
        steps = step;
        // The records are present with either setting.
        let wants = if step % 2 == 0 { !apart } else { apart };
        let gateway = setup.env(SWITCH, wants.to_string()).start().await;
        let totals = Admin(gateway.client()).done("GET", "usage", Value::Null).await["totals"].clone();
        assert_eq!(totals["requests"], 7, "step {step}, {apart} and then {wants}");
        assert_eq!((gateway.records(7).await.len(), used(&gateway, &quota).await), (7, 7 * TOKENS));
        assert!(!gateway.log().contains("is gone"), "{}", gateway.log());
        setup = gateway.kill().await;
        let want: &[&str] = if wants { &["usage.db", "usage.db-shm", "usage.db-wal"] } else { &[] };
        assert_eq!(files(&setup.state()), want, "step {step}");
        assert_eq!(tables_of_usage(&setup, "gateway.db"), if wants { 0 } else { 4 });
    }
    assert!(steps > 20, "{steps}");
    figure("M-122", format!("killed at every third of {steps} steps (apart: {apart}), 0 lost, 0 doubled"));
}

/// True if the process becomes ready; ends it in that case.
async fn outlives(mut command: tokio::process::Command) -> bool {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains("listening on ") {
                return true;
            }
        }
        false
    };
    let outlives = wait::within(wait::PATIENCE, "its end or its beginning", line).await;
    if outlives {
        child.kill().await.unwrap();
    } else {
        assert_eq!(child.wait().await.unwrap().code(), Some(137));
    }
    outlives
}

/// `usage.db` has the exchanges, but `gateway.db` cannot store their quota usage.
#[tokio::test]
async fn a_kill_between_the_two_files_counts_quotas_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = faults::library(dir.path()) else { return };
    let rig = Rig::with(|setup| {
        setup
            .env(SWITCH, "true")
            .env("LD_PRELOAD", library.to_str().unwrap())
            .env("FAULTS", dir.path().to_str().unwrap())
    })
    .await;
    rig.chat(3).await;
    rig.counted(3).await;
    let flag = dir.path().join("full");
    std::fs::write(&flag, "").unwrap();
    rig.chat(4).await;
    assert_eq!(rig.gateway.records(7).await.len(), 7, "usage is stored while gateway.db cannot be");
    rig.counted(3).await;
    let setup = rig.gateway.kill().await;
    std::fs::remove_file(&flag).unwrap();
    let rig = Rig { gateway: setup.start().await, ..rig };
    assert_eq!(rig.used().await, 7 * TOKENS);
    rig.counted(7).await;

    // Also within one process: usage is counted as soon as that is possible.
    std::fs::write(&flag, "").unwrap();
    rig.chat(2).await;
    assert_eq!(rig.gateway.records(9).await.len(), 9);
    std::fs::remove_file(&flag).unwrap();
    rig.counted(9).await;
    let rig = rig.restart_with(|setup| setup).await;
    assert_eq!(rig.used().await, 9 * TOKENS);
}

/// Load ended by repeated kill -9: quotas have counted exactly the recorded usage.
#[tokio::test]
async fn records_and_quotas_agree_after_kills_under_load() {
    const ROUNDS: usize = 4;
    let mut rig = Rig::start(true).await;
    let mut answered = 0;
    for round in 0..ROUNDS {
        let mut tasks = JoinSet::new();
        let client = Client::new(rig.gateway.address(), Some(&rig.key.key));
        for _ in 0..8 {
            let client = client.clone().with("content-type", "application/json");
            tasks.spawn(async move {
                let mut count = 0_usize;
                while let Ok(answer) =
                    client.send("POST", "/v1/chat/completions", chat::request("m").into()).await
                {
                    count += usize::from(answer.status == 200);
                }
                count
            });
        }
        let goal = i64::try_from((round + 1) * 60).unwrap();
        wait::eventually("load", async || {
            let sum = "SELECT coalesce(sum(exchanges), 0) FROM usage";
            (ask(rig.gateway.setup(), "usage.db", sum) >= goal).then_some(())
        })
        .await;
        rig = rig.restart_with(|setup| setup).await;
        while let Some(count) = tasks.join_next().await {
            answered += count.unwrap();
        }
    }
    let totals = Admin(rig.gateway.client()).done("GET", "usage", Value::Null).await["totals"].clone();
    let requests = totals["requests"].as_u64().unwrap();
    assert!(requests >= answered as u64, "{totals}: {answered} were answered");
    let sum = ask(rig.gateway.setup(), "usage.db", "SELECT sum(requests) FROM usage_hour");
    assert_eq!(u64::try_from(sum).unwrap(), requests);
    let by_class = ["input", "output"].map(|class| totals["tokens"][class].as_u64().unwrap());
    assert_eq!(rig.used().await, by_class.iter().sum::<u64>(), "{totals}");
}

#[tokio::test]
async fn deleting_usage_db_loses_only_usage_records() {
    let rig = Rig::start(true).await;
    rig.chat(6).await;
    rig.counted(6).await;
    // After the kill the journal still has the stored records, and the database's log file remains.
    let setup = rig.gateway.kill().await;
    let usage = setup.state().join("usage.db");
    std::fs::remove_file(&usage).unwrap();
    assert!(setup.state().join("usage.db-wal").exists());
    let rig = Rig { gateway: setup.start().await, ..rig };
    let state = rig.state().await;
    assert!(state["warnings"][0].as_str().unwrap().contains("usage.db was deleted"), "{state}");
    rig.gateway.logs("usage.db was deleted").await;
    assert_eq!(rig.used().await, 6 * TOKENS, "what was counted is neither lost nor counted again");
    rig.chat(2).await;
    assert_eq!(rig.used().await, 8 * TOKENS);

    let (setup, key, quota, _upstream) = rig.stopped().await;
    std::fs::remove_file(&usage).unwrap();
    let gateway = setup.start().await;
    let rig = Rig { gateway, key, quota, _upstream };
    assert!(rig.gateway.records(0).await.is_empty());
    assert_eq!(rig.used().await, 8 * TOKENS);
    rig.chat(1).await;
    rig.usage_reports(1).await;
    let rig = rig.restart_with(|setup| setup).await;
    assert_eq!(rig.state().await["warnings"], json!([]), "it is reported once");
    assert_eq!((rig.used().await, rig.gateway.records(1).await.len()), (9 * TOKENS, 1));
}

/// STATE-3: an archive made under load has both files as of one moment.
#[tokio::test]
async fn a_backup_holds_both_databases_in_a_consistent_state() {
    let rig = Rig::start(true).await;
    rig.chat(20).await;
    rig.usage_reports(20).await;
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let client =
            Client::new(rig.gateway.address(), Some(&rig.key.key)).with("content-type", "application/json");
        load.spawn(async move {
            while client.send("POST", "/v1/chat/completions", chat::request("m").into()).await.is_ok() {}
        });
    }
    let output = rig.gateway.setup().output_of(&["backup", "create"], 0).await;
    let archive = output.lines().next().unwrap().to_owned();
    assert!(output.contains("gateway.db and usage.db"), "{output}");
    rig.gateway.setup().output_of(&["backup", "verify", &archive], 0).await;
    let setup = rig.gateway.kill().await;
    load.join_all().await;
    let target = setup.state().with_file_name("restored");
    setup.output_of(&["backup", "restore", &archive, target.to_str().unwrap()], 0).await;
    let gateway = setup.env("LLMGW_STATE_DIR", target.to_str().unwrap()).start().await;
    let requests =
        Admin(gateway.client()).done("GET", "usage", Value::Null).await["totals"]["requests"].clone();
    let requests = requests.as_u64().unwrap();
    assert!(requests >= 20);
    assert_eq!(used(&gateway, &rig.quota).await, requests * TOKENS);
    // Without the switch all usage is in one file again.
    let gateway = gateway.kill().await.without(SWITCH).start().await;
    let records =
        Admin(gateway.client()).done("GET", "usage", Value::Null).await["totals"]["requests"].clone();
    assert_eq!((records, used(&gateway, &rig.quota).await), (json!(requests), requests * TOKENS));
    let output = gateway.setup().output_of(&["config", "show"], 0).await;
    assert!(!target.join("usage.db").exists(), "{output}");
}

#[tokio::test]
async fn a_usage_db_of_another_state_is_rejected_and_kept() {
    let rig = Rig::start(false).await;
    rig.chat(2).await;
    rig.usage_reports(2).await;
    let (setup, key, quota, _upstream) = rig.stopped().await;
    let usage = setup.state().join("usage.db");
    std::fs::write(&usage, "somebody's notes").unwrap();
    let setup = setup.env(SWITCH, "true");
    let output = setup.output_of(&["serve"], 74).await;
    assert!(output.contains("move that file away"), "{output}");
    let gateway = setup.without(SWITCH).start().await;
    gateway.logs("it belongs to another state").await;
    assert!(!gateway.setup().output_of(&["backup", "create"], 0).await.contains("usage.db"));
    let rig = Rig { gateway, key, quota, _upstream };
    assert_eq!(rig.gateway.records(2).await.len(), 2);
    let (setup, key, quota, _upstream) = rig.stopped().await;
    assert_eq!(std::fs::read(&usage).unwrap(), b"somebody's notes");
    std::fs::remove_file(&usage).unwrap();

    let rig = Rig { gateway: setup.env(SWITCH, "true").start().await, key, quota, _upstream };
    assert_eq!(rig.gateway.records(2).await.len(), 2);
    let (setup, ..) = rig.stopped().await;
    let whole = std::fs::read(&usage).unwrap();
    ask_nothing(&usage, "PRAGMA user_version = 9999");
    let output = setup.output_of(&["serve"], 78).await;
    assert!(output.contains("usage.db has version 9999"), "{output}");
    for damaged in [b"no database".to_vec(), Vec::new(), [&whole[..4_096], &[0xee; 8_192]].concat()] {
        std::fs::write(&usage, &damaged).unwrap();
        let output = setup.output_of(&["serve"], 74).await;
        assert!(output.contains("usage.db is damaged") && output.contains("move this file away"), "{output}");
        assert_eq!(std::fs::read(&usage).unwrap(), damaged, "nothing was changed");
    }
    std::fs::write(&usage, &whole).unwrap();
    // A state without its main database is not treated as new.
    let main = setup.state().join("gateway.db");
    let aside = setup.state().join("aside");
    std::fs::rename(&main, &aside).unwrap();
    let output = setup.output_of(&["serve"], 74).await;
    assert!(output.contains("gateway.db is missing"), "{output}");
    std::fs::rename(&aside, &main).unwrap();
    assert_eq!(setup.start().await.records(2).await.len(), 2);
}

fn ask_nothing(file: &Path, sql: &str) {
    Connection::open(file).unwrap().execute_batch(sql).unwrap();
}

/// Expired records are deleted, and the rest is repriced, in whichever file they are.
#[tokio::test]
async fn retention_and_repricing_work_on_usage_db() {
    let rig = Rig::start(true).await;
    rig.chat(3).await;
    rig.usage_reports(3).await;
    let period = json!({"from": 0, "to": "2100-01-01T00:00:00Z", "provider": "up", "model": "m",
        "prices": {"input": 1, "output": 2}});
    let repriced = Admin(rig.gateway.client()).done("POST", "usage/reprice", period).await;
    assert_eq!((&repriced["changed"], &repriced["cost_micro_usd"]), (&json!(3), &json!(75.0)), "{repriced}");
    let totals = rig.usage_reports(3).await["totals"].clone();
    assert_eq!((&totals["cost_micro_usd"], &totals["requests_unpriced"]), (&json!(75.0), &json!(0)));

    let (setup, key, quota, _upstream) = rig.stopped().await;
    let older = "UPDATE usage SET digest = NULL, first_ms = first_ms - 1000 * 86400000, last_ms = last_ms - 1000 * 86400000; \
        UPDATE usage_hour SET hour = hour - 24000; UPDATE usage_day SET hour = hour - 24000; \
        DELETE FROM usage_row_sums";
    ask_nothing(&setup.state().join("usage.db"), older);
    let rig = Rig { gateway: setup.start().await, key, quota, _upstream };
    // Retention pauses for some seconds after each step.
    let state = wait::eventually_within(4 * wait::PATIENCE, "the end of a pass", async || {
        let state = rig.state().await;
        state["retention"]["last_pass_at_ms"].is_u64().then_some(state)
    })
    .await;
    assert_eq!(state["retention"]["usage_records_deleted"], 3, "{state}");
    let left = "SELECT (SELECT count(*) FROM usage) + (SELECT count(*) FROM usage_hour) + (SELECT count(*) FROM usage_day)";
    assert_eq!(ask(rig.gateway.setup(), "usage.db", left), 0);
    rig.chat(1).await;
    assert_eq!(rig.usage_reports(1).await["totals"]["requests"], 1);
}
