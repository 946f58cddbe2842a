//! Merges the three layers: defaults, then the file, then the environment. Each setting records its layer.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::env::{CORE_DUMPS, Environment, SecretFiles, VARIABLES};
use super::fault::{ConfigError, ConfigFault};
use super::file::{self, FileReading, Notes, Version};
use super::model::{Config, Routing, SharedDatabase};
use super::seed::Seed;
use super::{claude_code, failover_gaps, identity, otlp, plain_secrets, schema, serving, validate, way};
use crate::common::regular_file;

const STALE_SECONDS: u64 = 300;
const USAGE_DB: &str = "LLMGW_USAGE_DB";
pub(super) const DATABASE_URL: &str = "LLMGW_DATABASE_URL";

/// A valid configuration and its warnings.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings to log once, at start-up.
    pub warnings: Vec<String>,
}

/// The layer that a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The built-in default.
    Default,
    /// The YAML file.
    File,
    /// An environment variable.
    Environment,
}

impl SettingSource {
    /// Returns the name of the layer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
        }
    }
}

/// One effective value, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable's name, or the key in the file if there is no variable.
    pub name: String,
    /// The value; masked if it is secret, empty if there is none.
    pub value: String,
    /// The value that applies if no layer sets one; empty if there is none.
    pub default: String,
    /// The layer of the value.
    pub source: SettingSource,
    /// The line of the file that sets the value, if the file does.
    pub line: Option<u64>,
}

impl Setting {
    /// Returns the path of the setting in the file; `None` if only its variable can set it.
    pub fn path(&self) -> Option<String> {
        match self.name.strip_prefix("LLMGW_") {
            None if VARIABLES.iter().any(|variable| variable.name == self.name) => None,
            None => Some(self.name.clone()),
            Some(rest) => {
                let key = rest.to_lowercase();
                schema::is_server_key(&key).then(|| format!("server.{key}"))
            }
        }
    }

    /// Returns the description of the setting.
    pub fn doc(&self) -> &'static str {
        VARIABLES.iter().find(|variable| variable.name == self.name).map_or(CORS_DOC, |variable| variable.doc)
    }

    /// True if the value must not be shown.
    pub fn is_secret(&self) -> bool {
        VARIABLES.iter().any(|variable| variable.name == self.name && variable.secret())
    }
}

/// Loads the configuration from all layers. The error holds every fault of the environment and of the file.
pub fn load(environment: &Arc<Environment>) -> Result<Loaded, ConfigError> {
    let mut faults = environment.faults().to_vec();
    let mut layers = Layers { environment, settings: Vec::new(), faults: Vec::new() };
    let (state_dir, file) = places(&mut layers);
    expect_directory(&state_dir, &mut layers);
    let seed = seed(&mut layers, &file);
    let source = seed.as_ref().map_or(file.as_path(), |seed| seed.from.as_path());
    let FileReading { raw, mut notes, version } = file::read(source);
    let mut warnings = environment.warnings().to_vec();
    warn_of_missing(environment, source, seed.is_some(), &mut layers, &mut warnings);

    let keys = identity::keys(&mut layers, &mut warnings);
    let server = serving::server(&mut layers, &raw, &mut notes);
    let logging = serving::logging(&mut layers, &raw.server, &mut warnings);
    let sso = super::sso::sso(&mut layers, &mut warnings);
    let policies = validate::policies(&raw, &mut notes, &mut warnings);
    let claude_code = claude_code::claude_code(&raw, &mut notes, &mut warnings);
    let mut routing = validate::routing(&raw, environment, &mut notes, &mut warnings);
    plain_secrets::fill(&mut routing, &state_dir, &mut warnings);
    warnings.extend(failover_gaps::of_routing(&routing, &policies));
    let lifetimes = identity::lifetimes(&mut layers);
    let usage_db = layers.flag(USAGE_DB, None);
    let prices_url = layers.optional("LLMGW_PRICES_URL", None);
    let backup_schedule = identity::backup_schedule(&mut layers);
    let database = database(&mut layers, usage_db, backup_schedule.is_some());
    let with_client = routing.providers.iter().filter(|provider| provider.issuer.is_some());
    let with_client: Vec<&str> = with_client.map(|provider| provider.id.as_str()).collect();
    let partner = identity::partner(&mut layers, &with_client, &mut warnings);
    let preamble = environment.text(PREAMBLE);
    let preamble = layers.take(PREAMBLE, preamble, None, String::new());
    layers.flag(CORE_DUMPS, None);
    let otlp = otlp::otlp(&mut layers);
    let proxies = way::proxies(&mut layers);
    let anonymous_provider_automation = layers.flag("LLMGW_ANONYMOUS_PROVIDER_AUTOMATION", None);

    layers.locate(&notes);
    let secret_files = std::mem::take(&mut notes.secret_files);
    faults.append(&mut layers.faults);
    faults.extend(notes.into_faults());
    ConfigError::check(faults)?;
    let (Some((admin_keys, credential_encryption_key)), Some(server)) = (keys, server) else {
        return Err(ConfigFault::file(&file, "the configuration is incomplete").into());
    };
    let config = Config {
        admin_keys,
        credential_encryption_key,
        state_dir,
        file,
        seed,
        server,
        logging,
        policies,
        sso,
        claude_code,
        preamble,
        anonymous_provider_automation,
        lifetimes,
        usage_db,
        database,
        prices_url,
        backup_schedule,
        partner,
        otlp,
        proxies,
        routing,
        settings: layers.settings,
        version,
        secret_files,
        environment: Arc::clone(environment),
    };
    Ok(Loaded { config, warnings })
}

