//! Commands that change endpoints.

use serde_json::json;

use super::providers::is_free;
use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::endpoints::{self, EndpointRow, StoredMember};
use crate::routing::config::did_you_mean;
use crate::routing::connection::{ListedEndpoint, ShownEndpoint, shadow_of};
use crate::routing::publish::Touched;
use crate::writer::command::lookup::{lookup, provider_ids};

/// Creates an endpoint.
#[derive(Debug)]
pub(crate) struct CreateEndpoint {
    pub(crate) name: String,
    pub(crate) failover: Vec<StoredMember>,
    pub(crate) preamble: Option<String>,
}

/// Replaces the members, their order and the preamble of an endpoint.
#[derive(Debug)]
pub(crate) struct ReplaceEndpoint {
    pub(crate) name: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) failover: Vec<StoredMember>,
    pub(crate) preamble: Option<String>,
    /// True to apply the command even if the configuration file shadows the endpoint.
    pub(crate) shadowed: bool,
}

/// Deletes an endpoint.
#[derive(Debug)]
pub(crate) struct DeleteEndpoint {
    pub(crate) name: String,
    pub(crate) if_version: Option<u64>,
    /// True to apply the command even if the configuration file shadows the endpoint.
    pub(crate) shadowed: bool,
}

impl Command for CreateEndpoint {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        is_free(write, &self.name)?;
        check(write, &self.failover)?;
        let row = EndpointRow {
            name: self.name.clone(),
            failover: self.failover.clone(),
            preamble: self.preamble.clone(),
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        endpoints::put(write.db, &row)?;
        let audit = AuditEntry::done("endpoint.create", "endpoint", &row.name);
        let shown = shown(write, row)?;
        let audit = audit.after(json!(shown));
        Ok(Done::new(&shown, audit, Touched::ROUTING)?.version(1))
    }
}

impl Command for ReplaceEndpoint {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.name, self.if_version, self.shadowed)?;
        check(write, &self.failover)?;
        let row = EndpointRow {
            failover: self.failover.clone(),
            preamble: self.preamble.clone(),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        endpoints::put(write.db, &row)?;
        let version = row.version;
        let audit =
            AuditEntry::done("endpoint.replace", "endpoint", &self.name).before(json!(shown(write, before)?));
        let shown = shown(write, row)?;
        let audit = audit.after(json!(shown));
        Ok(Done::new(&shown, audit, Touched::ROUTING)?.version(version))
    }
}

impl Command for DeleteEndpoint {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.name, self.if_version, self.shadowed)?;
        endpoints::delete(write.db, &self.name)?;
        let audit =
            AuditEntry::done("endpoint.delete", "endpoint", &self.name).before(json!(shown(write, before)?));
        Ok(Done::without_output(audit, Touched::ROUTING))
    }
}

fn expect(
    write: &Write<'_>,
    name: &str,
    if_version: Option<u64>,
    shadowed: bool,
) -> Result<EndpointRow, CommandRefusal> {
    let in_file = write.file.endpoints.iter().any(|endpoint| endpoint.name.as_str() == name);
    if in_file && !shadowed {
        return Err(CommandRefusal::conflict(format!(
            "The endpoint '{name}' comes from the configuration file. Change it there."
        )));
    }
    let row = endpoints::find(write.db, name)?.ok_or_else(|| CommandRefusal::not_found("endpoint", name))?;
    CommandRefusal::if_stale(if_version, row.version)?;
    Ok(row)
}

/// Checks that every member is a known model and occurs only once.
fn check(write: &Write<'_>, failover: &[StoredMember]) -> Result<(), CommandRefusal> {
    for (index, member) in failover.iter().enumerate() {
        let StoredMember { provider, model } = member;
        if failover.iter().take(index).any(|earlier| earlier == member) {
            let message = format!("{provider}/{model} occurs twice.");
            return Err(CommandRefusal::invalid(format!("failover[{index}]"), message));
        }
        check_model(write, provider, model, &|part| format!("failover[{index}].{part}"))?;
    }
    Ok(())
}

/// Rejects an unknown model. `field` returns the name of the invalid parameter for `provider` or `model`.
pub(super) fn check_model(
    write: &Write<'_>,
    provider: &str,
    model: &str,
    field: &dyn Fn(&str) -> String,
) -> Result<(), CommandRefusal> {
    let Some(found) = lookup(write, provider)? else {
        let known = provider_ids(write)?;
        let hint = did_you_mean(provider, known.iter().map(String::as_str));
        let hint = if hint.is_empty() { "." } else { &hint };
        let message = format!("There is no provider '{provider}'{hint}");
        return Err(CommandRefusal::invalid(field("provider"), message));
    };
    if !found.models.iter().any(|known| known.as_str() == model) {
        let hint = did_you_mean(model, found.models.iter().map(|known| known.as_str()));
        let message = format!(
            "The provider '{provider}' does not list '{model}'{hint} Sync its catalog, or add the \
             model to its 'models'.",
            hint = if hint.is_empty() { ".".to_owned() } else { hint }
        );
        return Err(CommandRefusal::invalid(field("model"), message));
    }
    Ok(())
}

/// True if the file or the database has an endpoint with this name.
pub(super) fn exists(write: &Write<'_>, name: &str) -> Result<bool, CommandRefusal> {
    let in_file = write.file.endpoints.iter().any(|endpoint| endpoint.name.as_str() == name);
    Ok(in_file || endpoints::find(write.db, name)?.is_some())
}

fn shown(write: &Write<'_>, row: EndpointRow) -> Result<ShownEndpoint, CommandRefusal> {
    let shadow = shadow_of(write.file, &row.name);
    let listed = ListedEndpoint::of_row(row, shadow);
    let passed_over = listed.passed_over(|provider| lookup(write, provider))?;
    Ok(listed.shown(passed_over))
}
