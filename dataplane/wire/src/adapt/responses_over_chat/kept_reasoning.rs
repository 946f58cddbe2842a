//! The reasoning of an answer as Responses clients keep it: sealed by the gateway, because only the target may read its
//! signatures and nobody may change what it sees of its own thoughts.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use shared::reasoning_seal::{PREFIX, ReasoningSeal};

use crate::adapt::{Rejection, loss};
use crate::chat::request::SignedThought;
use crate::chat::{AnswerText, ThinkingDelta, ThinkingPart};

/// The content of sealed reasoning. Absent parts take no room.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KeptReasoning {
    /// The text, if the thoughts do not contain it.
    #[serde(rename = "x", skip_serializing_if = "String::is_empty")]
    text: String,
    /// Anthropic's signed thoughts.
    #[serde(rename = "t", skip_serializing_if = "Vec::is_empty")]
    thoughts: Vec<KeptThought>,
    /// Gemini's signature of the thoughts that precede the text of the answer.
    #[serde(rename = "g", skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct KeptThought {
    #[serde(rename = "x", skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(rename = "s", skip_serializing_if = "String::is_empty")]
    signature: String,
    /// The content of a redacted thought.
    #[serde(rename = "r", skip_serializing_if = "String::is_empty")]
    redacted: String,
    /// The index of the block in the answer, while it arrives.
    #[serde(skip)]
    index: u64,
}

impl KeptReasoning {
    /// Adds a piece of signed thoughts.
    pub(super) fn add(&mut self, piece: &ThinkingDelta<'_>) {
        if self.thoughts.last().is_none_or(|thought| thought.index != piece.index) {
            self.thoughts.push(KeptThought { index: piece.index, ..KeptThought::default() });
        }
        let Some(thought) = self.thoughts.last_mut() else { return };
        let text = match piece.part {
            ThinkingPart::Text => &mut thought.text,
            ThinkingPart::Signature => &mut thought.signature,
            ThinkingPart::Redacted => &mut thought.redacted,
        };
        text.push_str(&piece.text.plain());
    }

    /// Seals the reasoning, whose text is `escaped`. Returns `None` if there is nothing to seal.
    pub(super) fn sealed(&mut self, escaped: &[u8], seal: &ReasoningSeal) -> Option<String> {
        if self.thoughts.is_empty() {
            let escaped = String::from_utf8_lossy(escaped);
            self.text = AnswerText::Escaped(&escaped).plain().into_owned();
        }
        let is_empty = self.text.is_empty() && self.thoughts.is_empty() && self.signature.is_none();
        seal.seal(&serde_json::to_vec(self).ok().filter(|_| !is_empty)?)
    }

    /// Opens the reasoning in `text`, a value at `param` of the request.
    pub(super) fn open(
        text: &str,
        seal: &ReasoningSeal,
        param: impl Fn() -> String,
    ) -> Result<Self, Rejection> {
        if !text.starts_with(PREFIX) {
            return Err(loss::refuse(super::losses::LOSSES, "input.*[reasoning].encrypted_content", param()));
        }
        let opened = seal.open(text).and_then(|plain| serde_json::from_slice(&plain).ok());
        opened.ok_or_else(|| Rejection::malformed(param(), NOT_OPEN))
    }

    /// Returns the text of the reasoning.
    pub(super) fn text(&self) -> Cow<'_, str> {
        if self.thoughts.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        Cow::Owned(self.thoughts.iter().map(|thought| thought.text.as_str()).collect())
    }

    /// Returns the thoughts as a target has signed them. A thought without a signature is left out.
    pub(super) fn into_thoughts<'i>(self) -> impl Iterator<Item = SignedThought<'i>> {
        self.thoughts.into_iter().filter_map(|KeptThought { text, signature, redacted, .. }| {
            match (redacted.is_empty(), signature.is_empty()) {
                (false, _) => Some(SignedThought::Redacted { data: redacted.into() }),
                (true, false) => {
                    Some(SignedThought::Thinking { thinking: text.into(), signature: signature.into() })
                }
                (true, true) => None,
            }
        })
    }
}

const NOT_OPEN: &str = "is reasoning that this gateway did not seal for this project or key, or that was changed. \
                        Remove the item, or begin a new conversation.";
