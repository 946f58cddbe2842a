//! Adaptations by way of typed chat values: every pair of a client and a target of which one speaks chat, and pairs
//! without an adaptation of their own. The client's side turns a request into chat values and the target's side writes
//! them. Answers are read into chat values by the target's side and written by the client's side, event by event.
//!
//! The target side's rejections name members of a request that the client did not write. The client's side maps them
//! back ([`Adaptation::origin`]), so that the client gets a path of its request.

use std::fmt::Debug;

use shared::operation::Dialect;

use super::adjusted::Adjusted;
use super::paired_results::{Positions, pair};
use super::{
    Adaptation, Answers, Asking, BadAnswer, Prepared, Rejection, Traits, TranslatedAnswer, chat_over_bedrock,
    chat_rules, read,
};
use crate::chat::request::{ChatRequest, SignedThought};
use crate::chat::{
    self, ChatCompletion, ChatForm, ChatSink, ChatSource, ChatStream, ChunkReader, ChunkWriter, SseSource,
};
use crate::json::{self, Tree};
use crate::stream::AnswerStream;

/// Translates requests of one client dialect into chat.
pub(super) struct ClientSide {
    /// Returns the document that `ask` reads, for the body of a request.
    pub(super) document: fn(&[u8]) -> Result<Vec<u8>, Rejection>,
    pub(super) ask: for<'t, 'i> fn(Tree<'t, 'i>, &Asking<'i>) -> Result<AskedInChat<'t, 'i>, Rejection>,
    /// The pair of the client and a chat target, which maps members of the chat request back.
    pub(super) pair: &'static Adaptation,
}

/// Translates chat requests into one target dialect.
pub(super) struct TargetSide {
    pub(super) dialect: Dialect,
    pub(super) ask: fn(&ChatRequest<'_, '_>, &Asking<'_>) -> Result<AskedOfTarget, Rejection>,
}

/// A client's request in chat.
#[derive(Debug)]
pub(super) struct AskedInChat<'t, 'i> {
    pub(super) request: ChatRequest<'t, 'i>,
    /// The writer of its answers.
    pub(super) client: Box<dyn ChatClient>,
    /// Top-level members that were ignored.
    pub(super) dropped: Vec<String>,
}

/// A chat request in the target's dialect.
#[derive(Debug)]
pub(super) struct AskedOfTarget {
    pub(super) body: Vec<u8>,
    /// The reader of its answers.
    pub(super) target: Box<dyn ChatTarget>,
    /// The form of the answers for a client that speaks chat.
    pub(super) form: ChatForm,
    /// Top-level members that were ignored.
    pub(super) dropped: Vec<String>,
    /// What the rules of the model changed.
    pub(super) adjusted: Adjusted,
}

/// Writes chat answers in a client's dialect. One value serves every attempt.
pub(super) trait ChatClient: Debug + Send {
    /// Writes a whole answer.
    fn whole(&self, completion: &ChatCompletion<'_>) -> Result<TranslatedAnswer, BadAnswer>;
    /// Returns the writer of a stream. `secrets` are credentials that must not appear in errors.
    fn sink(&self, secrets: Vec<String>) -> Box<dyn ChatSink>;
}

/// Reads a target's answers as chat answers. One value serves every attempt.
pub(super) trait ChatTarget: Debug + Send {
    /// Reads a whole answer that has a success status.
    fn whole<'a>(&self, body: &'a str) -> Result<ChatCompletion<'a>, BadAnswer>;
    /// Returns the reader of a stream.
    fn source(&self) -> Box<dyn ChatSource>;
}

/// Returns the body of a request whose reader needs no other form of it.
pub(super) fn unchanged(body: &[u8]) -> Result<Vec<u8>, Rejection> {
    Ok(body.to_vec())
}

/// Returns the row of a pair that `prepare` serves through chat.
pub(super) const fn by_way_of_chat(
    client: Dialect,
    target: Dialect,
    prepare: fn(&Asking<'_>) -> Result<Prepared, Rejection>,
) -> Adaptation {
    Adaptation { client, target, via: Some(Dialect::Chat), losses: &[], agents: &[], prepare, origin: None }
}

/// Translates a client's request for a chat target.
pub(super) fn over_chat(client: &ClientSide, asking: &Asking<'_>) -> Result<Prepared, Rejection> {
    let mut document = (client.document)(asking.body)?;
    let tape = json::parse(&mut document).map_err(read::refuse_fault)?;
    let mut client_side = (client.ask)(tape.as_value(), asking)?;
    let positions = pair(&mut client_side.request.messages);
    let mut adjusted = Adjusted::default();
    fit(&mut client_side.request, asking.target)
        .and_then(|()| chat_rules::apply(&mut client_side.request, asking.target, &mut adjusted))
        .map_err(|rejection| traced(client, asking, &positions, rejection))?;
    let dropped = with_images(client_side.dropped, client.pair.client, Dialect::Chat, &client_side.request);
    let dropped = with_reasoning(dropped, Dialect::Chat, &mut client_side.request, asking.target);
    client_side.request.messages.retain(|message| !message.has_only_images());
    let choices = client_side.request.choices();
    let body = client_side.request.write(asking.target.model, asking.body.len());
    let answers =
        Box::new(ThroughChat { target: Box::new(NativeChat { choices }), client: client_side.client });
    let (dropped, changed) = adjusted.finish(dropped, |name| origin_of(client, asking, name));
    Ok(Prepared { body: body.into(), answers, dropped, changed })
}

/// Translates a chat client's request into the target's dialect.
pub(super) fn for_chat(target: &TargetSide, asking: &Asking<'_>) -> Result<Prepared, Rejection> {
    let mut document = asking.body.to_vec();
    let tape = json::parse(&mut document).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), String::new)?;
    let mut request = ChatRequest::read(&request)?;
    fit(&mut request, asking.target)?;
    let translated = (target.ask)(&request, asking)?;
    let answers = Box::new(ThroughChat { target: translated.target, client: Box::new(translated.form) });
    let dropped = with_images(translated.dropped, Dialect::Chat, target.dialect, &request);
    let (dropped, changed) = translated.adjusted.finish(dropped, |_| None);
    Ok(Prepared { body: translated.body.into(), answers, dropped, changed })
}

/// Translates the request into chat values, and these into the target's dialect.
pub(super) fn prepare(
    client: &ClientSide,
    target: &TargetSide,
    asking: &Asking<'_>,
) -> Result<Prepared, Rejection> {
    // Chat can express more than some targets; the target's side checks their limits.
    let between = Traits {
        output_limit_field: "max_completion_tokens",
        developer_role: false,
        files: true,
        leading_system: false,
        stops_max: None,
        word_tool_names: false,
        refusals: true,
        extended_chat: true,
        top_k: asking.target.top_k || takes_top_k(target, asking.target),
        ..*asking.target
    };
    let traits = Traits { files: true, stops_max: asking.target.stops_max, ..between };
    let mut document = (client.document)(asking.body)?;
    let tape = json::parse(&mut document).map_err(read::refuse_fault)?;
    let asking = Asking { target: &between, ..*asking };
    let mut client_side = (client.ask)(tape.as_value(), &asking)?;
    let positions = pair(&mut client_side.request.messages);
    let dropped = with_reasoning(client_side.dropped, target.dialect, &mut client_side.request, &between);
    let translated = fit(&mut client_side.request, &traits)
        .and_then(|()| (target.ask)(&client_side.request, &Asking { target: &traits, ..asking }));
    let translated = translated.map_err(|rejection| traced(client, &asking, &positions, rejection))?;
    let answers = Box::new(ThroughChat { target: translated.target, client: client_side.client });
    let dropped = with_images(dropped, client.pair.client, target.dialect, &client_side.request);
    let (dropped, changed) = translated.adjusted.finish(dropped, |name| origin_of(client, &asking, name));
    Ok(Prepared { body: translated.body.into(), answers, dropped, changed })
}

/// Adds to `dropped` the client's name of the images of earlier answers, if the request has any and the target takes
/// none from the assistant.
fn with_images(
    mut dropped: Vec<String>,
    client: Dialect,
    target: Dialect,
    request: &ChatRequest<'_, '_>,
) -> Vec<String> {
    if target != Dialect::Gemini && request.messages.iter().any(|message| !message.images.is_empty()) {
        let name = match client {
            Dialect::Responses => "input.image_generation_call",
            Dialect::Gemini => "contents.parts.inlineData",
            Dialect::Chat
            | Dialect::Messages
            | Dialect::Embeddings
            | Dialect::GeminiEmbeddings
            | Dialect::Speech
            | Dialect::Transcription
            | Dialect::Images
            | Dialect::Videos
            | Dialect::Bedrock => "messages.images",
        };
        dropped.push(name.to_owned());
    }
    dropped
}

/// Removes the signatures that a target of this dialect cannot read from the reasoning that an agent sent back, and adds
/// their name to `dropped`.
fn with_reasoning(
    mut dropped: Vec<String>,
    target: Dialect,
    request: &mut ChatRequest<'_, '_>,
    traits: &Traits<'_>,
) -> Vec<String> {
    if traits.agents.is_none() {
        return dropped;
    }
    let reads_thoughts = matches!(target, Dialect::Messages | Dialect::Bedrock);
    let mut is_left_out = false;
    for message in &mut request.messages {
        if !reads_thoughts {
            is_left_out |= !std::mem::take(&mut message.thoughts).is_empty();
        }
        if !traits.takes_signatures() || reads_thoughts {
            is_left_out |= message.signature.take().is_some();
        }
    }
    if is_left_out {
        dropped.push("input.reasoning.encrypted_content".to_owned());
    }
    dropped
}

/// Changes the parts of a request that the target rejects, whatever the client's dialect.
fn fit(request: &mut ChatRequest<'_, '_>, target: &Traits<'_>) -> Result<(), Rejection> {
    if target.rules.signed_thinking == Some(true) {
        request.messages.iter_mut().for_each(|message| message.thoughts.retain(SignedThought::may_be_signed));
    }
    if target.root_unions { Ok(()) } else { request.tools.merge_unions() }
}

/// Returns true for a model that accepts `top_k` although other models of its provider do not: Claude on Bedrock.
fn takes_top_k(side: &TargetSide, target: &Traits<'_>) -> bool {
    side.dialect == Dialect::Bedrock && chat_over_bedrock::takes_messages_fields(target.rules)
}

/// Returns the client's name of a member of the chat request, if the client's side can map it.
fn origin_of(client: &ClientSide, asking: &Asking<'_>, name: &str) -> Option<String> {
    client.pair.origin.and_then(|origin| origin(asking, name))
}

/// Returns the rejection with its path in the client's request, if the client's side can map it.
fn traced(
    client: &ClientSide,
    asking: &Asking<'_>,
    positions: &Positions,
    rejection: Rejection,
) -> Rejection {
    let before = positions.before(&rejection.param);
    let origin = origin_of(client, asking, before.as_ref().unwrap_or(&rejection.param));
    match (origin, rejection.message.strip_prefix(&format!("'{}' ", rejection.param))) {
        (Some(origin), Some(why)) => Rejection { flaw: rejection.flaw, ..Rejection::new(origin, why) },
        (Some(origin), None) => Rejection { param: origin, ..rejection },
        // The message still names the member.
        (None, _) => Rejection { param: String::new(), ..rejection },
    }
}

/// Translates answers by way of chat values.
#[derive(Debug)]
struct ThroughChat {
    target: Box<dyn ChatTarget>,
    client: Box<dyn ChatClient>,
}

impl Answers for ThroughChat {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        // JSON is UTF-8. Invalid bytes are replaced, as in a stream.
        let body = crate::sse::lossy_text(body);
        self.client.whole(&self.target.whole(&json::without_surrogates(&body))?)
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(ChatStream::new(self.target.source(), self.client.sink(secrets)))
    }
}

/// A target that speaks chat itself.
#[derive(Debug)]
struct NativeChat {
    /// The number of choices that the client asked for.
    choices: u64,
}

impl ChatTarget for NativeChat {
    fn whole<'a>(&self, body: &'a str) -> Result<ChatCompletion<'a>, BadAnswer> {
        chat::read_completion(body, self.choices)
    }

    fn source(&self) -> Box<dyn ChatSource> {
        Box::new(SseSource::new(ChunkReader::new(self.choices)))
    }
}

// A client that speaks chat itself.
impl ChatClient for ChatForm {
    fn whole(&self, completion: &ChatCompletion<'_>) -> Result<TranslatedAnswer, BadAnswer> {
        Ok(self.completion(completion))
    }

    fn sink(&self, secrets: Vec<String>) -> Box<dyn ChatSink> {
        Box::new(ChunkWriter::new(self, secrets))
    }
}
