//! The content of a snapshot, and that a valid changed file is published while an invalid one changes nothing.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use shared::access::Role;
use shared::routing::InstanceReach;
use shared::secret::Secret;
use shared::snapshot::{Snapshot, SnapshotPublisher, SnapshotReader, channel};

use super::reload::FileCheck;
use super::*;
use crate::db::credentials;
use crate::db::engine::Db;
use crate::db::key_check::{make_keys, open_keys};
use crate::db::testing::{in_memory, migrated};
use crate::routing::config::{Config, Environment, load};

pub(crate) const KEY: [u8; 32] = [5; 32];

pub(crate) fn config(folder: &Path, yaml: &str, further: &[(&str, &str)]) -> Arc<Config> {
    std::fs::write(folder.join("config.yaml"), yaml).unwrap();
    let key = BASE64_STANDARD.encode([1; 32]);
    let mut pairs = vec![
        ("LLMGW_API_KEY", "first-key-0123456789"),
        ("LLMGW_API_KEYS", "second-key-0123456789"),
        ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", key.as_str()),
        ("LLMGW_STATE_DIR", folder.to_str().unwrap()),
    ];
    pairs.extend_from_slice(further);
    let variables = pairs.iter().map(|(name, value)| (name.into(), value.into()));
    Arc::new(load(&Arc::new(Environment::read(variables))).unwrap().config)
}

fn of(yaml: &str, further: &[(&str, &str)]) -> Arc<Snapshot> {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), yaml, further);
    let (publisher, reader) = channel();
    started(&config, publisher);
    reader.load()
}

pub(crate) fn started(config: &Arc<Config>, out: SnapshotPublisher) -> (Publisher, Db) {
    started_on(migrated(), config, out)
}

/// Returns a publisher on a database of SQLite, with whose functions a test makes many rows, or whose steps it counts.
pub(crate) fn started_in_memory(config: &Arc<Config>, out: SnapshotPublisher) -> (Publisher, Db) {
    started_on(in_memory(), config, out)
}

fn started_on(db: Db, config: &Arc<Config>, out: SnapshotPublisher) -> (Publisher, Db) {
    let encryption_key = Secret::new(KEY);
    make_keys(&db, &encryption_key).unwrap();
    let keys = Arc::new(open_keys(&db, &encryption_key).unwrap());
    let (catalog, counters) = (Arc::default(), Arc::default());
    let params = PublisherParams {
        config: Arc::clone(config),
        keys,
        catalog,
        tokens: crate::common::credential::AccessTokens::default(),
        counters,
        freshness: shared::freshness::Freshness::default(),
        out,
    };
    (Publisher::start(params, &db).unwrap(), db)
}

const YAML: &str = "
providers:
  hosted: {type: openai, api_key: sk-1, headers: {X-Team: blue}, models: [big]}
  off: {type: echo, disabled: true, models: [gone]}
  lab: {type: echo, models: [echo]}
endpoints:
  mixed: {failover: [{provider: off, model: gone}, {provider: lab, model: echo}, {provider: hosted, model: big}]}
  dark: {failover: [{provider: off, model: gone}]}
";

#[test]
fn a_snapshot_has_headers_ready_and_leaves_out_what_is_disabled() {
    let snapshot = of(YAML, &[]);
    assert_eq!(snapshot.generation, 1);
    let ids: Vec<_> = snapshot.providers.iter().map(|provider| provider.id.as_str()).collect();
    assert_eq!(ids, ["hosted", "lab"]);
    let hosted = &snapshot.providers[0];
    let headers: Vec<_> =
        hosted.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(headers, [("authorization", "Bearer sk-1"), ("x-team", "blue")]);
    assert!(hosted.headers.iter().all(|(_, value)| value.is_sensitive()));
    assert!(
        matches!(&hosted.reach, InstanceReach::Network(origin) if origin.host == "api.openai.com" && origin.tls)
    );
    assert!(
        matches!(snapshot.providers[1].reach, InstanceReach::Echo(_))
            && snapshot.providers[1].headers.is_empty()
    );
}

