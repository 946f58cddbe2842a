//! How an answer begins: with its first content, or with all of it.

use std::pin::pin;

use bytes::Bytes;
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::routing::ProviderInstance;
use shared::usage::StepResult;
use wire::adapt::{BadAnswer, Whole};

use super::failure::{Failure, broke_off, of_stream_error, secrets};
use super::patience::Patience;
use super::{Begun, Next, Task};
use crate::relay::Scan;
use crate::upstream::AnswerBody;

/// A whole answer up to this size is read before anything is sent, so that an upstream that breaks off in it
/// can still be replaced.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// Bytes of events held back before the first content: the first two of a Responses stream each repeat the request's
/// instructions and tools.
const HELD_BYTES_MAX: usize = 512 << 10;
/// A whole answer that must be understood, to be said in another dialect or as a stream, or because it may hold
/// addresses in place of images, must fit into this.
const UNDERSTOOD_BYTES_MAX: usize = 32 << 20;

/// Reads a stream up to its first content, holding back what comes before it.
pub(super) async fn first_content(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
    is_events: bool,
) -> Result<Begun, Failure> {
    let secrets = secrets(provider).into_iter().map(str::to_owned).collect();
    let mut stream = task.reading.stream(secrets, is_events);
    let mut held = Vec::with_capacity(2);
    loop {
        let next = patience.wait(provider.stream_idle_timeout, pin!(body.data())).await?;
        let ended = match next {
            Some(Ok(bytes)) => {
                stream.push(bytes, &mut held);
                false
            }
            Some(Err(_)) => return Err(broke_off(provider)),
            None => {
                stream.end(&mut held);
                true
            }
        };
        let state = stream.state();
        if !state.content
            && let Some(error) = &state.error
        {
            return Err(of_stream_error(task, provider, error));
        }
        let held_bytes: usize = held.iter().map(Bytes::len).sum();
        if state.content || state.done || state.finished || held_bytes > HELD_BYTES_MAX {
            return Ok(Begun::Flowing { held, scan: Scan::Stream(stream), body });
        }
        if ended {
            return Err(broke_off(provider));
        }
    }
}

/// Reads a whole answer, or so much of a long native one that it may be relayed.
pub(super) async fn whole(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let passes = task.reading.passes();
    let bytes_max = if passes { WHOLE_BYTES_MAX } else { UNDERSTOOD_BYTES_MAX };
    match read(task, provider, &mut body, patience, bytes_max).await? {
        (held, true) => understand(task, provider, joined(held)).map(Begun::Whole),
        (held, false) if passes => {
            let mut scan = task.reading.scan();
            held.iter().for_each(|bytes| scan.push(bytes));
            Ok(Begun::Flowing { held, scan: Scan::Whole(scan), body })
        }
        (_, false) => Err(invalid(provider, TOO_LONG)),
    }
}

/// Reads to the end of a body, or a little over `bytes_max` of it; says whether that is all.
async fn read(
    task: &Task<'_>,
    provider: &ProviderInstance,
    body: &mut AnswerBody,
    patience: &mut Patience,
    bytes_max: usize,
) -> Result<(Vec<Bytes>, bool), Failure> {
    let mut held: Vec<Bytes> = Vec::with_capacity(1);
    let mut held_bytes = 0;
    while held_bytes <= bytes_max {
        let next = patience.wait(provider.stream_idle_timeout, pin!(body.data())).await?;
        match next {
            Some(Ok(bytes)) => {
                held_bytes += bytes.len();
                held.push(bytes);
            }
            Some(Err(_)) => return Err(broke_off(provider)),
            None => {
                body.recycle(task.worker, provider);
                return Ok((held, true));
            }
        }
    }
    Ok((held, false))
}

/// One piece as it is; several copied together.
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

/// What a whole answer says, in the client's dialect.
fn understand(task: &Task<'_>, provider: &ProviderInstance, body: Bytes) -> Result<Whole, Failure> {
    task.reading.whole(body).map_err(|bad| match bad {
        BadAnswer::Error(error) => of_stream_error(task, provider, &error),
        // What has been made, and is paid for, is not made again.
        BadAnswer::Invalid(why) if task.dialect == Dialect::Images => {
            Failure { next: Next::FailOver, ..invalid(provider, why) }
        }
        BadAnswer::Invalid(why) => invalid(provider, why),
    })
}

fn invalid(provider: &ProviderInstance, why: &str) -> Failure {
    let message = format!("The provider '{}' sent no usable answer: {why}.", provider.id);
    Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message)
}

const TOO_LONG: &str = "it is too long to be read as a whole";

/// An upstream that cannot stream answered a stream request with a whole answer: it becomes a stream.
pub(super) async fn synthesize(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let (held, true) = read(task, provider, &mut body, patience, UNDERSTOOD_BYTES_MAX).await? else {
        return Err(invalid(provider, TOO_LONG));
    };
    let whole = understand(task, provider, joined(held))?;
    match task.reading.synthesize(&whole) {
        Some(stream) => Ok(Begun::Whole(Whole { body: stream.into(), ..whole })),
        None => Err(invalid(provider, "a stream was asked for, and what came is none")),
    }
}
