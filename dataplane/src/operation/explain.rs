//! Explains which target would serve a request, and why the others would not (FAIL-8): the plan as JSON, without an
//! upstream call, a record or a reservation. Only requests from inside the process can ask for it.
//!
//! ```json
//! { "operation": "chat_completions", "selector": "line", "stream": false, "needs": ["chat", "vision"],
//!   "resolved": {"kind": "endpoint", "name": "line"},
//!   "candidates": [{"provider": "a", "model": "m", "adapted": "messages"}],
//!   "passed_over": [{"provider": "b", "model": "m", "reason": "circuit_open", "wait_ms": 12000}],
//!   "budget_ms": 120000, "choice": null, "affinity": {"key": "conversation-7", "starts_at": {"provider": "a", "model": "m"}},
//!   "would_wait": null, "refusal": null, "path": null }
//! ```
//!
//! `choice` is `{"order", "chosen_by"}` for an endpoint that is no plain list; its candidates have `tier`, `weight` and what
//! decided: `share`, `in_flight`, `first_content_us` or `cost_micro_usd`.
//! A candidate whose provider has several keys has `credentials`: those that would be tried, in order, each with
//! `credential` (`c2`), `in_flight`, and the `reason` and `wait_ms` if it rests or has an open circuit.
//! `would_wait` is the line of a quota in which the request would wait first: `{"quota", "waiting", "expected_ms", "wait_ms"}`;
//! `expected_ms` is null if unknown, `wait_ms` the longest wait.
//! `candidates` is in the order of the attempts. A candidate that rests is in `passed_over`; if all rest, those that would be
//! tried anyway are in both. In a candidate, `adapted` is absent for targets that speak the client's protocol; `dropped` and `changed`
//! name the fields that are not sent as they are, and `body` the members that settings change. `reason` is one of the results in a record's trace. `refusal` is the
//! error that the client would get instead of an answer: `{"status", "code", "message", "param"}`. If a request is
//! refused before its plan is made, the fields unknown by then are null or empty. `path` contains the attempts at the
//! candidates if faults are assumed, otherwise it is null.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use shared::clock::unix_ms;
use shared::health::Rest;
use shared::operation::{Dialect, Operation};
use shared::port::AssumedFault;
use shared::quota::Exceeded;
use shared::routing::Target;
use shared::snapshot::Route;
use shared::usage::StepResult;
use wire::adapt::Rejection;

use crate::adapt;
use crate::admit::line::LineTerms;
use crate::admit::quota;
use crate::attempt::{self, FailoverBudget, Waiting};
use crate::error::Fault;
use crate::operation::rehearsal::{RehearsedCandidate, RehearsedRequest, rehearse};
use crate::plan::lanes::{LaneNeeds, LaneStanding, RankedLane, lanes};
use crate::plan::{self, Needs, ShownShare};
use crate::relay::ResponseBody;

/// A request to explain.
#[derive(Debug)]
pub(crate) struct ExplainQuestion<'a> {
    pub(crate) operation: Operation,
    pub(crate) selector: &'a str,
    pub(crate) stream: bool,
    pub(crate) needs: Needs<'a>,
    pub(crate) budget: FailoverBudget,
    /// The request goes to the one target that it names, even if its circuit is open.
    pub(crate) forced: bool,
    /// Current time on the circuits' clock, in milliseconds.
    pub(crate) now_ms: u64,
    /// Assumed faults, if the attempts at the candidates are to be rehearsed.
    pub(crate) faults: Option<&'a [AssumedFault]>,
}

impl ExplainQuestion<'_> {
    fn lane_needs(&self) -> LaneNeeds<'_> {
        let Needs { demand, session, response_affinity, reference, .. } = self.needs;
        LaneNeeds::of(demand.head, session, (response_affinity, reference))
    }
}

/// A target, and its quota that is used up.
type OverQuota<'a> = (&'a Target, Box<Exceeded>);

/// Returns a quota that is used up, whichever of the candidates is tried.
type CallerCheck<'a> = dyn Fn(&Route, &[&Target]) -> Option<Box<Exceeded>> + 'a;

/// Checks of a target that the plan itself does not make.
pub(crate) struct TargetChecks<'a> {
    /// Returns the part of the request that the target's protocol cannot express.
    pub(crate) refuses: &'a dyn Fn(&Route, &Target) -> Option<Rejection>,
    /// Returns the names of the fields that would be left out, the fields that would be changed, and the members that
    /// settings would change.
    pub(crate) told: &'a dyn Fn(&Route, &Target) -> [Vec<String>; 3],
    /// Returns the quota that depends on the target and is used up, if any.
    pub(crate) is_over: &'a dyn Fn(&Route, &Target) -> Option<Box<Exceeded>>,
    /// Returns the quota that is used up regardless of the target, if any.
    pub(crate) is_over_before: &'a CallerCheck<'a>,
    /// The terms of a wait in the line of a quota.
    pub(crate) terms: LineTerms<'a>,
}

