//! Authentication, and the available paths, methods and parameters.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request};
use http_body::Frame;
use serde_json::json;
use shared::access::{Access, Role};
use shared::key_table::AccessTable;
use shared::port::{Body, BoxError};
use shared::snapshot::Snapshot;

use super::{ADMIN, Gateway, PROJECT};

const EXPIRED: &str = "expired-administrator";

/// Publishes a project's key and an administrator's key that has expired.
pub(super) fn publish_keys(gateway: &Gateway) {
    let mut with_project = Snapshot::empty();
    let current = gateway.reader.load();
    with_project.key_hasher = current.key_hasher.clone();
    let access = |role, expires_at_ms| Arc::new(Access { expires_at_ms, ..Access::new("k", role) });
    let mut table = AccessTable { anonymous: current.access.anonymous.clone(), ..AccessTable::default() };
    table.keys.clone_from(&current.access.keys);
    let mut add = |key: &str, access| table.keys.insert(current.key_hasher.hash(key.as_bytes()), access);
    add(PROJECT, access(Role::Project, None));
    add(EXPIRED, access(Role::Administrator, Some(1)));
    with_project.access = Arc::new(table);
    gateway.publisher.publish(with_project);
}

/// A body that records whether it was read.
pub(super) struct Watched(pub(super) Arc<AtomicBool>);

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.store(true, Ordering::Relaxed);
        Poll::Ready(None)
    }
}

/// M-005, M-197, M-199.
#[test]
fn every_route_requires_an_administrator_before_it_reads_the_body() {
    let gateway = Gateway::start();
    publish_keys(&gateway);
    let (cookie, token) = gateway.sign_in();
    let cookie = ("cookie", cookie.as_str());
    let near = format!("{}t", &ADMIN[..ADMIN.len() - 1]);
    let (local, other) = (("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site"));
    let csrf = ("x-csrf-token", token.as_str());
    let strangers: &[(&[(&str, &str)], u16)] = &[
        (&[], 401),
        (&[("x-api-key", &near)], 401),
        (&[("x-api-key", EXPIRED)], 401),
        (&[("x-api-key", PROJECT)], 403),
        (&[("cookie", "llmgw_session=no-such-session"), csrf, local], 401),
        (&[cookie, csrf, other], 403),
        (&[cookie, csrf, ("sec-fetch-site", "same-site")], 403),
        (&[cookie, csrf, ("origin", "http://evil.example"), ("host", "gw.example")], 403),
        (&[cookie, csrf, local, ("x-api-key", &near)], 401),
        (&[cookie, csrf, local, ("x-api-key", PROJECT)], 403),
    ];
    let changing: &[(&[(&str, &str)], u16)] = &[
        (&[cookie, local], 403),
        (&[cookie, local, ("x-csrf-token", "")], 403),
        (&[cookie, local, ("x-csrf-token", &token[1..])], 403),
        (&[cookie, other], 403),
    ];
    let paths = crate::admin::TABLES.iter().copied().flatten().map(|route| route.pattern.replace("{}", "x"));
    let mut peer = 10_u32 << 24;
    for path in paths.chain(["".into(), "no/such".into()]) {
        let uri = format!("/admin/api/{path}");
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            if path == "session" && method == Method::POST {
                continue;
            }
            let changes = method != Method::GET && method != Method::HEAD;
            for (headers, status) in strangers.iter().chain(changing.iter().filter(|_| changes)) {
                // A page without a session learns that, and nothing else, without an error.
                let reads_session = path == "session" && !changes;
                let has_key = headers.iter().any(|(name, _)| *name == "x-api-key");
                let status = if reads_session && *status == 401 && !has_key { &200 } else { status };
                let read = Arc::new(AtomicBool::new(false));
                let mut request = Request::builder().method(&method).uri(&uri);
                for (name, value) in *headers {
                    request = request.header(*name, *value);
                }
                let body = Body::new(Watched(Arc::clone(&read)));
                // Each request comes from its own address, because too many wrong keys from one address yield another
                // error.
                peer += 1;
                let answer = gateway.send_from(IpAddr::from(peer.to_be_bytes()), request.body(body).unwrap());
                assert_eq!(answer.status().as_u16(), *status, "{method} {uri} {headers:?}");
                assert!(!read.load(Ordering::Relaxed), "{method} {uri} {headers:?}");
            }
        }
    }
    gateway.stop();
}

