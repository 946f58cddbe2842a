//! The line of a quota: requests that wait until the quota leaves the amount that they need.
//!
//! ```text
//!  waits  -> called    the amount is left, and it is the request's turn
//!  called -> gone      the request took the amount
//!  called -> waits     another quota's reservation, or one without a line, was faster; the place is the first again
//!  either -> gone      the request gave up, or its client left
//! ```
//!
//! Each payer in the line has one turn, then the next one has; the requests of one payer are called in the order in which
//! they came. While the line is not empty, requests that arrive enter it: none overtakes.
//!
//! Nothing is polled. Whatever frees an amount looks at the line afterwards: a settled hold, a place that is left, a new
//! limit. In a sliding minute time alone frees amounts, so the first place learns when to look again ([`Place::look_at_ms`]).
//!
//! Invariant: the amounts of called requests are never promised to others, so a call is a promise unless a reservation that
//! does not respect the line breaks it. A quota nobody waits for costs its requests one load.

mod service_times;
mod turns;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use self::service_times::ServiceTimes;
use self::turns::Turns;
use super::{Counter, Quota};
use crate::clock;
use crate::id::{KeyId, ProjectId};

/// The one whose turns a request uses: the project that pays, or the key if none does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payer {
    /// All keys of a project.
    Project(ProjectId),
    /// A key without a project.
    Key(KeyId),
}

/// The line of one counter.
#[derive(Debug)]
pub(super) struct Line {
    /// The number of places, including called ones.
    len: AtomicUsize,
    /// The limit in counted units, as published last; `u64::MAX` if there is none any more.
    limit: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<u64, Entry>,
    /// The requests that have not been called.
    turns: Turns,
    next_id: u64,
    /// The amount that called requests are about to take.
    called: u64,
    /// Counts the looks at the line, each of which something caused that may have freed an amount.
    looks: u64,
    times: ServiceTimes,
}

#[derive(Debug)]
struct Entry {
    payer: Payer,
    least: u64,
    /// The count of looks at the call; `None` while the request waits.
    called_at: Option<u64>,
    /// See [`Place::look_at_ms`].
    look_at_ms: Option<u64>,
    waker: Option<Waker>,
}

/// A place in the line. Dropping it leaves the line.
#[derive(Debug)]
pub struct Place {
    counter: Arc<Counter>,
    id: u64,
}

/// The reason why a request may not enter a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRefusal {
    /// The line has [`PLACES_MAX`] places.
    Full,
    /// The request would probably wait for longer than it may.
    TooLong {
        /// The expected wait.
        expected_ms: u64,
    },
}

/// A request that would enter a line.
#[derive(Clone, Debug)]
pub struct LineRequest {
    /// The one whose turns the request uses.
    pub payer: Payer,
    /// The amount that the quota must leave.
    pub least: u64,
    /// The time that the request may wait.
    pub wait_ms_max: u64,
}

impl Quota {
    /// Returns true if requests that do not fit may wait.
    pub fn has_line(&self) -> bool {
        self.wait_ms > 0
    }

    /// Returns true if requests wait, so that others must not overtake them.
    pub fn has_waiting(&self) -> bool {
        self.wait_ms > 0 && self.counter.waiting() > 0
    }

    /// Returns the expected wait of a request that would enter the line now, if the last minute permits an estimate.
    pub fn expected_wait_ms(&self, request: &LineRequest, now_ms: u64) -> Option<u64> {
        let line = self.counter.open_line(self.limit_in_units());
        let state = line.lock();
        expected_wait_ms(&self.counter, line, &state, request, now_ms)
    }

