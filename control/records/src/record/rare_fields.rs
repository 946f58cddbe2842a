//! The optional fields of a packed record, some of which most exchanges lack.
//!
//! ```text
//!  which, [counts,] [tier,] [picture,] [tags,] [end user,] [client,] [session,] [finish,] [adapted,] [dropped,] [refused by,]
//!         [upstream id,] [vendor's cost,] [bytes in,] [bytes out,] [gateway,] [silence,] [unpriced,] [lost,] [gaps,] [message,]
//!         [stored state,] [choice]
//!  counts   classes as bits, then the count of each
//!  lost     length, then for each: place of the step, bits, the count of each class, cost,
//!           [tier,] [picture,] [vendor's cost,] [amount for quotas]
//!  state    kind, the hash of the response, [the hash of the conversation,] address
//!  gaps     buckets that are not empty as bits, then the count of each, the sum of all gaps
//! ```
//!
//! Each bit of `which` marks the presence of one of the other fields. Fields that were added later have higher bits, so every release's records are read. The counts are those of classes that are not in
//! the fixed part of a record. The bits of a lost attempt mark its classes and, above them, the fields in brackets,
//! which earlier releases did not write.

use std::borrow::Cow;

use shared::usage::{Class, Gaps, Lost, StateHash, TokenCounts, Units, counted};

use super::{Record, RecordName, RecordState, Texts, bounded, bounded_cost, put_option, take_option};
use crate::varint;

/// Appends the fields that [`which`] marks; `text` is the same as in [`Record::put`].
pub(super) fn put(
    record: &Record<'_>,
    which: u64,
    out: &mut Vec<u8>,
    mut text: impl FnMut(&mut Vec<u8>, usize, &str),
) {
    varint::put(out, which);
    if which & COUNTS != 0 {
        put_counts(out, counted(&record.tokens, &record.units).filter(|(class, _)| !is_fixed(*class)));
    }
    for (bit, name) in TEXTS {
        if which & bit != 0 {
            text(out, name as usize, record.name(name));
        }
    }
    if which & UPSTREAM_ID != 0 {
        varint::put_text(out, record.upstream_id);
    }
    if let Some(nano) = record.vendor_cost_nano_usd {
        varint::put(out, nano);
    }
    numbers(record).into_iter().filter_map(|(_, number)| number).for_each(|number| varint::put(out, number));
    if which & LOST != 0 {
        varint::put(out, u64::try_from(record.lost.len()).unwrap_or(u64::MAX));
        out.extend_from_slice(&record.lost);
    }
    if which & GAPS != 0 {
        put_gaps(out, &record.gaps);
    }
    if which & MESSAGE != 0 {
        // Not one of the names, which a block lists once: messages differ by amounts and request IDs.
        varint::put_text(out, record.message);
    }
    if let Some(state) = &record.stored_state {
        put_state(out, state);
    }
    if let Some(choice) = record.choice {
        varint::put(out, choice);
    }
}

/// Reads into `record` what [`put`] appended. Returns `None` for malformed bytes.
pub(super) fn take<'a>(record: &mut Record<'a>, bytes: &mut &'a [u8], texts: Texts<'a>) -> Option<()> {
    let which = varint::take(bytes)?;
    if which & COUNTS != 0 {
        (record.tokens, record.units) = take_counts(bytes, &record.tokens)?;
    }
    for (bit, name) in TEXTS {
        if which & bit != 0 {
            record.set_name(name, texts.take(bytes)?);
        }
    }
    if which & UPSTREAM_ID != 0 {
        record.upstream_id = varint::take_text(bytes)?;
    }
    if which & VENDOR_COST != 0 {
        record.vendor_cost_nano_usd = Some(varint::take(bytes)?);
    }
    for (bit, number) in [
        (BYTES_IN, &mut record.bytes_in),
        (BYTES_OUT, &mut record.bytes_out),
        (GATEWAY, &mut record.gateway_us),
        (SILENCE, &mut record.silence_us_max),
        (UNPRICED, &mut record.unpriced),
    ] {
        if which & bit != 0 {
            *number = Some(varint::take(bytes)?);
        }
    }
    if which & LOST != 0 {
        record.lost = Cow::Borrowed(varint::take_bytes(bytes)?);
    }
    if which & GAPS != 0 {
        record.gaps = take_gaps(bytes)?;
    }
    if which & MESSAGE != 0 {
        record.message = varint::take_text(bytes)?;
    }
    if which & STATE != 0 {
        record.stored_state = Some(take_state(bytes)?);
    }
    if which & CHOICE != 0 {
        record.choice = Some(varint::take(bytes)?);
    }
    Some(())
}

