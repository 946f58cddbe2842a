//! The restriction of statements to the objects that a human may see.

use serde_json::json;

/// A human with their projects, as values of statements. In the conditions, `:human` is null for an administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HumanScope {
    /// The ID of the human.
    pub(crate) human: String,
    /// The IDs of the projects of which the human is a member, as a JSON list.
    pub(crate) projects: String,
}

impl HumanScope {
    pub(crate) fn of(human: &str, projects: &[String]) -> Self {
        Self { human: human.to_owned(), projects: json!(projects).to_string() }
    }
}
