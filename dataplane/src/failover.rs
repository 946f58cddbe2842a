//! Walks the plan: retries at one target, then moves to the next, under the request's budget, while no output
//! has started (FAIL-1 to FAIL-4).

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::health::{Admission, Failed, Opened, Refused};
use shared::operation::Dialect;
use shared::policy::RETRY_AFTER_MAX;
use shared::routing::Target;
use shared::snapshot::Route;
use shared::usage::{StepResult, TokenCounts};
use wire::adapt::Rejection;
use wire::request::Head;
use wire::responses;

use crate::adapt::{self, Message, Outgoing};
use crate::admit::demand::Demand;
use crate::admit::quota::{self, Notices};
use crate::attempt::{self, Begun, Failure, Next, Reading, Success, Task};
use crate::error::Fault;
use crate::metrics::add;
use crate::plan::home::{Home, Reference, ResponseHash};
use crate::plan::{self, Needs};
use crate::record::Record;
use crate::relay::Scan;
use crate::room::{NoRoom, Room};
use crate::server::body::Held;
use crate::upstream::request::{self, Draft, Way};
use crate::worker::Worker;

/// A request that has been read, and where it may go.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) worker: Rc<Worker>,
    pub(crate) access: Arc<Access>,
    pub(crate) route: Route,
    /// It goes to the one target that it names, resting or not.
    pub(crate) forced: bool,
    pub(crate) head: Box<Head>,
    pub(crate) body: Held,
    /// What the body is, where it is not JSON.
    pub(crate) content_type: Option<HeaderValue>,
    /// The client's headers that go to a target of its dialect.
    pub(crate) forwarded: Vec<(HeaderName, HeaderValue)>,
    pub(crate) request_id: HeaderValue,
    pub(crate) budget: Duration,
}

impl Job {
    fn message(&self) -> Message<'_> {
        Message { worker: &self.worker, route: &self.route, head: &self.head, body: &self.body }
    }
}

/// An answer that has begun, and from whom.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) success: Box<Success>,
    pub(crate) target: Target,
    /// What the target speaks, where that is not what the client speaks.
    pub(crate) adapted_from: Option<Dialect>,
    /// Follows an answer that later requests may refer to.
    pub(crate) trail: Option<Box<Trail>>,
    pub(crate) attempts: u32,
    /// Headers about the caller's quotas.
    pub(crate) notices: Notices,
}

/// Remembers what an answer of Responses holds that only its target can understand, as it passes.
#[derive(Debug)]
pub(crate) struct Trail {
    worker: Rc<Worker>,
    access: Arc<Access>,
    home: Home,
    /// The answer itself, where its id is known.
    response: Option<ResponseHash>,
}

impl Trail {
    pub(crate) fn see(&self, bytes: &[u8]) {
        self.worker.plane.homes.note_reasoning(bytes, self.home);
    }

    /// The answer has this id.
    fn begins(&mut self, id: Option<String>, head: &Head) {
        let note = |id: String| self.worker.plane.homes.note_response(&id, head, &self.access, self.home);
        self.response = id.map(note);
    }

    /// The answer and all that came before it are so many tokens.
    pub(crate) fn ends(&self, tokens: &TokenCounts) {
        if let Some(response) = self.response {
            self.worker.plane.homes.note_tokens(response, tokens.total());
        }
    }
}

/// The trail of an answer that has begun, where a later request may refer to it.
fn trail(job: &Job, target: &Target, success: &Success, adapted_from: Option<Dialect>) -> Option<Box<Trail>> {
    if job.head.dialect != Dialect::Responses || adapted_from.is_some() {
        return None;
    }
    let home = job.worker.plane.homes.of(target);
    let (worker, access) = (Rc::clone(&job.worker), Arc::clone(&job.access));
    let mut trail = Trail { worker, access, home, response: None };
    match &success.begun {
        Begun::Whole(whole) => {
            trail.begins(id_of(&whole.body, job.head.stream), &job.head);
            trail.see(&whole.body);
            whole.usage.iter().for_each(|tokens| trail.ends(tokens));
        }
        Begun::Flowing { held, scan, .. } => {
            let id = match scan {
                Scan::Stream(_) => responses::id::of_events(held),
                Scan::Whole(_) => held.first().and_then(|bytes| responses::id::of_answer(bytes)),
            };
            trail.begins(id, &job.head);
            held.iter().for_each(|bytes| trail.see(bytes));
        }
    }
    Some(Box::new(trail))
}

/// The id of a whole answer, or of one that was made a stream.
fn id_of(body: &Bytes, is_stream: bool) -> Option<String> {
    if is_stream {
        responses::id::of_events(std::slice::from_ref(body))
    } else {
        responses::id::of_answer(body)
    }
}

