//! The admin API over a real state: who may call it, what it answers, and that the figures are right.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use shared::access::{Access, AccessTable, Role};
use shared::build::BuildIdentity;
use shared::error_kind::ErrorKind;
use shared::id::{EndpointName, KeyId, ModelId, ProjectId, ProviderId};
use shared::port::{Body, Handler, full};
use shared::snapshot::{self, Snapshot, SnapshotPublisher, SnapshotReader};
use shared::usage::{Outcome, StepResult, TokenCounts, TraceStep, UsageEvent, UsageLog};
use tempfile::TempDir;

use crate::config::{self, Environment};
use crate::meter::tests::event;
use crate::{Asset, Control, OpenParams, Params, State, start};

const ADMIN: &str = "administrator-key-of-the-tests";
const PROJECT: &str = "llmgw_project-key-of-the-tests";

struct Gateway {
    control: Control,
    handler: Arc<dyn Handler>,
    log: Box<dyn UsageLog>,
    publisher: SnapshotPublisher,
    reader: SnapshotReader,
    home: TempDir,
}

impl Gateway {
    fn start() -> Self {
        let home = TempDir::new().unwrap();
        let dir = home.path().join("state");
        let key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [3; 32]);
        let variables = [
            ("LLMGW_API_KEY", ADMIN),
            ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", key.as_str()),
            ("LLMGW_STATE_DIR", dir.to_str().unwrap()),
            ("LLMGW_ALLOW_UNAUTHENTICATED_API", "true"),
        ];
        let environment = Environment::read(variables.map(|(name, value)| (name.into(), value.into())));
        let config = config::load(&Arc::new(environment)).unwrap().config;
        let state =
            State::open(OpenParams { dir: &dir, encryption_key: &config.credential_encryption_key }).unwrap();
        let log = state.usage_log().unwrap();
        let (publisher, reader) = snapshot::channel();
        let control = start(Params {
            state,
            config: Arc::new(config),
            warnings: vec!["a warning".into()],
            publisher: publisher.clone(),
            reader: reader.clone(),
            asset,
            build: BuildIdentity { version: "1.2.3", commit: "abc", built_at: "today", target: "here" },
        })
        .unwrap();
        Self { handler: control.handler(), control, log, publisher, reader, home }
    }

    fn send(&self, request: Request<Body>) -> Response<Body> {
        let peer: SocketAddr = ([127, 0, 0, 1], 1).into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(self.handler.handle(request, peer))
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, Value, Response<()>) {
        let mut request = Request::builder().method(method).uri(path).header("x-request-id", "id-of-this");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(request.body(full("")).unwrap());
        let (parts, body) = response.into_parts();
        let bytes = text(body);
        let value = serde_json::from_str(&bytes).unwrap_or(Value::String(bytes));
        (parts.status, value, Response::from_parts(parts, ()))
    }

    /// An administrator's request with a body, below `/admin/api/`.
    fn send_json(
        &self,
        method: Method,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, Value, Response<()>) {
        let uri = format!("/admin/api/{path}");
        let mut request = Request::builder().method(method).uri(uri).header("x-api-key", ADMIN);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) = self.send(request.body(full(body.to_owned())).unwrap()).into_parts();
        let bytes = text(body);
        let value = serde_json::from_str(&bytes).unwrap_or(Value::String(bytes));
        (parts.status, value, Response::from_parts(parts, ()))
    }

    /// A good answer to an administrator.
    fn get(&self, path: &str) -> Value {
        let (status, value, _) = self.call(Method::GET, path, &[("x-api-key", ADMIN)]);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    /// The status, code and parameter of a refusal, whose envelope is whole.
    fn refusal(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> (u16, String, Value) {
        let (status, value, response) = self.call(method, path, headers);
        let error = &value["error"];
        assert_eq!(error["request_id"], "id-of-this", "{path}: {value}");
        assert!(error["message"].as_str().unwrap().len() > 5 && error["type"].is_string(), "{value}");
        assert_eq!(response.headers()["content-type"], "application/json");
        (status.as_u16(), error["code"].as_str().unwrap().to_owned(), error["param"].clone())
    }

    fn stop(self) {
        drop(self.log);
        self.control.stop();
        assert_eq!(std::fs::read_dir(self.home.path().join("state/journal")).unwrap().count(), 0);
    }
}

fn asset(path: &str) -> Option<Asset> {
    let content_type = "text/html; charset=utf-8";
    (path == "index.html").then(|| Asset { bytes: b"<p>{{version}}</p>"[..].into(), content_type })
}

fn text(body: Body) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn only_administrators_get_in_and_every_route_asks() {
    let gateway = Gateway::start();
    let mut with_project = Snapshot::empty();
    let current = gateway.reader.load();
    with_project.key_hasher = current.key_hasher.clone();
    let access = |role, expires_at_ms| Arc::new(Access { expires_at_ms, ..Access::new("k", role) });
    let mut table = AccessTable { anonymous: current.access.anonymous.clone(), ..AccessTable::default() };
    table.keys.clone_from(&current.access.keys);
    let mut add = |key: &str, access| table.keys.insert(current.key_hasher.hash(key.as_bytes()), access);
    add(PROJECT, access(Role::Project, None));
    add("expired-administrator", access(Role::Administrator, Some(1)));
    with_project.access = Arc::new(table);
    gateway.publisher.publish(with_project);

    let bearer = format!("bearer {ADMIN}");
    let near = format!("{}t", &ADMIN[..ADMIN.len() - 1]);
    let paths = super::TABLES.iter().copied().flatten().map(|route| route.pattern.replace("{}", "x"));
    for path in paths
        .map(|path| format!("/admin/api/{path}"))
        .chain(["/admin/api".into(), "/admin/api/no/such".into()])
    {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let refused = |headers: &[(&str, &str)]| gateway.refusal(method.clone(), &path, headers).0;
            assert_eq!(refused(&[]), 401, "{path}: no key, though the local mode is on");
            assert_eq!(refused(&[("x-api-key", &near)]), 401, "{path}");
            assert_eq!(refused(&[("x-api-key", PROJECT)]), 403, "{path}");
        }
    }
    let state = "/admin/api/state";
    let cases: &[(&[(&str, &str)], u16)] = &[
        (&[("x-api-key", ADMIN)], 200),
        (&[("authorization", &bearer)], 200),
        (&[("x-api-key", ADMIN), ("authorization", "Bearer wrong")], 200),
        (&[("x-api-key", "wrong"), ("authorization", &bearer)], 401),
        (&[("x-api-key", ADMIN), ("x-api-key", "wrong")], 401),
        (&[("x-api-key", ADMIN), ("x-api-key", ADMIN)], 200),
        (&[("authorization", ADMIN)], 401),
        (&[("authorization", "Basic YTpi")], 401),
        (&[("x-api-key", "")], 401),
        (&[("x-api-key", "expired-administrator")], 401),
        (&[("x-api-key", PROJECT), ("authorization", &bearer)], 403),
    ];
    for (headers, want) in cases {
        assert_eq!(gateway.call(Method::GET, state, headers).0.as_u16(), *want, "{headers:?}");
    }
    gateway.stop();
}

