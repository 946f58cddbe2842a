//! What a commit changed, as far as snapshots are concerned.

use std::collections::BTreeSet;

/// The parts of a snapshot that a commit touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Keys, projects, principals, quotas.
    pub(crate) access: TouchedAccess,
    /// Providers, endpoints, models, prices.
    pub(crate) routing: bool,
}

/// The keys whose access may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TouchedAccess {
    /// None.
    #[default]
    Nothing,
    /// Some keys, by their ids, and limits of keys that are deleted.
    Some(ChangedKeys),
    /// All of them.
    All,
}

/// Changes that concern some keys alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedKeys {
    /// The keys that were made or changed, or whose limits were.
    pub(crate) keys: BTreeSet<String>,
    /// Limits that were deleted.
    pub(crate) limits_gone: BTreeSet<String>,
}

impl Touched {
    pub(crate) const NOTHING: Self = Self { access: TouchedAccess::Nothing, routing: false };
    pub(crate) const ACCESS: Self = Self { access: TouchedAccess::All, routing: false };
    pub(crate) const ROUTING: Self = Self { access: TouchedAccess::Nothing, routing: true };

    /// Some keys.
    pub(crate) fn keys(keys: impl IntoIterator<Item = String>) -> Self {
        Self::changed(ChangedKeys { keys: keys.into_iter().collect(), limits_gone: BTreeSet::new() })
    }

    /// Some keys and limits.
    pub(crate) fn changed(changed: ChangedKeys) -> Self {
        Self { access: TouchedAccess::Some(changed), routing: false }
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { access: self.access.and(other.access), routing: self.routing || other.routing }
    }
}

impl TouchedAccess {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Nothing, other) | (other, Self::Nothing) => other,
            (Self::Some(mut one), Self::Some(other)) => {
                one.keys.extend(other.keys);
                one.limits_gone.extend(other.limits_gone);
                // Bounded: many changes at once cost as much as all.
                if one.keys.len() + one.limits_gone.len() > CHANGED_MAX { Self::All } else { Self::Some(one) }
            }
        }
    }
}

/// Keys and limits that are changed one by one.
const CHANGED_MAX: usize = 1_024;
