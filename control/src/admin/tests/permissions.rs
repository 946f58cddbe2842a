//! Each route as each caller, and the objects that a human may see and change.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request};
use serde_json::{Value, json};
use shared::id::{KeyId, ProjectId};
use shared::port::Body;
use shared::usage::UsageEvent;

use super::gate::Watched;
use super::humans::{Person, Team};
use super::{ADMIN, Gateway};
use crate::usage::tests::event;

/// The routes that humans may use, each with the roles that may, as the first letters of owner, admin, member and viewer of
/// the project of the object, and `s` for a stranger. The object is a project, its limit, the stranger's own entry, or a key of
/// the project that acts as no human.
const OF_HUMANS: &[(&str, &str)] = &[
    ("GET session", "oamvs"),
    ("DELETE session", "oamvs"),
    ("GET principals", "oamvs"),
    ("GET principals/{}", "s"),
    ("GET principals/{}/access", "s"),
    ("GET projects", "oamvs"),
    ("GET projects/{}", "oamv"),
    ("GET projects/{}/access", "oamv"),
    ("GET projects/{}/members", "oamv"),
    ("PUT projects/{}/members/{}", "oa"),
    ("DELETE projects/{}/members/{}", "oa"),
    ("GET device-sign-ins/{}", "oamvs"),
    ("POST device-sign-ins/{}/approve", "oamvs"),
    ("POST device-sign-ins/{}/deny", "oamvs"),
    ("GET keys", "oamvs"),
    ("POST keys", "oams"),
    ("GET keys/{}", "oamv"),
    ("GET keys/{}/access", "oamv"),
    ("PATCH keys/{}", "oa"),
    ("DELETE keys/{}", "oa"),
    ("POST keys/{}/rotate", "oa"),
    ("POST keys/{}/reveal", ""),
    ("GET providers", "oamvs"),
    ("GET providers/{}", ""),
    ("PUT providers/{}/bindings/{}", ""),
    ("DELETE providers/{}/bindings/{}", ""),
    ("POST providers/{}/oauth/start", ""),
    ("DELETE providers/{}/oauth", ""),
    ("GET live", "oamvs"),
    ("GET quotas", "oamvs"),
    ("GET quotas/{}", "oamv"),
    ("GET requests", "oamvs"),
    ("GET requests/{}", "oamvs"),
    ("POST run/{}", "oamvs"),
    ("POST run/{}/{}", "oamvs"),
    ("POST run/{}/{}/{}", "oamvs"),
    ("GET run/{}", "oamvs"),
    ("GET running", "oamvs"),
    ("GET search", "oamvs"),
    ("GET series", "oamvs"),
    ("GET suggest", "oamvs"),
    ("GET usage", "oamvs"),
    ("GET usage/export", "oamvs"),
];

/// Sends a request whose body records whether it was read. Returns the status and that.
fn watched(gateway: &Gateway, route: (&Method, &str), headers: &[(String, String)]) -> (u16, bool) {
    let read = Arc::new(AtomicBool::new(false));
    let mut request = Request::builder().method(route.0).uri(format!("/admin/api/{}", route.1));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::new(Watched(Arc::clone(&read)))).unwrap();
    let answer = gateway.send_from(IpAddr::from([127, 0, 0, 1]), request);
    (answer.status().as_u16(), read.load(Ordering::Relaxed))
}

