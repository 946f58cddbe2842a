//! The process under its supervisor: the death of a thread ends it with an error, and signals that do not request
//! termination do not end it.

use std::io::Write as _;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, faults, wait};

/// A directory for fault switches, and a set-up whose process is subject to them.
pub(crate) struct Faulty {
    dir: TempDir,
}

impl Faulty {
    /// Compiles the faults. A machine without a C compiler cannot build the gateway either.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        faults::library(dir.path()).expect("a C compiler");
        Self { dir }
    }

    pub(crate) fn apply(&self, setup: Setup) -> Setup {
        setup
            .env("LD_PRELOAD", self.dir.path().join("faults.so").to_str().unwrap())
            .env("FAULTS", self.dir.path().to_str().unwrap())
    }

    pub(crate) fn begin(&self, fault: &str, content: &str) -> PathBuf {
        let draft = self.dir.path().join("draft");
        std::fs::write(&draft, content).unwrap();
        let flag = self.dir.path().join(fault);
        std::fs::rename(draft, &flag).unwrap();
        flag
    }
}

fn two_workers(upstream: &Upstream) -> Setup {
    Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_WORKERS", "2")
}

#[tokio::test]
async fn the_data_plane_has_as_many_threads_as_workers() {
    let workers = std::thread::available_parallelism().unwrap().get() + 1;
    let setup = Setup::new(&Yaml::new()).env("LLMGW_WORKERS", workers.to_string());
    let gateway = setup.start().await;
    let threads = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap().flatten();
    let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")).unwrap());
    assert_eq!(names.filter(|name| name.starts_with("data-")).count(), workers);
}

#[tokio::test]
async fn a_worker_that_dies_ends_the_process_with_an_error() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    // The first of them is the one that accepts connections.
    for thread in ["data-0", "data-1"] {
        let faulty = Faulty::new();
        let mut gateway = faulty.apply(two_workers(&upstream)).start().await;
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
        faulty.begin("no-epoll", thread);
        assert_eq!(gateway.exit().await.code(), Some(70), "{thread}: {}", gateway.log());
        let panicked = format!("ERROR llmgw::cli::logs: thread '{thread}' panicked at ");
        for line in [panicked, format!("thread {thread} ended: it panicked")] {
            gateway.logs(&line).await;
        }
    }
}

#[tokio::test]
async fn a_worker_that_dies_while_the_process_drains_ends_it_with_an_error() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::stream().chunk(chat::content("before")).hang());
    let faulty = Faulty::new();
    let mut gateway = faulty.apply(two_workers(&upstream)).env("LLMGW_DRAIN_SECONDS", "3600").start().await;
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    gateway.signal(Signal::TERM);
    gateway.logs("stopping:").await;
    faulty.begin("no-epoll", "data-1");
    assert_eq!(gateway.exit().await.code(), Some(70), "{}", gateway.log());
}

#[tokio::test]
async fn without_new_threads_requests_are_still_answered() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    // A name look-up blocks a thread, and so does decompressing a body.
    let named = upstream.base_url().replace("127.0.0.1", "localhost");
    let faulty = Faulty::new();
    let mut gateway = faulty.apply(Setup::new(&Yaml::one(&named))).start().await;
    let flag = faulty.begin("no-threads", "");
    let body = chat::request("m").to_string();
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(body.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let post = async |client: Client, path: &str, body: Vec<u8>| {
        let answer = client.with("content-type", "application/json").send("POST", path, body.into()).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error:?}\n{}", gateway.log()))
    };
    for round in 0..3 {
        let plain = post(gateway.client(), "/v1/chat/completions", body.clone().into()).await;
        let packing = gateway.client().with("content-encoding", "gzip");
        let unpacked = post(packing, "/v1/chat/completions", packed.clone()).await;
        let tokens =
            json!({"model": "m", "messages": [{"role": "user", "content": "word ".repeat(200_000)}]});
        let counted = post(gateway.client(), "/v1/messages/count_tokens", tokens.to_string().into()).await;
        for answer in [plain, unpacked, counted] {
            let is_clear = answer.status == 200 || !answer.error_code().is_empty();
            assert!(is_clear, "round {round}: {answer:?}\n{}", gateway.log());
        }
        let exported = gateway.client().get("/admin/api/usage/export?format=csv").await.unwrap();
        assert!(exported.status == 200 || !exported.error_code().is_empty(), "{exported:?}");
        let listed = gateway.client().get("/admin/api/backups").await.unwrap();
        assert_eq!(listed.status, 500, "this needs a new thread: {listed:?}");
    }
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
    std::fs::remove_file(flag).unwrap();
    assert_eq!(gateway.client().chat(body).await.status, 200);
    assert_eq!(gateway.client().get("/admin/api/backups").await.unwrap().status, 200);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
}

#[tokio::test]
async fn hangup_reloads_and_the_user_signals_change_nothing() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let yaml =
        format!("providers:\n  up: {{type: openai, base_url: '{}', models: [m]}}\n", upstream.base_url());
    let setup = Setup::new(&Yaml::new()).yaml(yaml);
    std::fs::create_dir_all(setup.state()).unwrap();
    let keys = setup.state().join("secrets.json");
    std::fs::write(&keys, json!({"up": "the-first-key-of-the-file"}).to_string()).unwrap();
    let gateway = setup.start().await;
    let key = async || {
        let answer = gateway.client().chat(chat::request("up/m")).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        upstream.requests().last().unwrap().header("authorization").unwrap().to_owned()
    };
    assert_eq!(key().await, "Bearer the-first-key-of-the-file");

    let gate = Gate::new();
    let rest = Answer::stream().chunk(chat::content("before")).wait(&gate);
    upstream.always(rest.chunk(chat::content("after")).chunk(chat::finish()).chunk(chat::done()).end());
    let mut flow = gateway.client().chat_flow(chat::stream_request("up/m")).await;
    flow.event().await;
    upstream.always(Answer::completion("hello"));

    for (signal, line) in [(Signal::USR1, "SIGUSR1 has no effect"), (Signal::USR2, "SIGUSR2 has no effect")] {
        gateway.signal(signal);
        gateway.logs(line).await;
    }
    // The configuration file itself is unchanged, so that checking it would not find this change.
    std::fs::write(&keys, json!({"up": "the-second-key-of-the-file"}).to_string()).unwrap();
    assert_eq!(key().await, "Bearer the-first-key-of-the-file");
    gateway.signal(Signal::HUP);
    wait::eventually("the second key", async || {
        (key().await == "Bearer the-second-key-of-the-file").then_some(())
    })
    .await;

    gate.open(1);
    let (events, whole) = flow.rest().await;
    assert!(whole && events.last().unwrap().bytes == chat::done(), "the stream went on: {events:?}");
}

#[tokio::test]
async fn hangup_with_an_invalid_file_keeps_the_last_valid_configuration() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    gateway.write_config("providers: {up: {type: nothing}}");
    gateway.signal(Signal::HUP);
    let warning = "is invalid; the last valid configuration stays in effect";
    gateway.logs(warning).await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
}
