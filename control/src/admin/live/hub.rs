//! The one task behind all live streams. It runs while there are listeners: once a second it observes the gateway and
//! publishes a frame. A frame contains the changes of the last minutes, each with the number of the frame in which it
//! first occurred, so that a listener who missed frames gets each change once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use shared::clock::{monotonic_ms, unix_ms};
use shared::id::KeyId;
use shared::port::Exchanges;
use shared::snapshot::Snapshot;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::events::{LiveChange, LiveFigures, LiveProvider, ShownFigures, put};
use super::frame::{ListedExchange, LiveFrame, Numbered};
use super::others::{JoinedOthers, SeenAt};
use super::seen::{SeenRequests, SeenValue};
use crate::admin::health::ShownCircuit;
use crate::admin::observer::Observer;
use crate::admin::running::RunningNow;
use crate::admin::shares::{CallerShares, ShareBound};
use crate::admin::verdict::{ExplainedVerdict, OpenCircuit, verdict};
use crate::common::bounds::LIVE_STREAMS;
use crate::db::alerts::OpenAlerts;
use crate::db::audit_pages::{self, AuditRow};
use crate::routing::publish::StatusCell;
use crate::usage::recent::{SPAN_SECONDS, Share};

/// State shared by all live streams.
#[derive(Debug)]
pub(crate) struct LiveHub {
    pub(super) observer: Arc<Observer>,
    pub(super) exchanges: Arc<dyn Exchanges>,
    reload: StatusCell,
    /// The frames of the running task; `None` without listeners.
    frames: Mutex<Option<watch::Sender<Arc<LiveFrame>>>>,
    /// The requests that listeners watch for.
    pub(super) seen: SeenRequests,
    /// The permitted streams.
    pub(super) streams: CallerShares,
}

/// A key that a listener watches, until this is dropped.
#[derive(Debug)]
pub(super) struct WatchedKey {
    hub: Arc<LiveHub>,
    pub(super) key: KeyId,
}

impl LiveHub {
    pub(crate) fn new(
        observer: &Arc<Observer>,
        exchanges: &Arc<dyn Exchanges>,
        reload: StatusCell,
    ) -> Arc<Self> {
        Arc::new(Self {
            observer: Arc::clone(observer),
            exchanges: Arc::clone(exchanges),
            reload,
            frames: Mutex::default(),
            seen: SeenRequests::default(),
            streams: CallerShares::new(STREAMS),
        })
    }

    /// Returns the frames from the current one on. Starts the task if it does not run.
    pub(super) fn subscribe(self: &Arc<Self>) -> watch::Receiver<Arc<LiveFrame>> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = frames.as_ref() {
            let mut receiver = sender.subscribe();
            // The current frame is at most a second old: better than none.
            if receiver.borrow().number > 0 {
                receiver.mark_changed();
            }
            return receiver;
        }
        let (sender, receiver) = watch::channel(Arc::default());
        *frames = Some(sender);
        tokio::spawn(run(Arc::clone(self)));
        receiver
    }

    /// Watches the requests of a key.
    pub(super) fn watch(self: &Arc<Self>, key: KeyId) -> WatchedKey {
        self.change_watched(|watched| watched.push(key.clone()));
        WatchedKey { hub: Arc::clone(self), key }
    }

    fn change_watched(&self, change: impl FnOnce(&mut Vec<KeyId>)) {
        self.seen.change_keys(&self.observer.activity.watch, change);
    }

    /// Publishes a frame. Returns false if there are no listeners left; then the task must end.
    fn publish(&self, frame: LiveFrame) -> bool {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        match frames.as_ref().filter(|sender| sender.receiver_count() > 0) {
            Some(sender) => {
                let frame = frame.after(&sender.borrow());
                sender.send_replace(Arc::new(frame));
                true
            }
            None => {
                *frames = None;
                false
            }
        }
    }
}

