//! Failures of an attempt: the error text for the client, and whether another attempt makes sense.

use std::io;
use std::pin::pin;
use std::time::Duration;

use http::HeaderValue;
use rustix::io::Errno;
use shared::error_kind::ErrorKind;
use shared::error_rule::AppliedRule;
use shared::health::Evidence;
use shared::operation::Dialect;
use shared::routing::{ProviderInstance, Renew};
use shared::usage::{StepResult, TokenCounts};
use wire::adapt::client_param;
use wire::envelope::{self, StreamError, UpstreamAnswer};
use wire::extras::Extras;
use wire::retry;

use super::AttemptParams;
use super::timeouts::AttemptTimeouts;
use super::verdict::{KeyBlame, Next, Verdict, after_wait, by_rules, refuses_token, sort};
use crate::adapt::AnswerReader;
use crate::record::{FailedStep, Used};
use crate::upstream::dial::DialError;
use crate::upstream::{KeptHeaders, SendError, UpstreamResponse};

/// The failure of an attempt.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) result: StepResult,
    pub(crate) kind: ErrorKind,
    pub(crate) next: Next,
    /// The conclusion about the health of the target.
    pub(crate) evidence: Evidence,
    /// True if the request was sent on a connection that had been idle, and the upstream closed it without sending a
    /// byte of an answer. This is no evidence about the upstream, and a pause before a retry would not help.
    pub(crate) stale: bool,
    /// True if the upstream has certainly not started the operation: it was not reached, or it rejected the request.
    pub(crate) idle: bool,
    /// True if the upstream was too slow with the first content. No circuit counts it, but the order `fastest` does.
    pub(crate) slow: bool,
    /// The rule of the provider instance that decided the next step.
    pub(crate) rule: Option<AppliedRule>,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    /// The upstream's own error, sanitized.
    pub(crate) error: Option<Box<StreamError>>,
    pub(crate) message: String,
    /// True if the access token was rejected, and another one is available or being requested.
    pub(crate) renewing: bool,
    /// The reason if the upstream refused the request because of its key; another key may be served.
    pub(crate) blame: Option<KeyBlame>,
    /// The consumption that the upstream reported despite the failure.
    pub(crate) used: Option<Box<Used>>,
}

/// The retry time for clients after a lack of sockets.
const LOCAL_WAIT: Duration = Duration::from_secs(1);
/// The maximum number of bytes read of an upstream's error body.
pub(crate) const ERROR_BYTES_MAX: usize = 64 << 10;
impl Failure {
    /// Creates a failure that may be retried and counts for the circuit of the provider instance.
    pub(super) fn new(result: StepResult, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            result,
            kind,
            next: Next::Retry,
            evidence: Evidence::InstanceFailed,
            stale: false,
            idle: false,
            slow: false,
            rule: None,
            status: None,
            retry_after: None,
            error: None,
            message: message.into(),
            renewing: false,
            blame: None,
            used: None,
        }
    }

    /// Returns the part of the failure that the record contains.
    pub(super) fn step(&self) -> FailedStep<'_> {
        FailedStep {
            result: self.result,
            status: self.status,
            message: &self.message,
            retry_after: self.retry_after,
            used: self.used.as_deref(),
            rule: self.rule,
            is_slow: self.slow,
            is_of_target: match self.evidence {
                Evidence::ModelFailed | Evidence::InstanceFailed | Evidence::RateLimited => true,
                Evidence::Served | Evidence::Alive | Evidence::Nothing => self.slow,
            },
        }
    }

    /// Adds the consumption that the upstream reported for the attempt.
    pub(super) fn having_used(self, used: Option<(TokenCounts, Extras)>) -> Self {
        let used = used.filter(|(tokens, extras)| tokens.total() > 0 || !extras.units.is_empty());
        let used = used.map(|(tokens, extras)| Box::new(Used { tokens, extras }));
        Self { used: used.or(self.used), ..self }
    }
}

impl Failure {
    /// Returns the failure of an operation that must be started only once, because each start is billed. Unless it
    /// was certainly not started, it is not retried, and the message explains why.
    pub(crate) fn once(self) -> Self {
        if self.idle {
            return self;
        }
        let message = format!("{} {PERHAPS_BEGUN}", self.message);
        Self { next: Next::Stop, error: None, message, ..self }
    }

    /// Adds `note` to the upstream's error.
    pub(super) fn add_note(&mut self, note: &str) {
        let texts = [Some(&mut self.message), self.error.as_mut().map(|error| &mut error.message)];
        for text in texts.into_iter().flatten() {
            text.push_str(match text.chars().next_back() {
                None => "",
                Some('.' | '!' | '?') => " ",
                Some(_) => ". ",
            });
            text.push_str(note);
        }
    }
}

