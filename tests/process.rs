//! The binary from an operator's view: exit codes, signals, the state directory, configuration changes while it runs,
//! and the state after kill -9 (P16, P17, P20 to P22, CFG-2, CFG-5, OPS-3).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::figure::{figure, is_full};
use crate::support::gateway::{ADMIN_KEY, ENCRYPTION_KEY, Setup};
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, wait};

/// Base64 of 32 other bytes.
const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

fn setup() -> Setup {
    Setup::new(&Yaml::one("http://127.0.0.1:9/v1"))
}

/// Runs `serve`, which must fail with `code`, and returns its error output.
async fn refused(setup: &Setup, code: i32) -> String {
    setup.output_of(&["serve"], code).await
}

/// M-038, M-039.
#[tokio::test]
async fn startup_names_the_wrong_secret_and_never_shows_it() {
    let key = "LLMGW_CREDENTIAL_ENCRYPTION_KEY";
    for (name, value) in [
        ("LLMGW_API_KEY", None),
        ("LLMGW_API_KEY", Some("")),
        (key, None),
        (key, Some("")),
        (key, Some("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZQ==")),
        (key, Some("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY4")),
        (key, Some("&&&not-base64-at-all-but-44-characters-long=")),
    ] {
        let setup = match value {
            Some(value) => setup().env(name, value),
            None => setup().without(name),
        };
        let output = refused(&setup, 78).await;
        assert!(output.contains(name), "{output}");
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            assert!(!output.contains(value), "{output}");
        }
        assert!(!setup.state().join("gateway.db").exists(), "nothing is made before the secrets are right");
    }
}

#[tokio::test]
async fn another_encryption_key_is_rejected_and_the_state_is_intact() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let setup = gateway.kill().await.env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY);
    let output = refused(&setup, 78).await;
    assert!(output.contains("LLMGW_CREDENTIAL_ENCRYPTION_KEY"), "{output}");
    assert!(!output.contains(OTHER_KEY) && !output.contains(ENCRYPTION_KEY), "{output}");
    setup.env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", ENCRYPTION_KEY).start().await;
}

#[tokio::test]
async fn a_second_process_on_one_state_is_refused() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let output = refused(gateway.setup(), 75).await;
    assert!(output.contains("another"), "{output}");
    assert_eq!(gateway.client().get("/ready").await.unwrap().status, 200, "the first one goes on");
}

#[tokio::test]
async fn an_impossible_state_directory_is_rejected() {
    let setup = setup();
    let file = setup.config_path().with_file_name("a-file");
    std::fs::write(&file, "x").unwrap();
    let setups = || [self::setup(), self::setup().without("LLMGW_CONFIG")];
    for (path, what) in [(file.clone(), "is a file"), (file.join("state"), "is below a file")] {
        let path = path.to_str().unwrap();
        let want = format!("LLMGW_STATE_DIR: {path} {what}; set it to a directory");
        // The fault is the same if the configuration is in the state directory.
        for setup in setups() {
            let setup = setup.env("LLMGW_STATE_DIR", path);
            let output = refused(&setup, 78).await;
            assert!(output.contains(&want) && !output.contains("config.yaml"), "{output}");
        }
    }
}

/// A gateway needs no file, but a check of a file that does not exist has nothing to approve.
#[tokio::test]
async fn a_check_of_a_missing_file_fails_and_the_gateway_starts_without_it() {
    let setup = setup();
    let file = setup.config_path().with_file_name("missing.yaml");
    let setup = setup.env("LLMGW_CONFIG", file.to_str().unwrap());
    let output = setup.output_of(&["config", "check"], 78).await;
    assert!(
        output.contains(&format!("LLMGW_CONFIG names {}, which does not exist", file.display())),
        "{output}"
    );
    setup.without("LLMGW_CONFIG").output_of(&["config", "check"], 0).await;
}

