//! Targets that fit a request, through the real binary: the time to the first content, requests that are too long for a
//! target, and the rules of a provider for errors (FAIL-2, FAIL-3, FAIL-8).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

const ONCE: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 3600";

async fn started(yaml: String) -> Gateway {
    crate::support::gateway::Setup::new(&Yaml::new()).yaml(yaml).start().await
}

/// Two providers of the type `kind` behind the endpoint `line`; `first` are settings of the first one.
fn pair(kind: &str, upstreams: [&Upstream; 2], (first, member): (&str, &str)) -> String {
    let [one, two] = upstreams.map(|upstream| match kind {
        "anthropic" => upstream.base_url().trim_end_matches("/v1").to_owned(),
        _ => upstream.base_url().to_string(),
    });
    let policies = ONCE.replace('\n', ", ");
    format!(
        "policies: {{defaults: {{{policies}}}}}\nproviders:\n  \
         p0: {{type: {kind}, base_url: '{one}', api_key: k0, models: [m], {first}}}\n  \
         p1: {{type: {kind}, base_url: '{two}', api_key: k1, models: [m]}}\n\
         endpoints:\n  line: {{failover: [{{provider: p0, model: m{member}}}, {{provider: p1, model: m}}]}}\n"
    )
}

async fn failures(gateway: &Gateway) -> Value {
    let health = gateway.client().get("/admin/api/health/providers").await.unwrap().json();
    health["data"][0]["circuit"]["failures"].clone()
}

/// Sends a request that must be refused, and returns the words.
async fn refused(admin: &Admin, method: &str, path: &str, body: Value) -> String {
    let answer = admin.call(method, path, body).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    answer.json()["error"]["message"].as_str().unwrap().to_owned()
}

/// A stream that sends events, but no content.
fn thinking() -> Answer {
    Answer::stream().chunk(chat::role()).chunk(": still here\n\n").hang()
}

#[tokio::test]
async fn a_stream_without_content_in_time_moves_on_and_counts_for_no_circuit() {
    for (first, member) in [
        ("first_content_timeout: 0.2", ""),
        ("first_content_timeout: 60", ", first_content_timeout: 0.2"),
        ("timeout: 30", ", first_content_timeout: 0.2"),
    ] {
        let (slow, quick) = (Upstream::start().await, Upstream::start().await);
        slow.always(thinking());
        quick.always(Answer::events(&chat::events(&["hello"])));
        let gateway = started(pair("compatible", [&slow, &quick], (first, member))).await;
        for round in 0..2 {
            let answer = gateway.client().chat(chat::stream_request("line")).await;
            assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")), "{first}");
            let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
            let step = &record["trace"][0];
            assert_eq!((&step["provider"], &step["result"]), (&json!("p0"), &json!("timed_out")), "{record}");
            let message = step["message"].as_str().unwrap();
            assert!(message.contains("first_content_timeout"), "{record}");
            assert!(step["spent_us"].as_u64().unwrap() >= 200_000, "{record}");
            let lost = &step["lost"];
            assert_eq!(lost["cost_micro_usd"], Value::Null, "{record}");
            assert!(lost["tokens"]["input"].as_u64().unwrap() > 0, "{record}");
            assert_eq!(failures(&gateway).await, 0, "no circuit counts it");
            assert_eq!(slow.requests().len(), round + 1, "the circuit stays closed");
        }
    }
}

/// The time is about streams: the content of a whole answer is its end.
#[tokio::test]
async fn a_whole_answer_and_the_rest_of_a_stream_take_their_time() {
    let (slow, quick) = (Upstream::start().await, Upstream::start().await);
    let gate = Gate::new();
    let gateway = started(pair("compatible", [&slow, &quick], ("first_content_timeout: 0.2", ""))).await;
    let whole = chat::completion("late");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        whole.len()
    );
    slow.then(Answer::new().send(head).wait(&gate).send(whole));
    let rest = Answer::stream().chunk(chat::content("a")).wait(&gate);
    slow.then(rest.chunk(chat::content("b")).chunk(chat::finish()).chunk(chat::done()).end());
    for body in [chat::request("line"), chat::stream_request("line")] {
        let opened = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            gate.open(1);
        };
        let client = gateway.client();
        let (answer, ()) = tokio::join!(client.chat(body), opened);
        assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p0")), "{answer:?}");
    }
    assert_eq!(quick.requests().len(), 0);
}

