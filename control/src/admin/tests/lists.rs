//! Lists sorted by a column over all pages, and searched by a part of a name.

use http::Method;
use serde_json::{Value, json};
use shared::clock::unix_ms;
use shared::id::{EndpointName, KeyId, ModelId, ProviderId};
use shared::usage::UsageEvent;

use super::Gateway;
use crate::usage::tests::event;

/// Creates an object and returns its id.
fn create(gateway: &Gateway, path: &str, body: &Value) -> String {
    let (status, made, _) = gateway.send_json(Method::POST, path, &body.to_string(), &[]);
    assert_eq!(status, 201, "{path} {body}: {made}");
    made["id"].as_str().unwrap_or_default().to_owned()
}

/// Reads all pages of a list, two rows each, and returns `member` of the rows.
fn all(gateway: &Gateway, path: &str, member: &str) -> Vec<Value> {
    let separator = if path.contains('?') { '&' } else { '?' };
    let path = format!("/admin/api/{path}{separator}limit=2");
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = gateway.get(&format!("{path}{cursor}"));
        let rows = page["data"].as_array().unwrap();
        assert!(rows.len() <= 2, "{path}: {page}");
        seen.extend(rows.iter().map(|row| row[member].clone()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return seen,
        }
    }
}

/// Returns `member` of the rows of a list in both orders of a column; they must be reversed.
fn both_orders(gateway: &Gateway, path: &str, column: &str, member: &str) -> Vec<Value> {
    let ascending = all(gateway, &format!("{path}sort={column}&order=asc"), member);
    let mut descending = all(gateway, &format!("{path}sort={column}"), member);
    descending.reverse();
    assert_eq!(ascending, descending, "{path} {column}");
    ascending
}

/// A gateway with five keys of two projects, of which three were used.
fn with_keys() -> (Gateway, Vec<String>, [String; 2]) {
    let mut gateway = Gateway::start();
    let projects = ["Team", "amber"].map(|name| create(&gateway, "projects", &json!({"name": name})));
    let keys: Vec<String> = [("Zebra", 0), ("apple", 0), ("Mango", 1), ("fig", 0), ("cherry", 0)]
        .iter()
        .map(|(name, project)| {
            create(&gateway, "keys", &json!({"name": name, "project": projects[*project]}))
        })
        .collect();
    // Mango is the dearest, Zebra the cheapest of those that were used.
    for (n, (key, cost)) in [(0, 5), (2, 900), (3, 40)].into_iter().enumerate() {
        let n = u64::try_from(n).unwrap();
        let used = UsageEvent {
            key: KeyId::new(keys[key].as_str()),
            started_at_ms: unix_ms(),
            cost_nano_usd: Some(cost * 1_000),
            ..event(n)
        };
        assert!(gateway.log.append(&used));
    }
    gateway.wait_stored(3);
    (gateway, keys, projects)
}

#[test]
fn keys_are_sorted_over_all_pages() {
    let (gateway, keys, _) = with_keys();
    let names = |column| both_orders(&gateway, "keys?", column, "name");
    assert_eq!(names("name"), ["apple", "cherry", "fig", "Mango", "Zebra"]);
    assert_eq!(names("created"), ["Zebra", "apple", "Mango", "fig", "cherry"]);
    assert_eq!(names("spend")[2..], ["Zebra", "fig", "Mango"]);
    let costs = both_orders(&gateway, "keys?", "spend", "month");
    assert_eq!(costs[4], json!({"requests": 1, "requests_unpriced": 0, "cost_micro_usd": 900.0}));
    // A key that was never used precedes those that were.
    assert_eq!(names("last_used")[..2], ["apple", "cherry"]);
    let expires = json!({"expires_at": "2050-01-01T00:00:00Z"}).to_string();
    let path = format!("keys/{}", keys[1]);
    assert_eq!(gateway.send_json(Method::PATCH, &path, &expires, &[]).0, 200);
    // Keys that do not expire come last in either order.
    for order in ["asc", "desc"] {
        assert_eq!(all(&gateway, &format!("keys?sort=expires&order={order}"), "name")[0], "apple");
    }
    assert_eq!(all(&gateway, "keys?sort=name&order=asc&q=ANGO", "name"), ["Mango"]);
    gateway.stop();
}

