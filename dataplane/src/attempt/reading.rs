//! How the answer of a target is read: as it is, or in another dialect.

use bytes::Bytes;
use shared::operation::Dialect;
use wire::adapt::{Answers, BadAnswer, Whole};
use wire::chat::{self, ChatStream};
use wire::media::Opaque;
use wire::stream::{AnswerStream, StreamOptions};

/// See the module.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Client and target speak the same.
    Native {
        /// The client asked for the usage of its stream.
        include_usage: bool,
    },
    /// What is no conversation passes as it is, of whatever type it is.
    Proxied,
    /// The answer is said in the client's dialect.
    Adapted {
        answers: Box<dyn Answers>,
        /// The client asked for the usage of its stream.
        include_usage: bool,
        /// What the target speaks.
        target: Dialect,
    },
}

impl Reading {
    /// What the target speaks, where that is not what the client speaks.
    pub(crate) fn adapted_from(&self) -> Option<Dialect> {
        match self {
            Self::Native { .. } | Self::Proxied => None,
            Self::Adapted { target, .. } => Some(*target),
        }
    }

    /// A reader of a stream; `secrets` may not show in its errors.
    pub(super) fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        match self {
            Self::Native { include_usage } => {
                Box::new(ChatStream::new(StreamOptions { drop_usage_only: !include_usage, secrets }))
            }
            Self::Proxied => Box::new(Opaque::default()),
            Self::Adapted { answers, .. } => answers.stream(secrets),
        }
    }

    /// Reads a whole answer.
    pub(super) fn whole(&self, body: Bytes) -> Result<Whole, BadAnswer> {
        match self {
            Self::Native { .. } | Self::Proxied => {
                let answer = chat::whole_answer(&body);
                match answer.error {
                    Some(error) => Err(BadAnswer::Error(error)),
                    None if !answer.is_json => Err(BadAnswer::Invalid("it is not JSON")),
                    None => Ok(Whole { body, usage: answer.usage, output_bytes: answer.output_bytes }),
                }
            }
            Self::Adapted { answers, .. } => answers.whole(&body),
        }
    }

    /// A whole answer in the client's dialect as a stream.
    pub(super) fn synthesize(&self, whole: &Whole) -> Option<Vec<u8>> {
        match self {
            Self::Native { include_usage } | Self::Adapted { include_usage, .. } => {
                chat::synthesize_stream(&whole.body, *include_usage)
            }
            Self::Proxied => None,
        }
    }
}
