//! Client data appears in log lines as a single value that cannot forge other content.

use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::{Upstream, Yaml, wait};

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
