//! `audit`: contents, filters, and refused requests.

use super::*;

fn create(gateway: &Gateway, name: &str) -> String {
    let body = serde_json::json!({"name": name}).to_string();
    let (status, principal, _) = gateway.send_json(Method::POST, "principals", &body, &[]);
    assert_eq!(status, 201, "{principal}");
    principal["id"].as_str().unwrap().to_owned()
}

fn ids(list: &Value) -> Vec<i64> {
    list["data"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

/// Returns the newest rows once `fits` holds for them; refusals are recorded asynchronously.
fn rows_once(gateway: &Gateway, query: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let list = gateway.get(&format!("/admin/api/audit?{query}"));
        if fits(&list) {
            return list;
        }
        assert!(Instant::now() < until, "{list}");
        std::thread::yield_now();
    }
}

#[test]
fn a_change_is_found_by_each_filter_and_the_newest_comes_first() {
    let gateway = Gateway::start();
    let first = create(&gateway, "Ada");
    let second = create(&gateway, "Bob");
    let edit =
        gateway.send_json(Method::PATCH, &format!("principals/{second}"), r#"{"disabled": true}"#, &[]);
    assert_eq!(edit.0, 200);
    let list = gateway.get("/admin/api/audit");
    assert_eq!(ids(&list), [3, 2, 1]);
    let newest = &list["data"][0];
    assert_eq!(newest["actor"], "admin");
    assert_eq!(newest["address"], "127.0.0.1");
    assert_eq!(newest["detail"]["before"]["disabled"], false);
    assert_eq!(newest["detail"]["after"]["disabled"], true);
    let at = list["data"][1]["at_ms"].as_u64().unwrap();
    for (query, want) in [
        ("actor=admin".to_owned(), vec![3, 2, 1]),
        ("actor=unknown".to_owned(), vec![]),
        ("action=principal.edit".to_owned(), vec![3]),
        ("object=principal".to_owned(), vec![3, 2, 1]),
        (format!("object=principal/{first}"), vec![1]),
        (format!("object={first}"), vec![1]),
        (format!("object={}", &first[..8]), vec![]),
        (format!("object=key/{first}"), vec![]),
        ("outcome=done&limit=1".to_owned(), vec![3]),
        ("outcome=refused".to_owned(), vec![]),
        (format!("from={at}&to={at}"), vec![]),
        (format!("from={}", at - 60_000), vec![3, 2, 1]),
    ] {
        assert_eq!(ids(&gateway.get(&format!("/admin/api/audit?{query}"))), want, "{query}");
    }
    let page = gateway.get("/admin/api/audit?limit=2");
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = gateway.get(&format!("/admin/api/audit?limit=2&cursor={cursor}"));
    assert_eq!((ids(&page), ids(&rest)), (vec![3, 2], vec![1]));
    assert!(rest["next_cursor"].is_null());
    for (query, param) in [("outcome=maybe", "outcome"), ("cursor=x", "cursor"), ("user=x", "user")] {
        let path = format!("/admin/api/audit?{query}");
        let refused = gateway.refusal(Method::GET, &path, &[("x-api-key", ADMIN)]);
        assert_eq!((refused.0, refused.2), (400, param.into()), "{query}");
    }
    gateway.stop();
}

#[test]
fn an_audit_export_has_every_row_in_jsonl_and_csv() {
    let gateway = Gateway::start();
    let count = 1_203;
    let id = create(&gateway, "=Ada, \"the first\"");
    for number in 1..count {
        let edit = format!(r#"{{"name": "{number}"}}"#);
        assert_eq!(gateway.send_json(Method::PATCH, &format!("principals/{id}"), &edit, &[]).0, 200);
    }
    let export = |format: &str| {
        let uri = format!("/admin/api/audit/export?format={format}&object=principal/{id}");
        let request = Request::get(uri).header("x-api-key", ADMIN).body(full("")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let response = runtime.block_on(gateway.handler.handle(request, ([127, 0, 0, 1], 1).into()));
        assert_eq!(response.status(), 200);
        let lines = response.headers()["content-type"] == "application/x-ndjson";
        assert_eq!(lines, format == "jsonl", "as exports of usage");
        let body = runtime.block_on(response.into_body().collect()).unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    };
    let lines = export("jsonl");
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), count);
    assert!(rows.windows(2).all(|pair| pair[0]["id"].as_i64() == pair[1]["id"].as_i64().map(|id| id + 1)));
    let csv = export("csv");
    assert_eq!(csv.matches("\r\n").count(), count + 1);
    assert!(csv.starts_with("id,at,actor,action,"), "{}", &csv[..80]);
    assert!(csv.contains(r#""name"":""=Ada, \""the first\""#), "{}", &csv[csv.len() - 400..]);
    gateway.stop();
}

#[test]
fn refused_requests_share_one_audit_row_with_a_count() {
    let gateway = Gateway::start();
    let wrong = [("x-api-key", "sk-a-wrong-key-that-must-not-be-kept")];
    for _ in 0..20 {
        assert_eq!(gateway.call(Method::GET, "/admin/api/state", &wrong).0, 401);
    }
    let list = rows_once(&gateway, "outcome=refused", |list| !ids(list).is_empty());
    let row = &list["data"][0];
    assert_eq!((row["actor"].as_str(), row["action"].as_str()), (Some("unknown"), Some("access.refuse")));
    assert_eq!(row["object_id"], "GET /admin/api/state");
    assert_eq!(row["detail"]["after"], serde_json::json!({"reason": "invalid_api_key", "count": 1}));
    assert_eq!(
        (row["address"].as_str(), row["request_id"].as_str()),
        (Some("127.0.0.1"), Some("id-of-this"))
    );
    assert_eq!(ids(&list).len(), 1, "a flood is one row until its window is over");
    assert!(!list.to_string().contains("sk-a-wrong"));
    for (path, name) in [
        ("/admin/api/keys/a-key-that-was-pasted-here", "GET /admin/api/keys/{}"),
        ("/admin/api/a-key-that-was-pasted-here", "no such path"),
        ("/admin/api/backups/", "GET /admin/api/backups"),
    ] {
        assert_eq!(crate::admin::route_name(&Method::GET, path), name);
    }
    let odd = Method::from_bytes(b"A-KEY-AS-METHOD").unwrap();
    assert_eq!(crate::admin::route_name(&odd, "/admin/api/state"), "another method /admin/api/state");
    // A stop writes the counts that are still pending.
    let Gateway { control, log, home, .. } = gateway;
    drop(log);
    control.stop();
    let state = crate::db::sqlite_state::open::open(
        &home.path().join("state"),
        &shared::secret::Secret::new([3; 32]),
    )
    .unwrap();
    let refused = "SELECT detail FROM audit WHERE outcome = 'refused'";
    let details: Vec<String> = state.writer.rows(refused, (), |row| row.get(0)).unwrap();
    let count = |detail: &String| serde_json::from_str::<Value>(detail).unwrap()["after"]["count"].as_i64();
    assert_eq!((details.iter().filter_map(count).sum::<i64>(), details.len()), (20, 2));
    assert!(crate::db::chain::verify(&state.writer, &state.keys).unwrap().is_ok());
}
