//! A row of the table `usage`: a number of packed exchanges.
//!
//! ```text
//!  rows      length, record; length, record; ...   see record.rs
//!  names     length, text; length, text; ...       the texts that records refer to by place, counted from 1
//!  requests  u32, u32, ...                         a digest of each request id
//! ```

#![expect(clippy::indexing_slicing, reason = "there is a place for each number of a text")]

use std::collections::HashMap;

use shared::usage::Lost;

use crate::digest::digest;
use crate::record::rare_fields;
use crate::record::{FIRST_NAMES, Record, RecordName, STEP_MESSAGE, TEXTS, Texts, Trace};
use crate::varint;

/// The row of the table that is being filled.
#[derive(Debug, Default)]
pub struct Block {
    pub first_ms: u64,
    pub last_ms: u64,
    pub exchanges: u32,
    pub requests: Vec<u8>,
    pub rows: Vec<u8>,
    names: BlockNames,
    /// The encoded names of the previous record, if the `last` places are still those of its names.
    names_read: Vec<u8>,
    record: Vec<u8>,
    steps: Vec<PushedStep>,
    /// The encoded names of the last step and their places.
    step_read: (Vec<u8>, PushedStep),
}

/// The distinct texts of a block.
#[derive(Debug, Default)]
pub struct BlockNames {
    pub packed: Vec<u8>,
    texts: Vec<Box<str>>,
    places: HashMap<Box<str>, u32>,
    /// The last place of each of a record's texts. The next record usually has the same texts.
    last: [u32; TEXTS],
}

/// The places of the texts of an exchange that was added.
#[derive(Debug)]
pub struct Pushed<'a> {
    /// The places of the exchange's own names, indexed by [`RecordName`].
    pub places: [u32; RecordName::COUNT],
    /// The steps of the trace, in order.
    pub steps: &'a [PushedStep],
    /// The consumption of the failed attempts.
    pub lost: Vec<LostAt>,
}

/// The places of the texts of a step that was added.
#[derive(Clone, Copy, Debug, Default)]
pub struct PushedStep {
    pub provider: u32,
    pub model: u32,
    pub result: u32,
}

/// The consumption of a failed attempt, and the step of that attempt.
#[derive(Debug)]
pub struct LostAt {
    pub step: PushedStep,
    pub lost: Lost,
}

impl Pushed<'_> {
    /// Returns the place of a name.
    pub fn place(&self, name: RecordName) -> u32 {
        self.places[name as usize]
    }
}

impl BlockNames {
    /// Returns the place of `text`, which is the record's text number `at`. Adds the text if it is new.
    fn place(&mut self, at: usize, text: &str) -> u32 {
        let last = self.last_place(at);
        if self.get(last) == text {
            return last;
        }
        let known = if text.is_empty() { Some(0) } else { self.places.get(text).copied() };
        let place = known.unwrap_or_else(|| self.add(text));
        self.last[at] = place;
        place
    }

    fn last_place(&self, at: usize) -> u32 {
        self.last[at]
    }

    fn add(&mut self, text: &str) -> u32 {
        varint::put_text(&mut self.packed, text);
        self.texts.push(text.into());
        let place = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.places.insert(text.into(), place);
        place
    }

    /// Returns the text at a place.
    pub fn get(&self, place: u32) -> &str {
        let at = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
        at.and_then(|at| self.texts.get(at)).map_or("", |text| text)
    }

    fn clear(&mut self) {
        self.packed.clear();
        self.texts.clear();
        self.places.clear();
        self.last = [0; TEXTS];
    }
}

