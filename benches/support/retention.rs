//! Measures the latency that data plane clients see while half of the usage records are deleted.
//!
//! Three gateways start with the same records: two keep them, one deletes. Their windows alternate, and a gateway
//! outside its window is stopped. All threads of a gateway share one core, so that they compete with each other; the
//! clients run on the other core. A window is longer than the interval between two deletions. Figures are medians over
//! windows. Ratios are relative to the first gateway in the same turn, with the bounds that contain their true median
//! in 95 of 100 runs. The difference between the two keeping gateways is the measurement error.
//!
//! A virtual machine pauses now and then. On each core a sentry thread with a higher priority than all others sleeps
//! for short times. If it is woken late, no thread could run, and requests during that pause are excluded. Their share
//! is printed for each gateway: if it were larger for the deleting one, the sentries would hide the measured effect. A
//! turn in which other processes were active is excluded too.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use serde_json::Value;
use tempfile::TempDir;

use super::line::{ADMIN, Gateway, Line};
use super::{DAY_MS, KEPT, event, fill, now_ms, stored};

/// A gateway of the comparison.
struct Arm {
    gateway: Gateway,
    _folder: TempDir,
}

/// The measurements of one window.
struct Window {
    /// Latencies in microseconds, sorted.
    times: Vec<f64>,
    /// The excluded requests per thousand, during which the machine paused.
    left_out: f64,
    /// True if other processes were active.
    is_shared: bool,
}

/// A period of time.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Instant,
    to: Instant,
}

/// The gateways, with the days for which they keep records.
const ARMS: [(&str, &str); 3] =
    [("keeping all", KEPT), ("keeping all, again", KEPT), ("deleting half", "15")];
const DELETING: usize = 2;
/// The number of clients, which take turns.
const CLIENTS: u32 = 4;
/// The request rate of all clients together.
const PER_SECOND: u32 = 4_000;
const WINDOW: Duration = Duration::from_secs(5);
/// The start of a window that is not counted: a resumed process first handles its overdue timers.
const SETTLE: Duration = Duration::from_millis(50);
const GATEWAY_CORE: usize = 0;
const CLIENTS_CORE: usize = 1;
/// The maximum number of attempts per turn when other processes disturb it.
const TRIES_PER_TURN: u64 = 4;
/// The maximum number of checks, a fifth of a second each, for a moment without other activity.
const QUIET_TRIES: u32 = 25;
/// The number of cores that other processes may use without counting as a disturbance.
const OTHERS_MAX: f64 = 0.1;
/// The time for which a sentry sleeps.
const NAP: Duration = Duration::from_micros(500);
/// A sentry that is woken later than this indicates a paused machine.
const LATE_MAX: Duration = Duration::from_micros(250);
/// The real-time priority of the sentries, above that of `chrt -f 10`.
const SENTRY_PRIORITY: &str = "20";

/// Prints a table over this number of turns. With `among_others`, only a real-time scheduling class keeps other
/// processes out of the figures.
pub(crate) fn run(records: u64, turns: u64, among_others: bool) {
    let (first, now) = (tempfile::tempdir().unwrap(), now_ms());
    fill(first.path(), (0..records).map(|n| event(n, now - 30 * DAY_MS + n * (30 * DAY_MS / records), n)));
    // Stored by a separate process, so that the next one starts to delete at once.
    drop(stored(first.path(), KEPT, records));
    let start = || ARMS.map(|(_, days)| Arm::start(first.path(), days));
    let (mut arms, mut good) = (start(), Vec::new());
    let (mut counted, mut disturbed, mut deleted, mut held_us_max) = (0, 0, 0, 0);
    while counted < turns && counted + disturbed < turns * TRIES_PER_TURN {
        if !among_others {
            wait_for_quiet();
        }
        if (counted + disturbed) % 20 == 0 {
            eprintln!("retention: {counted} of {turns} turns, {disturbed} disturbed");
        }
        let mut windows = ARMS.map(|_| None);
        for step in 0..ARMS.len() {
            let at = (usize::try_from(counted).unwrap() + step) % ARMS.len();
            windows[at] = Some(arms[at].window());
        }
        let state = arms[DELETING].retention();
        held_us_max = held_us_max.max(state["writer_held_us_max"].as_u64().unwrap());
        if !state["last_pass_at_ms"].is_null() {
            deleted += state["usage_records_deleted"].as_u64().unwrap();
            arms = start();
        } else if !among_others && windows.iter().flatten().any(|window| window.is_shared) {
            disturbed += 1;
        } else {
            good.push(windows.map(Option::unwrap));
            counted += 1;
        }
    }
    deleted += arms[DELETING].retention()["usage_records_deleted"].as_u64().unwrap();
    if good.is_empty() {
        println!("retention: the machine was never quiet; try again with --among-others under `chrt -f 10`");
        return;
    }
    println!(
        "retention: latency in us of {PER_SECOND} requests a second, medians over {counted} windows of {} ms; {disturbed} \
         turns with others at work are left out, and of a thousand requests so many in which the machine stood",
        WINDOW.as_millis()
    );
    print(&good);
    println!("  {deleted} records were deleted; a step held the writer for {held_us_max} us at most");
}