#[test]
fn selectors_resolve_to_the_eligible_targets() {
    let snapshot = of(YAML, &[]);
    let targets = |selector: &str| {
        let route = snapshot.routes.get(selector)?;
        Some(route.targets().iter().map(|t| format!("{}/{}", t.provider.id, t.model.id)).collect::<Vec<_>>())
    };
    assert_eq!(targets("mixed").unwrap(), ["lab/echo", "hosted/big"]);
    assert_eq!(targets("dark").unwrap(), Vec::<String>::new(), "known, with nothing eligible");
    assert_eq!(targets("hosted/big").unwrap(), ["hosted/big"]);
    assert_eq!(targets("big").unwrap(), ["hosted/big"], "a safe alias");
    assert_eq!(targets("off/gone"), None);
    assert_eq!(targets("mixed/big"), None);
}

#[test]
fn only_administrator_keys_authenticate_without_project_keys() {
    let snapshot = of("", &[]);
    let find = |key: &str| snapshot.access.keys.get(&snapshot.key_hasher.hash(key.as_bytes()));
    for key in ["first-key-0123456789", "second-key-0123456789"] {
        let access = find(key).expect(key);
        assert_eq!((access.key.as_str(), access.role), ("admin", Role::Administrator));
    }
    assert!(find("first-key-012345678").is_none() && find("").is_none());
    assert!(snapshot.access.anonymous.is_none());
    let local = of("", &[("LLMGW_ALLOW_UNAUTHENTICATED_API", "true")]).access.anonymous.clone().unwrap();
    assert_eq!((local.key.as_str(), local.role), ("local", Role::Local));
}

#[test]
fn policies_and_circuits_survive_a_publication() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = format!("{YAML}policies: {{overrides: {{lab: {{retry_max_attempts: 5}}}}}}\n");
    let config = config(folder.path(), &yaml, &[]);
    let (out, reader) = channel();
    let (mut publisher, db) = started(&config, out);
    let first = reader.load();
    publisher.touch(Touched::ROUTING, &db).unwrap();
    let second = reader.load();
    assert!(Arc::ptr_eq(&first.access, &second.access), "keys were not touched");
    assert_eq!((first.providers[0].retry.attempts_max, first.providers[1].retry.attempts_max), (2, 5));
    assert!(
        Arc::ptr_eq(&first.providers[0].circuits, &second.providers[0].circuits),
        "a reload forgets nothing"
    );
}

struct Watched {
    folder: tempfile::TempDir,
    reader: SnapshotReader,
    reloader: Reloader,
    writes: u64,
}

impl Watched {
    fn new(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (publisher, reader) = channel();
        let config = config(folder.path(), yaml, &[]);
        let (mut publisher, db) = started(&config, publisher);
        let sink = move |routing, report| {
            publisher.replace_file(routing, report);
            publisher.touch(Touched::NOTHING, &db).is_ok()
        };
        let mut reloader = Reloader::new(config, Box::new(sink));
        assert_eq!(settled(&mut reloader), FileCheck::Same, "nothing has changed since the start");
        Self { folder, reader, reloader, writes: 0 }
    }

    fn write(&mut self, yaml: &str) -> FileCheck {
        self.put(yaml);
        settled(&mut self.reloader)
    }

    /// Writes the file with a distinct modification time, so that a coarse clock cannot hide a write.
    fn put(&mut self, yaml: &str) {
        self.writes += 1;
        let mut file = std::fs::File::create(self.folder.path().join("config.yaml")).unwrap();
        file.write_all(yaml.as_bytes()).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(self.writes)).unwrap();
    }

    fn providers(&self) -> Vec<String> {
        self.reader.load().providers.iter().map(|provider| provider.id.to_string()).collect()
    }
}

fn settled(reloader: &mut Reloader) -> FileCheck {
    assert_eq!(reloader.look(), FileCheck::Moving, "a change is not taken at once");
    reloader.look()
}

