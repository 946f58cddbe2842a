//! Adaptations: each serves clients of one dialect from a target that speaks another one. A folder translates requests
//! between chat and another dialect, reads that dialect's answers as chat values, or writes chat values as its answers;
//! `through_chat` combines them. There is no intermediate message format of our own.
//!
//! A request whose meaning the target's dialect cannot express is rejected before anything is sent. The fate of each
//! field is in the pair's table of losses, which code, tests and `docs/adaptations.md` share.

mod adjusted;
mod batch_models;
mod call_id;
mod carried_reasoning;
mod chat_client;
mod chat_over_bedrock;
mod chat_over_gemini;
mod chat_over_messages;
mod chat_over_responses;
mod chat_rules;
mod counting;
mod cursor;
mod embeddings_over_gemini_embeddings;
mod features;
mod function_calls;
mod gemini_embeddings_over_embeddings;
mod gemini_over_chat;
mod images_over_gemini;
mod loss;
mod messages_over_chat;
mod never_streamed;
mod origin_trail;
mod paired_results;
mod param;
mod responses_over_chat;
mod signature_in_call_id;
mod splice;
mod through_chat;
mod tool_call_ids;
mod tool_names;
mod tool_output;
mod unsigned_thoughts;

use std::fmt::Debug;

use bytes::Bytes;
use shared::adaptation::{AdaptationStep, AdaptationTable, AdaptedField};
use shared::model_rules::ModelRules;
use shared::operation::Dialect;
use shared::provider::path::UpstreamCall;
use shared::provider::quirks::ToolIds;
use shared::reasoning_seal::ReasoningSeal;
use shared::usage::TokenCounts;

pub use batch_models::with_batch_models;
pub use counting::Counting;
pub use cursor::chat_of_cursor;
pub use features::{lacking, sealed_elsewhere};
pub use loss::{Fate, Loss};
pub use param::client_param;
pub use tool_call_ids::with_tool_ids;
pub use unsigned_thoughts::{SignedRequest, without_unsigned_thoughts};

pub use crate::translation::{BadAnswer, Flaw, Rejection, TranslatedAnswer};

use crate::extras::Extras;
use crate::stream::AnswerStream;
use crate::translation::{path, read, schema};
use crate::{bedrock, gemini, native};

