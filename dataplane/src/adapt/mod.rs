//! The upstream request for one target: the client's own bytes if the target speaks the client's dialect, otherwise a
//! translation of the request into the target's dialect.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;
use http::uri::PathAndQuery;
use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::model_rules::Thinking;
use shared::operation::Dialect;
use shared::operation_id::Owner;
use shared::provider::path::UpstreamCall;
use shared::provider::quirks::ToolIds;
use shared::reasoning_seal::ReasoningSeal;
use shared::routing::{InstanceReach, PromptCache, ResponsesFallback, Target};
use shared::snapshot::{Route, Snapshot};
use wire::adapt::{Adaptation, Asking, Counting, EmbeddingForm, Flaw, Rejection, SignedRequest, Traits};
use wire::media::videos::Vendor;
use wire::media::with_voice;
use wire::request::{self, CachePoints, Head, Naming};

mod answer_reader;

pub(crate) use self::answer_reader::AnswerReader;
use crate::error::Fault;
use crate::memory_budget::MemoryReservation;
use crate::offload;
use crate::request_id::RequestIds;
use crate::server::body::HeldBody;

/// A client's request and the route that its selector resolved to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutedRequest<'a> {
    /// The source of seeds for the IDs in translated answers.
    pub(crate) ids: &'a RequestIds,
    /// The global system text of the gateway (MSG-1).
    pub(crate) preamble: Option<&'a str>,
    pub(crate) route: &'a Route,
    pub(crate) head: &'a Head,
    pub(crate) body: &'a HeldBody,
    /// Seals reasoning for the caller, if a target of the route needs it.
    pub(crate) seal: Option<&'a ReasoningSeal>,
}

/// Returns the seal of the caller's reasoning, if a target of `route` serves agents.
pub(crate) fn seal(
    snapshot: &Snapshot,
    route: &Route,
    head: &Head,
    access: &Access,
) -> Option<ReasoningSeal> {
    let serves_agents = |target: &Target| target.provider.responses_fallback == ResponsesFallback::Agents;
    let is_needed = head.dialect == Dialect::Responses && route.targets().iter().any(serves_agents);
    if is_needed { snapshot.reasoning_key.seal_of(&Owner::of(access)) } else { None }
}

/// A request for one target, and the way to read its answer.
#[derive(Debug)]
pub(crate) struct TargetRequest {
    pub(crate) reader: AnswerReader,
    pub(crate) path: PathAndQuery,
    pub(crate) segments: Vec<Bytes>,
    /// The changes by the settings of the provider instance and of the model, as `temperature: set`.
    pub(crate) members: Vec<String>,
}

impl TargetRequest {
    /// Applies the changes by the settings of the provider instance and of the model to a JSON body.
    fn changed(mut self, target: &Target) -> Self {
        let (model, provider) = (target.model.body.as_ref(), target.provider.body.as_ref());
        if model.is_none() && provider.is_none() {
            return self;
        }
        if let Some(changed) = request::with_members(&self.segments, model, provider) {
            (self.segments, self.members) = (changed.segments, changed.changes);
        }
        self
    }

    /// Adds cache marks to a request in the dialect `spoken`, if the provider instance wants them and the client has sent
    /// none. A request with few tokens gets none: vendors cache no short ones.
    fn marked(mut self, target: &Target, spoken: Dialect, tokens: impl FnOnce() -> u64) -> Self {
        let Some(lifetime) = target.provider.prompt_cache else { return self };
        if tokens() < CACHED_TOKENS_MIN {
            return self;
        }
        let rules = &target.model.rules;
        let marked = match spoken {
            Dialect::Messages => request::with_cache_mark(&self.segments, lifetime),
            // Nova caches no tools, and nothing for longer.
            Dialect::Bedrock if rules.cache_points == Some(true) => {
                let is_claude = rules.signed_thinking == Some(true);
                let lifetime = if is_claude { lifetime } else { PromptCache::Auto };
                request::with_cache_points(&self.segments, CachePoints { lifetime, tools: is_claude })
            }
            Dialect::Bedrock
            | Dialect::Chat
            | Dialect::Responses
            | Dialect::Gemini
            | Dialect::Embeddings
            | Dialect::GeminiEmbeddings
            | Dialect::Speech
            | Dialect::Transcription
            | Dialect::Images
            | Dialect::Videos => None,
        };
        if let Some(segments) = marked {
            self.segments = segments;
            self.members.push(CACHE_MARK_ADDED.to_owned());
        }
        self
    }
}