#[test]
fn a_valid_edit_is_published_and_an_invalid_one_is_not() {
    let mut watched = Watched::new("providers: {a: {type: echo}}\n");
    assert_eq!((watched.providers(), watched.reader.load().generation), (vec!["a".to_owned()], 1));
    let status = watched.reloader.status();

    assert_eq!(watched.write("providers: {a: {type: echo}, b: {type: echo}}\n"), FileCheck::HandedOn);
    assert_eq!((watched.providers().len(), watched.reader.load().generation), (2, 2));
    assert_eq!((status.read().reloads, status.read().last_error), (1, None));

    assert_eq!(watched.write("providers: {a: {type: ecco}}\n"), FileCheck::Refused);
    assert_eq!(
        (watched.providers().len(), watched.reader.load().generation),
        (2, 2),
        "the last valid one stays"
    );
    let (_, error) = status.read().last_error.expect("remembered");
    assert!(error.contains("config.yaml:1:") && error.contains("ecco"), "{error}");
    assert_eq!(watched.reloader.look(), FileCheck::Same, "reported once");

    assert_eq!(watched.write("providers: {c: {type: echo}}\n"), FileCheck::HandedOn);
    assert_eq!((watched.providers(), watched.reader.load().generation), (vec!["c".to_owned()], 3));
    assert_eq!((status.read().reloads, status.read().last_error), (2, None));
}

#[test]
fn a_file_rewritten_with_the_same_content_is_not_published() {
    let yaml = "providers: {a: {type: echo}}\n";
    let mut watched = Watched::new(yaml);
    assert_eq!(watched.write(yaml), FileCheck::Same);
    assert_eq!(watched.reader.load().generation, 1);
}

#[test]
fn a_file_that_is_still_being_written_is_left_alone() {
    let mut watched = Watched::new("providers: {a: {type: echo}}\n");
    watched.put("");
    assert_eq!(watched.reloader.look(), FileCheck::Moving);
    watched.put("providers: {a: {type: echo}, b: {type: echo}}\n");
    assert_eq!(watched.reloader.look(), FileCheck::Moving, "the empty file between was never taken");
    assert_eq!(watched.reloader.look(), FileCheck::HandedOn);
    assert_eq!((watched.providers().len(), watched.reader.load().generation), (2, 2));
}

#[test]
fn a_deleted_file_keeps_the_routes_and_a_new_one_is_published() {
    let mut watched = Watched::new("providers: {a: {type: echo}}\n");
    std::fs::remove_file(watched.folder.path().join("config.yaml")).unwrap();
    assert_eq!(settled(&mut watched.reloader), FileCheck::Refused);
    assert_eq!(watched.providers(), ["a"]);
    assert!(watched.reloader.status().read().last_error.unwrap().1.contains("the file no longer exists"));
    assert_eq!(watched.write("providers: {b: {type: echo}}\n"), FileCheck::HandedOn);
    assert_eq!(watched.providers(), ["b"]);
}

/// SIGHUP also reads `secrets.json`, and no configuration file is required.
#[test]
fn a_reload_without_a_file_is_valid_until_there_was_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first.yaml");
    let config = config(folder.path(), "", &[("LLMGW_CONFIG", file.to_str().unwrap())]);
    let mut reloader = Reloader::new(config, Box::new(|_, _| true));
    assert_eq!(reloader.look(), FileCheck::Moving);
    assert_eq!(reloader.look(), FileCheck::Same);
    assert_eq!(reloader.reload(), FileCheck::HandedOn);
    std::fs::write(&file, "providers: {a: {type: echo}}\n").unwrap();
    assert_eq!(reloader.reload(), FileCheck::HandedOn);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(reloader.reload(), FileCheck::Refused, "its routes stay");
    assert_eq!(reloader.reload(), FileCheck::Refused);
}

#[test]
fn a_changed_file_is_reported_when_it_is_in_force_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "providers: {a: {type: echo}}\n", &[]);
    let (publisher, reader) = channel();
    let (mut publisher, db) = started(&config, publisher);
    let waiting = Arc::new(std::sync::Mutex::new(Vec::new()));
    let queue = Arc::clone(&waiting);
    let sink = move |routing, report: ReloadReport| {
        queue.lock().unwrap().push((routing, report));
        true
    };
    let mut reloader = Reloader::new(config, Box::new(sink));
    settled(&mut reloader);
    let status = reloader.status();
    std::fs::write(folder.path().join("config.yaml"), "providers: {b: {type: echo}}\n").unwrap();
    assert_eq!(settled(&mut reloader), FileCheck::HandedOn);
    assert_eq!(status.read().reloads, 0, "it waits in a queue");

    let (routing, report) = waiting.lock().unwrap().pop().unwrap();
    db.batch("ALTER TABLE endpoints RENAME TO elsewhere").unwrap();
    publisher.replace_file(routing, report);
    publisher.touch(Touched::NOTHING, &db).unwrap_err();
    assert_eq!(status.read().reloads, 0, "it could not be published");
    db.batch("ALTER TABLE elsewhere RENAME TO endpoints").unwrap();
    publisher.touch(Touched::NOTHING, &db).unwrap();
    assert_eq!((status.read().reloads, reader.load().providers[0].id.as_str()), (1, "b"));
}

