//! The record of one exchange as an operator reads it: times of each attempt, the client and its session, bytes, silence,
//! adaptation, refusal and cancellation (FAIL-8).

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, wait};

async fn get(gateway: &Gateway, path: &str) -> Value {
    gateway.client().get(&format!("/admin/api/{path}")).await.unwrap().json()
}

fn us(record: &Value, member: &str) -> u64 {
    record[member].as_u64().unwrap_or_else(|| panic!("{member} in {record}"))
}

#[tokio::test]
async fn a_pause_between_attempts_is_in_the_trace_and_not_in_gateway_time() {
    const PAUSE_US: u64 = 300_000;
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let error = chat::error("over capacity, sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", "busy");
    let headers = [("content-type", "application/json"), ("retry-after-ms", "300")];
    first.always(Answer::whole(500, &headers, error));
    second.always(Answer::completion("ok"));
    let policies = "retry_max_attempts: 2\ncircuit_failure_threshold: 0";
    let yaml = Yaml::line(&[first.base_url(), second.base_url()]).policies(policies);
    let gateway = Gateway::start(&yaml).await;
    let answer = gateway.client().chat(chat::request("line")).await;
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let steps = record["trace"].as_array().unwrap();
    let places: Vec<_> =
        steps.iter().map(|step| (step["provider"].clone(), step["attempt"].clone())).collect();
    assert_eq!(places, [(json!("p0"), json!(1)), (json!("p0"), json!(2)), (json!("p1"), json!(1))]);
    let end = |step: &Value| us(step, "start_us") + us(step, "spent_us");
    assert!(us(&steps[1], "start_us") >= end(&steps[0]) + PAUSE_US, "{record}");
    assert!(us(&steps[2], "start_us") >= end(&steps[1]), "{record}");
    for failed in &steps[..2] {
        let message = failed["message"].as_str().unwrap();
        assert!(message.starts_with("over capacity, ") && !message.contains("abcdefgh"), "{message}");
        assert_eq!((&failed["retry_after_ms"], &failed["first_content_us"]), (&json!(300), &Value::Null));
    }
    assert_eq!(
        (&steps[2]["message"], &steps[2]["first_content_us"]),
        (&Value::Null, &record["first_content_us"])
    );
    let spent: u64 = steps.iter().map(|step| us(step, "spent_us")).sum();
    assert!(us(&record, "gateway_us") + spent + PAUSE_US <= us(&record, "first_content_us"), "{record}");
    assert_eq!((&record["attempts"], &record["passed_over"]), (&json!(3), &json!(0)));
    assert_eq!(
        (&record["failed_over"], &record["results"]),
        (&json!(true), &json!(["status", "status", "served"]))
    );
}

#[tokio::test]
async fn a_record_shows_the_client_its_session_and_both_lengths() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let of_session = |session: &str| {
        let client = gateway.client().with("user-agent", "claude-cli/2.1.329 (external, cli)");
        client.with("x-claude-code-session-id", session)
    };
    let mut records = Vec::new();
    for (session, body, answer) in [
        ("5e55-one", chat::request("m"), Answer::completion("whole")),
        ("5e55-one", chat::stream_request_with_usage("m"), Answer::events(&chat::events(&["a", "b"]))),
        ("5e55-two", chat::request("m"), Answer::completion("whole")),
    ] {
        upstream.then(answer);
        let answer = of_session(session).chat(body.clone()).await;
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!((&record["client"], &record["protocol"]), (&json!("claude-cli/2.1.329"), &json!("chat")));
        assert_eq!(
            (us(&record, "bytes_in"), us(&record, "bytes_out")),
            (body.len() as u64, answer.body.len() as u64)
        );
        assert_eq!(record["finish"], "stop");
        assert!(!record.to_string().contains("5e55-"), "{record}");
        records.push(record);
    }
    let session = |at: usize| records[at]["session"].as_str().unwrap();
    assert_eq!((session(0), session(0).len()), (session(1), 16));
    assert_ne!(session(0), session(2));
    assert_eq!(records[0]["silence_us_max"], Value::Null, "a whole answer has no silence");
    assert!(records[1]["silence_us_max"].is_u64(), "{}", records[1]);
    for member in ["adapted", "refused_by"] {
        assert_eq!(records[0][member], Value::Null);
    }
    assert_eq!((&records[0]["dropped"], records[0].get("cancelled_by")), (&json!([]), None));
    // Without a header of an agent, the session is that of the affinity key.
    upstream.then(Answer::completion("ok"));
    let answer = gateway.client().with("x-llmgw-affinity-key", "5e55-one").chat(chat::request("m")).await;
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((&record["session"], &record["client"]), (&json!(session(0)), &Value::Null));
}

