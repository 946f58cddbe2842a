//! `llmgw import litellm`: turns a `config.yaml` of LiteLLM into a configuration of llmgw.
//!
//! ```text
//!  parse -> deployments -> groups -> fallbacks -> name the rest -> write -> check -+-> text and findings
//!                                                              ^  take out what fails |
//!                                                              +----------------------+
//! ```
//!
//! The result is always accepted by `config check`, provided that its variables are set. Each key of the source is mapped
//! exactly or named by a finding. No variable is read, and no secret is written.

mod advice;
mod deployment;
mod draft;
mod policies;
mod routes;
mod source;
mod targets;
#[cfg(test)]
mod tests;
mod vendor;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use self::draft::Draft;
use self::routes::Group;
use self::source::Source;
use super::configuration_text::ConfigurationText;
use crate::common::regular_file;
use crate::routing::config::yaml::BrokenYaml;
use crate::routing::config::{ConfigError, FaultPlace, check_text};

/// A converted file.
#[derive(Debug)]
pub struct LitellmImport {
    /// The configuration of llmgw.
    pub configuration: String,
    /// What has no exact counterpart, in the order of the source.
    pub findings: Vec<ImportFinding>,
}

impl LitellmImport {
    /// Returns the findings of `file`, one line each.
    pub fn findings_text(&self, file: &Path) -> String {
        let mut text = String::new();
        for ImportFinding { line, path, message } in &self.findings {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            let _ = writeln!(text, "{}{line}: {path}: {message}", file.display());
        }
        text
    }

    /// Returns the findings of `file` as one JSON object.
    pub fn findings_json(&self, file: &Path) -> String {
        format!("{:#}\n", json!({"file": file.display().to_string(), "findings": self.findings}))
    }
}

/// One key of the source without an exact counterpart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportFinding {
    /// The line of the source; `None` if there are too many findings to look all of them up.
    pub line: Option<usize>,
    /// The path of the key, such as `model_list[0].litellm_params.rpm`.
    pub path: String,
    /// What was done instead, and what to do.
    pub message: String,
}

/// A file that cannot be converted.
#[derive(Debug, Error)]
pub enum LitellmError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file is not a configuration of LiteLLM.
    #[error("line {line}: {message}")]
    Foreign {
        /// The line of the fault.
        line: usize,
        /// The fault and its remedy.
        message: String,
    },
    /// The result would not be accepted.
    #[error("the import produced an invalid configuration, a fault of llmgw: {0}")]
    Unaccepted(String),
}

impl LitellmError {
    /// Returns the exit code of the process for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unreadable(_) => 74,
            Self::Foreign { .. } => 78,
            Self::Unaccepted(_) => 70,
        }
    }
}

/// Converts `file`.
pub fn import_litellm(file: &Path) -> Result<LitellmImport, LitellmError> {
    let bytes = regular_file::read(file, FILE_BYTES_MAX).map_err(LitellmError::Unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| foreign("is not UTF-8"))?;
    convert(text)
}

fn convert(text: String) -> Result<LitellmImport, LitellmError> {
    let variables = variables_of(&text);
    let mut source = Source::parse(text)
        .map_err(|BrokenYaml { position, message }| LitellmError::Foreign { line: position.line, message })?;
    recognize(source.tree())?;
    let mut draft = Draft::new(routes::names(&source), variables);
    let mut groups = routes::read(&mut source, &mut draft);
    routes::connect(&mut source, &mut groups);
    let policies = policies::read(&mut source);
    source.name_the_rest();
    let configuration = accepted(&mut source, &mut draft, (&groups, policies.as_ref()))?;
    Ok(LitellmImport { configuration, findings: source.into_findings() })
}

/// Fails if `tree` cannot be a configuration of LiteLLM.
fn recognize(tree: &Value) -> Result<(), LitellmError> {
    let Some(sections) = tree.as_object() else {
        return Err(foreign("is not a configuration of LiteLLM: it must be a map with model_list"));
    };
    if let Some(list) = sections.get("model_list") {
        let is_list = list.is_array() || list.is_null();
        return if is_list { Ok(()) } else { Err(foreign("model_list must be a list")) };
    }
    if SECTIONS.iter().any(|section| sections.contains_key(*section)) {
        return Ok(());
    }
    Err(foreign("is not a configuration of LiteLLM: it has no model_list"))
}

fn foreign(message: &str) -> LitellmError {
    LitellmError::Foreign { line: 1, message: message.to_owned() }
}

/// Returns the names of all variables that `text` refers to.
fn variables_of(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    text.split("os.environ/").skip(1).map(name).collect()
}

/// Writes the configuration without the providers that llmgw rejects.
fn accepted(
    source: &mut Source,
    draft: &mut Draft,
    (groups, policies): (&[Group], Option<&Value>),
) -> Result<String, LitellmError> {
    loop {
        let (text, variables) = written(source, draft, (groups, policies))?;
        let Err(error) = check_text(&text, &variables) else { return Ok(text) };
        if !reject(source, draft, &error) {
            return Err(LitellmError::Unaccepted(error.to_string()));
        }
    }
}

/// Takes the providers with faults out of the draft. Returns false if the faults concern none.
fn reject(source: &mut Source, draft: &mut Draft, error: &ConfigError) -> bool {
    let mut is_changed = false;
    for fault in error.faults() {
        let FaultPlace::Spot { path, .. } = &fault.place else { continue };
        let Some(place) = draft.reject(path) else { continue };
        let key = path.rsplit('.').next().unwrap_or_default();
        source.find(&place, format!("the provider is not imported: {key}: {}", fault.message));
        is_changed = true;
    }
    is_changed
}

fn written(
    source: &mut Source,
    draft: &mut Draft,
    (groups, policies): (&[Group], Option<&Value>),
) -> Result<(String, BTreeSet<String>), LitellmError> {
    let endpoints = routes::endpoints(source, draft, groups);
    let providers = draft.providers();
    let variables = draft.variables(&providers);
    let mut tree = json!({"providers": providers, "endpoints": endpoints});
    if let (Some(sections), Some(policies)) = (tree.as_object_mut(), policies) {
        sections.insert("policies".to_owned(), policies.clone());
    }
    let text = ConfigurationText { about: ABOUT, variables: &variables, omitted: &[], tree: &tree };
    let text = text.write().map_err(|error| LitellmError::Unaccepted(error.to_string()))?;
    Ok((text, variables))
}

const ABOUT: &[&str] = &[
    "Imported from a configuration of LiteLLM. Valid is not equal: read the findings that the import printed.",
];
/// Sections that occur in configurations of LiteLLM only.
const SECTIONS: [&str; 3] = ["litellm_settings", "router_settings", "general_settings"];
const FILE_BYTES_MAX: u64 = 16 << 20;
