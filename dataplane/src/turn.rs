//! Fair scheduling between the connections of a worker.

use std::io::IoSlice;

/// Bytes that one connection may move before it yields to the other connections of its worker. Without this limit, a
/// client as fast as the worker would occupy it for tens of megabytes.
pub(crate) const TURN_BYTES: usize = 512 << 10;

/// Returns the first of `bufs` that fit into `left` bytes as a whole.
pub(crate) fn fitting<'a, 'b>(bufs: &'a [IoSlice<'b>], left: usize) -> &'a [IoSlice<'b>] {
    let mut bytes = 0_usize;
    let fits = |buf: &&IoSlice<'_>| {
        bytes = bytes.saturating_add(buf.len());
        bytes <= left
    };
    let count = bufs.iter().take_while(fits).count();
    bufs.get(..count).unwrap_or_default()
}
