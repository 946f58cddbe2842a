//! The embedded web console: serves files that were built into the binary. This release contains a placeholder page.
//!
//! In debug builds the files are read from `dist/` on each request, so that edits show on reload.

use std::borrow::Cow;

use rust_embed::RustEmbed;

/// One file of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The content.
    pub bytes: Cow<'static, [u8]>,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
}

/// Returns the file at `path`, relative to `/console/` and without a leading slash; `index.html` is the page itself.
pub fn asset(path: &str) -> Option<Asset> {
    // In debug builds the path reaches the file system.
    if path.split('/').any(|part| part.is_empty() || part.starts_with('.')) || path.contains('\\') {
        return None;
    }
    let content_type = content_type(path)?;
    let file = Dist::get(path)?;
    Some(Asset { bytes: file.data, content_type })
}

#[derive(RustEmbed)]
#[folder = "dist/"]
struct Dist;

/// Returns the content type of a file, or `None` for file types that the console does not contain.
fn content_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    TYPES.iter().find(|(name, _)| *name == extension).map(|(_, content_type)| *content_type)
}

const TYPES: &[(&str, &str)] = &[
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("js", "text/javascript; charset=utf-8"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("woff2", "font/woff2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_and_style_are_there() {
        let page = asset("index.html").unwrap();
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        let text = std::str::from_utf8(&page.bytes).unwrap().to_owned();
        assert!(!text.contains("<script") && !text.contains("style="), "a strict policy forbids inline code");
        assert!(text.contains("/console/assets/stand-in.css"));
        assert_eq!(asset("assets/stand-in.css").unwrap().content_type, "text/css; charset=utf-8");
    }

    #[test]
    fn nothing_outside_the_folder_is_an_asset() {
        for path in
            ["", "/", "../Cargo.toml", "assets/../index.html", "assets//stand-in.css", "..\\x.css", "a.rs"]
        {
            assert_eq!(asset(path), None, "{path}");
        }
    }
}
