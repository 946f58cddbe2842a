//! State, and behaviour when the database or the journal fails.

use std::sync::Arc;

use http::{Method, Request};
use serde_json::{Value, json};
use shared::port::full;

use super::{ADMIN, Gateway, text};
use crate::OpenParams;
use crate::State;
use crate::db::engine::Db;
use crate::usage::tests::event;

#[test]
fn state_reports_version_counts_reload_and_usage() {
    let mut gateway = Gateway::start();
    let state = gateway.get("/admin/api/state");
    assert_eq!(state["auth_required"], true);
    assert_eq!((&state["version"], &state["commit"]), (&json!("1.2.3"), &json!("abc")));
    assert_eq!(state["generation"], 1, "the first snapshot is there before anybody asks");
    assert_eq!(state["warnings"], json!(["a warning"]));
    assert_eq!(state["counts"]["keys"], 1);
    assert_eq!(state["reload"]["last_error"], Value::Null);
    assert!(state["reload"]["last_ok_at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    (0..5).for_each(|n| assert!(gateway.log.append(&event(n))));
    gateway.get("/admin/api/requests");
    let usage = &gateway.get("/admin/api/state")["usage"];
    assert_eq!((&usage["stored"], &usage["queued"], &usage["lost"]), (&json!(5), &json!(0), &json!(0)));
    assert_eq!(usage["failing_error"], Value::Null);
    gateway.stop();
}

#[test]
fn a_broken_database_returns_500_internal_error() {
    let gateway = Gateway::start();
    let path = gateway.home.path().join("state/gateway.db");
    Db::create(path).unwrap().batch("DROP TABLE usage").unwrap();
    let admin: &[(&str, &str)] = &[("x-api-key", ADMIN)];
    for path in ["/admin/api/requests", "/admin/api/usage", "/admin/api/requests/x"] {
        let (status, code, _) = gateway.refusal(Method::GET, path, admin);
        assert_eq!((status, code.as_str()), (500, "internal_error"), "{path}");
    }
    gateway.get("/admin/api/state");
    gateway.stop();
}

#[test]
fn after_a_stop_requests_return_503_and_the_state_can_be_opened() {
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
    State::open(OpenParams { dir: &home.join("state"), encryption_key: &key, usage_db: false, node: None })
        .unwrap();
}
