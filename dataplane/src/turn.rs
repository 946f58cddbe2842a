//! The turns of connections.

/// Bytes that one connection moves before the others of its worker have their turn: a client that sends, or reads, as
/// fast as the worker does would have it to itself for tens of megabytes.
pub(crate) const TURN_BYTES: usize = 512 << 10;
