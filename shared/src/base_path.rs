//! The path below which a reverse proxy publishes the gateway (`LLMGW_BASE_PATH`).
//!
//! Every path is served below it and without it, so a proxy may pass the path on or cut it off. Addresses that a browser
//! uses begin with it.

use std::fmt;

use http::Uri;
use http::uri::PathAndQuery;

/// The path: empty, or one or more segments, each after a slash, such as `/llm` or `/tools/llm`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePath(Box<str>);

impl BasePath {
    /// Parses the text of an operator, which may end with a slash. Returns what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let mut segments = path.split('/');
        let is_path = segments.next() == Some("") && segments.clone().all(is_segment);
        if path.is_empty() {
            return Ok(Self::default());
        }
        if !is_path {
            return Err("must be a path such as /llm: segments of letters, digits, '-', '_', '.' and '~', each after a '/'".to_owned());
        }
        match segments.next() {
            Some(first) if OWN.contains(&first) => {
                Err(format!("must not begin with /{first}, which is a path of the gateway itself"))
            }
            _ => Ok(Self(path.into())),
        }
    }

    /// Returns the path, which does not end with a slash; empty if there is none.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `path` without the base, or `path` itself if it is not below the base.
    pub fn below<'a>(&self, path: &'a str) -> &'a str {
        match path.strip_prefix(&*self.0) {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }

    /// Cuts the base off the path of a request.
    pub fn cut(&self, uri: &mut Uri) {
        if self.0.is_empty() {
            return;
        }
        let below = self.below(uri.path());
        if below == uri.path() {
            return;
        }
        let target = match uri.query() {
            Some(query) => PathAndQuery::try_from(format!("{below}?{query}")),
            None => PathAndQuery::try_from(below),
        };
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = target.ok().or(parts.path_and_query);
        if let Ok(cut) = Uri::from_parts(parts) {
            *uri = cut;
        }
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_segment(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    !matches!(text, "" | "." | "..") && text.bytes().all(is_plain)
}

/// The first segments of the gateway's own paths.
const OWN: [&str; 18] = [
    "admin",
    "audio",
    "chat",
    "console",
    "embeddings",
    "health",
    "images",
    "key",
    "messages",
    "metrics",
    "models",
    "oauth",
    "ready",
    "responses",
    "v1",
    "v1beta",
    "v1beta1",
    "videos",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_plain_segments_is_a_base() {
        for (text, want) in
            [("", ""), ("/", ""), ("/llm", "/llm"), ("/llm/", "/llm"), ("/tools/l-l.m_2~", "/tools/l-l.m_2~")]
        {
            assert_eq!(BasePath::parse(text).unwrap().as_str(), want);
        }
        for text in [
            "llm",
            "//",
            "/llm//",
            "/a//b",
            "/a b",
            "/a?b",
            "/a#b",
            "/%61",
            "/..",
            "/a/./b",
            "/v1",
            "/v1/llm",
            "/console",
            "https://x/llm",
        ] {
            assert!(BasePath::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_base_is_cut_off_whole_segments_alone() {
        let base = BasePath::parse("/llm").unwrap();
        for (before, after) in [
            ("/llm", "/"),
            ("/llm/", "/"),
            ("/llm?a=b", "/?a=b"),
            ("/llm/v1/models?a=/llm", "/v1/models?a=/llm"),
            ("/llm/llm/x", "/llm/x"),
            ("/llms/v1/models", "/llms/v1/models"),
            ("/v1/models", "/v1/models"),
            ("http://gw.example/llm/v1/models", "http://gw.example/v1/models"),
            ("*", "*"),
        ] {
            let mut uri: Uri = before.parse().unwrap();
            base.cut(&mut uri);
            assert_eq!(uri.to_string(), after);
            BasePath::default().cut(&mut uri);
            assert_eq!(uri.to_string(), after);
        }
    }
}