    /// Enters the line. The place is called at once if it is the first one and its amount is left.
    pub fn enter_line(&self, request: LineRequest, now_ms: u64) -> Result<Place, LineRefusal> {
        let counter = &self.counter;
        let line = counter.open_line(self.limit_in_units());
        let mut state = line.lock();
        if state.entries.len() >= PLACES_MAX {
            return Err(LineRefusal::Full);
        }
        if let Some(expected_ms) = expected_wait_ms(counter, line, &state, &request, now_ms)
            && expected_ms > request.wait_ms_max
        {
            return Err(LineRefusal::TooLong { expected_ms });
        }
        let id = state.next_id;
        state.next_id += 1;
        let LineRequest { payer, least, .. } = request;
        state.turns.add(&payer, id);
        state.entries.insert(id, Entry { payer, least, called_at: None, look_at_ms: None, waker: None });
        line.count(&state);
        // Either whoever settles a hold sees the place, or the look below sees what is left then.
        fence(Ordering::SeqCst);
        line.look(counter, state, now_ms);
        Ok(Place { counter: Arc::clone(counter), id })
    }
}

impl Counter {
    /// Returns the number of requests in the line.
    pub fn waiting(&self) -> usize {
        self.line.get().map_or(0, |line| line.len.load(Ordering::Relaxed))
    }

    /// Sets the limit for those who wait, and calls those who fit under it. A line that is opened before the first request
    /// needs it knows for how long requests hold their amounts.
    pub(super) fn set_line_limit(&self, limit: u64) {
        if let Some(line) = self.line.get() {
            line.limit.store(limit, Ordering::Relaxed);
            line.look(self, line.lock(), clock::unix_ms());
        }
    }

    pub(super) fn open_line(&self, limit: u64) -> &Line {
        self.line.get_or_init(|| Box::new(Line::new(limit)))
    }

    /// Calls those who fit, after an amount may have been freed.
    pub(super) fn freed(&self) {
        if let Some(line) = self.line.get() {
            // See `Quota::enter_line`.
            fence(Ordering::SeqCst);
            if line.len.load(Ordering::Relaxed) > 0 {
                line.look(self, line.lock(), clock::unix_ms());
            }
        }
    }

    /// Notes for how long a request held its amount, if requests may wait.
    pub(super) fn note_held(&self, since_ms: u64) {
        if let Some(line) = self.line.get() {
            let now_ms = clock::unix_ms();
            line.lock().times.note(now_ms.saturating_sub(since_ms), now_ms);
        }
    }

    /// Returns the limit of a request that was called; `None` if there is no limit any more.
    fn limit_of_called(&self) -> Option<u64> {
        let limit = self.line.get().map(|line| line.limit.load(Ordering::Relaxed));
        limit.filter(|limit| *limit < u64::MAX)
    }
}

impl Place {
    /// Returns true if the place is in the line of this quota.
    pub fn is_of(&self, quota: &Quota) -> bool {
        Arc::ptr_eq(&self.counter, &quota.counter)
    }

    /// Returns true if the amount may ever be left under the limit, which may have changed while the request waited.
    pub fn may_fit(&self, amount: u64) -> bool {
        self.limit().is_none_or(|limit| amount <= limit)
    }

    /// Returns the limit for the request, in counted units, which may have changed while it waited.
    pub(super) fn limit(&self) -> Option<u64> {
        self.counter.limit_of_called()
    }

