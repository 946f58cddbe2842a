//! The access of a key, a project or a human, read from the database. Unlike a snapshot, it includes those that are
//! closed, with the obstacles that close them.

use std::collections::BTreeSet;

use shared::access::{Access, Allowlist, Role};
use shared::clock::unix_ms;
use shared::id::PrincipalId;
use shared::key_hash::KeyHash;
use shared::quota::Counters;

use super::access::{ProjectAccess, access};
use super::quotas::QuotasBySubject;
use crate::db::engine::{Db, DbResult};
use crate::db::keys::{self, KeyState, OpeningKey};
use crate::db::quotas::Rules;
use crate::db::{principals, projects};
use crate::routing::selector_access::Obstacle;

/// The access of a key, project or human, whether it is open or not.
#[derive(Debug)]
pub(crate) struct AccessHolder {
    pub(crate) access: Access,
    /// The obstacles to every selector; empty if the holder is open.
    pub(crate) obstacles: Vec<Obstacle>,
}

impl AccessHolder {
    /// Returns the access of a key.
    pub(crate) fn key(db: &Db, id: &str) -> DbResult<Option<Self>> {
        let now_ms = unix_ms();
        let (Some(key), Some(opening)) = (keys::find(db, id, now_ms)?, keys::opening(db, id, now_ms)?) else {
            return Ok(None);
        };
        let mut obstacles = Vec::new();
        match key.state {
            KeyState::Active => {}
            KeyState::Expired => obstacles.push(Obstacle::KeyExpired),
            KeyState::Disabled => obstacles.push(Obstacle::KeyDisabled),
            KeyState::Revoked => obstacles.push(Obstacle::KeyRevoked),
        }
        if let Some(human) = &opening.acts_as
            && principals::find(db, human)?.is_some_and(|human| human.disabled)
        {
            obstacles.push(Obstacle::PrincipalDisabled);
        }
        Self::of(db, opening, obstacles)
    }

    /// Returns the access of a key of a project that has no lists of its own and acts for no human.
    pub(crate) fn project(db: &Db, id: &str) -> DbResult<Option<Self>> {
        Self::of(db, bare_key(id, None), Vec::new())
    }

    /// Returns the access of a key that acts as a human and is bound by no lists.
    pub(crate) fn human(db: &Db, id: &str) -> DbResult<Option<Self>> {
        let Some(human) = principals::find(db, id)? else { return Ok(None) };
        let book = QuotasBySubject::uncounted(rules_of_human(db, id)?);
        let obstacles = human.disabled.then_some(Obstacle::PrincipalDisabled).into_iter().collect();
        Ok(Some(Self { access: access_of_human("", id, &book), obstacles }))
    }

    /// Returns the access of a human as the key `key`, bound by no lists. The limits of the human, of providers and of the
    /// gateway count in `counters`, with those of all keys. `None` if the human does not exist or is disabled.
    pub(crate) fn counted_human(
        db: &Db,
        (key, id): (&str, &str),
        counters: &Counters,
    ) -> DbResult<Option<Access>> {
        if principals::find(db, id)?.is_none_or(|human| human.disabled) {
            return Ok(None);
        }
        let book = QuotasBySubject::read(rules_of_human(db, id)?, db, (counters, &BTreeSet::new()))?;
        Ok(Some(access_of_human(key, id, &book)))
    }

    /// Returns the access of `key`; `None` if its project does not exist.
    fn of(db: &Db, key: OpeningKey, mut obstacles: Vec<Obstacle>) -> DbResult<Option<Self>> {
        let Some(project) = projects::find(db, &key.project)? else { return Ok(None) };
        if project.disabled {
            obstacles.push(Obstacle::ProjectDisabled);
        }
        let book = QuotasBySubject::uncounted(Rules::load_of(db, std::slice::from_ref(&key), [])?);
        Ok(Some(Self { access: access(key, &ProjectAccess::of(project), &book), obstacles }))
    }
}

/// Returns the limits that may count a request of a human without a key.
fn rules_of_human(db: &Db, id: &str) -> DbResult<Rules> {
    Rules::load_of(db, &[bare_key("", Some(id.to_owned()))], [])
}

fn access_of_human(key: &str, id: &str, book: &QuotasBySubject) -> Access {
    Access {
        acts_as: Some(PrincipalId::new(id)),
        quotas: book.of("", "", Some(id)),
        ..Access::new(key, Role::Project)
    }
}

/// Returns a key without an id and lists.
fn bare_key(project: &str, acts_as: Option<String>) -> OpeningKey {
    OpeningKey {
        id: String::new(),
        hash: KeyHash([0; 32]),
        project: project.to_owned(),
        acts_as,
        expires_at_ms: None,
        allowlist: Allowlist::default(),
        tags: None,
        is_open: true,
    }
}
