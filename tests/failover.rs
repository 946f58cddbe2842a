//! Retry, failover, budgets, affinity and circuits (FAIL-1 to FAIL-8, P13): the targets that are tried, their number
//! and order, and the client's answer if all fail.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// Starts `count` upstreams behind the endpoint `line`.
async fn line(count: usize) -> (Gateway, Vec<Upstream>) {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 0\nrate_limit_rest_max_seconds: 0";
    line_with(count, policies).await
}

async fn line_with(count: usize, policies: &str) -> (Gateway, Vec<Upstream>) {
    let mut upstreams = Vec::new();
    for _ in 0..count {
        upstreams.push(Upstream::start().await);
    }
    let urls: Vec<String> = upstreams.iter().map(Upstream::base_url).collect();
    (Gateway::start(&Yaml::line(&urls).policies(policies)).await, upstreams)
}

/// Returns the results in the route trace of a request.
async fn trace(gateway: &Gateway, request_id: &str) -> Vec<(String, String)> {
    let record = gateway.record_of(request_id).await;
    let text = |step: &serde_json::Value, member: &str| step[member].as_str().unwrap_or_default().to_owned();
    let steps = record["trace"].as_array().unwrap_or_else(|| panic!("a trace in {record}"));
    steps.iter().map(|step| (text(step, "provider"), text(step, "result"))).collect()
}

fn steps(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|&(provider, result)| (provider.to_owned(), result.to_owned())).collect()
}

/// M-215: the second target has a timeout of its own.
#[tokio::test]
async fn the_third_target_serves_if_the_first_refuses_and_the_second_hangs() {
    for body in [chat::request("line"), chat::stream_request("line")] {
        let (hanging, third) = (Upstream::start().await, Upstream::start().await);
        hanging.always(Answer::hang_forever());
        if body.contains("stream") {
            third.always(Answer::events(&chat::events(&["third"])));
        } else {
            third.always(Answer::completion("third"));
        }
        let yaml = Yaml::new()
            .provider("p0", refusing_url().await)
            .provider_with("p1", hanging.base_url(), "timeout: 0.3")
            .provider("p2", third.base_url())
            .endpoint("line", &[("p0", "m"), ("p1", "m"), ("p2", "m")]);
        let gateway = Gateway::start(&yaml).await;
        let answer = gateway.client().chat(body).await;
        assert_eq!(answer.status, 200);
        assert!(String::from_utf8_lossy(&answer.body).contains("third"));
        assert_eq!(answer.header("x-llmgw-provider"), Some("p2"));
        assert_eq!(answer.header("x-llmgw-attempts"), Some("3"));
        let id = answer.header("x-request-id").unwrap();
        let expected = steps(&[("p0", "unreachable"), ("p1", "timed_out"), ("p2", "served")]);
        assert_eq!(trace(&gateway, id).await, expected);
        assert_eq!((hanging.requests().len(), third.requests().len()), (1, 1));
        hanging.closed(0).await;
        figure("P13", format!("refuses, hangs, answers: one answer; the trace is {expected:?}"));
    }
}

/// P13: 400, 422 and similar statuses.
#[tokio::test]
async fn a_request_error_never_fails_over() {
    for status in [400, 405, 406, 409, 410, 411, 415, 422] {
        let (gateway, upstreams) = line(2).await;
        upstreams[0].always(Answer::error(status));
        upstreams[1].always(Answer::completion("never"));
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.json()["error"]["message"], "scripted failure", "{status}");
        assert_eq!(upstreams[1].requests().len(), 0, "{status}");
    }
}

/// M-209: the status of the only target reaches the client, with the upstream's message.
#[tokio::test]
async fn the_status_of_a_failed_upstream_is_preserved() {
    let (gateway, upstreams) = line(1).await;
    for status in [400, 401, 403, 404, 408, 409, 422, 429, 500, 502, 503, 504] {
        upstreams[0].then(Answer::error(status));
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.json()["error"]["message"], "scripted failure", "{status}");
    }
}

