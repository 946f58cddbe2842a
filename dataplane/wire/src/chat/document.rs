//! Reads a chunk of a chat stream, or a whole completion, whose choices differ only in `message`. Vendors vary: members
//! may be missing, null or of another type. Texts stay escaped, because they are written in the same form.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use super::logprobs::read_logprobs;
use super::{
    AnswerText, ChatCall, ChatCallDelta, ChatChoice, ChatCompletion, ChatTextKind, ChoiceEnd, ChosenToken,
    ClientUsage, OutputMedia, UsageReader,
};
use crate::envelope::StreamError;
use crate::extras::{Extras, term};
use crate::json::{self, inside_quotes, parse_raw};
use crate::translation::BadAnswer;

/// A chunk or a completion.
#[derive(Debug, Deserialize)]
pub(super) struct ChatDocument<'a> {
    #[serde(borrow)]
    choices: Option<Vec<DocumentChoice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// An element of `choices`.
#[derive(Debug, Deserialize)]
pub(super) struct DocumentChoice<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<DocumentMessage<'a>>,
    #[serde(borrow)]
    message: Option<DocumentMessage<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    native_finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    /// vLLM: the stop sequence that was reached, or a token id.
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
}

/// A `delta` or `message`.
#[derive(Debug, Deserialize)]
pub(super) struct DocumentMessage<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    /// OpenRouter: the images of the answer, as `image_url` parts.
    #[serde(borrow)]
    images: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<DocumentCall<'a>>>,
}

/// A part with an image.
#[derive(Debug, Deserialize)]
struct DocumentImage<'a> {
    #[serde(borrow, default)]
    image_url: Option<DocumentUrl<'a>>,
}

#[derive(Debug, Deserialize)]
struct DocumentUrl<'a> {
    #[serde(borrow, default)]
    url: Option<&'a RawValue>,
}

/// A tool call, or a fragment of one.
#[derive(Debug, Deserialize)]
struct DocumentCall<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<DocumentFunction<'a>>,
    #[serde(borrow)]
    custom: Option<DocumentFunction<'a>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct DocumentFunction<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// Reads a whole completion of up to `count` choices. The others are ignored.
pub(crate) fn read_completion(body: &str, count: u64) -> Result<ChatCompletion<'_>, BadAnswer> {
    let Ok(mut document) = ChatDocument::read(body) else {
        return Err(BadAnswer::Invalid("it is not a chat completion"));
    };
    if let Some(error) = document.error(body) {
        return Err(BadAnswer::Error(error));
    }
    let (counts, extras) = document.usage();
    let choices = document.take_choices(count);
    if choices.is_empty() {
        return Err(BadAnswer::Invalid("it has no choices"));
    }
    let choices: Result<Vec<ChatChoice<'_>>, BadAnswer> =
        choices.iter().map(|(index, choice)| choice.whole(*index)).collect();
    let usage = counts.map(|counts| ClientUsage { counts, ..ClientUsage::default() });
    Ok(ChatCompletion { choices: choices?, created_s: None, counts, usage, extras })
}

impl<'a> ChatDocument<'a> {
    pub(super) fn read(document: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(document)
    }

    /// Returns the error in it, in any known shape.
    pub(super) fn error(&self, document: &str) -> Option<StreamError> {
        if self.error.is_none() && (self.choices.is_some() || self.usage.is_some()) {
            return None;
        }
        StreamError::of_odd(document.as_bytes())
    }

    /// Returns its usage, if there is any, and the reported quantities other than tokens. Usage is at the top, in
    /// `x_groq`, or in a choice as Moonshot sends it.
    pub(super) fn usage(&self) -> (Option<TokenCounts>, Extras) {
        let read = |raw| parse_raw::<Value>(Some(raw));
        let choices = || self.choices.iter().flatten().find_map(|choice| choice.usage.and_then(read));
        let groq = || self.x_groq.and_then(read).and_then(|groq| groq.get("usage").cloned());
        let usage = self.usage.and_then(read).filter(Value::is_object).or_else(groq).or_else(choices);
        let usage = usage.as_ref().map(UsageReader::of);
        let tier = self.service_tier.and_then(inside_quotes).and_then(|tier| term(tier.as_bytes()));
        let extras = usage.as_ref().map(UsageReader::extras).unwrap_or_default();
        (usage.and_then(|usage| usage.counts()), Extras { tier, ..extras })
    }

    /// Returns the choices with an index below `count`, with their indexes; all others are ignored.
    pub(super) fn choices(&self, count: u64) -> impl Iterator<Item = (u64, &DocumentChoice<'a>)> {
        let numbered = self.choices.iter().flatten().filter_map(|choice| Some((choice.index()?, choice)));
        numbered.filter(move |(index, _)| *index < count)
    }