#[tokio::test]
async fn completions_and_manual_pages_cover_every_command() {
    let setup = setup();
    for shell in ["bash", "zsh", "fish"] {
        let output = setup.run(&["completions", shell]).await;
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && script.contains("doctor") && script.contains("rollback"),
            "{shell}"
        );
    }
    let folder = setup.config_path().with_file_name("man");
    assert!(setup.run(&["manual", folder.to_str().unwrap()]).await.status.success());
    for page in ["llmgw.1", "llmgw-serve.1", "llmgw-backup-restore.1", "llmgw-rollback.1"] {
        assert!(std::fs::read_to_string(folder.join(page)).unwrap().contains(".TH"), "{page}");
    }
}

#[tokio::test]
async fn a_newer_database_is_refused_and_left_alone() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let database = gateway.state().join("gateway.db");
    let setup = gateway.kill().await;
    let version = |db: &rusqlite::Connection| -> i64 {
        db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    };
    {
        let db = rusqlite::Connection::open(&database).unwrap();
        assert!(version(&db) > 0);
        db.pragma_update(None, "user_version", 9_999).unwrap();
    }
    let output = refused(&setup, 78).await;
    assert!(output.contains("start the newer release") && output.contains("llmgw rollback"), "{output}");
    assert_eq!(version(&rusqlite::Connection::open(&database).unwrap()), 9_999);
}

/// P20: a damaged database is reported and left unchanged.
#[tokio::test]
async fn a_damaged_database_is_never_replaced() {
    let mut gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let database = gateway.state().join("gateway.db");
    // A clean stop leaves all data in the one file.
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    let setup = gateway.kill().await;
    // A page that no table uses may have any content, so remove such pages.
    rusqlite::Connection::open(&database).unwrap().execute_batch("VACUUM").unwrap();
    let whole = std::fs::read(&database).unwrap();
    let mut pages = 0;
    for page in (0..whole.len() / 4_096).step_by(5) {
        let mut damaged = whole.clone();
        damaged[page * 4_096..][..4_096].fill(b'#');
        std::fs::write(&database, &damaged).unwrap();
        let output = refused(&setup, 74).await;
        assert!(output.contains("gateway.db") && output.contains("damaged"), "page {page}: {output}");
        assert!(std::fs::read(&database).unwrap() == damaged, "page {page} is left as it was");
        pages += 1;
    }
    let no_database = vec![b'#'; 8_192];
    std::fs::write(&database, &no_database).unwrap();
    assert!(refused(&setup, 74).await.contains("gateway.db"));
    assert_eq!(std::fs::read(&database).unwrap(), no_database);
    figure(
        "P20",
        format!(
            "{pages} damaged pages and a file that is no database: each refused by name, nothing changed"
        ),
    );
}

#[tokio::test]
async fn faults_of_the_configuration_are_named_by_line() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
                g: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nproviders: *g\n";
    let deep = format!("providers: {}{}\n", "[".repeat(20_000), "]".repeat(20_000));
    for (name, yaml, mention) in [
        ("broken YAML", "providers:\n  a: {type: compatible\n", "config.yaml:"),
        (
            "an unknown key",
            "providers:\n  a:\n    type: local_server\n    base_ulr: x\n    base_url: http://127.0.0.1:1/v1\n",
            ":4",
        ),
        ("a wrong type", "providers:\n  a:\n    type: local_server\n    base_url: [1]\n", ":4"),
        (
            "an unknown provider",
            "endpoints:\n  line:\n    failover: [{provider: nobody, model: m}]\n",
            "nobody",
        ),
        (
            "an unset variable",
            "providers:\n  a:\n    type: compatible\n    base_url: http://127.0.0.1:1/v1\n    api_key: ${ENV:NOT_SET_ANYWHERE}\n",
            "NOT_SET_ANYWHERE",
        ),
        ("the same key twice", "providers:\n  a: {type: echo}\n  a: {type: echo}\n", ":3"),
        ("an anchors bomb", bomb, "config.yaml"),
        ("deep nesting", deep.as_str(), "config.yaml"),
    ] {
        let setup = setup().yaml(yaml);
        for arguments in [&["serve"][..], &["config", "check"]] {
            let began = Instant::now();
            let output = setup.output_of(arguments, 78).await;
            assert!(output.contains(mention), "{name} {arguments:?}: {output}");
            assert!(began.elapsed() < Duration::from_secs(15), "{name}");
        }
    }
}