/// Returns the database of PostgreSQL with the state, if it is in one. What is for a state in files is then a fault.
fn database(layers: &mut Layers<'_>, usage_db: bool, has_schedule: bool) -> Option<SharedDatabase> {
    let environment = layers.environment;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let node_name = layers.take("LLMGW_NODE_NAME", environment.text("LLMGW_NODE_NAME"), None, host);
    let stale_seconds = layers.count("LLMGW_STALE_SECONDS", None, STALE_SECONDS);
    let migrates = layers.take("LLMGW_MIGRATE", environment.flag("LLMGW_MIGRATE"), None, true);
    let address = layers.secret(DATABASE_URL, environment.database(DATABASE_URL))?;
    if usage_db {
        layers.fault(
            USAGE_DB,
            "is for a state in files; unset it: with LLMGW_DATABASE_URL usage is in PostgreSQL",
        );
    }
    if has_schedule {
        let message = "is for a state in files; unset it, and back up the database of LLMGW_DATABASE_URL with PostgreSQL's \
                       own tools";
        layers.fault(identity::BACKUP_SCHEDULE, message);
    }
    Some(SharedDatabase { address, node_name, stale_after: Duration::from_secs(stale_seconds), migrates })
}

/// Returns the state directory and the configuration file for this environment.
pub fn places_of(environment: &Arc<Environment>) -> Result<(PathBuf, PathBuf), ConfigError> {
    let mut layers = Layers { environment, settings: Vec::new(), faults: Vec::new() };
    let places = places(&mut layers);
    ConfigError::check(layers.faults).map(|()| places)
}

/// Returns the listening address for this environment, and whether it uses TLS; ignores faults in other settings.
pub fn listens_at(environment: &Arc<Environment>) -> Result<(SocketAddr, bool), ConfigError> {
    let mut layers = Layers { environment, settings: Vec::new(), faults: Vec::new() };
    let (_, file) = places(&mut layers);
    let FileReading { raw, mut notes, .. } = file::read(&file);
    match serving::server(&mut layers, &raw, &mut notes) {
        Some(server) => Ok((server.bind, server.tls.is_some())),
        None => {
            ConfigError::check(layers.faults)?;
            Err(ConfigFault::file(file, "server.host is not usable").into())
        }
    }
}

impl Config {
    /// Reads the file again, for its providers and endpoints only. Settings that apply from start-up are checked too,
    /// so that a file that would prevent a start is not accepted while running. A file that does not exist is a fault
    /// unless the settings in force, those of `in_force`, are without a file too.
    pub fn read_again(&self, in_force: Version) -> Reread {
        let FileReading { raw, mut notes, version } = file::read(&self.file);
        let mut warnings = Vec::new();
        let mut layers = Layers { environment: &self.environment, settings: Vec::new(), faults: Vec::new() };
        if version == Version::Absent && in_force != Version::Absent {
            layers.faults.push(ConfigFault::file(&self.file, "the file no longer exists"));
        }
        serving::server(&mut layers, &raw, &mut notes);
        validate::policies(&raw, &mut notes, &mut Vec::new());
        claude_code::claude_code(&raw, &mut notes, &mut Vec::new());
        let mut routing = validate::routing(&raw, &self.environment, &mut notes, &mut warnings);
        plain_secrets::fill(&mut routing, &self.state_dir, &mut warnings);
        let secret_files = std::mem::take(&mut notes.secret_files);
        let mut faults = layers.faults;
        faults.extend(notes.into_faults());
        Reread { version, secret_files, result: ConfigError::check(faults).map(|()| (routing, warnings)) }
    }
}

/// The result of reading the file again.
#[derive(Debug)]
pub struct Reread {
    /// The content that was read.
    pub version: Version,
    /// The secrets that were read from the files that it names.
    pub secret_files: SecretFiles,
    /// Providers and endpoints with their warnings, or every fault.
    pub result: Result<(Routing, Vec<String>), ConfigError>,
}

/// Selects values and records the layer of each.
pub(super) struct Layers<'a> {
    pub(super) environment: &'a Arc<Environment>,
    settings: Vec<Setting>,
    faults: Vec<ConfigFault>,
}

