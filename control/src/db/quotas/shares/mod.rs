//! The transactions of a node's shares ([`shared::quota::share`]) in the tables `quota_window` and `quota_share`.
//!
//! Each is one transaction of the database, which begins with the fence of the node.

pub(crate) mod lost;
pub(crate) mod merge;
mod silent;
#[cfg(test)]
mod tests;
pub(crate) mod used;
mod windows;

use std::collections::BTreeMap;

use shared::quota::Period;
use shared::quota::share::{
    AssertedShare, Fence, FoundFence, GrantAnswer, GrantAsk, ShareAction, ShareAnswer, ShareRow,
    ShareTransaction, WindowKey,
};

use self::silent::silent;
pub(crate) use self::windows::WindowNews;
use self::windows::{Change, ShortChange, Window};
use crate::db::cluster::fences::{self, Lane, Passed, Resynchronized};
use crate::db::cluster::nodes;
use crate::db::engine::{Db, DbErrorKind, DbResult};
use crate::db::signed;

/// The answer to a transaction, and what the node learned of its windows.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) answer: ShareAnswer,
    pub(crate) news: Vec<WindowNews>,
    /// The number of nodes that are live, if it was read.
    pub(crate) live: Option<u64>,
}

impl From<ShareAnswer> for Ran {
    fn from(answer: ShareAnswer) -> Self {
        Self { answer, news: Vec::new(), live: None }
    }
}

/// A process that has begun, and the shares that the node had before.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) fence: Fence,
    pub(crate) rows: Vec<ShareRow>,
}

/// Begins the transactions of a process that is registered. `since_ms` is the start of the oldest window that can still be in
/// use. Returns `None` if a later process has the node.
pub(crate) fn begin(db: &mut Db, process: Fence, since_ms: u64) -> DbResult<Option<Begun>> {
    in_transaction(db, |tx| {
        let seq = match fences::resynchronize(tx, Lane::Shares, &process)? {
            Resynchronized::Superseded => return Ok(None),
            Resynchronized::Current(seq) => seq,
            // The commit that registered the process was lost.
            Resynchronized::Lost(found) => {
                fences::assert(tx, Lane::Shares, &process, found)?;
                process.seq.saturating_add(1)
            }
        };
        nodes::renew(tx, process.node)?;
        let rows = windows::rows(tx, process.node, Err(since_ms))?;
        Ok(Some(Begun { fence: Fence { seq, ..process }, rows }))
    })
}

/// Runs a transaction. `held` are the windows in which the node has shares. After an error the outcome is unknown, and the
/// next transaction must use another session.
pub(crate) fn run(db: &mut Db, transaction: &ShareTransaction, held: &[&WindowKey]) -> DbResult<Ran> {
    in_transaction(db, |tx| match transaction {
        ShareTransaction::Work(fence, actions) => work(tx, fence, actions, held),
        ShareTransaction::Resynchronize(fence) => {
            let answer = match fences::resynchronize(tx, Lane::Shares, fence)? {
                Resynchronized::Superseded => ShareAnswer::Superseded,
                Resynchronized::Lost(found) => ShareAnswer::Lost(found),
                Resynchronized::Current(seq) => {
                    nodes::renew(tx, fence.node)?;
                    ShareAnswer::Resynchronized { seq, rows: windows::rows(tx, fence.node, Ok(held))? }
                }
            };
            Ok(answer.into())
        }
        ShareTransaction::Assert { fence, found, shares } => Ok(assert(tx, (fence, *found), shares)?.into()),
    })
}

/// Runs a transaction. A session that does not answer is not asked to roll back: it ends.
fn in_transaction<T>(db: &mut Db, work: impl FnOnce(&Db) -> DbResult<T>) -> DbResult<T> {
    let tx = db.guarded_transaction()?;
    match work(&tx) {
        Ok(worked) => tx.commit().map(|()| worked),
        Err(error) => {
            if matches!(error.kind(), DbErrorKind::TooSlow | DbErrorKind::Unreachable) {
                std::mem::forget(tx);
            }
            Err(error)
        }
    }
}

