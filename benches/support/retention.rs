//! What the clients of the data plane notice while half of the usage records are deleted.
//!
//! Three gateways begin with the same records: two keep them, one deletes. Their windows take turns, and whoever
//! is not in its window is stopped. All of a gateway has one core, so that its threads cannot get out of each
//! other's way; the clients have another. A window is longer than the time from one deletion to the next. Figures are
//! medians over windows, ratios those to the first gateway in the same turn, with the bounds between which their true
//! median lies in 95 of 100 runs. What the second gateway that keeps differs from the first is their error.
//!
//! A virtual machine stands now and then. On each core a sentry that goes before everybody else sleeps for short
//! times; where it is woken late, no thread could run, and the requests of that moment do not count. How many that
//! were is printed for each gateway: were it more for the one that deletes, the sentries would hide what is looked for. A
//! turn in which others were at work does not count either.

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

/// What was seen in one window.
struct Window {
    /// Latencies in microseconds, in order.
    times: Vec<f64>,
    /// Of a thousand requests, those in whose time the machine stood.
    left_out: f64,
    /// Others were at work.
    is_shared: bool,
}

/// From one moment to another.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Instant,
    to: Instant,
}

/// The gateways, and the days for which they keep records.
const ARMS: [(&str, &str); 3] =
    [("keeping all", KEPT), ("keeping all, again", KEPT), ("deleting half", "15")];
const DELETING: usize = 2;
/// Clients, which take turns.
const CLIENTS: u32 = 4;
/// Of all clients together.
const PER_SECOND: u32 = 4_000;
const WINDOW: Duration = Duration::from_secs(5);
/// Of a window, and not counted: whoever was stopped catches up with its timers.
const SETTLE: Duration = Duration::from_millis(50);
const GATEWAY_CORE: usize = 0;
const CLIENTS_CORE: usize = 1;
/// How often a turn is tried again when the machine did something else in it.
const TRIES_PER_TURN: u64 = 4;
/// Looks, a fifth of a second each, for a moment in which nobody else is at work.
const QUIET_TRIES: u32 = 25;
/// Cores that others may use without disturbing.
const OTHERS_MAX: f64 = 0.1;
/// A sentry sleeps for so long,
const NAP: Duration = Duration::from_micros(500);
/// and is woken later than this only if the machine stands.
const LATE_MAX: Duration = Duration::from_micros(250);
/// Real-time priority of the sentries, above that of `chrt -f 10`.
const SENTRY_PRIORITY: &str = "20";

/// Prints a table over so many turns. If others may be at work, only a real-time scheduling class keeps them out of
/// the figures.
pub(crate) fn run(records: u64, turns: u64, among_others: bool) {
    let (first, now) = (tempfile::tempdir().unwrap(), now_ms());
    fill(first.path(), (0..records).map(|n| event(n, now - 30 * DAY_MS + n * (30 * DAY_MS / records), n)));
    // Stored by one process, so that the next one begins to delete at once.
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

/// How much of a thousand `part` is.
fn thousandths(part: usize, all: usize) -> f64 {
    let [part, all] = [part, all].map(|count| f64::from(u32::try_from(count).unwrap()));
    part * 1_000.0 / all
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Between which the median of what the figures are a sample of lies, in 95 of 100 samples: two ranks of the figures, by
/// the normal approximation of the binomial distribution.
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

    /// What it says about retention.
    fn retention(&self) -> Value {
        self.signal(Signal::CONT);
        let state = self.gateway.line().admin("GET", "state", &Value::Null)["retention"].take();
        self.signal(Signal::STOP);
        state
    }

    /// The latencies of one window.
    fn window(&self) -> Window {
        self.signal(Signal::CONT);
        let (others, is_over) = (busy().saturating_sub(self.own()), &AtomicBool::new(false));
        let mut lines: Vec<Line> = (0..CLIENTS).map(|_| self.gateway.line()).collect();
        let begin = Instant::now();
        let (asked, stood) = thread::scope(|scope| {
            let sentries =
                [GATEWAY_CORE, CLIENTS_CORE].map(|core| scope.spawn(move || stands(core, is_over)));
            let clients = lines.iter_mut().zip(0..);
            let clients: Vec<_> =
                clients.map(|(line, index)| scope.spawn(move || paced(line, index, begin))).collect();
            let asked: Vec<Span> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            (asked, sentries.map(|sentry| sentry.join().unwrap()).concat())
        });
        let others = busy().saturating_sub(self.own()).saturating_sub(others);
        self.signal(Signal::STOP);
        let counts =
            |asked: &&Span| !stood.iter().any(|stood| stood.from < asked.to && asked.from < stood.to);
        let mut times: Vec<f64> = asked.iter().filter(counts).map(Span::microseconds).collect();
        times.sort_by(f64::total_cmp);
        Window {
            left_out: thousandths(asked.len() - times.len(), asked.len()),
            times,
            is_shared: others.as_secs_f64() > OTHERS_MAX * begin.elapsed().as_secs_f64(),
        }
    }

    /// CPU time of the gateway and of its clients, those that have ended too.
    fn own(&self) -> Duration {
        [std::process::id(), self.gateway.child.id()]
            .map(|pid| {
                let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                // In user and in kernel mode, the 14th and 15th field; the second ends with the parenthesis.
                ticks(text.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2))
            })
            .iter()
            .sum()
    }
}

/// The requests of one client in a window, each at its moment. One that had to wait for the answer before it
/// counts from its moment; otherwise a client that the kernel woke late would count as a slow gateway.
fn paced(line: &mut Line, index: u32, begin: Instant) -> Vec<Span> {
    const BODY: &str = r#"{"model":"lab/echo","messages":[{"role":"user","content":"hello there"}]}"#;
    let step = Duration::from_secs(1) / PER_SECOND;
    let (mut asked, mut free) = (Vec::new(), begin);
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
            asked.push(Span { from, to: free });
        }
    }
    asked
}

/// When a core of the machine stood: sleeps, and looks whether it is woken in time.
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

/// Waits until nobody else is at work, some seconds at most.
fn wait_for_quiet() {
    for _ in 0..QUIET_TRIES {
        let (began, before) = (Instant::now(), busy());
        thread::sleep(Duration::from_millis(200));
        if (busy() - before).as_secs_f64() < OTHERS_MAX * began.elapsed().as_secs_f64() {
            return;
        }
    }
}

/// CPU time that all processes have used since the machine started.
fn busy() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap();
    // In user mode, of low priority, and in kernel mode. What follows is the machine's: idle, interrupts, stolen.
    ticks(text.split_whitespace().skip(1).take(3))
}

/// The kernel counts in hundredths of a second.
fn ticks<'a>(fields: impl Iterator<Item = &'a str>) -> Duration {
    Duration::from_millis(10 * fields.map(|field| field.parse::<u64>().unwrap()).sum::<u64>())
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// Copies a folder, and has it on disk before anything is timed.
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
