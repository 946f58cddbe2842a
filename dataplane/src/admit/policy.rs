//! The refusal of what a key may not use, in the form by which Claude Code shows it once: it tries a 403 again with another model.

use shared::access::Access;
use shared::operation::Dialect;
use shared::tags;

use crate::error::Fault;

/// Words a refusal by an allowlist for a key that Claude Code got by its sign-in.
pub(crate) fn word(access: &Access, dialect: Dialect, fault: &mut Fault) {
    if dialect == Dialect::Messages && tags::is_signed_in(access.tags.as_deref()) {
        fault.make_policy();
    }
}

/// Returns the failure, worded as by [`word`].
pub(crate) fn worded(access: &Access, dialect: Dialect, mut fault: Fault) -> Fault {
    word(access, dialect, &mut fault);
    fault
}