/// The probable tokens from which a request gets cache marks: the least that vendors cache.
const CACHED_TOKENS_MIN: u64 = 1_024;
const CACHE_MARK_ADDED: &str = "cache_mark: added";

/// Returns the vendor whose video protocol `target` speaks, if it has a path for videos.
pub(crate) fn vendor(target: &Target) -> Option<Vendor> {
    [Vendor::OpenAi, Vendor::Google].into_iter().find(|vendor| {
        let dialect = vendor.dialect();
        let start = || target.provider.path(dialect, UpstreamCall::Start, target.model.id.as_str());
        target.speaks(dialect) && start().is_some()
    })
}

/// Returns the first adaptation of `dialect` to a dialect that `target` speaks. A model that does not reason beside tools
/// in chat is asked in Responses if it has tools and speaks that too.
fn adaptation(target: &Target, dialect: Dialect, tools: bool) -> Option<&'static Adaptation> {
    let fits = |pair: &&Adaptation| pair.client == dialect && target.adapts(pair.client, pair.target);
    let avoids_chat = tools && target.model.rules.tools_with_effort == Some(false);
    let responses = |pair: &&Adaptation| pair.target == Dialect::Responses && fits(pair);
    let preferred = wire::adapt::ADAPTATIONS.iter().find(|pair| avoids_chat && responses(pair));
    preferred.or_else(|| wire::adapt::ADAPTATIONS.iter().find(fits))
}

/// Returns the dialect to which requests in `dialect` are adapted for `target`; `None` if the target speaks it.
pub(crate) fn adapted_to(target: &Target, dialect: Dialect, tools: bool) -> Option<Dialect> {
    if target.speaks(dialect) {
        return None;
    }
    adaptation(target, dialect, tools).map(|pair| pair.target)
}

/// A request for one target that may still have to be translated.
#[derive(Debug)]
pub(crate) enum Draft {
    Ready(TargetRequest),
    Translation(Box<Translation>),
}

/// A translation that has not been made: it owns everything that it reads, so that another thread can make it.
#[derive(Debug)]
pub(crate) struct Translation {
    pair: &'static Adaptation,
    segments: Vec<Bytes>,
    target: Target,
    seed: HeaderValue,
    input_tokens: u64,
    stream: bool,
    include_usage: bool,
    seal: Option<ReasoningSeal>,
}

/// Translates the request into the target's protocol.
pub(crate) fn target_request(routed: RoutedRequest<'_>, target: &Target) -> Result<TargetRequest, Rejection> {
    match draft(routed, target)? {
        Draft::Ready(request) => Ok(request),
        Draft::Translation(translation) => translation.run(),
    }
}

impl Draft {
    /// Makes the translation, if there is one: that of a large body on a blocking thread. `memory` is reserved until
    /// then, even if the caller leaves, and returned.
    pub(crate) async fn complete(
        self,
        memory: MemoryReservation,
    ) -> (MemoryReservation, Result<TargetRequest, Rejection>) {
        match self {
            Self::Ready(request) => (memory, Ok(request)),
            Self::Translation(translation) => {
                let bytes = translation.segments.iter().map(Bytes::len).sum();
                Box::pin(offload::run(bytes, move || (memory, translation.run()))).await
            }
        }
    }
}

/// Returns true if the request for `target` has the client's own bytes from the conversation on: so much of it as has
/// arrived can be sent before the rest is known.
pub(crate) fn can_begin_early(routed: RoutedRequest<'_>, target: &Target) -> bool {
    let (provider, dialect) = (&target.provider, routed.head.dialect);
    matches!(provider.reach, InstanceReach::Network(_))
        && target.speaks(dialect)
        && preamble(routed).is_none()
        && provider.lanes.is_empty()
        && provider.signer.is_none()
        && provider.body.is_none()
        && target.model.body.is_none()
        && provider.prompt_cache.is_none()
        && (dialect != Dialect::Responses || target.lacks().next().is_none())
        && (dialect != Dialect::Chat || provider.quirks.tool_ids == ToolIds::Word)
}

