//! The only reader of the environment.
//!
//! Every `LLMGW_*` variable that is set is parsed strictly, even if this run does not use it, and so are the variables of
//! OpenTelemetry while telemetry is exported; a message never quotes a value. An empty value counts as unset.

mod kind;
mod parse;
mod schedule;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use shared::secret::Secret;

use super::fault::ConfigFault;
use super::schema::did_you_mean;
use crate::db::engine::postgres::DatabaseAddress;
pub(super) use parse::{VariableValue, address, origin};
pub use schedule::Schedule;
pub use table::{VARIABLES, Variable};

/// The environment, parsed.
pub struct Environment {
    values: HashMap<&'static str, VariableValue>,
    texts: HashMap<String, Secret<String>>,
    warnings: Vec<String>,
    faults: Vec<ConfigFault>,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of_process() -> Self {
        Self::read(std::env::vars_os())
    }

    /// Reads the environment of this process, with `others` for variables that it does not set.
    pub fn of_process_with(others: impl IntoIterator<Item = (String, String)>) -> Self {
        let others = others.into_iter().map(|(name, value)| (name.into(), value.into()));
        let own = std::env::vars_os().filter(|(_, value)| !value.is_empty());
        Self::read(others.chain(own))
    }

    /// Parses `variables`; if a name occurs twice, the later value applies.
    pub fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment =
            Self { values: HashMap::new(), texts: HashMap::new(), warnings: Vec::new(), faults: Vec::new() };
        let variables: BTreeMap<_, _> =
            variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let exports = exports(&variables);
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            match value.to_str() {
                Some(value) => environment.take(name, value, exports),
                None if name.starts_with(PREFIX) => {
                    environment.faults.push(ConfigFault::variable(name, "is not UTF-8"));
                }
                None => {}
            }
        }
        environment
    }

    fn take(&mut self, name: &str, value: &str, exports: bool) {
        let is_own = name.starts_with(PREFIX);
        let is_ours = || VARIABLES.iter().any(|variable| variable.name == name);
        if is_own || (exports || name == OTEL_DISABLED) && is_ours() {
            self.parse(name, value);
        }
        self.texts.insert(name.to_owned(), Secret::new(value.to_owned()));
    }

    fn parse(&mut self, name: &str, value: &str) {
        if RETIRED.contains(&name) {
            self.warnings.push(format!(
                "{name} is no longer read; add the companion daemon as an extension on the console's Providers \
                 page or with POST /admin/api/extensions, then unset it"
            ));
            return;
        }
        let Some(variable) = VARIABLES.iter().find(|variable| variable.name == name) else {
            let hint = did_you_mean(name, VARIABLES.iter().map(|variable| variable.name));
            self.warnings.push(format!("{name} is not a variable of llmgw and has no effect{hint}"));
            return;
        };
        match parse::value(variable.kind, value) {
            Ok(value) => {
                self.values.insert(variable.name, value);
            }
            Err(message) => self.faults.push(ConfigFault::variable(name, message)),
        }
    }

    /// Returns the warnings to log at start-up; none of them prevents it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// True if core dumps and debuggers are allowed.
    pub fn allows_core_dumps(&self) -> bool {
        self.flag(CORE_DUMPS).unwrap_or(false)
    }

    /// True if a seed is configured, so that no other initial configuration file must be created.
    pub fn names_seed(&self) -> bool {
        self.path("LLMGW_CONFIG_SEED").is_some()
    }

    /// Returns the faults of variables with invalid values.
    pub(super) fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }

    /// Returns the text of any variable, for `${ENV:NAME}` and for `HOME`.
    pub(super) fn text_of(&self, name: &str) -> Option<&Secret<String>> {
        self.texts.get(name)
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            VariableValue::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            VariableValue::Count(count) => Some(*count),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            VariableValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    pub(super) fn database(&self, name: &str) -> Option<DatabaseAddress> {
        match self.value(name)? {
            VariableValue::Database(address) => Some(DatabaseAddress::clone(address)),
            _ => None,
        }
    }

    pub(super) fn secret(&self, name: &str) -> Option<Secret<String>> {
        match self.value(name)? {
            VariableValue::Secret(secret) => Some(secret.clone()),
            _ => None,
        }
    }

    pub(super) fn key(&self, name: &str) -> Option<Secret<[u8; 32]>> {
        match self.value(name)? {
            VariableValue::Key(key) => Some(key.clone()),
            _ => None,
        }
    }

    pub(super) fn schedule(&self, name: &str) -> Option<Schedule> {
        match self.value(name)? {
            VariableValue::Schedule(schedule) => Some(schedule.clone()),
            _ => None,
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<&VariableValue> {
        debug_assert!(
            VARIABLES.iter().any(|variable| variable.name == name),
            "every name read is in the table"
        );
        self.values.get(name)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.values.keys().collect();
        names.sort();
        f.debug_struct("Environment").field("set", &names).finish_non_exhaustive()
    }
}

/// Returns true if telemetry is exported. Otherwise the variables of OpenTelemetry have no effect, and may have values for
/// other programs.
fn exports(variables: &BTreeMap<OsString, OsString>) -> bool {
    let of = |name: &str| variables.get(OsStr::new(name));
    let is_disabled = of(OTEL_DISABLED).is_some_and(|value| value == "true" || value == "1");
    !is_disabled && OTEL_ENDPOINTS.iter().any(|name| of(name).is_some())
}

const PREFIX: &str = "LLMGW_";
const OTEL_DISABLED: &str = "OTEL_SDK_DISABLED";
const OTEL_ENDPOINTS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
];
pub(super) const CORE_DUMPS: &str = "LLMGW_CORE_DUMPS";
/// Variables of earlier releases; a warning is logged at start-up while one of them is set (CFG-7).
const RETIRED: &[&str] = &["LLMGW_EXTENSION_URL", "LLMGW_EXTENSION_SECRET"];

#[cfg(test)]
mod tests;
