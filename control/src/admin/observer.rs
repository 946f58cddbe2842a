//! Observes the gateway for the verdict: recent exchanges, circuits, the state of the usage store, and the drain.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shared::activity::Activity;
use shared::clock::{monotonic_ms, unix_ms};
use shared::health::{Circuit, CircuitState};
use shared::routing::{Endpoint, ProviderInstance, Target};
use shared::snapshot::{Snapshot, SnapshotReader};

use crate::admin::verdict::{
    ChangeBefore, Drain, ExplainedVerdict, GatewayVerdict, OpenCircuit, Situation, StrandedEndpoint,
    UnrecordedUsage, verdict,
};
use crate::cluster::board::NodeBoard;
use crate::db::alerts::{self, OpenAlerts};
use crate::db::audit_pages::last_change;
use crate::db::readers::Readers;
use crate::usage::gauge::{Gauge, read};
use crate::usage::journal::Journal;
use crate::usage::recent::RecentUsage;
use crate::usage::recent::feed::{Following, RecentFeed};

/// The sources of the verdict.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) snapshot: SnapshotReader,
    pub(crate) readers: Readers,
    /// The board of the nodes that share the database; `None` for a gateway with its own one.
    pub(crate) board: Option<NodeBoard>,
    gauge: Arc<Gauge>,
    pub(crate) activity: Arc<Activity>,
    feed: Arc<RecentFeed>,
    recent: Arc<Mutex<RecentUsage>>,
    pub(crate) started_at_ms: u64,
}

impl Observer {
    pub(crate) fn new(
        snapshot: &SnapshotReader,
        (readers, board): (&Readers, Option<NodeBoard>),
        (journal, feed): (&Journal, Arc<RecentFeed>),
        activity: Arc<Activity>,
    ) -> Arc<Self> {
        Arc::new(Self {
            snapshot: snapshot.clone(),
            readers: readers.clone(),
            board,
            gauge: Arc::clone(journal.gauge()),
            activity,
            feed,
            recent: Arc::default(),
            started_at_ms: unix_ms(),
        })
    }

    /// Returns the verdict. If the database does not answer in time, it is based on the exchanges that are known.
    pub(crate) async fn verdict(&self) -> ExplainedVerdict {
        self.catch_up().await;
        let verdict = self.known(|recent| verdict(&self.situation(recent, unix_ms())));
        self.explained(verdict).await
    }

    /// Adds the last change before the trouble.
    pub(crate) async fn explained(&self, verdict: GatewayVerdict) -> ExplainedVerdict {
        let mut change_before = None;
        if verdict.is_trouble() {
            // The beginning of trouble is known to the minute.
            let before_ms = verdict.since_ms.saturating_add(60_000);
            let found = self.readers.ask(move |db| last_change(db, before_ms));
            let found =
                tokio::time::timeout(ANSWER_TIME_MAX, found).await.ok().and_then(Result::ok).flatten();
            change_before = found.map(|row| ChangeBefore {
                audit_id: row.id,
                at_ms: row.at_ms,
                actor: row.actor,
                action: row.action,
                object: format!("{}/{}", row.object_kind, row.object_id),
            });
        }
        ExplainedVerdict { verdict, change_before }
    }

    /// Counts the open alerts. Returns `None` if the database does not answer in time.
    pub(crate) async fn open_alerts(&self) -> Option<OpenAlerts> {
        let counted = tokio::time::timeout(ANSWER_TIME_MAX, self.readers.ask(alerts::open)).await;
        counted.ok().and_then(Result::ok)
    }

    /// Makes the writer thread pass on the sums of what it stores until the returned value is dropped.
    pub(crate) fn follow(&self) -> Following {
        self.feed.follow()
    }

