//! Counts the contents of the conversation, the system text and the tools by how models tokenize them. Anything that is
//! not known to be a picture, a file or audio counts as text, so that nothing is counted as something cheaper.

use super::blob::{self, BlobKind};
use super::field::{GLANCE_BYTES, RequestMember};
use super::member::MemberValue;
use crate::claude::may_be_signature;
use crate::json::{Characters, Escapes, JsonPlace, TextLength, unescaped};
use crate::request::InputSize;
use crate::request::shape::RequestShape;

/// The minimum depth of the members of a content part: root, messages, message, content, part.
const PART_DEPTH: u32 = 5;
/// The depth of a tool's members.
pub(super) const TOOL_DEPTH: u32 = 3;
/// The depth of the members of a Responses input item.
const ITEM_DEPTH: u32 = 3;

/// The counts so far, and the position within the open value.
#[derive(Clone, Debug, Default)]
pub(super) struct ContentCounts {
    /// The name of the innermost member.
    pub(super) key: InnerKey,
    /// True if the last `type` in the conversation was `text`: a `data` member next to it is text.
    data_is_text: bool,
    /// True inside `input_audio`.
    data_is_sound: bool,
    /// The open arguments of a tool call, in which names have no meaning and everything is read.
    arguments: Option<ArgumentsStart>,
    /// The counters of the string that is read in pieces.
    pub(super) escapes: Escapes,
    pub(super) characters: Characters,
    /// The decoded bytes of text in the open value.
    open_text: usize,
    /// The raw bytes of all strings in the open value.
    open_strings: usize,
    /// The bytes of text in the conversation, the system text, the tools and the functions; the largest if repeated.
    text: [usize; 4],
    /// The bytes between the strings of arguments, and of members that belong to no other count.
    other: usize,
    picture_types: u64,
    picture_names: u64,
    file_types: u64,
    /// Files whose contents are in the request, as text or data.
    files_inside: u64,
    /// Thoughts of Claude in the conversation, and the signatures beside them.
    thoughts: u64,
    signatures: u64,
    size: InputSize,
}

/// The start of a tool call's arguments.
#[derive(Clone, Copy, Debug)]
struct ArgumentsStart {
    at: JsonPlace,
    /// The bytes of the strings before them.
    strings: usize,
}

/// The nested members that the gateway knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InnerKey {
    #[default]
    Other,
    /// The type of a content part.
    Type,
    /// The type of an input item.
    ItemType,
    /// The address of an object, or the object itself as a `data:` URL.
    Address,
    /// Data that is not text for the model.
    Binary,
    /// Data that is not text for the model and is not counted.
    Signature,
    /// Binary, unless a `type` member next to it declares it as text.
    Data,
    Encrypted,
    /// The arguments of a tool call.
    Arguments,
    /// The type of an offered tool.
    ToolType,
    IncludeUsage,
    Id,
    /// The user id in the metadata.
    UserId,
    /// Gemini's bound on the answer's tokens.
    OutputBound,
    /// Gemini's number of answers.
    Candidates,
    /// The parts of Gemini's system text.
    SystemParts,
    /// The model or the task of one of Gemini's requests for embeddings.
    Term,
}

/// The kind of a string that has ended, if it has a meaning besides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Image,
    Encrypted,
    Other,
}

impl InnerKey {
    /// Returns the number of bytes at the start of the member's value that are examined.
    pub(super) fn glance_bytes(self) -> usize {
        match self {
            Self::Address | Self::Binary | Self::Data => blob::HEAD_BYTES,
            Self::Other
            | Self::Type
            | Self::ItemType
            | Self::Signature
            | Self::Encrypted
            | Self::Arguments
            | Self::ToolType
            | Self::IncludeUsage
            | Self::Id
            | Self::UserId
            | Self::OutputBound
            | Self::Candidates
            | Self::SystemParts
            | Self::Term => GLANCE_BYTES,
        }
    }
}

