//! Log lines: client data appears in them as a single value that cannot forge other content, and log files contain them all.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// Ends a line, starts another, colours a terminal in both ways, and reverses the text direction.
const FORGING: &str =
    "m\r\nINFO forged line\u{1b}[31m\u{9b}32m\u{7}\u{7f}\u{85}\u{2028}\u{202e}\u{2066} status=200 \"x";

/// Returns the log line of the one request, in this log format.
async fn logged(format: &str) -> String {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .env("LLMGW_LOG_REQUESTS", "true")
        .env("LLMGW_LOG_FORMAT", format);
    let gateway = setup.start().await;
    let body = json!({"model": FORGING, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    assert_eq!(gateway.client().chat(body).await.status, 404);
    let line = wait::eventually("the line", async || {
        gateway.log().lines().find(|line| line.contains("selector")).map(str::to_owned)
    })
    .await;
    let log = gateway.log();
    let raw = log.chars().find(|c| c.is_control() && *c != '\n' || "\u{2028}\u{202e}\u{2066}".contains(*c));
    assert_eq!(raw, None, "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("INFO forged")), "{log}");
    line
}

#[tokio::test]
async fn a_selector_cannot_forge_fields_in_the_text_log() {
    let line = logged("text").await;
    let (_, rest) = line.split_once("selector=\"m").unwrap();
    let (selector, _) = rest.split_once("\" status=").unwrap();
    assert!(selector.contains("forged line") && selector.ends_with("status=200 \\\"x"), "{line}");
}

#[tokio::test]
async fn a_selector_cannot_forge_fields_in_the_json_log() {
    let line: Value = serde_json::from_str(&logged("json").await).unwrap();
    assert_eq!((&line["selector"], &line["status"]), (&json!(FORGING), &json!(404)));
}

/// Returns a gateway with log files that logs each request, and its folder of log files.
async fn with_files(upstream: &Upstream, format: &str) -> (Gateway, PathBuf) {
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .at_noon()
        .env("LLMGW_LOG_FILE", "true")
        .env("LLMGW_LOG_FORMAT", format)
        .env("LLMGW_LOG_REQUESTS", "true");
    let folder = setup.state().join("logs");
    let gateway = setup.start().await;
    let has_file = || fs::read_dir(&folder).unwrap().next().map(drop);
    wait::eventually("a log file", async || has_file()).await;
    (gateway, folder)
}

/// Returns the one log file in `folder`.
fn only_file(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.next().unwrap();
    assert_eq!(files.next(), None, "one file a day");
    file
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Proves M-124 for logs.
#[tokio::test]
async fn log_files_contain_the_lines_of_stderr_to_the_last() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let (mut gateway, folder) = with_files(&upstream, "json").await;
    for _ in 0..20 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success());
    let file = only_file(&folder);
    let text = fs::read_to_string(&file).unwrap();
    wait::eventually("the end of stderr", async || (gateway.log() == text).then_some(())).await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().filter(|line| line["message"] == "request").count(), 20);
    assert_eq!(lines.last().unwrap()["message"], "stopped");
    assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
}

#[tokio::test]
async fn log_files_that_cannot_be_written_delay_no_request_and_are_continued() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let (gateway, folder) = with_files(&upstream, "text").await;
    let away = folder.with_extension("away");
    fs::rename(&folder, &away).unwrap();
    fs::write(&folder, "not a folder").unwrap();
    for _ in 0..20 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    gateway.logs("log lines are dropped until the log files can be written").await;
    fs::remove_file(&folder).unwrap();
    fs::rename(&away, &folder).unwrap();
    wait::eventually("lines in the file again", async || {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
        let text = fs::read_to_string(only_file(&folder)).unwrap();
        text.contains("log lines are missing in the log files").then_some(())
    })
    .await;
    assert_eq!(gateway.log().matches("log lines are dropped").count(), 1, "it is reported once");
}

/// M-113: `LLMGW_LOG_REQUESTS` is off by default. If it is on, a line contains metadata alone.
#[tokio::test]
async fn requests_are_logged_without_their_content_and_only_on_demand() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("planted-answer"));
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "planted-prompt"}]}).to_string();
    for (switch, count) in [(None, 0), (Some("false"), 0), (Some("true"), 1)] {
        let setup = Setup::new(&Yaml::one(upstream.base_url()));
        let mut gateway =
            switch.into_iter().fold(setup, |setup, on| setup.env("LLMGW_LOG_REQUESTS", on)).start().await;
        assert_eq!(gateway.client().chat(body.clone()).await.status, 200);
        gateway.signal(Signal::TERM);
        assert!(gateway.exit().await.success());
        let log = wait::eventually("the end of the log", async || {
            Some(gateway.log()).filter(|log| log.contains("stopped"))
        })
        .await;
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("request.id=")).collect();
        assert_eq!(lines.len(), count, "{switch:?}: {log}");
        assert!(
            lines.iter().all(|line| line.contains("status=200") && line.contains("duration_us=")),
            "{log}"
        );
        assert!(!log.contains("planted-"), "{log}");
    }
}

#[tokio::test]
async fn the_filter_determines_which_lines_are_logged() {
    let setup = Setup::new(&Yaml::new()).env("LLMGW_LOG", "warn,llmgw::cli::serve=info");
    let mut gateway = setup.start().await;
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success());
    let log = gateway.log();
    assert!(log.contains("listening on") && !log.contains("stopping:"), "{log}");
}

#[tokio::test]
async fn there_are_no_log_files_by_default() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    assert!(!gateway.state().join("logs").exists());
}
