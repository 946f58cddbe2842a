//! Configuration: built-in defaults, then the YAML file, then the environment (CFG-1).
//!
//! [`Environment`] is the only reader of environment variables, [`load`] builds a [`Config`] from all layers, and
//! [`ConfigError`] holds every fault that was found, not only the first.

mod address;
mod body;
mod claude_code;
mod credential;
mod describe;
mod descriptors;
mod env;
mod error_rules;
mod failover_gaps;
mod fault;
mod file;
mod identity;
mod layer;
mod model;
mod nearest;
mod oauth;
mod offline;
mod order;
mod otlp;
mod plain_secrets;
mod prices;
mod provider;
mod provider_tls;
mod raw;
mod reach;
mod registry;
mod rules;
mod schema;
mod secrets;
mod seed;
mod serving;
mod show;
mod sso;
mod stored;
mod text_check;
mod validate;
mod way;
pub(crate) mod yaml;

pub(crate) use address::{BaseUrl, check_url};
pub(crate) use body::secrets_of;
pub use claude_code::{ClaudeCode, ManagedSettings};
pub(crate) use credential::{is_reference, key_hint};
pub use env::{Environment, Schedule, SecretFiles, VARIABLES, Variable, variable_of_file};
pub(crate) use failover_gaps::failover_gaps;
pub use fault::{ConfigError, ConfigFault, FaultPlace};
pub use file::Version;
pub use layer::{Loaded, Reread, Setting, SettingSource, listens_at, load, places_of};
pub(crate) use model::OAUTH_CALLBACK;
pub use model::{
    AdminKey, Config, ConnectionAuth, Endpoint, ExtensionLink, KeptKey, Lifetimes, LogFormat, Logging,
    Member, Partner, Policies, Provider, ProviderKey, Routing, Server, SharedDatabase, ShownTls, Sso,
    TlsFiles,
};
pub use offline::{Offline, offline};
pub(crate) use order::{TIER_MAX, WEIGHT_MAX, WrittenOrder};
pub use otlp::{Otlp, OtlpMetrics, OtlpTraces};
pub use plain_secrets::missing_keys;
pub(crate) use plain_secrets::{Plain, PlainKeys as PlainReading, lacking};
#[cfg(test)]
pub(crate) use prices::Prices as PricesShape;
pub use registry::{RegistryEntry, entries as registry_entries};
#[cfg(test)]
pub(crate) use rules::Rules as RulesShape;
pub(crate) use schema::did_you_mean;
pub use schema::{json as schema_json, text as schema_text};
pub use secrets::{SecretsError, SecretsFile, keep_secrets, secrets_file};
pub use seed::{Seed, write_new};
pub use show::show;
#[cfg(test)]
pub(crate) use stored::shown::ProviderSettings;
pub(crate) use stored::shown::shown_provider;
pub(crate) use stored::{API_KEY, API_KEYS, DOTS, FieldFault, WrittenProvider, provider_of};
pub(crate) use text_check::check_text;

/// True if `id` is a valid model id.
pub fn is_model_id(id: &str) -> bool {
    describe::model_id(id).is_ok()
}

#[cfg(test)]
mod tests;
