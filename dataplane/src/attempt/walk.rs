//! The walk over the candidates: attempts and retries at one target, its circuits, its quotas, and the translation of
//! the request into its dialect.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::backoff::random_fraction;
use shared::clock::monotonic_ms;
use shared::health::{Admission, Evidence, Failed, Opened, Refused};
use shared::operation::Dialect;
use shared::policy::RETRY_AFTER_MAX;
use shared::quota::{Exceeded, Place};
use shared::routing::Target;
use shared::usage::StepResult;
use wire::adapt::Rejection;
use wire::responses;

use super::budget::{AttemptLimits, NextCandidates};
use super::final_error::Reasons;
use super::lines::LineCandidate;
use super::one_attempt;
use super::timeouts::exhausted;
use super::waiting::{Waiting, let_rest, rest_of};
use super::{AnswerStart, AttemptParams, Failure, Job, KeyBlame, Next, Reserving, Served, Success, Unserved};
use crate::adapt::{self, AnswerReader, TargetRequest};
use crate::admit::demand::Demand;
use crate::admit::quota;
use crate::memory_budget::MemoryReservation;
use crate::metrics::add;
use crate::offload;
use crate::plan::response_affinity::AffinityRecorder;
use crate::record::Record;
use crate::relay::Scan;
use crate::request_span::TraceHeaders;
use crate::upstream::request::{self, RequestKind, UpstreamRequest};

/// The result of trying one target.
#[derive(Debug)]
pub(super) enum Step {
    Served {
        /// The target, with the key that was used alone.
        target: Target,
        success: Box<Success>,
        adapted_from: Option<Dialect>,
    },
    Moved,
    /// A quota leaves nothing now, and has a line.
    MustWait(Box<Exceeded>),
    /// A circuit refused the request.
    NotAdmitted,
    /// The upstream limits the rate of requests.
    Limited(Again),
    /// The upstream has something against the key, with which the target may be tried again if `again` is set. Another key
    /// may be served at once.
    Refused {
        blame: KeyBlame,
        again: Option<Again>,
    },
    Stopped,
}

/// A permission to try a target again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// The attempts so far.
    pub(super) attempts: u32,
    /// The wait before the next one.
    pub(super) wait: Duration,
}