#[tokio::test]
async fn the_order_fastest_counts_a_slow_first_content() {
    let (slow, quick) = (Upstream::start().await, Upstream::start().await);
    slow.always(thinking());
    quick.always(Answer::events(&chat::events(&["hello"])));
    let yaml = pair("compatible", [&slow, &quick], ("first_content_timeout: 0.2", ""));
    let yaml = yaml.replace("line: {failover", "line: {order: fastest, sticky: false, failover");
    let gateway = started(yaml).await;
    for _ in 0..40 {
        let answer = gateway.client().chat(chat::stream_request("line")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let asked = slow.requests().len();
    assert!((1..=5).contains(&asked), "{asked} of 40 began at the slow target");
}

#[tokio::test]
async fn a_hang_is_rehearsed_with_the_time_to_the_first_content() {
    let (slow, quick) = (Upstream::start().await, Upstream::start().await);
    let gateway = started(pair("compatible", [&slow, &quick], ("", ", first_content_timeout: 2.5"))).await;
    for (stream, end) in [(true, 2_500), (false, 60_000)] {
        let question = json!({"path": "/v1/chat/completions", "faults": [{"provider": "p0", "fault": "hang"}],
            "body": {"model": "line", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}});
        let explained = Admin(gateway.client()).done("POST", "explain", question).await;
        let path = &explained["path"];
        assert_eq!(
            (&path[0]["result"], &path[0]["ends_at_ms"]),
            (&json!("timed_out"), &json!(end)),
            "{path}"
        );
        assert_eq!((&path[1]["result"], &path[1]["target"]["provider"]), (&json!("served"), &json!("p1")));
    }
    let mut draft = json!({"name": "line", "failover": [{"provider": "p0", "model": "m", "first_content_timeout": 1},
        {"provider": "p1", "model": "m"}]});
    let question = |draft: &Value| {
        json!({"path": "/v1/chat/completions", "draft": draft,
        "faults": [{"provider": "p0", "fault": "hang"}],
        "body": {"model": "line", "stream": true, "messages": [{"role": "user", "content": "hi"}]}})
    };
    let explained = Admin(gateway.client()).done("POST", "explain", question(&draft)).await;
    assert_eq!(explained["path"][0]["ends_at_ms"], 1_000, "{explained}");
    draft["failover"][0]["first_content_timeout"] = json!(0);
    let answer = refused(&Admin(gateway.client()), "POST", "explain", question(&draft)).await;
    assert!(answer.contains("failover[0].first_content_timeout must be from 0.001 to 86400"), "{answer}");
}

#[tokio::test]
async fn a_target_whose_window_is_too_small_comes_last_but_is_not_skipped() {
    let (small, large) = (Upstream::start().await, Upstream::start().await);
    small.always(Answer::completion("small"));
    large.always(Answer::completion("large"));
    let yaml = pair("compatible", [&small, &large], ("", ""));
    let yaml = yaml.replacen("models: [m]", "models: [{id: m, context_window: 1000}]", 1);
    let gateway = started(yaml).await;
    let asked = async |words: usize, max_tokens: Option<u32>, model: &str| {
        let text = "word ".repeat(words);
        let mut body = json!({"model": model, "messages": [{"role": "user", "content": text}]});
        if let Some(most) = max_tokens {
            body["max_tokens"] = json!(most);
        }
        let explained = Admin(gateway.client())
            .done("POST", "explain", json!({"path": "/v1/chat/completions", "body": body}))
            .await;
        let answer = gateway.client().chat(body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        (answer.header("x-llmgw-provider").unwrap().to_owned(), explained, record)
    };
    for (words, max_tokens, want) in
        [(100, None, "p0"), (100, Some(500), "p0"), (100, Some(990), "p1"), (2_000, None, "p1")]
    {
        let (provider, explained, record) = asked(words, max_tokens, "line").await;
        assert_eq!(provider, want, "{words} {max_tokens:?}");
        let first = &explained["candidates"][0]["provider"];
        assert_eq!(
            (first, explained["candidates"].as_array().unwrap().len()),
            (&json!(want), 2),
            "{explained}"
        );
        if want == "p1" {
            let step = json!({"provider": "p0", "model": "m", "result": "too_long"});
            assert_eq!(record["trace"][0], step, "{record}");
            let passed = json!([{"provider": "p0", "model": "m", "reason": "too_long"}]);
            assert_eq!(explained["passed_over"], passed, "{explained}");
        } else {
            assert_eq!(
                (&record["trace"][0]["result"], &explained["passed_over"]),
                (&json!("served"), &json!([]))
            );
        }
    }
    large.always(Answer::error(500));
    assert_eq!(asked(2_000, None, "line").await.0, "p0", "an estimate never refuses");
    assert_eq!(asked(2_000, None, "p0/m").await.0, "p0");
}

/// A refusal in the form of a protocol, as an error status, in place of an answer, and as an event.
fn refusal(kind: &str, form: &str, words: &str) -> Answer {
    let error = match kind {
        "anthropic" => json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}}),
        _ => json!({"error": {"message": "no", "type": "invalid_request_error", "code": words}}),
    };
    let event = match kind {
        "anthropic" => format!("event: error\ndata: {error}\n\n"),
        _ => format!("data: {error}\n\n"),
    };
    match form {
        "status" => Answer::json(400, error.to_string()),
        "whole" => Answer::json(200, error.to_string()),
        _ => Answer::events(&[event]),
    }
}

