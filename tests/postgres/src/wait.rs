//! Waits for a condition that another process brings about.

use std::thread;
use std::time::{Duration, Instant};

/// Far longer than a working server needs.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls `probe` until it returns a value. Panics with `what` after a minute.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a fact that sends no signal")]
fn pause() {
    thread::sleep(Duration::from_millis(3));
}
