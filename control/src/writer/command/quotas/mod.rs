//! Commands that change limits.

mod standing;

use serde_json::json;
use shared::quota::{Metric, Period, Subject};

pub(crate) use self::standing::QuotaStanding;
use super::endpoints::{check_model, exists as endpoint_exists};
use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::engine::DbResult;
use crate::db::ids::new_id;
use crate::db::names::Labels;
use crate::db::quotas::{self, Counted, Enforcement, KeyLimit, Of, QuotaRow};
use crate::db::{keys, principals, projects};
use crate::routing::publish::{ChangedKeys, Touched};
use crate::writer::command::lookup::lookup;

/// Creates a limit. It starts with the usage of the current window.
#[derive(Debug)]
pub(crate) struct CreateQuota {
    pub(crate) counted: Counted,
    pub(crate) metric: Metric,
    /// `None` only for concurrent requests.
    pub(crate) period: Option<Period>,
    pub(crate) limit: u64,
    pub(crate) enforcement: Enforcement,
    pub(crate) wait_ms: u64,
}

/// Changes a limit and keeps its usage.
#[derive(Debug)]
pub(crate) struct EditQuota {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) enforcement: Option<Enforcement>,
    pub(crate) wait_ms: Option<u64>,
}

/// Deletes a limit.
#[derive(Debug)]
pub(crate) struct DeleteQuota {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
}

impl Command for CreateQuota {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let row = QuotaRow {
            id: new_id("quo", write.now_ms)?,
            counted: known(write, self.counted.clone())?,
            metric: self.metric,
            period: self.period,
            limit: self.limit,
            enforcement: self.enforcement,
            wait_ms: self.wait_ms,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        check_wait(row.wait_ms, (row.metric, row.period, row.enforcement), "")?;
        check_twin(write, &row)?;
        quotas::put(write.db, &row)?;
        if let Some(period) = row.period
            && let Some((start_ms, _)) = period.window(write.now_ms)
        {
            let spent = quotas::used_since(write.db, &row.counted, period, start_ms)?;
            quotas::add_used(write.db, &row.id, start_ms, spent.amount(row.metric).unwrap_or(0))?;
        }
        let audit = AuditEntry::done("quota.create", "quota", &row.id).after(json!(row));
        let touched = touched_by(write, &row.counted.subject, None)?;
        let standing = standing(write, row)?;
        let warning = standing.reached();
        Ok(Done::new(&standing, audit, touched)?.version(1).warning(warning))
    }
}

impl Command for EditQuota {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let after = QuotaRow {
            limit: self.limit.unwrap_or(before.limit),
            enforcement: self.enforcement.unwrap_or(before.enforcement),
            wait_ms: self.wait_ms.unwrap_or(before.wait_ms),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        check_wait(after.wait_ms, (after.metric, after.period, after.enforcement), "")?;
        check_twin(write, &after)?;
        quotas::put(write.db, &after)?;
        let audit =
            AuditEntry::done("quota.edit", "quota", &after.id).before(json!(before)).after(json!(after));
        let touched = touched_by(write, &after.counted.subject, None)?;
        let standing = standing(write, after)?;
        let (version, warning) = (standing.version, standing.reached());
        Ok(Done::new(&standing, audit, touched)?.version(version).warning(warning))
    }
}

impl Command for DeleteQuota {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        quotas::delete(write.db, &before.id)?;
        let audit = AuditEntry::done("quota.delete", "quota", &before.id).before(json!(before));
        let touched = touched_by(write, &before.counted.subject, Some(before.id))?;
        Ok(Done::without_output(audit, touched))
    }
}

fn standing(write: &Write<'_>, row: QuotaRow) -> DbResult<QuotaStanding> {
    QuotaStanding::of(write.db, &mut Labels::default(), write.counters, row)
}

/// Returns the parts of a snapshot that hold the limits of a subject; `gone` is the limit that was deleted.
fn touched_by(write: &Write<'_>, subject: &Of, gone: Option<String>) -> Result<Touched, CommandRefusal> {
    let touched = match subject.kind {
        Subject::Key => Touched::changed(ChangedKeys {
            keys: keys::in_family(write.db, &subject.id)?.into_iter().collect(),
            ..ChangedKeys::default()
        }),
        Subject::Project => Touched::project(&subject.id),
        Subject::Principal => Touched::principal(&subject.id),
        Subject::Provider | Subject::Gateway => Touched::ACCESS,
    };
    Ok(touched.without_quotas(gone))
}

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<QuotaRow, CommandRefusal> {
    let found = quotas::find(write.db, id)?.ok_or_else(|| CommandRefusal::not_found("quota", id))?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}

