//! Audit records of refused requests to the admin API. A refused client may retry a million times, so refusals are
//! counted by address and reason: the first one is recorded immediately, the rest of a window as one more row. Memory
//! use and the number of rows are bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use shared::address::client_network;
use tokio::sync::{mpsc, oneshot};

use crate::common::actor::{Actor, Who};
use crate::common::bounds::{REFUSAL_SOURCES, REFUSALS_QUEUED};
use crate::db::audit::AuditEntry;
use crate::writer::WriterHandle;
use crate::writer::command::AdminWrite;
use crate::writer::command::audit_only::AuditOnly;

/// One refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedRequest {
    pub(crate) address: IpAddr,
    /// The error code, such as `invalid_api_key`.
    pub(crate) reason: &'static str,
    /// Method and path, as written in the route table.
    pub(crate) route: String,
    pub(crate) request_id: Option<String>,
}

/// Queue handle for refused requests. Cloneable; sending never blocks.
#[derive(Clone, Debug)]
pub(crate) struct Refusals {
    sender: mpsc::Sender<RefusedRequest>,
    /// Requests dropped because the queue was full.
    dropped: Arc<AtomicU64>,
}

/// Turns queued refusals into audit rows.
#[derive(Debug)]
pub(crate) struct RefusalCounter {
    coming: mpsc::Receiver<RefusedRequest>,
    dropped: Arc<AtomicU64>,
    tally: RefusalTally,
}

/// Creates a bounded queue and its consumer.
pub(crate) fn channel() -> (Refusals, RefusalCounter) {
    let (sender, coming) = mpsc::channel(REFUSALS_QUEUED.max());
    let dropped = Arc::new(AtomicU64::new(0));
    (
        Refusals { sender, dropped: Arc::clone(&dropped) },
        RefusalCounter { coming, dropped, tally: RefusalTally::default() },
    )
}

impl Refusals {
    /// Queues one refused request, or counts it as dropped if the queue is full.
    pub(crate) fn report(&self, refused: RefusedRequest) {
        if self.sender.try_send(refused).is_err() {
            REFUSALS_QUEUED.reach();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RefusalCounter {
    /// Writes rows through `writer` until `stop` fires, then writes the remaining counts.
    pub(crate) async fn run(mut self, writer: WriterHandle, mut stop: oneshot::Receiver<()>) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                _ = &mut stop => break,
                Some(refused) = self.coming.recv() => self.take(&writer, refused),
                _ = tick.tick() => self.write_due(&writer, Instant::now()),
            }
        }
        while let Ok(refused) = self.coming.try_recv() {
            self.take(&writer, refused);
        }
        self.write_due(&writer, Instant::now() + WINDOW);
    }

    fn take(&mut self, writer: &WriterHandle, refused: RefusedRequest) {
        if let Some(row) = self.tally.take(refused, Instant::now()) {
            self.write(writer, row);
        }
    }

    fn write_due(&mut self, writer: &WriterHandle, now: Instant) {
        self.tally.add_dropped(self.dropped.swap(0, Ordering::Relaxed), now);
        for row in self.tally.due(now) {
            self.write(writer, row);
        }
    }

    fn write(&self, writer: &WriterHandle, RefusalRow { source, count, route, request_id }: RefusalRow) {
        let actor = Actor { who: Who::Unknown, address: source.address, request_id };
        let audit = AuditEntry::done("access.refuse", "route", &route)
            .refused()
            .after(json!({"reason": source.reason, "count": count}));
        if writer.queue(AdminWrite::unanswered(AuditOnly::of(audit), actor)).is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// The key by which refusals are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RefusalSource {
    /// `None` for all sources beyond the size of the table.
    address: Option<IpAddr>,
    reason: &'static str,
}

/// One row for the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RefusalRow {
    source: RefusalSource,
    count: u64,
    /// The route of the latest request.
    route: String,
    request_id: Option<String>,
}

/// Refusal counts by source.
#[derive(Debug, Default)]
struct RefusalTally {
    sources: HashMap<RefusalSource, Count>,
}

#[derive(Debug)]
struct Count {
    /// Refusals not yet written to a row.
    count: u64,
    window_ends: Instant,
    route: String,
    request_id: Option<String>,
}