/// Prepares the request for the target, without a translation.
pub(crate) fn draft(routed: RoutedRequest<'_>, target: &Target) -> Result<Draft, Rejection> {
    if routed.head.dialect == Dialect::Videos {
        return video(routed, target).map(Draft::Ready);
    }
    let (head, model, quirks) = (routed.head, target.model.id.as_str(), &target.provider.quirks);
    let preamble = preamble(routed);
    // Usage is requested on every stream; a client that did not ask for it does not see it (CHAT-4). For an
    // adaptation the body keeps the client's own setting, which the adaptation reads.
    let native = target.speaks(head.dialect);
    let asks = native && asks(target, head.dialect);
    let naming = match quirks.messages_version.filter(|_| native && head.dialect == Dialect::Messages) {
        Some(version) => Naming::Version(version),
        None => Naming::Model(model),
    };
    let segments = request::build(&routed.body.segments, head, naming, asks, preamble.as_deref());
    let segments = match head.is_batch {
        true => match wire::adapt::with_batch_models(&segments.concat(), &head.model, model)? {
            Some(body) => vec![body.into()],
            None => segments,
        },
        false => segments,
    };
    let include_usage = head.include_usage;
    if head.is_compaction && !native {
        return Err(Rejection::new("model", NOT_COMPACTED));
    }
    if native {
        let dialect = head.dialect;
        if let Some(rejection) = native_refusal(head, &segments, target) {
            return Err(rejection);
        }
        let understood =
            dialect.is_conversation() || matches!(dialect, Dialect::Images | Dialect::GeminiEmbeddings);
        let (segments, dropped) = signed(segments, head, target);
        let native = AnswerReader::Native { dialect, include_usage, dropped };
        let reader = if understood { native } else { AnswerReader::Proxied(head.vectors) };
        let segments = fitted(segments, dialect, quirks.tool_ids);
        let segments = match default_voice(target).filter(|_| dialect == Dialect::Speech) {
            Some(voice) => with_voice(segments, voice),
            None => segments,
        };
        let path = path(target, dialect, native_call(head))?;
        let members = Vec::new();
        let request = TargetRequest { reader, path, segments, members };
        return Ok(Draft::Ready(if dialect == Dialect::Transcription {
            request
        } else {
            request.changed(target).marked(target, dialect, || head.input.estimate(dialect, model))
        }));
    }
    let Some(pair) = adaptation(target, head.dialect, head.has_tools) else {
        return Err(Rejection::new("model", "resolves to a target that does not support this protocol."));
    };
    Ok(Draft::Translation(Box::new(Translation {
        pair,
        segments,
        target: target.clone(),
        seed: routed.ids.next(),
        input_tokens: head.input.estimate(head.dialect, model),
        stream: head.stream,
        include_usage,
        seal: match target.provider.responses_fallback {
            ResponsesFallback::Strict => None,
            ResponsesFallback::Agents => routed.seal.cloned(),
        },
    })))
}

/// Returns the call that a native request makes.
fn native_call(head: &Head) -> UpstreamCall {
    match head {
        Head { is_batch: true, .. } => UpstreamCall::Batch,
        Head { is_compaction: true, .. } => UpstreamCall::Compact,
        Head { stream, .. } => UpstreamCall::answer(*stream),
    }
}

/// Returns the path of a call of the target's model.
fn path(target: &Target, dialect: Dialect, call: UpstreamCall) -> Result<PathAndQuery, Rejection> {
    let path = target.provider.path(dialect, call, target.model.id.as_str());
    path.ok_or_else(|| match call {
        UpstreamCall::Compact => Rejection::new("model", NOT_COMPACTED),
        _ => Rejection::new("model", "names a model for which the provider has no path."),
    })
}

