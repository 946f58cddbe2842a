//! Invariants of the parsers that read bytes which a disk or an operator may have damaged. Each function panics if an
//! invariant is violated. The targets in `fuzz/` call them, and a unit test runs them with a few inputs.

use std::fs;

use serde_json::Value;
use shared::usage::{TokenCounts, Units};

use crate::backup::archive::unpack;
use crate::backup::manifest::NAMES;
use crate::backup::temporary_directory::Scratch;
use crate::config::yaml::{self, YamlPath, YamlSpot, YamlStep};
use crate::meter::frame::{self, Frame, JournalSpot as Place};
use crate::store::block;
use crate::store::marks::FileId;
use crate::store::more;
use crate::store::record::{Record, Texts, Trace, bounded};

/// Checks the parser of usage journal files: it passes over each byte once, and accepts a record only at the record's
/// own place.
pub fn journal(input: &[u8]) {
    let file = FileId { origin: 7, number: 3 };
    let spot = |at: usize| Some(Place { file, at: u64::try_from(at).unwrap_or(u64::MAX) });
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
pub fn records(input: &[u8]) {
    record_bytes(input);
    let (names, rows) = input.split_at(input.len() / 2);
    let names = block::names(names);
    block::rows(rows, &names).flatten().for_each(|(record, trace)| look(&record, trace));
}

fn record_bytes(bytes: &[u8]) {
    let Some((record, trace)) = Record::take(bytes, Texts::Inline) else { return };
    look(&record, trace);
    let text = |out: &mut Vec<u8>, _, text: &str| crate::store::varint::put_text(out, text);
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
    more::lost(&record.lost).for_each(drop);
    trace.for_each(drop);
}

/// Checks the parser of configuration files: the tree has a bounded size, and each node has a line number.
pub fn yaml(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let lines = text.split(['\n', '\r']).count() + 1;
    match yaml::parse(text) {
        Ok(document) => {
            let mut paths = Vec::new();
            walk(&document.tree, &mut YamlPath::new(), &mut paths);
            for (path, spot) in (paths.iter().map(|path| (path, YamlSpot::Key)))
                .chain(document.repeats.iter().map(|path| (path, YamlSpot::Repeat)))
                .take(PATHS_MAX)
            {
                let position = yaml::locate(text, path, spot);
                assert!((1..=lines).contains(&position.line), "{}", yaml::path_text(path));
            }
        }
        Err(broken) => assert!(broken.position.line <= lines, "{broken:?}"),
    }
}

fn walk(node: &Value, path: &mut YamlPath, paths: &mut Vec<YamlPath>) {
    if paths.len() >= PATHS_MAX {
        return;
    }
    if !path.is_empty() {
        paths.push(path.clone());
    }
    let steps: Vec<(YamlStep, &Value)> = match node {
        Value::Object(map) => map.iter().map(|(key, value)| (YamlStep::Key(key.clone()), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, item)| (YamlStep::Item(at), item)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (step, value) in steps {
        path.push(step);
        walk(value, path, paths);
        path.pop();
    }
}

/// Checks the archive reader. If the first byte is even, the rest of the input is compressed first; otherwise it is
/// used as is. The archive is rejected, or unpacked within the size limit into files with the known names.
pub fn archive(input: &[u8]) {
    let Some((first, content)) = input.split_first() else { return };
    let scratch = Scratch::somewhere().expect("a folder");
    let (packed, out) = (scratch.path().join("archive"), scratch.path().join("out"));
    let compressed = first % 2 == 0;
    let content = if compressed { zstd::encode_all(content, 1).expect("memory") } else { content.to_vec() };
    fs::write(&packed, content).and_then(|()| fs::create_dir(&out)).expect("a file");
    let _ = unpack(&packed, &out, UNPACKED_MAX);
    let mut bytes = 0;
    for entry in fs::read_dir(&out).expect("a folder") {
        let entry = entry.expect("an entry");
        let metadata = fs::symlink_metadata(entry.path()).expect("an entry");
        let name = entry.file_name();
        assert!(metadata.is_file() && NAMES.iter().any(|known| name == *known), "{name:?}");
        bytes += metadata.len();
    }
    assert!(bytes <= UNPACKED_MAX, "{bytes}");
}

const PATHS_MAX: usize = 64;
const UNPACKED_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_promise_holds_for_a_few_inputs() {
        let manifest = include_bytes!("../../fuzz/corpus/yaml/providers");
        // The length of a name takes two bytes where one would suffice.
        let odd_record = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\0\x5d\0\0\0\0\0\xff\x02\x07\0";
        let few = [
            &b""[..],
            b"\0",
            b"\xff\xfe\xffw\x01\0\0\0abcd",
            b"a: [1, {b: 2}]\na: 3\n",
            odd_record,
            manifest,
        ];
        for input in few {
            for cut in 0..=input.len() {
                let input = &input[..cut];
                journal(input);
                records(input);
                yaml(input);
                archive(input);
            }
        }
    }
}
