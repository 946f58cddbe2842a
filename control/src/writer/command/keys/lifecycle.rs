//! The states of a key and the operations allowed in each, as one table.

use crate::db::keys::KeyState;
use crate::writer::command::CommandRefusal;

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOperation {
    Enable,
    Disable,
    Revoke,
    Edit,
    Rotate,
    Reveal,
    Delete,
}

/// Returns the state after `edge`, or a conflict whose message suggests an alternative. Requesting the state that a
/// key already has is not an error.
pub(super) fn follow(state: KeyState, edge: KeyOperation) -> Result<KeyState, CommandRefusal> {
    use KeyOperation::{Delete, Disable, Edit, Enable, Reveal, Revoke, Rotate};
    use KeyState::{Active, Disabled, Expired, Revoked};
    let next = match (state, edge) {
        (Active | Disabled, Enable) => Ok(Active),
        (Active | Expired | Disabled, Disable) => Ok(Disabled),
        (Active | Expired | Disabled | Revoked, Revoke) => Ok(Revoked),
        (Active | Expired | Disabled, Edit | Reveal) | (Active, Rotate) | (Revoked, Delete) => Ok(state),
        (Expired, Enable | Rotate) => Err("The key has expired. Set a later expires_at first, or null."),
        (Disabled, Rotate) => Err("The key is disabled. Enable it first, or create a new key."),
        (Active | Expired | Disabled, Delete) => Err("Only a revoked key can be deleted. Revoke it first."),
        (Revoked, Enable | Disable | Edit | Rotate) => {
            Err("The key is revoked permanently. Create a new key.")
        }
        (Revoked, Reveal) => Err("The key is revoked, and its sealed copy is erased. Create a new key."),
    };
    next.map_err(CommandRefusal::conflict)
}
