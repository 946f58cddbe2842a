//! Read-only checks of a state directory, which may be in use by a running gateway.

use std::path::Path;

use shared::secret::Secret;

use crate::db::chain::{self, ChainBroken, ChainHolds};
use crate::db::error::OpenError;
use crate::db::sealed::{Survey, survey};
use crate::db::sqlite_state::open::{DATABASE, open_to_read, sql_error};

/// Verifies the hash chain of the audit log of the state in `dir`.
pub fn verify_audit(
    dir: &Path,
    encryption_key: &Secret<[u8; 32]>,
) -> Result<Result<ChainHolds, ChainBroken>, OpenError> {
    let (db, keys) = open_to_read(dir, encryption_key)?;
    // A single transaction, so that concurrent writes are not visible to the check.
    let verified = db.read_transaction().and_then(|tx| chain::verify(&tx, &keys));
    verified.map_err(|source| sql_error(&dir.join(DATABASE), source))
}

/// Tries to open every sealed value of the state in `dir`.
pub fn verify_credentials(dir: &Path, encryption_key: &Secret<[u8; 32]>) -> Result<Survey, OpenError> {
    let (db, keys) = open_to_read(dir, encryption_key)?;
    let surveyed = db.read_transaction().and_then(|tx| survey(&tx, &keys));
    surveyed.map_err(|source| sql_error(&dir.join(DATABASE), source))
}
