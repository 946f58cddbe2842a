//! The API view of a provider instance.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::clock::unix_ms;
use shared::id::{CredentialNumber, PrincipalId};
use shared::routing::ProviderInstance;

use super::sealed::StoredKey;
use super::{ConnectedProvider, Extensions, ShownSignIn, SignIns, StoredProvider};
use crate::common::credential::TokenStanding;
use crate::db::providers::Binding;
use crate::routing::catalog::evidence::CatalogEvidence;
use crate::routing::config::{ConnectionAuth, Provider, Routing, lacking, shown_provider};

/// The store that an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Its extension is disabled; holds the reason.
    ExtensionDisabled(String),
    /// Its OAuth sign-in is missing or can no longer be used; holds the reason.
    NotConnected(&'static str),
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
            Self::Disabled | Self::ExtensionDisabled(_) => "disabled",
            Self::NotConnected(_) => NOT_CONNECTED,
            Self::Shadowed(_) => "shadowed",
            Self::Faulty(_) => "faulty",
        }
    }

    /// Returns a readable reason why the instance receives no requests.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Disabled => Some("It is disabled.".to_owned()),
            Self::NotConnected(why) => Some(format!("The provider cannot be used: {why}.")),
            Self::Shadowed(what) => Some(format!(
                "The configuration file has {what} with this name. Rename or delete that, or delete this one."
            )),
            Self::Faulty(why) | Self::ExtensionDisabled(why) => Some(why.clone()),
        }
    }

    /// Returns the standing of a parsed instance that is not shadowed.
    pub(crate) fn of(provider: &Provider) -> Self {
        match provider.auth {
            _ if provider.disabled => Self::Disabled,
            ConnectionAuth::Oauth => {
                provider.oauth_tokens(unix_ms()).map_or_else(Self::NotConnected, |_| Self::Ready)
            }
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
    pub(crate) fn of_row(
        held: &Arc<StoredProvider>,
        shadow: Option<&'static str>,
        sign_ins: &SignIns,
    ) -> Self {
        let id = held.row.id.clone();
        let mut read = held.read.clone();
        if let (Ok(provider), None) = (&mut read, shadow) {
            sign_ins.fill(provider);
        }
        let standing = match (&read, shadow) {
            (_, Some(what)) => ProviderStanding::Shadowed(what),
            (Ok(provider), None) => ProviderStanding::of(provider),
            (Err(reason), None) => ProviderStanding::Faulty(reason.clone()),
        };
        Self {
            place: if shadow.is_some() { format!("{id}+") } else { id.clone() },
            id,
            source: ObjectSource::Api,
            standing,
            read: read.ok(),
            held: Some(Arc::clone(held)),
        }
    }

    /// Connects the instance to its extension, if it belongs to one.
    pub(crate) fn connected(mut self, extensions: &Extensions) -> Self {
        // A sign-in is found unusable as long as its extension is unknown.
        let may_work = matches!(self.standing, ProviderStanding::Ready | ProviderStanding::NotConnected(_));
        let Some(provider) = self.read.as_ref().filter(|_| may_work) else { return self };
        match extensions.connect(provider) {
            ConnectedProvider::Ready(provider) => {
                self.standing = ProviderStanding::of(&provider);
                self.read = Some(provider);
            }
            ConnectedProvider::Disabled(provider, why) => {
                self.read = Some(provider);
                self.standing = ProviderStanding::ExtensionDisabled(why);
            }
            ConnectedProvider::Faulty(why) => self.standing = ProviderStanding::Faulty(why),
        }
        self
    }

    /// Returns the name of the extension that the instance belongs to.
    pub(crate) fn extension(&self) -> Option<&str> {
        self.read.as_ref()?.extension.as_ref().map(|link| link.name.as_str())
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
        let of_row = self.held.as_ref().and_then(|held| held.row.owner.as_deref());
        of_row.or_else(|| self.read.as_ref()?.owner.as_ref().map(PrincipalId::as_str))
    }

    /// True if the gateway connected it because it needs no account.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.row.is_anonymous)
    }

    /// Returns the version of the row.
    pub(crate) fn version(&self) -> Option<u64> {
        self.held.as_ref().map(|held| held.row.version)
    }

    /// Returns the instance as the API shows it, without secrets.
    pub(crate) fn shown(&self) -> ShownProvider {
        let mut settings = self.read.as_deref().map(shown_provider).unwrap_or_default();
        if let Some(held) = &self.held {
            let written: Map<String, Value> = serde_json::from_str(&held.row.settings).unwrap_or_default();
            // `type` accepts several spellings; show the canonical one where the row parses.
            settings.extend(written.into_iter().filter(|(name, _)| name != "type" || self.read.is_none()));
            settings.retain(|name, _| !ShownProvider::MEMBERS.contains(&name.as_str()));
        }
        let held = self.held.as_deref();
        ShownProvider {
            id: self.id.clone(),
            source: self.source,
            state: self.standing.name(),
            reason: self.standing.reason(),
            shadowed: matches!(self.standing, ProviderStanding::Shadowed(_)),
            auth: self.auth(),
            owner: self.owner().map(str::to_owned),
            anonymous: self.is_anonymous(),
            credential: self.credential(),
            api_keys: self.api_keys(),
            version: self.version(),
            bindings: held.map(|held| held.bindings.clone()),
            created_at_ms: held.map(|held| held.row.created_at_ms),
            updated_at_ms: held.map(|held| held.row.updated_at_ms),
            settings,
            token: None,
            sign_in: None,
            evidence: None,
        }
    }

    fn auth(&self) -> Option<ConnectionAuth> {
        let stored = self.held.as_ref().and_then(|held| ConnectionAuth::named(&held.row.auth));
        stored.or_else(|| self.read.as_ref().map(|provider| provider.auth))
    }

    /// Describes the credential without revealing it: presence, last four characters, or the reference to the
    /// environment.
    fn credential(&self) -> ShownCredential {
        let Some(held) = &self.held else {
            let set = self.read.as_ref().is_some_and(|provider| provider.keys().next().is_some());
            return ShownCredential { set, of_row: None };
        };
        let row = &held.row;
        let (reference, last_four) = match &row.credential_hint {
            Some(hint) if hint.starts_with("${") => (Some(hint.clone()), None),
            hint => (None, hint.clone()),
        };
        let of_row = StoredCredential { last_four, reference, updated_at_ms: row.credential_at_ms };
        ShownCredential { set: row.credential.is_some(), of_row: Some(of_row) }
    }
}

