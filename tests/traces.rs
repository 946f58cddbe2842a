//! Traces of requests, exported by OTLP: spans, trace contexts of clients and upstreams, sampling, and collectors that fail.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::config::Yaml;
use crate::support::gateway::Setup;
use crate::support::otlp::{SentSpan, received, spans};
use crate::support::{Answer, Client, Gateway, Upstream, chat, wait};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const SECRET: &str = "planted-secret-of-a-collector-77a1";

/// Starts a collector that accepts everything.
async fn collector() -> Upstream {
    let collector = Upstream::start().await;
    collector.always(Answer::whole(200, &[("content-type", "application/x-protobuf")], ""));
    collector
}

/// Returns a setup that exports traces every 100 ms.
fn traced(yaml: &Yaml, collector: &Upstream) -> Setup {
    Setup::new(yaml)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address()))
        .env("OTEL_METRICS_EXPORTER", "none")
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
}

/// Starts an upstream that answers every request.
async fn answering() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    upstream
}

fn parent(version: &str, flags: &str) -> String {
    format!("{version}-{TRACE}-{SPAN}-{flags}")
}

async fn state(gateway: &Gateway) -> Value {
    gateway.client().get("/admin/api/state").await.unwrap().json()["traces"].clone()
}

/// Ends a gateway, which exports what waits.
async fn end(mut gateway: Gateway) {
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success(), "{}", gateway.log());
}

fn by_kind(spans: &[SentSpan], kind: u64) -> Vec<&SentSpan> {
    spans.iter().filter(|span| span.kind == kind).collect()
}

#[tokio::test]
async fn a_streamed_request_with_failover_is_a_span_with_a_child_for_each_attempt() {
    let (collector, first, second) = (collector().await, Upstream::start().await, Upstream::start().await);
    first.always(Answer::error(503));
    let events = [chat::role(), chat::content("hi"), chat::finish(), chat::usage(), chat::done()];
    second.always(Answer::events(&events));
    let yaml = Yaml::new()
        .provider("p0", first.base_url())
        .provider_with("p1", second.base_url(), "trace_context: true\nregistry_id: groq")
        .endpoint("line", &[("p0", "m"), ("p1", "m")]);
    let setup = traced(&yaml, &collector)
        .env("OTEL_SERVICE_NAME", "edge")
        .env("OTEL_RESOURCE_ATTRIBUTES", "service.name=lost,deployment.environment.name=a%20b");
    let gateway = setup.start().await;
    let client = gateway.client().with("traceparent", &parent("00", "01")).with("tracestate", "vendor=1");
    let answer = client.with("user-agent", "aider/1.2").chat(chat::stream_request_with_usage("line")).await;
    assert_eq!(answer.status, 200);

    let all = received(&collector, 3).await;
    let [request] = by_kind(&all, 2)[..] else { panic!("{all:?}") };
    let [failed, served] = by_kind(&all, 3)[..] else { panic!("{all:?}") };
    assert_eq!((&*request.parent, &*request.name), (SPAN, "POST /v1/chat/completions"));
    assert_eq!((request.flags, request.status, &*request.state), (0x301, 0, "vendor=1"));
    for attempt in [failed, served] {
        assert_eq!((&attempt.parent, attempt.flags), (&request.id, 0x101));
        assert_eq!((&*attempt.trace, &*attempt.name), (TRACE, "chat m"));
        assert!(attempt.start_ns >= request.start_ns && attempt.end_ns <= request.end_ns, "{attempt:?}");
    }
    assert!(failed.end_ns <= served.start_ns && served.end_ns == request.end_ns, "{all:?}");
    assert_ne!(failed.id, served.id);
    attributes_of_request(request, answer.header("x-request-id").unwrap());
    attributes_of_attempts((failed, first.address().port()), (served, second.address().port()));
    assert!(served.attribute("gen_ai.response.time_to_first_chunk").parse::<f64>().unwrap() > 0.0);
    assert_eq!((failed.status, served.status), (2, 0));

    // The trace goes on at the upstream that may receive it, and at no other one.
    let (refused, streamed) = (first.request(0).await, second.request(0).await);
    assert_eq!(refused.headers("traceparent").len() + refused.headers("tracestate").len(), 0);
    assert_eq!(streamed.header("traceparent"), Some(&*format!("00-{TRACE}-{}-01", served.id)));
    assert_eq!(streamed.header("tracestate"), Some("vendor=1"));

    let (resource, _) = spans(&collector.request(0).await);
    assert_eq!((&*resource["service.name"], &*resource["deployment.environment.name"]), ("edge", "a b"));
    assert_eq!(collector.request(0).await.head.lines().next(), Some("POST /v1/traces HTTP/1.1"));
    assert_eq!(collector.request(0).await.header("content-type"), Some("application/x-protobuf"));
}

