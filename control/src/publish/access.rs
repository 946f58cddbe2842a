//! The access half of a snapshot: who may call, by the hash of their key.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;
use shared::access::{Access, AccessTable, Allowlist, KeyHash, KeyHasher, Role};
use shared::id::{KeyId, PrincipalId, ProjectId};
use shared::quota::Counters;

use super::quotas::Book;
use crate::config::{AdminKey, Config};
use crate::store::keys::{self, Opening};
use crate::store::projects;

/// Every key that opens the data plane: the static ones of `config`, then the project keys of the database.
/// Keys draw on `counters` for the limits that bind them.
pub(crate) fn table(
    config: &Config,
    hasher: &KeyHasher,
    counters: &Counters,
    db: &Connection,
) -> rusqlite::Result<AccessTable> {
    let book = Book::read(db, counters)?;
    let unbound = book.unbound();
    let caller = |key: &str, role| Arc::new(Access { quotas: unbound.clone(), ..Access::new(key, role) });
    let mut table = AccessTable {
        keys: project_keys(&book, db)?,
        anonymous: config.server.unauthenticated_api.then(|| caller("local", Role::Local)),
        unbound: unbound.clone(),
    };
    // Static keys come last: nothing that is stored takes the place of one.
    for AdminKey { id, key } in &config.admin_keys {
        table.keys.insert(hasher.hash(key.expose().as_bytes()), caller(id, Role::Administrator));
    }
    Ok(table)
}

/// What all keys of a project have in common.
struct Project {
    id: ProjectId,
    allowlist: Option<Arc<Allowlist>>,
}

fn project_keys(book: &Book, db: &Connection) -> rusqlite::Result<HashMap<KeyHash, Arc<Access>>> {
    let projects = projects::enabled(db)?;
    let projects: HashMap<String, Project> = projects
        .into_iter()
        .map(|row| {
            let project = Project { id: ProjectId::new(row.id.as_str()), allowlist: said(row.allowlist) };
            (row.id, project)
        })
        .collect();
    let mut keys = HashMap::new();
    keys::each_open(db, shared::clock::unix_ms(), |key| {
        if let Some(project) = projects.get(&key.project) {
            keys.insert(key.hash, Arc::new(access(key, project, book)));
        }
    })?;
    Ok(keys)
}

fn access(key: Opening, project: &Project, book: &Book) -> Access {
    Access {
        quotas: book.of(&key.id, project.id.as_str(), key.acts_as.as_deref()),
        key: KeyId::new(key.id),
        role: Role::Project,
        project: Some(project.id.clone()),
        acts_as: key.acts_as.map(PrincipalId::new),
        expires_at_ms: key.expires_at_ms,
        allowlists: said(key.allowlist).into_iter().chain(project.allowlist.clone()).collect(),
    }
}

/// The list, if it says something.
fn said(allowlist: Allowlist) -> Option<Arc<Allowlist>> {
    (allowlist != Allowlist::default()).then(|| Arc::new(allowlist))
}
