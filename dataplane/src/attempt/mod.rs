//! Walks the plan: retries at one target, then moves to the next, under the request's budget, while no output
//! has started (FAIL-1 to FAIL-4).

mod budget;
mod early;
mod failure;
mod final_error;
mod first_content;
mod lanes;
mod lines;
mod one_attempt;
mod opening;
mod timeouts;
mod verdict;
mod waiting;
mod walk;

use std::cell::RefCell;
use std::future::ready;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use shared::access::Access;
use shared::operation::Dialect;
use shared::port::ExchangeTap;
use shared::quota::{Exceeded, Place};
use shared::reasoning_seal::ReasoningSeal;
use shared::routing::Target;
use shared::snapshot::Route;
use wire::request::Head;

pub(crate) use self::budget::FailoverBudget;
pub(crate) use self::early::{EarlyRequest, EarlySend};
pub(crate) use self::failure::{ERROR_BYTES_MAX, Failure, of_send_error, secrets, wait_hint};
pub(crate) use self::final_error::{all_cooling_down, all_resting, wait_of};
pub(crate) use self::one_attempt::{AnswerStart, AttemptParams, Success, shown};
pub(crate) use self::verdict::{KeyBlame, Next, Verdict};
pub(crate) use self::waiting::{Waiting, rest_of};

use self::walk::Walk;
use crate::adapt::RoutedRequest;
use crate::admit::demand::Demand;
use crate::admit::line::{LineTerms, reserve_in_line};
use crate::admit::policy;
use crate::admit::quota::{self, Notices};
use crate::admit::share_wait::reserve_when_granted;
use crate::error::Fault;
use crate::plan::response_affinity::{AffinityRecorder, Recall, SessionHash, StateReference};
use crate::plan::{self, Needs, Plan};
use crate::record::Record;
use crate::server::body::HeldBody;
use crate::worker::Worker;

/// A parsed request and its route.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) worker: Rc<Worker>,
    pub(crate) access: Arc<Access>,
    pub(crate) route: Route,
    /// True if the request goes to the one target that it names, even if the target's circuit is open.
    pub(crate) forced: bool,
    pub(crate) head: Box<Head>,
    pub(crate) body: HeldBody,
    /// The content type of the body, if it is not JSON.
    pub(crate) content_type: Option<HeaderValue>,
    /// The client's headers that are forwarded to a target of its dialect.
    pub(crate) forwarded: Vec<(HeaderName, HeaderValue)>,
    pub(crate) request_id: HeaderValue,
    /// Observes what is exchanged with upstreams.
    pub(crate) tap: Option<Arc<dyn ExchangeTap>>,
    pub(crate) budget: FailoverBudget,
    /// The session that the client names, if the route depends on it.
    pub(crate) session: Option<Box<str>>,
    /// Seals reasoning for the caller, if a target of the route needs it.
    pub(crate) seal: Option<ReasoningSeal>,
    /// The request as it has been sent while its body arrived, until the first attempt.
    pub(crate) early: RefCell<Option<Box<EarlySend>>>,
}

/// A reservation that waits in the line of a quota, or for a larger share of one.
type Reserving<'a> = Pin<Box<dyn Future<Output = Result<(), Fault>> + 'a>>;

impl Job {
    fn routed(&self) -> RoutedRequest<'_> {
        let seal = self.seal.as_ref();
        RoutedRequest { seal, ..self.worker.routed(&self.route, &self.head, &self.body) }
    }

    /// Returns what the wait in a line depends on; `started` is the beginning of the request.
    fn line_terms(&self, started: Instant) -> LineTerms<'_> {
        let end = started + self.budget.time().min(Duration::from_secs(86_400));
        self.worker.process.line_terms(&self.access, end)
    }

    /// Waits in the line of the exceeded quota before `target` is tried, if it has a line. Otherwise waits for a larger share
    /// of it, if other nodes share it. Then reserves again. Boxed: a request that need not wait keeps no room for it.
    fn reserved_later<'a>(
        &'a self,
        (exceeded, target): (Box<Exceeded>, Option<&'a Target>),
        record: &'a mut Record,
        mut reserve: impl FnMut(&mut Record, Option<&Place>) -> Result<(), Box<Exceeded>> + 'a,
    ) -> Reserving<'a> {
        // An upstream does not wait for the end of a request as long as a line may.
        self.early.take();
        if let Some(target) = target.filter(|_| exceeded.may_wait()) {
            let terms = self.line_terms(record.started());
            return Box::pin(reserve_in_line((exceeded, target), terms, record, reserve));
        }
        let reserve = move |record: &mut Record| reserve(record, None);
        match &self.worker.process.shares {
            None => Box::pin(ready(Err(quota::refused(&exceeded, record)))),
            Some(shares) => Box::pin(reserve_when_granted(Arc::clone(shares), exceeded, record, reserve)),
        }
    }
}

