//! Commands that change provider instances.

use std::sync::Arc;

use serde_json::json;

use super::endpoints::with_further_name;
use super::lookup::connected;
use super::{Command, CommandRefusal, Done, Write};
use crate::common::change::FieldChange;
use crate::db::audit::AuditEntry;
use crate::db::providers::{self, ProviderRow};
use crate::db::{endpoints, extensions, oauth, principals};
use crate::routing::config::{API_KEY, API_KEYS, ConnectionAuth, FieldFault, WrittenProvider};
use crate::routing::connection::{
    ProviderConnection, SignIns, StoredProvider, open_written, seal_written, shadow_of,
};
use crate::routing::publish::Touched;

/// Creates a provider instance.
#[derive(Debug)]
pub(crate) struct CreateProvider {
    pub(crate) id: String,
    pub(crate) auth: Option<ConnectionAuth>,
    pub(crate) owner: Option<String>,
    pub(crate) written: WrittenProvider,
    /// True for a provider that the gateway connects because it needs no account.
    pub(crate) is_anonymous: bool,
}

/// Changes a provider instance.
#[derive(Debug)]
pub(crate) struct EditProvider {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) auth: Option<ConnectionAuth>,
    pub(crate) owner: FieldChange<String>,
    pub(crate) patch: WrittenProvider,
    /// True to apply the command even if the configuration file shadows the instance.
    pub(crate) shadowed: bool,
}

/// Deletes a provider instance that no endpoint uses.
#[derive(Debug)]
pub(crate) struct DeleteProvider {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    /// True to apply the command even if the configuration file shadows the instance.
    pub(crate) shadowed: bool,
}

impl Command for CreateProvider {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        if RESERVED.contains(&self.id.as_str()) {
            return Err(CommandRefusal::invalid(
                "id",
                format!("'{}' is a path of this API; choose another ID.", self.id),
            ));
        }
        is_free(write, &self.id)?;
        owner_exists(write, self.owner.as_deref())?;
        // A sign-in of an earlier instance of this name, which the configuration file had, must not reach this one.
        oauth::delete(write.db, &self.id)?;
        let blank = ProviderRow {
            id: self.id.clone(),
            auth: String::new(),
            owner: self.owner.clone(),
            settings: String::new(),
            credential: None,
            credential_hint: None,
            credential_at_ms: Some(write.now_ms),
            headers: None,
            is_anonymous: self.is_anonymous,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        let mut written = self.written.clone().without_nulls();
        written.resolve_keys(&mut WrittenProvider::default()).map_err(|fault| refusal(&[fault]))?;
        let connection = store(write, blank, self.auth, &written)?;
        let shown = connection.shown();
        let audit = AuditEntry::done("provider.create", "provider", &connection.id).after(json!(shown));
        Ok(Done::new(&shown, audit, Touched::ROUTING)?.version(connection.version()))
    }
}

impl Command for EditProvider {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version, self.shadowed)?;
        let Some(held) = &before.held else { return Err(CommandRefusal::not_found("provider", &self.id)) };
        if let FieldChange::Set(owner) = &self.owner {
            owner_exists(write, Some(owner))?;
        }
        let names_key = [API_KEY, API_KEYS].into_iter().any(|name| self.patch.0.contains_key(name));
        let mut written = open_written(write.keys, &held.row)?;
        let mut patch = self.patch.clone();
        patch.resolve_keys(&mut written).map_err(|fault| refusal(&[fault]))?;
        written.merge(patch);
        let auth = self.auth.or_else(|| held.chosen_auth());
        let mut row = held.row.clone();
        row.owner = self.owner.of(row.owner);
        row.version += 1;
        row.updated_at_ms = write.now_ms;
        if names_key {
            row.credential_at_ms = Some(write.now_ms);
        }
        if row.owner.is_none() {
            providers::unbind_all(write.db, &row.id)?;
        }
        if row.owner != held.row.owner {
            // The account of one human is not handed to another, nor to all.
            oauth::delete(write.db, &row.id)?;
        }
        let after = store(write, row, auth, &written)?;
        let shown = after.shown();
        let audit = AuditEntry::done("provider.edit", "provider", &after.id)
            .before(json!(before.shown()))
            .after(json!(shown));
        Ok(Done::new(&shown, audit, Touched::ROUTING)?.version(after.version()))
    }
}

impl Command for DeleteProvider {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version, self.shadowed)?;
        let users = endpoints::with_provider(write.db, &self.id)?;
        let in_file = write.file.providers.iter().any(|provider| provider.id.as_str() == self.id);
        if !users.is_empty() && !in_file {
            return Err(CommandRefusal::conflict(format!(
                "Endpoints use it: {}. Remove it from them first.",
                users.join(", ")
            )));
        }
        if !in_file {
            oauth::delete(write.db, &self.id)?;
        }
        providers::delete(write.db, &self.id)?;
        let audit = AuditEntry::done("provider.delete", "provider", &self.id).before(json!(before.shown()));
        Ok(Done::without_output(audit, Touched::ROUTING))
    }
}

