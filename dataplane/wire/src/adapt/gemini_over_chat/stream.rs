//! Writes a streamed chat answer as a Gemini stream: text and thoughts as they come, the calls of each candidate whole, in
//! one frame after its text, and a last frame with the reasons for the end and the usage.
//!
//! Memory is bounded by the calls, which are kept until the end ([`CALLS_BYTES_MAX`], [`CALLS_MAX`]).

use std::collections::BTreeMap;

use bytes::Bytes;
use shared::usage::TokenCounts;

use super::answer::GeminiForm;
use super::frame::{self, Average, CandidateEnd};
use super::signature;
use crate::chat::{
    AnswerText, ChatCall, ChatCallDelta, ChatDelta, ChatSink, ChatTextKind, ChosenToken, ClientUsage,
    OutputMedia, ThinkingPart,
};
use crate::envelope::{StreamError, google_frame, google_stream_error, google_trouble};
use crate::finish_word::finish;
use crate::json::{JsonWriter, meant_bytes};
use crate::stream::{StreamState, Trouble};

/// The writer of one stream.
#[derive(Debug)]
pub(super) struct GeminiSink {
    form: GeminiForm,
    /// Credentials that must not appear in errors.
    secrets: Vec<String>,
    state: StreamState,
    candidates: BTreeMap<u64, StreamedCandidate>,
    calls_bytes: usize,
    usage: Option<TokenCounts>,
    out: String,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct StreamedCandidate {
    end: CandidateEnd,
    calls: Vec<BufferedCall>,
    /// The log probabilities of the text that follows.
    logprobs: Vec<ChosenToken>,
    average: Average,
}

/// A call, its texts still escaped.
#[derive(Debug, Default)]
struct BufferedCall {
    /// The upstream's index of the call, if it sends one.
    index: Option<u64>,
    call: ChatCall<'static>,
}

/// The calls exceed a limit.
struct TooMuch;

/// The maximum number of bytes of all calls of an answer, and of calls of a candidate.
const CALLS_BYTES_MAX: usize = 4 << 20;
const CALLS_MAX: usize = 1_024;
/// The maximum number of candidates: as many as a chat client may request.
const CANDIDATES_MAX: usize = 128;

impl ChatSink for GeminiSink {
    fn begin(&mut self, choice: u64) {
        if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.entry(choice).or_default();
        }
    }

    fn delta(&mut self, choice: u64, delta: ChatDelta<'_>) {
        if self.has_ended {
            return;
        }
        self.begin(choice);
        if self.put(choice, delta).is_err() {
            self.fail(&StreamError::of_bad_answer("The upstream sent too many or too long tool calls."));
        }
    }

    fn finish(&mut self, choice: u64, reason: &str, _stop: Option<&str>) {
        self.begin(choice);
        let finish = finish(reason.as_bytes());
        if let Some(candidate) = self.candidates.get_mut(&choice) {
            candidate.end.finish = finish;
        }
        self.state.finished = true;
        if choice == 0 || self.state.finish.is_none() {
            self.state.finish = finish;
        }
    }

    fn usage(&mut self, usage: ClientUsage) {
        self.usage = Some(usage.counts);
    }

    fn done(&mut self) {
        self.begin(0);
        let mut candidates = std::mem::take(&mut self.candidates);
        for (index, candidate) in &mut candidates {
            self.flush_calls(*index, candidate);
        }
        let mut json = JsonWriter::default();
        json.object().name("candidates").list();
        for (index, candidate) in &candidates {
            frame::begin_candidate(&mut json);
            frame::text_part("", false, None, &mut json);
            let (average, tokens) = (candidate.average.value(), &candidate.logprobs);
            frame::end_candidate(*index, Some(candidate.end), average, tokens, &mut json);
        }
        json.end_list();
        frame::end(&self.form, Some(self.usage.unwrap_or_default()), &mut json);
        self.write(json);
        self.state.done = true;
        self.has_ended = true;
    }

    fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.out.push_str(&String::from_utf8_lossy(&google_stream_error(&error)));
        self.state.error = Some(error);
        self.has_ended = true;
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        google_trouble(trouble.row, trouble.message, trouble.request_id)
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn facts(&mut self) -> &mut StreamState {
        &mut self.state
    }

    fn flush(&mut self, out: &mut Vec<Bytes>) {
        if !self.out.is_empty() {
            out.push(std::mem::take(&mut self.out).into());
        }
    }
}

impl GeminiSink {
    pub(super) fn new(form: GeminiForm, secrets: Vec<String>) -> Self {
        Self {
            form,
            secrets,
            state: StreamState::default(),
            candidates: BTreeMap::new(),
            calls_bytes: 0,
            usage: None,
            out: String::new(),
            has_ended: false,
        }
    }

    fn put(&mut self, choice: u64, delta: ChatDelta<'_>) -> Result<(), TooMuch> {
        let Some(candidate) = self.candidates.get_mut(&choice) else { return Err(TooMuch) };
        match delta {
            ChatDelta::Text(kind, text) => {
                candidate.end.has_refusal |= kind == ChatTextKind::Refusal && !text.is_empty();
                self.text(choice, &text.escaped(), kind == ChatTextKind::Reasoning);
            }
            ChatDelta::Call(call) => self.call(choice, &call)?,
            ChatDelta::Thinking(piece) if self.form.wants_thoughts && !piece.text.is_empty() => {
                let text = piece.text.plain();
                let signature = match piece.part {
                    // The text also arrives as reasoning.
                    ThinkingPart::Text => return Ok(()),
                    ThinkingPart::Signature => signature::signed(&text),
                    ThinkingPart::Redacted => signature::hidden(&text),
                };
                self.part(choice, |json| frame::text_part("", true, Some(&signature), json));
            }
            ChatDelta::Thinking(_) => {}
            ChatDelta::Media(media) => self.media(choice, &media),
            ChatDelta::Signature(signature) => {
                let signature = signature.plain();
                self.part(choice, |json| frame::text_part("", false, Some(&signature), json));
            }
            ChatDelta::Logprobs(tokens) => self.logprobs(choice, tokens),
        }
        Ok(())
    }

