//! Fields of a PATCH: left out is kept, `null` is cleared, anything else is set (RFC 7396).

use serde::{Deserialize, Deserializer};

/// What a PATCH says of one field. The field needs `#[serde(default)]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldChange<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> FieldChange<T> {
    /// The value after the change of a field that may be empty.
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
