//! Pipeline of every operation that calls a model: read and scan the body, select the targets, run the failover.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response};
use percent_encoding::percent_decode_str;
use shared::access::Access;
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::operation::{Dialect, Operation};
use shared::port::Insider;
use shared::routing::Target;
use shared::snapshot::{Route, Snapshot};
use wire::multipart::{self, FormFault, FormScan};
use wire::request::{GeminiCall, GeminiKind, Head, HeadScan, ScanError};

use crate::adapt::{self, RoutedRequest};
use crate::admit::labels;
use crate::admit::quota;
use crate::attempt::{self, EarlySend, FailoverBudget, Job};
use crate::caller::Exchange;
use crate::error::Fault;
use crate::operation::answer;
use crate::operation::arrival::Arrival;
use crate::operation::cursor;
use crate::operation::explain::{self, ExplainQuestion, TargetChecks};
use crate::operation::videos;
use crate::plan::{self, Needs};
use crate::record::{Opening, Record};
use crate::relay::ResponseBody;
use crate::route::google::{self, GoogleCall, GoogleMethod};
use crate::running::RunningEntry;
use crate::server::body::{self, HeldBody, Inbound};
use crate::upstream::request;
use crate::worker::Worker;

const X_AFFINITY_KEY: HeaderName = HeaderName::from_static("x-llmgw-affinity-key");
const X_FALLBACK_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-llmgw-fallback-timeout-ms");

/// An authorized request.
#[derive(Debug)]
pub(crate) struct AuthorizedRequest<'a> {
    /// The time at which its key was accepted.
    pub(crate) started: Instant,
    pub(crate) operation: Operation,
    pub(crate) dialect: Dialect,
    pub(crate) exchange: &'a Exchange,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) access: &'a Arc<Access>,
    pub(crate) request: &'a Parts,
    /// The field with the ID of the client's session.
    pub(crate) session: Option<&'a HeaderValue>,
    /// True if any header field is meant for the gateway.
    pub(crate) has_own: bool,
    pub(crate) running: &'a Rc<RunningEntry>,
}

/// Handles one request.
pub(crate) async fn serve(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
) -> Result<Response<ResponseBody>, Fault> {
    let worker = authorized.worker();
    if !worker.usage.has_room() {
        return Err(answer::no_record());
    }
    let Arrived { head, body, early } =
        read(authorized, incoming, worker.process.settings.body_bytes_max).await?;
    let (mut job, mut record) = authorized.prepare(head, body)?;
    job.early = RefCell::new(early);
    let keepalive = worker.process.settings.stream_keepalive.filter(|_| answers_in_events(&job.head));
    Ok(match keepalive {
        Some(interval) => {
            Box::pin(answer::run_with_keepalive(authorized.exchange, job, record, interval)).await
        }
        None => {
            let outcome = attempt::run(&job, &mut record).await;
            answer::respond(authorized.exchange, authorized.dialect, outcome, record)
        }
    })
}

/// Returns true if the answer is certainly an event stream. Speech and transcriptions have whatever form the upstream
/// sends.
fn answers_in_events(head: &Head) -> bool {
    head.stream && (head.dialect.is_conversation() || head.dialect == Dialect::Images)
}

/// Answers with the plan of a request instead of executing it.
pub(crate) async fn explain(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
) -> Result<Response<ResponseBody>, Fault> {
    let worker = authorized.worker();
    let Arrived { head, body, .. } =
        read(authorized, incoming, worker.process.settings.body_bytes_max).await?;
    let (selected, forced) = match head.is_poll {
        true => (videos::holder(authorized, &head, &body).map(|(_, route)| route), true),
        false => authorized.select(&head),
    };
    if let Some(recall) = attempt::missing(worker, &head, authorized.access) {
        Box::pin(recall.run(&worker.process.response_affinity)).await?;
    }
    let question = ExplainQuestion {
        operation: authorized.operation,
        selector: &head.model,
        stream: head.stream,
        needs: authorized.needs(&head, &body),
        budget: FailoverBudget::of(head.fallback_timeout_ms),
        forced,
        now_ms: clock::monotonic_ms(),
        faults: authorized
            .exchange
            .caller
            .rehearsal
            .as_ref()
            .and_then(|rehearsal| rehearsal.faults.as_deref()),
    };
    let request = |route: &Route, target: &Target| {
        let seal = adapt::seal(authorized.snapshot, route, &head, authorized.access);
        let routed = RoutedRequest { seal: seal.as_ref(), ..worker.routed(route, &head, &body) };
        adapt::target_request(routed, target)
    };
    let refuses = |route: &Route, target: &Target| {
        if head.is_poll { None } else { request(route, target).err() }
    };
    let told = |route: &Route, target: &Target| {
        if head.is_poll {
            return Default::default();
        }
        request(route, target)
            .map(|request| {
                let [dropped, changed] = request.reader.told();
                [dropped, changed, request.members]
            })
            .unwrap_or_default()
    };
    let demand = question.needs.demand;
    let is_over = |route: &Route, target: &Target| {
        let exceeded = quota::exceeded_of_target(authorized.access, route.endpoint(), demand, target);
        exceeded.filter(|_| !head.is_poll)
    };
    let is_over_before = |route: &Route, candidates: &[&Target]| {
        let exceeded = quota::exceeded_of_caller(authorized.access, route.endpoint(), demand, candidates);
        exceeded.filter(|_| !head.is_poll)
    };
    let end = authorized.started + question.budget.time().min(Duration::from_secs(86_400));
    let terms = worker.process.line_terms(authorized.access, end);
    let checks = TargetChecks {
        refuses: &refuses,
        told: &told,
        is_over: &is_over,
        is_over_before: &is_over_before,
        terms,
    };
    Ok(explain::plan(&question, selected, &checks))
}