fn print(turns: &[[Window; ARMS.len()]]) {
    println!(
        "  {:<20} {:>8} {:>21} {:>8} {:>21} {:>8} {:>21} {:>9}",
        "gateway", "p50", "ratio", "p99", "ratio", "p99.9", "ratio", "left out"
    );
    for (at, (name, _)) in ARMS.iter().enumerate() {
        print!("  {name:<20}");
        for thousandths in [500, 990, 999] {
            let us = |turn: &[Window; ARMS.len()], at: usize| {
                let times = &turn[at].times;
                times[times.len() * thousandths / 1_000]
            };
            let all = median(turns.iter().map(|turn| us(turn, at)).collect());
            let ratios: Vec<f64> = turns.iter().map(|turn| us(turn, at) / us(turn, 0)).collect();
            let (low, high) = bounds(ratios.clone());
            print!(" {all:>8.1} {:>7.3} {:>13}", median(ratios), format!("{low:.3}-{high:.3}"));
        }
        println!(" {:>9.2}", median(turns.iter().map(|turn| turn[at].left_out).collect()));
    }
}

/// Returns `part` in thousandths of `all`.
fn thousandths(part: usize, all: usize) -> f64 {
    let [part, all] = [part, all].map(|count| f64::from(u32::try_from(count).unwrap()));
    part * 1_000.0 / all
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the bounds that contain the median of the sampled distribution in 95 of 100 samples: two ranks of the
/// figures, by the normal approximation of the binomial distribution.
#[expect(clippy::cast_precision_loss, reason = "a few hundred figures")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank among them")]
fn bounds(mut figures: Vec<f64>) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    let half_width = (0.98 * (figures.len() as f64).sqrt()).ceil() as usize;
    let middle = figures.len() / 2;
    (figures[middle.saturating_sub(half_width)], figures[(middle + half_width).min(figures.len() - 1)])
}

impl Span {
    fn microseconds(&self) -> f64 {
        (self.to - self.from).as_secs_f64() * 1e6
    }
}

