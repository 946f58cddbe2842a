//! The schedule of a run: time, messages, requests and faults.

use std::sync::Arc;

use super::super::*;
use super::node::{Node, Request};
use super::world::*;
use crate::quota::Period;

impl World {
    pub(super) fn run(&mut self) -> Result<(), String> {
        let steps = 120 + self.below(120);
        for _ in 0..steps {
            self.pass_time();
            self.deliver()?;
            let at = self.below(self.nodes.len() as u64) as usize;
            match self.below(100) {
                0..55 => self.request(at)?,
                55..80 => self.end_request(at)?,
                80..83 => self.change_limit(),
                83..86 => self.ship(at),
                86.. => self.fault(at)?,
            }
            self.poll(at)?;
            let other = self.below(self.nodes.len() as u64) as usize;
            self.poll(other)?;
        }
        self.rest()
    }

    fn pass_time(&mut self) {
        let is_long = self.below(1_000) < 10 * self.faults[LONG];
        self.now += match self.below(100) {
            _ if is_long => 5_000 + self.below(30_000),
            0..70 => 1 + self.below(15),
            70..94 => 30 + self.below(250),
            _ => 500 + self.below(2_500),
        };
    }

    /// Runs the transactions that have arrived, and passes the answers on.
    pub(super) fn deliver(&mut self) -> Result<(), String> {
        while let Some(at) =
            first(&self.messages, |message| message.at).filter(|at| self.messages[*at].at <= self.now)
        {
            let message = self.messages.swap_remove(at);
            if message.server != self.server.server || message.at < self.down_until_ms {
                continue;
            }
            let node = message.node;
            let answer = self.server.run(&message.transaction, message.at)?;
            self.counts[2] += 1;
            self.trace(|| format!("{node}: {:?} -> {answer:?}", message.transaction));
            self.after_transaction(&message, &answer)?;
            if let Some(answer_ms) = message.answer_ms {
                self.answers.push((message.at + answer_ms, node, message.connection, answer));
            }
        }
        Ok(())
    }

    fn after_transaction(&mut self, message: &Message, answer: &ShareAnswer) -> Result<(), String> {
        let node = &mut self.nodes[message.node];
        match answer {
            ShareAnswer::Resynchronized { .. } => self.counts[3] += 1,
            ShareAnswer::Asserted => self.counts[4] += 1,
            _ => {}
        }
        // An old process proves nothing about the present one.
        if node.connection == message.connection
            && matches!(answer, ShareAnswer::Resynchronized { .. } | ShareAnswer::Asserted)
        {
            let id = node.id;
            node.is_behind = false;
            self.pending.retain(|(lost, ..)| *lost != id);
        }
        for key in std::mem::take(&mut self.server.fresh_grants) {
            let lost = self.pending.extract_if(.., |(_, lost, _)| *lost == key);
            let lost: Vec<u64> = lost.map(|(.., amount)| amount).collect();
            self.counts[7] += lost.len() as u64;
            self.truth(&key).excused += lost.iter().sum::<u64>();
            if !lost.is_empty() && message.at < self.down_until_ms + PAUSE_MS {
                return Err(format!("{key:?}: granted before the nodes had time to return"));
            }
        }
        Ok(())
    }