fn attributes_of_request(request: &SentSpan, id: &str) {
    for (key, want) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/chat/completions"),
        ("http.response.status_code", "200"),
        ("llmgw.request.id", id),
        ("llmgw.outcome", "completed"),
        ("llmgw.endpoint", "line"),
        ("user_agent.name", "aider"),
        ("user_agent.version", "1.2"),
        ("error.type", ""),
        ("gen_ai.usage.input_tokens", ""),
    ] {
        assert_eq!(request.attribute(key), want, "{key}");
    }
}

/// Checks the attempt that failed and the one that served, each with the port of its upstream.
fn attributes_of_attempts((failed, failed_port): (&SentSpan, u16), (served, served_port): (&SentSpan, u16)) {
    let common =
        [("gen_ai.operation.name", "chat"), ("gen_ai.request.model", "m"), ("gen_ai.request.stream", "true")];
    let of_failed = [
        ("llmgw.provider.id", "p0"),
        ("gen_ai.provider.name", "openai"),
        ("server.address", "127.0.0.1"),
        ("server.port", &failed_port.to_string()),
        ("http.response.status_code", "503"),
        ("error.type", "503"),
        ("gen_ai.usage.input_tokens", ""),
    ];
    let of_served = [
        ("llmgw.provider.id", "p1"),
        ("gen_ai.provider.name", "groq"),
        ("server.port", &served_port.to_string()),
        ("http.response.status_code", "200"),
        ("error.type", ""),
        ("gen_ai.response.finish_reasons", "[stop]"),
        ("gen_ai.usage.input_tokens", "11"),
        ("gen_ai.usage.output_tokens", "7"),
        ("llmgw.usage.provenance", "reported"),
    ];
    for (span, own) in [(failed, &of_failed[..]), (served, &of_served[..])] {
        for (key, want) in common.iter().chain(own) {
            assert_eq!(span.attribute(key), *want, "{key} of {}", span.attribute("llmgw.provider.id"));
        }
    }
}

#[tokio::test]
async fn the_sampler_and_the_client_decide_what_is_traced() {
    for (sampler, share, client, is_exported, upstream_flag) in [
        ("parentbased_always_on", "", Some("01"), true, "01"),
        ("parentbased_always_on", "", Some("00"), false, "00"),
        ("parentbased_always_on", "", None, true, "01"),
        ("parentbased_always_off", "", Some("01"), true, "01"),
        ("parentbased_traceidratio", "0", None, false, "00"),
        ("traceidratio", "0", Some("01"), false, "00"),
        ("traceidratio", "1", Some("00"), true, "01"),
        ("always_off", "", Some("01"), false, "00"),
    ] {
        let (collector, upstream) = (collector().await, answering().await);
        let yaml = Yaml::new().provider_with("up", upstream.base_url(), "trace_context: true");
        let setup = traced(&yaml, &collector).env("OTEL_TRACES_SAMPLER", sampler);
        let gateway = setup.env("OTEL_TRACES_SAMPLER_ARG", share).start().await;
        let caller = match client {
            Some(flags) => gateway.client().with("traceparent", &parent("00", flags)),
            None => gateway.client(),
        };
        assert_eq!(caller.chat(chat::request("m")).await.status, 200);
        let sent = upstream.request(0).await;
        let header = sent.header("traceparent").unwrap();
        assert_eq!(header.rsplit('-').next(), Some(upstream_flag), "{sampler} {client:?}");
        assert_eq!(header.contains(TRACE), client.is_some(), "{sampler} {client:?}: {header}");
        end(gateway).await;
        assert_eq!(!collector.requests().is_empty(), is_exported, "{sampler} {client:?}");
    }
}