impl Block {
    /// Adds an exchange, without its stored state.
    pub fn push(&mut self, record: &Record<'_>, trace: Trace<'_>) -> Pushed<'_> {
        if record.stored_state.is_some() {
            let bare = Record { stored_state: None, ..record.clone() };
            return self.push_bare(&bare, trace);
        }
        self.push_bare(record, trace)
    }

    fn push_bare(&mut self, record: &Record<'_>, trace: Trace<'_>) -> Pushed<'_> {
        self.record.clear();
        self.steps.clear();
        let mut places = [0; RecordName::COUNT];
        let names = &mut self.names;
        let as_before = !record.names_read.is_empty() && record.names_read == self.names_read;
        if !as_before {
            self.names_read.clear();
            self.names_read.extend_from_slice(record.names_read);
        }
        record.put(&mut self.record, |out, at, text| {
            let is_known = as_before && at < FIRST_NAMES;
            let place = if is_known { names.last_place(at) } else { names.place(at, text) };
            places[at] = place;
            varint::put(out, u64::from(place));
        });
        let (step_read, step_places) = &mut self.step_read;
        for step in trace {
            let as_before = !step.names_read.is_empty() && step.names_read == step_read.as_slice();
            let PushedStep { provider, model, result } = *step_places;
            let mut places = [provider, model, result, 0];
            step.put(&mut self.record, |out, at, text| {
                let at_step = at - RecordName::COUNT;
                if !as_before || at_step == STEP_MESSAGE {
                    places[at_step] = names.place(at, text);
                }
                varint::put(out, u64::from(places[at_step]));
            });
            let [provider, model, result, _message] = places;
            *step_places = PushedStep { provider, model, result };
            if !as_before {
                step_read.clear();
                step_read.extend_from_slice(step.names_read);
            }
            self.steps.push(*step_places);
        }
        let lost = rare_fields::lost(&record.lost)
            .filter_map(|(place, lost)| Some(LostAt { step: *self.steps.get(place)?, lost }))
            .collect();
        varint::put(&mut self.rows, u64::try_from(self.record.len()).unwrap_or(u64::MAX));
        self.rows.extend_from_slice(&self.record);
        self.requests.extend_from_slice(&request_hash(record.request_id).to_le_bytes());
        let moment = record.started_at_ms;
        self.first_ms = if self.exchanges == 0 { moment } else { self.first_ms.min(moment) };
        self.last_ms = self.last_ms.max(moment);
        self.exchanges += 1;
        Pushed { places, steps: &self.steps, lost }
    }

    pub fn names(&self) -> &BlockNames {
        &self.names
    }

    /// Clears the block but keeps its memory.
    pub fn clear(&mut self) {
        (self.first_ms, self.last_ms, self.exchanges) = (0, 0, 0);
        self.requests.clear();
        self.rows.clear();
        self.names.clear();
        self.names_read.clear();
        self.step_read.0.clear();
    }
}

/// Returns the hash that represents a request id in `requests`.
pub fn request_hash(request_id: &str) -> u32 {
    digest(0, request_id.as_bytes())
}

/// True if one of the request ids has this hash.
pub fn may_hold(requests: &[u8], hash: u32) -> bool {
    requests.as_chunks::<4>().0.contains(&hash.to_le_bytes())
}

/// Parses the texts of a stored block.
pub fn names(packed: &[u8]) -> Vec<&str> {
    let mut rest = packed;
    std::iter::from_fn(|| varint::take_text(&mut rest)).collect()
}

/// Parses the exchanges of a stored block, in the order in which they ended. Yields `None` for an unreadable one.
pub fn rows<'a>(
    packed: &'a [u8],
    names: &'a [&'a str],
) -> impl Iterator<Item = Option<(Record<'a>, Trace<'a>)>> {
    pieces(packed).map(|bytes| record(bytes, names))
}

/// Returns the bytes of each exchange of a stored block.
pub fn pieces(packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = packed;
    std::iter::from_fn(move || varint::take_bytes(&mut rest))
}

