//! `GET /admin/api/config`: the effective configuration, with the source of each value and with secrets masked.
//! Settings and policies are those of start-up; providers and endpoints are the current ones.

use std::collections::BTreeMap;

use http::{Method, Response};
use serde::Serialize;
use serde_json::Value;
use shared::policy::{CircuitPolicy, RetryPolicy};
use shared::port::Body;

use super::{ApiError, Call, Route, json, route_of};
use crate::config::Setting;

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "config", |call| Box::pin(async move { show(&call) }))];

fn show(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let (config, view) = (&call.app.config, call.app.view.read());
    let policies = &config.policies;
    let overrides = policies.overrides.iter();
    json(&ShownConfig {
        file: config.file.display().to_string(),
        settings: config.settings.iter().map(Set::of).collect(),
        policies: ShownPolicies {
            defaults: ShownPolicy::of(policies.retry, policies.circuit),
            overrides: overrides
                .map(|(id, (retry, circuit))| (id.as_str(), ShownPolicy::of(*retry, *circuit)))
                .collect(),
        },
        providers: view.providers.iter().map(|provider| provider.shown()).collect(),
        endpoints: view.endpoints.iter().map(|endpoint| endpoint.shown(&[])).collect(),
    })
}

#[derive(Serialize)]
struct ShownConfig<'a> {
    file: String,
    settings: Vec<Set<'a>>,
    policies: ShownPolicies<'a>,
    providers: Vec<Value>,
    endpoints: Vec<Value>,
}

#[derive(Serialize)]
struct Set<'a> {
    name: &'a str,
    value: Option<&'a str>,
    source: &'static str,
}

impl<'a> Set<'a> {
    fn of(setting: &'a Setting) -> Self {
        let value = Some(setting.value.as_str()).filter(|value| !value.is_empty());
        Self { name: &setting.name, value, source: setting.source.name() }
    }
}

#[derive(Serialize)]
struct ShownPolicies<'a> {
    defaults: ShownPolicy,
    overrides: BTreeMap<&'a str, ShownPolicy>,
}

/// A policy, with the field names of the configuration file.
#[derive(Serialize)]
struct ShownPolicy {
    retry_max_attempts: u32,
    retry_initial_backoff_seconds: f64,
    retry_max_backoff_seconds: f64,
    retry_backoff_multiplier: f64,
    circuit_failure_threshold: u32,
    circuit_cooldown_seconds: f64,
}

impl ShownPolicy {
    fn of(retry: RetryPolicy, circuit: CircuitPolicy) -> Self {
        Self {
            retry_max_attempts: retry.attempts_max,
            retry_initial_backoff_seconds: retry.initial_backoff.as_secs_f64(),
            retry_max_backoff_seconds: retry.backoff_max.as_secs_f64(),
            retry_backoff_multiplier: retry.multiplier,
            circuit_failure_threshold: circuit.failure_threshold,
            circuit_cooldown_seconds: circuit.cooldown.as_secs_f64(),
        }
    }
}