const PERHAPS_BEGUN: &str =
    "The video may have been started, so llmgw does not retry: a retry could be billed as a second video.";

/// Returns the secrets that must be redacted from everything that `provider` returns.
pub(crate) fn secrets(provider: &ProviderInstance) -> Vec<&str> {
    provider.secrets()
}

/// Returns the failure for a request without a response head.
pub(crate) fn of_send_error(error: &SendError, provider: &ProviderInstance) -> Failure {
    let id = &provider.id;
    match error {
        SendError::Dial(error) => {
            log_dial_error(error, provider);
            of_dial_error(error, provider)
        }
        // One of the requests that waited for the connection logs and counts its failure.
        SendError::Followed(error) => {
            Failure { evidence: Evidence::Nothing, ..of_dial_error(error, provider) }
        }
        SendError::Local(error) => {
            log_local_fault(error, provider);
            of_local_fault(error, provider)
        }
        SendError::Stale => {
            let message = format!("The connection to the provider '{id}' was closed before it answered.");
            let failure = Failure::new(StepResult::Unreachable, ErrorKind::UpstreamUnreachable, message);
            Failure { stale: true, evidence: Evidence::Nothing, ..failure }
        }
        SendError::Broke(error) => {
            tracing::warn!(provider.id = %id, error = %error, "the connection to the provider broke before \
                 a response");
            let message = format!("The connection to the provider '{id}' broke before it answered.");
            Failure::new(StepResult::Unreachable, ErrorKind::UpstreamUnreachable, message)
        }
        SendError::Invalid(why) => {
            let message = format!("The provider '{id}' sent an invalid response: {why}.");
            Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message)
        }
    }
}

fn log_dial_error(error: &DialError, provider: &ProviderInstance) {
    let id = &provider.id;
    match error {
        DialError::Refused(address) => {
            tracing::warn!(provider.id = %id, %address, "the provider resolves to a forbidden address");
        }
        DialError::Local(error) => log_local_fault(error, provider),
        error => tracing::warn!(provider.id = %id, error = %error, "cannot connect to the provider"),
    }
}

fn log_local_fault(error: &io::Error, provider: &ProviderInstance) {
    tracing::error!(provider.id = %provider.id, error = %error, "the gateway lacks a resource for a connection to \
         the provider");
}

/// Returns the failure for a request without a connection.
fn of_dial_error(error: &DialError, provider: &ProviderInstance) -> Failure {
    let id = &provider.id;
    match error {
        DialError::Refused(_) => {
            let message = format!(
                "The provider '{id}' resolves to a link-local or metadata address, to \
                                   which llmgw never connects."
            );
            let failure = Failure::new(StepResult::AddressRefused, ErrorKind::UpstreamUnreachable, message);
            Failure { next: Next::FailOver, idle: true, ..failure }
        }
        DialError::Local(error) => of_local_fault(error, provider),
        DialError::Unresolved(_) | DialError::Io(_) | DialError::TimedOut | DialError::Proxy(_) => {
            let message = format!("The provider '{id}' cannot be reached: {}.", error.cause());
            let failure = Failure::new(StepResult::Unreachable, ErrorKind::UpstreamUnreachable, message);
            let is_lasting = matches!(error, DialError::Proxy(fault) if fault.is_lasting());
            let next = if is_lasting { Next::FailOver } else { failure.next };
            Failure { idle: true, next, ..failure }
        }
    }
}

/// Returns the failure for a lack of local resources for a connection or a write. The provider is not at fault.
fn of_local_fault(error: &io::Error, provider: &ProviderInstance) -> Failure {
    let id = &provider.id;
    let (lack, cure) = match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => {
            ("file descriptors", "raise its limit of open files (ulimit -n)")
        }
        Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => {
            ("local ports", "widen net.ipv4.ip_local_port_range or spread the load over more addresses")
        }
        _ => ("memory for sockets", "give it more memory"),
    };
    let message = format!(
        "The gateway has no free {lack} for a connection to the provider '{id}'. Try again later; its operator can \
         {cure} or admit fewer connections."
    );
    Failure {
        next: Next::FailOver,
        evidence: Evidence::Nothing,
        idle: true,
        retry_after: Some(LOCAL_WAIT),
        ..Failure::new(StepResult::NoSocket, ErrorKind::Overloaded, message)
    }
}

