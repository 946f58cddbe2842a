//! The fate of each field of a request that is adapted to another dialect, as data: the data plane adapts, control shows it.

use crate::operation::Dialect;

/// One adaptation of requests in a client's dialect to a target's.
#[derive(Clone, Debug)]
pub struct AdaptationTable {
    /// The client's dialect.
    pub client: Dialect,
    /// The target's dialect.
    pub target: Dialect,
    /// The translations, in order: one, or two by way of another dialect. A field has a fate in each of them.
    pub steps: Vec<AdaptationStep>,
}

/// One translation of a request.
#[derive(Clone, Debug)]
pub struct AdaptationStep {
    /// The dialect before it.
    pub from: Dialect,
    /// The dialect after it.
    pub to: Dialect,
    /// Every field that the dialect before it defines.
    pub fields: Vec<AdaptedField>,
    /// The fields with another fate at targets that serve agents (`responses_fallback: agents`).
    pub agents: Vec<AdaptedField>,
}

/// The fate of one field.
#[derive(Clone, Copy, Debug)]
pub struct AdaptedField {
    /// The path of the field, such as `messages.*.content.*[image]`.
    pub field: &'static str,
    /// `exact`, `mapped`, `hint` or `rejected`.
    pub fate: &'static str,
    /// The field's destination, or the reason why it has none.
    pub note: &'static str,
}
