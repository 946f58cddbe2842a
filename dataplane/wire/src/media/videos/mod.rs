//! Videos (VID-1): long-running operations of OpenAI's and Google's APIs, asked for and answered in one shape of the
//! gateway's own.
//!
//! A start names what is wanted and is answered with the id of an operation; a request with that id is answered with
//! how far it is, and in the end with the video, inline. A member that a target cannot be told is refused by name and
//! never left out: a video is too dear to be another one than was asked for.

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

/// In whose words a target is asked for videos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// OpenAI's videos API.
    OpenAi,
    /// Veo, behind Google's long-running predictions.
    Google,
}

/// How far an operation is.
#[derive(Clone, Debug, PartialEq)]
pub enum VideoState {
    /// It is not done; perhaps with the hundredths that are.
    Running(Option<u64>),
    /// There is no video, and why; not sanitized yet.
    Failed(StreamError),
    /// There is one.
    Done(Video),
}

/// Where a video is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Video {
    /// In the answer itself: the inside of a JSON string.
    Inline {
        /// Base64, as it came.
        base64: Bytes,
        /// What it is.
        media_type: String,
    },
    /// At this address.
    At {
        /// As it came.
        address: String,
        /// What it is.
        media_type: String,
    },
    /// Where the target keeps what its operations make.
    Kept,
}

impl Vendor {
    /// The dialect that its targets speak.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::OpenAi => Dialect::Videos,
            Self::Google => Dialect::Gemini,
        }
    }

    /// Says a start, whose bytes are used up, in the vendor's words. Its `model` is the target's own already.
    pub fn start(self, body: &mut [u8]) -> Result<Bytes, Rejection> {
        start::read(body, |start| match self {
            Self::OpenAi => open_ai::start(start),
            Self::Google => google::start(start),
        })
    }

    /// What the vendor calls the operation that has begun.
    pub fn started(self, answer: &[u8]) -> Result<String, BadAnswer> {
        let name = match self {
            Self::OpenAi => open_ai::started(answer),
            Self::Google => google::started(answer),
        };
        let name = name.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
        name.ok_or_else(|| bad(answer, "it names no operation"))
    }

    /// What the answer to a start says of the video: its length and size.
    pub fn extras(self, answer: &[u8]) -> Extras {
        match self {
            Self::OpenAi => open_ai::extras(answer),
            Self::Google => Extras::default(),
        }
    }

    /// How far an operation is.
    pub fn state(self, answer: &Bytes) -> Result<VideoState, BadAnswer> {
        let state = match self {
            Self::OpenAi => open_ai::state(answer),
            Self::Google => google::state(answer),
        };
        state.ok_or_else(|| bad(answer, "it does not say how far the video is"))
    }
}

/// What an answer is that could not be read.
fn bad(answer: &[u8], why: &'static str) -> BadAnswer {
    StreamError::of_odd(answer).map_or(BadAnswer::Invalid(why), BadAnswer::Error)
}

/// `given`, if it looks like the type of a video.
pub fn media_type(given: Option<&str>) -> String {
    let plausible = |given: &&str| {
        let rest = given.strip_prefix("video/").unwrap_or_default();
        (1..=64).contains(&rest.len())
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte))
    };
    given.filter(plausible).unwrap_or("video/mp4").to_owned()
}

/// Bytes of an operation's name.
const NAME_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests;
