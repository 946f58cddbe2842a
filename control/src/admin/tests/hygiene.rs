//! Rules for every route: content types of bodies, methods of every path, headers of every response, unknown fields.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request};
use http_body::Frame;
use serde_json::json;
use shared::port::{Body, BoxError, full};

use super::{ADMIN, Gateway, text};

#[test]
fn a_body_without_a_json_content_type_is_rejected() {
    let gateway = Gateway::start();
    for (headers, want) in [
        (&[][..], 415),
        (&[("content-type", "application/x-www-form-urlencoded")], 415),
        (&[("content-type", "text/plain")], 415),
        (&[("content-type", "text/plain; application/json")], 415),
        (&[("content-type", "application/jsonp")], 415),
        (&[("content-type", "application/json"), ("content-type", "application/json")], 415),
        (&[("content-type", "application/json"), ("content-encoding", "gzip")], 415),
        (&[("content-type", "Application/JSON; charset=utf-8")], 201),
        (&[("content-type", "application/json"), ("content-encoding", "identity")], 201),
    ] {
        let mut request = Request::post("/admin/api/principals").header("x-api-key", ADMIN);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = gateway.send(request.body(full(r#"{"name": "Ada"}"#)).unwrap());
        assert_eq!(answer.status().as_u16(), want, "{headers:?}");
    }
    gateway.stop();
}

#[test]
fn head_returns_the_get_headers_and_options_lists_the_methods() {
    let gateway = Gateway::start();
    let admin: &[(&str, &str)] = &[("x-api-key", ADMIN)];
    for path in ["/admin/api/session", "/console", "/admin/api/principals"] {
        let (_, _, get) = gateway.call(Method::GET, path, admin);
        let request = Request::head(path).header("x-api-key", ADMIN).body(full("")).unwrap();
        let (parts, body) = gateway.send(request).into_parts();
        assert_eq!(parts.status, get.status(), "{path}");
        assert_eq!(parts.headers["content-type"], get.headers()["content-type"], "{path}");
        let length: usize = parts.headers["content-length"].to_str().unwrap().parse().unwrap();
        let whole = text(
            gateway.send(Request::get(path).header("x-api-key", ADMIN).body(full("")).unwrap()).into_body(),
        );
        assert_eq!((length, text(body).len()), (whole.len(), 0), "{path}");
    }
    for (path, allow) in
        [("state", "GET, HEAD"), ("principals/x", "GET, HEAD, PATCH, DELETE"), ("explain", "POST")]
    {
        let uri = format!("/admin/api/{path}");
        let (status, _, options) = gateway.call(Method::OPTIONS, &uri, admin);
        assert_eq!((status.as_u16(), options.headers()["allow"].to_str().unwrap()), (204, allow));
        assert!(!options.headers().keys().any(|name| name.as_str().starts_with("access-control")));
        assert_eq!(gateway.call(Method::OPTIONS, &uri, &[]).0, 401, "a preflight carries no key");
    }
    assert_eq!(gateway.call(Method::OPTIONS, "/admin/api/none", admin).0, 404);
    gateway.stop();
}

#[test]
fn every_response_restricts_caching_and_framing() {
    let gateway = Gateway::start();
    let admin: &[(&str, &str)] = &[("x-api-key", ADMIN)];
    for (method, path, headers) in [
        (Method::GET, "/admin/api/state", admin),
        (Method::GET, "/admin/api/state", &[]),
        (Method::POST, "/admin/api/session", admin),
        (Method::DELETE, "/admin/api/session", admin),
        (Method::OPTIONS, "/admin/api/state", admin),
        (Method::GET, "/admin/api/none", admin),
        (Method::GET, "/none", &[]),
        (Method::GET, "/console", &[]),
    ] {
        let (_, _, answer) = gateway.call(method.clone(), path, headers);
        let value = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        let caching = if path == "/console" { "no-cache" } else { "no-store" };
        assert_eq!(value("cache-control"), caching, "{method} {path}");
        assert_eq!(value("x-content-type-options"), "nosniff", "{method} {path}");
        assert_eq!(value("referrer-policy"), "no-referrer");
        assert_eq!(value("x-frame-options"), "DENY");
        assert!(value("content-security-policy").contains("frame-ancestors 'none'"));
    }
    gateway.stop();
}

#[test]
fn every_route_that_takes_a_body_refuses_unknown_fields_by_name() {
    let gateway = Gateway::start();
    let routes = crate::admin::TABLES.iter().copied().flatten();
    // The fields of a provider depend on its type, so one must exist.
    let (status, made, _) =
        gateway.send_json(Method::POST, "providers", r#"{"id": "x", "type": "echo"}"#, &[]);
    assert_eq!(status, 201, "{made}");
    let mut called = 0;
    for route in routes.filter(|route| [Method::POST, Method::PUT, Method::PATCH].contains(&route.method)) {
        // Their bodies are those of the data plane.
        if route.pattern.starts_with("run/") {
            continue;
        }
        let path = route.pattern.replace("{}", "x");
        let body = match (route.method.as_str(), route.pattern) {
            // The fields other than the id are validated in a second step, which needs a valid id and type.
            ("POST", "providers") => r#"{"id": "y", "type": "echo", "no_such_field": 1}"#,
            _ => r#"{"no_such_field": 1}"#,
        };
        let (status, answer, _) = gateway.send_json(route.method.clone(), &path, body, &[]);
        called += 1;
        assert_eq!(status, 400, "{} {path}: {answer}", route.method);
        assert_eq!(answer["error"]["param"], "no_such_field", "{} {path}: {answer}", route.method);
    }
    assert!(called >= 10, "{called}");
    gateway.stop();
}

#[test]
fn an_invalid_body_error_names_the_field_and_omits_its_value() {
    let gateway = Gateway::start();
    for (body, param) in [
        (r#"{"name": 5}"#, "name"),
        (r#"{"name": ["secret-value"]}"#, "name"),
        (r#"{"name": "a", "email": {"secret-value": 1}}"#, "email"),
        (r#"{"name": "a", "nmae": "secret-value"}"#, "nmae"),
        (r#"{"name": "a", "name": "secret-value"}"#, "name"),
        (r#"{"email": "a@b"}"#, "name"),
        (r#""secret-value""#, ""),
        (r#"{"name": "a"} {}"#, ""),
        (r#"{"name": "#, "name"),
        ("[]", ""),
    ] {
        let (status, answer, _) = gateway.send_json(Method::POST, "principals", body, &[]);
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(param)), "{body} {answer}");
        assert!(!answer.to_string().contains("secret-value"), "{answer}");
    }
    gateway.stop();
}

/// A body that never arrives.
struct Never;

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

#[test]
fn unfinished_bodies_and_unauthenticated_requests_take_no_slot() {
    let gateway = Gateway::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut nobody = Context::from_waker(Waker::noop());
    let entered = runtime.enter();
    // More bodies that never arrive than there are slots, from an administrator and from unauthenticated clients.
    let mut waiting = Vec::new();
    for n in 0..200 {
        let key = if n % 2 == 0 { ADMIN } else { "wrong" };
        let (path, name) = if n % 3 == 0 {
            ("/admin/api/session", "x-none")
        } else {
            ("/admin/api/principals", "x-api-key")
        };
        let body = Body::new(Never);
        let request = Request::post(path).header(name, key).header("content-type", "application/json");
        let peer = ([10, 1, 1, n], 1).into();
        let mut answer = gateway.handler.handle(request.body(body).unwrap(), peer);
        let _ = answer.as_mut().poll(&mut nobody);
        waiting.push(answer);
    }
    drop(entered);
    assert_eq!(gateway.get("/admin/api/state")["auth_required"], true);
    drop(waiting);
    gateway.stop();
}

#[test]
fn a_time_range_that_ends_before_it_starts_is_rejected_by_every_route() {
    let gateway = Gateway::start();
    for path in ["usage", "usage/export", "requests", "audit", "audit/export"] {
        let path = format!("/admin/api/{path}?from=5&to=1");
        let (status, answer, _) = gateway.call(Method::GET, &path, &[("x-api-key", ADMIN)]);
        assert_eq!(
            (status.as_u16(), answer["error"]["param"].as_str()),
            (400, Some("from")),
            "{path} {answer}"
        );
    }
    for path in ["requests", "audit"] {
        let path = format!("/admin/api/{path}?cursor=x");
        let (status, answer, _) = gateway.call(Method::GET, &path, &[("x-api-key", ADMIN)]);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((status.as_u16(), message), (400, "cursor must be the next_cursor of the previous page."));
    }
    gateway.stop();
}

#[test]
fn a_json_array_body_is_rejected() {
    let gateway = Gateway::start();
    let (status, answer, _) =
        gateway.send_json(Method::POST, "principals", r#"["Zed", "z@example.com"]"#, &[]);
    assert_eq!(status, 400, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap_or_default().contains("JSON object"), "{answer}");
    gateway.stop();
}

#[test]
fn a_version_is_refused_by_writes_that_compare_none() {
    let gateway = Gateway::start();
    let refusal = |method: &Method, pattern: &str, version: &str| {
        let path = pattern.replace("{}", "x");
        gateway.send_json(method.clone(), &path, "{}", &[("if-match", version)]).1["error"].clone()
    };
    let routes = crate::admin::TABLES.iter().copied().flatten();
    let writes: Vec<_> = routes.filter(|route| route.method != Method::GET).collect();
    for route in &writes {
        // A session is closed and a file restored: these would end the test.
        if ["session", "backups"].iter().any(|path| route.pattern.starts_with(path)) {
            continue;
        }
        let error = refusal(&route.method, route.pattern, "\"7\"");
        let is_refused = error["message"] == "This route compares no version. Omit If-Match.";
        assert_eq!(is_refused, !route.reads_version, "{} {}: {error}", route.method, route.pattern);
        assert!(!is_refused || error["param"] == "If-Match", "{error}");
    }
    assert!(writes.iter().any(|route| route.reads_version));
    let project = gateway.send_json(Method::POST, "projects", r#"{"name": "blue"}"#, &[("if-match", "*")]);
    assert_eq!(project.0, 201, "{}", project.1);
    gateway.stop();
}