impl ContentCounts {
    /// True if the next string is read as text, not as base64.
    #[inline]
    pub(super) fn expects_text(&self) -> bool {
        match self.key {
            InnerKey::Data => self.data_is_text,
            InnerKey::Binary | InnerKey::Signature | InnerKey::Encrypted | InnerKey::Address => false,
            InnerKey::Other
            | InnerKey::Type
            | InnerKey::ItemType
            | InnerKey::Arguments
            | InnerKey::ToolType
            | InnerKey::IncludeUsage
            | InnerKey::Id
            | InnerKey::UserId
            | InnerKey::OutputBound
            | InnerKey::Candidates
            | InnerKey::SystemParts
            | InnerKey::Term => true,
        }
    }

    /// Starts a top-level value.
    pub(super) fn begin(&mut self) {
        (self.open_text, self.open_strings, self.arguments) = (0, 0, None);
        self.key = InnerKey::Other;
    }

    /// Ends a top-level value of `length` bytes.
    pub(super) fn end(&mut self, field: RequestMember, length: usize, value: MemberValue) {
        let is_container = matches!(value, MemberValue::Array { .. } | MemberValue::Object);
        let [conversation, system, tools, functions] = &mut self.text;
        match (field, is_container) {
            (RequestMember::Conversation, _) => *conversation = self.open_text.max(*conversation),
            (RequestMember::System, _) => *system = self.open_text.max(*system),
            (RequestMember::Tools, _) => *tools = length.max(*tools),
            (RequestMember::Functions, _) => *functions = length.max(*functions),
            (RequestMember::Search, _) => self.size.provider_tools += 1,
            (RequestMember::Other | RequestMember::Metadata, true) => self.other += length,
            _ => {}
        }
    }

    /// Counts a string as text.
    #[inline]
    pub(super) fn add_text(&mut self, length: TextLength) {
        self.open_text += length.meant;
        self.open_strings += length.raw;
    }

    /// Sets the character count of a conversation that is one string.
    pub(super) fn set_characters(&mut self, count: u64) {
        self.size.characters = self.size.characters.max(count);
    }

    /// Opens a container within the open member.
    #[inline]
    pub(super) fn open(&mut self, at: JsonPlace) {
        if self.key == InnerKey::Arguments {
            self.arguments = Some(ArgumentsStart { at, strings: self.open_strings });
        }
        self.key = InnerKey::Other;
    }

    /// Closes a container.
    #[inline]
    pub(super) fn close(&mut self, at: JsonPlace) {
        if let Some(arguments) = self.arguments.filter(|arguments| arguments.at.depth == at.depth) {
            let strings = self.open_strings - arguments.strings;
            let length = at.offset - arguments.at.offset;
            self.other += length - strings;
            self.arguments = None;
        }
    }

    /// Ends a member name below the root.
    #[inline]
    pub(super) fn key_ends(&mut self, field: RequestMember, depth: u32, name: &[u8]) {
        self.key = match (field, depth) {
            (RequestMember::Conversation, _) if self.arguments.is_none() => {
                self.conversation_key(depth, name)
            }
            (RequestMember::Tools, TOOL_DEPTH) if name == b"type" => InnerKey::ToolType,
            (RequestMember::Tools, TOOL_DEPTH) => {
                self.size.provider_tools += u64::from(GOOGLE_TOOLS.contains(&name));
                InnerKey::Other
            }
            (RequestMember::System, 2) if name == b"parts" => InnerKey::SystemParts,
            (RequestMember::GenerationConfig, 2) => match name {
                b"maxOutputTokens" | b"max_output_tokens" => InnerKey::OutputBound,
                b"candidateCount" | b"candidate_count" => InnerKey::Candidates,
                _ => InnerKey::Other,
            },
            (RequestMember::StreamOptions, 2) if name == b"include_usage" => InnerKey::IncludeUsage,
            (RequestMember::StoredConversation, 2) if name == b"id" => InnerKey::Id,
            (RequestMember::Metadata, 2) if name == b"user_id" => InnerKey::UserId,
            _ => InnerKey::Other,
        };
    }

