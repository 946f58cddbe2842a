//! The selectors that a caller may use, and the obstacles to the others: the rule of the data plane's plan, as far as it
//! depends on no request. Views of access and previews of changes share it.

use serde::Serialize;
use shared::access::Access;
use shared::id::EndpointName;
use shared::routing::Target;
use shared::snapshot::Route;
use shared::usage::StepResult;

/// The access of one caller to one selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelectorAccess {
    /// The number of targets that the selector has.
    pub(crate) targets: usize,
    /// The number of targets that the caller may use. The selector is allowed if it is not 0.
    pub(crate) usable: usize,
    /// The obstacles to the other targets, each once, in the order of the targets.
    pub(crate) reasons: Vec<Obstacle>,
}

/// The reason why a caller cannot use a selector, or one of its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Obstacle {
    /// An allowlist of the key or its project does not contain it.
    NotAllowed,
    /// It is owned by a human as whom the caller does not act.
    Private,
    /// The provider cannot be used at present.
    NotReady,
    /// The caller has a hard limit on cost, and the price is unknown.
    NoPrice,
    /// The endpoint has no target that is enabled and known.
    NoTarget,
    /// Several models that the caller may use have this name.
    Ambiguous,
    /// The key is disabled.
    KeyDisabled,
    /// The key has expired.
    KeyExpired,
    /// The key is revoked.
    KeyRevoked,
    /// The project is disabled.
    ProjectDisabled,
    /// The human is disabled.
    PrincipalDisabled,
}

impl SelectorAccess {
    /// Returns the access of a caller to the selector of `route`.
    pub(crate) fn of(access: &Access, route: &Route) -> Self {
        let listed = listed(route);
        let resolved = match route {
            Route::Ambiguous(_) => route.usable(access),
            Route::Endpoint(_) | Route::Model(_) | Route::Alias(_) => None,
        };
        let targets = resolved.as_ref().map_or(listed, Route::targets);
        let mut found = Self { targets: listed.len(), ..Self::default() };
        for target in targets {
            match obstacle(access, route.endpoint(), target) {
                None => found.usable += 1,
                Some(obstacle) => found.add(obstacle),
            }
        }
        if matches!(route, Route::Ambiguous(_)) && resolved.is_none() && found.usable > 0 {
            return Self { usable: 0, reasons: vec![Obstacle::Ambiguous], ..found };
        }
        if listed.is_empty() {
            found.add(Obstacle::NoTarget);
        }
        found
    }

    /// Returns true if a request with the selector can be served.
    pub(crate) fn is_allowed(&self) -> bool {
        self.usable > 0
    }

    /// Adds an obstacle to the whole selector.
    pub(crate) fn blocked_by(mut self, obstacle: Obstacle) -> Self {
        self.usable = 0;
        self.reasons.insert(0, obstacle);
        self
    }

    fn add(&mut self, obstacle: Obstacle) {
        if !self.reasons.contains(&obstacle) {
            self.reasons.push(obstacle);
        }
    }
}

/// Returns the targets of a selector; for a name that several models have, all of them.
pub(crate) fn listed(route: &Route) -> &[Target] {
    match route {
        Route::Ambiguous(targets) => targets,
        Route::Endpoint(_) | Route::Model(_) | Route::Alias(_) => route.targets(),
    }
}

/// Returns the obstacle to one target, selected through `endpoint` or by its own name.
pub(crate) fn obstacle(
    access: &Access,
    endpoint: Option<&EndpointName>,
    target: &Target,
) -> Option<Obstacle> {
    match access.refusal(endpoint.map(EndpointName::as_str), target) {
        Some(StepResult::Private) => Some(Obstacle::Private),
        Some(_) => Some(Obstacle::NotAllowed),
        None if target.provider.unready.is_some() => Some(Obstacle::NotReady),
        None if target.model.prices.is_none() && access.bounds_cost(endpoint, target) => {
            Some(Obstacle::NoPrice)
        }
        None => None,
    }
}
