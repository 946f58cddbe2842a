//! Reports: pages, orders, time zones, names of ids, mark-ups and currencies.

use http::Method;
use serde_json::{Value, json};
use shared::id::{KeyId, PrincipalId, ProjectId};
use shared::usage::{Details, UsageEvent};

use super::usage::{exchanges, exported};
use super::{ADMIN, Gateway};
use crate::db::engine::Db;
use crate::usage::tests::event;

/// Returns all pages of a query, with `limit` groups each, and the totals, which are the same on each page.
fn pages(gateway: &Gateway, query: &str, limit: usize) -> (Vec<Value>, Value) {
    let (mut lines, mut cursor, mut totals) = (Vec::new(), String::new(), Value::Null);
    loop {
        let answer = gateway.get(&format!("/admin/api/usage?{query}&limit={limit}&cursor={cursor}"));
        assert!(totals.is_null() || totals == answer["totals"], "each page has the same totals");
        totals = answer["totals"].clone();
        let page = answer["data"].as_array().unwrap();
        lines.extend(page.iter().cloned());
        // A page that takes long may be short.
        assert!(page.len() <= limit, "{}", page.len());
        let Some(next) = answer["next_cursor"].as_str() else { return (lines, totals) };
        cursor = next.to_owned();
    }
}

#[test]
fn the_pages_of_a_report_add_up_to_the_whole_report() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| assert!(gateway.log.append(event)));
    gateway.wait_stored(400);
    let (first, last) = (events[0].started_at_ms + 1, events[399].started_at_ms);
    for query in [
        "group_by=model,key,outcome&bucket=hour".to_owned(),
        format!("group_by=principal,key&bucket=day&from={first}&to={last}"),
        format!("group_by=principal,key&bucket=day&from={first}&to={last}&tz=Asia/Kolkata"),
        "group_by=key,model".to_owned(),
        "bucket=hour".to_owned(),
        "bucket=day&group_by=key&sort=cost".to_owned(),
        "group_by=key,model,outcome&sort=requests&order=asc".to_owned(),
    ] {
        let (want, totals_of_all) = pages(&gateway, &query, 10_000);
        assert!(want.len() > 4, "{query} {}", want.len());
        // Each page reads the report again, so a long one comes in few.
        let least = if want.len() <= 50 { 1 } else { want.len() / 9 };
        for limit in [least, want.len() - 1, want.len()] {
            let (lines, totals) = pages(&gateway, &query, limit);
            assert_eq!((&lines, &totals), (&want, &totals_of_all), "{query} {limit}");
        }
    }
    let (status, _, param) = gateway.refusal(
        Method::GET,
        &format!(
            "/admin/api/usage?group_by=key&sort=cost&cursor={}",
            gateway.get("/admin/api/usage?group_by=key&limit=1")["next_cursor"].as_str().unwrap()
        ),
        &[("x-api-key", ADMIN)],
    );
    assert_eq!((status, param), (400, json!("cursor")), "a cursor belongs to its question");
    gateway.stop();
}

