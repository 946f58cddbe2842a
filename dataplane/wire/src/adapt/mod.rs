//! Adaptations: a client's dialect served by a target that speaks another one. One file, or folder, a pair,
//! without a message format of our own in the middle.
//!
//! A request is rejected before anything is sent if the target's dialect cannot say what it means; which field
//! has which fate stands in the pair's table of losses, which code, tests and `docs/adaptations.md` share.

mod alike;
mod call_id;
mod chain;
mod chat_client;
mod chat_over_bedrock;
mod chat_over_gemini;
mod chat_over_messages;
mod chat_over_responses;
mod counting;
mod events;
mod features;
mod fitted;
mod images_over_gemini;
mod loss;
mod messages_over_chat;
mod param;
mod path;
mod read;
mod responses_over_chat;
mod schema;
mod signed;
mod signed_id;
mod tool_names;
mod write;

use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;
use shared::operation::Dialect;
use shared::provider::path::Call;
use shared::provider::quirks::ToolIds;
use shared::usage::TokenCounts;

pub use counting::Counting;
pub use features::lacking;
pub use fitted::with_tool_ids;
pub use loss::{Fate, Loss};
pub use param::client_param;

pub use crate::translation::{BadAnswer, Flaw, Rejection, TranslatedAnswer};

use crate::claude;
use crate::extras::Extras;
use crate::native;
use crate::stream::AnswerStream;

/// One client dialect over one target dialect.
#[derive(Debug)]
pub struct Adaptation {
    /// What the client speaks.
    pub client: Dialect,
    /// What the target speaks.
    pub target: Dialect,
    /// The dialect between, if the pair is a chain of two others. A field has then a fate in each of them.
    pub via: Option<Dialect>,
    /// What becomes of every field, if the pair is no chain.
    pub losses: &'static [Loss],
    /// Says the client's request in the target's dialect.
    pub prepare: fn(&Asking<'_>) -> Result<Prepared, Rejection>,
    /// Which member of the client's request a member of the prepared one was made of, both as in
    /// [`Rejection::param`]. A chain asks when its second step rejects.
    pub origin: Option<fn(&Asking<'_>, &str) -> Option<String>>,
}

/// Every pair. Of several that could serve a client the first one wins: one step is better than two.
pub static ADAPTATIONS: &[Adaptation] = &[
    messages_over_chat::PAIR,
    responses_over_chat::PAIR,
    chat_over_messages::PAIR,
    chat_over_responses::PAIR,
    chain::by_way_of_chat(Dialect::Responses, Dialect::Messages, |asking| {
        chain::prepare(&responses_over_chat::PAIR, &chat_over_messages::PAIR, asking)
    }),
    chat_over_gemini::PAIR,
    chat_over_bedrock::PAIR,
    chain::by_way_of_chat(Dialect::Messages, Dialect::Gemini, |asking| {
        chain::prepare(&messages_over_chat::PAIR, &chat_over_gemini::PAIR, asking)
    }),
    chain::by_way_of_chat(Dialect::Responses, Dialect::Gemini, |asking| {
        chain::prepare(&responses_over_chat::PAIR, &chat_over_gemini::PAIR, asking)
    }),
    chain::by_way_of_chat(Dialect::Messages, Dialect::Bedrock, |asking| {
        chain::prepare(&messages_over_chat::PAIR, &chat_over_bedrock::PAIR, asking)
    }),
    chain::by_way_of_chat(Dialect::Responses, Dialect::Bedrock, |asking| {
        chain::prepare(&responses_over_chat::PAIR, &chat_over_bedrock::PAIR, asking)
    }),
    images_over_gemini::PAIR,
];

/// A request, and what must be known of the target that shall answer it.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The client's body, whole and not compressed; a JSON object that the scanner has accepted.
    pub body: &'a [u8],
    /// The target.
    pub target: &'a Traits<'a>,
    /// The `model` of the answer: what the target calls the model, as in a native answer.
    pub selector: &'a str,
    /// 24 to 32 letters and digits, new with every request: the answer's ids are made of it.
    pub seed: &'a str,
    /// Seconds since the Unix epoch, for answers that carry a date.
    pub now_s: u64,
    /// The input in tokens, estimated, for streams that begin with what is used.
    pub input_tokens: u64,
}

/// What an adaptation must know of a target. What is not known is taken to be there, but for reasoning.
#[derive(Clone, Copy, Debug)]
pub struct Traits<'a> {
    /// The model's name at the target.
    pub model: &'a str,
    /// Whether the model reasons when asked to.
    pub reasoning: bool,
    /// The member of a chat request that bounds the answer's tokens.
    pub output_limit_field: &'a str,
    /// The bound where a request names none and the target asks for one.
    pub output_tokens_default: u64,
    /// What ids of tool calls must look like.
    pub tool_ids: ToolIds,
    /// Names of tools are words of at most 64 characters.
    pub word_tool_names: bool,
    /// A stream can be asked for its usage by `stream_options`.
    pub stream_options: bool,
    /// Answers can be held to a JSON schema.
    pub json_schema: bool,
    /// Tools can be `strict`.
    pub strict_tools: bool,
    /// `top_k` is known.
    pub top_k: bool,
    /// The refusal of an assistant stands in a member of its own, not in the text.
    pub refusals: bool,
    /// The chat request goes on to another adaptation, which understands what clients of other gateways add to chat:
    /// marks for the cache, signed thoughts and Gemini's signatures.
    pub extended_chat: bool,
    /// System text is called `developer`.
    pub developer_role: bool,
    /// Files can stand in a message.
    pub files: bool,
    /// System text may stand between other messages of a Messages conversation.
    pub mid_system: bool,
    /// System text may stand at the beginning alone, in one message.
    pub leading_system: bool,
    /// The model sees images.
    pub images: bool,
    /// Thoughts that led to calls of tools must come back with the results, as `reasoning_content`.
    pub reasoning_back: bool,
    /// How many sequences may end an answer, if that is bounded.
    pub stops_max: Option<usize>,
    /// Tools whose input is free text are known.
    pub custom_tools: bool,
    /// How hard to reason can be said by a word, not only by a number of tokens.
    pub effort_words: bool,
    /// The version of the protocol, where it is said in the body of a Messages request in place of the model, which
    /// the path names.
    pub messages_version: Option<&'a str>,
}

