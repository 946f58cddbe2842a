//! Everything that a gateway shows, logs, stores and sends to those who watch it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Planted;
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, wait};

/// Receivers of what a gateway tells others: a collector of traces and metrics, and a webhook.
pub(crate) struct Watchers(Upstream);

impl Watchers {
    pub(crate) async fn start() -> Self {
        let receiver = Upstream::start().await;
        receiver.always(Answer::whole(200, &[("content-type", "application/x-protobuf")], ""));
        Self(receiver)
    }

    /// Lets a gateway log, capture and export as much as it can.
    pub(crate) fn setup(&self, setup: Setup) -> Setup {
        setup
            .env("LLMGW_LOG", "trace")
            .env("LLMGW_LOG_FILE", "true")
            .env("LLMGW_LOG_REQUESTS", "true")
            .env("LLMGW_LOG_REQUEST_BODIES", "true")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.0.address()))
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
    }

    /// Adds the webhook, which gets all events.
    pub(crate) async fn hook(&self, gateway: &Gateway) {
        let url = format!("http://{}/hook", self.0.address());
        let admin = Admin(gateway.client());
        admin.done("POST", "webhooks", json!({"name": "hook", "url": url})).await;
        admin.done("POST", "alert-rules/rule_credential_broken/test", json!({})).await;
    }
}

impl Planted {
    /// Searches `answers`, all that `gateway` shows, logs and has sent to `watchers`, then its files after kill -9, a restored
    /// backup and the output of commands. Returns the setup, and the numbers of answers and files.
    pub(crate) async fn expect_nowhere(
        &self,
        gateway: Gateway,
        watchers: &Watchers,
        answers: &[impl AsRef<[u8]>],
    ) -> (Setup, String) {
        answers.iter().for_each(|answer| self.expect_none("an answer", answer.as_ref()));
        let shown = shown_by(&gateway).await;
        shown.iter().for_each(|(place, bytes)| self.expect_none(place, bytes));
        self.expect_none("the log", gateway.log().as_bytes());
        gateway.logs(" DEBUG ").await;
        wait::eventually("spans, metrics and an event", async || {
            let sent = watchers.0.requests();
            let to =
                |path: &str| sent.iter().any(|request| request.head.starts_with(&format!("POST {path}")));
            (to("/v1/traces") && to("/v1/metrics") && to("/hook")).then_some(())
        })
        .await;
        for sent in watchers.0.requests() {
            self.expect_none("what a watcher received", &[sent.head.as_bytes(), &sent.body].concat());
        }
        let setup = gateway.kill().await;
        let files = self.expect_none_below(&setup.state());
        assert!(setup.state().join("telemetry.db").exists(), "exchanges were captured");
        let (archive, restored) = (archive_of(&setup), setup.state().join("restored"));
        setup.output_of(&["backup", "restore", &archive, restored.to_str().unwrap()], 0).await;
        assert!(self.expect_none_below(&restored) > 0, "the backup has files");
        std::fs::remove_dir_all(restored).unwrap();
        for arguments in [
            &["config", "show"][..],
            &["config", "check"],
            &["backup", "list"],
            &["backup", "verify", &archive],
            &["credentials", "verify"],
            &["audit", "verify"],
            &["doctor"],
        ] {
            let output = setup.run(arguments).await;
            self.expect_none(&arguments.join(" "), &[output.stdout, output.stderr].concat());
        }
        (setup, format!("{} answers, the log, {files} files, a backup", answers.len() + shown.len()))
    }
}

/// Returns the path of a backup's archive.
fn archive_of(setup: &Setup) -> String {
    let archives = std::fs::read_dir(setup.state().join("backups")).unwrap();
    let mut paths = archives.map(|entry| entry.unwrap().path());
    let archive = paths.find(|path| path.extension().is_some_and(|extension| extension == "zst"));
    archive.expect("an archive").to_str().unwrap().to_owned()
}

