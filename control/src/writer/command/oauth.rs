//! Commands that store, refresh and remove the OAuth sign-ins of provider instances.
//!
//! A refresh is marked before it is sent, and the mark goes with the transaction that stores its tokens. A mark that is
//! found later therefore shows a refresh whose result may be lost, even after `kill -9`.

use std::sync::Arc;

use serde_json::json;

use super::lookup::find;
use super::providers::owner_exists;
use super::{Command, CommandRefusal, Done, Write};
use crate::common::credential::oauth::{OauthConnection, OauthTokens, TokenSet};
use crate::db::audit::AuditEntry;
use crate::db::oauth::{self, PutError};
use crate::db::providers;
use crate::routing::config::{ConnectionAuth, Provider};
use crate::routing::publish::Touched;

/// Stores the tokens of a completed sign-in, in place of an earlier one.
#[derive(Debug)]
pub(crate) struct KeepSignIn {
    pub(crate) provider: String,
    /// The human who signed in.
    pub(crate) owner: String,
    /// The binding of the issuer that granted the tokens.
    pub(crate) binding: String,
    pub(crate) tokens: TokenSet,
    pub(crate) account: Option<String>,
    /// The scopes that were requested, granted unless the vendor states others.
    pub(crate) scopes: Vec<String>,
}

/// Marks a refresh as begun.
#[derive(Debug)]
pub(crate) struct BeginRefresh {
    pub(crate) provider: String,
    pub(crate) serial: u64,
}

/// Replaces the tokens by those of a refresh.
#[derive(Debug)]
pub(crate) struct KeepRefreshed {
    pub(crate) provider: String,
    /// The serial number of the tokens that were refreshed.
    pub(crate) serial: u64,
    pub(crate) tokens: TokenSet,
}

/// Removes the tokens, because the vendor refused to refresh them.
#[derive(Debug)]
pub(crate) struct RefuseRefresh {
    pub(crate) provider: String,
    /// The serial number of the tokens that were refused.
    pub(crate) serial: u64,
    pub(crate) reason: String,
}

/// Removes a sign-in.
#[derive(Debug)]
pub(crate) struct ForgetSignIn {
    pub(crate) provider: String,
}

impl Command for KeepSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let provider = connectable(write, &self.provider)?;
        let issuer = provider.issuer.as_ref().filter(|_| provider.auth == ConnectionAuth::Oauth);
        if issuer.is_none_or(|issuer| issuer.binding(provider.origin.as_ref()) != self.binding) {
            return Err(CommandRefusal::conflict(
                "The settings of the provider were changed during the sign-in. Connect it again.",
            ));
        }
        owner_exists(write, Some(&self.owner))?;
        own(write, &self.provider, &self.owner)?;
        let before = oauth::find(write.db, write.keys, &self.provider)?;
        let connection = OauthConnection {
            owner: self.owner.clone(),
            serial: next_serial(before.as_ref().map_or(0, |before| before.serial), write.now_ms),
            binding: self.binding.clone(),
            account: self.account.clone(),
            scopes: self.tokens.scopes.clone().unwrap_or_else(|| self.scopes.clone()),
            expires_at_ms: expiry(self.tokens.life_s, write.now_ms),
            tokens: Some(OauthTokens {
                access: self.tokens.access.clone(),
                refresh: self.tokens.refresh.clone(),
            }),
            connected_at_ms: write.now_ms,
            refreshed_at_ms: None,
            refresh_began_at_ms: None,
            failure: None,
            provider: self.provider.clone(),
        };
        oauth::put(write.db, write.keys, &connection)?;
        let audit = recorded("provider.connect", &connection);
        Ok(Done::without_output(audit, Touched::ROUTING))
    }
}

impl Command for BeginRefresh {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let mut connection = expect(write, &self.provider, self.serial)?;
        connection.refresh_began_at_ms = Some(write.now_ms);
        oauth::put(write.db, write.keys, &connection)?;
        Ok(Done::unrecorded(Touched::NOTHING))
    }
}

