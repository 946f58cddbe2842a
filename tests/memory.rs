//! Memory (LIM-1, LIM-2, STR-1): bounds on what the process holds, regardless of the peer's behaviour. The tests
//! measure the process's own resident size, and its peak where a requirement is an upper bound.

use std::io::Write as _;
use std::time::Duration;

use crate::support::figure::{figure, is_full};
use crate::support::gateway::ADMIN_KEY;
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

const MIB: u64 = 1 << 20;

async fn behind(answer: Answer) -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(answer);
    (Gateway::start(&Yaml::one(upstream.base_url())).await, upstream)
}

/// Returns a chat request with a message of `bytes` bytes.
fn large_request(bytes: usize) -> String {
    chat::request("m").replace("Say hello.", &"x".repeat(bytes))
}

/// Returns `mib` MiB of spaces, gzip-compressed, without holding the uncompressed data.
fn gzip_bomb(mib: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..mib {
        encoder.write_all(&[b' '; 1 << 20]).unwrap();
    }
    encoder.finish().unwrap()
}

/// P4: the amount read from the upstream for a client that reads nothing, and its cost in memory.
#[tokio::test]
async fn a_client_that_stops_reading_stops_the_upstream() {
    let chunk = chat::content(&"x".repeat(4_000));
    let (gateway, upstream) = behind(Answer::stream().repeat_chunk(chunk)).await;
    let stop = async || {
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(raw::post(ADMIN_KEY, "", &chat::stream_request("m"))).await;
        connection.read_until("data: ").await;
        connection
    };
    let (memory, base) = (gateway.memory(), gateway.descriptors());
    let fifty = async |mut stopped: Vec<Raw>| {
        while stopped.len() < 50 {
            stopped.push(stop().await);
        }
        settled(&gateway, &upstream).await;
        stopped
    };
    let kept_after = async |stopped: Vec<Raw>| {
        drop(stopped);
        // The database opens and closes an additional file now and then.
        wait::eventually("the descriptors of fifty readers released", async || {
            (gateway.descriptors() <= base + 8).then_some(())
        })
        .await;
        memory.kept()
    };
    let one = stop().await;
    let taken = settled(&gateway, &upstream).await;
    assert!(taken <= 16 * MIB, "{taken} bytes taken without a request");
    let for_one = memory.peak();
    assert!(for_one <= 16 * MIB, "{} KiB", for_one >> 10);

    let stopped = fifty(vec![one]).await;
    let for_fifty = memory.peak();
    assert!(for_fifty <= 64 * MIB, "{} MiB for fifty", for_fifty / MIB);
    let kept = kept_after(stopped).await;
    assert!(kept <= 24 * MIB, "{} KiB are kept when all have gone", kept >> 10);

    // The allocator keeps some of what was released, and uses it for the next fifty.
    let more = kept_after(fifty(Vec::new()).await).await.saturating_sub(kept);
    assert!(more <= 8 * MIB, "{} KiB more are kept after fifty more", more >> 10);
    figure(
        "P4",
        format!(
            "{} KiB taken from the upstream; memory +{} KiB for one, +{} KiB for fifty, +{} KiB when they have gone, \
             +{} KiB after fifty more",
            taken >> 10,
            for_one >> 10,
            for_fifty >> 10,
            kept >> 10,
            more >> 10
        ),
    );
}

/// Waits until no more bytes are taken from the upstream and the gateway is idle, not merely starved of CPU time.
/// Returns the number of bytes taken.
async fn settled(gateway: &Gateway, upstream: &Upstream) -> u64 {
    let (mut before, mut quiet) = (u64::MAX, 0);
    wait::eventually("an upstream that is slowed to a stop", async || {
        let now = upstream.sent_bytes();
        let is_quiet = now == before && is_at_rest(gateway.pid());
        quiet = if is_quiet { quiet + 1 } else { 0 };
        before = now;
        tokio::time::sleep(Duration::from_millis(100)).await;
        (quiet >= 4).then_some(now)
    })
    .await
}

