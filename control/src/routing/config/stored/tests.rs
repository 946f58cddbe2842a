//! Instances of the database are read by the rules of the file, and shown in the form in which they can be written.

use serde_json::json;

use super::shown::shown_provider;
use super::*;

fn written(value: Value) -> WrittenProvider {
    serde_json::from_value(value).map(WrittenProvider).unwrap()
}

fn faults(value: Value, auth: Option<ConnectionAuth>) -> Vec<String> {
    let environment = Environment::read([
        ("GOOD".into(), "sk-from-the-environment".into()),
        ("PAIR".into(), "AKIDEXAMPLE".into()),
    ]);
    match provider_of("p", &written(value), auth, &environment) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect(),
    }
}

#[test]
fn stored_providers_are_checked_like_the_file_with_faults_by_field() {
    let cases = [
        (json!({"type": "echo"}), vec![]),
        (json!({"registry_id": "groq", "api_key": "${ENV:GOOD}", "models": ["a"]}), vec![]),
        (
            json!({}),
            vec!["type: type is missing: set one of compatible, local_server, openai, azure_openai,"],
        ),
        (json!({"type": "ecco"}), vec!["type: 'ecco' is not a type of provider; did you mean echo?"]),
        (json!({"type": "extension"}), vec!["extension: type extension needs the name of an extension"]),
        (
            json!({"registry_id": "grok"}),
            vec!["registry_id: 'grok' is not in the registry; did you mean groq?"],
        ),
        (
            json!({"registry_id": "groq"}),
            vec!["api_key: api_key is missing; write it as ${ENV:GROQ_API_KEY}"],
        ),
        (
            json!({"type": "compatible", "base_ulr": "x", "timeout": "5"}),
            vec![
                "base_ulr: unknown key; did you mean base_url?",
                "timeout: expected a number, found text",
                "base_url: type compatible needs base_url",
            ],
        ),
        (
            json!({"type": "compatible", "base_url": "http://169.254.169.254/v1"}),
            vec!["base_url: link-local, multicast and metadata addresses are not allowed"],
        ),
        (
            json!({"type": "openai", "api_key": "a b", "models": [{"id": "m", "prices": {"input": -1}}]}),
            vec!["models[0].prices.input: must be at least 0", "api_key: contains characters"],
        ),
        (
            json!({"type": "openai", "api_key": "${ENV:LLMGW_API_KEY}"}),
            vec!["api_key: LLMGW_API_KEY is a setting of the gateway itself"],
        ),
        (
            json!({"type": "openai", "api_key": "${ENV:ABSENT}"}),
            vec!["api_key: the environment variable ABSENT"],
        ),
        (
            json!({"type": "openai", "api_key": "k", "headers": {"X-A": "••••", "host": "x"}}),
            vec!["headers.X-A: is the placeholder of a secret", "headers.host: is set by llmgw itself"],
        ),
    ];
    expect_faults(cases);
}

#[test]
fn each_provider_kind_has_its_own_validation_rules() {
    let cases = [
        (
            json!({"type": "bedrock", "api_key": "ABSK1"}),
            vec!["region: region is missing: type bedrock requires it"],
        ),
        (
            json!({"type": "bedrock", "api_key": "AKID:", "region": "eu west"}),
            vec!["region: must be 1 to 100 letters", "api_key: must be AWS keys"],
        ),
        (
            json!({"type": "bedrock", "api_key": "${ENV:GOOD}:${ENV:GOOD}", "region": "r"}),
            vec!["api_key: must be AWS keys"],
        ),
        (json!({"type": "bedrock", "api_key": "${ENV:PAIR}:${ENV:GOOD}", "region": "r"}), vec![]),
        (
            json!({"type": "bedrock", "api_key": "${ENV:PAIR}x${ENV:GOOD}", "region": "r"}),
            vec!["api_key: a reference must be the whole value"],
        ),
        (json!({"type": "vertex"}), vec!["project: project is missing: type vertex requires it"]),
        (
            json!({"type": "vertex", "project": "p", "location": "eu/.."}),
            vec!["location: must be 1 to 100 letters"],
        ),
        (
            json!({"type": "vertex", "project": "p", "api_key": "{}"}),
            vec!["api_key: must be an access token"],
        ),
        (json!({"type": "vertex", "project": "p"}), vec![]),
        (
            json!({"type": "vertex", "project": "p", "base_url": "https://proxy.example.com"}),
            vec!["base_url: without api_key the machine's own account signs in"],
        ),
        (
            json!({"type": "vertex", "project": "p", "base_url": "https://p.example", "api_key": "ya29.x"}),
            vec![],
        ),
        (
            json!({"type": "anthropic", "api_key": "k", "protocols": ["messages", "responses"]}),
            vec!["protocols[1]: type anthropic has no address for responses; it has one for messages, chat"],
        ),
        (
            json!({"type": "anthropic", "api_key": "k", "models": ["a", {"id": "b", "protocols": ["messages", "responses"]}]}),
            vec!["models[1].protocols[1]: the provider does not support responses; it supports messages"],
        ),
        (
            json!({"type": "anthropic", "api_key": "k", "headers": {"X-Api-Key": "k"}}),
            vec!["api_key: api_key and the header x-api-key cannot be combined"],
        ),
        (json!({"type": "azure_openai", "api_key": "k"}), vec!["base_url: type azure_openai needs base_url"]),
        (
            json!({"type": "builtin_speech", "default_voice": "af_heart", "protocols": ["chat"]}),
            vec!["protocols[0]: type builtin_speech has no address for chat"],
        ),
    ];
    expect_faults(cases);
}

