//! Reads the YAML file: text, tree, schema, then the typed form of the valid parts, with every fault collected.

use std::path::{Path as FilePath, PathBuf};

use super::env::SecretFiles;
use super::fault::{ConfigFault, FaultPlace};
use super::raw;
use super::schema;
use super::yaml::{self, Position, YamlPath, YamlSpot, YamlStep};
use crate::common::regular_file;

/// The valid parts of a file, and its faults.
pub(super) struct FileReading {
    pub(super) raw: raw::File,
    pub(super) notes: Notes,
    /// The content that was read.
    pub(super) version: Version,
}

/// Identifies the content of the file without storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The file does not exist.
    Absent,
    /// The file cannot be read.
    Unreadable,
    /// The SHA-256 of its content.
    Content([u8; 32]),
}

impl Version {
    /// Returns the SHA-256 of the content as hexadecimal digits; the reason why there is none otherwise.
    pub(crate) fn digest(self) -> String {
        match self {
            Self::Absent => "absent".to_owned(),
            Self::Unreadable => "unreadable".to_owned(),
            Self::Content(digest) => shared::hex::encode(&digest),
        }
    }
}

/// Collects faults by path while a file is checked; positions are looked up once, at the end.
pub(super) struct Notes {
    file: PathBuf,
    text: String,
    notes: Vec<(YamlPath, YamlSpot, String)>,
    /// Paths removed from the tree because of faults: a node missing below one of them was present and faulty.
    pruned: Vec<YamlPath>,
    whole: Option<ConfigFault>,
    /// The files of `${FILE:/path}`.
    pub(super) secret_files: SecretFiles,
}

impl Notes {
    pub(super) fn new(file: &FilePath) -> Self {
        Self {
            file: file.to_owned(),
            text: String::new(),
            notes: Vec::new(),
            pruned: Vec::new(),
            whole: None,
            secret_files: SecretFiles::default(),
        }
    }

    /// Adds a fault of the node at `path`, unless the node or an ancestor of it was already rejected.
    pub(super) fn add(&mut self, path: &[YamlStep], message: impl Into<String>) {
        let reported = self.pruned.iter().any(|pruned| path.starts_with(pruned));
        if !reported && self.notes.len() < NOTES_MAX {
            self.notes.push((path.to_vec(), YamlSpot::Key, message.into()));
        }
    }

    /// Adds the schema faults and removes the faulty nodes from `tree`, whose own path is `place`.
    pub(super) fn take_out(
        &mut self,
        tree: &mut serde_json::Value,
        place: &[YamlStep],
        faults: Vec<schema::SchemaFault>,
    ) {
        for fault in faults {
            schema::prune(tree, &fault.path);
            let path: YamlPath = place.iter().cloned().chain(fault.path).collect();
            self.pruned.push(list_around(&path));
            self.notes.push((path, YamlSpot::Key, fault.message));
        }
        compact(tree);
    }

    /// Returns the line of the file on which the value at `path`, such as `server.port`, is set. `None` if the file is so
    /// large that looking would take too long.
    pub(super) fn line_of(&self, path: &str) -> Option<u64> {
        let path: YamlPath = path.split('.').map(|key| YamlStep::Key(key.to_owned())).collect();
        let is_short = self.text.len() <= LINES_BYTES_MAX;
        is_short
            .then(|| u64::try_from(yaml::locate(&self.text, &path, YamlSpot::Key).line).unwrap_or(u64::MAX))
    }

    /// Returns the faults of a tree that has no text, as pairs of path below `place` and message.
    pub(super) fn into_fields(self, place: &[YamlStep]) -> Vec<(String, String)> {
        let below = |path: &YamlPath| yaml::path_text(path.strip_prefix(place).unwrap_or(path));
        self.notes.iter().map(|(path, _, message)| (below(path), message.clone())).collect()
    }