impl AuthorizedRequest<'_> {
    /// Returns the call that the path of a Gemini request contains.
    fn call(&self) -> Option<GoogleCall<'_>> {
        let is_of_google = matches!(self.dialect, Dialect::Gemini | Dialect::GeminiEmbeddings);
        if is_of_google { google::call(self.request.uri.path()) } else { None }
    }

    pub(super) fn worker(&self) -> &Rc<Worker> {
        self.exchange.worker()
    }

    /// Resolves the selector. The flag is true if the route's one target must be used: requests from inside the process
    /// may force one.
    pub(super) fn select(&self, head: &Head) -> (Result<Route, Fault>, bool) {
        self.running.select(&head.model);
        let stored = || plan::select(self.snapshot, &head.model, self.access);
        match &self.exchange.caller.insider {
            Some(Insider { only: Some(target), .. }) => (Ok(Route::Model(target.clone())), true),
            Some(Insider { restricted_to: Some(target), .. }) => {
                (stored().and_then(|route| plan::restricted(route, target)), false)
            }
            Some(_) | None => (self.draft(&head.model).map_or_else(stored, Ok), false),
        }
    }

    /// Returns the session that the client names.
    fn session_name(&self) -> Option<&str> {
        self.session.and_then(|session| session.to_str().ok())
    }

    /// Returns the requirements of the request on its targets.
    pub(super) fn needs<'n>(&'n self, head: &'n Head, body: &HeldBody) -> Needs<'n> {
        attempt::needs(self.worker(), (head, self.session_name()), body, self.access)
    }

    /// Returns the route of an endpoint that exists in an explanation only.
    fn draft(&self, selector: &str) -> Option<Route> {
        let draft = self.exchange.caller.rehearsal.as_ref()?.draft.as_ref()?;
        let is_meant = draft.name.as_str() == selector || draft.also.iter().any(|name| **name == *selector);
        is_meant.then(|| Route::Endpoint(Arc::clone(draft)))
    }

    /// Opens the record and builds the failover job.
    pub(super) fn prepare(&self, head: Box<Head>, body: HeldBody) -> Result<(Job, Record), Fault> {
        let worker = self.worker();
        let (end_users, hasher) = (worker.process.settings.end_users, &self.snapshot.key_hasher);
        let (selected, forced) = self.select(&head);
        let opening = Opening {
            started: self.started,
            started_at_ms: self.running.started_at_ms(),
            operation: self.operation,
            access: self.access,
            stream: head.stream,
            dialect: self.dialect,
            input: &head.input,
            tags: labels::tags(&self.request.headers, self.has_own, self.access.tags.as_deref())?,
            end_user: labels::end_user(head.end_user.as_deref(), end_users, hasher),
            session: labels::session(self.session, head.affinity_key.as_deref(), hasher),
            body_bytes: body.bytes(),
            body_wait_us: body.waited_us,
            media: head.media.as_deref(),
            running: self.running,
            span: worker.spans.as_ref().and_then(|spans| spans.begin(&self.request.headers)),
        };
        let mut record = Record::open(&worker.usage, opening);
        self.exchange.is_recorded.set(true);
        let route = selected.inspect_err(|fault| record.fail(fault))?;
        let job = Job {
            seal: adapt::seal(self.snapshot, &route, &head, self.access),
            session: plan::stays_with_session(&route).then(|| self.session_name()).flatten().map(Box::from),
            worker: Rc::clone(worker),
            access: Arc::clone(self.access),
            route,
            forced,
            budget: FailoverBudget::of(head.fallback_timeout_ms),
            head,
            body,
            content_type: self.form_type(),
            forwarded: request::forwarded(self.dialect, &self.request.headers),
            request_id: self.exchange.request_id.clone(),
            tap: self.exchange.tap().cloned(),
            early: RefCell::default(),
        };
        Ok((job, record))
    }
}

impl AuthorizedRequest<'_> {
    /// Returns the request's content type if the body is a form: it contains the boundary.
    fn form_type(&self) -> Option<HeaderValue> {
        let is_form = self.dialect == Dialect::Transcription;
        if is_form { self.request.headers.get(CONTENT_TYPE).cloned() } else { None }
    }
}

