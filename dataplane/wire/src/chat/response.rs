//! A unary chat answer, read while it streams through.

use shared::usage::TokenCounts;

use super::answer::{Answer, tree};
use crate::envelope::StreamError;

/// Reads an answer of any size in pieces and keeps none of it but its usage and error.
#[derive(Debug, Default)]
pub struct WholeScan {
    answer: Answer,
    broken: bool,
}

/// What a unary answer was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeAnswer {
    /// What it says was used.
    pub usage: Option<TokenCounts>,
    /// The error that came with status 200, if its `error` member is one. Its text is not sanitized yet.
    pub error: Option<StreamError>,
    /// Whether it holds `choices`.
    pub has_choices: bool,
    /// Whether it is one JSON object, whole. Leading white space is legal.
    pub is_json: bool,
    /// Bytes of output text, as they were escaped.
    pub output_bytes: u64,
}

impl WholeScan {
    /// A scan before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.broken = self.broken || self.answer.push(piece).is_err();
    }

    /// The answer has ended.
    pub fn finish(self) -> WholeAnswer {
        let (seen, whole) = self.answer.finish();
        let error = seen.error().map(|raw| {
            let value = tree(raw).unwrap_or_else(|| "The upstream answered with an error.".into());
            StreamError::of_member(&value)
        });
        WholeAnswer {
            usage: seen.token_counts(),
            error,
            has_choices: seen.has_choices,
            is_json: !self.broken && whole.is_ok(),
            output_bytes: seen.text_bytes,
        }
    }
}
