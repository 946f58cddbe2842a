//! The beginning of an answer: the first content of a stream, or the whole answer.

use bytes::Bytes;
use shared::error_kind::ErrorKind;
use shared::health::Evidence;
use shared::operation::Dialect;
use shared::routing::ProviderInstance;
use shared::usage::StepResult;
use wire::adapt::{BadAnswer, TranslatedAnswer};
use wire::envelope::StreamError;
use wire::native::{self, COLLECTED_BYTES_MAX};

use super::failure::{Failure, broke_off, of_stream_error, secrets};
use super::opening::Opening;
use super::timeouts::AttemptTimeouts;
use super::{AnswerStart, AttemptParams, Next};
use crate::memory_budget::{MemoryExhausted, MemoryReservation};
use crate::relay::{Scan, pass_whole};

/// The size up to which a whole answer is read before anything is sent, so that another target can still replace an
/// upstream that breaks off.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// The maximum size of events held back before the first content: the first two of a Responses stream each repeat the
/// request's instructions and tools.
const HELD_BYTES_MAX: usize = 512 << 10;
/// The maximum size of a whole answer that must be parsed, because it is translated into another dialect or a stream,
/// or because it may contain URLs in place of images. The largest answers are four images of four megapixels, in base64.
const UNDERSTOOD_BYTES_MAX: usize = 64 << 20;

/// Reads a stream up to its first content, and holds back everything before it.
pub(super) async fn first_content(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    mut opening: Opening,
    timeouts: &mut AttemptTimeouts<'_>,
    is_events: bool,
) -> Result<AnswerStart, Failure> {
    let secrets = secrets(provider).into_iter().map(str::to_owned).collect();
    let mut stream = params.reader.stream(secrets, is_events);
    let mut held = Vec::with_capacity(2);
    let failure = loop {
        let ended = match opening.next(timeouts).await {
            Ok(Some(Ok(bytes))) => {
                stream.push(bytes, &mut held);
                false
            }
            Ok(None) => {
                stream.end(&mut held);
                true
            }
            Ok(Some(Err(_))) => break broke_off(provider),
            Err(failure) => break failure,
        };
        let state = stream.state();
        if !state.content
            && let Some(error) = &state.error
        {
            break of_stream_error(params, provider, error);
        }
        let held_bytes: usize = held.iter().map(Bytes::len).sum();
        // The end of a failed answer is followed by its error.
        let has_ended_well = state.finished && state.failure.is_none();
        if state.content || has_ended_well || held_bytes > HELD_BYTES_MAX {
            return Ok(AnswerStart::Streaming { held, scan: Scan::Stream(stream), body: opening.body });
        }
        if state.done {
            break no_choice(provider);
        }
        if ended {
            break broke_off(provider);
        }
    };
    let state = stream.state();
    let tokens = state.usage.or(state.input);
    Err(failure.having_used(tokens.map(|tokens| (tokens, state.extras.clone()))))
}

/// Returns the failure for a stream that ended without an answer: without any content and without a finish reason.
fn no_choice(provider: &ProviderInstance) -> Failure {
    invalid(provider, "the stream ended without any choice")
}

/// Reads a whole answer, or the beginning of a long one that is relayed.
pub(super) async fn whole(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    mut opening: Opening,
    timeouts: &mut AttemptTimeouts<'_>,
) -> Result<AnswerStart, Failure> {
    let passes = params.reader.passes();
    let bytes_max = if passes { WHOLE_BYTES_MAX } else { UNDERSTOOD_BYTES_MAX };
    let Pieces { held, memory, is_all } = read(params, provider, &mut opening, timeouts, bytes_max).await?;
    match is_all {
        true => Ok(AnswerStart::Whole(kept(understand(params, provider, &joined(held))?, memory))),
        false if passes => {
            let mut scan = params.reader.scan();
            let mut passed = Vec::with_capacity(held.len());
            held.into_iter()
                .for_each(|bytes| pass_whole(&mut scan, params.job.head.dialect, bytes, &mut passed));
            Ok(AnswerStart::Streaming { held: passed, scan: Scan::Whole(scan), body: opening.body })
        }
        false => Err(invalid(provider, TOO_LONG)),
    }
}

/// The beginning of a body.
struct Pieces {
    held: Vec<Bytes>,
    /// The reserved memory of a long body, which is held in both dialects.
    memory: Option<MemoryReservation>,
    /// True if the pieces are the whole body.
    is_all: bool,
}

/// Reads to the end of a body, or slightly more than `bytes_max` of it.
async fn read(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    opening: &mut Opening,
    timeouts: &mut AttemptTimeouts<'_>,
    bytes_max: usize,
) -> Result<Pieces, Failure> {
    let mut held: Vec<Bytes> = Vec::with_capacity(1);
    let mut held_bytes = 0;
    let mut memory = None;
    while held_bytes <= bytes_max {
        match opening.next(timeouts).await? {
            Some(Ok(bytes)) => {
                held_bytes += bytes.len();
                held.push(bytes);
                if held_bytes > WHOLE_BYTES_MAX && bytes_max > WHOLE_BYTES_MAX {
                    let memory = memory
                        .get_or_insert_with(|| MemoryReservation::new(&params.job.worker.process.memory));
                    let more = (held_bytes as u64).saturating_mul(2).saturating_sub(memory.bytes());
                    if !memory.take(more) {
                        return Err(no_room());
                    }
                }
            }
            Some(Err(_)) => return Err(broke_off(provider)),
            None => {
                opening.body.recycle(&params.job.worker.upstreams, provider);
                return Ok(Pieces { held, memory, is_all: true });
            }
        }
    }
    Ok(Pieces { held, memory, is_all: false })
}

