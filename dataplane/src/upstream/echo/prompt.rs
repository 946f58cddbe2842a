//! The parts of a request that the echo uses, in either of its dialects. The text of the answer is bounded.

use std::borrow::Cow;
use std::mem;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use shared::operation::Dialect;

/// The maximum number of words in an answer, and of bytes. A longer one ends there, as if it had reached the limit of its
/// tokens.
pub(super) const WORDS_MAX: usize = 16_384;
pub(super) const TEXT_BYTES_MAX: usize = 256 << 10;

/// A request to the echo.
#[derive(Debug)]
pub(super) struct Prompt {
    /// [`Dialect::Responses`] if the request has an `input`, otherwise [`Dialect::Chat`].
    pub(super) dialect: Dialect,
    pub(super) model: String,
    /// The text of the answer.
    pub(super) text: String,
    /// The numbers of words in the prompt and in the answer.
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    /// True if the text is shorter than that of the prompt.
    pub(super) is_cut: bool,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

#[derive(Deserialize)]
struct EchoRequestBody<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    /// The conversation of Chat Completions.
    #[serde(default, borrow)]
    messages: Vec<EchoMessage<'a>>,
    /// The conversation of Responses, or the text of its only message.
    #[serde(default, borrow)]
    input: Option<&'a RawValue>,
    /// The system text of Responses.
    #[serde(default, borrow)]
    instructions: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// A message, or an item of another type, which has no role or no content.
#[derive(Deserialize)]
struct EchoMessage<'a> {
    #[serde(default, borrow)]
    role: Cow<'a, str>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EchoPart<'a> {
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
}

impl Prompt {
    pub(super) fn read(segments: &[Bytes]) -> Option<Self> {
        let whole = match segments {
            [one] => Cow::Borrowed(&**one),
            several => Cow::Owned(several.concat()),
        };
        let mut body: EchoRequestBody<'_> = serde_json::from_slice(&whole).ok()?;
        let messages = body.conversation()?;
        let last = messages.iter().rposition(|message| message.role == "user");
        let instructions = body.instructions.and_then(text_of).unwrap_or_default();
        let (mut prompt_tokens, mut asked) = (words(&instructions).count(), String::new());
        for (position, message) in messages.iter().enumerate() {
            let text = message.text();
            prompt_tokens += words(&text).count();
            if Some(position) == last {
                asked = text;
            }
        }
        let completion_tokens = words(&asked).count();
        let text: String = words(within(&asked, TEXT_BYTES_MAX)).take(WORDS_MAX).collect();
        Some(Self {
            dialect: if body.input.is_some() { Dialect::Responses } else { Dialect::Chat },
            model: body.model.into_owned(),
            prompt_tokens,
            completion_tokens: completion_tokens.min(words(&text).count()),
            is_cut: text.len() < asked.len(),
            text,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        })
    }
}

impl<'a> EchoRequestBody<'a> {
    /// Returns the messages in order; `None` if `input` is neither text nor a list.
    fn conversation(&mut self) -> Option<Vec<EchoMessage<'a>>> {
        let Some(input) = self.input else { return Some(mem::take(&mut self.messages)) };
        if input.get().starts_with('"') {
            let message = EchoMessage { role: Cow::Borrowed("user"), content: Some(input) };
            return Some(vec![message]);
        }
        serde_json::from_str(input.get()).ok()
    }
}

impl EchoMessage<'_> {
    /// Returns the text of the message, or the texts of its parts joined by line ends.
    fn text(&self) -> String {
        let Some(content) = self.content else { return String::new() };
        text_of(content).unwrap_or_else(|| {
            let parts: Vec<EchoPart<'_>> = serde_json::from_str(content.get()).unwrap_or_default();
            let texts: Vec<String> = parts.iter().filter_map(|part| text_of(part.text?)).collect();
            texts.join("\n")
        })
    }
}

/// Returns the text of a string.
fn text_of(value: &RawValue) -> Option<String> {
    value.get().starts_with('"').then(|| serde_json::from_str(value.get()).ok())?
}

/// Splits text into words with their trailing white space; joining them restores the text.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

/// Returns the first characters of `text` that fit into `bytes_max`.
fn within(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}