impl ProviderConnection {
    /// Describes each key without revealing it, if there are several.
    fn api_keys(&self) -> Option<Vec<ShownKey>> {
        let of_row = self.held.as_ref().and_then(|held| {
            let settings: Map<String, Value> = serde_json::from_str(&held.row.settings).ok()?;
            let stored = StoredKey::listed(&settings)?.into_iter();
            Some(stored.map(|key| ShownKey::of(key.id, key.hint)).collect())
        });
        let of_file = || {
            let keys = &self.read.as_ref()?.api_keys;
            let shown = keys.iter().map(|key| ShownKey::of(key.number, key.hint.clone())).collect();
            Some(shown).filter(|shown: &Vec<_>| !shown.is_empty())
        };
        of_row.or_else(of_file)
    }
}

/// One of several keys of a provider, which is never shown.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ProviderKey"))]
pub(crate) struct ShownKey {
    /// `c1`, `c2` and so on, as in the traces of requests. A patch keeps the key by it.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) id: CredentialNumber,
    /// Its last four characters; null if it is short or a reference.
    last_four: Option<String>,
    /// The variable or the file that contains it, as `${ENV:NAME}` or `${FILE:/path}`; null if it is stored itself.
    reference: Option<String>,
    /// `ready`; `resting`, if the upstream limits its rate of requests; `open`, if its circuit is; `rejected`, if the
    /// upstream rejected it when it was last used; or null in answers other than those of `GET providers`, and while the
    /// provider receives no requests.
    #[cfg_attr(test, schemars(extend("enum" = ["ready", "resting", "open", "rejected", null])))]
    pub(crate) state: Option<&'static str>,
    /// The time until it receives requests again, in milliseconds; null if it does now.
    pub(crate) wait_ms: Option<u64>,
}