#[tokio::test]
async fn the_length_of_an_error_is_recorded() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let message = json!({"model": "none", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]});
    for (path, body, status) in [
        ("/v1/chat/completions", chat::request("none"), 404),
        ("/v1/messages", message.to_string(), 404),
        ("/v1/chat/completions", chat::request("m"), 400),
        ("/v1/chat/completions", chat::request("m"), 503),
    ] {
        upstream.always(Answer::error(status));
        let answer = gateway.client().post(path, body).await;
        assert!(answer.status >= 400, "{path} {status}: {answer:?}");
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(us(&record, "bytes_out"), answer.body.len() as u64, "{path} {status}: {record}");
        assert_eq!(record["message"], answer.json()["error"]["message"], "{path} {status}");
    }
}

#[tokio::test]
async fn the_longest_silence_of_a_stream_is_recorded_even_if_it_is_its_last() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let silence = Duration::from_millis(400);
    let gate = Gate::new();
    let end = Answer::stream().chunk(chat::content("a")).wait(&gate);
    for answer in [end.clone().chunk(chat::finish()).chunk(chat::done()).end(), end.close()] {
        upstream.then(answer);
        let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
        let id = flow.headers.get("x-request-id").unwrap().to_str().unwrap().to_owned();
        flow.event().await;
        tokio::time::sleep(silence).await;
        gate.open(1);
        let _ = flow.rest().await;
        let record = gateway.record_of(&id).await;
        assert!(us(&record, "silence_us_max") >= 350_000, "{record}");
        // The coarse clock ticks every few milliseconds.
        assert!(us(&record, "silence_us_max") <= us(&record, "duration_us") + 20_000, "{record}");
    }
}

#[tokio::test]
async fn an_adapted_request_shows_the_targets_protocol_and_what_was_left_out() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let body = json!({"model": "m", "max_tokens": 5, "min_p": 0.1, "new_one": 1,
        "messages": [{"role": "user", "content": "hi"}]});
    let answer = gateway.client().post("/v1/messages", body.to_string()).await;
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((&record["protocol"], &record["adapted"]), (&json!("messages"), &json!("chat")), "{record}");
    let dropped: Vec<_> = answer.header("x-llmgw-dropped").unwrap().split(", ").collect();
    assert_eq!(record["dropped"], json!(dropped));
    assert!(dropped.contains(&"new_one"), "{dropped:?}");
    assert_eq!(record["finish"], "stop");
}

#[tokio::test]
async fn a_refused_request_names_the_quota_and_a_cancelled_one_the_client() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::hang_forever());
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let quota = json!({"subject": {"kind": "key", "id": key.id}, "metric": "requests", "window": "total", "limit": 0});
    let quota = admin.create("quotas", quota).await;
    let client = Client::new(gateway.address(), Some(&key.key));
    let refused = wait::eventually("the quota", async || {
        let sending = client.clone().with("content-type", "application/json");
        let flow = sending.open("POST", "/v1/chat/completions", chat::request("m").into());
        let refused = tokio::time::timeout(Duration::from_secs(5), flow).await.ok()?.ok()?;
        (refused.status == 429).then_some(refused)
    })
    .await;
    let id = refused.headers.get("x-request-id").unwrap().to_str().unwrap().to_owned();
    let record = gateway.record_of(&id).await;
    assert_eq!((&record["refused_by"], &record["attempts"]), (&json!(quota), &json!(0)), "{record}");
    assert!(record["message"].as_str().unwrap().contains("quota"), "{record}");
    assert_eq!(record.get("cancelled_by"), None);
    let flow = gateway.client().with("content-type", "application/json").with("x-request-id", "left");
    let before = upstream.requests().len();
    let running = tokio::spawn(async move {
        flow.open("POST", "/v1/chat/completions", chat::request("m").into()).await.map(drop).ok()
    });
    upstream.request(before).await;
    running.abort();
    let record = gateway.record_of("left").await;
    assert_eq!((&record["outcome"], &record["cancelled_by"]), (&json!("cancelled"), &json!("client")));
    assert_eq!((&record["finish"], &record["message"]), (&Value::Null, &Value::Null));
    assert_eq!((&record["bytes_out"], &record["results"]), (&Value::Null, &json!(["cancelled"])), "{record}");
    assert!(us(&record, "gateway_us") < us(&record, "duration_us"), "{record}");
}

#[tokio::test]
async fn an_export_has_the_members_about_client_and_attempts() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Answer::error(500));
    second.always(Answer::completion("ok"));
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";
    let yaml = Yaml::line(&[first.base_url(), second.base_url()]).policies(policies);
    let gateway = Gateway::start(&yaml).await;
    let client = gateway.client().with("user-agent", "=curl/8.14.1");
    assert_eq!(client.chat(chat::request("line")).await.status, 200);
    let lines = get(&gateway, "usage/export?format=jsonl").await;
    assert_eq!((&lines["client"], &lines["attempts"]), (&json!("=curl/8.14.1"), &json!(2)), "{lines}");
    assert_eq!((&lines["failed_over"], lines.get("trace")), (&json!(true), None));
    let text = gateway.client().get("/admin/api/usage/export?format=csv").await.unwrap().body;
    let text = String::from_utf8(text.to_vec()).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let cell = |name: &str| rows[1][rows[0].iter().position(|column| *column == name).unwrap()];
    assert_eq!(
        (cell("client"), cell("protocol"), cell("failed_over")),
        ("\"'=curl/8.14.1\"", "chat", "true")
    );
    assert_eq!((cell("attempts"), cell("passed_over"), cell("refused_by")), ("2", "0", ""));
    assert_eq!(cell("bytes_in"), lines["bytes_in"].to_string());
}