    /// Lets a node look at its answers and its shares.
    pub(super) fn poll(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        if !self.nodes[at].can_run(now) {
            return Ok(());
        }
        self.nodes[at].rooms.steady_ms = now;
        while let Some(found) = self.answers.iter().position(|answer| answer.1 == at && answer.0 <= now) {
            let (_, _, connection, answer) = self.answers.swap_remove(found);
            let time = self.nodes[at].time();
            let Node { shares, rooms, connection: current, deadline_ms, .. } = &mut self.nodes[at];
            if connection == *current && deadline_ms.take().is_some() {
                shares.answered(answer, time, rooms);
            }
        }
        let node = &mut self.nodes[at];
        if node.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now) {
            node.shares.unknown();
            node.connection += 1;
            node.deadline_ms = None;
        }
        self.wake(at)?;
        self.send(at);
        self.wake(at)?;
        self.check_node(at)
    }

    fn send(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let time = node.time();
        let Some(transaction) = node.shares.next(time, &mut node.rooms) else { return };
        node.deadline_ms = Some(now + 1_000);
        let (connection, is_cut) = (node.connection, node.cut_until_ms > now);
        let is_faulty = self.below(100) < 4 * self.faults[MESSAGE];
        let kind = if is_faulty { self.below(4) } else { 9 };
        let mut delay_ms = 1 + self.below(4);
        let mut answer_ms = Some(1 + self.below(4));
        match kind {
            _ if is_cut => delay_ms = u64::MAX,
            0 => delay_ms = u64::MAX,
            1 => answer_ms = None,
            2 => delay_ms = 300 + self.below(6_000),
            3 => answer_ms = Some(300 + self.below(3_000)),
            _ => {}
        }
        let server = self.server.server;
        if delay_ms < u64::MAX {
            self.messages.push(Message {
                at: now + delay_ms,
                node: at,
                connection,
                server,
                transaction,
                answer_ms,
            });
        }
    }

    fn wake(&mut self, at: usize) -> Result<(), String> {
        for Woken { id, may_retry } in self.nodes[at].shares.woken() {
            let Some(request) = self.nodes[at].waiting.remove(&id) else { continue };
            if may_retry {
                self.attempt(at, id, request)?;
            } else {
                self.counts[1] += 1;
            }
        }
        Ok(())
    }

    fn attempt(&mut self, at: usize, id: u64, request: Request) -> Result<(), String> {
        let node = &mut self.nodes[at];
        match node.rooms.take(&request) {
            Ok(holds) => {
                self.counts[0] += 1;
                self.trace(|| format!("{at}: request {id} takes {holds:?}"));
                self.took(id, &holds)?;
                self.nodes[at].running.push((id, holds));
            }
            Err(full) => {
                let (key, period, need) = &request.needs[full];
                let (waiter, time) = (Waiter { id, need: *need, until_ms: request.until_ms }, node.time());
                if node.shares.wait((key, *period), waiter, time, &mut node.rooms) {
                    node.waiting.insert(id, request);
                } else {
                    self.counts[1] += 1;
                }
            }
        }
        Ok(())
    }

    /// Begins a request under some of the limits.
    fn request(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        if !self.nodes[at].can_run(now) {
            return Ok(());
        }
        let mask = 1 + self.below(15);
        let mut needs = Vec::new();
        for index in 0..4 {
            if mask & (1 << index) == 0 {
                continue;
            }
            let (key, period, _) = self.server.limits[index].clone();
            let least = 1 + self.below(3);
            let wanted = least + self.below(12);
            let need = if period.is_none() {
                GrantNeed { least: 1, wanted: 1 }
            } else {
                GrantNeed { least, wanted }
            };
            needs.push((self.current(at, &key, period), period, need));
        }
        self.begin(at, needs)
    }

    pub(super) fn begin(
        &mut self,
        at: usize,
        needs: Vec<(WindowKey, Option<Period>, GrantNeed)>,
    ) -> Result<(), String> {
        self.nodes[at].rooms.steady_ms = self.now;
        self.next_id += 1;
        self.attempt(at, self.next_id, Request { needs, until_ms: self.now + WAIT_MS })
    }

    /// Returns the window of a limit that is the current one at a node.
    pub(super) fn current(&self, at: usize, key: &WindowKey, period: Option<Period>) -> WindowKey {
        let wall_ms = self.now.saturating_add_signed(self.nodes[at].wall_ahead_ms);
        let start_ms = period.and_then(|period| period.window(wall_ms)).map_or(0, |(start_ms, _)| start_ms);
        WindowKey { quota: Arc::clone(&key.quota), start_ms }
    }

    pub(super) fn end_request(&mut self, at: usize) -> Result<(), String> {
        if !self.nodes[at].can_run(self.now) || self.nodes[at].running.is_empty() {
            return Ok(());
        }
        self.nodes[at].rooms.steady_ms = self.now;
        let index = self.below(self.nodes[at].running.len() as u64) as usize;
        let (id, holds) = self.nodes[at].running.swap_remove(index);
        for hold in holds {
            let is_concurrent = self.server.limit(&hold.key).0.is_none();
            let most = if hold.is_short { hold.wanted } else { hold.amount };
            let used = if is_concurrent { 0 } else { self.below(2 * most + 1).min(most) };
            self.used(id, &hold, used, false)?;
            let node = &mut self.nodes[at];
            node.rooms.settle(&hold, used);
            node.journal.push((hold.key, used, self.now));
        }
        Ok(())
    }

    fn change_limit(&mut self) {
        let index = self.below(4) as usize;
        let now = &mut self.server.limits[index];
        let (quota, before) = (Arc::clone(&now.0.quota), now.2);
        let after = 1 + self.below(before + before / 2);
        self.server.limits[index].2 = after;
        self.trace(|| format!("limit {quota}: {before} -> {after}"));
        for node in &mut self.nodes {
            if after < before && node.cut_until_ms < self.now {
                node.shares.limit_lowered(&quota);
            }
        }
        self.most[index] = self.most[index].max(after);
    }

    fn reaches(&self, at: usize) -> bool {
        self.nodes[at].cut_until_ms <= self.now && self.down_until_ms <= self.now
    }

    fn ship(&mut self, at: usize) {
        if self.nodes[at].can_run(self.now) && self.reaches(at) {
            store_journal(&mut self.server.tables, &self.nodes[at]);
        }
    }

    fn fault(&mut self, at: usize) -> Result<(), String> {
        if self.below(2) == 0 {
            // Replication is never far behind.
            self.standby = self.server.tables.clone();
        }
        let long_ms = if self.is_by_chance(50 * self.faults[LONG]) { 700_000 } else { 9_000 };
        let until_ms = self.now + self.below(long_ms);
        let kind = self.below(5) as usize;
        if !self.is_by_chance(120 * self.faults[kind]) {
            return if self.nodes[at].is_up || !self.reaches(at) { Ok(()) } else { self.again(at) };
        }
        match kind {
            PARTITION => self.nodes[at].cut_until_ms = until_ms,
            PAUSE => self.nodes[at].paused_until_ms = until_ms,
            KILL | DISK if self.nodes[at].is_up => return self.kill(at, kind == DISK),
            KILL | DISK => return if self.reaches(at) { self.again(at) } else { Ok(()) },
            _ => self.fail_over(),
        }
        self.trace(|| format!("{at}: fault {kind} until {until_ms}"));
        Ok(())
    }

    fn again(&mut self, at: usize) -> Result<(), String> {
        self.start(at);
        self.nodes[at].paused_until_ms = 0;
        Ok(())
    }

    /// Kills a node. Without its disk, another one comes in its place.
    fn kill(&mut self, at: usize, loses_disk: bool) -> Result<(), String> {
        self.trace(|| format!("{at}: killed, disk lost: {loses_disk}"));
        let now = self.now;
        for (id, holds) in std::mem::take(&mut self.nodes[at].running) {
            for hold in holds {
                let is_concurrent = self.server.limit(&hold.key).0.is_none();
                let most = if hold.is_short { hold.wanted } else { hold.amount };
                let used = if is_concurrent { 0 } else { self.below(most + 1) };
                self.used(id, &hold, used, true)?;
                // The note of the request counts as what it held.
                self.nodes[at].journal.push((hold.key, if is_concurrent { 0 } else { hold.amount }, now));
            }
        }
        let node = &mut self.nodes[at];
        node.is_up = false;
        node.waiting.clear();
        if loses_disk {
            node.journal.clear();
            node.id = self.next_node;
            node.connection += 1;
            self.next_node += 1;
        }
        Ok(())
    }

    /// Another server takes over, perhaps without the last commits.
    fn fail_over(&mut self) {
        let loses = self.is_by_chance(300 * self.faults[LOSS]);
        self.server.server += 1;
        self.down_until_ms = self.now + self.below(2_000);
        self.trace(|| format!("failover to {}, commits lost: {loses}", self.server.server));
        if !loses {
            self.standby = self.server.tables.clone();
            return;
        }
        let lost = std::mem::replace(&mut self.server.tables, self.standby.clone());
        self.server.tables.fences.resize(lost.fences.len(), (0, 0));
        self.server.tables.heard_ms.resize(lost.fences.len(), 0);
        self.server.tables.stored.resize(lost.fences.len(), 0);
        for window in &lost.windows {
            for (node, granted, _) in &window.shares {
                let kept = self.server.tables.window(&window.key).share(*node).1;
                // A lost short hold is excused with the most that it may use beyond itself.
                let short = if window.short_node == Some(*node) { 15 } else { 0 };
                let amount = granted.saturating_sub(kept) + short;
                if amount > 0 {
                    self.pending.push((*node, window.key.clone(), amount));
                }
            }
        }
        self.nodes.iter_mut().for_each(|node| node.is_behind = true);
    }
}

/// Returns the index of the first element in the order of a key.
fn first<T>(all: &[T], key: impl Fn(&T) -> u64) -> Option<usize> {
    (0..all.len()).min_by_key(|at| key(&all[*at]))
}