    /// Returns all faults in the order of the text.
    pub(super) fn into_faults(self) -> Vec<ConfigFault> {
        let mut faults: Vec<(Position, ConfigFault)> = Vec::new();
        let reported = (LOCATED_BYTES_MAX / self.text.len().max(1)).clamp(1, FAULTS_MAX);
        let unreported = self.notes.len().saturating_sub(reported);
        for (path, spot, message) in self.notes.into_iter().take(reported) {
            let position = yaml::locate(&self.text, &path, spot);
            let place = FaultPlace::Spot {
                file: self.file.clone(),
                line: position.line,
                column: position.column,
                path: yaml::path_text(&path),
            };
            faults.push((position, ConfigFault { place, message }));
        }
        faults.sort_by_key(|(position, _)| (position.line, position.column));
        let rest = (unreported > 0)
            .then(|| ConfigFault::file(&self.file, format!("{unreported} more faults are not listed")));
        self.whole.into_iter().chain(faults.into_iter().map(|(_, fault)| fault)).chain(rest).collect()
    }
}

/// Reads `file`; a missing file counts as empty.
pub(super) fn read(file: &FilePath) -> FileReading {
    let mut notes = Notes::new(file);
    match text_of(file) {
        Ok(Some(text)) => parse(text, notes),
        Ok(None) => FileReading { raw: raw::File::default(), notes, version: Version::Absent },
        Err(message) => {
            notes.whole = Some(ConfigFault::file(file, message));
            FileReading { raw: raw::File::default(), notes, version: Version::Unreadable }
        }
    }
}

fn version(text: &str) -> Version {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    <[u8; 32]>::try_from(digest.as_ref()).map_or(Version::Unreadable, Version::Content)
}

fn text_of(file: &FilePath) -> Result<Option<String>, String> {
    let bytes = match regular_file::read(file, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if regular_file::is_absence(&error) => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8".to_owned())
}

pub(super) fn parse(text: String, mut notes: Notes) -> FileReading {
    let version = version(&text);
    let document = match yaml::parse(&text) {
        Ok(document) => document,
        Err(broken) => {
            notes.whole = Some(ConfigFault {
                place: FaultPlace::Spot {
                    file: notes.file.clone(),
                    line: broken.position.line,
                    column: broken.position.column,
                    path: String::new(),
                },
                message: broken.message,
            });
            return FileReading { raw: raw::File::default(), notes, version };
        }
    };
    notes.text = text;
    for path in document.repeats {
        let message = "this key occurs twice; keep one".to_owned();
        notes.notes.push((path, YamlSpot::Repeat, message));
    }
    let mut tree = document.tree;
    if let Some(sections) = tree.as_object_mut() {
        // `providers:` with no value is an empty section.
        sections.retain(|_, section| !section.is_null());
    }
    let faults = schema::check(&tree);
    notes.take_out(&mut tree, &[], faults);
    let raw = serde_json::from_value(tree).unwrap_or_else(|_| {
        // The schema is generated from these types, so a tree that fits it can be read; this is only a safeguard.
        notes.add(&[], "does not fit the schema of the configuration");
        raw::File::default()
    });
    FileReading { raw, notes, version }
}

/// Returns the path up to the list that contains a rejected item: removing the item shifts its neighbours, so their
/// paths become unreliable.
fn list_around(path: &[YamlStep]) -> YamlPath {
    path.iter().take_while(|step| matches!(step, YamlStep::Key(_))).cloned().collect()
}

/// Removes rejected items from their lists.
fn compact(tree: &mut serde_json::Value) {
    match tree {
        serde_json::Value::Array(list) => {
            list.retain(|item| !item.is_null());
            list.iter_mut().for_each(compact);
        }
        serde_json::Value::Object(map) => map.values_mut().for_each(compact),
        _ => {}
    }
}

/// The largest configuration file, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;
const NOTES_MAX: usize = 10_000;
const FAULTS_MAX: usize = 100;
/// Each position costs a pass over the text; this bounds all passes together to a few seconds (P21).
const LOCATED_BYTES_MAX: usize = 24 << 20;
/// Limit on the text in which the lines of settings are looked up; each look-up parses the text once.
const LINES_BYTES_MAX: usize = 1 << 20;
