//! The walk over the candidates: attempts and retries at one target, its circuits, its quotas, and the translation of
//! the request into its dialect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shared::clock::monotonic_ms;
use shared::health::{Admission, Failed, Opened, Refused};
use shared::operation::Dialect;
use shared::policy::RETRY_AFTER_MAX;
use shared::routing::Target;
use shared::usage::StepResult;
use wire::responses;

use super::final_error::Reasons;
use super::one_attempt;
use super::{AnswerStart, AttemptParams, Failure, Job, Next, Served, Success, Unserved};
use crate::adapt::{self, AnswerReader, TargetRequest};
use crate::admit::demand::Demand;
use crate::admit::quota;
use crate::memory_budget::MemoryReservation;
use crate::metrics::add;
use crate::plan::response_affinity::AffinityRecorder;
use crate::record::Record;
use crate::relay::Scan;
use crate::request_span::TraceHeaders;
use crate::upstream::request::{self, RequestKind, UpstreamRequest};

/// The result of trying one target.
#[derive(Debug)]
pub(super) enum Step {
    Served { success: Box<Success>, adapted_from: Option<Dialect> },
    Moved,
    Stopped,
}

/// The progress of one request over the candidates.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    job: &'a Job,
    demand: Demand<'a>,
    budget_end: tokio::time::Instant,
    attempts: u32,
    reasons: Reasons,
    last: Option<Target>,
    /// The first target that has rejected an access token, while the token is being renewed.
    pub(super) renewing: Option<Target>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(job: &'a Job, demand: Demand<'a>, budget_end: tokio::time::Instant) -> Self {
        Self { job, demand, budget_end, attempts: 0, reasons: Reasons::new(), last: None, renewing: None }
    }

    pub(super) fn served(
        &self,
        target: &Target,
        success: Box<Success>,
        adapted_from: Option<Dialect>,
        record: &Record,
    ) -> Served {
        let affinity = affinity_recorder(self.job, target, &success, adapted_from);
        let mut notices = quota::describe(&self.job.access, self.job.route.endpoint(), Some(target));
        quota::warn(record, &mut notices);
        Served { affinity, success, target: target.clone(), adapted_from, attempts: self.attempts, notices }
    }

    /// Waits until a rejected token is renewed, and returns its target with the new token. Waits at most once per request.
    pub(super) async fn renewed(&mut self, record: &mut Record) -> Option<Target> {
        let old = self.renewing.take()?;
        record.pause();
        let renewed = self.renewal_of(&old).await;
        record.resume();
        renewed
    }

    async fn renewal_of(&self, old: &Target) -> Option<Target> {
        let serial = old.provider.renew.as_ref()?.serial;
        let end = self.budget_end.min(tokio::time::Instant::now() + RENEWAL_TIME_MAX);
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

    fn params(&self, target: &Target, request: TargetRequest) -> AttemptParams<'a> {
        let (job, TargetRequest { reader, path, segments }) = (self.job, request);
        let native = reader.adapted_from().is_none();
        AttemptParams {
            worker: &job.worker,
            request: UpstreamRequest {
                provider: Arc::clone(&target.provider),
                kind: if job.head.dialect == Dialect::Videos {
                    RequestKind::PostOnce
                } else {
                    RequestKind::Post
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
                segments,
            },
            stream: job.head.stream,
            reader,
            dialect: job.head.dialect,
            request_id: job.request_id.to_str().unwrap_or_default(),
            budget_end: self.budget_end,
        }
    }

    /// Tries one target. Holds the quotas that depend on the target while it is tried.
    pub(super) async fn target(&mut self, target: &Target, record: &mut Record) -> Step {
        let Job { access, route, .. } = self.job;
        if let Err(fault) = quota::reserve_target(access, route.endpoint(), self.demand, target, record) {
            self.reasons.keep_over_quota(fault, target);
            record.skip(target, StepResult::OverQuota);
            return Step::Moved;
        }
        let step = self.attempts(target, record).await;
        if !matches!(step, Step::Served { .. }) {
            record.leave_target();
        }
        step
    }

    async fn attempts(&mut self, target: &Target, record: &mut Record) -> Step {
        let provider = &target.provider;
        // If the client leaves, for example, dropping the admission without an outcome releases the probe slot.
        let mut admission = match self.admit(target) {
            Ok(admission) => admission,
            Err(Refused { wait_ms }) => {
                self.reasons.shortest_wait_ms = self.reasons.shortest_wait_ms.min(wait_ms);
                record.skip_resting(target, wait_ms);
                return Step::Moved;
            }
        };
        // The translated body is held in addition to the client's own, and to a copy of that during the translation.
        let is_adapted = !target.speaks(self.job.head.dialect);
        let mut memory = MemoryReservation::new(&self.job.worker.process.memory);
        if is_adapted && !memory.take(self.job.body.bytes().saturating_mul(2)) {
            self.reasons.no_memory = true;
            return Step::Stopped;
        }
        let (mut memory, request) = match adapt::draft(self.job.routed(), target) {
            Ok(draft) => draft.complete(memory).await,
            Err(rejection) => (memory, Err(rejection)),
        };
        let mut params = match request {
            Ok(request) => {
                let rendered = request.segments.iter().map(|segment| segment.len() as u64).sum();
                memory.shrink_to(if is_adapted { rendered } else { 0 });
                self.params(target, request)
            }
            Err(rejection) => {
                record.skip(target, StepResult::Unsupported);
                self.reasons.rejection.get_or_insert_with(|| Box::new(rejection));
                return Step::Moved;
            }
        };
        record.adapted(params.reader.adapted_from(), params.reader.dropped());
        self.last = Some(target.clone());
        for attempt in 1..=provider.retry.attempts_max.max(1) {
            let Some(began) = record.begin_step(target) else {
                self.reasons.no_slot = true;
                return Step::Stopped;
            };
            params.request.trace = self.trace_headers(target, record);
            self.attempts += 1;
            add(&self.job.worker.counters.attempts, 1);
            let failure = match one_attempt::attempt(&params, target, record, began).await {
                Ok(success) => {
                    admission.served();
                    return Step::Served { success, adapted_from: params.reader.adapted_from() };
                }
                Err(failure) if params.request.kind == RequestKind::PostOnce => failure.once(),
                Err(failure) => failure,
            };
            record.end_step(failure.step(), began.elapsed());
            self.count(target, &failure, &mut admission);
            let next = failure.next;
            let wait = back_off(target, attempt, &failure);
            if failure.renewing {
                self.renewing.get_or_insert_with(|| target.clone());
            }
            self.reasons.keep(failure);
            match (next, wait) {
                (Next::Stop, _) => return Step::Stopped,
                (Next::Retry, Some(wait)) if self.may_wait(&admission, wait) => {
                    record.pause();
                    tokio::time::sleep(wait).await;
                    record.resume();
                }
                _ => return Step::Moved,
            }
        }
        Step::Moved
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

    fn count(&self, target: &Target, failure: &Failure, admission: &mut Admission<'_>) {
        add(&self.job.worker.counters.attempt_failures, 1);
        let Target { provider, model } = target;
        let now_ms = monotonic_ms();
        let at_ms = shared::clock::unix_ms();
        let failed = Failed { at_ms, result: failure.result, status: failure.status };
        let opened = admission.failed((failure.evidence, failed), now_ms, &provider.circuit_policy);
        let (id, seconds) = (&provider.id, provider.circuit_policy.cooldown.as_secs());
        match opened {
            Some(Opened::Instance) => {
                tracing::warn!(provider.id = %id, cooldown_s = seconds, "circuit opened");
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
    fn may_wait(&self, admission: &Admission<'_>, wait: Duration) -> bool {
        tokio::time::Instant::now() + wait < self.budget_end && !admission.is_open(monotonic_ms())
    }

    pub(super) fn unserved(self) -> Unserved {
        let target = self.last.as_ref().or_else(|| self.reasons.over_quota_target());
        let notices = quota::describe(&self.job.access, self.job.route.endpoint(), target);
        Unserved { fault: self.reasons.into_fault(), target: self.last, attempts: self.attempts, notices }
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
            recorder.note_id(id_of(&whole.body, job.head.stream), &job.head);
            recorder.note_bytes(&whole.body);
            whole.usage.iter().for_each(|tokens| recorder.note_usage(tokens));
        }
        AnswerStart::Streaming { held, scan, .. } => {
            let id = match scan {
                Scan::Stream(_) => responses::id::of_events(held),
                Scan::Whole(_) => held.first().and_then(|bytes| responses::id::of_answer(bytes)),
            };
            recorder.note_id(id, &job.head);
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

/// Returns a uniformly distributed number from 0 to 1.
fn random_fraction() -> f64 {
    use std::hash::BuildHasher as _;
    let bits = std::hash::RandomState::new().hash_one(0_u8) >> 32;
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}