impl Drop for WatchedKey {
    fn drop(&mut self) {
        let place = |watched: &Vec<KeyId>| watched.iter().position(|key| *key == self.key);
        self.hub.change_watched(|watched| {
            if let Some(place) = place(watched) {
                watched.swap_remove(place);
            }
        });
    }
}

/// Ends all streams if the task panics: their clients connect again, and the first of them starts a new task.
struct EndsStreams(Arc<LiveHub>);

impl Drop for EndsStreams {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.frames.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

async fn run(hub: Arc<LiveHub>) {
    let _ends_streams = EndsStreams(Arc::clone(&hub));
    let mut maker = FrameMaker::of(&hub);
    let _following = hub.observer.follow();
    let mut second = tokio::time::interval(FRAME_EVERY);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        hub.observer.catch_up().await;
        let after = maker.audit_id;
        let audit = hub.observer.readers.ask(move |db| audit_pages::newest(db, after)).await;
        let now_ms = unix_ms();
        let mut situation = hub.observer.known(|recent| hub.observer.situation(recent, now_ms));
        let mut running = RunningNow::from(hub.exchanges.running().await);
        let others = hub.join_others(&mut running, &mut situation).await;
        let observed = Observed {
            now_ms,
            verdict: hub.observer.explained(verdict(&situation)).await,
            alerts: hub.observer.open_alerts().await,
            circuits: situation.circuits,
            audit: audit.unwrap_or_default(),
            running,
            others,
        };
        if !hub.publish(maker.frame(&hub, observed)) {
            return;
        }
    }
}

/// The values of a frame that need a reading of the database or an answer of the workers.
struct Observed {
    now_ms: u64,
    verdict: ExplainedVerdict,
    alerts: Option<OpenAlerts>,
    circuits: Vec<OpenCircuit>,
    audit: Vec<AuditRow>,
    running: RunningNow,
    others: JoinedOthers,
}

/// Makes frames; it knows the previous one.
#[derive(Debug, Default)]
struct FrameMaker {
    number: u64,
    providers: BTreeMap<String, Numbered<Arc<str>>>,
    running: BTreeMap<Arc<str>, Numbered<ListedExchange>>,
    changes: VecDeque<Numbered<Arc<[u8]>>>,
    seen: VecDeque<Numbered<Arc<SeenValue>>>,
    /// The number of the last watched request of this node, and of each process of the others.
    seen_here: u64,
    seen_elsewhere: BTreeMap<SeenAt, u64>,
    /// The beginning of the frames, in milliseconds since the Unix epoch.
    began_ms: u64,
    /// The last audit record that was read.
    audit_id: i64,
    generation: u64,
    reloads: u64,
    reload_failed_at_ms: Option<u64>,
    /// The circuits that are not closed, and the nodes at which they are so.
    open_at: BTreeMap<String, Vec<String>>,
}

impl FrameMaker {
    /// Begins frames. Requests that were seen before are in none.
    fn of(hub: &LiveHub) -> Self {
        Self { seen_here: hub.seen.last(), began_ms: unix_ms(), ..Self::default() }
    }

    fn frame(&mut self, hub: &LiveHub, observed: Observed) -> LiveFrame {
        let Observed { now_ms, verdict, alerts, circuits, audit, running, others } = observed;
        let observer = &hub.observer;
        self.number += 1;
        let snapshot = observer.snapshot.load();
        let (span, attempts) = observer.known(|recent| (recent.span(now_ms), recent.attempts(now_ms)));
        self.take_audit(audit, now_ms);
        self.take_publications(&snapshot, now_ms);
        self.take_reloads(&hub.reload, now_ms);
        self.take_circuits(circuits, now_ms);
        self.take_providers(&snapshot, &attempts, &running);
        self.take_seen(hub, others.seen);
        let (total, more) = (running.total, running.more());
        self.take_running(running);
        let mut figures = Vec::new();
        let shown = LiveFigures {
            at_ms: now_ms,
            span_ms: SPAN_SECONDS * 1_000,
            running: total,
            connections: observer.connections() + others.connections,
            verdict,
            alerts,
            exchanges: ShownFigures::of(&span),
        };
        put(&mut figures, "figures", &shown);
        LiveFrame {
            number: self.number,
            figures,
            providers: self.providers.values().cloned().collect(),
            running: self.running.clone(),
            more,
            changes: self.changes.clone(),
            seen: self.seen.clone(),
            is_draining: observer.activity.draining.get().is_some(),
            step: Bytes::new(),
        }
    }