    #[inline]
    fn conversation_key(&mut self, depth: u32, name: &[u8]) -> InnerKey {
        match name {
            b"type" if depth >= PART_DEPTH => InnerKey::Type,
            b"type" if depth == ITEM_DEPTH => InnerKey::ItemType,
            b"model" | b"taskType" | b"task_type" if depth == ITEM_DEPTH => InnerKey::Term,
            b"image_url" | b"image" => {
                self.picture_names += 1;
                InnerKey::Address
            }
            b"url" | b"file_url" | b"video_url" | b"audio_url" | b"document_url" => InnerKey::Address,
            b"data" if depth >= PART_DEPTH => InnerKey::Data,
            b"input_audio" => {
                self.data_is_sound = true;
                InnerKey::Other
            }
            b"file_data" if depth >= PART_DEPTH => InnerKey::Binary,
            b"signature" | b"thoughtSignature" | b"thought_signature" if depth >= PART_DEPTH => {
                InnerKey::Signature
            }
            b"fileUri" | b"file_uri" => {
                self.file_types += 1;
                InnerKey::Address
            }
            b"encrypted_content" => InnerKey::Encrypted,
            // The schemas of tools that a search found are not content either.
            b"input" | b"input_schema" | b"parameters" | b"args" | b"response" if depth >= PART_DEPTH => {
                InnerKey::Arguments
            }
            _ => InnerKey::Other,
        }
    }

    /// Ends a number, `true`, `false` or `null` inside the conversation.
    #[inline]
    pub(super) fn scalar_ends(&mut self) {
        self.key = InnerKey::Other;
        self.size.numbers += 1;
    }

    /// Ends a string inside the conversation or system text; `glance` is its start.
    #[inline]
    pub(super) fn text_ends(&mut self, shape: &RequestShape, length: TextLength, glance: &[u8]) -> Ended {
        if self.key == InnerKey::Other {
            self.add_text(length);
            return Ended::Other;
        }
        self.known_text_ends(shape, length, glance)
    }

    /// Ends a string under a known name.
    fn known_text_ends(&mut self, shape: &RequestShape, length: TextLength, glance: &[u8]) -> Ended {
        let mut ended = Ended::Other;
        let is_binary = match std::mem::take(&mut self.key) {
            InnerKey::Type => {
                ended = self.type_ends(shape, &unescaped(glance));
                false
            }
            InnerKey::ItemType => {
                let is_stored = &*unescaped(glance) == b"item_reference";
                self.size.stored_items += u64::from(is_stored);
                false
            }
            InnerKey::Data if self.data_is_text => {
                self.files_inside += 1;
                false
            }
            InnerKey::Data | InnerKey::Binary => {
                let media_type: &[u8] = if self.data_is_sound { b"audio/" } else { b"" };
                let blob = blob::of_base64(media_type, glance, length.raw);
                if shape.is_gemini && matches!(blob, BlobKind::Picture(_)) {
                    ended = Ended::Image;
                }
                self.add_blob(blob);
                true
            }
            InnerKey::Address => self.address_ends(length.raw, glance),
            InnerKey::Encrypted => {
                ended = if length.raw > 0 { Ended::Encrypted } else { ended };
                true
            }
            InnerKey::Signature => {
                self.signatures += u64::from(may_be_signature(glance));
                true
            }
            InnerKey::Term => shape.has_terms,
            InnerKey::Other
            | InnerKey::Arguments
            | InnerKey::ToolType
            | InnerKey::IncludeUsage
            | InnerKey::Id
            | InnerKey::UserId
            | InnerKey::OutputBound
            | InnerKey::Candidates
            | InnerKey::SystemParts => false,
        };
        if is_binary {
            self.open_strings += length.raw;
        } else {
            self.add_text(length);
        }
        ended
    }

