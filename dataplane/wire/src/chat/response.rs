//! Reads a unary chat answer, in pieces while it is relayed, or at once if it is short.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::{Finder, FinderRev};
use shared::usage::Finish;

use super::failed::ChoiceEnd;
use super::findings::{ChatFindings, ChatScan, USAGE_BYTES_MAX, tree};
use super::named;
use super::prefilter::{names_error_or_tier, places};
use crate::envelope::StreamError;
use crate::finish_word::finish;
use crate::passthrough::{AnswerFacts, TextChange, WholeAnswer};

/// Reads an answer of any size in pieces and keeps only its usage and error.
#[derive(Debug, Default)]
pub(crate) struct ChatAnswerScan {
    answer: ChatScan,
    /// The beginning of an incomplete `usage`, and its position in the answer.
    held: Vec<u8>,
    held_from: usize,
}

impl ChatAnswerScan {
    /// Reads the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.answer.push(piece);
    }

    /// Reads the next piece and appends it to `out`, with OpenAI's names added to its `usage`. Only a `usage` that is
    /// split across pieces is held back.
    pub(crate) fn pass(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        let before = self.answer.read_bytes();
        self.push(&piece);
        let seen = self.answer.facts();
        if self.held.is_empty() && seen.unnamed.is_none() && seen.usage_open().is_none() {
            out.push(piece);
        } else {
            self.pass_usage(before, piece, out);
        }
    }

    #[cold]
    fn pass_usage(&mut self, before: usize, piece: Bytes, out: &mut Vec<Bytes>) {
        let (mut from, mut text) = (before, piece);
        if !self.held.is_empty() {
            self.held.extend_from_slice(&text);
            (from, text) = (self.held_from, std::mem::take(&mut self.held).into());
        }
        if let Some(usage) = self.answer.facts_mut().unnamed.take()
            && let Some(part) = usage.start.checked_sub(from).zip(usage.end.checked_sub(from))
            && let Some(by) = text.get(part.0..part.1).and_then(named)
        {
            let rest = text.split_off(part.1);
            push_some(text.split_to(part.0), out);
            out.push(by.into());
            (from, text) = (usage.end, rest);
        }
        let open = self.answer.facts().usage_open().filter(|_| !self.answer.is_broken());
        if let Some(at) = open.and_then(|open| open.checked_sub(from))
            && at <= text.len()
            && text.len().wrapping_sub(at) <= USAGE_BYTES_MAX
        {
            self.held_from = from.wrapping_add(at);
            self.held = text.split_off(at).into();
        }
        push_some(text, out);
    }

    /// Appends the held-back bytes of an answer that broke off to `out`.
    pub(crate) fn release(&mut self, out: &mut Vec<Bytes>) {
        if !self.held.is_empty() {
            out.push(std::mem::take(&mut self.held).into());
        }
    }

    /// Returns the facts of the answer after its end.
    pub(crate) fn finish(self) -> WholeAnswer {
        self.answer.answer()
    }
}

impl AnswerFacts for ChatFindings {
    fn answer(self) -> WholeAnswer {
        let error = self.error().map(|raw| {
            let value = tree(raw).unwrap_or_else(|| "The upstream answered with an error.".into());
            StreamError::of_member(&value)
        });
        WholeAnswer {
            may_have_failed: self.may_have_failed,
            usage: self.token_counts(),
            extras: self.extras(),
            finish: self.finish,
            error,
            output_bytes: self.text_bytes,
            unnamed_usage: self.unnamed,
            ..WholeAnswer::default()
        }
    }
}

/// Returns `body` with OpenAI's names added to the `usage` at `part`.
#[cold]
pub(crate) fn with_names(body: Bytes, part: Range<usize>) -> Bytes {
    match body.get(part.clone()).and_then(named) {
        Some(by) => TextChange { part, by }.of(&body, 0),
        None => body,
    }
}

