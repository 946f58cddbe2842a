//! The process's monotonic clock, the only place that reads wall time, and times as text.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns the wall time in milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else takes wall time from")]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns an RFC 3339 time in milliseconds since the Unix epoch, or `None` if `text` is not one or is before the epoch.
pub fn of_rfc3339(text: &str) -> Option<u64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// Returns the wall time of the process's start plus the time since then, in milliseconds since the Unix epoch. It never
/// jumps, so it differs from the wall time after that was set.
pub fn steady_unix_ms() -> u64 {
    let (began, unix_ms) = &*STARTED;
    unix_ms.saturating_add(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// The first use of the steady clock, on both clocks.
static STARTED: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), unix_ms()));

/// Returns milliseconds on the process's monotonic clock. Circuits use it in both planes.
pub fn monotonic_ms() -> u64 {
    u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The origin of the monotonic clock: one second before its first use, so that no reading is 0.
static BEGAN: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(std::time::Duration::from_secs(1)).unwrap_or(now)
});