#[test]
fn a_list_refuses_unknown_columns_and_cursors_of_another_order() {
    let (gateway, ..) = with_keys();
    let refused = |query: &str, param: &str| {
        let path = format!("keys?limit=2&{query}");
        let (status, answer, _) = gateway.send_json(Method::GET, &path, "", &[]);
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(param)), "{query}: {answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    let names = refused("sort=colour", "sort");
    assert!(names.ends_with("one of: name, created, last_used, spend, expires."), "{names}");
    refused("order=asc", "order");
    let cursor = |query: &str| {
        let page = gateway.get(&format!("/admin/api/keys?limit=2{query}"));
        page["next_cursor"].as_str().unwrap().to_owned()
    };
    let by_name = cursor("&sort=name&order=asc");
    for query in ["sort=name", "sort=spend&order=asc", ""] {
        let why = refused(&format!("{query}&cursor={by_name}"), "cursor");
        assert!(why.contains("sort=name and order=asc"), "{why}");
    }
    refused(&format!("sort=name&cursor={}", cursor("")), "cursor");
    gateway.stop();
}

#[test]
fn quotas_are_sorted_by_the_share_that_is_used() {
    let (gateway, keys, projects) = with_keys();
    let limit = |kind: &str, id: &str, limit: u64| {
        let subject = json!({"kind": kind, "id": id});
        let body = json!({"subject": subject, "metric": "requests", "window": "month", "limit": limit});
        create(&gateway, "quotas", &body)
    };
    // Each key was used once: a tenth, a half, all, nothing.
    let tenth = limit("key", &keys[0], 10);
    let half = limit("key", &keys[2], 2);
    let whole = limit("key", &keys[3], 1);
    let nothing = limit("project", &projects[1], 5);
    let by_share = both_orders(&gateway, "quotas?", "share", "id");
    assert_eq!(by_share, [&nothing, &tenth, &half, &whole].map(|id| json!(id)));
    assert_eq!(both_orders(&gateway, "quotas?", "limit", "limit"), [1, 2, 5, 10]);
    assert_eq!(all(&gateway, "quotas?sort=name&order=asc", "id")[0], json!(nothing));
    assert_eq!(all(&gateway, "quotas?q=MANG", "id"), [json!(half)]);
    // The fullest, and how many there are beside them.
    let page = |query: &str| gateway.get(&format!("/admin/api/quotas?{query}"));
    let near = page("sort=share&share_percent_min=50&limit=1");
    assert_eq!((&near["data"][0]["id"], &near["matching"]), (&json!(whole), &json!(2)));
    let next = page(&format!(
        "sort=share&share_percent_min=50&limit=1&cursor={}",
        near["next_cursor"].as_str().unwrap()
    ));
    assert_eq!((&next["data"][0]["id"], &next["matching"]), (&json!(half), &json!(2)));
    assert_eq!((&next["data"][1], &next["next_cursor"]), (&Value::Null, &Value::Null));
    assert_eq!(page("sort=limit&q=mang")["matching"], 1);
    let some = all(&gateway, &format!("quotas?key={},{},none", keys[2], keys[0]), "id");
    assert_eq!(some, [json!(tenth), json!(half)]);
    let own = page("share_percent_min=100");
    assert_eq!(
        (&own["data"][0]["id"], &own["data"][1], &own["matching"]),
        (&json!(whole), &Value::Null, &Value::Null)
    );
    gateway.stop();
}

