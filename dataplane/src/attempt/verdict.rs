//! The consequence of an upstream's error for the request: retry, fail over, or stop (FAIL-3).

use shared::error_rule::{AppliedRule, ErrorRule, ErrorThen};
use shared::health::Evidence;
use shared::routing::ProviderInstance;
use wire::envelope::StreamError;
use wire::vendor_errors::ErrorMeaning;

/// The next step after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another attempt at the same target, then the next target.
    Retry,
    /// The next target.
    FailOver,
    /// No further attempt: the request itself is at fault.
    Stop,
}

/// Returns the next step after an error, and the conclusion about the target's health (FAIL-4).
pub(super) fn sort(status: u16, error: &StreamError) -> (Next, Evidence) {
    use Evidence::{Alive, InstanceFailed, ModelFailed};
    match error.meaning(status).map(|read| read.meaning) {
        Some(ErrorMeaning::UnknownModel) => (Next::FailOver, ModelFailed),
        // Waiting does not help, another account may.
        Some(ErrorMeaning::Quota | ErrorMeaning::Billing | ErrorMeaning::Credential) => {
            (Next::FailOver, InstanceFailed)
        }
        Some(ErrorMeaning::Overflow | ErrorMeaning::Unsupported) => (Next::FailOver, Alive),
        // The vendor has decided. Another vendor is not asked to decide otherwise.
        Some(ErrorMeaning::ContentPolicy) => (Next::Stop, Alive),
        Some(ErrorMeaning::Malformed) => (Next::Retry, Alive),
        Some(ErrorMeaning::RateLimit) => of_status(429),
        None => of_status(status),
    }
}

/// Returns the next step after an error status alone (FAIL-3).
fn of_status(status: u16) -> (Next, Evidence) {
    use Evidence::{Alive, InstanceFailed, ModelFailed, RateLimited};
    match status {
        429 => (Next::Retry, RateLimited),
        408 | 500 | 502 | 503 | 504 | 520..=524 | 529 => (Next::Retry, InstanceFailed),
        401..=403 => (Next::FailOver, InstanceFailed),
        // 424: the model behind Bedrock failed; the request is valid.
        404 | 424 => (Next::FailOver, ModelFailed),
        400..=499 => (Next::Stop, Alive),
        _ => (Next::FailOver, InstanceFailed),
    }
}

/// Returns the verdict on an error that names a wait, for which [`sort`] returned `verdict`: an upstream that will serve
/// after it limits the rate of requests. Vendors word a limit per minute like used-up credit, but credit has no wait.
pub(super) fn after_wait(verdict: (Next, Evidence), status: u16, error: &StreamError) -> (Next, Evidence) {
    let names = [error.code.as_deref(), error.kind.as_deref()];
    let is_credit = names.into_iter().flatten().any(|name| name.eq_ignore_ascii_case(NO_CREDIT));
    match (status, verdict) {
        (429, (_, Evidence::InstanceFailed | Evidence::RateLimited)) if !is_credit => {
            (Next::Retry, Evidence::RateLimited)
        }
        (503 | 529, (next, Evidence::InstanceFailed)) => (next, Evidence::RateLimited),
        _ => verdict,
    }
}

/// Returns the verdict on an error by the rules of the provider instance; without a rule that fits, it is `sorted`.
pub(super) fn by_rules(
    provider: &ProviderInstance,
    (status, error): (u16, &StreamError),
    sorted: (Next, Evidence),
) -> Verdict {
    let texts = [error.code.as_deref(), error.kind.as_deref(), Some(error.message.as_str())];
    let rule = ErrorRule::first_of(&provider.error_rules, status, texts);
    let (next, evidence) = rule.map_or(sorted, |rule| by_rule(rule.then, sorted));
    // A rule of the operator says where the request goes.
    let blame = KeyBlame::of(status, error, evidence).filter(|_| rule.is_none());
    Verdict { next, evidence, rule, blame }
}

/// Returns the verdict on an error to which a rule applies; `sorted` is the verdict without it.
fn by_rule(then: ErrorThen, sorted: (Next, Evidence)) -> (Next, Evidence) {
    match then {
        ErrorThen::Next => (Next::FailOver, Evidence::Alive),
        ErrorThen::Retry => (Next::Retry, sorted.1),
        ErrorThen::Rest => (Next::Retry, Evidence::RateLimited),
        ErrorThen::Stop => (Next::Stop, Evidence::Alive),
    }
}

/// The error code for used-up credit.
const NO_CREDIT: &str = "insufficient_quota";

/// The consequences of an error at a provider instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) next: Next,
    pub(crate) evidence: Evidence,
    /// The rule of the provider that decided, if any.
    pub(crate) rule: Option<AppliedRule>,
    /// The reason for which the upstream refuses the key; none if a rule decided.
    pub(crate) blame: Option<KeyBlame>,
}

impl Verdict {
    /// Returns what follows from an error status with this text.
    pub(crate) fn of(provider: &ProviderInstance, status: u16, text: Option<&str>) -> Self {
        let error = StreamError::of_words(text.unwrap_or_default());
        let sorted = if text.is_some() { sort(status, &error) } else { of_status(status) };
        by_rules(provider, (status, &error), sorted)
    }
}

/// Returns true if the upstream rejects an access token, which may have been valid a moment ago.
pub(super) fn refuses_token(status: u16, error: &StreamError) -> bool {
    status == 401 || (status == 403 && has_phrase(error, TOKEN_ENDED))
}

/// The reason why an upstream refused a request because of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyBlame {
    /// It is rejected, or its credit is used up.
    Rejected,
    /// It limits the rate of requests.
    Limited,
}

