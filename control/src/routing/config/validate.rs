//! Validates the whole file: resolves names, follows references, and reports dangling ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use shared::id::{EndpointName, ModelId, ProviderId, is_name};
use shared::policy::{CircuitPolicy, RetryPolicy};
use shared::routing::Model;
use shared::snapshot::{fault_of_name, is_pattern};

use super::describe::{model_id, seconds};
use super::env::Environment;
use super::file::Notes;
use super::model::{Endpoint, Member, Policies, Provider, Routing};
use super::order::WrittenOrder;
use super::provider::{ProviderReader, WrittenIn, key};
use super::raw;
use super::schema::did_you_mean;
use super::yaml::{YamlPath, YamlStep};

/// Returns the providers and endpoints of the file.
pub(super) fn routing(
    file: &raw::File,
    environment: &Environment,
    notes: &mut Notes,
    warnings: &mut Vec<String>,
) -> Routing {
    let mut providers: Vec<Provider> = Vec::new();
    for (id, raw) in &file.providers {
        let place = WrittenIn::File;
        let reader =
            ProviderReader { id, raw, environment, notes: &mut *notes, warnings: &mut *warnings, place };
        providers.extend(reader.read());
    }
    let endpoints = endpoints(file, notes, warnings);
    learn_models(&mut providers, &endpoints);
    Routing { providers: providers.into_iter().map(Arc::new).collect(), endpoints }
}

/// Reads `endpoints`, or the deprecated `categories` if that is absent (SEL-4).
fn endpoints(file: &raw::File, notes: &mut Notes, warnings: &mut Vec<String>) -> Vec<Endpoint> {
    let (section, map) = match (&file.endpoints, &file.categories) {
        (Some(endpoints), None) => ("endpoints", endpoints),
        (Some(endpoints), Some(_)) => {
            warnings
                .push("categories is deprecated and ignored, because endpoints is set; delete it".to_owned());
            ("endpoints", endpoints)
        }
        (None, Some(categories)) => {
            warnings.push("categories is deprecated; rename it to endpoints".to_owned());
            ("categories", categories)
        }
        (None, None) => return Vec::new(),
    };
    further_names(file, section, map, notes);
    map.iter().map(|(name, raw)| endpoint(file, [section, name], raw, notes)).collect()
}

/// Checks the further names of all endpoints: nothing else may have them.
fn further_names(file: &raw::File, section: &str, map: &BTreeMap<String, raw::Endpoint>, notes: &mut Notes) {
    let mut owners: HashMap<&str, &str> = HashMap::new();
    let names = map.iter().flat_map(|(endpoint, raw)| {
        raw.also.iter().enumerate().map(move |(place, name)| (endpoint.as_str(), place, name.as_str()))
    });
    for (endpoint, place, name) in names {
        let provider_of_id = name.split_once('/').map(|(provider, _)| provider);
        let fault = if let Some(fault) = fault_of_name(name) {
            format!("{fault}, as in claude-haiku-4-5 or claude-haiku-*")
        } else if name == endpoint {
            "the endpoint has this name already".to_owned()
        } else if map.contains_key(name) {
            "an endpoint has this name and takes precedence; remove one".to_owned()
        } else if file.providers.contains_key(name) {
            "a provider has this name, so a selector would be ambiguous; rename one".to_owned()
        } else if let Some(provider) =
            provider_of_id.filter(|id| !is_pattern(name) && file.providers.contains_key(*id))
        {
            format!("it is an exact model ID of the provider {provider}, which takes precedence; remove it")
        } else if let Some(owner) = owners.insert(name, endpoint) {
            format!("the endpoint {owner} has it too; remove one")
        } else {
            continue;
        };
        notes.add(&[key(section), key(endpoint), key("also"), YamlStep::Item(place)], fault);
    }
}

fn endpoint(file: &raw::File, at: [&str; 2], raw: &raw::Endpoint, notes: &mut Notes) -> Endpoint {
    let path: YamlPath = at.iter().map(|name| key(name)).collect();
    let [_, name] = at;
    if !is_name(name) {
        notes.add(
            &path,
            "endpoint names must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or \
             digit",
        );
    }
    if file.providers.contains_key(name) {
        notes.add(&path, "a provider has this name, so a selector would be ambiguous; rename one");
    }
    if raw.failover.is_empty() {
        notes.add(&below(&path, [key("failover")]), "failover needs at least one {provider, model}");
    }
    let mut failover = Vec::new();
    for (index, raw) in raw.failover.iter().enumerate() {
        let path = below(&path, [key("failover"), YamlStep::Item(index)]);
        let Some(member) = member(file, &path, raw, notes) else { continue };
        let is_same =
            |earlier: &Member| (&earlier.provider, &earlier.model) == (&member.provider, &member.model);
        if failover.iter().any(is_same) {
            notes.add(&path, format!("{}/{} occurs twice", member.provider, member.model));
        } else {
            failover.push(member);
        }
    }
    let preamble = raw.preamble.clone().filter(|text| !text.is_empty());
    if raw.also.len() > NAMES_MAX {
        notes.add(&below(&path, [key("also")]), format!("at most {NAMES_MAX} names are possible"));
    }
    let (order, sticky) = (raw.order.0, raw.sticky);
    let shares = raw.failover.iter().map(|member| (member.weight, member.tier));
    for useless in (WrittenOrder { order, sticky }).useless(shares) {
        let place = match useless.member {
            Some(place) => below(&path, [key("failover"), YamlStep::Item(place), key(useless.name)]),
            None => below(&path, [key(useless.name)]),
        };
        notes.add(&place, useless.reason);
    }
    let (also, cursor_bodies) = (raw.also.clone(), raw.cursor_bodies);
    Endpoint { name: EndpointName::new(name), failover, preamble, also, order, sticky, cursor_bodies }
}

