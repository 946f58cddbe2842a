//! The changes of other nodes: a node looks for new ones, rereads what they touched, publishes it, and reports that.
//!
//! Invariant: the snapshot contains every change up to `served`, and none after it. A change that touched the snapshot is never
//! skipped: the rows since `served` have no gap, or everything is reread.
//!
//! ```text
//!  look -> nothing new: confirm that the snapshot is fresh
//!       -> changes since `served`, or everything -> publish -> served, confirm, report
//! ```
//!
//! A publication is read at one moment of the database: else a key that a later change has enabled could be read without
//! the limit that the same change has added. Every publication, whatever its cause, contains all changes up to that moment: a
//! node that served by a change beyond `served` would not notice that a failover has lost it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::clock::{monotonic_ms, unix_ms};
use shared::freshness::{Freshness, Moment};

use super::duty::{Duty, DutyClaim};
use crate::common::node_figures::NodeFigures;
use crate::db::cluster::changes::{self, Mark};
use crate::db::cluster::clock;
use crate::db::cluster::leases;
use crate::db::cluster::nodes;
use crate::db::ended_sessions;
use crate::db::engine::{Db, DbError, DbResult};
use crate::db::record_id::NodeId;
use crate::routing::publish::{Publisher, PublisherParams, Touched, TouchedAccess};
use crate::usage::merging::UsageMerging;

/// The place of this node among the changes of all. Belongs to the writer thread, which makes the changes of this node.
#[derive(Debug)]
pub(crate) struct Follower {
    node: NodeId,
    freshness: Freshness,
    figures: Arc<NodeFigures>,
    /// The newest change that the snapshot contains, with all before it and none after it.
    served: Mark,
    /// The version that other nodes know of this one.
    reported: u64,
    duty: DutyClaim,
    merging: UsageMerging,
    next_look: Instant,
    is_failing: bool,
}

/// A change that this node makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnChange {
    before: Mark,
    mark: Mark,
}

/// The change that other nodes must see before it is in force everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// Its number; `None` if nodes serve by nothing that it changed.
    pub(crate) version: Option<u64>,
    /// The node that made it.
    pub(crate) node: NodeId,
    /// The time after which a node that is cut off refuses project keys.
    pub(crate) stale_after: Duration,
}

impl Follower {
    /// Returns the follower of a registered node. Call it before anything that nodes change is read from the database.
    pub(crate) fn start(
        db: &Db,
        node: NodeId,
        (freshness, figures): (Freshness, Arc<NodeFigures>),
    ) -> DbResult<Self> {
        let asked_at = Moment::now();
        let newest = changes::newest(db, node)?;
        freshness.confirm(asked_at);
        Ok(Self {
            node,
            freshness,
            figures,
            served: newest.mark,
            reported: newest.reported,
            duty: DutyClaim::new(node),
            merging: UsageMerging::new(),
            next_look: Instant::now(),
            is_failing: false,
        })
    }

    /// Publishes the first snapshot. Returns also the keys whose access has changed since this follower was made.
    pub(crate) fn publish_first(
        &mut self,
        db: &Db,
        params: PublisherParams,
    ) -> DbResult<(Publisher, TouchedAccess)> {
        let moment = db.read_transaction()?;
        // The first snapshot of a large state takes its time.
        moment.may_pause()?;
        let newest = changes::newest(&moment, self.node)?.mark;
        let touched = self.others(&moment, &newest, None)?;
        let access = touched.access.clone();
        let mut publisher = Publisher::start(params, &moment)?;
        // What was read before this moment is read again.
        publisher.touch(touched, &moment)?;
        moment.commit()?;
        self.served = newest;
        Ok((publisher, access))
    }

    /// Tells whether this node does the jobs that one node does for all.
    pub(crate) fn duty(&self) -> Duty {
        self.duty.duty()
    }

    /// Merges usage of all nodes, if this one has the duty and it is time.
    pub(crate) fn merge_usage(&mut self, db: &mut Db) {
        if self.merging.is_due() && self.duty().is_held() {
            self.merging.step(db);
        }
    }

    /// Records that the node stops in order: others do not wait for it, and take its jobs. Its usage must have been stored.
    pub(crate) fn leave(&self, db: &mut Db) -> DbResult<()> {
        let tx = db.transaction()?;
        leases::release(&tx, self.node)?;
        nodes::leave(&tx, self.node)?;
        tx.commit()
    }

