//! Signatures of thoughts. A Gemini client sends `thoughtSignature` back on the part where it stood, so it also carries the
//! signed thoughts of Claude and the encrypted reasoning of Responses targets, which only their authors can read.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::normal::standard;
use crate::adapt::carried_reasoning::{self, MARK};

/// The members of the normal form that hold what a signature carries.
pub(super) const CLAUDE: &str = "claudeSignature";
pub(super) const REDACTED: &str = "claudeRedacted";
pub(super) const ENCRYPTED: &str = "encryptedReasoning";
/// The words behind the mark, one for each kind of thought of Claude.
const SIGNED: &str = "signed:";
const HIDDEN: &str = "hidden:";
/// Clients write this in place of a signature that they lack.
const SKIP: &str = "skip_thought_signature_validator";

/// The content of a signature.
pub(super) enum Carried<'a> {
    /// Gemini's own signature.
    Own(Cow<'a, str>),
    /// The signature of a thought of Claude.
    Claude(String),
    /// A thought of Claude that is hidden.
    Redacted(String),
    /// The encrypted reasoning of a Responses target.
    Encrypted(String),
    /// No signature.
    Nothing,
}

/// Reads a signature in either alphabet.
pub(super) fn read(signature: &str) -> Carried<'_> {
    if signature.is_empty() || signature == SKIP {
        return Carried::Nothing;
    }
    let Some(text) = standard(signature) else { return Carried::Own(signature.into()) };
    let carried = STANDARD.decode(text.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let carried = carried.as_deref().and_then(|carried| carried.strip_prefix(MARK));
    match carried.map(|carried| (carried.strip_prefix(SIGNED), carried.strip_prefix(HIDDEN))) {
        Some((Some(signature), _)) => Carried::Claude(signature.to_owned()),
        Some((None, Some(data))) => Carried::Redacted(data.to_owned()),
        Some((None, None)) => {
            let reasoning = carried.and_then(carried_reasoning::carried);
            reasoning.map_or(Carried::Nothing, |reasoning| Carried::Encrypted(reasoning.to_owned()))
        }
        None => Carried::Own(text),
    }
}

/// Returns the signature that carries the signature of a thought of Claude.
pub(super) fn signed(signature: &str) -> String {
    STANDARD.encode([MARK, SIGNED, signature].concat())
}

/// Returns the signature that carries a hidden thought of Claude.
pub(super) fn hidden(data: &str) -> String {
    STANDARD.encode([MARK, HIDDEN, data].concat())
}