fn work(tx: &Db, fence: &Fence, actions: &[ShareAction], held: &[&WindowKey]) -> DbResult<Ran> {
    let Some(passed) = fences::pass(tx, Lane::Shares, fence)? else {
        return Ok(ShareAnswer::Fenced.into());
    };
    let (node, now_ms) = (fence.node, passed.now_ms);
    let mut news = Vec::new();
    if actions.contains(&ShareAction::Renew) {
        nodes::renew(tx, node)?;
        news = windows::news(tx, held, (node, now_ms))?;
    }
    let keys: Vec<&WindowKey> = actions.iter().filter_map(key_of).collect();
    let mut grants = Vec::new();
    if !keys.is_empty() {
        let mut turn = Turn::new(tx, (node, passed), actions, &keys)?;
        grants = turn.decide(actions)?;
        windows::write(tx, &turn.changes, node)?;
    }
    let pressed = news.iter().filter(|news| news.is_pressed).map(|news| news.key.clone()).collect();
    Ok(Ran { answer: ShareAnswer::Done { grants, pressed }, news, live: Some(passed.live) })
}

fn key_of(action: &ShareAction) -> Option<&WindowKey> {
    match action {
        ShareAction::Renew => None,
        ShareAction::Grant(key, _) | ShareAction::GiveBack(key, _) | ShareAction::Report(key, _) => Some(key),
    }
}

/// The decisions of one transaction, whose windows are locked.
struct Turn<'a> {
    tx: &'a Db,
    node: u64,
    passed: Passed,
    windows: BTreeMap<WindowKey, Window>,
    /// The nodes whose shares in limits by the minute, and in limits of concurrent requests, are free, as JSON lists.
    silent: [Option<String>; 2],
    changes: Vec<Change>,
}

impl<'a> Turn<'a> {
    fn new(
        tx: &'a Db,
        (node, passed): (u64, Passed),
        actions: &[ShareAction],
        keys: &[&WindowKey],
    ) -> DbResult<Self> {
        let is_grant = |action: &&ShareAction| matches!(action, ShareAction::Grant(..));
        // Windows that start at 0 are those of timed limits, and those that never end.
        let timed = actions.iter().filter(is_grant).filter_map(key_of).filter(|key| key.start_ms == 0);
        let timed: Vec<&str> = timed.map(|key| &*key.quota).collect();
        let silent = if timed.is_empty() || passed.pause_ms > 0 {
            [None, None]
        } else {
            silent(tx, &serde_json::json!(timed).to_string(), (node, passed.now_ms))?
                .map(|nodes| (!nodes.is_empty()).then(|| json_of(&nodes)))
        };
        let windows = windows::lock(tx, keys)?;
        Ok(Self { tx, node, passed, windows, silent, changes: Vec::new() })
    }

    /// Decides all actions. Returns the answers to the grants.
    fn decide(&mut self, actions: &[ShareAction]) -> DbResult<Vec<GrantAnswer>> {
        let mut grants = Vec::new();
        for action in actions {
            match action {
                ShareAction::Renew => {}
                ShareAction::Grant(key, ask) => grants.push(self.grant(key, ask)?),
                ShareAction::GiveBack(key, change) => {
                    self.change(key, -signed(change.amount), change.frees_short);
                }
                ShareAction::Report(key, change) => {
                    self.change(key, signed(change.amount), change.frees_short);
                }
            }
        }
        Ok(grants)
    }

    fn grant(&mut self, key: &WindowKey, ask: &GrantAsk) -> DbResult<GrantAnswer> {
        let pause_ms = self.passed.pause_ms;
        if pause_ms > 0 {
            return Ok(GrantAnswer { pause_ms, ..GrantAnswer::default() });
        }
        // A limit that is gone grants nothing.
        let Some(window) = self.windows.get_mut(key) else { return Ok(GrantAnswer::default()) };
        let silent = match window.period {
            Some(Period::Minute) => &self.silent[0],
            None => &self.silent[1],
            Some(_) => &None,
        };
        if let Some(silent) = silent {
            window.free(self.tx, key, silent)?;
        }
        let (answer, is_starved) = window.answer(ask, self.node, self.passed.live);
        let short = if answer.has_short { ShortChange::BecomesThisNode } else { ShortChange::Stays };
        if answer.amount > 0 || answer.has_short || is_starved {
            let (key, amount) = (key.clone(), signed(answer.amount));
            self.changes.push(Change { key, amount, short, is_starved });
        }
        Ok(answer)
    }

