//! Reads the facts of a deployment about its model: abilities, prices and limits.

use serde_json::{Map, Value, json};

use crate::routing::config::yaml::YamlPath;
use crate::state::offline::litellm::draft::Draft;
use crate::state::offline::litellm::source::{Source, below};

/// Reads prices and abilities of the model, from both places where LiteLLM accepts them.
pub(super) fn facts(
    source: &mut Source,
    draft: &mut Draft,
    entry: &YamlPath,
    (instance, model): (usize, &str),
) {
    let mut prices = Map::new();
    let mut price_paths = Vec::new();
    for part in ["litellm_params", "model_info"] {
        for (from, to, is_fact) in FACTS {
            let path = below(entry, &[part, from]);
            if let Some(value) = source.at(&path).cloned().filter(is_fact) {
                source.take(&path);
                draft.add_fact(instance, model, to, value);
            }
        }
        for (from, to) in PRICES {
            let path = below(entry, &[part, from]);
            if let Some(dollars) = source.at(&path).and_then(Value::as_f64) {
                prices.insert((*to).to_owned(), json!((dollars * 1e12).round() / 1e6));
                price_paths.push(path);
            }
        }
    }
    let is_whole = prices.contains_key("input") && prices.contains_key("output");
    for path in price_paths {
        if is_whole {
            source.take(&path);
        } else {
            source.find(
                &path,
                "not imported: llmgw needs the prices of both input and output (docs/prices.md)",
            );
        }
    }
    if is_whole {
        draft.add_fact(instance, model, "prices", Value::Object(prices));
    }
}

/// Turns the limits of a deployment into findings that contain the quota.
pub(super) fn limits(source: &mut Source, entry: &YamlPath, (provider, lanes): (&str, usize), model: &str) {
    for part in ["", "litellm_params", "model_info"] {
        for (key, metric, window) in LIMITS {
            let keys = [part, key];
            let path = below(entry, if part.is_empty() { &keys[1..] } else { &keys });
            let Some(limit) = source.at(&path).and_then(whole_number) else { continue };
            let mut quota = json!({
                "subject": {"kind": "provider", "id": provider}, "model": format!("{provider}/{model}"),
                "metric": metric, "limit": limit, "enforcement": "hard",
            });
            if let (Some(quota), Some(window)) = (quota.as_object_mut(), window) {
                quota.insert("window".to_owned(), json!(window));
            }
            let shared = match lanes {
                0 | 1 => "",
                _ => ". The keys of the provider share it, so write the sum of the limits of all of them",
            };
            let shown =
                format!("not imported: for the same limit, POST /admin/api/quotas with {quota}{shared}");
            source.find(&path, shown);
        }
    }
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some_and(|count| count > 0)
}

/// Returns a whole number, also in the form `20_000` of YAML 1.1, which LiteLLM reads.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.replace('_', "").parse().ok())
}

/// LiteLLM's name of a fact, that of llmgw, and the values that it may have.
type Fact = (&'static str, &'static str, fn(&Value) -> bool);
const FACTS: &[Fact] = &[
    ("max_input_tokens", "context_window", is_count),
    ("max_output_tokens", "max_output_tokens", is_count),
    ("supports_vision", "vision", Value::is_boolean),
    ("supports_function_calling", "tools", Value::is_boolean),
    ("supports_reasoning", "reasoning", Value::is_boolean),
];
/// LiteLLM's prices are for one token, those of llmgw for a million.
const PRICES: &[(&str, &str)] = &[
    ("input_cost_per_token", "input"),
    ("output_cost_per_token", "output"),
    ("cache_read_input_token_cost", "cached_input"),
    ("cache_creation_input_token_cost", "cache_write"),
];
const LIMITS: &[(&str, &str, Option<&str>)] = &[
    ("rpm", "requests", Some("minute")),
    ("tpm", "total_tokens", Some("minute")),
    ("rpd", "requests", Some("day")),
    ("tpd", "total_tokens", Some("day")),
    ("max_parallel_requests", "concurrent_requests", None),
];
