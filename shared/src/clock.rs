//! The process's monotonic clock, the only place that reads wall time, and times as text.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

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

/// Returns the milliseconds since the machine started, those in which it was suspended included. This clock is never set.
pub fn since_boot_ms() -> u64 {
    let now = clock_gettime(SINCE_BOOT);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0))
}

#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
/// Elsewhere, the monotonic clock also runs while the machine sleeps, or is the closest there is.
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// Returns milliseconds on the process's monotonic clock. Circuits use it in both planes.
pub fn monotonic_ms() -> u64 {
    u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The origin of the monotonic clock: one second before its first use, so that no reading is 0.
static BEGAN: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(std::time::Duration::from_secs(1)).unwrap_or(now)
});