    /// Takes the choices with an index below `count`, in the order of their indexes. If there is none, it takes the first
    /// one, because some vendors number a single choice from 1.
    fn take_choices(&mut self, count: u64) -> Vec<(u64, DocumentChoice<'a>)> {
        let mut all = self.choices.take().unwrap_or_default();
        if !all.iter().any(|choice| choice.index().is_some_and(|index| index < count)) {
            all.truncate(1);
            return all.into_iter().map(|choice| (0, choice)).collect();
        }
        let numbered = all.into_iter().filter_map(|choice| Some((choice.index()?, choice)));
        let mut taken: Vec<_> = numbered.filter(|(index, _)| *index < count).collect();
        taken.sort_by_key(|(index, _)| *index);
        taken.dedup_by_key(|(index, _)| *index);
        taken
    }

    /// Returns its text with the member that contains it, if a chunk contains nothing else.
    pub(super) fn only_text(&self) -> Option<(&'a str, ChatTextKind)> {
        let [choice] = self.choices.as_deref()? else { return None };
        let ends =
            [self.usage, self.x_groq, self.error, choice.usage, choice.finish_reason, choice.stop_reason];
        let alone = choice.is_first() && choice.logprobs.is_none() && ends.iter().all(Option::is_none);
        choice.delta.as_ref().filter(|_| alone)?.only_text()
    }
}

impl<'a> DocumentChoice<'a> {
    /// Returns its index: 0 if it is absent, `None` if it is no whole number.
    fn index(&self) -> Option<u64> {
        let Some(index) = self.index.map(RawValue::get) else { return Some(0) };
        index.trim_matches('"').trim_end_matches(".0").parse().ok()
    }

    fn is_first(&self) -> bool {
        self.index() == Some(0)
    }

    /// Reads the choice of a whole completion.
    fn whole(&self, index: u64) -> Result<ChatChoice<'a>, BadAnswer> {
        if let Some(failure) = self.failure() {
            return Err(BadAnswer::Error(failure));
        }
        let message = self.message().ok_or(BadAnswer::Invalid("its choice has no message"))?;
        Ok(ChatChoice {
            index,
            finish_reason: Cow::Borrowed(self.finish_reason()),
            stop: self.stop(),
            logprobs: self.logprobs(),
            ..ChatChoice::of(message)
        })
    }

    /// Returns the `finish_reason`, or an empty text if it is absent.
    pub(super) fn finish_reason(&self) -> &'a str {
        self.finish_reason.and_then(inside_quotes).unwrap_or_default()
    }

    /// Calls `with` with the end of the choice, if it has one.
    pub(super) fn end<T>(&self, with: impl FnOnce(&ChoiceEnd<'_>) -> T) -> Option<T> {
        let native = self.native_finish_reason.and_then(inside_quotes).unwrap_or_default();
        let error: Option<Value> = parse_raw(self.error);
        let reason = self.finish_reason();
        let error = error.as_ref().filter(|error| StreamError::is_error(error));
        if reason.is_empty() && native.is_empty() && error.is_none() {
            return None;
        }
        let content = self.message().and_then(|message| inside_quotes(message.content?)).unwrap_or_default();
        let content = AnswerText::Escaped(content);
        Some(with(&ChoiceEnd { reason, native, error, words: "", content }))
    }

    /// True if the choice ended as a failure.
    pub(super) fn failed(&self) -> bool {
        self.failure().is_some()
    }

    /// Returns the failure with which the choice ended.
    fn failure(&self) -> Option<StreamError> {
        self.end(|end| end.failure()).flatten()
    }

    /// Returns the stop sequence that was reached, if the vendor reports it.
    pub(super) fn stop(&self) -> Option<String> {
        json::unescape(inside_quotes(self.stop_reason?)?.as_bytes())
    }

    /// Returns the log probabilities of its tokens.
    pub(super) fn logprobs(&self) -> Vec<ChosenToken> {
        read_logprobs(self.logprobs)
    }

    /// Returns the delta or message.
    pub(super) fn message(&self) -> Option<&DocumentMessage<'a>> {
        self.message.as_ref().or(self.delta.as_ref())
    }
}

