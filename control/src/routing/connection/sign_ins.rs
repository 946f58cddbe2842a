//! The OAuth sign-ins of provider instances, opened, and the API view of them.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use shared::id::PrincipalId;

use crate::common::credential::oauth::OauthConnection;
use crate::common::vault::VaultKeys;
use crate::db::engine::{Db, DbResult};
use crate::db::oauth;
use crate::routing::config::{ConnectionAuth, Provider};

/// The OAuth sign-ins by provider instance.
#[derive(Debug, Default)]
pub(crate) struct SignIns(HashMap<String, Arc<OauthConnection>>);

impl SignIns {
    /// Reads and opens all sign-ins.
    pub(crate) fn read(db: &Db, keys: &VaultKeys) -> DbResult<Self> {
        Ok(Self::of(oauth::all(db, keys)?))
    }

    /// Reads and opens the sign-in of one provider instance.
    pub(crate) fn of_one(db: &Db, keys: &VaultKeys, provider: &str) -> DbResult<Self> {
        Ok(Self::of(oauth::find(db, keys, provider)?))
    }

    fn of(connections: impl IntoIterator<Item = OauthConnection>) -> Self {
        let named = |connection: OauthConnection| (connection.provider.clone(), Arc::new(connection));
        Self(connections.into_iter().map(named).collect())
    }

    /// Adds its sign-in to an instance that uses OAuth. The human who signed in owns the instance, so that it stays
    /// private even if the configuration file defines it.
    pub(crate) fn fill(&self, provider: &mut Arc<Provider>) {
        if provider.auth != ConnectionAuth::Oauth {
            return;
        }
        if let Some(connection) = self.0.get(provider.id.as_str()) {
            let provider = Arc::make_mut(provider);
            provider.owner.get_or_insert_with(|| PrincipalId::new(connection.owner.as_str()));
            provider.signed_in = Some(Arc::clone(connection));
        }
    }
}

/// The OAuth sign-in of a provider.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OauthSignIn"))]
pub(crate) struct ShownSignIn {
    /// `none`, `waiting` for a human to consent, `connected`, `expiring` if its token cannot be renewed at the moment or
    /// at all, or `broken` if it must be connected again.
    #[cfg_attr(test, schemars(extend("enum" = ["none", "waiting", "connected", "expiring", "broken"])))]
    pub(crate) state: &'static str,
    /// The account as the vendor names it; null if unknown.
    pub(crate) account: Option<String>,
    /// The granted scopes.
    pub(crate) scopes: Vec<String>,
    /// The expiry of the access token, in milliseconds since the Unix epoch; null if there is none or it is unknown.
    pub(crate) expires_at_ms: Option<u64>,
    /// True if the access token is renewed without a human.
    pub(crate) renewable: bool,
    /// The time of the sign-in, in milliseconds since the Unix epoch; null if there is none.
    pub(crate) connected_at_ms: Option<u64>,
    /// The time of the last renewal, in milliseconds since the Unix epoch; null if there was none.
    pub(crate) refreshed_at_ms: Option<u64>,
    /// The last error since the last success; null if there is none.
    pub(crate) last_error: Option<SignInError>,
    /// True if a sign-in on another device may be possible.
    pub(crate) on_device: bool,
    /// The address to register with the vendor as redirect URI; null if `LLMGW_OAUTH_PUBLIC_BASE_URL` is not set.
    pub(crate) redirect_uri: Option<String>,
    /// The settings that are missing for a sign-in in a browser; null if it is possible.
    pub(crate) lacks: Option<String>,
}

/// An error of a sign-in or of a renewal.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OauthSignInError"))]
pub(crate) struct SignInError {
    /// In milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    pub(crate) message: String,
}

impl ShownSignIn {
    /// Returns the view of the sign-in of `provider`, without what only the process knows about it.
    pub(crate) fn of(provider: &Provider, now_ms: u64) -> Self {
        let held = provider.signed_in.as_deref();
        let usable = provider.oauth_tokens(now_ms).ok();
        let expires_at_ms = held.and_then(|held| held.expires_at_ms);
        let renewable = usable.is_some_and(|tokens| tokens.refresh.is_some());
        let ends_soon = expires_at_ms.is_some_and(|at_ms| at_ms < now_ms.saturating_add(ENDS_SOON_MS));
        let failure = held.and_then(|held| held.failure.clone());
        Self {
            state: match held {
                None => "none",
                Some(_) if usable.is_none() => "broken",
                Some(_) if !renewable && ends_soon => "expiring",
                Some(_) => "connected",
            },
            account: held.and_then(|held| held.account.clone()),
            scopes: held.map(|held| held.scopes.clone()).unwrap_or_default(),
            expires_at_ms,
            renewable,
            connected_at_ms: held.map(|held| held.connected_at_ms),
            refreshed_at_ms: held.and_then(|held| held.refreshed_at_ms),
            last_error: failure.map(SignInError::of),
            on_device: false,
            redirect_uri: None,
            lacks: None,
        }
    }
}

impl SignInError {
    pub(crate) fn of((at_ms, message): (u64, String)) -> Self {
        Self { at_ms, message }
    }
}

/// A sign-in that cannot be renewed is shown as expiring for its last day.
const ENDS_SOON_MS: u64 = 86_400_000;