#[test]
fn a_report_by_tag_and_end_user_agrees_with_the_records_in_any_bucket() {
    let mut gateway = Gateway::start();
    let mut want = std::collections::BTreeMap::<(Option<String>, Option<String>), u64>::new();
    for (n, event) in (0_u64..).zip(exchanges()) {
        let tags = (n % 3 > 0).then(|| format!("job={n},team=t{}", n % 3));
        let end_user = (n % 4 > 0).then(|| format!("u{}", n % 4));
        let team = tags.as_ref().map(|_| format!("t{}", n % 3));
        *want.entry((team, end_user.clone())).or_default() += event.tokens.input;
        let (tags, end_user) = (tags.map(Into::into), end_user.map(Into::into));
        gateway.log.append(&UsageEvent { tags, end_user, ..event });
    }
    gateway.wait_stored(400);
    for query in
        ["", "&bucket=hour", "&bucket=day&tz=Asia/Kolkata", "&bucket=week&tz=Europe/Berlin&sort=cost"]
    {
        for limit in [7, 10_000] {
            let query = format!("group_by=tag:team,end_user{query}");
            let (mut lines, mut cursor) = (Vec::new(), String::new());
            loop {
                let path = format!("/admin/api/usage?{query}&limit={limit}&cursor={cursor}");
                let answer = gateway.get(&path);
                lines.extend(answer["data"].as_array().unwrap().iter().cloned());
                let is_whole = cursor.is_empty() && answer["next_cursor"].is_null();
                assert_eq!(answer["totals"].is_null(), !is_whole, "{path}");
                let Some(next) = answer["next_cursor"].as_str() else { break };
                cursor = next.to_owned();
            }
            let mut got = std::collections::BTreeMap::<(Option<String>, Option<String>), u64>::new();
            for line in lines {
                let name = |name: &str| line["group"][name].as_str().map(str::to_owned);
                let input = line["tokens"]["input"].as_u64().unwrap();
                *got.entry((name("tag:team"), name("end_user"))).or_default() += input;
            }
            assert_eq!(got, want, "{query} {limit}");
        }
    }
    gateway.stop();
}

#[test]
fn a_report_by_client_agrees_with_the_records() {
    let mut gateway = Gateway::start();
    let clients = [None, Some("claude-cli/2.1.329"), Some("claude-cli/2.2.0"), Some("OpenAI/Python 2.8.1")];
    let mut want = std::collections::BTreeMap::<Option<&str>, u64>::new();
    for (event, client) in exchanges().into_iter().zip(clients.into_iter().cycle()) {
        *want.entry(client).or_default() += event.tokens.input;
        let details = Details { client: client.map(Into::into), ..event.details.clone() };
        gateway.log.append(&UsageEvent { details, ..event });
    }
    let report = gateway.get("/admin/api/usage?group_by=client");
    let lines = report["data"].as_array().unwrap().iter();
    let got = lines.map(|line| (line["group"]["client"].as_str(), line["tokens"]["input"].as_u64().unwrap()));
    assert_eq!(got.collect::<std::collections::BTreeMap<_, _>>(), want);
    for (filter, wanted) in
        [("claude-cli", &clients[1..3]), ("claude-cli/2.2.0", &clients[2..3]), ("claude", &[])]
    {
        let sum: u64 = wanted.iter().map(|client| want[client]).sum();
        let report = gateway.get(&format!("/admin/api/usage?client={filter}"));
        assert_eq!(report["totals"]["tokens"]["input"], sum, "{filter}");
    }
    gateway.stop();
}

#[test]
fn a_month_by_day_of_very_many_keys_comes_in_pages() {
    let mut gateway = Gateway::start();
    let day = 86_400_000;
    for n in 0..10_500 {
        let started_at_ms = 1_700_000_000_000 + n % 3 * day;
        let key = KeyId::new(format!("k{:05}", n / 3));
        gateway.log.append(&UsageEvent { started_at_ms, key, ..event(n) });
        // Wait before the journal's queue is full, however slow the disk is.
        if n % 1_500 == 1_499 {
            gateway.wait_stored(n + 1);
        }
    }
    let (lines, totals) = pages(&gateway, "group_by=key&bucket=day", 10_000);
    assert_eq!((lines.len(), &totals["requests"]), (10_500, &json!(10_500)), "totals are those of all pages");
    gateway.stop();
}

