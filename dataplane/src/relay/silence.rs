//! The longest silence of a relayed answer.

use crate::clock::coarse_us;

/// The longest silence of a relayed answer so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) us_max: u64,
    /// The time of the last piece, by [`coarse_us`].
    last_us: u64,
}

impl Silence {
    /// Begins with the first content.
    pub(super) fn new() -> Self {
        Self { us_max: 0, last_us: coarse_us() }
    }

    /// Records another piece, or the end of the answer.
    pub(super) fn end(&mut self) {
        let now_us = coarse_us();
        self.us_max = self.us_max.max(now_us.saturating_sub(self.last_us));
        self.last_us = now_us;
    }
}