fn put_state(out: &mut Vec<u8>, state: &RecordState<'_>) {
    varint::put(
        out,
        match (state.is_deleted, state.conversation) {
            (true, _) => STATE_DELETED,
            (false, None) => STATE_ALONE,
            (false, Some(_)) => STATE_IN_CONVERSATION,
        },
    );
    out.extend_from_slice(&state.response.0);
    let conversation = state.conversation.filter(|_| !state.is_deleted);
    conversation.iter().for_each(|hash| out.extend_from_slice(&hash.0));
    varint::put_text(out, state.address);
}

fn take_state<'a>(bytes: &mut &'a [u8]) -> Option<RecordState<'a>> {
    let kind = varint::take(bytes)?;
    let response = take_hash(bytes)?;
    let conversation = match kind {
        STATE_ALONE | STATE_DELETED => None,
        STATE_IN_CONVERSATION => Some(take_hash(bytes)?),
        _ => return None,
    };
    let is_deleted = kind == STATE_DELETED;
    Some(RecordState { response, conversation, address: varint::take_text(bytes)?, is_deleted })
}

/// The kinds of state: a response, one with the conversation that it belongs to, and a response that was deleted.
const STATE_ALONE: u64 = 1;
const STATE_IN_CONVERSATION: u64 = 2;
const STATE_DELETED: u64 = 3;

fn take_hash(bytes: &mut &[u8]) -> Option<StateHash> {
    let (hash, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(StateHash(*hash))
}

fn put_gaps(out: &mut Vec<u8>, gaps: &Gaps) {
    let counts = gaps.counts.iter().enumerate().filter(|(_, count)| **count > 0);
    varint::put(out, counts.clone().fold(0, |bits, (at, _)| bits | 1 << at));
    counts.for_each(|(_, count)| varint::put(out, u64::from(*count)));
    varint::put(out, gaps.sum_us);
}

fn take_gaps(bytes: &mut &[u8]) -> Option<Gaps> {
    let (bits, mut gaps) = (varint::take(bytes)?, Gaps::default());
    if bits >> Gaps::BUCKETS != 0 {
        return None;
    }
    for (at, count) in gaps.counts.iter_mut().enumerate() {
        if bits & 1 << at != 0 {
            *count = u32::try_from(varint::take(bytes)?).ok()?;
        }
    }
    gaps.sum_us = varint::take(bytes)?;
    Some(gaps).filter(|gaps| !gaps.is_empty())
}

/// Returns the numbers in the order in which they are encoded, each with its bit.
fn numbers(record: &Record<'_>) -> [(u64, Option<u64>); 5] {
    [
        (BYTES_IN, record.bytes_in),
        (BYTES_OUT, record.bytes_out),
        (GATEWAY, record.gateway_us),
        (SILENCE, record.silence_us_max),
        (UNPRICED, record.unpriced),
    ]
}

/// Packs the consumption of failed attempts, each with the position of its step in the trace.
pub fn pack_lost<'a>(lost: impl IntoIterator<Item = (usize, &'a Lost)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (place, lost) in lost {
        varint::put(&mut out, u64::try_from(place).unwrap_or(u64::MAX));
        put_marked_counts(&mut out, counted(&lost.tokens, &lost.units), parts_of(lost));
        put_option(&mut out, lost.cost_nano_usd.map(bounded_cost));
        [&lost.tier, &lost.picture].into_iter().flatten().for_each(|text| varint::put_text(&mut out, text));
        let amounts = [lost.vendor_cost_nano_usd, lost.quota_nano_usd].into_iter().flatten();
        amounts.for_each(|nano| varint::put(&mut out, bounded_cost(nano)));
    }
    out
}

/// Returns the bits of the optional fields that `lost` has besides its counts and its cost.
fn parts_of(lost: &Lost) -> u64 {
    let parts = [
        (LOST_TIER, lost.tier.is_some()),
        (LOST_PICTURE, lost.picture.is_some()),
        (LOST_VENDOR_COST, lost.vendor_cost_nano_usd.is_some()),
        (LOST_QUOTA, lost.quota_nano_usd.is_some()),
    ];
    parts.into_iter().filter(|(_, is_there)| *is_there).fold(0, |bits, (bit, _)| bits | bit)
}