impl Arm {
    /// Starts a gateway on a copy of the state in `first`, and stops it at once.
    fn start(first: &Path, days: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(&first.join("state"), &folder.path().join("state"));
        pin(GATEWAY_CORE);
        let gateway = Gateway::start(folder.path(), &[("LLMGW_RETENTION_USAGE_DAYS", days)]);
        pin(CLIENTS_CORE);
        let arm = Self { gateway, _folder: folder };
        arm.signal(Signal::STOP);
        arm
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.gateway.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Returns the gateway's report on retention.
    fn retention(&self) -> Value {
        self.signal(Signal::CONT);
        let state = self.gateway.line().admin("GET", "state", &Value::Null)["retention"].take();
        self.signal(Signal::STOP);
        state
    }

    /// Measures the latencies of one window.
    fn window(&self) -> Window {
        self.signal(Signal::CONT);
        let (others, is_over) = (busy().saturating_sub(self.own()), &AtomicBool::new(false));
        let mut lines: Vec<Line> = (0..CLIENTS).map(|_| self.gateway.line()).collect();
        let begin = Instant::now();
        let (spans, stood) = thread::scope(|scope| {
            let sentries =
                [GATEWAY_CORE, CLIENTS_CORE].map(|core| scope.spawn(move || stands(core, is_over)));
            let clients = lines.iter_mut().zip(0..);
            let clients: Vec<_> =
                clients.map(|(line, index)| scope.spawn(move || paced(line, index, begin))).collect();
            let spans: Vec<Span> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            (spans, sentries.map(|sentry| sentry.join().unwrap()).concat())
        });
        let others = busy().saturating_sub(self.own()).saturating_sub(others);
        self.signal(Signal::STOP);
        let counts = |span: &&Span| !stood.iter().any(|stood| stood.from < span.to && span.from < stood.to);
        let mut times: Vec<f64> = spans.iter().filter(counts).map(Span::microseconds).collect();
        times.sort_by(f64::total_cmp);
        Window {
            left_out: thousandths(spans.len() - times.len(), spans.len()),
            times,
            is_shared: others.as_secs_f64() > OTHERS_MAX * begin.elapsed().as_secs_f64(),
        }
    }

    /// Returns the CPU time of the gateway and of its clients, including ended threads.
    fn own(&self) -> Duration {
        [std::process::id(), self.gateway.child.id()]
            .map(|pid| {
                let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                // User and kernel time are the 14th and 15th field; the second field ends with the parenthesis.
                ticks(text.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2))
            })
            .iter()
            .sum()
    }
}

/// Sends the requests of one client in a window, each at its scheduled time. Only a request that had to wait for the
/// previous answer is measured from its scheduled time; otherwise a client that the kernel woke late would count as a
/// slow gateway.
fn paced(line: &mut Line, index: u32, begin: Instant) -> Vec<Span> {
    const BODY: &str = r#"{"model":"lab/echo","messages":[{"role":"user","content":"hello there"}]}"#;
    let step = Duration::from_secs(1) / PER_SECOND;
    let (mut spans, mut free) = (Vec::new(), begin);
    for turn in 0.. {
        let due = begin + step * (turn * CLIENTS + index);
        if due >= begin + SETTLE + WINDOW {
            break;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let from = if free > due { due } else { Instant::now() };
        assert_eq!(line.exchange("POST", "/v1/chat/completions", ADMIN, BODY).0, 200);
        free = Instant::now();
        if due >= begin + SETTLE {
            spans.push(Span { from, to: free });
        }
    }
    spans
}

/// Returns the times at which a core paused, detected by late wake-ups from sleep.
fn stands(core: usize, is_over: &AtomicBool) -> Vec<Span> {
    pin(core);
    let thread = gettid().as_raw_pid().to_string();
    let preceding = Command::new("chrt").args(["-f", "-p", SENTRY_PRIORITY, &thread]).output().unwrap();
    assert!(preceding.status.success(), "the sentries need a real-time priority: run this as root");
    let mut stood = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let from = Instant::now() + NAP;
        thread::sleep(NAP);
        let to = Instant::now();
        if to - from > LATE_MAX {
            stood.push(Span { from, to });
        }
    }
    stood
}

/// Waits until no other process is active, for a few seconds at most.
fn wait_for_quiet() {
    for _ in 0..QUIET_TRIES {
        let (began, before) = (Instant::now(), busy());
        thread::sleep(Duration::from_millis(200));
        if (busy() - before).as_secs_f64() < OTHERS_MAX * began.elapsed().as_secs_f64() {
            return;
        }
    }
}

/// Returns the CPU time that all processes have used since the machine started.
fn busy() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap();
    // User, low-priority and kernel time. The fields after them belong to the machine: idle, interrupts, stolen.
    ticks(text.split_whitespace().skip(1).take(3))
}

/// Converts from the kernel's unit, hundredths of a second.
fn ticks<'a>(fields: impl Iterator<Item = &'a str>) -> Duration {
    Duration::from_millis(10 * fields.map(|field| field.parse::<u64>().unwrap()).sum::<u64>())
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// Copies a folder and syncs it to disk before anything is timed.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
            File::open(&to).unwrap().sync_all().unwrap();
        }
    }
}
