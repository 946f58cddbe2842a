//! A limit as the API shows it in answers of reads and of writes.

use serde::Serialize;
use shared::clock::unix_ms;
use shared::quota::{Counters, Metric, Period, Reading, Subject};

use crate::db::engine::{Db, DbResult};
use crate::db::names::{Labels, NamedKind};
use crate::db::quotas::{self, Enforcement, Of, QuotaRow};
use crate::routing::publish::EffectWarning;

/// A limit and its current usage. Amounts are in the unit of the metric, money in micro-dollars; usage is rounded up.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Quota"))]
pub(crate) struct QuotaStanding {
    pub(crate) id: String,
    pub(crate) subject: NamedSubject,
    /// `provider/model`, if only requests to one model count; otherwise null.
    model: Option<String>,
    /// The endpoint, if only requests that name it count; otherwise null.
    endpoint: Option<String>,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Metric"))]
    metric: Metric,
    /// Null only for a limit of concurrent requests.
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Period>"))]
    window: Option<Period>,
    /// In the unit of the metric; money in millionths of a dollar.
    pub(crate) limit: u64,
    enforcement: Enforcement,
    /// The longest time that a request waits until it fits, in milliseconds; 0 if it is rejected at once.
    wait_ms: u64,
    /// Requests that wait now, at this node.
    waiting: u64,
    /// Grows with each change; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    updated_at_ms: u64,
    /// Used in the current window.
    pub(crate) used: u64,
    /// Reserved by running requests.
    reserved: u64,
    /// The limit minus what is used and reserved; 0 if that is more.
    remaining: u64,
    /// True if the usage exceeds the limit, which is possible for a limit that only warns.
    exceeded: bool,
    /// The time at which all current usage has left the window, in milliseconds since the Unix epoch; null for a total
    /// limit or a limit of concurrent requests.
    pub(crate) resets_at_ms: Option<u64>,
}

/// The subject of a limit, with its name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NamedSubject {
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::SubjectKind"))]
    kind: Subject,
    /// Absent for the gateway.
    #[serde(skip_serializing_if = "String::is_empty")]
    id: String,
    /// The name of the key, project, human or provider; null for the gateway.
    pub(crate) name: Option<String>,
}

impl NamedSubject {
    fn of(db: &Db, labels: &mut Labels, subject: &Of) -> DbResult<Self> {
        let Of { kind, id } = subject.clone();
        let named = match kind {
            Subject::Key => Some(NamedKind::Key),
            Subject::Project => Some(NamedKind::Project),
            Subject::Principal => Some(NamedKind::Principal),
            Subject::Provider | Subject::Gateway => None,
        };
        let name = match named {
            Some(named) => labels.find(db, named, &id)?.name,
            None => Some(id.clone()).filter(|id| !id.is_empty()),
        };
        Ok(Self { kind, id, name })
    }
}

impl QuotaStanding {
    /// Adds the names and the use to `row`.
    pub(crate) fn of(db: &Db, labels: &mut Labels, counters: &Counters, row: QuotaRow) -> DbResult<Self> {
        let subject = NamedSubject::of(db, labels, &row.counted.subject)?;
        let now_ms = unix_ms();
        let counter = counters.get(&row.id);
        let waiting = counter.as_ref().map_or(0, |counter| counter.waiting() as u64);
        let reading = match counter {
            Some(counter) => counter.read(now_ms),
            None => stored(db, &row, now_ms)?,
        };
        let units = row.metric.units();
        let (used, reserved) = (reading.used.div_ceil(units), reading.reserved.div_ceil(units));
        let remaining = row.limit.saturating_sub(used).saturating_sub(reserved);
        Ok(Self {
            id: row.id,
            subject,
            model: row.counted.model,
            endpoint: row.counted.endpoint,
            metric: row.metric,
            window: row.period,
            limit: row.limit,
            enforcement: row.enforcement,
            wait_ms: row.wait_ms,
            waiting,
            version: row.version,
            created_at_ms: row.created_at_ms,
            updated_at_ms: row.updated_at_ms,
            used,
            reserved,
            remaining,
            exceeded: used > row.limit,
            resets_at_ms: reading.resets_at_ms,
        })
    }
}

impl QuotaStanding {
    /// Returns the used and reserved share of the limit in millionths. Of a limit of 0, everything is used.
    pub(crate) fn share_ppm(&self) -> u64 {
        let taken = u128::from(self.used) + u128::from(self.reserved);
        let share = (taken * 1_000_000).checked_div(u128::from(self.limit)).unwrap_or(1_000_000);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// True if the name or id of the subject, the model, the endpoint or the metric contains `text`, which is in lower
    /// case.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let optional = [&self.subject.name, &self.model, &self.endpoint];
        let names = [self.subject.id.as_str(), self.metric.name(), self.id.as_str()];
        let mut names = optional.into_iter().filter_map(Option::as_deref).chain(names);
        names.any(|name| name.to_lowercase().contains(text))
    }

    /// Returns the warning about a hard limit that is used up already.
    pub(super) fn reached(&self) -> Option<EffectWarning> {
        (self.enforcement == Enforcement::Hard && self.remaining == 0).then(|| EffectWarning {
            code: "limit_reached",
            param: Some("limit"),
            message: format!(
                "{} of {} are used already: requests that the limit counts {}.",
                self.used,
                self.limit,
                if self.wait_ms > 0 { "wait" } else { "get 429 at once" }
            ),
            objects: self.subject.name.iter().cloned().collect(),
        })
    }
}

/// Returns the use of a limit whose counter does not exist yet: it is created when the limit is published.
fn stored(db: &Db, row: &QuotaRow, now_ms: u64) -> DbResult<Reading> {
    let Some((start_ms, end_ms)) = row.period.and_then(|period| period.window(now_ms)) else {
        return Ok(Reading::default());
    };
    let resets_at_ms = Some(end_ms).filter(|end_ms| *end_ms < u64::MAX);
    Ok(Reading { used: quotas::used(db, &row.id, start_ms)?, reserved: 0, resets_at_ms })
}
