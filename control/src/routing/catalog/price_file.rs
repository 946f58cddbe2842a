//! Takes the price list of the file `prices.json` in the state directory when it changes, so that a list which an operator
//! copies there needs neither a restart nor a call. What was taken is in the database and survives the loss of the file.

use std::sync::Arc;

use shared::clock::unix_ms;

use super::cache::{CatalogCache, FileStamp};
use super::publication::Publication;
use crate::common::background::Job;

/// The periodic job.
#[derive(Debug)]
pub(crate) struct PriceFile {
    pub(crate) catalog: Arc<CatalogCache>,
    pub(crate) publication: Publication,
    pub(crate) job: Job,
    /// The file that was read last, and the outcome.
    pub(crate) seen: (Option<FileStamp>, Result<(), String>),
}

impl PriceFile {
    /// Looks at the file periodically, for as long as the future is polled.
    pub(crate) async fn run(mut self) {
        let job = self.job.clone();
        loop {
            job.run_at(unix_ms().saturating_add(PAUSE_MS), self.look()).await;
        }
    }

    /// Reads the file if it has changed. Returns the outcome of the last reading.
    async fn look(&mut self) -> Result<(), String> {
        let catalog = Arc::clone(&self.catalog);
        let stamp = tokio::task::spawn_blocking(move || catalog.price_file()).await.unwrap_or_default();
        // After a failure again, because the list may be good and the database busy.
        if stamp != self.seen.0 || self.seen.1.is_err() {
            self.seen = (stamp, self.take().await);
        }
        self.seen.1.clone()
    }

    /// Takes the list if it is newer than the one in use.
    async fn take(&self) -> Result<(), String> {
        if let Some(as_of) = self.catalog.take_price_file().await? {
            tracing::info!("the price list of {as_of} is in use");
            self.publication.request().await;
        }
        Ok(())
    }
}

const PAUSE_MS: u64 = 10_000;
