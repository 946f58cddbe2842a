//! Bounds: how many of something the gateway keeps, reads or shows at most. Reaching one costs a caller, a reader or a client
//! something, so each is counted by the one call that notices it; the control service shows, logs and exports the counts.
//! Reaching a bound is one atomic addition: it neither logs nor blocks, so that any thread may do it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::unix_ms;

/// A bound, with the number of times that it was reached since the start of the process.
#[derive(Debug)]
pub struct Bound {
    /// The name, unique in the process.
    pub name: &'static str,
    /// The effect of reaching the bound, as a sentence.
    pub gives_way: &'static str,
    /// The action to take, as a sentence.
    pub remedy: &'static str,
    max: usize,
    reached: AtomicU64,
    last_at_ms: AtomicU64,
}

impl Bound {
    /// Describes a bound. Use [`bound_table!`](crate::bound_table), so that it is part of a table.
    pub const fn new(name: &'static str, max: usize, gives_way: &'static str, remedy: &'static str) -> Self {
        Self { name, gives_way, remedy, max, reached: AtomicU64::new(0), last_at_ms: AtomicU64::new(0) }
    }

    /// Returns the bound itself.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Counts that the bound was reached and something gave way.
    pub fn reach(&self) {
        self.reach_times(1);
    }

    /// Same as [`Self::reach`] for this many times; zero times are not counted.
    pub fn reach_times(&self, times: u64) {
        if times > 0 {
            self.reached.fetch_add(times, Ordering::Relaxed);
            self.last_at_ms.store(unix_ms(), Ordering::Relaxed);
        }
    }

    /// Returns true, and counts that the bound was reached, if there is no space beside `count` others.
    pub fn is_full(&self, count: usize) -> bool {
        let is_full = count >= self.max;
        if is_full {
            self.reach();
        }
        is_full
    }

    /// Returns how many of `count` are beyond the bound, and counts that it was reached if any is.
    pub fn excess(&self, count: usize) -> usize {
        let excess = count.saturating_sub(self.max);
        if excess > 0 {
            self.reach();
        }
        excess
    }

    /// Removes the last values beyond the bound and returns their number.
    pub fn cut<T>(&self, values: &mut Vec<T>) -> usize {
        let excess = self.excess(values.len());
        values.truncate(self.max);
        excess
    }

    /// Returns the number of times that the bound was reached since the start of the process.
    pub fn count(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }

    /// Returns the last time, in milliseconds since the Unix epoch; `None` if the bound was never reached.
    pub fn last_at_ms(&self) -> Option<u64> {
        Some(self.last_at_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }
}

/// Declares the bounds of a crate as statics, and `TABLE` with all of them:
/// `NAME("name", max, "What gives way.", "What to do.");`
#[macro_export]
macro_rules! bound_table {
    ($(#[$table_doc:meta])* $vis:vis TABLE; $($(#[$doc:meta])* $bound:ident($name:literal, $max:expr, $gives_way:literal, $remedy:literal);)*) => {
        $($(#[$doc])* $vis static $bound: $crate::bound::Bound = $crate::bound::Bound::new($name, $max, $gives_way, $remedy);)*
        $(#[$table_doc])*
        $vis static TABLE: &[&$crate::bound::Bound] = &[$(&$bound),*];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_counts_only_what_is_beyond_it() {
        let bound = Bound::new("rows", 3, "", "");
        let mut rows = vec![1, 2, 3];
        assert_eq!((bound.cut(&mut rows), bound.excess(3), bound.is_full(2)), (0, 0, false));
        bound.reach_times(0);
        assert_eq!((bound.count(), bound.last_at_ms()), (0, None));
        rows.extend([4, 5]);
        assert_eq!((bound.cut(&mut rows), rows), (2, vec![1, 2, 3]));
        assert_eq!((bound.excess(7), bound.is_full(3)), (4, true));
        bound.reach_times(5);
        assert_eq!(bound.count(), 8);
        assert!(bound.last_at_ms().is_some());
    }
}
