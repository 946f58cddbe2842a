//! Commands on a separate database, executed as on the writer thread, and the rules of projects and memberships.

use std::cell::Cell;
use std::net::IpAddr;

use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::quota::Counters;
use shared::secret::Secret;

use super::{Command, CommandRefusal, Write, members, principals, projects};
use crate::common::actor::{Actor, Who};
use crate::common::change::{AllowlistEdit, FieldChange};
use crate::common::vault::VaultKeys;
use crate::db::audit;
use crate::db::engine::{Db, Row};
use crate::db::key_check::{make_keys, open_keys};
use crate::db::members::MemberRole;
use crate::db::testing::migrated;
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::config::{Environment, Routing};

/// A database and a fixed clock.
pub(super) struct Office {
    pub(super) db: Db,
    pub(super) keys: VaultKeys,
    pub(super) now_ms: Cell<u64>,
    file: Routing,
    environment: Environment,
}

/// The error of a refused command.
pub(super) type No = (ErrorKind, String);

impl Office {
    pub(super) fn open() -> Self {
        let db = migrated();
        let key = Secret::new([4; 32]);
        make_keys(&db, &key).unwrap();
        let keys = open_keys(&db, &key).unwrap();
        let (file, environment) = (Routing::default(), Environment::read([]));
        Self { db, keys, now_ms: Cell::new(1_795_000_000_000), file, environment }
    }

    /// Runs a command as an administrator and returns its output.
    pub(super) fn run(&self, command: impl Command) -> Result<Value, No> {
        self.run_as(Who::admin(), command)
    }

    /// Runs a command as `who` and returns its output. As in `execute`, a refusal rolls back its changes and is
    /// audited if it asks for it.
    #[expect(clippy::needless_pass_by_value, reason = "tests write commands in place")]
    pub(super) fn run_as(&self, who: Who, command: impl Command) -> Result<Value, No> {
        let actor = Actor { who, address: Some(IpAddr::from([127, 0, 0, 1])), request_id: None };
        let now_ms = self.now_ms.get();
        let Self { db, keys, file, environment, .. } = self;
        let catalog = &CatalogCache::default();
        let counters = &Counters::default();
        let write = Write { db, keys, file, environment, catalog, counters, actor: &actor, now_ms };
        let changes = self.db.change().unwrap();
        match command.apply(&write) {
            Ok(done) => {
                audit::append(&changes, &self.keys, &actor, now_ms, done.audit.as_ref().unwrap()).unwrap();
                changes.commit().unwrap();
                Ok(serde_json::from_slice(&done.body).unwrap_or_default())
            }
            Err(refusal) => {
                changes.rollback().unwrap();
                let CommandRefusal::Reported { kind, message, audit: entry, .. } = refusal else {
                    panic!("{refusal:?}")
                };
                if let Some(entry) = entry {
                    audit::append(&self.db, &self.keys, &actor, now_ms, &entry).unwrap();
                }
                Err((kind, message.into_owned()))
            }
        }
    }

    /// Returns the last `count` audit records: actor, action, object and outcome.
    pub(super) fn audit(&self, count: usize) -> Vec<[String; 4]> {
        let sql = "SELECT actor, action, object_id, outcome FROM audit ORDER BY id DESC LIMIT :rows";
        let mut statement = self.db.prepare(sql).unwrap();
        let row = |row: Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]);
        statement.rows([count], row).unwrap()
    }

    pub(super) fn principal(&self, name: &str) -> String {
        id(&self.run(principals::CreatePrincipal { name: name.into(), email: None }).unwrap())
    }

    pub(super) fn project(&self, name: &str) -> String {
        let create = projects::CreateProject {
            name: name.into(),
            allowlist: AllowlistEdit::default(),
            key_defaults: Vec::new(),
        };
        id(&self.run(create).unwrap())
    }

    pub(super) fn member(&self, project: &str, principal: &str, role: MemberRole) -> Result<Value, No> {
        self.run(members::PutMember {
            project: project.into(),
            principal: principal.into(),
            role,
            owners: members::OwnerChanges::Permitted,
        })
    }

    fn remove(&self, project: &str, principal: &str) -> Result<Value, No> {
        self.run(members::RemoveMember {
            project: project.into(),
            principal: principal.into(),
            owners: members::OwnerChanges::Permitted,
        })
    }

    fn forget(&self, principal: &str) -> Result<Value, No> {
        self.run(principals::DeletePrincipal { id: principal.into(), if_version: None })
    }
}

pub(super) fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

fn conflict(outcome: Result<Value, No>) -> String {
    let (kind, message) = outcome.unwrap_err();
    assert_eq!(kind, ErrorKind::Conflict, "{message}");
    message
}

