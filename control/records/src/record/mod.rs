//! The encoding of one exchange, in the journal and in the table `usage`. All names are stored as text, so that one
//! release can read what another wrote; the journal and the table differ only in how a text is encoded.
//!
//! ```text
//!  request id, started, duration, names, status, tokens, head, first content, [price, cost,] [quota,] [more,] steps
//! ```
//!
//! Bits of `status` mark the presence of the parts in brackets, which earlier releases did not write: price and cost;
//! the amount for quotas of cost; and the optional fields (`rare_fields.rs`). Another bit marks steps with optional fields
//! (`trace.rs`).

pub mod rare_fields;
mod trace;

use std::borrow::Cow;

use shared::usage::{Gaps, StateHash, TokenCounts, Units};

pub(crate) use self::trace::STEP_MESSAGE;
pub use self::trace::{RecordStep, Trace};
use self::trace::{STEP_NAMES, STEP_TEXTS, StepLayout};
use crate::varint;

/// One exchange, borrowed from its encoded bytes.
#[derive(Clone, Debug, Default)]
pub struct Record<'a> {
    pub request_id: &'a str,
    pub started_at_ms: u64,
    pub duration_us: u64,
    /// The names, indexed by [`RecordName`]; empty if absent.
    pub names: [&'a str; RecordName::COUNT],
    /// The encoded names, without the price: equal bytes are equal names. Empty if not known.
    pub names_read: &'a [u8],
    pub stream: bool,
    pub status: u16,
    pub tokens: TokenCounts,
    pub units: Units,
    /// `None` if the cost is unknown.
    pub cost_nano_usd: Option<u64>,
    /// The bits of [`Unpriced`](shared::usage::Unpriced): what lacks a price. `None` also for records of earlier releases.
    pub unpriced: Option<u64>,
    /// The amount that counts for quotas of cost while the cost is unknown.
    pub quota_nano_usd: Option<u64>,
    /// The cost that the vendor reported.
    pub vendor_cost_nano_usd: Option<u64>,
    /// The vendor's id of the request, or empty.
    pub upstream_id: &'a str,
    /// The packed consumption of failed attempts: see [`rare_fields::lost`].
    pub lost: Cow<'a, [u8]>,
    pub head_us: Option<u64>,
    pub first_content_us: Option<u64>,
    /// The facts of [`Details`](shared::usage::Details) that are no texts. `None` also for records of earlier releases.
    pub bytes_in: Option<u64>,
    pub bytes_out: Option<u64>,
    pub gateway_us: Option<u64>,
    pub silence_us_max: Option<u64>,
    /// The code of [`TargetChoice`](shared::usage::TargetChoice). `None` also for plain lists.
    pub choice: Option<u64>,
    /// The gaps between the pieces of a stream. Empty also for records of earlier releases.
    pub gaps: Gaps,
    /// The text of the error that the client got, or empty. Empty also for records of earlier releases.
    pub message: &'a str,
    /// The state that the provider stored. Always `None` in the table, and in records of earlier releases.
    pub stored_state: Option<RecordState<'a>>,
}

/// The fields of [`StoredState`](shared::usage::StoredState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordState<'a> {
    pub response: StateHash,
    pub conversation: Option<StateHash>,
    pub address: &'a str,
    pub is_deleted: bool,
}

/// A text that many exchanges have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordName {
    Operation,
    Key,
    Project,
    Principal,
    Selector,
    Endpoint,
    Provider,
    Model,
    Outcome,
    Error,
    Provenance,
    Price,
    Tier,
    Picture,
    Tags,
    EndUser,
    Client,
    Session,
    Adapted,
    Dropped,
    RefusedBy,
    Finish,
}

impl RecordName {
    pub const COUNT: usize = 22;
}