/// Explains a request whose selector resolved to `selected`.
pub(crate) fn plan(
    question: &ExplainQuestion<'_>,
    selected: Result<Route, Fault>,
    checks: &TargetChecks<'_>,
) -> Response<ResponseBody> {
    let (route, mut refusal) = match selected {
        Ok(route) => (Some(route), None),
        Err(fault) => (None, Some(fault)),
    };
    let mut passed_over = Vec::new();
    let mut candidates = Vec::new();
    let mut choice = None;
    if let Some(route) = &route {
        let mut skip = |target: &Target, result| passed_over.push(passed(target, result, None));
        match plan::order(route, question.needs, &mut skip) {
            Ok(plan) => (candidates, choice) = (plan.candidates, plan.choice),
            Err(fault) => refusal = Some(fault),
        }
    }
    let rejections =
        route.as_ref().map(|route| take_out(&mut candidates, &|target| (checks.refuses)(route, target)));
    let rejections = rejections.unwrap_or_default();
    passed_over.extend(rejections.iter().map(|(target, why)| unsuited(target, why)));
    let over = route
        .as_ref()
        .map_or_else(Vec::new, |route| take_out(&mut candidates, &|target| (checks.is_over)(route, target)));
    passed_over.extend(over.iter().map(|(target, _)| passed(target, StepResult::OverQuota, None)));
    let starts_at = question.needs.affinity_key.zip(candidates.first().map(|target| named(target)));
    let planned = candidates.len();
    let open = take_out(&mut candidates, &|target| open_ms(question, target));
    passed_over
        .extend(open.iter().map(|(target, wait)| passed(target, StepResult::CircuitOpen, Some(*wait))));
    let shortest = open.iter().map(|(_, wait_ms)| *wait_ms).min();
    let is_alone = planned < 2 || question.forced;
    let resting = take_out(&mut candidates, &|target| attempt::rest_of(target).filter(|_| !is_alone));
    let rests = resting.iter().map(|(target, rest)| passed(target, StepResult::Resting, Some(rest.wait_ms)));
    passed_over.extend(rests);
    let mut to_rehearse = rehearsed(question, &candidates, &resting);
    let rest_ms = if candidates.is_empty() { put_back(question, &resting, &mut candidates) } else { None };
    let before = route.as_ref().and_then(|route| (checks.is_over_before)(route, &candidates));
    let lines = if rest_ms.is_none() { &*over } else { &[] };
    let would_wait = first_line(before, lines, &mut candidates, checks.terms);
    if to_rehearse.is_empty() {
        to_rehearse = rehearsed(question, &candidates, &[]);
    }
    let over = over.into_iter().map(|(_, exceeded)| quota::over(&exceeded)).min_by_key(attempt::wait_of);
    if candidates.is_empty() {
        let why = rejections.into_iter().next().map(|(_, why)| why);
        refusal = none_left(rest_ms, over, shortest, why).or(refusal);
    }
    let Needs { dialect, vision, tools, .. } = question.needs;
    let path = question.faults.map(|faults| {
        let (budget, stream) = (question.budget, question.stream);
        let once = dialect == Dialect::Videos;
        rehearse(&to_rehearse, RehearsedRequest { faults, route: route.as_ref(), budget, stream, once })
    });
    let choice = choice.map(|choice| choice.recorded);
    let shown = shown(question, route.as_ref(), checks, &candidates);
    let needs = [Some(dialect.name()), vision.then_some("vision"), tools.then_some("tools")];
    ok(&json!({
        "operation": question.operation.name(),
        "selector": question.selector,
        "stream": question.stream,
        "needs": needs.into_iter().flatten().collect::<Vec<_>>(),
        "resolved": route.as_ref().map(resolved),
        "candidates": shown,
        "passed_over": passed_over,
        "budget_ms": u64::try_from(question.budget.time().as_millis()).unwrap_or(u64::MAX),
        "choice": choice,
        "affinity": starts_at.map(|(key, target)| json!({"key": key, "starts_at": target})),
        "would_wait": would_wait,
        "refusal": refusal.as_ref().map(refused),
        "path": path,
    }))
}

