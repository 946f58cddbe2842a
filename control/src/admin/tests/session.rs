//! Sign-in: cookies, the access that they grant, and the limit on wrong keys.

use std::net::IpAddr;

use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use shared::port::full;

use super::{ADMIN, Gateway, PROJECT, text};
use crate::db::engine::Db;

/// Body, headers and the expected status.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], u16);

const SESSION: &str = "/admin/api/session";

impl Gateway {
    /// Returns the cookie and the CSRF token of a new session.
    pub(super) fn sign_in(&self) -> (String, String) {
        let (status, session, cookie) = self.sign_in_with(&json!({"key": ADMIN}).to_string(), &[]);
        assert_eq!(status, StatusCode::CREATED, "{session}");
        let cookie = cookie.unwrap();
        let (pair, attributes) = cookie.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/admin/api; Max-Age=43200; HttpOnly; SameSite=Strict");
        (pair.to_owned(), session["csrf_token"].as_str().unwrap().to_owned())
    }

    fn sign_in_with(&self, body: &str, headers: &[(&str, &str)]) -> (StatusCode, Value, Option<String>) {
        let mut request = Request::post(SESSION).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) = self.send(request.body(full(body.to_owned())).unwrap()).into_parts();
        let cookie = parts.headers.get("set-cookie").map(|value| value.to_str().unwrap().to_owned());
        (parts.status, serde_json::from_str(&text(body)).unwrap(), cookie)
    }
}