/// True if no thread of the process runs or waits for a processor or a disk.
fn is_at_rest(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut texts = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("stat")));
    // The state follows the name, which ends with the last parenthesis.
    texts
        .all(|text| text.is_ok_and(|text| text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"))))
}

/// P4, STR-1: a client may pause for any length of time (60 s on a stream of 1 GB in a full run).
#[tokio::test]
async fn a_client_that_pauses_costs_no_memory_and_loses_no_event() {
    const EVENT: usize = 32 << 10;
    let (count, pause) =
        if is_full() { (32 << 10, Duration::from_secs(60)) } else { (2 << 10, Duration::from_secs(2)) };
    let event = chat::content(&"x".repeat(EVENT));
    let stream = |count: usize| {
        let begun = Answer::stream().chunk(chat::role()).times_chunk(count, &event);
        begun.chunk(chat::finish()).chunk(chat::done()).end()
    };
    let (gateway, upstream) = behind(stream(count)).await;
    upstream.then(stream(200));
    assert_eq!(
        gateway.client().chat(chat::stream_request("m")).await.status,
        200,
        "a stream first, for warmth"
    );
    // Exclude what the first stored record allocates.
    gateway.records(1).await;

    let taken_before = upstream.sent_bytes();
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    let read = flow.pass((count * EVENT / 16) as u64).await;
    // Allocations for a slow client are complete once the upstream has stalled.
    settled(&gateway, &upstream).await;
    let memory = gateway.memory();
    tokio::time::sleep(pause).await;
    let grown = memory.peak();
    let taken = upstream.sent_bytes() - taken_before;
    assert!(grown < MIB, "{} KiB while the reader stood still", grown >> 10);
    // While the client was reading, the kernel grew the buffers of all four sockets to their maximum.
    assert!(taken <= read + 32 * MIB, "{taken} bytes taken for a reader of {read}");
    let whole = read + flow.pass(u64::MAX).await;
    let parts = [chat::role(), chat::finish(), chat::done()].map(|part| part.len()).iter().sum::<usize>();
    assert_eq!(whole, (count * event.len() + parts) as u64, "nothing is lost");
    figure(
        "P4",
        format!(
            "a reader that stops for {} s on a stream of {} MiB: memory +{} KiB, {} KiB taken ahead of it, all of it arrives",
            pause.as_secs(),
            whole / MIB,
            grown >> 10,
            taken.saturating_sub(read) >> 10
        ),
    );
}

/// LIM-5: a body counts for about its size in memory, however it is split into chunks.
#[tokio::test]
async fn a_body_in_chunks_of_one_byte_costs_its_size() {
    const BYTES: usize = 1 << 20;
    const BODIES: u64 = 4;
    let (gateway, _upstream) = behind(Answer::completion("ok")).await;
    assert_eq!(
        gateway.client().chat(large_request(BYTES)).await.status,
        200,
        "a large body first, for warmth"
    );
    let memory = gateway.memory();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ADMIN_KEY}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    let begun = r#"{"model":"m","messages":[{"role":"user","content":""#;
    let mut bodies = Vec::new();
    for _ in 0..BODIES {
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(format!("{head}{:x}\r\n{begun}\r\n", begun.len())).await;
        connection.send("1\r\nx\r\n".repeat(BYTES)).await;
        bodies.push(connection);
    }
    wait::eventually_within(wait::PATIENCE * 3, "all that was sent is held", async || {
        let metrics = gateway.client().get("/metrics").await.unwrap();
        let text = String::from_utf8(metrics.body.to_vec()).unwrap();
        let held = text.lines().find_map(|line| line.strip_prefix("llmgw_held_body_bytes ")).unwrap();
        (held.parse::<u64>().unwrap() >= BODIES * BYTES as u64).then_some(())
    })
    .await;
    let grown = memory.kept();
    assert!(grown <= 2 * BODIES * BYTES as u64, "{} KiB for {BODIES} bodies of 1 MiB", grown >> 10);
    figure("LIM-5", format!("{BODIES} bodies of 1 MiB in chunks of one byte: memory +{} KiB", grown >> 10));
}

/// P6: one line of 64 MiB.
#[tokio::test]
async fn an_endless_line_passes_without_being_held() {
    const BYTES: usize = 64 << 20;
    let line = chat::content(&"y".repeat(BYTES));
    let (gateway, _upstream) =
        behind(Answer::events(&[chat::role(), line, chat::finish(), chat::done()])).await;
    let memory = gateway.memory();
    let answer = gateway.client().chat(chat::stream_request("m")).await;
    assert!(answer.body.len() > BYTES);
    let grown = memory.peak();
    assert!(grown <= 96 * MIB, "{} MiB", grown / MIB);
    figure("P6", format!("a line of 64 MiB in a stream: memory +{} KiB", grown >> 10));
}

/// P6: one whole response of 64 MiB.
#[tokio::test]
async fn a_large_whole_answer_passes_without_being_held() {
    const BYTES: usize = 64 << 20;
    let (gateway, _upstream) = behind(Answer::completion(&"z".repeat(BYTES))).await;
    let memory = gateway.memory();
    let answer = gateway.client().chat(chat::request("m")).await;
    assert_eq!(answer.body.len(), chat::completion(&"z".repeat(BYTES)).len());
    let grown = memory.peak();
    assert!(grown <= 192 * MIB, "{} MiB", grown / MIB);
    assert_eq!(gateway.records(1).await[0]["tokens"]["output"], 7, "usage at the very end is found");
    figure("P6", format!("a whole answer of 64 MiB: memory +{} KiB", grown >> 10));
}

