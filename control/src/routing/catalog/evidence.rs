//! Evidence about a connection: that it is reachable, that its model list was read, and that it completed a real
//! request. Each is proven separately; none implies another (ADM-8).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use shared::sanitize::diagnostic;

use super::listing::SkippedEntries;

/// The evidence about one connection. An error is kept until the same check succeeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Evidence"))]
#[serde(default)]
pub(crate) struct CatalogEvidence {
    pub(crate) reachable: Reachable,
    pub(crate) catalog: CatalogRead,
    pub(crate) inference: Inference,
}

/// The upstream responded, even if with an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ReachableEvidence"))]
#[serde(default)]
pub(crate) struct Reachable {
    /// The time of the last answer, in milliseconds since the Unix epoch; null if there was none.
    pub(crate) at_ms: Option<u64>,
    /// The check that found it: `sync`, `test completion`; null if there was none.
    pub(crate) by: Option<Cow<'static, str>>,
    /// The failure since then; null if there was none.
    pub(crate) last_error: Option<CatalogFailure>,
}

/// The model list was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CatalogReadEvidence"))]
#[serde(default)]
pub(crate) struct CatalogRead {
    /// The time of the last reading, in milliseconds since the Unix epoch; null if there was none.
    pub(crate) synced_at_ms: Option<u64>,
    /// The number of models in the list.
    pub(crate) models: u64,
    pub(crate) skipped: SkippedEntries,
    /// The failure since then; null if there was none.
    pub(crate) last_error: Option<CatalogFailure>,
}

/// The upstream completed a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "InferenceEvidence"))]
#[serde(default)]
pub(crate) struct Inference {
    /// The time of the last success, in milliseconds since the Unix epoch; null if there was none.
    pub(crate) proven_at_ms: Option<u64>,
    /// The model that answered; null if there was no success.
    pub(crate) model: Option<String>,
    /// The time of the last answer to any request, in milliseconds since the Unix epoch, whatever the credential was then; null if
    /// none is known. Answers before a restart are known to the minute. It is not stored here.
    pub(crate) last_answered_at_ms: Option<u64>,
    /// The request ID of the test that proved it; `GET requests/{id}` shows its record. Null if there was no success.
    pub(crate) request_id: Option<String>,
    /// The failure since then; null if there was none.
    pub(crate) last_error: Option<CatalogFailure>,
}

/// The evidence that one model completes requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct ModelEvidence {
    /// The time of the last success, in milliseconds since the Unix epoch; null if there was none.
    pub(crate) proven_at_ms: Option<u64>,
    /// The request ID of the test that proved it; `GET requests/{id}` shows its record. Null if there was no success.
    pub(crate) request_id: Option<String>,
    /// The failure since then; null if there was none.
    pub(crate) last_error: Option<CatalogFailure>,
}

impl ModelEvidence {
    /// Returns the time of the last test.
    pub(crate) fn tested_at_ms(&self) -> Option<u64> {
        self.proven_at_ms.max(self.last_error.as_ref().map(|failure| failure.at_ms))
    }
}

/// A failed check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Failure"))]
#[serde(default)]
pub(crate) struct CatalogFailure {
    /// In milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    /// The status of the upstream's response; null if there was no response.
    pub(crate) status: Option<u16>,
    pub(crate) message: String,
    /// A hint for the operator about the likely cause; null if there is none.
    pub(crate) hint: Option<Cow<'static, str>>,
}

impl CatalogFailure {
    /// Builds the failure for an upstream response with `status`, whose text `message` may quote one of `secrets`.
    pub(crate) fn answered(at_ms: u64, status: u16, message: &str, secrets: &[&str]) -> Self {
        let hint = hint_of_status(status).map(Cow::Borrowed);
        Self { at_ms, status: Some(status), message: one_line(message, secrets), hint }
    }

