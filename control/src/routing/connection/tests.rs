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
