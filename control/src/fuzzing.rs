//! Invariants of the parsers that read bytes which a disk or an operator may have damaged. Each function panics if an
//! invariant is violated. The targets in `fuzz/` call them, and a unit test runs them with a few inputs.

use std::fs;

use serde_json::Value;

use crate::routing::config::yaml::{self, YamlPath, YamlSpot, YamlStep};
use crate::state::backup::archive::unpack;
use crate::state::backup::manifest::NAMES;
use crate::state::backup::temporary_directory::TemporaryDirectory;

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
    let directory = TemporaryDirectory::somewhere().expect("a folder");
    let (packed, out) = (directory.path().join("archive"), directory.path().join("out"));
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
    fn the_fuzz_targets_accept_a_few_inputs() {
        let manifest = include_bytes!("../../fuzz/corpus/yaml/providers");
        let few = [&b""[..], b"\0", b"\xff\xfe\xffw\x01\0\0\0abcd", b"a: [1, {b: 2}]\na: 3\n", manifest];
        for input in few {
            for cut in 0..=input.len() {
                let input = &input[..cut];
                yaml(input);
                archive(input);
            }
        }
    }
}
