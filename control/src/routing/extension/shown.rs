//! The API view of an extension, without its secret.

use serde::Serialize;

use super::probe::{ExtensionCheck, ExtensionProvider};
use crate::db::extensions::ExtensionRow;

/// An extension: a service outside the process that provides models.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Extension"))]
pub(crate) struct ShownExtension {
    /// The name by which providers refer to it.
    pub(crate) name: String,
    /// Its address: `http://`, `https://`, or `unix:` and the path of a socket.
    url: String,
    /// False if its providers receive no requests.
    enabled: bool,
    /// The time at which its secret was last set, in milliseconds since the Unix epoch.
    secret_updated_at_ms: u64,
    /// The last probe; null if none has ended since the address or the secret was set.
    last_check: Option<ExtensionCheck>,
    /// The providers that the last successful probe found.
    providers: Vec<ExtensionProvider>,
    /// The IDs of the gateway's providers that use it.
    used_by: Vec<String>,
    /// Grows with each change, but not with a probe; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    updated_at_ms: u64,
}

impl ShownExtension {
    /// Builds the view of a row; `used_by` are the ids of the provider instances that belong to it.
    pub(crate) fn of(row: &ExtensionRow, used_by: Vec<String>) -> Self {
        Self {
            name: row.name.clone(),
            url: row.url.clone(),
            enabled: row.enabled,
            secret_updated_at_ms: row.secret_at_ms,
            last_check: row.last_check.as_deref().and_then(|text| serde_json::from_str(text).ok()),
            providers: serde_json::from_str(&row.providers).unwrap_or_default(),
            used_by,
            version: row.version,
            created_at_ms: row.created_at_ms,
            updated_at_ms: row.updated_at_ms,
        }
    }
}
