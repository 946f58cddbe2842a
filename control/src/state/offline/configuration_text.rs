//! Writes a configuration file that contains no secret: a comment that states what to do, then the YAML.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

/// The content of a file.
pub(super) struct ConfigurationText<'a> {
    /// Comment lines at the top.
    pub(super) about: &'a [&'a str],
    /// Environment variables that the file refers to.
    pub(super) variables: &'a BTreeSet<String>,
    /// The objects that the file does not declare, one line each.
    pub(super) omitted: &'a [String],
    pub(super) tree: &'a Value,
}

impl ConfigurationText<'_> {
    pub(super) fn write(&self) -> Result<String, serde_yaml::Error> {
        let mut text = String::new();
        for line in self.about {
            let _ = writeln!(text, "# {line}");
        }
        if !self.variables.is_empty() {
            text.push_str("# Secrets are not in it. Set these environment variables:\n");
        }
        for name in self.variables {
            let _ = writeln!(text, "#   {name}");
        }
        if !self.omitted.is_empty() {
            text.push_str("# Not in this file:\n");
        }
        for line in self.omitted {
            let _ = writeln!(text, "#   {line}");
        }
        text.push_str(&serde_yaml::to_string(self.tree)?);
        Ok(text)
    }
}

/// Returns a name of an environment variable that consists of `parts` and is not in `taken`.
pub(super) fn free_variable(parts: &[&str], taken: &BTreeSet<String>) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = parts.join("_").chars().map(letter).collect();
    // The gateway does not send its own variables upstream.
    let name = if name.starts_with("LLMGW_") { format!("UPSTREAM_{name}") } else { name };
    let numbered = (2..).map(|number: u64| format!("{name}_{number}"));
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
    free.unwrap_or(name)
}