/// A request whose body has arrived.
pub(super) struct Arrived {
    pub(super) head: Box<Head>,
    pub(super) body: HeldBody,
    /// The request as it has been sent while it arrived.
    pub(super) early: Option<Box<EarlySend>>,
}

/// Reads the body and scans it for the fields that determine the route.
pub(super) async fn read(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
    bytes_max: u64,
) -> Result<Arrived, Fault> {
    if authorized.dialect == Dialect::Transcription {
        return Box::pin(read_form(authorized, incoming, bytes_max)).await;
    }
    let limits = &authorized.worker().process.body_limits;
    let scan = match authorized.call() {
        Some(call) => HeadScan::of_gemini(of_path(call)?),
        None => HeadScan::new(authorized.dialect),
    };
    let mut arrival = Arrival::new(authorized, scan);
    let headers = &authorized.request.headers;
    let mut body = body::read(limits, headers, incoming, bytes_max, &mut arrival).await?;
    authorized.exchange.note_body(&body);
    let (scanned, early) = arrival.finish();
    let mut head = match scanned {
        Ok(head) => Box::new(head),
        Err(error) => Box::pin(cursor::head(authorized, &mut body, error)).await?,
    };
    if authorized.operation == Operation::CompactResponses {
        if head.stream {
            return Err(Fault::new(ErrorKind::UnsupportedField, NO_STREAM).param("stream"));
        }
        head.is_compaction = true;
    }
    if head.state.background {
        return Err(Fault::new(ErrorKind::UnsupportedField, BACKGROUND).param("background"));
    }
    override_by_headers(&mut head, authorized);
    authorized.exchange.note_selector(&head.model);
    Ok(Arrived { head, body, early })
}

/// Returns what the path of a Gemini request contains.
fn of_path(call: GoogleCall<'_>) -> Result<GeminiCall, Fault> {
    let model = percent_decode_str(call.model).decode_utf8().map_err(|_| {
        Fault::new(ErrorKind::InvalidRequest, "The model in the path is not UTF-8.").param("model").closing()
    })?;
    let kind = match call.method {
        GoogleMethod::Generate | GoogleMethod::GenerateStream => GeminiKind::Generation,
        GoogleMethod::CountTokens => GeminiKind::Count,
        GoogleMethod::Embed => GeminiKind::Embedding,
        GoogleMethod::EmbedBatch => GeminiKind::EmbeddingBatch,
    };
    Ok(GeminiCall { model: model.into_owned(), stream: call.method == GoogleMethod::GenerateStream, kind })
}

const NO_STREAM: &str =
    "'stream' is not supported here: a compacted conversation arrives whole. Send false or omit it.";
/// RESP-3: the answer of a background request could be neither relayed nor accounted for.
const BACKGROUND: &str =
    "'background' is not supported: llmgw answers while the client waits. Send false or omit it.";

/// Same as `read`, for a multipart form.
async fn read_form(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
    bytes_max: u64,
) -> Result<Arrived, Fault> {
    let limits = &authorized.worker().process.body_limits;
    let content_type = authorized.request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = content_type.and_then(multipart::boundary).ok_or_else(|| {
        let message = "Content-Type must be multipart/form-data with a boundary, and the body must match it.";
        Fault::new(ErrorKind::InvalidRequest, message).closing()
    })?;
    let mut scan = FormScan::new(&boundary);
    let body = body::read(limits, &authorized.request.headers, incoming, bytes_max, &mut |piece: &[u8]| {
        scan.push(piece).map_err(|fault| of_form_fault(fault).closing())
    })
    .await?;
    authorized.exchange.note_body(&body);
    let mut head = Box::new(Head::of_form(scan.finish().map_err(of_form_fault)?));
    override_by_headers(&mut head, authorized);
    authorized.exchange.note_selector(&head.model);
    Ok(Arrived { head, body, early: None })
}

fn of_form_fault(fault: FormFault) -> Fault {
    let param = fault.param().map(Into::into);
    Fault { param, ..Fault::new(ErrorKind::InvalidRequest, fault.to_string()) }
}

/// Headers take precedence over the same fields in the body (FAIL-2).
pub(super) fn override_by_headers(head: &mut Head, authorized: &AuthorizedRequest<'_>) {
    if !authorized.has_own {
        return;
    }
    let (affinity_key, timeout_ms) = (&mut head.affinity_key, &mut head.fallback_timeout_ms);
    let headers = &authorized.request.headers;
    if let Some(key) = headers.get(X_AFFINITY_KEY).and_then(|value| value.to_str().ok()) {
        *affinity_key = Some(key.to_owned());
    }
    if let Some(value) = headers.get(X_FALLBACK_TIMEOUT_MS) {
        *timeout_ms = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    }
}

pub(super) fn of_scan_error(error: &ScanError) -> Fault {
    Fault { param: error.param.clone(), ..Fault::new(ErrorKind::InvalidRequest, error.to_string()) }
}