/// No answer: what the client reads, who was tried last, and how often.
#[derive(Debug)]
pub(crate) struct Unserved {
    pub(crate) fault: Fault,
    pub(crate) target: Option<Target>,
    pub(crate) attempts: u32,
    /// Headers about the caller's quotas.
    pub(crate) notices: Notices,
}

/// Serves the job. It is only looked at, so that nothing of it is copied on the way.
pub(crate) async fn run(job: &Job, record: &mut Record) -> Result<Served, Box<Unserved>> {
    let route = &job.route;
    record.note(|event| event.endpoint = route.endpoint().cloned());
    let needs = needs(&job.worker, &job.head, &job.body, &job.access);
    let demand = needs.demand;
    let planned = plan::order(route, needs, &mut |target, why| record.skip(target, why));
    let admitted = planned.and_then(|candidates| {
        quota::reserve(&job.access, route.endpoint(), demand, &candidates, record)?;
        Ok(candidates)
    });
    let candidates = match admitted {
        Ok(candidates) => candidates,
        Err(fault) => {
            record.fail(fault.kind, fault.status());
            let notices = quota::describe(&job.access, route.endpoint(), None);
            return Err(Box::new(Unserved { fault, target: None, attempts: 0, notices }));
        }
    };
    let budget_end = far(record.started(), job.budget);
    let mut walk = Walk::new(job, demand, budget_end);
    for target in candidates {
        match walk.target(target, record).await {
            Step::Served { success, adapted_from } => {
                return Ok(walk.served(target, success, adapted_from, record));
            }
            Step::Moved => {}
            Step::Stopped => {
                walk.renewing = None;
                break;
            }
        }
    }
    // Nobody else could serve it, but a token is on its way.
    if let Some(target) = Box::pin(walk.renewed()).await
        && let Step::Served { success, adapted_from } = Box::pin(walk.target(&target, record)).await
    {
        return Ok(walk.served(&target, success, adapted_from, record));
    }
    let unserved = Box::new(walk.unserved());
    record.fail(unserved.fault.kind, unserved.fault.status());
    Err(unserved)
}

/// What a request needs of a target.
pub(crate) fn needs<'a>(worker: &'a Worker, head: &'a Head, body: &Held, access: &'a Access) -> Needs<'a> {
    let homes = &worker.plane.homes;
    let may_refer = head.dialect == Dialect::Responses;
    let reference = if may_refer { homes.wanted(head, &body.segments, access) } else { Reference::Nothing };
    Needs {
        reference,
        homes,
        dialect: head.dialect,
        // Vector spaces are never mixed, voices and transcripts come from one engine, and nothing that costs a minute
        // of somebody's graphics cards is begun twice (EMB-1).
        single: !head.dialect.is_conversation(),
        vision: head.has_image,
        affinity_key: head.affinity_key.as_deref(),
        demand: Demand {
            head,
            output_default: worker.plane.settings.quota_output_tokens,
            stored: may_refer.then(|| homes.tokens(head, access)).flatten(),
        },
        access,
    }
}

/// When a budget that began with the request ends; a day at most.
fn far(started: Instant, budget: Duration) -> tokio::time::Instant {
    tokio::time::Instant::from_std(started) + budget.min(Duration::from_secs(86_400))
}

/// The result of one target.
enum Step {
    Served { success: Box<Success>, adapted_from: Option<Dialect> },
    Moved,
    Stopped,
}

struct Walk<'a> {
    job: &'a Job,
    demand: Demand<'a>,
    budget_end: tokio::time::Instant,
    attempts: u32,
    /// The most meaningful failure so far.
    worst: Option<Box<Failure>>,
    shortest_wait_ms: u64,
    /// What the first target that could not be told the request could not be told.
    rejection: Option<Box<Rejection>>,
    last: Option<Target>,
    /// The first target that has refused an access token which is being renewed.
    renewing: Option<Target>,
    /// There was no room for the request in another dialect.
    no_room: bool,
    /// A hard quota binds the request, and it cannot be noted.
    no_slot: bool,
    /// The refusal of a quota that a target was passed over for: of those, the target that may be used again first.
    over_quota: Option<Box<(Fault, Target)>>,
}

impl<'a> Walk<'a> {
    fn new(job: &'a Job, demand: Demand<'a>, budget_end: tokio::time::Instant) -> Self {
        Self {
            job,
            demand,
            budget_end,
            attempts: 0,
            worst: None,
            shortest_wait_ms: u64::MAX,
            rejection: None,
            last: None,
            renewing: None,
            no_room: false,
            no_slot: false,
            over_quota: None,
        }
    }