fn member(file: &raw::File, path: &[YamlStep], raw: &raw::Member, notes: &mut Notes) -> Option<Member> {
    if raw.provider.is_none() {
        notes.add(&below(path, [key("provider")]), "provider is missing");
    }
    if raw.model.is_none() {
        notes.add(&below(path, [key("model")]), "model is missing");
    }
    if let Some(provider) = raw.provider.as_deref().filter(|id| !file.providers.contains_key(*id)) {
        let hint = did_you_mean(provider, file.providers.keys().map(String::as_str));
        notes.add(&below(path, [key("provider")]), format!("there is no provider '{provider}'{hint}"));
    }
    if let Some(Err(message)) = raw.model.as_deref().map(model_id) {
        notes.add(&below(path, [key("model")]), message);
    }
    Some(Member {
        provider: ProviderId::new(raw.provider.as_deref()?),
        model: ModelId::new(raw.model.as_deref()?),
        weight: raw.weight,
        tier: raw.tier,
        first_content_timeout: seconds(raw.first_content_timeout),
    })
}

/// The most further names of an endpoint.
const NAMES_MAX: usize = 100;

/// Adds each model that an endpoint names to its provider, even if the provider does not list it (SEL-4).
fn learn_models(providers: &mut [Provider], endpoints: &[Endpoint]) {
    let mut wanted: BTreeMap<&ProviderId, Vec<&ModelId>> = BTreeMap::new();
    for member in endpoints.iter().flat_map(|endpoint| &endpoint.failover) {
        wanted.entry(&member.provider).or_default().push(&member.model);
    }
    for provider in providers {
        let mut known: HashSet<ModelId> = provider.models.iter().map(|model| model.id.clone()).collect();
        for id in wanted.remove(&provider.id).into_iter().flatten() {
            if known.insert(id.clone()) {
                provider.models.push(Arc::new(Model::bare(id.clone())));
            }
        }
        provider.models.sort_by(|a, b| a.id.cmp(&b.id));
    }
}

/// Reads the retry and circuit settings of the file; an override inherits field by field (FAIL-5).
pub(super) fn policies(file: &raw::File, notes: &mut Notes, warnings: &mut Vec<String>) -> Policies {
    let built_in = (RetryPolicy::default(), CircuitPolicy::default());
    let (retry, circuit) = merge(built_in, &file.policies.defaults);
    let mut overrides = HashMap::new();
    for (id, raw) in &file.policies.overrides {
        if !is_name(id) {
            notes.add(&[key("policies"), key("overrides"), key(id)], "is not a provider ID");
        } else if !file.providers.contains_key(id) {
            let hint = did_you_mean(id, file.providers.keys().map(String::as_str));
            warnings.push(format!(
                "policies.overrides.{id}: the file has no provider '{id}'{hint} It applies to a provider \
                 created with the API.",
                hint = if hint.is_empty() { "." } else { &hint }
            ));
        }
        overrides.insert(ProviderId::new(id.as_str()), merge((retry, circuit), raw));
    }
    Policies { retry, circuit, overrides }
}

fn merge((retry, circuit): (RetryPolicy, CircuitPolicy), raw: &raw::Policy) -> (RetryPolicy, CircuitPolicy) {
    let pause = |written: Option<f64>, inherited: Duration| seconds(written).unwrap_or(inherited);
    let attempts = raw.retry_max_attempts.map(|attempts| u32::try_from(attempts.max(1)).unwrap_or(u32::MAX));
    let retry = RetryPolicy {
        attempts_max: attempts.unwrap_or(retry.attempts_max),
        initial_backoff: pause(raw.retry_initial_backoff_seconds, retry.initial_backoff),
        backoff_max: pause(raw.retry_max_backoff_seconds, retry.backoff_max),
        multiplier: raw.retry_backoff_multiplier.unwrap_or(retry.multiplier),
    };
    let circuit = CircuitPolicy {
        failure_threshold: raw.circuit_failure_threshold.unwrap_or(circuit.failure_threshold),
        cooldown: pause(raw.circuit_cooldown_seconds, circuit.cooldown),
        rest_max: pause(raw.rate_limit_rest_max_seconds, circuit.rest_max),
    };
    (retry, circuit)
}

fn below<const N: usize>(path: &[YamlStep], steps: [YamlStep; N]) -> YamlPath {
    path.iter().cloned().chain(steps).collect()
}
