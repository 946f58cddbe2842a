//! Makes snapshots of the configuration file and the database and publishes them. Only the writer thread does
//! so, after each commit that touched what a snapshot is made of; half of a snapshot that was not touched is
//! taken over as it is.

use std::sync::Arc;
use std::{fmt, mem};

use rusqlite::Connection;
use shared::health::Board;
use shared::key_hash::KeyHasher;
use shared::operation_id::OperationIds;
use shared::quota::Counters;
use shared::sanitize;
use shared::snapshot::{Snapshot, SnapshotPublisher};

use super::access::AccessHalf;
use super::reload::ReloadReport;
use super::routes::{self, Routes, Signing};
use super::touched::{Touched, TouchedAccess};
use crate::catalog::merge::Merger;
use crate::catalog::shelf::CatalogShelf;
use crate::config::{Config, Environment, Routing};
use crate::connection::{Holdings, KeptKeys, ViewCell, merge};
use crate::credential::AccessTokens;
use crate::store::endpoints;
use crate::vault::VaultKeys;

/// Makes and publishes snapshots.
pub(crate) struct Publisher {
    config: Arc<Config>,
    /// Providers and endpoints of the configuration file as it is now.
    file: Routing,
    /// Keys for those of the file that have none there.
    kept_keys: KeptKeys,
    /// Provider instances of the database.
    holdings: Holdings,
    /// Both together, as they are shown.
    view: ViewCell,
    keys: Arc<VaultKeys>,
    /// Access tokens for those that need them.
    tokens: AccessTokens,
    /// What is known of models beside the configuration.
    catalog: Arc<CatalogShelf>,
    /// When what is known changes next without anybody's doing.
    next_change_at_ms: Option<u64>,
    board: Arc<Board>,
    counters: Arc<Counters>,
    hasher: KeyHasher,
    operation_ids: OperationIds,
    out: SnapshotPublisher,
    access: AccessHalf,
    routes: Routes,
    /// Touched and not yet published, because reading it failed.
    owed: Touched,
    /// To be called when the file that was taken in last is published.
    report: Option<ReloadReport>,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("owed", &self.owed).finish_non_exhaustive()
    }
}

/// What a publisher is started with.
#[derive(Debug)]
pub(crate) struct PublisherParams {
    pub(crate) config: Arc<Config>,
    pub(crate) keys: Arc<VaultKeys>,
    pub(crate) catalog: Arc<CatalogShelf>,
    pub(crate) tokens: AccessTokens,
    pub(crate) counters: Arc<Counters>,
    pub(crate) out: SnapshotPublisher,
}

impl Publisher {
    /// Publishes the first snapshot.
    pub(crate) fn start(params: PublisherParams, db: &Connection) -> rusqlite::Result<Self> {
        let PublisherParams { config, keys, catalog, tokens, counters, out } = params;
        let kept_keys = KeptKeys::read(db, &keys)?;
        let mut publisher = Self {
            access: AccessHalf::default(),
            routes: Routes::default(),
            catalog,
            tokens,
            next_change_at_ms: None,
            file: kept_keys.fill(config.routing.clone()),
            kept_keys,
            holdings: Holdings::default(),
            view: ViewCell::default(),
            owed: Touched::NOTHING,
            report: None,
            config,
            board: Arc::new(Board::default()),
            counters,
            hasher: KeyHasher::new(&keys.key_hash_key),
            operation_ids: OperationIds::new(&keys.derived_bytes("operation ids")),
            keys,
            out,
        };
        publisher.touch(Touched::ACCESS.and(Touched::ROUTING), db)?;
        Ok(publisher)
    }

    /// Providers and endpoints of the configuration file as it is now.
    pub(crate) fn file(&self) -> &Routing {
        &self.file
    }

    /// What `${ENV:NAME}` refers to.
    pub(crate) fn environment(&self) -> &Environment {
        &self.config.environment
    }

    /// What is known of models beside the configuration.
    pub(crate) fn catalog(&self) -> &CatalogShelf {
        &self.catalog
    }

    /// Where all provider instances and endpoints can be seen.
    pub(crate) fn view(&self) -> ViewCell {
        self.view.clone()
    }

    /// Publishes a changed file; `report` is called when it is in force.
    pub(crate) fn replace_file(
        &mut self,
        file: Routing,
        report: ReloadReport,
        db: &Connection,
    ) -> rusqlite::Result<()> {
        self.file = self.kept_keys.fill(file);
        self.report = Some(report);
        self.touch(Touched::ROUTING, db)
    }

    /// Publishes what has changed. On an error the last snapshot stays current, and the change is published
    /// with the next one that succeeds.
    pub(crate) fn touch(&mut self, touched: Touched, db: &Connection) -> rusqlite::Result<()> {
        let now_ms = shared::clock::unix_ms();
        self.owed = mem::take(&mut self.owed).and(touched);
        self.owed.routing |= self.is_due(now_ms);
        if self.owed == Touched::NOTHING {
            return Ok(());
        }
        if let Err(error) = self.read_access(db) {
            // Some of the keys may be read already and others not.
            self.owed.access = TouchedAccess::All;
            return Err(error);
        }
        if self.owed.routing {
            self.read_routing(db, now_ms)?;
        }
        self.owed = Touched::NOTHING;
        self.publish();
        if let Some(report) = self.report.take() {
            report();
        }
        Ok(())
    }

    fn read_access(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let is_read = match &self.owed.access {
            TouchedAccess::Nothing => true,
            TouchedAccess::Some(changed) => self.access.change(changed, &self.counters, db)?,
            TouchedAccess::All => false,
        };
        if !is_read {
            self.access = AccessHalf::read(&self.config, &self.hasher, &self.counters, db)?;
        }
        Ok(())
    }

    fn read_routing(&mut self, db: &Connection, now_ms: u64) -> rusqlite::Result<()> {
        self.holdings.refresh(db, &self.keys, &self.config.environment)?;
        let (routing, view) = merge(&self.file, &self.holdings, endpoints::all(db)?);
        self.catalog.keep(&routing.providers.iter().map(|provider| provider.id.as_str()).collect());
        let mut merger = Merger::new(&self.catalog, db, now_ms)?.with_endpoints(&routing.endpoints);
        self.tokens.want(routes::grants(&routing));
        let signing = Signing { tokens: &self.tokens, now_ms };
        let policies = (&self.config.policies, &*self.board);
        self.routes = routes::routes(&routing, policies, &signing, &mut merger);
        sanitize::guard(routes::guarded(&routing, &self.routes.providers));
        self.next_change_at_ms = merger.finish();
        self.view.write(view);
        Ok(())
    }

    /// Whether a change waits: it could not be read, or its time has come.
    pub(crate) fn is_owing(&self) -> bool {
        self.owed != Touched::NOTHING || self.is_due(shared::clock::unix_ms())
    }

    fn is_due(&self, now_ms: u64) -> bool {
        self.next_change_at_ms.is_some_and(|at| at <= now_ms)
    }

    fn publish(&self) {
        self.out.publish(Snapshot {
            generation: self.out.generation() + 1,
            created: shared::clock::unix_ms() / 1_000,
            providers: Arc::clone(&self.routes.providers),
            endpoints: Arc::clone(&self.routes.endpoints),
            routes: Arc::clone(&self.routes.routes),
            access: Arc::clone(&self.access.table),
            key_hasher: self.hasher.clone(),
            operation_ids: self.operation_ids.clone(),
        });
    }
}