#[test]
fn paths_and_methods_are_told_apart() {
    let gateway = Gateway::start();
    let admin: &[(&str, &str)] = &[("x-api-key", ADMIN)];
    for (method, path, status, code) in [
        (Method::GET, "/admin/api/nothing", 404, "not_found"),
        (Method::GET, "/admin/api/requests/a/b", 404, "not_found"),
        (Method::GET, "/admin/apiary", 404, "not_found"),
        (Method::GET, "/elsewhere", 404, "not_found"),
        (Method::GET, "/admin/api/webhooks", 501, "not_implemented"),
        (Method::POST, "/admin/api/providers/p/sync", 501, "not_implemented"),
        (Method::PUT, "/admin/api/projects/p/members/m", 501, "not_implemented"),
        (Method::GET, "/admin/api/usage/export", 501, "not_implemented"),
        (Method::GET, "/oauth/callback/partner", 501, "not_implemented"),
        (Method::GET, "/admin/api/requests/none-such", 404, "not_found"),
        (Method::POST, "/console", 405, "method_not_allowed"),
        (Method::GET, "/console/none.js", 404, "not_found"),
    ] {
        let (got, got_code, _) = gateway.refusal(method, path, admin);
        assert_eq!((got, got_code.as_str()), (status, code), "{path}");
    }
    for (path, allow) in [
        ("/admin/api/state", "GET"),
        ("/admin/api/keys/k", "GET, PATCH, DELETE"),
        ("/admin/api/projects/p/members/m", "PUT, DELETE"),
        ("/admin/api/explain", "POST"),
    ] {
        let method = if allow == "POST" { Method::GET } else { Method::POST };
        let (status, _, response) = gateway.call(method, path, admin);
        assert_eq!((status.as_u16(), response.headers()["allow"].to_str().unwrap()), (405, allow), "{path}");
    }
    gateway.stop();
}

