//! Waiting in the lines of quotas. A request in a line holds its body and nothing else: no key of a provider, no reservation,
//! no connection. When its client leaves, its future is dropped, and its places with it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use shared::access::Access;
use shared::clock::{since_boot_ms, unix_ms};
use shared::error_kind::ErrorKind;
use shared::port::ShareGrants;
use shared::quota::share::WAIT_MS;
use shared::quota::{Exceeded, LineRefusal, LineRequest, PLACES_MAX, Payer, Place, Quota};
use shared::routing::Target;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::quota::{refused, used_up};
use crate::error::Fault;
use crate::record::Record;

/// The end of all lines of the process: when it drains, those who wait are refused, because nothing may be left to wait for.
#[derive(Debug, Default)]
pub(crate) struct LineEnd {
    has_come: AtomicBool,
    waiting: Notify,
}

impl LineEnd {
    /// Ends the lines.
    pub(crate) fn come(&self) {
        self.has_come.store(true, Ordering::SeqCst);
        self.waiting.notify_waiters();
    }

    async fn wait(&self) {
        let mut notified = pin!(self.waiting.notified());
        // Enabled first: an end that comes after the look is notified.
        notified.as_mut().enable();
        if !self.has_come.load(Ordering::SeqCst) {
            notified.await;
        }
    }
}

/// The properties of a request and its process that decide how long it may wait in a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineTerms<'a> {
    pub(crate) line_end: &'a LineEnd,
    /// Gets larger shares of limits that several nodes share.
    pub(crate) shares: Option<&'a Arc<dyn ShareGrants>>,
    pub(crate) access: &'a Access,
    /// The end of the failover budget.
    pub(crate) end: std::time::Instant,
}

impl LineTerms<'_> {
    /// Returns the request as the line of `exceeded` sees it.
    pub(crate) fn request(&self, exceeded: &Exceeded) -> LineRequest {
        let Access { project, key, .. } = self.access;
        let payer = project.as_ref().map_or_else(|| Payer::Key(key.clone()), |id| Payer::Project(id.clone()));
        let left = self.end.saturating_duration_since(std::time::Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        LineRequest { payer, least: exceeded.least, wait_ms_max: exceeded.quota.wait_ms.min(left_ms) }
    }
}

/// A place of a request in the line of one quota.
#[derive(Debug)]
pub(crate) struct LinePlace<'t> {
    /// The target that is tried when the quota leaves the amount.
    pub(crate) target: &'t Target,
    place: Place,
    exceeded: Box<Exceeded>,
    until: Instant,
    /// True if other nodes were asked for a share.
    has_asked: bool,
}

/// The event for which a request in lines has waited. The numbers are those of its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineTurn {
    /// The request may take the amount.
    Called(usize),
    /// The time to wait is over.
    TooLate(usize),
    /// The process drains.
    Ended,
}

impl<'t> LinePlace<'t> {
    /// Enters the line of the exceeded quota, unless that is pointless.
    pub(crate) fn enter(
        exceeded: Box<Exceeded>,
        target: &'t Target,
        terms: LineTerms<'_>,
        record: &mut Record,
    ) -> Result<Self, Fault> {
        if !exceeded.may_wait() {
            return Err(refused(&exceeded, record));
        }
        let request = terms.request(&exceeded);
        let until = Instant::now() + Duration::from_millis(request.wait_ms_max);
        let wait_ms_max = request.wait_ms_max;
        match exceeded.quota.enter_line(request, unix_ms()) {
            Ok(place) => Ok(Self { target, place, exceeded, until, has_asked: false }),
            Err(refusal) => Err(not_admitted(&exceeded, (refusal, wait_ms_max), record)),
        }
    }

    pub(crate) fn quota(&self) -> &Quota {
        &self.exceeded.quota
    }

    pub(crate) fn called(&self) -> &Place {
        &self.place
    }

    /// Leaves the line. Returns what is needed to enter it again.
    pub(crate) fn leave(self) -> (&'t Target, Box<Exceeded>) {
        (self.target, self.exceeded)
    }

    /// Returns the place of a request that was called and found `exceeded`: the same place, or one in the line of the
    /// quota that leaves too little now.
    pub(crate) fn moved(
        self,
        exceeded: Box<Exceeded>,
        terms: LineTerms<'_>,
        record: &mut Record,
    ) -> Result<Self, Fault> {
        if self.place.is_of(&exceeded.quota) {
            if !self.place.may_fit(exceeded.least) {
                return Err(refused(&exceeded, record));
            }
            self.place.put_back(unix_ms());
            return Ok(self);
        }
        let target = self.target;
        drop(self);
        Self::enter(exceeded, target, terms, record)
    }

    /// Returns the error for a request that has waited in vain.
    pub(crate) fn too_late(&self, record: &mut Record) -> Fault {
        let Exceeded { quota, least, .. } = &*self.exceeded;
        // The time to retry is that of now.
        let wait_ms = quota.counter.wait_ms(*least, quota.limit_in_units(), unix_ms());
        let fault = refused(&self.exceeded, record);
        let message = format!("{} The request waited as long as it may.", fault.message);
        let retry_after = Duration::from_millis(wait_ms.unwrap_or(0).max(1_000));
        Fault { message: message.into(), ..fault }.retry_after(retry_after)
    }