    fn change(&mut self, key: &WindowKey, amount: i64, frees_short: bool) {
        let Some(window) = self.windows.get(key) else { return };
        let short = window.short_change(frees_short, self.node);
        let key = key.clone();
        self.changes.push(Change { key, amount, short, is_starved: false });
    }
}

impl Window {
    /// Takes the shares of silent nodes back.
    fn free(&mut self, tx: &Db, key: &WindowKey, silent: &str) -> DbResult<()> {
        self.granted = self.granted.saturating_sub(windows::free(tx, key, silent)?);
        let is_silent = |node: u64| silent.contains(&format!("\"{node}\""));
        self.short_node = self.short_node.filter(|node| !is_silent(*node));
        Ok(())
    }

    /// Decides a request for a larger share, as [`GrantAsk`] defines it. Returns true too if a request starves.
    fn answer(&self, ask: &GrantAsk, node: u64, live: u64) -> (GrantAnswer, bool) {
        // The database counts in signed numbers.
        let limit = self.limit.min(LIMIT_MOST);
        let rest = limit.saturating_sub(self.granted);
        let spread = rest / live.max(1).saturating_mul(2);
        let portion = if spread < ask.claim { 0 } else { ask.wanted.max(ask.claim).min(spread) };
        let need = ask.waiting.map_or(0, |waiting| waiting.wanted);
        let grant = |amount: u64, has_short: bool| GrantAnswer { amount, has_short, pause_ms: 0 };
        if portion >= need {
            return (grant(portion, false), false);
        }
        if need <= rest {
            return (grant(need, false), false);
        }
        let fits_partly = ask.waiting.is_some_and(|waiting| waiting.least <= rest);
        if fits_partly && self.granted <= limit && self.short_node.is_none_or(|holder| holder == node) {
            return (grant(rest, true), false);
        }
        (GrantAnswer::default(), ask.waiting.is_some())
    }

    fn short_change(&self, frees_short: bool, node: u64) -> ShortChange {
        if frees_short && self.short_node == Some(node) {
            ShortChange::BecomesNone
        } else {
            ShortChange::Stays
        }
    }
}

fn assert(tx: &Db, (fence, found): (&Fence, FoundFence), shares: &[AssertedShare]) -> DbResult<ShareAnswer> {
    if !fences::assert(tx, Lane::Shares, fence, found)? {
        return Ok(ShareAnswer::Fenced);
    }
    nodes::renew(tx, fence.node)?;
    let keys: Vec<&WindowKey> = shares.iter().map(|share| &share.key).collect();
    if keys.is_empty() {
        return Ok(ShareAnswer::Asserted);
    }
    let windows = windows::lock(tx, &keys)?;
    let before = windows::shares(tx, &keys, fence.node)?;
    let change = |share: &AssertedShare| {
        let window = windows.get(&share.key)?;
        let short = if share.has_short {
            ShortChange::BecomesThisNode
        } else {
            window.short_change(true, fence.node)
        };
        let amount = signed(share.granted).saturating_sub(before.get(&share.key).copied().unwrap_or(0));
        Some(Change { key: share.key.clone(), amount, short, is_starved: false })
    };
    let changes: Vec<Change> = shares.iter().filter_map(change).collect();
    windows::write(tx, &changes, fence.node)?;
    Ok(ShareAnswer::Asserted)
}

/// Returns IDs of nodes as a list for a statement.
fn json_of(nodes: &[u64]) -> String {
    let texts: Vec<String> = nodes.iter().map(u64::to_string).collect();
    serde_json::json!(texts).to_string()
}

/// The largest limit that is granted, so that sums stay in the range of the database.
const LIMIT_MOST: u64 = 1 << 62;