#[tokio::test]
async fn an_upstream_error_fails_over() {
    let (gateway, upstreams) = line(2).await;
    upstreams[1].always(Answer::completion("second"));
    let statuses = [401, 402, 403, 404, 408, 429, 500, 502, 503, 504, 520, 524, 529];
    for (index, status) in statuses.into_iter().enumerate() {
        upstreams[0].then(Answer::error(status));
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!(answer.status, 200, "{status}");
        assert_eq!(answer.header("x-llmgw-provider"), Some("p1"), "{status}");
        assert_eq!(upstreams[1].requests().len(), index + 1, "{status}");
    }
}

#[tokio::test]
async fn an_invalid_response_fails_over() {
    let events = chat::events(&["a"]).concat();
    let stream = |bytes: &[u8]| Answer::whole(200, &[("content-type", "text/event-stream")], bytes);
    let html = Answer::whole(200, &[("content-type", "text/html")], "<html>busy</html>");
    let two_lengths = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ";
    let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let redirect = Answer::whole(307, &[("location", "http://127.0.0.1:1/")], "");
    let error_event = format!("data: {}\n\n", chat::error("no capacity", "overloaded"));
    let cases = vec![
        ("nothing", Answer::new().close()),
        ("a reset", Answer::new().reset()),
        ("half a head", Answer::new().send("HTTP/1.1 200 OK\r\ncontent-").close()),
        ("not HTTP", Answer::new().send("SSH-2.0-OpenSSH_9.2\r\n").close()),
        ("an HTML page", html),
        ("two lengths", Answer::new().send(two_lengths).close()),
        ("an unsolicited 101", Answer::new().send(switching)),
        ("a redirect", redirect),
        ("an empty stream", stream(b"")),
        ("comments only", stream(b": hello\n\n: bye\n\n")),
        ("a stream with the role only", stream(&chat::role())),
        ("an error event first", stream(error_event.as_bytes())),
        ("an error event after the role", stream(&[&chat::role()[..], error_event.as_bytes()].concat())),
        ("a cut before content", Answer::stream().chunk(chat::role()).close()),
        ("a stream cut in its head", Answer::events(&[&events]).cut_after(60)),
    ];
    for (name, answer) in cases {
        let (gateway, upstreams) = line(2).await;
        upstreams[0].always(answer);
        upstreams[1].always(Answer::events(&chat::events(&["second"])));
        let answer = gateway.client().chat(chat::stream_request("line")).await;
        assert_eq!(answer.status, 200, "{name}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains("second") && text.matches("assistant").count() == 1, "{name}: {text}");
        assert_eq!(upstreams[0].requests().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_cut_short_response_fails_over() {
    let (gateway, upstreams) = line(2).await;
    upstreams[0].always(Answer::completion("first").cut_after(150));
    upstreams[1].always(Answer::completion("second"));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "second");
}

/// P23, for whole answers and for streams.
#[tokio::test]
async fn a_redirect_is_never_followed() {
    let elsewhere = Upstream::start().await;
    elsewhere.always(Answer::completion("elsewhere"));
    for status in [301, 302, 303, 307, 308] {
        let (gateway, upstreams) = line(1).await;
        let location = format!("{}/chat/completions", elsewhere.base_url());
        upstreams[0].always(Answer::whole(status, &[("location", &location)], ""));
        for body in [chat::request("line"), chat::stream_request("line")] {
            let answer = gateway.client().chat(body).await;
            assert_eq!(answer.status, 502, "{status}");
            assert_eq!(answer.header("location"), None, "{status}");
        }
    }
    assert_eq!(elsewhere.requests().len() + elsewhere.connections(), 0);
    figure("P23", "301, 302, 303, 307, 308: 502, and 0 connections to where they point");
}

/// P13: each of them fails over once.
#[tokio::test]
async fn a_hundred_concurrent_requests_fail_over_from_the_first_target() {
    let (gateway, upstreams) = line(2).await;
    upstreams[0].always(Answer::error(503));
    upstreams[1].always(Answer::completion("second"));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let client = gateway.client();
        clients.spawn(async move { client.chat(chat::request("line")).await.status });
    }
    assert_eq!(clients.join_all().await, vec![200; 100]);
    assert_eq!(upstreams[1].requests().len(), 100);
    figure("P13", "100 at once through a failing first target: 100 answers, the second asked 100 times");
}

#[tokio::test]
async fn a_failure_is_retried_on_the_same_target_first() {
    let policies = "retry_max_attempts: 3\nretry_initial_backoff_seconds: 0.01\ncircuit_failure_threshold: 0";
    let (gateway, upstreams) = line_with(2, policies).await;
    upstreams[0].then(Answer::error(503)).then(Answer::error(500)).always(Answer::completion("first"));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!(answer.header("x-llmgw-provider"), Some("p0"));
    assert_eq!(answer.header("x-llmgw-attempts"), Some("3"));
    assert_eq!((upstreams[0].requests().len(), upstreams[1].requests().len()), (3, 0));
}

#[tokio::test]
async fn a_short_retry_after_is_waited_for_and_a_long_one_is_not() {
    let policies = "retry_max_attempts: 2\nretry_initial_backoff_seconds: 0.01\ncircuit_failure_threshold: 0";
    let (gateway, upstreams) = line_with(1, policies).await;
    let limited = |name, value| Answer::whole(429, &[(name, value)], chat::error("slow down", "rate"));
    upstreams[0].then(limited("retry-after-ms", "300")).then(Answer::completion("first"));
    let sent_at = Instant::now();
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!(answer.header("x-llmgw-provider"), Some("p0"));
    assert!(sent_at.elapsed() >= Duration::from_millis(300), "{:?}", sent_at.elapsed());

    upstreams[0].then(limited("retry-after", "60"));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("60")));
    assert_eq!(upstreams[0].requests().len(), 3, "a wait of a minute is not a retry");
}

