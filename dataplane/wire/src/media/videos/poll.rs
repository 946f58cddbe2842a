//! Reads a client's poll for the state of a video.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoObject as _, ValueIntoString as _};

use super::start::unreadable;
use crate::json;
use crate::translation::Rejection;

/// Returns the `operation` that `body` asks for; `body` is overwritten. Members other than that and `model` are
/// rejected, so that a poll cannot be mistaken for a start.
pub fn polled(body: &mut [u8]) -> Result<String, Rejection> {
    let tape = json::parse(body).map_err(unreadable)?;
    let mut operation = None;
    for (name, value) in tape.as_value().into_object().iter().flat_map(|object| object.iter()) {
        match name {
            _ if value.as_null().is_some() => {}
            "model" => {}
            "operation" => {
                let id = value.into_string();
                operation =
                    Some(id.ok_or_else(|| Rejection::malformed(name, "must be the id of an operation."))?);
            }
            _ => return Err(Rejection::malformed(name, ALONE)),
        }
    }
    operation.map(str::to_owned).ok_or_else(|| Rejection::malformed("operation", "is missing."))
}

const ALONE: &str = "cannot be combined with 'operation': a request that polls a video contains only \
                     'operation' and 'model'.";
