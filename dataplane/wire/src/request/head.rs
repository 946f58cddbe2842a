//! Reads what the gateway needs to know of a request before routing it, while the body arrives.
//!
//! The body is never parsed into a tree: its bytes go upstream unchanged, except for the few edits that [`Head`]
//! records.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use shared::operation::Dialect;

use super::fields::{
    BodyChange, BodyEdit, EDITS_MAX, Fields, MemberValue, Misspelling, NAME_BYTES_MAX, RequestMember, System,
};
use super::input::InputSize;
use super::shape::{EMBEDDING, RequestShape, SystemText};
use crate::json::{DEPTH_MAX, JsonFault, StrictScanner, What, unescape, unescape_owned};
use crate::multipart::FormFields;

/// Reads a request body in pieces.
#[derive(Debug)]
pub struct HeadScan {
    dialect: Dialect,
    scanner: StrictScanner,
    fields: Fields,
    path: Option<Box<GeminiCall>>,
}

/// The part of a Gemini request that its path contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeminiCall {
    /// The selector.
    pub model: String,
    /// True if the answer is to be a stream.
    pub stream: bool,
    /// The kind of the request.
    pub kind: GeminiKind,
}

/// The kinds of requests in Google's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeminiKind {
    /// A request for an answer: the body must contain the conversation.
    Generation,
    /// A request for the number of tokens of a conversation, or of another request that the body contains.
    Count,
    /// A request for the embedding of one content.
    Embedding,
    /// A request for the embeddings of several contents.
    EmbeddingBatch,
}

impl GeminiKind {
    fn dialect(self) -> Dialect {
        match self {
            Self::Generation | Self::Count => Dialect::Gemini,
            Self::Embedding | Self::EmbeddingBatch => Dialect::GeminiEmbeddings,
        }
    }

    fn shape(self) -> &'static RequestShape {
        match self {
            Self::Embedding => &EMBEDDING,
            Self::Generation | Self::Count | Self::EmbeddingBatch => RequestShape::of(self.dialect()),
        }
    }
}

/// The facts of a request.
#[derive(Clone, Debug)]
pub struct Head {
    /// The client's dialect.
    pub dialect: Dialect,
    /// The selector. If repeated, the last one, as in the JSON parsers of all upstreams.
    pub model: String,
    /// True if the client requests a stream.
    pub stream: bool,
    /// True if the client wants the usage chunk of its stream. Only chat clients have to request it.
    pub include_usage: bool,
    /// True if the conversation contains an image.
    pub has_image: bool,
    /// True if the conversation has a thought of a model without a signature.
    pub has_unsigned_thoughts: bool,
    /// True if tools are offered.
    pub has_tools: bool,
    /// The gateway's own `fallback_timeout_ms`, if it is a whole number.
    pub fallback_timeout_ms: Option<u64>,
    /// The gateway's own `affinity_key`, cut to 8 KiB.
    pub affinity_key: Option<String>,
    /// `prompt_cache_key`, the same for all requests of one conversation.
    pub prompt_cache_key: Option<String>,
    /// The end user: the last of `user` and `safety_identifier`, or `metadata.user_id` in Messages; cut to 8 KiB.
    pub end_user: Option<Box<str>>,
    /// The largest number of tokens that any upstream could read as the client's bound on one answer.
    pub max_output_tokens: Option<u64>,
    /// True if some upstream could read the answer as unbounded.
    pub output_is_open: bool,
    /// The largest number of answers (each of up to the maximum tokens), pictures or videos that any upstream could
    /// produce.
    pub count: Option<u32>,
    /// True if the request asks for a service tier, or another option, that may have its own price.
    pub has_tier: bool,
    /// The requested properties of pictures and videos.
    pub media: Option<Box<MediaWish>>,
    /// The form in which the client wants the vectors of embeddings, if it is one of OpenAI's.
    pub vectors: Option<VectorForm>,
    /// The size of the conversation, the system text and the tools.
    pub input: Rc<InputSize>,
    /// True if the request asks for the state of an operation and starts none.
    pub is_poll: bool,
    /// True if a Gemini request asks for the embeddings of several contents.
    pub is_batch: bool,
    /// True if a Gemini request has no contents of its own, as one that counts those of a request within it.
    pub lacks_conversation: bool,
    /// True if a Responses request asks for a shorter form of its conversation instead of an answer.
    pub is_compaction: bool,
    /// The provider-side features that a Responses request uses.
    pub state: ProviderState,
    pub(super) edits: Vec<BodyEdit>,
    pub(super) has_options: bool,
    pub(super) has_system: bool,
}

