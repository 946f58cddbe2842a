//! What changes of a provider instance mean.

use std::sync::Arc;

use serde_json::Value;

use super::{Command, Done, Refusal, Write};
use crate::change::Change;
use crate::config::{ConnectionAuth, FieldFault, WrittenProvider};
use crate::connection::{Connection, Held, open_written, seal_written, shadow_of};
use crate::publish::Touched;
use crate::store::audit::Entry;
use crate::store::providers::{self, ProviderRow};
use crate::store::{endpoints, principals};

/// Makes a provider instance.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) id: String,
    pub(crate) auth: Option<ConnectionAuth>,
    pub(crate) owner: Option<String>,
    pub(crate) written: WrittenProvider,
}

/// Changes one.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) auth: Option<ConnectionAuth>,
    pub(crate) owner: Change<String>,
    pub(crate) patch: WrittenProvider,
    /// One that the file shadows may be meant.
    pub(crate) shadowed: bool,
}

/// Takes one away that no endpoint uses.
#[derive(Debug)]
pub(crate) struct Delete {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    /// One that the file shadows may be meant.
    pub(crate) shadowed: bool,
}

impl Command for Create {
    type Output = Value;

    fn apply(self, write: &Write<'_>) -> Result<Done<Value>, Refusal> {
        if RESERVED.contains(&self.id.as_str()) {
            return Err(Refusal::invalid(
                "id",
                format!("'{}' is a path of this API; take another id.", self.id),
            ));
        }
        is_free(write, &self.id)?;
        owner_exists(write, self.owner.as_deref())?;
        let blank = ProviderRow {
            id: self.id,
            auth: String::new(),
            owner: self.owner,
            settings: String::new(),
            credential: None,
            credential_hint: None,
            credential_at_ms: Some(write.now_ms),
            headers: None,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        let connection = store(write, blank, self.auth, &self.written.without_nulls())?;
        let shown = connection.shown();
        let audit = Entry::done("provider.create", "provider", &connection.id).after(shown.clone());
        Ok(Done { version: connection.version(), output: shown, audit, touched: Touched::ROUTING })
    }
}

impl Command for Edit {
    type Output = Value;

    fn apply(self, write: &Write<'_>) -> Result<Done<Value>, Refusal> {
        let before = expect(write, &self.id, self.if_version, self.shadowed)?;
        let Some(held) = &before.held else { return Err(Refusal::not_found("provider", &self.id)) };
        if let Change::Set(owner) = &self.owner {
            owner_exists(write, Some(owner))?;
        }
        let names_key = self.patch.0.contains_key("api_key");
        let mut written = open_written(write.keys, &held.row)?;
        written.merge(self.patch);
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
        let after = store(write, row, auth, &written)?;
        let shown = after.shown();
        let audit =
            Entry::done("provider.edit", "provider", &after.id).before(before.shown()).after(shown.clone());
        Ok(Done { version: after.version(), output: shown, audit, touched: Touched::ROUTING })
    }
}

impl Command for Delete {
    type Output = ();

    fn apply(self, write: &Write<'_>) -> Result<Done<()>, Refusal> {
        let before = expect(write, &self.id, self.if_version, self.shadowed)?;
        let users = endpoints::with_provider(write.db, &self.id)?;
        let in_file = write.file.providers.iter().any(|provider| provider.id.as_str() == self.id);
        if !users.is_empty() && !in_file {
            return Err(Refusal::conflict(format!(
                "Endpoints use it: {}. Take it out of them first.",
                users.join(", ")
            )));
        }
        providers::delete(write.db, &self.id)?;
        let audit = Entry::done("provider.delete", "provider", &self.id).before(before.shown());
        Ok(Done { output: (), version: None, audit, touched: Touched::ROUTING })
    }
}

/// The instance of the database called `id`, as the caller saw it. One of the file is not to be changed here.
pub(super) fn expect(
    write: &Write<'_>,
    id: &str,
    if_version: Option<u64>,
    shadowed: bool,
) -> Result<Connection, Refusal> {
    let in_file = write.file.providers.iter().any(|provider| provider.id.as_str() == id);
    if in_file && !shadowed {
        return Err(Refusal::conflict(format!(
            "The provider '{id}' comes from the configuration file. Change it there."
        )));
    }
    let row = providers::find(write.db, id)?.ok_or_else(|| Refusal::not_found("provider", id))?;
    Refusal::if_stale(if_version, row.version)?;
    let bindings = providers::bindings(write.db, id)?;
    let held = Held::of(row, bindings, write.keys, write.environment);
    Ok(Connection::of_row(&Arc::new(held), shadow_of(write.file, id)))
}

/// Refuses a name that something already has.
pub(super) fn is_free(write: &Write<'_>, name: &str) -> Result<(), Refusal> {
    let taken = |what: &str| {
        let message =
            format!("{what} is called '{name}' already; a selector could mean both. Take another name.");
        Err(Refusal::conflict(message))
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
    Ok(())
}

fn owner_exists(write: &Write<'_>, owner: Option<&str>) -> Result<(), Refusal> {
    match owner {
        Some(id) if principals::find(write.db, id)?.is_none() => {
            Err(Refusal::invalid("owner", format!("There is no principal '{id}'.")))
        }
        _ => Ok(()),
    }
}

/// Checks what was written and stores it, secrets sealed.
fn store(
    write: &Write<'_>,
    row: ProviderRow,
    auth: Option<ConnectionAuth>,
    written: &WrittenProvider,
) -> Result<Connection, Refusal> {
    let bindings = providers::bindings(write.db, &row.id)?;
    let read =
        Held::read(&row, &bindings, written, auth, write.environment).map_err(|faults| refusal(&faults))?;
    let sealed = seal_written(write.keys, &row.id, written)?;
    let row = ProviderRow {
        auth: read.auth.name().to_owned(),
        settings: sealed.settings,
        credential_at_ms: row.credential_at_ms.filter(|_| sealed.credential.is_some()),
        credential: sealed.credential,
        credential_hint: sealed.credential_hint,
        headers: sealed.headers,
        ..row
    };
    providers::put(write.db, &row)?;
    let shadow = shadow_of(write.file, &row.id);
    Ok(Connection::of_row(&Arc::new(Held { row, bindings, read: Ok(read) }), shadow))
}

/// All faults in one message; the first one's field is the parameter at fault.
fn refusal(faults: &[FieldFault]) -> Refusal {
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
    Refusal::invalid(field, message)
}

/// Ids that stand for other things in the paths below `providers`.
const RESERVED: &[&str] = &["detect"];
const FAULTS_TOLD_MAX: usize = 10;
