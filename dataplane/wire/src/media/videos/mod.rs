//! Videos (VID-1): long-running operations of OpenAI's and Google's APIs, in one request and answer format of the
//! gateway's own.
//!
//! A start describes the video and is answered with the id of an operation. A request with that id is answered with the
//! state of the operation, and finally with the video, inline. A member that a target does not support is rejected by
//! name and never dropped: videos are too expensive to produce one that differs from the request.

mod answer;
mod google;
mod open_ai;
mod poll;
mod start;

use bytes::Bytes;
use shared::operation::Dialect;

pub use answer::About;
pub use google::poll_body;
pub use poll::polled;

use crate::envelope::StreamError;
use crate::extras::Extras;
use crate::translation::{BadAnswer, Rejection};

/// The API that a video target speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// OpenAI's videos API.
    OpenAi,
    /// Veo, through Google's long-running predictions.
    Google,
}

/// The state of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum VideoState {
    /// Unfinished, with the progress in percent if known.
    Running(Option<u64>),
    /// Failed, with the reason; not sanitized yet.
    Failed(StreamError),
    /// Finished, with the video.
    Done(Video),
}

/// The location of a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Video {
    /// Inline in the answer, as the contents of a JSON string.
    Inline {
        /// The base64, unchanged.
        base64: Bytes,
        /// The media type.
        media_type: String,
    },
    /// At an address.
    At {
        /// The address, unchanged.
        address: String,
        /// The media type.
        media_type: String,
    },
    /// At the target, which stores the results of its operations.
    Kept,
}

impl Vendor {
    /// Returns the dialect of the vendor's targets.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::OpenAi => Dialect::Videos,
            Self::Google => Dialect::Gemini,
        }
    }

    /// Translates a start into the vendor's format. `body` is overwritten; its `model` must already be the target's
    /// own.
    pub fn start(self, body: &mut [u8]) -> Result<Bytes, Rejection> {
        start::read(body, |start| match self {
            Self::OpenAi => open_ai::start(start),
            Self::Google => google::start(start),
        })
    }

    /// Returns the vendor's name for the operation that was started.
    pub fn started(self, answer: &[u8]) -> Result<String, BadAnswer> {
        let name = match self {
            Self::OpenAi => open_ai::started(answer),
            Self::Google => google::started(answer),
        };
        let name = name.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
        name.ok_or_else(|| bad(answer, "it has no operation name"))
    }

    /// Returns the length and size of the video that the answer to a start reports.
    pub fn extras(self, answer: &[u8]) -> Extras {
        match self {
            Self::OpenAi => open_ai::extras(answer),
            Self::Google => Extras::default(),
        }
    }

    /// Returns the state of an operation.
    pub fn state(self, answer: &Bytes) -> Result<VideoState, BadAnswer> {
        let state = match self {
            Self::OpenAi => open_ai::state(answer),
            Self::Google => google::state(answer),
        };
        state.ok_or_else(|| bad(answer, "it has no status of the video"))
    }
}

/// Returns the error for an answer that could not be read.
fn bad(answer: &[u8], why: &'static str) -> BadAnswer {
    StreamError::of_odd(answer).map_or(BadAnswer::Invalid(why), BadAnswer::Error)
}

/// Returns `given` if it looks like the media type of a video, otherwise `video/mp4`.
pub fn media_type(given: Option<&str>) -> String {
    let plausible = |given: &&str| {
        let rest = given.strip_prefix("video/").unwrap_or_default();
        (1..=64).contains(&rest.len())
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte))
    };
    given.filter(plausible).unwrap_or("video/mp4").to_owned()
}

/// The maximum length of an operation's name in bytes.
const NAME_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests;