/// P7: compressed responses of 1 GiB, in every place where an upstream can send one.
#[tokio::test]
async fn a_compressed_response_is_not_decompressed() {
    let bomb = gzip_bomb(1_024);
    let head = |status: u16, kind: &str, encoding: &str| {
        format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: {kind}\r\ncontent-encoding: {encoding}\r\n\
             transfer-encoding: chunked\r\n\r\n"
        )
    };
    for (status, kind, encoding) in [
        (200, "application/json", "gzip"),
        (200, "application/json", "br"),
        (200, "application/json", "zstd"),
        (200, "text/event-stream", "gzip"),
        (200, "text/event-stream", "deflate"),
        (500, "application/json", "gzip"),
        (400, "application/json", "gzip"),
    ] {
        let answer =
            bomb.chunks(64 << 10).fold(Answer::new().send(head(status, kind, encoding)), Answer::chunk);
        let (gateway, _upstream) = behind(answer.end()).await;
        let memory = gateway.memory();
        let request = if kind == "application/json" { chat::request("m") } else { chat::stream_request("m") };
        let answer = gateway.client().chat(request).await;
        // Passed through unchanged, or rejected as a response in an encoding that was not requested; an error keeps its
        // status.
        let passed = answer.status == 200 && answer.header("content-encoding") == Some(encoding);
        let refused = answer.status == if status == 200 { 502 } else { status };
        assert!(passed || (refused && answer.json()["error"].is_object()), "{status} {answer:?}");
        let grown = memory.peak();
        assert!(grown <= 64 * MIB, "{status} {kind} {encoding}: {} MiB", grown / MIB);
        figure(
            "P7",
            format!("{status} {kind} of 1 GiB in {encoding}: {}, memory +{} KiB", answer.status, grown >> 10),
        );
    }
}

/// LIM-2, the reverse of P7: a client's own compressed body of 1 GiB.
#[tokio::test]
async fn a_compressed_bomb_stops_at_the_limit() {
    let (gateway, upstream) = behind(Answer::completion("never asked")).await;
    let bomb = gzip_bomb(1_024);
    let memory = gateway.memory();
    let answer = gateway.client().with("content-encoding", "gzip").chat(bomb).await;
    assert_eq!(answer.status, 413);
    let grown = memory.peak();
    assert!(grown <= 3 * 64 * MIB, "{} MiB", grown / MIB);
    assert_eq!(upstream.requests().len(), 0);
    figure("P7", format!("a request of 1 GiB in gzip: 413, memory +{} KiB", grown >> 10));
}

/// P9: one body of 64 MiB.
#[tokio::test]
async fn a_large_body_is_buffered_once() {
    const BYTES: usize = (64 << 20) - 1_000;
    let (gateway, upstream) = behind(Answer::completion("ok")).await;
    let memory = gateway.memory();
    assert_eq!(gateway.client().chat(large_request(BYTES)).await.status, 200);
    assert!(upstream.request(0).await.body.len() > BYTES);
    let grown = memory.peak();
    assert!(grown <= 3 * 64 * MIB, "{} MiB for a body of 64", grown / MIB);
    figure("P9", format!("one body of 64 MiB: memory +{} MiB", grown / MIB));
}

/// P9: eight concurrent bodies.
#[tokio::test]
async fn eight_large_bodies_are_held_or_shed() {
    // Four MiB below the limit of one body, so that eight stay clear of the limit for all bodies.
    const BYTES: usize = 60 << 20;
    let (gateway, _upstream) = behind(Answer::hang_forever()).await;
    let memory = gateway.memory();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = gateway.client().with("x-llmgw-fallback-timeout-ms", "6000");
        clients.spawn(async move { client.chat(large_request(BYTES)).await });
    }
    let mut shed = 0;
    while let Some(answer) = clients.join_next().await {
        let answer = answer.unwrap();
        assert!([503, 504].contains(&answer.status), "{answer:?}");
        assert!(answer.status == 504 || answer.header("retry-after").is_some(), "{answer:?}");
        shed += usize::from(answer.status == 503);
    }
    let grown = memory.peak();
    assert!(grown <= 700 * MIB, "{} MiB", grown / MIB);
    figure(
        "P9",
        format!("eight bodies of 60 MiB: {} held, {shed} shed, memory +{} MiB", 8 - shed, grown / MIB),
    );
}

/// P11: connections that stay open after a response.
#[tokio::test]
async fn a_thousand_idle_connections_cost_little() {
    let (gateway, _upstream) = behind(Answer::completion("ok")).await;
    let request = raw::post(ADMIN_KEY, "", &chat::request("m"));
    let mut warm = Raw::open(gateway.address()).await;
    warm.send(&request).await;
    warm.read_until("total_tokens").await;
    let memory = gateway.memory();
    let mut idle = Vec::new();
    for _ in 0..1_000 {
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(&request).await;
        connection.read_until("total_tokens").await;
        idle.push(connection);
    }
    let grown = memory.peak();
    assert!(grown < 64 * MIB, "{} KiB for a thousand", grown >> 10);
    figure("P11", format!("1,000 idle connections: memory +{} KiB", grown >> 10));
}
