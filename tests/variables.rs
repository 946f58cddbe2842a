//! Every variable of the table has an effect. A new row fails the first test until its proof is added here, and
//! `scripts/prove-variables` checks that each proof fails without its variable.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::raw::Raw;
use crate::support::tls::Authority;
use crate::support::vendor::{Browser, Vendor, form};
use crate::support::{Answer, Client, Upstream, Yaml, chat, wait};

/// A test of this file and name sets the variable.
struct Test(&'static str, &'static str);

const PROOFS: &[(&str, Test)] = &[
    ("LLMGW_API_KEY", Test("process.rs", "startup_names_the_wrong_secret_and_never_shows_it")),
    ("LLMGW_API_KEYS", Test("access.rs", "each_further_static_key_is_an_administrator")),
    (
        "LLMGW_CREDENTIAL_ENCRYPTION_KEY",
        Test("process.rs", "another_encryption_key_is_rejected_and_the_state_is_intact"),
    ),
    (
        "LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY",
        Test("credentials.rs", "a_rekey_replaces_the_key_and_the_old_one_opens_nothing"),
    ),
    ("LLMGW_HOST", Test("access.rs", "the_local_mode_is_refused_on_an_open_address")),
    ("LLMGW_PORT", Test("process.rs", "the_gateway_listens_on_the_host_and_port_of_its_environment")),
    ("LLMGW_STATE_DIR", Test("process.rs", "an_impossible_state_directory_is_rejected")),
    ("LLMGW_CONFIG", Test("variables.rs", "a_seed_becomes_the_configuration")),
    ("LLMGW_CONFIG_SEED", Test("variables.rs", "a_seed_becomes_the_configuration")),
    ("LLMGW_MAX_REQUEST_BODY_BYTES", Test("limits.rs", "the_body_limit_is_exact_to_the_byte")),
    ("LLMGW_MAX_BODY_MEMORY_BYTES", Test("limits.rs", "an_adapted_body_counts_in_memory_in_both_dialects")),
    ("LLMGW_MAX_CONNECTIONS", Test("variables.rs", "one_connection_too_many_is_refused")),
    ("LLMGW_WORKERS", Test("supervision.rs", "the_data_plane_has_as_many_threads_as_workers")),
    ("LLMGW_DRAIN_SECONDS", Test("process.rs", "a_stop_cuts_streams_that_do_not_finish")),
    (
        "LLMGW_DRAIN_DELAY_SECONDS",
        Test("stopping.rs", "after_sigterm_new_and_idle_connections_are_served_for_the_delay"),
    ),
    ("LLMGW_CLIENT_IDLE_SECONDS", Test("stalled.rs", "idle_http2_connections_get_a_goaway")),
    ("LLMGW_CLIENT_STALL_SECONDS", Test("stalled.rs", "an_http2_stream_without_window_is_reset")),
    ("LLMGW_CLIENT_BODY_SECONDS", Test("stalled.rs", "a_request_body_in_single_bytes_is_timed_out")),
    ("LLMGW_STREAM_KEEPALIVE_SECONDS", Test("messages.rs", "a_silent_stream_is_kept_alive_by_pings")),
    ("LLMGW_USAGE_GRACE_MS", Test("usage_grace.rs", "without_a_grace_the_upstream_is_closed_at_once")),
    (
        "LLMGW_ALLOW_UNAUTHENTICATED_API",
        Test("access.rs", "the_local_mode_serves_requests_and_no_admin_routes"),
    ),
    (
        "LLMGW_QUOTA_OUTPUT_TOKENS_DEFAULT",
        Test("variables.rs", "output_without_a_bound_reserves_the_default"),
    ),
    ("LLMGW_BASE_PATH", Test("console.rs", "below_a_base_path_everything_is_served_as_at_the_root")),
    ("LLMGW_METRICS_PUBLIC", Test("variables.rs", "public_metrics_need_no_key")),
    ("LLMGW_TLS_CERT_FILE", Test("tls.rs", "tls_clients_negotiate_either_http_version_and_stream")),
    ("LLMGW_TLS_KEY_FILE", Test("tls.rs", "tls_clients_negotiate_either_http_version_and_stream")),
    ("LLMGW_EXTRA_CA_FILE", Test("http2.rs", "tls_upstreams_need_a_certificate_that_is_trusted")),
    (
        "LLMGW_TRUST_SYSTEM_ROOTS",
        Test("variables.rs", "system_certificate_authorities_are_trusted_if_configured"),
    ),
    ("LLMGW_LOG", Test("logs.rs", "the_filter_determines_which_lines_are_logged")),
    ("LLMGW_LOG_FORMAT", Test("logs.rs", "a_selector_cannot_forge_fields_in_the_json_log")),
    ("LLMGW_LOG_FILE", Test("logs.rs", "log_files_contain_the_lines_of_stderr_to_the_last")),
    ("LLMGW_LOG_REQUESTS", Test("access.rs", "administrators_are_shown_by_the_names_of_their_keys")),
    (
        "LLMGW_LOG_REQUEST_BODIES",
        Test("capture.rs", "a_captured_exchange_shows_both_sides_of_the_gateway_in_each_attempt"),
    ),
    ("LLMGW_END_USER", Test("labels.rs", "the_end_user_setting_controls_the_recorded_value")),
    ("LLMGW_GATEWAY_PREAMBLE", Test("variables.rs", "the_preamble_is_prepended_to_every_conversation")),
    (
        "LLMGW_ANONYMOUS_PROVIDER_AUTOMATION",
        Test("anonymous.rs", "anonymous_providers_are_connected_only_if_that_is_enabled"),
    ),
    ("LLMGW_PARTNER_CLIENT_ID", Test("variables.rs", PARTNER)),
    ("LLMGW_PARTNER_CLIENT_SECRET", Test("variables.rs", PARTNER)),
    ("LLMGW_OAUTH_PUBLIC_BASE_URL", Test("variables.rs", PARTNER)),
    ("LLMGW_SSO_ENABLED", Test("sso.rs", "single_sign_on_without_a_secret_does_not_start")),
    (
        "LLMGW_SSO_SHARED_SECRET",
        Test("sso.rs", "identity_headers_and_the_secret_reach_no_upstream_and_open_no_data_plane"),
    ),
    (
        "LLMGW_SSO_TRUSTED_PROXIES",
        Test("sso.rs", "identity_headers_from_an_address_that_is_not_trusted_admit_nobody"),
    ),
    ("LLMGW_SSO_ADMIN_GROUP", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_SSO_AUTO_PROVISION", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_SSO_PRESET", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_SSO_USER_HEADER", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_SSO_EMAIL_HEADER", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_SSO_NAME_HEADER", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_SSO_GROUPS_HEADER", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_SSO_SIGN_OUT_URL", Test("sso.rs", "the_settings_of_single_sign_on_decide_who_is_admitted")),
    ("LLMGW_PRICES_URL", Test("prices.rs", "a_newer_price_list_is_fetched_at_the_start_and_kept")),
    (
        "LLMGW_RETENTION_USAGE_DAYS",
        Test("retention.rs", "rows_older_than_the_days_of_their_variable_are_deleted"),
    ),
    (
        "LLMGW_RETENTION_AUDIT_DAYS",
        Test("retention.rs", "rows_older_than_the_days_of_their_variable_are_deleted"),
    ),
    (
        "LLMGW_RETENTION_DELIVERED_OUTBOX_DAYS",
        Test(
            "../control/src/db/outbox/tests.rs",
            "retention_deletes_events_of_which_nothing_is_left_to_deliver",
        ),
    ),
    ("LLMGW_USAGE_DB", Test("usage_db.rs", "usage_moves_to_usage_db_and_back_unchanged")),
    (
        "LLMGW_DATABASE_URL",
        Test("nodes/one.rs", "a_state_in_postgresql_survives_a_kill_with_its_limits_records_and_audit"),
    ),
    (
        "LLMGW_NODE_NAME",
        Test("nodes/several.rs", "a_key_serves_and_is_refused_at_every_node_once_its_change_is_published"),
    ),
    (
        "LLMGW_STALE_SECONDS",
        Test("nodes/one.rs", "project_keys_are_refused_when_the_database_was_away_for_too_long"),
    ),
    (
        "LLMGW_MIGRATE",
        Test("nodes/upgrade.rs", "a_node_that_may_not_migrate_waits_for_the_command_that_does"),
    ),
    ("LLMGW_CORE_DUMPS", Test("memory_dumps.rs", "a_process_that_aborts_leaves_no_core_dump")),
    ("LLMGW_BACKUP_SCHEDULE", Test("backup.rs", "scheduled_backups_and_rehearsals_are_in_the_table_of_jobs")),
    ("LLMGW_BACKUP_KEEP", Test("backup.rs", "the_api_creates_lists_and_prunes_backups")),
    ("HTTPS_PROXY", Test("proxies.rs", "upstreams_with_tls_are_reached_by_a_tunnel_of_the_variable")),
    ("HTTP_PROXY", Test("proxies.rs", "upstreams_without_tls_are_reached_by_their_absolute_addresses")),
    ("ALL_PROXY", Test("proxies.rs", "one_variable_names_the_proxy_of_all_upstreams")),
    ("NO_PROXY", Test("proxies.rs", "upstreams_of_the_exceptions_are_reached_directly")),
    ("OTEL_SDK_DISABLED", Test("traces.rs", WRONG_EXPORT)),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", Test("traces.rs", STREAMED_TRACE)),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Test("traces.rs", "a_stop_exports_what_waits")),
    ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", Test("otlp_metrics.rs", OTLP_METRICS)),
    ("OTEL_METRIC_EXPORT_INTERVAL", Test("otlp_metrics.rs", OTLP_METRICS)),
    ("OTEL_TRACES_EXPORTER", Test("otlp_metrics.rs", "a_stop_exports_the_metrics_once_more")),
    ("OTEL_METRICS_EXPORTER", Test("traces.rs", "a_stop_exports_what_waits")),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", Test("traces.rs", WRONG_EXPORT)),
    ("OTEL_EXPORTER_OTLP_HEADERS", Test("traces.rs", "the_headers_of_the_collector_are_shown_nowhere")),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", Test("traces.rs", "an_export_ends_after_its_timeout")),
    ("OTEL_SERVICE_NAME", Test("traces.rs", STREAMED_TRACE)),
    ("OTEL_RESOURCE_ATTRIBUTES", Test("traces.rs", STREAMED_TRACE)),
    ("OTEL_TRACES_SAMPLER", Test("traces.rs", "the_sampler_and_the_client_decide_what_is_traced")),
    ("OTEL_TRACES_SAMPLER_ARG", Test("traces.rs", "the_sampler_and_the_client_decide_what_is_traced")),
    ("OTEL_PROPAGATORS", Test("traces.rs", "a_trace_context_that_is_not_valid_is_not_continued")),
    ("OTEL_BSP_SCHEDULE_DELAY", Test("traces.rs", "few_spans_are_exported_after_the_delay")),
    ("OTEL_BSP_MAX_QUEUE_SIZE", Test("traces.rs", HANGING_COLLECTOR)),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", Test("traces.rs", "a_full_batch_is_exported_at_once")),
];

const PARTNER: &str = "a_sign_in_uses_the_client_and_the_origin_of_the_environment";
const OTLP_METRICS: &str = "metrics_by_otlp_are_those_of_prometheus";
const STREAMED_TRACE: &str = "a_streamed_request_with_failover_is_a_span_with_a_child_for_each_attempt";
const HANGING_COLLECTOR: &str =
    "the_queue_of_a_collector_that_hangs_is_bounded_and_dropped_spans_are_counted";
const WRONG_EXPORT: &str = "wrong_settings_of_the_export_prevent_a_start_only_while_it_is_on";

#[test]
fn every_variable_has_an_effect() {
    let names: BTreeSet<&str> = control::config::VARIABLES.iter().map(|variable| variable.name).collect();
    let proved: BTreeSet<&str> = PROOFS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, proved, "each variable of the table has one proof");
    assert_eq!(PROOFS.len(), proved.len());
    for (name, Test(file, test)) in PROOFS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("fn {test}")), "{name}: {file} has no {test}");
        // The set-up of the modules of a folder is in its `mod.rs`.
        let folder = std::fs::read_to_string(path.with_file_name("mod.rs")).unwrap_or_default();
        let text = text + &folder;
        let sets = file.starts_with("..") || *file == "usage_db.rs" || text.contains(&format!("\"{name}\""));
        assert!(sets, "{name}: {file} does not set it");
        // For scripts/prove-variables, which runs each proof without its variable.
        let module = file.trim_end_matches(".rs").replace('/', "::");
        println!("proof {name} {module}::{test}");
    }
}

