//! The exchanges that ended lately, by second and by minute, for the verdict and the live stream. They are read from
//! the records on demand: the first time the last hour, afterwards what has been stored since. While a live stream is
//! open, the writer thread passes on the sums of what it stores (`feed.rs`), and nothing is read. A restart loses nothing.

mod ended;
pub(crate) mod feed;

use std::collections::BTreeMap;
use std::time::Instant;

use records::block;

pub(crate) use self::ended::EndedExchanges;
use self::ended::{EndedSums, Shares};
use self::feed::{RecentFeed, RowPlace, StoredBatch};
use super::last_rows::last_rows;
use super::metrics::Scale;
use super::periods::PeriodFigures;
use crate::db::engine::{Db, DbResult, Row, named_params};
use crate::db::packed_row::{PackedRow, unless_damaged};
use crate::db::record_id::{NodeId, RecordId};
use crate::db::signed;

/// The exchanges that ended in the last minutes.
#[derive(Debug, Default)]
pub(crate) struct RecentUsage {
    /// The end of what was read of each node's rows; `None` before the first reading.
    read: Option<RowPlaces>,
    /// By the second in which the exchanges ended.
    seconds: BTreeMap<u64, PeriodFigures>,
    /// By the minute in which the exchanges ended.
    minutes: BTreeMap<u64, EndedSums>,
    /// The median time to the first content before the last minutes, and the minute in which it was computed.
    before: Option<(u64, Option<Median>)>,
}

/// A place among the rows of each node.
type RowPlaces = BTreeMap<NodeId, RowPlace>;

/// A number of events, and those of them that went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) total: u64,
    pub(crate) bad: u64,
}

impl Share {
    /// True if at least `percent` percent, and at least one, went wrong.
    pub(crate) fn is_bad(self, percent: u64) -> bool {
        self.bad > 0 && self.bad.saturating_mul(100) >= self.total.saturating_mul(percent)
    }

    fn plus(self, other: Self) -> Self {
        Self { total: self.total.saturating_add(other.total), bad: self.bad.saturating_add(other.bad) }
    }
}

/// A share of the last minutes, and since when it has been bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trend {
    pub(crate) share: Share,
    /// The start of the first of the bad minutes that no good one interrupts; 0 if there is none.
    pub(crate) since_ms: u64,
}

/// The median of some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Median {
    pub(crate) count: u64,
    pub(crate) value: u64,
}

/// Figures of the recent exchanges, for the verdict.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentFigures {
    /// The last hour, without latencies.
    pub(crate) hour: PeriodFigures,
    /// The requests of the last [`MINUTES`], without refused ones.
    pub(crate) all: Trend,
    /// The same by endpoint or selector.
    pub(crate) selectors: BTreeMap<Box<str>, Trend>,
    /// The attempts of the last [`MINUTES`] by provider.
    pub(crate) providers: BTreeMap<Box<str>, Trend>,
    /// The time to the first content in the last [`MINUTES`], in microseconds.
    pub(crate) first_content: Option<Median>,
    /// The same in the hour before.
    pub(crate) first_content_before: Option<Median>,
    /// The end of the last minute in which requests failed as often as in a failing gateway; `None` if there was none.
    pub(crate) last_bad_ms: Option<u64>,
}

impl RecentUsage {
    /// Takes what the writer thread passed on. Returns false if the table must be read for the rest.
    pub(crate) fn follow(&mut self, feed: &RecentFeed, now_ms: u64) -> bool {
        let stored = feed.take();
        self.forget(now_ms);
        let Some(read) = &mut self.read else { return false };
        let mut reached = read.get(&feed.node).copied().unwrap_or_default();
        let mut taken = Vec::new();
        for StoredBatch { from, to, ended } in stored.batches {
            // Batches up to this place were read from the table.
            if from == reached {
                reached = to;
                taken.push(ended);
            }
        }
        read.insert(feed.node, reached);
        // What other nodes store is in the table only.
        let is_alone = feed.node == NodeId::FIRST && read.keys().all(|node| *node == NodeId::FIRST);
        taken.into_iter().for_each(|ended| self.take(ended, now_ms));
        is_alone && stored.end.is_none_or(|end| end <= reached)
    }

    /// Reads what was stored since the last call, until `until`.
    pub(crate) fn catch_up(&mut self, db: &Db, now_ms: u64, until: Instant) -> DbResult<()> {
        self.forget(now_ms);
        match self.read.clone() {
            Some(places) => self.go_on(db, &places, now_ms, until),
            None => self.begin(db, now_ms, until),
        }
    }

