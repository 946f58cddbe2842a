//! The API view of a provider instance.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::StoredProvider;
use crate::config::{ConnectionAuth, Provider, Routing, lacking, shown_provider};

/// The store that an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ObjectSource {
    /// The configuration file.
    File,
    /// The database, written through the API.
    Api,
}

/// The routability of a provider instance: ready, or the reason why it receives no requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProviderStanding {
    Ready,
    /// Disabled by its settings.
    Disabled,
    /// OAuth sign-in has not been completed.
    NotConnected,
    /// The file has a provider or an endpoint of the same name; holds which.
    Shadowed(&'static str),
    /// The instance cannot be used as configured; holds the reason.
    Faulty(String),
}

impl ProviderStanding {
    /// Returns the name in the API.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Disabled => "disabled",
            Self::NotConnected => NOT_CONNECTED,
            Self::Shadowed(_) => "shadowed",
            Self::Faulty(_) => "faulty",
        }
    }

    /// Returns a readable reason why the instance receives no requests.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Disabled => Some("It is disabled.".to_owned()),
            Self::NotConnected => {
                Some("Its OAuth sign-in is missing. This release does not support OAuth sign-in.".to_owned())
            }
            Self::Shadowed(what) => Some(format!(
                "The configuration file has {what} with this name. Rename or delete that, or delete this one."
            )),
            Self::Faulty(why) => Some(why.clone()),
        }
    }

    /// Returns the standing of a parsed instance that is not shadowed.
    pub(crate) fn of(provider: &Provider) -> Self {
        match provider.auth {
            _ if provider.disabled => Self::Disabled,
            ConnectionAuth::Oauth => Self::NotConnected,
            ConnectionAuth::ApiKey | ConnectionAuth::Local if provider.lacks_key() => {
                Self::Faulty(lacking(provider))
            }
            ConnectionAuth::ApiKey | ConnectionAuth::Local => Self::Ready,
        }
    }
}

/// A provider instance of the file or of the database.
#[derive(Clone, Debug)]
pub(crate) struct ProviderConnection {
    pub(crate) id: String,
    pub(crate) source: ObjectSource,
    pub(crate) standing: ProviderStanding,
    /// The parsed instance, if it parses.
    pub(crate) read: Option<Arc<Provider>>,
    /// The row of the database. `None` for an instance of the file.
    pub(crate) held: Option<Arc<StoredProvider>>,
    /// The sort key in lists: the id, with a suffix if the file has an instance of the same id, so that it sorts after
    /// that one.
    pub(crate) place: String,
}

impl ProviderConnection {
    /// Builds the view of an instance of the file.
    pub(crate) fn of_file(provider: &Arc<Provider>) -> Self {
        Self {
            id: provider.id.to_string(),
            source: ObjectSource::File,
            standing: ProviderStanding::of(provider),
            read: Some(Arc::clone(provider)),
            held: None,
            place: provider.id.to_string(),
        }
    }

    /// Builds the view of an instance of the database; `shadow` is the kind of file object with the same name.
    pub(crate) fn of_row(held: &Arc<StoredProvider>, shadow: Option<&'static str>) -> Self {
        let id = held.row.id.clone();
        let standing = match (&held.read, shadow) {
            (_, Some(what)) => ProviderStanding::Shadowed(what),
            (Ok(provider), None) => ProviderStanding::of(provider),
            (Err(reason), None) => ProviderStanding::Faulty(reason.clone()),
        };
        Self {
            place: if shadow.is_some() { format!("{id}+") } else { id.clone() },
            id,
            source: ObjectSource::Api,
            standing,
            read: held.read.as_ref().ok().map(Arc::clone),
            held: Some(Arc::clone(held)),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the base URL without trailing slashes.
    pub(crate) fn base_url(&self) -> Option<&str> {
        self.read.as_ref()?.base_url.as_deref().map(|url| url.trim_end_matches('/'))
    }

    /// Returns the human principal that owns the instance.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.held.as_ref().and_then(|held| held.row.owner.as_deref())
    }

    /// Returns the version of the row.
    pub(crate) fn version(&self) -> Option<u64> {
        self.held.as_ref().map(|held| held.row.version)
    }

    /// Returns the instance as JSON, without secrets.
    pub(crate) fn shown(&self) -> Value {
        let mut shown = self.read.as_deref().map(shown_provider).unwrap_or_default();
        let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        if let Some(held) = &self.held {
            let written: Map<String, Value> = serde_json::from_str(&held.row.settings).unwrap_or_default();
            // `type` accepts several spellings; show the canonical one where the row parses.
            let is_kept = |name: &str| name != "type" || self.read.is_none();
            let written = written.into_iter().filter(|(name, _)| is_kept(name));
            written.for_each(|(name, value)| _ = put(&name, value));
            put("bindings", json!(held.bindings));
            put("created_at_ms", json!(held.row.created_at_ms));
            put("updated_at_ms", json!(held.row.updated_at_ms));
        }
        put("id", json!(self.id));
        put("source", json!(self.source));
        put("state", json!(self.standing.name()));
        put("reason", json!(self.standing.reason()));
        put("shadowed", json!(matches!(self.standing, ProviderStanding::Shadowed(_))));
        put("auth", json!(self.auth()));
        put("owner", json!(self.owner()));
        put("credential", self.credential());
        put("version", json!(self.version()));
        Value::Object(shown)
    }

    fn auth(&self) -> Option<ConnectionAuth> {
        let stored = self.held.as_ref().and_then(|held| ConnectionAuth::named(&held.row.auth));
        stored.or_else(|| self.read.as_ref().map(|provider| provider.auth))
    }

    /// Describes the credential without revealing it: presence, last four characters, or the reference to the
    /// environment.
    fn credential(&self) -> Value {
        let Some(held) = &self.held else {
            return json!({"set": self.read.as_ref().is_some_and(|provider| provider.api_key.is_some())});
        };
        let row = &held.row;
        let reference = row.credential_hint.as_deref().filter(|hint| hint.starts_with("${"));
        let last_four = row.credential_hint.as_deref().filter(|_| reference.is_none());
        json!({
            "set": row.credential.is_some(),
            "last_four": last_four,
            "reference": reference,
            "updated_at_ms": row.credential_at_ms,
        })
    }
}

/// Returns the kind of file object that is called `name`, if any.
pub(crate) fn shadow_of(file: &Routing, name: &str) -> Option<&'static str> {
    if file.providers.iter().any(|provider| provider.id.as_str() == name) {
        Some(A_PROVIDER)
    } else if file.endpoints.iter().any(|endpoint| endpoint.name.as_str() == name) {
        Some(AN_ENDPOINT)
    } else {
        None
    }
}

pub(super) const A_PROVIDER: &str = "a provider";
pub(super) const AN_ENDPOINT: &str = "an endpoint";
pub(crate) const NOT_CONNECTED: &str = "not_connected";
