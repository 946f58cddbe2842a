//! The embedded web console: serves files that were built into the binary.
//!
//! `dist/` is built from `ui/` and committed. In debug builds its files are read from disk on each request, so that edits
//! show on reload; their compressed forms are those of the last build.

use std::borrow::Cow;

use rust_embed::RustEmbed;

/// One file of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The content.
    pub bytes: Cow<'static, [u8]>,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The value of `ETag`: a hash of the content. Compressed files have none; their names contain a hash.
    pub etag: Option<String>,
}

/// Returns the file at `path`, relative to `/console/` and without a leading slash; `index.html` is the page itself.
/// A text file of `assets/` exists compressed as well, under its name followed by `.br` or `.gz`; its content type is that
/// of the text.
pub fn asset(path: &str) -> Option<Asset> {
    // In debug builds the path reaches the file system.
    if path.split('/').any(|part| part.is_empty() || part.starts_with('.')) || path.contains('\\') {
        return None;
    }
    if let Some(plain) = path.strip_suffix(".br").or_else(|| path.strip_suffix(".gz")) {
        let place = PACKED.binary_search_by(|(name, _)| (*name).cmp(path)).ok()?;
        let (_, bytes) = PACKED.get(place)?;
        return Some(Asset { bytes: Cow::Borrowed(bytes), content_type: content_type(plain)?, etag: None });
    }
    let content_type = content_type(path)?;
    let file = Dist::get(path)?;
    let hash = file.metadata.sha256_hash();
    let etag: String = hash.iter().take(ETAG_BYTES).map(|byte| format!("{byte:02x}")).collect();
    Some(Asset { bytes: file.data, content_type, etag: Some(format!("\"{etag}\"")) })
}

#[derive(RustEmbed)]
#[folder = "dist/"]
struct Dist;

/// The names and contents of the compressed files, in the order of the names.
static PACKED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/packed.rs"));

const ETAG_BYTES: usize = 16;

/// Returns the content type of a file, or `None` for file types that the console does not contain.
fn content_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    TYPES.iter().find(|(name, _)| *name == extension).map(|(_, content_type)| *content_type)
}

const TYPES: &[(&str, &str)] = &[
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("woff2", "font/woff2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of the assets that the page refers to.
    fn referred() -> Vec<String> {
        let page = asset("index.html").unwrap();
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        let text = String::from_utf8(page.bytes.into_owned()).unwrap();
        assert!(!text.contains("style=") && !text.contains("<style"), "the policy forbids inline styles");
        assert!(text.matches("<script").count() == 1 && text.contains("<script type=\"module\""));
        let parts = text.split('"').filter_map(|part| part.strip_prefix("/console/"));
        parts.filter(|part| part.starts_with("assets/")).map(str::to_owned).collect()
    }

    #[test]
    fn the_page_refers_to_files_that_exist_and_are_compressed() {
        let referred = referred();
        assert!(referred.iter().any(|path| path.ends_with(".js")), "{referred:?}");
        for path in referred {
            let plain = asset(&path).unwrap_or_else(|| panic!("{path}"));
            if path.ends_with(".woff2") {
                continue;
            }
            for coding in ["br", "gz"] {
                let packed = asset(&format!("{path}.{coding}")).unwrap_or_else(|| panic!("{path}.{coding}"));
                assert_eq!(packed.content_type, plain.content_type);
                assert!(packed.bytes.len() < plain.bytes.len(), "{path}.{coding}");
            }
        }
    }

    /// The bounds of the console's design: 120 kB of script, 14 kB of style, 32 kB of fonts, each as sent to a browser.
    #[test]
    fn the_console_stays_below_its_size_limits() {
        let sent = |kind: &str| -> usize {
            let names = Dist::iter().filter(|name| name.ends_with(kind));
            let best = |name: &str| asset(&format!("{name}.br")).or_else(|| asset(name)).unwrap().bytes.len();
            names.map(|name| best(&name)).sum()
        };
        for (kind, max) in [(".js", 120_000), (".css", 14_000), (".woff2", 32_000)] {
            assert!((1..=max).contains(&sent(kind)), "{kind}: {} bytes of at most {max}", sent(kind));
        }
    }

    #[test]
    fn nothing_outside_the_folder_is_an_asset() {
        for path in [
            "",
            "/",
            "../Cargo.toml",
            "assets/../index.html",
            "assets//index.css",
            "..\\x.css",
            "a.rs",
            "index.html.gz",
            "assets/none.js",
            "assets/none.js.br",
        ] {
            assert_eq!(asset(path), None, "{path}");
        }
    }
}
