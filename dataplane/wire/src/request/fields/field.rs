//! Watches the tokens of a request go by and writes down the few that matter to the gateway.

use std::borrow::Cow;
use std::ops::Range;

use super::bound::OutputBounds;
use super::edit::{BodyChange, BodyEdit, EDITS_MAX, System};
use super::inside::{ContentCounts, Ended, InnerKey, TOOL_DEPTH};
use super::spelling::Misspelling;
use super::value::{MemberValue, TextSpan};
use crate::json::{JsonPlace, KEY_BYTES_MAX, TextLength, unescape};
use crate::request::InputSize;
use crate::request::shape::RequestShape;

/// Bytes of a name that are looked at; a longer model is refused.
pub(in crate::request) const NAME_BYTES_MAX: usize = 8 * 1024;
/// Service tiers and places that cost no more than what is usual.
const USUAL_TIERS: [&[u8]; 8] =
    [b"", b"auto", b"default", b"standard", b"standard_only", b"flex", b"batch", b"global"];
/// Bytes of an ordinary string inside the conversation that are looked at.
pub(super) const GLANCE_BYTES: usize = 96;
/// Bytes of all names, and changes to the body, of most requests.
const TEXTS_BYTES_USUAL: usize = 64;
const EDITS_USUAL: usize = 3;
/// Bytes of all names together: more are repeats.
const TEXTS_BYTES_MAX: usize = 16 * NAME_BYTES_MAX;

/// What was found. Offsets count from the first byte of the body.
#[derive(Debug)]
pub(in crate::request) struct Fields {
    pub(in crate::request) shape: &'static RequestShape,
    values: [MemberValue; FIELDS],
    pub(in crate::request) include_usage: bool,
    pub(in crate::request) has_image: bool,
    pub(in crate::request) has_encrypted: bool,
    pub(in crate::request) bounds: OutputBounds,
    pub(in crate::request) has_tier: bool,
    /// What stands inside the conversation and beside it.
    pub(super) inside: Box<ContentCounts>,
    /// The `id` of an object that names a stored conversation.
    pub(in crate::request) conversation_id: MemberValue,
    /// The `user_id` of the metadata.
    pub(in crate::request) user_id: MemberValue,
    /// The raw bytes of strings that matter, one after the other.
    pub(in crate::request) texts: Vec<u8>,
    /// In the order of the body.
    pub(in crate::request) edits: Vec<BodyEdit>,
    pub(in crate::request) has_options: bool,
    /// The first member whose name differs in case alone from one that the gateway reads.
    pub(in crate::request) misspelling: Option<Misspelling>,

    pub(super) field: RequestMember,
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
    /// The removed member before this comma has nothing kept before it: it takes the next comma along.
    wants_comma: bool,
}

/// Top-level members that the gateway knows, by what they mean; [`RequestShape`] says what a dialect calls them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) enum RequestMember {
    #[default]
    Other,
    Model,
    Stream,
    /// The messages or other input.
    Conversation,
    /// System text beside the conversation.
    System,
    Tools,
    Functions,
    Timeout,
    Affinity,
    CacheKey,
    /// Names a service tier, or another term that has a price of its own.
    Tier,
    Size,
    Quality,
    Seconds,
    /// Asks for searches without naming a tool.
    Search,
    Background,
    Store,
    PreviousResponse,
    StoredConversation,
    Include,
    /// How images are to come, which the gateway itself says to each target.
    ImageFormat,
    Prompt,
    /// What is asked for has been begun by a request before.
    Operation,
    /// The person on whose behalf the client asks.
    EndUser,
    // Values from here on are not kept: what matters of them is noted as they go by.
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    /// `n`: how many answers or pictures are asked for.
    Count,
    BestOf,
    NumCompletions,
    NumGenerations,
    /// The version of the protocol, which the gateway itself says to a target that wants it in the body.
    Version,
    /// Holds the id of the end user.
    Metadata,
}

/// Fields whose values are kept.
const FIELDS: usize = RequestMember::EndUser as usize + 1;

