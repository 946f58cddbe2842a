//! The manifest: the first entry of an archive, which tells what else is in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::store::files::USAGE;

/// What an archive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this layout.
    pub format: u32,
    /// When, as RFC 3339.
    pub created_at: String,
    /// The release that made it.
    pub gateway_version: String,
    /// The version of the database.
    pub database_version: i64,
    /// The other entries, in their order.
    pub files: Vec<ManifestFile>,
    /// How many rows each table had.
    pub rows: BTreeMap<String, u64>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// Its name, one of the names that an archive may hold.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hex.
    pub sha256: String,
}

impl Manifest {
    /// What of it cannot be, if anything.
    pub(super) fn fault(&self, bytes_max: u64) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!("it has layout {}, and this release reads {FORMAT}", self.format));
        }
        let mut names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        if !names.contains(&DATABASE) {
            return Some(format!("it holds no {DATABASE}"));
        }
        if let Some(stranger) = names.iter().find(|name| !NAMES.contains(name)) {
            return Some(format!("its manifest names {stranger:.80?}, which no backup holds"));
        }
        names.sort_unstable();
        if names.windows(2).any(|pair| matches!(pair, [one, other] if one == other)) {
            return Some("its manifest names a file twice".to_owned());
        }
        let bytes = self.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        (bytes > bytes_max).then(|| {
            format!("it unpacks to {bytes} bytes, and {bytes_max} are allowed; --max-bytes allows more")
        })
    }
}

impl ManifestFile {
    /// The entry for the file `name` in `dir`.
    pub(super) fn of(dir: &Path, name: &str) -> io::Result<Self> {
        let mut file = File::open(dir.join(name))?;
        let (mut hasher, mut bytes) = (Hasher::default(), 0_u64);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = file.read(&mut buffer)?;
            let piece = buffer.get(..read).unwrap_or_default();
            if piece.is_empty() {
                return Ok(Self { name: name.to_owned(), bytes, sha256: hasher.hex() });
            }
            hasher.update(piece);
            bytes = bytes.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        }
    }
}

/// SHA-256.
pub(super) struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn hex(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(super) const FORMAT: u32 = 1;
/// The name of the manifest's own entry.
pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const DATABASE: &str = crate::store::open::DATABASE;
/// Everything that an archive may hold beside the manifest. The database comes first and is restored last.
pub(crate) const NAMES: [&str; 3] = [DATABASE, USAGE, "catalog.json"];
pub(super) const BUFFER_BYTES: usize = 64 << 10;