#[test]
fn groups_are_sorted_by_any_figure() {
    let mut gateway = Gateway::start();
    exchanges().iter().for_each(|event| assert!(gateway.log.append(event)));
    for (sort, path) in [
        ("cost", "/cost_micro_usd"),
        ("requests", "/requests"),
        ("requests_unpriced", "/requests_unpriced"),
        ("tokens", "/tokens/total"),
        ("input_tokens", "/tokens/input"),
        ("cache_read_tokens", "/tokens/cache_read"),
        ("cache_write_tokens", "/tokens/cache_write"),
        ("output_tokens", "/tokens/output"),
        ("reasoning_tokens", "/tokens/reasoning"),
    ] {
        for order in ["", "&order=desc", "&order=asc"] {
            let answer = gateway.get(&format!("/admin/api/usage?group_by=model,key&sort={sort}{order}"));
            let figure = |line: &Value| line.pointer(path).unwrap().as_f64().unwrap();
            let mut figures: Vec<f64> = answer["data"].as_array().unwrap().iter().map(figure).collect();
            assert!(figures.len() > 3, "{sort}");
            if order == "&order=asc" {
                figures.reverse();
            }
            assert!(figures.is_sorted_by(|a, b| a >= b), "{sort}{order} {figures:?}");
        }
    }
    gateway.stop();
}

#[test]
fn a_report_groups_days_in_its_time_zone() {
    let mut gateway = Gateway::start();
    // Five days around the end of summer time in Berlin, with an exchange every 7 minutes.
    let start = 1_792_706_400_000_u64;
    for n in 0..1_000 {
        gateway.log.append(&UsageEvent { started_at_ms: start + n * 420_011, ..event(n) });
    }
    gateway.wait_stored(1_000);
    for zone in ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"] {
        let time_zone = jiff::tz::TimeZone::get(zone).unwrap();
        for bucket in ["hour", "day", "week", "month"] {
            let mut want = std::collections::BTreeMap::<String, u64>::new();
            for n in 0..1_000 {
                let at = jiff::Timestamp::from_millisecond((start + n * 420_011) as i64).unwrap();
                let shown = at.to_zoned(time_zone.clone());
                // An hour that occurs twice in local time counts as two hours.
                let name = match bucket {
                    "hour" => shown.strftime("%F %H %z").to_string(),
                    "day" => shown.strftime("%F").to_string(),
                    "week" => shown.strftime("%G-%V").to_string(),
                    _ => shown.strftime("%Y-%m").to_string(),
                };
                *want.entry(name).or_default() += 1;
            }
            let (lines, _) = pages(&gateway, &format!("bucket={bucket}&tz={zone}"), 10_000);
            let got: Vec<u64> = lines.iter().map(|line| line["requests"].as_u64().unwrap()).collect();
            let mut want: Vec<u64> = want.into_values().collect();
            let mut sorted = got.clone();
            want.sort_unstable();
            sorted.sort_unstable();
            assert_eq!(sorted, want, "{zone} {bucket}");
            let starts: Vec<u64> =
                lines.iter().map(|line| line["bucket_start_ms"].as_u64().unwrap()).collect();
            assert!(starts.is_sorted(), "{starts:?}");
        }
    }
    let berlin = gateway.get("/admin/api/usage?bucket=day&tz=Europe/Berlin&from=2026-10-25&to=2026-10-26");
    assert_eq!(berlin["to_ms"].as_u64().unwrap() - berlin["from_ms"].as_u64().unwrap(), 25 * 3_600_000);
    assert_eq!((&berlin["tz"], berlin["data"].as_array().unwrap().len()), (&json!("Europe/Berlin"), 1));
    assert_eq!(berlin["data"][0]["bucket_start"], "2026-10-25T00:00:00+02:00");
    gateway.stop();
}