impl RefusalTally {
    /// Counts one refusal. Returns a row if it is the first of its source.
    fn take(&mut self, refused: RefusedRequest, now: Instant) -> Option<RefusalRow> {
        let RefusedRequest { address, reason, route, request_id } = refused;
        let mut source = RefusalSource { address: Some(client_network(address)), reason };
        if !self.sources.contains_key(&source) && REFUSAL_SOURCES.is_full(self.sources.len()) {
            source = RefusalSource { address: None, reason: OTHERS };
        }
        if let Some(count) = self.sources.get_mut(&source) {
            *count = Count { count: count.count + 1, window_ends: count.window_ends, route, request_id };
            return None;
        }
        let known = Count { count: 0, window_ends: now + WINDOW, route: String::new(), request_id: None };
        self.sources.insert(source, known);
        let source = RefusalSource { address: source.address.map(|_| address), ..source };
        Some(RefusalRow { source, count: 1, route, request_id })
    }

    /// Counts refusals whose source is unknown because the queue was full.
    fn add_dropped(&mut self, dropped: u64, now: Instant) {
        if dropped > 0 {
            let source = RefusalSource { address: None, reason: OTHERS };
            let count = self.sources.entry(source).or_insert_with(|| Count {
                count: 0,
                window_ends: now + WINDOW,
                route: String::new(),
                request_id: None,
            });
            count.count += dropped;
        }
    }

    /// Returns the rows of all windows that have ended. A source without refusals in its last window is removed.
    fn due(&mut self, now: Instant) -> Vec<RefusalRow> {
        let mut rows = Vec::new();
        self.sources.retain(|source, count| {
            if now < count.window_ends {
                return true;
            }
            if count.count == 0 {
                return false;
            }
            let (route, request_id) = (std::mem::take(&mut count.route), count.request_id.take());
            rows.push(RefusalRow { source: *source, count: count.count, route, request_id });
            *count = Count { count: 0, window_ends: now + WINDOW, route: String::new(), request_id: None };
            true
        });
        rows
    }
}

/// The reason given in a row that covers several sources.
const OTHERS: &str = "several";
const WINDOW: Duration = Duration::from_secs(300);
const TICK: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    fn refused(address: [u8; 4]) -> RefusedRequest {
        RefusedRequest {
            address: address.into(),
            reason: "invalid_api_key",
            route: "GET /admin/api/state".into(),
            request_id: None,
        }
    }

    #[test]
    fn repeated_refusals_make_one_row_at_once_and_one_per_window() {
        let (mut tally, start) = (RefusalTally::default(), Instant::now());
        let rows = (0..10_000).filter_map(|_| tally.take(refused([10, 0, 0, 1]), start)).count();
        assert_eq!(rows, 1);
        assert_eq!(tally.due(start), []);
        let due = tally.due(start + WINDOW);
        assert_eq!(due.iter().map(|row| row.count).collect::<Vec<_>>(), [9_999]);
        assert_eq!(due[0].route, "GET /admin/api/state");
        assert_eq!(tally.due(start + 2 * WINDOW), [], "silence makes no rows");
        assert!(tally.sources.is_empty() && tally.take(refused([10, 0, 0, 1]), start).is_some());
    }

    #[test]
    fn refusals_from_many_addresses_take_bounded_rows_and_keep_the_count() {
        let (mut tally, start) = (RefusalTally::default(), Instant::now());
        let addresses = (0..=255_u8).flat_map(|a| (0..40_u8).map(move |b| [10, 0, a, b]));
        let mut rows: Vec<RefusalRow> = passes(&REFUSAL_SOURCES, || {
            addresses.filter_map(|address| tally.take(refused(address), start)).collect()
        });
        tally.add_dropped(7, start);
        assert!(tally.sources.len() <= REFUSAL_SOURCES.max() + 1);
        rows.extend(tally.due(start + WINDOW));
        assert!(rows.len() <= 2 * REFUSAL_SOURCES.max() + 2, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 256 * 40 + 7);
    }

    #[test]
    fn refusals_beyond_the_queue_are_counted_as_dropped() {
        let (refusals, counter) = channel();
        (0..REFUSALS_QUEUED.max()).for_each(|_| refusals.report(refused([10, 0, 0, 1])));
        assert_eq!(counter.dropped.load(Ordering::Relaxed), 0);
        passes(&REFUSALS_QUEUED, || refusals.report(refused([10, 0, 0, 1])));
        assert_eq!(counter.dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn refusals_of_an_ipv6_network_are_one_source_and_mapped_ipv4_is_ipv4() {
        let (mut tally, start) = (RefusalTally::default(), Instant::now());
        let mut from = |address: &str| {
            tally.take(RefusedRequest { address: address.parse().unwrap(), ..refused([0; 4]) }, start)
        };
        assert_eq!(from("2001:db8::1").unwrap().source.address, Some("2001:db8::1".parse().unwrap()));
        assert!(from("2001:db8::ffff").is_none());
        assert!(from("2001:db8:0:1::1").is_some());
        assert!(from("10.0.0.1").is_some());
        assert!(from("::ffff:10.0.0.1").is_none());
    }
}
