//! Readers for a client's document. A null member counts as absent; a value of the wrong type is rejected with its
//! path.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};
pub(crate) use simd_json::tape::{Array, Object};

use super::{Flaw, Rejection};
use crate::json::{self, Tree};

/// Returns a member of an object; `None` if it is absent or null.
pub(crate) fn member<'t, 'i>(object: &Object<'t, 'i>, name: &str) -> Option<Tree<'t, 'i>> {
    object.get(name).filter(|value| !is_null(*value))
}

/// Iterates over the members of an object that are not null, in document order.
pub(crate) fn members<'t, 'i>(object: &Object<'t, 'i>) -> impl Iterator<Item = (&'i str, Tree<'t, 'i>)> {
    object.iter().filter(|(_, value)| !is_null(*value))
}

pub(crate) fn is_null(value: Tree<'_, '_>) -> bool {
    value.as_null().is_some()
}

/// Returns true for false, 0, "", [] and {}: values that request nothing.
pub(crate) fn is_empty(value: Tree<'_, '_>) -> bool {
    value.as_bool() == Some(false)
        || value.as_f64() == Some(0.0)
        || value.as_u64() == Some(0)
        || value.as_str() == Some("")
        || value.as_array().is_some_and(|array| array.is_empty())
        || value.as_object().is_some_and(|object| object.is_empty())
}

/// Returns true if the member `name` of a chat request requests nothing. Web search options request a search even if
/// empty.
pub(crate) fn asks_for_nothing(name: &str, value: Tree<'_, '_>) -> bool {
    is_empty(value) && (name != "web_search_options" || value.as_object().is_none())
}

/// Returns the text of a string.
pub(crate) fn as_text<'i>(value: Tree<'_, 'i>) -> Option<&'i str> {
    value.into_string()
}

/// Returns the text of a member of an object, if it is a string.
pub(crate) fn member_text<'i>(object: &Object<'_, 'i>, name: &str) -> Option<&'i str> {
    object.get(name).and_then(as_text)
}

/// Returns the string at `path`, or a rejection.
pub(crate) fn text<'i>(value: Tree<'_, 'i>, path: impl FnOnce() -> String) -> Result<&'i str, Rejection> {
    as_text(value).ok_or_else(|| Rejection::malformed(path(), "must be a string."))
}

/// Returns the required string member `name` of the object at `path`, or a rejection.
pub(crate) fn needed_text<'i>(
    object: &Object<'_, 'i>,
    name: &str,
    path: impl Fn() -> String,
) -> Result<&'i str, Rejection> {
    let value = member(object, name);
    let value = value.ok_or_else(|| Rejection::malformed(format!("{}.{name}", path()), "is missing."))?;
    text(value, || format!("{}.{name}", path()))
}

/// Returns the object at `path`, or a rejection.
pub(crate) fn object<'t, 'i>(
    value: Tree<'t, 'i>,
    path: impl FnOnce() -> String,
) -> Result<Object<'t, 'i>, Rejection> {
    value.as_object().ok_or_else(|| Rejection::malformed(path(), "must be an object."))
}

/// Returns the array at `path`, or a rejection.
pub(crate) fn array<'t, 'i>(
    value: Tree<'t, 'i>,
    path: impl FnOnce() -> String,
) -> Result<Array<'t, 'i>, Rejection> {
    value.as_array().ok_or_else(|| Rejection::malformed(path(), "must be an array."))
}

/// Returns the rejection of a document that cannot be parsed.
pub(crate) fn refuse_fault(fault: json::JsonFault) -> Rejection {
    let message = format!("The body is not valid JSON: {fault}.");
    Rejection { param: String::new(), message, flaw: Flaw::Malformed }
}

/// Returns a whole number, also if it is written with a fraction or an exponent.
pub(crate) fn as_whole(value: Tree<'_, '_>) -> Option<u64> {
    let written = || value.as_f64().filter(|number| number.fract() == 0.0);
    value.as_u64().or_else(|| format!("{:.0}", written()?).parse().ok())
}

/// Returns a non-negative integer.
pub(crate) fn as_count(value: Tree<'_, '_>) -> Option<u64> {
    value.as_u64()
}