fn served(kind: &str, stream: bool) -> Answer {
    match (kind, stream) {
        ("anthropic", false) => Answer::json(
            200,
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "hello"}], "usage": {"input_tokens": 1, "output_tokens": 1}})
            .to_string(),
        ),
        ("anthropic", true) => {
            let events = [
                json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                    "model": "m", "content": [], "usage": {"input_tokens": 1, "output_tokens": 0}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
                json!({"type": "message_stop"}),
            ];
            let text = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
            Answer::events(&events.iter().map(text).collect::<Vec<_>>())
        }
        (_, false) => Answer::completion("hello"),
        (_, true) => Answer::events(&chat::events(&["hello"])),
    }
}

/// Each rule applies to each form of an error, at targets that speak the client's protocol and at others.
#[tokio::test]
async fn a_rule_decides_the_same_for_each_form_of_an_error() {
    for kind in ["compatible", "anthropic"] {
        for form in ["status", "whole", "event"] {
            for (then, status, second, first) in
                [("next", 200, 1, 1), ("retry", 200, 1, 3), ("rest", 200, 1, 1), ("stop", 400, 0, 1)]
            {
                let about = format!("{kind} {form} {then}");
                let (one, two) = (Upstream::start().await, Upstream::start().await);
                one.always(refusal(kind, form, "Data_Inspection_failed: no"));
                let stream = form == "event";
                two.always(served(kind, stream));
                let rules = format!(
                    "errors: [{{contains: other, then: stop}}, {{contains: DATA_inspection_failed, then: {then}}}]"
                );
                let yaml = pair(kind, [&one, &two], (&rules, ""));
                let retries =
                    "retry_max_attempts: 3, retry_initial_backoff_seconds: 0, circuit_failure_threshold: 9";
                let yaml = yaml.replace("retry_max_attempts: 1, circuit_failure_threshold: 1", retries);
                let gateway = started(yaml).await;
                let body = if stream { chat::stream_request("line") } else { chat::request("line") };
                let answer = gateway.client().chat(body).await;
                if form == "status" || then != "stop" {
                    assert_eq!(answer.status, status, "{about}: {answer:?}");
                } else {
                    assert!(answer.status >= 400, "{about}: {answer:?}");
                }
                assert_eq!((one.requests().len(), two.requests().len()), (first, second), "{about}");
                let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
                let message = record["trace"][0]["message"].as_str().unwrap();
                assert!(message.starts_with(&format!("errors[1]: {then}; ")), "{about}: {record}");
                let health = gateway.client().get("/admin/api/health/providers").await.unwrap().json();
                let rests = health["data"][0]["rests"].as_array().unwrap().len();
                assert_eq!(rests, usize::from(then == "rest"), "{about}: {health}");
                if then == "next" || then == "stop" {
                    assert_eq!(health["data"][0]["circuit"]["failures"], 0, "{about}");
                }
            }
        }
    }
}