/// M-042, M-198.
#[test]
fn a_session_is_opened_used_and_ended() {
    let gateway = Gateway::start();
    let (cookie, token) = gateway.sign_in();
    let (cookie, csrf) = (("cookie", cookie.as_str()), ("x-csrf-token", token.as_str()));
    let (status, session, _) = gateway.call(Method::GET, SESSION, &[cookie]);
    assert_eq!((status.as_u16(), &session["by"]), (200, &json!("session")), "{session}");
    assert_eq!(session["csrf_token"], json!(token), "a page that is loaded anew learns it");
    let left = session["expires_at_ms"].as_u64().unwrap() - shared::clock::unix_ms();
    assert!((43_100_000..=43_200_000).contains(&left), "{left}");

    let tossed = format!("a=b; llmgw_session=wrong; {}; c", cookie.1);
    assert_eq!(gateway.call(Method::GET, "/admin/api/state", &[("cookie", &tossed)]).0, 200);
    let make = |headers: &[(&str, &str)]| {
        let mut request = Request::post("/admin/api/principals").header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        gateway.send(request.body(full(r#"{"name": "Ada"}"#)).unwrap()).status().as_u16()
    };
    let origin = [("origin", "http://gw.example:1"), ("host", "gw.example:1")];
    assert_eq!(make(&[cookie, csrf, ("sec-fetch-site", "same-origin")]), 201);
    assert_eq!(make(&[cookie, csrf, origin[0], origin[1]]), 201);
    assert_eq!(make(&[cookie, csrf]), 201, "a program that keeps cookies is no page");
    assert_eq!(make(&[cookie]), 403);

    assert_eq!(
        gateway.call(Method::DELETE, SESSION, &[cookie]).0,
        403,
        "no other page can sign the user out"
    );
    let (status, _, response) = gateway.call(Method::DELETE, SESSION, &[cookie, csrf]);
    assert_eq!(status, 204);
    assert!(
        response.headers()["set-cookie"]
            .to_str()
            .unwrap()
            .starts_with("llmgw_session=; Path=/admin/api; Max-Age=0;")
    );
    assert_eq!(gateway.call(Method::GET, "/admin/api/state", &[cookie]).0, 401);
    let (_, by_key, _) = gateway.call(Method::GET, SESSION, &[cookie, ("x-api-key", ADMIN)]);
    assert_eq!((&by_key["by"], &by_key["csrf_token"]), (&json!("key"), &Value::Null));
    gateway.stop();
}

/// A browser logs an error status, and every page of the console asks for its session.
#[test]
fn a_request_without_a_session_gets_200_with_an_empty_session() {
    let gateway = Gateway::start();
    let (ended, token) = gateway.sign_in();
    gateway.call(Method::DELETE, SESSION, &[("cookie", &ended), ("x-csrf-token", &token)]);
    let own = ("sec-fetch-site", "same-origin");
    let no_session: &[&[(&str, &str)]] =
        &[&[], &[own], &[("cookie", "llmgw_session=no-such-session"), own], &[("cookie", &ended), own]];
    for headers in no_session {
        let (status, session, _) = gateway.call(Method::GET, SESSION, headers);
        let want = json!({"administrator": false, "key": null, "human": null, "permissions": [],
            "roles": {}, "extents": {}, "sso": null, "by": null, "csrf_token": null,
            "expires_at_ms": null, "idle_seconds_max": 3_600});
        assert_eq!((status.as_u16(), session), (200, want), "{headers:?}");
        assert_eq!(gateway.call(Method::HEAD, SESSION, headers).0, 200, "{headers:?}");
        assert_eq!(gateway.call(Method::DELETE, SESSION, headers).0, 401, "{headers:?}");
    }
    for (headers, want) in [
        (&[("sec-fetch-site", "cross-site")][..], 401),
        (&[("x-api-key", "wrong"), own], 401),
        (&[("authorization", "Bearer wrong")], 401),
    ] {
        assert_eq!(gateway.call(Method::GET, SESSION, headers).0.as_u16(), want, "{headers:?}");
    }
    gateway.stop();
}

#[test]
fn sign_in_requires_an_administrator_key() {
    let gateway = Gateway::start();
    super::gate::publish_keys(&gateway);
    let key = |key: &str| json!({"key": key}).to_string();
    let cases: &[Case<'_>] = &[
        (&key("wrong"), &[], 401),
        (&key(PROJECT), &[], 403),
        ("", &[], 401),
        ("{}", &[("x-api-key", "wrong")], 401),
        (&key(ADMIN), &[("x-api-key", "wrong")], 401),
        (r#"{"key": 5}"#, &[], 400),
        (r#"{"key": "a", "user": "b"}"#, &[], 400),
        (&key(ADMIN), &[("sec-fetch-site", "cross-site")], 403),
        (&key(ADMIN), &[("origin", "http://evil.example"), ("host", "gw.example")], 403),
        (&key(&"x".repeat(5_000)), &[], 413),
        (r#"{"key": "wrong"}"#, &[("x-api-key", ADMIN)], 201),
        ("", &[("x-api-key", ADMIN)], 201),
    ];
    for (body, headers, want) in cases {
        let (status, answer, cookie) = gateway.sign_in_with(body, headers);
        assert_eq!(status.as_u16(), *want, "{body} {headers:?} {answer}");
        assert_eq!(cookie.is_some(), *want == 201, "{body}");
    }
    gateway.stop();
}

#[test]
fn a_cookie_is_secure_where_the_page_was_and_a_second_sign_in_ends_the_first() {
    let gateway = Gateway::start();
    let headers = [("origin", "https://gw.example"), ("host", "gw.example"), ("x-api-key", ADMIN)];
    let (_, _, first) = gateway.sign_in_with("", &headers);
    let first = first.unwrap();
    assert!(first.ends_with("; Secure"), "{first}");
    let first = first.split(';').next().unwrap();
    let (_, _, second) = gateway.sign_in_with("", &[("cookie", first), ("x-api-key", ADMIN)]);
    let second = second.unwrap();
    let status = |cookie| gateway.call(Method::GET, "/admin/api/state", &[("cookie", cookie)]).0;
    assert_eq!(status(first), 401);
    assert_eq!(status(second.split(';').next().unwrap()), 200);
    gateway.stop();
}

#[test]
fn repeated_wrong_keys_are_rate_limited_and_a_valid_key_is_not() {
    let gateway = Gateway::start();
    let from = |address: [u8; 4], key: &str, path: &str, method: Method| {
        let request = Request::builder().method(method).uri(path).header("x-api-key", key);
        gateway.send_from(IpAddr::from(address), request.body(full("")).unwrap())
    };
    let here = [192, 0, 2, 7];
    for n in 0..20 {
        let (path, method) =
            if n % 2 == 0 { (SESSION, Method::POST) } else { ("/admin/api/state", Method::GET) };
        assert_eq!(from(here, "wrong", path, method).status(), 401, "{n}");
    }
    for (path, method) in [(SESSION, Method::POST), ("/admin/api/state", Method::GET)] {
        let refused = from(here, "wrong", path, method.clone());
        assert_eq!(refused.status(), 429, "{path}");
        let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=6).contains(&wait), "{wait}");
        assert!(text(refused.into_body()).contains("\"too_many_sign_ins\""));
        assert!(from(here, ADMIN, path, method).status().is_success(), "the right key from the same address");
    }
    assert_eq!(from([192, 0, 2, 8], "wrong", SESSION, Method::POST).status(), 401, "another address");
    assert_eq!(from(here, "", "/admin/api/state", Method::GET).status(), 401, "an empty key is no key");
    let nothing = Request::get("/admin/api/state").body(full("")).unwrap();
    assert_eq!(gateway.send_from(IpAddr::from(here), nothing).status(), 401, "no key is no guess");
    gateway.stop();
}

#[test]
fn signing_in_and_out_is_in_the_audit_without_id_or_key() {
    let gateway = Gateway::start();
    let (cookie, token) = gateway.sign_in();
    gateway.call(Method::DELETE, SESSION, &[("cookie", &cookie), ("x-csrf-token", &token)]);
    let db = Db::create(gateway.home.path().join("state/gateway.db")).unwrap();
    let rows: Vec<[String; 6]> = db
        .rows("SELECT actor, action, object_id, outcome, address, detail FROM audit", (), |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?])
        })
        .unwrap();
    let [opened, closed] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&opened[0][..], &opened[1][..], &opened[3][..]), ("admin", "session.open", "done"));
    assert_eq!((&closed[0][..], &closed[1][..]), ("admin", "session.close"));
    assert_eq!(opened[2], closed[2], "the same session");
    assert_eq!(opened[4], "127.0.0.1");
    let all = format!("{rows:?}");
    let id = cookie.split_once('=').unwrap().1;
    assert!(!all.contains(ADMIN) && !all.contains(id) && !all.contains(&token), "{all}");
    gateway.stop();
}
