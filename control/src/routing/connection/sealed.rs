//! Splits the written settings of a provider instance into visible settings and sealed secrets, and joins them again.

use serde_json::{Map, Value};

use crate::common::vault::{SealError, SealPlace, VaultKeys};
use crate::db::providers::ProviderRow;
use crate::routing::config::{DOTS, WrittenProvider};

/// The parts of a written provider instance that its row stores.
#[derive(Debug)]
pub(crate) struct SealedParts {
    /// JSON with secrets replaced by dots.
    pub(crate) settings: String,
    pub(crate) credential: Option<Vec<u8>>,
    pub(crate) credential_hint: Option<String>,
    pub(crate) headers: Option<Vec<u8>>,
}

/// Splits `written` and seals its secrets for the row called `id`.
pub(crate) fn seal_written(
    keys: &VaultKeys,
    id: &str,
    written: &WrittenProvider,
) -> Result<SealedParts, SealError> {
    let mut settings = written.0.clone();
    let credential = settings.remove(API_KEY);
    let credential = credential.as_ref().and_then(Value::as_str).map(str::trim).filter(|key| !key.is_empty());
    let mut sealed_headers = None;
    if let Some(Value::Object(headers)) = settings.get_mut(HEADERS)
        && !headers.is_empty()
    {
        let plain = serde_json::to_vec(headers).map_err(|_| SealError)?;
        sealed_headers = Some(keys.seal(&place("headers", id), &plain)?);
        headers.values_mut().for_each(mask);
    }
    Ok(SealedParts {
        settings: Value::Object(settings).to_string(),
        credential: credential.map(|key| keys.seal(&place("credential", id), key.as_bytes())).transpose()?,
        credential_hint: credential.and_then(hint),
        headers: sealed_headers,
    })
}

/// Returns the written settings of a row, secrets included.
pub(crate) fn open_written(keys: &VaultKeys, row: &ProviderRow) -> Result<WrittenProvider, SealError> {
    let mut written: Map<String, Value> = serde_json::from_str(&row.settings).map_err(|_| SealError)?;
    if let Some(sealed) = &row.headers {
        let plain = keys.open(&place("headers", &row.id), sealed)?;
        let headers = serde_json::from_slice(plain.expose()).map_err(|_| SealError)?;
        written.insert(HEADERS.to_owned(), headers);
    }
    if let Some(sealed) = &row.credential {
        let plain = keys.open(&place("credential", &row.id), sealed)?;
        let key = std::str::from_utf8(plain.expose()).map_err(|_| SealError)?;
        written.insert(API_KEY.to_owned(), Value::String(key.to_owned()));
    }
    Ok(WrittenProvider(written))
}

fn place<'a>(column: &'a str, id: &'a str) -> SealPlace<'a> {
    SealPlace { table: "providers", column, id }
}

/// A reference to the environment is not a secret.
fn is_reference(text: &str) -> bool {
    text.starts_with("${ENV:") && text.ends_with('}')
}

fn mask(value: &mut Value) {
    if !value.as_str().is_some_and(|text| is_reference(text.trim())) {
        *value = Value::String(DOTS.to_owned());
    }
}

/// Returns the last four characters of a key of at least `HINTED_BYTES_MIN` bytes, or the whole text of a reference.
fn hint(key: &str) -> Option<String> {
    if is_reference(key) {
        return Some(key.to_owned());
    }
    let tail = key.char_indices().rev().nth(3).and_then(|(at, _)| key.get(at..));
    tail.filter(|_| key.len() >= HINTED_BYTES_MIN).map(str::to_owned)
}

const API_KEY: &str = "api_key";
const HEADERS: &str = "headers";
const HINTED_BYTES_MIN: usize = 20;
