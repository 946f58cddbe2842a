//! Cursors of lists.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ApiError;

/// A place in a list. Its text is JSON in base64, which clients pass on without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor<T>(pub(crate) T);

impl<T: Serialize> Cursor<T> {
    pub(crate) fn text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&self.0).unwrap_or_default())
    }
}

impl<T: DeserializeOwned> Cursor<T> {
    /// Returns the place of a cursor.
    pub(crate) fn read(text: &str) -> Result<T, ApiError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        serde_json::from_slice(&bytes).map_err(|_| {
            ApiError::parameter("cursor", "cursor must be the next_cursor of the previous page.")
        })
    }
}