impl Command for KeepRefreshed {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.provider, self.serial)?;
        let kept = before.tokens.and_then(|tokens| tokens.refresh);
        let connection = OauthConnection {
            serial: next_serial(before.serial, write.now_ms),
            scopes: self.tokens.scopes.clone().unwrap_or(before.scopes),
            expires_at_ms: expiry(self.tokens.life_s, write.now_ms),
            tokens: Some(OauthTokens {
                access: self.tokens.access.clone(),
                refresh: self.tokens.refresh.clone().or(kept),
            }),
            refreshed_at_ms: Some(write.now_ms),
            refresh_began_at_ms: None,
            failure: None,
            provider: before.provider,
            owner: before.owner,
            binding: before.binding,
            account: before.account,
            connected_at_ms: before.connected_at_ms,
        };
        oauth::put(write.db, write.keys, &connection)?;
        Ok(Done::without_output(recorded("provider.refresh", &connection), Touched::ROUTING))
    }
}

impl Command for RefuseRefresh {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.provider, self.serial)?;
        let connection = OauthConnection {
            serial: next_serial(before.serial, write.now_ms),
            tokens: None,
            expires_at_ms: None,
            refresh_began_at_ms: None,
            failure: Some((write.now_ms, self.reason.clone())),
            ..before
        };
        oauth::put(write.db, write.keys, &connection)?;
        let audit = recorded("provider.refresh", &connection).refused();
        Ok(Done::without_output(audit, Touched::ROUTING))
    }
}

impl Command for ForgetSignIn {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = oauth::find(write.db, write.keys, &self.provider)?;
        let before =
            before.ok_or_else(|| CommandRefusal::not_found("sign-in at provider", &self.provider))?;
        oauth::delete(write.db, &self.provider)?;
        let entry = AuditEntry::done("provider.disconnect", "provider", &self.provider);
        Ok(Done::without_output(entry.before(described(&before)), Touched::ROUTING))
    }
}

/// Returns the provider instance of the file or of the database that routing uses under this ID.
fn connectable(write: &Write<'_>, id: &str) -> Result<Arc<Provider>, CommandRefusal> {
    let found = find(write, id)?.ok_or_else(|| CommandRefusal::not_found("provider", id))?;
    let reason = found.standing.reason();
    found.read.ok_or_else(|| CommandRefusal::conflict(reason.unwrap_or_default()))
}

/// Makes `owner` the owner of an instance of the database that has none. Refuses one that belongs to another human.
fn own(write: &Write<'_>, provider: &str, owner: &str) -> Result<(), CommandRefusal> {
    let in_file = write.file.providers.iter().any(|known| known.id.as_str() == provider);
    let Some(mut row) = providers::find(write.db, provider)?.filter(|_| !in_file) else { return Ok(()) };
    match &row.owner {
        Some(present) if present == owner => Ok(()),
        Some(present) => Err(CommandRefusal::conflict(format!("The provider belongs to '{present}'."))),
        None => {
            row.owner = Some(owner.to_owned());
            row.version += 1;
            row.updated_at_ms = write.now_ms;
            Ok(providers::put(write.db, &row)?)
        }
    }
}

/// Returns the sign-in, if its tokens are still those with this serial number.
fn expect(write: &Write<'_>, provider: &str, serial: u64) -> Result<OauthConnection, CommandRefusal> {
    let found = oauth::find(write.db, write.keys, provider)?.filter(|found| found.serial == serial);
    found.ok_or_else(|| CommandRefusal::conflict("The sign-in was replaced or removed."))
}

/// Returns a serial number that no earlier sign-in of the instance had, even one whose row was deleted.
fn next_serial(before: u64, now_ms: u64) -> u64 {
    before.saturating_add(1).max(now_ms)
}

fn expiry(life_s: Option<u64>, now_ms: u64) -> Option<u64> {
    life_s.map(|life_s| now_ms.saturating_add(life_s.saturating_mul(1_000)))
}

fn recorded(action: &'static str, connection: &OauthConnection) -> AuditEntry {
    AuditEntry::done(action, "provider", &connection.provider).after(described(connection))
}

/// Describes a sign-in for the audit, without its tokens.
fn described(connection: &OauthConnection) -> serde_json::Value {
    json!({
        "owner": connection.owner,
        "account": connection.account,
        "scopes": connection.scopes,
        "expires_at_ms": connection.expires_at_ms,
        "failure": connection.failure.as_ref().map(|(_, reason)| reason),
    })
}

impl From<PutError> for CommandRefusal {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Seal(error) => error.into(),
            PutError::Sql(error) => error.into(),
        }
    }
}
