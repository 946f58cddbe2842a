//! Read-only checks of a state, which may be in use by a running gateway.

use shared::secret::Secret;

use super::StatePlace;
use crate::db::chain::{self, ChainBroken, ChainHolds};
use crate::db::error::OpenError;
use crate::db::sealed::{Survey, survey};

/// Verifies the hash chain of the audit log of a state.
pub fn verify_audit(
    place: StatePlace<'_>,
    encryption_key: &Secret<[u8; 32]>,
) -> Result<Result<ChainHolds, ChainBroken>, OpenError> {
    let (db, keys) = place.open_to_read(encryption_key)?;
    // A single transaction, so that concurrent writes are not visible to the check.
    let verified = db.read_transaction().and_then(|tx| chain::verify(&tx, &keys));
    verified.map_err(|source| place.error(source))
}

/// Tries to open every sealed value of a state.
pub fn verify_credentials(
    place: StatePlace<'_>,
    encryption_key: &Secret<[u8; 32]>,
) -> Result<Survey, OpenError> {
    let (db, keys) = place.open_to_read(encryption_key)?;
    let surveyed = db.read_transaction().and_then(|tx| survey(&tx, &keys));
    surveyed.map_err(|source| place.error(source))
}
