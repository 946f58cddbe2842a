//! How the answer of a target is read: as it is, or in another dialect.

use bytes::Bytes;
use http::HeaderValue;
use shared::operation::Dialect;
use shared::usage::TokenCounts;
use wire::adapt::{self, Answers, BadAnswer, TranslatedAnswer};
use wire::extras::Extras;
use wire::media::videos::Vendor;
use wire::media::{Opaque, audio, images};
use wire::native::{self, WholeScan};
use wire::stream::{AnswerStream, StreamOptions};

/// See the module.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Client and target speak the same.
    Native {
        /// What both speak.
        dialect: Dialect,
        /// The client asked for the usage of its stream.
        include_usage: bool,
    },
    /// What is no conversation passes as it is, of whatever type it is.
    Proxied,
    /// It is the beginning of a video: what the upstream calls that is all of the answer.
    Started(Vendor),
    /// The answer is said in the client's dialect.
    Adapted {
        answers: Box<dyn Answers>,
        /// The client asked for the usage of its stream.
        include_usage: bool,
        /// What the client speaks.
        client: Dialect,
        /// What the target speaks.
        target: Dialect,
        /// Names of what the client sent and nobody knows, for a header.
        dropped: Option<Box<HeaderValue>>,
    },
}

impl Reading {
    /// What the target speaks, where that is not what the client speaks.
    pub(crate) fn adapted_from(&self) -> Option<Dialect> {
        match self {
            Self::Native { .. } | Self::Proxied | Self::Started(Vendor::OpenAi) => None,
            Self::Started(vendor @ Vendor::Google) => Some(vendor.dialect()),
            Self::Adapted { target, .. } => Some(*target),
        }
    }

    /// A reader of a stream; `secrets` may not show in its errors. `is_events` says whether it comes in events, which
    /// a conversation always does.
    pub(super) fn stream(&self, secrets: Vec<String>, is_events: bool) -> Box<dyn AnswerStream> {
        match self {
            Self::Native { dialect, include_usage } => {
                native::stream(*dialect, StreamOptions { drop_usage_only: !include_usage, secrets })
            }
            Self::Proxied if is_events => {
                Box::new(audio::AudioStream::new(StreamOptions { drop_usage_only: false, secrets }))
            }
            Self::Proxied | Self::Started(_) => Box::new(Opaque::default()),
            Self::Adapted { answers, .. } => answers.stream(secrets),
        }
    }

    /// Whether a long answer can pass while it is read; else it must be there as a whole, to be said in another
    /// dialect.
    pub(super) fn passes(&self) -> bool {
        match self {
            // Whether images are inline shows only in all of the answer.
            Self::Native { dialect, .. } => *dialect != Dialect::Images,
            Self::Proxied => true,
            Self::Started(_) | Self::Adapted { .. } => false,
        }
    }

    /// What reads a whole answer that passes.
    pub(super) fn scan(&self) -> Box<WholeScan> {
        Box::new(WholeScan::new(self.shape()))
    }

    fn is_chat(&self) -> bool {
        matches!(self, Self::Native { dialect: Dialect::Chat, .. })
    }

    /// The dialect in whose shape an answer that passes comes.
    fn shape(&self) -> Dialect {
        match self {
            Self::Native { dialect, .. } => *dialect,
            Self::Adapted { target, .. } => *target,
            // Their usage and errors stand where a chat answer has its own.
            Self::Proxied | Self::Started(_) => Dialect::Chat,
        }
    }

    /// Reads a whole answer.
    pub(super) fn whole(&self, body: Bytes) -> Result<Box<TranslatedAnswer>, BadAnswer> {
        match self {
            Self::Native { dialect: Dialect::Images, .. } => images::whole(body).map(Box::new),
            Self::Native { .. } | Self::Proxied => {
                let answer = native::whole_answer(self.shape(), &body);
                match answer.error {
                    Some(error) => Err(BadAnswer::Error(error)),
                    None if !answer.is_json => Err(BadAnswer::Invalid("it is not JSON")),
                    None => {
                        let (usage, extras) = (answer.usage, answer.extras);
                        let body = match answer.unnamed_usage {
                            Some(part) if self.is_chat() => native::with_usage_names(body, part),
                            _ => body,
                        };
                        Ok(Box::new(TranslatedAnswer {
                            body,
                            usage,
                            extras,
                            output_bytes: answer.output_bytes,
                        }))
                    }
                }
            }
            Self::Started(vendor) => {
                let extras = vendor.extras(&body);
                let started = |name: String| TranslatedAnswer {
                    body: name.into(),
                    extras,
                    ..TranslatedAnswer::default()
                };
                vendor.started(&body).map(|name| Box::new(started(name)))
            }
            Self::Adapted { answers, .. } => answers.whole(&body).map(Box::new),
        }
    }

    /// The usage in a whole body of the target that failed: an error, or an answer that cannot serve.
    pub(super) fn usage_in(&self, body: &[u8]) -> Option<(TokenCounts, Extras)> {
        adapt::usage_in(self.shape(), body)
    }

    /// A whole answer in the client's dialect as a stream.
    pub(super) fn synthesize(&self, whole: &TranslatedAnswer) -> Option<Vec<u8>> {
        match self {
            Self::Native { dialect, include_usage }
            | Self::Adapted { client: dialect, include_usage, .. } => {
                native::synthesize_stream(*dialect, &whole.body, *include_usage)
            }
            Self::Proxied | Self::Started(_) => None,
        }
    }
}