impl ShownKey {
    fn of(id: CredentialNumber, hint: Option<String>) -> Self {
        let (reference, last_four) = match hint {
            Some(hint) if hint.starts_with("${") => (Some(hint), None),
            hint => (None, hint),
        };
        Self { id, last_four, reference, state: None, wait_ms: None }
    }

    /// Adds the state of the key in routing.
    pub(crate) fn standing(&mut self, instance: &ProviderInstance, now_ms: u64) {
        let of_key = |lane: &&ProviderInstance| lane.lane.as_ref().is_some_and(|lane| lane.number == self.id);
        let Some(lane) = instance.each_lane().find(of_key) else { return };
        let open_ms = lane.circuits.instance().open_ms(now_ms, &lane.circuit_policy);
        let rest_ms = lane.circuits.rests().all(now_ms).iter().map(|rest| rest.wait_ms).max();
        (self.state, self.wait_ms) = match (lane.rejection(), open_ms, rest_ms) {
            (Some(_), open_ms, _) => (Some("rejected"), open_ms),
            (None, Some(open_ms), _) => (Some("open"), Some(open_ms)),
            (None, None, Some(rest_ms)) => (Some("resting"), Some(rest_ms)),
            (None, None, None) => (Some("ready"), None),
        };
    }
}

/// A provider. If its state is `faulty`, the settings may be incomplete.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Provider"))]
pub(crate) struct ShownProvider {
    id: String,
    source: ObjectSource,
    /// `ready`, `disabled`, `not_connected`, `shadowed` or `faulty`. Only a ready provider receives requests.
    #[cfg_attr(test, schemars(extend("enum" = ["ready", "disabled", "not_connected", "shadowed", "faulty"])))]
    pub(crate) state: &'static str,
    /// The reason why it receives no requests; null if it is ready.
    pub(crate) reason: Option<String>,
    /// True if the configuration file has a provider or an endpoint of the same name.
    shadowed: bool,
    /// The means of signing in; null if the stored settings cannot be read.
    auth: Option<ConnectionAuth>,
    /// The ID of the human to whom it is private; null if all may use it.
    owner: Option<String>,
    /// True if the gateway connected it because it needs no account (`GET anonymous-providers`). Its models are found by
    /// their exact IDs only.
    anonymous: bool,
    credential: ShownCredential,
    /// Its keys. Absent if it has one or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_keys: Option<Vec<ShownKey>>,
    /// Null for a provider of the configuration file.
    version: Option<u64>,
    /// The projects that may use it although it is private. Absent for a provider of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    bindings: Option<Vec<Binding>>,
    /// In milliseconds since the Unix epoch. Absent for a provider of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at_ms: Option<u64>,
    /// In milliseconds since the Unix epoch. Absent for a provider of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at_ms: Option<u64>,
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "crate::routing::config::ProviderSettings"))]
    settings: Map<String, Value>,
    /// The access token. Absent for a provider that uses none, and in answers other than those of `GET providers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<TokenStanding>,
    /// The OAuth sign-in. Absent for a provider that uses none, and in answers other than those of `GET providers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sign_in: Option<ShownSignIn>,
    /// The evidence of how it works. Absent if it is shadowed, and in answers other than those of `GET providers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) evidence: Option<CatalogEvidence>,
}

impl ShownProvider {
    /// The members that no written setting replaces.
    const MEMBERS: [&'static str; 17] = [
        "id",
        "source",
        "state",
        "reason",
        "shadowed",
        "auth",
        "owner",
        "anonymous",
        "credential",
        "api_keys",
        "version",
        "bindings",
        "created_at_ms",
        "updated_at_ms",
        "token",
        "sign_in",
        "evidence",
    ];
}

/// The credential of a provider, which is never shown.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Credential"))]
struct ShownCredential {
    /// True if there is one.
    set: bool,
    #[serde(flatten)]
    of_row: Option<StoredCredential>,
}

/// A credential that was stored through the API.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StoredCredential {
    /// Its last four characters; null if there is none, it is short, or it is a reference.
    last_four: Option<String>,
    /// The variable that contains it, as `${ENV:NAME}`; null if it is stored itself.
    reference: Option<String>,
    /// The time at which it was last set, in milliseconds since the Unix epoch.
    updated_at_ms: Option<u64>,
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