#[tokio::test]
async fn a_trace_context_that_is_not_valid_is_not_continued() {
    let (collector, upstream) = (collector().await, answering().await);
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "trace_context: true");
    let invalid = ["00-zz", &parent("ff", "01"), &parent("00", "01-x"), &"0".repeat(4_000)];
    let gateway = traced(&yaml, &collector).start().await;
    for (index, text) in invalid.into_iter().enumerate() {
        let client = gateway.client().with("traceparent", text).with("tracestate", "vendor=1");
        assert_eq!(client.chat(chat::request("m")).await.status, 200);
        let sent = upstream.request(index).await;
        assert!(!sent.header("traceparent").unwrap().contains(TRACE), "{text}");
        assert_eq!(sent.header("tracestate"), None, "{text}");
    }
    let client = gateway.client().with("traceparent", &parent("00", "01")).with("tracestate", "not valid");
    assert_eq!(client.chat(chat::request("m")).await.status, 200);
    let sent = upstream.request(invalid.len()).await;
    assert!(sent.header("traceparent").unwrap().contains(TRACE) && sent.header("tracestate").is_none());
    let all = received(&collector, 2 * invalid.len() + 2).await;
    assert_eq!(by_kind(&all, 2).iter().filter(|span| span.parent.is_empty()).count(), invalid.len());
    drop(gateway);

    let off = traced(&yaml, &collector).env("OTEL_PROPAGATORS", "none").start().await;
    let client = off.client().with("traceparent", &parent("00", "00"));
    assert_eq!(client.chat(chat::request("m")).await.status, 200);
    assert_eq!(upstream.request(invalid.len() + 1).await.headers("traceparent").len(), 0);
    received(&collector, 2 * invalid.len() + 4).await;
}

#[tokio::test]
async fn skipped_targets_and_broken_answers_are_in_the_spans() {
    let (collector, upstream) = (collector().await, Upstream::start().await);
    let cut = Answer::stream().chunk(chat::role()).chunk(chat::content("half")).close();
    upstream.always(cut);
    let yaml = Yaml::new()
        .provider_with("blind", upstream.base_url(), "models: [{id: m, vision: false}]")
        .provider("up", upstream.base_url())
        .endpoint("line", &[("blind", "m"), ("up", "m")]);
    let gateway = traced(&yaml, &collector).start().await;
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let body = json!({"model": "line", "stream": true, "messages": [{"role": "user", "content": [image]}]});
    gateway.client().chat(body.to_string()).await;
    let all = received(&collector, 2).await;
    let ([request], [attempt]) = (&by_kind(&all, 2)[..], &by_kind(&all, 3)[..]) else { panic!("{all:?}") };
    assert_eq!(request.events.len(), 1);
    assert_eq!(request.events[0]["llmgw.provider.id"], "blind");
    assert_eq!(request.events[0]["llmgw.result"], "no_vision");
    assert_eq!((request.attribute("llmgw.outcome"), request.status, attempt.status), ("cut", 2, 2));
    assert_eq!(attempt.attribute("error.type"), "upstream_cut");
}