#[tokio::test]
async fn commands_have_their_exit_code_and_output() {
    let setup = setup();
    for (arguments, code, mention) in [
        (&["version"][..], 0, env!("CARGO_PKG_VERSION")),
        (&["config", "check"], 0, ""),
        (&["config", "show"], 0, "base_url"),
        (&["config", "schema"], 0, "\"providers\""),
        (&["no-such-command"], 64, "no-such-command"),
        (&["serve", "--no-such-option"], 64, "--no-such-option"),
        (&["serve", "--port", "9000"], 64, "the environment variable LLMGW_PORT sets this"),
        (&["serve", "--help"], 0, "LLMGW_CREDENTIAL_ENCRYPTION_KEY"),
    ] {
        let output = setup.output_of(arguments, code).await;
        assert!(output.contains(mention), "{arguments:?}: {output}");
        assert!(
            !output.contains("upstream-secret") && !output.contains(ADMIN_KEY),
            "{arguments:?}: {output}"
        );
    }
    assert!(!setup.state().exists(), "no small command makes state");
}

/// M-031, M-032.
#[tokio::test]
async fn the_gateway_listens_on_the_host_and_port_of_its_environment() {
    let free = std::net::TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let setup = setup().env("LLMGW_HOST", "127.0.0.2").env("LLMGW_PORT", free.port().to_string());
    let gateway = setup.start().await;
    assert_eq!(gateway.address(), free);
}

#[tokio::test]
async fn the_healthcheck_succeeds_only_while_the_gateway_runs() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let port = gateway.address().port().to_string();
    let check = setup().env("LLMGW_PORT", port);
    for arguments in [&["healthcheck"][..], &["healthcheck", "--ready"]] {
        assert_eq!(check.run(arguments).await.status.code(), Some(0), "{arguments:?}");
    }
    gateway.kill().await;
    for arguments in [&["healthcheck"][..], &["healthcheck", "--ready"]] {
        assert_eq!(check.run(arguments).await.status.code(), Some(1), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_stop_lets_a_stream_finish() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let rest = Answer::stream().chunk(chat::content("before")).wait(&gate);
    upstream.always(rest.chunk(chat::content("after")).chunk(chat::finish()).chunk(chat::done()).end());
    let mut gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    gateway.signal(Signal::TERM);
    let address = gateway.address();
    wait::eventually("no new connections", async || tokio::net::TcpStream::connect(address).await.err())
        .await;
    gate.open(1);
    let (events, whole) = flow.rest().await;
    assert!(whole && events.last().unwrap().bytes == chat::done(), "{events:?}");
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
    figure("P22", "SIGTERM with a stream that ends: it ends whole, exit 0");
}

/// P22; a full run uses the default drain time.
#[tokio::test]
async fn a_stop_cuts_streams_that_do_not_finish() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::stream().chunk(chat::content("before")).hang());
    let setup = Setup::new(&Yaml::one(upstream.base_url()));
    let (setup, end_max) = match is_full() {
        true => (setup, Duration::from_secs(35)),
        false => (setup.env("LLMGW_DRAIN_SECONDS", "1"), Duration::from_secs(6)),
    };
    let mut gateway = setup.start().await;
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    let stopped = Instant::now();
    gateway.signal(Signal::TERM);
    let status = gateway.exit_within(end_max).await;
    let taken = stopped.elapsed();
    assert_eq!(status.code(), Some(0), "{}", gateway.log());
    let (events, _) = flow.rest().await;
    assert!(events.iter().all(|event| event.bytes != chat::done()), "{events:?}");
    figure(
        "P22",
        format!("SIGTERM with a stream that never ends: exit 0 after {:.1} s", taken.as_secs_f64()),
    );
    // The exchange that was cut off is on record after the restart.
    let gateway = gateway.kill().await.start().await;
    assert_eq!(gateway.records(1).await.len(), 1);
}

