//! Authorization of operations (AUTH-2), before the body is read. Targets are authorized when the plan is made, by
//! [`Access::refusal`].

use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::operation::Operation;

use crate::error::Fault;

/// Checks that the caller's allowlists permit `operation`.
pub(crate) fn operation(access: &Access, operation: Operation) -> Result<(), Fault> {
    if access.is_unlisted() || access.allowlists.iter().all(|list| list.permits_route(operation)) {
        return Ok(());
    }
    let message = format!("The key, or its project, is not allowed {}.", operation.name());
    Err(Fault::new(ErrorKind::NotAllowed, message))
}

#[cfg(test)]
mod tests;
