//! The database of the model: the tables, and what the transactions of shares do to them.

use super::super::*;
use crate::quota::Period;

#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) key: WindowKey,
    pub(super) granted: u64,
    pub(super) short_node: Option<u64>,
    starved_ms: Option<u64>,
    /// Node, granted, used.
    pub(super) shares: Vec<(u64, u64, u64)>,
}

/// A clone is the standby: after a failover that loses commits, the nodes continue on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    /// The server in `cluster`.
    cluster: u64,
    pub(super) no_grants_before: u64,
    pub(super) windows: Vec<Window>,
    /// By node: incarnation and `seq`, the time at which it was heard of, the stored part of its journal.
    pub(super) fences: Vec<(u64, u64)>,
    pub(super) heard_ms: Vec<u64>,
    pub(super) stored: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) tables: Tables,
    /// The start of the server.
    pub(super) server: u64,
    pub(super) limits: Vec<(WindowKey, Option<Period>, u64)>,
    /// The windows of which something was granted since the last look.
    pub(super) fresh_grants: Vec<WindowKey>,
}

impl Tables {
    pub(super) fn window(&mut self, key: &WindowKey) -> &mut Window {
        let found = self.windows.iter().position(|window| window.key == *key);
        let at = found.unwrap_or_else(|| {
            let (key, shares) = (key.clone(), Vec::new());
            self.windows.push(Window { key, granted: 0, short_node: None, starved_ms: None, shares });
            self.windows.len() - 1
        });
        &mut self.windows[at]
    }

    fn add_node(&mut self, node: u64) {
        let nodes = node as usize + 1;
        if self.fences.len() < nodes {
            self.fences.resize(nodes, (0, 0));
            self.heard_ms.resize(nodes, 0);
            self.stored.resize(nodes, 0);
        }
    }

    pub(super) fn rows_of(&self, node: u64) -> Vec<ShareRow> {
        let rows = self.windows.iter().filter_map(|window| {
            let (_, granted, _) = window.shares.iter().find(|share| share.0 == node)?;
            let has_short = window.short_node == Some(node);
            Some(ShareRow { key: window.key.clone(), granted: *granted, has_short })
        });
        rows.collect()
    }
}

impl Window {
    pub(super) fn share(&mut self, node: u64) -> &mut (u64, u64, u64) {
        let found = self.shares.iter().position(|share| share.0 == node);
        let at = found.unwrap_or_else(|| {
            self.shares.push((node, 0, 0));
            self.shares.len() - 1
        });
        &mut self.shares[at]
    }

    fn check_sum(&self) -> Result<(), String> {
        let sum: u64 = self.shares.iter().map(|share| share.1).sum();
        if sum == self.granted {
            Ok(())
        } else {
            Err(format!("I1: {self:?}, the sum of the shares is {sum}"))
        }
    }
}

impl Server {
    pub(super) fn limit(&self, key: &WindowKey) -> (Option<Period>, u64) {
        let found = self.limits.iter().find(|(known, ..)| known.quota == key.quota).unwrap();
        (found.1, found.2)
    }

    /// Runs the transaction with which a process takes its incarnation.
    pub(super) fn begin(&mut self, node: u64, now: u64) -> Fence {
        self.see_server(now);
        self.tables.add_node(node);
        let fence = &mut self.tables.fences[node as usize];
        *fence = (fence.0 + 1, fence.1 + 1);
        self.tables.heard_ms[node as usize] = now;
        Fence { node, incarnation: fence.0, seq: fence.1 }
    }

    fn see_server(&mut self, now: u64) {
        if self.tables.cluster != self.server {
            self.tables.cluster = self.server;
            self.tables.no_grants_before = now + PAUSE_MS;
        }
    }

    pub(super) fn run(&mut self, transaction: &ShareTransaction, now: u64) -> Result<ShareAnswer, String> {
        match transaction {
            ShareTransaction::Work(fence, actions) => self.work(*fence, actions, now),
            ShareTransaction::Resynchronize(fence) => {
                self.see_server(now);
                self.tables.add_node(fence.node);
                let row = &mut self.tables.fences[fence.node as usize];
                if row.0 > fence.incarnation {
                    return Ok(ShareAnswer::Superseded);
                }
                if row.0 < fence.incarnation || row.1 < fence.seq {
                    return Ok(ShareAnswer::Lost(FoundFence { incarnation: row.0, seq: row.1 }));
                }
                row.1 += 1;
                let seq = row.1;
                self.tables.heard_ms[fence.node as usize] = now;
                Ok(ShareAnswer::Resynchronized { seq, rows: self.tables.rows_of(fence.node) })
            }
            ShareTransaction::Assert { fence, found, shares } => {
                let row = &mut self.tables.fences[fence.node as usize];
                if *row != (found.incarnation, found.seq) || self.tables.cluster != self.server {
                    return Ok(ShareAnswer::Fenced);
                }
                *row = (fence.incarnation, fence.seq + 1);
                self.tables.heard_ms[fence.node as usize] = now;
                for AssertedShare { key, granted, has_short } in shares {
                    let window = self.tables.window(key);
                    let share = window.share(fence.node);
                    let before = std::mem::replace(&mut share.1, *granted);
                    window.granted = window.granted + granted - before;
                    if *has_short {
                        window.short_node = Some(fence.node);
                    } else if window.short_node == Some(fence.node) {
                        window.short_node = None;
                    }
                    window.check_sum()?;
                }
                Ok(ShareAnswer::Asserted)
            }
        }
    }

