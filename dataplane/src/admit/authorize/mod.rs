//! Authorization of callers (AUTH-2, AUTH-4): operations before the body is read, targets when the plan is made. For
//! a caller without allowlists and a target without an owner this costs two comparisons.

use shared::access::{Access, Role};
use shared::error_kind::ErrorKind;
use shared::operation::Operation;
use shared::routing::Target;
use shared::snapshot::Route;
use shared::usage::StepResult;

use crate::error::Fault;

/// Checks that the caller's allowlists permit `operation`.
pub(crate) fn operation(access: &Access, operation: Operation) -> Result<(), Fault> {
    if is_unlisted(access) || access.allowlists.iter().all(|list| list.permits_route(operation)) {
        return Ok(());
    }
    let message = format!("The key, or its project, is not allowed {}.", operation.name());
    Err(Fault::new(ErrorKind::NotAllowed, message))
}

/// Returns the reason why the caller may not use `target`, selected through the endpoint `endpoint` or by its own
/// name; `None` if it may. Allowlists are checked first, so that a caller who may not use a provider does not learn
/// that it has an owner.
pub(crate) fn refusal(access: &Access, endpoint: Option<&str>, target: &Target) -> Option<StepResult> {
    if !is_unlisted(access) && !access.allowlists.iter().all(|list| list.permits(endpoint, target)) {
        Some(StepResult::NotAllowed)
    } else if !access.may_use(&target.provider) {
        Some(StepResult::Private)
    } else {
        None
    }
}

/// Returns the route that `route` becomes for this caller: a name that several models have is an alias if the caller
/// may use exactly one of them (SEL-3). Returns `None` if the caller may use none of the targets, or more than one of
/// an ambiguous name.
pub(crate) fn usable(access: &Access, route: &Route) -> Option<Route> {
    let endpoint = route.endpoint().map(|name| name.as_str());
    let may_use = |target: &&Target| refusal(access, endpoint, target).is_none();
    match route {
        Route::Endpoint(_) | Route::Model(_) | Route::Alias(_) => {
            route.targets().iter().find(may_use).map(|_| route.clone())
        }
        Route::Ambiguous(targets) => {
            let mut usable = targets.iter().filter(may_use);
            let first = usable.next()?;
            usable.next().is_none().then(|| Route::Alias(first.clone()))
        }
    }
}

fn is_unlisted(access: &Access) -> bool {
    access.allowlists.is_empty() || access.role == Role::Administrator
}

#[cfg(test)]
mod tests;
