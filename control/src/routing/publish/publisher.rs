//! Builds snapshots from the configuration file and the database and publishes them. Only the writer thread does so,
//! after each commit that touched data of a snapshot; a half of the snapshot that was not touched is reused.

use std::sync::Arc;
use std::{fmt, mem};

use shared::freshness::Freshness;
use shared::health::Board;
use shared::key_hash::KeyHasher;
use shared::operation_id::OperationIds;
use shared::quota::Counters;
use shared::reasoning_seal::ReasoningKey;
use shared::sanitize;
use shared::snapshot::{Snapshot, SnapshotPublisher};

use super::access::AccessHalf;
use super::begun_sign_ins::BegunSignIns;
use super::cancels::Cancels;
use super::ended_sessions::EndedSessions;
use super::preview::{AccessPreview, ChangePreview};
use super::reload::ReloadReport;
use super::routes::{self, LiveTokens, Routes, Signing};
use super::touched::{Touched, TouchedAccess};
use crate::common::credential::AccessTokens;
use crate::common::credential::oauth::RefreshSchedule;
use crate::common::vault::VaultKeys;
use crate::db::engine::{Db, DbResult};
use crate::db::{ended_sessions, endpoints};
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::catalog::merge::Merger;
use crate::routing::config::{Config, Environment, Routing};
use crate::routing::connection::{DatabaseInstances, Extensions, SignIns, StoredKeys, ViewCell, merge};

/// Builds and publishes snapshots.
pub(crate) struct Publisher {
    config: Arc<Config>,
    /// Providers and endpoints of the current configuration file.
    file: Routing,
    /// Stored keys for providers of the file that have none in the file.
    stored_keys: StoredKeys,
    /// Provider instances of the database.
    database_instances: DatabaseInstances,
    /// File and database merged, for the API.
    view: ViewCell,
    keys: Arc<VaultKeys>,
    /// Access tokens for provider instances that require them.
    tokens: AccessTokens,
    /// The refreshes of OAuth sign-ins.
    refreshes: RefreshSchedule,
    /// Known models and prices from outside the configuration.
    catalog: Arc<CatalogCache>,
    /// The time at which the catalog next changes by itself.
    next_change_at_ms: Option<u64>,
    board: Arc<Board>,
    counters: Arc<Counters>,
    hasher: KeyHasher,
    operation_ids: OperationIds,
    reasoning_key: ReasoningKey,
    freshness: Freshness,
    out: SnapshotPublisher,
    access: AccessHalf,
    routes: Routes,
    /// The console sessions that were ended before their time.
    ended_sessions: EndedSessions,
    /// The sign-ins at vendors that have begun or failed.
    sign_ins: BegunSignIns,
    /// The running requests that administrators cancel.
    cancels: Cancels,
    /// Touched parts that are not published yet, because reading them failed.
    owed: Touched,
    /// Called when the last accepted file has been published.
    report: Option<ReloadReport>,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("owed", &self.owed).finish_non_exhaustive()
    }
}

/// Parameters of `Publisher::start`.
#[derive(Debug)]
pub(crate) struct PublisherParams {
    pub(crate) config: Arc<Config>,
    pub(crate) keys: Arc<VaultKeys>,
    pub(crate) catalog: Arc<CatalogCache>,
    pub(crate) tokens: AccessTokens,
    pub(crate) counters: Arc<Counters>,
    pub(crate) freshness: Freshness,
    pub(crate) out: SnapshotPublisher,
}

impl Publisher {
    /// Publishes the first snapshot and returns the publisher.
    pub(crate) fn start(params: PublisherParams, db: &Db) -> DbResult<Self> {
        let PublisherParams { config, keys, catalog, tokens, counters, freshness, out } = params;
        let stored_keys = StoredKeys::read(db, &keys)?;
        let mut publisher = Self {
            access: AccessHalf::default(),
            routes: Routes::default(),
            catalog,
            tokens,
            refreshes: RefreshSchedule::default(),
            next_change_at_ms: None,
            file: stored_keys.fill(config.routing.clone()),
            stored_keys,
            database_instances: DatabaseInstances::default(),
            view: ViewCell::default(),
            ended_sessions: EndedSessions::default(),
            sign_ins: BegunSignIns::default(),
            cancels: Cancels::default(),
            owed: Touched::NOTHING,
            report: None,
            config,
            board: Arc::new(Board::default()),
            counters,
            hasher: KeyHasher::new(&keys.key_hash_key),
            operation_ids: OperationIds::new(&keys.derived_bytes("operation ids")),
            reasoning_key: ReasoningKey::new(&keys.derived_bytes("reasoning of adapted answers")),
            keys,
            freshness,
            out,
        };
        let ended = Touched::ended(ended_sessions::all(db, shared::clock::unix_ms())?);
        publisher.touch(Touched::ACCESS.and(Touched::ROUTING).and(Touched::SIGN_INS).and(ended), db)?;
        Ok(publisher)
    }

    /// Returns the providers and endpoints of the current configuration file.
    pub(crate) fn file(&self) -> &Routing {
        &self.file
    }

    /// Returns the environment that `${ENV:NAME}` refers to.
    pub(crate) fn environment(&self) -> &Environment {
        &self.config.environment
    }

    /// Returns the known models and prices from outside the configuration.
    pub(crate) fn catalog(&self) -> &CatalogCache {
        &self.catalog
    }

    /// Returns the counters of limits in memory.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns a handle to the refreshes of OAuth sign-ins.
    pub(crate) fn refreshes(&self) -> RefreshSchedule {
        self.refreshes.clone()
    }

