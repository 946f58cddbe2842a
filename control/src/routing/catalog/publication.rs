//! The publication of routing after the catalog has changed.

use std::fmt;
use std::time::Duration;

/// Requests that routing is published again.
pub(crate) struct Publication(Box<dyn Fn() -> bool + Send + Sync>);

impl Publication {
    /// Creates it from a function that queues the request, and returns false if the queue is full.
    pub(crate) fn new(queue: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Box::new(queue))
    }

    /// Requests the publication, again until the request is queued.
    pub(crate) async fn request(&self) {
        while !(self.0)() {
            tokio::time::sleep(QUEUE_FULL).await;
        }
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publication").finish_non_exhaustive()
    }
}

/// The pause before another attempt to queue the request.
const QUEUE_FULL: Duration = Duration::from_secs(1);
