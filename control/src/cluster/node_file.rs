//! The file `node.json` in the state directory: the identity of the node, beside its journal. A copy of the directory has the same
//! identity, so that only the process that started last goes on.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::common::private_file;
use crate::common::vault::random;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeFile {
    /// Random; the database has it beside the number.
    pub(crate) identity: String,
    /// The number that the database gave to the node; absent before the first registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<u32>,
}

impl NodeFile {
    /// Reads the file in the state directory, or creates it with a new identity.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        match fs::read(dir.join(NAME)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                io::Error::new(
                    ErrorKind::InvalidData,
                    format!("{NAME} is damaged ({error}); restore it, or delete it"),
                )
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let random: [u8; 16] = random().map_err(|error| io::Error::other(format!("{error:?}")))?;
                let file = Self { identity: shared::hex::encode(&random), node: None };
                file.write(dir)?;
                Ok(file)
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps the number of a registered node. A crash before it is harmless: the database finds the number by the identity.
    pub(crate) fn set_number(&mut self, dir: &Path, node: u32) -> io::Result<()> {
        if self.node == Some(node) {
            return Ok(());
        }
        self.node = Some(node);
        self.write(dir)
    }

    /// Replaces the file as a whole.
    fn write(&self, dir: &Path) -> io::Result<()> {
        let draft = dir.join(DRAFT);
        let mut file = private_file::create_fresh(&draft)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(draft, dir.join(NAME))?;
        fs::File::open(dir)?.sync_all()
    }
}

/// The name of the file in the state directory.
pub(crate) const NAME: &str = "node.json";
const DRAFT: &str = "node.json.new";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_keeps_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = NodeFile::open(dir.path()).unwrap();
        assert!(file.identity.len() == 32 && file.node.is_none());
        assert_eq!(NodeFile::open(dir.path()).unwrap(), file);
        file.set_number(dir.path(), 3).unwrap();
        assert_eq!(NodeFile::open(dir.path()).unwrap(), NodeFile { node: Some(3), ..file.clone() });
        let other = tempfile::tempdir().unwrap();
        assert_ne!(NodeFile::open(other.path()).unwrap().identity, file.identity);
    }

    #[test]
    fn a_damaged_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "{").unwrap();
        let error = NodeFile::open(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("node.json is damaged"), "{error}");
        assert_eq!(fs::read(dir.path().join(NAME)).unwrap(), b"{");
    }
}
