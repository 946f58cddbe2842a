//! Invariants of the decoders, which read bytes that a disk may have damaged. Each function panics if an invariant is
//! violated. The fuzz targets call them.

use records::frame::{self, FileId, Frame, JournalSpot};
use records::{Record, Texts, Trace, block, bounded, rare_fields, varint};
use shared::usage::{TokenCounts, Units};

/// Checks the parser of usage journal files: it passes over each byte once, and accepts a record only at the record's
/// own place.
pub(crate) fn journal(input: &[u8]) {
    let file = FileId { origin: 7, number: 3 };
    let spot = |at: usize| Some(JournalSpot { file, at: u64::try_from(at).unwrap_or(u64::MAX) });
    let mut at = 0;
    while at < input.len() {
        let rest = &input[at..];
        let passed = match frame::first(rest, spot(at)) {
            Frame::Whole(record, length) => {
                assert_eq!(length, record.len() + frame::HEADER);
                record_bytes(record);
                length
            }
            Frame::Part(length) => {
                assert!(length > rest.len(), "a part that is whole");
                frame::after_marker(rest)
            }
            Frame::Garbage(length) | Frame::Blank(length) => length,
        };
        assert!((1..=rest.len()).contains(&passed), "{passed} of {}", rest.len());
        at += passed;
    }
    let mut whole = vec![0; frame::HEADER];
    whole.extend_from_slice(input);
    frame::close(&mut whole, spot(5));
    assert_eq!(frame::first(&whole, spot(5)), Frame::Whole(input, whole.len()));
    assert!(!matches!(frame::first(&whole, spot(6)), Frame::Whole(..)), "a record at two places");
    assert!(!matches!(frame::first(&whole, None), Frame::Whole(..)), "a record in a note");
}

/// Checks the parser of packed records and of rows of many records: a parsed record survives a round trip.
pub(crate) fn records(input: &[u8]) {
    record_bytes(input);
    let (names, rows) = input.split_at(input.len() / 2);
    let names = block::names(names);
    block::rows(rows, &names).flatten().for_each(|(record, trace)| look(&record, trace));
}

fn record_bytes(bytes: &[u8]) {
    let Some((record, trace)) = Record::take(bytes, Texts::Inline) else { return };
    look(&record, trace);
    let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
    let mut packed = Vec::new();
    record.put(&mut packed, text);
    let steps: Vec<_> = trace.collect();
    steps.iter().for_each(|step| step.put(&mut packed, text));
    let (again, trace) = Record::take(&packed, Texts::Inline).expect("what was written is read");
    // The input may encode a number in more bytes than necessary, and counts that are larger than any that is written.
    let meant = |record: Record<'_>| {
        let tokens = TokenCounts::of_list(record.tokens.list().map(bounded));
        let units = Units::of_list(record.units.list().map(bounded));
        format!("{:?}", Record { names_read: &[], tokens, units, ..record })
    };
    assert_eq!(meant(record), meant(again));
    assert_eq!(format!("{steps:?}"), format!("{:?}", trace.collect::<Vec<_>>()));
}

fn look(record: &Record<'_>, trace: Trace<'_>) {
    assert_eq!(record.tokens.list().len(), TokenCounts::COUNT);
    rare_fields::lost(&record.lost).for_each(drop);
    trace.for_each(drop);
}