#[test]
fn a_file_deleted_while_the_queue_is_full_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "providers: {a: {type: echo}}\n", &[]);
    let mut reloader = Reloader::new(config, Box::new(|_, _| false));
    settled(&mut reloader);
    std::fs::write(folder.path().join("config.yaml"), "providers: {b: {type: echo}}\n").unwrap();
    assert_eq!(settled(&mut reloader), FileCheck::Moving, "the queue is full");
    std::fs::remove_file(folder.path().join("config.yaml")).unwrap();
    assert_eq!(settled(&mut reloader), FileCheck::Refused);
    assert!(reloader.status().read().last_error.unwrap().1.contains("the file no longer exists"));
}

#[test]
fn a_panic_in_a_reload_is_reported_and_the_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "providers: {a: {type: echo}}\n", &[]);
    let mut is_broken = true;
    let sink = move |_, _| !std::mem::take(&mut is_broken) || panic!("no random numbers");
    let mut reloader = Reloader::new(config, Box::new(sink));
    settled(&mut reloader);
    std::fs::write(folder.path().join("config.yaml"), "providers: {b: {type: echo}}\n").unwrap();
    assert_eq!(reloader.look(), FileCheck::Moving);
    reloader.survive(Reloader::look);
    assert!(reloader.status().read().last_error.unwrap().1.contains("panic"));
    assert_eq!(settled(&mut reloader), FileCheck::HandedOn);
}

#[test]
fn policies_do_not_reload() {
    let mut watched = Watched::new("providers: {a: {type: echo}}\n");
    let edit = "providers: {a: {type: echo, models: [m]}}\npolicies: {defaults: {retry_max_attempts: 9}}\n";
    assert_eq!(watched.write(edit), FileCheck::HandedOn);
    let snapshot = watched.reader.load();
    assert_eq!((snapshot.providers[0].models.len(), snapshot.providers[0].retry.attempts_max), (1, 2));
}

#[test]
fn providers_of_the_database_are_published_with_their_owners() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "providers: {lab: {type: echo, models: [echo]}}\n", &[]);
    let (out, reader) = channel();
    let (mut publisher, db) = started(&config, out);
    db.batch(
        "INSERT INTO principals (id, name, email, disabled, version, created_at_ms, updated_at_ms)
         VALUES ('prn_1', 'Ada', NULL, 0, 1, 1, 1);
         INSERT INTO projects VALUES ('prj_1', 'One', 0, NULL, NULL, NULL, 1, 1, 1, NULL);
         INSERT INTO providers (id, auth, owner, settings, version, created_at_ms, updated_at_ms) VALUES
             ('own', 'local', 'prn_1', '{\"type\": \"echo\", \"models\": [\"b\", \"a\"]}', 1, 1, 1),
             ('later', 'oauth', NULL, '{\"registry_id\": \"groq\", \"models\": [\"m\"]}', 1, 1, 1),
             ('off', 'local', NULL, '{\"type\": \"echo\", \"disabled\": true}', 1, 1, 1);
         INSERT INTO bindings VALUES ('own', 'prj_1', 1);
         INSERT INTO endpoints VALUES ('line', '[{\"provider\": \"own\", \"model\": \"a\"}, \
             {\"provider\": \"lab\", \"model\": \"echo\"}, {\"provider\": \"off\", \"model\": \"x\"}]', \
             'Be brief.', 1, 1, 1);",
    )
    .unwrap();
    publisher.touch(Touched::ROUTING, &db).unwrap();
    let snapshot = reader.load();
    let ids: Vec<_> = snapshot.providers.iter().map(|provider| provider.id.as_str()).collect();
    assert_eq!(ids, ["lab", "later", "own"]);
    let own = &snapshot.providers[2];
    assert_eq!(own.owner.as_ref().map(|owner| owner.as_str()), Some("prn_1"));
    assert_eq!(own.shared_with.iter().map(|project| project.as_str()).collect::<Vec<_>>(), ["prj_1"]);
    assert!(snapshot.providers[1].unready.is_some() && own.unready.is_none());
    let line = &snapshot.endpoints[0];
    assert_eq!(line.preamble.as_deref(), Some("Be brief."));
    let targets: Vec<_> = line.targets.iter().map(|target| target.model.id.as_str()).collect();
    assert_eq!(targets, ["a", "echo"]);
    db.execute("DELETE FROM projects", ()).unwrap();
    publisher.touch(Touched::ROUTING, &db).unwrap();
    assert!(reader.load().providers[2].shared_with.is_empty(), "a project that is gone shares nothing");
}

