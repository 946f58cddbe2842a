//! What becomes of an event.

use std::borrow::Cow;

use bytes::Bytes;

/// What becomes of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on as it came.
    Pass,
    /// It does not go on.
    Drop,
    /// Something else goes on in its place.
    Replace(Bytes),
    /// It goes on as it came, and nothing comes after it.
    LastPass,
    /// This, if anything, goes on in its place, and nothing comes after it.
    Last(Option<Bytes>),
}

/// Data that means nothing to us: it may still give something away.
pub(crate) fn opaque(data: &[u8], secrets: &[&str]) -> Verdict {
    let text = String::from_utf8_lossy(data);
    match shared::sanitize::diagnostic(&text, secrets) {
        Cow::Borrowed(_) => Verdict::Pass,
        Cow::Owned(clean) => {
            Verdict::Replace(format!("data: {}\n\n", clean.replace(['\n', '\r'], " ")).into())
        }
    }
}