fn expect_faults<const N: usize>(cases: [(Value, Vec<&str>); N]) {
    for (value, want) in cases {
        let found = faults(value.clone(), None);
        assert_eq!(found.len(), want.len(), "{value}: {found:?}");
        for (found, want) in found.iter().zip(want) {
            assert!(found.starts_with(want), "{value}: {found}");
        }
    }
}

#[test]
fn a_credential_must_match_the_auth_setting() {
    use ConnectionAuth::{ApiKey, Local, Oauth};
    let url = "http://127.0.0.1:1/v1";
    let keyed = json!({"type": "compatible", "base_url": url, "api_key": "k"});
    let bare = json!({"type": "compatible", "base_url": url});
    let local = json!({"type": "local_server", "base_url": url});
    for (value, auth, want) in [
        (&keyed, None, ""),
        (&keyed, Some(ApiKey), ""),
        (&keyed, Some(Oauth), "api_key: auth oauth cannot be combined with api_key"),
        (&keyed, Some(Local), "api_key: auth local cannot be combined with api_key"),
        (&bare, Some(Oauth), ""),
        (&local, None, ""),
        (&local, Some(ApiKey), "auth: type local_server sends no credential, so auth must be local"),
    ] {
        let found = faults(value.clone(), auth);
        assert_eq!(found.is_empty(), want.is_empty(), "{value} {auth:?}: {found:?}");
        assert!(found.iter().all(|found| found.starts_with(want)), "{value} {auth:?}: {found:?}");
    }
    let mut useless = local.clone();
    useless["api_key"] = json!("k");
    assert_eq!(faults(useless, None), ["api_key: type local_server sends no credential; omit it"]);
}

#[test]
fn a_patch_replaces_named_members_and_null_removes_them() {
    let mut before =
        written(json!({"type": "echo", "region": "a", "headers": {"A": "1", "B": "2"}, "models": ["a"]}));
    before.merge(written(json!({"region": null, "headers": {"A": null, "C": "3"}, "models": ["b"]})));
    assert_eq!(
        Value::Object(before.0),
        json!({"type": "echo", "headers": {"B": "2", "C": "3"}, "models": ["b"]})
    );
}

#[test]
fn a_patch_keeps_the_headers_of_models_that_it_repeats_as_they_are_shown() {
    let mut before = written(json!({"models": [{"id": "a", "headers": {"X-A": "1", "X-B": "2"}}, "b"]}));
    let patch = json!({"models": [{"id": "a", "vision": true, "headers": {"x-a": DOTS}}, {"id": "b", "headers": {"x": DOTS}}]});
    before.merge(written(patch));
    let want = json!({"models": [{"id": "a", "vision": true, "headers": {"x-a": "1"}}, {"id": "b", "headers": {"x": DOTS}}]});
    assert_eq!(Value::Object(before.0), want, "the mask of an unknown header stays, and is a fault");
}

#[test]
fn a_shown_provider_can_be_written_back_unchanged() {
    let value = json!({
        "registry_id": "groq", "api_key": "sk-secret", "timeout": 1.5, "headers": {"X-A": "secret"},
        "models": [{"id": "b", "vision": true, "prices": {"input": 0.25, "output": 1.0}}, "a"],
    });
    let environment = Environment::read([]);
    let read = |value: Value| provider_of("p", &written(value), None, &environment).unwrap();
    let shown = Value::Object(shown_provider(&read(value)));
    assert!(!shown.to_string().contains("secret"), "{shown}");
    let mut again = shown.clone();
    again["api_key"] = json!("k");
    again["headers"] = json!({"X-A": "other"});
    let again = written(again).without_nulls();
    assert_eq!(Value::Object(shown_provider(&read(Value::Object(again.0)))), {
        let mut want = shown;
        want["headers"] = json!({"x-a": DOTS});
        want
    });
    assert_eq!(shown_headers_debug(), "WrittenProvider(••••)");
}

fn shown_headers_debug() -> String {
    format!("{:?}", written(json!({"api_key": "sk-secret"})))
}