impl Translation {
    fn run(self) -> Result<TargetRequest, Rejection> {
        let Self { pair, segments, target, seed, input_tokens, stream, include_usage, seal } = self;
        let body = segments.concat();
        // The path of a Gemini request says that the answer is a stream; the body that is translated has to.
        let body = if pair.client == Dialect::Gemini && stream { with_first(body, STREAM) } else { body };
        let prepared = (pair.prepare)(&Asking {
            body: &body,
            target: &Traits { agents: seal.as_ref(), ..traits(&target) },
            selector: target.model.id.as_str(),
            seed: seed.to_str().unwrap_or_default().trim_start_matches("req_"),
            now_s: shared::clock::unix_ms() / 1_000,
            input_tokens,
        })?;
        let path = path(&target, pair.target, prepared.answers.call(stream))?;
        let reader = AnswerReader::Adapted {
            answers: prepared.answers,
            include_usage,
            client: pair.client,
            target: pair.target,
            dropped: header(&prepared.dropped),
            changed: header(&prepared.changed),
        };
        let (segments, members) = (vec![prepared.body], Vec::new());
        Ok(TargetRequest { reader, path, segments, members }.changed(&target).marked(
            &target,
            pair.target,
            || input_tokens,
        ))
    }
}

/// Returns the rejection of a native request that asks for what this target lacks.
fn native_refusal(head: &Head, segments: &[Bytes], target: &Target) -> Option<Rejection> {
    if head.dialect == Dialect::GeminiEmbeddings && target.predicts_embeddings() {
        return Some(Rejection::new("model", PREDICTED));
    }
    let lacking = match head.dialect == Dialect::Responses && target.lacks().next().is_some() {
        true => wire::adapt::lacking(head, segments, &target.lacks()),
        false => None,
    };
    lacking.or_else(|| wire::adapt::sealed_elsewhere(head, segments))
}

/// Returns true if a native request has unsigned thoughts and the target checks signatures.
pub(crate) fn must_be_signed(head: &Head, target: &Target) -> bool {
    head.has_unsigned_thoughts
        && head.dialect == Dialect::Messages
        && target.model.rules.signed_thinking == Some(true)
}

/// Returns the body without unsigned thoughts, and what was left out, if the target checks signatures.
pub(crate) fn signed(
    segments: Vec<Bytes>,
    head: &Head,
    target: &Target,
) -> (Vec<Bytes>, Option<Box<HeaderValue>>) {
    if !must_be_signed(head, target) {
        return (segments, None);
    }
    match wire::adapt::without_unsigned_thoughts(&segments.concat(), &target.model.rules) {
        Some(SignedRequest { body, dropped }) => (vec![body.into()], header(&dropped)),
        None => (segments, None),
    }
}

/// Returns the names as the value of a header; `None` if there are none.
fn header<T: AsRef<str>>(names: &[T]) -> Option<Box<HeaderValue>> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let value = HeaderValue::from_str(&names.join(", ")).ok()?;
    (!names.is_empty()).then(|| Box::new(value))
}

/// Returns the body with tool call IDs in the format that the target accepts, if the target rejects those of other
/// vendors (Mistral): otherwise a conversation that began elsewhere could not continue there.
fn fitted(segments: Vec<Bytes>, dialect: Dialect, form: ToolIds) -> Vec<Bytes> {
    if dialect != Dialect::Chat || form == ToolIds::Word {
        return segments;
    }
    match wire::adapt::with_tool_ids(form, &segments.concat()) {
        Some(body) => vec![body.into()],
        None => segments,
    }
}

/// Returns the voice of a target for requests that specify none. The in-process voices apply it themselves.
fn default_voice(target: &Target) -> Option<&str> {
    let is_remote = matches!(target.provider.reach, InstanceReach::Network(_));
    target.provider.default_voice.as_deref().filter(|_| is_remote)
}

