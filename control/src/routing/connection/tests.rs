//! A row is opened only when it has changed; a row that cannot be used is kept with the reason.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use shared::secret::Secret;

use super::*;
use crate::common::vault::VaultKeys;
use crate::db::engine::Db;
use crate::db::key_check::{make_keys, open_keys};
use crate::db::providers::{self, ProviderRow};
use crate::db::testing::migrated;
use crate::routing::config::{Environment, Routing, WrittenProvider};

fn store() -> (Db, VaultKeys) {
    let db = migrated();
    let key = Secret::new([1; 32]);
    make_keys(&db, &key).unwrap();
    let keys = open_keys(&db, &key).unwrap();
    (db, keys)
}

fn written(value: Value) -> WrittenProvider {
    WrittenProvider(serde_json::from_value::<Map<_, _>>(value).unwrap())
}

fn row(keys: &VaultKeys, id: &str, version: u64, value: Value) -> ProviderRow {
    let parts = seal_written(keys, id, &written(value)).unwrap();
    ProviderRow {
        id: id.to_owned(),
        auth: "api_key".to_owned(),
        owner: None,
        settings: parts.settings,
        credential: parts.credential,
        credential_hint: parts.credential_hint,
        credential_at_ms: None,
        headers: parts.headers,
        is_anonymous: false,
        version,
        created_at_ms: 7,
        updated_at_ms: 7,
    }
}

#[test]
fn a_sealed_value_opens_only_in_its_own_row_and_column() {
    let (_, keys) = store();
    let value = json!({
        "type": "compatible", "base_url": "http://127.0.0.1:1", "api_key": "sk-a-long-credential-0042",
        "headers": {"X-A": "secret-of-a-header", "X-B": "${ENV:B}"},
    });
    let row = row(&keys, "own", 1, value.clone());
    for secret in ["sk-a-long", "secret-of"] {
        assert!(!row.settings.contains(secret), "{}", row.settings);
    }
    assert!(row.settings.contains("${ENV:B}"), "a reference is no secret");
    assert_eq!(row.credential_hint.as_deref(), Some("0042"));
    assert_eq!(open_written(&keys, &row).unwrap(), written(value));
    let moved = ProviderRow { id: "other".to_owned(), ..row.clone() };
    assert!(open_written(&keys, &moved).is_err());
    let swapped = ProviderRow { credential: row.headers.clone(), ..row };
    assert!(open_written(&keys, &swapped).is_err());
}

#[test]
fn headers_of_models_are_sealed_with_those_of_the_provider() {
    let (_, keys) = store();
    let own = json!({"X-Own": "own-secret", "models": "a-name"});
    let models = json!([{"id": "a", "headers": {"X-A": "secret-of-a", "X-B": "${ENV:B}"}}, "b", {"id": "c"}]);
    for value in [
        json!({"type": "openai", "headers": own.clone(), "models": models.clone()}),
        json!({"type": "openai", "models": models}),
        json!({"type": "openai", "headers": own, "models": ["a"]}),
        json!({"type": "openai", "models": ["a"]}),
    ] {
        let row = row(&keys, "own", 1, value.clone());
        assert!(!row.settings.contains("secret"), "{}", row.settings);
        assert_eq!(row.settings.contains("${ENV:B}"), value.to_string().contains("ENV"), "{}", row.settings);
        assert_eq!(row.headers.is_some(), value.to_string().contains("headers"));
        assert_eq!(open_written(&keys, &row).unwrap(), written(value));
    }
}

#[test]
fn several_keys_are_sealed_together_and_shown_by_their_hints() {
    let (_, keys) = store();
    let listed = json!([{"id": "c1", "key": "sk-a-long-credential-0042"}, {"id": "c4", "key": "${ENV:B}"}]);
    let row = row(&keys, "own", 1, json!({"type": "openai", "api_keys": listed.clone()}));
    assert!(!row.settings.contains("sk-a-long"), "{}", row.settings);
    assert_eq!(row.credential_hint, None);
    let settings: Map<String, Value> = serde_json::from_str(&row.settings).unwrap();
    let shown: Vec<_> =
        StoredKey::listed(&settings).unwrap().into_iter().map(|key| (key.id.0, key.hint)).collect();
    assert_eq!(shown, [(1, Some("0042".to_owned())), (4, Some("${ENV:B}".to_owned()))]);
    assert_eq!(open_written(&keys, &row).unwrap(), written(json!({"type": "openai", "api_keys": listed})));
}

