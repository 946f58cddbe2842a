//! Collects the facts that the gateway needs from the tokens of a request.

use std::ops::Range;

use super::content_counts::{ContentCounts, Ended, InnerKey, TOOL_DEPTH};
use super::member::{
    BodyChange, BodyEdit, EDITS_MAX, MemberValue, Misspelling, OutputBounds, System, TextSpan,
};
use crate::json::{JsonPlace, KEY_BYTES_MAX, TextLength};
use crate::request::InputSize;
use crate::request::shape::RequestShape;

/// The maximum length of a name that is kept, in bytes; a longer model is rejected.
pub(in crate::request) const NAME_BYTES_MAX: usize = 8 * 1024;
/// Service tiers and regions that cost no more than the standard price.
const USUAL_TIERS: [&[u8]; 8] =
    [b"", b"auto", b"default", b"standard", b"standard_only", b"flex", b"batch", b"global"];
/// The number of bytes at the start of an ordinary conversation string that are examined.
pub(super) const GLANCE_BYTES: usize = 96;
/// The bytes of all names, and the edits, of most requests.
const TEXTS_BYTES_USUAL: usize = 64;
const EDITS_USUAL: usize = 3;
/// The maximum bytes of all names together. Only repeated members can exceed it.
const TEXTS_BYTES_MAX: usize = 16 * NAME_BYTES_MAX;

/// The facts of one request. Offsets are in bytes from the start of the body.
#[derive(Clone, Debug)]
pub(in crate::request) struct Fields {
    pub(in crate::request) shape: &'static RequestShape,
    values: [MemberValue; FIELDS],
    pub(in crate::request) include_usage: bool,
    pub(in crate::request) has_image: bool,
    pub(in crate::request) has_encrypted: bool,
    pub(in crate::request) bounds: OutputBounds,
    pub(in crate::request) has_tier: bool,
    /// The counts of the conversation, the system text and the tools.
    pub(super) inside: Box<ContentCounts>,
    /// The `id` of an object that names a stored conversation.
    pub(in crate::request) conversation_id: MemberValue,
    /// The `user_id` of the metadata.
    pub(in crate::request) user_id: MemberValue,
    /// The raw bytes of the kept strings, concatenated.
    pub(in crate::request) texts: Vec<u8>,
    /// The edits, in the order of the body.
    pub(in crate::request) edits: Vec<BodyEdit>,
    pub(in crate::request) has_options: bool,
    /// The first member whose name differs only in case from one that the gateway reads.
    pub(in crate::request) misspelling: Option<Misspelling>,

    pub(super) field: RequestMember,
    /// The offset after the opening brace of the request.
    pub(in crate::request) first_member: usize,
    /// The parts of Gemini's system text.
    pub(super) system_parts: Option<SystemParts>,
    value_start: usize,
    pub(super) value_is_object: bool,
    pub(super) inner_start: usize,
    inner_includes: usize,
    pub(super) value_is_empty: bool,
    pub(super) taken: Vec<u8>,
    pub(super) take_max: usize,
    pub(super) text_length: usize,
    key_start: usize,
    last_comma: Option<usize>,
    kept_one: bool,
    /// True if the removed member before this comma has no kept member before it: the next comma is removed with it.
    wants_comma: bool,
}

/// The position of the parts of Gemini's system text.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemParts {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) is_list: bool,
    pub(super) is_empty: bool,
}

