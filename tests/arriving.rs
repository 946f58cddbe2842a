//! Large requests that are sent while they arrive: what the upstream gets before the client has sent the end, that it never
//! gets the end of a request that is not made, and which requests wait for their end.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::h2_frames::{FrameUpstream, Reaction};
use crate::support::raw::Raw;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// The length of the prompt, and how much of the request a client sends at first.
const PROMPT_BYTES: usize = 2 << 20;
const FIRST_BYTES: usize = 1 << 20;
/// The client is slow: the gateway waits for each of these pieces, and sooner or later for long enough.
const PIECE_BYTES: usize = 64 << 10;
const PAUSE: Duration = Duration::from_millis(10);
/// The part of this that must have reached the upstream; the last pieces may still be on their way.
const EARLY_BYTES: usize = 512 << 10;

/// An upstream over HTTP/1.1 whose connections the test reads and writes itself.
struct SlowUpstream(TcpListener);

/// A connection of the gateway to it, and what has been read of it.
struct Connection {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl SlowUpstream {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn base_url(&self) -> String {
        format!("http://{}/v1", self.0.local_addr().unwrap())
    }

    async fn accept(&self) -> Connection {
        let accepting = wait::within(wait::PATIENCE, "a connection of the gateway", self.0.accept());
        Connection { socket: accepting.await.unwrap().0, bytes: Vec::new() }
    }
}

impl Connection {
    /// Reads until `count` bytes have arrived, or the gateway has closed the connection. Returns true if they have.
    async fn read(&mut self, count: usize) -> bool {
        wait::within(wait::PATIENCE, "bytes of the gateway", async {
            let mut piece = vec![0; 64 << 10];
            while self.bytes.len() < count {
                match self.socket.read(&mut piece).await {
                    Ok(length @ 1..) => self.bytes.extend_from_slice(&piece[..length]),
                    _ => return false,
                }
            }
            true
        })
        .await
    }

    /// Reads a whole request, and returns its head and its body. `None` if the gateway has closed the connection before
    /// its end.
    async fn request(&mut self) -> Option<(String, Value)> {
        let end = loop {
            if let Some(at) = self.bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.read(self.bytes.len() + 1).await {
                return None;
            }
        };
        let head = String::from_utf8(self.bytes[..end].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if !self.read(end + length.parse::<usize>().unwrap()).await {
            return None;
        }
        Some((head, serde_json::from_slice(&self.bytes[end..]).unwrap()))
    }

    async fn answer(&mut self, status: u16, body: &str) {
        self.send(&format!("{status} X"), "application/json", body).await;
    }

    async fn send(&mut self, status: &str, content_type: &str, body: &str) {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n");
        let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        self.socket.write_all(answer.as_bytes()).await.unwrap();
    }
}

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m",
    "content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;

/// A client that sends its request in two parts.
struct Upload {
    raw: Raw,
    rest: Vec<u8>,
}

impl Upload {
    /// Sends the head and the beginning of the body on a connection of its own.
    async fn begin(address: SocketAddr, key: &str, path: &str, body: &str) -> Self {
        let head = format!("{path} HTTP/1.1\r\nauthorization: Bearer {key}\r\nconnection: close");
        Self::on(Raw::open(address).await, &head, body).await
    }

    async fn on(mut raw: Raw, head: &str, body: &str) -> Self {
        let length = body.len();
        raw.send(format!(
            "POST {head}\r\nhost: gateway.test\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n"
        ))
        .await;
        let (first, rest) = body.as_bytes().split_at(FIRST_BYTES);
        for piece in first.chunks(PIECE_BYTES) {
            raw.send(piece).await;
            tokio::time::sleep(PAUSE).await;
        }
        Self { raw, rest: rest.to_vec() }
    }

