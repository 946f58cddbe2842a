//! Limits (LIM-1, LIM-2, P8, P11): exact for byte counts, and bounds on time for any behaviour of the other side.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::client::Whole as Reply;
use crate::support::figure::{figure, promised, times};
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::Raw;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, proc, wait};

async fn upstream() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    upstream
}

/// A chat request of exactly `bytes` bytes.
fn request_of(bytes: usize) -> String {
    let empty = r#"{"model":"m","messages":[{"role":"user","content":""}]}"#;
    let (head, tail) = empty.split_at(empty.len() - 4);
    format!("{head}{}{tail}", "x".repeat(bytes - empty.len()))
}

fn head(lines: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ADMIN_KEY}\r\n\
         content-type: application/json\r\n{lines}\r\n"
    )
}

fn chunked(body: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut bytes = head("transfer-encoding: chunked\r\nconnection: close\r\n").into_bytes();
    for chunk in body.chunks(chunk_bytes) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// P8, M-205: a configured limit, for any framing of the body.
#[tokio::test]
async fn the_body_limit_is_exact_to_the_byte() {
    const LIMIT: usize = 100_000;
    let upstream = upstream().await;
    let setup = Setup::new(&Yaml::one(upstream.base_url()));
    let gateway = setup.env("LLMGW_MAX_REQUEST_BODY_BYTES", LIMIT.to_string()).start().await;
    let (fits, exceeds) = (request_of(LIMIT), request_of(LIMIT + 1));
    assert_eq!((fits.len(), exceeds.len()), (LIMIT, LIMIT + 1));
    let client = gateway.client();
    for (name, client, fits, exceeds) in [
        ("plain", client.clone(), fits.clone().into_bytes(), exceeds.clone().into_bytes()),
        (
            "gzip",
            client.clone().with("content-encoding", "gzip"),
            gzip(fits.as_bytes()),
            gzip(exceeds.as_bytes()),
        ),
        (
            "zstd",
            client.clone().with("content-encoding", "zstd"),
            zstd::bulk::compress(fits.as_bytes(), 3).unwrap(),
            zstd::bulk::compress(exceeds.as_bytes(), 3).unwrap(),
        ),
    ] {
        assert_eq!(client.chat(fits).await.status, 200, "{name}");
        let refused = client.chat(exceeds).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (413, "request_too_large"), "{name}");
    }
    for (body, status) in [(&fits, 200), (&exceeds, 413)] {
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(chunked(body.as_bytes(), 777)).await;
        assert_eq!(connection.reply().await.status, status, "chunked");
    }
    for received in upstream.requests() {
        assert_eq!(received.body.len(), LIMIT);
        assert_eq!(received.header("content-encoding"), None);
    }
    assert_eq!(upstream.requests().len(), 4);
}

/// P8, M-212, M-213: the default limits, at both sides of the last byte.
#[tokio::test]
async fn sixty_four_mebibytes_pass_and_one_more_does_not() {
    const LIMIT: usize = 64 << 20;
    let upstream = upstream().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    for (path, limit) in [("/v1/chat/completions", LIMIT), ("/v1/messages/count_tokens", LIMIT / 2)] {
        assert_eq!(gateway.client().post(path, request_of(limit)).await.status, 200, "{path}");
        // With a declared length over the limit: rejected before the first byte of the body.
        for expect in ["", "expect: 100-continue\r\n"] {
            let mut connection = Raw::open(gateway.address()).await;
            let lines = format!("content-length: {}\r\n{expect}", limit + 1);
            connection.send(head(&lines).replace("/v1/chat/completions", path)).await;
            let reply = connection.reply().await;
            assert!(reply.status == 413 && reply.closed, "{path} {reply:?}");
            assert!(!reply.text.contains("100 Continue"), "{path} {reply:?}");
            assert!(reply.text.contains("request_too_large"), "{path} {reply:?}");
        }
        // Without a declared length: rejected when the last byte has arrived.
        let mut connection = Raw::open(gateway.address()).await;
        let body = chunked(request_of(limit + 1).as_bytes(), 1 << 20);
        connection.send(String::from_utf8(body).unwrap().replace("/v1/chat/completions", path)).await;
        let reply = connection.reply().await;
        assert_eq!(reply.status, 413, "{path} {reply:?}");
    }
    assert_eq!(upstream.request(0).await.body.len(), LIMIT);
    assert_eq!(upstream.requests().len(), 1);
    figure("P8", "64 MiB pass, 64 MiB + 1 is 413, declared or in chunks; count_tokens the same at 32 MiB");
}