/// Returns `counted` with the subject that the limit applies to, which is the family for a key. Rejects names that do
/// not exist.
fn known(write: &Write<'_>, counted: Counted) -> Result<Counted, CommandRefusal> {
    let Of { kind, id } = &counted.subject;
    let found = match kind {
        Subject::Key => keys::family(write.db, id)?,
        Subject::Project => projects::find(write.db, id)?.map(|project| project.id),
        Subject::Principal => principals::find(write.db, id)?.map(|principal| principal.id),
        Subject::Provider => lookup(write, id)?.map(|_| id.clone()),
        Subject::Gateway => Some(String::new()),
    };
    let Some(found) = found else {
        let message = format!("There is no {} '{id}' to limit.", kind.name());
        return Err(CommandRefusal::invalid("subject", message));
    };
    check_names(write, counted.model.as_deref(), counted.endpoint.as_deref(), "")?;
    Ok(Counted { subject: Of { kind: *kind, id: found }, ..counted })
}

/// Rejects a model or an endpoint that does not exist. `place` is the prefix of the invalid parameter's name.
fn check_names(
    write: &Write<'_>,
    model: Option<&str>,
    endpoint: Option<&str>,
    place: &str,
) -> Result<(), CommandRefusal> {
    if let Some((provider, model)) = model.and_then(|model| model.split_once('/')) {
        check_model(write, provider, model, &|_| format!("{place}model"))?;
    }
    match endpoint {
        Some(endpoint) if !endpoint_exists(write, endpoint)? => {
            let message = format!("There is no endpoint '{endpoint}'.");
            Err(CommandRefusal::invalid(format!("{place}endpoint"), message))
        }
        Some(_) | None => Ok(()),
    }
}

/// Rejects limits of keys that name a model or an endpoint that does not exist.
pub(super) fn check_key_limits(
    write: &Write<'_>,
    field: &str,
    limits: &[KeyLimit],
) -> Result<(), CommandRefusal> {
    limits.iter().enumerate().try_for_each(|(index, limit)| {
        let place = format!("{field}[{index}].");
        check_names(write, limit.model.as_deref(), limit.endpoint.as_deref(), &place)?;
        check_wait(limit.wait_ms, (limit.metric, limit.period, limit.enforcement), &place)
    })
}

/// Creates the limits of a new key, which has no usage.
pub(super) fn create_of_key(
    write: &Write<'_>,
    family: &str,
    limits: Vec<KeyLimit>,
) -> Result<Vec<QuotaRow>, CommandRefusal> {
    let subject = Of { kind: Subject::Key, id: family.to_owned() };
    let create = |KeyLimit { model, endpoint, metric, period, limit, enforcement, wait_ms }| {
        let row = QuotaRow {
            id: new_id("quo", write.now_ms)?,
            counted: Counted { subject: subject.clone(), model, endpoint },
            metric,
            period,
            limit,
            enforcement,
            wait_ms,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        quotas::put(write.db, &row)?;
        Ok(row)
    };
    limits.into_iter().map(create).collect()
}

/// Deletes every limit of a subject that is being deleted. Returns them for the audit.
pub(super) fn delete_of(write: &Write<'_>, subject: &Of) -> Result<Vec<QuotaRow>, CommandRefusal> {
    let rows = quotas::of_subject(write.db, subject)?;
    rows.iter().try_for_each(|row| quotas::delete(write.db, &row.id))?;
    Ok(rows)
}

/// Refuses a wait that is too long, and one that would have no effect. `place` is the prefix of the parameter's name.
fn check_wait(
    wait_ms: u64,
    (metric, period, enforcement): (Metric, Option<Period>, Enforcement),
    place: &str,
) -> Result<(), CommandRefusal> {
    let may_wait = metric == Metric::ConcurrentRequests || period == Some(Period::Minute);
    let message = match wait_ms {
        0 => return Ok(()),
        _ if enforcement != Enforcement::Hard => {
            "wait_ms: a limit that only warns lets every request pass. Set 0, or enforcement hard."
        }
        _ if !may_wait => {
            "wait_ms: only limits of concurrent_requests and limits a minute let requests wait. Set 0."
        }
        WAIT_MS_OVER.. => "wait_ms must be at most 300000, five minutes.",
        _ => return Ok(()),
    };
    Err(CommandRefusal::invalid(format!("{place}wait_ms"), message))
}

/// The first wait that is too long.
const WAIT_MS_OVER: u64 = 300_001;

/// Refuses a second limit on the same thing in the same window, which would only confuse readers.
fn check_twin(write: &Write<'_>, row: &QuotaRow) -> Result<(), CommandRefusal> {
    let Some(twin) = quotas::twin(write.db, row)? else { return Ok(()) };
    Err(CommandRefusal::conflict(format!(
        "The quota {twin} already limits {} of this {} in this window. Change that quota.",
        row.metric.name(),
        row.counted.subject.kind.name()
    )))
}

#[cfg(test)]
mod tests;
