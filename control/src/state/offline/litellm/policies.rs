//! LiteLLM's retries and cooldowns, which become the policy of all providers.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::source::{Source, below};

/// Returns the section `policies`; `None` if the source has no setting for it.
pub(super) fn read(source: &mut Source) -> Option<Value> {
    let mut defaults = Map::new();
    if let Some(retries) = number(source, "num_retries", RETRIES, RETRIES_DIFFER) {
        defaults.insert("retry_max_attempts".to_owned(), json!(retries + 1));
    }
    if let Some(seconds) = number(source, "cooldown_time", COOLDOWN_SECONDS, COOLDOWNS_DIFFER) {
        defaults.insert("circuit_cooldown_seconds".to_owned(), json!(seconds));
    }
    let disable = below(&[], &["router_settings", "disable_cooldowns"]);
    if source.at(&disable) == Some(&Value::Bool(true)) {
        source.take(&disable);
        for key in ["circuit_failure_threshold", "rate_limit_rest_max_seconds"] {
            defaults.insert(key.to_owned(), json!(0));
        }
    }
    (!defaults.is_empty()).then(|| json!({"defaults": defaults}))
}

/// Returns the setting `key`, with a finding that says how its meaning differs. As in LiteLLM, the router's comes first.
fn number(source: &mut Source, key: &str, bounds: RangeInclusive<u64>, differs: &str) -> Option<u64> {
    let mut found = None;
    for section in ["router_settings", "litellm_settings"] {
        let path = below(&[], &[section, key]);
        let number = source.at(&path).and_then(Value::as_u64).filter(|number| bounds.contains(number));
        match (number, found) {
            (None, _) => {}
            (Some(_), Some(_)) => source.find(&path, "not used: that of router_settings takes precedence"),
            (Some(number), None) => {
                source.find(&path, differs);
                found = Some(number);
            }
        }
    }
    found
}

/// The values that are mapped; any other keeps the finding that it is not imported.
const RETRIES: RangeInclusive<u64> = 0..=9;
const COOLDOWN_SECONDS: RangeInclusive<u64> = 1..=3600;
const RETRIES_DIFFER: &str = "imported as retry_max_attempts of policies.defaults, which counts the first attempt too: llmgw \
                              repeats at one target before it moves on, LiteLLM over all deployments of the name";
const COOLDOWNS_DIFFER: &str = "imported as circuit_cooldown_seconds of policies.defaults: a circuit opens after consecutive \
                                failures and closes by one request that succeeds";
