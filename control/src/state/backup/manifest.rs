//! The manifest: the first entry of an archive, which lists the other entries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::db::sqlite_state::files::USAGE;

/// The contents of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BackupManifest"))]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the archive layout.
    pub format: u32,
    /// The time of the backup, in RFC 3339 format.
    pub created_at: String,
    /// The gateway release that created the archive.
    pub gateway_version: String,
    /// The schema version of the database.
    pub database_version: i64,
    /// The other entries, in archive order.
    pub files: Vec<ManifestFile>,
    /// The number of rows in each table.
    pub rows: BTreeMap<String, u64>,
}

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BackupFile"))]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// The file name; one of the fixed names that an archive may contain.
    pub name: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The SHA-256 digest, in hex.
    pub sha256: String,
}

impl Manifest {
    /// Returns a description of the first invalid part of the manifest, or `None` if it is valid. `bytes_max` bounds
    /// the total unpacked size.
    pub(super) fn fault(&self, bytes_max: u64) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!("it has format {}, and this release supports {FORMAT}", self.format));
        }
        let mut names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        if !names.contains(&DATABASE) {
            return Some(format!("it has no {DATABASE}"));
        }
        if let Some(stranger) = names.iter().find(|name| !NAMES.contains(name)) {
            return Some(format!("its manifest names {stranger:.80?}, which is not part of a backup"));
        }
        names.sort_unstable();
        if names.windows(2).any(|pair| matches!(pair, [one, other] if one == other)) {
            return Some("its manifest names a file twice".to_owned());
        }
        let bytes = self.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        (bytes > bytes_max).then(|| {
            format!(
                "it has {bytes} bytes decompressed, more than the limit of {bytes_max}; raise it with \
                     --max-bytes"
            )
        })
    }
}

pub(super) const FORMAT: u32 = 1;
/// The name of the manifest's entry.
pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const DATABASE: &str = crate::db::sqlite_state::open::DATABASE;
/// All files that an archive may contain besides the manifest. The database comes first in the archive and is restored
/// last.
pub(crate) const NAMES: [&str; 3] = [DATABASE, USAGE, "catalog.json"];
pub(super) const BUFFER_BYTES: usize = 64 << 10;
