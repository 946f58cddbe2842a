//! Every operation in every state of a key, and the resulting rows of the database.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::id::PrincipalId;
use shared::key_format::is_well_formed;
use shared::key_hash::KeyHasher;

use super::*;
use crate::common::actor::Who;
use crate::common::change::{AllowlistEdit, FieldChange};
use crate::db::keys::{KeyFilter, KeyState};
use crate::db::members::MemberRole;
use crate::writer::command::members;
use crate::writer::command::principals;
use crate::writer::command::projects;
use crate::writer::command::tests::{No, Office, id};

const DAY_MS: u64 = 86_400_000;

struct Keyring {
    office: Office,
    project: String,
    ada: String,
}

impl Keyring {
    fn open() -> Self {
        let office = Office::open();
        let (project, ada) = (office.project("blue"), office.principal("Ada"));
        office.member(&project, &ada, MemberRole::Owner).unwrap();
        Self { office, project, ada }
    }

    fn new_key(&self) -> IssueKey {
        IssueKey {
            name: "k".into(),
            project: self.project.clone(),
            acts_as: Some(self.ada.clone()),
            expires_at_ms: None,
            allowlist: AllowlistEdit::default(),
            tags: BTreeMap::new(),
            recoverable: true,
            limits: Vec::new(),
        }
    }

    fn issue(&self) -> Value {
        self.office.run(self.new_key()).unwrap()
    }

    /// Creates a key in `state`.
    fn key_in(&self, state: &str) -> String {
        let key = id(&self.issue());
        match state {
            "active" => {}
            "expired" => {
                let end = self.office.now_ms.get() + 1;
                self.office.run(EditKey { expires_at_ms: FieldChange::Set(end), ..edit(&key) }).unwrap();
                self.office.now_ms.set(end);
            }
            "disabled" => drop(self.set(&key, KeyOperation::Disable).unwrap()),
            _ => drop(self.set(&key, KeyOperation::Revoke).unwrap()),
        }
        assert_eq!(self.stored(&key).unwrap()["state"], state);
        key
    }

    fn set(&self, key: &str, edge: KeyOperation) -> Result<Value, No> {
        self.office.run(EditKey { edge: Some(edge), ..edit(key) })
    }

    fn stored(&self, key: &str) -> Option<Value> {
        let office = &self.office;
        keys::find(&office.db, key, office.now_ms.get()).unwrap().map(|key| json!(key))
    }

    fn follow(&self, key: &str, edge: KeyOperation) -> Result<Value, No> {
        match edge {
            KeyOperation::Enable | KeyOperation::Disable | KeyOperation::Revoke => self.set(key, edge),
            KeyOperation::Edit => self.office.run(EditKey { name: Some("another".into()), ..edit(key) }),
            KeyOperation::Rotate => self.office.run(rotate(key, 0)),
            KeyOperation::Reveal => self.office.run(Reveal { id: key.into() }),
            KeyOperation::Delete => self.office.run(DeleteKey { id: key.into(), if_version: None }),
        }
    }

    fn disable_project(&self, disabled: bool) {
        let edit = projects::EditProject {
            id: self.project.clone(),
            if_version: None,
            name: None,
            disabled: Some(disabled),
            allowlist: AllowlistEdit::default(),
            key_defaults: None,
        };
        self.office.run(edit).unwrap();
    }
}

fn edit(key: &str) -> EditKey {
    EditKey { edge: None, ..EditKey::revoke(key.into()) }
}

fn rotate(key: &str, overlap_ms: u64) -> Rotate {
    Rotate { id: key.into(), if_version: None, overlap_ms, expires_at_ms: None }
}

