//! The configuration in the making: provider instances, joined by address and credential, and variables.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::routing::config::yaml::YamlPath;
use crate::state::offline::configuration_text::free_variable;

/// A provider instance.
pub(super) struct Instance {
    /// The ID that it gets if no other has it.
    prefix: &'static str,
    settings: Map<String, Value>,
    /// The first deployment that needs it.
    pub(super) path: YamlPath,
    id: String,
    /// Models with what is known of them.
    models: BTreeMap<String, Map<String, Value>>,
    /// False if llmgw rejects it.
    is_kept: bool,
}

impl Instance {
    pub(super) fn new(prefix: &'static str, settings: Map<String, Value>, path: YamlPath) -> Self {
        Self { prefix, settings, path, id: String::new(), models: BTreeMap::new(), is_kept: true }
    }
}

#[derive(Default)]
pub(super) struct Draft {
    instances: Vec<Instance>,
    /// Names that no provider may have.
    reserved: BTreeSet<String>,
    /// Variables that the configuration refers to.
    variables: BTreeSet<String>,
    /// Variables that the source refers to; a new one must differ.
    foreign: BTreeSet<String>,
    /// New variables by the literal secret that they are for.
    invented: BTreeMap<String, String>,
}

impl Draft {
    pub(super) fn new(groups: BTreeSet<String>, foreign: BTreeSet<String>) -> Self {
        Self { reserved: groups, foreign, ..Self::default() }
    }

    /// Returns the index of the instance with these settings, and true if it was added.
    pub(super) fn instance(&mut self, wanted: Instance) -> (usize, bool) {
        let same = |known: &Instance| known.prefix == wanted.prefix && known.settings == wanted.settings;
        if let Some(index) = self.instances.iter().position(same) {
            return (index, false);
        }
        let numbered = (2..).map(|number: u64| format!("{}-{number}", wanted.prefix));
        let mut ids = std::iter::once(wanted.prefix.to_owned()).chain(numbered);
        let id = ids.find(|id| !self.reserved.contains(id)).unwrap_or_default();
        self.reserved.insert(id.clone());
        self.instances.push(Instance { id, ..wanted });
        (self.instances.len() - 1, true)
    }

    pub(super) fn id(&self, instance: usize) -> String {
        self.instances.get(instance).map(|instance| instance.id.clone()).unwrap_or_default()
    }

    /// Returns the number of keys of the instance, if it has several.
    pub(super) fn keys(&self, instance: usize) -> usize {
        let settings = self.instances.get(instance).map(|instance| &instance.settings);
        settings.and_then(|settings| settings.get("api_keys")?.as_array()).map_or(1, Vec::len)
    }

    pub(super) fn is_kept(&self, instance: usize) -> bool {
        self.instances.get(instance).is_some_and(|instance| instance.is_kept)
    }

    /// Declares `model`.
    pub(super) fn add_model(&mut self, instance: usize, model: &str) -> Option<&mut Map<String, Value>> {
        Some(self.instances.get_mut(instance)?.models.entry(model.to_owned()).or_default())
    }

    /// Declares a fact about `model`. The first value stays.
    pub(super) fn add_fact(&mut self, instance: usize, model: &str, key: &str, value: Value) {
        if let Some(facts) = self.add_model(instance, model) {
            facts.entry(key).or_insert(value);
        }
    }

    /// Returns the reference to a variable of the source.
    pub(super) fn reference(&mut self, name: &str) -> String {
        self.variables.insert(name.to_owned());
        format!("${{ENV:{name}}}")
    }

    /// Returns the name of a new variable for the literal `secret`; equal ones share it.
    pub(super) fn new_variable(&mut self, secret: &str, named_after: &str) -> String {
        if let Some(name) = self.invented.get(secret) {
            return name.clone();
        }
        let taken = self.variables.union(&self.foreign).cloned().collect();
        let parts = ["IMPORTED", named_after, "KEY"];
        let name = free_variable(&parts, &taken);
        self.variables.insert(name.clone());
        if !secret.is_empty() {
            self.invented.insert(secret.to_owned(), name.clone());
        }
        name
    }

    /// Takes the provider out that `path`, of a fault in the written configuration, is about. Returns where it comes from.
    pub(super) fn reject(&mut self, path: &str) -> Option<YamlPath> {
        let rest = path.strip_prefix("providers.")?;
        let is_about = |instance: &&mut Instance| {
            let end = rest.strip_prefix(instance.id.as_str());
            instance.is_kept && end.is_some_and(|end| end.is_empty() || end.starts_with('.'))
        };
        let instance = self.instances.iter_mut().find(is_about)?;
        instance.is_kept = false;
        Some(instance.path.clone())
    }

    /// Returns the section `providers`.
    pub(super) fn providers(&self) -> Map<String, Value> {
        let kept = self.instances.iter().filter(|instance| instance.is_kept);
        kept.map(|instance| (instance.id.clone(), instance.written())).collect()
    }

    /// Returns the variables that `providers` refers to.
    pub(super) fn variables(&self, providers: &Map<String, Value>) -> BTreeSet<String> {
        let text = Value::Object(providers.clone()).to_string();
        self.variables.iter().filter(|name| text.contains(&format!("${{ENV:{name}}}"))).cloned().collect()
    }
}

impl Instance {
    fn written(&self) -> Value {
        let mut settings = self.settings.clone();
        let models: Vec<Value> = self.models.iter().map(|(id, facts)| described(id, facts)).collect();
        if !models.is_empty() {
            settings.insert("models".to_owned(), Value::Array(models));
        }
        Value::Object(settings)
    }
}

fn described(id: &str, facts: &Map<String, Value>) -> Value {
    if facts.is_empty() {
        return json!(id);
    }
    let mut described = facts.clone();
    described.insert("id".to_owned(), json!(id));
    Value::Object(described)
}
