//! Takes the price list of the file `prices.json` in the state directory when it changes, so that a list which an operator
//! copies there needs neither a restart nor a call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use shared::clock::unix_ms;

use super::cache::{CatalogCache, FileStamp};
use crate::background::{Job, sleep_until};

/// Requests that routing is published again; returns false if the request could not be queued.
type PublishPrices = Box<dyn Fn() -> bool + Send + Sync>;

/// The periodic job.
pub(crate) struct PriceFile {
    pub(crate) catalog: Arc<CatalogCache>,
    pub(crate) publish: PublishPrices,
    pub(crate) job: Job,
    /// The file that was read last, and the outcome.
    pub(crate) seen: (Option<FileStamp>, Result<(), String>),
}

impl fmt::Debug for PriceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriceFile").finish_non_exhaustive()
    }
}

impl PriceFile {
    /// Looks at the file periodically, for as long as the future is polled.
    pub(crate) async fn run(mut self) {
        loop {
            let next = unix_ms().saturating_add(PAUSE_MS);
            self.job.waits_until(next);
            sleep_until(next).await;
            self.job.begins();
            self.look().await;
            self.job.ends(self.seen.1.clone());
        }
    }

    /// Reads the file if it has changed.
    async fn look(&mut self) {
        let catalog = Arc::clone(&self.catalog);
        let stamp = tokio::task::spawn_blocking(move || catalog.price_file()).await.unwrap_or_default();
        if stamp != self.seen.0 {
            self.seen = (stamp, self.take().await);
        }
    }

    /// Takes the list if it is newer than the one in use.
    async fn take(&self) -> Result<(), String> {
        let catalog = Arc::clone(&self.catalog);
        let taken = tokio::task::spawn_blocking(move || catalog.take_price_file()).await;
        if let Some(as_of) = taken.map_err(|_| "the list could not be parsed".to_owned())?? {
            tracing::info!("the price list of {as_of} is in use");
            while !(self.publish)() {
                tokio::time::sleep(QUEUE_FULL).await;
            }
        }
        Ok(())
    }
}

const PAUSE_MS: u64 = 10_000;
/// The pause before another attempt to queue the publication.
const QUEUE_FULL: Duration = Duration::from_secs(1);
