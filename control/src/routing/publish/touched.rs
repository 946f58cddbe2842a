//! The parts of a snapshot that a commit changed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shared::quota::Subject;

use crate::db::ended_sessions::SessionEnd;
use crate::db::quotas::Of;

/// The parts of a snapshot that a commit touched. Other nodes read it as JSON: one that does not know a member rereads
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Touched {
    /// Keys, projects, principals and quotas.
    pub(crate) access: TouchedAccess,
    /// Providers, endpoints, models and prices.
    pub(crate) routing: bool,
    /// The console sessions that the commit ended. They are complete: publishing them reads nothing.
    pub(crate) ended_sessions: Vec<SessionEnd>,
    /// The sign-ins at vendors that have begun or failed.
    pub(crate) sign_ins: bool,
    /// The lists of models and the price list that are stored.
    pub(crate) documents: bool,
    /// The running requests that an administrator cancels. Left out if there are none, so that a release before this member
    /// need not reread everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cancels: Vec<CancelOrder>,
}

/// A running request to cancel, at whatever node it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CancelOrder {
    pub(crate) request_id: String,
    /// The name of the order, under which each node answers whether it had the request.
    pub(crate) order: String,
}

/// The keys whose access may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TouchedAccess {
    /// No keys.
    #[default]
    Nothing,
    /// Some keys.
    Some(ChangedKeys),
    /// All keys.
    All,
}

/// The keys that share a project or a human.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyGroup {
    /// The keys of a project, by its id.
    Project(String),
    /// The keys that act as a human, by the id of the principal.
    Principal(String),
}

/// Changes that affect only some keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ChangedKeys {
    /// The keys that were created or changed, or whose quotas were.
    pub(crate) keys: BTreeSet<String>,
    /// Those of `keys` that did not exist before: nothing has been used with them.
    pub(crate) new_keys: BTreeSet<String>,
    /// Projects and humans that were changed, or whose quotas were. All their keys may have changed.
    pub(crate) groups: BTreeSet<KeyGroup>,
    /// The quotas that were deleted.
    pub(crate) limits_gone: BTreeSet<String>,
}

impl Touched {
    pub(crate) const NOTHING: Self = Self::of(TouchedAccess::Nothing, [false; 3]);
    /// Everything about keys: limits that apply to all of them, for example.
    pub(crate) const ACCESS: Self = Self::of(TouchedAccess::All, [false; 3]);
    pub(crate) const ROUTING: Self = Self::of(TouchedAccess::Nothing, [true, false, false]);
    /// The sign-ins at vendors that have begun or failed.
    pub(crate) const SIGN_INS: Self = Self::of(TouchedAccess::Nothing, [false, true, false]);
    /// The lists of models and the price list that are stored.
    pub(crate) const DOCUMENTS: Self = Self::of(TouchedAccess::Nothing, [false, false, true]);

    const fn of(access: TouchedAccess, [routing, sign_ins, documents]: [bool; 3]) -> Self {
        Self { access, routing, ended_sessions: Vec::new(), sign_ins, documents, cancels: Vec::new() }
    }

    /// Marks sessions as ended.
    pub(crate) fn ended(ended_sessions: Vec<SessionEnd>) -> Self {
        Self { ended_sessions, ..Self::NOTHING }
    }

    /// Cancels a running request.
    pub(crate) fn cancel(order: CancelOrder) -> Self {
        Self { cancels: vec![order], ..Self::NOTHING }
    }

    /// Marks the keys of a project as changed.
    pub(crate) fn project(id: &str) -> Self {
        Self::group(KeyGroup::Project(id.to_owned()))
    }

    /// Marks the keys that act as a human as changed.
    pub(crate) fn principal(id: &str) -> Self {
        Self::group(KeyGroup::Principal(id.to_owned()))
    }

    fn group(group: KeyGroup) -> Self {
        Self::changed(ChangedKeys { groups: BTreeSet::from([group]), ..ChangedKeys::default() })
    }

    /// Marks a key as created.
    pub(crate) fn new_key(id: &str) -> Self {
        let keys = BTreeSet::from([id.to_owned()]);
        Self::changed(ChangedKeys { new_keys: keys.clone(), keys, ..ChangedKeys::default() })
    }

    /// Marks some keys as changed.
    pub(crate) fn keys(keys: impl IntoIterator<Item = String>) -> Self {
        Self::changed(ChangedKeys { keys: keys.into_iter().collect(), ..ChangedKeys::default() })
    }

    /// Marks some keys and quotas as changed.
    pub(crate) fn changed(changed: ChangedKeys) -> Self {
        Self { access: TouchedAccess::Some(changed), ..Self::NOTHING }
    }

    /// Marks the quotas with these ids as deleted, beside what `self` marks.
    pub(crate) fn without_quotas(self, ids: impl IntoIterator<Item = String>) -> Self {
        let limits_gone = ids.into_iter().collect();
        self.and(Self::changed(ChangedKeys { limits_gone, ..ChangedKeys::default() }))
    }

    /// Returns the union of both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.ended_sessions.extend(other.ended_sessions);
        self.cancels.extend(other.cancels);
        Self {
            access: self.access.and(other.access),
            routing: self.routing || other.routing,
            ended_sessions: self.ended_sessions,
            sign_ins: self.sign_ins || other.sign_ins,
            documents: self.documents || other.documents,
            cancels: self.cancels,
        }
    }

    /// Returns the parts as another node must read them: keys that are new here may have been used there.
    pub(crate) fn elsewhere(mut self) -> Self {
        if let TouchedAccess::Some(changed) = &mut self.access {
            changed.new_keys.clear();
        }
        self
    }

    /// True if the snapshot must be built again.
    pub(super) fn is_of_snapshot(&self) -> bool {
        self.access != TouchedAccess::Nothing || self.routing
    }
}

impl TouchedAccess {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Nothing, other) | (other, Self::Nothing) => other,
            (Self::Some(mut one), Self::Some(other)) => {
                one.keys.extend(other.keys);
                one.new_keys.extend(other.new_keys);
                one.groups.extend(other.groups);
                one.limits_gone.extend(other.limits_gone);
                // Bounded: beyond this, rereading all keys costs no more.
                if one.len() > CHANGED_MAX { Self::All } else { Self::Some(one) }
            }
        }
    }
}

impl KeyGroup {
    /// Returns the subject of the group's own limits.
    pub(crate) fn subject(&self) -> Of {
        match self {
            Self::Project(id) => Of { kind: Subject::Project, id: id.clone() },
            Self::Principal(id) => Of { kind: Subject::Principal, id: id.clone() },
        }
    }
}

impl ChangedKeys {
    fn len(&self) -> usize {
        self.keys.len() + self.groups.len() + self.limits_gone.len()
    }
}

/// The most keys, groups and quotas that are changed one by one.
const CHANGED_MAX: usize = 1_024;