impl Layers<'_> {
    pub(super) fn take<T: fmt::Display>(
        &mut self,
        name: &str,
        variable: Option<T>,
        file: Option<T>,
        default: T,
    ) -> T {
        let shown_default = default.to_string();
        let (value, source) = match (variable, file) {
            (Some(value), _) => (value, SettingSource::Environment),
            (None, Some(value)) => (value, SettingSource::File),
            (None, None) => (default, SettingSource::Default),
        };
        self.add(name, value.to_string(), shown_default, source);
        value
    }

    fn add(&mut self, name: &str, value: String, default: String, source: SettingSource) {
        self.settings.push(Setting { name: name.to_owned(), value, default, source, line: None });
    }

    /// Looks up the lines of the values that the file sets.
    fn locate(&mut self, notes: &Notes) {
        for setting in self.settings.iter_mut().filter(|setting| setting.source == SettingSource::File) {
            setting.line = setting.path().and_then(|path| notes.line_of(&path));
        }
    }

    pub(super) fn flag(&mut self, name: &str, file: Option<bool>) -> bool {
        self.take(name, self.environment.flag(name), file, false)
    }

    pub(super) fn count(&mut self, name: &str, file: Option<u64>, default: u64) -> u64 {
        self.take(name, self.environment.count(name), file, default)
    }

    pub(super) fn optional(&mut self, name: &str, file: Option<&String>) -> Option<String> {
        let variable = self.environment.text(name);
        let text = self.take(name, variable, file.cloned(), String::new());
        Some(text).filter(|text| !text.is_empty())
    }

    pub(super) fn secret<T>(&mut self, name: &str, found: Option<T>) -> Option<T> {
        let (value, source) = match found {
            Some(_) => ("••••", SettingSource::Environment),
            None => ("", SettingSource::Default),
        };
        self.add(name, value.to_owned(), String::new(), source);
        found
    }

    pub(super) fn fault(&mut self, name: &str, message: impl Into<String>) {
        self.faults.push(ConfigFault::variable(name, message));
    }

    /// True if a variable or that of its file is set but faulty, so that no further fault need report its absence.
    pub(super) fn faulty(&self, name: &str) -> bool {
        self.environment.is_faulty(name)
    }
}

fn places(layers: &mut Layers<'_>) -> (PathBuf, PathBuf) {
    let environment = layers.environment;
    let home = environment.text_of("HOME").map(|home| Path::new(home.expose()).join(".llmgw"));
    let state = environment.path("LLMGW_STATE_DIR");
    if state.is_none() && home.is_none() {
        layers.fault("LLMGW_STATE_DIR", "is not set and neither is HOME; set one of them");
    }
    let shown = |path: PathBuf| path.display().to_string();
    let default = home.unwrap_or_default();
    layers.take("LLMGW_STATE_DIR", state.clone().map(shown), None, shown(default.clone()));
    let state_dir = state.unwrap_or(default);
    let file = environment.path("LLMGW_CONFIG");
    let default = state_dir.join("config.yaml");
    layers.take("LLMGW_CONFIG", file.clone().map(shown), None, shown(default.clone()));
    (state_dir, file.unwrap_or(default))
}

/// Adds a fault if `state_dir` is a file or below one. A directory that does not exist yet is created later.
fn expect_directory(state_dir: &Path, layers: &mut Layers<'_>) {
    let path = state_dir.to_owned();
    let what = match regular_file::in_time(move || std::fs::metadata(path)) {
        Ok(Ok(found)) if !found.is_dir() => "is a file",
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotADirectory => "is below a file",
        Ok(_) | Err(_) => return,
    };
    layers.fault("LLMGW_STATE_DIR", format!("{} {what}; set it to a directory", state_dir.display()));
}

fn seed(layers: &mut Layers<'_>, file: &Path) -> Option<Seed> {
    let from = layers.environment.path(SEED);
    layers.take(SEED, from.as_ref().map(|path| path.display().to_string()), None, String::new());
    from.filter(|_| !regular_file::is_there(file)).map(|from| Seed { from, to: file.to_owned() })
}

fn warn_of_missing(
    environment: &Environment,
    source: &Path,
    seeding: bool,
    layers: &mut Layers<'_>,
    warnings: &mut Vec<String>,
) {
    match (regular_file::is_there(source), seeding, environment.path("LLMGW_CONFIG")) {
        (true, _, _) | (false, false, None) => {}
        (false, true, _) => layers.fault(SEED, format!("the file {} does not exist", source.display())),
        (false, false, Some(_)) => warnings.push(format!(
            "LLMGW_CONFIG names {}, which does not exist: there are no providers until it does",
            source.display()
        )),
    }
}

const PREAMBLE: &str = "LLMGW_GATEWAY_PREAMBLE";
const SEED: &str = "LLMGW_CONFIG_SEED";
/// The description of `cors.origins`, the only setting without a variable.
const CORS_DOC: &str = "Origins whose pages may call the data plane; * permits all";