/// Each variable of the documentation exists and is read by code; each that exists is documented.
#[test]
fn documentation_table_and_code_name_the_same_variables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/configuration.md")).unwrap();
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let documented: BTreeSet<&str> = page
        .split(|c| !is_name(c))
        .filter(|word| {
            ["LLMGW_", "OTEL_"].iter().any(|start| word.starts_with(start)) || word.ends_with("_PROXY")
        })
        .filter(|word| !word.ends_with('_') && !is_of_secret_file(word))
        .collect();
    let retired = ["LLMGW_EXTENSION_URL", "LLMGW_EXTENSION_SECRET"];
    let names: BTreeSet<&str> =
        control::config::VARIABLES.iter().map(|variable| variable.name).chain(retired).collect();
    assert_eq!(documented, names);
    let mut code = String::new();
    let mut folders = vec![root.join("control/src"), root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_product = !entry.ends_with("tests.rs") && !entry.ends_with("env/table.rs");
            if entry.is_dir() && !entry.ends_with("tests") {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") && is_product {
                code += &std::fs::read_to_string(entry).unwrap();
            }
        }
    }
    let unread: Vec<_> = names.iter().filter(|name| !code.contains(&format!("\"{name}\""))).collect();
    assert!(unread.is_empty(), "no code reads {unread:?}");
}