/// AUTH-3, AUTH-7, AUTH-8: every route as every caller. A refusal comes before the body is read.
#[test]
fn every_route_gives_every_caller_what_its_role_permits() {
    let gateway = Gateway::with_sso();
    let team = gateway.team();
    let minted = gateway.done(Method::POST, "keys", &json!({"name": "p", "project": team.project}));
    let project_key = minted["key"].as_str().unwrap();
    let quota = quota_of(&gateway, "project", &team.project);
    let lead = gateway.person("lead", "staff,llmgw-admin");
    let (cookie, token) = gateway.sign_in();
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let session = [("cookie", cookie.as_str()), ("x-csrf-token", &token), ("sec-fetch-site", "same-origin")];
    let administrators = [pairs(&[("x-api-key", ADMIN)]), pairs(&session), lead.headers];
    let names: BTreeSet<&str> = OF_HUMANS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), OF_HUMANS.len());
    let (mut walked, mut known, mut sessions) = (0, BTreeSet::new(), Vec::new());
    for route in crate::admin::TABLES.iter().copied().flatten() {
        let name = format!("{} {}", route.method, route.pattern);
        let roles = OF_HUMANS.iter().find(|(known, _)| *known == name).map(|(_, roles)| *roles);
        known.extend(roles.map(|_| name.clone()));
        if route.pattern == "session" {
            sessions.push(&route.method);
            continue;
        }
        let nowhere = route.pattern.replace("{}", "x");
        let is_run = route.pattern.starts_with("run/");
        let reads = route.method != Method::GET && !is_run;
        for headers in &administrators {
            let (status, read) = watched(&gateway, (&route.method, &nowhere), headers);
            assert!(![401, 403].contains(&status), "{name} as an administrator: {status}");
            assert!(read || !reads, "{name} as an administrator: the body was not read");
            walked += 1;
        }
        for (status, headers) in [(401, pairs(&[])), (403, pairs(&[("x-api-key", project_key)]))] {
            let found = watched(&gateway, (&route.method, &nowhere), &headers);
            assert_eq!(found, (status, false), "{name} {headers:?}");
            walked += 1;
        }
        for (letter, person) in "oamvs".chars().zip(&team.people) {
            let path = path_of(route.pattern, &team, &quota);
            let (status, read) = watched(&gateway, (&route.method, &path), &person.headers);
            if roles.is_some_and(|roles| roles.contains(letter)) {
                assert!(![401, 403].contains(&status), "{name} as {letter}: {status}");
                assert!(read || !reads, "{name} as {letter}: the body was not read");
            } else {
                let want: &[u16] = if roles.is_some() { &[403, 404] } else { &[403] };
                assert!(want.contains(&status), "{name} as {letter}: {status}");
                assert!(!read, "{name} as {letter}: the body was read");
            }
            walked += 1;
        }
    }
    let unknown: Vec<_> = names.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "no such routes: {unknown:?}");
    let holders = administrators.into_iter().chain(team.people.iter().map(|person| person.headers.clone()));
    let mut callers: Vec<_> = holders.map(|headers| (headers, [200, 204])).collect();
    callers.push((pairs(&[]), [200, 401]));
    callers.push((pairs(&[("x-api-key", project_key)]), [403, 403]));
    assert_eq!(sessions, [&Method::GET, &Method::POST, &Method::DELETE], "the last one ends the sessions");
    for method in sessions {
        for (headers, wanted) in &callers {
            expect_session(&gateway, (method, wanted), headers);
            walked += 1;
        }
    }
    let routes = crate::admin::TABLES.iter().copied().flatten().count();
    assert_eq!(walked, routes * callers.len());
    println!("figure permissions: {routes} routes as {} callers, 0 exceptions", callers.len());
    gateway.stop();
}

/// Calls a route of `session`, whose answers to `GET` and `DELETE` are to have these statuses. Anyone may read that they have
/// no session, and a sign-in has to read its body, which contains the key.
fn expect_session(gateway: &Gateway, (method, wanted): (&Method, &[u16; 2]), headers: &[(String, String)]) {
    let (status, read) = watched(gateway, (method, "session"), headers);
    if *method == Method::POST {
        assert!(read || status == 403, "{status} {headers:?}");
        return;
    }
    assert_eq!(status, wanted[usize::from(*method == Method::DELETE)], "{method} {headers:?}");
    assert!(status < 400 || !read, "{method} {headers:?}: the body was read");
}

/// Creates a limit of a subject and returns its ID.
fn quota_of(gateway: &Gateway, kind: &str, id: &str) -> String {
    let subject = json!({"kind": kind, "id": id});
    let body = json!({"subject": subject, "metric": "requests", "window": "day", "limit": 9});
    gateway.done(Method::POST, "quotas", &body)["id"].as_str().unwrap().to_owned()
}

