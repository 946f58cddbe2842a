//! The parts of a snapshot that a commit changed.

use std::collections::BTreeSet;

/// The parts of a snapshot that a commit touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Keys, projects, principals and quotas.
    pub(crate) access: TouchedAccess,
    /// Providers, endpoints, models and prices.
    pub(crate) routing: bool,
}

/// The keys whose access may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TouchedAccess {
    /// No keys.
    #[default]
    Nothing,
    /// Some keys, by id, and quotas of deleted keys.
    Some(ChangedKeys),
    /// The keys of a project or of a human.
    Group(KeyGroup),
    /// All keys.
    All,
}

/// The keys that share a project or a human.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyGroup {
    /// The keys of a project, by its id.
    Project(String),
    /// The keys that act as a human, by the id of the principal.
    Principal(String),
}

/// Changes that affect only some keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedKeys {
    /// The keys that were created or changed, or whose quotas were.
    pub(crate) keys: BTreeSet<String>,
    /// The quotas that were deleted.
    pub(crate) limits_gone: BTreeSet<String>,
}

impl Touched {
    pub(crate) const NOTHING: Self = Self { access: TouchedAccess::Nothing, routing: false };
    /// Everything about keys: limits that apply to all of them, for example.
    pub(crate) const ACCESS: Self = Self { access: TouchedAccess::All, routing: false };
    pub(crate) const ROUTING: Self = Self { access: TouchedAccess::Nothing, routing: true };

    /// Marks the keys of a project as changed.
    pub(crate) fn project(id: &str) -> Self {
        Self { access: TouchedAccess::Group(KeyGroup::Project(id.to_owned())), routing: false }
    }

    /// Marks the keys that act as a human as changed.
    pub(crate) fn principal(id: &str) -> Self {
        Self { access: TouchedAccess::Group(KeyGroup::Principal(id.to_owned())), routing: false }
    }

    /// Marks some keys as changed.
    pub(crate) fn keys(keys: impl IntoIterator<Item = String>) -> Self {
        Self::changed(ChangedKeys { keys: keys.into_iter().collect(), limits_gone: BTreeSet::new() })
    }

    /// Marks some keys and quotas as changed.
    pub(crate) fn changed(changed: ChangedKeys) -> Self {
        Self { access: TouchedAccess::Some(changed), routing: false }
    }

    /// Returns the union of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { access: self.access.and(other.access), routing: self.routing || other.routing }
    }
}

impl TouchedAccess {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Nothing, other) | (other, Self::Nothing) => other,
            (Self::Group(one), Self::Group(other)) if one == other => Self::Group(one),
            (Self::Group(_), _) | (_, Self::Group(_)) => Self::All,
            (Self::Some(mut one), Self::Some(other)) => {
                one.keys.extend(other.keys);
                one.limits_gone.extend(other.limits_gone);
                // Bounded: beyond this, rereading all keys costs no more.
                if one.keys.len() + one.limits_gone.len() > CHANGED_MAX { Self::All } else { Self::Some(one) }
            }
        }
    }
}

/// The most keys and quotas that are changed one by one.
const CHANGED_MAX: usize = 1_024;