/// An adaptation of one client dialect to one target dialect.
#[derive(Debug)]
pub struct Adaptation {
    /// The client's dialect.
    pub client: Dialect,
    /// The target's dialect.
    pub target: Dialect,
    /// The intermediate dialect, if the pair is a chain of two others. A field then has a fate in each of them.
    pub via: Option<Dialect>,
    /// The fate of every field; empty if the pair is a chain.
    pub losses: &'static [Loss],
    /// The fates that differ at targets that serve agents (`responses_fallback: agents`).
    pub agents: &'static [Loss],
    /// Translates the client's request into the target's dialect.
    pub prepare: fn(&Asking<'_>) -> Result<Prepared, Rejection>,
    /// Returns the member of the client's request from which a member of the prepared one was made, both written as in
    /// [`Rejection::param`]. Used if the prepared request is only an intermediate one, and is then rejected.
    pub origin: Option<fn(&Asking<'_>, &str) -> Option<String>>,
}

/// All pairs. If several rows match a client and a target, the first one is used, so pairs of one step precede chains.
pub static ADAPTATIONS: &[Adaptation] = &[
    messages_over_chat::PAIR,
    responses_over_chat::PAIR,
    chat_over_messages::PAIR,
    chat_over_responses::PAIR,
    through_chat::by_way_of_chat(Dialect::Responses, Dialect::Messages, |asking| {
        through_chat::prepare(&responses_over_chat::CLIENT, &chat_over_messages::TARGET, asking)
    }),
    chat_over_gemini::PAIR,
    chat_over_bedrock::PAIR,
    through_chat::by_way_of_chat(Dialect::Messages, Dialect::Gemini, |asking| {
        through_chat::prepare(&messages_over_chat::CLIENT, &chat_over_gemini::TARGET, asking)
    }),
    through_chat::by_way_of_chat(Dialect::Responses, Dialect::Gemini, |asking| {
        through_chat::prepare(&responses_over_chat::CLIENT, &chat_over_gemini::TARGET, asking)
    }),
    through_chat::by_way_of_chat(Dialect::Messages, Dialect::Bedrock, |asking| {
        through_chat::prepare(&messages_over_chat::CLIENT, &chat_over_bedrock::TARGET, asking)
    }),
    through_chat::by_way_of_chat(Dialect::Messages, Dialect::Responses, |asking| {
        through_chat::prepare(&messages_over_chat::CLIENT, &chat_over_responses::TARGET, asking)
    }),
    through_chat::by_way_of_chat(Dialect::Responses, Dialect::Bedrock, |asking| {
        through_chat::prepare(&responses_over_chat::CLIENT, &chat_over_bedrock::TARGET, asking)
    }),
    images_over_gemini::PAIR,
    gemini_over_chat::PAIR,
    through_chat::by_way_of_chat(Dialect::Gemini, Dialect::Messages, |asking| {
        through_chat::prepare(&gemini_over_chat::CLIENT, &chat_over_messages::TARGET, asking)
    }),
    through_chat::by_way_of_chat(Dialect::Gemini, Dialect::Bedrock, |asking| {
        through_chat::prepare(&gemini_over_chat::CLIENT, &chat_over_bedrock::TARGET, asking)
    }),
    through_chat::by_way_of_chat(Dialect::Gemini, Dialect::Responses, |asking| {
        through_chat::prepare(&gemini_over_chat::CLIENT, &chat_over_responses::TARGET, asking)
    }),
    embeddings_over_gemini_embeddings::PAIR,
    gemini_embeddings_over_embeddings::PAIR,
];

/// A client's request with the properties of the target that is to answer it.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The client's complete body, uncompressed: a JSON object that the scanner has accepted.
    pub body: &'a [u8],
    /// The target.
    pub target: &'a Traits<'a>,
    /// The `model` of the answer: the target's name of the model, as in a native answer.
    pub selector: &'a str,
    /// 24 to 32 letters and digits, unique to the request; the answer's ids are made from it.
    pub seed: &'a str,
    /// Seconds since the Unix epoch, for answers that carry a date.
    pub now_s: u64,
    /// The estimated number of input tokens, for streams that begin with their usage.
    pub input_tokens: u64,
}

/// Properties of a target that adaptations depend on. Where a property is unknown the target is assumed to have it,
/// except reasoning.
#[derive(Clone, Copy, Debug)]
pub struct Traits<'a> {
    /// The model's name at the target.
    pub model: &'a str,
    /// The provider instance, as its configuration names it.
    pub provider: &'a str,
    /// The rules of the model, as far as they are known.
    pub rules: &'a ModelRules,
    /// True if the model reasons on request.
    pub reasoning: bool,
    /// The member of a chat request that limits the answer's tokens.
    pub output_limit_field: &'a str,
    /// The limit if a request sets none and the target requires one.
    pub output_tokens_default: u64,
    /// The largest output of the model in tokens, if it is known.
    pub output_tokens_max: Option<u64>,
    /// The format of tool call ids that the target accepts.
    pub tool_ids: ToolIds,
    /// True if tool names are limited to 64 letters, digits, `_` and `-`.
    pub word_tool_names: bool,
    /// True if `stream_options` can request the usage of a stream.
    pub stream_options: bool,
    /// True if the target can constrain an answer to a JSON schema.
    pub json_schema: bool,
    /// True if the target accepts `strict` tools.
    pub strict_tools: bool,
    /// True if the schema of a tool may be a union at its root.
    pub root_unions: bool,
    /// True if the target accepts `top_k`.
    pub top_k: bool,
    /// True if an assistant message carries a refusal in a separate member, false if in the text.
    pub refusals: bool,
    /// True if the chat request is the input of another adaptation, which understands the extensions that clients of
    /// other gateways add to chat: cache marks, signed thoughts and Gemini's signatures.
    pub extended_chat: bool,
    /// True if the role of system text is `developer`.
    pub developer_role: bool,
    /// True if a message may contain files.
    pub files: bool,
    /// True if system text is accepted only at the beginning, in one message.
    pub leading_system: bool,
    /// True if the model accepts images.
    pub images: bool,
    /// The maximum number of stop sequences, if there is one.
    pub stops_max: Option<usize>,
    /// True if the target supports tools whose input is free text.
    pub custom_tools: bool,
    /// Seals the reasoning for the client, if the target serves Responses clients by the rules for agents.
    pub agents: Option<&'a ReasoningSeal>,
    /// The form of Google's embeddings.
    pub embeddings: EmbeddingForm,
    /// The protocol version, if a Messages request carries it in the body in place of the model, which is then in the
    /// path.
    pub messages_version: Option<&'a str>,
}

/// The form of a request for Google's embeddings of several texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingForm {
    /// `:batchEmbedContents` of the Gemini API.
    Gemini,
    /// `:batchEmbedContents` of Vertex AI, with the options in `embedContentConfig`.
    Vertex,
    /// Vertex AI's `:predict`.
    Predict,
}