/// Returns the path of a pattern with objects of the team.
fn path_of(pattern: &str, team: &Team, quota: &str) -> String {
    let first = match pattern.split('/').next().unwrap_or_default() {
        "projects" => &team.project,
        "keys" => &team.keys[3],
        "principals" => &team.people[4].id,
        "quotas" => quota,
        _ => "x",
    };
    pattern.replacen("{}", first, 1).replace("{}", "x")
}

fn ids(answer: &Value) -> Vec<&str> {
    answer["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[test]
fn lists_contain_only_what_the_human_may_see_and_objects_of_others_do_not_exist() {
    let gateway = Gateway::with_sso();
    let Team { project, other_project, people, keys } = gateway.team();
    let get = |person: &Person, path: &str| gateway.ask((Method::GET, path), &person.headers, &Value::Null);
    let (viewer, stranger) = (&people[3], &people[4]);
    assert_eq!(ids(&get(viewer, "projects").1), [&project]);
    assert_eq!(ids(&get(viewer, &format!("projects?principal={}", stranger.id)).1), [""; 0]);
    assert_eq!(ids(&get(viewer, "keys").1), keys[..4]);
    assert_eq!(ids(&get(stranger, "keys").1), keys[4..]);
    assert_eq!(ids(&get(stranger, &format!("keys?project={project}")).1), [""; 0]);
    assert_eq!(ids(&get(viewer, "principals").1), [&viewer.id]);
    for path in [
        format!("projects/{other_project}"),
        format!("projects/{other_project}/members"),
        format!("keys/{}", keys[4]),
        format!("keys/{}/access", keys[4]),
        format!("principals/{}", stranger.id),
    ] {
        let (status, hidden) = get(viewer, &path);
        assert_eq!(status, 404, "{path}: {hidden}");
        assert_eq!(hidden["error"]["code"], "not_found", "{hidden}");
    }
    gateway.stop();
}

#[test]
fn limits_are_those_of_the_human_and_of_their_projects_and_keys() {
    let gateway = Gateway::with_sso();
    let Team { project, other_project, people, keys } = gateway.team();
    let (viewer, stranger) = (&people[3], &people[4]);
    let shown = [("project", &project), ("key", &keys[3]), ("principal", &viewer.id)];
    let hidden = [("project", &other_project), ("key", &keys[4]), ("principal", &stranger.id)];
    let [shown, hidden] = [shown, hidden].map(|of| of.map(|(kind, id)| quota_of(&gateway, kind, id)));
    let body = json!({"subject": {"kind": "gateway"}, "metric": "requests", "window": "day", "limit": 9});
    let of_gateway = gateway.done(Method::POST, "quotas", &body)["id"].as_str().unwrap().to_owned();
    let get = |path: &str| gateway.ask((Method::GET, path), &viewer.headers, &Value::Null);
    assert_eq!(BTreeSet::from_iter(ids(&get("quotas").1)), shown.iter().map(String::as_str).collect());
    for id in &shown {
        assert_eq!(get(&format!("quotas/{id}")).0, 200, "{id}");
    }
    for id in hidden.iter().chain([&of_gateway]) {
        let (status, answer) = get(&format!("quotas/{id}"));
        assert_eq!((status, &answer["error"]["message"]), (404, &json!("There is no such quota.")));
    }
    for filter in [format!("project={other_project}"), format!("key={}", keys[4]), "kind=gateway".into()] {
        assert_eq!(ids(&get(&format!("quotas?{filter}")).1), [""; 0], "{filter}");
    }
    gateway.stop();
}

#[test]
fn a_search_finds_nothing_of_other_people() {
    let mut gateway = Gateway::with_sso();
    let Team { project, people, keys, .. } = gateway.team();
    let stranger = &people[4];
    for (n, (project, key)) in [(&project, &keys[1])].into_iter().enumerate() {
        let (key, project) = (KeyId::new(key.as_str()), Some(ProjectId::new(project.as_str())));
        assert!(gateway.log.append(&UsageEvent { key, project, ..event(n as u64) }));
    }
    gateway.wait_stored(1);
    gateway.done(Method::POST, "providers", &json!({"id": "theirs", "type": "echo"}));
    let found = |person: &Person, text: &str| {
        let (status, answer) =
            gateway.ask((Method::GET, &format!("search?q={text}")), &person.headers, &Value::Null);
        assert_eq!(status, 200, "{answer}");
        let rows = answer["data"].as_array().unwrap();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for text in ["home", &project, &keys[0], "viewer", &people[3].id, "req-0", "theirs", "echo"] {
        assert_eq!(found(stranger, text), [""; 0], "{text}");
    }
    assert_eq!(found(&people[3], "home"), [project.as_str()]);
    assert_eq!(found(&people[3], &keys[0]), [keys[0].as_str()]);
    assert_eq!(found(&people[3], "req-0"), ["req-0"]);
    assert_eq!(found(&people[3], "viewer"), [people[3].id.as_str()]);
    gateway.stop();
}

#[test]
fn usage_and_requests_are_those_of_the_humans_projects_in_every_report() {
    let mut gateway = Gateway::with_sso();
    let Team { project, other_project, people, keys } = gateway.team();
    for (n, (project, key, client)) in
        [(&project, &keys[1], "ours"), (&other_project, &keys[4], "theirs")].into_iter().enumerate()
    {
        let mut event = UsageEvent {
            key: KeyId::new(key.as_str()),
            project: Some(ProjectId::new(project.as_str())),
            ..event(n as u64)
        };
        event.selector = client.into();
        assert!(gateway.log.append(&event));
    }
    assert!(gateway.log.append(&event(2)));
    gateway.wait_stored(3);
    let viewer = &people[3].headers;
    let get = |path: &str| {
        let (status, answer) = gateway.ask((Method::GET, path), viewer, &Value::Null);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    };
    let time = "from=1699999000000&to=1700000100000";
    let requests = get("requests");
    let found: Vec<_> = requests["data"].as_array().unwrap().iter().map(|row| &row["request_id"]).collect();
    assert_eq!(found, ["req-0"]);
    assert_eq!(get("requests/req-0")["project"], project.as_str());
    for other in ["requests/req-1", "requests/req-2", "requests/req-9"] {
        assert_eq!(gateway.ask((Method::GET, other), viewer, &Value::Null).0, 404, "{other}");
    }
    assert_eq!(get(&format!("usage?{time}"))["totals"]["requests"], 1);
    assert_eq!(get("usage?group_by=project&bucket=day")["data"].as_array().unwrap().len(), 1);
    assert_eq!(get("usage?group_by=end_user")["totals"]["requests"], 1);
    assert_eq!(get(&format!("usage?project={other_project}"))["totals"]["requests"], 0);
    let series = get(&format!("series?{time}&group_by=project"));
    assert!(
        series.to_string().contains(&project) && !series.to_string().contains(&other_project),
        "{series}"
    );
    for path in ["usage/export?format=jsonl", "usage/export"] {
        let export = get(path).to_string();
        assert!(
            export.contains("req-0") && !export.contains("req-1") && !export.contains("req-2"),
            "{export}"
        );
    }
    gateway.stop();
}

/// Clients choose request IDs, so another project can repeat one.
#[test]
fn a_repeated_request_id_hides_no_record_of_another_project() {
    let mut gateway = Gateway::with_sso();
    let Team { project, other_project, people, keys } = gateway.team();
    for (n, (project, key)) in [(&project, &keys[1]), (&other_project, &keys[4])].into_iter().enumerate() {
        let event = UsageEvent {
            request_id: "req-same".into(),
            key: KeyId::new(key.as_str()),
            project: Some(ProjectId::new(project.as_str())),
            ..event(n as u64)
        };
        assert!(gateway.log.append(&event));
    }
    gateway.wait_stored(2);
    let shown = |person: &Person, query: &str| {
        let path = format!("requests/req-same{query}");
        gateway.ask((Method::GET, &path), &person.headers, &Value::Null)
    };
    let (viewer, stranger) = (&people[3], &people[4]);
    let (_, ours) = shown(viewer, "");
    assert_eq!(ours["project"], project.as_str(), "{ours}");
    assert_eq!(shown(stranger, "").1["project"], other_project.as_str());
    let (_, found) = gateway.ask((Method::GET, "search?q=req-same"), &viewer.headers, &Value::Null);
    assert_eq!(found["data"][0]["id"], "req-same", "{found}");
    let started = |at: &Value| format!("?started_at_ms={at}");
    let theirs = gateway.done(Method::GET, "requests/req-same", &Value::Null);
    assert_eq!(theirs["project"], other_project.as_str(), "the newest one");
    assert_eq!(shown(viewer, &started(&theirs["started_at_ms"])).0, 404);
    let path = format!("requests/req-same{}", started(&ours["started_at_ms"]));
    assert_eq!(gateway.done(Method::GET, &path, &Value::Null)["project"], project.as_str());
    gateway.stop();
}

#[test]
fn a_human_mints_and_changes_keys_as_the_role_permits_and_never_as_another_human() {
    let gateway = Gateway::with_sso();
    let Team { project, other_project, people, keys } = gateway.team();
    let [owner, admin, member, viewer, _] = &people;
    let mint = |person: &Person, project: &str, acts_as: Option<&Person>| {
        let body = json!({"name": "n", "project": project, "acts_as": acts_as.map(|person| &person.id)});
        gateway.ask((Method::POST, "keys"), &person.headers, &body).0
    };
    for (person, acts_as, want) in [
        (owner, None, 201),
        (owner, Some(owner), 201),
        (owner, Some(member), 403),
        (admin, None, 201),
        (member, Some(member), 201),
        (member, None, 403),
        (member, Some(owner), 403),
        (viewer, Some(viewer), 403),
    ] {
        assert_eq!(mint(person, &project, acts_as), want, "{} {acts_as:?}", person.id);
        let elsewhere = mint(person, &other_project, acts_as);
        assert!([403, 404].contains(&elsewhere), "{elsewhere}");
    }
    let limits = json!({"name": "n", "project": project, "limits": [{"metric": "requests", "window": "day",
        "limit": 9, "enforcement": "hard"}]});
    assert_eq!(gateway.ask((Method::POST, "keys"), &owner.headers, &limits).0, 403);
    let [of_owner, of_member, of_viewer, of_nobody, _] = &keys;
    let ask = |person: &Person, method, path: String, body: Value| {
        gateway.ask((method, &path), &person.headers, &body).0
    };
    for (person, key, reveal, rotate, rename) in [
        (owner, of_owner, 200, 201, 200),
        (owner, of_member, 403, 403, 200),
        (owner, of_nobody, 403, 201, 200),
        (member, of_member, 200, 201, 200),
        (member, of_viewer, 403, 403, 403),
        (viewer, of_viewer, 200, 403, 403),
    ] {
        let place = format!("{} {key}", person.id);
        assert_eq!(ask(person, Method::POST, format!("keys/{key}/reveal"), json!({})), reveal, "{place}");
        assert_eq!(
            ask(person, Method::PATCH, format!("keys/{key}"), json!({"name": "b"})),
            rename,
            "{place}"
        );
        assert_eq!(ask(person, Method::POST, format!("keys/{key}/rotate"), json!({})), rotate, "{place}");
    }
    for acts_as in [json!(member.id), Value::Null] {
        let body = json!({"acts_as": acts_as});
        assert_eq!(ask(owner, Method::PATCH, format!("keys/{of_owner}"), body), 403, "{acts_as}");
    }
    let revoke = json!({"state": "revoked"});
    assert_eq!(ask(admin, Method::PATCH, format!("keys/{of_viewer}"), revoke), 200);
    gateway.stop();
}

/// AUTH-5. The key of another human, and that of no human, stay unread by every way that leads to a plain text.
#[test]
fn nobody_reads_the_key_of_another_human_by_changing_whom_it_acts_as() {
    let gateway = Gateway::with_sso();
    let Team { project, people, keys, .. } = gateway.team();
    let [owner, admin, member, ..] = &people;
    let [_, of_member, _, of_nobody, _] = &keys;
    let ask = |person: &Person, method, path: String, body: Value| {
        gateway.ask((method, &path), &person.headers, &body)
    };
    let hand_over = |person: &Person, key: &str, to: &Person| {
        ask(person, Method::PATCH, format!("keys/{key}"), json!({"acts_as": to.id})).0
    };
    let reveal =
        |person: &Person, key: &str| ask(person, Method::POST, format!("keys/{key}/reveal"), json!({})).0;
    for person in [owner, admin] {
        assert_eq!(hand_over(person, of_member, person), 403);
        assert_eq!(reveal(person, of_member), 403);
    }
    assert_eq!(
        ask(member, Method::GET, format!("keys/{of_member}"), Value::Null).1["acts_as"],
        member.id.as_str()
    );
    assert_eq!(reveal(member, of_member), 200, "its own human still may");
    assert_eq!(hand_over(admin, of_nobody, admin), 200);
    assert_eq!(reveal(admin, of_nobody), 409, "no copy is left");
    assert_eq!(hand_over(owner, of_nobody, owner), 403, "it is another human's now");

    let administrators = |key: &str, body: Value| {
        let header = [("x-api-key".to_owned(), ADMIN.to_owned())];
        gateway.ask((Method::PATCH, &format!("keys/{key}")), &header, &body)
    };
    let kept = administrators(of_member, json!({"acts_as": owner.id, "recoverable": true}));
    assert_eq!((kept.0, kept.1["error"]["code"].as_str()), (409, Some("conflict")), "{}", kept.1);
    let (status, handed_over) = administrators(of_member, json!({"acts_as": owner.id}));
    assert_eq!((status, &handed_over["recoverable"]), (200, &json!(false)));
    assert_eq!(reveal(owner, of_member), 409);

    let repeated = |person: &Person, repeats: Option<&str>| {
        let caller = person.clone().with("idempotency-key", "once");
        if let Some(key) = repeats {
            assert_eq!(administrators(key, json!({"acts_as": owner.id})).0, 200);
        }
        ask(
            &caller,
            Method::POST,
            "keys".into(),
            json!({"name": "n", "project": project, "acts_as": person.id}),
        )
        .1
    };
    let minted = repeated(member, None);
    assert!(minted["key"].is_string());
    let again = repeated(member, minted["id"].as_str());
    assert_eq!((&again["id"], &again["key"]), (&minted["id"], &Value::Null), "it is the owner's now");
    gateway.stop();
}

#[test]
fn members_are_changed_by_owners_and_admins_and_owners_only_by_owners() {
    let gateway = Gateway::with_sso();
    let Team { project, people, .. } = gateway.team();
    let [owner, admin, member, viewer, stranger] = &people;
    let put = |by: &Person, whom: &Person, role: &str| {
        let path = format!("projects/{project}/members/{}", whom.id);
        gateway.ask((Method::PUT, &path), &by.headers, &json!({"role": role})).0
    };
    for (by, whom, role, want) in [
        (member, member, "owner", 403),
        (viewer, viewer, "admin", 403),
        (admin, admin, "owner", 403),
        (admin, owner, "viewer", 403),
        (admin, stranger, "member", 200),
        (admin, stranger, "viewer", 200),
        (owner, stranger, "owner", 200),
        (stranger, owner, "admin", 200),
        (owner, stranger, "member", 403),
    ] {
        assert_eq!(put(by, whom, role), want, "{role}");
    }
    let remove = format!("projects/{project}/members/{}", stranger.id);
    assert_eq!(gateway.ask((Method::DELETE, &remove), &admin.headers, &Value::Null).0, 403);
    assert_eq!(
        gateway.ask((Method::PATCH, &format!("projects/{project}")), &stranger.headers, &json!({})).0,
        403
    );
    gateway.stop();
}
