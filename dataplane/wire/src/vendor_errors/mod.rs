//! What errors mean, in the words of every vendor. One table, with a source for each row, drives failover, circuits, the
//! client's status and the wording for each client protocol.

mod pattern;
mod table;

use table::{WORDINGS, Wording};

/// The meaning of an error, regardless of its status and its vendor's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorMeaning {
    /// The request is longer than the model's context, or than the vendor ever accepts for the account.
    Overflow,
    /// A filter refused the content of the request or of the answer.
    ContentPolicy,
    /// The account's quota is used up; waiting for seconds does not help.
    Quota,
    /// The account has no money left, or its payment failed.
    Billing,
    /// Too many requests or tokens at the moment.
    RateLimit,
    /// The upstream does not have the model, has retired it, or does not let this account use it.
    UnknownModel,
    /// The model cannot serve this request, but another one may: images, tools, the length of the answer.
    Unsupported,
    /// The upstream rejects the credential.
    Credential,
    /// The output of the model is unusable, although its server is healthy.
    Malformed,
}

/// What clients are told about a meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeaningRow {
    /// The client's status if the upstream's misleads.
    pub(crate) status: u16,
    /// The statuses of upstreams that are passed on.
    pub(crate) statuses: &'static [u16],
    /// OpenAI's codes, of which the first replaces a vendor's own. Empty if the vendor's is kept.
    pub(crate) codes: &'static [&'static str],
    /// OpenAI's `type` with the code.
    pub(crate) kind: &'static str,
    /// Anthropic's `type`; `None` for that of the status.
    pub(crate) anthropic: Option<&'static str>,
}

/// An error with a known meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// The meaning.
    pub meaning: ErrorMeaning,
    /// For an overflow, the tokens of the request and the maximum, if the upstream states both.
    pub tokens: Option<(u64, u64)>,
}

/// The parts of an error that contain its vendor's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorWords<'a> {
    pub(crate) status: u16,
    pub(crate) message: &'a str,
    /// Its code and its type.
    pub(crate) names: [Option<&'a str>; 2],
    /// The member of the request that it refers to.
    pub(crate) param: Option<&'a str>,
}

/// Returns the meaning of an error, if its vendor's words are known.
pub(crate) fn recognise(words: &ErrorWords<'_>) -> Option<Recognised> {
    let message = words.message.to_ascii_lowercase();
    let fits = |row: &&Wording| row.fits(words, &message);
    let first = WORDINGS.iter().filter(|row| may_have(words.status, row.meaning)).find(fits)?;
    let meaning = first.meaning;
    let same = WORDINGS.iter().filter(|row| row.meaning == meaning);
    let tokens = same.flat_map(|row| row.words).find_map(|words| pattern::numbers(words, &message));
    Some(Recognised { meaning, tokens: tokens.filter(|_| meaning == ErrorMeaning::Overflow) })
}

/// Returns true if an error with this status may have the meaning. Others, such as 405, mean what they are.
fn may_have(status: u16, meaning: ErrorMeaning) -> bool {
    match status {
        401 => matches!(meaning, ErrorMeaning::Quota | ErrorMeaning::Billing),
        400 | 402..=404 | 410 | 412 | 413 | 422 | 424 | 429 | 500..=599 => true,
        _ => false,
    }
}

impl Wording {
    fn fits(&self, words: &ErrorWords<'_>, message: &str) -> bool {
        let named = words.names.into_iter().flatten();
        let param_fits = self.param.is_none_or(|param| words.param == Some(param));
        let is_named = |name: &str| self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        param_fits
            && (named.into_iter().any(is_named)
                || self.words.iter().any(|words| pattern::fits(words, message)))
    }
}

impl ErrorMeaning {
    /// Returns the name of the meaning for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overflow => "context too long",
            Self::ContentPolicy => "content policy",
            Self::Quota => "quota used up",
            Self::Billing => "no money left",
            Self::RateLimit => "rate limit",
            Self::UnknownModel => "unknown model",
            Self::Unsupported => "not supported by the model",
            Self::Credential => "credential rejected",
            Self::Malformed => "unusable output",
        }
    }

    pub(crate) fn row(self) -> MeaningRow {
        let (status, statuses, codes, kind, anthropic): (_, &'static [u16], &'static [&'static str], _, _) =
            match self {
                // Claude Code takes a 413 for an image that is too large.
                Self::Overflow => (400, &[400], &["context_length_exceeded"], INVALID, Some(INVALID)),
                Self::ContentPolicy => (400, &[400, 403, 422], POLICY_CODES, INVALID, None),
                Self::Quota => (429, &[402, 403, 429], QUOTA_CODES, "insufficient_quota", None),
                Self::Billing => {
                    (402, &[402, 403, 429], QUOTA_CODES, "insufficient_quota", Some("billing_error"))
                }
                Self::RateLimit => (429, &[429, 503, 529], &[], "rate_limit_error", None),
                Self::UnknownModel => (404, &[400, 403, 404, 410, 422], MODEL_CODES, INVALID, None),
                Self::Unsupported => (400, &[400, 413, 422], &[], INVALID, None),
                Self::Credential => (401, &[401, 403], &[], "authentication_error", None),
                Self::Malformed => (502, &[502], &[], "server_error", None),
            };
        MeaningRow { status, statuses, codes, kind, anthropic }
    }
}

const INVALID: &str = "invalid_request_error";
const POLICY_CODES: &[&str] =
    &["content_filter", "content_policy_violation", "moderation_blocked", "invalid_prompt"];
const QUOTA_CODES: &[&str] = &["insufficient_quota", "billing_hard_limit_reached", "billing_error"];
const MODEL_CODES: &[&str] = &["model_not_found", "model_decommissioned"];

#[cfg(test)]
mod tests;
