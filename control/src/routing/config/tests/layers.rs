//! Defaults, file, environment: their precedence, and the recorded source of each value.

use std::time::Duration;

use super::*;

fn source(config: &Config, name: &str) -> (String, SettingSource) {
    let setting = config.settings.iter().find(|setting| setting.name == name).expect(name);
    (setting.value.clone(), setting.source)
}

#[test]
fn the_environment_overrides_the_file_and_the_file_the_default() {
    // Variable, key under `server`, value in the file, value in the environment, default.
    let cases = [
        ("LLMGW_HOST", "host", "127.0.0.2", "127.0.0.3", "127.0.0.1"),
        ("LLMGW_PORT", "port", "1", "2", "8787"),
        ("LLMGW_MAX_REQUEST_BODY_BYTES", "max_request_body_bytes", "4096", "8192", "67108864"),
        ("LLMGW_MAX_BODY_MEMORY_BYTES", "max_body_memory_bytes", "1048576", "2097152", "536870912"),
        ("LLMGW_DRAIN_SECONDS", "drain_seconds", "5", "6", "30"),
        ("LLMGW_DRAIN_DELAY_SECONDS", "drain_delay_seconds", "5", "6", "7"),
        ("LLMGW_CLIENT_IDLE_SECONDS", "client_idle_seconds", "5", "6", "100"),
        ("LLMGW_CLIENT_STALL_SECONDS", "client_stall_seconds", "5", "6", "100"),
        ("LLMGW_CLIENT_BODY_SECONDS", "client_body_seconds", "5", "6", "30"),
        ("LLMGW_STREAM_KEEPALIVE_SECONDS", "stream_keepalive_seconds", "7", "8", "0"),
        ("LLMGW_USAGE_GRACE_MS", "usage_grace_ms", "7", "8", "2000"),
        ("LLMGW_BASE_PATH", "base_path", "/llm", "/tools/llm", ""),
        ("LLMGW_METRICS_PUBLIC", "metrics_public", "true", "false", "false"),
        ("LLMGW_TRUST_SYSTEM_ROOTS", "trust_system_roots", "true", "false", "false"),
        ("LLMGW_EXTRA_CA_FILE", "extra_ca_file", "/a.pem", "/b.pem", ""),
        ("LLMGW_LOG", "log", "debug", "warn", "info"),
        ("LLMGW_LOG_FORMAT", "log_format", "json", "text", "text"),
        ("LLMGW_LOG_FILE", "log_file", "true", "false", "false"),
        ("LLMGW_LOG_REQUESTS", "log_requests", "true", "false", "false"),
        ("LLMGW_LOG_REQUEST_BODIES", "log_request_bodies", "true", "false", "false"),
    ];
    for (variable, key, in_file, in_environment, default) in cases {
        let bare = Place::empty().config(&[]);
        assert_eq!(source(&bare, variable), (default.to_owned(), SettingSource::Default), "{variable}");
        let place = Place::with(&format!("server: {{{key}: {in_file}}}\n"));
        assert_eq!(
            source(&place.config(&[]), variable),
            (in_file.to_owned(), SettingSource::File),
            "{variable}"
        );
        let both = place.config(&[(variable, in_environment)]);
        assert_eq!(
            source(&both, variable),
            (in_environment.to_owned(), SettingSource::Environment),
            "{variable}"
        );
    }
    for (variable, key, low) in
        [("LLMGW_WORKERS", "workers", "3"), ("LLMGW_MAX_CONNECTIONS", "max_connections", "9")]
    {
        let place = Place::with(&format!("server: {{{key}: {low}}}\n"));
        assert_eq!(source(&place.config(&[]), variable), (low.to_owned(), SettingSource::File));
        assert_eq!(
            source(&place.config(&[(variable, "5")]), variable),
            ("5".to_owned(), SettingSource::Environment)
        );
    }
}

