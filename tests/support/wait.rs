//! Waits for conditions. A condition that is not met within its limit fails the test with a message that names it.

use std::time::Duration;

/// The default limit of a wait: far longer than a working system needs, shorter than a test's own timeout.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the result of `future`, which must be ready within `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}

/// Calls `probe` repeatedly until it returns a value.
pub(crate) async fn eventually<T>(what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, probe).await
}

/// Like [`eventually`], within `limit`.
pub(crate) async fn eventually_within<T>(
    limit: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    within(limit, what, async {
        loop {
            if let Some(answer) = probe().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}