/// Returns the error of a request without candidates, by the reasons for which targets were passed over.
fn none_left(
    rest_ms: Option<u64>,
    over: Option<Fault>,
    open_ms: Option<u64>,
    why: Option<Rejection>,
) -> Option<Fault> {
    let rests = rest_ms.map(attempt::all_resting);
    rests.or(over).or_else(|| open_ms.map(attempt::all_cooling_down)).or_else(|| why.map(adapt::refusal))
}

/// Returns the candidates for a rehearsal: those that rest after the others.
fn rehearsed<'a>(
    question: &ExplainQuestion<'_>,
    candidates: &[&'a Target],
    resting: &[(&'a Target, Rest)],
) -> Vec<RehearsedCandidate<'a>> {
    let ready = candidates.iter().map(|target| (*target, None));
    let all = ready.chain(resting.iter().map(|(target, rest)| (*target, Some(*rest))));
    let with_lanes = all.map(|(target, rest)| RehearsedCandidate {
        target,
        lanes: lanes(target, question.lane_needs()),
        rest,
    });
    with_lanes.collect()
}

/// Returns the line in which the request would wait first: of a quota that is used up `before` the targets are tried, or of
/// those of targets, which are entered only when there is no candidate. Adds these targets to the candidates.
fn first_line<'a>(
    before: Option<Box<Exceeded>>,
    over: &[OverQuota<'a>],
    candidates: &mut Vec<&'a Target>,
    terms: LineTerms<'_>,
) -> Option<Value> {
    let first = before.filter(|exceeded| exceeded.may_wait());
    let first = first.map(|exceeded| would_wait_for(&exceeded, terms));
    if !candidates.is_empty() {
        return first;
    }
    let lines = || over.iter().filter(|(_, exceeded)| exceeded.may_wait());
    candidates.extend(lines().map(|(target, _)| *target));
    first.or_else(|| lines().next().map(|(_, exceeded)| would_wait_for(exceeded, terms)))
}

/// Returns the line in which the request would wait.
fn would_wait_for(exceeded: &Exceeded, terms: LineTerms<'_>) -> Value {
    let (quota, request) = (&exceeded.quota, terms.request(exceeded));
    json!({
        "quota": quota.id,
        "waiting": quota.counter.waiting(),
        "expected_ms": quota.expected_wait_ms(&request, unix_ms()),
        "wait_ms": request.wait_ms_max,
    })
}

/// Returns the candidates for display.
fn shown(
    question: &ExplainQuestion<'_>,
    route: Option<&Route>,
    checks: &TargetChecks<'_>,
    candidates: &[&Target],
) -> Vec<Value> {
    let Needs { dialect, tools, demand, single, .. } = question.needs;
    let balanced = route.and_then(Route::balanced).filter(|_| !single);
    let shown = candidates.iter().map(|target| {
        let told = route.map(|route| (checks.told)(route, target)).unwrap_or_default();
        let share = balanced.and_then(|of| ShownShare::of(target, candidates, of, demand));
        let value = with_share(candidate(target, (dialect, tools), told), share);
        with_lanes(value, &lanes(target, question.lane_needs()))
    });
    shown.collect()
}

/// Explains a request that would be refused before its selector is looked up.
pub(crate) fn early(operation: Option<Operation>, fault: &Fault) -> Response<ResponseBody> {
    ok(&json!({
        "operation": operation.map(Operation::name),
        "selector": null,
        "stream": null,
        "needs": [],
        "resolved": null,
        "candidates": [],
        "passed_over": [],
        "budget_ms": null,
        "choice": null,
        "affinity": null,
        "would_wait": null,
        "refusal": refused(fault),
        "path": null,
    }))
}

/// Removes the candidates for which `why` returns an objection, and returns them with it.
fn take_out<'a, T>(
    candidates: &mut Vec<&'a Target>,
    why: &dyn Fn(&Target) -> Option<T>,
) -> Vec<(&'a Target, T)> {
    let mut taken = Vec::new();
    candidates.retain(|target| {
        let why = why(target);
        let stays = why.is_none();
        taken.extend(why.map(|why| (*target, why)));
        stays
    });
    taken
}

/// Returns the rest of a cooldown for which the target would be skipped, in milliseconds.
fn open_ms(question: &ExplainQuestion<'_>, target: &Target) -> Option<u64> {
    target.open_ms(question.now_ms).filter(|_| !question.forced)
}