#[tokio::test]
async fn the_client_gets_the_most_meaningful_failure() {
    let (gateway, upstreams) = line(3).await;
    upstreams[0].always(Answer::whole(429, &[("retry-after", "7")], chat::error("rate limited", "rate")));
    upstreams[1].always(Answer::new().close());
    upstreams[2].always(Answer::error(503));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.json()["error"]["message"], "rate limited");
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(answer.header("x-llmgw-attempts"), Some("3"));
}

#[tokio::test]
async fn an_unreachable_only_target_is_a_bad_gateway() {
    let gateway = Gateway::start(&Yaml::one(refusing_url().await)).await;
    let answer = gateway.client().chat(chat::request("m")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "upstream_unreachable"));
}

#[tokio::test]
async fn a_spent_budget_is_a_gateway_timeout() {
    let (gateway, upstreams) = line(1).await;
    upstreams[0].always(Answer::hang_forever());
    let client = gateway.client();
    let by_header = client.clone().with("x-llmgw-fallback-timeout-ms", "200");
    let in_body = chat::request("line").replacen('{', r#"{"fallback_timeout_ms": 200, "#, 1);
    for (name, client, body) in [("header", by_header, chat::request("line")), ("body", client, in_body)] {
        let sent_at = Instant::now();
        let answer = client.chat(body).await;
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (504, "failover_budget_exhausted"),
            "{name}"
        );
        assert!(sent_at.elapsed() < Duration::from_secs(3), "{name}: {:?}", sent_at.elapsed());
    }
    for index in 0..2 {
        upstreams[0].closed(index).await;
        let sent = upstreams[0].request(index).await;
        assert!(!String::from_utf8_lossy(&sent.body).contains("fallback_timeout_ms"));
        assert_eq!(sent.header("x-llmgw-fallback-timeout-ms"), None);
    }
}

#[tokio::test]
async fn the_time_budget_never_cuts_a_started_response() {
    let (gateway, upstreams) = line(1).await;
    let gate = crate::support::Gate::new();
    let rest = Answer::stream().chunk(chat::content("a")).wait(&gate);
    upstreams[0].always(rest.chunk(chat::finish()).chunk(chat::done()).end());
    let client = gateway.client().with("x-llmgw-fallback-timeout-ms", "100");
    let mut flow = client.chat_flow(chat::stream_request("line")).await;
    flow.event().await;
    // Three times the budget.
    let pause = tokio::time::timeout(Duration::from_millis(300), flow.next()).await;
    assert!(pause.is_err(), "nothing comes while the upstream pauses, not even an end");
    gate.open(1);
    let (rest, whole) = flow.rest().await;
    assert!(whole && rest.last().unwrap().bytes == chat::done());
}