#[test]
fn parameters_that_are_unknown_or_wrong_are_refused_by_name() {
    let gateway = Gateway::start();
    for (path, name) in [
        ("state?verbose=1", "verbose"),
        ("requests?modell=x", "modell"),
        ("requests/x?trace=1", "trace"),
        ("usage?limit=3", "limit"),
        ("requests?limit=0", "limit"),
        ("requests?limit=501", "limit"),
        ("requests?limit=many", "limit"),
        ("requests?cursor=x", "cursor"),
        ("requests?cursor=1-x", "cursor"),
        ("requests?status=20", "status"),
        ("requests?from=yesterday", "from"),
        ("requests?from=-5", "from"),
        ("requests?to=99999999999999999999", "to"),
        ("requests?model=a&model=b", "model"),
        ("usage?bucket=minute", "bucket"),
        ("usage?group_by=model,colour", "group_by"),
        ("usage?from=2&to=1", "from"),
        ("requests?model=%zz", ""),
        ("requests?model=%ff", ""),
    ] {
        let (status, code, param) =
            gateway.refusal(Method::GET, &format!("/admin/api/{path}"), &[("x-api-key", ADMIN)]);
        assert_eq!((status, code.as_str(), param), (400, "invalid_request", json!(name)), "{path}");
    }
    gateway.stop();
}

