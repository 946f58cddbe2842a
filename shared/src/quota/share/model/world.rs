//! One run of the model: the schedule, the faults and the checks.

use std::collections::HashMap;

use super::super::*;
use super::node::{Hold, Node, Rooms};
use super::server::{Server, Tables};
use crate::quota::Period;

pub(super) struct World {
    pub(super) random: u64,
    pub(super) traces: bool,
    pub(super) now: u64,
    pub(super) server: Server,
    pub(super) standby: Tables,
    /// The server is down until then.
    pub(super) down_until_ms: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) messages: Vec<Message>,
    pub(super) answers: Vec<(u64, usize, u64, ShareAnswer)>,
    /// The likelihood of faults in this run, in percent, by kind.
    pub(super) faults: [u64; 8],
    pub(super) truth: HashMap<WindowKey, Truth>,
    /// The shares that a failover lost, by node and window, of nodes that have not returned.
    pub(super) pending: Vec<(u64, WindowKey, u64)>,
    /// Running requests under the limit of concurrent ones, and amounts by time under the limit by the minute.
    pub(super) minute: Vec<(u64, u64, u64)>,
    /// The highest limits so far, in the order of the limits.
    pub(super) most: [u64; 4],
    pub(super) next_id: u64,
    pub(super) next_node: u64,
    /// Served, refused, transactions, resynchronizations, assertions, starts, short holds, excused losses.
    pub(super) counts: [u64; 8],
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) at: u64,
    pub(super) node: usize,
    pub(super) connection: u64,
    pub(super) server: u64,
    pub(super) transaction: ShareTransaction,
    /// The time that the answer takes; `None` if it is lost.
    pub(super) answer_ms: Option<u64>,
}

/// The real use of a window.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Used, and held by running requests.
    pub(super) taken: u64,
    /// The most that one short hold used beyond itself.
    pub(super) excess: u64,
    /// The excess that is excused: shares in lost commits, and the excess of interrupted short holds.
    pub(super) excused: u64,
    /// The highest limit so far.
    pub(super) limit: u64,
}

pub(super) const START_MS: u64 = 1_000 * 3_600_000;
pub(super) const PARTITION: usize = 0;
pub(super) const PAUSE: usize = 1;
pub(super) const KILL: usize = 2;
pub(super) const DISK: usize = 3;
pub(super) const LOSS: usize = 5;
pub(super) const MESSAGE: usize = 6;
pub(super) const LONG: usize = 7;

