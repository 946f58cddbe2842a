//! The access half of a snapshot: the callers, by the hash of their key.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shared::access::{Access, Allowlist, Role};
use shared::id::{KeyId, PrincipalId, ProjectId};
use shared::key_hash::{KeyHash, KeyHasher};
use shared::key_table::{AccessTable, KeyTable};
use shared::quota::Counters;

use super::quotas::QuotasBySubject;
use super::touched::{ChangedKeys, KeyGroup};
use crate::db::engine::{Db, DbResult};
use crate::db::keys::{self, OpeningKey};
use crate::db::projects;
use crate::db::quotas::Rules;
use crate::routing::config::{AdminKey, Config};

/// The access half as published last.
#[derive(Debug, Default)]
pub(super) struct AccessHalf {
    pub(super) table: Arc<AccessTable>,
    /// The keys that expire, ordered by expiry.
    ends: BTreeSet<(u64, KeyHash)>,
}

impl AccessHalf {
    /// Reads every key that opens the data plane: the static keys of `config`, then the project keys of the database.
    /// Limits that apply to a key count in `counters`.
    pub(super) fn read(config: &Config, hasher: &KeyHasher, counters: &Counters, db: &Db) -> DbResult<Self> {
        let book = QuotasBySubject::read(Rules::load(db)?, db, (counters, &BTreeSet::new()))?;
        book.keep_only_its(counters);
        book.replace_in(counters);
        let unbound = book.unbound();
        let caller = |key: &str, role| Arc::new(Access { quotas: unbound.clone(), ..Access::new(key, role) });
        let mut half = Self { table: Arc::default(), ends: BTreeSet::new() };
        let mut keys = half.project_keys(&book, db)?;
        // Static keys are inserted last, so that no stored key replaces one.
        for AdminKey { id, key } in &config.admin_keys {
            keys.insert(hasher.hash(key.expose().as_bytes()), caller(id, Role::Administrator));
        }
        let anonymous = config.server.unauthenticated_api.then(|| caller("local", Role::Local));
        half.table = Arc::new(AccessTable { keys, anonymous, unbound: unbound.clone() });
        Ok(half)
    }

    fn project_keys(&mut self, book: &QuotasBySubject, db: &Db) -> DbResult<KeyTable> {
        let mut projects = HashMap::new();
        for row in projects::enabled(db)? {
            projects.insert(row.id.clone(), ProjectAccess::of(row));
        }
        let mut table = KeyTable::default();
        keys::each_open(db, shared::clock::unix_ms(), |key| {
            if let Some(project) = projects.get(&key.project) {
                self.open(&mut table, key.hash, access(key, project, book));
            }
        })?;
        Ok(table)
    }

    /// Rereads the changed keys. Returns false if a key cannot be reread by itself, or if so many keys changed that
    /// reading all costs less; the caller must then read all keys.
    pub(super) fn change(&mut self, changed: &ChangedKeys, counters: &Counters, db: &Db) -> DbResult<bool> {
        let now_ms = shared::clock::unix_ms();
        let mut openings = Vec::new();
        for id in &changed.keys {
            // The table cannot find a key by its id, and a deleted key has no row that holds its hash.
            let Some(key) = keys::opening(db, id, now_ms)? else { return Ok(false) };
            openings.push(key);
        }
        // A key that is read by itself takes about four times as long as one of all.
        let keys_max = CHANGED_MIN.saturating_add(self.table.keys.len() / 4);
        for group in &changed.groups {
            openings.extend(openings_of(db, group, now_ms, keys_max.saturating_add(1))?);
        }
        if openings.len() > keys_max {
            return Ok(false);
        }
        let rules = Rules::load_of(db, &openings, changed.groups.iter().map(KeyGroup::subject))?;
        let book = QuotasBySubject::read(rules, db, (counters, &changed.new_keys))?;
        book.replace_in(counters);
        let mut table = self.table.keys.clone();
        let mut reader = AccessReader { db, book: &book, projects: HashMap::new() };
        for key in openings {
            if table.get(&key.hash).is_some_and(|access| access.role != Role::Project) {
                continue;
            }
            let hash = key.hash;
            match reader.access_of(key)? {
                Some(access) => self.open(&mut table, hash, access),
                None => table.remove(&hash),
            }
        }
        self.leave_out_ended(&mut table, now_ms);
        changed.limits_gone.iter().for_each(|id| counters.remove(id));
        let AccessTable { anonymous, unbound, .. } = &*self.table;
        self.table =
            Arc::new(AccessTable { keys: table, anonymous: anonymous.clone(), unbound: unbound.clone() });
        Ok(true)
    }