    /// Ends a string that describes a tool.
    pub(super) fn tool_text_ends(&mut self, glance: &[u8]) {
        if std::mem::take(&mut self.key) == InnerKey::ToolType {
            let name = unescaped(glance);
            let is_run = PROVIDER_TOOLS.iter().any(|start| name.starts_with(start));
            self.size.provider_tools += u64::from(is_run);
        }
    }

    /// Ends an address. Returns true if it contained the whole object inline.
    fn address_ends(&mut self, raw: usize, glance: &[u8]) -> bool {
        let blob = blob::of_url(glance, raw);
        let is_inline = blob.is_some();
        if let Some(blob) = blob {
            self.add_blob(blob);
        }
        is_inline
    }

    fn add_blob(&mut self, blob: BlobKind) {
        let size = &mut self.size;
        match blob {
            BlobKind::Picture(Some(picture)) if size.picture_sizes.len() < PICTURE_SIZES_MAX => {
                size.picture_sizes.push(picture);
                size.pictures += 1;
            }
            BlobKind::Picture(_) => size.pictures += 1,
            BlobKind::Wave { ms } => size.audio_ms += ms,
            BlobKind::Audio { bytes } => size.audio_bytes += bytes,
            BlobKind::File { bytes } => {
                size.files += 1;
                size.file_bytes += bytes;
                self.files_inside += 1;
            }
        }
    }

    fn type_ends(&mut self, shape: &RequestShape, name: &[u8]) -> Ended {
        (self.data_is_text, self.data_is_sound) = (name == b"text", false);
        match name {
            b"image_url" | b"input_image" | b"image" => {
                self.picture_types += 1;
                return Ended::Image;
            }
            b"input_file" | b"document" | b"document_url" | b"video_url" | b"input_video" | b"audio_url"
            | b"container_upload" => self.file_types += 1,
            // In Messages, `file` is how a picture or document is referenced.
            b"file" if shape.has_system_messages() => self.file_types += 1,
            b"content" => self.files_inside += 1,
            b"thinking" => self.thoughts += 1,
            _ => {}
        }
        Ended::Other
    }

    /// True if a thought has no signature, or another vendor's mark in its place.
    pub(in crate::request) fn has_unsigned_thoughts(&self) -> bool {
        self.thoughts > self.signatures
    }

    /// Returns the total counts.
    pub(super) fn size(&mut self, shape: &RequestShape) -> InputSize {
        let sum = |counts: &[usize]| {
            let add = |sum: u64, count: &usize| sum.saturating_add(u64::try_from(*count).unwrap_or(u64::MAX));
            counts.iter().fold(0, add)
        };
        let mut size = std::mem::take(&mut self.size);
        size.text_bytes = sum(&self.text);
        size.other_bytes = sum(&[self.other]);
        size.numbers = if shape.takes_tokens { size.numbers } else { 0 };
        size.pictures = size.pictures.max(self.picture_types).max(self.picture_names);
        size.files_elsewhere = self.file_types.saturating_sub(self.files_inside);
        size
    }
}

/// Prefixes of the types of tools that providers run themselves.
const PROVIDER_TOOLS: [&[u8]; 9] = [
    b"web_",
    b"file_search",
    b"code_",
    b"image_generation",
    b"mcp",
    b"google_",
    b"browser_",
    b"x_search",
    b"live_search",
];
/// The names of the tools that Google runs, in both spellings.
const GOOGLE_TOOLS: [&[u8]; 14] = [
    b"googleSearch",
    b"google_search",
    b"googleSearchRetrieval",
    b"google_search_retrieval",
    b"enterpriseWebSearch",
    b"enterprise_web_search",
    b"googleMaps",
    b"google_maps",
    b"urlContext",
    b"url_context",
    b"fileSearch",
    b"file_search",
    b"codeExecution",
    b"code_execution",
];
/// The maximum number of pictures whose size is kept; further ones count as pictures of unknown size.
const PICTURE_SIZES_MAX: usize = 64;
