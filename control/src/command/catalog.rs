//! Commands of the catalog: overrides, and records of syncs and tests.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Command, CommandRefusal, Done, Write};
use crate::command::lookup::{lookup, provider_ids};
use crate::config::did_you_mean;
use crate::model_facts::Facts;
use crate::publish::Touched;
use crate::store::audit::AuditEntry;
use crate::store::ids::new_id;
use crate::store::overrides::{self, Override};

/// Creates an override: properties of a model, in force from a given time.
#[derive(Debug)]
pub(crate) struct Say {
    pub(crate) provider: String,
    pub(crate) model: String,
    /// Defaults to the current time.
    pub(crate) effective_from_ms: Option<u64>,
    pub(crate) facts: Facts,
    /// Warnings, which do not prevent the change.
    pub(crate) warnings: Vec<String>,
}

/// The stored override and its warnings.
#[derive(Debug, Serialize)]
pub(crate) struct Said {
    #[serde(flatten)]
    pub(crate) stored: Override,
    warnings: Vec<String>,
}

/// Deletes an override.
#[derive(Debug)]
pub(crate) struct Unsay {
    pub(crate) id: String,
}

/// Records an operation on a connection in the audit, and publishes its result.
#[derive(Debug)]
pub(crate) struct Tried<T> {
    pub(crate) action: &'static str,
    pub(crate) object_kind: &'static str,
    pub(crate) object_id: String,
    /// The detail of the audit record.
    pub(crate) detail: Value,
    pub(crate) touched: Touched,
    /// The output for the caller.
    pub(crate) output: T,
}

impl Command for Say {
    type Output = Said;

    fn apply(self, write: &Write<'_>) -> Result<Done<Said>, CommandRefusal> {
        if overrides::count(write.db)? >= OVERRIDES_MAX {
            return Err(CommandRefusal::conflict(format!(
                "There are {OVERRIDES_MAX} overrides already. Delete some that no longer matter first."
            )));
        }
        if lookup(write, &self.provider)?.is_none() {
            let known = provider_ids(write)?;
            let hint = did_you_mean(&self.provider, known.iter().map(String::as_str));
            let hint = if hint.is_empty() { "." } else { &hint };
            return Err(CommandRefusal::invalid(
                "provider",
                format!("There is no provider '{}'{hint}", self.provider),
            ));
        }
        let said = Override {
            id: new_id("ovr", write.now_ms)?,
            provider: self.provider,
            model: self.model,
            effective_from_ms: self.effective_from_ms.unwrap_or(write.now_ms),
            facts: self.facts,
            created_at_ms: write.now_ms,
        };
        if overrides::is_taken(write.db, &said)? {
            return Err(CommandRefusal::conflict(
                "Another override of this model comes into force at the same moment. Delete it first.",
            ));
        }
        overrides::put(write.db, &said)?;
        let audit =
            AuditEntry::done("catalog_override.create", "catalog_override", &said.id).after(json!(said));
        let output = Said { stored: said, warnings: self.warnings };
        Ok(Done { output, version: None, audit, touched: Touched::ROUTING })
    }
}

impl Command for Unsay {
    type Output = ();

    fn apply(self, write: &Write<'_>) -> Result<Done<()>, CommandRefusal> {
        let before = overrides::find(write.db, &self.id)?
            .ok_or_else(|| CommandRefusal::not_found("catalog override", &self.id))?;
        overrides::delete(write.db, &before.id)?;
        let audit =
            AuditEntry::done("catalog_override.delete", "catalog_override", &before.id).before(json!(before));
        Ok(Done { output: (), version: None, audit, touched: Touched::ROUTING })
    }
}

impl<T: Serialize + Send + 'static> Command for Tried<T> {
    type Output = T;

    fn apply(self, _: &Write<'_>) -> Result<Done<T>, CommandRefusal> {
        let audit = AuditEntry::done(self.action, self.object_kind, &self.object_id).after(self.detail);
        Ok(Done { output: self.output, version: None, audit, touched: self.touched })
    }
}

/// Bounded because every snapshot reads all of them.
const OVERRIDES_MAX: u64 = 10_000;
