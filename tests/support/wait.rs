//! Waiting for facts. A fact that does not come true within its limit fails the test and says which one.

use std::time::Duration;

/// The limit of every wait that has none of its own: far above anything that works, below a test's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The outcome of `future`, which must be there within `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}

/// Asks `probe` again and again until it has an answer.
pub(crate) async fn eventually<T>(what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, probe).await
}

/// As [`eventually`], within `limit`.
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