/// True for the names that name the file with the value of another variable.
fn is_of_secret_file(name: &str) -> bool {
    control::config::variable_of_file(name).is_some()
}

/// M-109, M-110: a warning names the variables without their values, and nothing is sent to the address.
#[tokio::test]
async fn the_retired_variables_of_extensions_have_no_effect_but_a_warning() {
    const RETIRED: &str = "planted-secret-of-a-retired-variable";
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&Yaml::new())
        .env("LLMGW_EXTENSION_URL", format!("http://{}/{RETIRED}", upstream.address()))
        .env("LLMGW_EXTENSION_SECRET", RETIRED)
        .start()
        .await;
    let admin = Admin(gateway.client());
    let state = admin.done("GET", "state", serde_json::Value::Null).await;
    for name in ["LLMGW_EXTENSION_URL", "LLMGW_EXTENSION_SECRET"] {
        let warning = format!("{name} is no longer read");
        assert!(state["warnings"].to_string().contains(&warning), "{state}");
        gateway.logs(&warning).await;
    }
    let extensions = admin.done("GET", "extensions", serde_json::Value::Null).await;
    assert_eq!(extensions["data"], json!([]));
    assert!(!state.to_string().contains(RETIRED) && !gateway.log().contains(RETIRED));
    assert_eq!(upstream.connections(), 0);
}

