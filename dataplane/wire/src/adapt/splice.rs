//! Edits of a native body that leave every other byte as it is.

use std::ops::Range;

/// Returns `body` with the text of each edit in place of its span. The spans must be in order, without overlaps and
/// within the body; otherwise `None`.
pub(super) fn spliced(body: &[u8], edits: &[(Range<usize>, String)]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len());
    let mut from = 0;
    for (span, text) in edits {
        out.extend_from_slice(body.get(from..span.start)?);
        out.extend_from_slice(text.as_bytes());
        from = span.end;
    }
    out.extend_from_slice(body.get(from..)?);
    Some(out)
}
