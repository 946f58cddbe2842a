//! `llmgw export`: writes the providers and endpoints of the database as a configuration file. The file contains no secret:
//! each one is a reference to an environment variable, which the comments at its top list. What a file cannot declare is
//! listed there too.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use shared::secret::Secret;
use shared::usage::TargetOrder;
use thiserror::Error;

use super::configuration_text::{ConfigurationText, free_variable};
use crate::db::endpoints::{self, EndpointContent, EndpointRow};
use crate::db::engine::{Db, DbResult};
use crate::db::error::OpenError;
use crate::db::providers::{self, ProviderRow};
use crate::db::quotas::Rules;
use crate::routing::config::DOTS;
use crate::routing::connection::StoredKey;
use crate::state::StatePlace;

/// The objects of a database as a configuration.
#[derive(Debug, Default)]
struct Export {
    providers: Map<String, Value>,
    endpoints: Map<String, Value>,
    /// The variables that take the place of stored secrets.
    variables: BTreeSet<String>,
    /// The objects that the file does not declare, one line each.
    omitted: Vec<String>,
}

/// Returns the configuration file for a state. A gateway may run on it.
pub fn export(place: StatePlace<'_>, encryption_key: &Secret<[u8; 32]>) -> Result<String, ExportError> {
    let (db, _) = place.open_to_read(encryption_key).map_err(ExportError::Open)?;
    // A single transaction, so that all objects are of one moment.
    let read = db.read_transaction().and_then(|tx| Export::read(&tx));
    read.map_err(|source| ExportError::Open(place.error(source)))?.text()
}

impl Export {
    fn read(db: &Db) -> DbResult<Self> {
        let mut export = Self::default();
        for (id, _) in providers::stamps(db)? {
            if let Some(row) = providers::find(db, &id)? {
                export.add_provider(&row);
            }
        }
        for row in endpoints::all(db)? {
            export.add_endpoint(row);
        }
        for quota in Rules::load(db)?.all() {
            let shown = json!({
                "subject": quota.counted.subject, "model": quota.counted.model, "endpoint": quota.counted.endpoint,
                "metric": quota.metric, "window": quota.period, "limit": quota.limit, "enforcement": quota.enforcement,
                "wait_ms": quota.wait_ms,
            });
            export
                .omitted
                .push(format!("quota {} ({shown}): create it with POST /admin/api/quotas", quota.id));
        }
        for (what, count) in OTHERS {
            let rows: u64 = db.row(count, (), |row| row.get(0))?;
            if rows > 0 {
                export.omitted.push(format!("{what}: {rows}"));
            }
        }
        Ok(export)
    }

    fn add_provider(&mut self, row: &ProviderRow) {
        let id = &row.id;
        if row.is_anonymous || row.owner.is_some() {
            let why = if row.is_anonymous { "connected automatically" } else { "private to a person" };
            return self.omitted.push(format!("provider {id}: it is {why}"));
        }
        let Ok(mut settings) = serde_json::from_str::<Map<String, Value>>(&row.settings) else {
            return self.omitted.push(format!("provider {id}: its stored settings cannot be read"));
        };
        settings.retain(|_, value| !value.is_null());
        if let Some(keys) = StoredKey::listed(&settings) {
            let keys = keys.into_iter().map(|StoredKey { id: number, hint }| {
                let reference = hint.filter(|hint| hint.starts_with("${"));
                reference.unwrap_or_else(|| self.variable(&[id, "API_KEY", &number.to_string()]))
            });
            settings.insert("api_keys".to_owned(), keys.collect());
        } else if row.credential.is_some() {
            let reference = row.credential_hint.clone().filter(|hint| hint.starts_with("${"));
            let key = reference.unwrap_or_else(|| self.variable(&[id, "API_KEY"]));
            settings.insert("api_key".to_owned(), Value::String(key));
        }
        self.name_headers(&mut settings, &[id]);
        let models = settings.get_mut("models").and_then(Value::as_array_mut).into_iter().flatten();
        for model in models.filter_map(Value::as_object_mut) {
            let of_model = model.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
            self.name_headers(model, &[id, &of_model]);
        }
        if row.auth == "oauth" {
            self.omitted.push(format!("the sign-in of provider {id}: sign in to it again"));
        }
        self.providers.insert(id.clone(), Value::Object(settings));
    }

