//! The interpretation of a target's answer: unchanged, or translated from another dialect.

use bytes::Bytes;
use http::HeaderValue;
use shared::operation::Dialect;
use shared::usage::TokenCounts;
use wire::adapt::{self, Answers, BadAnswer, TranslatedAnswer};
use wire::extras::Extras;
use wire::media::embeddings::VectorRewriter;
use wire::media::videos::Vendor;
use wire::media::{Opaque, audio, images};
use wire::native::{self, WholeScan};
use wire::request::VectorForm;
use wire::stream::{AnswerStream, StreamOptions};

/// The way in which the answer of a target is read.
#[derive(Debug)]
pub(crate) enum AnswerReader {
    /// Client and target speak the same dialect.
    Native {
        /// The dialect of both.
        dialect: Dialect,
        /// True if the client requested the usage on its stream.
        include_usage: bool,
        /// Names of the fields that were left out, for a header.
        dropped: Option<Box<HeaderValue>>,
    },
    /// The answer is not a conversation and passes with any content type: unchanged, except for the form of the vectors
    /// of embeddings.
    Proxied(Option<VectorForm>),
    /// The answer starts a video; only the upstream's name of the operation is read.
    Started(Vendor),
    /// The answer is translated into the client's dialect.
    Adapted {
        answers: Box<dyn Answers + Send>,
        /// True if the client requested the usage on its stream.
        include_usage: bool,
        /// The client's dialect.
        client: Dialect,
        /// The target's dialect.
        target: Dialect,
        /// Names of the fields that were left out, for a header.
        dropped: Option<Box<HeaderValue>>,
        /// Fields that have another value than the client's, as `name=value`, for a header.
        changed: Option<Box<HeaderValue>>,
    },
}

impl AnswerReader {
    /// Returns the target's dialect if it differs from the client's.
    pub(crate) fn adapted_from(&self) -> Option<Dialect> {
        match self {
            Self::Native { .. } | Self::Proxied(_) | Self::Started(Vendor::OpenAi) => None,
            Self::Started(vendor @ Vendor::Google) => Some(vendor.dialect()),
            Self::Adapted { target, .. } => Some(*target),
        }
    }

    /// Returns the headers that name the fields that were left out, and those that were changed.
    pub(crate) fn names(&self) -> [Option<&HeaderValue>; 2] {
        [self.dropped(), self.changed()]
    }

    /// Returns the names of the fields that were left out, and the fields that were changed.
    pub(crate) fn told(&self) -> [Vec<String>; 2] {
        self.names().map(|names| {
            let names = names.and_then(|names| names.to_str().ok()).unwrap_or_default();
            names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
        })
    }

    /// Returns the fields that were sent with another value than the client's, as `name=value`, joined by `, `.
    pub(crate) fn changed(&self) -> Option<&HeaderValue> {
        match self {
            Self::Native { .. } | Self::Proxied(_) | Self::Started(_) => None,
            Self::Adapted { changed, .. } => changed.as_deref(),
        }
    }

    /// Returns the names of the fields that the client sent and that were left out, joined by `, `.
    pub(crate) fn dropped(&self) -> Option<&HeaderValue> {
        match self {
            Self::Proxied(_) | Self::Started(_) => None,
            Self::Native { dropped, .. } | Self::Adapted { dropped, .. } => dropped.as_deref(),
        }
    }

    /// Returns a reader of a stream. `secrets` are redacted from its errors. `is_events` is true if the stream
    /// consists of events, which is always the case for a conversation.
    pub(crate) fn stream(&self, secrets: Vec<String>, is_events: bool) -> Box<dyn AnswerStream> {
        match self {
            Self::Native { dialect, include_usage, .. } => {
                native::stream(*dialect, StreamOptions { drop_usage_only: !include_usage, secrets })
            }
            Self::Proxied(_) if is_events => {
                Box::new(audio::AudioStream::new(StreamOptions { drop_usage_only: false, secrets }))
            }
            Self::Proxied(_) | Self::Started(_) => Box::new(Opaque::default()),
            Self::Adapted { answers, .. } => answers.stream(secrets),
        }
    }

