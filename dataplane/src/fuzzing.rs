//! What the readers of bytes from clients promise, for `fuzz/`. Each function panics where a promise is broken.

/// The head of a request: it ends at the same byte however it arrives, and no field of it could be read as two.
pub fn http1_head(input: &[u8]) {
    crate::server::http1::hold_head(input);
}
