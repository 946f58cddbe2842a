//! The order of the requests in a line: one turn for each payer in a circle, first come, first served within a payer.

use std::collections::VecDeque;

use super::Payer;

/// The requests that wait, by payer. No payer without requests is listed.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The payer that has the next turn is the first.
    payers: VecDeque<(Payer, VecDeque<u64>)>,
}

impl Turns {
    /// Adds a request as the last one of its payer. A payer that had none gets its turn after all others.
    pub(super) fn add(&mut self, payer: &Payer, id: u64) {
        match self.of(payer) {
            Some(place) => self.payers.get_mut(place).into_iter().for_each(|(_, ids)| ids.push_back(id)),
            None => self.payers.push_back((payer.clone(), [id].into())),
        }
    }

    /// Adds a request that had its turn as the next one.
    pub(super) fn put_back(&mut self, payer: &Payer, id: u64) {
        let taken = self.of(payer).and_then(|place| self.payers.remove(place));
        let (payer, mut ids) = taken.unwrap_or_else(|| (payer.clone(), VecDeque::new()));
        ids.push_front(id);
        self.payers.push_front((payer, ids));
    }

    /// Removes a request that gives up.
    pub(super) fn remove(&mut self, payer: &Payer, id: u64) {
        let Some(place) = self.of(payer) else { return };
        let Some((_, ids)) = self.payers.get_mut(place) else { return };
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            self.payers.remove(place);
        }
    }

    /// Returns the request that has the next turn.
    pub(super) fn first(&self) -> Option<u64> {
        self.payers.front()?.1.front().copied()
    }

    /// Removes the request that has the next turn, and moves on to the next payer.
    pub(super) fn next(&mut self) {
        if let Some((payer, mut ids)) = self.payers.pop_front() {
            ids.pop_front();
            if !ids.is_empty() {
                self.payers.push_back((payer, ids));
            }
        }
    }

    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.payers.iter().map(|(_, ids)| ids.len()).sum()
    }

    /// Returns the number of requests whose turn is before that of one that `payer` would add.
    pub(super) fn before(&self, payer: &Payer) -> usize {
        let own = self.of(payer).and_then(|place| self.payers.get(place)).map_or(0, |(_, ids)| ids.len());
        let others = self.payers.iter().filter(|(other, _)| other != payer);
        own + others.map(|(_, ids)| ids.len().min(own + 1)).sum::<usize>()
    }

    fn of(&self, payer: &Payer) -> Option<usize> {
        self.payers.iter().position(|(other, _)| other == payer)
    }
}
