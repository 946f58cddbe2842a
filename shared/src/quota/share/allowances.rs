//! The counters of the request path and the current time, as the shares see them.

use super::WindowKey;

/// The current time, as the node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareTime {
    /// A clock that is never set and that also runs while the machine is suspended, in milliseconds.
    pub steady_ms: u64,
    /// Milliseconds since the Unix epoch; decides only which window is the current one.
    pub wall_ms: u64,
}

/// The counters of the request path, as the shares see them. Exchanges take from them at any time.
pub trait Allowances {
    /// Returns what exchanges have used and hold of a window; for the sliding minute, in the last 61 s.
    fn taken(&self, key: &WindowKey) -> u64;
    /// Allows `amount` more of a window, which may be the next one.
    fn raise(&mut self, key: &WindowKey, amount: u64);
    /// Takes up to `most` away that nothing has taken, in one atomic step with what exchanges take. Returns the amount.
    fn lower(&mut self, key: &WindowKey, most: u64) -> u64;
    /// Lets one exchange hold less than it wants.
    fn open_short(&mut self, key: &WindowKey);
    /// Ends that permission unless such a hold is unsettled. Returns true if none is, and then no other one begins. What
    /// an earlier one used is visible in [`Self::taken`].
    fn close_short(&mut self, key: &WindowKey) -> bool;
    /// Lets the counter of a timed limit admit exchanges until this steady time. The counter itself must reject later
    /// ones: the thread of the shares may be as late as they are.
    fn admit_until(&mut self, key: &WindowKey, steady_ms: u64);
}
