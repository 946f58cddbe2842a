//! Measures two properties of keys on the shipped gateway:
//!
//! ```text
//! cargo bench --bench keys -- [--keys N] [--pairs N]
//! ```
//!
//! With `--keys` (10,000) issued, the time after which a disabled key is rejected or an enabled key is accepted
//! (ADM-9). Over `--pairs` (3,000) interleaved pairs, the difference between the times to reject a key with one wrong
//! character and a completely wrong key (P19): Welch's t over the fastest nine tenths of each.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench prints, and stops when its rig is broken"
)]

#[path = "support/line.rs"]
mod line;

use std::thread;
use std::time::Instant;

use line::Gateway;

use serde_json::{Value, json};

/// The number of concurrent admin requests while keys are issued.
const CLERKS: usize = 32;

fn main() {
    let keys = argument("--keys").unwrap_or(10_000);
    let pairs = argument("--pairs").unwrap_or(3_000);
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    let project = gateway.line().admin("POST", "projects", &json!({"name": "bench"}));
    let issue = |count: usize| issue(&gateway, project["id"].as_str().unwrap(), count);
    let first = issue(1).remove(0);
    changes(&gateway, &first, 1);
    let started = Instant::now();
    issue(keys.saturating_sub(1));
    println!("{} keys issued by {CLERKS} clerks in {:.1} s", keys - 1, started.elapsed().as_secs_f64());
    changes(&gateway, &first, keys);
    timing(&gateway, first["key"].as_str().unwrap(), pairs);
}

fn argument(name: &str) -> Option<usize> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1)?.parse().ok()
}

fn issue(gateway: &Gateway, project: &str, count: usize) -> Vec<Value> {
    let clerk = |index: usize| {
        let (mut line, body) = (gateway.line(), json!({"name": "k", "project": project}));
        let share = count / CLERKS + usize::from(index < count % CLERKS);
        move || (0..share).map(|_| line.admin("POST", "keys", &body)).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let mut clerks = Vec::new();
        (0..CLERKS).for_each(|index| clerks.push(scope.spawn(clerk(index))));
        clerks.into_iter().flat_map(|clerk| clerk.join().unwrap()).collect()
    })
}

/// Times changes of one key among `keys`, each followed by a request that must already be affected.
fn changes(gateway: &Gateway, key: &Value, keys: usize) {
    let mut office = gateway.line();
    let path = format!("keys/{}", key["id"].as_str().unwrap());
    let mut times = Vec::new();
    for round in 0..100 {
        let (state, status) = if round % 2 == 0 { ("disabled", 401) } else { ("active", 200) };
        let started = Instant::now();
        office.admin("PATCH", &path, &json!({"state": state}));
        times.push(started.elapsed());
        assert_eq!(gateway.line().models(key["key"].as_str().unwrap()), status, "after {state}");
    }
    times.sort();
    let ms = |at: usize| times[at].as_secs_f64() * 1e3;
    println!("a change among {keys} keys, until its answer: p50 {:.1} ms, p99 {:.1} ms", ms(50), ms(98));
}

/// Times rejections of almost correct keys, interleaved with those of other wrong keys.
fn timing(gateway: &Gateway, key: &str, pairs: usize) {
    let last = if key.ends_with('x') { 'y' } else { 'x' };
    let near = format!("{}{last}", &key[..key.len() - 1]);
    let far: String =
        key.chars().map(|c| if c == '_' { '_' } else { char::from(b'a' + c as u8 % 26) }).collect();
    // A rejection closes its connection.
    let refuse = |key: &str| {
        let mut line = gateway.line();
        let started = Instant::now();
        assert_eq!(line.models(key), 401);
        started.elapsed().as_secs_f64() * 1e6
    };
    for _ in 0..500 {
        let _warm = (refuse(&near), refuse(&far));
    }
    let (mut nears, mut fars) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        if pair % 2 == 0 {
            nears.push(refuse(&near));
            fars.push(refuse(&far));
        } else {
            fars.push(refuse(&far));
            nears.push(refuse(&near));
        }
    }
    let (near, far) = (Sample::of(nears), Sample::of(fars));
    let difference = near.mean - far.mean;
    let t = difference / (near.variance / near.count + far.variance / far.count).sqrt();
    println!(
        "{pairs} pairs: a near miss is refused in {:.3} us, another wrong key in {:.3} us; difference {:+.3} us, t {t:+.2}",
        near.mean, far.mean, difference
    );
    assert!(t.abs() < 4.5 || difference.abs() < 1.0, "near misses can be distinguished by their time");
}

/// The fastest nine tenths of a set of times.
struct Sample {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Sample {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        times.truncate(times.len() * 9 / 10);
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Self { count, mean, variance }
    }
}