impl<'a> Record<'a> {
    #[expect(clippy::indexing_slicing, reason = "there is a place for each name")]
    pub fn name(&self, name: RecordName) -> &'a str {
        self.names[name as usize]
    }

    /// Returns the text; `None` if it is empty.
    pub fn name_if_any(&self, name: RecordName) -> Option<&'a str> {
        Some(self.name(name)).filter(|text| !text.is_empty())
    }

    #[expect(clippy::indexing_slicing, reason = "there is a place for each name")]
    pub fn set_name(&mut self, name: RecordName, text: &'a str) {
        self.names[name as usize] = text;
    }

    /// Appends everything except the trace. `text` appends a text; its second parameter is the number of the text.
    pub fn put(&self, out: &mut Vec<u8>, mut text: impl FnMut(&mut Vec<u8>, usize, &str)) {
        varint::put_text(out, self.request_id);
        varint::put(out, self.started_at_ms);
        varint::put(out, self.duration_us);
        for (at, name) in self.names.iter().enumerate().take(FIRST_NAMES) {
            text(out, at, name);
        }
        let with_quota = if self.quota_nano_usd.is_some() { WITH_QUOTA } else { 0 };
        let which = rare_fields::which(self);
        let with_more = if which == 0 { 0 } else { WITH_MORE };
        let parts = WITH_COST | with_quota | with_more | WITH_STEP_PARTS;
        varint::put(out, parts | u64::from(self.status) << 1 | u64::from(self.stream));
        let TokenCounts { input, cache_read, cache_write, output, reasoning, .. } = self.tokens;
        for count in [input, cache_read, cache_write, output, reasoning] {
            varint::put(out, bounded(count));
        }
        put_option(out, self.head_us);
        put_option(out, self.first_content_us);
        text(out, RecordName::Price as usize, self.name(RecordName::Price));
        put_option(out, self.cost_nano_usd);
        if let Some(nano) = self.quota_nano_usd {
            varint::put(out, nano);
        }
        if with_more != 0 {
            rare_fields::put(self, which, out, text);
        }
    }

    /// Reads what [`put`](Self::put) wrote, and returns the remaining bytes as the trace. Returns `None` for malformed
    /// bytes.
    pub fn take(bytes: &'a [u8], texts: Texts<'a>) -> Option<(Self, Trace<'a>)> {
        // A place identifies a name only within its own list.
        Self::read(bytes, texts, |bytes| Some((texts.take_some(bytes)?, &[])))
    }

    /// Same as [`take`](Self::take) for records with texts in place. `last` has the names of the previous record.
    pub fn take_next(bytes: &'a [u8], last: &mut LastNames<'a>) -> Option<(Self, Trace<'a>)> {
        let LastNames { record, step } = last;
        let (record, mut trace) = Self::read(bytes, Texts::Inline, |bytes| record.take(bytes))?;
        // A malformed step ends the trace when it is read.
        trace.names = step.take(&mut trace.bytes);
        Some((record, trace))
    }

    fn read(
        bytes: &'a [u8],
        texts: Texts<'a>,
        take_names: impl FnOnce(&mut &'a [u8]) -> Option<([&'a str; FIRST_NAMES], &'a [u8])>,
    ) -> Option<(Self, Trace<'a>)> {
        let mut rest = bytes;
        let bytes = &mut rest;
        let request_id = varint::take_text(bytes)?;
        let (started_at_ms, duration_us) = (varint::take(bytes)?, varint::take(bytes)?);
        let mut names = [""; RecordName::COUNT];
        let (first, names_read) = take_names(bytes)?;
        names.iter_mut().zip(first).for_each(|(name, text)| *name = text);
        let status = varint::take(bytes)?;
        let mut record = Self {
            request_id,
            started_at_ms,
            duration_us,
            names,
            names_read,
            stream: status & 1 == 1,
            status: u16::try_from((status & !FLAGS) >> 1).ok()?,
            tokens: TokenCounts {
                input: varint::take(bytes)?,
                cache_read: varint::take(bytes)?,
                cache_write: varint::take(bytes)?,
                output: varint::take(bytes)?,
                reasoning: varint::take(bytes)?,
                ..TokenCounts::ZERO
            },
            head_us: take_option(bytes)?,
            first_content_us: take_option(bytes)?,
            ..Self::default()
        };
        if status & WITH_COST != 0 {
            record.set_name(RecordName::Price, texts.take(bytes)?);
            record.cost_nano_usd = take_option(bytes)?;
        }
        if status & WITH_QUOTA != 0 {
            record.quota_nano_usd = Some(varint::take(bytes)?);
        }
        if status & WITH_MORE != 0 {
            rare_fields::take(&mut record, bytes, texts)?;
        }
        let layout = if status & WITH_STEP_PARTS == 0 { StepLayout::Fixed } else { StepLayout::WithParts };
        Some((record, Trace { bytes: rest, names: None, texts, layout }))
    }
}

/// The names of the previous record and of the first step of its trace. The next record usually has the same ones, which
/// then need not be decoded again.
#[derive(Debug, Default)]
pub struct LastNames<'a> {
    record: LastTexts<'a, FIRST_NAMES>,
    step: LastTexts<'a, STEP_NAMES>,
}

#[derive(Debug)]
struct LastTexts<'a, const N: usize> {
    texts: [&'a str; N],
    /// Their encoded bytes. They show where they end, so bytes that begin with them begin with these texts.
    bytes: &'a [u8],
}

impl<const N: usize> Default for LastTexts<'_, N> {
    fn default() -> Self {
        Self { texts: [""; N], bytes: &[] }
    }
}