#[test]
fn state_tells_how_the_gateway_is_doing() {
    let mut gateway = Gateway::start();
    let state = gateway.get("/admin/api/state");
    assert_eq!(state["auth_required"], true);
    assert_eq!((&state["version"], &state["commit"]), (&json!("1.2.3"), &json!("abc")));
    assert_eq!(state["generation"], 1, "the first snapshot is there before anybody asks");
    assert_eq!(state["warnings"], json!(["a warning"]));
    assert_eq!(state["counts"]["keys"], 1);
    assert_eq!(state["reload"]["last_error"], Value::Null);
    assert!(state["reload"]["last_ok_at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    (0..5).for_each(|n| gateway.log.append(event(n)));
    gateway.get("/admin/api/requests");
    let usage = &gateway.get("/admin/api/state")["usage"];
    assert_eq!((&usage["stored"], &usage["queued"], &usage["lost"]), (&json!(5), &json!(0), &json!(0)));
    assert_eq!(usage["failing_error"], Value::Null);
    gateway.stop();
}

#[test]
fn requests_are_paged_newest_first_without_gap_or_repeat() {
    let mut gateway = Gateway::start();
    // Three begin in each millisecond, so that time alone does not order them.
    for n in 0..100 {
        gateway.log.append(UsageEvent { started_at_ms: 1_000_000 + n / 3, ..event(n) });
    }
    let (mut seen, mut path) = (Vec::new(), "/admin/api/requests?limit=7".to_owned());
    loop {
        let page = gateway.get(&path);
        for row in page["data"].as_array().unwrap() {
            assert!(row.get("trace").is_none());
            let id: u64 = row["request_id"].as_str().unwrap()[4..].parse().unwrap();
            seen.push((row["started_at_ms"].as_u64().unwrap(), id));
        }
        // What ends meanwhile does not move the pages.
        gateway.log.append(UsageEvent { started_at_ms: 2_000_000, ..event(1_000) });
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/admin/api/requests?limit=7&cursor={cursor}"),
            None => break,
        }
    }
    let mut want: Vec<(u64, u64)> = (0..100).map(|n| (1_000_000 + n / 3, n)).collect();
    want.reverse();
    assert_eq!(seen, want);
    gateway.stop();
}

#[test]
fn requests_are_filtered_by_everything_they_are_known_by() {
    let mut gateway = Gateway::start();
    let other = UsageEvent {
        key: KeyId::new("key 2"),
        project: Some(ProjectId::new("team")),
        endpoint: Some(EndpointName::new("fast")),
        provider: Some(ProviderId::new("q")),
        model: Some(ModelId::new("org/ä&b")),
        status: 502,
        outcome: Outcome::Failed,
        error: Some(ErrorKind::UpstreamUnreachable),
        ..event(50)
    };
    (0..3).for_each(|n| gateway.log.append(event(n)));
    gateway.log.append(other);
    for filter in [
        "key=key+2",
        "project=team",
        "endpoint=fast",
        "provider=q",
        "model=org%2F%C3%A4%26b",
        "status=502",
        "outcome=failed",
        "from=1700000000050",
        "from=2023-11-14T22:13:20.05Z&to=1700000000051",
        "provider=q&status=502&limit=1",
    ] {
        let page = gateway.get(&format!("/admin/api/requests?{filter}"));
        let ids: Vec<_> =
            page["data"].as_array().unwrap().iter().map(|row| row["request_id"].clone()).collect();
        assert_eq!(ids, ["req-50"], "{filter}");
        assert_eq!(page["next_cursor"], Value::Null, "{filter}");
    }
    for (filter, count) in [("to=1700000000050", 3), ("provider=p", 3), ("provider=", 4), ("model=x", 0)] {
        let page = gateway.get(&format!("/admin/api/requests?{filter}"));
        assert_eq!(page["data"].as_array().unwrap().len(), count, "{filter}");
    }
    gateway.stop();
}

#[test]
fn one_request_is_shown_with_its_trace() {
    let mut gateway = Gateway::start();
    let step = |provider: &str, result| TraceStep {
        provider: ProviderId::new(provider),
        model: ModelId::new("m"),
        result,
        status: None,
        head_us: Some(5),
        spent_us: None,
    };
    let trace = vec![step("a", StepResult::Unreachable), step("b", StepResult::Served)];
    gateway.log.append(UsageEvent { request_id: "odd/id?".into(), trace, ..event(7) });
    let shown = gateway.get("/admin/api/requests/odd%2Fid%3F");
    assert_eq!(
        shown,
        json!({
            "request_id": "odd/id?", "started_at_ms": 1_700_000_000_007_u64, "duration_us": 1_007,
            "operation": "chat_completions", "key": "admin", "project": null, "principal": null,
            "selector": "p/m", "endpoint": null, "provider": "p", "model": "m", "stream": false, "status": 200,
            "outcome": "completed", "error": null,
            "tokens": {"input": 10, "cache_read": 0, "cache_write": 0, "output": 20, "reasoning": 0},
            "provenance": "reported", "head_us": 500, "first_content_us": 700,
            "trace": [
                {"provider": "a", "model": "m", "result": "unreachable", "head_us": 5},
                {"provider": "b", "model": "m", "result": "served", "head_us": 5},
            ],
        })
    );
    gateway.stop();
}

/// Exchanges of three days, of several models and keys, at odd moments.
fn exchanges() -> Vec<UsageEvent> {
    let mut moment = 1_700_000_000_000_u64;
    (0..400_u64)
        .map(|n| {
            moment += 1 + n * 7_919 % 1_300_000;
            UsageEvent {
                started_at_ms: moment,
                model: n.is_multiple_of(3).then(|| ModelId::new(format!("m{}", n % 4))),
                key: KeyId::new(format!("k{}", n % 2)),
                outcome: if n.is_multiple_of(5) { Outcome::Cancelled } else { Outcome::Completed },
                first_content_us: (!n.is_multiple_of(5)).then_some(n),
                tokens: TokenCounts {
                    input: n,
                    cache_read: 2 * n,
                    cache_write: 1,
                    output: 3,
                    reasoning: 4 * n,
                },
                ..event(n)
            }
        })
        .collect()
}

#[test]
fn usage_is_exact_at_any_edge() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| gateway.log.append(event.clone()));
    let (first, last) = (events[0].started_at_ms, events[399].started_at_ms);
    let hour = 3_600_000;
    let noon = first.div_ceil(hour) * hour;
    let edges = [
        (0, last + 1),
        (first, last),
        (first + 1, last + 1),
        (noon, noon + 5 * hour),
        (noon - 1, noon + 5 * hour + 1),
        (noon + 1, noon + 2),
        (noon + 1, noon + hour - 1),
        (noon + 1, noon + hour),
        (noon, noon + hour - 1),
        (noon + 10, noon + 20 * hour + 10),
        (noon, noon),
        (noon + 7, noon + 7),
    ];
    for (from, to) in edges {
        let inside: Vec<_> =
            events.iter().filter(|e| from <= e.started_at_ms && e.started_at_ms < to).collect();
        let answer = gateway.get(&format!("/admin/api/usage?from={from}&to={to}"));
        let sum = |count: fn(&UsageEvent) -> u64| inside.iter().map(|event| count(event)).sum::<u64>();
        let totals = &answer["totals"];
        assert_eq!(totals["requests"], inside.len(), "{from} to {to}");
        assert_eq!(totals["tokens"]["input"], sum(|e| e.tokens.input), "{from} to {to}");
        assert_eq!(totals["tokens"]["cache_read"], sum(|e| e.tokens.cache_read));
        assert_eq!(totals["tokens"]["reasoning"], sum(|e| e.tokens.reasoning));
        assert_eq!(totals["tokens"]["total"], sum(|e| e.tokens.total()));
        let firsts = inside.iter().filter_map(|e| e.first_content_us).count() as u64;
        let average = sum(|e| e.first_content_us.unwrap_or(0)).checked_div(firsts);
        assert_eq!(totals["first_content_us_avg"], json!(average));
        assert_eq!(answer["data"], json!([]));
    }
    gateway.stop();
}