/// Returns the IDs of the requests that pass a filter, newest first.
async fn found(gateway: &Gateway, filter: &str) -> Vec<String> {
    let page = get(gateway, &format!("requests?{filter}")).await;
    let rows = page["data"].as_array().unwrap_or_else(|| panic!("{filter}: {page}"));
    rows.iter().map(|row| row["request_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn requests_are_found_by_outcome_and_by_any_name() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Answer::error(503));
    second.always(Answer::completion("ok"));
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";
    let yaml = Yaml::line(&[first.base_url(), second.base_url()]).policies(policies);
    let gateway = Gateway::start(&yaml).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue moon").await;
    let key = admin.key(json!({"project": project})).await;
    let client = |id: &str, agent: &str| {
        let client = Client::new(gateway.address(), Some(&key.key)).with("x-request-id", id);
        client.with("user-agent", agent).with("session-id", agent)
    };
    let over = client("over", "claude-cli/2.1.329").chat(chat::request("line")).await;
    let direct = client("direct", "claude-cli/2.2.0 (x)").chat(chat::request("p1/m")).await;
    let refused = gateway.client().with("x-request-id", "refused").chat(chat::request("p0/m")).await;
    assert_eq!((over.status, direct.status, refused.status), (200, 200, 503));
    gateway.records(3).await;
    for (filter, want) in [
        ("failed=true", &["refused"][..]),
        ("failed=false", &["direct", "over"]),
        ("failed_over=true", &["over"]),
        ("failed_over=false&failed=false", &["direct"]),
        ("attempted=p0", &["refused", "over"]),
        ("attempted=p0&provider=p1", &["over"]),
        ("attempted=p2", &[]),
        ("result=status", &["refused", "over"]),
        ("result=served", &["direct", "over"]),
        ("result=timed_out", &[]),
        ("status_class=5", &["refused"]),
        ("status_class=2", &["direct", "over"]),
        ("client=claude-cli", &["direct", "over"]),
        ("client=claude-cli/2.2.0", &["direct"]),
        ("client=claude", &[]),
        ("session=claude-cli/2.1.329", &["over"]),
        ("first_content_us_min=1", &["direct", "over"]),
        ("first_content_us_min=600000000", &[]),
        ("q=over", &["over"]),
        ("q=line", &["over"]),
        ("q=p1", &["direct", "over"]),
        ("q=p1/m", &["direct"]),
        ("q=a+key", &["direct", "over"]),
        ("q=blue+moon", &["direct", "over"]),
        ("q=LUE+m", &["direct", "over"]),
        ("q=green", &[]),
    ] {
        assert_eq!(found(&gateway, filter).await, want, "{filter}");
        let exported = gateway.client().get(&format!("/admin/api/usage/export?format=jsonl&{filter}")).await;
        let lines = String::from_utf8(exported.unwrap().body.to_vec()).unwrap();
        assert_eq!(lines.lines().count(), want.len(), "{filter}: {lines}");
    }
    let session = gateway.record_of("over").await["session"].as_str().unwrap().to_owned();
    assert_eq!(found(&gateway, &format!("session={session}")).await, ["over"]);
    let row = get(&gateway, "requests?q=over").await["data"][0].clone();
    assert_eq!((&row["key_name"], &row["project_name"]), (&json!("a key"), &json!("blue moon")));
    assert_eq!((&row["results"], row.get("trace")), (&json!(["status", "served"]), None));
    for filter in ["failed=maybe", "result=lost", "status_class=10", "first_content_us_min=x"] {
        let answer = gateway.client().get(&format!("/admin/api/requests?{filter}")).await.unwrap();
        let name = filter.split('=').next().unwrap();
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (400, Some(name)), "{filter}");
    }
}

#[tokio::test]
async fn an_error_that_quotes_a_prompt_is_stored_without_it() {
    let upstream = Upstream::start().await;
    let error = "your message 'the private words of Ada' was flagged for `chat/model-1`";
    upstream.always(Answer::json(400, chat::error(error, "flagged")));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let answer = gateway.client().chat(chat::request("m")).await;
    assert_eq!(answer.status, 400);
    assert!(
        answer.json()["error"]["message"].as_str().unwrap().contains("the private words"),
        "the client reads it"
    );
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let stored = "your message '…' was flagged for `chat/model-1`";
    assert_eq!((&record["message"], &record["trace"][0]["message"]), (&json!(stored), &json!(stored)));
    let backup = gateway.setup().output_of(&["backup", "create"], 0).await;
    assert!(backup.contains("gateway.db"), "{backup}");
    let mut folders = vec![gateway.state()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            let words = b"private words";
            assert!(!bytes.windows(words.len()).any(|window| window == words), "{}", entry.path().display());
        }
    }
    assert!(!gateway.log().contains("private words"), "{}", gateway.log());
}