/// The top-level members that the gateway knows, by their meaning; [`RequestShape`] maps the names of each dialect to
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) enum RequestMember {
    #[default]
    Other,
    Model,
    Stream,
    /// The messages or other input.
    Conversation,
    /// System text outside the conversation.
    System,
    Tools,
    Functions,
    Timeout,
    Affinity,
    CacheKey,
    /// A service tier, or another term with its own price.
    Tier,
    Size,
    Quality,
    Seconds,
    /// Requests searches without a tool.
    Search,
    Background,
    Store,
    PreviousResponse,
    StoredConversation,
    Include,
    /// The form in which images are returned. The gateway sets it for each target itself.
    ImageFormat,
    /// The form in which embeddings are returned.
    VectorFormat,
    Prompt,
    /// Refers to an operation that an earlier request started.
    Operation,
    /// The person on whose behalf the client sends the request.
    EndUser,
    // The values of the following members are not kept; the facts are collected while they are read.
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    /// `n`: the requested number of answers or pictures.
    Count,
    BestOf,
    NumCompletions,
    NumGenerations,
    /// The version of the protocol. The gateway sets it for each target that expects it in the body.
    Version,
    /// Holds the id of the end user.
    Metadata,
    /// Holds Gemini's bounds on the answer.
    GenerationConfig,
    /// `generationConfig.maxOutputTokens`.
    ConfiguredOutput,
    /// `generationConfig.candidateCount`.
    CandidateCount,
}

/// The number of members whose values are kept.
const FIELDS: usize = RequestMember::EndUser as usize + 1;

impl RequestMember {
    /// True if its value is a name, which is kept.
    fn is_name(self) -> bool {
        matches!(
            self,
            Self::Model
                | Self::Affinity
                | Self::CacheKey
                | Self::Tier
                | Self::Size
                | Self::Quality
                | Self::Seconds
                | Self::PreviousResponse
                | Self::StoredConversation
                | Self::ImageFormat
                | Self::VectorFormat
                | Self::EndUser
        )
    }

    /// True if the gateway removes the member or writes it itself.
    fn is_own(self) -> bool {
        matches!(self, Self::Timeout | Self::Affinity | Self::ImageFormat | Self::Version)
    }

    /// True if member names inside it are read.
    fn has_inner_names(self) -> bool {
        matches!(
            self,
            Self::Conversation
                | Self::System
                | Self::Tools
                | Self::StreamOptions
                | Self::StoredConversation
                | Self::Metadata
                | Self::GenerationConfig
        )
    }
}

impl Fields {
    pub(in crate::request) fn new(shape: &'static RequestShape) -> Self {
        Self {
            shape,
            values: [MemberValue::Absent; FIELDS],
            include_usage: false,
            has_image: false,
            has_encrypted: false,
            bounds: OutputBounds::default(),
            has_tier: false,
            inside: Box::default(),
            conversation_id: MemberValue::Absent,
            user_id: MemberValue::Absent,
            texts: Vec::with_capacity(TEXTS_BYTES_USUAL),
            edits: Vec::with_capacity(EDITS_USUAL),
            has_options: false,
            misspelling: None,
            field: RequestMember::Other,
            first_member: 0,
            system_parts: None,
            value_start: 0,
            value_is_object: false,
            inner_start: 0,
            inner_includes: 0,
            value_is_empty: false,
            taken: Vec::new(),
            take_max: 0,
            text_length: 0,
            key_start: 0,
            last_comma: None,
            kept_one: false,
            wants_comma: false,
        }
    }

    /// True if members are repeated so often that the request must be rejected.
    pub(in crate::request) fn too_many_repeats(&self) -> bool {
        self.edits.len() > EDITS_MAX || self.texts.len() > TEXTS_BYTES_MAX
    }

    /// Returns the last value of a member. A member whose value is not kept is absent.
    pub(in crate::request) fn value(&self, field: RequestMember) -> MemberValue {
        self.values.get(field as usize).copied().unwrap_or_default()
    }

    /// True once the conversation has begun, if the members so far probably determine how the body is edited: the model is
    /// one of them, and a stream of a dialect with an option for its usage has that option too. Clients that want the usage
    /// write both behind the conversation; for the others the option will be added in front.
    pub(in crate::request) fn has_known_edits(&self) -> bool {
        let has_model = matches!(self.value(RequestMember::Model), MemberValue::Text(_));
        let has_begun = self.field == RequestMember::Conversation
            || self.value(RequestMember::Conversation) != MemberValue::Absent;
        let is_stream = self.value(RequestMember::Stream).boolean() == Some(true);
        let lacks_option = self.shape.asks_usage && is_stream && !self.has_options;
        has_begun && has_model && !lacks_option
    }