/// The first Claude that is told by a word how hard to think. Older ones take a number of tokens.
const EFFORT_WORDS_SINCE: (u64, u64) = (4, 6);
/// The Claudes that are known to take system text between other messages. Of whose version nothing is known, may not.
const MID_SYSTEM: Range<(u64, u64)> = (5, 0)..(u64::MAX, 0);

impl<'a> Traits<'a> {
    /// A target of which nothing but the model's name is known, and what that tells.
    pub fn of(model: &'a str) -> Self {
        let version = claude::version(model);
        Self {
            model,
            reasoning: false,
            output_limit_field: "max_tokens",
            output_tokens_default: 4096,
            tool_ids: ToolIds::Word,
            word_tool_names: true,
            stream_options: true,
            json_schema: true,
            strict_tools: true,
            top_k: false,
            refusals: true,
            extended_chat: false,
            developer_role: false,
            files: false,
            mid_system: version.is_some_and(|version| MID_SYSTEM.contains(&version)),
            leading_system: false,
            images: false,
            reasoning_back: false,
            stops_max: None,
            custom_tools: false,
            effort_words: version.is_none_or(|version| version >= EFFORT_WORDS_SINCE),
            messages_version: None,
        }
    }
}

impl Traits<'_> {
    /// Returns true if a chat request may bear Gemini's signatures (`extra_content`). Other vendors refuse unknown members.
    fn takes_signatures(&self) -> bool {
        self.extended_chat || self.model.contains("gemini")
    }
}

/// A request in the target's dialect, and how its answer is to be read.
#[derive(Debug)]
pub struct Prepared {
    /// The body that goes upstream.
    pub body: Bytes,
    /// Turns the answer into the client's dialect.
    pub answers: Box<dyn Answers>,
    /// Members at the top of the client's request that no table knows: nothing is made of them.
    pub dropped: Vec<String>,
}

/// What an answer becomes. One value serves every attempt at the target.
pub trait Answers: Debug {
    /// A whole answer with a good status.
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer>;
    /// A stream. `secrets` are credentials that may not show in errors.
    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream>;
    /// What must be asked of the target for such an answer; `stream` says what the client wants.
    fn call(&self, stream: bool) -> Call {
        Call::answer(stream)
    }
}

/// The usage in a whole body of a target that speaks `target`: an answer, good or bad, or an error.
pub fn usage_in(target: Dialect, body: &[u8]) -> Option<(TokenCounts, Extras)> {
    match target {
        Dialect::Gemini => Some((chat_over_gemini::usage_in(body)?, Extras::default())),
        Dialect::Bedrock => Some((chat_over_bedrock::usage_in(body)?, Extras::default())),
        Dialect::Chat
        | Dialect::Responses
        | Dialect::Messages
        | Dialect::Embeddings
        | Dialect::Speech
        | Dialect::Transcription
        | Dialect::Images
        | Dialect::Videos => {
            let answer = native::whole_answer(target, body);
            Some((answer.usage?, answer.extras))
        }
    }
}

/// How `client` is served by a target that speaks `target`.
pub fn find(client: Dialect, target: Dialect) -> Option<&'static Adaptation> {
    ADAPTATIONS.iter().find(|pair| pair.client == client && pair.target == target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_claude_tells_what_it_takes() {
        for (model, effort_words, mid_system) in [
            ("claude-3-7-sonnet-latest", false, false),
            ("claude-haiku-4-5@20251001", false, false),
            ("claude-opus-4-6", true, false),
            ("anthropic/claude-sonnet-5", true, true),
            ("claude", true, false),
            ("gpt-5", true, false),
        ] {
            let traits = Traits::of(model);
            assert_eq!((traits.effort_words, traits.mid_system), (effort_words, mid_system), "{model}");
        }
    }
}
