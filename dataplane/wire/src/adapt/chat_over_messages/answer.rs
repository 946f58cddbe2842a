//! Reads complete Messages answers.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::stream::MessagesReader;
use crate::adapt::BadAnswer;
use crate::adapt::through_chat::ChatTarget;
use crate::adapt::tool_names::ToolNames;
use crate::chat::{
    ChatCall, ChatChoice, ChatCompletion, ChatSource, ChoiceEnd, SseSource, ThinkingBlock, escape,
};
use crate::envelope::StreamError;
use crate::finish_word::in_chat_words;
use crate::json::{compact, parse_raw};
use crate::messages::MessagesUsage;
use crate::messages::document::{self, MessagesBlock, MessagesEvent};

/// Reads the answers to one request.
#[derive(Clone, Debug)]
pub(super) struct MessagesTarget {
    /// The client handles signed thinking blocks.
    pub(super) thinking_blocks: bool,
    /// Maps the target's tool names back to the client's.
    pub(super) names: ToolNames,
}

impl ChatTarget for MessagesTarget {
    fn whole<'a>(&self, body: &'a str) -> Result<ChatCompletion<'a>, BadAnswer> {
        let answer = if body.trim_start().starts_with('{') { serde_json::from_str(body).ok() } else { None };
        let answer: MessagesEvent<'a> = answer.ok_or(BadAnswer::Invalid("it is not a JSON object"))?;
        if answer.error.is_some() || document::word(answer.kind) == "error" {
            let document: Value = serde_json::from_str(body).unwrap_or_default();
            let error = StreamError::of_document(&document).unwrap_or_default();
            return Err(BadAnswer::Error(error.in_open_ai_words()));
        }
        let blocks: Option<Vec<&RawValue>> = parse_raw(answer.content);
        let blocks = blocks.ok_or(BadAnswer::Invalid("it has no content"))?;
        let mut choice = ChatChoice::default();
        for block in blocks {
            self.block(block, &mut choice)?;
        }
        choice.refusal.push_str(document::refusal(answer.stop_details).unwrap_or_default());
        let stop_reason = document::word(answer.stop_reason);
        if let Some(failure) = (ChoiceEnd { reason: &stop_reason, ..ChoiceEnd::default() }).failure() {
            return Err(BadAnswer::Error(failure));
        }
        choice.finish_reason = in_chat_words(&stop_reason, !choice.calls.is_empty()).to_owned().into();
        let mut usage = MessagesUsage::default();
        answer.usage.into_iter().for_each(|reported| usage.update(reported));
        Ok(ChatCompletion {
            choices: vec![choice],
            created_s: None,
            counts: usage.counts(),
            usage: Some(usage.for_chat()),
            extras: usage.extras(),
        })
    }

    fn source(&self) -> Box<dyn ChatSource> {
        Box::new(SseSource::new(MessagesReader::new(self.clone())))
    }
}

impl MessagesTarget {
    fn block<'a>(&self, raw: &'a RawValue, choice: &mut ChatChoice<'a>) -> Result<(), BadAnswer> {
        let block: MessagesBlock<'a> =
            document::object(Some(raw)).ok_or(BadAnswer::Invalid("its content is not a list of blocks"))?;
        let text = |raw: Option<&'a RawValue>| document::inner(raw).unwrap_or_default();
        match &*document::word(block.kind) {
            "text" => choice.content.push_str(text(block.text)),
            "thinking" => {
                choice.reasoning.push_str(text(block.thinking));
                self.thinking_block(&block, choice);
            }
            "redacted_thinking" => self.thinking_block(&block, choice),
            "tool_use" => {
                let (Some(id), Some(name)) = (document::inner(block.id), document::inner(block.name)) else {
                    return Err(BadAnswer::Invalid("it calls a tool without a name or an ID"));
                };
                choice.calls.push(ChatCall {
                    id: id.into(),
                    name: self.names.restore_escaped(name),
                    input: escape(arguments(block.input).into()),
                    ..ChatCall::default()
                });
            }
            // An image, a tool that the target ran itself, or a block type that is not known yet.
            _ => choice.media.extend(block.media()),
        }
        Ok(())
    }

    fn thinking_block<'a>(&self, block: &MessagesBlock<'a>, choice: &mut ChatChoice<'a>) {
        let text = |raw: Option<&'a RawValue>| Cow::Borrowed(document::inner(raw).unwrap_or_default());
        if self.thinking_blocks {
            choice.thinking_blocks.push(match block.data {
                Some(data) => ThinkingBlock::Redacted(text(Some(data))),
                None => {
                    ThinkingBlock::Thinking { text: text(block.thinking), signature: text(block.signature) }
                }
            });
        }
    }
}

/// Returns a tool's input as compact JSON; `{}` if it has none. Numbers and the order of members are unchanged.
pub(super) fn arguments(input: Option<&RawValue>) -> String {
    compact(input.map_or("{}", RawValue::get))
}
