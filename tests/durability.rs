//! Everything that was answered is durable, for any failure of the process or the disk (P16, P20).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, faults, wait};

/// The request ids or the keys of all answers that clients have received.
type Seen = Arc<Mutex<BTreeSet<String>>>;

fn integrity(setup: &Setup) -> String {
    let db = rusqlite::Connection::open(setup.state().join("gateway.db")).unwrap();
    db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

/// Sends chats and creates keys until the gateway is gone. Records all complete answers.
async fn load(client: Client, admin: Admin, project: String, name: String, seen: (Seen, Seen)) {
    for number in 0.. {
        let id = format!("{name}-{number}");
        let chat = chat::request("m");
        let Ok(answer) =
            client.clone().with("x-request-id", &id).send("POST", "/v1/chat/completions", chat.into()).await
        else {
            return;
        };
        if answer.status == 200 {
            seen.0.lock().unwrap().insert(id.clone());
        }
        let body = json!({"project": project, "name": id}).to_string();
        let typed = admin.0.clone().with("content-type", "application/json");
        match typed.send("POST", "/admin/api/keys", body.into()).await {
            Ok(answer) if answer.status == 201 => {
                let key = answer.json()["key"].as_str().unwrap().to_owned();
                seen.1.lock().unwrap().insert(key);
            }
            Ok(answer) => panic!("{:?}", answer.body),
            Err(_) => return,
        }
    }
}

/// P16: six rounds of load, each ended by kill -9.
#[tokio::test]
async fn acknowledged_chats_and_keys_survive_kills_under_load() {
    const ROUNDS: usize = 6;
    const CLIENTS: usize = 12;
    const ANSWERS: usize = 60;
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let mut setup = Setup::new(&Yaml::one(upstream.base_url()));
    let (chats, keys) = (Seen::default(), Seen::default());
    let mut project = None;
    for round in 0..ROUNDS {
        let gateway = setup.start().await;
        let admin = Admin(gateway.client());
        if project.is_none() {
            project = Some(admin.project("blue").await);
        }
        let before = keys.lock().unwrap().len();
        let mut tasks = JoinSet::new();
        for index in 0..CLIENTS {
            let (seen, project) = ((Arc::clone(&chats), Arc::clone(&keys)), project.clone().unwrap());
            tasks.spawn(load(gateway.client(), admin.clone(), project, format!("r{round}-{index}"), seen));
        }
        wait::eventually("load", async || (keys.lock().unwrap().len() >= before + ANSWERS).then_some(()))
            .await;
        setup = gateway.kill().await;
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    }
    assert_eq!(integrity(&setup), "ok");
    let verified = setup.run(&["audit", "verify"]).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    assert!(setup.run(&["credentials", "verify"]).await.status.success());
    let gateway = setup.start().await;
    let (chats, keys) = (chats.lock().unwrap().clone(), keys.lock().unwrap().clone());
    for key in &keys {
        let answer = Client::new(gateway.address(), Some(key)).get("/v1/models").await.unwrap();
        assert_eq!(answer.status, 200, "a key whose creation was answered is gone");
    }
    let recorded = wait::eventually("all records", async || {
        let ids = request_ids(&gateway).await;
        chats.iter().all(|id| ids.contains(id)).then_some(ids)
    })
    .await;
    let distinct: BTreeSet<&String> = recorded.iter().collect();
    assert_eq!(distinct.len(), recorded.len(), "no record is doubled");
    let (chats, keys) = (chats.len(), keys.len());
    figure("P16", format!("{chats} chats and {keys} keys over {ROUNDS} kills under load: 0 lost, 0 doubled"));
}

async fn request_ids(gateway: &Gateway) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/admin/api/requests?limit=500{cursor}");
        let page = gateway.client().get(&path).await.unwrap().json();
        ids.extend(
            page["data"].as_array().unwrap().iter().map(|row| row["request_id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

async fn names(admin: &Admin) -> Vec<String> {
    let list = admin.done("GET", "projects", Value::Null).await;
    list["data"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

/// M-119, M-120: every other file of the state may be lost.
#[tokio::test]
async fn the_database_alone_holds_what_operators_and_clients_rely_on() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    let provider = json!({"id": "up", "type": "compatible", "base_url": upstream.base_url(), "models": ["m"],
        "api_key": "planted-upstream-key"});
    admin.done("POST", "providers", provider).await;
    admin.create("principals", json!({"name": "Ada"})).await;
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let quota = json!({"subject": {"kind": "project", "id": project}, "metric": "requests", "window": "day",
        "limit": 1, "enforcement": "warn"});
    admin.create("quotas", quota).await;
    assert_eq!(Client::new(gateway.address(), Some(&key.key)).chat(chat::request("up/m")).await.status, 200);
    wait::eventually_within(3 * wait::PATIENCE, "both alerts about the quota", async || {
        let alerts = admin.done("GET", "alerts", Value::Null).await;
        (alerts["data"].as_array().unwrap().len() == 2).then_some(())
    })
    .await;
    let ids = async |gateway: &Gateway| {
        let mut ids = Vec::new();
        for list in ["principals", "projects", "keys", "providers", "quotas", "alerts", "outbox?to=workers"] {
            let page = Admin(gateway.client()).done("GET", list, Value::Null).await;
            let rows = page["data"].as_array().unwrap();
            assert!(!rows.is_empty(), "{list}");
            ids.extend(rows.iter().map(|row| format!("{list} {}", row["id"])));
        }
        (ids, request_ids(gateway).await)
    };
    gateway.records(1).await;
    let before = ids(&gateway).await;
    let setup = gateway.kill().await;
    for entry in std::fs::read_dir(setup.state()).unwrap() {
        let path = entry.unwrap().path();
        match path.file_name().unwrap().to_str().unwrap() {
            name if name.starts_with("gateway.db") => {}
            _ if path.is_dir() => std::fs::remove_dir_all(path).unwrap(),
            _ => std::fs::remove_file(path).unwrap(),
        }
    }
    let gateway = setup.start().await;
    assert_eq!(ids(&gateway).await, before);
    assert_eq!(Client::new(gateway.address(), Some(&key.key)).chat(chat::request("up/m")).await.status, 200);
    assert_eq!(upstream.request(1).await.header("authorization"), Some("Bearer planted-upstream-key"));
}

/// P20: a disk that is full, becomes read-only or fails under the database and the journal. On a full disk the
/// journal's allocated blocks still accept the record of a chat; on a read-only disk nothing is written, so that chat
/// and later ones get 503.
#[tokio::test]
async fn changes_on_a_failing_disk_are_refused_until_it_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = faults::library(dir.path()) else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .env("LD_PRELOAD", library.to_str().unwrap())
        .env("FAULTS", dir.path().to_str().unwrap());
    let gateway = setup.start().await;
    let admin = Admin(gateway.client());
    admin.project("before").await;
    for (fault, status, mention, chat_status) in
        [("all-full", 503, "disk", 200), ("readonly", 500, "database", 503), ("eio", 500, "database", 200)]
    {
        let flag = dir.path().join(fault);
        std::fs::write(&flag, "").unwrap();
        for attempt in 0..3 {
            let refused = admin.call("POST", "projects", json!({"name": format!("{fault}-{attempt}")})).await;
            assert_eq!(refused.status, status, "{fault}: {:?}", refused.body);
            let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains(mention) && !message.contains("panicked"), "{message}");
        }
        let chat = gateway.client().chat(chat::request("m")).await;
        assert_eq!(chat.status, chat_status, "{fault}: {:?}", chat.body);
        assert_eq!(gateway.client().get("/health").await.unwrap().status, 200);
        std::fs::remove_file(&flag).unwrap();
        let mended = Instant::now();
        wait::eventually("changes again", async || {
            let again = admin.call("POST", "projects", json!({"name": format!("after-{fault}")})).await;
            (again.status == 201).then_some(())
        })
        .await;
        let taken = mended.elapsed().as_millis();
        wait::eventually("requests again", async || {
            (gateway.client().get("/ready").await.unwrap().status == 200).then_some(())
        })
        .await;
        figure(
            "P20",
            format!(
                "{fault}: chats {chat_status}, changes {status}, changes again {taken} ms after it is mended"
            ),
        );
    }
    let names = names(&admin).await;
    assert_eq!(names, ["before", "after-all-full", "after-readonly", "after-eio"], "nothing is half done");
    assert_eq!(gateway.records(2).await.len(), 2, "each complete answer has its record");
    assert!(!gateway.log().contains("panicked"));
    let setup = gateway.kill().await;
    assert_eq!(integrity(&setup), "ok");
    let verified = setup.without("LD_PRELOAD").run(&["audit", "verify"]).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// P20, STATE-5: on a full disk requests are served exactly as long as durable storage accepts their records.
#[tokio::test]
async fn every_answer_on_a_full_disk_is_recorded_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = faults::library(dir.path()) else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .env("LLMGW_WORKERS", "1")
        .env("LD_PRELOAD", library.to_str().unwrap())
        .env("FAULTS", dir.path().to_str().unwrap());
    let gateway = setup.start().await;
    let flag = dir.path().join("all-full");
    std::fs::write(&flag, "").unwrap();
    let answered = Arc::new(Mutex::new(BTreeSet::new()));
    let mut clients = JoinSet::new();
    for client in 0..8 {
        clients.spawn(chat_until_refused(gateway.client(), client, Arc::clone(&answered)));
    }
    wait::within(6 * wait::PATIENCE, "a refusal for each client", clients.join_all()).await;
    let refused = gateway.client().get("/ready").await.unwrap();
    assert_eq!((refused.status, refused.error_code()), (503, "overloaded".to_owned()), "{refused:?}");
    assert_eq!(gateway.client().get("/health").await.unwrap().status, 200);

    let gateway = gateway.kill().await.launch().await;
    assert_eq!(gateway.client().get("/ready").await.unwrap().status, 503, "the disk is still full");
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 503);
    std::fs::remove_file(&flag).unwrap();
    wait::eventually("room again", async || {
        (gateway.client().get("/ready").await.unwrap().status == 200).then_some(())
    })
    .await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    let answered = answered.lock().unwrap().clone();
    let recorded = wait::eventually("all records", async || {
        let ids = request_ids(&gateway).await;
        (ids.len() > answered.len()).then_some(ids)
    })
    .await;
    let distinct: BTreeSet<&String> = recorded.iter().collect();
    assert_eq!(distinct.len(), recorded.len(), "no record is doubled");
    let lost = answered.iter().filter(|id| !distinct.contains(id)).count();
    assert_eq!(lost, 0, "of {} answers", answered.len());
    figure("P20", format!("full disk and kill -9: {} answers, 0 lost, 0 doubled", answered.len()));
}

/// P20: another program truncates the files of the journal. The process continues and loses only the truncated part.
#[tokio::test]
async fn a_truncated_journal_does_not_end_the_process() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    upstream.then(Answer::completion("before"));
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    gateway.records(1).await;
    upstream.then(Answer::stream().chunk(chat::role()).chunk(chat::content("some")).hang());
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    for entry in std::fs::read_dir(gateway.state().join("journal")).unwrap() {
        let file = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_len(0).unwrap();
    }
    drop(flow);
    upstream.always(Answer::completion("after"));
    for _ in 0..4 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    let gateway = gateway.restart().await;
    assert_eq!(gateway.records(6).await.len(), 6, "nothing that was recorded is lost or doubled");
}

/// P20: at a limit on file sizes (`ulimit -f`) the kernel sends a signal with each refused write. The process continues,
/// refuses what it cannot record, and recovers.
#[tokio::test]
async fn a_file_size_limit_does_not_end_the_process() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let admin = Admin(gateway.client());
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    gateway.records(1).await;
    let unlimited = gateway.limit_file_bytes(Some(0));
    for attempt in 0..3 {
        let refused = admin.call("POST", "projects", json!({"name": format!("limited-{attempt}")})).await;
        assert_eq!(refused.status, 500, "{refused:?}");
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 503);
    }
    assert_eq!(gateway.client().get("/health").await.unwrap().status, 200);
    assert_eq!(gateway.client().get("/ready").await.unwrap().status, 503);

    gateway.limit_file_bytes(unlimited);
    wait::eventually("requests again", async || {
        (gateway.client().get("/ready").await.unwrap().status == 200).then_some(())
    })
    .await;
    wait::eventually("changes again", async || {
        let again = admin.call("POST", "projects", json!({"name": "after"})).await;
        (again.status == 201).then_some(())
    })
    .await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    assert_eq!(gateway.records(2).await.len(), 2, "each complete answer has its record");
    assert_eq!(names(&admin).await, ["after"]);
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

