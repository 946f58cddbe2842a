//! Resolves a selector and orders its targets by capabilities and affinity.

use std::sync::Arc;

use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::id::{EndpointName, ModelId, ProviderId};
use shared::operation::{Dialect, Operation};
use shared::routing::{Endpoint, Target};
use shared::snapshot::{Route, Snapshot};
use shared::usage::StepResult;

use crate::admit::demand::Demand;
use crate::error::Fault;

pub(crate) use self::ranking::{Choice, ShownShare};
use self::response_affinity::{ResponseAffinity, StateReference};

mod affinity;
pub(crate) mod lanes;
mod ranking;
mod recent;
pub(crate) mod response_affinity;
mod siphash;

/// Requirements of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    pub(crate) dialect: Dialect,
    /// Only the first target listed may be used, even if it is down (EMB-1).
    pub(crate) single: bool,
    pub(crate) vision: bool,
    pub(crate) tools: bool,
    pub(crate) affinity_key: Option<&'a str>,
    /// The session that the client names.
    pub(crate) session: Option<&'a str>,
    /// Provider state that the request refers to.
    pub(crate) reference: StateReference,
    pub(crate) response_affinity: &'a ResponseAffinity,
    pub(crate) demand: Demand<'a>,
    pub(crate) access: &'a Access,
}

/// Resolves the selector for this caller (SEL-1, SEL-3). A pattern applies to what has no other meaning for the caller.
pub(crate) fn select(snapshot: &Snapshot, selector: &str, access: &Access) -> Result<Route, Fault> {
    let route = match snapshot.routes.get(selector) {
        Some(ambiguous @ Route::Ambiguous(_)) => ambiguous.usable(access),
        known => known.cloned(),
    };
    route.or_else(|| snapshot.patterns.find(selector).cloned()).ok_or_else(|| {
        let shown = selector.split_at(selector.floor_char_boundary(100)).0;
        let message =
            format!("The model '{shown}' does not exist. GET /v1/models lists the available models.");
        Fault::new(ErrorKind::ModelNotFound, message).param("model")
    })
}

/// Returns true if the session of a request may decide its target, or the key of a target's provider.
pub(crate) fn stays_with_session(route: &Route) -> bool {
    route.balanced().is_some() || route.targets().iter().any(|target| !target.provider.lanes.is_empty())
}

/// Returns `route` with only the target named by `only`.
pub(crate) fn restricted(route: Route, (provider, model): &(ProviderId, ModelId)) -> Result<Route, Fault> {
    let found =
        route.targets().iter().find(|target| target.provider.id == *provider && target.model.id == *model);
    let target = found.cloned().ok_or_else(|| {
        let message = format!(
            "The selector does not name the target '{provider}/{model}', to which the run is restricted."
        );
        Fault::new(ErrorKind::InvalidRequest, message)
    })?;
    Ok(match route {
        Route::Endpoint(endpoint) => {
            let Endpoint { name, preamble, cursor_bodies, .. } = &*endpoint;
            let first_content_timeouts =
                endpoint.first_content_timeout(&target).map(|own| [Some(own)].into());
            let only = Endpoint::new(name.clone(), vec![target]);
            let (preamble, cursor_bodies) = (preamble.clone(), *cursor_bodies);
            Route::Endpoint(Arc::new(Endpoint { preamble, cursor_bodies, first_content_timeouts, ..only }))
        }
        Route::Model(_) => Route::Model(target),
        Route::Alias(_) | Route::Ambiguous(_) => Route::Alias(target),
    })
}

/// The targets that can serve a request, in the order of the attempts.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) candidates: Vec<&'a Target>,
    /// The choice among them, if the route is an endpoint that is no plain list.
    pub(crate) choice: Option<Choice>,
}