    /// Adds the actions of administrators. The first frame has those of the last hour.
    fn take_audit(&mut self, rows: Vec<AuditRow>, now_ms: u64) {
        for row in rows {
            self.audit_id = self.audit_id.max(row.id);
            let at_ms = u64::try_from(row.at_ms).unwrap_or(0);
            if row.is_change() && at_ms.saturating_add(HOUR_MS) > now_ms {
                self.change(&LiveChange {
                    at_ms,
                    audit_id: Some(row.id),
                    text: format!("{}: {} {}", row.actor, row.action, row.object_id),
                    object: format!("{}/{}", row.object_kind, row.object_id),
                    kind: row.action,
                });
            }
        }
    }

    fn take_publications(&mut self, snapshot: &Snapshot, now_ms: u64) {
        let generation = snapshot.generation;
        if self.generation != generation && self.number > 1 {
            self.own_change(
                now_ms,
                "publication",
                "gateway/routing",
                format!("Generation {generation} is in effect."),
            );
        }
        self.generation = generation;
    }

    fn take_reloads(&mut self, reload: &StatusCell, now_ms: u64) {
        let status = reload.read();
        let (is_new, is_first) = (self.reloads != status.reloads, self.number == 1);
        if is_new && !is_first {
            let text = "The changed configuration file is in effect.".to_owned();
            self.own_change(status.last_ok_at_ms.min(now_ms), "reload", CONFIG, text);
        }
        self.reloads = status.reloads;
        let (failed_at_ms, error) = status.last_error.unzip();
        if let (Some(at_ms), Some(error)) = (failed_at_ms, error)
            && self.reload_failed_at_ms != failed_at_ms
        {
            let text = format!("The changed configuration file is invalid: {error}");
            self.own_change(at_ms, "reload_failed", CONFIG, text);
        }
        self.reload_failed_at_ms = failed_at_ms;
    }

    fn take_circuits(&mut self, open: Vec<OpenCircuit>, now_ms: u64) {
        for circuit in open.iter().filter(|circuit| !self.open_at.contains_key(&circuit.object)) {
            // Without a count: it goes on while the circuit is open, and the mark of a moment must not change.
            let OpenCircuit { object, opened_at_ms, nodes, .. } = circuit;
            let text = format!("The circuit of {object} opened{}.", at(nodes));
            change(&mut self.changes, self.number, &own(*opened_at_ms, "circuit_open", &of(object), text));
        }
        let now_open = open.into_iter().map(|circuit| (circuit.object, circuit.nodes)).collect();
        let before = std::mem::replace(&mut self.open_at, now_open);
        for (object, nodes) in before.iter().filter(|(object, _)| !self.open_at.contains_key(*object)) {
            let text = format!("The circuit of {object} closed{}.", at(nodes));
            change(&mut self.changes, self.number, &own(now_ms, "circuit_closed", &of(object), text));
        }
    }

    /// Adds the watched requests that are new, of this node and of the others.
    fn take_seen(&mut self, hub: &LiveHub, elsewhere: Vec<(SeenAt, Vec<(u64, SeenValue)>)>) {
        for (number, request) in hub.seen.since(&hub.observer.activity.watch, self.seen_here) {
            self.seen_here = number;
            keep(&mut self.seen, self.number, Arc::new(request));
        }
        for (at, requests) in elsewhere {
            let last = self.seen_elsewhere.entry(at).or_default();
            for (number, request) in requests {
                if number > *last && request.at_ms >= self.began_ms {
                    keep(&mut self.seen, self.number, Arc::new(request));
                }
                *last = number.max(*last);
            }
        }
    }