    /// True if the conversation has a thought without a signature.
    pub(in crate::request) fn has_unsigned_thoughts(&self) -> bool {
        self.inside.has_unsigned_thoughts()
    }

    /// Returns the size of the input.
    pub(in crate::request) fn input_size(&mut self) -> InputSize {
        self.inside.size(self.shape)
    }

    fn keep(&mut self, text: &[u8]) -> MemberValue {
        let from = self.texts.len();
        self.texts.extend_from_slice(text);
        MemberValue::Text(TextSpan::new(&(from..self.texts.len())))
    }

    pub(super) fn take(&mut self, max: usize) {
        self.taken.clear();
        self.take_max = max;
    }

    /// Starts a top-level value.
    pub(super) fn value_begins(&mut self, at: JsonPlace) {
        self.value_start = at.offset;
        self.value_is_empty = true;
        self.inside.begin();
        if self.field == RequestMember::Conversation {
            (self.has_image, self.has_encrypted) = (false, false);
        } else if self.field == RequestMember::StreamOptions {
            (self.has_options, self.include_usage, self.inner_includes) = (true, false, 0);
        } else if self.field == RequestMember::StoredConversation {
            self.conversation_id = MemberValue::Absent;
        } else if self.field == RequestMember::Metadata {
            self.user_id = MemberValue::Absent;
        }
    }

    /// Ends a top-level value.
    pub(super) fn value_ends(&mut self, end: usize, value: MemberValue) {
        let span = self.value_start..end;
        let is_path_model = self.field == RequestMember::Model && self.shape.is_gemini;
        let is_own = self.field.is_own() || is_path_model;
        self.inside.end(self.field, span.len(), value);
        match (self.field, value) {
            // The path contains the model, and the target has another name for it.
            _ if is_own => self.remove(end),
            (RequestMember::Model, _) => {
                let key_bytes = self.value_start - self.key_start;
                self.edit(span, BodyChange::Model { key_bytes });
            }
            (RequestMember::StreamOptions, options) => self.edit_options(span, options),
            (RequestMember::Conversation, messages) => self.mark_messages(messages),
            (RequestMember::System, text) => self.edit_system(span, text),
            (RequestMember::Tier, MemberValue::Text(tier)) => {
                self.has_tier |= !USUAL_TIERS.contains(&tier.of(&self.texts));
            }
            _ => {}
        }
        self.bounds.take(self.field, value);
        self.kept_one |= !is_own;
        if self.field != RequestMember::Other
            && let Some(slot) = self.values.get_mut(self.field as usize)
        {
            *slot = value;
        }
        self.field = RequestMember::Other;
    }

    fn edit(&mut self, span: Range<usize>, change: BodyChange) {
        if self.edits.len() <= EDITS_MAX {
            self.edits.push(BodyEdit { span, change });
        }
    }

    /// Marks the position of the gateway's own system text as the first of these messages.
    fn mark_messages(&mut self, messages: MemberValue) {
        if let MemberValue::Array { empty } = messages
            && self.shape.has_system_messages()
        {
            self.mark(BodyChange::System(System::Message { only: empty }));
        }
    }

    /// Marks the position of the gateway's own system text before this system text.
    fn edit_system(&mut self, span: Range<usize>, text: MemberValue) {
        if let MemberValue::Text(_) = text {
            self.mark(BodyChange::System(System::Text { only: span.len() == 2 }));
        } else if let MemberValue::Array { empty } = text {
            self.mark(BodyChange::System(System::Block { only: empty }));
        } else if text == MemberValue::Null {
            let place = if self.shape.is_gemini { System::NullObject } else { System::Null };
            self.edit(span, BodyChange::System(place));
        } else if text == MemberValue::Object && self.shape.is_gemini {
            self.edit_system_parts();
        }
    }

    /// Marks the position of the gateway's own system text before the parts of Gemini's.
    fn edit_system_parts(&mut self) {
        match self.system_parts.take() {
            Some(SystemParts { from, is_list: true, is_empty, .. }) => {
                let inside = from + 1;
                self.edit(inside..inside, BodyChange::System(System::Part { only: is_empty }));
            }
            Some(SystemParts { from, to, .. }) => {
                self.edit(from..from, BodyChange::System(System::BeforePart));
                self.edit(to..to, BodyChange::System(System::AfterPart));
            }
            None => self.mark(BodyChange::System(System::Parts { only: self.value_is_empty })),
        }
    }

