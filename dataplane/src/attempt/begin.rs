//! How an answer begins: with its first content, or with all of it.

use std::pin::pin;

use bytes::Bytes;
use shared::error_kind::ErrorKind;
use shared::routing::ProviderInstance;
use shared::usage::StepResult;
use wire::chat::{self, ChatStream, WholeScan};
use wire::stream::{AnswerStream as _, StreamOptions};

use super::failure::{Failure, broke_off, of_stream_error, secrets};
use super::patience::Patience;
use super::{Begun, Task};
use crate::relay::Scan;
use crate::upstream::AnswerBody;

/// A whole answer up to this size is read before anything is sent, so that an upstream that breaks off in it
/// can still be replaced.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// Events held back before the first content.
const HELD_BYTES_MAX: usize = 64 << 10;
/// A whole answer that is turned into a stream must fit into this.
const SYNTHESIZED_BYTES_MAX: usize = 8 << 20;

/// Reads a stream up to its first content, holding back what comes before it.
pub(super) async fn first_content(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let options = StreamOptions {
        drop_usage_only: !task.include_usage,
        secrets: secrets(provider).into_iter().map(str::to_owned).collect(),
    };
    let mut stream = Box::new(ChatStream::new(options));
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

/// Reads a whole answer, or so much of a long one that it may be relayed.
pub(super) async fn whole(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let mut held: Vec<Bytes> = Vec::with_capacity(1);
    let mut held_bytes = 0;
    while held_bytes <= WHOLE_BYTES_MAX {
        let next = patience.wait(provider.stream_idle_timeout, pin!(body.data())).await?;
        match next {
            Some(Ok(bytes)) => {
                held_bytes += bytes.len();
                held.push(bytes);
            }
            Some(Err(_)) => return Err(broke_off(provider)),
            None => {
                body.recycle(task.worker, provider);
                return judge_whole(task, provider, joined(held));
            }
        }
    }
    let mut scan = Box::new(WholeScan::new());
    held.iter().for_each(|bytes| scan.push(bytes));
    Ok(Begun::Flowing { held, scan: Scan::Whole(scan), body })
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

fn judge_whole(task: &Task<'_>, provider: &ProviderInstance, body: Bytes) -> Result<Begun, Failure> {
    let answer = chat::whole_answer(&body);
    if let Some(error) = &answer.error {
        return Err(of_stream_error(task, provider, error));
    }
    if !answer.is_json {
        let message = format!("The provider '{}' answered with something that is not JSON.", provider.id);
        return Err(Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message));
    }
    Ok(Begun::Whole { body, usage: answer.usage, output_bytes: answer.output_bytes })
}

/// An upstream that cannot stream answered a stream request with a whole answer: it becomes a stream.
pub(super) async fn synthesize(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let mut text = Vec::new();
    loop {
        let next = patience.wait(provider.stream_idle_timeout, pin!(body.data())).await?;
        match next {
            Some(Ok(bytes)) if text.len() + bytes.len() <= SYNTHESIZED_BYTES_MAX => {
                text.extend_from_slice(&bytes)
            }
            Some(_) => return Err(broke_off(provider)),
            None => break,
        }
    }
    body.recycle(task.worker, provider);
    let text = Bytes::from(text);
    let begun = judge_whole(task, provider, text.clone())?;
    match (begun, chat::synthesize_stream(&text, task.include_usage)) {
        (Begun::Whole { usage, output_bytes, .. }, Some(stream)) => {
            Ok(Begun::Whole { body: stream.into(), usage, output_bytes })
        }
        _ => {
            let message = format!("The provider '{}' answered a stream request with no stream.", provider.id);
            Err(Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message))
        }
    }
}