    /// Returns the time until the next look.
    pub(crate) fn wait(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Lets the next look be due at once: a node has made a change.
    pub(crate) fn hurry(&mut self) {
        self.next_look = Instant::now();
    }

    /// Publishes what other nodes have changed, and reports it. Returns the keys whose access changed. On an error the next
    /// call finds the same changes again.
    pub(crate) fn follow(&mut self, db: &Db, publisher: &mut Publisher) -> TouchedAccess {
        self.next_look = Instant::now() + LOOK_EVERY;
        match self.try_follow(db, publisher) {
            Ok(access) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the changes of other nodes are followed again");
                }
                access
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!("the changes of other nodes cannot be followed: {error}");
                }
                TouchedAccess::Nothing
            }
        }
    }

    fn try_follow(&mut self, db: &Db, publisher: &mut Publisher) -> DbResult<TouchedAccess> {
        let (asked_at, asked_ms, asked_unix_ms) = (Moment::now(), monotonic_ms(), unix_ms());
        let newest = changes::newest(db, self.node)?;
        if self.is_clock_right(clock::outside_ms(asked_unix_ms, newest.now_ms, unix_ms())) {
            self.duty.claim(db)?;
        } else {
            self.duty.give_up(db)?;
        }
        self.reported = newest.reported;
        let access = if newest.mark == self.served {
            TouchedAccess::Nothing
        } else {
            self.publish(db, publisher, Touched::NOTHING, None)?
        };
        self.freshness.confirm(asked_at);
        self.figures.looked(asked_ms);
        self.report(db);
        Ok(access)
    }

    /// Lets project keys be refused while the clock is wrong. Such a node would count in other windows of limits than the others,
    /// and would delete what has not expired.
    fn is_clock_right(&self, ahead_ms: i64) -> bool {
        let is_wrong = clock::is_wrong(ahead_ms);
        let was_wrong = self.freshness.compare_clocks(is_wrong);
        if is_wrong && !was_wrong {
            tracing::error!(
                "this machine's clock is {} s {} that of the database: project keys are refused, and this node does no job that one \
                 node does for all, until both follow a time server",
                ahead_ms.unsigned_abs() / 1_000,
                if ahead_ms > 0 { "ahead of" } else { "behind" },
            );
        } else if was_wrong && !is_wrong {
            tracing::info!("this machine's clock agrees with that of the database again");
        }
        !is_wrong
    }

    /// Publishes what `touched` names, what `own`, a committed change of this node, has touched, and what other nodes have
    /// changed. Returns the keys whose access changed.
    pub(crate) fn publish(
        &mut self,
        db: &Db,
        publisher: &mut Publisher,
        touched: Touched,
        own: Option<&OwnChange>,
    ) -> DbResult<TouchedAccess> {
        let moment = db.read_transaction()?;
        let newest = changes::newest(&moment, self.node)?.mark;
        let touched = self.others(&moment, &newest, own)?.and(touched);
        let access = touched.access.clone();
        publisher.touch(touched, &moment)?;
        self.served = newest;
        if let Err(error) = moment.commit() {
            tracing::debug!("what was read is published, but its transaction did not end in order: {error}");
        }
        Ok(access)
    }

    /// Returns what the changes of other nodes after `served` up to `newest` have touched; everything if that is not known.
    fn others(&self, moment: &Db, newest: &Mark, own: Option<&OwnChange>) -> DbResult<Touched> {
        let is_next = |own: &OwnChange| own.before == self.served && own.mark == *newest;
        if *newest == self.served || own.is_some_and(is_next) {
            return Ok(Touched::NOTHING);
        }
        let Some(rows) = changes::since(moment, &self.served)? else { return everything(moment) };
        let others = rows.iter().filter(|row| own.is_none_or(|own| own.mark != row.mark));
        let mut read = others.map(|row| serde_json::from_str::<Touched>(&row.touched));
        // A newer release may touch what this one does not know.
        match read.try_fold(Touched::NOTHING, |all, one| one.map(|one| all.and(one))) {
            Ok(touched) => Ok(touched.elsewhere()),
            Err(_) => everything(moment),
        }
    }

    /// Reports the newest change to the other nodes, unless they know it. The next look repeats it if it fails.
    fn report(&mut self, db: &Db) {
        if self.reported != self.served.version
            && let Err(error) = nodes::report(db, self.node, &self.served)
        {
            tracing::debug!("a change is published, but not yet reported: {error}");
        }
    }

    /// Begins a change of this node: no other node makes one until the transaction ends.
    pub(crate) fn begin(tx: &Db) -> DbResult<Mark> {
        changes::lock(tx)
    }

    /// Adds what the transaction has touched, before its commit.
    pub(crate) fn note(&self, tx: &Db, before: Mark, touched: &Touched) -> DbResult<OwnChange> {
        let json = serde_json::to_string(touched).map_err(DbError::bad_value)?;
        let mark = changes::put(tx, &before, self.node, &json)?;
        Ok(OwnChange { before, mark })
    }

    /// Returns what the answer to the change waits for.
    pub(crate) fn awaited(&self, change: &OwnChange, touched: &Touched) -> Awaited {
        let version = Some(change.mark.version).filter(|_| *touched != Touched::NOTHING);
        Awaited { version, node: self.node, stale_after: self.freshness.stale_after() }
    }
}

impl OwnChange {
    /// Decides a change whose commit had no answer. Returns `None` if the database cannot be asked for [`DECIDE_TIME_MAX`];
    /// if the change was made, the next look finds it.
    pub(crate) fn was_made(&self, db: &mut Db) -> Option<bool> {
        let until = Instant::now() + DECIDE_TIME_MAX;
        loop {
            match changes::was_made(db, &self.mark) {
                Ok(made) => return Some(made),
                Err(error) if Instant::now() >= until => {
                    tracing::error!("it is unknown whether a change was made: {error}");
                    return None;
                }
                Err(_) => std::thread::park_timeout(DECIDE_PAUSE),
            }
        }
    }
}

/// Returns all parts of a snapshot, and every session that was ended.
fn everything(db: &Db) -> DbResult<Touched> {
    let ended = Touched::ended(ended_sessions::all(db, unix_ms())?);
    let all = [Touched::ACCESS, Touched::ROUTING, Touched::SIGN_INS, Touched::DOCUMENTS];
    Ok(all.into_iter().fold(ended, Touched::and))
}

/// A notification shortens this; a node that hears none learns of a change after half of it on average.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const DECIDE_TIME_MAX: Duration = Duration::from_secs(5);
const DECIDE_PAUSE: Duration = Duration::from_millis(50);