const PEOPLE: &str = "INSERT INTO projects (id, name, disabled, version, created_at_ms, updated_at_ms)
     VALUES ('blue', 'blue', 0, 1, 1, 1);
     INSERT INTO quotas VALUES ('q-blue', 'project', 'blue', NULL, NULL, 'requests', 'day', 9, 1, 1, 1, 1, 0);";

fn put_key(db: &Db, id: &str, state: &str, expires_at_ms: Option<u64>) {
    let sql = "INSERT INTO keys (id, name, project, hash, prefix, state, expires_at_ms, family, version, \
               created_at_ms, updated_at_ms) VALUES (:id, 'k', 'blue', :hash, '', :state, :expires_at_ms, :id, 1, 1, 1) \
               ON CONFLICT (id) DO UPDATE SET state = excluded.state, expires_at_ms = excluded.expires_at_ms";
    db.execute(sql, (id, hash(id).0, state, expires_at_ms)).unwrap();
}

/// A stand-in for the hash of the key with this id.
fn hash(id: &str) -> shared::key_hash::KeyHash {
    let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
    shared::key_hash::KeyHash(digest.as_ref().try_into().unwrap())
}

#[test]
fn publishing_keys_one_by_one_equals_publishing_all() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "", &[]);
    let (out, reader) = channel();
    let (mut publisher, db) = started(&config, out);
    db.batch(PEOPLE).unwrap();
    for id in ["a", "b", "c"] {
        put_key(&db, id, "active", None);
    }
    publisher.touch(Touched::ACCESS, &db).unwrap();
    let all = reader.load();
    let b = Arc::clone(all.access.keys.get(&hash("b")).unwrap());
    assert_eq!((all.access.keys.len(), b.quotas.len()), (5, 1), "two keys are static");

    let in_a_moment = shared::clock::unix_ms() + 1;
    put_key(&db, "a", "revoked", None);
    put_key(&db, "d", "active", None);
    put_key(&db, "e", "active", Some(in_a_moment));
    db.batch(
        "INSERT INTO quotas VALUES ('q-d', 'key', 'd', NULL, NULL, 'requests', 'day', 3, 1, 1, 1, 1, 0)",
    )
    .unwrap();
    publisher.touch(Touched::keys(["a", "d", "e"].map(str::to_owned)), &db).unwrap();
    let some = reader.load();
    let find = |id: &str| some.access.keys.get(&hash(id)).cloned();
    assert!(find("a").is_none() && Arc::ptr_eq(&find("b").unwrap(), &b), "b was not touched");
    let limits =
        |id: &str| find(id).unwrap().quotas.iter().map(|quota| quota.id.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (limits("c"), limits("d")),
        (vec!["q-blue".to_owned()], vec!["q-d".to_owned(), "q-blue".to_owned()])
    );
    let counter = |id: &str| Arc::clone(&find(id).unwrap().quotas.last().unwrap().counter);
    assert!(Arc::ptr_eq(&counter("c"), &counter("d")), "both count for their project");
    assert!(all.access.keys.get(&hash("a")).is_some(), "what is published stays as it is");

    while shared::clock::unix_ms() <= in_a_moment {}
    publisher.touch(Touched::keys(["b".to_owned()]), &db).unwrap();
    assert!(reader.load().access.keys.get(&hash("e")).is_none(), "its time is over");

    put_key(&db, "c", "revoked", None);
    db.execute("DELETE FROM keys WHERE id = 'c'", ()).unwrap();
    publisher.touch(Touched::keys(["c".to_owned()]), &db).unwrap();
    assert!(reader.load().access.keys.get(&hash("c")).is_none(), "a key that is revoked and deleted at once");
    db.execute("UPDATE projects SET disabled = 1", ()).unwrap();
    publisher.touch(Touched::keys(["d".to_owned()]), &db).unwrap();
    assert!(reader.load().access.keys.get(&hash("d")).is_none());
}

