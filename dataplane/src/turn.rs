//! Fair scheduling between the connections of a worker.

/// Bytes that one connection may move before it yields to the other connections of its worker. Without this limit, a
/// client as fast as the worker would occupy it for tens of megabytes.
pub(crate) const TURN_BYTES: usize = 512 << 10;
