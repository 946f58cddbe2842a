//! Commands that change endpoints.

use serde_json::json;
use shared::snapshot::is_pattern;

use super::providers::is_free;
use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::endpoints::{self, EndpointContent, EndpointRow, StoredMember};
use crate::db::providers;
use crate::routing::config::did_you_mean;
use crate::routing::connection::{ListedEndpoint, ShownEndpoint, shadow_of};
use crate::routing::publish::Touched;
use crate::writer::command::lookup::{lookup, provider_ids};

/// Creates an endpoint.
#[derive(Debug)]
pub(crate) struct CreateEndpoint {
    pub(crate) name: String,
    pub(crate) content: EndpointContent,
}

/// Replaces the content of an endpoint.
#[derive(Debug)]
pub(crate) struct ReplaceEndpoint {
    pub(crate) name: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) content: EndpointContent,
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
        check(write, &self.name, &self.content)?;
        let row = EndpointRow {
            name: self.name.clone(),
            content: self.content.clone(),
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
        check(write, &self.name, &self.content)?;
        let row = EndpointRow {
            content: self.content.clone(),
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

/// Checks that every member is a known model and occurs only once, and that the further names are free.
fn check(write: &Write<'_>, name: &str, content: &EndpointContent) -> Result<(), CommandRefusal> {
    let failover = &content.failover;
    for (index, member) in failover.iter().enumerate() {
        let StoredMember { provider, model, .. } = member;
        if failover.iter().take(index).any(|earlier| earlier.is_same_target(member)) {
            let message = format!("{provider}/{model} occurs twice.");
            return Err(CommandRefusal::invalid(format!("failover[{index}]"), message));
        }
        check_model(write, provider, model, &|part| format!("failover[{index}].{part}"))?;
    }
    for (index, also) in content.also.iter().enumerate() {
        let is_twice = content.also.iter().take(index).any(|earlier| earlier == also);
        let taken = match is_twice {
            true => Some("it occurs twice".to_owned()),
            false => taken_name(write, name, also)?,
        };
        if let Some(taken) = taken {
            let message = format!("'{also}' cannot be a further name of '{name}': {taken}.");
            return Err(CommandRefusal::invalid(format!("also[{index}]"), message));
        }
    }
    Ok(())
}

/// Returns the reason why `also` cannot be a further name of the endpoint `name`, if there is one.
fn taken_name(write: &Write<'_>, name: &str, also: &str) -> Result<Option<String>, CommandRefusal> {
    if also == name {
        return Ok(Some("the endpoint has this name already".to_owned()));
    }
    if !is_pattern(also) {
        if let Some(what) = shadow_of(write.file, also) {
            return Ok(Some(format!("in the configuration file, {what} has this name")));
        }
        if providers::find(write.db, also)?.is_some() {
            return Ok(Some("a provider has this name".to_owned()));
        }
        if endpoints::find(write.db, also)?.is_some() {
            return Ok(Some("an endpoint has this name".to_owned()));
        }
        if let Some((provider, _)) = also.split_once('/')
            && lookup(write, provider)?.is_some()
        {
            return Ok(Some(format!("it is an exact model ID of the provider '{provider}'")));
        }
    }
    let owner = with_further_name(write, also)?.filter(|owner| owner != name);
    Ok(owner.map(|owner| format!("the endpoint '{owner}' has it")))
}

/// Returns the endpoint that has `also` as a further name or as a pattern, if there is one.
pub(super) fn with_further_name(write: &Write<'_>, also: &str) -> Result<Option<String>, CommandRefusal> {
    let mut in_file = write.file.endpoints.iter();
    if let Some(found) = in_file.find(|endpoint| endpoint.also.iter().any(|name| name == also)) {
        return Ok(Some(found.name.to_string()));
    }
    Ok(endpoints::with_further_name(write.db, also)?)
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
