//! The journal's frames: one event each. The reader finds frames again after any bytes that a full disk, a dying
//! process or another program left between them.
//!
//! ```text
//!  FF FE FF 77   bytes that occur in no text  4     75: in a note, 76: earlier releases
//!  length        of the record                4, little-endian
//!  digest        of length and record         4, little-endian; with 77 also over the file and the position in it
//!  record        see record.rs
//! ```
//!
//! After a power failure, a reused file may contain its earlier contents again, and a disk or a repair may write a
//! block twice. A frame is therefore bound to its file and to its position there: elsewhere it is garbage, so no record
//! counts twice. Earlier releases bound frames only to files.

use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::usage::{Finish, Gaps, Outcome, TargetChoice, TraceStep, UsageEvent};

use crate::digest::{digest, wide_digest};
use crate::record::rare_fields::pack_lost;
use crate::record::{Record, RecordName, RecordState, RecordStep, bounded, bounded_cost};
use crate::{names, varint};

/// Builds the frame of `event` in `out`, without the header.
pub fn put(out: &mut Vec<u8>, event: &UsageEvent) {
    out.clear();
    out.extend_from_slice(&[0; HEADER]);
    let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
    record(event).put(out, text);
    for step in &event.trace {
        if out.len() > TRACE_END_MAX {
            break;
        }
        step_of(step).put(out, text);
    }
}

/// Builds in `out`, without the header, the frame of `running` as the next process will record it: interrupted. The
/// frame contains the trace only if the trace shows consumption of failed attempts and the frame is no longer than
/// `bytes_max`.
pub fn put_interrupted(out: &mut Vec<u8>, running: &UsageEvent, bytes_max: usize) {
    let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
    let mut record = record(running);
    record.set_name(RecordName::Outcome, Outcome::Interrupted.name());
    record.set_name(RecordName::Error, names::error(ErrorKind::Internal));
    loop {
        out.clear();
        out.extend_from_slice(&[0; HEADER]);
        record.put(out, text);
        if record.lost.is_empty() {
            return;
        }
        running.trace.iter().for_each(|step| step_of(step).put(out, text));
        if out.len() <= bytes_max {
            return;
        }
        record.lost = Vec::new().into();
    }
}

/// The id of a journal file: its writer (random for each worker of each process), and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub origin: u64,
    pub number: u64,
}

impl FileId {
    /// Returns this id for a new file, and advances to the next number.
    pub fn take(&mut self) -> Self {
        let id = *self;
        self.number += 1;
        id
    }
}

/// A position in a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSpot {
    pub file: FileId,
    /// Offset in bytes from the beginning of the file.
    pub at: u64,
}

/// Writes the header of a frame that [`put`] built, bound to `spot` if there is one.
pub fn close(frame: &mut [u8], spot: Option<JournalSpot>) {
    let kind = if spot.is_some() { PLACED } else { FREE };
    let Some((header, record)) = frame.split_first_chunk_mut::<HEADER>() else { return };
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    let [a, b, c] = MARKER;
    let [d, e, f, g] = length.to_le_bytes();
    let [h, i, j, k] = sum_of(kind, spot, length, record).to_le_bytes();
    *header = [a, b, c, kind, d, e, f, g, h, i, j, k];
}

/// The result of parsing the beginning of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A record, and the length of its frame.
    Whole(&'a [u8], usize),
    /// This many bytes that are not a frame.
    Garbage(usize),
    /// This many zeros: nothing was written there.
    Blank(usize),
    /// The beginning of a frame of this length; the rest of it is missing, and it may turn out not to be a frame.
    Part(usize),
}

/// Parses the beginning of `bytes`, which are at `spot` of the journal, or in a note if `spot` is `None`.
pub fn first(bytes: &[u8], spot: Option<JournalSpot>) -> Frame<'_> {
    let Some((&kind, rest)) = bytes.strip_prefix(&MARKER).and_then(<[u8]>::split_first) else {
        let zeros = blank(bytes);
        if zeros > 0 {
            return Frame::Blank(zeros);
        }
        // The bytes may be the beginning of a marker; nothing else identifies them.
        let begun = MARKER.starts_with(bytes);
        return if begun { Frame::Part(HEADER) } else { Frame::Garbage(after_marker(bytes)) };
    };
    let is_ours = match kind {
        FREE => spot.is_none(),
        BOUND | PLACED => spot.is_some(),
        _ => false,
    };
    if !is_ours {
        return Frame::Garbage(after_marker(bytes));
    }
    let Some((&length, rest)) = rest.split_first_chunk::<4>() else { return Frame::Part(HEADER) };
    let Some((&sum, rest)) = rest.split_first_chunk::<4>() else { return Frame::Part(HEADER) };
    let stated = u32::from_le_bytes(length);
    let length = usize::try_from(stated).unwrap_or(usize::MAX);
    if length > RECORD_BYTES_MAX {
        return Frame::Garbage(after_marker(bytes));
    }
    match rest.get(..length) {
        None => Frame::Part(HEADER + length),
        Some(record) if sum_of(kind, spot, stated, record) == u32::from_le_bytes(sum) => {
            Frame::Whole(record, HEADER + length)
        }
        Some(_) => Frame::Garbage(after_marker(bytes)),
    }
}

/// Returns the number of bytes before the next marker, ignoring one at the start, or before the end.
pub fn after_marker(bytes: &[u8]) -> usize {
    let rest = bytes.split_first().map_or(bytes, |(_, rest)| rest);
    next_marker(rest).map_or(bytes.len(), |at| at + 1)
}

