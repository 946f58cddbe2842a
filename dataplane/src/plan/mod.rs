//! Selector, capabilities and affinity to an ordered list of candidates.

use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::routing::Target;
use shared::snapshot::{Route, Snapshot};
use shared::usage::StepResult;

use crate::error::Fault;
use crate::record::Record;

mod affinity;

/// What a request needs of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) vision: bool,
    pub(crate) affinity_key: Option<&'a str>,
}

/// What the selector names (SEL-1).
pub(crate) fn select<'a>(snapshot: &'a Snapshot, selector: &str) -> Result<&'a Route, Fault> {
    snapshot.routes.get(selector).ok_or_else(|| {
        let shown = selector.get(..selector.floor_char_boundary(100)).unwrap_or_default();
        Fault::new(
            ErrorKind::ModelNotFound,
            format!("The model '{shown}' does not exist. GET /v1/models lists what can be used."),
        )
        .param("model")
    })
}

/// The targets that can serve the request, in the order in which they are to be tried (FAIL-2, CHAT-2). Those
/// passed over go into the record's trace.
pub(crate) fn order<'a>(
    route: &'a Route,
    needs: Needs<'_>,
    record: &mut Record,
) -> Result<Vec<&'a Target>, Fault> {
    let mut candidates = Vec::with_capacity(route.targets().len());
    let mut blind = false;
    for target in route.targets() {
        if !target.speaks(needs.dialect) {
            record.skip(target, StepResult::NoDialect);
        } else if needs.vision && target.model.vision == Some(false) {
            blind = true;
            record.skip(target, StepResult::NoVision);
        } else {
            candidates.push(target);
        }
    }
    if candidates.is_empty() && blind {
        return Err(Fault::new(
            ErrorKind::InvalidRequest,
            "The request holds an image, and none of the models it could go to takes image input.",
        )
        .param("messages"));
    }
    if candidates.is_empty() {
        return Err(Fault::new(
            ErrorKind::NoEligibleTarget,
            format!("None of the models behind this selector speaks the {} protocol.", needs.dialect.name()),
        ));
    }
    if let Some(key) = needs.affinity_key {
        affinity::rotate(&mut candidates, key);
    }
    Ok(candidates)
}
