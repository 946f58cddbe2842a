//! Fills a state directory's journal with records for tests of large amounts:
//!
//! ```text
//! fill_journal FOLDER COUNT STEP-MS < EVENTS
//! ```
//!
//! Each line of the input is a usage event as JSON. They are repeated in turn until COUNT of them are written, each with an
//! ID of its own in the folder (`load-000000` and so on) and STEP-MS later than the previous one; the last one started just now. The next
//! gateway that starts on the state stores them.
#![expect(clippy::unwrap_used, reason = "it stops with the reason where a test cannot go on")]

#[path = "../support/journal.rs"]
mod journal;

use std::io::{Read as _, stdin};
use std::path::Path;

use shared::clock::unix_ms;
use shared::usage::UsageEvent;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count, step_ms] = arguments.as_slice() else { panic_usage() };
    let (count, step_ms): (u64, u64) = (count.parse().unwrap(), step_ms.parse().unwrap());
    let mut input = String::new();
    stdin().read_to_string(&mut input).unwrap();
    let events: Vec<UsageEvent> = input.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first_ms = unix_ms() - count * step_ms;
    let numbered = (0..count).zip(events.iter().cycle()).map(|(number, event)| UsageEvent {
        request_id: format!("load-{number:06}").into(),
        started_at_ms: first_ms + number * step_ms,
        ..event.clone()
    });
    journal::fill(Path::new(folder), numbered);
}

fn panic_usage() -> ! {
    eprintln!("usage: fill_journal FOLDER COUNT STEP-MS < EVENTS");
    std::process::exit(64)
}