#[tokio::test]
async fn unknown_encodings_and_damaged_bodies_are_rejected() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let mut damaged = gzip(chat::request("m").as_bytes());
    damaged.truncate(damaged.len() - 9);
    for (encoding, body, status) in [
        ("compress", chat::request("m").into_bytes(), 415),
        ("gzip, gzip, gzip", chat::request("m").into_bytes(), 415),
        ("gzip", damaged, 400),
        ("gzip", chat::request("m").into_bytes(), 400),
        ("zstd", b"not zstd".to_vec(), 400),
    ] {
        let answer = gateway.client().with("content-encoding", encoding).chat(body).await;
        assert_eq!(answer.status, status, "{encoding}");
    }
    let identity = gateway.client().with("content-encoding", "identity").chat(chat::request("m")).await;
    assert_eq!(identity.status, 200);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn invalid_chat_bodies_are_rejected_before_a_call() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let deep = format!(r#"{{"model":"m","x":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    for (name, body) in [
        ("nothing", ""),
        ("no JSON", "hello"),
        ("a list", "[]"),
        ("a text", "\"m\""),
        ("half an object", r#"{"model":"m","messages":["#),
        ("no model", r#"{"messages":[]}"#),
        ("a model that is a number", r#"{"model":7,"messages":[]}"#),
        ("a model that is null", r#"{"model":null,"messages":[]}"#),
        ("something behind it", r#"{"model":"m","messages":[]} x"#),
        ("ten thousand levels", deep.as_str()),
    ] {
        let answer = gateway.client().chat(body.to_owned()).await;
        assert_eq!(answer.status, 400, "{name}: {:?}", answer.body);
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error", "{name}");
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn a_repeated_model_member_is_reduced_to_the_last() {
    let upstream = upstream().await;
    let gateway =
        Gateway::start(&Yaml::new().provider_with("up", upstream.base_url(), "models: [m, n]")).await;
    let answer = gateway.client().chat(r#"{"model":"m","model":"up/n","messages":[]}"#).await;
    assert_eq!(answer.header("x-llmgw-model"), Some("n"));
    let sent = upstream.request(0).await;
    assert!(!String::from_utf8_lossy(&sent.body).contains("\"m\""), "{:?}", sent.body);
    assert_eq!(sent.json()["model"], "n");
}

#[tokio::test]
async fn an_adapted_body_counts_in_memory_in_both_dialects() {
    let upstream = Upstream::start().await;
    let providers = json!({"providers": {
        "a": {"type": "anthropic", "base_url": crate::kinds::root(&upstream), "api_key": "k", "models": ["m"]},
        "c": {"type": "compatible", "base_url": upstream.base_url(), "models": ["n"]},
    }});
    let setup = Setup::new(&Yaml::new()).yaml(providers.to_string());
    let gateway = setup.env("LLMGW_MAX_BODY_MEMORY_BYTES", (8 << 20).to_string()).start().await;
    let ask = async |model: &str, bytes: usize| {
        let body = request_of(bytes).replace(r#""model":"m""#, &format!(r#""model":"{model}""#));
        gateway.client().chat(body).await
    };
    let message = |bytes: usize| {
        let text = json!({"type": "text", "text": "z".repeat(bytes)});
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [text], "usage": {"input_tokens": 3, "output_tokens": 1},
        });
        Answer::json(200, body.to_string())
    };
    let is_shed = |answer: &Reply| {
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (503, "overloaded"),
            "{:?}",
            answer.headers
        );
        assert!(answer.header("retry-after").is_some());
    };
    for _ in 0..3 {
        upstream
            .then(Answer::completion("ok"))
            .then(message(2))
            .then(message(5 << 20))
            .then(message(2 << 20));
        assert_eq!(ask("c/n", 5 << 20).await.status, 200, "held once, in the client's own bytes");
        is_shed(&ask("a/m", 3 << 20).await);
        assert_eq!(ask("a/m", 2 << 20).await.status, 200);
        is_shed(&ask("a/m", 100).await);
        let answer = ask("a/m", 100).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() > 2 << 20);
    }
    wait::eventually("all room given back", async || {
        let metrics = gateway.client().get("/metrics").await.unwrap();
        std::str::from_utf8(&metrics.body).unwrap().contains("llmgw_held_body_bytes 0\n").then_some(())
    })
    .await;
}

/// P11: heads that never end, with regular requests at the same time.
#[tokio::test]
async fn slow_senders_are_disconnected_and_delay_no_other_client() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let began = Instant::now();
    let mut slow = Vec::new();
    for index in 0..300 {
        let mut connection = Raw::open(gateway.address()).await;
        let part = ["", "POST /v1/chat", "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx-slow: "];
        connection.send(part[index % 3]).await;
        slow.push(connection);
    }
    let mut waits = Vec::new();
    for _ in 0..10 {
        let sent_at = Instant::now();
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
        assert!(sent_at.elapsed() < promised(Duration::from_secs(1)), "{:?}", sent_at.elapsed());
        waits.push(sent_at.elapsed());
    }
    for mut connection in slow {
        let reply = connection.reply_within(Duration::from_secs(32)).await;
        assert!(reply.closed, "a half-open head is cut: {:?}", began.elapsed());
        assert!([0, 400, 408].contains(&reply.status), "{reply:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(32), "{:?}", began.elapsed());
    let (cut, honest) = (began.elapsed().as_secs_f64(), times(&mut waits));
    figure(
        "P11",
        format!("300 half-open heads: all cut after {cut:.1} s; honest requests beside them {honest}"),
    );
}

#[tokio::test]
async fn an_idle_gateway_uses_almost_no_cpu() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    gateway.records(1).await;
    let before = proc::cpu_time(gateway.pid());
    // CPU time is measured over a period.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let used = proc::cpu_time(gateway.pid()) - before;
    assert!(used < Duration::from_millis(90), "{used:?} in three seconds");
}

#[tokio::test]
async fn a_body_with_ambiguous_json_is_rejected() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let client = gateway.client();
    for (path, input) in [
        ("/v1/chat/completions", r#""messages":[]"#),
        ("/v1/responses", r#""input":"hi""#),
        ("/v1/messages", r#""max_tokens":5,"messages":[]"#),
        ("/v1/messages/count_tokens", r#""messages":[]"#),
        ("/v1/embeddings", r#""input":"hi""#),
        ("/v1/images/generations", r#""prompt":"hi""#),
    ] {
        for (name, spelt, meant) in [
            ("Model", "Model", "model"),
            ("MODEL", "MODEL", "model"),
            ("\\u004dodel", "Model", "model"),
            ("Stream", "Stream", "stream"),
            ("\\u017ftream", "\u{17f}tream", "stream"),
            ("Affinity_Key", "Affinity_Key", "affinity_key"),
        ] {
            for model in ["", r#""model":"m","#] {
                let answer = client.post(path, format!(r#"{{{model}"{name}":"other",{input}}}"#)).await;
                let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
                assert_eq!(answer.status, 400, "{path} {name}");
                assert!(message.contains(&format!("'{spelt}': write '{meant}'")), "{path} {name}: {message}");
            }
        }
        for byte in [0x00, b'\n', 0x1f, 0x80, 0xff] {
            let mut body = format!(r#"{{"model":"m",{input},"tools":[{{"description":""#).into_bytes();
            body.push(byte);
            body.extend_from_slice(br#""}]}"#);
            let answer = client.post(path, body).await;
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert_eq!(answer.status, 400, "{path} {byte:x}");
            assert!(message.contains("not valid JSON"), "{path} {byte:x}: {message}");
        }
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn another_spelling_of_an_output_limit_is_rejected() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let client = gateway.client();
    for (path, input, names) in [
        ("/v1/chat/completions", r#""messages":[]"#, &["MAX_TOKENS", "Max_Completion_Tokens", "N"][..]),
        ("/v1/responses", r#""input":"hi""#, &["Max_Output_Tokens", "Service_Tier", "Background"]),
        ("/v1/messages", r#""max_tokens":5,"messages":[]"#, &["Max_Tokens", "Speed"]),
    ] {
        for name in names {
            let answer = client.post(path, format!(r#"{{"model":"m",{input},"{name}":100000}}"#)).await;
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert_eq!(answer.status, 400, "{path} {name}");
            let want = format!("Unknown member '{name}': write '{}'.", name.to_lowercase());
            assert!(message.contains(&want), "{path} {name}: {message}");
        }
    }
    assert_eq!(upstream.requests().len(), 0);
}
