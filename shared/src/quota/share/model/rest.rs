//! The end of a run: all faults and requests end, and everything that is left of a limit can be used.

use super::super::*;
use super::world::*;
use crate::quota::Period;

impl World {
    /// Ends all faults and requests, and checks that one request can have all that is left.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.faults = [0; 8];
        self.now += 10_000;
        for at in 0..self.nodes.len() {
            (self.nodes[at].cut_until_ms, self.nodes[at].paused_until_ms) = (0, 0);
            while self.nodes[at].is_up && !self.nodes[at].running.is_empty() {
                self.end_request(at)?;
            }
            if !self.nodes[at].is_up {
                self.start(at);
            }
            store_journal(&mut self.server.tables, &self.nodes[at]);
        }
        self.trace(|| "rest".to_owned());
        // Unknown outcomes, the assertions and the pause of a failover.
        for _ in 0..8 {
            self.quiet(1_100)?;
        }
        if self.below(8) == 0 {
            for _ in 0..14 {
                self.quiet(45_000)?;
            }
            self.take_the_rest(2)?;
            self.take_the_rest(0)?;
        }
        self.take_the_rest(1)?;
        self.take_the_rest(3)
    }

    fn quiet(&mut self, passed_ms: u64) -> Result<(), String> {
        for passed_ms in [passed_ms, 10, 10] {
            self.now += passed_ms;
            self.deliver()?;
            for at in 0..self.nodes.len() {
                self.poll(at)?;
            }
        }
        Ok(())
    }

    fn take_the_rest(&mut self, limit: usize) -> Result<(), String> {
        let at = self.below(self.nodes.len() as u64) as usize;
        let (key, period, limit) = self.server.limits[limit].clone();
        let key = self.current(at, &key, period);
        let live: Vec<u64> = self.nodes.iter().map(|node| node.id).collect();
        let is_timed = matches!(period, None | Some(Period::Minute));
        let shares = self.server.tables.window(&key).shares.clone();
        let gone = shares.iter().filter(|share| !live.contains(&share.0) && !is_timed);
        let taken: u64 = self.nodes.iter().map(|node| node.rooms.taken(&key)).sum();
        let rest = limit.saturating_sub(taken + gone.map(|share| share.1).sum::<u64>());
        if rest == 0 {
            return Ok(());
        }
        let need = GrantNeed { least: rest, wanted: rest };
        let served = self.counts[0];
        for _ in 0..6 {
            self.begin(at, vec![(key.clone(), period, need)])?;
            self.quiet(10)?;
            if self.counts[0] > served {
                return Ok(());
            }
            self.quiet(650)?;
            if self.counts[0] > served {
                return Ok(());
            }
        }
        let window = self.server.tables.window(&key);
        Err(format!("G2: {rest} of {limit} is left, but node {at} cannot take it: {window:?}"))
    }
}