/// An answer that is ready for the client, and its target.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) success: Box<Success>,
    pub(crate) target: Target,
    /// The target's dialect, if it differs from the client's.
    pub(crate) adapted_from: Option<Dialect>,
    /// Records an answer to which later requests may refer.
    pub(crate) affinity: Option<Box<AffinityRecorder>>,
    pub(crate) attempts: u32,
    /// Headers about the caller's quotas.
    pub(crate) notices: Notices,
}

/// A request without an answer: the error for the client, the target that was tried last, and the number of attempts.
#[derive(Debug)]
pub(crate) struct Unserved {
    pub(crate) fault: Fault,
    pub(crate) target: Option<Target>,
    pub(crate) attempts: u32,
    /// Headers about the caller's quotas.
    pub(crate) notices: Notices,
}

/// Serves the job. Takes it by reference, so that nothing of it is copied.
pub(crate) async fn run(job: &Job, record: &mut Record) -> Result<Served, Box<Unserved>> {
    let route = &job.route;
    record.note(|event| event.endpoint = route.endpoint().cloned());
    if let Some(recall) = missing(&job.worker, &job.head, &job.access)
        && let Err(fault) = Box::pin(recall.run(&job.worker.process.response_affinity)).await
    {
        return Err(refused(job, record, fault));
    }
    let needs = needs(&job.worker, (&job.head, job.session.as_deref()), &job.body, &job.access);
    let demand = needs.demand;
    let planned = plan::order(route, needs, &mut |target, why| record.skip(target, why));
    let (candidates, session) = match planned {
        Ok(Plan { candidates, choice }) => {
            if let Some(choice) = choice {
                record.note(|event| event.details.choice = Some(choice.recorded));
            }
            (candidates, choice.and_then(|choice| choice.session))
        }
        Err(fault) => return Err(refused(job, record, fault)),
    };
    let endpoint = route.endpoint();
    if let Err(exceeded) = quota::reserve(&job.access, endpoint, demand, &candidates, (record, None)) {
        let again = |record: &mut Record, called: Option<&Place>| {
            quota::reserve(&job.access, endpoint, demand, &candidates, (record, called))
        };
        let later = job.reserved_later((exceeded, candidates.first().copied()), record, again);
        if let Err(fault) = later.await {
            return Err(refused(job, record, fault));
        }
    }
    let mut walk = Walk::new(job, demand, record.started());
    if let Some(served) = walk.candidates(&candidates, record).await {
        return Ok(remember(job, session, served));
    }
    // No other target could serve the request, but a token is being renewed.
    if walk.renewing.is_some()
        && let Some(served) = Box::pin(walk.renewed(record)).await
    {
        return Ok(remember(job, session, served));
    }
    let mut unserved = Box::new(walk.unserved());
    policy::word(&job.access, job.head.dialect, &mut unserved.fault);
    record.fail(&unserved.fault);
    Err(unserved)
}

/// Ends a request before its first attempt.
fn refused(job: &Job, record: &mut Record, mut fault: Fault) -> Box<Unserved> {
    policy::word(&job.access, job.head.dialect, &mut fault);
    record.fail(&fault);
    let notices = quota::failure_notices(&job.access, job.route.endpoint(), None, &mut fault);
    Box::new(Unserved { fault, target: None, attempts: 0, notices })
}

/// Returns the look-up of stored state that the request refers to and the tables do not know.
pub(crate) fn missing(worker: &Worker, head: &Head, access: &Access) -> Option<Recall> {
    let may_refer = head.dialect == Dialect::Responses;
    if may_refer { worker.process.response_affinity.missing(head, access) } else { None }
}

/// Remembers the target that serves the request for its session, if it has one.
fn remember(job: &Job, session: Option<SessionHash>, served: Served) -> Served {
    if let Some(session) = session {
        job.worker.process.response_affinity.note_session(session, &served.target);
    }
    served
}

/// Returns the requirements of a request on its targets.
pub(crate) fn needs<'a>(
    worker: &'a Worker,
    (head, session): (&'a Head, Option<&'a str>),
    body: &HeldBody,
    access: &'a Access,
) -> Needs<'a> {
    let affinity = &worker.process.response_affinity;
    let may_refer = head.dialect == Dialect::Responses;
    let reference =
        if may_refer { affinity.wanted(head, &body.segments, access) } else { StateReference::Nothing };
    Needs {
        reference,
        response_affinity: affinity,
        dialect: head.dialect,
        // Embeddings of different models are never mixed, speech and transcripts come from one engine, and an
        // operation that costs minutes of GPU time is not started twice (EMB-1).
        single: !head.dialect.is_conversation(),
        vision: head.has_image,
        tools: head.has_tools,
        affinity_key: head.affinity_key.as_deref(),
        session,
        demand: Demand {
            head,
            output_default: worker.process.settings.quota_output_tokens,
            stored: may_refer.then(|| affinity.tokens(head, access)).flatten(),
        },
        access,
    }
}