/// Returns the failure for an error status: reads the upstream's error body and classifies it (FAIL-3).
pub(super) async fn of_status(
    params: &AttemptParams<'_>,
    answer: &mut UpstreamResponse,
    provider: &ProviderInstance,
    timeouts: &mut AttemptTimeouts<'_>,
) -> Failure {
    let status = answer.status;
    let mut body = Vec::new();
    let silence = provider.stream_idle_timeout.min(provider.timeout);
    while let Ok(Some(Ok(bytes))) = timeouts.wait(silence, pin!(answer.body.data())).await {
        let left = ERROR_BYTES_MAX - body.len();
        body.extend_from_slice(bytes.split_at(bytes.len().min(left)).0);
        if body.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    answer.body.recycle(&params.job.worker.upstreams, provider);
    if status < 400 {
        let message = format!(
            "The provider '{}' answered with a redirect or an unexpected status; redirects are not followed.",
            provider.id
        );
        let failure = Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message);
        return Failure { next: Next::FailOver, idle: true, status: Some(status), ..failure };
    }
    let kind = answer.head.rare.as_ref().and_then(|rare| rare.error_type.as_ref()?.to_str().ok());
    let body = match kind {
        Some(kind) => envelope::with_error_type(&body, kind),
        None => body,
    };
    let content_type = answer.head.content_type.as_ref().and_then(|value| value.to_str().ok());
    let secrets = secrets(provider);
    let error = UpstreamAnswer { status, content_type, body: &body, secrets: &secrets }.diagnosis();
    let retry_after = wait_hint(&answer.head).or_else(|| retry::retry_info(&body));
    let failure = of_error(params, provider, (status, error), retry_after);
    failure.having_used(params.reader.usage_in(&body))
}

/// Returns the failure for an upstream's status and sanitized error, which may name a wait.
fn of_error(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    (status, mut error): (u16, StreamError),
    retry_after: Option<Duration>,
) -> Failure {
    let sorted = match retry_after {
        Some(wait) if !wait.is_zero() => after_wait(sort(status, &error), status, &error),
        _ => sort(status, &error),
    };
    let Verdict { next, evidence, rule, blame } = by_rules(provider, (status, &error), sorted);
    let renewing = refuses_token(status, &error) && provider.renew.as_ref().is_some_and(Renew::call);
    let message = error.message.clone();
    if let AnswerReader::Adapted { client, target, .. } = &params.reader {
        let param = error.param.as_deref().and_then(|param| client_param(*client, *target, param));
        error.param = param.map(str::to_owned);
    }
    Failure {
        next,
        // An expired token is no evidence about the upstream.
        evidence: if renewing { Evidence::Nothing } else { evidence },
        idle: matches!(status, 400..=407 | 409..=499),
        rule,
        renewing,
        blame,
        status: Some(status),
        retry_after,
        error: Some(Box::new(error)),
        ..Failure::new(StepResult::Status, ErrorKind::UpstreamStatus, message)
    }
}

/// Returns the wait that the upstream asks for.
pub(crate) fn wait_hint(head: &KeptHeaders) -> Option<Duration> {
    let text = |value: &Option<HeaderValue>| value.as_ref()?.to_str().ok().map(str::to_owned);
    let now_ms = shared::clock::unix_ms();
    let rare = head.rare.as_deref()?;
    text(&rare.retry_after_ms)
        .and_then(|value| retry::retry_after_ms(&value))
        .or_else(|| text(&rare.retry_after).and_then(|value| retry::retry_after(&value, now_ms)))
        .or(rare.spent_wait)
}

pub(super) fn broke_off(provider: &ProviderInstance) -> Failure {
    let message = format!("The provider '{}' closed the stream before it sent any content.", provider.id);
    Failure::new(StepResult::StreamEnded, ErrorKind::UpstreamInvalid, message)
}

/// Returns the failure for an error event inside a 200 response, before any content. It is treated like a response
/// with that error status.
pub(super) fn of_stream_error(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    error: &StreamError,
) -> Failure {
    let status = error.status.filter(|status| (400..600).contains(status)).unwrap_or(500);
    let error = error.sanitized(&secrets(provider));
    let failure = of_error(params, provider, (status, error), None);
    // An image must not be generated twice at one target, because the target bills each.
    let next = match failure.next {
        Next::Stop if failure.rule.is_some() => Next::Stop,
        _ if params.job.head.dialect == Dialect::Images => Next::FailOver,
        next => next,
    };
    Failure { result: StepResult::StreamError, next, ..failure }
}