#[tokio::test]
async fn a_collector_that_fails_delays_no_answer_and_gets_the_spans_when_it_recovers() {
    let (collector, upstream) = (Upstream::start().await, answering().await);
    collector
        .then(Answer::error(503))
        .then(Answer::new().send("SSH-2.0-OpenSSH_9.2\r\n").close())
        .then(Answer::whole(429, &[("retry-after", "1")], "slow down"))
        .then(Answer::whole(200, &[], "\u{1}garbage"));
    collector.always(Answer::whole(200, &[], ""));
    let gateway = traced(&Yaml::one(upstream.base_url()), &collector).start().await;
    for _ in 0..3 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    collector.request(0).await;
    wait::eventually("the failure", async || {
        let state = state(&gateway).await;
        (state["failing_error"].is_string() || state["exported_spans"] == 6).then_some(())
    })
    .await;
    let done = wait::eventually("the export", async || {
        Some(state(&gateway).await).filter(|state| state["exported_spans"] == 6)
    })
    .await;
    assert_eq!((&done["failing_error"], &done["failed_spans"]), (&Value::Null, &json!(0)), "{done}");
    let asked = (collector.request(2).await.at, collector.request(3).await.at);
    assert!(asked.1 - asked.0 >= Duration::from_millis(900), "Retry-After holds");
    gateway.logs("cannot export traces").await;
    gateway.logs("traces are exported again").await;

    collector.then(Answer::error(400));
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    let done = wait::eventually("the refusal", async || {
        Some(state(&gateway).await).filter(|state| state["failed_spans"] == 2)
    })
    .await;
    assert_eq!(done["failing_error"], "the collector returned status 400");
    let partial = [&[0x0a, 0x04, 0x08, 0x01, 0x12, 0x00][..]].concat();
    collector.then(Answer::whole(200, &[], partial));
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    let done = wait::eventually("the rejection", async || {
        Some(state(&gateway).await).filter(|state| state["rejected_spans"] == 1)
    })
    .await;
    assert_eq!((&done["exported_spans"], &done["failing_since_ms"]), (&json!(7), &Value::Null));
}

#[tokio::test]
async fn the_queue_of_a_collector_that_hangs_is_bounded_and_dropped_spans_are_counted() {
    let (collector, upstream) = (Upstream::start().await, answering().await);
    collector.always(Answer::hang_forever());
    let setup = traced(&Yaml::one(upstream.base_url()), &collector)
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "3")
        .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000");
    let mut gateway = setup.start().await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    collector.request(0).await;
    for _ in 0..8 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    // One exchange is being exported, and three wait.
    assert_eq!(state(&gateway).await["dropped_spans"], 10);
    wait::eventually("the metric", async || {
        let text = gateway.client().get("/metrics").await.ok()?;
        let text = String::from_utf8(text.body.to_vec()).ok()?;
        text.contains("llmgw_otlp_spans_total{result=\"dropped\"} 10").then_some(())
    })
    .await;
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    gateway.logs("the collector did not accept the last telemetry in time").await;
}

#[tokio::test]
async fn a_full_batch_is_exported_at_once() {
    let (collector, upstream) = (collector().await, answering().await);
    let setup = traced(&Yaml::one(upstream.base_url()), &collector)
        .env("OTEL_BSP_SCHEDULE_DELAY", "600000")
        .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2");
    let gateway = setup.start().await;
    for nth in 0..2 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
        assert_eq!(spans(&collector.request(nth).await).1.len(), 2, "the request and its attempt");
    }
}

/// The export of metrics, which is due long after that of spans and before their default delay of 5 s, tells the time.
#[tokio::test]
async fn few_spans_are_exported_after_the_delay() {
    let (collector, upstream) = (collector().await, answering().await);
    let setup = traced(&Yaml::one(upstream.base_url()), &collector)
        .env("OTEL_METRICS_EXPORTER", "otlp")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "4000");
    let gateway = setup.start().await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    assert!(collector.request(0).await.head.starts_with("POST /v1/traces "));
    assert!(collector.request(1).await.head.starts_with("POST /v1/metrics "));
}

#[tokio::test]
async fn an_export_ends_after_its_timeout() {
    let (collector, upstream) = (Upstream::start().await, answering().await);
    collector.then(Answer::hang_forever()).always(Answer::whole(200, &[], ""));
    let setup = traced(&Yaml::one(upstream.base_url()), &collector).env("OTEL_EXPORTER_OTLP_TIMEOUT", "200");
    let gateway = setup.start().await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    collector.request(0).await;
    // It is sent again long before the default timeout of 10 s.
    wait::within(Duration::from_secs(8), "the second try", collector.request(1)).await;
}