/// Returns the targets that can serve the request, in the order of the attempts (FAIL-2, CHAT-2, AUTH-2, AUTH-4).
/// `skip` is called for each of the others.
pub(crate) fn order<'a>(
    route: &'a Route,
    needs: Needs<'_>,
    skip: &mut dyn FnMut(&Target, StepResult),
) -> Result<Plan<'a>, Fault> {
    let endpoint = route.endpoint().map(EndpointName::as_str);
    let listed = route.targets();
    let listed = needs.considered(listed);
    let mut candidates = Vec::with_capacity(listed.len());
    // If all targets are skipped, the error reports the reason that ranks highest.
    let mut nearest = None;
    for target in listed {
        let refusal =
            needs.access.refusal(endpoint, target).or_else(|| needs.unmet_by(route.endpoint(), target));
        match refusal {
            None => candidates.push(target),
            Some(why) => {
                skip(target, why);
                nearest = nearest.max(Some(Nearest::of(why)));
            }
        }
    }
    if needs.reference == StateReference::Unknown
        && candidates.iter().any(|target| target.speaks(needs.dialect))
    {
        return Err(needs.state_fault(ErrorKind::NotFound, NOT_YOURS));
    }
    if let StateReference::At(account) = needs.reference
        && !candidates.is_empty()
    {
        candidates.retain(|target| {
            let is_of_account = needs.response_affinity.has_account(target, account);
            if !is_of_account {
                skip(target, StepResult::Elsewhere);
            }
            is_of_account
        });
        if candidates.is_empty() {
            return Err(needs.state_fault(ErrorKind::UnsupportedField, AWAY));
        }
    }
    if candidates.is_empty() {
        let nearest = nearest.unwrap_or(Nearest::Nothing);
        return Err(nearest.refined(&needs, route).fault(route, &needs));
    }
    let choice = match route.balanced() {
        Some(balanced) if !needs.single => Some(ranking::rank(&mut candidates, balanced, &needs)),
        _ => {
            if let Some(key) = needs.affinity_key {
                affinity::rotate(&mut candidates, key);
            }
            None
        }
    };
    if candidates.len() > 1 && !needs.single {
        put_back_too_long(&mut candidates, needs.demand, skip);
    }
    Ok(Plan { candidates, choice })
}

/// Puts the candidates behind all others for whose context window the request is probably too long, and calls `skip` for
/// each. None is left out, because the length is an estimate. Without another candidate nothing changes.
fn put_back_too_long(
    candidates: &mut Vec<&Target>,
    demand: Demand<'_>,
    skip: &mut dyn FnMut(&Target, StepResult),
) {
    // Without this check, each request would pay for a second list.
    let too_long = candidates.iter().filter(|target| demand.exceeds_window(target)).count();
    if too_long == 0 || too_long == candidates.len() {
        return;
    }
    let (mut fitting, behind): (Vec<&Target>, Vec<&Target>) =
        candidates.iter().partition(|target| !demand.exceeds_window(target));
    behind.iter().for_each(|target| skip(target, StepResult::TooLong));
    fitting.extend(behind);
    *candidates = fitting;
}

/// The length of a client's ID in an error text.
const ID_BYTES_SHOWN: usize = 100;
const NOT_YOURS: &str =
    "It belongs to another project, or llmgw no longer knows it. Send the whole conversation in 'input'.";
const AWAY: &str = "No target of this selector has the account that created it. Send the conversation without it, in 'input'.";

impl Needs<'_> {
    /// Returns the targets that the request may use.
    fn considered<'t>(&self, listed: &'t [Target]) -> &'t [Target] {
        listed.get(..1).filter(|_| self.single).unwrap_or(listed)
    }

    /// Returns the error for provider state that no target has, in OpenAI's words and codes: by them clients recognise
    /// that they have to send the whole conversation. `why` is added to the words; `of_conversation` is the kind for an
    /// ID in `conversation`.
    fn state_fault(&self, of_conversation: ErrorKind, why: &str) -> Fault {
        let state = &self.demand.head.state;
        let (kind, what, id, param) = match (&state.previous_response_id, &state.conversation) {
            (Some(id), _) => {
                (ErrorKind::PreviousResponseNotFound, "Previous response", id, "previous_response_id")
            }
            (None, Some(id)) => (of_conversation, "Conversation", id, "conversation"),
            (None, None) => {
                let message = format!("The encrypted content of the reasoning could not be verified. {why}");
                return Fault::new(ErrorKind::InvalidEncryptedContent, message).param("input");
            }
        };
        let id = id.split_at(id.floor_char_boundary(ID_BYTES_SHOWN)).0;
        Fault::new(kind, format!("{what} with id '{id}' not found. {why}")).param(param)
    }

    fn unmet_by(&self, endpoint: Option<&EndpointName>, target: &Target) -> Option<StepResult> {
        if target.provider.unready.is_some() {
            Some(StepResult::NotReady)
        } else if !target.serves(self.dialect) {
            Some(StepResult::NoDialect)
        } else if self.vision && target.model.vision == Some(false) {
            Some(StepResult::NoVision)
        } else if self.tools && target.model.tools == Some(false) {
            Some(StepResult::NoTools)
        } else if self.access.bounds_cost(endpoint, target) && !self.demand.is_priced(target) {
            Some(StepResult::NoPrice)
        } else {
            None
        }
    }
}

