//! The transactions of a node that concern its shares, as values: `control` turns each into SQL and returns its answer.
//!
//! Invariant: every transaction that changes a share begins with the node's fence. So a transaction of unknown outcome is
//! decided by the next one that passes the fence, and never happens after it.
//!
//! ```text
//!  table          columns that are used here
//!  cluster        server, no_grants_before          the start of the server that all nodes have seen, and the end of the pause after it changed
//!  nodes          node, heard_at                    the time of the node's last transaction with a sign of life
//!  fences         node, incarnation, seq
//!  quota_window   quota, start_ms, granted, short_node, starved_at
//!  quota_share    quota, start_ms, node, granted, used
//! ```
//!
//! All times in the database are of its own clock.

use std::sync::Arc;

/// A limit, and the start of one of its windows in milliseconds since the Unix epoch; 0 for the sliding minute and for
/// concurrent requests, which have one window only. The order is the one in which a transaction locks rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowKey {
    /// The limit's ID.
    pub quota: Arc<str>,
    /// The start of the window.
    pub start_ms: u64,
}

/// The identity of a process in the fence of its node, and the number of its last known transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The node's ID.
    pub node: u64,
    /// The number of the process; each start of a process with the node's ID takes the next one.
    pub incarnation: u64,
    /// The number of the last transaction that was acknowledged.
    pub seq: u64,
}

/// One transaction. No other transaction of the node's shares is in progress at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareTransaction {
    /// Ordinary work. The fence passes if node, incarnation and `seq` are those of the row, and the server is the one in
    /// `cluster`; `seq` of the row grows by one. Otherwise nothing happens ([`ShareAnswer::Fenced`]). The actions are in
    /// the order of their windows.
    Work(Fence, Vec<ShareAction>),
    /// Decides all earlier transactions and reads the shares of the node:
    ///
    /// 1. If the server is not the one in `cluster`: writes it there, with `no_grants_before` = now + [`PAUSE_MS`](super::PAUSE_MS).
    /// 2. Locks the fence. A higher incarnation in the row: [`ShareAnswer::Superseded`].
    /// 3. A lower incarnation or a lower `seq` in the row: commits were lost. The row stays as it is, so that a repeated
    ///    resynchronization finds the same: [`ShareAnswer::Lost`].
    /// 4. Else `seq` of the row grows by one, and the row of the node in `nodes` is renewed *before* the shares are read:
    ///    [`ShareAnswer::Resynchronized`].
    Resynchronize(Fence),
    /// Restores the shares of the node after commits were lost. The fence passes if the row is the one that was found;
    /// it becomes `fence` with `seq + 1`, and the node is renewed. Each share in the list replaces the row, and its
    /// window changes by the difference, also beyond the limit.
    Assert {
        /// The process and its last acknowledged transaction.
        fence: Fence,
        /// The row that the resynchronization found.
        found: FoundFence,
        /// All shares that the node remembers, in the order of their windows.
        shares: Vec<AssertedShare>,
    },
}

/// The row of a fence in a database that has lost commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFence {
    /// The number of the process.
    pub incarnation: u64,
    /// The number of its last transaction.
    pub seq: u64,
}

/// A part of ordinary work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareAction {
    /// Renews the node's sign of life, and returns the windows of its shares that are under pressure: another node
    /// [starves](super::STARVED_MS), or more is granted than the limit allows.
    Renew,
    /// Asks for a larger share. See [`GrantAsk`].
    Grant(WindowKey, GrantAsk),
    /// Lowers share and window by an amount that the counter no longer allows.
    GiveBack(WindowKey, ShareChange),
    /// Raises share and window, also beyond the limit, by an amount that requests used beyond what they held.
    Report(WindowKey, ShareChange),
}

/// A request for a larger share of a window. The transaction creates missing rows, locks the window, and decides:
///
/// ```text
///  now < no_grants_before             nothing; `pause_ms` is the rest of the pause
///  timed limit                        first takes back the shares of nodes that were not heard of for too long, and raises
///                                     `seq` of their fences, so that they resynchronize when they return
///  rest    = limit - granted          the limit as it is in the database
///  spread  = rest / (2 * live nodes)
///  portion = spread < claim ? 0 : min(max(wanted, claim), spread)
///  need    = waiting.wanted, or 0
///
///  portion >= need                    grants the portion
///  need <= rest                       grants what the waiting request needs, and no more
///  waiting.least <= rest, granted <= limit, and short_node is empty or this node
///                                     grants the rest, and short_node = this node
///  else                               grants nothing; if a request waits, starved_at = now
/// ```
///
/// So portions shrink geometrically, and a rest that is smaller than a request is not broken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantAsk {
    /// The amount that the node expects to use in 10 s, less what it has.
    pub wanted: u64,
    /// The usual amount of one request; at least 1.
    pub claim: u64,
    /// The needs of the first request that waits, less what the node has.
    pub waiting: Option<GrantNeed>,
}

/// The amount that a waiting request needs beyond the share of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantNeed {
    /// The smallest amount with which it can start, as the one short hold of the cluster.
    pub least: u64,
    /// The amount with which it can start in any case.
    pub wanted: u64,
}

/// A change of a share's row and of its window by the same amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareChange {
    /// The amount; may be 0.
    pub amount: u64,
    /// True if the short hold was settled: `short_node` becomes empty, in the same transaction as the amount that it
    /// used beyond its hold.
    pub frees_short: bool,
}

/// A share as its node remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertedShare {
    /// The window.
    pub key: WindowKey,
    /// What the node allows, or what was taken if that is more.
    pub granted: u64,
    /// True if the node has the short hold: `short_node` becomes this node; else it is emptied if it is this node.
    pub has_short: bool,
}

/// The answer to a transaction that was committed, or that found that it must not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareAnswer {
    /// The work was committed.
    Done {
        /// The results of the grants, in the order of the actions.
        grants: Vec<GrantAnswer>,
        /// The windows under pressure, if the work contained [`ShareAction::Renew`].
        pressed: Vec<WindowKey>,
    },
    /// The fence did not pass, and nothing happened.
    Fenced,
    /// All earlier transactions are decided.
    Resynchronized {
        /// The number in the fence.
        seq: u64,
        /// The shares of the node in windows that are kept.
        rows: Vec<ShareRow>,
    },
    /// Acknowledged commits were lost: the node must assert its shares.
    Lost(FoundFence),
    /// The shares are asserted.
    Asserted,
    /// A later process has the ID of this node: this one must end.
    Superseded,
}

/// The result of a [`ShareAction::Grant`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantAnswer {
    /// The amount by which the share grew.
    pub amount: u64,
    /// True if the node may have the short hold.
    pub has_short: bool,
    /// The time until anything is granted again, in milliseconds; 0 outside the pause.
    pub pause_ms: u64,
}

/// A row of `quota_share`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRow {
    /// The window.
    pub key: WindowKey,
    /// The share.
    pub granted: u64,
    /// True if `short_node` of the window is this node.
    pub has_short: bool,
}
