//! Who gets in, and which paths, methods and parameters there are.

use std::sync::Arc;

use http::Method;
use serde_json::json;
use shared::access::{Access, AccessTable, Role};
use shared::snapshot::Snapshot;

use super::{ADMIN, Gateway, PROJECT};

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
    let paths = crate::api::TABLES.iter().copied().flatten().map(|route| route.pattern.replace("{}", "x"));
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
        (Method::GET, "/admin/api/projects/p/members", 404, "not_found"),
        (Method::GET, "/admin/api/alerts", 501, "not_implemented"),
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