/// M-104 to M-107.
#[tokio::test]
async fn a_sign_in_uses_the_client_and_the_origin_of_the_environment() {
    const ORIGIN: &str = "https://other.example";
    let vendor = Vendor::start().await;
    let gateway = Setup::new(&Yaml::new())
        .env("LLMGW_PARTNER_CLIENT_ID", "another-client")
        .env("LLMGW_PARTNER_CLIENT_SECRET", "another-secret")
        .env("LLMGW_OAUTH_PUBLIC_BASE_URL", ORIGIN)
        .start()
        .await;
    let admin = Admin(gateway.client());
    let ada = admin.create("principals", json!({"name": "Ada"})).await;
    admin.done("POST", "providers", vendor.provider(&ada)).await;
    let browser = Browser::sign_in_at(&gateway, ORIGIN).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    let query = form(page.split_once('?').unwrap().1);
    let redirect_uri = format!("{ORIGIN}/oauth/callback/partner");
    assert_eq!((&*query["client_id"], &query["redirect_uri"]), ("another-client", &redirect_uri));
    let callback = format!("/oauth/callback/partner?code=any&state={}", query["state"]);
    assert_eq!(browser.callback(&callback, &cookie).await.0, 400, "the vendor knows another client");
    let asked = vendor.server.request(0).await;
    let basic = BASE64_STANDARD.encode("another-client:another-secret");
    assert_eq!(asked.header("authorization"), Some(&*format!("Basic {basic}")));
    assert_eq!(vendor.forms("/token")[0]["redirect_uri"], redirect_uri);
}

#[tokio::test]
async fn a_seed_becomes_the_configuration() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("seeded"));
    let folder = tempfile::tempdir().unwrap();
    let (seed, place) = (folder.path().join("seed.yaml"), folder.path().join("new").join("config.yaml"));
    std::fs::write(&seed, Yaml::one(upstream.base_url()).text()).unwrap();
    let gateway = Setup::new(&Yaml::new())
        .env("LLMGW_CONFIG", place.to_str().unwrap())
        .env("LLMGW_CONFIG_SEED", seed.to_str().unwrap())
        .start()
        .await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    assert_eq!(std::fs::read(seed).unwrap(), std::fs::read(place).unwrap());
}

