//! The file of LiteLLM: a tree in which every node is either mapped or named by a finding.
//!
//! The reader of a setting marks its path. Whatever nobody has marked at the end becomes a finding, so that no key is
//! dropped silently.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ImportFinding;
use super::advice::advice;
use crate::routing::config::yaml::{self, BrokenYaml, YamlPath, YamlSpot, YamlStep};

pub(super) struct Source {
    text: String,
    tree: Value,
    /// Paths whose subtree needs no further finding.
    settled: BTreeSet<YamlPath>,
    findings: Vec<(YamlPath, YamlSpot, String)>,
}

impl Source {
    pub(super) fn parse(text: String) -> Result<Self, BrokenYaml> {
        let document = yaml::parse(&text)?;
        let repeated = |path| (path, YamlSpot::Repeat, "occurs twice; the last value is used".to_owned());
        let findings = document.repeats.into_iter().map(repeated).collect();
        Ok(Self { text, tree: document.tree, settled: BTreeSet::new(), findings })
    }

    pub(super) fn tree(&self) -> &Value {
        &self.tree
    }

    /// Returns the value at `path`; `None` if it is absent or null.
    pub(super) fn at(&self, path: &[YamlStep]) -> Option<&Value> {
        let mut node = &self.tree;
        for step in path {
            node = match step {
                YamlStep::Key(key) => node.get(key)?,
                YamlStep::Item(index) => node.get(index)?,
            };
        }
        Some(node).filter(|node| !node.is_null())
    }

    /// Returns a copy of the value at `path`, and marks it as mapped.
    pub(super) fn take(&mut self, path: &YamlPath) -> Option<Value> {
        self.settled.insert(path.clone());
        self.at(path).cloned()
    }

    /// Returns the number of items of the list at `path`.
    pub(super) fn count(&self, path: &[YamlStep]) -> usize {
        self.at(path).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Adds a finding about the node at `path`, which then needs no other.
    pub(super) fn find(&mut self, path: &YamlPath, message: impl Into<String>) {
        self.settled.insert(path.clone());
        self.findings.push((path.clone(), YamlSpot::Key, message.into()));
    }

    /// Adds a finding for each node that is not settled.
    pub(super) fn name_the_rest(&mut self) {
        let tree = std::mem::take(&mut self.tree);
        self.name_below(&tree, &mut Vec::new());
        self.tree = tree;
    }

    fn name_below(&mut self, node: &Value, path: &mut YamlPath) {
        if self.settled.contains(path) {
            return;
        }
        if !path.is_empty() && !self.is_open(path) {
            return self.find(path, advice(path));
        }
        match node {
            Value::Object(map) => {
                for (key, child) in map {
                    path.push(YamlStep::Key(key.clone()));
                    self.name_below(child, path);
                    path.pop();
                }
            }
            Value::Array(list) => {
                for (index, child) in list.iter().enumerate() {
                    path.push(YamlStep::Item(index));
                    self.name_below(child, path);
                    path.pop();
                }
            }
            Value::Null => {}
            _ => self.find(path, "this value is not understood"),
        }
    }

    /// True if the children of the node at `path` get findings of their own: sections, and what contains settled nodes.
    fn is_open(&self, path: &YamlPath) -> bool {
        let is_section =
            matches!(path.as_slice(), [YamlStep::Key(name)] if SECTIONS.contains(&name.as_str()));
        let below = self.settled.range::<YamlPath, _>(path..).next();
        is_section || below.is_some_and(|next| next.starts_with(path))
    }

    /// Returns the findings in the order of the text.
    pub(super) fn into_findings(self) -> Vec<ImportFinding> {
        let mut left = LOCATED_BYTES_MAX / self.text.len().max(1);
        let mut findings: Vec<ImportFinding> = Vec::new();
        for (path, spot, message) in self.findings {
            let line = (left > 0).then(|| yaml::locate(&self.text, &path, spot).line);
            left = left.saturating_sub(1);
            findings.push(ImportFinding { line, path: yaml::path_text(&path), message });
        }
        findings.sort_by_key(|finding| finding.line.unwrap_or(usize::MAX));
        findings.dedup();
        findings
    }
}

/// Returns the path of `keys` below `path`.
pub(super) fn below(path: &[YamlStep], keys: &[&str]) -> YamlPath {
    path.iter().cloned().chain(keys.iter().map(|key| YamlStep::Key((*key).to_owned()))).collect()
}

/// Returns the path of an item of the list at `path`.
pub(super) fn item(path: &[YamlStep], index: usize) -> YamlPath {
    path.iter().cloned().chain([YamlStep::Item(index)]).collect()
}

/// Sections of settings: each of their keys gets a finding of its own.
const SECTIONS: [&str; 4] =
    ["router_settings", "litellm_settings", "general_settings", "environment_variables"];
/// Each position costs a pass over the text; this bounds all passes together to a few seconds.
const LOCATED_BYTES_MAX: usize = 64 << 20;
