//! Commands of the catalog: overrides.

use serde::Serialize;
use serde_json::json;

use super::{Command, CommandRefusal, Done, Write};
use crate::common::model_facts::Facts;
use crate::db::audit::AuditEntry;
use crate::db::ids::new_id;
use crate::db::overrides::{self, Override};
use crate::routing::config::did_you_mean;
use crate::routing::publish::Touched;
use crate::writer::command::lookup::{lookup, provider_ids};

/// Creates an override: properties of a model, in force from a given time.
#[derive(Debug)]
pub(crate) struct CreateOverride {
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "NewCatalogOverride"))]
pub(crate) struct StoredOverride {
    #[serde(flatten)]
    pub(crate) stored: Override,
    /// Doubts about it, such as a model that no list has.
    warnings: Vec<String>,
}

/// Deletes an override.
#[derive(Debug)]
pub(crate) struct DeleteOverride {
    pub(crate) id: String,
}

impl Command for CreateOverride {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        if overrides::count(write.db)? >= OVERRIDES_MAX {
            return Err(CommandRefusal::conflict(format!(
                "The limit of {OVERRIDES_MAX} overrides is reached. Delete some first."
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
        let new_override = Override {
            id: new_id("ovr", write.now_ms)?,
            provider: self.provider.clone(),
            model: self.model.clone(),
            effective_from_ms: self.effective_from_ms.unwrap_or(write.now_ms),
            facts: self.facts.clone(),
            created_at_ms: write.now_ms,
        };
        if overrides::is_taken(write.db, &new_override)? {
            return Err(CommandRefusal::conflict(
                "Another override of this model takes effect at the same time. Delete it first.",
            ));
        }
        overrides::put(write.db, &new_override)?;
        let audit = AuditEntry::done("catalog_override.create", "catalog_override", &new_override.id)
            .after(json!(new_override));
        let output = StoredOverride { stored: new_override, warnings: self.warnings.clone() };
        Done::new(&output, audit, Touched::ROUTING)
    }
}

impl Command for DeleteOverride {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = overrides::find(write.db, &self.id)?
            .ok_or_else(|| CommandRefusal::not_found("catalog override", &self.id))?;
        overrides::delete(write.db, &before.id)?;
        let audit =
            AuditEntry::done("catalog_override.delete", "catalog_override", &before.id).before(json!(before));
        Ok(Done::without_output(audit, Touched::ROUTING))
    }
}

/// Bounded because every snapshot reads all of them.
const OVERRIDES_MAX: u64 = 10_000;
