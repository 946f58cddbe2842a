//! Every kind of variable with valid and invalid values, unknown names, and secrets that must not be shown.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;

use super::*;
use crate::routing::config::ConfigError;

fn read(pairs: &[(&str, &str)]) -> Environment {
    Environment::read(pairs.iter().map(|(name, value)| (name.into(), value.into())))
}

#[test]
fn wrong_values_are_refused_with_the_name_and_without_the_value() {
    let short = BASE64.encode([7; 31]);
    let long = BASE64.encode([7; 33]);
    let cases = [
        ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", short.as_str(), "exactly 32 bytes and has 31; make one with"),
        ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", long.as_str(), "exactly 32 bytes and has 33"),
        ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "not-base64-at-all!", "is not valid base64"),
        ("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", "c2hvcnQ=", "has 5"),
        ("LLMGW_API_KEY", "  \t ", "white space"),
        ("LLMGW_API_KEY", "with blank", "visible ASCII"),
        ("LLMGW_API_KEYS", "good,\u{e4}\u{f6}", "visible ASCII"),
        ("LLMGW_PORT", "65536", "from 0 to 65535"),
        ("LLMGW_PORT", "+80", "whole number"),
        ("LLMGW_PORT", "8787 ", "whole number"),
        ("LLMGW_HOST", "example.com", "IP address"),
        ("LLMGW_HOST", "127.0.0.1:80", "LLMGW_PORT"),
        ("LLMGW_LOG_REQUESTS", "yes", "true or false"),
        ("LLMGW_LOG_FORMAT", "xml", "text, json"),
        ("LLMGW_MAX_REQUEST_BODY_BYTES", "64MiB", "whole number"),
        ("LLMGW_BASE_PATH", "llm", "such as /llm"),
        ("LLMGW_BASE_PATH", "/v1/llm", "a path of the gateway itself"),
        ("LLMGW_OAUTH_PUBLIC_BASE_URL", "https://a.example/path", "origin"),
        ("LLMGW_OAUTH_PUBLIC_BASE_URL", "https://user@a.example", "origin"),
        ("LLMGW_PRICES_URL", "http://a.example/prices.json", "https"),
        ("LLMGW_PRICES_URL", "https://user:word@a.example/prices.json", "https"),
        ("LLMGW_PRICES_URL", "ftp://127.0.0.1/prices.json", "https"),
        ("LLMGW_PRICES_URL", "/a/path", "https"),
        ("LLMGW_SSO_TRUSTED_PROXIES", "10.0.0.0/33", "CIDR"),
        ("LLMGW_SSO_USER_HEADER", "x user", "header name"),
        ("LLMGW_RETENTION_USAGE_DAYS", "0", "from 1"),
        ("LLMGW_BACKUP_KEEP", "-1", "whole number"),
    ];
    for (name, value, want) in cases {
        let environment = read(&[(name, value)]);
        assert_eq!(environment.faults().len(), 1, "{name}");
        let error = environment.faults()[0].to_string();
        assert!(error.starts_with(&format!("{name}: ")), "{error}");
        assert!(error.contains(want), "{name}: {error}");
        assert!(value.trim().len() < 4 || !error.contains(value.trim()), "{name} is quoted: {error}");
    }
}

#[test]
fn every_faulty_variable_is_named_at_once() {
    let environment = read(&[("LLMGW_PORT", "x"), ("LLMGW_HOST", "y"), ("LLMGW_LOG_FORMAT", "z")]);
    let error = ConfigError::check(environment.faults().to_vec()).unwrap_err();
    assert_eq!(error.faults().count(), 3);
    assert!(error.to_string().ends_with("(and 2 more faults: `llmgw config check` lists all)"), "{error}");
}

