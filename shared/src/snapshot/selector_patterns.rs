//! Patterns of selectors: texts that end in `*` and stand for an endpoint. The longest one that fits a selector applies.

use std::sync::Arc;

use super::Route;
use crate::routing::Endpoint;

/// The patterns of all endpoints, sorted by the text before `*`.
#[derive(Debug, Default)]
pub struct SelectorPatterns(Box<[SelectorPattern]>);

#[derive(Debug)]
struct SelectorPattern {
    /// As written, with `*`.
    written: Box<str>,
    route: Route,
    /// The place of the longest pattern that fits every selector that this one fits.
    wider: Option<usize>,
}

impl SelectorPatterns {
    /// Collects the patterns of `endpoints`. Of equal ones the first counts.
    pub fn of(endpoints: &[Arc<Endpoint>]) -> Self {
        let of_endpoint = |endpoint: &Arc<Endpoint>| -> Vec<SelectorPattern> {
            let patterns = endpoint.also.iter().map(|name| &**name).filter(|name| is_pattern(name));
            let pattern = |written: &str| SelectorPattern {
                written: written.into(),
                route: Route::Endpoint(Arc::clone(endpoint)),
                wider: None,
            };
            patterns.map(pattern).collect()
        };
        let mut patterns: Vec<_> = endpoints.iter().flat_map(of_endpoint).collect();
        patterns.sort_by(|a, b| a.start().cmp(b.start()));
        patterns.dedup_by(|later, earlier| later.written == earlier.written);
        let mut wider = Vec::with_capacity(patterns.len());
        for (place, pattern) in patterns.iter().enumerate() {
            let mut candidate = place.checked_sub(1);
            while let Some(at) = candidate {
                let fits = patterns.get(at).is_some_and(|other| pattern.start().starts_with(other.start()));
                if fits {
                    break;
                }
                candidate = wider.get(at).copied().flatten();
            }
            wider.push(candidate);
        }
        for (pattern, wider) in patterns.iter_mut().zip(wider) {
            pattern.wider = wider;
        }
        Self(patterns.into())
    }

    /// Returns the route of the longest pattern that fits `selector`. What fits lies at or before the selector in the
    /// order of the texts, and is as wide as the pattern next to it or wider.
    pub fn find(&self, selector: &str) -> Option<&Route> {
        let mut place = self.0.partition_point(|pattern| pattern.start() <= selector).checked_sub(1);
        while let Some(pattern) = place.and_then(|place| self.0.get(place)) {
            if selector.starts_with(pattern.start()) {
                return Some(&pattern.route);
            }
            place = pattern.wider;
        }
        None
    }

    /// Returns each pattern as written, with its route.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Route)> {
        self.0.iter().map(|pattern| (&*pattern.written, &pattern.route))
    }

    /// Returns the route of the pattern that is written as `written`.
    pub fn written(&self, written: &str) -> Option<&Route> {
        let start = written.strip_suffix('*')?;
        let place = self.0.binary_search_by(|pattern| pattern.start().cmp(start)).ok()?;
        self.0.get(place).map(|pattern| &pattern.route)
    }
}

impl SelectorPattern {
    fn start(&self) -> &str {
        self.written.strip_suffix('*').unwrap_or(&self.written)
    }
}

/// Returns true if a further name of an endpoint is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.ends_with('*')
}

/// Returns the fault of a further name of an endpoint, if it has one. A name has the characters of a model ID, so that
/// names as agents send them are possible: `claude-sonnet-5[1m]`, `qwen3:8b`.
pub fn fault_of_name(name: &str) -> Option<&'static str> {
    let start = name.strip_suffix('*').unwrap_or(name);
    if name.is_empty() {
        Some("must not be empty")
    } else if name.len() > NAME_BYTES_MAX {
        Some("must have at most 256 bytes")
    } else if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        Some("must not contain white space or control characters")
    } else if start.contains('*') {
        Some("may contain '*' only at its end")
    } else {
        None
    }
}

