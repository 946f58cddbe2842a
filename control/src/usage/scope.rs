//! The exchanges that a caller may see: all of them, or those of some projects.

use std::collections::BTreeSet;

use records::{Record, RecordName};
use rusqlite::types::Value;

/// A restriction to exchanges of some projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageScope {
    /// The IDs of the projects; `None` restricts nothing.
    projects: Option<BTreeSet<String>>,
}

impl UsageScope {
    /// Restricts to projects by ID; `None` restricts nothing.
    pub(crate) fn of(projects: Option<Vec<String>>) -> Self {
        Self { projects: projects.map(BTreeSet::from_iter) }
    }

    /// True if the exchange is in scope.
    pub(crate) fn has(&self, record: &Record<'_>) -> bool {
        self.has_project(record.name(RecordName::Project))
    }

    /// True if exchanges of the project are in scope.
    pub(crate) fn has_project(&self, project: &str) -> bool {
        self.projects.as_ref().is_none_or(|projects| projects.contains(project))
    }

    /// True if a block with these names may contain an exchange in scope.
    pub(crate) fn may_have(&self, names: &[&str]) -> bool {
        self.projects.is_none() || names.iter().any(|name| self.has_project(name))
    }

    /// Returns a condition on the column `project`, with a place for each of the [`Self::values`].
    pub(crate) fn sql(&self) -> String {
        let Some(projects) = &self.projects else { return String::new() };
        format!(" AND project IN ({})", vec!["?"; projects.len()].join(", "))
    }

    /// Returns the values of the condition.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value> {
        self.projects.iter().flatten().map(|project| Value::from(project.clone()))
    }
}