impl<'a> DocumentMessage<'a> {
    /// Calls `each` with every text that is not empty, in the order in which clients expect them.
    pub(super) fn texts(&self, mut each: impl FnMut(ChatTextKind, AnswerText<'_>)) {
        let reasoning =
            [self.reasoning_content, self.reasoning].into_iter().flatten().filter_map(inside_quotes);
        let mut reasoning = reasoning.filter(|text| !text.is_empty());
        if let Some(text) = reasoning.next() {
            each(ChatTextKind::Reasoning, AnswerText::Escaped(text));
        }
        match self.content.map(|content| (content, inside_quotes(content))) {
            Some((_, Some(text))) if !text.is_empty() => {
                each(ChatTextKind::Content, AnswerText::Escaped(text))
            }
            Some((parts, None)) => each_part(parts, &mut each),
            Some((_, Some(_))) | None => {}
        }
        if let Some(text) = self.refusal.and_then(inside_quotes).filter(|text| !text.is_empty()) {
            each(ChatTextKind::Refusal, AnswerText::Escaped(text));
        }
    }

    /// Calls `each` with every image: those of `images`, and those among the parts of a `content` that is an array.
    pub(super) fn media(&self, mut each: impl FnMut(OutputMedia<'a>)) {
        let parts = self.content.filter(|content| content.get().starts_with('['));
        for list in [self.images, parts].into_iter().flatten() {
            let images: Vec<DocumentImage<'a>> = parse_raw(Some(list)).unwrap_or_default();
            let urls = images.into_iter().filter_map(|image| image.image_url?.url).filter_map(inside_quotes);
            urls.for_each(|url| each(OutputMedia::of_url(AnswerText::Escaped(url).plain())));
        }
    }

    /// Returns its calls, or the fragments of calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = ChatCallDelta<'a>> {
        let calls = self.tool_calls.as_deref().unwrap_or_default();
        calls.iter().enumerate().map(|(position, call)| call.fragment(position, calls.len()))
    }

    fn only_text(&self) -> Option<(&'a str, ChatTextKind)> {
        let texts = [
            (self.content, ChatTextKind::Content),
            (self.reasoning_content, ChatTextKind::Reasoning),
            (self.reasoning, ChatTextKind::Reasoning),
        ];
        let mut texts = texts.into_iter().filter_map(|(text, kind)| Some((text?, kind)));
        let (text, kind) = texts.next()?;
        let others = self.refusal.is_some() || self.tool_calls.is_some() || self.images.is_some();
        let alone = texts.next().is_none() && !others;
        Some((inside_quotes(text)?, kind)).filter(|_| alone)
    }
}

impl<'a> DocumentCall<'a> {
    fn fragment(&self, position: usize, siblings: usize) -> ChatCallDelta<'a> {
        let text =
            |raw: Option<&'a RawValue>| AnswerText::Escaped(raw.and_then(inside_quotes).unwrap_or_default());
        let called = self.custom.as_ref().or(self.function.as_ref());
        let (id, name) = (text(self.id), text(called.and_then(|called| called.name)));
        let input = called.and_then(|called| called.arguments.or(called.input));
        ChatCallDelta {
            begins: !id.is_empty() || !name.is_empty(),
            index: self.index.and_then(|index| index.get().trim_matches('"').parse().ok()),
            position,
            siblings,
            id,
            name,
            // Some vendors send an object.
            input: input.map_or_else(AnswerText::default, |input| {
                inside_quotes(input).map_or_else(|| AnswerText::Plain(input.get()), AnswerText::Escaped)
            }),
            custom: self.custom.is_some(),
            signature: self.extra_content.and_then(thought_signature).map(Cow::Owned),
        }
    }
}

impl<'a> ChatChoice<'a> {
    fn of(message: &DocumentMessage<'a>) -> Self {
        let mut choice = Self::default();
        message.texts(|kind, text| {
            let whole = match kind {
                ChatTextKind::Content => &mut choice.content,
                ChatTextKind::Reasoning => &mut choice.reasoning,
                ChatTextKind::Refusal => &mut choice.refusal,
            };
            whole.push_str(&text.escaped());
        });
        let calls = message.calls().map(|call| ChatCall {
            id: call.id.escaped(),
            name: call.name.escaped(),
            input: call.input.escaped(),
            custom: call.custom,
            signature: call.signature,
        });
        choice.calls = calls.collect();
        message.media(|media| choice.media.push(media));
        choice
    }
}

/// Calls `each` with the texts of a `content` that is an array. Most vendors send a string; Mistral's reasoning models
/// send parts, among them thoughts.
fn each_part(content: &RawValue, mut each: impl FnMut(ChatTextKind, AnswerText<'_>)) {
    let parts: Vec<Value> = serde_json::from_str(content.get()).unwrap_or_default();
    let mut each = |kind, text: &str| {
        if !text.is_empty() {
            each(kind, AnswerText::Plain(text));
        }
    };
    for part in &parts {
        if let Some(text) = part["text"].as_str() {
            each(ChatTextKind::Content, text);
        }
        let thoughts = part["thinking"].as_array().into_iter().flatten();
        let thoughts = thoughts.filter_map(|thought| thought["text"].as_str());
        thoughts.chain(part["thinking"].as_str()).for_each(|text| each(ChatTextKind::Reasoning, text));
    }
}

/// Gemini's signatures of thoughts, as its chat endpoint attaches them to calls and messages.
#[derive(Deserialize)]
struct ExtraContent {
    google: Option<SignedContent>,
    vertex: Option<SignedContent>,
}

#[derive(Deserialize)]
struct SignedContent {
    thought_signature: Option<String>,
}

/// Returns the signature in an `extra_content`.
fn thought_signature(extra_content: &RawValue) -> Option<String> {
    let extra: ExtraContent = serde_json::from_str(extra_content.get()).ok()?;
    let signed = [extra.google, extra.vertex].into_iter().flatten();
    signed.filter_map(|signed| signed.thought_signature).find(|signature| !signature.is_empty())
}