/// Puts those of the resting candidates back that are tried although no other is left. Returns the time until the first
/// of the others may be tried.
fn put_back<'a>(
    question: &ExplainQuestion<'_>,
    resting: &[(&'a Target, Rest)],
    candidates: &mut Vec<&'a Target>,
) -> Option<u64> {
    let mut waiting = Waiting::default();
    resting.iter().for_each(|(target, rest)| waiting.rests(target, *rest, question.now_ms));
    waiting.settle();
    while let Some((next, _)) = waiting.take(question.now_ms) {
        candidates.push(next.target);
    }
    waiting.shortest_ms(question.now_ms)
}

fn resolved(route: &Route) -> Value {
    let exact = |target: &Target| format!("{}/{}", target.provider.id, target.model.id);
    match route {
        Route::Endpoint(endpoint) => json!({"kind": "endpoint", "name": endpoint.name}),
        Route::Model(target) => json!({"kind": "model", "name": exact(target)}),
        Route::Alias(target) => json!({"kind": "alias", "name": exact(target)}),
        Route::Ambiguous(_) => json!({"kind": "ambiguous", "name": null}),
    }
}

fn named(target: &Target) -> Value {
    json!({"provider": target.provider.id, "model": target.model.id})
}

/// A target, with the dialect to which the request is adapted for it, if it is, and the fields that are not sent as they
/// are.
fn candidate(
    target: &Target,
    (dialect, tools): (Dialect, bool),
    [dropped, changed, body]: [Vec<String>; 3],
) -> Value {
    let mut value = named(target);
    if let Some(object) = value.as_object_mut() {
        let adapted = adapt::adapted_to(target, dialect, tools).map(|adapted| json!(adapted.name()));
        object.extend(adapted.map(|adapted| ("adapted".to_owned(), adapted)));
        for (name, fields) in [("dropped", dropped), ("changed", changed), ("body", body)] {
            if !fields.is_empty() {
                object.insert(name.to_owned(), json!(fields));
            }
        }
    }
    value
}

/// Adds the share of a candidate, and what decided its place.
fn with_share(mut value: Value, share: Option<ShownShare>) -> Value {
    if let (Some(object), Some(share)) = (value.as_object_mut(), share) {
        let ShownShare { tier, weight, share, in_flight, first_content_us, cost_nano_usd } = share;
        let micros = first_content_us.map(|us| json!(us.round()));
        let decided = [
            ("share", share.map(|share| json!((share * SHARE_PARTS).round() / SHARE_PARTS))),
            ("in_flight", in_flight.map(|count| json!(count))),
            ("first_content_us", micros),
            (
                "cost_micro_usd",
                cost_nano_usd
                    .map(|nano| json!((Duration::from_nanos(nano).as_secs_f64() * 1e9).round() / 1e3)),
            ),
        ];
        object.insert("tier".to_owned(), json!(tier));
        object.insert("weight".to_owned(), json!(weight));
        object.extend(decided.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    value
}

/// Adds the keys with which the target would be tried, in order, if its provider has several.
fn with_lanes(mut value: Value, ranked: &[RankedLane<'_>]) -> Value {
    if let (Some(object), false) = (value.as_object_mut(), ranked.is_empty()) {
        let shown = ranked.iter().map(|ranked| {
            let (reason, wait_ms) = match ranked.standing {
                LaneStanding::Ready => (None, None),
                LaneStanding::Resting { wait_ms, .. } => (Some(StepResult::Resting), Some(wait_ms)),
                LaneStanding::Open { wait_ms } => (Some(StepResult::CircuitOpen), Some(wait_ms)),
            };
            json!({
                "credential": ranked.lane.lane.as_ref().map(|lane| lane.number),
                "in_flight": ranked.lane.circuits.load().in_flight(),
                "reason": reason,
                "wait_ms": wait_ms,
            })
        });
        object.insert("credentials".to_owned(), shown.collect());
    }
    value
}

/// Shares are shown with four decimals.
const SHARE_PARTS: f64 = 10_000.0;

fn passed(target: &Target, result: StepResult, wait_ms: Option<u64>) -> Value {
    let mut value = json!({"provider": target.provider.id, "model": target.model.id, "reason": result});
    if let (Some(object), Some(wait_ms)) = (value.as_object_mut(), wait_ms) {
        object.insert("wait_ms".to_owned(), json!(wait_ms));
    }
    value
}

fn unsuited(target: &Target, why: &Rejection) -> Value {
    let mut value = passed(target, StepResult::Unsupported, None);
    if let Some(object) = value.as_object_mut() {
        object.insert("param".to_owned(), json!(why.param));
    }
    value
}

fn refused(fault: &Fault) -> Value {
    let code = fault.kind.row().code;
    json!({"status": fault.status(), "code": code, "message": fault.message, "param": fault.param})
}

fn ok(body: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(body.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
