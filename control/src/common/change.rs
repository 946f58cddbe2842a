//! Changes to fields: in a PATCH, an absent field is kept, `null` clears it, any other value sets it (RFC 7396).

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use shared::access::Allowlist;
use shared::operation::Operation;

/// The change that a PATCH makes to one field. The field needs `#[serde(default)]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldChange<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T: Clone> FieldChange<T> {
    /// Returns the new value of an optional field whose value was `before`.
    pub(crate) fn of(&self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value.clone()),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FieldChange<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for FieldChange<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        Option::<T>::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Option::<T>::json_schema(generator)
    }
}

/// The changes to the three allowlists of a key or project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowlistEdit {
    pub(crate) models: FieldChange<BTreeSet<Box<str>>>,
    pub(crate) endpoints: FieldChange<BTreeSet<Box<str>>>,
    pub(crate) routes: FieldChange<Vec<Operation>>,
}

impl AllowlistEdit {
    /// Returns the allowlist after the change.
    pub(crate) fn of(&self, before: Allowlist) -> Allowlist {
        Allowlist {
            models: self.models.of(before.models),
            endpoints: self.endpoints.of(before.endpoints),
            routes: self.routes.of(before.routes),
        }
    }
}