/// The form of a vector of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorForm {
    /// A list of numbers.
    Numbers,
    /// 32-bit floats, little-endian, in base64.
    Base64,
}

/// The requested properties of pictures or a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaWish {
    /// `quality/size` of pictures, if both are given.
    pub picture: Option<Box<str>>,
    /// The size of pictures without a given quality, or the size or resolution of a video.
    pub size: Option<Box<str>>,
    /// The length of a video in seconds.
    pub seconds: Option<u32>,
}

/// The state that a Responses request stores, or has stored, at the provider (RESP-2, RESP-3). Empty in other dialects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderState {
    /// `background: true`.
    pub background: bool,
    /// `store`, if given.
    pub store: Option<bool>,
    /// `previous_response_id`, unless it is null.
    pub previous_response_id: Option<String>,
    /// `conversation`, or its `id`, unless it is null.
    pub conversation: Option<String>,
    /// True if `include` has elements.
    pub include: bool,
    /// True if `prompt` is not null.
    pub prompt: bool,
    /// True if an input item has `encrypted_content`, which only the account that created it can read.
    pub encrypted_content: bool,
}

/// The reason why a body is not a request in its dialect. `Display` is the text for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanError {
    /// The kind of the error.
    pub fault: ScanFault,
    /// The member that the error refers to.
    pub param: Option<Cow<'static, str>>,
}

