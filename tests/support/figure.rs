//! Prints the figures that tests measure, one per line, so that one run yields the whole table of promises: `cargo test
//! --test main -- --nocapture | grep ^figure`. A few promises have times or amounts that are too large for every run;
//! with `LLMGW_TEST_FULL=1` the tests use the full values.

use std::fmt::Display;
use std::time::Duration;

/// Prints the figure for a promise.
#[expect(clippy::print_stdout, reason = "it is what the run is for")]
pub(crate) fn figure(promise: &str, value: impl Display) {
    println!("figure {promise}: {value}");
}

/// True if tests use the full times and amounts of the promises.
#[expect(clippy::disallowed_methods, reason = "a test's own switch, no setting of the gateway")]
pub(crate) fn is_full() -> bool {
    std::env::var_os("LLMGW_TEST_FULL").is_some()
}

/// Returns the time limit to check for a documented limit of `limit`: exactly that in a full run, which has the machine
/// to itself, and ten times as much in a run in parallel with other tests.
pub(crate) fn promised(limit: Duration) -> Duration {
    if is_full() { limit } else { limit * 10 }
}

/// Formats times: their number, median, 99th percentile and maximum.
pub(crate) fn times(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!(
        "n {}, p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        times.len(),
        ms(times[times.len() / 2]),
        ms(times[times.len() * 99 / 100]),
        ms(times[times.len() - 1])
    )
}