    async fn finish(mut self) -> (u16, String) {
        self.raw.send(&self.rest).await;
        let reply = self.raw.reply().await;
        (reply.status, reply.text)
    }
}

/// A request in the Messages protocol with `members` after the prompt.
fn message(model: &str, members: &str) -> String {
    let text = "x".repeat(PROMPT_BYTES);
    format!(
        r#"{{"model":"{model}","max_tokens":9,"messages":[{{"role":"user","content":"{text}"}}]{members}}}"#
    )
}

fn messages(yaml: Yaml, id: &str, upstream: &SlowUpstream) -> Yaml {
    yaml.provider_with(id, upstream.base_url(), "protocols: [messages]")
}

#[tokio::test]
async fn a_large_prompt_is_sent_while_it_arrives() {
    let upstream = SlowUpstream::start().await;
    let gateway = Gateway::start(&messages(Yaml::new(), "up", &upstream)).await;
    let body = message("up/m", r#","system":"Be brief.","stream":false"#);
    let upload = Upload::begin(gateway.address(), ADMIN_KEY, "/v1/messages", &body).await;
    let mut connection = upstream.accept().await;
    assert!(connection.read(EARLY_BYTES).await);
    let answering = tokio::spawn(upload.finish());
    let (head, sent) = connection.request().await.unwrap();
    connection.answer(200, MESSAGE).await;
    let (status, text) = answering.await.unwrap();
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(r#""text":"ok""#), "{text}");
    assert!(head.contains("accept: application/json, text/event-stream\r\n"), "{head}");
    let mut want: Value = serde_json::from_str(&body).unwrap();
    want["model"] = json!("m");
    assert_eq!(sent, want);
    let records = gateway.records(1).await;
    assert_eq!((records.len(), &records[0]["status"]), (1, &json!(200)), "{records:?}");
    assert_eq!(records[0]["bytes_in"], body.len(), "{records:?}");
}

/// The end decides: it may be invalid, name another model, or contain a member of the gateway's own.
#[tokio::test]
async fn an_upstream_never_gets_the_end_of_a_request_that_is_not_made() {
    let (upstream, other) = (SlowUpstream::start().await, SlowUpstream::start().await);
    let yaml = messages(messages(Yaml::new(), "up", &upstream), "other", &other);
    let gateway = Gateway::start(&yaml).await;
    for (end, want, elsewhere) in [
        (r#","stream":maybe"#, 400, None),
        (r#","stream":"yes""#, 400, None),
        (r#","Stream":true"#, 400, None),
        (r#","model":"other/m""#, 200, Some(&other)),
        (r#","fallback_timeout_ms":60000"#, 200, Some(&upstream)),
    ] {
        let upload = Upload::begin(gateway.address(), ADMIN_KEY, "/v1/messages", &message("up/m", end)).await;
        let mut connection = upstream.accept().await;
        assert!(connection.read(EARLY_BYTES).await, "{end}");
        let answering = tokio::spawn(upload.finish());
        if let Some(elsewhere) = elsewhere {
            let mut second = elsewhere.accept().await;
            let (_, sent) = second.request().await.unwrap();
            assert_eq!((&sent["model"], &sent["fallback_timeout_ms"]), (&json!("m"), &Value::Null), "{end}");
            assert_eq!(sent["messages"][0]["content"].as_str().unwrap().len(), PROMPT_BYTES, "{end}");
            second.answer(200, MESSAGE).await;
        }
        let (status, text) = answering.await.unwrap();
        assert_eq!(status, want, "{end}: {text}");
        assert!(connection.request().await.is_none(), "{end}: the request was not cancelled");
    }
    let upload = Upload::begin(gateway.address(), ADMIN_KEY, "/v1/messages", &message("up/m", "")).await;
    let mut connection = upstream.accept().await;
    assert!(connection.read(EARLY_BYTES).await);
    drop(upload);
    assert!(connection.request().await.is_none(), "the client has left");
}

/// A client that stalls holds a connection to the upstream for as long as the gateway waits for it, and delays no other
/// client.
#[tokio::test]
async fn stalled_uploads_release_their_upstream() {
    const CLIENTS: usize = 40;
    let (upstream, other) = (SlowUpstream::start().await, Upstream::start().await);
    other.always(Answer::completion("ok"));
    let yaml = messages(Yaml::new(), "up", &upstream).provider("other", other.base_url());
    let gateway = Setup::new(&yaml).env("LLMGW_CLIENT_BODY_SECONDS", "5").start().await;
    let (before, body) = (gateway.memory(), message("up/m", ""));
    let mut beginning = JoinSet::new();
    for _ in 0..CLIENTS {
        let (address, body) = (gateway.address(), body.clone());
        beginning.spawn(async move { Upload::begin(address, ADMIN_KEY, "/v1/messages", &body).await });
    }
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(upstream.accept().await);
        assert_eq!(gateway.client().chat(chat::request("other/m")).await.status, 200);
    }
    for connection in &mut connections {
        assert!(connection.read(EARLY_BYTES).await);
    }
    let uploads = beginning.join_all().await;
    // Each holds its first part, of which the upstream has read all.
    let grown = (before.peak() >> 20, (CLIENTS * FIRST_BYTES) >> 20);
    figure(
        "duress",
        format!("{CLIENTS} uploads that stall after 1 MiB: {} MiB, {} MiB of them bodies", grown.0, grown.1),
    );
    assert!(grown.0 < grown.1 as u64 * 3 / 2, "{grown:?} MiB");
    for (mut upload, mut connection) in uploads.into_iter().zip(connections) {
        let reply = upload.raw.reply().await;
        assert_eq!(reply.status, 408, "{}", reply.text);
        assert!(connection.request().await.is_none(), "the request was not cancelled");
    }
    assert_eq!(gateway.client().chat(chat::request("other/m")).await.status, 200);
}

/// A request fails over with its whole body. An upstream that ends the connection or answers before it has the request is
/// asked again, as any other.
#[tokio::test]
async fn what_an_upstream_does_before_the_end_decides_nothing() {
    let (first, second) = (SlowUpstream::start().await, SlowUpstream::start().await);
    let yaml = messages(messages(Yaml::new(), "p0", &first), "p1", &second);
    let gateway = Gateway::start(&yaml.endpoint("line", &[("p0", "m"), ("p1", "m")])).await;
    for early in ["nothing", "closes", "answers"] {
        let upload = Upload::begin(gateway.address(), ADMIN_KEY, "/v1/messages", &message("line", "")).await;
        let mut connection = first.accept().await;
        assert!(connection.read(EARLY_BYTES).await, "{early}");
        match early {
            "closes" => drop(connection.socket.shutdown().await),
            "answers" => connection.answer(500, "{}").await,
            _ => {}
        }
        if early != "nothing" {
            // The gateway has noticed it before the client goes on.
            assert!(connection.request().await.is_none(), "{early}");
        }
        let answering = tokio::spawn(upload.finish());
        let mut asked = if early == "nothing" { connection } else { first.accept().await };
        assert!(asked.request().await.is_some(), "{early}");
        asked.answer(500, "{}").await;
        let mut served = second.accept().await;
        let (_, sent) = served.request().await.unwrap();
        assert_eq!(sent["messages"][0]["content"].as_str().unwrap().len(), PROMPT_BYTES, "{early}");
        served.answer(200, MESSAGE).await;
        let (status, text) = answering.await.unwrap();
        assert_eq!(status, 200, "{early}: {text}");
        assert!(text.contains("x-llmgw-attempts: 2"), "{early}: {text}");
    }
}

#[tokio::test]
async fn a_large_prompt_is_sent_over_http2_while_it_arrives_and_cancelled_with_its_client() {
    let upstream = FrameUpstream::start(|_, _| Reaction::Answer).await;
    let members = "http_version: \"2\"\nprotocols: [chat]";
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), members);
    let gateway = Setup::new(&yaml).env("LLMGW_WORKERS", "1").start().await;
    let text = "x".repeat(PROMPT_BYTES);
    let body =
        format!(r#"{{"model":"up/m","stream":false,"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let upload = Upload::begin(gateway.address(), ADMIN_KEY, "/v1/chat/completions", &body).await;
    upstream.until("the beginning", |counts| counts.data_bytes > EARLY_BYTES).await;
    assert_eq!(upstream.counts().requests, 0);
    let (status, text) = upload.finish().await;
    assert_eq!(status, 200, "{text}");
    let counts = upstream.counts();
    assert_eq!((counts.requests, counts.data_bytes), (1, body.len() - "up/".len()), "{counts:?}");
    let upload = Upload::begin(gateway.address(), ADMIN_KEY, "/v1/chat/completions", &body).await;
    upstream.until("the second", |counts| counts.data_bytes > body.len() + EARLY_BYTES).await;
    drop(upload);
    let counts = upstream.until("the reset", |counts| counts.resets == 1).await;
    assert_eq!((counts.requests, counts.connections), (1, 1), "{counts:?}");
}

/// The gateway asks for the usage of a stream in front. A client that says behind its prompt that it wants a stream, and does
/// not ask for the usage itself, is guessed wrong once on a connection.
#[tokio::test]
async fn a_client_that_is_misjudged_is_waited_for() {
    let upstream = SlowUpstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let text = "x".repeat(PROMPT_BYTES);
    let body =
        format!(r#"{{"model":"up/m","messages":[{{"role":"user","content":"{text}"}}],"stream":true}}"#);
    let head = format!("/v1/chat/completions HTTP/1.1\r\nauthorization: Bearer {ADMIN_KEY}");
    let answer = [chat::content("ok"), chat::finish(), chat::done()].concat();
    let mut raw = Raw::open(gateway.address()).await;
    for is_early in [true, false] {
        let mut upload = Upload::on(raw, &head, &body).await;
        if is_early {
            let mut connection = upstream.accept().await;
            assert!(connection.read(EARLY_BYTES).await);
            upload.raw.send(&upload.rest).await;
            assert!(connection.request().await.is_none(), "the request was not cancelled");
        } else {
            upload.raw.send(&upload.rest).await;
        }
        let mut connection = upstream.accept().await;
        let (head, sent) = connection.request().await.expect("the whole request on the first connection");
        assert!(head.contains("accept: text/event-stream\r\n"), "{head}");
        assert_eq!(sent["stream_options"], json!({"include_usage": true}));
        connection.send("200 OK", "text/event-stream", std::str::from_utf8(&answer).unwrap()).await;
        drop(connection);
        upload.raw.read_until("\r\n0\r\n\r\n").await;
        raw = upload.raw;
    }
}

/// Nothing is sent of a request that will perhaps not be tried, or whose beginning depends on its end.
#[tokio::test]
async fn a_request_waits_for_its_end_if_the_end_may_decide() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::one(upstream.base_url()).provider_with(
        "changed",
        upstream.base_url(),
        "body: { set: { temperature: 0 } }",
    );
    let gateway = Setup::new(&yaml).at_noon().env("LLMGW_WORKERS", "1").start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let limited = admin.key(json!({"project": project})).await;
    let quota = json!({"subject": {"kind": "key", "id": limited.id}, "metric": "input_tokens", "window": "day",
        "limit": PROMPT_BYTES / 8});
    admin.create("quotas", quota).await;
    let text = "x".repeat(PROMPT_BYTES);
    let messages = format!(r#""messages":[{{"role":"user","content":"{text}"}}]"#);
    let rows = [
        ("the model is last", ADMIN_KEY, format!(r#"{{{messages},"stream":false,"model":"up/m"}}"#), 200),
        ("a stream's usage", ADMIN_KEY, format!(r#"{{"model":"up/m","stream":true,{messages}}}"#), 200),
        ("members are set", ADMIN_KEY, format!(r#"{{"model":"changed/m","stream":false,{messages}}}"#), 200),
        ("a quota", &limited.key, format!(r#"{{"model":"up/m","stream":false,{messages}}}"#), 429),
    ];
    for (name, key, body, want) in rows {
        let upload = Upload::begin(gateway.address(), key, "/v1/chat/completions", &body).await;
        // Served after the beginning of the upload has been read.
        assert_eq!(gateway.client().chat(chat::request("up/m")).await.status, 200);
        let (status, text) = upload.finish().await;
        assert_eq!(status, want, "{name}: {text}");
        assert_eq!(upstream.connections(), 1, "{name}: both requests used one connection in turn");
    }
}