    /// Reads the rows of the time that is kept, the newest first.
    fn begin(&mut self, db: &Db, now_ms: u64, until: Instant) -> DbResult<()> {
        let mut places: RowPlaces =
            last_rows(db)?.into_iter().map(|id| (id.node(), RowPlace { id, taken: 0 })).collect();
        let mut statement = db.prepare(KEPT)?;
        let mut rows = statement.query([signed(first_ms(now_ms))])?;
        while let Some(row) = rows.next()? {
            let id: RecordId = row.get("id")?;
            let taken = unless_damaged(self.add_row(row, 0, now_ms))?.unwrap_or(0);
            if let Some(place) = places.get_mut(&id.node()).filter(|place| place.id == id) {
                place.taken = taken;
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.read = Some(places);
        Ok(())
    }

    /// Reads the rows of each node from its place on, in the order in which the node stored them.
    fn go_on(&mut self, db: &Db, places: &RowPlaces, now_ms: u64, until: Instant) -> DbResult<()> {
        let mut statement = db.prepare(FROM)?;
        for last in last_rows(db)? {
            let node = last.node();
            // Of a node that was not known, only the time that is kept is read.
            let (place, from_ms) = match places.get(&node) {
                Some(place) => (*place, 0),
                None => (RowPlace { id: RecordId::before(node), taken: 0 }, first_ms(now_ms)),
            };
            let mut rows = statement
                .query(named_params! {":first": place.id, ":last": last, ":from": signed(from_ms)})?;
            while let Some(row) = rows.next()? {
                let id: RecordId = row.get("id")?;
                let known = if id == place.id { place.taken } else { 0 };
                let taken = unless_damaged(self.add_row(row, known, now_ms))?.unwrap_or(known);
                self.read.get_or_insert_default().insert(node, RowPlace { id, taken });
                if Instant::now() >= until {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Adds the exchanges of a row except the first `known`. Returns the number of exchanges in the row.
    fn add_row(&mut self, row: Row<'_>, known: u32, now_ms: u64) -> DbResult<u32> {
        let row = PackedRow::read(row)?;
        let mut ended = EndedExchanges::default();
        let mut count = 0;
        for piece in block::pieces(row.rows()?) {
            count += 1;
            if count > known
                && let Some((record, trace)) = block::record(piece, &row.names)
            {
                ended.add(&record, trace, now_ms);
            }
        }
        self.take(ended, now_ms);
        Ok(count)
    }

    /// Drops what is too long ago.
    fn forget(&mut self, now_ms: u64) {
        self.minutes = self.minutes.split_off(&(now_ms / MINUTE_MS).saturating_sub(MINUTES_KEPT));
        self.seconds = self.seconds.split_off(&(now_ms / 1_000).saturating_sub(SPAN_SECONDS));
    }

    fn take(&mut self, ended: EndedExchanges, now_ms: u64) {
        for (second, sums) in ended.into_seconds() {
            let minute = second.saturating_mul(1_000) / MINUTE_MS;
            if minute + MINUTES_KEPT >= now_ms / MINUTE_MS {
                self.minutes.entry(minute).or_default().merge(&sums);
            }
            if second + SPAN_SECONDS >= now_ms / 1_000 {
                self.seconds.entry(second).or_default().add(&sums.all);
            }
        }
    }

    /// Returns the figures of the exchanges that ended in the [`SPAN_SECONDS`] before the current second.
    pub(crate) fn span(&self, now_ms: u64) -> PeriodFigures {
        let second = now_ms / 1_000;
        let mut sum = PeriodFigures::default();
        let span = self.seconds.range(second.saturating_sub(SPAN_SECONDS)..second);
        span.for_each(|(_, figures)| sum.add(figures));
        sum
    }

    /// Returns the attempts of the last [`MINUTES`] by provider.
    pub(crate) fn attempts(&self, now_ms: u64) -> BTreeMap<Box<str>, Share> {
        let mut shares = BTreeMap::<Box<str>, Share>::new();
        for (_, minute) in self.minutes.range(first_minute(now_ms)..) {
            for (provider, share) in minute.providers.iter() {
                let sum = shares.entry(provider.into()).or_default();
                *sum = sum.plus(*share);
            }
        }
        shares
    }

    /// False if the table was read and found empty.
    pub(crate) fn has_usage(&self) -> bool {
        let is_row = |place: &RowPlace| place.id > RecordId::before(place.id.node());
        self.read.as_ref().is_none_or(|places| places.values().any(is_row))
    }

    /// Returns the figures for the verdict.
    pub(crate) fn figures(&mut self, now_ms: u64) -> RecentFigures {
        let (minute, first) = (now_ms / MINUTE_MS, first_minute(now_ms));
        let first_content_before = self.median_before(first);
        let mut figures = RecentFigures { first_content_before, ..RecentFigures::default() };
        for (_, minute) in self.minutes.range(minute.saturating_sub(59)..) {
            figures.hour.add_counts(&minute.all);
        }
        let mut recent = PeriodFigures::default();
        for (_, minute) in self.minutes.range(first..) {
            recent.first_content.merge(&minute.all.first_content);
        }
        figures.first_content = Median::of(&recent);
        figures.all = self.trend(first, FAILING_PERCENT, |minute| Some(minute.share()));
        for name in self.names(first, |minute| &minute.selectors) {
            let trend = self.trend(first, FAILING_PERCENT, |minute| minute.selectors.get(&name).copied());
            figures.selectors.insert(name, trend);
        }
        for name in self.names(first, |minute| &minute.providers) {
            let trend =
                self.trend(first, PROVIDER_FAILING_PERCENT, |minute| minute.providers.get(&name).copied());
            figures.providers.insert(name, trend);
        }
        let mut bad = self.minutes.iter().rev().filter(|(_, minute)| minute.share().is_bad(FAILING_PERCENT));
        figures.last_bad_ms = bad.next().map(|(minute, _)| (minute + 1) * MINUTE_MS);
        figures
    }

    /// Returns the median time to the first content in the hour before `first`. It is computed once a minute.
    fn median_before(&mut self, first: u64) -> Option<Median> {
        if let Some((minute, median)) = self.before
            && minute == first
        {
            return median;
        }
        let mut before = PeriodFigures::default();
        for (_, minute) in self.minutes.range(first.saturating_sub(60)..first) {
            before.first_content.merge(&minute.all.first_content);
        }
        let median = Median::of(&before);
        self.before = Some((first, median));
        median
    }

    fn names(&self, first: u64, of: impl Fn(&EndedSums) -> &Shares) -> std::collections::BTreeSet<Box<str>> {
        self.minutes
            .range(first..)
            .flat_map(|(_, minute)| of(minute).iter().map(|(name, _)| name.into()))
            .collect()
    }

    /// Returns the share since `first` and the start of its run of bad minutes. Minutes without events are neither bad
    /// nor good.
    fn trend(&self, first: u64, percent: u64, of: impl Fn(&EndedSums) -> Option<Share>) -> Trend {
        let mut trend = Trend::default();
        for (minute, share) in
            self.minutes.iter().rev().filter_map(|(minute, figures)| Some((*minute, of(figures)?)))
        {
            if minute >= first {
                trend.share = trend.share.plus(share);
            }
            if share.is_bad(percent) {
                trend.since_ms = minute * MINUTE_MS;
            } else if share.total > 0 && (trend.since_ms > 0 || minute < first) {
                break;
            }
        }
        trend
    }
}

impl Median {
    fn of(figures: &PeriodFigures) -> Option<Self> {
        let value = figures.first_content.percentile(Scale::Fine, 50)?;
        Some(Self { count: figures.first_content.count(), value })
    }
}

/// Returns the time before which no row contains exchanges that are kept.
fn first_ms(now_ms: u64) -> u64 {
    now_ms.saturating_sub((MINUTES_KEPT + LONG_MINUTES) * MINUTE_MS)
}

/// Returns the first of the last [`MINUTES`].
fn first_minute(now_ms: u64) -> u64 {
    (now_ms / MINUTE_MS).saturating_sub(MINUTES - 1)
}

/// The minutes that the verdict is about, the current one included.
pub(crate) const MINUTES: u64 = 5;
/// The percentage of requests that fail in a failing gateway.
pub(crate) const FAILING_PERCENT: u64 = 5;
/// The percentage of attempts that fail at a failing provider.
pub(crate) const PROVIDER_FAILING_PERCENT: u64 = 20;
/// The time that [`RecentUsage::span`] covers.
pub(crate) const SPAN_SECONDS: u64 = 60;
const MINUTE_MS: u64 = 60_000;
/// The last minutes and the hour before them.
const MINUTES_KEPT: u64 = 60 + MINUTES;
/// Exchanges that took longer may be missing when the table is first read.
const LONG_MINUTES: u64 = 15;
const KEPT: &str = "SELECT * FROM usage WHERE last_ms >= :from ORDER BY last_ms DESC";
const FROM: &str = "SELECT * FROM usage WHERE id >= :first AND id <= :last AND last_ms >= :from ORDER BY id";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use shared::id::{EndpointName, ProviderId};
    use shared::usage::{Outcome, UsageEvent, UsageLog as _};
    use tempfile::TempDir;

    use super::*;
    use crate::usage::tests::{Process, copy_last_row, event};

    const NOW: u64 = 1_700_000_040_000;

    /// An exchange of the endpoint `line` that ended this many seconds ago.
    fn ended(seconds: u64, outcome: Outcome) -> UsageEvent {
        let status = if outcome == Outcome::Completed { 200 } else { 502 };
        UsageEvent {
            started_at_ms: NOW - seconds * 1_000 - 2_000,
            duration_us: 2_000_000,
            endpoint: Some(EndpointName::new("line")),
            provider: Some(ProviderId::new("p")),
            outcome,
            status,
            first_content_us: (outcome == Outcome::Completed).then_some(if seconds < 300 {
                4_000
            } else {
                1_000
            }),
            ..event(seconds)
        }
    }

    fn catch_up(recent: &mut RecentUsage, process: &Process, now_ms: u64) {
        recent.catch_up(process.meter.db(), now_ms, Instant::now() + Duration::from_secs(600)).unwrap();
    }

    #[test]
    fn each_exchange_counts_once_however_often_the_table_is_read() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let mut recent = RecentUsage::default();
        for round in 1..=150_u64 {
            assert!(log.append(&ended(0, Outcome::Completed)));
            if round % 7 == 0 {
                process.settle();
                catch_up(&mut recent, &process, NOW + 1_000);
                assert_eq!(recent.span(NOW + 1_000).requests, round);
                assert_eq!(recent.figures(NOW + 1_000).hour.requests, round);
            }
        }
        process.settle();
        let mut late = RecentUsage::default();
        catch_up(&mut late, &process, NOW + 1_000);
        catch_up(&mut recent, &process, NOW + 1_000);
        assert_eq!((late.span(NOW + 1_000).requests, recent.span(NOW + 1_000).requests), (150, 150));
        catch_up(&mut recent, &process, NOW + 120_000);
        assert_eq!(recent.span(NOW + 120_000).requests, 0, "over a minute ago");
        catch_up(&mut recent, &process, NOW + 7_200_000);
        assert_eq!(recent.figures(NOW + 7_200_000).hour.requests, 0);
    }

    #[test]
    fn what_is_stored_while_someone_follows_is_counted_once_without_reading_the_table() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let now_ms = NOW + 1_000;
        let feed = Arc::clone(process.meter.recent());
        let mut recent = RecentUsage::default();
        assert!(!recent.follow(&feed, now_ms), "the first time the table is read");
        let mut store = |process: &mut Process, count: usize| {
            (0..count).for_each(|_| assert!(log.append(&ended(0, Outcome::Completed))));
            process.settle();
        };
        catch_up(&mut recent, &process, now_ms);
        let following = feed.follow();
        let mut all = 0;
        // The first batch of a table, batches within a row, over its end at 64 exchanges, and several between two looks.
        for counts in [&[3][..], &[1], &[5, 70], &[64], &[200, 1, 1], &[]] {
            counts.iter().for_each(|count| store(&mut process, *count));
            all += counts.iter().sum::<usize>();
            assert!(recent.follow(&feed, now_ms), "nothing is left to read after {all}");
            assert_eq!(recent.span(now_ms).requests, all as u64);
        }
        // What is read from the table meanwhile is not counted again.
        store(&mut process, 2);
        catch_up(&mut recent, &process, now_ms);
        assert!(recent.follow(&feed, now_ms));
        drop(following);
        store(&mut process, 4);
        assert!(!recent.follow(&feed, now_ms), "nobody passed it on");
        catch_up(&mut recent, &process, now_ms);
        assert!(recent.follow(&feed, now_ms), "nothing was stored since");
        let mut read = RecentUsage::default();
        catch_up(&mut read, &process, now_ms);
        for recent in [&mut recent, &mut read] {
            assert_eq!(recent.span(now_ms).requests, all as u64 + 6);
        }
        assert_eq!(recent.span(now_ms), read.span(now_ms));
        assert_eq!(recent.attempts(now_ms), read.attempts(now_ms));
        assert_eq!(recent.figures(now_ms).selectors, read.figures(now_ms).selectors);
    }

    #[test]
    fn the_first_batch_of_a_process_follows_what_earlier_ones_stored() {
        let home = TempDir::new().unwrap();
        let now_ms = NOW + 1_000;
        for stored in [0, 3, 6] {
            let mut process = Process::start(home.path());
            let mut log = process.journal.log().unwrap();
            let feed = Arc::clone(process.meter.recent());
            let mut recent = RecentUsage::default();
            catch_up(&mut recent, &process, now_ms);
            assert_eq!(recent.span(now_ms).requests, stored);
            let _following = feed.follow();
            (0..3).for_each(|_| assert!(log.append(&ended(0, Outcome::Completed))));
            process.settle();
            assert!(recent.follow(&feed, now_ms), "nothing is left to read after {stored}");
            assert_eq!(recent.span(now_ms).requests, stored + 3);
        }
    }

    #[test]
    fn what_other_nodes_store_is_counted_once() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let now_ms = NOW + 1_000;
        let mut recent = RecentUsage::default();
        let mut all = 0;
        for round in 1..=4_u64 {
            (0..round).for_each(|_| assert!(log.append(&ended(0, Outcome::Completed))));
            process.settle();
            all += round;
            catch_up(&mut recent, &process, now_ms);
            assert_eq!(recent.span(now_ms).requests, all);
            if round > 1 {
                // Another node stores the exchanges of this one's last row too.
                let id = RecordId::before(NodeId::new(2)).later(u32::try_from(round).unwrap());
                copy_last_row(process.meter.db(), NodeId::FIRST, id);
                all += u64::try_from(process.sql("SELECT exchanges FROM usage ORDER BY id LIMIT 1")).unwrap();
                let feed = Arc::clone(process.meter.recent());
                catch_up(&mut recent, &process, now_ms);
                assert!(!recent.follow(&feed, now_ms), "the feed knows only what this node stores");
            }
            catch_up(&mut recent, &process, now_ms);
            assert_eq!(recent.span(now_ms).requests, all, "round {round}");
        }
    }

    #[test]
    fn a_batch_that_is_missing_makes_the_table_be_read() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let now_ms = NOW + 1_000;
        let feed = Arc::clone(process.meter.recent());
        let mut recent = RecentUsage::default();
        let _following = feed.follow();
        for _ in 0..600 {
            assert!(log.append(&ended(0, Outcome::Completed)));
            process.settle();
            if recent.read.is_none() {
                catch_up(&mut recent, &process, now_ms);
            }
        }
        assert!(!recent.follow(&feed, now_ms), "more batches than wait for a reader");
        catch_up(&mut recent, &process, now_ms);
        assert!(recent.follow(&feed, now_ms));
        assert_eq!(recent.span(now_ms).requests, 600);
    }

    #[test]
    fn a_run_of_bad_minutes_begins_after_the_last_good_one() {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let minute = 60;
        // A failing minute long ago, good ones, then seven bad ones with a pause.
        assert!(log.append(&ended(30 * minute, Outcome::Failed)));
        for ago in [25, 20, 10] {
            (0..10).for_each(|_| assert!(log.append(&ended(ago * minute, Outcome::Completed))));
        }
        for ago in [8, 7, 4, 3, 1] {
            assert!(log.append(&ended(ago * minute, Outcome::Completed)));
            assert!(log.append(&ended(ago * minute, Outcome::Failed)));
        }
        process.settle();
        let mut recent = RecentUsage::default();
        catch_up(&mut recent, &process, NOW);
        let figures = recent.figures(NOW);
        let since_ms = (NOW / MINUTE_MS - 8) * MINUTE_MS;
        let want = Trend { share: Share { total: 6, bad: 3 }, since_ms };
        assert_eq!((figures.all, figures.selectors.get("line")), (want, Some(&want)));
        assert_eq!((figures.hour.requests, figures.hour.failed), (41, 6));
        assert_eq!(figures.last_bad_ms, Some((NOW / MINUTE_MS) * MINUTE_MS));
        assert!(figures.first_content.unwrap().value.abs_diff(4_000) <= 63);
        assert!(figures.first_content_before.unwrap().value.abs_diff(1_000) <= 16);
    }
}
