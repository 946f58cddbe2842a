//! Changes to the three allowlists of keys and projects.

use std::collections::BTreeSet;

use shared::access::Allowlist;
use shared::operation::Operation;

use crate::change::FieldChange;

/// The changes to an allowlist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowlistEdit {
    pub(crate) models: FieldChange<BTreeSet<Box<str>>>,
    pub(crate) endpoints: FieldChange<BTreeSet<Box<str>>>,
    pub(crate) routes: FieldChange<Vec<Operation>>,
}

impl AllowlistEdit {
    /// Returns the allowlist after the change.
    pub(crate) fn of(self, before: Allowlist) -> Allowlist {
        Allowlist {
            models: self.models.of(before.models),
            endpoints: self.endpoints.of(before.endpoints),
            routes: self.routes.of(before.routes),
        }
    }
}
