//! The filters of exchanges.

use records::{Record, RecordName};

use crate::usage::dimension::Marks;

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
}

impl RequestFilter {
    pub(crate) fn passes(&self, record: &Record<'_>) -> bool {
        let cost = record.cost_nano_usd;
        self.from_ms.is_none_or(|from| from <= record.started_at_ms)
            && self.to_ms.is_none_or(|to| record.started_at_ms < to)
            && self.status.is_none_or(|status| status == record.status)
            && self.duration_us_min.is_none_or(|min| min <= record.duration_us)
            && self.cost_min.is_none_or(|min| cost.is_some_and(|cost| min <= cost))
            && self.cost_max.is_none_or(|max| cost.is_some_and(|cost| cost <= max))
            && self.error.as_deref().is_none_or(|error| record.name(RecordName::Error) == error)
            && self.request_id_prefix.as_deref().is_none_or(|prefix| record.request_id.starts_with(prefix))
            && has_names(record, &self.names)
            && self.marks.fit(record)
    }

    /// True if a block with these names may contain an exchange that passes.
    pub(crate) fn may_pass(&self, names: &[&str]) -> bool {
        let wanted = self.names.iter().map(|(_, name)| name).chain(&self.error);
        wanted.filter(|name| !name.is_empty()).all(|name| names.contains(&name.as_str()))
            && self.marks.may_fit(names)
    }
}