/// The progress of one request over the candidates.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) job: &'a Job,
    demand: Demand<'a>,
    /// The beginning of the request.
    started: Instant,
    attempts: u32,
    pub(super) reasons: Reasons,
    last: Option<Target>,
    /// The first target that has rejected an access token, while the token is being renewed.
    pub(super) renewing: Option<Target>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(job: &'a Job, demand: Demand<'a>, started: Instant) -> Self {
        Self { job, demand, started, attempts: 0, reasons: Reasons::new(), last: None, renewing: None }
    }

    /// Tries the candidates in order, and those that rest after the others. Returns `None` if none serves the request.
    pub(super) async fn candidates(&mut self, candidates: &[&Target], record: &mut Record) -> Option<Served> {
        let mut waiting = Waiting::default();
        for (place, target) in candidates.iter().enumerate() {
            if candidates.len() > 1
                && let Some(rest) = rest_of(target)
            {
                record.skip_resting(target, rest.wait_ms);
                waiting.rests(target, rest, monotonic_ms());
                continue;
            }
            if place > 0 && self.left().is_zero() {
                self.reasons.keep(exhausted());
                return None;
            }
            let after = candidates.get(place + 1..).unwrap_or_default();
            if let ControlFlow::Break(end) = self.candidate((target, 0), after, &mut waiting, record).await {
                return end;
            }
        }
        if !waiting.is_empty()
            && let ControlFlow::Break(end) = Box::pin(self.waiting(&mut waiting, record)).await
        {
            return end;
        }
        let lines = std::mem::take(&mut waiting.lines);
        if lines.is_empty() { None } else { Box::pin(self.lines(lines, record)).await }
    }

    /// Tries the candidates that are left, the first to be ready first.
    pub(super) async fn waiting(
        &mut self,
        waiting: &mut Waiting<'_>,
        record: &mut Record,
    ) -> ControlFlow<Option<Served>> {
        waiting.settle();
        while let Some((next, wait)) = waiting.take(monotonic_ms()) {
            if self.left() <= wait {
                break;
            }
            if !wait.is_zero() {
                record.pause();
                tokio::time::sleep(wait).await;
                record.resume();
            }
            let turn = (next.target, next.attempts);
            if let ControlFlow::Break(end) = self.candidate(turn, &[], waiting, record).await {
                return ControlFlow::Break(end);
            }
        }
        self.reasons.shortest_rest_ms = waiting.shortest_ms(monotonic_ms());
        ControlFlow::Continue(())
    }

    /// Tries one candidate, at which this request has made `before` attempts. Breaks with the answer, or without one if no
    /// other candidate may be tried.
    async fn candidate<'t>(
        &mut self,
        (target, before): (&'t Target, u32),
        after: &[&Target],
        waiting: &mut Waiting<'t>,
        record: &mut Record,
    ) -> ControlFlow<Option<Served>> {
        let next = self.next_candidates(after, waiting);
        if let Some(step) = self.hold(target, &next, record).await {
            return self.after((step, target), waiting, record);
        }
        let step = self.held((target, before), &next, record).await;
        self.after((step, target), waiting, record)
    }

    /// Continues after a step at `target`, as [`Self::candidate`] does.
    pub(super) fn after<'t>(
        &mut self,
        (step, target): (Step, &'t Target),
        waiting: &mut Waiting<'t>,
        record: &mut Record,
    ) -> ControlFlow<Option<Served>> {
        match step {
            Step::Served { target, success, adapted_from } => {
                ControlFlow::Break(Some(self.served(target, success, adapted_from, record)))
            }
            Step::Moved | Step::NotAdmitted | Step::Refused { again: None, .. } => ControlFlow::Continue(()),
            Step::Limited(again) | Step::Refused { again: Some(again), .. } => {
                waiting.limited(target, again.attempts, again.wait, monotonic_ms());
                ControlFlow::Continue(())
            }
            Step::MustWait(exceeded) => {
                waiting.lines.push(LineCandidate { target, exceeded });
                ControlFlow::Continue(())
            }
            Step::Stopped => {
                self.renewing = None;
                ControlFlow::Break(None)
            }
        }
    }

    /// Tries a target whose access token was rejected, after the token has been renewed. Waits at most once per request.
    pub(super) async fn renewed(&mut self, record: &mut Record) -> Option<Served> {
        let target = self.renewed_target(record).await?;
        let mut waiting = Waiting::default();
        match self.candidate((&target, 0), &[], &mut waiting, record).await {
            ControlFlow::Break(end) => end,
            ControlFlow::Continue(()) if waiting.lines.is_empty() => None,
            ControlFlow::Continue(()) => Box::pin(self.lines(waiting.lines, record)).await,
        }
    }

    /// Returns what is left of the budget.
    fn left(&self) -> Duration {
        self.job.budget.time().saturating_sub(self.started.elapsed())
    }

    pub(super) fn next_candidates<'n>(
        &self,
        after: &'n [&'n Target],
        waiting: &'n Waiting<'n>,
    ) -> NextCandidates<'n>
    where
        'a: 'n,
    {
        NextCandidates { job: self.job, demand: self.demand, started: self.started, after, waiting }
    }

    fn served(
        &self,
        target: Target,
        success: Box<Success>,
        adapted_from: Option<Dialect>,
        record: &mut Record,
    ) -> Served {
        let mut affinity = affinity_recorder(self.job, &target, &success, adapted_from);
        if let Some(stored) = affinity.as_mut().and_then(|affinity| affinity.take_stored()) {
            record.note(|event| event.details.stored_state = Some(stored));
        }
        let notices = quota::notices(&self.job.access, self.job.route.endpoint(), Some((&target, record)));
        Served { affinity, success, target, adapted_from, attempts: self.attempts, notices }
    }

    /// Waits until a rejected token is renewed, and returns its target with the new token.
    async fn renewed_target(&mut self, record: &mut Record) -> Option<Target> {
        let old = self.renewing.take()?;
        record.pause();
        let renewed = self.renewal_of(&old).await;
        record.resume();
        renewed
    }

    async fn renewal_of(&self, old: &Target) -> Option<Target> {
        let serial = old.provider.renew.as_ref()?.serial;
        let end = tokio::time::Instant::now() + RENEWAL_TIME_MAX.min(self.left());
        let snapshots = &self.job.worker.process.snapshots;
        loop {
            let snapshot = snapshots.load();
            let place =
                snapshot.providers.binary_search_by(|instance| instance.id.cmp(&old.provider.id)).ok()?;
            let provider = snapshot.providers.get(place)?;
            if provider.renew.as_ref()?.serial != serial {
                return Some(Target { provider: Arc::clone(provider), model: Arc::clone(&old.model) });
            }
            if tokio::time::Instant::now() >= end {
                return None;
            }
            tokio::time::sleep(RENEWAL_PAUSE).await;
        }
    }

    fn params<'n>(
        &self,
        target: &Target,
        request: TargetRequest,
        next: NextCandidates<'n>,
    ) -> AttemptParams<'n>
    where
        'a: 'n,
    {
        let job = self.job;
        let TargetRequest { reader, path, segments, members: _ } = request;
        let native = reader.adapted_from().is_none();
        AttemptParams {
            job,
            request: UpstreamRequest {
                provider: Arc::clone(&target.provider),
                kind: match job.head.dialect {
                    Dialect::Videos => RequestKind::PostOnce,
                    _ => RequestKind::Post,
                },
                path,
                forwarded: if native { &job.forwarded } else { &[] },
                request_id: &job.request_id,
                tap: job.tap.as_ref(),
                content_type: job.content_type.as_ref().filter(|_| native).unwrap_or(&request::JSON),
                accept: match reader {
                    AnswerReader::Proxied(_) => &request::ANYTHING,
                    AnswerReader::Adapted { target: Dialect::Bedrock, .. } if job.head.stream => {
                        &request::AWS_EVENTS
                    }
                    _ if job.head.stream => &request::EVENT_STREAM,
                    _ => &request::JSON,
                },
                trace: None,
                of_model: target.model.headers.to_vec(),
                segments,
                arriving: None,
            },
            reader,
            limits: AttemptLimits::unset(next),
        }
    }

    /// Reserves the quotas that depend on the target.
    pub(super) fn reserve(
        &self,
        target: &Target,
        called: (&mut Record, Option<&Place>),
    ) -> Result<(), Box<Exceeded>> {
        let Job { access, route, .. } = self.job;
        quota::reserve_target(access, route.endpoint(), self.demand, target, called)
    }

    /// See [`Job::reserved_later`].
    fn reserve_later<'b>(
        &'b self,
        exceeded: Box<Exceeded>,
        target: &'b Target,
        record: &'b mut Record,
    ) -> Reserving<'b> {
        self.job
            .reserved_later((exceeded, None), record, |record, called| self.reserve(target, (record, called)))
    }

    /// Holds the quotas that depend on the target, until it has been tried. Returns the step of a target of which one is used
    /// up.
    async fn hold(
        &mut self,
        target: &Target,
        next: &NextCandidates<'_>,
        record: &mut Record,
    ) -> Option<Step> {
        let exceeded = self.reserve(target, (record, None)).err()?;
        if exceeded.may_wait() {
            return Some(self.put_off(target, exceeded, next, record));
        }
        let fault = self.reserve_later(exceeded, target, record).await.err()?;
        self.reasons.keep_over_quota(fault, target);
        record.skip(target, StepResult::OverQuota);
        Some(Step::Moved)
    }

    /// Tries one target, of whose quotas the request holds its part.
    pub(super) async fn held(
        &mut self,
        (target, before): (&Target, u32),
        next: &NextCandidates<'_>,
        record: &mut Record,
    ) -> Step {
        let step = if target.provider.lanes.is_empty() {
            self.attempts((target, before), next, record).await
        } else {
            Box::pin(self.lanes((target, before), next, record)).await
        };
        if !matches!(step, Step::Served { .. }) {
            record.leave_target();
        }
        step
    }

    /// Tries one target with one key.
    pub(super) async fn attempts(
        &mut self,
        (target, before): (&Target, u32),
        next: &NextCandidates<'_>,
        record: &mut Record,
    ) -> Step {
        let provider = &target.provider;
        // If the client leaves, for example, dropping the admission without an outcome releases the probe slot.
        let mut admission = match self.admit(target) {
            Ok(admission) => admission,
            Err(Refused { wait_ms }) => {
                self.reasons.shortest_wait_ms = self.reasons.shortest_wait_ms.min(wait_ms);
                record.skip_open(target, wait_ms);
                return Step::NotAdmitted;
            }
        };
        // The translated body is held in addition to the client's own, and to a copy of that during the translation.
        let is_adapted =
            !target.speaks(self.job.head.dialect) || adapt::must_be_signed(&self.job.head, target);
        let mut memory = MemoryReservation::new(&self.job.worker.process.memory);
        if is_adapted && !memory.take(self.job.body.bytes().saturating_mul(2)) {
            self.reasons.no_memory = true;
            return Step::Stopped;
        }
        let (mut memory, request) = if is_adapted && offload::is_large(self.job.body.bytes()) {
            Box::pin(self.translated_elsewhere(target, memory)).await
        } else {
            (memory, adapt::target_request(self.job.routed(), target))
        };
        let mut params = match request {
            Ok(request) => {
                record.adapted(request.reader.adapted_from(), request.reader.names(), &request.members);
                memory.shrink_to(if is_adapted { request::length_of(&request.segments) } else { 0 });
                self.params(target, request, *next)
            }
            Err(rejection) => {
                record.skip(target, StepResult::Unsupported);
                self.reasons.rejection.get_or_insert_with(|| Box::new(rejection));
                return Step::Moved;
            }
        };
        self.last = Some(target.clone());
        let mut reached = None;
        for attempt in before + 1..=provider.retry.attempts_max.max(1) {
            let Some(began) = self.begin(target, &mut params, record) else { return Step::Stopped };
            params.limits = AttemptLimits::new((began, *reached.get_or_insert(began)), target, *next);
            // Boxed: what an attempt needs until the first content is not kept for as long as the answer is relayed.
            let failure = match Box::pin(one_attempt::attempt(&params, target, record, began)).await {
                Ok(success) => {
                    admission.served(monotonic_ms);
                    let adapted_from = params.reader.adapted_from();
                    return Step::Served { target: target.clone(), success, adapted_from };
                }
                Err(failure) if params.request.kind == RequestKind::PostOnce => failure.once(),
                Err(failure) => failure,
            };
            record.end_step(failure.step(), began.elapsed());
            self.count(target, &failure, &mut admission);
            let wait = back_off(target, attempt, &failure);
            if let Some(end) = end_of(&failure, attempt, wait) {
                self.reasons.keep(failure);
                return end;
            }
            let wait = wait.filter(|_| failure.next == Next::Retry);
            self.reasons.keep(failure);
            match wait {
                Some(wait) if self.may_wait(&admission, wait, params.limits.share_end) => {
                    record.pause();
                    tokio::time::sleep(wait).await;
                    record.resume();
                }
                _ => return Step::Moved,
            }
        }
        Step::Moved
    }

    /// Records the beginning of an attempt and returns its time, or `None` if it cannot be noted although a hard quota
    /// applies.
    fn begin(
        &mut self,
        target: &Target,
        params: &mut AttemptParams<'_>,
        record: &mut Record,
    ) -> Option<Instant> {
        let began = record.begin_step(target);
        self.reasons.no_slot |= began.is_none();
        let began = began?;
        params.request.trace = self.trace_headers(target, record);
        self.attempts += 1;
        add(&self.job.worker.counters.attempts, 1);
        Some(began)
    }

    /// Translates a large request for `target` on a blocking thread. Returns the memory that is reserved for it, too.
    async fn translated_elsewhere(
        &self,
        target: &Target,
        memory: MemoryReservation,
    ) -> (MemoryReservation, Result<TargetRequest, Rejection>) {
        match adapt::draft(self.job.routed(), target) {
            Ok(draft) => draft.complete(memory).await,
            Err(rejection) => (memory, Err(rejection)),
        }
    }

    /// Returns the trace headers of the attempt that has begun, if the target receives any.
    fn trace_headers(&self, target: &Target, record: &Record) -> Option<Box<TraceHeaders>> {
        let spans = self.job.worker.spans.as_ref().filter(|_| target.provider.trace_context)?;
        let (span, place) = record.span();
        spans.headers(span, place).map(Box::new)
    }

    /// Asks the circuits of `target` for an admission. A forced request passes in any state.
    fn admit<'t>(&self, target: &'t Target) -> Result<Admission<'t>, Refused> {
        let Target { provider, model } = target;
        if self.job.forced {
            return Ok(provider.circuits.unchecked(&model.id));
        }
        provider.circuits.ask(&model.id, monotonic_ms, &provider.circuit_policy)
    }

    fn count(&mut self, target: &Target, failure: &Failure, admission: &mut Admission<'_>) {
        if failure.renewing {
            self.renewing.get_or_insert_with(|| target.clone());
        }
        add(&self.job.worker.counters.attempt_failures, 1);
        let Target { provider, model } = target;
        if failure.evidence == Evidence::RateLimited {
            let_rest(target, failure.retry_after, failure.status);
        }
        let now_ms = monotonic_ms();
        let at_ms = shared::clock::unix_ms();
        let failed = Failed { at_ms, result: failure.result, status: failure.status };
        let opened = admission.failed((failure.evidence, failed), now_ms, &provider.circuit_policy);
        let (id, seconds) = (&provider.id, provider.circuit_policy.cooldown.as_secs());
        let credential = provider.lane.as_ref().map(|lane| tracing::field::display(lane.number));
        match opened {
            Some(Opened::Instance) => {
                tracing::warn!(provider.id = %id, credential, cooldown_s = seconds, "circuit opened");
            }
            Some(Opened::Model) => {
                let model = &model.id;
                tracing::warn!(provider.id = %id, model.id = %model, cooldown_s = seconds, "circuit of a model opened");
            }
            None => {}
        }
    }

    /// Returns true if another attempt at the same target makes sense after `wait`: the budget must last longer, and
    /// the failures so far must not have opened a circuit.
    fn may_wait(
        &self,
        admission: &Admission<'_>,
        wait: Duration,
        share_end: Option<tokio::time::Instant>,
    ) -> bool {
        let is_in_share = share_end.is_none_or(|end| tokio::time::Instant::now() + wait < end);
        wait < self.left() && is_in_share && !admission.is_open(monotonic_ms())
    }

    pub(super) fn unserved(self) -> Unserved {
        let target = self.last.as_ref().or_else(|| self.reasons.over_quota_target()).cloned();
        let (mut fault, endpoint) = (self.reasons.into_fault(), self.job.route.endpoint());
        let notices = quota::failure_notices(&self.job.access, endpoint, target.as_ref(), &mut fault);
        Unserved { fault, target: self.last, attempts: self.attempts, notices }
    }
}

