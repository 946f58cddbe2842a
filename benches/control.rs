//! Measures the control plane of the shipped gateway:
//!
//! ```text
//! cargo bench --bench control -- [--records N] [--turns N] [--only report,year,work,writes,retention]
//! ```
//!
//! `report`: sums over a million records of 30 days. `year`: sums over a year with a million records a day, of which
//! only the sums are generated. `work`: export and repricing. `writes`: keys created per second. `retention`: the
//! latency that data plane clients see while half of the records are deleted, relative to a gateway that deletes
//! nothing, in interleaved windows. It waits while other processes use the machine; to take precedence over them, run
//! `chrt -f 10 cargo bench --bench control -- --only retention --among-others`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and stops when its rig is broken"
)]

#[path = "support/line.rs"]
mod line;
#[path = "../tests/support/proc.rs"]
#[allow(dead_code, reason = "memory alone is of interest here")]
mod proc;
#[path = "support/retention.rs"]
mod retention;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::{OpenParams, State};
use line::{ADMIN, Gateway, Line};
use serde_json::{Value, json};
use shared::id::{KeyId, ModelId, ProviderId};
use shared::operation::Operation;
use shared::secret::Secret;
use shared::usage::{Details, Outcome, Provenance, TokenCounts, Units, UsageEvent};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;
/// The number of models and keys in the generated exchanges.
const MODELS: u64 = 5;
const KEYS: u64 = 20;

fn main() {
    let records = argument("--records").unwrap_or(1_000_000);
    let turns = argument("--turns").unwrap_or(120);
    let only = text_argument("--only").unwrap_or_else(|| "report,year,work,writes,retention".to_owned());
    let wants = |name: &str| only.split(',').any(|part| part == name);
    if wants("report") || wants("work") {
        let folder = tempfile::tempdir().unwrap();
        let now = now_ms();
        fill(
            folder.path(),
            (0..records).map(|n| event(n, now - 30 * DAY_MS + n * (30 * DAY_MS / records), n)),
        );
        let gateway = stored(folder.path(), KEPT, records);
        if wants("report") {
            reports(&gateway, now, records);
        }
        if wants("work") {
            work(&gateway, now, records);
        }
    }
    if wants("year") {
        year();
    }
    if wants("writes") {
        writes();
    }
    if wants("retention") {
        retention::run(records, turns, std::env::args().any(|argument| argument == "--among-others"));
    }
}

fn argument(name: &str) -> Option<u64> {
    text_argument(name)?.parse().ok()
}

fn text_argument(name: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).cloned()
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Returns a generated exchange of group `group`, one of 100.
fn event(n: u64, started_at_ms: u64, group: u64) -> UsageEvent {
    UsageEvent {
        request_id: format!("req_{n:032x}").into(),
        started_at_ms,
        duration_us: 800_000 + n % 1_000,
        operation: Operation::ChatCompletions,
        key: KeyId::new(format!("key_01K9Z3W5QN7T2VXB4C6D8E{:04}", group / MODELS % KEYS)),
        project: None,
        principal: None,
        selector: "lab/echo".into(),
        endpoint: None,
        provider: Some(ProviderId::new("lab")),
        model: Some(ModelId::new(format!("model-{}", group % MODELS))),
        stream: n.is_multiple_of(2),
        status: 200,
        outcome: Outcome::Completed,
        error: None,
        tokens: TokenCounts { input: 900 + n % 100, output: 300, ..TokenCounts::default() },
        units: Units::ZERO,
        provenance: Provenance::Reported,
        tier: None,
        picture: None,
        vendor_cost_nano_usd: None,
        upstream_id: None,
        tags: None,
        end_user: None,
        cost_nano_usd: None,
        quota_nano_usd: None,
        price: None,
        unpriced: shared::usage::Unpriced::NOTHING,
        head_us: Some(40_000),
        first_content_us: Some(300_000),
        details: Details::default(),
        trace: Vec::new(),
    }
}

/// Writes `events` to the journal of a new state.
fn fill(folder: &Path, events: impl Iterator<Item = UsageEvent>) {
    let key = Secret::new(*b"0123456789abcdef0123456789abcdef");
    let state = State::open(OpenParams {
        dir: &folder.join("state"),
        encryption_key: &key,
        usage_db: false,
        node: None,
    })
    .unwrap();
    let mut log = state.usage_log().unwrap();
    events.for_each(|event| assert!(log.append(&event)));
}