/// Reads a complete answer. Usually only its end is parsed, from `usage` on, which is enough if the rest contains no
/// error and no service tier. `output_bytes` is then 0, because the tokens are counted.
pub(crate) fn whole_answer(body: &[u8]) -> WholeAnswer {
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Some((before, end)) = last_usage(body).and_then(|at| body.split_at_checked(at))
        && !names_error_or_tier(body, before.len())
        // Inside a string the quotes would be escaped, so this is a member; since the rest parses as the end of an
        // object, the member is at the top level.
        && matches!(before.trim_ascii_end().last(), Some(b'{' | b','))
    {
        let mut scan = ChatScan::of_members();
        scan.push(end);
        let mut answer = scan.answer();
        if answer.is_json && answer.usage.is_some() {
            answer.finish = answer.finish.or_else(|| last_finish(before));
            if answer.finish == Some(Finish::Error) || native_end(before) == Some(Finish::Error) {
                return read_whole(body);
            }
            if let Some(part) = &mut answer.unnamed_usage {
                *part = part.start.wrapping_add(before.len())..part.end.wrapping_add(before.len());
            }
            return answer;
        }
    }
    read_whole(body)
}

/// Reads a complete answer, parsing all of it.
fn read_whole(body: &[u8]) -> WholeAnswer {
    let mut answer = ChatScan::answer_of(body);
    if answer.may_have_failed && answer.error.is_none() {
        answer.error = tree(body).as_ref().and_then(ChoiceEnd::failure_in);
    }
    answer
}

/// Returns true if a complete chat answer has a choice.
pub(crate) fn has_choice(body: &[u8]) -> bool {
    ChatScan::of(body).is_some_and(|seen| seen.has_choice)
}

/// Returns the last finish reason. Few bytes follow it in most answers.
fn last_finish(answer: &[u8]) -> Option<Finish> {
    let near = answer.len().saturating_sub(FINISH_TAIL_BYTES);
    let in_tail = places(&FINISH, answer.get(near..)?).last().map(|at| near.wrapping_add(at));
    let name = in_tail.or_else(|| places(&FINISH, answer).last())?;
    word_at(answer, name.checked_add(FINISH_NAME.len())?)
}

/// Returns the meaning of OpenRouter's `native_finish_reason`, which precedes the content.
fn native_end(answer: &[u8]) -> Option<Finish> {
    let head = answer.get(..NATIVE_HEAD_BYTES).unwrap_or(answer);
    let name = places(&NATIVE_FINISH, head).next()?;
    word_at(answer, name.checked_add(NATIVE_FINISH_NAME.len())?)
}

/// Returns the meaning of the string that starts at `at`.
fn word_at(answer: &[u8], at: usize) -> Option<Finish> {
    let value = answer.get(at..)?.trim_ascii_start().strip_prefix(b"\"")?;
    let word = value.get(..WORD_BYTES_MAX).unwrap_or(value);
    finish(word.get(..memchr::memchr(b'"', word)?)?)
}

static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(FINISH_NAME));
/// In a string its quotes would be escaped.
const FINISH_NAME: &[u8] = br#""finish_reason":"#;
static NATIVE_FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NATIVE_FINISH_NAME));
const NATIVE_FINISH_NAME: &[u8] = br#""native_finish_reason":"#;
/// The length of the part that contains OpenRouter's `native_finish_reason`.
const NATIVE_HEAD_BYTES: usize = 512;
/// The length of the part before the usage that usually contains the finish reason.
const FINISH_TAIL_BYTES: usize = 128;
/// The length up to which a finish reason is read.
const WORD_BYTES_MAX: usize = 64;

/// Returns the position of the last `usage`. The search backwards is slower and rarely needed, because little follows
/// `usage`.
fn last_usage(body: &[u8]) -> Option<usize> {
    const NAME: &[u8] = br#""usage":"#;
    static FORWARDS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));
    static BACKWARDS: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(NAME));
    let near = body.len().saturating_sub(TAIL_BYTES);
    let in_tail = places(&FORWARDS, body.get(near..).unwrap_or_default()).last();
    in_tail.map(|at| near.wrapping_add(at)).or_else(|| BACKWARDS.rfind(body))
}

/// The length of an answer's end that usually contains all of its usage.
const TAIL_BYTES: usize = 512;

fn push_some(text: Bytes, out: &mut Vec<Bytes>) {
    if !text.is_empty() {
        out.push(text);
    }
}
