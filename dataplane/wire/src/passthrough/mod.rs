//! The parts that all dialects share in relaying native streams.

mod capture;
mod gather;
mod relay_events;
mod repeated_event;
mod template;
mod verdict;

use std::ops::Range;

use shared::usage::{Finish, TokenCounts};

use crate::envelope::StreamError;
use crate::extras::Extras;

pub(crate) use capture::Capture;
pub(crate) use gather::{AnswerFacts, DocumentFacts, Gather};
pub use relay_events::HELD_BYTES_MAX;
pub(crate) use relay_events::{EventFacts, Judge, Judged, JudgedStream, PassingStream};
pub(crate) use repeated_event::Alike;
pub(crate) use template::{Template, Varying};
pub(crate) use verdict::{EventVerdict, TextChange};

/// The usage, the error and the shape of a whole answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeAnswer {
    /// The usage that the answer reports.
    pub usage: Option<TokenCounts>,
    /// The quantities other than tokens that the answer reports.
    pub extras: Extras,
    /// The reason for which the model ended its output.
    pub finish: Option<Finish>,
    /// True if a choice of a chat answer that is read in pieces may have ended as a failure.
    pub(crate) may_have_failed: bool,
    /// An error that was sent with status 200, or the failure with which the output ended. Its text is not sanitized yet.
    pub error: Option<StreamError>,
    /// True if the answer is one complete JSON object. Leading white space is allowed.
    pub is_json: bool,
    /// The length of the output text in bytes, escapes included.
    pub output_bytes: u64,
    /// The position of `usage` in a chat answer that reports a count only under a name that differs from OpenAI's.
    pub unnamed_usage: Option<Range<usize>>,
}