#[test]
fn the_last_owner_of_a_project_cannot_be_removed() {
    let office = Office::open();
    let (project, other) = (office.project("blue"), office.project("red"));
    let (ada, bob) = (office.principal("Ada"), office.principal("Bob"));
    office.member(&project, &bob, MemberRole::Viewer).unwrap();
    office.member(&project, &ada, MemberRole::Owner).unwrap();
    office.member(&other, &bob, MemberRole::Owner).unwrap();

    assert!(conflict(office.remove(&project, &ada)).contains(&project));
    for role in [MemberRole::Admin, MemberRole::Member, MemberRole::Viewer] {
        conflict(office.member(&project, &ada, role));
    }
    conflict(office.forget(&ada));
    office.member(&project, &ada, MemberRole::Owner).expect("the same again");

    office.member(&project, &bob, MemberRole::Owner).unwrap();
    office.member(&project, &ada, MemberRole::Admin).expect("there is another one");
    assert!(conflict(office.forget(&bob)).contains("last owner"), "of both projects now");
    office.remove(&project, &ada).unwrap();
    office.forget(&ada).unwrap();
}

#[test]
fn a_membership_needs_project_and_principal_and_is_audited() {
    let office = Office::open();
    let (project, ada) = (office.project("blue"), office.principal("Ada"));
    for (project, principal) in [("prj_none", ada.as_str()), (&project, "prn_none")] {
        assert_eq!(office.member(project, principal, MemberRole::Member).unwrap_err().0, ErrorKind::NotFound);
    }
    assert_eq!(office.remove(&project, &ada).unwrap_err().0, ErrorKind::NotFound);
    let member = office.member(&project, &ada, MemberRole::Member).unwrap();
    assert_eq!((&member["role"], &member["principal"]), (&json!("member"), &json!(ada)));
    office.now_ms.set(office.now_ms.get() + 5);
    let admin = office.member(&project, &ada, MemberRole::Admin).unwrap();
    assert_eq!((&admin["role"], &admin["created_at_ms"]), (&json!("admin"), &member["created_at_ms"]));
    office.remove(&project, &ada).unwrap();
    let name = format!("{project}/{ada}");
    let record = |action: &str| ["admin".to_owned(), action.to_owned(), name.clone(), "done".to_owned()];
    assert_eq!(office.audit(3), ["member.remove", "member.put", "member.put"].map(record));
}

#[test]
fn two_projects_never_share_a_name() {
    let office = Office::open();
    let (blue, red) = (office.project("blue"), office.project("red"));
    let rename = |id: &str, name: &str| {
        office.run(projects::EditProject {
            id: id.into(),
            if_version: None,
            name: Some(name.into()),
            disabled: None,
            allowlist: AllowlistEdit::default(),
            key_defaults: None,
        })
    };
    assert!(conflict(rename(&red, "blue")).contains("blue"));
    rename(&red, "red").expect("its own");
    let create = projects::CreateProject {
        name: "blue".into(),
        allowlist: AllowlistEdit::default(),
        key_defaults: Vec::new(),
    };
    conflict(office.run(create));
    rename(&blue, "green").unwrap();
    rename(&red, "blue").unwrap();
}

#[test]
fn lists_of_a_project_are_kept_changed_and_cleared() {
    let office = Office::open();
    let models = |entries: &[&str]| FieldChange::Set(entries.iter().map(|entry| Box::from(*entry)).collect());
    let made = office
        .run(projects::CreateProject {
            name: "blue".into(),
            allowlist: AllowlistEdit { models: models(&["p/b", "p/a"]), ..AllowlistEdit::default() },
            key_defaults: Vec::new(),
        })
        .unwrap();
    assert_eq!(made["models"], json!(["p/a", "p/b"]));
    let edit = |allowlist: AllowlistEdit| {
        let edit = projects::EditProject {
            id: id(&made),
            if_version: None,
            name: None,
            disabled: None,
            allowlist,
            key_defaults: None,
        };
        office.run(edit).unwrap()
    };
    let edited = edit(AllowlistEdit { endpoints: models(&[]), ..AllowlistEdit::default() });
    assert_eq!((&edited["models"], &edited["endpoints"]), (&json!(["p/a", "p/b"]), &json!([])));
    let edited = edit(AllowlistEdit { models: FieldChange::Clear, ..AllowlistEdit::default() });
    assert_eq!(
        (&edited["models"], &edited["endpoints"], &edited["routes"]),
        (&json!(null), &json!([]), &json!(null))
    );
    assert_eq!(edited["version"], 3);
}
