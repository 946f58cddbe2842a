//! A node of the model: its counters, its requests, and its connection to the database.

use std::collections::HashMap;

use super::super::*;
use crate::quota::Period;

/// The counter of one window, with the rules of [`Counter`](crate::quota::Counter).
#[derive(Debug, Default)]
pub(super) struct Room {
    settled_and_held: u64,
    pub(super) allowed: u64,
    is_short_open: bool,
    is_short_out: bool,
    admit_until_ms: Option<u64>,
    /// The amounts by second, for the sliding minute.
    ring: Option<Vec<(u64, u64)>>,
}

#[derive(Debug, Default)]
pub(super) struct Rooms {
    pub(super) steady_ms: u64,
    pub(super) rooms: Vec<(WindowKey, Room)>,
    /// The limit by the minute.
    pub(super) minute: Option<WindowKey>,
}

#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) key: WindowKey,
    pub(super) amount: u64,
    pub(super) wanted: u64,
    pub(super) is_short: bool,
    second: u64,
}

/// The needs of a request: of each of its limits.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) needs: Vec<(WindowKey, Option<Period>, GrantNeed)>,
    pub(super) until_ms: u64,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) shares: NodeShares,
    pub(super) rooms: Rooms,
    pub(super) id: u64,
    /// On its disk: what was used of which window, and when.
    pub(super) journal: Vec<(WindowKey, u64, u64)>,
    /// The requests in progress.
    pub(super) running: Vec<(u64, Vec<Hold>)>,
    pub(super) waiting: HashMap<u64, Request>,
    pub(super) is_up: bool,
    /// Nothing reaches the database until then.
    pub(super) cut_until_ms: u64,
    /// The process stands still until then.
    pub(super) paused_until_ms: u64,
    /// The connection in use, and the time at which the transaction on it is given up.
    pub(super) connection: u64,
    pub(super) deadline_ms: Option<u64>,
    pub(super) wall_ahead_ms: i64,
    /// Its last acknowledged commits may be lost, and it has not returned.
    pub(super) is_behind: bool,
}

impl Room {
    fn taken(&self, steady_ms: u64) -> u64 {
        let Some(ring) = &self.ring else { return self.settled_and_held };
        ring.iter().filter(|(second, _)| steady_ms / 1_000 - second <= 60).map(|(_, amount)| amount).sum()
    }

    /// Returns true if the node was not heard of for too long.
    pub(super) fn is_closed(&self, steady_ms: u64) -> bool {
        self.admit_until_ms.is_some_and(|until_ms| steady_ms >= until_ms)
    }

    /// Takes as the counter does: the whole amount, or the rest if a short hold is permitted.
    fn take(&mut self, key: &WindowKey, need: GrantNeed, steady_ms: u64) -> Option<Hold> {
        if self.is_closed(steady_ms) {
            return None;
        }
        let free = self.allowed.saturating_sub(self.taken(steady_ms));
        let is_short = need.wanted > free;
        if is_short && (need.least > free || !self.is_short_open || self.is_short_out) {
            return None;
        }
        self.is_short_out |= is_short;
        let (amount, second) = (need.wanted.min(free), steady_ms / 1_000);
        match &mut self.ring {
            Some(ring) => {
                ring.retain(|(old, _)| second - old <= 60);
                ring.push((second, amount));
            }
            None => self.settled_and_held += amount,
        }
        Some(Hold { key: key.clone(), amount, wanted: need.wanted, is_short, second })
    }

    fn settle(&mut self, hold: &Hold, used: u64) {
        match &mut self.ring {
            Some(ring) => {
                let entry = ring.iter_mut().find(|entry| **entry == (hold.second, hold.amount));
                if let Some(entry) = entry {
                    entry.1 = used;
                }
            }
            None => self.settled_and_held = self.settled_and_held + used - hold.amount,
        }
        if hold.is_short {
            self.is_short_out = false;
        }
    }
}

impl Rooms {
    pub(super) fn room(&mut self, key: &WindowKey) -> &mut Room {
        let found = self.rooms.iter().position(|(known, _)| known == key);
        let at = found.unwrap_or_else(|| {
            let ring = (self.minute.as_ref() == Some(key)).then(Vec::new);
            self.rooms.push((key.clone(), Room { ring, ..Room::default() }));
            self.rooms.len() - 1
        });
        &mut self.rooms[at].1
    }

    /// Takes from all limits of a request or from none. Returns the limit that is full.
    pub(super) fn take(&mut self, request: &Request) -> Result<Vec<Hold>, usize> {
        let (mut holds, steady_ms) = (Vec::new(), self.steady_ms);
        for (at, (key, _, need)) in request.needs.iter().enumerate() {
            match self.room(key).take(key, *need, steady_ms) {
                Some(hold) => holds.push(hold),
                None => {
                    holds.iter().for_each(|hold| self.settle(hold, 0));
                    return Err(at);
                }
            }
        }
        Ok(holds)
    }

    pub(super) fn settle(&mut self, hold: &Hold, used: u64) {
        self.room(&hold.key).settle(hold, used);
    }

    /// Restores what an earlier process used. Of the sliding minute, the model counts it as used now.
    pub(super) fn restore(&mut self, key: &WindowKey, used: u64) {
        let second = self.steady_ms / 1_000;
        let room = self.room(key);
        match &mut room.ring {
            Some(ring) => ring.push((second, used)),
            None => room.settled_and_held += used,
        }
    }
}

impl Allowances for Rooms {
    fn taken(&self, key: &WindowKey) -> u64 {
        let found = self.rooms.iter().find(|(known, _)| known == key);
        found.map_or(0, |(_, room)| room.taken(self.steady_ms))
    }

    fn raise(&mut self, key: &WindowKey, amount: u64) {
        self.room(key).allowed += amount;
    }

    fn lower(&mut self, key: &WindowKey, most: u64) -> u64 {
        let amount = {
            let steady_ms = self.steady_ms;
            let room = self.room(key);
            room.allowed.saturating_sub(room.taken(steady_ms)).min(most)
        };
        self.room(key).allowed -= amount;
        amount
    }

    fn open_short(&mut self, key: &WindowKey) {
        self.room(key).is_short_open = true;
    }

    fn close_short(&mut self, key: &WindowKey) -> bool {
        let room = self.room(key);
        room.is_short_open &= room.is_short_out;
        !room.is_short_out
    }

    fn admit_until(&mut self, key: &WindowKey, steady_ms: u64) {
        self.room(key).admit_until_ms = Some(steady_ms);
    }
}

impl Node {
    pub(super) fn time(&self) -> ShareTime {
        let wall_ms = self.rooms.steady_ms.saturating_add_signed(self.wall_ahead_ms);
        ShareTime { steady_ms: self.rooms.steady_ms, wall_ms }
    }

    pub(super) fn can_run(&self, now: u64) -> bool {
        self.is_up && self.paused_until_ms <= now
    }
}
