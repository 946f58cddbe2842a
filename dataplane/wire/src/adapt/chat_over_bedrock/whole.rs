//! Translates complete answers.

use serde_json::value::RawValue;

use super::answer::{
    ConverseAnswer, ConverseBlock, ConverseToolUse, Reasoning, finish_reason, write_thinking,
};
use super::stream::BedrockStream;
use super::usage::ConverseUsage;
use crate::adapt::chat_client::{CompletionCall, CompletionChoice, Identity, completion};
use crate::adapt::{Answers, BadAnswer, TranslatedAnswer};
use crate::envelope::StreamError;
use crate::json::{JsonWriter, compact};
use crate::stream::AnswerStream;

/// Translates the answers to one request.
#[derive(Debug)]
pub(super) struct BedrockAnswers {
    pub(super) identity: Identity,
    pub(super) include_usage: bool,
    /// The client handles signed thinking blocks.
    pub(super) thinking_blocks: bool,
}

impl Answers for BedrockAnswers {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        let answer: Option<ConverseAnswer<'_>> = serde_json::from_slice(body).ok();
        let Some((answer, message)) = answer.and_then(|mut answer| {
            let message = answer.output.take()?.message?;
            Some((answer, message))
        }) else {
            let error = StreamError::of_odd(body);
            return Err(error.map_or(BadAnswer::Invalid("it is not a Converse response"), BadAnswer::Error));
        };
        let extras = answer.extras();
        let mut told = ConverseCollected::default();
        for block in message.content.into_iter().flatten() {
            told.block(block, &self.identity);
        }
        let mut choice = told.choice;
        if self.thinking_blocks {
            choice.thinking_blocks = told.thinking.finish();
        }
        let stop_reason = answer.stop_reason.map(|reason| reason.0).unwrap_or_default();
        choice.finish_reason = finish_reason(&stop_reason, !choice.calls.is_empty());
        Ok(completion(&self.identity, &[choice], answer.usage.as_ref().map(ConverseUsage::counts), extras))
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(BedrockStream::new(self, secrets))
    }
}

#[derive(Default)]
struct ConverseCollected<'a> {
    choice: CompletionChoice<'a>,
    thinking: JsonWriter,
}

impl<'a> ConverseCollected<'a> {
    fn block(&mut self, block: ConverseBlock<'a>, identity: &Identity) {
        let cited = block.citations_content.and_then(|cited| cited.content).into_iter().flatten();
        for text in block.text.into_iter().chain(cited.filter_map(|piece| piece.text)) {
            self.choice.content.push_str(&text.0);
        }
        if let Some(call) = block.tool_use.filter(ConverseToolUse::is_for_the_client) {
            let position = self.choice.calls.len().try_into().unwrap_or(u64::MAX);
            self.choice.calls.push(whole_call(call, position, identity));
        }
        if let Some(reasoning) = block.reasoning_content {
            self.reasoning(&reasoning);
        }
    }

    fn reasoning(&mut self, reasoning: &Reasoning<'_>) {
        if let Some(said) = &reasoning.reasoning_text {
            let text = said.text.as_ref().map(|text| &*text.0).unwrap_or_default();
            self.choice.reasoning.push_str(text);
            let signature = said.signature.as_ref().map(|signature| &*signature.0).unwrap_or_default();
            let members = [("thinking", text), ("signature", signature)];
            write_thinking(None, "thinking", &members, &mut self.thinking);
        }
        if let Some(data) = &reasoning.redacted_content {
            write_thinking(None, "redacted_thinking", &[("data", &data.0)], &mut self.thinking);
        }
    }
}

fn whole_call<'a>(call: ConverseToolUse<'a>, position: u64, identity: &Identity) -> CompletionCall<'a> {
    let mut arguments = Vec::new();
    compact(call.input.map_or("{}", RawValue::get).as_bytes(), &mut arguments);
    let id = call.tool_use_id.map(|id| id.0).filter(|id| !id.is_empty());
    CompletionCall {
        id: id.unwrap_or_else(|| identity.call_id(position).into()),
        name: identity.tool_name(call.name.map(|name| name.0).unwrap_or_default()),
        // JSON stays valid UTF-8 when its white space is removed.
        arguments: String::from_utf8(arguments).unwrap_or_default().into(),
        signature: None,
    }
}