/// Parses what [`pack_lost`] packed. Ends early at malformed bytes.
pub fn lost(packed: &[u8]) -> impl Iterator<Item = (usize, Lost)> + '_ {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let bytes = &mut rest;
        let place = usize::try_from(varint::take(bytes)?).ok()?;
        Some((place, take_lost(bytes)?))
    })
}

fn take_lost(bytes: &mut &[u8]) -> Option<Lost> {
    let (bits, tokens, units) = take_marked_counts(bytes, &TokenCounts::ZERO)?;
    let cost_nano_usd = take_option(bytes)?;
    let mut lost = Lost { tokens, units, cost_nano_usd, ..Lost::default() };
    for (bit, text) in [(LOST_TIER, &mut lost.tier), (LOST_PICTURE, &mut lost.picture)] {
        if bits & bit != 0 {
            *text = Some(varint::take_text(bytes)?.into());
        }
    }
    for (bit, nano) in
        [(LOST_VENDOR_COST, &mut lost.vendor_cost_nano_usd), (LOST_QUOTA, &mut lost.quota_nano_usd)]
    {
        if bits & bit != 0 {
            *nano = Some(varint::take(bytes)?);
        }
    }
    Some(lost)
}

/// Returns the bits of the fields that are not empty.
pub(super) fn which(record: &Record<'_>) -> u64 {
    let TokenCounts { cache_write_1h, audio_input, audio_output, image_input, image_output, .. } =
        record.tokens;
    let tokens = cache_write_1h | audio_input | audio_output | image_input | image_output;
    let counts = tokens > 0 || !record.units.is_empty();
    let texts = TEXTS.into_iter().filter(|(_, name)| !record.name(*name).is_empty());
    let flag = |is_there: bool, bit: u64| if is_there { bit } else { 0 };
    let numbers = numbers(record).into_iter().filter(|(_, number)| number.is_some());
    flag(counts, COUNTS)
        | numbers.fold(0, |bits, (bit, _)| bits | bit)
        | texts.fold(0, |bits, (bit, _)| bits | bit)
        | flag(!record.upstream_id.is_empty(), UPSTREAM_ID)
        | flag(record.vendor_cost_nano_usd.is_some(), VENDOR_COST)
        | flag(!record.lost.is_empty(), LOST)
        | flag(!record.gaps.is_empty(), GAPS)
        | flag(!record.message.is_empty(), MESSAGE)
        | flag(record.stored_state.is_some(), STATE)
        | flag(record.choice.is_some(), CHOICE)
}

/// True for the classes whose counts are in the fixed part of every record.
fn is_fixed(class: Class) -> bool {
    matches!(class, Class::Input | Class::CacheRead | Class::CacheWrite | Class::Output | Class::Reasoning)
}

fn put_counts(out: &mut Vec<u8>, counts: impl Iterator<Item = (Class, u64)> + Clone) {
    put_marked_counts(out, counts, 0);
}

/// Appends the counts; `more` contains further bits to set besides those of the classes.
fn put_marked_counts(out: &mut Vec<u8>, counts: impl Iterator<Item = (Class, u64)> + Clone, more: u64) {
    let counts = counts.filter(|(_, count)| *count > 0);
    varint::put(out, counts.clone().fold(more, |bits, (class, _)| bits | 1 << (class as u64)));
    counts.for_each(|(_, count)| varint::put(out, bounded(count)));
}

/// Reads the counts that [`put_counts`] wrote; the others are taken from `fixed`.
fn take_counts(bytes: &mut &[u8], fixed: &TokenCounts) -> Option<(TokenCounts, Units)> {
    let (_, tokens, units) = take_marked_counts(bytes, fixed)?;
    Some((tokens, units))
}

/// Reads all bits and the counts that [`put_marked_counts`] wrote; the other counts are taken from `fixed`.
fn take_marked_counts(bytes: &mut &[u8], fixed: &TokenCounts) -> Option<(u64, TokenCounts, Units)> {
    let bits = varint::take(bytes)?;
    let (mut tokens, mut units) = (fixed.list(), Units::ZERO.list());
    for (at, count) in tokens.iter_mut().chain(&mut units).enumerate() {
        if bits & 1 << at != 0 {
            *count = varint::take(bytes)?;
        }
    }
    Some((bits, TokenCounts::of_list(tokens), Units::of_list(units)))
}

