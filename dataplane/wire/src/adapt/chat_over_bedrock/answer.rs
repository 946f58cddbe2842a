//! Reads complete answers.

use super::stream::BedrockSource;
use crate::adapt::BadAnswer;
use crate::adapt::chat_client::CallIdentity;
use crate::adapt::through_chat::ChatTarget;
use crate::bedrock::{ConverseAnswer, ConverseBlock, ConverseToolUse, ConverseUsage, Reasoning};
use crate::chat::{ChatChoice, ChatCompletion, ChatSource, ChoiceEnd, ClientUsage, ThinkingBlock, escape};
use crate::envelope::StreamError;
use crate::finish_word::in_chat_words;

/// Reads the answers to one request.
#[derive(Debug)]
pub(super) struct BedrockTarget {
    pub(super) calls: CallIdentity,
    /// The client handles signed thinking blocks.
    pub(super) thinking_blocks: bool,
}

impl ChatTarget for BedrockTarget {
    fn whole<'a>(&self, body: &'a str) -> Result<ChatCompletion<'a>, BadAnswer> {
        let answer: Option<ConverseAnswer<'_>> = serde_json::from_str(body).ok();
        let Some((answer, message)) = answer.and_then(|mut answer| {
            let message = answer.output.take()?.message?;
            Some((answer, message))
        }) else {
            let error = StreamError::of_odd(body.as_bytes());
            return Err(error.map_or(BadAnswer::Invalid("it is not a Converse response"), BadAnswer::Error));
        };
        let extras = answer.extras();
        let mut choice = ChatChoice::default();
        for block in message.content.into_iter().flatten() {
            self.block(block, &mut choice);
        }
        let stop_reason = answer.stop_reason.map(|reason| reason.0).unwrap_or_default();
        if let Some(failure) = (ChoiceEnd { reason: &stop_reason, ..ChoiceEnd::default() }).failure() {
            return Err(BadAnswer::Error(failure));
        }
        choice.finish_reason = in_chat_words(&stop_reason, !choice.calls.is_empty()).to_owned().into();
        let counts = answer.usage.as_ref().map(ConverseUsage::counts);
        let usage = counts.map(ClientUsage::with_reasoning);
        Ok(ChatCompletion { choices: vec![choice], created_s: None, counts, usage, extras })
    }

    fn source(&self) -> Box<dyn ChatSource> {
        Box::new(BedrockSource::new(self))
    }
}

impl BedrockTarget {
    fn block<'a>(&self, mut block: ConverseBlock<'a>, choice: &mut ChatChoice<'a>) {
        choice.media.extend(block.media());
        let cited = block.citations_content.and_then(|cited| cited.content).into_iter().flatten();
        for text in block.text.into_iter().chain(cited.filter_map(|piece| piece.text)) {
            choice.content.push_str(&escape(text.0));
        }
        if let Some(call) = block.tool_use.filter(ConverseToolUse::is_for_the_client) {
            let position = choice.calls.len().try_into().unwrap_or(u64::MAX);
            let (id, name) = (call.tool_use_id.map(|id| id.0), call.name.map(|name| name.0));
            choice.calls.push(self.calls.call(id, name, call.input, position));
        }
        if let Some(reasoning) = block.reasoning_content {
            self.reasoning(reasoning, choice);
        }
    }

    fn reasoning<'a>(&self, reasoning: Reasoning<'a>, choice: &mut ChatChoice<'a>) {
        if let Some(reasoning_text) = reasoning.reasoning_text {
            let text = escape(reasoning_text.text.map(|text| text.0).unwrap_or_default());
            choice.reasoning.push_str(&text);
            if self.thinking_blocks {
                let signature =
                    escape(reasoning_text.signature.map(|signature| signature.0).unwrap_or_default());
                choice.thinking_blocks.push(ThinkingBlock::Thinking { text, signature });
            }
        }
        if let Some(data) = reasoning.redacted_content.filter(|_| self.thinking_blocks) {
            choice.thinking_blocks.push(ThinkingBlock::Redacted(escape(data.0)));
        }
    }
}
