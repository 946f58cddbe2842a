//! What the rules of a model changed in a request, named for the client.

use std::fmt::Display;

/// The members of a request that the rules of its target changed.
#[derive(Debug, Default)]
pub(super) struct Adjusted {
    /// The members that were left out.
    dropped: Vec<String>,
    /// The members that have another value, as `name=value`.
    changed: Vec<String>,
}

impl Adjusted {
    /// Records that the member `name` was left out.
    pub(super) fn drop(&mut self, name: &str) {
        if !self.dropped.iter().any(|known| known == name) {
            self.dropped.push(name.to_owned());
        }
    }

    /// Records that the member `name` was sent with another value than the client's.
    pub(super) fn set(&mut self, name: &str, value: impl Display) {
        let change = format!("{name}={value}");
        if !self.changed.contains(&change) {
            self.changed.push(change);
        }
    }

    /// Adds the names to those of `dropped`, with `origin` as the client's name of each, and returns all names and the
    /// changes.
    pub(super) fn finish(
        self,
        mut dropped: Vec<String>,
        origin: impl Fn(&str) -> Option<String>,
    ) -> (Vec<String>, Vec<String>) {
        for name in self.dropped {
            let name = origin(&name).unwrap_or(name);
            if !dropped.contains(&name) {
                dropped.push(name);
            }
        }
        (dropped, self.changed)
    }
}