const COUNTS: u64 = 1;
const UPSTREAM_ID: u64 = 1 << 5;
const VENDOR_COST: u64 = 1 << 6;
const LOST: u64 = 1 << 7;
const BYTES_IN: u64 = 1 << 9;
const BYTES_OUT: u64 = 1 << 10;
const GATEWAY: u64 = 1 << 11;
const SILENCE: u64 = 1 << 14;
const GAPS: u64 = 1 << 18;
const UNPRICED: u64 = 1 << 19;
const MESSAGE: u64 = 1 << 20;
const STATE: u64 = 1 << 21;
const CHOICE: u64 = 1 << 22;
/// The texts. The lower bits are those of fields that are frequent, so that `which` stays short.
const TEXTS: [(u64, RecordName); 10] = [
    (1 << 1, RecordName::Tier),
    (1 << 2, RecordName::Picture),
    (1 << 3, RecordName::Tags),
    (1 << 4, RecordName::EndUser),
    (1 << 8, RecordName::Client),
    (1 << 12, RecordName::Session),
    (1 << 13, RecordName::Finish),
    (1 << 15, RecordName::Adapted),
    (1 << 16, RecordName::Dropped),
    (1 << 17, RecordName::RefusedBy),
];

/// The bits of the optional fields of a lost attempt. The lower bits are for the classes, including future ones.
const LOST_TIER: u64 = 1 << 24;
const LOST_PICTURE: u64 = 1 << 25;
const LOST_VENDOR_COST: u64 = 1 << 26;
const LOST_QUOTA: u64 = 1 << 27;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordStep, Trace};

    fn text(out: &mut Vec<u8>, _: usize, text: &str) {
        varint::put_text(out, text);
    }

    fn read(bytes: &[u8]) -> Option<(Record<'_>, Trace<'_>)> {
        Record::take(bytes, Texts::Inline)
    }

    /// A value for each name of a record, in their order.
    const NAMES: [&str; RecordName::COUNT] = [
        "o",
        "k",
        "",
        "",
        "s",
        "",
        "p",
        "m",
        "oc",
        "",
        "rp",
        "",
        "flex",
        "hd/1x1",
        "a=b",
        "u",
        "curl/8",
        "5e55",
        "gemini",
        "seed, logit_bias",
        "quo_1",
        "stop",
    ];

    const STATES: [RecordState<'_>; 3] = [
        RecordState { response: StateHash([1; 16]), conversation: None, address: "", is_deleted: false },
        RecordState {
            response: StateHash([0; 16]),
            conversation: Some(StateHash([0xff; 16])),
            address: "a.example:8443",
            is_deleted: false,
        },
        RecordState {
            response: StateHash([2; 16]),
            conversation: None,
            address: "a.example:8443",
            is_deleted: true,
        },
    ];

    #[test]
    fn rare_fields_round_trip_together_and_alone() {
        let lost = Lost {
            tokens: TokenCounts { input: 7, audio_input: 1, ..TokenCounts::ZERO },
            units: Units { searches: 2, ..Units::ZERO },
            ..Lost::default()
        };
        let packed = pack_lost([(0, &lost), (3, &lost)]);
        let mut gaps = Gaps { sum_us: 1 << 40, ..Gaps::default() };
        (gaps.counts[0], gaps.counts[9], gaps.counts[16]) = (900, 1, u32::MAX);
        let whole = Record {
            request_id: "r",
            status: 200,
            names: NAMES,
            tokens: TokenCounts::of_list([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            units: Units::of_list([1, 2, 3, 4, 5, 6]),
            vendor_cost_nano_usd: Some(0),
            upstream_id: "up-1",
            lost: Cow::Borrowed(&packed),
            bytes_in: Some(0),
            bytes_out: Some(u64::MAX),
            gateway_us: Some(1),
            silence_us_max: Some(1 << 30),
            choice: Some(19),
            gaps,
            message: "The upstream closed the stream, é.",
            stored_state: Some(STATES[1]),
            ..Record::default()
        };
        let bare = Record { names: ["o"; RecordName::COUNT], ..Record::default() };
        let alone = [
            Record { units: Units { tool_calls: 9, ..Units::ZERO }, ..Record::default() },
            Record { vendor_cost_nano_usd: Some(u64::MAX), ..Record::default() },
            Record { upstream_id: "x", ..Record::default() },
            Record { lost: Cow::Borrowed(&packed), ..Record::default() },
            Record { bytes_in: Some(7), ..Record::default() },
            Record { bytes_out: Some(0), ..Record::default() },
            Record { gateway_us: Some(1 << 20), ..Record::default() },
            Record { silence_us_max: Some(3), ..Record::default() },
            Record { gaps, ..Record::default() },
            Record { choice: Some(0), ..Record::default() },
            Record { message: "no", ..Record::default() },
            Record { stored_state: Some(STATES[0]), ..Record::default() },
            Record { stored_state: Some(STATES[2]), ..Record::default() },
            Record::default(),
        ];
        let step = RecordStep { provider: "p", model: "m", result: "served", ..RecordStep::default() };
        for record in [whole, bare].into_iter().chain(alone) {
            let mut bytes = Vec::new();
            record.put(&mut bytes, text);
            step.put(&mut bytes, text);
            let (back, trace) = read(&bytes).unwrap();
            assert_eq!((back.tokens, back.units, back.names), (record.tokens, record.units, record.names));
            assert_eq!(
                (back.vendor_cost_nano_usd, back.upstream_id, back.message),
                (record.vendor_cost_nano_usd, record.upstream_id, record.message)
            );
            assert_eq!(numbers(&back), numbers(&record));
            assert_eq!(back.stored_state, record.stored_state);
            assert_eq!(
                (back.lost, back.gaps, back.choice, trace.count()),
                (record.lost, record.gaps, record.choice, 1)
            );
        }
        let back: Vec<_> = super::lost(&packed).collect();
        assert_eq!(back, [(0, lost.clone()), (3, lost)]);
    }

    #[test]
    fn failed_attempts_round_trip_with_and_without_each_field() {
        let tiers = [None, Some("priority"), Some("")];
        let amounts = [None, Some(0), Some(1 << 40)];
        let mut all = Vec::new();
        for (at, tier) in tiers.into_iter().enumerate() {
            for (cost_nano_usd, quota_nano_usd) in amounts.into_iter().zip(amounts.into_iter().rev()) {
                let lost = Lost {
                    tokens: TokenCounts { input: 300, image_output: 1, ..TokenCounts::ZERO },
                    units: Units { tool_calls: 4, ..Units::ZERO },
                    cost_nano_usd,
                    tier: tier.map(Into::into),
                    picture: tiers[(at + 1) % 3].map(Into::into),
                    vendor_cost_nano_usd: amounts[at],
                    quota_nano_usd,
                };
                all.push((all.len(), lost));
            }
        }
        let packed = pack_lost(all.iter().map(|(place, lost)| (*place, lost)));
        assert_eq!(lost(&packed).collect::<Vec<_>>(), all);
        for cut in 0..packed.len() {
            assert!(lost(&packed[..cut]).count() < all.len(), "{cut}");
        }
    }

    #[test]
    fn failed_attempts_that_earlier_releases_wrote_are_read() {
        // Two attempts: 300 input tokens and 5 output tokens for 7 nano-dollars; 2 searches of unknown cost.
        let packed = [0, 0b1_0001, 0xac, 2, 5, 8, 3, 0x80, 0x80, 1, 2, 0];
        let first = TokenCounts { input: 300, output: 5, ..TokenCounts::ZERO };
        let first = Lost { tokens: first, cost_nano_usd: Some(7), ..Lost::default() };
        let second = Lost { units: Units { searches: 2, ..Units::ZERO }, ..Lost::default() };
        assert_eq!(lost(&packed).collect::<Vec<_>>(), [(0, first.clone()), (3, second.clone())]);
        assert_eq!(
            pack_lost([(0, &first), (3, &second)]),
            packed,
            "a record without further fields is written as before"
        );
    }

    #[test]
    fn absent_rare_fields_take_no_bytes() {
        let mut bytes = Vec::new();
        Record { tokens: TokenCounts { input: 1, output: 2, ..TokenCounts::ZERO }, ..Record::default() }
            .put(&mut bytes, text);
        // Request id, start, duration, eleven names; three bytes of status; five counts; two options; price, cost.
        assert_eq!(bytes.len(), 3 + 11 + 3 + 5 + 2 + 2);
    }

    #[test]
    fn cut_bytes_are_refused() {
        let record = Record {
            units: Units::of_list([9; 6]),
            upstream_id: "abc",
            message: "def",
            stored_state: Some(STATES[1]),
            ..Record::default()
        };
        let mut bytes = Vec::new();
        record.put(&mut bytes, text);
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_none(), "{cut}");
        }
    }
}
