//! What an upstream's error means for the request: try again, try elsewhere, or give up (FAIL-3).

use wire::envelope::StreamError;

/// What makes sense after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another attempt at the same target, then the next one.
    Retry,
    /// The next target.
    FailOver,
    /// Nothing: the request itself is at fault.
    Stop,
}

/// What to do after an error status, and whether the circuit counts it.
pub(super) fn sort(status: u16, error: &StreamError) -> (Next, bool) {
    match status {
        429 if says(error, QUOTA) => (Next::FailOver, true),
        408 | 429 | 500 | 502 | 503 | 504 | 520..=524 | 529 => (Next::Retry, true),
        // 424: the model behind Bedrock failed, not the request.
        401..=404 | 424 => (Next::FailOver, true),
        400 | 413 | 422 if says(error, REQUEST_SHAPE) => (Next::FailOver, false),
        400..=499 => (Next::Stop, false),
        _ => (Next::FailOver, true),
    }
}

/// Whether the upstream finds an access token to be no good, which it may have been a moment ago.
pub(super) fn refuses_token(status: u16, error: &StreamError) -> bool {
    status == 401 || (status == 403 && says(error, TOKEN_ENDED))
}

const TOKEN_ENDED: &[&str] = &["token expired", "token has expired", "expired token", "access_token_expired"];

/// The account cannot pay for more: waiting does not help, another provider may.
const QUOTA: &[&str] = &[
    "insufficient_quota",
    "billing",
    "exceeded your current quota",
    "credit balance",
    "insufficient balance",
];

/// The model cannot take this request, but another one may.
const REQUEST_SHAPE: &[&str] = &[
    "context_length_exceeded",
    "context length",
    "context window",
    "maximum context",
    "prompt is too long",
    "too many tokens",
    "does not support image",
    "image input",
    "does not support tool",
    "tool use is not supported",
    "tools are not supported",
    "does not support function",
];

fn says(error: &StreamError, phrases: &[&str]) -> bool {
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
        use Next::{FailOver, Retry, Stop};
        let table: &[(u16, &str, Next, bool)] = &[
            (400, "bad field", Stop, false),
            (400, "This model's maximum context length is 8192 tokens", FailOver, false),
            (400, "model does not support image input", FailOver, false),
            (401, "bad key", FailOver, true),
            (402, "pay", FailOver, true),
            (403, "no", FailOver, true),
            (404, "no such model", FailOver, true),
            (405, "", Stop, false),
            (408, "", Retry, true),
            (409, "", Stop, false),
            (413, "", Stop, false),
            (413, "prompt is too long", FailOver, false),
            (422, "", Stop, false),
            (424, "", FailOver, true),
            (429, "slow down", Retry, true),
            (429, "You exceeded your current quota", FailOver, true),
            (500, "", Retry, true),
            (501, "", FailOver, true),
            (502, "", Retry, true),
            (503, "", Retry, true),
            (504, "", Retry, true),
            (520, "", Retry, true),
            (524, "", Retry, true),
            (529, "", Retry, true),
        ];
        for (status, message, next, counts) in table {
            let error = StreamError { message: (*message).to_owned(), ..StreamError::default() };
            assert_eq!(sort(*status, &error), (*next, *counts), "{status} {message}");
        }
    }

    #[test]
    fn a_refused_token_is_told_from_a_refused_request() {
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
    fn codes_speak_as_messages_do() {
        let error = StreamError { code: Some("insufficient_quota".to_owned()), ..StreamError::default() };
        assert_eq!(sort(429, &error), (Next::FailOver, true));
    }
}