#[test]
fn usage_is_grouped_by_names_and_time() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| gateway.log.append(event.clone()));
    for (bucket, length) in [("hour", 3_600_000), ("day", 86_400_000)] {
        let answer =
            gateway.get(&format!("/admin/api/usage?group_by=model,key&bucket={bucket}&outcome=completed"));
        let mut want = std::collections::BTreeMap::<(u64, Option<String>, String), u64>::new();
        for event in events.iter().filter(|event| event.outcome == Outcome::Completed) {
            let start = event.started_at_ms / length * length;
            let model = event.model.as_ref().map(|model| model.as_str().to_owned());
            *want.entry((start, model, event.key.as_str().to_owned())).or_default() += event.tokens.input;
        }
        let got: std::collections::BTreeMap<_, _> = answer["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| {
                let name = |name: &str| line["group"][name].as_str().map(str::to_owned);
                let key = (line["bucket_start_ms"].as_u64().unwrap(), name("model"), name("key").unwrap());
                (key, line["tokens"]["input"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(got, want, "{bucket}");
        assert_eq!(answer["totals"]["tokens"]["input"], want.values().sum::<u64>());
    }
    let all = gateway.get("/admin/api/usage?group_by=outcome");
    assert_eq!(all["data"].as_array().unwrap().len(), 2);
    assert_eq!(all["totals"]["requests"], 400);
    gateway.stop();
}

#[test]
fn an_answer_with_too_many_groups_is_refused() {
    let mut gateway = Gateway::start();
    let model = |n: u64| Some(ModelId::new(format!("m{n}")));
    (0..10_000).for_each(|n| gateway.log.append(UsageEvent { model: model(n), ..event(n) }));
    let path = "/admin/api/usage?group_by=model";
    assert_eq!(gateway.get(path)["data"].as_array().unwrap().len(), 10_000);
    gateway.log.append(UsageEvent { model: model(10_000), ..event(0) });
    let (status, _, param) = gateway.refusal(Method::GET, path, &[("x-api-key", ADMIN)]);
    assert_eq!((status, param), (400, json!("group_by")));
    gateway.stop();
}

#[test]
fn the_console_needs_no_key_and_runs_nothing_foreign() {
    let gateway = Gateway::start();
    for path in ["/console", "/console/", "/console/index.html"] {
        let (status, page, response) = gateway.call(Method::GET, path, &[]);
        assert_eq!((status.as_u16(), page), (200, json!("<p>1.2.3</p>")), "{path}");
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"));
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["x-frame-options"], "DENY");
    }
    let (status, page, _) = gateway.call(Method::HEAD, "/console/", &[]);
    assert_eq!((status.as_u16(), page), (200, json!("")));
    gateway.stop();
}

#[test]
fn a_database_that_breaks_while_serving_is_a_clear_error() {
    let gateway = Gateway::start();
    let path = gateway.home.path().join("state/gateway.db");
    rusqlite::Connection::open(path).unwrap().execute_batch("DROP TABLE usage").unwrap();
    let admin: &[(&str, &str)] = &[("x-api-key", ADMIN)];
    for path in ["/admin/api/requests", "/admin/api/usage", "/admin/api/requests/x"] {
        let (status, code, _) = gateway.refusal(Method::GET, path, admin);
        assert_eq!((status, code.as_str()), (500, "internal_error"), "{path}");
    }
    gateway.get("/admin/api/state");
    gateway.stop();
}

#[test]
fn after_the_stop_the_handler_says_so_and_the_state_is_free() {
    let gateway = Gateway::start();
    let (handler, home) = (Arc::clone(&gateway.handler), gateway.home.path().to_owned());
    let Gateway { control, log, home: _home, .. } = gateway;
    drop(log);
    control.stop();
    let request = Request::get("/admin/api/state").header("x-api-key", ADMIN).body(full("")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let response = runtime.block_on(handler.handle(request, ([127, 0, 0, 1], 1).into()));
    assert_eq!(response.status(), 503);
    assert!(text(response.into_body()).contains("\"draining\""));
    let key = shared::secret::Secret::new([3; 32]);
    State::open(OpenParams { dir: &home.join("state"), encryption_key: &key }).unwrap();
}

#[test]
fn a_principal_is_made_changed_and_forgotten_with_versions_and_repeats() {
    let gateway = Gateway::start();
    let make = r#"{"name": "Ada", "email": "ada@example.com"}"#;
    let (status, ada, response) =
        gateway.send_json(Method::POST, "principals", make, &[("idempotency-key", "a")]);
    assert_eq!(
        (status, response.headers()["etag"].to_str().unwrap()),
        (StatusCode::CREATED, "\"1\""),
        "{ada}"
    );
    let (_, again, replay) = gateway.send_json(Method::POST, "principals", make, &[("idempotency-key", "a")]);
    assert_eq!((&again, replay.headers()["idempotency-replayed"].to_str().unwrap()), (&ada, "true"));
    let other = r#"{"name": "Eve"}"#;
    assert_eq!(gateway.send_json(Method::POST, "principals", other, &[("idempotency-key", "a")]).0, 409);
    assert_eq!(gateway.send_json(Method::POST, "principals", make, &[]).0, 409, "the address is taken");

    let path = format!("principals/{}", ada["id"].as_str().unwrap());
    let (status, _, _) =
        gateway.send_json(Method::PATCH, &path, r#"{"name": "Ada L."}"#, &[("if-match", "\"2\"")]);
    assert_eq!(status, 412);
    let (status, changed, _) = gateway.send_json(
        Method::PATCH,
        &path,
        r#"{"name": "Ada L.", "email": null}"#,
        &[("if-match", "\"1\"")],
    );
    assert_eq!((status.as_u16(), &changed["name"], &changed["email"]), (200, &json!("Ada L."), &Value::Null));
    for (body, param) in
        [(r#"{"nmae": "x"}"#, "nmae"), (r#"{"name": ""}"#, "name"), (r#"{"email": "nowhere"}"#, "email")]
    {
        let (status, told, _) = gateway.send_json(Method::PATCH, &path, body, &[]);
        assert_eq!((status.as_u16(), &told["error"]["param"]), (400, &json!(param)), "{told}");
    }
    assert_eq!(gateway.get("/admin/api/principals")["data"], json!([changed]));
    assert_eq!(gateway.send_json(Method::DELETE, &path, "", &[]).0, 204);
    assert_eq!(gateway.send_json(Method::DELETE, &path, "", &[]).0, 404);
    gateway.stop();
}