#[test]
fn other_time_zones_are_rejected_where_only_day_sums_remain() {
    let mut gateway = Gateway::start();
    let (old, new) = (1_600_000_000_000, 1_700_000_000_000);
    for started_at_ms in [old, new] {
        gateway.log.append(&UsageEvent { started_at_ms, ..event(1) });
    }
    gateway.wait_stored(2);
    let path = gateway.home.path().join("state/gateway.db");
    let db = Db::create(path).unwrap();
    db.batch("DELETE FROM usage_hour WHERE hour < 460000; DELETE FROM usage WHERE last_ms < 1650000000000")
        .unwrap();
    let admin: &[(&str, &str)] = &[("x-api-key", ADMIN)];
    let (status, _, param) =
        gateway.refusal(Method::GET, "/admin/api/usage?bucket=day&tz=Europe/Berlin", admin);
    assert_eq!((status, param), (400, json!("from")));
    let (status, _, param) = gateway.refusal(Method::GET, "/admin/api/usage?group_by=end_user", admin);
    assert_eq!((status, param), (400, json!("from")), "sums of days know no end users");
    let recent = gateway.get("/admin/api/usage?group_by=end_user&from=2023-11-14T00:00:00Z");
    assert_eq!(recent["totals"]["requests"], 1);
    let recent = gateway.get("/admin/api/usage?bucket=day&tz=Europe/Berlin&from=2023-11-14T00:00:00Z");
    assert_eq!(recent["totals"]["requests"], 1);
    assert_eq!(gateway.get("/admin/api/usage?bucket=day")["totals"]["requests"], 2);
    // While old records are being deleted, their hourly sums still exist.
    gateway.log.append(&UsageEvent { started_at_ms: new - 5 * 86_400_000, ..event(3) });
    gateway.wait_stored(3);
    db.batch(
        "UPDATE usage SET first_ms = last_ms, digest = NULL; DELETE FROM usage WHERE last_ms < 1699900000000",
    )
    .unwrap();
    let path = "/admin/api/usage?group_by=end_user&from=2023-11-10T00:00:00Z";
    let (status, _, param) = gateway.refusal(Method::GET, path, admin);
    assert_eq!((status, param), (400, json!("from")));
    gateway.stop();
}

#[test]
fn a_report_charges_a_mark_up_in_another_currency() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| assert!(gateway.log.append(event)));
    let plain = gateway.get("/admin/api/usage?group_by=key,model");
    assert!(plain["charge"].is_null() && plain["totals"]["amount"].is_null());
    let answer =
        gateway.get("/admin/api/usage?group_by=key,model&markup_percent=17.5&currency=EUR&rate=0.9213");
    assert_eq!(answer["charge"], json!({"markup_percent": "17.5", "currency": "EUR", "rate": "0.9213"}));
    assert_eq!(answer["totals"]["cost_micro_usd"], plain["totals"]["cost_micro_usd"]);
    // In units of 1e-16 dollars: nano-dollars times thousandths times ten-thousandths.
    let units = |line: &Value| {
        let (whole, part) = line["amount"].as_str().unwrap().split_once('.').unwrap();
        whole.parse::<u128>().unwrap() * 10_u128.pow(16) + format!("{part:0<16}").parse::<u128>().unwrap()
    };
    let nano: u128 = events.iter().filter_map(|event| event.cost_nano_usd).map(u128::from).sum();
    assert_eq!(units(&answer["totals"]), nano * 1_175 * 9_213);
    let lines: u128 = answer["data"].as_array().unwrap().iter().map(units).sum();
    assert_eq!(lines, units(&answer["totals"]), "amounts add up");
    gateway.stop();
}

