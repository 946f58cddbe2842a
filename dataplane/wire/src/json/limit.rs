//! Limits of the JSON that the gateway scans.

/// The maximum nesting depth of arrays and objects (LIM-2). The scanner keeps one bit for each level, so this is also
/// the width of its stack.
pub const DEPTH_MAX: u32 = 128;

/// The maximum number of bytes of a member name that are kept for comparison: enough for the longest known name with
/// every character written as `\u....`.
pub const KEY_BYTES_MAX: usize = 192;
