//! Balance between the workers: which of them gets a new connection, and which connections a busy one is to lose.
//!
//! Only a part of the connections is busy, so their number says little about the load. A worker publishes the share of
//! the time in which it did not wait for events. Unlike its CPU time, this includes the time in which it could not run
//! because other threads took its core, or because a container had used its share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeMetrics};

/// The load of a worker, which the other threads read.
#[derive(Debug, Default)]
pub(crate) struct WorkerLoad {
    /// Number of client connections.
    pub(crate) live: AtomicUsize,
    /// How busy the worker was, in percent, and one more for each connection that came since because of that.
    pub(crate) busy: AtomicUsize,
}

/// Difference between two workers, in percent, up to which they count as equally busy.
const SIMILAR: usize = 20;
/// A worker from this percentage on loses connections. One that always has work measures less than 100, because the time
/// in which it asks for new events counts as waiting.
const SATURATED: usize = 75;
/// Difference to another worker, in percent, from which connections move there. Beyond [`SIMILAR`], so that accept passes
/// the new connections there although it counts them; and what moves leaves both workers closer together than this, so
/// that nothing moves back.
const ROOM: usize = 40;
/// Maximum number of connections that a worker loses in a second: their TLS handshakes take a few milliseconds.
const MOVES_MAX: usize = 8;

/// Chooses the worker for a new connection: the one with the fewest of those that are about as busy as the least busy
/// one. If that is not the one with the fewest of all, the connection counts as one percent until the next measurement,
/// so that a burst does not pile up on one worker.
pub(crate) fn choose<'a>(workers: impl Iterator<Item = &'a Arc<WorkerLoad>> + Clone) -> Option<usize> {
    let busy = |load: &WorkerLoad| load.busy.load(Ordering::Relaxed);
    let live = |load: &WorkerLoad| load.live.load(Ordering::Relaxed);
    let least = workers.clone().map(|load| busy(load)).min()?;
    let fewest = workers.clone().map(|load| live(load)).min()?;
    let similar = workers.enumerate().filter(|(_, load)| busy(load) <= least + SIMILAR);
    let (index, chosen) = similar.min_by_key(|(_, load)| live(load))?;
    if live(chosen) > fewest {
        chosen.busy.fetch_add(1, Ordering::Relaxed);
    }
    Some(index)
}

/// True if a worker is to lose connections, because another one whose load is `least` is far less busy.
pub(super) fn is_too_busy(busy: usize, least: usize) -> bool {
    busy >= SATURATED && busy >= least + ROOM
}

/// Returns the indices of the connections that are to end, so that their clients open new ones at the worker whose load is
/// `least`. `works` are amounts of work in the last second, in any unit; `leaving` is that of connections that are
/// already to end.
pub(super) fn leavers(busy: usize, least: usize, works: &[usize], leaving: usize) -> Vec<usize> {
    let total = works.iter().sum::<usize>() + leaving;
    // The difference in work between the workers. What leaves makes this one less busy, and the other one busier.
    let ahead = (total * busy.saturating_sub(least) / busy.max(1)).saturating_sub(2 * leaving);
    if ahead * busy < total * ROOM {
        return Vec::new();
    }
    let mut connections: Vec<_> = works.iter().copied().enumerate().filter(|(_, work)| *work > 0).collect();
    connections.sort_by_key(|(_, work)| std::cmp::Reverse(*work));
    let mut moved = 0;
    // As close to 3/8 of the difference as whole connections allow. So a single one has at most 3/4 of it, and the other
    // worker is less busy afterwards than this one was before.
    connections.retain(|(_, work)| {
        let fits = 4 * (2 * moved + work) <= 3 * ahead;
        moved += if fits { *work } else { 0 };
        fits
    });
    connections.iter().map(|(index, _)| *index).take(MOVES_MAX).collect()
}

/// Measures how busy the current thread's runtime is.
#[derive(Debug)]
pub(crate) struct BusyMeter {
    runtime: RuntimeMetrics,
    at: Instant,
    total: Duration,
    percent: usize,
}

/// Minimum time between two measurements. Ticks of an interval that are late come in quick succession.
const MEASURED_MIN: Duration = Duration::from_millis(500);