/// The resulting state, or a word of the error message, for each edge in turn.
type Row = (&'static str, [Result<&'static str, &'static str>; 7]);

const EDGES: [KeyOperation; 7] = [
    KeyOperation::Enable,
    KeyOperation::Disable,
    KeyOperation::Revoke,
    KeyOperation::Edit,
    KeyOperation::Rotate,
    KeyOperation::Reveal,
    KeyOperation::Delete,
];

#[rustfmt::skip]
const TABLE: [Row; 4] = [
    ("active", [
        Ok("active"), Ok("disabled"), Ok("revoked"), Ok("active"), Ok("expired"), Ok("active"),
        Err("Revoke it first"),
    ]),
    ("expired", [
        Err("later expires_at"), Ok("disabled"), Ok("revoked"), Ok("expired"), Err("later expires_at"),
        Ok("expired"), Err("Revoke it first"),
    ]),
    ("disabled", [
        Ok("active"), Ok("disabled"), Ok("revoked"), Ok("disabled"), Err("Enable it first"), Ok("disabled"),
        Err("Revoke it first"),
    ]),
    ("revoked", [
        Err("permanently"), Err("permanently"), Ok("revoked"), Err("permanently"), Err("permanently"), Err("erased"), Ok("gone"),
    ]),
];

#[test]
fn every_key_operation_in_every_key_state_has_its_result() {
    for (state, wanted) in TABLE {
        for (edge, want) in EDGES.into_iter().zip(wanted) {
            let keyring = Keyring::open();
            let key = keyring.key_in(state);
            let before = keyring.stored(&key);
            let outcome = keyring.follow(&key, edge);
            let after = keyring.stored(&key);
            match want {
                Ok(want) => {
                    outcome.unwrap_or_else(|no| panic!("{state}, {edge:?}: {no:?}"));
                    let after = after.map_or_else(|| json!("gone"), |after| after["state"].clone());
                    assert_eq!(after, want, "{state}, {edge:?}");
                }
                Err(advice) => {
                    let (kind, message) = outcome.expect_err(&format!("{state}, {edge:?}"));
                    assert_eq!(kind, ErrorKind::Conflict, "{state}, {edge:?}");
                    assert!(message.contains(advice), "{state}, {edge:?}: {message}");
                    assert_eq!(after, before, "{state}, {edge:?}: nothing has changed");
                }
            }
        }
    }
}

#[test]
fn a_key_is_shown_once_and_only_its_hash_and_a_sealed_copy_are_kept() {
    let keyring = Keyring::open();
    let issued = keyring.issue();
    let plain = issued["key"].as_str().unwrap();
    assert!(is_well_formed(plain), "{plain}");
    assert_eq!(issued["prefix"], plain[..12]);
    let (hash, sealed): ([u8; 32], Vec<u8>) = keyring
        .office
        .db
        .row("SELECT hash, sealed FROM keys", (), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let hasher = KeyHasher::new(&keyring.office.keys.key_hash_key);
    assert_eq!(hash, hasher.hash(plain.as_bytes()).0);
    assert!(!sealed.windows(8).any(|part| part == &plain.as_bytes()[12..20]));
    let details: Vec<String> =
        keyring.office.db.rows("SELECT detail FROM audit", (), |row| row.get(0)).unwrap();
    assert!(details.iter().all(|detail| !detail.contains(&plain[..16])), "{details:?}");
    assert_eq!(keyring.follow(&id(&issued), KeyOperation::Reveal).unwrap()["key"], plain);
    assert_ne!(keyring.issue()["key"], plain);
}

#[test]
fn a_key_is_revealed_to_administrators_and_its_human_with_an_audit_row() {
    let keyring = Keyring::open();
    let key = id(&keyring.issue());
    let eve = keyring.office.principal("Eve");
    let human = |id: &str| Who::Human(PrincipalId::new(id));
    for (who, name, want) in [
        (Who::admin(), "admin", None),
        (human(&keyring.ada), keyring.ada.as_str(), None),
        (human(&eve), &eve, Some(ErrorKind::Forbidden)),
        (Who::Unknown, "unknown", Some(ErrorKind::Forbidden)),
    ] {
        let outcome = keyring.office.run_as(who, Reveal { id: key.clone() });
        assert_eq!(outcome.err().map(|(kind, _)| kind), want, "{name}");
        let outcome = if want.is_none() { "done" } else { "refused" };
        assert_eq!(keyring.office.audit(1), [[name, "key.reveal", key.as_str(), outcome].map(str::to_owned)]);
    }
    keyring.office.run(Reveal { id: "key_none".into() }).unwrap_err();
    assert_eq!(keyring.office.audit(1)[0][2..], ["key_none", "refused"]);
    keyring.office.db.execute("UPDATE keys SET sealed = :sealed", [&[1_u8]]).unwrap();
    let broken = keyring.follow(&key, KeyOperation::Reveal).unwrap_err();
    assert_eq!(broken.0, ErrorKind::Internal);
    assert_eq!(keyring.office.audit(1)[0][1..], ["key.reveal", key.as_str(), "refused"]);
}

/// The key may have become another human's after the admin API has admitted the request.
#[test]
fn no_human_gets_a_key_that_acts_as_another() {
    let keyring = Keyring::open();
    let key = id(&keyring.issue());
    let eve = keyring.office.principal("Eve");
    keyring.office.member(&keyring.project, &eve, MemberRole::Admin).unwrap();
    let who = || Who::Human(PrincipalId::new(eve.as_str()));
    let to_eve = || EditKey { acts_as: FieldChange::Set(eve.clone()), ..edit(&key) };
    let to_nobody = EditKey { acts_as: FieldChange::Clear, ..edit(&key) };
    for change in [to_eve(), to_nobody] {
        assert_eq!(keyring.office.run_as(who(), change).unwrap_err().0, ErrorKind::Forbidden);
    }
    let mint = || keyring.office.run_as(who(), keyring.new_key());
    let rotate = || keyring.office.run_as(who(), rotate(&key, 0));
    assert_eq!(
        (mint().unwrap_err().0, rotate().unwrap_err().0),
        (ErrorKind::Forbidden, ErrorKind::Forbidden)
    );
    keyring.office.run(to_eve()).unwrap();
    assert_eq!(keys::sealed(&keyring.office.db, &key).unwrap(), None);
    rotate().unwrap();
}

#[test]
fn a_key_that_is_not_recoverable_cannot_be_revealed() {
    let keyring = Keyring::open();
    let sealed = |key: &str| keys::sealed(&keyring.office.db, key).unwrap();
    let never = IssueKey { recoverable: false, ..keyring.new_key() };
    let never = id(&keyring.office.run(never).unwrap());
    let given_up = id(&keyring.issue());
    keyring.office.run(EditKey { recoverable: Some(false), ..edit(&given_up) }).unwrap();
    for key in [never, given_up] {
        assert_eq!(sealed(&key), None);
        assert_eq!(keyring.follow(&key, KeyOperation::Reveal).unwrap_err().0, ErrorKind::Conflict);
        let back = keyring.office.run(EditKey { recoverable: Some(true), ..edit(&key) });
        assert_eq!(back.unwrap_err().0, ErrorKind::Conflict);
    }
    let revoked = keyring.key_in("revoked");
    assert_eq!(sealed(&revoked), None, "nothing is kept of a revoked key");
}

#[test]
fn a_rotated_key_keeps_its_settings_and_the_old_one_expires() {
    let keyring = Keyring::open();
    let now = keyring.office.now_ms.get();
    let routes = FieldChange::Set(vec![shared::operation::Operation::Messages]);
    let create = IssueKey {
        expires_at_ms: Some(now + 3 * DAY_MS),
        allowlist: AllowlistEdit { routes, ..AllowlistEdit::default() },
        ..keyring.new_key()
    };
    let old = keyring.office.run(create).unwrap();
    let new = keyring.office.run(rotate(&id(&old), DAY_MS)).unwrap();
    assert_ne!((&new["key"], &new["id"]), (&old["key"], &old["id"]));
    for field in ["name", "project", "acts_as", "routes", "models", "recoverable", "expires_at_ms"] {
        assert_eq!(new[field], old[field], "{field}");
    }
    assert_eq!(
        (&new["rotated_from"], &new["state"], &new["version"]),
        (&old["id"], &json!("active"), &json!(1))
    );
    assert_eq!(
        keyring.follow(&id(&new), KeyOperation::Reveal).unwrap()["key"],
        new["key"],
        "sealed at its own place"
    );
    let ended = keyring.stored(&id(&old)).unwrap();
    assert_eq!((&ended["expires_at_ms"], &ended["state"]), (&json!(now + DAY_MS), &json!("active")));
    keyring.office.now_ms.set(now + DAY_MS);
    assert_eq!(keyring.stored(&id(&old)).unwrap()["state"], "expired");
}

#[test]
fn rotation_never_lengthens_the_old_key_and_a_key_is_rotated_once() {
    let keyring = Keyring::open();
    let now = keyring.office.now_ms.get();
    let create = IssueKey { expires_at_ms: Some(now + 1_000), ..keyring.new_key() };
    let old = id(&keyring.office.run(create).unwrap());
    let later = Rotate { expires_at_ms: Some(now + 9 * DAY_MS), ..rotate(&old, DAY_MS) };
    let new = keyring.office.run(later).unwrap();
    assert_eq!(new["expires_at_ms"], now + 9 * DAY_MS);
    assert_eq!(keyring.stored(&old).unwrap()["expires_at_ms"], now + 1_000);
    let (kind, message) = keyring.office.run(rotate(&old, 0)).unwrap_err();
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(message.contains(&id(&new)), "{message}");
    keyring.set(&id(&new), KeyOperation::Revoke).unwrap();
    keyring.office.run(rotate(&old, 0)).expect("the other one is revoked");
}

#[test]
fn a_key_acts_as_an_enabled_member_of_its_project() {
    let keyring = Keyring::open();
    let (eve, office) = (keyring.office.principal("Eve"), &keyring.office);
    let acts_as = |who: &str| office.run(IssueKey { acts_as: Some(who.into()), ..keyring.new_key() });
    for who in ["prn_none", &eve] {
        let (kind, message) = acts_as(who).unwrap_err();
        assert_eq!(kind, ErrorKind::InvalidRequest);
        assert!(message.contains(if who == eve { "PUT projects/" } else { "no principal" }), "{message}");
    }
    office.member(&keyring.project, &eve, MemberRole::Viewer).unwrap();
    let key = id(&acts_as(&eve).unwrap());

    let remove = || {
        office.run(members::RemoveMember {
            project: keyring.project.clone(),
            principal: eve.clone(),
            owners: members::OwnerChanges::Permitted,
        })
    };
    let forget = || office.run(principals::DeletePrincipal { id: eve.clone(), if_version: None });
    assert_eq!(
        (remove().unwrap_err().0, forget().unwrap_err().0),
        (ErrorKind::Conflict, ErrorKind::Conflict)
    );
    office.run(EditKey { acts_as: FieldChange::Set(keyring.ada.clone()), ..edit(&key) }).unwrap();
    office.run(EditKey { acts_as: FieldChange::Set(eve.clone()), ..edit(&key) }).unwrap();
    keyring.set(&key, KeyOperation::Revoke).unwrap();
    remove().unwrap();
    forget().unwrap();
    assert_eq!(keyring.stored(&key).unwrap()["acts_as"], Value::Null, "the revoked key outlives its human");
}

#[test]
fn a_project_can_be_deleted_only_if_all_its_keys_are_revoked() {
    let keyring = Keyring::open();
    let office = &keyring.office;
    let (old, delete) =
        (id(&keyring.issue()), projects::DeleteProject { id: keyring.project.clone(), if_version: None });
    let new = id(&office.run(rotate(&old, 0)).unwrap());
    let again = || projects::DeleteProject { id: keyring.project.clone(), if_version: None };
    assert_eq!(office.run(delete).unwrap_err().0, ErrorKind::Conflict, "an expired key counts too");
    for key in [&old, &new] {
        keyring.set(key, KeyOperation::Revoke).unwrap();
    }
    keyring.follow(&old, KeyOperation::Delete).expect("although the new one was made from it");
    office.run(again()).unwrap();
    assert_eq!(keyring.stored(&new), None);
    assert_eq!(office.run(keyring.new_key()).unwrap_err().0, ErrorKind::InvalidRequest);
}

#[test]
fn no_key_is_issued_for_a_disabled_project_or_human() {
    let keyring = Keyring::open();
    let office = &keyring.office;
    let key = id(&keyring.issue());
    let human = |disabled| {
        let (name, email) = (None, FieldChange::Keep);
        let edit = principals::EditPrincipal {
            sso_subject: FieldChange::Keep,
            id: keyring.ada.clone(),
            if_version: None,
            name,
            email,
            disabled: Some(disabled),
        };
        office.run(edit).unwrap()
    };
    human(true);
    assert_eq!(office.run(keyring.new_key()).unwrap_err().0, ErrorKind::InvalidRequest);
    assert_eq!(office.run(rotate(&key, 0)).unwrap_err().0, ErrorKind::InvalidRequest);
    keyring.set(&key, KeyOperation::Disable).expect("what takes away is always possible");
    keyring.set(&key, KeyOperation::Enable).unwrap();
    human(false);
    keyring.disable_project(true);
    assert_eq!(office.run(keyring.new_key()).unwrap_err().0, ErrorKind::Conflict);
    assert_eq!(office.run(rotate(&key, 0)).unwrap_err().0, ErrorKind::Conflict);
    keyring.disable_project(false);
    office.run(rotate(&key, 0)).unwrap();
}

#[test]
fn lists_of_keys_are_filtered_by_project_human_and_state() {
    let keyring = Keyring::open();
    let other = keyring.office.project("red");
    let elsewhere =
        keyring.office.run(IssueKey { project: other.clone(), acts_as: None, ..keyring.new_key() }).unwrap();
    let states = ["active", "disabled", "revoked", "expired"].map(|state| (state, keyring.key_in(state)));
    let ids = |filter: KeyFilter| -> Vec<String> {
        let (db, now) = (&keyring.office.db, keyring.office.now_ms.get());
        let mut ids = Vec::new();
        keys::each(db, now, &filter, ("", 100), |key| {
            ids.push(key.id);
            Ok(())
        })
        .unwrap();
        ids
    };
    let project = Some(keyring.project.clone());
    for (name, key) in &states {
        let state = KeyState::NAMES.iter().find(|(known, _)| known == name).map(|(_, state)| *state);
        let filter = KeyFilter { project: project.clone(), state, ..KeyFilter::default() };
        assert_eq!(ids(filter), std::slice::from_ref(key), "{name}");
    }
    assert_eq!(ids(KeyFilter { project: Some(other), ..KeyFilter::default() }), [id(&elsewhere)]);
    assert_eq!(ids(KeyFilter { acts_as: Some(keyring.ada.clone()), ..KeyFilter::default() }).len(), 4);
    assert_eq!(ids(KeyFilter { state: Some(KeyState::Active), ..KeyFilter::default() }).len(), 2);
    assert_eq!(ids(KeyFilter::default()).len(), 5);
}
