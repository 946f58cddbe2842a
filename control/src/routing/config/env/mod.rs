//! The only reader of the environment.
//!
//! Every `LLMGW_*` variable that is set is parsed strictly, even if this run does not use it, and so are the variables of
//! OpenTelemetry while telemetry is exported; a message never quotes a value. An empty value counts as unset. Instead of a
//! variable `NAME` whose value is secret, `NAME_FILE` may name a file that contains it. The lower-case names of the variables
//! of proxies take precedence, as with curl.

mod kind;
mod parse;
mod schedule;
mod secret_file;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shared::proxy::Proxy;
use shared::secret::Secret;
use shared::upstream_tls::TlsReader;

use super::fault::ConfigFault;
use super::schema::did_you_mean;
use crate::db::engine::postgres::DatabaseAddress;
pub(super) use parse::{VariableValue, address, origin};
pub use schedule::Schedule;
pub use secret_file::SecretFiles;
pub use table::{VARIABLES, Variable};

/// The environment, parsed.
pub struct Environment {
    values: HashMap<&'static str, VariableValue>,
    texts: HashMap<String, Secret<String>>,
    /// The files of the secret variables that were read, by the variable whose value they contain.
    files: HashMap<&'static str, PathBuf>,
    warnings: Vec<String>,
    faults: Vec<ConfigFault>,
    tls_reader: Option<Arc<dyn TlsReader>>,
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
        let mut environment = Self {
            values: HashMap::new(),
            texts: HashMap::new(),
            files: HashMap::new(),
            warnings: Vec::new(),
            faults: Vec::new(),
            tls_reader: None,
        };
        let mut variables: BTreeMap<_, _> =
            variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        for name in PROXIES {
            if let Some(value) = variables.get(OsStr::new(&name.to_lowercase())).cloned() {
                variables.insert(name.into(), value);
            }
        }
        let exports = exports(&variables);
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            match value.to_str() {
                Some(value) => environment.take(name, value, exports),
                None if name.starts_with(PREFIX) || is_of_proxies(name) => {
                    environment.faults.push(ConfigFault::variable(name, "is not UTF-8"));
                }
                None => {}
            }
        }
        environment
    }

    fn take(&mut self, name: &str, value: &str, exports: bool) {
        let is_own = name.starts_with(PREFIX) || is_of_proxies(name);
        let is_ours = || VARIABLES.iter().any(|variable| variable.name == name);
        if let Some(variable) = variable_of_file(name) {
            if is_own || exports {
                self.take_file(variable, Path::new(value));
            }
        } else if is_own || (exports || name == OTEL_DISABLED) && is_ours() {
            self.parse(name, value);
        }
        self.texts.insert(name.to_owned(), Secret::new(value.to_owned()));
    }

    /// Reads the value of the secret `variable` from `file`. The names are read in order, so the variable itself, whose name
    /// is the beginning of that of its file, has been read before.
    fn take_file(&mut self, variable: &'static Variable, file: &Path) {
        let (name, of_file) = (variable.name, file_name(variable.name));
        let value = if self.texts.contains_key(name) {
            Err(format!("{name} is set too; unset one of them"))
        } else {
            secret_file::read(file)
        };
        let parsed = value.and_then(|text| {
            let parsed = parse::value(variable.kind, text.expose());
            let parsed = parsed.map_err(|why| format!("the content of {}: {why}", file.display()))?;
            self.texts.insert(name.to_owned(), text);
            Ok(parsed)
        });
        match parsed {
            Ok(value) => {
                self.values.insert(name, value);
                self.files.insert(name, file.to_owned());
            }
            Err(message) => self.faults.push(ConfigFault::variable(&of_file, message)),
        }
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

    /// Adds what reads the TLS settings of provider instances.
    pub fn with_tls_reader(self, reader: Arc<dyn TlsReader>) -> Self {
        Self { tls_reader: Some(reader), ..self }
    }

    pub(super) fn tls_reader(&self) -> Option<&dyn TlsReader> {
        self.tls_reader.as_deref()
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

    /// Returns the file that contains the value of the variable `name`.
    pub(super) fn file_of(&self, name: &str) -> Option<&Path> {
        self.files.get(name).map(PathBuf::as_path)
    }

    /// True if the secret variable `name` or its file is set, even if the file cannot be read.
    pub(super) fn names_secret(&self, name: &str) -> bool {
        self.texts.contains_key(name) || self.texts.contains_key(&file_name(name))
    }

    /// True if a file of one of the gateway's own secrets contains `secret`.
    pub(super) fn is_own_secret(&self, secret: &Secret<String>) -> bool {
        self.files.keys().any(|name| self.texts.get(*name) == Some(secret))
    }

    /// True if the variable `name`, or that of its file, is set but faulty.
    pub(super) fn is_faulty(&self, name: &str) -> bool {
        self.faults.iter().any(|fault| fault.is_of(name))
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

    pub(super) fn proxy(&self, name: &str) -> Option<Arc<Proxy>> {
        match self.value(name)? {
            VariableValue::Proxy(proxy) => Some(Arc::clone(proxy)),
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

/// True for the variables of proxies, and those of their files.
fn is_of_proxies(name: &str) -> bool {
    PROXIES.contains(&name.strip_suffix(FILE_SUFFIX).unwrap_or(name))
}

/// Returns the secret variable whose value is in the file that the variable `name` names.
pub fn variable_of_file(name: &str) -> Option<&'static Variable> {
    let value = name.strip_suffix(FILE_SUFFIX)?;
    VARIABLES.iter().find(|variable| variable.name == value && variable.secret())
}

/// Returns the name of the variable that names the file with the value of the variable `name`.
fn file_name(name: &str) -> String {
    format!("{name}{FILE_SUFFIX}")
}

/// The end of the name of a variable that names the file with the value of another.
pub(super) const FILE_SUFFIX: &str = "_FILE";
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"];
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