/// The kinds of errors in a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanFault {
    /// Not JSON, or truncated, at this byte.
    NotJson(JsonFault),
    /// JSON, but not an object.
    NotObject,
    /// Nested deeper than allowed (LIM-2).
    TooDeep,
    /// `model` is missing.
    ModelMissing,
    /// `model` is not a string, or not valid text.
    ModelNotString,
    /// A member whose name differs only in case from one that the gateway reads: some upstreams treat it as that one.
    Misspelt {
        /// The name as the client wrote it, with escapes decoded.
        written: String,
        /// The correct name, with the name of its parent.
        name: String,
    },
    /// `model` is longer than the limit for names.
    ModelTooLong,
    /// `model` differs from the model of the path.
    ModelDiffers,
    /// The conversation is missing: the name of its member.
    ConversationMissing(&'static str),
    /// A chat request has the `prompt` of the older completions instead of messages.
    PromptInstead,
    /// The conversation has the wrong type: the name of its member, and the expected type.
    ConversationUnfit(&'static str, &'static str),
    /// A bound on the answer is not a whole number: the name of its member.
    BoundUnfit(&'static str),
    /// `stream` is neither a bool nor null.
    StreamNotBool,
    /// Images are requested in another form than inline.
    ImageFormat,
    /// Members are repeated too often.
    TooManyRepeats,
}

impl Head {
    /// Returns the head of a transcription request, which is a form.
    pub fn of_form(form: FormFields) -> Self {
        let edit = |span| BodyEdit { span, change: BodyChange::PlainModel };
        Self {
            dialect: Dialect::Transcription,
            model: form.model,
            stream: form.stream,
            include_usage: true,
            has_image: false,
            has_unsigned_thoughts: false,
            has_tools: false,
            fallback_timeout_ms: None,
            affinity_key: None,
            prompt_cache_key: None,
            end_user: None,
            max_output_tokens: None,
            output_is_open: false,
            count: None,
            has_tier: false,
            media: None,
            vectors: None,
            input: Rc::new(match form.wave_ms {
                Some(audio_ms) => InputSize { audio_ms, ..InputSize::default() },
                None => InputSize { audio_bytes: form.bytes, ..InputSize::default() },
            }),
            is_poll: false,
            is_batch: false,
            lacks_conversation: false,
            is_compaction: false,
            state: ProviderState::default(),
            edits: form.models.into_iter().map(edit).collect(),
            has_options: false,
            has_system: false,
        }
    }
}

impl HeadScan {
    /// Creates a scan for a new body.
    pub fn new(dialect: Dialect) -> Self {
        let fields = Fields::new(RequestShape::of(dialect));
        Self { dialect, scanner: StrictScanner::default(), fields, path: None }
    }

    /// Creates a scan for the body of a Gemini request.
    pub fn of_gemini(call: GeminiCall) -> Self {
        let (dialect, fields) = (call.kind.dialect(), Fields::new(call.kind.shape()));
        Self { dialect, scanner: StrictScanner::default(), fields, path: Some(Box::new(call)) }
    }

    /// Reads the next piece of the body.
    pub fn push(&mut self, segment: &[u8]) -> Result<(), ScanError> {
        self.scanner.push(segment, &mut self.fields)?;
        if self.fields.too_many_repeats() {
            return Err(ScanFault::TooManyRepeats.into());
        }
        Ok(())
    }

    /// Ends the body and returns its facts.
    pub fn finish(mut self) -> Result<Head, ScanError> {
        self.scanner.finish()?;
        self.facts(Extent::Whole)
    }

    /// Returns the facts that have been read, once the conversation has begun and if the members so far, the model among
    /// them, probably determine how the body is edited. Later members may still contradict them.
    pub fn preview(&self) -> Option<Head> {
        let Self { dialect, fields, path, .. } = self;
        if path.is_some() || !fields.has_known_edits() {
            return None;
        }
        let mut copy =
            Self { dialect: *dialect, scanner: StrictScanner::default(), fields: fields.clone(), path: None };
        copy.facts(Extent::Beginning).ok()
    }

    fn facts(&mut self, extent: Extent) -> Result<Head, ScanError> {
        let fields = &mut self.fields;
        if let Some(Misspelling { written, name }) = fields.misspelling.take() {
            return Err(ScanFault::Misspelt { written, name }.into());
        }
        let state = provider_state(fields);
        let affinity_key = text(fields, fields.value(RequestMember::Affinity));
        let prompt_cache_key = text(fields, fields.value(RequestMember::CacheKey));
        let end_user =
            text(fields, fields.value(RequestMember::EndUser)).or_else(|| text(fields, fields.user_id));
        let end_user = end_user.map(String::into_boxed_str);
        let kind = self.path.as_ref().map(|call| call.kind);
        let (model, stream) = match self.path.take() {
            Some(call) => of_path(fields, *call, &state)?,
            None => {
                let named = (model(fields)?, stream(fields.value(RequestMember::Stream))?);
                if extent == Extent::Whole {
                    check_conversation(fields, &state)?;
                }
                named
            }
        };
        check_image_format(fields)?;
        let bounds = fields.bounds;
        if let Some(name) = bounds.unfit {
            return Err(ScanFault::BoundUnfit(name).into());
        }
        Ok(Head {
            dialect: self.dialect,
            model,
            stream,
            include_usage: fields.include_usage,
            has_image: fields.has_image,
            has_unsigned_thoughts: fields.has_unsigned_thoughts(),
            has_tools: fields.value(RequestMember::Tools).has_elements()
                || fields.value(RequestMember::Functions).has_elements(),
            fallback_timeout_ms: fields.value(RequestMember::Timeout).whole_number(),
            affinity_key,
            prompt_cache_key,
            end_user,
            max_output_tokens: bounds.output,
            output_is_open: bounds.output_is_open,
            count: bounds.count.map(|count| count.try_into().unwrap_or(u32::MAX)),
            has_tier: fields.has_tier,
            media: media(fields),
            vectors: vectors(self.dialect, fields),
            input: Rc::new(fields.input_size()),
            is_poll: fields.value(RequestMember::Operation).is_given(),
            is_batch: kind == Some(GeminiKind::EmbeddingBatch),
            lacks_conversation: !fields.value(RequestMember::Conversation).is_given(),
            is_compaction: false,
            state,
            has_system: fields.value(RequestMember::System) != MemberValue::Absent,
            edits: std::mem::take(&mut fields.edits),
            has_options: fields.has_options,
        })
    }
}

/// The part of a body that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Beginning,
    Whole,
}

/// Returns the model and the kind of answer that the path asks for, and marks the place of system text if the body has
/// none.
fn of_path(
    fields: &mut Fields,
    call: GeminiCall,
    state: &ProviderState,
) -> Result<(String, bool), ScanError> {
    let GeminiCall { model, stream, kind } = call;
    if model.len() > NAME_BYTES_MAX {
        return Err(ScanFault::ModelTooLong.into());
    }
    let value = fields.value(RequestMember::Model);
    if value.is_given() && text(fields, value).as_deref().map(bare_model) != Some(bare_model(&model)) {
        return Err(ScanFault::ModelDiffers.into());
    }
    if kind != GeminiKind::Count {
        check_conversation(fields, state)?;
    }
    if fields.shape.system != SystemText::None && fields.value(RequestMember::System) == MemberValue::Absent {
        let first = fields.first_member;
        let change = BodyChange::System(System::First);
        fields.edits.insert(0, BodyEdit { span: first..first, change });
    }
    Ok((model, stream))
}