    /// Builds the failure for a request without a response; `message` is the reason.
    pub(crate) fn unanswered(at_ms: u64, message: &str, secrets: &[&str]) -> Self {
        let hint = Some(Cow::Borrowed(hint_of_silence(message)));
        Self { at_ms, status: None, message: one_line(message, secrets), hint }
    }
}

impl CatalogEvidence {
    /// Records the result of a request as evidence of reachability; any response counts.
    pub(crate) fn reached(&mut self, now_ms: u64, by: &'static str, failure: Option<&CatalogFailure>) {
        match failure {
            Some(failure) if failure.status.is_none() => self.reachable.last_error = Some(failure.clone()),
            Some(_) | None => {
                self.reachable =
                    Reachable { at_ms: Some(now_ms), by: Some(Cow::Borrowed(by)), last_error: None };
            }
        }
    }
}

/// Returns a hint about the likely causes of an upstream's status.
pub(crate) fn hint_of_status(status: u16) -> Option<&'static str> {
    match status {
        401 | 403 => {
            Some("Check the credential and its scope: it may be wrong, expired, or not entitled to this.")
        }
        402 | 429 => Some("Check the provider's quota and billing."),
        404 => {
            Some("Check the model, deployment or region: it does not exist at this address of the provider.")
        }
        400 | 405 | 422 => Some("Check the base URL, and that the model supports this kind of request."),
        500..=599 => Some("The provider failed. Try again."),
        _ => None,
    }
}

fn hint_of_silence(message: &str) -> &'static str {
    let message = message.to_ascii_lowercase();
    let contains_any = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if contains_any(&["tls", "certificate"]) {
        "Check http or https in the base URL, and the certificate; LLMGW_EXTRA_CA_FILE adds an authority."
    } else if contains_any(&["in time", "timed out", "timeout"]) {
        "It was too slow. A local server may still be loading the model: try again."
    } else {
        "Check the base URL, that the server runs, and the network."
    }
}

/// Redacts credentials from `message`, removes control characters and limits its length.
fn one_line(message: &str, secrets: &[&str]) -> String {
    let clean = diagnostic(message, secrets);
    let line: String =
        clean.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect();
    line.trim().to_owned()
}

const MESSAGE_CHARS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_explain_statuses_and_connection_errors() {
        for (status, word) in [
            (401, "scope"),
            (403, "scope"),
            (404, "model, deployment or region"),
            (429, "quota and billing"),
            (503, "The provider failed"),
        ] {
            assert!(hint_of_status(status).unwrap().contains(word), "{status}");
        }
        assert_eq!(hint_of_status(418), None);
        for (message, word) in [
            ("connection refused", "base URL"),
            ("TLS handshake failed", "LLMGW_EXTRA_CA_FILE"),
            ("no complete response in time", "too slow"),
        ] {
            assert!(hint_of_silence(message).contains(word), "{message}");
        }
    }

    #[test]
    fn a_message_is_short_and_holds_no_secret() {
        let text = format!("no\nkey my-own-secret-key {}", "x ".repeat(1_000));
        let failure = CatalogFailure::answered(1, 401, &text, &["my-own-secret-key"]);
        assert!(failure.message.len() <= MESSAGE_CHARS_MAX && failure.message.starts_with("no key "));
        assert!(!failure.message.contains("my-own-secret"), "{}", failure.message);
    }

    #[test]
    fn an_error_status_proves_only_that_the_upstream_is_reachable() {
        let mut evidence = CatalogEvidence::default();
        evidence.reached(1, "sync", Some(&CatalogFailure::unanswered(1, "connection refused", &[])));
        assert!(evidence.reachable.at_ms.is_none() && evidence.reachable.last_error.is_some());
        evidence.reached(2, "sync", Some(&CatalogFailure::answered(2, 401, "no", &[])));
        assert_eq!((evidence.reachable.at_ms, &evidence.reachable.last_error), (Some(2), &None));
        assert_eq!((evidence.catalog, evidence.inference), (CatalogRead::default(), Inference::default()));
    }
}