    /// Takes the exchanges that were stored since the last call, and reads those that were not passed on.
    pub(crate) async fn catch_up(&self) {
        if self.known(|recent| recent.follow(&self.feed, unix_ms())) {
            return;
        }
        let recent = Arc::clone(&self.recent);
        let reading = self.readers.ask(move |db| {
            let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.catch_up(db, unix_ms(), Instant::now() + READING_TIME)
        });
        match tokio::time::timeout(ANSWER_TIME_MAX, reading).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("cannot read recent usage: {error}"),
            Err(_) => tracing::debug!("reading recent usage takes too long"),
        }
    }

    /// Calls `of` with the exchanges that are known.
    pub(crate) fn known<T>(&self, of: impl FnOnce(&mut RecentUsage) -> T) -> T {
        of(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the situation at `now_ms`.
    pub(crate) fn situation(&self, recent: &mut RecentUsage, now_ms: u64) -> Situation {
        let snapshot = self.snapshot.load();
        Situation {
            started_at_ms: self.started_at_ms,
            now_ms,
            unrecorded: self.unrecorded(now_ms),
            draining: self.activity.draining.get().map(|draining| Drain {
                since_ms: draining.since_ms,
                until_ms: draining.until_ms,
                connections: self.connections(),
            }),
            recent: recent.figures(now_ms),
            circuits: circuits(&snapshot),
            stranded: stranded_endpoints(&snapshot),
            has_provider: !snapshot.providers.is_empty(),
            has_usage: recent.has_usage(),
        }
    }

    /// Returns the number of client connections.
    pub(crate) fn connections(&self) -> u64 {
        u64::try_from(self.activity.connections.load(Ordering::Relaxed)).unwrap_or(u64::MAX)
    }

    fn unrecorded(&self, now_ms: u64) -> Option<UnrecordedUsage> {
        let gauge = &self.gauge;
        let (lost, lost_at_ms) = (read(&gauge.lost), read(&gauge.lost_at_ms));
        let lost_lately = lost > 0 && now_ms.saturating_sub(lost_at_ms) < LOST_SHOWN_MS;
        let has_room = read(&gauge.logs_stuck) == 0;
        let failing_since_ms = gauge.failing().map(|failing| failing.since_ms);
        let since_ms = failing_since_ms
            .or_else(|| lost_lately.then_some(lost_at_ms))
            .or_else(|| (!has_room).then_some(now_ms))?;
        Some(UnrecordedUsage { since_ms, lost, has_room })
    }
}

/// Returns the endpoints none of whose targets may be tried now.
pub(crate) fn stranded_endpoints(snapshot: &Snapshot) -> Vec<StrandedEndpoint> {
    snapshot.endpoints.iter().filter_map(|endpoint| stranded(snapshot, endpoint)).collect()
}

/// Returns the circuits that are not closed, of providers and of their models.
pub(crate) fn circuits(snapshot: &Snapshot) -> Vec<OpenCircuit> {
    let now_ms = monotonic_ms();
    let of_provider = |provider: &Arc<ProviderInstance>| {
        let id = provider.id.as_str();
        let mut open: Vec<OpenCircuit> = Vec::new();
        // With several keys, the provider works while one of them does.
        let lane = provider.best_lane(now_ms);
        open.extend(open_circuit(lane, lane.circuits.instance(), now_ms, id.to_owned()));
        for (model, circuit) in lane.circuits.models(now_ms, &lane.circuit_policy) {
            open.extend(open_circuit(lane, &circuit, now_ms, format!("{id}/{model}")));
        }
        open
    };
    snapshot.providers.iter().flat_map(of_provider).collect()
}

fn open_circuit(
    provider: &ProviderInstance,
    circuit: &Circuit,
    now_ms: u64,
    object: String,
) -> Option<OpenCircuit> {
    let retry_in_ms = match circuit.state(now_ms, &provider.circuit_policy) {
        CircuitState::Closed => return None,
        CircuitState::Open { wait_ms } => wait_ms,
        CircuitState::HalfOpen => 0,
    };
    let opened_at_ms = circuit.trouble().and_then(|trouble| trouble.opened_at_ms).unwrap_or(0);
    let failures = u64::from(circuit.failures());
    Some(OpenCircuit { object, opened_at_ms, retry_in_ms, failures, nodes: Vec::new() })
}

/// Returns an endpoint if none of its targets may be tried now.
fn stranded(snapshot: &Snapshot, endpoint: &Endpoint) -> Option<StrandedEndpoint> {
    let now_ms = monotonic_ms();
    let rests = |target: &Target| target.provider.unready.is_some() || target.open_ms(now_ms).is_some();
    if !endpoint.targets.iter().all(rests) {
        return None;
    }
    let opened =
        |target: &Target| target.provider.best_lane(now_ms).circuits.instance().trouble()?.opened_at_ms;
    let since_ms = endpoint.targets.iter().filter_map(opened).max();
    Some(StrandedEndpoint {
        name: endpoint.name.as_str().to_owned(),
        since_ms: since_ms.unwrap_or_else(|| snapshot.created.saturating_mul(1_000)),
        targets: u64::try_from(endpoint.targets.len()).unwrap_or(u64::MAX),
        nodes: Vec::new(),
    })
}

/// Reading stops after this time and goes on with the next call.
const READING_TIME: Duration = Duration::from_millis(500);
/// The verdict does not wait longer for the database.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Lost records are part of the verdict for this time.
const LOST_SHOWN_MS: u64 = 3_600_000;