#[tokio::test]
async fn a_stop_exports_what_waits() {
    let (collector, upstream) = (collector().await, answering().await);
    let setup = traced(&Yaml::one(upstream.base_url()), &collector)
        .env("OTEL_BSP_SCHEDULE_DELAY", "600000")
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{}/own/path?x=1", collector.address()));
    let gateway = setup.start().await;
    let answer = gateway.client().chat(chat::request("m")).await;
    gateway.record_of(answer.header("x-request-id").unwrap()).await;
    end(gateway).await;
    assert_eq!(spans(&collector.request(0).await).1.len(), 2);
    assert_eq!(collector.request(0).await.head.lines().next(), Some("POST /own/path?x=1 HTTP/1.1"));
    assert_eq!(collector.requests().len(), 1, "metrics are not exported");
}

#[tokio::test]
async fn the_headers_of_the_collector_are_shown_nowhere() {
    let (collector, upstream) = (Upstream::start().await, answering().await);
    collector.then(Answer::error(401)).always(Answer::whole(200, &[], SECRET));
    let setup = traced(&Yaml::one(upstream.base_url()), &collector)
        .env("OTEL_EXPORTER_OTLP_HEADERS", format!("api-key={SECRET},x-tenant=a%20b"))
        .env("LLMGW_LOG", "debug");
    let gateway = setup.start().await;
    for _ in 0..2 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    wait::eventually("the exports", async || {
        let state = state(&gateway).await;
        (state["failed_spans"].as_u64()? + state["exported_spans"].as_u64()? == 4).then_some(())
    })
    .await;
    let sent = collector.request(0).await;
    assert_eq!((sent.header("api-key"), sent.header("x-tenant")), (Some(SECRET), Some("a b")));
    let config = gateway.client().get("/admin/api/config").await.unwrap().json();
    let settings = config["settings"].as_array().unwrap();
    let of = |name: &str| settings.iter().find(|setting| setting["name"] == name).unwrap();
    assert_eq!(of("OTEL_EXPORTER_OTLP_HEADERS")["value"], "••••");
    assert_eq!(of("OTEL_BSP_SCHEDULE_DELAY")["source"], "environment");
    assert_eq!(
        gateway
            .client()
            .with("content-type", "application/json")
            .send("POST", "/admin/api/backups", "{}".into())
            .await
            .unwrap()
            .status
            / 100,
        2
    );
    let shown = [config.to_string(), state(&gateway).await.to_string(), gateway.log()].concat();
    assert!(!shown.contains(SECRET), "{shown}");
    let mut folders = vec![gateway.state()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let bytes = std::fs::read(&entry).unwrap_or_default();
                assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()), "{entry:?}");
            }
        }
    }
}

#[tokio::test]
async fn wrong_settings_of_the_export_prevent_a_start_only_while_it_is_on() {
    let wrong = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be one of http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no pair", "must be pairs such as"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "must be a whole number"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "must be one of always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "10%", "must be a share"),
        ("OTEL_PROPAGATORS", "b3", "must be tracecontext or none"),
        ("OTEL_RESOURCE_ATTRIBUTES", "word", "pairs such as"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "must be a whole number"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "x", "must be a whole number"),
    ];
    let ratio = |setup: Setup| setup.env("OTEL_TRACES_SAMPLER", "traceidratio");
    for (name, value, want) in wrong {
        let setup = ratio(Setup::new(&Yaml::new())).env(name, value);
        let off = setup.run(&["config", "check"]).await;
        assert!(off.status.success(), "{name} without an endpoint");
        let on = ratio(Setup::new(&Yaml::new()))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
            .env(name, value);
        let output = on.run(&["config", "check"]).await;
        let text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(
            !output.status.success() && text.contains(&format!("{name}: ")) && text.contains(want),
            "{text}"
        );
        assert!(!text.contains("no pair"), "{text}");
        let disabled = on.env("OTEL_SDK_DISABLED", "true").run(&["config", "check"]).await;
        assert!(disabled.status.success(), "{name} while OpenTelemetry is disabled");
    }
    let collector = collector().await;
    let upstream = answering().await;
    let gateway =
        traced(&Yaml::one(upstream.base_url()), &collector).env("OTEL_SDK_DISABLED", "true").start().await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    assert_eq!(state(&gateway).await, Value::Null);
    end(gateway).await;
    assert_eq!(collector.connections(), 0);
}