    /// Returns true if a long answer can be relayed while it is read. Otherwise it must be complete before it can be
    /// translated.
    pub(crate) fn passes(&self) -> bool {
        match self {
            // Only the complete answer shows if the images are inline.
            Self::Native { dialect, .. } => *dialect != Dialect::Images,
            Self::Proxied(_) => true,
            Self::Started(_) | Self::Adapted { .. } => false,
        }
    }

    /// Returns the reader of a whole answer that is relayed.
    pub(crate) fn scan(&self) -> Box<WholeScan> {
        Box::new(match self {
            Self::Proxied(Some(form)) => WholeScan::of_embeddings(*form),
            Self::Native { .. } | Self::Proxied(None) | Self::Started(_) | Self::Adapted { .. } => {
                WholeScan::new(self.shape())
            }
        })
    }

    fn is_chat(&self) -> bool {
        matches!(self, Self::Native { dialect: Dialect::Chat, .. })
    }

    /// Returns the dialect that determines the shape of the target's answer.
    fn shape(&self) -> Dialect {
        match self {
            Self::Native { dialect, .. } => *dialect,
            Self::Adapted { target, .. } => *target,
            // Usage and errors are at the same place as in a chat answer.
            Self::Proxied(_) | Self::Started(_) => Dialect::Chat,
        }
    }

    /// Reads a whole answer.
    pub(crate) fn whole(&self, body: Bytes) -> Result<Box<TranslatedAnswer>, BadAnswer> {
        match self {
            Self::Native { dialect: Dialect::Images, .. } => images::whole(body).map(Box::new),
            Self::Native { .. } | Self::Proxied(_) => {
                let answer = native::whole_answer(self.shape(), &body);
                match answer.error {
                    Some(error) => Err(BadAnswer::Error(error)),
                    None if !answer.is_json => Err(BadAnswer::Invalid("it is not JSON")),
                    None if self.is_chat() && answer.finish.is_none() && !native::has_choice(&body) => {
                        Err(BadAnswer::Invalid("it has no choices"))
                    }
                    None => {
                        let (usage, extras, finish) = (answer.usage, answer.extras, answer.finish);
                        let body = match (answer.unnamed_usage, self) {
                            (Some(part), _) if self.is_chat() => native::with_usage_names(body, part),
                            (_, Self::Proxied(Some(form))) => VectorRewriter::new(*form).whole(body),
                            _ => body,
                        };
                        Ok(Box::new(TranslatedAnswer {
                            body,
                            usage,
                            extras,
                            finish,
                            dropped: Vec::new(),
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

    /// Collects the events of the target into its whole answer.
    pub(crate) fn collect(&self, stream: &[u8]) -> Result<Vec<u8>, BadAnswer> {
        match self {
            Self::Native { .. } | Self::Adapted { .. } => native::collect(self.shape(), stream),
            Self::Proxied(_) | Self::Started(_) => {
                Err(BadAnswer::Invalid("it is a stream, which was not requested"))
            }
        }
    }

    /// Returns the usage in a complete failed response of the target: an error, or an unusable answer.
    pub(crate) fn usage_in(&self, body: &[u8]) -> Option<(TokenCounts, Extras)> {
        adapt::usage_in(self.shape(), body)
    }

    /// Converts a whole answer in the client's dialect to a stream.
    pub(crate) fn synthesize(&self, whole: &TranslatedAnswer) -> Option<Vec<u8>> {
        match self {
            Self::Native { dialect, include_usage, .. }
            | Self::Adapted { client: dialect, include_usage, .. } => {
                native::synthesize_stream(*dialect, &whole.body, *include_usage)
            }
            Self::Proxied(_) | Self::Started(_) => None,
        }
    }
}
