//! Fills a state directory's journal with records for tests of large amounts:
//!
//! ```text
//! fill_journal FOLDER COUNT STEP-MS < EVENTS
//! ```
//!
//! Each line of the input is a usage event as JSON. They are repeated in turn until COUNT of them are written, each with an
//! ID of its own (`load-000000` and so on) and STEP-MS later than the previous one; the last one started just now. The next
//! gateway that starts on the state stores them.
#![expect(clippy::unwrap_used, reason = "it stops with the reason where a test cannot go on")]

use std::fs;
use std::io::{Read as _, stdin};
use std::path::Path;

use records::frame::{self, FileId, JournalSpot};
use shared::clock::unix_ms;
use shared::usage::UsageEvent;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count, step_ms] = arguments.as_slice() else { panic_usage() };
    let (count, step_ms): (u64, u64) = (count.parse().unwrap(), step_ms.parse().unwrap());
    let mut input = String::new();
    stdin().read_to_string(&mut input).unwrap();
    let mut events: Vec<UsageEvent> = input.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first_ms = unix_ms() - count * step_ms;
    fs::create_dir_all(folder).unwrap();
    let mut file = JournalFile::new(0);
    for number in 0..count {
        let turn = usize::try_from(number).unwrap() % events.len();
        let event = events.get_mut(turn).unwrap();
        event.request_id = format!("load-{number:06}").into();
        event.started_at_ms = first_ms + number * step_ms;
        if file.add(event) {
            file = file.write(Path::new(folder));
        }
    }
    file.write(Path::new(folder));
}

/// A file of the journal that is being filled.
struct JournalFile {
    id: FileId,
    bytes: Vec<u8>,
    frame: Vec<u8>,
}

impl JournalFile {
    fn new(number: u64) -> Self {
        Self { id: FileId { origin: ORIGIN, number }, bytes: Vec::new(), frame: Vec::new() }
    }

    /// Appends an event. Returns true if the file is full.
    fn add(&mut self, event: &UsageEvent) -> bool {
        frame::put(&mut self.frame, event);
        let at = u64::try_from(self.bytes.len()).unwrap();
        frame::close(&mut self.frame, Some(JournalSpot { file: self.id, at }));
        self.bytes.extend_from_slice(&self.frame);
        self.bytes.len() > FILE_BYTES
    }

    /// Writes the file and returns the next one.
    fn write(self, folder: &Path) -> Self {
        let name = format!("{:016x}-{:06}.usage", self.id.origin, self.id.number);
        fs::write(folder.join(name), self.bytes).unwrap();
        Self::new(self.id.number + 1)
    }
}

fn panic_usage() -> ! {
    eprintln!("usage: fill_journal FOLDER COUNT STEP-MS < EVENTS");
    std::process::exit(64)
}

/// The writer of the files: any number that no gateway chooses.
const ORIGIN: u64 = 0x7465_7374;
/// The gateway's own files have 1 MiB at most.
const FILE_BYTES: usize = 1_000_000;