    /// Writes a text, unless it is a thought that the client does not want.
    fn text(&mut self, choice: u64, escaped: &str, is_thought: bool) {
        if escaped.is_empty() {
            return;
        }
        if is_thought && !self.form.wants_thoughts {
            // Its tokens would belong to a text that the client does not see.
            self.candidates.entry(choice).or_default().logprobs.clear();
            return;
        }
        self.part(choice, |json| frame::text_part(escaped, is_thought, None, json));
        self.state.content = true;
        self.state.add_text(meant_bytes(escaped.as_bytes()));
    }

    fn media(&mut self, choice: u64, media: &OutputMedia<'_>) {
        self.part(choice, |json| frame::media_part(media, json));
        self.state.content = true;
        self.state.add_text(0);
    }

    /// Keeps the log probabilities of the text that follows. Those that no text has followed get a frame of their own.
    fn logprobs(&mut self, choice: u64, tokens: &[ChosenToken]) {
        if self.candidates.get(&choice).is_some_and(|candidate| !candidate.logprobs.is_empty()) {
            self.part(choice, |json| frame::text_part("", false, None, json));
        }
        if let Some(candidate) = self.candidates.get_mut(&choice) {
            candidate.logprobs = tokens.to_vec();
        }
    }

    /// Adds a fragment of a call.
    fn call(&mut self, choice: u64, piece: &ChatCallDelta<'_>) -> Result<(), TooMuch> {
        let input = piece.input.escaped();
        let text = [piece.id, piece.name].map(AnswerText::escaped);
        let bytes = input.len().saturating_add(text.iter().map(|text| text.len()).sum());
        self.calls_bytes = self.calls_bytes.saturating_add(bytes);
        let Some(candidate) = self.candidates.get_mut(&choice) else { return Err(TooMuch) };
        let at = candidate.find(piece);
        if self.calls_bytes > CALLS_BYTES_MAX || at >= CALLS_MAX {
            return Err(TooMuch);
        }
        if at == candidate.calls.len() {
            candidate.calls.push(BufferedCall { index: piece.index, ..BufferedCall::default() });
        }
        let Some(BufferedCall { call, .. }) = candidate.calls.get_mut(at) else { return Ok(()) };
        let [id, name] = text;
        for (known, new) in [(&mut call.id, id), (&mut call.name, name)] {
            if known.is_empty() {
                *known = new.into_owned().into();
            }
        }
        call.custom |= piece.custom;
        if call.signature.is_none() {
            call.signature = piece.signature.clone().map(|signature| signature.into_owned().into());
        }
        call.input.to_mut().push_str(&input);
        self.state.content = true;
        self.state.add_text(meant_bytes(input.as_bytes()));
        Ok(())
    }

    /// Writes all calls of a candidate in one frame.
    fn flush_calls(&mut self, index: u64, candidate: &mut StreamedCandidate) {
        let calls = std::mem::take(&mut candidate.calls);
        let arguments: Option<Vec<String>> = calls.iter().map(|call| frame::arguments(&call.call)).collect();
        let Some(arguments) = arguments else {
            candidate.end.is_malformed = true;
            return;
        };
        if calls.is_empty() {
            return;
        }
        let form = self.form.clone();
        self.part(index, |json| {
            for (position, (call, arguments)) in calls.iter().zip(&arguments).enumerate() {
                frame::call_part(&call.call, arguments, position, &form, json);
            }
        });
    }

    /// Writes a frame with one candidate, whose parts `write` writes.
    fn part(&mut self, choice: u64, write: impl FnOnce(&mut JsonWriter)) {
        let mut json = JsonWriter::default();
        json.object().name("candidates").list();
        frame::begin_candidate(&mut json);
        write(&mut json);
        let tokens = self.candidates.get_mut(&choice).map(StreamedCandidate::take_logprobs);
        frame::end_candidate(choice, None, None, &tokens.unwrap_or_default(), &mut json);
        json.end_list();
        frame::end(&self.form, None, &mut json);
        self.write(json);
    }

    fn write(&mut self, json: JsonWriter) {
        self.out.push_str(&google_frame(&String::from_utf8_lossy(&json.finish())));
    }
}

impl StreamedCandidate {
    /// Takes the log probabilities of the text that is written now.
    fn take_logprobs(&mut self) -> Vec<ChosenToken> {
        let tokens = std::mem::take(&mut self.logprobs);
        self.average.add(&tokens);
        tokens
    }

    /// Returns the position of the call that a fragment belongs to; the number of calls for a new one. Some vendors send no
    /// index, or the same one for every call: a different ID begins a new call, and so does a name without index and ID.
    fn find(&self, piece: &ChatCallDelta<'_>) -> usize {
        let (id, calls) = (piece.id.escaped(), &self.calls);
        let found = match piece.index {
            Some(_) => calls.iter().rposition(|known| known.index == piece.index),
            None if !id.is_empty() => calls.iter().rposition(|known| known.call.id == id),
            None if !piece.name.is_empty() => None,
            None => calls.len().checked_sub(1),
        };
        let fits = |at: &usize| {
            calls
                .get(*at)
                .is_some_and(|known| id.is_empty() || known.call.id.is_empty() || known.call.id == id)
        };
        found.filter(fits).unwrap_or(calls.len())
    }
}
