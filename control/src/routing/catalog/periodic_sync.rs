//! Reads the model lists of all connections again a day after they were read, so that the alert `catalog_drift` notices
//! models that vendors withdraw. The first run is a day after an administrator first requested such a list.

use std::sync::Arc;

use shared::clock::unix_ms;
use shared::port::HttpClient;
use shared::snapshot::SnapshotReader;

use super::cache::CatalogCache;
use super::publication::Publication;
use super::sync::{Syncer, with_list};
use crate::common::background::Job;

/// The periodic job.
#[derive(Debug)]
pub(crate) struct PeriodicSync {
    pub(crate) catalog: Arc<CatalogCache>,
    pub(crate) http: Arc<dyn HttpClient>,
    pub(crate) snapshot: SnapshotReader,
    pub(crate) publication: Publication,
    pub(crate) job: Job,
}

impl PeriodicSync {
    /// Reads the lists periodically, for as long as the future is polled.
    pub(crate) async fn run(self) {
        let now_ms = unix_ms();
        let last_read_at_ms = self.last_read_at_ms().unwrap_or(now_ms);
        let mut next = last_read_at_ms.saturating_add(DAY_MS).max(now_ms.saturating_add(AFTER_START_MS));
        loop {
            let pause_ms = if self.job.run_at(next, self.sync()).await { DAY_MS } else { RETRY_MS };
            next = unix_ms().saturating_add(pause_ms);
        }
    }

    /// Returns the time at which the list that waits longest was read; `None` if no list was ever read.
    fn last_read_at_ms(&self) -> Option<u64> {
        let snapshot = self.snapshot.load();
        let read_at = |id: &str| self.catalog.evidence(id, None).catalog.synced_at_ms;
        with_list(&snapshot).iter().filter_map(|instance| read_at(instance.id.as_str())).min()
    }

    /// Reads all lists. The error names the connections whose list could not be read.
    async fn sync(&self) -> Result<(), String> {
        let snapshot = self.snapshot.load();
        let hasher = snapshot.key_hasher.clone();
        let syncer = Syncer { catalog: &self.catalog, http: &self.http, hasher };
        let (outcomes, not_reached) = syncer.sync(with_list(&snapshot)).await;
        self.publication.request().await;
        let failed = outcomes.into_iter().filter(|outcome| !outcome.ok).map(|outcome| outcome.provider);
        let failed: Vec<String> = failed.chain(not_reached).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let failed = failed.join(", ");
        tracing::warn!("cannot read the model lists of these connections: {failed}");
        Err(format!("the model lists of these connections could not be read: {failed}"))
    }
}

/// The first run does not compete with the start.
const AFTER_START_MS: u64 = 10_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const RETRY_MS: u64 = 60 * 60 * 1_000;
