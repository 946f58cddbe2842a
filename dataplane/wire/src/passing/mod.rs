//! The parts that the streams of every dialect share when they pass to the client as they came.

mod capture;
mod gather;
mod relay_events;
mod template;
mod verdict;

use std::ops::Range;

use shared::usage::TokenCounts;

use crate::envelope::StreamError;
use crate::extras::Extras;

pub(crate) use capture::Capture;
pub(crate) use gather::{DocumentFacts, Gather};
pub use relay_events::HELD_BYTES_MAX;
pub(crate) use relay_events::{Judge, Judged, OversizedScan, PassingStream};
pub(crate) use template::{Template, Varying};
pub(crate) use verdict::{EventVerdict, TextChange, opaque};

/// The usage, the error and the shape of a whole answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeAnswer {
    /// The usage that it reports.
    pub usage: Option<TokenCounts>,
    /// The quantities that it reports beside tokens.
    pub extras: Extras,
    /// The error that came with status 200. Its text is not sanitized yet.
    pub error: Option<StreamError>,
    /// True if it is one complete JSON object. Leading white space is legal.
    pub is_json: bool,
    /// Bytes of output text, escapes included.
    pub output_bytes: u64,
    /// The position of `usage` in a chat answer that reports a count only under another name than OpenAI's.
    pub unnamed_usage: Option<Range<usize>>,
}