/// Parses one of the [`pieces`] of a block with these names.
pub fn record<'a>(bytes: &'a [u8], names: &'a [&'a str]) -> Option<(Record<'a>, Trace<'a>)> {
    Record::take(bytes, Texts::Listed(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{LastNames, RecordStep};

    /// Returns a record in the encoding of the journal.
    fn journaled(names: [&str; RecordName::COUNT]) -> Vec<u8> {
        let (started_at_ms, duration_us, status) = (1_700_000_000_000, 1, 200);
        let record =
            Record { request_id: "r", started_at_ms, duration_us, names, status, ..Record::default() };
        let mut bytes = Vec::new();
        record.put(&mut bytes, |out, _, text| varint::put_text(out, text));
        bytes
    }

    #[test]
    fn names_round_trip_after_records_with_equal_and_other_names() {
        let a = [
            "o", "k", "", "", "s", "e", "p", "m", "done", "", "r", "list", "", "", "a=1", "", "c/1", "", "",
            "", "", "stop",
        ];
        let b = [
            "o", "k", "", "", "p", "", "s", "m", "failed", "error", "r", "", "flex", "", "", "u", "", "f00d",
            "gemini", "", "", "",
        ];
        let mut block = Block::default();
        let pushed = [a, a, b, b, a, b, a, a];
        for round in 0..2 {
            for names in pushed {
                let bytes = journaled(names);
                let (record, trace) = Record::take(&bytes, Texts::Inline).unwrap();
                block.push(&record, trace);
            }
            let packed = names(&block.names().packed);
            let read: Vec<_> = rows(&block.rows, &packed).map(|row| row.unwrap().0.names).collect();
            assert_eq!(read, pushed, "round {round}");
            block.clear();
        }
    }

    #[test]
    fn a_record_after_one_with_failed_attempts_keeps_its_target() {
        let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
        let target = [
            "o", "k", "", "", "line", "line", "p1", "m1", "done", "", "r", "list", "", "", "", "", "", "",
            "", "", "", "",
        ];
        let lost = rare_fields::pack_lost([(0, &Lost { cost_nano_usd: Some(5), ..Lost::default() })]);
        let mut failed = Vec::new();
        Record { names: target, lost: lost.into(), ..Record::default() }.put(&mut failed, text);
        for provider in ["p0", "p1"] {
            let (model, result, status) = ("m0", "status", Some(500));
            RecordStep { provider, model, result, status, ..RecordStep::default() }.put(&mut failed, text);
        }
        let mut block = Block::default();
        for bytes in [&failed, &journaled(target), &failed, &journaled(target)] {
            let (record, trace) = Record::take(bytes, Texts::Inline).unwrap();
            block.push(&record, trace);
        }
        let packed = names(&block.names().packed);
        let read: Vec<_> = rows(&block.rows, &packed).map(|row| row.unwrap().0.names).collect();
        assert_eq!(read, [target; 4]);
    }

    #[test]
    fn records_are_read_and_added_after_others_as_they_are_alone() {
        let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
        let step = |provider, result, message| {
            let (model, status) = ("m", Some(200));
            RecordStep { provider, model, result, status, message, ..RecordStep::default() }
        };
        let (served, failed) = (step("p", "served", ""), step("q", "status", "over capacity"));
        let (a, b) = (["a"; RecordName::COUNT], ["b"; RecordName::COUNT]);
        let mut records = Vec::new();
        for (names, steps) in [
            (a, vec![served]),
            (a, vec![served]),
            (b, vec![served]),
            (a, vec![failed, served]),
            (a, vec![failed, failed, served]),
            (a, vec![]),
            (b, vec![failed]),
            (b, vec![step("q", "status", "")]),
        ] {
            let mut bytes = Vec::new();
            Record { names, ..Record::default() }.put(&mut bytes, text);
            steps.iter().for_each(|step| step.put(&mut bytes, text));
            records.push((bytes, names, steps));
        }
        let (mut block, mut last) = (Block::default(), LastNames::default());
        for (bytes, names, steps) in &records {
            let (record, trace) = Record::take_next(bytes, &mut last).unwrap();
            assert_eq!(record.names, *names);
            let read: Vec<_> = trace.map(|step| RecordStep { names_read: &[], ..step }).collect();
            assert_eq!(read, *steps);
            let result = |block: &Block, place| block.names().get(place).to_owned();
            let pushed: Vec<_> = block.push(&record, trace).steps.to_vec();
            let results: Vec<_> = pushed.iter().map(|step| result(&block, step.result)).collect();
            assert_eq!(results, steps.iter().map(|step| step.result).collect::<Vec<_>>());
        }
        let packed = names(&block.names().packed);
        let stored = rows(&block.rows, &packed).map(|row| row.unwrap());
        for ((record, trace), (_, names, steps)) in stored.zip(&records) {
            assert_eq!((record.names, trace.collect::<Vec<_>>()), (*names, steps.clone()));
        }
        // A malformed step after records with well-formed ones ends the trace.
        let (bytes, ..) = &records[3];
        for cut in 1..16 {
            let cut = &bytes[..bytes.len() - cut];
            let (_, trace) = Record::take_next(cut, &mut last).unwrap();
            assert_eq!(trace.count(), 1, "{}", cut.len());
        }
    }
}
