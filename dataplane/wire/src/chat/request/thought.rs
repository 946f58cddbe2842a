//! Thoughts signed by the provider that made them, as clients send them back.

use std::borrow::Cow;

use super::append;
use crate::claude::may_be_signature;
use crate::json::Tree;
use crate::translation::read;

/// A signed or redacted thought.
#[derive(Clone, Debug)]
pub(crate) enum SignedThought<'i> {
    Thinking { thinking: Cow<'i, str>, signature: Cow<'i, str> },
    Redacted { data: Cow<'i, str> },
}

impl SignedThought<'_> {
    /// Returns false if the signature is certainly not Claude's own.
    pub(crate) fn may_be_signed(&self) -> bool {
        match self {
            Self::Thinking { signature, .. } => may_be_signature(signature.as_bytes()),
            Self::Redacted { .. } => true,
        }
    }
}

/// Returns the signed thoughts among `blocks`. A client that kept the pieces of a stream unchanged has the signature in
/// a separate piece, after those of the text.
pub(crate) fn signed_thoughts<'t, 'i: 't>(
    blocks: impl Iterator<Item = Tree<'t, 'i>>,
) -> Vec<SignedThought<'i>> {
    let (mut thoughts, mut pending) = (Vec::new(), Cow::Borrowed(""));
    for block in blocks.filter_map(|block| block.as_object()) {
        let text = |name: &str| read::member_text(&block, name).unwrap_or_default();
        match text("type") {
            "thinking" => {
                append(&mut pending, text("thinking"));
                let signature = text("signature");
                if !signature.is_empty() {
                    let thinking = std::mem::take(&mut pending);
                    thoughts.push(SignedThought::Thinking { thinking, signature: signature.into() });
                }
            }
            "redacted_thinking" if !text("data").is_empty() => {
                thoughts.push(SignedThought::Redacted { data: text("data").into() });
            }
            _ => {}
        }
    }
    thoughts
}
