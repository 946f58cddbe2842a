//! Paths below `/responses/`: one stored response, or an action on it.

/// A path that names a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredPath<'a> {
    /// The percent-encoded ID of the response.
    pub(crate) id: &'a str,
    pub(crate) part: StoredPart,
}

/// The part of a stored response that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredPart {
    /// The response itself, which is fetched or deleted.
    Whole,
    /// Its cancellation.
    Cancel,
    /// The list of its input items.
    InputItems,
}

impl StoredPart {
    /// Returns the value of the `Allow` header.
    pub(super) fn allow(self) -> &'static str {
        match self {
            Self::Whole => WHOLE,
            Self::Cancel => super::POST,
            Self::InputItems => LIST,
        }
    }
}

/// Reads a path without its version.
pub(super) fn read(bare: &str) -> Option<StoredPath<'_>> {
    let rest = bare.strip_prefix("/responses/")?;
    let (id, part) = match rest.split_once('/') {
        None => (rest, StoredPart::Whole),
        Some((id, "cancel")) => (id, StoredPart::Cancel),
        Some((id, "input_items")) => (id, StoredPart::InputItems),
        Some(_) => return None,
    };
    (!id.is_empty()).then_some(StoredPath { id, part })
}

const WHOLE: &str = "GET, DELETE, OPTIONS";
const LIST: &str = "GET, OPTIONS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_response_and_a_part_of_it() {
        for (path, want) in [
            ("/responses/resp_1", Some(("resp_1", StoredPart::Whole))),
            ("/responses/resp%2F1", Some(("resp%2F1", StoredPart::Whole))),
            ("/responses/resp_1/cancel", Some(("resp_1", StoredPart::Cancel))),
            ("/responses/resp_1/input_items", Some(("resp_1", StoredPart::InputItems))),
            ("/responses/resp_1/", None),
            ("/responses/resp_1/cancel/", None),
            ("/responses//cancel", None),
            ("/responses/", None),
            ("/responses", None),
            ("/models/resp_1", None),
        ] {
            assert_eq!(read(path).map(|StoredPath { id, part }| (id, part)), want, "{path}");
        }
    }
}