#[test]
fn projects_are_listed_with_their_members_keys_and_spend() {
    let (gateway, keys, projects) = with_keys();
    let human = create(&gateway, "principals", &json!({"name": "Ada"}));
    let member = format!("projects/{}/members/{human}", projects[0]);
    assert_eq!(gateway.send_json(Method::PUT, &member, r#"{"role": "owner"}"#, &[]).0, 200);
    assert_eq!(
        gateway.send_json(Method::PATCH, &format!("keys/{}", keys[4]), r#"{"state": "revoked"}"#, &[]).0,
        200
    );
    let rows = gateway.get("/admin/api/projects?sort=name&order=asc");
    let counts = |row: usize| (rows["data"][row]["members"].clone(), rows["data"][row]["keys"].clone());
    assert_eq!(rows["data"][0]["name"], "amber");
    assert_eq!((counts(0), counts(1)), ((json!(0), json!(1)), (json!(1), json!(3))));
    for column in ["members", "keys"] {
        assert_eq!(both_orders(&gateway, "projects?", column, "name"), ["amber", "Team"]);
    }
    gateway.stop();
}

#[test]
fn humans_webhooks_and_the_audit_are_sorted_and_searched() {
    let gateway = Gateway::start();
    for name in ["Grace", "ada", "Linus"] {
        create(&gateway, "principals", &json!({"name": name, "email": format!("{name}@example.com")}));
        let url = format!("http://127.0.0.1:9/{name}");
        let made =
            gateway.send_json(Method::POST, "webhooks", &json!({"name": name, "url": url}).to_string(), &[]);
        assert_eq!(made.0, 201, "{}", made.1);
    }
    for list in ["principals?", "webhooks?"] {
        assert_eq!(both_orders(&gateway, list, "name", "name"), ["ada", "Grace", "Linus"], "{list}");
        assert_eq!(both_orders(&gateway, list, "created", "name"), ["Grace", "ada", "Linus"], "{list}");
        assert_eq!(all(&gateway, &format!("{list}q=GRACE"), "name"), ["Grace"], "{list}");
    }
    let oldest = all(&gateway, "audit?sort=time&order=asc&q=Principal", "id");
    let mut newest = all(&gateway, "audit?q=principal", "id");
    newest.reverse();
    assert_eq!((oldest.len(), &oldest), (3, &newest));
    gateway.stop();
}

#[test]
fn providers_endpoints_and_models_are_sorted() {
    let gateway = Gateway::start();
    for (id, disabled) in [("Beta", false), ("alpha", false), ("gone", true)] {
        let body = json!({"id": id, "type": "echo", "disabled": disabled, "models": ["small", "large"]});
        create(&gateway, "providers", &body);
    }
    for (model, window) in [("large", 200_000), ("small", 1_000)] {
        let facts = json!({"context_window": window});
        let body = json!({"provider": "alpha", "model": model, "facts": facts});
        create(&gateway, "catalog/overrides", &body);
    }
    assert_eq!(both_orders(&gateway, "providers?", "name", "id"), ["alpha", "Beta", "gone"]);
    // A disabled provider comes after those that serve.
    assert_eq!(all(&gateway, "providers?sort=state&order=asc", "id").last().unwrap(), "gone");
    // Models whose context is unknown come last in either order.
    let windows =
        |order: &str| all(&gateway, &format!("catalog?sort=context&order={order}"), "context_window");
    assert_eq!(windows("asc")[..2], [json!(1_000), json!(200_000)]);
    assert_eq!(windows("desc")[..3], [json!(200_000), json!(1_000), Value::Null]);
    for (name, targets) in [("one", 1), ("Two", 2)] {
        let targets: Vec<_> = ["small", "large"]
            .iter()
            .take(targets)
            .map(|model| json!({"provider": "alpha", "model": model}))
            .collect();
        create(&gateway, "endpoints", &json!({"name": name, "failover": targets}));
    }
    for column in ["name", "targets"] {
        assert_eq!(both_orders(&gateway, "endpoints?", column, "name"), ["one", "Two"]);
    }
    gateway.stop();
}

#[test]
fn requests_are_sorted_by_each_figure_and_unknown_costs_come_last() {
    let mut gateway = Gateway::start();
    for n in 0..40 {
        let cost_nano_usd = (n % 4 != 0).then_some((n * 7 % 40) * 1_000);
        let sent = UsageEvent { duration_us: n * 11 % 40, cost_nano_usd, ..event(n) };
        assert!(gateway.log.append(&sent));
    }
    gateway.wait_stored(40);
    let durations = both_orders(&gateway, "requests?", "duration", "duration_us");
    assert_eq!(durations, (0..40).collect::<Vec<u64>>());
    for order in ["asc", "desc"] {
        let costs = all(&gateway, &format!("requests?sort=cost&order={order}"), "cost_micro_usd");
        let known: Vec<f64> = costs.iter().map_while(Value::as_f64).collect();
        assert_eq!((costs.len(), known.len()), (40, 30), "{order}");
        assert!(
            known.is_sorted_by(|one, next| if order == "asc" { one < next } else { one > next }),
            "{known:?}"
        );
    }
    let oldest = all(&gateway, "requests?sort=time&order=asc", "request_id");
    assert_eq!((&oldest[0], oldest.len()), (&json!("req-0"), 40));
    assert_eq!(gateway.get("/admin/api/requests?sort=tokens")["sorted_since_ms"], Value::Null);
    gateway.stop();
}

#[test]
fn requests_are_found_by_a_part_of_a_name() {
    let mut gateway = Gateway::start();
    let project = create(&gateway, "projects", &json!({"name": "blue"}));
    let key = create(&gateway, "keys", &json!({"name": "Nightly build", "project": project}));
    let named = UsageEvent {
        key: KeyId::new(key.as_str()),
        endpoint: Some(EndpointName::new("Coding")),
        provider: Some(ProviderId::new("anthropic-prod")),
        model: Some(ModelId::new("claude-Sonnet-5")),
        ..event(1)
    };
    assert!(gateway.log.append(&event(0)) && gateway.log.append(&named));
    gateway.wait_stored(2);
    for part in ["NIGHTLY", "codi", "prod", "sonnet", "claude-sonnet-5"] {
        assert_eq!(all(&gateway, &format!("requests?q={part}"), "request_id"), ["req-1"], "{part}");
    }
    assert_eq!(all(&gateway, "requests?q=sonnets", "request_id"), Vec::<Value>::new());
    gateway.stop();
}

#[test]
fn lists_of_projects_humans_and_members_leave_out_the_disabled_and_members_are_searched() {
    let gateway = Gateway::start();
    let disable =
        |path: &str| assert_eq!(gateway.send_json(Method::PATCH, path, r#"{"disabled": true}"#, &[]).0, 200);
    let [blue, red] = ["blue", "red"].map(|name| create(&gateway, "projects", &json!({"name": name})));
    let [ada, ben, cem] = ["Ada", "Ben", "Cem"].map(|name| {
        create(&gateway, "principals", &json!({"name": name, "email": format!("{name}@example.com")}))
    });
    for human in [&ada, &ben, &cem] {
        let path = format!("projects/{blue}/members/{human}");
        assert_eq!(gateway.send_json(Method::PUT, &path, r#"{"role": "member"}"#, &[]).0, 200);
    }
    disable(&format!("projects/{red}"));
    disable(&format!("principals/{cem}"));
    let members = format!("projects/{blue}/members");
    assert_eq!(all(&gateway, "projects?disabled=false", "id"), [json!(blue)]);
    assert_eq!(all(&gateway, "projects?disabled=true", "id"), [json!(red)]);
    assert_eq!(all(&gateway, "principals?disabled=false", "id"), [json!(ada), json!(ben)]);
    assert_eq!(all(&gateway, "principals?disabled=true&q=ada@", "id"), [] as [Value; 0]);
    assert_eq!(all(&gateway, &members, "principal").len(), 3);
    assert_eq!(all(&gateway, &format!("{members}?disabled=false"), "principal"), [json!(ada), json!(ben)]);
    assert_eq!(all(&gateway, &format!("{members}?q=BEN@"), "principal"), [json!(ben)]);
    assert_eq!(all(&gateway, &format!("{members}?q=cem&disabled=false"), "principal"), [] as [Value; 0]);
    gateway.stop();
}