/// M-189 to M-191, on the admin API.
#[test]
fn x_api_key_takes_precedence_over_authorization_even_if_wrong() {
    let gateway = Gateway::start();
    publish_keys(&gateway);
    let bearer = format!("bearer {ADMIN}");
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
        (&[("x-api-key", PROJECT), ("authorization", &bearer)], 403),
    ];
    for (headers, want) in cases {
        let (status, _, _) = gateway.call(Method::GET, "/admin/api/state", headers);
        assert_eq!(status.as_u16(), *want, "{headers:?}");
    }
    gateway.stop();
}

/// Every route of the specification is in a route table: that of its resource, or that of later releases.
#[test]
fn every_route_of_the_specification_is_in_a_route_table() {
    let listed = "GET state; GET POST DELETE session; GET POST principals; GET PATCH DELETE principals/{}; \
         GET POST projects; GET PATCH DELETE projects/{}; PUT DELETE projects/{}/members/{}; GET POST keys; \
         GET PATCH DELETE keys/{}; POST keys/{}/reveal; POST keys/{}/rotate; GET POST providers; \
         GET PATCH DELETE providers/{}; POST providers/{}/sync; POST providers/{}/test; GET registry; \
         POST explain; POST providers/{}/oauth/start; DELETE providers/{}/oauth; GET catalog; \
         POST catalog/sync; GET POST endpoints; GET PUT DELETE endpoints/{}; POST endpoints/{}/test; \
         GET POST quotas; PATCH DELETE quotas/{}; GET usage; GET usage/export; GET requests; GET requests/{}; \
         GET audit; GET audit/export; GET alerts; POST alerts/{}/ack; GET POST alert-rules; \
         PATCH DELETE alert-rules/{}; GET outbox; POST outbox/claim; POST outbox/{}/delivered; \
         POST outbox/{}/failed; POST outbox/{}/retry; GET POST webhooks; PATCH DELETE webhooks/{}; \
         POST webhooks/{}/test; GET POST extensions; GET PATCH DELETE extensions/{}; POST extensions/{}/probe; \
         GET health/providers; GET live; GET series; GET POST backups; GET config";
    let routes: Vec<_> = crate::admin::TABLES.iter().copied().flatten().collect();
    for line in listed.split("; ") {
        let (methods, pattern) = line.trim().rsplit_once(' ').unwrap();
        for method in methods.split(' ') {
            let count =
                routes.iter().filter(|route| route.method == *method && route.pattern == pattern).count();
            assert_eq!(count, 1, "{method} {pattern}");
        }
    }
}

#[test]
fn unknown_paths_return_404_and_wrong_methods_405() {
    let gateway = Gateway::start();
    let admin: &[(&str, &str)] = &[("x-api-key", ADMIN)];
    for (method, path, status, code) in [
        (Method::GET, "/admin/api/nothing", 404, "not_found"),
        (Method::GET, "/admin/api/requests/a/b", 404, "not_found"),
        (Method::GET, "/admin/apiary", 404, "not_found"),
        (Method::GET, "/elsewhere", 404, "not_found"),
        (Method::GET, "/admin/api/webhooks/none", 404, "not_found"),
        (Method::GET, "/admin/api/projects/p/members", 404, "not_found"),
        (Method::POST, "/oauth/callback/partner", 405, "method_not_allowed"),
        (Method::GET, "/admin/api/requests/none-such", 404, "not_found"),
        (Method::POST, "/console", 405, "method_not_allowed"),
        (Method::GET, "/console/assets/none.js", 404, "not_found"),
    ] {
        let (got, got_code, _) = gateway.refusal(method, path, admin);
        assert_eq!((got, got_code.as_str()), (status, code), "{path}");
    }
    for (path, allow) in [
        ("/admin/api/state", "GET, HEAD"),
        ("/admin/api/keys/k", "GET, HEAD, PATCH, DELETE"),
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
        ("usage?limit=0", "limit"),
        ("usage?limit=10001", "limit"),
        ("usage?cursor=x", "cursor"),
        ("usage?group_by=model&cursor=eyJidWNrZXRfbXMiOjEsIm5hbWVzIjpbXSwidmFsdWUiOm51bGx9", "cursor"),
        ("usage?sort=colour", "sort"),
        ("usage?order=asc", "order"),
        ("usage?sort=cost&order=up", "order"),
        ("usage?tz=Mars/Olympus", "tz"),
        ("usage?tz=+02:00", "tz"),
        ("usage?markup_percent=x", "markup_percent"),
        ("usage?currency=EUR", "rate"),
        ("usage?rate=2", "currency"),
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
        ("usage?group_by=tag:", "group_by"),
        ("usage?group_by=tag:a,tag:b,tag:c,tag:d,tag:e,tag:f,tag:g,tag:h,tag:i", "group_by"),
        ("usage?tag.=x", "tag."),
        ("requests?tag=x", "tag"),
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
