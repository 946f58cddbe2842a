//! Commands that change extensions, and the one that stores the findings of a probe.

use serde_json::json;
use shared::secret::Secret;

use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::engine::DbResult;
use crate::db::extensions::{self, ExtensionRow};
use crate::db::providers;
use crate::routing::extension::probe::ProbeResult;
use crate::routing::extension::seal_secret;
use crate::routing::extension::shown::ShownExtension;
use crate::routing::publish::Touched;

/// Creates an extension.
#[derive(Debug)]
pub(crate) struct CreateExtension {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) secret: Secret<String>,
    pub(crate) enabled: bool,
}

/// Changes an extension. A new address or secret makes the last probe void.
#[derive(Debug)]
pub(crate) struct EditExtension {
    pub(crate) name: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) url: Option<String>,
    pub(crate) secret: Option<Secret<String>>,
    pub(crate) enabled: Option<bool>,
}

/// Deletes an extension that no provider uses.
#[derive(Debug)]
pub(crate) struct DeleteExtension {
    pub(crate) name: String,
    pub(crate) if_version: Option<u64>,
}

/// Stores the findings of a probe of the extension as it was at `version`.
#[derive(Debug)]
pub(crate) struct RecordProbe {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) result: ProbeResult,
}

impl Command for CreateExtension {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        if extensions::find(write.db, &self.name)?.is_some() {
            return Err(CommandRefusal::conflict(format!("An extension is already called '{}'.", self.name)));
        }
        if extensions::count(write.db)? >= EXTENSIONS_MAX {
            return Err(CommandRefusal::conflict(format!(
                "The limit of {EXTENSIONS_MAX} extensions is reached. Delete one first."
            )));
        }
        let row = ExtensionRow {
            secret: seal_secret(write.keys, &self.name, self.secret.expose())?,
            name: self.name.clone(),
            url: self.url.clone(),
            secret_at_ms: write.now_ms,
            enabled: self.enabled,
            last_check: None,
            providers: NO_PROVIDERS.to_owned(),
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        extensions::put(write.db, &row)?;
        let shown = shown(write, &row)?;
        let audit = AuditEntry::done("extension.create", "extension", &row.name).after(json!(shown));
        Ok(Done::new(&shown, audit, Touched::ROUTING)?.version(row.version))
    }
}

impl Command for EditExtension {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.name, self.if_version)?;
        let shown_before = shown(write, &before)?;
        let mut row = before.clone();
        if self.secret.is_some() || self.url.as_ref().is_some_and(|url| *url != row.url) {
            row.last_check = None;
            NO_PROVIDERS.clone_into(&mut row.providers);
        }
        if let Some(secret) = &self.secret {
            row.secret = seal_secret(write.keys, &row.name, secret.expose())?;
            row.secret_at_ms = write.now_ms;
        }
        row.url = self.url.clone().unwrap_or(row.url);
        row.enabled = self.enabled.unwrap_or(row.enabled);
        row.version += 1;
        row.updated_at_ms = write.now_ms;
        extensions::put(write.db, &row)?;
        let shown = shown(write, &row)?;
        let audit = AuditEntry::done("extension.edit", "extension", &row.name)
            .before(json!(shown_before))
            .after(json!(shown));
        Ok(Done::new(&shown, audit, Touched::ROUTING)?.version(row.version))
    }
}

impl Command for DeleteExtension {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.name, self.if_version)?;
        let shown_before = shown(write, &before)?;
        let users = used_by(write, &before.name)?;
        if !users.is_empty() {
            return Err(CommandRefusal::conflict(format!(
                "Providers use it: {}. Delete them first.",
                users.join(", ")
            )));
        }
        extensions::delete(write.db, &before.name)?;
        let audit =
            AuditEntry::done("extension.delete", "extension", &before.name).before(json!(shown_before));
        Ok(Done::without_output(audit, Touched::ROUTING))
    }
}

impl Command for RecordProbe {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let mut row = expect(write, &self.name, None)?;
        if row.version != self.version {
            return Err(CommandRefusal::conflict(
                "The extension was changed while it was being probed. Probe it again.",
            ));
        }
        let ProbeResult { check, providers } = self.result.clone();
        if let Some(providers) = &providers {
            row.providers = json!(providers).to_string();
        }
        let audit = AuditEntry::done("extension.probe", "extension", &row.name)
            .after(json!({"check": check, "providers": providers.map(|found| found.len())}));
        row.last_check = Some(json!(check).to_string());
        extensions::put(write.db, &row)?;
        Ok(Done::new(&shown(write, &row)?, audit, Touched::NOTHING)?.version(row.version))
    }
}

fn shown(write: &Write<'_>, row: &ExtensionRow) -> DbResult<ShownExtension> {
    Ok(ShownExtension::of(row, used_by(write, &row.name)?))
}

/// Returns the ids of the provider instances of file and database that belong to the extension `name`.
fn used_by(write: &Write<'_>, name: &str) -> DbResult<Vec<String>> {
    let of_file = write
        .file
        .providers
        .iter()
        .filter(|provider| provider.extension.as_ref().is_some_and(|link| link.name == name));
    let mut ids: Vec<String> = of_file.map(|provider| provider.id.to_string()).collect();
    ids.extend(providers::of_extension(write.db, name)?);
    ids.sort();
    ids.dedup();
    Ok(ids)
}

/// Returns the extension `name` at the version that the caller expects.
fn expect(write: &Write<'_>, name: &str, if_version: Option<u64>) -> Result<ExtensionRow, CommandRefusal> {
    let found =
        extensions::find(write.db, name)?.ok_or_else(|| CommandRefusal::not_found("extension", name))?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}

/// Bounded because every snapshot reads all of them.
const EXTENSIONS_MAX: u64 = 100;
const NO_PROVIDERS: &str = "[]";