/// Translates the start of a video into the target's protocol.
fn video(routed: RoutedRequest<'_>, target: &Target) -> Result<TargetRequest, Rejection> {
    let model = target.model.id.as_str();
    let begins =
        |vendor: Vendor| Some((vendor, target.provider.path(vendor.dialect(), UpstreamCall::Start, model)?));
    let Some((vendor, path)) = vendor(target).and_then(begins) else {
        return Err(Rejection::new("model", "resolves to a target that cannot generate videos."));
    };
    let mut body =
        request::build(&routed.body.segments, routed.head, Naming::Model(model), false, None).concat();
    Ok(TargetRequest {
        reader: AnswerReader::Started(vendor),
        path,
        segments: vec![vendor.start(&mut body)?],
        members: Vec::new(),
    })
}

/// Returns true if a native target must be asked for something that it does not send by default, and supports the
/// request for it.
fn asks(target: &Target, dialect: Dialect) -> bool {
    let quirks = &target.provider.quirks;
    match dialect {
        Dialect::Images => target.model.rules.image_urls.unwrap_or(!quirks.inline_images),
        _ => quirks.stream_options,
    }
}

/// Returns the gateway's own system text for the request: the global text, then the endpoint's (MSG-1).
pub(crate) fn preamble<'a>(routed: RoutedRequest<'a>) -> Option<Cow<'a, str>> {
    let own = match routed.route {
        Route::Endpoint(endpoint) => endpoint.preamble.as_deref(),
        Route::Model(_) | Route::Alias(_) | Route::Ambiguous(_) => None,
    };
    match (routed.preamble, own) {
        (Some(all), Some(own)) => Some(format!("{all}\n\n{own}").into()),
        (all, own) => all.or(own).map(Cow::Borrowed),
    }
}

/// Returns the request with which `target` counts the tokens of the client's request with the pieces `segments`.
/// Returns `None` if the target's protocol has no such request. `memory` is reserved for the translation and returned.
pub(crate) async fn counting<'a>(
    routed: RoutedRequest<'_>,
    target: &'a Target,
    segments: &[Bytes],
    memory: MemoryReservation,
) -> Option<(Counting<'a>, PathAndQuery, Bytes, MemoryReservation)> {
    let model = target.model.id.as_str();
    let client = routed.head.dialect;
    let pair = adaptation(target, client, false)?;
    let path = target.provider.path(pair.target, UpstreamCall::Count, model)?;
    let takes_whole = target.provider.quirks.counts_whole;
    let counting = Counting { target: pair.target, model, takes_whole };
    let (owned, seed) = (target.clone(), routed.ids.next());
    let body = match client {
        Dialect::Messages => with_max_tokens(segments.concat(), routed.head),
        _ => segments.concat(),
    };
    let prepare = move || {
        let prepared = (pair.prepare)(&Asking {
            body: &body,
            target: &traits(&owned),
            selector: owned.model.id.as_str(),
            seed: seed.to_str().unwrap_or_default(),
            now_s: shared::clock::unix_ms() / 1_000,
            input_tokens: 0,
        });
        (memory, prepared)
    };
    let bytes = segments.iter().map(Bytes::len).sum();
    let (memory, prepared) = offload::run(bytes, prepare).await;
    let body = counting.request(&prepared.ok()?.body)?;
    Some((counting, path, body, memory))
}

/// Returns the Messages request `body` with `max_tokens`, which is required in a request for an answer but optional
/// in a request to count tokens.
fn with_max_tokens(body: Vec<u8>, head: &Head) -> Vec<u8> {
    if head.max_output_tokens.is_none() { with_first(body, MAX_TOKENS_UNASKED) } else { body }
}

/// Returns the object `body` with `member`, which ends with a comma, as its first member.
fn with_first(mut body: Vec<u8>, member: &[u8]) -> Vec<u8> {
    if let Some(at) = body.iter().position(|byte| *byte == b'{') {
        let after = at.saturating_add(1);
        body.splice(after..after, member.iter().copied());
    }
    body
}

const STREAM: &[u8] = br#""stream":true,"#;

const NOT_COMPACTED: &str = "resolves to a target that cannot compact a conversation: only providers with a native \
                             Responses API can. Name such a model, or send the conversation without compacting it.";