/// Reasons why no target is left, in ascending order of precedence for the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Nearest {
    Nothing,
    NotAllowed,
    Private,
    NotReady,
    NoDialect,
    NoVision,
    NoTools,
    NoPrice,
}

impl Nearest {
    fn of(why: StepResult) -> Self {
        match why {
            StepResult::NotAllowed => Self::NotAllowed,
            StepResult::Private => Self::Private,
            StepResult::NotReady => Self::NotReady,
            StepResult::NoDialect => Self::NoDialect,
            StepResult::NoVision => Self::NoVision,
            StepResult::NoTools => Self::NoTools,
            StepResult::NoPrice => Self::NoPrice,
            _ => Self::Nothing,
        }
    }

    /// Distinguishes "not now" from "never": a target that is not ready may serve the protocol later.
    fn refined(self, needs: &Needs<'_>, route: &Route) -> Self {
        let serves_later =
            |target: &Target| target.provider.unready.is_some() && target.serves(needs.dialect);
        match self {
            Self::NoDialect if needs.considered(route.targets()).iter().any(serves_later) => Self::NotReady,
            other => other,
        }
    }

    fn fault(self, route: &Route, needs: &Needs<'_>) -> Fault {
        let dialect = needs.dialect;
        let name = || match (route.endpoint(), route.targets().first()) {
            (Some(name), _) => name.to_string(),
            (None, Some(target)) => format!("{}/{}", target.provider.id, target.model.id),
            (None, None) => String::new(),
        };
        let (kind, message) = match self {
            Self::Nothing => {
                (ErrorKind::NoEligibleTarget, "Every model of this selector is disabled.".to_owned())
            }
            Self::NotAllowed => (
                ErrorKind::NotAllowed,
                format!("The key, or its project, is not allowed to use '{}'.", name()),
            ),
            Self::Private => (
                ErrorKind::PrivateProvider,
                format!(
                    "'{}' uses a private provider. Use a key that acts as its owner, or have the provider \
                     shared with the key's project.",
                    name()
                ),
            ),
            Self::NotReady => {
                let why =
                    route.targets().iter().find_map(|target| target.provider.unready).unwrap_or_default();
                (ErrorKind::NoEligibleTarget, format!("'{}' cannot be used: {why}.", name()))
            }
            Self::NoDialect => {
                (ErrorKind::UnsupportedRoute, never(&name(), dialect, needs.considered(route.targets())))
            }
            Self::NoVision => (
                ErrorKind::InvalidRequest,
                "The request contains an image, and none of the eligible models accepts image input."
                    .to_owned(),
            ),
            Self::NoTools => (
                ErrorKind::InvalidRequest,
                "The request offers tools, and none of the eligible models can call tools.".to_owned(),
            ),
            Self::NoPrice => (
                ErrorKind::NotAllowed,
                format!(
                    "The key has a spending limit, and the price of '{}' is unknown. Ask an administrator \
                     to set it.",
                    name()
                ),
            ),
        };
        let fault = Fault::new(kind, message);
        match self {
            Self::NotAllowed | Self::Private | Self::NoPrice | Self::NoDialect => fault.param("model"),
            Self::NoVision if dialect == Dialect::Responses => fault.param("input"),
            Self::NoVision => fault.param("messages"),
            Self::NoTools => fault.param("tools"),
            Self::Nothing | Self::NotReady => fault,
        }
    }
}

/// Returns the message for a request in a protocol that no target supports. It names the routes that they do support.
fn never(selector: &str, dialect: Dialect, targets: &[Target]) -> String {
    let serves = |operation: &Operation| {
        let dialect = operation.dialect().filter(|_| *operation != Operation::CountTokens);
        dialect.is_some_and(|dialect| targets.iter().any(|target| target.serves(dialect)))
    };
    let paths: Vec<&str> = Operation::GRANTABLE.into_iter().filter(serves).map(Operation::path).collect();
    let advice = match &*paths {
        [] => "Name another model.".to_owned(),
        [path] => format!("Use {path}, or name another model."),
        [first @ .., last] => format!("Use {} or {last}, or name another model.", first.join(", ")),
    };
    format!("'{selector}' does not support the {} protocol. {advice}", dialect.name())
}