#[tokio::test]
async fn an_affinity_key_always_starts_at_the_same_member() {
    let (gateway, upstreams) = line(3).await;
    for upstream in &upstreams {
        upstream.always(Answer::completion("ok"));
    }
    let mut used = BTreeSet::new();
    for conversation in 0..24 {
        let key = format!("conversation-{conversation}");
        let by_header = gateway.client().with("x-llmgw-affinity-key", &key);
        let in_body = chat::request("line").replacen('{', &format!(r#"{{"affinity_key": "{key}", "#), 1);
        let answers = [
            by_header.chat(chat::request("line")).await,
            by_header.chat(chat::request("line")).await,
            gateway.client().chat(in_body).await,
        ];
        let members: BTreeSet<String> =
            answers.iter().map(|answer| answer.header("x-llmgw-provider").unwrap().to_owned()).collect();
        assert_eq!(members.len(), 1, "{key}: {members:?}");
        used.extend(members);
    }
    assert_eq!(used.len(), 3, "24 conversations use all three members");
    for received in upstreams.iter().flat_map(Upstream::requests) {
        assert!(!String::from_utf8_lossy(&received.body).contains("affinity_key"));
        assert_eq!(received.header("x-llmgw-affinity-key"), None);
    }
}

#[tokio::test]
async fn losing_a_target_moves_only_its_own_conversations() {
    let (gateway, upstreams) = line(3).await;
    for upstream in &upstreams {
        upstream.always(Answer::completion("ok"));
    }
    let member = async |key: &str| {
        let answer = gateway.client().with("x-llmgw-affinity-key", key).chat(chat::request("line")).await;
        answer.header("x-llmgw-provider").unwrap().to_owned()
    };
    let keys: Vec<String> = (0..24).map(|index| format!("conversation-{index}")).collect();
    let mut before = Vec::new();
    for key in &keys {
        before.push(member(key).await);
    }
    upstreams[1].always(Answer::error(503));
    for (key, before) in keys.iter().zip(before) {
        let after = member(key).await;
        assert_eq!(after == before, before != "p1", "{key}: {before} became {after}");
    }
}

#[tokio::test]
async fn an_open_circuit_is_skipped_until_a_restart() {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 2\ncircuit_cooldown_seconds: 600";
    let (gateway, upstreams) = line_with(2, policies).await;
    upstreams[0].always(Answer::error(503));
    upstreams[1].always(Answer::completion("second"));
    let mut last = String::new();
    for _ in 0..5 {
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!(answer.header("x-llmgw-provider"), Some("p1"));
        last = answer.header("x-request-id").unwrap().to_owned();
    }
    assert_eq!(upstreams[0].requests().len(), 2, "two failures open the circuit");
    assert_eq!(trace(&gateway, &last).await, steps(&[("p0", "circuit_open"), ("p1", "served")]));
    let record = gateway.record_of(&last).await;
    let wait_ms = record["trace"][0]["circuit_wait_ms"].as_u64().unwrap();
    assert!((1..=600_000).contains(&wait_ms), "{record}");
    assert_eq!(record["trace"][1].get("circuit_wait_ms"), None, "{record}");

    let gateway = gateway.restart().await;
    upstreams[0].always(Answer::completion("first"));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!(answer.header("x-llmgw-provider"), Some("p0"), "circuits do not outlive the process");
}

#[tokio::test]
async fn a_circuit_closes_after_a_successful_probe() {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 1";
    let (gateway, upstreams) = line_with(1, policies).await;
    upstreams[0].then(Answer::error(503)).always(Answer::completion("back"));
    assert_eq!(gateway.client().chat(chat::request("line")).await.status, 503);
    let refused = gateway.client().chat(chat::request("line")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (503, "no_eligible_target"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(upstreams[0].requests().len(), 1);
    crate::support::wait::eventually("the end of the cooldown", async || {
        (gateway.client().chat(chat::request("line")).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(upstreams[0].requests().len(), 2, "the first request after the cooldown is the probe");
}

#[tokio::test]
async fn wrong_requests_do_not_open_a_circuit() {
    let (gateway, upstreams) = line_with(1, "retry_max_attempts: 1\ncircuit_failure_threshold: 1").await;
    for _ in 0..3 {
        upstreams[0].then(Answer::error(400));
        assert_eq!(gateway.client().chat(chat::request("line")).await.status, 400);
    }
    assert_eq!(upstreams[0].requests().len(), 3);
}

#[tokio::test]
async fn a_connection_closed_while_idle_fails_no_request() {
    // If the upstream closes while a request is in flight, only the upstream knows whether it processed the request.
    // Such a request is sent again as another attempt.
    let policies = "retry_max_attempts: 3\ncircuit_failure_threshold: 1";
    let (gateway, upstreams) = line_with(1, policies).await;
    upstreams[0].always(Answer::completion("ok").close());
    for round in 0..60 {
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!(answer.status, 200, "round {round}: {:?}", answer.body);
    }
    assert_eq!(upstreams[0].requests().len(), 60, "nothing was asked twice");
}

/// A request that was written may have been executed: it is only sent again as another attempt.
#[tokio::test]
async fn a_written_request_is_sent_again_only_as_another_attempt() {
    let half = Answer::new().send("HTTP/1.1 200 OK\r\ncontent-ty").close();
    for (name, ending) in [("no answer", Answer::new().close()), ("half a head", half)] {
        for attempts in [1, 2] {
            let policies = format!(
                "retry_max_attempts: {attempts}\nretry_initial_backoff_seconds: 0.01\ncircuit_failure_threshold: 0"
            );
            let upstream = Upstream::start().await;
            let yaml = Yaml::line(&[upstream.base_url()]).policies(&policies);
            // One worker, so that the second request uses the connection of the first.
            let gateway = Setup::new(&yaml).env("LLMGW_WORKERS", "1").start().await;
            upstream.then(Answer::completion("first")).always(ending.clone());
            assert_eq!(gateway.client().chat(chat::request("line")).await.status, 200, "{name}");
            let answer = gateway.client().chat(chat::request("line")).await;
            assert_eq!(
                (answer.status, answer.error_code().as_str()),
                (502, "upstream_unreachable"),
                "{name}"
            );
            assert_eq!(answer.header("x-llmgw-attempts"), Some(attempts.to_string().as_str()), "{name}");
            assert_eq!(upstream.requests().len(), 1 + attempts, "{name}: one request an attempt");
            assert_eq!(upstream.requests()[1].connection, 0, "{name}: the connection was used before");
        }
    }
}

#[tokio::test]
async fn a_time_budget_of_zero_means_the_default() {
    let (gateway, upstreams) = line(1).await;
    upstreams[0].always(Answer::completion("ok"));
    let by_header = gateway.client().with("x-llmgw-fallback-timeout-ms", "0");
    assert_eq!(by_header.chat(chat::request("line")).await.status, 200);
    let in_body = chat::request("line").replacen('{', r#"{"fallback_timeout_ms": 0, "#, 1);
    assert_eq!(gateway.client().chat(in_body).await.status, 200);
}

/// The upstream's status is kept in every client protocol.
#[tokio::test]
async fn an_upstreams_529_is_kept_on_every_route() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with(
        "up",
        upstream.base_url(),
        "protocols: [chat, responses, messages, embeddings, speech, images]",
    );
    let gateway = Gateway::start(&yaml).await;
    upstream.always(Answer::error(529));
    for (path, members) in [
        ("/v1/chat/completions", r#""messages": [{"role": "user", "content": "x"}]"#),
        ("/v1/responses", r#""input": "x""#),
        ("/v1/messages", r#""max_tokens": 9, "messages": [{"role": "user", "content": "x"}]"#),
        ("/v1/embeddings", r#""input": "x""#),
        ("/v1/audio/speech", r#""input": "x", "voice": "alloy""#),
        ("/v1/images/generations", r#""prompt": "x""#),
    ] {
        let answer = gateway.client().post(path, format!(r#"{{"model": "up/m", {members}}}"#)).await;
        assert_eq!(answer.status, 529, "{path}: {:?}", answer.body);
    }
}