    /// Replaces the dots of sealed headers by variables, whose names begin with `above`.
    fn name_headers(&mut self, settings: &mut Map<String, Value>, above: &[&str]) {
        let headers = settings.get_mut("headers").and_then(Value::as_object_mut).into_iter().flatten();
        for (name, value) in headers.filter(|(_, value)| *value == DOTS) {
            *value = Value::String(self.variable(&[above, &[name]].concat()));
        }
    }

    /// Adds an endpoint with the targets whose provider the file declares.
    fn add_endpoint(&mut self, row: EndpointRow) {
        let EndpointRow {
            name,
            content: EndpointContent { mut failover, preamble, also, order, sticky, cursor_bodies },
            ..
        } = row;
        failover.retain(|member| {
            let is_known = self.providers.contains_key(&member.provider);
            if !is_known {
                self.omitted.push(format!(
                    "target {}/{} of endpoint {name}: its provider is not in this file",
                    member.provider, member.model
                ));
            }
            is_known
        });
        if failover.is_empty() {
            return self.omitted.push(format!("endpoint {name}: it has no other target"));
        }
        if let [only] = &mut failover[..] {
            (only.weight, only.tier) = (None, None);
        }
        let mut endpoint = json!({"failover": failover});
        if let (Some(endpoint), Some(preamble)) = (endpoint.as_object_mut(), preamble) {
            endpoint.insert("preamble".to_owned(), Value::String(preamble));
        }
        if let (Some(endpoint), false) = (endpoint.as_object_mut(), also.is_empty()) {
            endpoint.insert("also".to_owned(), json!(also));
        }
        if let (Some(endpoint), true) = (endpoint.as_object_mut(), cursor_bodies) {
            endpoint.insert("cursor_bodies".to_owned(), json!(true));
        }
        // With one target left, an order would have no effect.
        if let (Some(endpoint), true) = (endpoint.as_object_mut(), failover.len() > 1) {
            if order != TargetOrder::Listed {
                endpoint.insert("order".to_owned(), json!(order));
            }
            endpoint.extend(sticky.map(|sticky| ("sticky".to_owned(), json!(sticky))));
        }
        self.endpoints.insert(name, endpoint);
    }

    /// Returns a reference to a variable that is named after `parts` and has no other use.
    fn variable(&mut self, parts: &[&str]) -> String {
        let name = free_variable(parts, &self.variables);
        let reference = format!("${{ENV:{name}}}");
        self.variables.insert(name);
        reference
    }

    fn text(&self) -> Result<String, ExportError> {
        let text = ConfigurationText {
            about: &["Providers and endpoints of the database, as a configuration file of llmgw."],
            variables: &self.variables,
            omitted: &self.omitted,
            tree: &json!({"providers": self.providers, "endpoints": self.endpoints}),
        };
        text.write().map_err(ExportError::Text)
    }
}

/// An export that failed.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The state cannot be opened or read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The objects have no YAML form.
    #[error("the configuration cannot be written as YAML: {0}")]
    Text(serde_yaml::Error),
}

impl ExportError {
    /// Returns the exit code of the process for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::Text(_) => 70,
        }
    }
}

/// Objects that no file declares, and the statement that counts each.
const OTHERS: [(&str, &str); 7] = [
    ("keys", "SELECT count(*) FROM keys"),
    ("people", "SELECT count(*) FROM principals"),
    ("projects", "SELECT count(*) FROM projects"),
    ("webhooks", "SELECT count(*) FROM webhooks"),
    ("alert rules", "SELECT count(*) FROM alert_rules"),
    ("extensions", "SELECT count(*) FROM extensions"),
    ("prices and facts of models set in the catalog", "SELECT count(*) FROM catalog_overrides"),
];
