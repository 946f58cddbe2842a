//! Splits the written settings of a provider instance into visible settings and sealed secrets, and joins them again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::id::CredentialNumber;

use crate::common::vault::{SealError, SealPlace, VaultKeys};
use crate::db::providers::ProviderRow;
use crate::routing::config::{API_KEY, API_KEYS, DOTS, WrittenProvider, is_reference, key_hint};

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
    let single = settings.remove(API_KEY);
    let single = single.as_ref().and_then(Value::as_str).map(str::trim).filter(|key| !key.is_empty());
    let several = settings.remove(API_KEYS).as_ref().and_then(written_keys);
    let credential = match &several {
        // The settings list what may be shown of each key, which also marks the credential as a list.
        Some(keys) => {
            settings.insert(API_KEYS.to_owned(), keys.iter().map(StoredKey::of).collect());
            Some(serde_json::to_string(keys).map_err(|_| SealError)?)
        }
        None => single.map(str::to_owned),
    };
    let headers = WrittenHeaders::take(&mut settings);
    let sealed_headers = headers.map(|headers| {
        let plain = serde_json::to_vec(&headers).map_err(|_| SealError)?;
        keys.seal(&place("headers", id), &plain)
    });
    Ok(SealedParts {
        settings: Value::Object(settings).to_string(),
        credential: credential.map(|key| keys.seal(&place("credential", id), key.as_bytes())).transpose()?,
        credential_hint: single.filter(|_| several.is_none()).and_then(key_hint),
        headers: sealed_headers.transpose()?,
    })
}

/// Returns the written settings of a row, secrets included.
pub(crate) fn open_written(keys: &VaultKeys, row: &ProviderRow) -> Result<WrittenProvider, SealError> {
    let mut written: Map<String, Value> = serde_json::from_str(&row.settings).map_err(|_| SealError)?;
    if let Some(sealed) = &row.headers {
        let plain = keys.open(&place("headers", &row.id), sealed)?;
        let headers: WrittenHeaders = serde_json::from_slice(plain.expose()).map_err(|_| SealError)?;
        headers.put_into(&mut written);
    }
    if let Some(sealed) = &row.credential {
        let plain = keys.open(&place("credential", &row.id), sealed)?;
        let key = std::str::from_utf8(plain.expose()).map_err(|_| SealError)?;
        if written.contains_key(API_KEYS) {
            written.insert(API_KEYS.to_owned(), serde_json::from_str(key).map_err(|_| SealError)?);
        } else {
            written.insert(API_KEY.to_owned(), Value::String(key.to_owned()));
        }
    }
    Ok(WrittenProvider(written))
}

fn place<'a>(column: &'a str, id: &'a str) -> SealPlace<'a> {
    SealPlace { table: "providers", column, id }
}

fn mask(value: &mut Value) {
    if !value.as_str().is_some_and(|text| is_reference(text.trim())) {
        *value = Value::String(DOTS.to_owned());
    }
}

/// The headers of a provider instance and of its models, as their sealed column contains them.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenHeaders {
    /// No model has headers. The values are texts, which distinguishes the forms.
    Own(BTreeMap<String, String>),
    /// Those of models by the ID of the model.
    OfModels { own: BTreeMap<String, String>, models: BTreeMap<String, BTreeMap<String, String>> },
}

impl WrittenHeaders {
    /// Takes the headers out of `settings`, where it leaves dots; `None` if there are none.
    fn take(settings: &mut Map<String, Value>) -> Option<Self> {
        let own = taken(settings);
        let models = settings.get_mut(MODELS).and_then(Value::as_array_mut).into_iter().flatten();
        let models: BTreeMap<_, _> = models
            .filter_map(|model| {
                let model = model.as_object_mut()?;
                let id = model.get(ID)?.as_str()?.to_owned();
                Some((id, taken(model))).filter(|(_, headers)| !headers.is_empty())
            })
            .collect();
        match (own.is_empty(), models.is_empty()) {
            (true, true) => None,
            (false, true) => Some(Self::Own(own)),
            (_, false) => Some(Self::OfModels { own, models }),
        }
    }

    fn put_into(self, settings: &mut Map<String, Value>) {
        let (own, mut of_models) = match self {
            Self::Own(own) => (own, BTreeMap::new()),
            Self::OfModels { own, models } => (own, models),
        };
        if !own.is_empty() {
            settings.insert(HEADERS.to_owned(), own.into_iter().collect());
        }
        let models = settings.get_mut(MODELS).and_then(Value::as_array_mut).into_iter().flatten();
        for model in models.filter_map(Value::as_object_mut) {
            let headers = model.get(ID).and_then(Value::as_str).and_then(|id| of_models.remove(id));
            if let Some(headers) = headers {
                model.insert(HEADERS.to_owned(), headers.into_iter().collect());
            }
        }
    }
}

/// Returns the headers of a provider instance or a model, whose values dots replace unless they are references.
fn taken(settings: &mut Map<String, Value>) -> BTreeMap<String, String> {
    let headers = settings.get_mut(HEADERS).and_then(Value::as_object_mut).into_iter().flatten();
    headers
        .map(|(name, value)| {
            let text = value.as_str().unwrap_or_default().to_owned();
            mask(value);
            (name.clone(), text)
        })
        .collect()
}

/// One of several keys, as its provider's credential contains it.
#[derive(Serialize, Deserialize)]
struct WrittenKey {
    id: CredentialNumber,
    key: String,
}

/// The shown part of one of several keys. The settings of its provider contain it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredKey {
    pub(crate) id: CredentialNumber,
    pub(crate) hint: Option<String>,
}

impl StoredKey {
    fn of(written: &WrittenKey) -> Value {
        let shown = Self { id: written.id, hint: key_hint(&written.key) };
        serde_json::to_value(shown).unwrap_or_default()
    }

    /// Returns the keys that stored settings list.
    pub(crate) fn listed(settings: &Map<String, Value>) -> Option<Vec<Self>> {
        serde_json::from_value(settings.get(API_KEYS)?.clone()).ok()
    }
}

/// Reads a list of keys; `None` if there is no list. A key without an ID gets that of its place.
fn written_keys(written: &Value) -> Option<Vec<WrittenKey>> {
    let items = written.as_array()?.iter().zip(1..);
    let keys = items.map(|(item, place)| {
        let number = item.get("id").and_then(Value::as_str).and_then(CredentialNumber::named);
        let text = item.as_str().or_else(|| item.get("key")?.as_str());
        let key = text.unwrap_or_default().trim().to_owned();
        WrittenKey { id: number.unwrap_or(CredentialNumber(place)), key }
    });
    Some(keys.collect())
}

const HEADERS: &str = "headers";
const MODELS: &str = "models";
const ID: &str = "id";