#[tokio::test]
async fn a_request_that_is_refused_before_routing_is_one_span() {
    let (collector, upstream) = (collector().await, answering().await);
    let yaml = Yaml::one(upstream.base_url());
    let gateway = traced(&yaml, &collector).env("LLMGW_MAX_REQUEST_BODY_BYTES", "2000").start().await;
    let stranger =
        Client::new(gateway.address(), Some("llmgw_of-nobody")).with("traceparent", &parent("00", "01"));
    let (key, large) = (gateway.client(), chat::request(&"m".repeat(2_000)));
    let cases = [
        (&stranger, "POST", "/v1/chat/completions", chat::request("m"), 401, "invalid_key"),
        (&stranger, "GET", "/v1/models", String::new(), 401, "invalid_key"),
        (&key, "GET", "/v1/chat/completions", String::new(), 405, "method_not_allowed"),
        (&key, "BREW", "/v1/embeddings", String::new(), 405, "method_not_allowed"),
        (&key, "POST", "/v1/nothing", "{}".to_owned(), 404, "not_found"),
        (&key, "GET", "/nothing", String::new(), 404, "not_found"),
        (&key, "POST", "/v1/messages", "no JSON".to_owned(), 400, "invalid_request"),
        (&key, "POST", "/v1/chat/completions", large, 413, "body_too_large"),
    ];
    let mut ids = Vec::new();
    for (client, method, path, body, status, _) in &cases {
        let client = (*client).clone().with("content-type", "application/json");
        let answer = client.send(method, path, body.clone().into()).await.unwrap();
        assert_eq!(answer.status, *status, "{method} {path}: {answer:?}");
        ids.push(answer.header("x-request-id").unwrap().to_owned());
    }
    // These have no span, or one with an attempt, as before.
    for path in ["/health", "/ready", "/metrics", "/admin/api/state", "/admin/api/none", "/console"] {
        gateway.client().get(path).await.unwrap();
    }
    Client::new(gateway.address(), Some("x")).get("/admin/api/state").await.unwrap();
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    end(gateway).await;
    let all = received(&collector, cases.len() + 2).await;
    assert_eq!(all.len(), cases.len() + 2, "{all:?}");
    for ((_, method, path, _, status, error), id) in cases.iter().zip(&ids) {
        let found: Vec<_> = all.iter().filter(|span| span.attribute("llmgw.request.id") == id).collect();
        let [span] = found[..] else { panic!("{method} {path}: {found:?}") };
        let route = path.strip_suffix("/nothing").map_or(*path, |_| "");
        let known = if *method == "BREW" { "_OTHER" } else { method };
        let verb = if *method == "BREW" { "HTTP" } else { method };
        assert_eq!(span.name, format!("{verb} {route}").trim_end(), "{span:?}");
        for (key, want) in [
            ("http.request.method", known),
            ("http.route", route),
            ("http.response.status_code", &*status.to_string()),
            ("error.type", error),
        ] {
            assert_eq!(span.attribute(key), want, "{method} {path}: {key}");
        }
        assert_eq!(
            (span.kind, span.status, span.attributes.len()),
            (2, 0, 5 - usize::from(route.is_empty()))
        );
        assert!(span.end_ns >= span.start_ns && span.start_ns > 0, "{span:?}");
        let is_child = *status == 401;
        assert_eq!(
            (span.parent == SPAN, span.trace == TRACE, span.flags),
            (is_child, is_child, if is_child { 0x301 } else { 0x101 })
        );
    }
}