/// Starts a gateway and waits until it has stored `count` exchanges.
fn stored(folder: &Path, kept_days: &str, count: u64) -> Gateway {
    let started = Instant::now();
    let gateway = Gateway::start(folder, &[("LLMGW_RETENTION_USAGE_DAYS", kept_days)]);
    let mut line = gateway.line();
    while line.admin("GET", "state", &Value::Null)["usage"]["queued"] != 0
        || line.admin("GET", "usage", &Value::Null)["totals"]["requests"].as_u64() < Some(count)
    {
        thread::sleep(Duration::from_millis(50));
    }
    println!("{count} records stored in {:.1} s", started.elapsed().as_secs_f64());
    gateway
}

fn reports(gateway: &Gateway, now: u64, records: u64) {
    let mut line = gateway.line();
    let from = now - 30 * DAY_MS;
    for path in [
        format!("usage?from={from}&bucket=day&group_by=model"),
        format!("usage?from={}&to={}&bucket=day&group_by=model", from + 12_345, now - 54_321),
        format!("usage?from={from}&bucket=hour&group_by=model"),
        format!("usage?from={from}&bucket=month&group_by=key,model"),
        format!("requests/req_{:032x}", records - 1),
        "requests/req_00000000000000000000000000000000".to_owned(),
        "requests?request_id_prefix=req_0000000000000000000000000000001&limit=50".to_owned(),
        "requests?error=upstream_timeout".to_owned(),
        "requests?limit=500".to_owned(),
    ] {
        time(&mut line, &path);
    }
}

fn time(line: &mut Line, path: &str) {
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let started = Instant::now();
            line.admin("GET", path, &Value::Null);
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{:8.2} ms (most {:.2})  GET {path}", times[10], times[20]);
}

/// Measures sums over a year that has a sum for each hour and group, as with a million records a day.
fn year() {
    let folder = tempfile::tempdir().unwrap();
    let first = now_ms() / DAY_MS * DAY_MS - 364 * DAY_MS;
    let groups = MODELS * KEYS;
    let sums = 365 * 24 * groups;
    fill(folder.path(), (0..sums).map(|n| event(n, first + n / groups * HOUR_MS, n % groups)));
    let gateway = stored(folder.path(), KEPT, sums);
    let mut line = gateway.line();
    for query in ["bucket=day&group_by=model", "bucket=month&group_by=key,model", "group_by=key", ""] {
        time(&mut line, &format!("usage?from={first}&{query}"));
    }
}

fn work(gateway: &Gateway, now: u64, records: u64) {
    for format in ["jsonl", "csv"] {
        let before = proc::resident_bytes(gateway.child.id());
        let started = Instant::now();
        let mut line = gateway.line();
        let request = format!(
            "GET /admin/api/usage/export?format={format} HTTP/1.1\r\nhost: bench\r\nx-api-key: {ADMIN}\r\n\
             connection: close\r\n\r\n"
        );
        line.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut lines, mut piece, mut bytes) = (0, vec![0; 1 << 20], 0);
        let mut most = before;
        loop {
            let read = line.0.read(&mut piece).unwrap();
            if read == 0 {
                break;
            }
            bytes += read;
            lines += piece[..read].split(|byte| *byte == b'\n').count() - 1;
            most = most.max(proc::resident_bytes(gateway.child.id()));
        }
        println!(
            "export as {format}: {:.1} s, {} MB, {lines} lines, memory +{} KiB",
            started.elapsed().as_secs_f64(),
            bytes >> 20,
            (most - before) >> 10
        );
    }
    let mut line = gateway.line();
    let body = json!({
        "from": now - 31 * DAY_MS, "to": now + 1, "provider": "lab", "model": "model-1",
        "prices": {"input": 0.59, "output": 0.79},
    });
    for _ in 0..2 {
        let started = Instant::now();
        let done = line.admin("POST", "usage/reprice", &body);
        println!("repricing of {records}: {:.1} s, {}", started.elapsed().as_secs_f64(), done);
    }
}

fn writes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    let project = gateway.line().admin("POST", "projects", &json!({"name": "bench"}));
    let body = json!({"name": "k", "project": project["id"]});
    for clerks in [1_u32, 8, 32] {
        let until = Instant::now() + Duration::from_secs(3);
        let made: u32 = thread::scope(|scope| {
            let clerk = || {
                let mut line = gateway.line();
                let mut made = 0;
                while Instant::now() < until {
                    line.admin("POST", "keys", &body);
                    made += 1;
                }
                made
            };
            #[expect(clippy::needless_collect, reason = "all run before the first is waited for")]
            let all: Vec<_> = (0..clerks).map(|_| scope.spawn(clerk)).collect();
            all.into_iter().map(|clerk| clerk.join().unwrap()).sum()
        });
        println!("{} keys made in a second by {clerks} at a time", made / 3);
    }
}

/// A retention period in days that keeps everything.
const KEPT: &str = "36500";
