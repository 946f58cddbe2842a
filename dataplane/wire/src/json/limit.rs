//! Bounds of the JSON that the gateway looks into.

/// How deeply arrays and objects may nest (LIM-2). One bit a level is kept, so that this is also the width of
/// the scanner's stack.
pub const DEPTH_MAX: u32 = 128;

/// Bytes of a member's name that are kept to compare it: the longest name of interest with every character
/// written as `\u....`.
pub const KEY_BYTES_MAX: usize = 192;