#[test]
fn right_values_are_taken_and_empty_is_unset() {
    let key = BASE64.encode([9; 32]);
    let environment = read(&[
        ("LLMGW_API_KEYS", " one ,, two,"),
        ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", &key),
        ("LLMGW_HOST", "[::1]"),
        ("LLMGW_PORT", "0"),
        ("LLMGW_LOG_REQUESTS", ""),
        ("LLMGW_METRICS_PUBLIC", "1"),
        ("LLMGW_OAUTH_PUBLIC_BASE_URL", "https://a.example/"),
        ("LLMGW_SSO_TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
    ]);
    assert_eq!(environment.key("LLMGW_CREDENTIAL_ENCRYPTION_KEY").unwrap().expose(), &[9; 32]);
    assert_eq!(environment.flag("LLMGW_LOG_REQUESTS"), None);
    assert_eq!(environment.flag("LLMGW_METRICS_PUBLIC"), Some(true));
    assert_eq!(environment.count("LLMGW_PORT"), Some(0));
    assert_eq!(environment.text("LLMGW_OAUTH_PUBLIC_BASE_URL").as_deref(), Some("https://a.example"));
    let Some(VariableValue::Secrets(keys)) = environment.value("LLMGW_API_KEYS") else { panic!("two keys") };
    assert_eq!(keys.iter().map(|key| key.expose().as_str()).collect::<Vec<_>>(), ["one", "two"]);
    let Some(VariableValue::Blocks(blocks)) = environment.value("LLMGW_SSO_TRUSTED_PROXIES") else {
        panic!("blocks")
    };
    assert_eq!(blocks.iter().map(|(_, bits)| *bits).collect::<Vec<_>>(), [8, 128]);
}

#[test]
fn unknown_and_retired_variables_are_warned_of_without_values() {
    let environment = read(&[
        ("LLMGW_API_KEYZ", "sekret-1"),
        ("LLMGW_COMPLETELY_ELSEWHERE", "sekret-2"),
        ("LLMGW_EXTENSION_URL", "http://sekret-3"),
        ("LLMGW_EXTENSION_SECRET", "sekret-4"),
        ("PATH", "/bin"),
    ]);
    let warnings = environment.warnings().join("\n");
    assert_eq!(environment.warnings().len(), 4, "{warnings}");
    assert!(warnings.contains("LLMGW_API_KEYZ is not a variable of llmgw and has no effect; did you mean"));
    assert!(warnings.contains("LLMGW_COMPLETELY_ELSEWHERE is not a variable of llmgw and has no effect\n"));
    assert!(warnings.contains("LLMGW_EXTENSION_URL is no longer read"));
    assert!(warnings.contains("LLMGW_EXTENSION_SECRET is no longer read"));
    assert!(!warnings.contains("sekret") && !format!("{environment:?}").contains("sekret"));
}

/// The lower-case name takes precedence, as with curl; the other programs of the machine use these names too.
#[test]
fn variables_of_proxies_have_two_names() {
    let environment = read(&[
        ("HTTPS_PROXY", "http://user:sekret-1@upper:1"),
        ("https_proxy", "http://user:sekret-2@lower:2"),
        ("HTTP_PROXY", "plain:3"),
        ("no_proxy", "a.example"),
        ("NO_PROXY_FILE", "/no/such/file"),
    ]);
    let shown = |name| environment.proxy(name).map(|proxy| proxy.to_string());
    assert_eq!(shown("HTTPS_PROXY").as_deref(), Some("http://••••@lower:2"));
    assert_eq!(shown("HTTP_PROXY").as_deref(), Some("http://plain:3"));
    assert_eq!((shown("ALL_PROXY"), environment.text("NO_PROXY").as_deref()), (None, Some("a.example")));
    let warning = "NO_PROXY_FILE is not a variable of llmgw and has no effect";
    assert!(environment.warnings()[0].starts_with(warning), "{:?}", environment.warnings());
    let faulty = read(&[("all_proxy", "socks5://user:sekret-3@h:1")]);
    let faults = format!("{:?}", faulty.faults());
    assert!(faults.contains("ALL_PROXY") && !faults.contains("sekret"), "{faults}");
}

#[test]
fn the_table_names_each_variable_once() {
    let mut names: Vec<_> = VARIABLES.iter().map(|variable| variable.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), VARIABLES.len());
    let is_known =
        |name: &str| name.starts_with(PREFIX) || name.starts_with("OTEL_") || PROXIES.contains(&name);
    assert!(VARIABLES.iter().all(|v| is_known(v.name) && !v.doc.is_empty() && !v.holds().is_empty()));
}