/// Returns the database's instance `id` at the version that the caller expects. Refuses an instance of the
/// configuration file.
pub(super) fn expect(
    write: &Write<'_>,
    id: &str,
    if_version: Option<u64>,
    shadowed: bool,
) -> Result<ProviderConnection, CommandRefusal> {
    let in_file = write.file.providers.iter().any(|provider| provider.id.as_str() == id);
    if in_file && !shadowed {
        return Err(CommandRefusal::conflict(format!(
            "The provider '{id}' comes from the configuration file. Change it there."
        )));
    }
    let row = providers::find(write.db, id)?.ok_or_else(|| CommandRefusal::not_found("provider", id))?;
    CommandRefusal::if_stale(if_version, row.version)?;
    let bindings = providers::bindings(write.db, id)?;
    let held = StoredProvider::of(row, bindings, write.keys, write.environment);
    let sign_ins = SignIns::of_one(write.db, write.keys, id)?;
    let connection = ProviderConnection::of_row(&Arc::new(held), shadow_of(write.file, id), &sign_ins);
    Ok(connected(write, connection)?)
}

/// Refuses a name that a provider or an endpoint already has.
pub(super) fn is_free(write: &Write<'_>, name: &str) -> Result<(), CommandRefusal> {
    let taken = |what: &str| {
        let message = format!(
            "{what} is already called '{name}', so a selector would be ambiguous. Choose another name."
        );
        Err(CommandRefusal::conflict(message))
    };
    if let Some(what) = shadow_of(write.file, name) {
        return taken(&format!("In the configuration file, {what}"));
    }
    if providers::find(write.db, name)?.is_some() {
        return taken("A provider");
    }
    if endpoints::find(write.db, name)?.is_some() {
        return taken("An endpoint");
    }
    if let Some(endpoint) = with_further_name(write, name)? {
        return taken(&format!("The endpoint '{endpoint}'"));
    }
    Ok(())
}

pub(super) fn owner_exists(write: &Write<'_>, owner: Option<&str>) -> Result<(), CommandRefusal> {
    match owner {
        Some(id) if principals::find(write.db, id)?.is_none() => {
            Err(CommandRefusal::invalid("owner", format!("There is no principal '{id}'.")))
        }
        _ => Ok(()),
    }
}

/// Validates the written provider instance and stores it with its secrets sealed.
fn store(
    write: &Write<'_>,
    row: ProviderRow,
    auth: Option<ConnectionAuth>,
    written: &WrittenProvider,
) -> Result<ProviderConnection, CommandRefusal> {
    let bindings = providers::bindings(write.db, &row.id)?;
    let read = StoredProvider::read(&row, &bindings, written, auth, write.environment)
        .map_err(|faults| refusal(&faults))?;
    if let Some(link) = &read.extension
        && extensions::find(write.db, &link.name)?.is_none()
    {
        let message = format!("There is no extension '{}'. Add it with POST extensions first.", link.name);
        return Err(CommandRefusal::invalid("extension", message));
    }
    let sealed = seal_written(write.keys, &row.id, written)?;
    let row = ProviderRow {
        auth: read.auth.name().to_owned(),
        settings: sealed.settings,
        credential_at_ms: row.credential_at_ms.filter(|_| sealed.credential.is_some()),
        credential_hint: sealed.credential_hint,
        // One with a credential is an operator's.
        is_anonymous: row.is_anonymous && sealed.credential.is_none() && sealed.headers.is_none(),
        credential: sealed.credential,
        headers: sealed.headers,
        ..row
    };
    providers::put(write.db, &row)?;
    let shadow = shadow_of(write.file, &row.id);
    let sign_ins = SignIns::of_one(write.db, write.keys, &row.id)?;
    let held = Arc::new(StoredProvider { row, bindings, read: Ok(read) });
    Ok(connected(write, ProviderConnection::of_row(&held, shadow, &sign_ins))?)
}

/// Combines the faults into one message; the first fault's field is the invalid parameter.
fn refusal(faults: &[FieldFault]) -> CommandRefusal {
    let field = faults.first().map(|fault| fault.field.clone()).unwrap_or_default();
    let lines = faults.iter().take(FAULTS_TOLD_MAX).map(|fault| {
        if fault.field.is_empty() {
            fault.message.clone()
        } else {
            format!("{}: {}", fault.field, fault.message)
        }
    });
    let mut message = lines.collect::<Vec<_>>().join("; ");
    if let Some(more) = faults.len().checked_sub(FAULTS_TOLD_MAX).filter(|more| *more > 0) {
        message.push_str(&format!("; and {more} more"));
    }
    CommandRefusal::invalid(field, message)
}

/// Ids that would collide with other paths below `providers`.
const RESERVED: &[&str] = &["detect"];
const FAULTS_TOLD_MAX: usize = 10;