impl BusyMeter {
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::current().metrics(), at: Instant::now(), total: Duration::ZERO, percent: 0 }
    }

    /// Returns the percentage of the time in which the runtime was busy, to which the time since the last measurement
    /// contributes one half, and those before it the rest; `None` shortly after the last one.
    pub(crate) fn measure(&mut self) -> Option<usize> {
        let (now, total) = (Instant::now(), self.runtime.worker_total_busy_duration(0));
        let (elapsed, spent) = (now.duration_since(self.at), total.saturating_sub(self.total));
        if elapsed < MEASURED_MIN {
            return None;
        }
        let percent = (spent.as_micros() * 100 / elapsed.as_micros().max(1)).min(100);
        (self.at, self.total) = (now, total);
        self.percent = usize::midpoint(self.percent, usize::try_from(percent).unwrap_or(100));
        Some(self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes connections to workers, given as how busy they are and their connections; returns how many each one got.
    fn accepted<const N: usize>(count: usize, workers: [(usize, usize); N]) -> [usize; N] {
        let loads = workers.map(|(busy, live)| Arc::new(WorkerLoad { live: live.into(), busy: busy.into() }));
        for _ in 0..count {
            loads[choose(loads.iter()).unwrap()].live.fetch_add(1, Ordering::Relaxed);
        }
        std::array::from_fn(|index| loads[index].live.load(Ordering::Relaxed) - workers[index].1)
    }

    #[test]
    fn workers_that_are_about_as_busy_get_connections_by_number() {
        assert_eq!(accepted(10, [(0, 0), (0, 0)]), [5, 5]);
        assert_eq!(accepted(100, [(0, 200), (SIMILAR, 0), (0, 50)]), [0, 75, 25]);
    }

    #[test]
    fn a_less_busy_worker_gets_connections_though_it_has_more() {
        assert_eq!(accepted(5, [(60, 2), (10, 1_000)]), [0, 5]);
    }

    #[test]
    fn a_burst_does_not_pile_up_on_the_less_busy_worker() {
        assert_eq!(accepted(500, [(60, 2), (10, 1_000)]), [470, 30]);
    }

    #[test]
    fn the_busiest_connections_move_until_the_workers_are_closer() {
        assert_eq!(leavers(100, 0, &[0, 5, 0, 5], 0), [1]);
        assert_eq!(leavers(100, 0, &[1, 9, 2, 3, 0, 1], 0), [1]);
        assert_eq!(leavers(100, 40, &[0, 10, 10, 10, 10, 10], 0), [1]);
        assert_eq!(leavers(100, 0, &[1; 200], 0).len(), MOVES_MAX);
        assert!(leavers(100, 100 - ROOM + 1, &[1; 200], 0).is_empty());
        assert!(is_too_busy(SATURATED, SATURATED - ROOM) && !is_too_busy(SATURATED - 1, 0));
    }

    #[test]
    fn connections_that_are_leaving_count_as_moved() {
        assert_eq!(leavers(100, 0, &[1; 100], 30), leavers(100, 0, &[1; 100], 0), "still far apart");
        assert!(leavers(100, 0, &[1; 100], 50).is_empty());
    }

    #[test]
    fn a_worker_keeps_its_only_busy_connection() {
        for least in 0..=100 {
            assert!(leavers(100, least, &[0, 700, 0, 1], 0).iter().all(|index| *index == 3));
            assert!(leavers(100, least, &[0, 700, 0], 0).is_empty());
        }
    }

    /// Lets the workers of these connections, given by how much of a worker each one needs, lose and get connections until
    /// none moves; returns the sums of what they need.
    fn settled(mut workers: [Vec<usize>; 2]) -> [usize; 2] {
        let sum = |worker: &Vec<usize>| worker.iter().sum::<usize>();
        let count = workers.iter().map(Vec::len).sum();
        for _ in 0..=count {
            let busy = workers.each_ref().map(|worker| sum(worker).min(100));
            let (from, to) = if busy[0] > busy[1] { (0, 1) } else { (1, 0) };
            let mut leavers = match is_too_busy(busy[from], busy[to]) {
                true => leavers(busy[from], busy[to], &workers[from], 0),
                false => Vec::new(),
            };
            if leavers.is_empty() {
                return workers.each_ref().map(sum);
            }
            leavers.sort_unstable();
            for index in leavers.into_iter().rev() {
                let connection = workers[from].remove(index);
                workers[to].push(connection);
            }
        }
        panic!("connections move back and forth: {workers:?}")
    }

    #[test]
    fn connections_of_any_weights_come_to_rest() {
        assert_eq!(settled([vec![50, 50], vec![]]), [50, 50]);
        assert_eq!(settled([vec![25; 4], vec![]]), [50, 50]);
        assert_eq!(settled([vec![1; 100], vec![]]), [68, 32]);
        assert_eq!(settled([vec![70, 10, 10, 10], vec![]]), [30, 70]);
        assert_eq!(settled([vec![90, 5, 5], vec![]]), [90, 10], "the heavy one stays");
        assert_eq!(settled([vec![200, 1, 1], vec![]]), [200, 2]);
        assert_eq!(settled([vec![30; 5], vec![20]]), [90, 80]);
    }
}
