//! `GET /admin/api/config`: the effective configuration, with the source of each value and with secrets masked.
//! Settings and policies are those of start-up; providers and endpoints are the current ones.

use std::collections::BTreeMap;

use http::{Method, Response};
use serde::Serialize;
use shared::policy::{CircuitPolicy, RetryPolicy};
use shared::port::Body;

use super::{ApiError, Call, Route, json, route_of};
use crate::routing::config::Setting;
use crate::routing::connection::{ShownEndpoint, ShownProvider};

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "config", |call| Box::pin(async move { show(&call) }))
        .answers::<ShownConfig<'_>>("Shows the effective configuration.")];

fn show(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let (config, view) = (&call.app.config, call.app.view.read());
    let policies = &config.policies;
    let overrides = policies.overrides.iter();
    json(&ShownConfig {
        file: config.file.display().to_string(),
        settings: config.settings.iter().map(ShownSetting::of).collect(),
        policies: ShownPolicies {
            defaults: ShownPolicy::of(policies.retry, policies.circuit),
            overrides: overrides
                .map(|(id, (retry, circuit))| (id.as_str(), ShownPolicy::of(*retry, *circuit)))
                .collect(),
        },
        providers: view.providers.iter().map(|provider| provider.shown()).collect(),
        endpoints: view.endpoints.iter().map(|endpoint| endpoint.shown(Vec::new())).collect(),
    })
}

/// The effective configuration.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Config"))]
struct ShownConfig<'a> {
    /// The path of the configuration file.
    file: String,
    settings: Vec<ShownSetting<'a>>,
    /// The retry and circuit settings; they apply from the start of the gateway.
    policies: ShownPolicies<'a>,
    /// The providers of the file and of the API, as `GET providers` shows them, but without evidence.
    providers: Vec<ShownProvider>,
    /// The endpoints of the file and of the API, as `GET endpoints` shows them, but without targets that are passed over.
    endpoints: Vec<ShownEndpoint>,
}

/// One setting of the process.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Setting"))]
struct ShownSetting<'a> {
    /// The name of its environment variable, or its path in the file if there is no variable.
    name: &'a str,
    /// Its path in the configuration file, such as `server.port`; null if only the variable can set it.
    path: Option<String>,
    /// The effective value; dots if it is secret, null if nothing sets it and it has no default.
    value: Option<&'a str>,
    /// The value that applies if nothing sets one; null if the setting has no default, and for secrets.
    default: Option<&'a str>,
    /// The layer that sets the value: `default`, `file` or `environment`.
    #[cfg_attr(test, schemars(extend("enum" = ["default", "file", "environment"])))]
    source: &'static str,
    /// The line of the configuration file that sets the value, counted from 1. Null if the file does not set it, or is
    /// larger than 1 MiB.
    line: Option<u64>,
    /// The moment at which a change applies: always `start`, the next start of the gateway. Providers and endpoints, which
    /// are no settings, change while it runs.
    #[cfg_attr(test, schemars(extend("enum" = ["start"])))]
    applies: &'static str,
    /// True if the value is not shown.
    secret: bool,
    /// A description in one line.
    doc: &'static str,
}

impl<'a> ShownSetting<'a> {
    fn of(setting: &'a Setting) -> Self {
        let unless_empty = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        Self {
            name: &setting.name,
            path: setting.path(),
            value: unless_empty(&setting.value),
            default: unless_empty(&setting.default),
            source: setting.source.name(),
            line: setting.line,
            applies: "start",
            secret: setting.is_secret(),
            doc: setting.doc(),
        }
    }
}

/// The retry and circuit settings.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Policies"))]
struct ShownPolicies<'a> {
    defaults: ShownPolicy,
    /// Those of single providers, by provider ID.
    overrides: BTreeMap<&'a str, ShownPolicy>,
}

/// A policy, with the field names of the configuration file.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Policy"))]
struct ShownPolicy {
    /// Attempts at one target.
    retry_max_attempts: u32,
    /// The pause before the first retry, in seconds.
    retry_initial_backoff_seconds: f64,
    /// The longest pause between attempts, in seconds.
    retry_max_backoff_seconds: f64,
    /// The factor by which the pause grows from retry to retry.
    retry_backoff_multiplier: f64,
    /// Consecutive failures that open the circuit; 0 disables it.
    circuit_failure_threshold: u32,
    /// The time for which a circuit stays open, in seconds.
    circuit_cooldown_seconds: f64,
    /// The longest time for which a model receives no requests after a rate limit of its upstream, in seconds; 0 disables it.
    rate_limit_rest_max_seconds: f64,
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
            rate_limit_rest_max_seconds: circuit.rest_max.as_secs_f64(),
        }
    }
}
