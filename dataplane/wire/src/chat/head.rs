//! What the gateway must know of a chat request before it can route it, read while the body arrives.
//!
//! The body is never parsed into a tree: its bytes go upstream as they came, and [`ChatHead`] remembers the few
//! places that change on the way.

use std::fmt;
use std::ops::Range;

use super::fields::{EDITS_MAX, Fields, NAME_BYTES_MAX, Scalar, Value};
use crate::json::{Fault, Scanner, What, unescape, unescape_owned};

/// Reads a request body piece by piece.
#[derive(Debug, Default)]
pub struct HeadScan {
    scanner: Scanner,
    fields: Fields,
}

/// What a chat request asks for.
#[derive(Clone, Debug)]
pub struct ChatHead {
    /// The selector. Of several the last, as every JSON parser upstream takes it.
    pub model: String,
    /// Whether a stream is asked for.
    pub stream: bool,
    /// Whether the client wants the usage chunk of its stream.
    pub include_usage: bool,
    /// Whether a message holds an image.
    pub has_image: bool,
    /// Whether tools are offered.
    pub has_tools: bool,
    /// The gateway's own `fallback_timeout_ms`, if it is a whole number.
    pub fallback_timeout_ms: Option<u64>,
    /// The gateway's own `affinity_key`, cut to 8 KiB.
    pub affinity_key: Option<String>,
    /// `max_completion_tokens`, or `max_tokens`.
    pub max_output_tokens: Option<u64>,
    /// `n`: how many answers, each of so many tokens.
    pub choices: Option<u64>,
    /// Bytes of the text in `messages`, base64 data left out: four of them are about one token.
    pub input_text_bytes: u64,
    pub(super) models: Vec<Range<usize>>,
    pub(super) removed: Vec<Range<usize>>,
    pub(super) usage_edits: Vec<(Range<usize>, &'static str)>,
    pub(super) has_options: bool,
}

/// Why a body is not a chat request; `Display` is for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanError {
    /// What is wrong.
    pub fault: ScanFault,
    /// The member that it is about.
    pub param: Option<&'static str>,
}

/// The ways in which a body can fail to be a chat request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFault {
    /// Not JSON, or cut short, at this byte.
    NotJson(Fault),
    /// JSON, but not an object.
    NotObject,
    /// Nested deeper than allowed (LIM-2).
    TooDeep,
    /// No `model`.
    ModelMissing,
    /// A `model` that is not a string, or not valid text.
    ModelNotString,
    /// A `model` longer than any name.
    ModelTooLong,
    /// No `messages`.
    MessagesMissing,
    /// `messages` is not an array.
    MessagesNotArray,
    /// `stream` is neither a bool nor null.
    StreamNotBool,
    /// One member stands there again and again.
    TooManyRepeats,
}

impl HeadScan {
    /// A scan before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece of the body.
    pub fn push(&mut self, segment: &[u8]) -> Result<(), ScanError> {
        self.scanner.push(segment, &mut self.fields)?;
        if self.fields.too_many_edits() {
            return Err(ScanFault::TooManyRepeats.into());
        }
        Ok(())
    }

    /// The body has ended: what it asks for.
    pub fn finish(self) -> Result<ChatHead, ScanError> {
        self.scanner.finish()?;
        let fields = self.fields;
        let model = model(fields.model)?;
        let stream = stream(&fields.stream)?;
        match fields.messages {
            Value::Array => {}
            Value::Absent => return Err(ScanFault::MessagesMissing.into()),
            Value::Text(_) | Value::Scalar(_) | Value::Object => {
                return Err(ScanFault::MessagesNotArray.into());
            }
        }
        Ok(ChatHead {
            model,
            stream,
            include_usage: fields.include_usage,
            has_image: fields.has_image,
            has_tools: fields.has_tools || fields.has_functions,
            fallback_timeout_ms: whole_number(&fields.timeout),
            affinity_key: affinity_key(&fields.affinity),
            max_output_tokens: whole_number(&fields.max_completion_tokens)
                .or_else(|| whole_number(&fields.max_tokens)),
            choices: whole_number(&fields.choices),
            input_text_bytes: fields.text_bytes,
            models: fields.models,
            removed: fields.removed,
            usage_edits: fields.usage_edits,
            has_options: fields.has_options,
        })
    }
}

fn model(value: Value) -> Result<String, ScanError> {
    let fault = match value {
        Value::Text(raw) if raw.len() > NAME_BYTES_MAX => ScanFault::ModelTooLong,
        Value::Text(raw) => return unescape_owned(raw).ok_or_else(|| ScanFault::ModelNotString.into()),
        Value::Absent => ScanFault::ModelMissing,
        Value::Scalar(_) | Value::Object | Value::Array => ScanFault::ModelNotString,
    };
    Err(fault.into())
}

fn stream(value: &Value) -> Result<bool, ScanError> {
    match value {
        Value::Absent => Ok(false),
        Value::Scalar(Scalar::True) => Ok(true),
        Value::Scalar(Scalar::False | Scalar::Null) => Ok(false),
        Value::Scalar(Scalar::Number(_)) | Value::Text(_) | Value::Object | Value::Array => {
            Err(ScanFault::StreamNotBool.into())
        }
    }
}

fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::Scalar(Scalar::Number(number)) => *number,
        Value::Scalar(_) | Value::Absent | Value::Text(_) | Value::Object | Value::Array => None,
    }
}

fn affinity_key(value: &Value) -> Option<String> {
    match value {
        Value::Text(raw) => Some(unescape(raw).unwrap_or_else(|| String::from_utf8_lossy(raw).into_owned()))
            .filter(|key| !key.is_empty()),
        Value::Absent | Value::Scalar(_) | Value::Object | Value::Array => None,
    }
}

impl From<ScanFault> for ScanError {
    fn from(fault: ScanFault) -> Self {
        let param = match fault {
            ScanFault::ModelMissing | ScanFault::ModelNotString | ScanFault::ModelTooLong => Some("model"),
            ScanFault::MessagesMissing | ScanFault::MessagesNotArray => Some("messages"),
            ScanFault::StreamNotBool => Some("stream"),
            ScanFault::NotJson(_) | ScanFault::NotObject | ScanFault::TooDeep | ScanFault::TooManyRepeats => {
                None
            }
        };
        Self { fault, param }
    }
}

impl From<Fault> for ScanError {
    fn from(fault: Fault) -> Self {
        match fault.what {
            What::NotObject => ScanFault::NotObject.into(),
            What::TooDeep => ScanFault::TooDeep.into(),
            What::Unexpected(_) | What::Truncated => ScanFault::NotJson(fault).into(),
        }
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            ScanFault::NotJson(fault) => write!(f, "The body is not valid JSON: {fault}."),
            ScanFault::NotObject => f.write_str("The body must be a JSON object."),
            ScanFault::TooDeep => {
                write!(f, "The body nests more than {} levels deep.", crate::json::DEPTH_MAX)
            }
            ScanFault::ModelMissing => f.write_str("Missing required member: 'model'."),
            ScanFault::ModelNotString => f.write_str("'model' must be a string."),
            ScanFault::ModelTooLong => write!(f, "'model' is longer than {NAME_BYTES_MAX} bytes."),
            ScanFault::MessagesMissing => f.write_str("Missing required member: 'messages'."),
            ScanFault::MessagesNotArray => f.write_str("'messages' must be an array."),
            ScanFault::StreamNotBool => f.write_str("'stream' must be true, false or null."),
            ScanFault::TooManyRepeats => {
                write!(f, "The body repeats its members more than {EDITS_MAX} times.")
            }
        }
    }
}

impl std::error::Error for ScanError {}