#[test]
fn publishing_a_project_or_a_human_rereads_their_keys_and_limits_alone() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "", &[]);
    let (out, reader) = channel();
    let (mut publisher, db) = started(&config, out);
    db.batch(PEOPLE).unwrap();
    db.batch(
        "INSERT INTO projects (id, name, disabled, version, created_at_ms, updated_at_ms)
         VALUES ('red', 'red', 0, 1, 1, 1);
         INSERT INTO principals (id, name, disabled, version, created_at_ms, updated_at_ms)
         VALUES ('ada', 'Ada', 0, 1, 1, 1);
         INSERT INTO quotas VALUES ('q-ada', 'principal', 'ada', NULL, NULL, 'requests', 'day', 9, 1, 1, 1, 1, 0);",
    )
    .unwrap();
    for id in ["blue", "red", "hers"] {
        put_key(&db, id, "active", None);
    }
    db.batch(
        "UPDATE keys SET project = 'red' WHERE id <> 'blue'; UPDATE keys SET acts_as = 'ada' WHERE id = 'hers'",
    )
    .unwrap();
    publisher.touch(Touched::ACCESS, &db).unwrap();
    let caller = |id: &str| reader.load().access.keys.get(&hash(id)).cloned();
    let (blue, red) = (caller("blue").unwrap(), caller("red").unwrap());
    assert_eq!(caller("hers").unwrap().quotas.len(), 1);

    db.execute("UPDATE quotas SET amount = 4 WHERE id = 'q-ada'", ()).unwrap();
    publisher.touch(Touched::principal("ada"), &db).unwrap();
    assert_eq!(caller("hers").unwrap().quotas[0].limit, 4);
    assert!(Arc::ptr_eq(&caller("red").unwrap(), &red), "it does not act as her");

    db.execute("UPDATE projects SET disabled = 1 WHERE id = 'red'", ()).unwrap();
    db.execute("DELETE FROM quotas WHERE id = 'q-ada'", ()).unwrap();
    let both = Touched::project("red").and(Touched::principal("ada").without_quotas(["q-ada".to_owned()]));
    publisher.touch(both, &db).unwrap();
    assert!(caller("red").is_none() && caller("hers").is_none());
    assert!(Arc::ptr_eq(&caller("blue").unwrap(), &blue), "the keys of other projects are not read");
    assert!(publisher.counters().get("q-ada").is_none() && publisher.counters().get("q-blue").is_some());

    db.execute("UPDATE projects SET disabled = 0 WHERE id = 'red'", ()).unwrap();
    publisher.touch(Touched::project("red"), &db).unwrap();
    assert_eq!((caller("hers").unwrap().quotas.len(), caller("red").is_some()), (0, true));
}

/// ADM-9: among a hundred thousand keys, publishing one more reads none of the others, and a change of a project those of
/// the project. A new key with a limit by the minute reads none of the usage.
#[test]
fn publishing_a_key_takes_the_same_steps_among_many_keys() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "", &[]);
    let (out, reader) = channel();
    let (mut publisher, mut db) = started_in_memory(&config, out);
    db.batch(PEOPLE).unwrap();
    let steps = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = Arc::clone(&steps);
    let each = move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        false
    };
    db.on_each_step(each);
    let mut taken = Vec::new();
    for (id, more) in [("first", 10), ("second", 20_000)] {
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :more)
             INSERT INTO keys (id, name, project, hash, prefix, state, family, version, created_at_ms, updated_at_ms)
             SELECT :id || i, 'k', 'blue', CAST(printf('%032d', :more + i) AS BLOB), '', 'active', :id || i, 1, 1, 1 FROM n",
            (more, id),
        )
        .unwrap();
        // Usage of the last minute.
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :more)
             INSERT INTO usage (first_ms, last_ms, exchanges, requests, names, rows) SELECT :now, :now, 0, x'', x'', x'' FROM n",
            (more, shared::clock::unix_ms()),
        )
        .unwrap();
        publisher.touch(Touched::ACCESS, &db).unwrap();
        put_key(&db, id, "active", None);
        db.execute(
            "INSERT INTO quotas VALUES ('q' || :key, 'key', :key, NULL, NULL, 'requests', 'minute', 3, 1, 1, 1, 1, 0)",
            [id],
        )
        .unwrap();
        for touched in [Touched::new_key(id), Touched::project("red")] {
            let before = steps.load(std::sync::atomic::Ordering::Relaxed);
            publisher.touch(touched, &db).unwrap();
            taken.push(steps.load(std::sync::atomic::Ordering::Relaxed) - before);
        }
        assert!(reader.load().access.keys.get(&hash(id)).is_some());
    }
    assert!(taken[2] <= taken[0] + 100 && taken[3] <= taken[1] + 100, "{taken:?}");
    assert_eq!(reader.load().access.keys.len(), 20_014);
}