impl<'a> Traits<'a> {
    /// Returns the properties of a target of which only the model's name is known.
    pub fn of(model: &'a str) -> Self {
        Self {
            model,
            provider: "",
            rules: &ModelRules::UNKNOWN,
            reasoning: false,
            output_limit_field: "max_tokens",
            output_tokens_default: 4096,
            output_tokens_max: None,
            tool_ids: ToolIds::Word,
            word_tool_names: true,
            stream_options: true,
            json_schema: true,
            strict_tools: true,
            root_unions: true,
            top_k: false,
            refusals: true,
            extended_chat: false,
            developer_role: false,
            files: false,
            leading_system: false,
            images: false,
            stops_max: None,
            custom_tools: false,
            agents: None,
            embeddings: EmbeddingForm::Gemini,
            messages_version: None,
        }
    }
}

impl Traits<'_> {
    /// Returns the largest output of the model, if `asked` is more than that.
    fn lower_limit(&self, asked: u64) -> Option<u64> {
        self.output_tokens_max.filter(|most| *most < asked)
    }

    /// Returns true if a chat request may contain Gemini's signatures (`extra_content`). Other vendors reject unknown
    /// members.
    fn takes_signatures(&self) -> bool {
        self.extended_chat || self.rules.call_signatures.is_some()
    }

    /// Returns true if system text may stand between other messages of a Messages conversation. Cloud platforms that run
    /// Claude support an older version of Messages.
    fn mid_system(&self) -> bool {
        self.rules.mid_system == Some(true) && self.messages_version.is_none()
    }
}

/// A request in the target's dialect, and the translator of its answer.
#[derive(Debug)]
pub struct Prepared {
    /// The body to send upstream.
    pub body: Bytes,
    /// Turns the answer into the client's dialect.
    pub answers: Box<dyn Answers + Send>,
    /// Members of the client's request that were left out: top-level ones that no table has, and those that the rules of
    /// the model exclude.
    pub dropped: Vec<String>,
    /// Members that the rules of the model changed, as `name=value`.
    pub changed: Vec<String>,
}

/// Translates answers into the client's dialect. One value serves every attempt at the target.
pub trait Answers: Debug {
    /// Translates a whole answer that has a success status.
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer>;
    /// Returns the translator of a stream. `secrets` are credentials that must not appear in errors.
    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream>;
    /// Returns the upstream operation that produces such an answer; `stream` is true if the client wants a stream.
    fn call(&self, stream: bool) -> UpstreamCall {
        UpstreamCall::answer(stream)
    }
}

/// Returns the usage in a whole body, an answer or an error, of a target that speaks `target`.
pub fn usage_in(target: Dialect, body: &[u8]) -> Option<(TokenCounts, Extras)> {
    match target {
        Dialect::Gemini | Dialect::GeminiEmbeddings => Some((gemini::usage_in(body)?, Extras::default())),
        Dialect::Bedrock => Some((bedrock::usage_in(body)?, Extras::default())),
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

/// Returns the adaptation of `client` to targets that speak `target`.
pub fn find(client: Dialect, target: Dialect) -> Option<&'static Adaptation> {
    ADAPTATIONS.iter().find(|pair| pair.client == client && pair.target == target)
}

/// Returns every pair with the fate of each field.
pub fn tables() -> Vec<AdaptationTable> {
    ADAPTATIONS.iter().map(table).collect()
}

fn table(pair: &Adaptation) -> AdaptationTable {
    let steps = match pair.via {
        None => vec![step(pair)],
        Some(via) => {
            let pairs = [find(pair.client, via), find(via, pair.target)];
            pairs.into_iter().flatten().map(step).collect()
        }
    };
    AdaptationTable { client: pair.client, target: pair.target, steps }
}

fn step(pair: &Adaptation) -> AdaptationStep {
    let field = |loss: &Loss| AdaptedField { field: loss.field, fate: loss.fate.name(), note: loss.note };
    let fields = |losses: &[Loss]| losses.iter().map(field).collect();
    AdaptationStep {
        from: pair.client,
        to: pair.target,
        fields: fields(pair.losses),
        agents: fields(pair.agents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_adaptation_table_matches_the_routing_table() {
        for client in Dialect::ALL {
            let pairs = ADAPTATIONS.iter().filter(|pair| pair.client == client);
            let targets: Vec<Dialect> = pairs.map(|pair| pair.target).collect();
            assert_eq!(targets, client.adapted_to(), "{client:?}");
        }
    }

    #[test]
    fn each_pair_has_a_table_of_fields_for_each_of_its_steps() {
        for (table, pair) in tables().iter().zip(ADAPTATIONS) {
            let ends = (table.steps.first().map(|step| step.from), table.steps.last().map(|step| step.to));
            assert_eq!(ends, (Some(pair.client), Some(pair.target)));
            assert_eq!(table.steps.len(), 1 + usize::from(pair.via.is_some()), "{pair:?}");
            assert!(table.steps.iter().all(|step| !step.fields.is_empty()), "{table:?}");
        }
    }
}