#[tokio::test]
async fn one_connection_too_many_is_refused() {
    let setup = Setup::new(&Yaml::one("http://127.0.0.1:9/v1")).env("LLMGW_MAX_CONNECTIONS", "1");
    let gateway = setup.start().await;
    let mut first = Raw::open(gateway.address()).await;
    let request = "GET /health HTTP/1.1\r\nhost: gateway.test\r\n\r\n";
    wait::eventually("the one place", async || {
        first.send(request).await;
        let answer = first.reply_within(std::time::Duration::from_millis(300)).await;
        if answer.status == 200 {
            return Some(());
        }
        first = Raw::open(gateway.address()).await;
        None
    })
    .await;
    let reply = Raw::open(gateway.address()).await.reply().await;
    assert!(reply.status == 503 && reply.closed, "{reply:?}");
    drop(first);
    let state = wait::eventually("the place", async || {
        let state = gateway.client().get("/admin/api/state").await.ok()?;
        (state.status == 200).then(|| state.json())
    })
    .await;
    let reached = state["bounds_reached"].as_array().unwrap();
    let found = reached.iter().find(|bound| bound["bound"] == "connections").unwrap();
    assert!(found["reached"].as_u64() > Some(0) && found["max"].is_null(), "{found}");
    let metrics = wait::eventually("the place", async || {
        let page = gateway.client().get("/metrics").await.ok()?;
        (page.status == 200).then_some(page.body)
    })
    .await;
    let metrics = std::str::from_utf8(&metrics).unwrap();
    assert!(!metrics.contains("llmgw_bound_reached_total{bound=\"connections\"} 0\n"), "{metrics}");
    assert!(metrics.contains("llmgw_bound_reached_total{bound=\"exports\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn output_without_a_bound_reserves_the_default() {
    for (default, served) in [("5", true), ("4096", false)] {
        let upstream = Upstream::start().await;
        upstream.always(Answer::hang_forever());
        let setup =
            Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_QUOTA_OUTPUT_TOKENS_DEFAULT", default);
        let gateway = setup.start().await;
        let admin = Admin(gateway.client());
        let project = admin.project("blue").await;
        let key = admin.key(json!({"project": project})).await;
        let quota = json!({"subject": {"kind": "key", "id": key.id}, "metric": "output_tokens", "window": "total",
            "limit": 12});
        admin.create("quotas", quota).await;
        let client = Client::new(gateway.address(), Some(&key.key));
        let body = json!({"model": "up/m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let (waiting, first) = (client.clone(), body.clone());
        let waits = tokio::spawn(async move { waiting.chat(first).await });
        wait::eventually("the first request upstream", async || {
            (upstream.requests().len() == 1).then_some(())
        })
        .await;
        upstream.always(Answer::completion("ok"));
        let answer = client.chat(body).await;
        assert_eq!(answer.status, if served { 200 } else { 429 }, "{default}: {answer:?}");
        waits.abort();
    }
}

#[tokio::test]
async fn public_metrics_need_no_key() {
    for (public, status) in [("true", 200), ("false", 401)] {
        let setup = Setup::new(&Yaml::new()).env("LLMGW_METRICS_PUBLIC", public);
        let gateway = setup.start().await;
        let answer = Client::new(gateway.address(), None).get("/metrics").await.unwrap();
        assert_eq!(answer.status, status, "{public}");
    }
}

#[tokio::test]
async fn system_certificate_authorities_are_trusted_if_configured() {
    let authority = Authority::new(&[b"http/1.1"]);
    let upstream = Upstream::start_tls(authority.acceptor()).await;
    upstream.always(Answer::completion("behind TLS"));
    for (trust, status) in [("true", 200), ("false", 502)] {
        let gateway = Setup::new(&Yaml::one(upstream.base_url()))
            .env("SSL_CERT_FILE", authority.ca_file().to_str().unwrap())
            .env("LLMGW_TRUST_SYSTEM_ROOTS", trust)
            .start()
            .await;
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, status, "{trust}");
    }
}

#[tokio::test]
async fn the_preamble_is_prepended_to_every_conversation() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_GATEWAY_PREAMBLE", "Answer in verse.");
    let gateway = setup.start().await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    let sent = upstream.requests().last().unwrap().json();
    assert_eq!(sent["messages"][0]["content"], "Answer in verse.", "{sent}");
}