    fn work(&mut self, fence: Fence, actions: &[ShareAction], now: u64) -> Result<ShareAnswer, String> {
        let row = &mut self.tables.fences[fence.node as usize];
        if *row != (fence.incarnation, fence.seq) || self.tables.cluster != self.server {
            return Ok(ShareAnswer::Fenced);
        }
        row.1 += 1;
        let (mut grants, mut pressed) = (Vec::new(), Vec::new());
        for action in actions {
            let key = match action {
                ShareAction::Renew => {
                    self.tables.heard_ms[fence.node as usize] = now;
                    pressed = self.pressed(fence.node, now);
                    continue;
                }
                ShareAction::Grant(key, ask) => {
                    grants.push(self.grant(fence.node, key, ask, now)?);
                    key
                }
                ShareAction::GiveBack(key, change) => {
                    let window = self.tables.window(key);
                    let share = window.share(fence.node);
                    share.1 = share.1.checked_sub(change.amount).ok_or("a share below 0")?;
                    window.granted -= change.amount;
                    if change.frees_short && window.short_node == Some(fence.node) {
                        window.short_node = None;
                    }
                    key
                }
                ShareAction::Report(key, change) => {
                    let window = self.tables.window(key);
                    window.share(fence.node).1 += change.amount;
                    window.granted += change.amount;
                    if change.frees_short && window.short_node == Some(fence.node) {
                        window.short_node = None;
                    }
                    key
                }
            };
            self.tables.window(key).check_sum()?;
        }
        Ok(ShareAnswer::Done { grants, pressed })
    }

    fn pressed(&self, node: u64, now: u64) -> Vec<WindowKey> {
        let own =
            self.tables.windows.iter().filter(|window| window.shares.iter().any(|share| share.0 == node));
        let is_pressed = |window: &&Window| {
            window.starved_ms.is_some_and(|at| now < at + STARVED_MS)
                || window.granted > self.limit(&window.key).1
        };
        let mut keys: Vec<_> = own.filter(is_pressed).map(|window| window.key.clone()).collect();
        keys.sort();
        keys
    }

    fn grant(&mut self, node: u64, key: &WindowKey, ask: &GrantAsk, now: u64) -> Result<GrantAnswer, String> {
        let pause_ms = self.tables.no_grants_before.saturating_sub(now);
        if pause_ms > 0 {
            return Ok(GrantAnswer { pause_ms, ..GrantAnswer::default() });
        }
        let (period, limit) = self.limit(key);
        self.free_timed(key, period, now);
        let live = self.tables.heard_ms.iter().filter(|heard_ms| now < **heard_ms + 5_000).count() as u64;
        let window = self.tables.window(key);
        let rest = limit.saturating_sub(window.granted);
        let spread = rest / (2 * live.max(1));
        let portion = if spread < ask.claim { 0 } else { ask.wanted.max(ask.claim).min(spread) };
        let need = ask.waiting.map_or(0, |waiting| waiting.wanted);
        let mut answer = GrantAnswer::default();
        if portion >= need {
            answer.amount = portion;
        } else if need <= rest {
            answer.amount = need;
        } else if window.granted <= limit
            && ask.waiting.is_some_and(|waiting| waiting.least <= rest)
            && window.short_node.is_none_or(|holder| holder == node)
        {
            (answer.amount, answer.has_short) = (rest, true);
            window.short_node = Some(node);
        } else {
            window.starved_ms = Some(now);
        }
        if answer.amount > 0 {
            window.granted += answer.amount;
            window.share(node).1 += answer.amount;
            if window.granted > limit {
                return Err(format!("I2: {window:?} is above {limit}"));
            }
        }
        if answer.amount > 0 || answer.has_short {
            self.fresh_grants.push(key.clone());
        }
        Ok(answer)
    }

    fn free_timed(&mut self, key: &WindowKey, period: Option<Period>, now: u64) {
        let left_ms = match period {
            None => PERMITS_FREE_MS,
            Some(Period::Minute) => MINUTE_LEFT_MS,
            Some(_) => return,
        };
        let Tables { windows, heard_ms, fences, .. } = &mut self.tables;
        let Some(window) = windows.iter_mut().find(|window| window.key == *key) else { return };
        for (node, granted, _) in &mut window.shares {
            let at = *node as usize;
            if *granted > 0 && now >= heard_ms[at] + left_ms {
                window.granted -= *granted;
                *granted = 0;
                fences[at].1 += 1;
                if window.short_node == Some(*node) {
                    window.short_node = None;
                }
            }
        }
    }
}