    /// Adds an insertion right after the first byte of the open value.
    fn mark(&mut self, change: BodyChange) {
        let inside = self.value_start + 1;
        self.edit(inside..inside, change);
    }

    /// Removes the member that ends at `end`. If a kept member precedes it, the comma between them is removed too,
    /// otherwise the comma after it.
    fn remove(&mut self, end: usize) {
        match self.last_comma {
            Some(comma) if self.kept_one => self.edit(comma..end, BodyChange::Removed),
            Some(_) | None => {
                self.edit(self.key_start..end, BodyChange::Removed);
                self.wants_comma = true;
            }
        }
    }

    fn edit_options(&mut self, span: Range<usize>, options: MemberValue) {
        if options == MemberValue::Null {
            self.edit(span, BodyChange::Usage(r#"{"include_usage":true}"#));
        } else if options == MemberValue::Object && self.inner_includes == 0 {
            let comma = !self.value_is_empty;
            self.mark(BodyChange::Usage(if comma {
                r#""include_usage":true,"#
            } else {
                r#""include_usage":true"#
            }));
        }
    }

    /// Ends a value inside `stream_options`.
    pub(super) fn option_ends(&mut self, end: usize, is_true: bool) {
        if self.inside.key == InnerKey::IncludeUsage {
            self.inner_includes += 1;
            self.include_usage = is_true;
            if !is_true {
                self.edit(self.inner_start..end, BodyChange::Usage("true"));
            }
        }
        self.inside.key = InnerKey::Other;
    }

    /// Opens a container within a top-level member.
    #[inline]
    pub(super) fn inner_opens(&mut self, at: JsonPlace, object: bool) {
        if self.field == RequestMember::System && at.depth == 2 && self.inside.key == InnerKey::SystemParts {
            let from = at.offset;
            self.system_parts = Some(SystemParts { from, to: from, is_list: !object, is_empty: true });
        } else if at.depth == 3
            && let Some(parts) = &mut self.system_parts
        {
            parts.is_empty = false;
        }
    }

    /// Closes a container within a top-level member.
    #[inline]
    pub(super) fn inner_closes(&mut self, at: JsonPlace) {
        if at.depth == 2
            && self.field == RequestMember::System
            && let Some(parts) = &mut self.system_parts
            && parts.to == parts.from
        {
            parts.to = at.offset;
        }
    }

    /// Ends a bound in Gemini's configuration. Whole numbers may also be strings.
    fn configured(&mut self, raw: &[u8]) {
        let key = std::mem::take(&mut self.inside.key);
        let bound = if key == InnerKey::OutputBound {
            RequestMember::ConfiguredOutput
        } else if key == InnerKey::Candidates {
            RequestMember::CandidateCount
        } else {
            return;
        };
        self.bounds.take(bound, MemberValue::of_scalar(raw));
    }

    /// Returns the maximum number of bytes of a string at this position that are kept.
    #[inline]
    pub(super) fn wanted(&self, depth: u32, key: bool) -> usize {
        match (depth, key) {
            (1, true) => KEY_BYTES_MAX,
            (1, false) if self.field.is_name() => NAME_BYTES_MAX + 1,
            (1, false) => 0,
            (2, false)
                if matches!(self.field, RequestMember::StoredConversation | RequestMember::Metadata) =>
            {
                NAME_BYTES_MAX + 1
            }
            (_, true) if self.field.has_inner_names() => KEY_BYTES_MAX,
            _ if self.field.has_inner_names() => self.inside.key.glance_bytes(),
            _ => 0,
        }
    }

    /// True if the next string is text for the model.
    #[inline]
    pub(super) fn expects_text(&self) -> bool {
        matches!(self.field, RequestMember::Conversation | RequestMember::System)
            && self.inside.expects_text()
    }

    /// True if the characters of the next string are counted.
    #[inline]
    pub(super) fn counts_characters(&self) -> bool {
        self.shape.counts_characters && self.field == RequestMember::Conversation
    }

    #[inline]
    pub(super) fn text_begins(&mut self, at: JsonPlace, key: bool) {
        match (at.depth, key) {
            (1, true) => self.key_start = at.offset,
            (1, false) => self.value_begins(at),
            _ => {
                self.value_is_empty = false;
                if at.depth == 2 && !key {
                    self.inner_start = at.offset;
                }
            }
        }
    }

    /// Ends a member name.
    #[inline]
    pub(super) fn key_ends(&mut self, depth: u32, name: &[u8]) {
        if depth == 1 {
            let named = self.shape.named;
            self.field = named(name);
            if self.field == RequestMember::Other && self.misspelling.is_none() {
                self.misspelling = Misspelling::of(name, |name| named(name) != RequestMember::Other);
            }
        } else {
            self.inside.key_ends(self.field, depth, name);
            if depth == 2 && self.inside.key == InnerKey::Other && self.misspelling.is_none() {
                self.misspelling = self.inner_misspelling(name);
            }
        }
    }

    /// Returns the misspelling of a name inside the objects from which one member is read.
    #[inline]
    fn inner_misspelling(&self, name: &[u8]) -> Option<Misspelling> {
        let (parent, known) = if self.field == RequestMember::StreamOptions {
            ("stream_options", "include_usage")
        } else if self.field == RequestMember::StoredConversation {
            ("conversation", "id")
        } else {
            return None;
        };
        let found = Misspelling::of(name, |name| name == known.as_bytes())?;
        Some(Misspelling { name: format!("{parent}.{known}"), ..found })
    }

    /// Ends a string value; `taken` is the part of it that was kept.
    #[inline]
    pub(super) fn text_value_ends(&mut self, at: JsonPlace, length: TextLength, taken: &[u8]) {
        match (at.depth, self.field) {
            (1, _) => {
                self.inside.add_text(length);
                let text = if self.field.is_name() {
                    self.keep(taken)
                } else {
                    MemberValue::Text(TextSpan::default())
                };
                self.value_ends(at.offset, text);
            }
            (_, RequestMember::Conversation | RequestMember::System) => {
                let ended = self.inside.text_ends(self.shape, length, taken);
                self.has_image |= ended == Ended::Image;
                self.has_encrypted |= ended == Ended::Encrypted;
            }
            (TOOL_DEPTH, RequestMember::Tools) => self.inside.tool_text_ends(taken),
            (2, RequestMember::StreamOptions) => self.option_ends(at.offset, false),
            (2, RequestMember::GenerationConfig) => self.configured(taken),
            (2, RequestMember::StoredConversation) if self.inside.key == InnerKey::Id => {
                self.conversation_id = self.keep(taken);
            }
            (2, RequestMember::Metadata) if self.inside.key == InnerKey::UserId => {
                self.user_id = self.keep(taken)
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn scalar_begins(&mut self, at: JsonPlace) {
        match at.depth {
            1 => self.value_begins(at),
            2 => {
                self.value_is_empty = false;
                self.inner_start = at.offset;
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn scalar_value_ends(&mut self, at: JsonPlace, raw: &[u8]) {
        match at.depth {
            // The numbers of unknown members are not parsed.
            1 if self.field == RequestMember::Other => self.value_ends(at.offset, MemberValue::Number),
            1 => self.value_ends(at.offset, MemberValue::of_scalar(raw)),
            2 if self.field == RequestMember::StreamOptions => self.option_ends(at.offset, raw == b"true"),
            2 if self.field == RequestMember::GenerationConfig => self.configured(raw),
            _ if self.field == RequestMember::Conversation => self.inside.scalar_ends(),
            _ => {}
        }
    }

    /// Reads a comma between two top-level members.
    pub(super) fn member_comma(&mut self, at: usize) {
        if std::mem::take(&mut self.wants_comma)
            && let Some(last) = self.edits.last_mut()
        {
            last.span.end = at + 1;
        }
        self.last_comma = Some(at);
    }
}
