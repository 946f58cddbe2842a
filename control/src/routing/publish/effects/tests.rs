//! The effects of changes on very many keys: counted in full, listed in part, and bounded in time.

use std::time::{Duration, Instant};

use shared::snapshot::channel;

use super::super::preview::ChangePreview;
use super::super::tests::{config, started_in_memory};
use super::super::*;
use crate::common::bounds::PREVIEWED_KEYS;
use crate::common::bounds::tests::passes;
use crate::db::engine::Db;

const YAML: &str = "
providers:
  a: {type: echo, models: [m]}
";

/// Adds the project `blue` with this number of keys, and publishes them.
fn with_keys(publisher: &mut Publisher, db: &Db, count: u32) {
    db.execute(
        "INSERT INTO projects (id, name, disabled, version, created_at_ms, updated_at_ms) \
         VALUES ('blue', 'blue', 0, 1, 1, 1)",
        (),
    )
    .unwrap();
    db.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
         INSERT INTO keys (id, name, project, hash, prefix, state, family, version, created_at_ms, updated_at_ms)
         SELECT printf('k%06d', i), 'k', 'blue', CAST(printf('%032d', i) AS BLOB), '', 'active', 'k' || i, 1, 1, 1 FROM n",
        [count],
    )
    .unwrap();
    publisher.touch(Touched::ACCESS, db).unwrap();
}

/// Returns the preview of an endpoint that takes the name of the provider's model.
fn preview(publisher: &Publisher, db: &mut Db) -> ChangePreview {
    let tx = db.transaction().unwrap();
    tx.execute(
        "INSERT INTO endpoints (name, failover, version, created_at_ms, updated_at_ms) \
         VALUES ('line', '[{\"provider\": \"a\", \"model\": \"m\"}]', 1, 1, 1)",
        (),
    )
    .unwrap();
    publisher.preview(&Touched::ROUTING, &tx).unwrap()
}

#[test]
fn twenty_thousand_keys_are_all_counted_and_a_hundred_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), YAML, &[]);
    let (mut publisher, mut db) = started_in_memory(&config, channel().0);
    with_keys(&mut publisher, &db, 20_000);
    let preview = preview(&publisher, &mut db);
    let began = Instant::now();
    let effects = preview.effects(began + Duration::from_secs(600));
    println!("figure: effects on 20,000 keys in {:?}", began.elapsed());
    assert_eq!((effects.keys_gaining, effects.keys_losing, effects.complete), (20_000, 0, true));
    assert_eq!((effects.gains.len(), effects.gains[0].key.as_str()), (100, "k000001"));
    assert_eq!(effects.gains[99].selectors, ["line"]);
    let late = preview.effects(began);
    assert_eq!((late.keys_gaining, late.complete), (0, false), "the time was over before it began");
}

#[test]
fn a_group_of_too_many_keys_is_read_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), YAML, &[]);
    let (mut publisher, mut db) = started_in_memory(&config, channel().0);
    with_keys(&mut publisher, &db, 2_001);
    let tx = db.transaction().unwrap();
    tx.execute("UPDATE projects SET disabled = 1", ()).unwrap();
    let effects = |preview: ChangePreview| preview.effects(Instant::now() + Duration::from_secs(600));
    let cut = passes(&PREVIEWED_KEYS, || publisher.preview(&Touched::project("blue"), &tx).unwrap());
    let cut = effects(cut);
    assert_eq!((cut.keys_losing, cut.complete), (2_000, false));
    tx.execute("DELETE FROM keys WHERE id = 'k000001'", ()).unwrap();
    let whole = effects(publisher.preview(&Touched::project("blue"), &tx).unwrap());
    assert_eq!((whole.keys_losing, whole.complete), (2_000, true));
}