#[test]
fn a_thousand_providers_and_endpoints_are_published() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "", &[]);
    let (out, reader) = channel();
    let (mut publisher, db) = started_in_memory(&config, out);
    db.batch(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO providers (id, auth, settings, version, created_at_ms, updated_at_ms)
         SELECT 'p' || i, 'api_key', json_object('type', 'compatible', 'base_url', 'http://127.0.0.1:' || i || '/v1',
             'models', json_array('a' || i, 'b' || i, 'c', 'd', 'e')), 1, 1, 1 FROM n;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO endpoints SELECT 'e' || i, json_array(json_object('provider', 'p' || i, 'model', 'c'),
             json_object('provider', 'p1', 'model', 'd'), json_object('provider', 'p2', 'model', 'e')), NULL, 1, 1, 1
         FROM n;",
    )
    .unwrap();
    publisher.touch(Touched::ROUTING, &db).unwrap();
    let first = reader.load();
    assert_eq!((first.providers.len(), first.endpoints.len()), (1_000, 1_000));
    assert!(first.endpoints.iter().all(|endpoint| endpoint.targets.len() == 3));
    db.execute("UPDATE providers SET version = 2 WHERE id = 'p7'", ()).unwrap();
    publisher.touch(Touched::ROUTING, &db).unwrap();
    let second = reader.load();
    assert_eq!(second.providers.len(), 1_000);
    let mut circuits = first.providers.iter().zip(second.providers.iter());
    assert!(circuits.all(|(one, other)| Arc::ptr_eq(&one.circuits, &other.circuits)));
}

#[test]
fn stored_credentials_complete_providers_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "providers:\n  bare: {type: openai, models: [m]}\n  kept: {type: openai, models: [m]}\n  \
                written: {type: openai, api_key: of-the-file, models: [m]}\n";
    let config = config(folder.path(), yaml, &[]);
    let (out, _) = channel();
    let (_, db) = started(&config, out);
    let keys = Arc::new(open_keys(&db, &Secret::new(KEY)).unwrap());
    for id in ["kept", "written"] {
        credentials::put(&db, &keys, (id, &Secret::new("of-the-table".to_owned())), 1).unwrap();
    }
    let (out, reader) = channel();
    let (catalog, counters) = (Arc::default(), Arc::default());
    let params = PublisherParams {
        config: Arc::clone(&config),
        keys,
        catalog,
        tokens: crate::common::credential::AccessTokens::default(),
        counters,
        freshness: shared::freshness::Freshness::default(),
        out,
    };
    let mut publisher = Publisher::start(params, &db).unwrap();
    let found = |snapshot: &Snapshot| -> Vec<_> {
        let key =
            |key: &Option<Secret<String>>| key.as_ref().map(|key| key.expose().clone()).unwrap_or_default();
        let providers = snapshot.providers.iter();
        providers.map(|p| (p.id.to_string(), key(&p.credential), p.unready.is_none())).collect()
    };
    let want = [("bare", "", false), ("kept", "of-the-table", true), ("written", "of-the-file", true)];
    let want = want.map(|(id, key, ready)| (id.to_owned(), key.to_owned(), ready));
    assert_eq!(found(&reader.load()), want);
    publisher.replace_file(config.routing.clone(), Box::new(|| ()));
    publisher.touch(Touched::NOTHING, &db).unwrap();
    assert_eq!(found(&reader.load()), want, "after a reload too");
}