    /// Completes when the request is called: it should take its amount now, then drop the place or put it back.
    pub fn poll_called(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(line) = self.counter.line.get() else { return Poll::Ready(()) };
        let mut state = line.lock();
        match state.entries.get_mut(&self.id) {
            Some(entry) if entry.called_at.is_none() => {
                if !entry.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    entry.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            Some(_) | None => Poll::Ready(()),
        }
    }

    /// Returns the time at which [`Self::look`] must be called because nothing else will look at the line, if any. The task
    /// is woken when it changes.
    pub fn look_at_ms(&self) -> Option<u64> {
        let line = self.counter.line.get()?;
        line.lock().entries.get(&self.id)?.look_at_ms
    }

    /// Calls those who fit now.
    pub fn look(&self, now_ms: u64) {
        if let Some(line) = self.counter.line.get() {
            line.look(&self.counter, line.lock(), now_ms);
        }
    }

    /// Makes a called place the first one again, because its amount was not left after all.
    pub fn put_back(&self, now_ms: u64) {
        let Some(line) = self.counter.line.get() else { return };
        let mut state = line.lock();
        let State { entries, turns, called, looks, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&self.id) else { return };
        let Some(called_at) = entry.called_at.take() else { return };
        *called = called.saturating_sub(entry.least);
        turns.put_back(&entry.payer, self.id);
        entry.look_at_ms = Some(now_ms.saturating_add(AGAIN_MS));
        if *looks != called_at {
            line.look(&self.counter, state, now_ms);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(line) = self.counter.line.get() else { return };
        let mut state = line.lock();
        let State { entries, turns, called, .. } = &mut *state;
        if let Some(entry) = entries.remove(&self.id) {
            match entry.called_at {
                Some(_) => *called = called.saturating_sub(entry.least),
                None => turns.remove(&entry.payer, self.id),
            }
        }
        line.count(&state);
        line.look(&self.counter, state, clock::unix_ms());
    }
}

impl Line {
    fn new(limit: u64) -> Self {
        Self { len: AtomicUsize::new(0), limit: AtomicU64::new(limit), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, state: &State) {
        self.len.store(state.entries.len(), Ordering::Relaxed);
    }

    /// Calls requests in the order of their turns as long as they fit, and wakes them after the lock is released.
    fn look(&self, counter: &Counter, mut state: MutexGuard<'_, State>, now_ms: u64) {
        let limit = self.limit.load(Ordering::Relaxed);
        let mut woken = Vec::new();
        state.looks += 1;
        let State { entries, turns, called, looks, .. } = &mut *state;
        while let Some(entry) = turns.first().and_then(|id| entries.get_mut(&id)) {
            let amount = called.saturating_add(entry.least);
            // One that will never fit is called to be refused.
            if entry.least <= limit && !counter.leaves(amount, limit, now_ms) {
                let look_at_ms = counter.look_at_ms(amount, limit, now_ms);
                if entry.look_at_ms != look_at_ms {
                    entry.look_at_ms = look_at_ms;
                    woken.extend(entry.waker.take());
                }
                break;
            }
            turns.next();
            *called = amount;
            (entry.called_at, entry.look_at_ms) = (Some(*looks), None);
            woken.extend(entry.waker.take());
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Returns the expected wait: the mean time for which requests held their amounts in the last minute, for each request with an
/// earlier turn, by the number that run at once; or the time until a sliding minute leaves the amounts of all of them.
fn expected_wait_ms(
    counter: &Counter,
    line: &Line,
    state: &State,
    request: &LineRequest,
    now_ms: u64,
) -> Option<u64> {
    let limit = line.limit.load(Ordering::Relaxed);
    let called = state.entries.len().saturating_sub(state.turns.len());
    let turns = u64::try_from(state.turns.before(&request.payer) + called + 1).unwrap_or(u64::MAX);
    let amount = turns.saturating_mul(request.least);
    let (rounds, rest) = (amount.checked_sub(1)?.checked_div(limit)?, (amount - 1).checked_rem(limit)? + 1);
    match counter.sliding_wait_ms(rest, limit, now_ms) {
        Some(wait_ms) => Some(wait_ms.saturating_add(rounds.saturating_mul(MINUTE_MS))),
        None => state.times.mean_ms(now_ms)?.saturating_mul(amount).checked_div(limit),
    }
}

/// The largest number of requests in a line.
pub const PLACES_MAX: usize = 1_000;
/// The time after which a place that was called in vain looks at the line, if nothing else does before.
const AGAIN_MS: u64 = 1_000;
/// The time in which the amounts of a sliding minute expire.
const MINUTE_MS: u64 = 61_000;
