//! The exchanges that a query is about: all of them, those of some projects, or those of some objects.

use std::collections::BTreeSet;

use records::{Record, RecordName};

use super::requests::Column;

/// A restriction to exchanges that a caller may see or asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageScope {
    /// The IDs of the projects; `None` restricts nothing.
    projects: Option<BTreeSet<String>>,
    /// The values that a column may have; `None` restricts nothing.
    only: Option<(Column, BTreeSet<String>)>,
}

impl UsageScope {
    /// Restricts to projects by ID; `None` restricts nothing.
    pub(crate) fn of(projects: Option<Vec<String>>) -> Self {
        Self { projects: projects.map(BTreeSet::from_iter), only: None }
    }

    /// Restricts to the exchanges with some values in a column, in addition to the projects.
    pub(crate) fn only(self, column: Column, values: BTreeSet<String>) -> Self {
        Self { only: Some((column, values)), ..self }
    }

    /// True if the exchange is in scope.
    pub(crate) fn has(&self, record: &Record<'_>) -> bool {
        self.has_project(record.name(RecordName::Project))
            && self.only.as_ref().is_none_or(|(column, values)| values.contains(column.of(record)))
    }

    /// True if exchanges with these values are in scope.
    pub(crate) fn admits<'a>(&self, value: impl Fn(Column) -> &'a str) -> bool {
        self.sets().all(|(column, values)| values.contains(value(column)))
    }

    /// Returns the columns that are restricted.
    pub(crate) fn columns(&self) -> impl Iterator<Item = Column> {
        self.sets().map(|(column, _)| column)
    }

    /// True if exchanges of the project are in scope.
    pub(crate) fn has_project(&self, project: &str) -> bool {
        self.projects.as_ref().is_none_or(|projects| projects.contains(project))
    }

    /// True if a block with these names may contain an exchange in scope.
    pub(crate) fn may_have(&self, names: &[&str]) -> bool {
        self.projects.is_none() || names.iter().any(|name| self.has_project(name))
    }

    /// Returns a condition on the columns, with a parameter for each of the [`Self::values`].
    pub(crate) fn sql(&self) -> String {
        let condition = |(at, (column, _)): (usize, (Column, _))| {
            format!(" AND {} IN (SELECT value FROM json_each(:scope_{at}))", column.name())
        };
        self.sets().enumerate().map(condition).collect()
    }

    /// Returns the values of the condition: JSON arrays.
    pub(crate) fn values(&self) -> Vec<String> {
        self.sets().map(|(_, values)| serde_json::json!(values).to_string()).collect()
    }

    fn sets(&self) -> impl Iterator<Item = (Column, &BTreeSet<String>)> {
        let projects = self.projects.iter().map(|projects| (Column::Project, projects));
        projects.chain(self.only.iter().map(|(column, values)| (*column, values)))
    }
}
