//! What a test has measured, one line a figure, so that the table of promises comes out of one run:
//! `cargo test --test main -- --nocapture | grep ^figure`. A few promises name times or amounts that are too much
//! for every run; with `LLMGW_TEST_FULL=1` those tests take the whole of them.

use std::fmt::Display;
use std::time::Duration;

/// Prints a figure of a promise.
#[expect(clippy::print_stdout, reason = "it is what the run is for")]
pub(crate) fn figure(promise: &str, told: impl Display) {
    println!("figure {promise}: {told}");
}

/// True if tests take the whole times and amounts that the promises name.
#[expect(clippy::disallowed_methods, reason = "a test's own switch, no setting of the gateway")]
pub(crate) fn is_full() -> bool {
    std::env::var_os("LLMGW_TEST_FULL").is_some()
}

/// The limit to hold a time to that the documentation promises as `limit`: exactly that in a full run, which has the machine for
/// itself, and ten times as much beside other tests, where a process waits for its turn.
pub(crate) fn promised(limit: Duration) -> Duration {
    if is_full() { limit } else { limit * 10 }
}

/// Times in words: how many, their median, their longest.
pub(crate) fn times(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!(
        "n {}, p50 {:.2} ms, max {:.2} ms",
        times.len(),
        ms(times[times.len() / 2]),
        ms(times[times.len() - 1])
    )
}
