//! What changes of an endpoint mean.

use serde_json::Value;

use super::providers::is_free;
use super::{Command, Done, Refusal, Write};
use crate::command::lookup::{lookup, provider_ids};
use crate::config::did_you_mean;
use crate::connection::{Listed, shadow_of};
use crate::publish::Touched;
use crate::store::audit::Entry;
use crate::store::endpoints::{self, EndpointRow, Member};

/// Makes an endpoint.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) name: String,
    pub(crate) failover: Vec<Member>,
    pub(crate) preamble: Option<String>,
}

/// Gives an endpoint other members, or another order, or another preamble.
#[derive(Debug)]
pub(crate) struct Replace {
    pub(crate) name: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) failover: Vec<Member>,
    pub(crate) preamble: Option<String>,
    /// One that the file shadows may be meant.
    pub(crate) shadowed: bool,
}

/// Takes an endpoint away.
#[derive(Debug)]
pub(crate) struct Delete {
    pub(crate) name: String,
    pub(crate) if_version: Option<u64>,
    /// One that the file shadows may be meant.
    pub(crate) shadowed: bool,
}

impl Command for Create {
    type Output = Value;

    fn apply(self, write: &Write<'_>) -> Result<Done<Value>, Refusal> {
        is_free(write, &self.name)?;
        check(write, &self.failover)?;
        let row = EndpointRow {
            name: self.name,
            failover: self.failover,
            preamble: self.preamble,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        endpoints::put(write.db, &row)?;
        let audit = Entry::done("endpoint.create", "endpoint", &row.name);
        let shown = shown(write, row)?;
        let audit = audit.after(shown.clone());
        Ok(Done { version: Some(1), output: shown, audit, touched: Touched::ROUTING })
    }
}

impl Command for Replace {
    type Output = Value;

    fn apply(self, write: &Write<'_>) -> Result<Done<Value>, Refusal> {
        let before = expect(write, &self.name, self.if_version, self.shadowed)?;
        check(write, &self.failover)?;
        let row = EndpointRow {
            failover: self.failover,
            preamble: self.preamble,
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        endpoints::put(write.db, &row)?;
        let version = row.version;
        let audit = Entry::done("endpoint.replace", "endpoint", &self.name).before(shown(write, before)?);
        let shown = shown(write, row)?;
        let audit = audit.after(shown.clone());
        Ok(Done { version: Some(version), output: shown, audit, touched: Touched::ROUTING })
    }
}

impl Command for Delete {
    type Output = ();

    fn apply(self, write: &Write<'_>) -> Result<Done<()>, Refusal> {
        let before = expect(write, &self.name, self.if_version, self.shadowed)?;
        endpoints::delete(write.db, &self.name)?;
        let audit = Entry::done("endpoint.delete", "endpoint", &self.name).before(shown(write, before)?);
        Ok(Done { output: (), version: None, audit, touched: Touched::ROUTING })
    }
}

fn expect(
    write: &Write<'_>,
    name: &str,
    if_version: Option<u64>,
    shadowed: bool,
) -> Result<EndpointRow, Refusal> {
    let in_file = write.file.endpoints.iter().any(|endpoint| endpoint.name.as_str() == name);
    if in_file && !shadowed {
        return Err(Refusal::conflict(format!(
            "The endpoint '{name}' comes from the configuration file. Change it there."
        )));
    }
    let row = endpoints::find(write.db, name)?.ok_or_else(|| Refusal::not_found("endpoint", name))?;
    Refusal::if_stale(if_version, row.version)?;
    Ok(row)
}

/// An endpoint is made of models that are known to be there, each once.
fn check(write: &Write<'_>, failover: &[Member]) -> Result<(), Refusal> {
    for (index, member) in failover.iter().enumerate() {
        let Member { provider, model } = member;
        if failover.iter().take(index).any(|earlier| earlier == member) {
            let message = format!("{provider}/{model} is in the list twice.");
            return Err(Refusal::invalid(format!("failover[{index}]"), message));
        }
        check_model(write, provider, model, &|part| format!("failover[{index}].{part}"))?;
    }
    Ok(())
}

/// Refuses a model that is not known to be there. `field` names the parameter at fault: its `provider` or its `model`.
pub(super) fn check_model(
    write: &Write<'_>,
    provider: &str,
    model: &str,
    field: &dyn Fn(&str) -> String,
) -> Result<(), Refusal> {
    let Some(found) = lookup(write, provider)? else {
        let known = provider_ids(write)?;
        let hint = did_you_mean(provider, known.iter().map(String::as_str));
        let hint = if hint.is_empty() { "." } else { &hint };
        let message = format!("There is no provider '{provider}'{hint}");
        return Err(Refusal::invalid(field("provider"), message));
    };
    if !found.models.iter().any(|known| known.as_str() == model) {
        let hint = did_you_mean(model, found.models.iter().map(|known| known.as_str()));
        let message = format!(
            "The provider '{provider}' is not known to serve '{model}'{hint} Sync its catalog, or add the \
             model to its 'models'.",
            hint = if hint.is_empty() { ".".to_owned() } else { hint }
        );
        return Err(Refusal::invalid(field("model"), message));
    }
    Ok(())
}

/// True if the file or the database has an endpoint with this name.
pub(super) fn exists(write: &Write<'_>, name: &str) -> Result<bool, Refusal> {
    let in_file = write.file.endpoints.iter().any(|endpoint| endpoint.name.as_str() == name);
    Ok(in_file || endpoints::find(write.db, name)?.is_some())
}

fn shown(write: &Write<'_>, row: EndpointRow) -> Result<Value, Refusal> {
    let shadow = shadow_of(write.file, &row.name);
    let listed = Listed::of_row(row, shadow);
    let passed_over = listed.passed_over(|provider| lookup(write, provider))?;
    Ok(listed.shown(&passed_over))
}