    fn take_running(&mut self, running: RunningNow) {
        let known = std::mem::take(&mut self.running);
        for exchange in running.listed {
            let id: Arc<str> = exchange.request_id().into();
            let key = exchange.key();
            let Ok(json) = serde_json::value::to_raw_value(&exchange) else { continue };
            let before = known.get(&id).filter(|before| before.value.json.get() == json.get()).cloned();
            let value = ListedExchange { key, json: json.into() };
            let now = before.unwrap_or(Numbered { number: self.number, value });
            self.running.insert(id, now);
        }
    }

    fn take_providers(
        &mut self,
        snapshot: &Snapshot,
        attempts: &BTreeMap<Box<str>, Share>,
        running: &RunningNow,
    ) {
        let now_ms = monotonic_ms();
        let known = std::mem::take(&mut self.providers);
        for provider in snapshot.providers.iter() {
            let id = provider.id.as_str();
            let share = attempts.get(id).copied().unwrap_or_default();
            let shown = LiveProvider {
                provider: id,
                circuit: ShownCircuit::of(
                    provider.best_lane(now_ms).circuits.instance(),
                    now_ms,
                    &provider.circuit_policy,
                ),
                running: running.attempts.get(id).copied().unwrap_or_default(),
                attempts: share.total,
                failures: share.bad,
                open_at: self.open_at.get(id).map_or(&[], Vec::as_slice),
            };
            let json: Arc<str> = serde_json::to_string(&shown).unwrap_or_default().into();
            let before = known.get(id).filter(|before| before.value == json).cloned();
            let now = before.unwrap_or(Numbered { number: self.number, value: json });
            self.providers.insert(id.to_owned(), now);
        }
    }

    fn own_change(&mut self, at_ms: u64, kind: &str, object: &str, text: String) {
        self.change(&own(at_ms, kind, object, text));
    }

    fn change(&mut self, shown: &LiveChange) {
        change(&mut self.changes, self.number, shown);
    }
}

/// A change that the gateway made by itself.
fn own(at_ms: u64, kind: &str, object: &str, text: String) -> LiveChange {
    LiveChange { at_ms, audit_id: None, kind: kind.to_owned(), object: object.to_owned(), text }
}

/// Returns the words for the nodes of a change; none for a gateway with its own database.
fn at(nodes: &[String]) -> String {
    if nodes.is_empty() { String::new() } else { format!(" at {}", nodes.join(", ")) }
}

/// Returns the object of a circuit as changes name it.
fn of(circuit: &str) -> String {
    let kind = if circuit.contains('/') { "model" } else { "provider" };
    format!("{kind}/{circuit}")
}

fn change(changes: &mut VecDeque<Numbered<Arc<[u8]>>>, number: u64, shown: &LiveChange) {
    let mut event = Vec::new();
    put(&mut event, "change", shown);
    keep(changes, number, event.into());
}

/// Appends a value and drops the oldest one beyond [`KEPT_MAX`].
fn keep<T>(values: &mut VecDeque<Numbered<T>>, number: u64, value: T) {
    values.push_back(Numbered { number, value });
    if values.len() > KEPT_MAX {
        values.pop_front();
    }
}

const STREAMS: ShareBound = ShareBound {
    what: "live streams",
    bound: &LIVE_STREAMS,
    humans: 24,
    human: 8,
    administrator: 16,
    retry_after: 5,
};
/// The changes, and the watched requests, that a listener who reads slowly can catch up on.
const KEPT_MAX: usize = 256;
const FRAME_EVERY: Duration = Duration::from_secs(1);
const HOUR_MS: u64 = 3_600_000;
const CONFIG: &str = "gateway/configuration";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::shares::tests::fill;
    use crate::common::bounds::tests::passes;

    #[test]
    fn live_streams_beyond_the_maximum_are_refused_and_counted() {
        passes(&LIVE_STREAMS, || fill(STREAMS));
    }
}
