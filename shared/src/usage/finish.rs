//! The reason for which a model ended its output.

use serde::{Deserialize, Serialize};

/// The reason for which a model ended its output, in one vocabulary for all protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model had finished. Responses answers that end with tool calls also have this reason.
    Stop,
    /// A stop sequence of the request was generated.
    StopSequence,
    /// The limit of the answer's tokens was reached.
    Length,
    /// The context window of the model was full.
    ContextFull,
    /// The model calls tools.
    ToolCalls,
    /// A filter cut off the answer.
    ContentFilter,
    /// The model refused.
    Refusal,
    /// The model paused a long turn; the client is to continue it.
    Pause,
    /// The model or its server failed.
    Error,
    /// A reason that is not known.
    Other,
}

impl Finish {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Stop,
        Self::StopSequence,
        Self::Length,
        Self::ContextFull,
        Self::ToolCalls,
        Self::ContentFilter,
        Self::Refusal,
        Self::Pause,
        Self::Error,
        Self::Other,
    ];

    /// Returns the name for records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::StopSequence => "stop_sequence",
            Self::Length => "length",
            Self::ContextFull => "context_full",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::Error => "error",
            Self::Other => "other",
        }
    }
}