    fn served(
        &self,
        target: &Target,
        success: Box<Success>,
        adapted_from: Option<Dialect>,
        record: &Record,
    ) -> Served {
        let trail = trail(self.job, target, &success, adapted_from);
        let mut notices = quota::describe(&self.job.access, self.job.route.endpoint(), Some(target));
        quota::warn(record, &mut notices);
        Served { trail, success, target: target.clone(), adapted_from, attempts: self.attempts, notices }
    }

    /// The target that has refused an access token, as soon as it has another one; once a request, and for as long as
    /// that may take.
    async fn renewed(&mut self) -> Option<Target> {
        let old = self.renewing.take()?;
        let serial = old.provider.renew.as_ref()?.serial;
        let end = self.budget_end.min(tokio::time::Instant::now() + RENEWAL_TIME_MAX);
        let plane = &self.job.worker.plane;
        loop {
            let snapshot = plane.snapshots.load();
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

    fn task(&self, target: &Target) -> Result<Task<'a>, Rejection> {
        let job = self.job;
        let Outgoing { reading, path, segments } = adapt::outgoing(job.message(), target)?;
        let native = reading.adapted_from().is_none();
        Ok(Task {
            worker: &job.worker,
            draft: Draft {
                provider: Arc::clone(&target.provider),
                way: if job.head.dialect == Dialect::Videos { Way::PostOnce } else { Way::Post },
                path,
                forwarded: if native { &job.forwarded } else { &[] },
                request_id: &job.request_id,
                content_type: job.content_type.as_ref().filter(|_| native).unwrap_or(&request::JSON),
                accept: match reading {
                    Reading::Proxied => &request::ANYTHING,
                    Reading::Adapted { target: Dialect::Bedrock, .. } if job.head.stream => {
                        &request::AWS_EVENTS
                    }
                    _ if job.head.stream => &request::EVENT_STREAM,
                    _ => &request::JSON,
                },
                segments,
            },
            stream: job.head.stream,
            reading,
            dialect: job.head.dialect,
            request_id: job.request_id.to_str().unwrap_or_default(),
            budget_end: self.budget_end,
        })
    }

    /// Tries one target, holding a part of the quotas that depend on it for as long as it is the one.
    async fn target(&mut self, target: &Target, record: &mut Record) -> Step {
        let Job { access, route, .. } = self.job;
        if let Err(fault) = quota::reserve_target(access, route.endpoint(), self.demand, target, record) {
            self.keep_over_quota(fault, target);
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
        let plane = &self.job.worker.plane;
        // Dropped without an outcome, because the client leaves for example, a probe gives its slot back.
        let mut admission = match self.admit(target) {
            Ok(admission) => admission,
            Err(Refused { wait_ms }) => {
                self.shortest_wait_ms = self.shortest_wait_ms.min(wait_ms);
                record.skip(target, StepResult::CircuitOpen);
                return Step::Moved;
            }
        };
        // What it is said in anew is held beside the client's own, and in the making beside a copy of that.
        let is_adapted = !target.speaks(self.job.head.dialect);
        let mut room = Room::new(plane);
        if is_adapted && !room.take(self.job.body.bytes().saturating_mul(2)) {
            self.no_room = true;
            return Step::Stopped;
        }
        let task = match self.task(target) {
            Ok(task) => {
                let rendered = task.draft.segments.iter().map(|segment| segment.len() as u64).sum();
                room.shrink_to(if is_adapted { rendered } else { 0 });
                task
            }
            Err(rejection) => {
                record.skip(target, StepResult::Unsupported);
                self.rejection.get_or_insert_with(|| Box::new(rejection));
                return Step::Moved;
            }
        };
        self.last = Some(target.clone());
        for attempt in 1..=provider.retry.attempts_max.max(1) {
            if !record.begin_step(target) {
                self.no_slot = true;
                return Step::Stopped;
            }
            self.attempts += 1;
            add(&self.job.worker.counters.attempts, 1);
            let began = Instant::now();
            let failure = match attempt::attempt(&task, target, record, began).await {
                Ok(success) => {
                    admission.served();
                    return Step::Served { success, adapted_from: task.reading.adapted_from() };
                }
                Err(failure) if task.draft.way == Way::PostOnce => failure.once(),
                Err(failure) => failure,
            };
            record.end_step(&failure, began.elapsed());
            self.count(target, &failure, &mut admission);
            let next = failure.next;
            let wait = back_off(target, attempt, &failure);
            if failure.renewing {
                self.renewing.get_or_insert_with(|| target.clone());
            }
            self.keep(failure);
            match (next, wait) {
                (Next::Stop, _) => return Step::Stopped,
                (Next::Retry, Some(wait)) if self.may_wait(&admission, wait) => {
                    tokio::time::sleep(wait).await
                }
                _ => return Step::Moved,
            }
        }
        Step::Moved
    }

    /// Asks the circuits of `target`, which a forced request passes in any state.
    fn admit<'t>(&self, target: &'t Target) -> Result<Admission<'t>, Refused> {
        let Target { provider, model } = target;
        if self.job.forced {
            return Ok(provider.circuits.unasked(&model.id));
        }
        let plane = &self.job.worker.plane;
        provider.circuits.ask(&model.id, || plane.monotonic_ms(), &provider.circuit_policy)
    }

