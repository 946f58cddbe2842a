//! Bedrock's protocol, Converse: the types of its answers. Streams are framed by [`crate::eventstream`].

mod answer;
mod usage;

pub(crate) use answer::{
    ConverseAnswer, ConverseBlock, ConverseDelta, ConverseEvent, ConverseToolUse, Reasoning, usage_in,
};
pub(crate) use usage::ConverseUsage;