#[tokio::test]
async fn rules_are_rehearsed_and_take_precedence_over_the_built_in_table() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let rules = "errors: [{status: 400, contains: inspection, then: next}, {status: 500, then: stop}]";
    let gateway = started(pair("compatible", [&one, &two], (rules, ""))).await;
    let admin = Admin(gateway.client());
    let question = |fault: Value| {
        json!({"path": "/v1/chat/completions", "faults": [fault],
        "body": {"model": "line", "messages": [{"role": "user", "content": "hi"}]}})
    };
    for (fault, targets, rule) in [
        (json!({"provider": "p0", "fault": "status", "status": 400}), 1, Value::Null),
        (
            json!({"provider": "p0", "fault": "status", "status": 400, "contains": "DATA INSPECTION failed"}),
            2,
            json!("errors[0]: next"),
        ),
        (
            json!({"provider": "p0", "fault": "status", "status": 400, "contains": "maximum context length is 8192 tokens"}),
            2,
            Value::Null,
        ),
        (json!({"provider": "p0", "fault": "status", "status": 500}), 1, json!("errors[1]: stop")),
    ] {
        let explained = admin.done("POST", "explain", question(fault.clone())).await;
        let path = explained["path"].as_array().unwrap();
        assert_eq!((path.len(), &path[0]["rule"]), (targets, &rule), "{fault}: {explained}");
    }
    let why = refused(
        &admin,
        "POST",
        "explain",
        question(json!({"provider": "p0", "fault": "hang", "contains": "x"})),
    )
    .await;
    assert!(why.contains("contains is for the fault status only"), "{why}");
    // What is rehearsed happens.
    one.always(Answer::json(400, chat::error("Data Inspection failed", "x")));
    two.always(Answer::completion("hello"));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")), "{answer:?}");
    assert_eq!((one.requests().len(), two.requests().len()), (1, 1), "explain asked nobody");
}

/// The API stores the settings, shows them, and refuses what would have no effect.
#[tokio::test]
async fn the_api_stores_limits_and_rules() {
    let gateway = started(String::new()).await;
    let admin = Admin(gateway.client());
    let rules = json!([{"status": 400, "contains": "Inspection", "then": "next"}, {"contains": "busy", "then": "rest"}]);
    let provider = json!({"id": "own", "type": "compatible", "base_url": "http://127.0.0.1:9/v1", "api_key": "k",
        "models": ["m"], "first_content_timeout": 2.5, "errors": rules});
    let made = admin.done("POST", "providers", provider).await;
    assert_eq!((&made["first_content_timeout"], &made["errors"]), (&json!(2.5), &rules), "{made}");
    let endpoint = json!({"name": "line", "failover": [{"provider": "own", "model": "m", "first_content_timeout": 1.5}]});
    admin.done("POST", "endpoints", endpoint.clone()).await;
    let shown = gateway.client().get("/admin/api/endpoints/line").await.unwrap().json();
    assert_eq!(shown["failover"], endpoint["failover"], "{shown}");
    for (change, field) in [
        (json!({"errors": [{"then": "next"}]}), "errors[0]: fits every error"),
        (json!({"errors": [{"status": 400}]}), "errors[0]: then is missing"),
        (
            json!({"errors": [{"status": 400, "then": "next"}, {"status": 400, "contains": "x", "then": "stop"}]}),
            "errors[1]: has no effect: errors[0] fits the same errors",
        ),
        (json!({"errors": [{"status": 200, "then": "next"}]}), "errors[0].status"),
        (json!({"errors": vec![json!({"status": 400, "then": "next"}); 21]}), "errors"),
        (json!({"first_content_timeout": 0}), "first_content_timeout"),
    ] {
        let why = refused(&admin, "PATCH", "providers/own", change.clone()).await;
        assert!(why.contains(field), "{change}: {why}");
    }
    let cleared =
        admin.done("PATCH", "providers/own", json!({"errors": null, "first_content_timeout": null})).await;
    assert_eq!(
        (&cleared["first_content_timeout"], &cleared["errors"]),
        (&Value::Null, &json!([])),
        "{cleared}"
    );
}