/// Attaches the reserved memory to the body of `whole`.
fn kept(mut whole: Box<TranslatedAnswer>, memory: Option<MemoryReservation>) -> Box<TranslatedAnswer> {
    if let Some(memory) = memory {
        whole.body = memory.around(std::mem::take(&mut whole.body));
    }
    whole
}

/// Returns the failure for a lack of memory. The upstream is not at fault, and another target's answer would need as
/// much memory.
fn no_room() -> Failure {
    Failure {
        next: Next::Stop,
        evidence: Evidence::Nothing,
        retry_after: Some(MemoryExhausted::RETRY_AFTER),
        ..Failure::new(StepResult::Invalid, ErrorKind::Overloaded, MemoryExhausted::MESSAGE)
    }
}

/// Joins the pieces. A single piece is not copied.
fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match (pieces.pop(), pieces.is_empty()) {
        (Some(only), true) => only,
        (Some(last), false) => {
            pieces.push(last);
            pieces.concat().into()
        }
        (None, _) => Bytes::new(),
    }
}

/// Parses a whole answer and translates it into the client's dialect.
fn understand(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    body: &Bytes,
) -> Result<Box<TranslatedAnswer>, Failure> {
    let read = match params.reader.whole(body.clone()) {
        Err(bad @ BadAnswer::Invalid(_)) => match native::length_before_events(body) {
            Some(length) => params.reader.whole(body.slice(..length)),
            None => Err(bad),
        },
        read => read,
    };
    read.map_err(|bad| refused(params, provider, bad).having_used(params.reader.usage_in(body)))
}

/// Returns the failure for an unusable answer.
fn refused(params: &AttemptParams<'_>, provider: &ProviderInstance, bad: BadAnswer) -> Failure {
    match bad {
        BadAnswer::Error(error) => of_stream_error(params, provider, &error),
        BadAnswer::Invalid(why) => billed_once(params, invalid(provider, why)),
        BadAnswer::Nothing(words) => nothing(provider, &words),
    }
}

/// Returns the failure without a retry if the answer is an image: one that was generated is billed, so it is not
/// generated again at the same target.
pub(super) fn billed_once(params: &AttemptParams<'_>, failure: Failure) -> Failure {
    match params.job.head.dialect {
        Dialect::Images => Failure { next: Next::FailOver, ..failure },
        _ => failure,
    }
}

fn invalid(provider: &ProviderInstance, why: &str) -> Failure {
    let message = format!("The provider '{}' sent an invalid response: {why}.", provider.id);
    Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message)
}

/// Returns the failure for an answer without content. The target responded, and the request may be the cause, so its
/// circuits do not count a failure.
fn nothing(provider: &ProviderInstance, words: &str) -> Failure {
    let words = StreamError::of_words(words.trim());
    let words = words.sanitized(&secrets(provider)).message;
    let message = match &*words {
        "" => format!("The provider '{}' generated no content and sent no reason.", provider.id),
        words => format!("The provider '{}' generated no content. Its message: {words}", provider.id),
    };
    let failure = Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message);
    Failure { next: Next::FailOver, evidence: Evidence::Alive, ..failure }
}

const TOO_LONG: &str = "it exceeds the limit for buffered responses";

/// Converts a whole answer to a stream, for upstreams that answer a stream request with a whole answer.
pub(super) async fn synthesize(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    mut opening: Opening,
    timeouts: &mut AttemptTimeouts<'_>,
) -> Result<AnswerStart, Failure> {
    let pieces = read(params, provider, &mut opening, timeouts, UNDERSTOOD_BYTES_MAX).await?;
    if !pieces.is_all {
        return Err(invalid(provider, TOO_LONG));
    }
    let mut whole = understand(params, provider, &joined(pieces.held))?;
    match params.reader.synthesize(&whole) {
        Some(stream) => {
            whole.body = stream.into();
            Ok(AnswerStart::Whole(kept(whole, pieces.memory)))
        }
        None => {
            let failure = invalid(provider, "a stream was requested, but the response is not a stream");
            Err(failure.having_used(whole.usage.map(|tokens| (tokens, whole.extras))))
        }
    }
}

/// Collects the events of a target into one answer, for a client that wants no stream.
pub(super) async fn collect(
    params: &AttemptParams<'_>,
    provider: &ProviderInstance,
    mut opening: Opening,
    timeouts: &mut AttemptTimeouts<'_>,
) -> Result<AnswerStart, Failure> {
    let Pieces { held, memory, is_all } =
        read(params, provider, &mut opening, timeouts, COLLECTED_BYTES_MAX).await?;
    if !is_all {
        return Err(invalid(provider, TOO_LONG));
    }
    let stream = joined(held);
    let collected = params.reader.collect(&stream).map_err(|bad| refused(params, provider, bad))?;
    Ok(AnswerStart::Whole(kept(understand(params, provider, &collected.into())?, memory)))
}