/// Returns the answers to all `GET` routes of the admin API for up to [`IDS_MAX`] objects of each list, and those of the
/// other paths that show something. Makes a backup first.
pub(super) async fn shown_by(gateway: &Gateway) -> Vec<(String, Vec<u8>)> {
    let admin = Admin(gateway.client());
    let made = admin.done("POST", "backups", json!({})).await;
    wait::eventually("a backup", async || {
        let list = admin.done("GET", "backups", Value::Null).await;
        (!list["data"].as_array()?.is_empty() && list["is_running"] == false).then_some(())
    })
    .await;
    let mut shown = vec![("POST backups".to_owned(), made.to_string().into_bytes())];
    for pattern in patterns(&admin).await {
        for path in paths(&admin, &pattern).await {
            let bytes =
                if path == "live" { beginning(gateway.client()).await } else { whole(&admin, &path).await };
            shown.push((format!("GET {path}"), bytes));
        }
    }
    for path in ["/metrics", "/v1/models", "/health", "/ready", "/console"] {
        let answer = gateway.client().get(path).await.unwrap();
        shown.push((path.to_owned(), [format!("{:?}", answer.headers).as_bytes(), &answer.body].concat()));
    }
    shown
}

/// Returns the patterns of the `GET` routes from the OpenAPI document, which a test of the crate `control` generates from the
/// routes.
async fn patterns(admin: &Admin) -> Vec<String> {
    let document = admin.done("GET", "openapi.json", Value::Null).await;
    let paths = document["paths"].as_object().unwrap().iter();
    let reads = paths.filter(|(_, operations)| !operations["get"].is_null());
    let patterns: Vec<String> = reads.map(|(path, _)| path.trim_start_matches('/').to_owned()).collect();
    assert!(patterns.len() > 50, "{patterns:?}");
    patterns
}

/// Returns the paths of a pattern: with the IDs of objects, or with the queries that it needs or that show more.
async fn paths(admin: &Admin, pattern: &str) -> Vec<String> {
    if pattern == "access/effective" {
        let keys = admin.done("GET", "keys", Value::Null).await;
        return vec![format!("{pattern}?key={}", keys["data"][0]["id"].as_str().unwrap())];
    }
    let Some((list, rest)) = pattern.split_once("/{") else {
        let queries = QUERIES.iter().find(|(known, _)| *known == pattern).map_or(&[""][..], |(_, all)| all);
        return queries.iter().map(|query| format!("{pattern}{query}")).collect();
    };
    // Only the person who knows its code reads a sign-in: there is no list of them.
    if list == "device-sign-ins" {
        return Vec::new();
    }
    let list = if list == "run" { "requests" } else { list };
    let page = admin.done("GET", list, Value::Null).await;
    let ids = page["data"].as_array().unwrap().iter().take(IDS_MAX).map(|row| {
        let id = ["id", "name", "request_id"].iter().find_map(|member| row.get(member)).expect("an ID");
        id.as_str().map_or_else(|| id.to_string(), str::to_owned)
    });
    let rest = rest.split_once('}').unwrap().1;
    let list = pattern.split_once("/{").unwrap().0;
    ids.map(|id| format!("{list}/{id}{rest}")).collect()
}

/// Returns head and body of an answer. The body of an archive is unpacked.
async fn whole(admin: &Admin, path: &str) -> Vec<u8> {
    let answer = admin.call("GET", path, Value::Null).await;
    // Not every request was captured, or was a run.
    let may_lack = path.starts_with("run/") || path.ends_with("/exchange");
    assert!(answer.status == 200 || answer.status == 404 && may_lack, "{path}: {answer:?}");
    let body = match path.starts_with("backups/") {
        true => Bytes::from(zstd::decode_all(&*answer.body).unwrap()),
        false => answer.body,
    };
    [format!("{:?}", answer.headers).as_bytes(), &body].concat()
}

/// Returns the first events of the live stream.
async fn beginning(client: Client) -> Vec<u8> {
    let mut flow = client.open("GET", "/admin/api/live", Bytes::new()).await.unwrap();
    let mut events = Vec::new();
    while !String::from_utf8_lossy(&events).contains("event: providers") {
        events.extend(flow.event().await.bytes);
    }
    events
}

/// The queries of routes that need one, or that show more with one.
const QUERIES: &[(&str, &[&str])] = &[
    ("audit", &["?limit=500"]),
    ("audit/export", &["?format=jsonl", "?format=csv"]),
    ("requests", &["?limit=500"]),
    ("search", &["?q=planted", "?q=partner"]),
    ("suggest", &["?field=model", "?field=client"]),
    ("usage", &["", "?group_by=key"]),
    ("usage/export", &["?format=jsonl", "?format=csv"]),
];
/// The most objects of a list that are shown one by one.
const IDS_MAX: usize = 20;
