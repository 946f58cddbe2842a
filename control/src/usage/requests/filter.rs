//! The filters of exchanges.

use records::{Record, RecordName, Trace};
use shared::usage::{ChosenBy, TargetChoice};

use super::attempts::AttemptFilter;
use super::exchange_end::ExchangeEnd;
use super::search::Search;
use crate::db::engine::{Db, DbResult};
use crate::db::record_id::RecordId;
use crate::usage::dimension::Marks;
use crate::usage::scope::UsageScope;

/// A property by which usage can be filtered and grouped. The API and the tables use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Model,
    Provider,
    Endpoint,
    Key,
    Project,
    Principal,
    Operation,
    Outcome,
}

impl Column {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Model,
        Self::Provider,
        Self::Endpoint,
        Self::Key,
        Self::Project,
        Self::Principal,
        Self::Operation,
        Self::Outcome,
    ];

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Provider => "provider",
            Self::Endpoint => "endpoint",
            Self::Key => "key",
            Self::Project => "project",
            Self::Principal => "principal",
            Self::Operation => "operation",
            Self::Outcome => "outcome",
        }
    }

    /// Returns the exchange's value; empty if it has none.
    pub(crate) fn of<'a>(self, record: &Record<'a>) -> &'a str {
        record.name(match self {
            Self::Model => RecordName::Model,
            Self::Provider => RecordName::Provider,
            Self::Endpoint => RecordName::Endpoint,
            Self::Key => RecordName::Key,
            Self::Project => RecordName::Project,
            Self::Principal => RecordName::Principal,
            Self::Operation => RecordName::Operation,
            Self::Outcome => RecordName::Outcome,
        })
    }
}

/// True if an exchange has all these values.
pub(crate) fn has_names(record: &Record<'_>, names: &[(Column, String)]) -> bool {
    names.iter().all(|(column, name)| column.of(record) == name)
}

/// A filter for exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFilter {
    pub(crate) from_ms: Option<u64>,
    /// The end of the time, exclusive.
    pub(crate) to_ms: Option<u64>,
    pub(crate) status: Option<u16>,
    pub(crate) names: Vec<(Column, String)>,
    pub(crate) marks: Marks,
    pub(crate) error: Option<String>,
    pub(crate) request_id_prefix: Option<String>,
    pub(crate) duration_us_min: Option<u64>,
    /// In nano-dollars. An exchange with an unknown cost is outside of every range.
    pub(crate) cost_min: Option<u64>,
    pub(crate) cost_max: Option<u64>,
    /// The first digit of the status.
    pub(crate) status_class: Option<u16>,
    /// True for exchanges that failed for no fault of the client or broke off, false for the others.
    pub(crate) is_failed: Option<bool>,
    /// An exchange without content is outside of every range.
    pub(crate) first_content_us_min: Option<u64>,
    /// The reason for which the first target came first.
    pub(crate) chosen_by: Option<ChosenBy>,
    /// Sessions, one of which must match.
    pub(crate) sessions: Vec<String>,
    pub(crate) attempts: AttemptFilter,
    pub(crate) search: Option<Search>,
    pub(crate) scope: UsageScope,
}

impl RequestFilter {
    /// Looks up what the search text names.
    pub(crate) fn resolved(&self, db: &Db) -> DbResult<Self> {
        let search = self.search.as_ref().map(|search| search.resolved(db)).transpose()?;
        Ok(Self { search, ..self.clone() })
    }

    /// True if it is only about columns of the sums, and a time.
    pub(crate) fn is_of_columns(&self) -> bool {
        let rest = Self {
            from_ms: None,
            to_ms: None,
            names: Vec::new(),
            scope: UsageScope::default(),
            ..self.clone()
        };
        rest == Self::default()
    }

    /// Returns the columns that it is about.
    pub(crate) fn columns(&self) -> impl Iterator<Item = Column> {
        self.names.iter().map(|(column, _)| *column).chain(self.scope.columns())
    }

    pub(crate) fn passes(&self, record: &Record<'_>, trace: Trace<'_>) -> bool {
        let cost = record.cost_nano_usd;
        self.from_ms.is_none_or(|from| from <= record.started_at_ms)
            && self.to_ms.is_none_or(|to| record.started_at_ms < to)
            && self.status.is_none_or(|status| status == record.status)
            && self.status_class.is_none_or(|class| class == record.status / 100)
            && self.duration_us_min.is_none_or(|min| min <= record.duration_us)
            && self.first_content_us_min.is_none_or(|min| record.first_content_us.is_some_and(|us| min <= us))
            && self.cost_min.is_none_or(|min| cost.is_some_and(|cost| min <= cost))
            && self.cost_max.is_none_or(|max| cost.is_some_and(|cost| cost <= max))
            && self.error.as_deref().is_none_or(|error| record.name(RecordName::Error) == error)
            && self.request_id_prefix.as_deref().is_none_or(|prefix| record.request_id.starts_with(prefix))
            && self.is_failed.is_none_or(|is_failed| is_failed == has_failed(record, trace))
            && self.chosen_by.is_none_or(|chosen_by| {
                let choice = record.choice.and_then(TargetChoice::of_code);
                choice.is_some_and(|choice| choice.chosen_by == chosen_by)
            })
            && is_one_of(record.name(RecordName::Session), &self.sessions)
            && has_names(record, &self.names)
            && self.scope.has(record)
            && self.marks.fit(record)
            && self.search.as_ref().is_none_or(|search| search.fits(record))
            && self.attempts.fits(record, trace)
    }

    /// True if the block `row` with these names may contain an exchange that passes.
    pub(crate) fn may_pass(&self, row: RecordId, names: &[&str]) -> bool {
        let wanted = self.names.iter().map(|(_, name)| name.as_str()).chain(self.error.as_deref());
        wanted.chain(self.attempts.names()).filter(|name| !name.is_empty()).all(|name| names.contains(&name))
            && (self.sessions.is_empty() || names.iter().any(|name| is_one_of(name, &self.sessions)))
            && self.marks.may_fit(names)
            && self.scope.may_have(names)
            && self.search.as_ref().is_none_or(|search| search.may_fit(row, names))
    }
}

/// True if an exchange failed for no fault of the client, or broke off.
fn has_failed(record: &Record<'_>, trace: Trace<'_>) -> bool {
    matches!(ExchangeEnd::of(record, trace), ExchangeEnd::Failed | ExchangeEnd::Cut)
}

fn is_one_of(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}
