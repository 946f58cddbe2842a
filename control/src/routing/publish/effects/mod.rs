//! The effects of a change on callers and endpoints: a comparison of two routing views and of the access to them,
//! computed away from the writer thread and within a time limit.

mod comparison;
mod warnings;

#[cfg(test)]
mod tests;

use std::time::Instant;

use serde::Serialize;

use self::comparison::Comparison;
use super::preview::ChangePreview;

/// The effects of a change.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Effects {
    /// Keys that lose selectors, in the order of their ids; at most 100.
    pub(crate) loses: Vec<KeyEffect>,
    /// Keys that gain selectors, in the order of their ids; at most 100.
    pub(crate) gains: Vec<KeyEffect>,
    /// The number of keys that lose selectors.
    pub(crate) keys_losing: usize,
    /// The number of keys that gain selectors.
    pub(crate) keys_gaining: usize,
    /// The number of existing keys to which a hard limit applies newly, or becomes stricter.
    pub(crate) keys_limited: usize,
    /// What is deleted with the object.
    pub(crate) deletes: DeletedParts,
    /// The names of the endpoints that lose a target.
    pub(crate) endpoints: Vec<String>,
    pub(crate) warnings: Vec<EffectWarning>,
    /// False if more keys may be affected: there are too many of them, or comparing them took too long.
    pub(crate) complete: bool,
}

/// The numbers of objects that are deleted because the object to which they belong is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeletedParts {
    pub(crate) keys: usize,
    pub(crate) quotas: usize,
    pub(crate) memberships: usize,
    /// Private providers that were shared with a project; the providers stay.
    pub(crate) bindings: usize,
}

/// The selectors that a key loses or gains.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeyEffect {
    /// The id of the key.
    pub(crate) key: String,
    /// The name of the key; null for a key that the change creates.
    pub(crate) key_name: Option<String>,
    /// The selectors in alphabetical order; at most 20.
    pub(crate) selectors: Vec<String>,
    /// The number of selectors.
    pub(crate) selectors_total: usize,
}

/// A consequence that does not prevent the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EffectWarning {
    /// `no_price`, `alias_replaced`, `alias_ambiguous`, `endpoint_without_target`, `key_without_selector`,
    /// `limit_reached`, `alerts_resolved` or `deliveries_deleted`.
    pub(crate) code: &'static str,
    /// The field of the request that causes it, if known.
    pub(crate) param: Option<&'static str>,
    pub(crate) message: String,
    /// The names of the models, endpoints or keys that the warning is about; at most 20.
    pub(crate) objects: Vec<String>,
}

impl ChangePreview {
    /// Compares the access of all callers before and after the change. Stops at `until`.
    pub(crate) fn effects(&self, until: Instant) -> Effects {
        let mut comparison = Comparison::new(self, until);
        comparison.changed_keys();
        comparison.other_keys();
        comparison.effects()
    }
}

/// The most keys in each of the two lists.
const KEYS_SHOWN: usize = 100;
/// The most selectors of a key, and the most objects of a warning.
const SHOWN_MAX: usize = 20;
