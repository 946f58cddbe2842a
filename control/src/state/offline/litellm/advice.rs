//! Advice for LiteLLM's keys that the import does not map.

use crate::routing::config::yaml::{YamlPath, YamlStep};

/// Returns the message for the unmapped node at `path`.
pub(super) fn advice(path: &YamlPath) -> String {
    let keys = path.iter().filter_map(|step| match step {
        YamlStep::Key(key) => Some(key.as_str()),
        YamlStep::Item(_) => None,
    });
    let keys: Vec<&str> = keys.collect();
    let (first, last) = (keys.first().copied().unwrap_or_default(), keys.last().copied().unwrap_or_default());
    let places = [format!("{first}.{last}"), format!("{first}.*"), last.to_owned()];
    let known = places.iter().find_map(|place| ADVICE.iter().find(|(key, _)| key == place));
    let text = known.map_or("llmgw has no counterpart", |(_, text)| text);
    format!("not imported: {text}")
}

/// The advice by `section.key`, `section.*` or `key`, the first that fits.
const ADVICE: &[(&str, &str)] = &[
    // Top level.
    ("environment_variables.*", "set the variable in the environment of the gateway"),
    ("include", "the import reads one file; import the others by themselves, and join the results"),
    ("guardrails", "llmgw has no guardrails; run them in the application"),
    ("policies", "llmgw has no guardrails; run them in the application"),
    ("policy_attachments", "llmgw has no guardrails; run them in the application"),
    ("mcp_servers", "llmgw runs no tools; configure MCP servers at the agents"),
    ("mcp_tools", "llmgw runs no tools; configure MCP servers at the agents"),
    ("search_tools", "llmgw runs no tools; use the vendor's own search tool"),
    ("sandbox_tools", "llmgw runs no tools; use the vendor's own tool"),
    ("vector_store_registry", "llmgw serves no vector stores"),
    ("files_settings", "llmgw serves no files; use the vendor itself"),
    ("finetune_settings", "llmgw serves no fine-tuning; use the vendor itself"),
    ("credential_list", "the credential is used by no deployment"),
    ("model_list.model_info", "llmgw has no counterpart"),
    // A deployment.
    ("rpm", "see the quotas of the provider"),
    ("tags", "llmgw does not route by tags; restrict a key to endpoints instead (docs/keys-and-quotas.md)"),
    ("max_budget", "create a quota on the provider with the metric cost_micro_usd"),
    ("budget_duration", "it is the window of a quota on the provider"),
    ("max_retries", "set retry_max_attempts of the provider in policies.overrides"),
    ("num_retries", "set policies.defaults.retry_max_attempts, which counts the first attempt too"),
    ("stream_timeout", "set stream_idle_timeout of the provider, the longest silence of a stream"),
    ("temperature", "clients must send it"),
    ("top_p", "clients must send it"),
    ("top_k", "clients must send it"),
    ("max_tokens", "clients must send it"),
    ("max_completion_tokens", "clients must send it"),
    ("stop", "clients must send it"),
    ("seed", "clients must send it"),
    ("reasoning_effort", "clients must send it"),
    ("thinking", "clients must send it"),
    ("extra_body", "clients must send these members"),
    ("drop_params", "what a target does not accept is adapted as docs/adaptations.md states"),
    ("additional_drop_params", "what a target does not accept is adapted as docs/adaptations.md states"),
    ("modify_params", "what a target does not accept is adapted as docs/adaptations.md states"),
    ("id", "a target is identified by PROVIDER/MODEL"),
    (
        "mode",
        "the path of a request determines its operation; /v1/batches, /v1/rerank and /v1/completions are not served",
    ),
    ("base_model", "set prices in the description of the model if its name has none (docs/prices.md)"),
    ("access_groups", "restrict keys by their allowlists (docs/keys-and-quotas.md)"),
    ("region_name", "choose an upstream of that region; llmgw does not filter by region"),
    ("mock_response", "a provider of type echo answers without an upstream"),
    ("s3_bucket_name", "llmgw serves no batches; use the vendor itself"),
    ("s3_region_name", "llmgw serves no batches; use the vendor itself"),
    ("s3_access_key_id", "llmgw serves no batches; use the vendor itself"),
    ("s3_secret_access_key", "llmgw serves no batches; use the vendor itself"),
    ("aws_batch_role_arn", "llmgw serves no batches; use the vendor itself"),
    ("aws_role_name", "llmgw assumes no role; give the provider a key of its own"),
    ("aws_session_name", "llmgw assumes no role; give the provider a key of its own"),
    ("aws_web_identity_token", "llmgw assumes no role; give the provider a key of its own"),
    ("aws_profile_name", "llmgw reads no profiles; give the provider a key of its own"),
    ("tenant_id", "write the application of Entra ID as api_key (docs/providers.md)"),
    ("client_id", "write the application of Entra ID as api_key (docs/providers.md)"),
    ("client_secret", "write the application of Entra ID as api_key (docs/providers.md)"),
    ("azure_ad_token", "write it as api_key"),
    // Routing.
    (
        "routing_strategy",
        "not imported: set order at the endpoints (docs/routing-and-failover.md#load-balancing)",
    ),
    ("routing_strategy_args", "not imported: set order at the endpoints"),
    (
        "enable_pre_call_checks",
        "llmgw does not estimate before it sends; an endpoint of large models is chosen by the client",
    ),
    ("enable_tag_filtering", "llmgw does not route by tags; restrict a key to endpoints instead"),
    (
        "context_window_fallbacks",
        "a request that is too long is the client's error and does not fail over; ask for a larger model",
    ),
    ("content_policy_fallbacks", "a refusal by policy is an answer and does not fail over"),
    ("max_fallbacks", "the failover budget bounds a request (docs/routing-and-failover.md)"),
    ("allowed_fails", "set policies.defaults.circuit_failure_threshold, which counts consecutive failures"),
    (
        "allowed_fails_policy",
        "set policies.defaults.circuit_failure_threshold, which counts consecutive failures",
    ),
    ("cooldown_time", "set policies.defaults.circuit_cooldown_seconds"),
    ("disable_cooldowns", "set policies.defaults.circuit_failure_threshold: 0"),
    ("retry_policy", "set policies.defaults (docs/routing-and-failover.md)"),
    ("model_group_retry_policy", "set policies.overrides (docs/routing-and-failover.md)"),
    ("retry_after", "set policies.defaults.retry_initial_backoff_seconds"),
    ("request_timeout", "set timeout of the providers"),
    ("router_settings.timeout", "set timeout of the providers"),
    ("provider_budget_config", "create a quota on each provider with the metric cost_micro_usd"),
    ("redis_host", "llmgw needs no Redis; its state is a directory"),
    ("redis_port", "llmgw needs no Redis; its state is a directory"),
    ("redis_password", "llmgw needs no Redis; its state is a directory"),
    ("redis_url", "llmgw needs no Redis; its state is a directory"),
    ("coordination_redis", "llmgw needs no Redis; its state is a directory"),
    ("use_redis_transaction_buffer", "llmgw needs no Redis; its state is a directory"),
    ("cache", "llmgw caches no answers; the vendors' prompt caches work"),
    ("cache_params", "llmgw caches no answers; the vendors' prompt caches work"),
    // The gateway.
    ("master_key", "set LLMGW_API_KEY, the administrator key"),
    ("database_url", "llmgw needs no database; its state is the directory LLMGW_STATE_DIR"),
    ("database_connection_pool_limit", "llmgw needs no database; its state is the directory LLMGW_STATE_DIR"),
    ("disable_prisma_schema_update", "llmgw needs no database; its state is the directory LLMGW_STATE_DIR"),
    ("store_model_in_db", "llmgw always has both; the file takes precedence for a name (docs/migration.md)"),
    ("custom_auth", "keys of projects, or single sign-on through a proxy (docs/sso.md)"),
    ("enable_jwt_auth", "single sign-on through a proxy (docs/sso.md)"),
    ("pass_through_endpoints", "llmgw serves no paths of vendors without accounting; call the vendor itself"),
    ("max_parallel_requests", "create a quota with the metric concurrent_requests"),
    ("global_max_parallel_requests", "create a quota on the gateway with the metric concurrent_requests"),
    ("max_request_size_mb", "set server.max_request_body_bytes"),
    ("background_health_checks", "llmgw sends no test requests by itself; circuits follow the traffic"),
    ("health_check_interval", "llmgw sends no test requests by itself; circuits follow the traffic"),
    ("alerting", "create alert rules and webhooks (docs/alerts.md)"),
    ("alert_types", "create alert rules and webhooks (docs/alerts.md)"),
    ("alerting_threshold", "create alert rules and webhooks (docs/alerts.md)"),
    ("callbacks", "records, metrics and OTLP are built in (docs/telemetry.md); llmgw loads no callbacks"),
    (
        "success_callback",
        "records, metrics and OTLP are built in (docs/telemetry.md); llmgw loads no callbacks",
    ),
    (
        "failure_callback",
        "records, metrics and OTLP are built in (docs/telemetry.md); llmgw loads no callbacks",
    ),
    ("otel", "set OTEL_EXPORTER_OTLP_ENDPOINT (docs/telemetry.md)"),
    ("set_verbose", "set server.log, such as debug"),
    ("json_logs", "set server.log_format: json"),
    ("turn_off_message_logging", "llmgw stores no prompts unless their capture is on"),
    ("store_prompts_in_spend_logs", "llmgw stores no prompts unless their capture is on (docs/telemetry.md)"),
    ("require_auth_for_metrics_endpoint", "set server.metrics_public: true to serve /metrics without a key"),
    (
        "include_cost_in_streaming_usage",
        "costs are in the records, not in the answers (docs/usage-and-costs.md)",
    ),
    ("default_team_settings", "teams are projects (docs/keys-and-quotas.md); llmgw loads no callbacks"),
    ("max_user_budget", "create quotas on principals with the metric cost_micro_usd"),
    ("default_internal_user_params", "create quotas on principals (docs/keys-and-quotas.md)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_row_applies() {
        let path = |keys: &[&str]| super::super::source::below(&[], keys);
        for (keys, want) in [
            (&["environment_variables", "REDIS_HOST"][..], "set the variable in the environment"),
            (&["router_settings", "timeout"], "set timeout of the providers"),
            (&["general_settings", "master_key"], "LLMGW_API_KEY"),
            (&["general_settings", "unheard_of"], "no counterpart"),
        ] {
            assert!(advice(&path(keys)).contains(want), "{keys:?}");
        }
    }
}