    fn count(&self, target: &Target, failure: &Failure, admission: &mut Admission<'_>) {
        add(&self.job.worker.counters.attempt_failures, 1);
        let Target { provider, model } = target;
        let now_ms = self.job.worker.plane.monotonic_ms();
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

    /// Returns true if another attempt at the same target makes sense after `wait`: the budget must outlast it, and
    /// the failures so far must not have opened a circuit.
    fn may_wait(&self, admission: &Admission<'_>, wait: Duration) -> bool {
        tokio::time::Instant::now() + wait < self.budget_end
            && !admission.is_open(self.job.worker.plane.monotonic_ms())
    }

    /// Keeps the failure that says most to the client.
    fn keep(&mut self, failure: Failure) {
        let retry_after = match (&self.worst, failure.retry_after) {
            (Some(worst), wait) => wait.max(worst.retry_after),
            (None, wait) => wait,
        };
        match &mut self.worst {
            Some(worst) if meaning(worst) > meaning(&failure) => worst.retry_after = retry_after,
            worst => *worst = Some(Box::new(Failure { retry_after, ..failure })),
        }
    }

    fn keep_over_quota(&mut self, fault: Fault, target: &Target) {
        if self.over_quota.as_ref().is_none_or(|kept| wait_of(&fault) < wait_of(&kept.0)) {
            self.over_quota = Some(Box::new((fault, target.clone())));
        }
    }

    fn unserved(self) -> Unserved {
        let over = self.over_quota.as_ref().map(|over| &over.1);
        let notices =
            quota::describe(&self.job.access, self.job.route.endpoint(), self.last.as_ref().or(over));
        let fault = match (self.worst, self.rejection) {
            (Some(failure), _) => {
                let mut fault = Fault::new(failure.kind, failure.message);
                fault.status = failure.status.filter(|_| failure.kind == ErrorKind::UpstreamStatus);
                fault.body = failure.body;
                fault.retry_after = failure.retry_after.map(|wait| wait.min(CLIENT_WAIT_MAX));
                fault
            }
            (None, _) if self.no_slot => quota::no_slot(),
            (None, _) if self.no_room => Fault::from(NoRoom),
            (None, _) if let Some(over) = self.over_quota => over.0,
            // One that rests could serve the request later.
            (None, Some(rejection)) if self.shortest_wait_ms == u64::MAX => adapt::refusal(*rejection),
            (None, _) => all_rest(self.shortest_wait_ms),
        };
        Unserved { fault, target: self.last, attempts: self.attempts, notices }
    }
}

/// How long a refusal asks to wait; the longest of all times if it does not renew itself.
pub(crate) fn wait_of(fault: &Fault) -> Duration {
    fault.retry_after.unwrap_or(Duration::MAX)
}

/// Every candidate's circuit is open, the first for `wait_ms` more.
pub(crate) fn all_rest(wait_ms: u64) -> Fault {
    let message = "Every model that could serve this request has failed too often and is resting.";
    let wait = Duration::from_millis(wait_ms).min(CLIENT_WAIT_MAX);
    Fault::new(ErrorKind::NoEligibleTarget, message).retry_after(wait)
}

/// How long a request waits for an access token, which others get, and how often it looks.
const RENEWAL_TIME_MAX: Duration = Duration::from_secs(5);
const RENEWAL_PAUSE: Duration = Duration::from_millis(20);

/// The longest wait that is passed on to a client: Anthropic's SDK obeys any.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(120);

/// How much a failure tells the client: what is wrong with its request most, that nobody was there least.
fn meaning(failure: &Failure) -> u8 {
    match (failure.kind, failure.status) {
        (ErrorKind::BudgetExhausted, _) => 7,
        (ErrorKind::UpstreamStatus, Some(400 | 405..=407 | 409..=428 | 430..=499)) => 6,
        (ErrorKind::UpstreamStatus, Some(429)) => 5,
        (ErrorKind::UpstreamStatus, Some(401..=404)) => 4,
        (ErrorKind::UpstreamStatus, _) => 3,
        (ErrorKind::UpstreamTimeout, _) => 2,
        _ => 1,
    }
}

/// How long to wait before the same target is tried again: what it asked for, else full jitter under an
/// exponential bound. `None`: it asked for more than a request waits, so the next one is due.
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

/// From 0 to 1, evenly.
fn random_fraction() -> f64 {
    use std::hash::BuildHasher as _;
    let bits = std::hash::RandomState::new().hash_one(0_u8) >> 32;
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}
