//! The counters of this process, as the shares see them.

use std::sync::Arc;

use shared::quota::share::{Allowances, WindowKey};
use shared::quota::{Counter, CounterShare, Counters};

/// Finds the counter of each window. Nothing takes from a limit that is gone: its share can be given back.
#[derive(Debug)]
pub(super) struct CounterAllowances(pub(super) Arc<Counters>);

impl CounterAllowances {
    /// Calls `use_it` with the share of a counter, if its limit exists.
    pub(super) fn with<T>(&self, key: &WindowKey, use_it: impl FnOnce(CounterShare<'_>) -> T) -> Option<T> {
        let counter: Arc<Counter> = self.0.get(&key.quota)?;
        counter.share().map(use_it)
    }
}

impl Allowances for CounterAllowances {
    fn taken(&self, key: &WindowKey) -> u64 {
        self.with(key, |share| share.taken(key.start_ms)).unwrap_or(0)
    }

    fn raise(&mut self, key: &WindowKey, amount: u64) {
        self.with(key, |share| share.raise(key.start_ms, amount));
    }

    fn lower(&mut self, key: &WindowKey, most: u64) -> u64 {
        self.with(key, |share| share.lower(key.start_ms, most)).unwrap_or(most)
    }

    fn open_short(&mut self, key: &WindowKey) {
        self.with(key, |share| share.open_short(key.start_ms));
    }

    fn close_short(&mut self, key: &WindowKey) -> bool {
        self.with(key, |share| share.close_short(key.start_ms)).unwrap_or(true)
    }

    fn admit_until(&mut self, key: &WindowKey, steady_ms: u64) {
        self.with(key, |share| share.admit_until(steady_ms));
    }
}
