//! The journal's frames: one event each, found again after whatever a full disk, a dying process or another
//! program has left between them.
//!
//! ```text
//!  FF FE FF 75   no text holds such bytes     4
//!  length        of the record                4, little end first
//!  digest        of length and record         4, little end first
//!  record        see store/record.rs
//! ```

use shared::usage::{TraceStep, UsageEvent};

use super::names;
use crate::store::digest::digest;
use crate::store::record::{Record, Step, Tokens, bounded, bounded_cost};
use crate::store::varint;

/// Appends the frame of `event`.
pub(super) fn put(out: &mut Vec<u8>, event: &UsageEvent) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
    record(event).put(out, text);
    for step in &event.trace {
        if out.len() - start > TRACE_END_MAX {
            break;
        }
        step_of(step).put(out, text);
    }
    let Some((header, record)) = out.get_mut(start..).and_then(|frame| frame.split_at_mut_checked(HEADER))
    else {
        return;
    };
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    let sum = digest(u64::from(length), record);
    let fields = MARKER.into_iter().chain(length.to_le_bytes()).chain(sum.to_le_bytes());
    header.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
}

/// What a run of bytes begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A record; the frame is this long.
    Whole(&'a [u8], usize),
    /// So many bytes of something else.
    Garbage(usize),
    /// A frame of this length, of which there is only a part; or none at all.
    Part(usize),
}

/// Looks at the beginning of `bytes`.
pub(super) fn first(bytes: &[u8]) -> Frame<'_> {
    let Some(rest) = bytes.strip_prefix(&MARKER) else {
        // With nothing else to go by, the beginning of a marker is a part of a frame.
        let begun = MARKER.starts_with(bytes);
        return if begun { Frame::Part(HEADER) } else { Frame::Garbage(after_marker(bytes)) };
    };
    let Some((&length, rest)) = rest.split_first_chunk::<4>() else { return Frame::Part(HEADER) };
    let Some((&sum, rest)) = rest.split_first_chunk::<4>() else { return Frame::Part(HEADER) };
    let stated = u32::from_le_bytes(length);
    let length = usize::try_from(stated).unwrap_or(usize::MAX);
    if length > RECORD_BYTES_MAX {
        return Frame::Garbage(after_marker(bytes));
    }
    match rest.get(..length) {
        None => Frame::Part(HEADER + length),
        Some(record) if digest(u64::from(stated), record) == u32::from_le_bytes(sum) => {
            Frame::Whole(record, HEADER + length)
        }
        Some(_) => Frame::Garbage(after_marker(bytes)),
    }
}

/// Bytes up to the next marker but the first, or to the end.
pub(super) fn after_marker(bytes: &[u8]) -> usize {
    let rest = bytes.get(1..).unwrap_or_default();
    next_marker(rest).map_or(bytes.len(), |at| at + 1)
}

/// Where a marker begins, or could begin with the last bytes.
fn next_marker(bytes: &[u8]) -> Option<usize> {
    let whole = bytes.windows(MARKER.len()).position(|window| window == MARKER);
    whole.or_else(|| {
        let begun = (1..MARKER.len()).rev().filter_map(|known| MARKER.get(..known));
        begun.filter(|begun| bytes.ends_with(begun)).find_map(|begun| bytes.len().checked_sub(begun.len()))
    })
}

fn record(event: &UsageEvent) -> Record<'_> {
    let or_none = |text: Option<&'static str>| text.unwrap_or("");
    Record {
        request_id: &event.request_id,
        started_at_ms: event.started_at_ms.min(MOMENT_MAX),
        duration_us: bounded(event.duration_us),
        // In the order of `Name`.
        names: [
            event.operation.name(),
            event.key.as_str(),
            event.project.as_ref().map_or("", |id| id.as_str()),
            event.principal.as_ref().map_or("", |id| id.as_str()),
            &event.selector,
            event.endpoint.as_ref().map_or("", |name| name.as_str()),
            event.provider.as_ref().map_or("", |id| id.as_str()),
            event.model.as_ref().map_or("", |id| id.as_str()),
            event.outcome.name(),
            or_none(event.error.map(names::error)),
            names::provenance(event.provenance),
            event.price.as_deref().unwrap_or(""),
        ],
        names_read: &[],
        stream: event.stream,
        status: event.status,
        tokens: Tokens {
            input: bounded(event.tokens.input),
            cache_read: bounded(event.tokens.cache_read),
            cache_write: bounded(event.tokens.cache_write),
            output: bounded(event.tokens.output),
            reasoning: bounded(event.tokens.reasoning),
        },
        cost_nano_usd: event.cost_nano_usd.map(bounded_cost),
        quota_nano_usd: event.quota_nano_usd.map(bounded_cost),
        head_us: event.head_us.map(bounded),
        first_content_us: event.first_content_us.map(bounded),
    }
}

fn step_of(step: &TraceStep) -> Step<'_> {
    Step {
        provider: step.provider.as_str(),
        model: step.model.as_str(),
        result: names::result(step.result),
        status: step.status.map(u64::from),
        head_us: step.head_us.map(bounded),
        spent_us: step.spent_us.map(bounded),
    }
}

const MARKER: [u8; 4] = [0xff, 0xfe, 0xff, b'u'];
/// Marker, length and digest.
pub(super) const HEADER: usize = 12;
/// Longer than any record.
pub(super) const RECORD_BYTES_MAX: usize = 4 << 20;
/// A trace that is longer than this is cut.
const TRACE_END_MAX: usize = 512 << 10;
/// In the year 10889.
const MOMENT_MAX: u64 = 1 << 48;
