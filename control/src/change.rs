//! Fields of a PATCH: an absent field is kept, `null` clears it, any other value sets it (RFC 7396).

use serde::{Deserialize, Deserializer};

/// The change that a PATCH makes to one field. The field needs `#[serde(default)]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldChange<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> FieldChange<T> {
    /// Returns the new value of an optional field whose value was `before`.
    pub(crate) fn of(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FieldChange<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}
