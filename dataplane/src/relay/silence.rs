//! The silences of a relayed answer.

use shared::usage::Gaps;

use crate::clock::coarse_us;

/// The silences of a relayed answer so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silences {
    /// The longest one in microseconds.
    pub(super) us_max: u64,
    /// Those between two pieces.
    pub(super) gaps: Gaps,
    /// The time of the last piece, by [`coarse_us`].
    last_us: u64,
}

impl Silences {
    /// Begins with the first content.
    pub(super) fn new() -> Self {
        Self { us_max: 0, gaps: Gaps::default(), last_us: coarse_us() }
    }

    /// Records the arrival of another piece.
    pub(super) fn piece(&mut self) {
        let gap_us = self.end();
        self.gaps.add(gap_us);
    }

    /// Records the end of the current silence, and returns its length in microseconds.
    pub(super) fn end(&mut self) -> u64 {
        let now_us = coarse_us();
        let silence_us = now_us.saturating_sub(self.last_us);
        self.us_max = self.us_max.max(silence_us);
        self.last_us = now_us;
        silence_us
    }
}
