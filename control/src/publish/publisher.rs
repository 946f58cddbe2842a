//! Makes snapshots of the configuration file and the database and publishes them. Only the writer thread does
//! so, after each commit that touched what a snapshot is made of; half of a snapshot that was not touched is
//! taken over as it is.

use std::sync::Arc;

use rusqlite::Connection;
use shared::access::{AccessTable, KeyHasher};
use shared::health::Board;
use shared::operation_id::OperationIds;
use shared::quota::Counters;
use shared::snapshot::{Snapshot, SnapshotPublisher};

use super::access;
use super::routes::{self, Routes, Signing};
use crate::catalog::merge::Merger;
use crate::catalog::shelf::Shelf;
use crate::config::{Config, Environment, Routing};
use crate::connection::{Holdings, KeptKeys, ViewCell, merge};
use crate::credential::Tokens;
use crate::store::endpoints;
use crate::vault::Keys;

/// What a commit changed, as far as snapshots are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Keys, projects, principals, quotas.
    pub(crate) access: bool,
    /// Providers, endpoints, models, prices.
    pub(crate) routing: bool,
}

impl Touched {
    pub(crate) const NOTHING: Self = Self { access: false, routing: false };
    pub(crate) const ACCESS: Self = Self { access: true, routing: false };
    pub(crate) const ROUTING: Self = Self { access: false, routing: true };

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { access: self.access || other.access, routing: self.routing || other.routing }
    }
}

/// See the module.
#[derive(Debug)]
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
    keys: Arc<Keys>,
    /// Access tokens for those that need them.
    tokens: Tokens,
    /// What is known of models beside the configuration.
    catalog: Arc<Shelf>,
    /// When what is known changes next without anybody's doing.
    next_change_at_ms: Option<u64>,
    board: Arc<Board>,
    counters: Arc<Counters>,
    hasher: KeyHasher,
    operation_ids: OperationIds,
    out: SnapshotPublisher,
    access: Arc<AccessTable>,
    routes: Routes,
    /// Touched and not yet published, because reading it failed.
    owed: Touched,
}

/// What a publisher is started with.
#[derive(Debug)]
pub(crate) struct PublisherParams {
    pub(crate) config: Arc<Config>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) catalog: Arc<Shelf>,
    pub(crate) tokens: Tokens,
    pub(crate) counters: Arc<Counters>,
    pub(crate) out: SnapshotPublisher,
}

impl Publisher {
    /// Publishes the first snapshot.
    pub(crate) fn start(params: PublisherParams, db: &Connection) -> rusqlite::Result<Self> {
        let PublisherParams { config, keys, catalog, tokens, counters, out } = params;
        let kept_keys = KeptKeys::read(db, &keys)?;
        let mut publisher = Self {
            access: Arc::default(),
            routes: Routes::default(),
            catalog,
            tokens,
            next_change_at_ms: None,
            file: kept_keys.fill(config.routing.clone()),
            kept_keys,
            holdings: Holdings::default(),
            view: ViewCell::default(),
            owed: Touched::NOTHING,
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
    pub(crate) fn catalog(&self) -> &Shelf {
        &self.catalog
    }

    /// Where all provider instances and endpoints can be seen.
    pub(crate) fn view(&self) -> ViewCell {
        self.view.clone()
    }

    /// The file has changed.
    pub(crate) fn replace_file(&mut self, file: Routing, db: &Connection) -> rusqlite::Result<()> {
        self.file = self.kept_keys.fill(file);
        self.touch(Touched::ROUTING, db)
    }

    /// Publishes what has changed. On an error the last snapshot stays current, and the change is published
    /// with the next one that succeeds.
    pub(crate) fn touch(&mut self, touched: Touched, db: &Connection) -> rusqlite::Result<()> {
        let now_ms = shared::clock::unix_ms();
        self.owed = self.owed.and(touched);
        self.owed.routing |= self.is_due(now_ms);
        if self.owed == Touched::NOTHING {
            return Ok(());
        }
        if self.owed.access {
            self.access = Arc::new(access::table(&self.config, &self.hasher, &self.counters, db)?);
        }
        if self.owed.routing {
            self.holdings.refresh(db, &self.keys, &self.config.environment)?;
            let (routing, view) = merge(&self.file, &self.holdings, endpoints::all(db)?);
            self.catalog.keep(&routing.providers.iter().map(|provider| provider.id.as_str()).collect());
            let mut merger = Merger::new(&self.catalog, db, now_ms)?.with_endpoints(&routing.endpoints);
            self.tokens.want(routes::grants(&routing));
            let signing = Signing { tokens: &self.tokens, now_ms };
            let policies = (&self.config.policies, &*self.board);
            self.routes = routes::routes(&routing, policies, &signing, &mut merger);
            self.next_change_at_ms = merger.finish();
            self.view.write(view);
        }
        self.owed = Touched::NOTHING;
        self.publish();
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
            access: Arc::clone(&self.access),
            key_hasher: self.hasher.clone(),
            operation_ids: self.operation_ids.clone(),
        });
    }
}
