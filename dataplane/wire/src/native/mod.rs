//! Answers in the client's own dialect, which pass as they came: what all such streams have in common, and the
//! choice among the dialects.

mod capture;
mod dialect;
mod gather;
mod passing;
mod template;
mod verdict;

pub(crate) use capture::Capture;
pub use dialect::{WholeAnswer, WholeScan, stream, synthesize_stream, whole_answer, with_usage_names};
pub(crate) use gather::{Facts, Gather};
pub use passing::HELD_BYTES_MAX;
pub(crate) use passing::{Judge, Judged, OversizedScan, Passing};
pub(crate) use template::{Template, Varying};
pub(crate) use verdict::{Change, Verdict, opaque};

#[cfg(test)]
mod tests;