#[tokio::test]
async fn a_valid_edit_takes_effect_and_an_invalid_one_does_not() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Answer::completion("first"));
    second.always(Answer::completion("second"));
    let gateway = Gateway::start(&Yaml::one(first.base_url())).await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);

    gateway.write_config("providers:\n  up: {type: compatible");
    let log = async |mark: &str| {
        gateway.logs(mark).await;
    };
    log("config.yaml").await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200, "the last good one goes on");

    gateway.write_config(Yaml::one(second.base_url()).text());
    wait::eventually("the edited provider", async || {
        let answer = gateway.client().chat(chat::request("m")).await;
        assert_eq!(answer.status, 200, "no request fails over an edit");
        (answer.json()["choices"][0]["message"]["content"] == "second").then_some(())
    })
    .await;
}

#[tokio::test]
async fn state_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&gateway.state()), 0o700);
    let mut folders = vec![gateway.state()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
}

/// STATE-5, P16: once a client has received the end of a response, its record survives kill -9.
#[tokio::test]
async fn no_record_of_a_whole_answer_is_lost_by_a_kill() {
    const ROUNDS: usize = 20;
    const STREAMS: usize = 500;
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let first = Answer::stream().chunk(chat::content("x")).wait(&gate);
    upstream.always(first.chunk(chat::finish()).chunk(chat::usage()).chunk(chat::done()).end());
    let mut setup = Setup::new(&Yaml::one(upstream.base_url()));
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for round in 0..ROUNDS {
        let gateway = setup.start().await;
        let mut streams = tokio::task::JoinSet::new();
        let ready = Gate::new();
        for index in 0..STREAMS {
            let (client, ready) = (gateway.client(), ready.clone());
            streams.spawn(async move {
                let id = format!("kill-{round}-{index}");
                let mut flow = client.with("x-request-id", &id).chat_flow(chat::stream_request("m")).await;
                flow.event().await;
                ready.open(1);
                let (events, whole) = flow.rest().await;
                (whole && events.last().is_some_and(|event| event.bytes == chat::done())).then_some(id)
            });
        }
        for _ in 0..STREAMS {
            ready.pass().await;
        }
        // All streams end now; with each round the kill happens a little later.
        gate.open(STREAMS);
        let ended = STREAMS * round / ROUNDS;
        let mut whole = Vec::new();
        while whole.len() < ended {
            whole.extend(streams.join_next().await.unwrap().unwrap());
        }
        setup = gateway.kill().await;
        whole.extend(streams.join_all().await.into_iter().flatten());
        seen.extend(whole);
    }
    let gateway = setup.start().await;
    let recorded = all_request_ids(&gateway).await;
    let distinct: BTreeSet<&String> = recorded.iter().collect();
    assert_eq!(distinct.len(), recorded.len(), "no record is doubled");
    let lost: Vec<&String> = seen.iter().filter(|id| !distinct.contains(id)).collect();
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), seen.len());
    assert!(seen.len() >= STREAMS * ROUNDS / 4, "the kills left {} whole answers", seen.len());
    figure(
        "P16",
        format!(
            "{STREAMS} streams ending while it is killed, {ROUNDS} times: {} seen whole, 0 lost",
            seen.len()
        ),
    );
}

/// Returns the ids of all records, page by page, once none is waiting to be stored.
async fn all_request_ids(gateway: &Gateway) -> Vec<String> {
    let client = gateway.client();
    wait::eventually("an empty journal", async || {
        let state = client.get("/admin/api/state").await.unwrap().json();
        (state["usage"]["queued"] == 0).then_some(())
    })
    .await;
    pages(&client).await
}

async fn pages(client: &Client) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/admin/api/requests?limit=500{cursor}")).await.unwrap().json();
        let data = page["data"].as_array().unwrap_or_else(|| panic!("a list: {page}"));
        ids.extend(data.iter().map(|record| record["request_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}