#[test]
fn parsed_values_prefer_the_environment() {
    let place = Place::with("server: {host: 0.0.0.0, port: 1, drain_seconds: 5, workers: 3}\n");
    let config = place.config(&[("LLMGW_PORT", "9"), ("LLMGW_DRAIN_SECONDS", "0")]);
    assert_eq!(config.server.bind.to_string(), "0.0.0.0:9");
    assert_eq!(config.server.drain, Duration::ZERO);
    assert_eq!(config.server.workers, 3);
    assert_eq!(config.server.stream_keepalive, None);
}

#[test]
fn the_schema_and_the_table_have_the_same_bounds() {
    let schema = schema_json();
    let server = &schema["$defs"]["Server"]["properties"];
    for (key, property) in server.as_object().unwrap() {
        let variable = format!("LLMGW_{}", key.to_ascii_uppercase());
        assert!(VARIABLES.iter().any(|known| known.name == variable), "{variable} exists");
        for bound in ["minimum", "maximum"] {
            let Some(limit) = property[bound].as_u64() else { continue };
            let beyond = if bound == "minimum" { limit.checked_sub(1) } else { Some(limit + 1) };
            let Some(beyond) = beyond else { continue };
            let inside = Place::empty().load(&[(&variable, &limit.to_string())]);
            assert!(inside.is_ok(), "{variable}={limit}: {:?}", inside.err());
            assert!(Place::empty().load(&[(&variable, &beyond.to_string())]).is_err(), "{variable}={beyond}");
        }
    }
}

#[test]
fn the_required_secrets_are_named_with_what_to_do() {
    let place = Place::empty();
    let state = place.folder.path().to_str().unwrap();
    let error = load(&environment(&[("LLMGW_STATE_DIR", state), ("LLMGW_API_KEY", "")])).unwrap_err();
    let faults: Vec<_> = error.faults().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with(
            "LLMGW_API_KEY: is not set. Set it to an administrator key (make one with `openssl rand"
        ) && faults[0].ends_with("or run `llmgw quickstart`, which makes one"),
        "{faults:?}"
    );
    assert!(faults[1].starts_with("LLMGW_CREDENTIAL_ENCRYPTION_KEY: is required"), "{faults:?}");
}

/// M-033 to M-035, M-037: none of the paths is required, and no file has to exist.
#[test]
fn state_and_config_paths_follow_home_and_the_variables() {
    let key = BASE64_STANDARD.encode([1; 32]);
    let secrets = [("LLMGW_API_KEY", "k"), ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", key.as_str())];
    let of = |further: &[(&str, &str)]| load(&environment(&[&secrets, further].concat()));
    let home = of(&[("HOME", "/nowhere")]).unwrap().config;
    assert_eq!(home.state_dir, Path::new("/nowhere/.llmgw"));
    assert_eq!(home.file, Path::new("/nowhere/.llmgw/config.yaml"));
    let state = of(&[("HOME", "/nowhere"), ("LLMGW_STATE_DIR", "/state")]).unwrap().config;
    assert_eq!(state.file, Path::new("/state/config.yaml"));
    let file = of(&[("LLMGW_STATE_DIR", "/state"), ("LLMGW_CONFIG", "/etc/llmgw.yaml")]).unwrap();
    assert_eq!(file.config.file, Path::new("/etc/llmgw.yaml"));
    assert!(file.warnings.iter().any(|warning| warning.contains("/etc/llmgw.yaml, which does not exist")));
    assert!(of(&[]).unwrap_err().to_string().starts_with("LLMGW_STATE_DIR: is not set and neither is HOME"));
    assert!(file.warnings.iter().any(|warning| warning.contains("fewer than 16 characters")));
}

#[test]
fn a_dotenv_file_is_never_read() {
    let place = Place::empty();
    std::fs::write(place.folder.path().join(".env"), "LLMGW_PORT=1\n").unwrap();
    assert_eq!(place.config(&[]).server.bind.to_string(), "127.0.0.1:8787");
}

#[test]
fn a_seed_is_copied_once_and_never_overwrites_a_file() {
    let place = Place::empty();
    let seed = place.folder.path().join("seed.yaml");
    std::fs::write(&seed, "providers: {a: {type: echo}}\n").unwrap();
    let variables = [("LLMGW_CONFIG_SEED", seed.to_str().unwrap())];
    let config = place.config(&variables);
    assert_eq!(config.routing.providers.len(), 1, "the seed counts from the first start on");
    assert!(!place.file().exists(), "loading writes nothing");
    config.seed.expect("to be planted").plant().unwrap();
    assert_eq!(std::fs::read(place.file()).unwrap(), std::fs::read(&seed).unwrap());
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 2, "nothing else is left behind");

    std::fs::write(&seed, "providers: {a: {type: echo}, b: {type: echo}}\n").unwrap();
    let again = place.config(&variables);
    assert_eq!((again.routing.providers.len(), again.seed), (1, None), "later seeds are ignored");

    std::fs::write(place.file(), "providers: {own: {type: echo}}\n").unwrap();
    Seed { from: seed, to: place.file() }.plant().unwrap();
    assert!(std::fs::read_to_string(place.file()).unwrap().contains("own"), "a file that is there stays");
}