    /// Returns a handle to the merged view of provider instances and endpoints.
    pub(crate) fn view(&self) -> ViewCell {
        self.view.clone()
    }

    /// Returns a handle to the console sessions that were ended before their time.
    pub(crate) fn ended_sessions(&self) -> EndedSessions {
        self.ended_sessions.clone()
    }

    /// Returns a handle to the sign-ins at vendors that have begun or failed.
    pub(crate) fn sign_ins(&self) -> BegunSignIns {
        self.sign_ins.clone()
    }

    /// Returns the keys of the vault.
    pub(crate) fn keys(&self) -> &Arc<VaultKeys> {
        &self.keys
    }

    /// Returns a handle to the running requests that administrators cancel.
    pub(crate) fn cancels(&self) -> Cancels {
        self.cancels.clone()
    }

    /// Takes a changed file, which the next publication contains; `report` is called when it is in force.
    pub(crate) fn replace_file(&mut self, file: Routing, report: ReloadReport) {
        self.file = self.stored_keys.fill(file);
        self.report = Some(report);
        self.owe(Touched::ROUTING);
    }

    /// Lets the next publication contain what `touched` names.
    pub(crate) fn owe(&mut self, touched: Touched) {
        self.owed = mem::take(&mut self.owed).and(touched);
    }

    /// Publishes what `touched` names. On an error the last snapshot stays current, and the change is published with
    /// the next successful call.
    pub(crate) fn touch(&mut self, touched: Touched, db: &Db) -> DbResult<()> {
        let now_ms = shared::clock::unix_ms();
        self.owe(touched);
        self.owed.routing |= self.is_due(now_ms);
        // First, because these cannot fail.
        self.cancels.add(mem::take(&mut self.owed.cancels));
        self.ended_sessions.add(mem::take(&mut self.owed.ended_sessions), now_ms);
        // What is read stays owed until all is: the change that it was read by may be lost meanwhile.
        if self.owed.sign_ins {
            self.sign_ins.reread(db)?;
        }
        if self.owed.documents {
            self.catalog.reread(db);
            self.owed.routing = true;
        }
        if !self.owed.is_of_snapshot() {
            self.owed = Touched::NOTHING;
            return Ok(());
        }
        if let Err(error) = self.read_access(db) {
            // Some keys may have been reread and others not.
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

    /// Returns the snapshot that an uncommitted change would lead to, beside the present one. Nothing is published.
    pub(crate) fn preview(&self, touched: &Touched, db: &Db) -> DbResult<ChangePreview> {
        let after = if touched.routing { self.previewed_routes(db)? } else { self.routes.clone() };
        let AccessPreview { keys, everywhere, is_complete } = AccessPreview::read(&touched.access, db)?;
        let (before, callers) = (self.routes.clone(), Arc::clone(&self.access.table));
        Ok(ChangePreview { before, after, callers, keys, everywhere, is_complete })
    }

    fn previewed_routes(&self, db: &Db) -> DbResult<Routes> {
        let now_ms = shared::clock::unix_ms();
        let mut instances = self.database_instances.clone();
        instances.refresh(db, &self.keys, &self.config.environment)?;
        let (sign_ins, extensions) = (SignIns::read(db, &self.keys)?, Extensions::read(db, &self.keys)?);
        let (routing, _) = merge(&self.file, &instances, (&sign_ins, &extensions), endpoints::all(db)?);
        let mut merger = Merger::new(&self.catalog, db, now_ms)?.with_endpoints(&routing.endpoints);
        let (board, signing) = (Board::default(), Signing { tokens: None, now_ms });
        Ok(routes::routes(&routing, (&self.config.policies, &board), &signing, &mut merger))
    }

    fn read_access(&mut self, db: &Db) -> DbResult<()> {
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

    fn read_routing(&mut self, db: &Db, now_ms: u64) -> DbResult<()> {
        self.database_instances.refresh(db, &self.keys, &self.config.environment)?;
        let (sign_ins, extensions) = (SignIns::read(db, &self.keys)?, Extensions::read(db, &self.keys)?);
        let (instances, beside) = (&self.database_instances, (&sign_ins, &extensions));
        let (routing, view) = merge(&self.file, instances, beside, endpoints::all(db)?);
        self.catalog.keep(&routing.providers.iter().map(|provider| provider.id.as_str()).collect());
        let mut merger = Merger::new(&self.catalog, db, now_ms)?.with_endpoints(&routing.endpoints);
        self.tokens.want(routes::grants(&routing));
        self.refreshes.want(routes::refreshes(&routing, now_ms));
        let live = LiveTokens { granted: &self.tokens, refreshes: &self.refreshes };
        let signing = Signing { tokens: Some(live), now_ms };
        let policies = (&self.config.policies, &*self.board);
        self.routes = routes::routes(&routing, policies, &signing, &mut merger);
        sanitize::guard(routes::guarded(&routing, &self.routes.providers));
        self.next_change_at_ms = merger.finish();
        self.view.write(view);
        Ok(())
    }

    /// True if a change is pending: reading it failed, or its time has come.
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
            patterns: Arc::clone(&self.routes.patterns),
            access: Arc::clone(&self.access.table),
            key_hasher: self.hasher.clone(),
            operation_ids: self.operation_ids.clone(),
            reasoning_key: self.reasoning_key.clone(),
            freshness: self.freshness.clone(),
        });
        self.counters.published(shared::clock::unix_ms());
    }
}
