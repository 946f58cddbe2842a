//! Facts about an exchange on which neither its cost nor quotas depend.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::choice::TargetChoice;
use super::finish::Finish;
use super::gaps::Gaps;
use super::stored_state::StoredState;
use crate::operation::Dialect;
use crate::sanitize::without_quoted_text;

/// Facts about an exchange on which neither its cost nor quotas depend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// The client's product and version from `User-Agent`, such as `claude-cli/2.1.329`: at most 64 printable ASCII
    /// characters.
    pub client: Option<Arc<str>>,
    /// The pseudonym of the conversation: of the session ID that an agent sends in a header, else of the affinity key.
    pub session: Option<Box<str>>,
    /// The dialect of the target that was tried last, if it differs from the client's.
    pub adapted: Option<Dialect>,
    /// The names of the fields that were left out for that target, then those that were changed, as `name=value`; joined by `, `; at most
    /// [`DROPPED_BYTES_MAX`](Self::DROPPED_BYTES_MAX) bytes.
    pub dropped: Option<Box<str>>,
    /// The reason for which the model ended its output.
    pub finish: Option<Finish>,
    /// The ID of the quota that refused the exchange; of several that refused targets, the last.
    pub refused_by: Option<Box<str>>,
    /// The text of the error that the client got, without credentials and quotations; at most
    /// [`MESSAGE_BYTES_MAX`](Self::MESSAGE_BYTES_MAX) bytes.
    pub message: Option<Box<str>>,
    /// The length of the request body in bytes, decompressed.
    pub bytes_in: Option<u64>,
    /// The number of bytes of the answer's body that went to the client, an error of the gateway included; absent if the
    /// client left before. An error event that the gateway appends to an answer that broke off does not count.
    pub bytes_out: Option<u64>,
    /// The time in microseconds that the gateway itself took until the first content, or until the end of an exchange
    /// without content: all of it except waiting for the request body, attempts, and pauses before attempts. Reading and
    /// translating an upstream's answer is part of its attempt.
    pub gateway_us: Option<u64>,
    /// The longest silence of a relayed answer after its first content, in microseconds: between two pieces, or between
    /// the last piece and the end. Exact to a few milliseconds. Absent for an answer that was complete when it was sent.
    pub silence_us_max: Option<u64>,
    /// The gaps between the pieces of a stream after its first content. Exact to a few milliseconds. Empty for other answers.
    pub gaps: Gaps,
    /// The choice of the first target, for an endpoint that is no plain list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<TargetChoice>,
    /// The state that the provider stored or deleted. It leaves the journal for a table of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_state: Option<Box<StoredState>>,
}

impl Details {
    /// The limit on the bytes of [`dropped`](Self::dropped).
    pub const DROPPED_BYTES_MAX: usize = 256;
    /// The limit on the bytes of [`message`](Self::message).
    pub const MESSAGE_BYTES_MAX: usize = 512;

    /// Sets [`message`](Self::message) to a sanitized text, without what it quotes of a prompt.
    pub fn set_message(&mut self, text: &str) {
        // Cut after the quotations are removed: a cut one would have no end.
        let text = without_quoted_text(text);
        let message = if text.len() <= Self::MESSAGE_BYTES_MAX {
            text.into()
        } else {
            let end = text.floor_char_boundary(Self::MESSAGE_BYTES_MAX - CUT.len());
            [text.split_at(end).0, CUT].concat().into()
        };
        self.message = Some(message);
    }
}

/// Marks the end of a text that was cut.
const CUT: &str = "…";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_a_character_and_after_its_quotations_are_removed() {
        let long = "é".repeat(300);
        for (text, want) in [
            ("No target could be tried.", "No target could be tried.".to_owned()),
            (&"x".repeat(512), "x".repeat(512)),
            (&"x".repeat(513), format!("{}…", "x".repeat(509))),
            // 509 bytes end within a character.
            (&long, format!("{}…", "é".repeat(254))),
            (&format!("flagged: '{} words'.", "secret ".repeat(90)), "flagged: '…'.".to_owned()),
        ] {
            let mut details = Details::default();
            details.set_message(text);
            assert_eq!(details.message.as_deref(), Some(&*want));
            assert!(want.len() <= Details::MESSAGE_BYTES_MAX, "{}", want.len());
        }
    }
}