impl<'a, const N: usize> LastTexts<'a, N> {
    /// Takes texts off the front, and returns them with their encoded bytes. Takes nothing if they are malformed.
    fn take(&mut self, bytes: &mut &'a [u8]) -> Option<([&'a str; N], &'a [u8])> {
        let known = bytes.strip_prefix(self.bytes).filter(|_| !self.bytes.is_empty());
        if let Some(rest) = known {
            *bytes = rest;
        } else {
            let mut rest = *bytes;
            self.texts = varint::take_texts(&mut rest)?;
            (self.bytes, *bytes) = (bytes.split_at(bytes.len() - rest.len()).0, rest);
        }
        Some((self.texts, self.bytes))
    }
}

/// Number of names that are encoded together. The price is encoded with the cost, and the others in `more`.
pub(crate) const FIRST_NAMES: usize = RecordName::Price as usize;
/// Flags above the bits of every status.
const WITH_COST: u64 = 1 << 17;
const WITH_QUOTA: u64 = 1 << 18;
const WITH_MORE: u64 = 1 << 19;
const WITH_STEP_PARTS: u64 = 1 << 20;
const FLAGS: u64 = WITH_COST | WITH_QUOTA | WITH_MORE | WITH_STEP_PARTS;

/// Number of different texts of a record and its steps.
pub const TEXTS: usize = RecordName::COUNT + STEP_TEXTS;

/// The encoding of texts.
#[derive(Clone, Copy, Debug)]
pub enum Texts<'a> {
    /// In place.
    Inline,
    /// As a place in this list, counted from 1; 0 is the empty text.
    Listed(&'a [&'a str]),
}

impl<'a> Texts<'a> {
    fn take_some<const N: usize>(self, bytes: &mut &'a [u8]) -> Option<[&'a str; N]> {
        if let Self::Inline = self {
            return varint::take_texts(bytes);
        }
        let mut some = [""; N];
        for text in &mut some {
            *text = self.take(bytes)?;
        }
        Some(some)
    }

    fn take(self, bytes: &mut &'a [u8]) -> Option<&'a str> {
        match self {
            Self::Inline => varint::take_text(bytes),
            Self::Listed(names) => match varint::take(bytes)? {
                0 => Some(""),
                at => names.get(usize::try_from(at - 1).ok()?).copied(),
            },
        }
    }
}

/// Bounds a count, so that no sum of counts overflows: an upstream may report any number.
pub fn bounded(count: u64) -> u64 {
    count.min(COUNT_MAX)
}

fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    varint::put(out, number.map_or(0, |number| number.saturating_add(1)));
}

#[expect(clippy::option_option, reason = "`None` is a malformed record, `Some(None)` an absent number")]
fn take_option(bytes: &mut &[u8]) -> Option<Option<u64>> {
    Some(varint::take(bytes)?.checked_sub(1))
}

/// Bounds a cost in nano-dollars in the same way; half a million of the largest fit into a sum.
pub fn bounded_cost(nano: u64) -> u64 {
    nano.min(COST_MAX)
}