    /// Asks other nodes for a share, if they share the quota, and looks if that sufficed.
    async fn look(&self, terms: LineTerms<'_>) {
        if let Some(shares) = terms.shares
            && let Some(need) = self.exceeded.share_need(unix_ms())
        {
            let until_ms = since_boot_ms().saturating_add(WAIT_MS);
            // Whatever the answer is, only the counter counts.
            timeout(Duration::from_millis(WAIT_MS), shares.wait(need, until_ms)).await.ok();
        }
        self.place.look(unix_ms());
    }

    /// Returns the time at which something is due that nothing else causes.
    fn due(&self) -> Instant {
        if self.must_ask() {
            return Instant::now();
        }
        let look = self
            .place
            .look_at_ms()
            .map(|at_ms| Instant::now() + Duration::from_millis(at_ms.saturating_sub(unix_ms())));
        look.map_or(self.until, |look| look.min(self.until))
    }

    fn must_ask(&self) -> bool {
        !self.has_asked && self.exceeded.quota.counter.share().is_some()
    }

    fn must_look(&self) -> bool {
        self.must_ask() || self.place.look_at_ms().is_some_and(|at_ms| at_ms <= unix_ms())
    }
}

/// Waits in lines until one of the places is called, or is too late.
pub(crate) async fn next_turn(places: &mut [LinePlace<'_>], terms: LineTerms<'_>) -> LineTurn {
    loop {
        tokio::select! {
            biased;
            index = called(places) => return LineTurn::Called(index),
            () = terms.line_end.wait() => return LineTurn::Ended,
            () = due(places) => {}
        }
        if let Some(index) = places.iter().position(|place| place.until <= Instant::now()) {
            return LineTurn::TooLate(index);
        }
        for index in 0..places.len() {
            if places.get(index).is_some_and(LinePlace::must_look) {
                tokio::select! {
                    biased;
                    index = called(places) => return LineTurn::Called(index),
                    () = look(places, index, terms) => {}
                }
                places.get_mut(index).into_iter().for_each(|place| place.has_asked = true);
            }
        }
    }
}

async fn look(places: &[LinePlace<'_>], index: usize, terms: LineTerms<'_>) {
    if let Some(place) = places.get(index) {
        place.look(terms).await;
    }
}

/// Completes with the number of the first place that is called.
async fn called(places: &[LinePlace<'_>]) -> usize {
    poll_fn(|cx| {
        let called = places.iter().enumerate().filter(|(_, place)| place.place.poll_called(cx).is_ready());
        // All are polled, so that each of them wakes the task.
        called.map(|(index, _)| index).min().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Completes when something is due at one of the places. That may change whenever the task is woken.
async fn due(places: &[LinePlace<'_>]) {
    let mut timer = pin!(sleep_until(Instant::now()));
    poll_fn(|cx| {
        let Some(due) = places.iter().map(LinePlace::due).min() else { return Poll::Pending };
        // A timer that is set to the present again and again never elapses.
        if due <= Instant::now() {
            return Poll::Ready(());
        }
        timer.as_mut().reset(due);
        timer.as_mut().poll(cx)
    })
    .await;
}

/// Waits in the line of the exceeded quota until `reserve` succeeds.
pub(crate) async fn reserve_in_line(
    (exceeded, target): (Box<Exceeded>, &Target),
    terms: LineTerms<'_>,
    record: &mut Record,
    mut reserve: impl FnMut(&mut Record, Option<&Place>) -> Result<(), Box<Exceeded>>,
) -> Result<(), Fault> {
    let mut places = [LinePlace::enter(exceeded, target, terms, record)?];
    record.begin_wait(target, places[0].quota());
    let reserved = loop {
        let turn = next_turn(&mut places, terms).await;
        let [place] = places;
        let moved = match turn {
            LineTurn::Called(_) => match reserve(record, Some(place.called())) {
                Ok(()) => break Ok(()),
                Err(exceeded) => place.moved(exceeded, terms, record),
            },
            LineTurn::TooLate(_) => Err(place.too_late(record)),
            LineTurn::Ended => Err(ended(place.quota())),
        };
        match moved {
            Ok(place) => places = [place],
            Err(fault) => break Err(fault),
        }
    };
    record.end_wait(None);
    reserved
}

/// Returns the error for a request that waited when the process began to drain.
pub(crate) fn ended(quota: &Quota) -> Fault {
    let message =
        format!("The gateway is shutting down, and the request waited for the quota of {quota}. Try again.");
    Fault::new(ErrorKind::Draining, message).retry_after(Duration::from_secs(1))
}

/// Returns the error for a request that may not enter the line, which it would leave after `wait_ms_max` at the latest.
fn not_admitted(
    exceeded: &Exceeded,
    (refusal, wait_ms_max): (LineRefusal, u64),
    record: &mut Record,
) -> Fault {
    let quota = &exceeded.quota;
    record.note(|event| event.details.refused_by = Some(quota.id.clone()));
    let (why, retry_after) = match refusal {
        LineRefusal::Full => {
            (format!("{PLACES_MAX} requests wait for it already: its line is full."), FULL_RETRY)
        }
        LineRefusal::TooLong { expected_ms } => (
            format!(
                "A request would probably wait {} s for it, and this one may wait {} s.",
                expected_ms.div_ceil(1_000),
                wait_ms_max / 1_000
            ),
            Duration::from_millis(expected_ms.saturating_sub(wait_ms_max).max(1_000)),
        ),
    };
    let message = format!("The quota of {quota} is used up. {why}");
    let fault =
        Fault { quota: Some(Box::new(used_up(quota))), ..Fault::new(ErrorKind::QuotaExceeded, message) };
    fault.retry_after(retry_after)
}

const FULL_RETRY: Duration = Duration::from_secs(1);