/// Sends chats with long records until one is rejected, and records which were answered.
async fn chat_until_refused(client: Client, number: usize, answered: Arc<Mutex<BTreeSet<String>>>) {
    let tags: Vec<String> = (0..8).map(|tag| format!("{tag:032}={}", "v".repeat(64))).collect();
    let client = client.with("x-llmgw-tags", &tags.join(","));
    for request in 0.. {
        let id = format!("full-{number}-{request}");
        let chat = chat::request("m").into();
        let client = client.clone().with("x-request-id", &id);
        let answer = client.send("POST", "/v1/chat/completions", chat).await.unwrap();
        if answer.status != 200 {
            assert_eq!(answer.status, 503, "{answer:?}");
            return;
        }
        answered.lock().unwrap().insert(id);
    }
}

#[tokio::test]
async fn a_change_fails_whole_while_another_process_locks_the_database() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let admin = Admin(gateway.client());
    let db = rusqlite::Connection::open(gateway.state().join("gateway.db")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = admin.call("POST", "projects", json!({"name": "held"})).await;
    assert_eq!((refused.status, refused.error_code()), (503, "overloaded".to_owned()), "{refused:?}");
    assert_eq!(names(&admin).await, [""; 0], "reading goes on");
    db.execute_batch("ROLLBACK").unwrap();
    admin.project("free").await;
    assert_eq!(names(&admin).await, ["free"]);
}