impl World {
    pub(super) fn new(seed: u64, traces: bool) -> Self {
        let period = |quota: &str| match quota {
            "minute" => Some(Period::Minute),
            "hour" => Some(Period::Hour),
            "total" => Some(Period::Total),
            _ => None,
        };
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let limits = ["concurrent", "hour", "minute", "total"].map(|quota| {
            let most = [20, 100, 1_000][below(&mut random, 3) as usize];
            let limit = 1 + below(&mut random, if quota == "concurrent" { 20 } else { most });
            (WindowKey { quota: quota.into(), start_ms: 0 }, period(quota), limit)
        });
        let server = Server {
            tables: Tables::default(),
            server: 1,
            limits: limits.clone().into(),
            fresh_grants: Vec::new(),
        };
        let faults = [(); 8].map(|()| [0, 1, 4][below(&mut random, 3) as usize]);
        let before_ms = below(&mut random, 30_000);
        let mut world = Self {
            random,
            traces,
            now: START_MS - before_ms,
            standby: Tables::default(),
            server,
            down_until_ms: 0,
            nodes: Vec::new(),
            messages: Vec::new(),
            answers: Vec::new(),
            faults,
            truth: HashMap::new(),
            pending: Vec::new(),
            minute: Vec::new(),
            most: limits.clone().map(|(.., limit)| limit),
            next_id: 0,
            next_node: 0,
            counts: [0; 8],
        };
        for _ in 0..3 + world.below(3) {
            world.add_node();
        }
        world
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    /// Returns true in so many of 1,000 cases.
    pub(super) fn is_by_chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub(super) fn trace(&self, text: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>8} {}", self.now as i64 - START_MS as i64, text());
        }
    }

    fn add_node(&mut self) {
        let minute = self.server.limits[2].0.clone();
        let rooms = Rooms { steady_ms: self.now, minute: Some(minute), ..Rooms::default() };
        let wall_ahead_ms = self.below(2_000) as i64 - 1_000;
        self.nodes.push(Node {
            shares: NodeShares::new(Fence { node: 0, incarnation: 0, seq: 0 }, 0),
            rooms,
            id: self.next_node,
            journal: Vec::new(),
            running: Vec::new(),
            waiting: HashMap::new(),
            is_up: false,
            cut_until_ms: 0,
            paused_until_ms: 0,
            connection: 0,
            deadline_ms: None,
            wall_ahead_ms,
            is_behind: false,
        });
        self.next_node += 1;
        self.start(self.nodes.len() - 1);
    }

    /// Starts the process of a node: stores the journal, takes an incarnation, and takes the shares over.
    pub(super) fn start(&mut self, at: usize) {
        let (now, server) = (self.now, &mut self.server);
        let node = &mut self.nodes[at];
        let fence = server.begin(node.id, now);
        store_journal(&mut server.tables, node);
        let minute = node.rooms.minute.take();
        node.rooms = Rooms { steady_ms: now, minute, ..Rooms::default() };
        node.shares = NodeShares::new(fence, now);
        (node.is_up, node.is_behind, node.deadline_ms) = (true, false, None);
        node.connection += 1;
        for row in server.tables.rows_of(node.id) {
            let period = server.limit(&row.key).0;
            let used = match period {
                None => 0,
                Some(Period::Minute) => {
                    let last =
                        node.journal.iter().filter(|(key, _, at)| *key == row.key && at + 61_000 > now);
                    last.map(|(_, used, _)| used).sum()
                }
                Some(_) => server.tables.window(&row.key).share(node.id).2,
            };
            node.rooms.restore(&row.key, used);
            node.shares.resume(&row, period, node.time(), &mut node.rooms);
        }
        self.counts[5] += 1;
        self.trace(|| format!("start {at}: {fence:?}"));
    }

    pub(super) fn truth(&mut self, key: &WindowKey) -> &mut Truth {
        let index = self.server.limits.iter().position(|(known, ..)| known.quota == key.quota).unwrap();
        let truth = self.truth.entry(key.clone()).or_default();
        truth.limit = self.most[index];
        truth
    }

    /// Checks what is used and held in a window.
    fn check(&mut self, key: &WindowKey) -> Result<(), String> {
        let is_minute = self.nodes[0].rooms.minute.as_ref() == Some(key);
        let now = self.now;
        let last_minute = is_minute.then(|| {
            self.minute.retain(|(_, at, _)| at + 60_000 > now);
            self.minute.iter().map(|(.., amount)| amount).sum()
        });
        let truth = self.truth(key);
        let taken = last_minute.unwrap_or(truth.taken);
        if taken > truth.limit + truth.excess + truth.excused {
            return Err(format!("{key:?}: {taken} taken, {truth:?}"));
        }
        Ok(())
    }

    pub(super) fn took(&mut self, id: u64, holds: &[Hold]) -> Result<(), String> {
        for hold in holds {
            self.truth(&hold.key).taken += hold.amount;
            if self.nodes[0].rooms.minute.as_ref() == Some(&hold.key) {
                self.minute.push((id, self.now, hold.amount));
            }
            self.counts[6] += u64::from(hold.is_short);
            self.check(&hold.key)?;
        }
        Ok(())
    }

    /// Ends a request that used so much of each hold.
    pub(super) fn used(
        &mut self,
        id: u64,
        hold: &Hold,
        used: u64,
        is_interrupted: bool,
    ) -> Result<(), String> {
        let is_concurrent = self.server.limit(&hold.key).0.is_none();
        let truth = self.truth(&hold.key);
        truth.taken = truth.taken + if is_concurrent { 0 } else { used } - hold.amount;
        let excess = used.saturating_sub(hold.amount);
        if is_interrupted {
            truth.excused += excess;
        }
        truth.excess = truth.excess.max(excess);
        if self.nodes[0].rooms.minute.as_ref() == Some(&hold.key)
            && let Some(entry) = self.minute.iter_mut().find(|entry| entry.0 == id)
        {
            entry.2 = used;
        }
        self.check(&hold.key)
    }

    /// Checks I3 of a node against the rows.
    pub(super) fn check_node(&mut self, at: usize) -> Result<(), String> {
        let node = &self.nodes[at];
        if !node.is_up || node.is_behind {
            return Ok(());
        }
        for (key, room) in &node.rooms.rooms {
            let (period, _) = self.server.limit(key);
            let is_timed = matches!(period, None | Some(Period::Minute));
            // The node has forgotten windows that are long over.
            if *key < (WindowKey { start_ms: START_MS, ..key.clone() })
                && self.now > START_MS + 55_000
                && !is_timed
                && key.start_ms > 0
            {
                continue;
            }
            let window = self.server.tables.windows.iter().find(|window| window.key == *key);
            let row = window.and_then(|window| window.shares.iter().find(|share| share.0 == node.id));
            let granted = row.map_or(0, |row| row.1);
            if room.allowed > granted && !room.is_closed(self.now) {
                return Err(format!("I3: node {at} allows {} of {key:?}, granted {granted}", room.allowed));
            }
        }
        Ok(())
    }
}

/// Stores what the journal of a node has beyond the stored mark.
pub(super) fn store_journal(tables: &mut Tables, node: &Node) {
    let stored = std::mem::replace(&mut tables.stored[node.id as usize], node.journal.len());
    for (key, used, _) in &node.journal[stored..] {
        tables.window(key).share(node.id).2 += used;
    }
}

fn below(random: &mut u64, bound: u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound.max(1)
}