const NAME_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EndpointName;

    fn patterns(endpoints: &[(&str, &[&str])]) -> SelectorPatterns {
        let endpoint = |(name, also): &(&str, &[&str])| {
            let also = also.iter().map(|name| Box::from(*name)).collect();
            Arc::new(Endpoint { also, ..Endpoint::new(EndpointName::new(*name), Vec::new()) })
        };
        SelectorPatterns::of(&endpoints.iter().map(endpoint).collect::<Vec<_>>())
    }

    fn found<'a>(patterns: &'a SelectorPatterns, selector: &str) -> Option<&'a str> {
        patterns.find(selector)?.endpoint().map(EndpointName::as_str)
    }

    #[test]
    fn the_longest_pattern_that_fits_applies() {
        let patterns = patterns(&[
            ("any", &["*"]),
            ("claude", &["claude-*", "exact"]),
            ("haiku", &["claude-haiku-*", "claude-haiku-4-5-2025*"]),
            ("old", &["claude-haiku-3*", "claude-i*"]),
            ("late", &["claude-haiku-*"]),
        ]);
        for (selector, want) in [
            ("claude-haiku-4-5", "haiku"),
            ("claude-haiku-4-5-20251001", "haiku"),
            ("claude-haiku-3-5", "old"),
            ("claude-haiku-", "haiku"),
            ("claude-haiku", "claude"),
            ("claude-i", "old"),
            ("claude-sonnet-5[1m]", "claude"),
            ("claude-zzz", "claude"),
            ("claude", "any"),
            ("exact", "any"),
            ("", "any"),
            ("\u{10ffff}", "any"),
        ] {
            assert_eq!(found(&patterns, selector), Some(want), "{selector:?}");
        }
        assert_eq!(
            patterns.written("claude-*").and_then(Route::endpoint).map(EndpointName::as_str),
            Some("claude")
        );
        assert!(patterns.written("claude-").is_none() && patterns.written("exact").is_none());
    }

    #[test]
    fn without_a_pattern_that_fits_there_is_no_route() {
        let patterns = patterns(&[("a", &["b*", "d*"]), ("c", &["da*"])]);
        for selector in ["a", "c", "e", "", "B"] {
            assert_eq!(found(&patterns, selector), None, "{selector:?}");
        }
        assert_eq!(found(&SelectorPatterns::default(), "x"), None);
    }

    #[test]
    fn every_selector_finds_what_a_search_of_all_patterns_finds() {
        let texts = ["*", "a*", "ab*", "aba*", "abb*", "b*", "bab*", "c*", "ca*", "caa*", "cab*", "cb*"];
        for chosen in 0_u32..1 << texts.len() {
            let names: Vec<&str> =
                (0..).zip(texts).filter(|(bit, _)| chosen >> bit & 1 == 1).map(|(_, text)| text).collect();
            let each: Vec<[&str; 1]> = names.iter().map(|name| [*name]).collect();
            let endpoints: Vec<(&str, &[&str])> =
                names.iter().zip(&each).map(|(name, also)| (*name, also.as_slice())).collect();
            let patterns = patterns(&endpoints);
            for selector in ["", "a", "ab", "abab", "abba", "ac", "b", "bab", "baa", "c", "caab", "cac", "d"]
            {
                let fits = |name: &&&str| selector.starts_with(name.trim_end_matches('*'));
                let want = names.iter().filter(fits).max_by_key(|name| name.len()).copied();
                assert_eq!(found(&patterns, selector), want, "{selector:?} of {names:?}");
            }
        }
    }

    #[test]
    fn names_as_agents_send_them_are_allowed() {
        for name in [
            "claude-sonnet-5[1m]",
            "qwen3:8b",
            "claude-haiku-4-5-20251001",
            "gpt-5.1",
            "vendor/model",
            "*",
            "a*",
        ] {
            assert_eq!(fault_of_name(name), None, "{name}");
        }
        let long = "x".repeat(257);
        for name in ["", "a b", "a\n", "a*b", "**", "*a", &long] {
            assert!(fault_of_name(name).is_some(), "{name}");
        }
    }
}