impl KeyBlame {
    /// Returns what the error, from which `evidence` was concluded, says about the key. A 403 may be about a permission or a
    /// model, which no other key changes; only the words of a rejected token are about the key.
    fn of(status: u16, error: &StreamError, evidence: Evidence) -> Option<Self> {
        let meaning = error.meaning(status).map(|read| read.meaning);
        match evidence {
            Evidence::RateLimited => {
                let is_limit = status == 429 || meaning == Some(ErrorMeaning::RateLimit);
                is_limit.then_some(Self::Limited)
            }
            Evidence::InstanceFailed => {
                let named = matches!(
                    meaning,
                    Some(ErrorMeaning::Quota | ErrorMeaning::Billing | ErrorMeaning::Credential)
                );
                let is_rejected = named || matches!(status, 401 | 402) || refuses_token(status, error);
                is_rejected.then_some(Self::Rejected)
            }
            Evidence::Served | Evidence::Alive | Evidence::ModelFailed | Evidence::Nothing => None,
        }
    }
}

const TOKEN_ENDED: &[&str] = &["token expired", "token has expired", "expired token", "access_token_expired"];

fn has_phrase(error: &StreamError, phrases: &[&str]) -> bool {
    let message = error.message.to_ascii_lowercase();
    let names = [error.code.as_deref(), error.kind.as_deref()];
    phrases.iter().any(|phrase| {
        message.contains(phrase) || names.into_iter().flatten().any(|name| name.eq_ignore_ascii_case(phrase))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_verdict() {
        use Evidence::{Alive, InstanceFailed, ModelFailed, RateLimited};
        use Next::{FailOver, Retry, Stop};
        let table: &[(u16, &str, Next, Evidence)] = &[
            (400, "bad field", Stop, Alive),
            (400, "This model's maximum context length is 8192 tokens", FailOver, Alive),
            (400, "model does not support image input", FailOver, Alive),
            (401, "bad key", FailOver, InstanceFailed),
            (402, "pay", FailOver, InstanceFailed),
            (403, "no", FailOver, InstanceFailed),
            (400, "The requested model 'm' is not a valid model ID", FailOver, ModelFailed),
            (400, "The provided model identifier is invalid.", FailOver, ModelFailed),
            (400, "The model has been decommissioned and is no longer supported.", FailOver, ModelFailed),
            (403, "Project `p` does not have access to model `m`", FailOver, ModelFailed),
            (404, "no such path", FailOver, ModelFailed),
            (405, "", Stop, Alive),
            (408, "", Retry, InstanceFailed),
            (409, "", Stop, Alive),
            (413, "", Stop, Alive),
            (413, "prompt is too long", FailOver, Alive),
            (422, "", Stop, Alive),
            (424, "", FailOver, ModelFailed),
            (429, "slow down", Retry, RateLimited),
            (429, "You exceeded your current quota", FailOver, InstanceFailed),
            (500, "", Retry, InstanceFailed),
            (501, "", FailOver, InstanceFailed),
            (502, "", Retry, InstanceFailed),
            (503, "", Retry, InstanceFailed),
            (504, "", Retry, InstanceFailed),
            (520, "", Retry, InstanceFailed),
            (524, "", Retry, InstanceFailed),
            (529, "", Retry, InstanceFailed),
        ];
        for (status, message, next, evidence) in table {
            let error = StreamError { message: (*message).to_owned(), ..StreamError::default() };
            assert_eq!(sort(*status, &error), (*next, *evidence), "{status} {message}");
        }
    }

    #[test]
    fn an_error_with_a_wait_is_a_rate_limit_unless_credit_is_used_up() {
        use Evidence::{InstanceFailed, RateLimited};
        use Next::{FailOver, Retry};
        for (status, code, message, want) in [
            (429, "", "slow down", (Retry, RateLimited)),
            (429, "", "You exceeded your current quota, please check your plan", (Retry, RateLimited)),
            (429, "insufficient_quota", "You exceeded your current quota", (FailOver, InstanceFailed)),
            (503, "", "overloaded", (Retry, RateLimited)),
            (529, "", "Overloaded", (Retry, RateLimited)),
            (500, "", "broken", (Retry, InstanceFailed)),
            (402, "", "pay", (FailOver, InstanceFailed)),
        ] {
            let code = Some(code.to_owned());
            let error = StreamError { message: message.to_owned(), code, ..StreamError::default() };
            assert_eq!(after_wait(sort(status, &error), status, &error), want, "{status} {message}");
        }
    }

    #[test]
    fn a_refused_token_is_distinguished_from_a_refused_request() {
        for (status, message, want) in [
            (401, "Request had invalid authentication credentials.", true),
            (403, "The access token expired.", true),
            (403, "Caller does not have the permission aiplatform.endpoints.predict", false),
            (400, "token expired", false),
        ] {
            let error = StreamError { message: message.to_owned(), ..StreamError::default() };
            assert_eq!(refuses_token(status, &error), want, "{status} {message}");
        }
    }

    #[test]
    fn error_codes_give_the_same_verdicts_as_messages() {
        let error = StreamError { code: Some("insufficient_quota".to_owned()), ..StreamError::default() };
        assert_eq!(sort(429, &error), (Next::FailOver, Evidence::InstanceFailed));
        let error = StreamError { code: Some("model_decommissioned".to_owned()), ..StreamError::default() };
        assert_eq!(sort(400, &error), (Next::FailOver, Evidence::ModelFailed));
        let (message, param) = ("The model `m` does not exist".to_owned(), Some("model".to_owned()));
        let error = StreamError { message, param, ..StreamError::default() };
        assert_eq!(sort(400, &error), (Next::FailOver, Evidence::ModelFailed));
    }
}