#[test]
fn a_seed_that_is_missing_or_bad_ends_the_start() {
    let place = Place::empty();
    let missing = place.faults(&[("LLMGW_CONFIG_SEED", "/no/such/seed.yaml")]);
    assert_eq!(missing, ["LLMGW_CONFIG_SEED: the file /no/such/seed.yaml does not exist"]);
    let seed = place.folder.path().join("seed.yaml");
    std::fs::write(&seed, "provders: {}\n").unwrap();
    let bad = place.faults(&[("LLMGW_CONFIG_SEED", seed.to_str().unwrap())]);
    assert!(bad[0].contains("seed.yaml:1:1: provders: unknown key"), "{bad:?}");
}

#[test]
fn invalid_combinations_of_settings_are_rejected() {
    let place = Place::empty();
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("LLMGW_ALLOW_UNAUTHENTICATED_API", "true"), ("LLMGW_HOST", "0.0.0.0")],
            "LLMGW_ALLOW_UNAUTHENTICATED_API: requires a loopback address",
        ),
        (&[("LLMGW_TLS_CERT_FILE", "/c")], "LLMGW_TLS_KEY_FILE: is required"),
        (&[("LLMGW_TLS_KEY_FILE", "/k")], "LLMGW_TLS_CERT_FILE: is required"),
        (&[("LLMGW_SSO_ENABLED", "true")], "LLMGW_SSO_SHARED_SECRET: is required"),
    ];
    for (variables, want) in cases {
        let faults = place.faults(variables);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with(want), "{faults:?}");
    }
    let local = place.config(&[("LLMGW_ALLOW_UNAUTHENTICATED_API", "true"), ("LLMGW_HOST", "::1")]);
    assert!(local.server.unauthenticated_api);
}

#[test]
fn the_shown_configuration_names_sources_and_hides_secrets() {
    let place = Place::with(
        "server: {port: 7}\nproviders:\n  a: {type: openai, api_key: sekret-a, headers: {x-b: sekret-b}}\n",
    );
    let config = place.config(&[
        ("LLMGW_API_KEYS", "sekret-c-0123456789"),
        ("LLMGW_HOST", "127.0.0.9"),
        ("LLMGW_SSO_SHARED_SECRET", "sekret-d"),
    ]);
    let shown = show(&config);
    for variable in VARIABLES {
        let later = ["LLMGW_CONFIG_SEED", "LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", "LLMGW_SSO_TRUSTED_PROXIES"];
        assert!(
            shown.contains(variable.name) || later.contains(&variable.name),
            "{} is missing",
            variable.name
        );
    }
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect(name).to_owned();
    assert!(line("LLMGW_HOST ").ends_with("127.0.0.9  # environment"), "{}", line("LLMGW_HOST "));
    assert!(line("LLMGW_PORT ").contains("7  # file "));
    assert!(line("LLMGW_BACKUP_KEEP ").ends_with("7  # default"));
    assert!(line("LLMGW_API_KEY ").ends_with("••••  # environment"));
    let all = format!("{shown}{config:?}");
    assert!(!all.contains("sekret") && !all.contains("admin-key-0123456789"), "{all}");
}