impl RequestMember {
    /// Its value is a name, which is kept.
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
                | Self::EndUser
        )
    }

    /// It does not go upstream as it came.
    fn is_own(self) -> bool {
        matches!(self, Self::Timeout | Self::Affinity | Self::ImageFormat | Self::Version)
    }

    /// Names inside it matter.
    fn has_inner_names(self) -> bool {
        matches!(
            self,
            Self::Conversation
                | Self::System
                | Self::Tools
                | Self::StreamOptions
                | Self::StoredConversation
                | Self::Metadata
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

    /// Whether so many members repeat that the gateway refuses to edit or keep them all.
    pub(in crate::request) fn too_many_repeats(&self) -> bool {
        self.edits.len() > EDITS_MAX || self.texts.len() > TEXTS_BYTES_MAX
    }

    /// The last value of a member.
    pub(in crate::request) fn value(&self, field: RequestMember) -> MemberValue {
        self.values.get(field as usize).copied().unwrap_or_default()
    }

    /// How much the input is.
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

    /// A top-level value begins.
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

    /// A top-level value has ended.
    pub(super) fn value_ends(&mut self, end: usize, value: MemberValue) {
        let span = self.value_start..end;
        let is_own = self.field.is_own();
        self.inside.end(self.field, span.len(), value);
        match (self.field, value) {
            (RequestMember::Model, _) => {
                let key_bytes = self.value_start.saturating_sub(self.key_start);
                self.edit(span, BodyChange::Model { key_bytes });
            }
            (field, _) if field.is_own() => self.remove(end),
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

    /// The gateway's own system text would be the first of these messages.
    fn mark_messages(&mut self, messages: MemberValue) {
        if let MemberValue::Array { empty } = messages
            && self.shape.has_system_messages()
        {
            self.mark(BodyChange::System(System::Message { only: empty }));
        }
    }

    /// It would come before this system text.
    fn edit_system(&mut self, span: Range<usize>, text: MemberValue) {
        if let MemberValue::Text(_) = text {
            self.mark(BodyChange::System(System::Text { only: span.len() == 2 }));
        } else if let MemberValue::Array { empty } = text {
            self.mark(BodyChange::System(System::Block { only: empty }));
        } else if text == MemberValue::Null {
            self.edit(span, BodyChange::System(System::Null));
        }
    }

    /// A change right after the first byte of the open value.
    fn mark(&mut self, change: BodyChange) {
        let inside = self.value_start.saturating_add(1);
        self.edit(inside..inside, change);
    }

    /// The member that ends at `end` does not go upstream. With a kept member before it, the comma between
    /// them goes too; otherwise the comma after it.
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

    /// A value inside `stream_options` has ended.
    pub(super) fn option_ends(&mut self, end: usize, is_true: bool) {
        if self.inside.key == InnerKey::IncludeUsage {
            self.inner_includes = self.inner_includes.saturating_add(1);
            self.include_usage = is_true;
            if !is_true {
                self.edit(self.inner_start..end, BodyChange::Usage("true"));
            }
        }
        self.inside.key = InnerKey::Other;
    }

    /// Bytes of a string at this place that are wanted.
    #[inline]
    pub(super) fn wanted(&self, depth: u32, key: bool) -> usize {
        match (depth, key) {
            (1, true) => KEY_BYTES_MAX,
            (1, false) if self.field.is_name() => NAME_BYTES_MAX.saturating_add(1),
            (1, false) => 0,
            (2, false)
                if matches!(self.field, RequestMember::StoredConversation | RequestMember::Metadata) =>
            {
                NAME_BYTES_MAX.saturating_add(1)
            }
            (_, true) if self.field.has_inner_names() => KEY_BYTES_MAX,
            _ if self.field.has_inner_names() => self.inside.key.glance_bytes(),
            _ => 0,
        }
    }

    /// The string that comes next is text for the model.
    #[inline]
    pub(super) fn expects_text(&self) -> bool {
        matches!(self.field, RequestMember::Conversation | RequestMember::System)
            && self.inside.expects_text()
    }

    /// The string that comes next is one whose characters are counted.
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

    /// A member's name has ended.
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

    /// The same inside the members that are objects in which one name is read.
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

    /// Another string has ended; `taken` is what was wanted of it.
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
            // The number of a member that the gateway does not know is not read.
            1 if self.field == RequestMember::Other => self.value_ends(at.offset, MemberValue::Number),
            1 => self.value_ends(at.offset, MemberValue::of_scalar(raw)),
            2 if self.field == RequestMember::StreamOptions => self.option_ends(at.offset, raw == b"true"),
            _ if self.field == RequestMember::Conversation => self.inside.scalar_ends(),
            _ => {}
        }
    }

    /// A comma between two top-level members.
    pub(super) fn member_comma(&mut self, at: usize) {
        if std::mem::take(&mut self.wants_comma)
            && let Some(last) = self.edits.last_mut()
        {
            last.span.end = at.saturating_add(1);
        }
        self.last_comma = Some(at);
    }
}

/// A member's name, or a glance at a value, as it is meant. Almost always that is how it is written.
pub(super) fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', raw).is_none() {
        return raw.into();
    }
    unescape(raw).map_or_else(|| raw.into(), |text| text.into_bytes().into())
}