#[test]
fn a_patch_keeps_keys_by_their_ids_and_either_member_replaces_the_other() {
    let [one, two] =
        ["key-one", "key-two"].map(|key| json!({"id": if key == "key-one" {"c1"} else {"c2"}, "key": key}));
    let several = json!({"api_keys": [one.clone(), two.clone()]});
    for (name, before, patch, want) in [
        (
            "add to one",
            json!({"api_key": "key-one"}),
            json!([{"id": "c1"}, {"key": "key-two"}]),
            several.clone(),
        ),
        ("keep and drop", several.clone(), json!([{"id": "c2"}]), json!({"api_key": "key-two"})),
        (
            "as it was shown",
            several.clone(),
            json!([{"id": "c1", "last_four": null}, {"id": "c2"}]),
            several.clone(),
        ),
        (
            "new numbers follow the highest",
            several.clone(),
            json!([{"id": "c1"}, "key-three"]),
            json!({"api_keys": [one.clone(), {"id": "c3", "key": "key-three"}]}),
        ),
        ("a new list", json!({}), json!(["key-one", "key-two"]), several.clone()),
    ] {
        let (mut written, mut patch) = (written(before), written(json!({"api_keys": patch})));
        patch.resolve_keys(&mut written).unwrap();
        written.merge(patch);
        assert_eq!(json!(written.0), want, "{name}");
    }
    let mut before = written(several);
    let mut single = written(json!({"api_key": "key-three"}));
    single.resolve_keys(&mut before).unwrap();
    before.merge(single);
    assert_eq!(json!(before.0), json!({"api_key": "key-three"}), "one key replaces the list");
    let unknown =
        written(json!({"api_keys": [{"id": "c9"}, {"key": "a"}]})).resolve_keys(&mut before).unwrap_err();
    assert_eq!(unknown.field, "api_keys[0].id");
    assert!(unknown.message.contains("it has c1"), "{}", unknown.message);
}

#[test]
fn a_short_key_has_no_credential_hint() {
    let (_, keys) = store();
    for (key, hint) in [
        ("short", None),
        ("nineteen-characters", None),
        ("twenty-characters-ok", Some("s-ok")),
        ("${ENV:NAME}", Some("${ENV:NAME}")),
        ("  ", None),
    ] {
        let row = row(&keys, "own", 1, json!({"api_key": key}));
        assert_eq!(row.credential_hint.as_deref(), hint, "{key}");
        assert_eq!(row.credential.is_some(), !key.trim().is_empty(), "{key}");
    }
}

#[test]
fn only_changed_provider_rows_are_read_again() {
    let (db, keys) = store();
    let environment = Environment::read([("GONE".into(), "value".into())]);
    let echo = json!({"type": "echo", "models": ["m"]});
    let referring = json!({"type": "openai", "api_key": "${ENV:GONE}"});
    providers::put(&db, &row(&keys, "a", 1, echo.clone())).unwrap();
    providers::put(&db, &row(&keys, "b", 1, referring)).unwrap();
    let mut holdings = DatabaseInstances::default();
    holdings.refresh(&db, &keys, &environment).unwrap();
    let held = |holdings: &DatabaseInstances| holdings.iter().map(Arc::clone).collect::<Vec<_>>();
    let first = held(&holdings);
    assert!(first.iter().all(|held| held.read.is_ok()));
    providers::put(&db, &row(&keys, "a", 2, echo.clone())).unwrap();
    holdings.refresh(&db, &keys, &environment).unwrap();
    let second = held(&holdings);
    assert!(!Arc::ptr_eq(&first[0], &second[0]) && Arc::ptr_eq(&first[1], &second[1]));
    providers::delete(&db, "b").unwrap();
    providers::put(&db, &row(&keys, "b", 1, echo)).unwrap();
    holdings.refresh(&db, &keys, &environment).unwrap();
    assert!(!Arc::ptr_eq(&second[1], &held(&holdings)[1]), "another row of the same id and version");
}

#[test]
fn an_unusable_provider_is_shown_as_faulty_and_not_routed() {
    let (db, keys) = store();
    let value = json!({"type": "openai", "api_key": "${ENV:GONE}", "region": "here"});
    providers::put(&db, &row(&keys, "own", 1, value)).unwrap();
    let damaged =
        ProviderRow { credential: Some(vec![1, 2, 3]), ..row(&keys, "torn", 1, json!({"type": "openai"})) };
    providers::put(&db, &damaged).unwrap();
    let mut holdings = DatabaseInstances::default();
    holdings.refresh(&db, &keys, &Environment::read([])).unwrap();
    let beside = (&SignIns::default(), &Extensions::default());
    let (routing, view) = merge(&Routing::default(), &holdings, beside, Vec::new());
    assert!(routing.providers.is_empty());
    let shown: Vec<_> = view.providers.iter().map(|provider| json!(provider.shown())).collect();
    assert_eq!((&shown[0]["state"], &shown[0]["region"]), (&json!("faulty"), &json!("here")));
    let reason = |shown: &Value| shown["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason(&shown[0]), "api_key: the environment variable GONE is not set");
    assert!(reason(&shown[1]).contains("cannot be decrypted"), "{}", shown[1]);
}