/// Returns the model of a Gemini name without the collections before it.
pub fn bare_model(name: &str) -> &str {
    let after = |collection| name.rsplit_once(collection).map(|(_, model)| model);
    let bare = name.strip_prefix("models/").or_else(|| name.strip_prefix("tunedModels/"));
    bare.or_else(|| after("/publishers/google/models/")).unwrap_or(name)
}

fn check_conversation(fields: &Fields, state: &ProviderState) -> Result<(), ScanError> {
    let shape = fields.shape;
    let value = fields.value(RequestMember::Conversation);
    let is_stored = state.prompt || state.conversation.is_some() || state.previous_response_id.is_some();
    if fields.value(RequestMember::Operation).is_given() {
        return Ok(());
    }
    if shape.kinds.fit(value) || (shape.may_be_stored && is_stored && !value.is_given()) {
        return Ok(());
    }
    let name = shape.conversation;
    if value == MemberValue::Absent && !shape.may_be_stored && fields.value(RequestMember::Prompt).is_given()
    {
        return Err(ScanFault::PromptInstead.into());
    }
    if value == MemberValue::Absent {
        return Err(ScanFault::ConversationMissing(name).into());
    }
    Err(ScanFault::ConversationUnfit(name, shape.kinds.name()).into())
}

/// Only inline images can be relayed: an address would have to be fetched (IMG-1).
fn check_image_format(fields: &Fields) -> Result<(), ScanError> {
    let value = fields.value(RequestMember::ImageFormat);
    let is_inline = text(fields, value).is_some_and(|format| format == "b64_json");
    if value.is_given() && !is_inline { Err(ScanFault::ImageFormat.into()) } else { Ok(()) }
}

fn provider_state(fields: &Fields) -> ProviderState {
    let conversation = text(fields, fields.value(RequestMember::StoredConversation));
    ProviderState {
        background: fields.value(RequestMember::Background).boolean() == Some(true),
        store: fields.value(RequestMember::Store).boolean(),
        previous_response_id: text(fields, fields.value(RequestMember::PreviousResponse)),
        conversation: conversation.or_else(|| text(fields, fields.conversation_id)),
        include: fields.value(RequestMember::Include).has_elements(),
        prompt: fields.shape.may_be_stored && fields.value(RequestMember::Prompt).is_given(),
        encrypted_content: fields.has_encrypted,
    }
}

fn model(fields: &mut Fields) -> Result<String, ScanError> {
    let MemberValue::Text(span) = fields.value(RequestMember::Model) else {
        let absent = fields.value(RequestMember::Model) == MemberValue::Absent;
        let fault = if absent { ScanFault::ModelMissing } else { ScanFault::ModelNotString };
        return Err(fault.into());
    };
    let raw = span.of(&fields.texts);
    if raw.len() > NAME_BYTES_MAX {
        return Err(ScanFault::ModelTooLong.into());
    }
    // Usually this is the only name, and its bytes need not be copied.
    let is_all = raw.len() == fields.texts.len();
    let model = if is_all { unescape_owned(std::mem::take(&mut fields.texts)) } else { unescape(raw) };
    model.ok_or_else(|| ScanFault::ModelNotString.into())
}

fn media(fields: &Fields) -> Option<Box<MediaWish>> {
    let picture = picture(fields);
    let size = if picture.is_none() { named(fields, RequestMember::Size) } else { None };
    let size = size.map(String::into_boxed_str);
    let wish = MediaWish { picture, size, seconds: seconds(fields) };
    (wish.picture.is_some() || wish.size.is_some() || wish.seconds.is_some()).then(|| Box::new(wish))
}

/// Returns the form in which vectors are wanted. Numbers are the default.
fn vectors(dialect: Dialect, fields: &Fields) -> Option<VectorForm> {
    if dialect != Dialect::Embeddings {
        return None;
    }
    let value = fields.value(RequestMember::VectorFormat);
    match text(fields, value).as_deref() {
        Some("float") => Some(VectorForm::Numbers),
        Some("base64") => Some(VectorForm::Base64),
        Some(_) => None,
        None => (!value.is_given()).then_some(VectorForm::Numbers),
    }
}

/// Returns the picture kind, unless the client leaves the choice to the target.
fn picture(fields: &Fields) -> Option<Box<str>> {
    Some(format!("{}/{}", named(fields, RequestMember::Quality)?, named(fields, RequestMember::Size)?).into())
}

/// Returns a string value, unless it leaves the choice to the target.
fn named(fields: &Fields, field: RequestMember) -> Option<String> {
    text(fields, fields.value(field)).filter(|name| name != "auto")
}