/// Returns the position where a marker begins, or where the last bytes could be the start of one.
fn next_marker(bytes: &[u8]) -> Option<usize> {
    let whole = bytes.windows(MARKER.len()).position(|window| window == MARKER);
    whole.or_else(|| {
        let begun = (1..MARKER.len()).rev().filter_map(|known| MARKER.get(..known));
        begun.filter(|begun| bytes.ends_with(begun)).find_map(|begun| bytes.len().checked_sub(begun.len()))
    })
}

/// Returns the number of zeros at the beginning of `bytes`.
fn blank(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len())
}

/// Returns the digest of a record. In the seed, the length, the position and the file number use separate bits.
fn sum_of(kind: u8, spot: Option<JournalSpot>, length: u32, record: &[u8]) -> u32 {
    let length = u64::from(length);
    match spot {
        Some(JournalSpot { file: FileId { origin, number }, at }) => {
            let place = if kind == PLACED { at.rotate_left(PLACE_SHIFT) } else { 0 };
            wide_digest(origin ^ (number << NUMBER_SHIFT) ^ place ^ length, record)
        }
        None => digest(length, record),
    }
}

fn record(event: &UsageEvent) -> Record<'_> {
    let or_none = |text: Option<&'static str>| text.unwrap_or("");
    let details = &event.details;
    Record {
        request_id: &event.request_id,
        started_at_ms: event.started_at_ms.min(MOMENT_MAX),
        duration_us: bounded(event.duration_us),
        // In the order of `RecordName`.
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
            event.provenance.name(),
            event.price.as_deref().unwrap_or(""),
            event.tier.as_deref().unwrap_or(""),
            event.picture.as_deref().unwrap_or(""),
            event.tags.as_deref().unwrap_or(""),
            event.end_user.as_deref().unwrap_or(""),
            details.client.as_deref().unwrap_or(""),
            details.session.as_deref().unwrap_or(""),
            or_none(details.adapted.map(Dialect::name)),
            details.dropped.as_deref().unwrap_or(""),
            details.refused_by.as_deref().unwrap_or(""),
            or_none(details.finish.map(Finish::name)),
        ],
        names_read: &[],
        stream: event.stream,
        status: event.status,
        tokens: event.tokens,
        units: event.units,
        cost_nano_usd: event.cost_nano_usd.map(bounded_cost),
        unpriced: event.unpriced.bits(),
        quota_nano_usd: event.quota_nano_usd.map(bounded_cost),
        vendor_cost_nano_usd: event.vendor_cost_nano_usd.map(bounded_cost),
        upstream_id: event.upstream_id.as_deref().unwrap_or(""),
        lost: lost(event).into(),
        head_us: event.head_us.map(bounded),
        first_content_us: event.first_content_us.map(bounded),
        bytes_in: details.bytes_in.map(bounded),
        bytes_out: details.bytes_out.map(bounded),
        gateway_us: details.gateway_us.map(bounded),
        silence_us_max: details.silence_us_max.map(bounded),
        gaps: Gaps { sum_us: bounded(details.gaps.sum_us), ..details.gaps },
        choice: details.choice.map(TargetChoice::code),
        message: details.message.as_deref().unwrap_or(""),
        stored_state: details.stored_state.as_deref().map(|state| RecordState {
            response: state.response,
            conversation: state.conversation,
            address: &state.address,
            is_deleted: state.is_deleted,
        }),
    }
}

/// Packs the consumption of failed attempts. Returns an empty vector, without allocating, if they consumed nothing.
fn lost(event: &UsageEvent) -> Vec<u8> {
    let steps = event.trace.iter().enumerate();
    pack_lost(steps.filter_map(|(place, step)| Some((place, step.lost.as_deref()?))))
}

fn step_of(step: &TraceStep) -> RecordStep<'_> {
    RecordStep {
        provider: step.provider.as_str(),
        model: step.model.as_str(),
        result: step.result.name(),
        names_read: &[],
        status: step.status.map(u64::from),
        head_us: step.head_us.map(bounded),
        spent_us: step.spent_us.map(bounded),
        start_us: step.start_us.map(bounded),
        message: step.message.as_deref().unwrap_or(""),
        retry_after_ms: step.retry_after_ms.map(bounded),
        skip_wait_ms: step.skip_wait_ms.map(bounded),
        credential: step.credential.map(|number| u64::from(number.0)),
    }
}

const MARKER: [u8; 3] = [0xff, 0xfe, 0xff];
/// The kind byte of a frame in a note. It follows the marker.
const FREE: u8 = b'u';
/// The kind byte of a frame that an earlier release bound to its file, but not to its position.
const BOUND: u8 = b'v';
/// The kind byte of a frame that is bound to its file and position.
const PLACED: u8 = b'w';
/// Shift that puts the file number above the bits of the longest record length.
const NUMBER_SHIFT: u32 = 24;
/// Shift that puts positions, which have fewer than 24 bits, into the highest bits of the digest's seed.
const PLACE_SHIFT: u32 = 40;
/// Length of the marker, kind, record length and digest.
pub const HEADER: usize = 12;
/// Upper bound for the length of a record.
pub const RECORD_BYTES_MAX: usize = 4 << 20;
/// A trace is cut at this frame length.
const TRACE_END_MAX: usize = 512 << 10;
/// The latest start of an exchange, in milliseconds: in the year 10889.
const MOMENT_MAX: u64 = 1 << 48;