/// 69 thousand million tokens, or 19 hours in microseconds; 134 million of them fit into a sum.
const COUNT_MAX: u64 = 1 << 36;
/// 17,592 dollars.
const COST_MAX: u64 = 1 << 44;

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes an exchange like the first release, without price and cost.
    fn first_layout(record: &Record<'_>, step: &RecordStep<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put_text(&mut out, record.request_id);
        varint::put(&mut out, record.started_at_ms);
        varint::put(&mut out, record.duration_us);
        record.names[..11].iter().for_each(|name| varint::put_text(&mut out, name));
        varint::put(&mut out, u64::from(record.status) << 1 | u64::from(record.stream));
        let tokens = record.tokens;
        let counts = [tokens.input, tokens.cache_read, tokens.cache_write, tokens.output, tokens.reasoning];
        counts.into_iter().for_each(|count| varint::put(&mut out, count));
        put_option(&mut out, record.head_us);
        put_option(&mut out, record.first_content_us);
        fixed_step(&mut out, step);
        out
    }

    /// Encodes a step like earlier releases, without optional fields.
    fn fixed_step(out: &mut Vec<u8>, step: &RecordStep<'_>) {
        [step.provider, step.model, step.result].into_iter().for_each(|name| varint::put_text(out, name));
        [step.status, step.head_us, step.spent_us].into_iter().for_each(|number| put_option(out, number));
    }

    const RECORD: Record<'_> = Record {
        request_id: "req-1",
        started_at_ms: 1_700_000_000_000,
        duration_us: 12,
        names: [
            "o",
            "k",
            "pj",
            "pr",
            "s",
            "e",
            "p",
            "m",
            "oc",
            "",
            "rp",
            "list in 1",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
        ],
        names_read: &[],
        stream: true,
        status: 999,
        tokens: TokenCounts {
            input: 1,
            cache_read: 2,
            cache_write: 3,
            output: 4,
            reasoning: 5,
            ..TokenCounts::ZERO
        },
        units: Units::ZERO,
        cost_nano_usd: Some(0),
        unpriced: None,
        quota_nano_usd: None,
        vendor_cost_nano_usd: None,
        upstream_id: "",
        lost: Cow::Borrowed(&[]),
        head_us: None,
        first_content_us: Some(7),
        bytes_in: None,
        bytes_out: None,
        gateway_us: None,
        silence_us_max: None,
        gaps: Gaps { counts: [0; Gaps::BUCKETS], sum_us: 0 },
        message: "",
        stored_state: None,
        choice: None,
    };
    const STEP: RecordStep<'_> = RecordStep {
        provider: "p",
        model: "m",
        result: "served",
        names_read: &[],
        status: Some(200),
        head_us: None,
        spent_us: None,
        start_us: None,
        message: "",
        retry_after_ms: None,
        skip_wait_ms: None,
        credential: None,
    };

    #[test]
    fn records_of_the_first_release_are_read_with_an_unknown_cost() {
        let bytes = first_layout(&RECORD, &STEP);
        let (record, trace) = Record::take(&bytes, Texts::Inline).unwrap();
        assert_eq!((record.cost_nano_usd, record.name(RecordName::Price)), (None, ""));
        assert_eq!((record.status, record.stream, record.tokens), (999, true, RECORD.tokens));
        assert_eq!(record.names[..11], RECORD.names[..11]);
        assert_eq!(trace.collect::<Vec<_>>(), [STEP]);
    }

    #[test]
    fn records_written_before_details_existed_are_read_without_details() {
        let bytes = [
            b"\x02r1\x05\x06\x08messages\x01k\0\0\x01s\x01e\x01p\x01m\x09completed\0\x08reported".as_slice(),
            // Status 200, streamed, with cost and optional fields; tokens; head, first content; price and cost.
            b"\x91\x83\x28\x01\0\0\x02\0\x04\x05\x01v\x0a",
            // Tags and the upstream's ID.
            b"\x28\x03a=b\x01u",
            b"\x01p\x01m\x06status\xf7\x03\x04\x05\x01p\x01m\x06served\xc9\x01\0\0",
        ]
        .concat();
        let (record, trace) = Record::take(&bytes, Texts::Inline).unwrap();
        assert_eq!((record.status, record.stream, record.cost_nano_usd), (200, true, Some(9)));
        assert_eq!((record.name(RecordName::Tags), record.upstream_id), ("a=b", "u"));
        assert_eq!(record.names[RecordName::Client as usize..], [""; 6]);
        assert_eq!([record.bytes_in, record.bytes_out, record.gateway_us, record.silence_us_max], [None; 4]);
        assert!(record.gaps.is_empty() && record.message.is_empty());
        let step = RecordStep { provider: "p", model: "m", ..RecordStep::default() };
        let (head_us, spent_us) = (Some(3), Some(4));
        let failed = RecordStep { result: "status", status: Some(502), head_us, spent_us, ..step };
        let served = RecordStep { result: "served", status: Some(200), ..step };
        assert_eq!(trace.collect::<Vec<_>>(), [failed, served]);
        let mut again = Vec::new();
        let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
        record.put(&mut again, text);
        [failed, served].iter().for_each(|step| step.put(&mut again, text));
        let (again, trace) = Record::take(&again, Texts::Inline).unwrap();
        assert_eq!((again.names, again.upstream_id, trace.count()), (record.names, "u", 2));
    }

    #[test]
    fn a_zero_cost_and_an_unknown_cost_round_trip() {
        let costs =
            [(None, None), (None, Some(0)), (None, Some(COST_MAX)), (Some(0), None), (Some(COST_MAX), None)];
        for (cost_nano_usd, quota_nano_usd) in costs {
            let mut bytes = Vec::new();
            let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
            Record { cost_nano_usd, quota_nano_usd, ..RECORD }.put(&mut bytes, text);
            STEP.put(&mut bytes, text);
            let (record, trace) = Record::take(&bytes, Texts::Inline).unwrap();
            assert_eq!((record.cost_nano_usd, record.names), (cost_nano_usd, RECORD.names));
            assert_eq!((record.quota_nano_usd, record.status, trace.count()), (quota_nano_usd, 999, 1));
        }
    }
}