/// Returns a length in seconds. OpenAI writes this number as a string.
fn seconds(fields: &Fields) -> Option<u32> {
    let value = fields.value(RequestMember::Seconds);
    let seconds = match value {
        MemberValue::Whole(seconds) | MemberValue::WholeOddly(seconds) => seconds,
        MemberValue::Text(_) => text(fields, value)?.parse().ok()?,
        MemberValue::Absent
        | MemberValue::Null
        | MemberValue::Bool(_)
        | MemberValue::MinusOne
        | MemberValue::Number
        | MemberValue::Object
        | MemberValue::Array { .. } => return None,
    };
    Some(seconds.try_into().unwrap_or(u32::MAX))
}

fn stream(value: MemberValue) -> Result<bool, ScanError> {
    match value.boolean() {
        Some(stream) => Ok(stream),
        None if value.is_given() => Err(ScanFault::StreamNotBool.into()),
        None => Ok(false),
    }
}

/// Returns the text of a value. `None` if it is not a string, or empty.
fn text(fields: &Fields, value: MemberValue) -> Option<String> {
    let MemberValue::Text(span) = value else { return None };
    let raw = span.of(&fields.texts);
    let text = unescape(raw).unwrap_or_else(|| String::from_utf8_lossy(raw).into_owned());
    Some(text).filter(|text| !text.is_empty())
}

impl From<ScanFault> for ScanError {
    fn from(fault: ScanFault) -> Self {
        let param = match &fault {
            ScanFault::ModelMissing
            | ScanFault::ModelNotString
            | ScanFault::ModelTooLong
            | ScanFault::ModelDiffers => Some("model".into()),
            ScanFault::Misspelt { name, .. } => Some(name.clone().into()),
            ScanFault::ConversationMissing(name)
            | ScanFault::ConversationUnfit(name, _)
            | ScanFault::BoundUnfit(name) => Some(Cow::Borrowed(*name)),
            ScanFault::PromptInstead => Some("messages".into()),
            ScanFault::StreamNotBool => Some("stream".into()),
            ScanFault::ImageFormat => Some("response_format".into()),
            ScanFault::NotJson(_) | ScanFault::NotObject | ScanFault::TooDeep | ScanFault::TooManyRepeats => {
                None
            }
        };
        Self { fault, param }
    }
}

impl From<JsonFault> for ScanError {
    fn from(fault: JsonFault) -> Self {
        match fault.what {
            What::NotObject => ScanFault::NotObject.into(),
            What::TooDeep => ScanFault::TooDeep.into(),
            What::Unexpected(_) | What::RawControl(_) | What::NotUtf8 | What::Truncated => {
                ScanFault::NotJson(fault).into()
            }
        }
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            ScanFault::NotJson(fault) => write!(f, "The body is not valid JSON: {fault}."),
            ScanFault::NotObject => f.write_str("The body must be a JSON object."),
            ScanFault::TooDeep => {
                write!(f, "The body nests more than {} levels deep.", DEPTH_MAX)
            }
            ScanFault::ModelMissing => f.write_str("Missing required member: 'model'."),
            ScanFault::ModelNotString => f.write_str("'model' must be a string."),
            ScanFault::ModelDiffers => {
                f.write_str("'model' must be the model of the path. Omit it, or send the same name.")
            }
            ScanFault::Misspelt { written, name } => {
                write!(
                    f,
                    "Unknown member '{written}': write '{name}'. Some upstreams treat both as the same."
                )
            }
            ScanFault::ModelTooLong => write!(f, "'model' is longer than {NAME_BYTES_MAX} bytes."),
            ScanFault::ConversationMissing(name) => write!(f, "Missing required member: '{name}'."),
            ScanFault::PromptInstead => f.write_str(
                "Missing required member: 'messages'. This route serves chat completions: send 'prompt' as the content \
                 of a message.",
            ),
            ScanFault::ConversationUnfit(name, kinds) => write!(f, "'{name}' must be {kinds}."),
            ScanFault::BoundUnfit(name) => {
                write!(f, "'{name}' must be a non-negative whole number or null.")
            }
            ScanFault::StreamNotBool => f.write_str("'stream' must be true, false or null."),
            ScanFault::ImageFormat => f.write_str(
                "'response_format' must be \"b64_json\" or omitted: images are returned inline only.",
            ),
            ScanFault::TooManyRepeats => {
                write!(f, "The body repeats its members more than {EDITS_MAX} times.")
            }
        }
    }
}

impl std::error::Error for ScanError {}