    /// Adds a key to the table, and its end to the ends.
    fn open(&mut self, table: &mut KeyTable, hash: KeyHash, access: Access) {
        self.ends.extend(access.expires_at_ms.map(|end| (end, hash)));
        table.insert(hash, Arc::new(access));
    }

    /// Removes keys that expired at or before `now_ms` from the table.
    fn leave_out_ended(&mut self, table: &mut KeyTable, now_ms: u64) {
        while let Some(&(end, hash)) = self.ends.first()
            && end <= now_ms
        {
            self.ends.pop_first();
            let has_ended = |access: &Arc<Access>| access.expires_at_ms.is_some_and(|end| end <= now_ms);
            if table.get(&hash).is_some_and(has_ended) {
                table.remove(&hash);
            }
        }
    }
}

/// Reads the access of single keys. Each project is read once.
pub(super) struct AccessReader<'a> {
    pub(super) db: &'a Db,
    pub(super) book: &'a QuotasBySubject,
    pub(super) projects: HashMap<String, Option<ProjectAccess>>,
}

impl AccessReader<'_> {
    /// Returns the access of a key, open or not; `None` if it opens nothing.
    pub(super) fn access_of(&mut self, key: OpeningKey) -> DbResult<Option<Access>> {
        if !self.projects.contains_key(&key.project) {
            let project = projects::find(self.db, &key.project)?.filter(|project| !project.disabled);
            self.projects.insert(key.project.clone(), project.map(ProjectAccess::of));
        }
        let project = self.projects.get(&key.project).and_then(Option::as_ref).filter(|_| key.is_open);
        Ok(project.map(|project| access(key, project, self.book)))
    }
}

/// The access settings that all keys of a project share.
pub(super) struct ProjectAccess {
    id: ProjectId,
    allowlist: Option<Arc<Allowlist>>,
}

impl ProjectAccess {
    pub(super) fn of(row: projects::StoredProject) -> Self {
        Self { id: ProjectId::new(row.id), allowlist: restricting(row.allowlist) }
    }
}

pub(super) fn access(key: OpeningKey, project: &ProjectAccess, book: &QuotasBySubject) -> Access {
    Access {
        quotas: book.of(&key.id, project.id.as_str(), key.acts_as.as_deref()),
        key: KeyId::new(key.id),
        role: Role::Project,
        project: Some(project.id.clone()),
        acts_as: key.acts_as.map(PrincipalId::new),
        expires_at_ms: key.expires_at_ms,
        tags: key.tags,
        allowlists: restricting(key.allowlist).into_iter().chain(project.allowlist.clone()).collect(),
    }
}

/// Returns up to `rows` keys of a group, open or not.
pub(super) fn openings_of(db: &Db, group: &KeyGroup, now_ms: u64, rows: usize) -> DbResult<Vec<OpeningKey>> {
    match group {
        KeyGroup::Project(id) => keys::openings_of_project(db, id, now_ms, rows),
        KeyGroup::Principal(id) => keys::openings_of_human(db, id, now_ms, rows),
    }
}

/// Returns the list unless it is empty.
fn restricting(allowlist: Allowlist) -> Option<Arc<Allowlist>> {
    (allowlist != Allowlist::default()).then(|| Arc::new(allowlist))
}

/// This many changed keys are reread by themselves, however few there are.
const CHANGED_MIN: usize = 256;
