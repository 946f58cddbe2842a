//! A key with its plain text, as answers show it to its owner.

use serde::{Serialize, Serializer};
use shared::secret::Secret;

use super::shown::ShownKey;
use crate::writer::command::quotas::QuotaStanding;

/// A new key with its plain text, which is never stored unsealed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "KeyWithSecret"))]
pub(crate) struct Issued {
    #[serde(flatten)]
    pub(crate) shown: ShownKey,
    /// The key itself. Null in a repeated answer if the key cannot be revealed; rotate it then.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) key: PlainKey,
    /// The limits that were created with the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) limits: Vec<QuotaStanding>,
}

/// A key in plain text, serialized for its owner.
#[derive(Debug)]
pub(crate) struct PlainKey(pub(crate) Secret<String>);

impl Serialize for PlainKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}
