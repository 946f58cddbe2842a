//! Deployments that differ in their key alone, which become several keys of one provider.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shared::lanes::{KEYS_MAX, KEYS_MIN};

use super::Deployment;
use crate::state::offline::litellm::source::{Source, below};

/// Gives all of `found` that have one name, and differ in their key alone, the keys of all of them. Each has the name of its
/// group.
pub(in crate::state::offline::litellm) fn join<'a>(
    source: &mut Source,
    found: impl Iterator<Item = (&'a str, &'a mut Deployment)>,
) {
    let mut alike: BTreeMap<String, Vec<&mut Deployment>> = BTreeMap::new();
    for (name, deployment) in found {
        if let Some(rest) = deployment.but_for_its_key(name) {
            alike.entry(rest).or_default().push(deployment);
        }
    }
    for mut deployments in alike.into_values() {
        let mut keys: Vec<Value> = Vec::new();
        for key in deployments.iter().filter_map(|deployment| deployment.settings.get(ONE)) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        if !(KEYS_MIN..=KEYS_MAX).contains(&keys.len()) {
            continue;
        }
        let count = deployments.len();
        for (place, deployment) in deployments.iter_mut().enumerate() {
            deployment.settings.remove(ONE);
            deployment.settings.insert(SEVERAL.to_owned(), json!(keys));
            deployment.is_further_key = place > 0;
            if place == 1 {
                let name = below(&deployment.path, &["model_name"]);
                source.find(&name, format!("{count} {EXPLANATION}"));
            }
        }
    }
}

impl Deployment {
    /// Returns a text of everything but the key; `None` if the provider cannot have several keys.
    fn but_for_its_key(&self, name: &str) -> Option<String> {
        let mut settings = self.settings.clone();
        settings.remove(ONE)?;
        // A service account obtains tokens, of which a provider has one.
        let has_tokens = settings.get("registry_id").and_then(Value::as_str) == Some("vertex");
        let rest = json!([name, self.prefix, self.model, self.order, self.weight, settings]);
        (!has_tokens).then(|| rest.to_string())
    }
}

const ONE: &str = "api_key";
const SEVERAL: &str = "api_keys";
const EXPLANATION: &str = "deployments of this name differ in their key alone, so they became one provider with api_keys: a session \
                           stays with its key, another request takes the key with the fewest attempts, and the next one at once if \
                           a key is rejected or limited (docs/providers.md#several-keys)";