#[test]
fn names_are_shown_beside_ids_after_the_objects_are_deleted() {
    let mut gateway = Gateway::start();
    let make = |path: &str, body: &str| {
        let (status, made, _) = gateway.send_json(Method::POST, path, body, &[]);
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    };
    let anna = make("principals", r#"{"name": "Anna", "email": "anna@example.com"}"#);
    let project = make("projects", r#"{"name": "billing"}"#);
    let member = format!("projects/{project}/members/{anna}");
    let (status, text, _) = gateway.send_json(Method::PUT, &member, r#"{"role": "member"}"#, &[]);
    assert!(status.is_success(), "{text}");
    let key = make("keys", &json!({"name": "nightly", "project": project, "acts_as": anna}).to_string());
    gateway.log.append(&UsageEvent {
        key: KeyId::new(key.as_str()),
        project: Some(ProjectId::new(project.as_str())),
        principal: Some(PrincipalId::new(anna.as_str())),
        ..event(1)
    });
    gateway.log.append(&UsageEvent { key: KeyId::new("key_of_nobody"), ..event(2) });
    gateway.wait_stored(2);
    let names = json!({"key": "nightly", "project": "billing", "principal": "Anna",
        "principal_email": "anna@example.com"});
    let check = |gateway: &Gateway| {
        let groups = gateway.get("/admin/api/usage?group_by=key,project,principal&sort=requests&order=asc");
        let of = |key: &str| {
            let lines = groups["data"].as_array().unwrap();
            lines.iter().find(|line| line["group"]["key"] == key).unwrap()["names"].clone()
        };
        assert_eq!(of(&key), names);
        assert!(of("key_of_nobody").as_object().unwrap().values().all(Value::is_null));
        let rows = gateway.get("/admin/api/requests")["data"].clone();
        let row = rows.as_array().unwrap().iter().find(|row| row["key"] == *key).unwrap();
        let id = row["request_id"].as_str().unwrap();
        for row in [row, &gateway.get(&format!("/admin/api/requests/{id}"))] {
            for (field, name) in [
                ("key_name", "nightly"),
                ("project_name", "billing"),
                ("principal_name", "Anna"),
                ("principal_email", "anna@example.com"),
            ] {
                assert_eq!(row[field], name, "{row}");
            }
        }
        assert!(
            exported(gateway, "format=jsonl").contains(r#""key_name":"nightly","project_name":"billing""#)
        );
        let table = exported(gateway, "format=csv");
        assert!(table.contains(",key_name,project_name,principal_name,principal_email"), "{table}");
        assert!(table.contains(",nightly,billing,Anna,anna@example.com"), "{table}");
        assert!(gateway.get("/admin/api/usage?group_by=model")["data"][0]["names"].is_null());
    };
    check(&gateway);
    let gone = |path: String| {
        let (status, text, _) = gateway.send_json(Method::DELETE, &path, "", &[]);
        assert!(status.is_success(), "{path} {text}");
    };
    let (status, text, _) =
        gateway.send_json(Method::PATCH, &format!("keys/{key}"), r#"{"state": "revoked"}"#, &[]);
    assert!(status.is_success(), "{text}");
    gone(format!("keys/{key}"));
    gone(format!("projects/{project}"));
    gone(format!("principals/{anna}"));
    check(&gateway);
    gateway.stop();
}

#[test]
fn a_report_is_of_the_time_that_its_offsets_name() {
    let mut gateway = Gateway::start();
    // 23:30 UTC on 14 November 2023.
    for (n, started_at_ms) in
        [1_700_004_600_000, 1_700_004_601_000, 1_700_100_000_000].into_iter().enumerate()
    {
        assert!(gateway.log.append(&UsageEvent { started_at_ms, ..event(n as u64) }));
    }
    gateway.wait_stored(3);
    for (from, to) in [
        ("2023-11-14T23:30:00Z", "2023-11-14T23:31:00Z"),
        ("2023-11-15T05:00:00%2B05:30", "2023-11-15T05:01:00%2B05:30"),
        ("2023-11-15T05:00:00+05:30", "2023-11-15T05:01:00+05:30"),
        ("2023-11-14T20:00:00-03:30", "2023-11-14T20:01:00-03:30"),
    ] {
        for (path, zone) in [("usage", ""), ("usage", "&tz=Europe/Berlin"), ("requests", "")] {
            let answer = gateway.get(&format!("/admin/api/{path}?from={from}&to={to}{zone}"));
            let found = match path {
                "usage" => answer["totals"]["requests"].clone(),
                _ => json!(answer["data"].as_array().unwrap().len()),
            };
            assert_eq!(found, 2, "{path} {from} {zone} {answer}");
        }
    }
    gateway.stop();
}