const PREDICTED: &str = "resolves to a model whose embeddings Vertex AI makes by its method 'predict' alone. Name a model \
                         of the family gemini-embedding, or send the texts to /v1/embeddings.";

/// Exceeds every thinking budget, which must be less than `max_tokens`.
const MAX_TOKENS_UNASKED: &[u8] = br#""max_tokens":1000000,"#;

/// Returns the properties of `target` that an adaptation needs.
fn traits(target: &Target) -> Traits<'_> {
    let quirks = &target.provider.quirks;
    let rules = &target.model.rules;
    let plain = Traits::of(target.model.id.as_str());
    Traits {
        provider: target.provider.id.as_str(),
        rules,
        reasoning: target
            .model
            .reasoning
            .unwrap_or_else(|| rules.thinking.is_some_and(|thinking| thinking != Thinking::Never)),
        output_limit_field: quirks.output_limit.field(),
        output_tokens_default: target
            .model
            .output_tokens_max
            .map_or(plain.output_tokens_default, |most| most.min(OUTPUT_TOKENS_UNASKED_MAX)),
        output_tokens_max: target.model.output_tokens_max,
        tool_ids: quirks.tool_ids,
        word_tool_names: quirks.word_tool_names,
        stream_options: quirks.stream_options,
        json_schema: quirks.json_schema,
        strict_tools: quirks.strict_tools,
        root_unions: rules.root_unions.unwrap_or(quirks.root_unions),
        top_k: quirks.top_k,
        refusals: quirks.refusals,
        developer_role: quirks.developer_role,
        files: quirks.files,
        leading_system: quirks.leading_system,
        // The same rule as for images in a user's message: a model without vision gets none.
        images: target.model.vision != Some(false),
        stops_max: quirks.stops_max,
        custom_tools: quirks.custom_tools,
        embeddings: match quirks.vertex_embeddings {
            true if target.predicts_embeddings() => EmbeddingForm::Predict,
            true => EmbeddingForm::Vertex,
            false => EmbeddingForm::Gemini,
        },
        messages_version: quirks.messages_version,
        ..plain
    }
}

/// The output limit if the request specifies none, at most the model's own maximum: some upstreams reserve all of it.
const OUTPUT_TOKENS_UNASKED_MAX: u64 = 32_000;

/// Returns the error for a request that could not be translated for any target.
pub(crate) fn refusal(rejection: Rejection) -> Fault {
    let kind = match rejection.flaw {
        Flaw::Unsupported => ErrorKind::UnsupportedField,
        Flaw::Malformed => ErrorKind::InvalidRequest,
    };
    Fault::new(kind, rejection.message).param(rejection.param)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use shared::routing::EchoOptions;

    use super::*;
    use crate::fixture;
    use crate::memory_budget::MemoryBudget;

    #[tokio::test]
    async fn a_large_request_is_translated_while_its_worker_serves_others() {
        let provider = Arc::new(fixture::echo("e", EchoOptions::default()));
        let budget = Arc::new(MemoryBudget::new(1 << 30));
        for (bytes, is_done_at_once) in [(1 << 10, true), (1 << 20, false)] {
            let text = "x".repeat(bytes);
            let body = format!(r#"{{"max_tokens":9,"messages":[{{"role":"user","content":"{text}"}}]}}"#);
            let draft = Draft::Translation(Box::new(Translation {
                pair: wire::adapt::find(Dialect::Messages, Dialect::Chat).unwrap(),
                segments: vec![body.into()],
                target: fixture::target(&provider),
                seed: HeaderValue::from_static("req_seed"),
                input_tokens: 1,
                stream: false,
                include_usage: false,
                seal: None,
            }));
            let mut memory = MemoryReservation::new(&budget);
            assert!(memory.take(7));
            let mut completing = pin!(draft.complete(memory));
            let first = completing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(first.is_ready(), is_done_at_once, "{bytes}");
            let (memory, request) = match first {
                Poll::Ready(done) => done,
                Poll::Pending => completing.await,
            };
            assert_eq!((memory.bytes(), request.unwrap().segments[0].len() > bytes), (7, true));
        }
    }
}