/// Returns the end of the attempts at a target with one key, unless the failure may be retried with it at once.
fn end_of(failure: &Failure, attempt: u32, wait: Option<Duration>) -> Option<Step> {
    let again = wait.filter(|_| failure.next == Next::Retry).map(|wait| Again { attempts: attempt, wait });
    match failure.blame {
        _ if failure.next == Next::Stop => Some(Step::Stopped),
        Some(blame) => Some(Step::Refused { blame, again }),
        None if failure.evidence == Evidence::RateLimited => again.map(Step::Limited),
        None => None,
    }
}

/// Returns the recorder of an answer's target, if a later request may refer to the answer.
fn affinity_recorder(
    job: &Job,
    target: &Target,
    success: &Success,
    adapted_from: Option<Dialect>,
) -> Option<Box<AffinityRecorder>> {
    if job.head.dialect != Dialect::Responses || adapted_from.is_some() {
        return None;
    }
    let mut recorder = AffinityRecorder::new(&job.worker.process.response_affinity, &job.access, target);
    match &success.start {
        AnswerStart::Whole(whole) => {
            // A compacted conversation is no response: nothing can be continued by its ID.
            let id = if job.head.is_compaction { None } else { id_of(&whole.body, job.head.stream) };
            recorder.note_id(id, &job.head, target);
            recorder.note_bytes(&whole.body);
            whole.usage.iter().for_each(|tokens| recorder.note_usage(tokens));
        }
        AnswerStart::Streaming { held, scan, .. } => {
            let id = match scan {
                Scan::Stream(_) => responses::id::of_events(held),
                Scan::Whole(_) if job.head.is_compaction => None,
                Scan::Whole(_) => held.first().and_then(|bytes| responses::id::of_answer(bytes)),
            };
            recorder.note_id(id, &job.head, target);
            held.iter().for_each(|bytes| recorder.note_bytes(bytes));
        }
    }
    Some(Box::new(recorder))
}

/// Returns the ID of a whole answer, or of one that was converted to a stream.
fn id_of(body: &Bytes, is_stream: bool) -> Option<String> {
    if is_stream {
        responses::id::of_events(std::slice::from_ref(body))
    } else {
        responses::id::of_answer(body)
    }
}

/// The maximum time for which a request waits for the renewal of an access token, and the interval of its checks.
const RENEWAL_TIME_MAX: Duration = Duration::from_secs(5);
const RENEWAL_PAUSE: Duration = Duration::from_millis(20);

/// Returns the pause before the next attempt at the same target: the wait that it asked for, otherwise full jitter
/// under an exponential bound. Returns `None` if no attempt is left or it asked for a longer wait than allowed; then
/// the next target is tried.
fn back_off(target: &Target, attempt: u32, failure: &Failure) -> Option<Duration> {
    if attempt >= target.provider.retry.attempts_max {
        return None;
    }
    match failure.retry_after {
        _ if failure.stale => Some(Duration::ZERO),
        Some(wait) if wait > RETRY_AFTER_MAX => None,
        Some(wait) => Some(wait),
        None => Some(target.provider.retry.backoff_bound(attempt).mul_f64(random_fraction())),
    }
}
