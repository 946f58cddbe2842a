//! The names of keys, projects and humans by id. The names of deleted ones are taken from the audit, as long as it is
//! kept.

use std::collections::HashMap;

use records::{Record, RecordName};
use serde::{Deserialize, Serialize};
use shared::quota::Subject;

use super::quotas;
use super::record_id::NodeId;
use crate::db::engine::{Db, DbResult, Row};

/// A kind of object with an id and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NamedKind {
    Key,
    Project,
    Principal,
}

impl NamedKind {
    /// Returns the kind of a limit's subject; `None` if the subject is not named by an id.
    fn of(subject: Subject) -> Option<Self> {
        match subject {
            Subject::Key => Some(Self::Key),
            Subject::Project => Some(Self::Project),
            Subject::Principal => Some(Self::Principal),
            Subject::Provider | Subject::Gateway => None,
        }
    }
}

/// The name of an object, and for a human the email address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct NameLabel {
    pub(crate) name: Option<String>,
    pub(crate) email: Option<String>,
}

/// A cache of names, so that each is read once.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    known: HashMap<NamedKind, HashMap<String, NameLabel>>,
}

impl Labels {
    /// Returns the label of `id`; one without a name if nothing is known about it.
    pub(crate) fn find(&mut self, db: &Db, named: NamedKind, id: &str) -> DbResult<NameLabel> {
        let known = self.known.entry(named).or_default();
        if let Some(label) = known.get(id) {
            return Ok(label.clone());
        }
        let label = read(db, named, id)?;
        if known.len() >= LABELS_MAX {
            known.clear();
        }
        known.insert(id.to_owned(), label.clone());
        Ok(label)
    }
}

/// Returns the name of what an alert is about: of a key, project or node, of the subject of a limit, else the object itself.
pub(crate) fn object_name(db: &Db, labels: &mut Labels, object: &str) -> DbResult<String> {
    if let Some(number) = object.strip_prefix(NODE_OBJECT).and_then(|number| number.parse::<u32>().ok()) {
        let name: Option<String> = db.optional_row(NODE, [number], |row| row.get("name"))?;
        return Ok(name.unwrap_or_else(|| object.to_owned()));
    }
    let subject = quotas::find(db, object)?.map(|row| row.counted.subject);
    let (named, id) = match &subject {
        Some(subject) => (NamedKind::of(subject.kind), subject.id.as_str()),
        None if object.starts_with("key_") => (Some(NamedKind::Key), object),
        None if object.starts_with("prj_") => (Some(NamedKind::Project), object),
        None => (None, object),
    };
    let name = match named {
        Some(named) => labels.find(db, named, id)?.name,
        None => None,
    };
    let unnamed = if id.is_empty() { "the gateway" } else { id };
    Ok(name.unwrap_or_else(|| unnamed.to_owned()))
}

/// Returns the object of an alert about a node.
pub(crate) fn node_object(node: NodeId) -> String {
    format!("{NODE_OBJECT}{}", node.number())
}

/// The names that belong to the ids of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OwnerNames {
    /// Null if it is unknown.
    pub(crate) key_name: Option<String>,
    /// Null if it is unknown, or there is no project.
    pub(crate) project_name: Option<String>,
    /// Null if it is unknown, or the key acts as no human.
    pub(crate) principal_name: Option<String>,
    /// Null if it is unknown, or the key acts as no human.
    pub(crate) principal_email: Option<String>,
}

impl OwnerNames {
    /// Returns the names of a key, a project and a human.
    pub(crate) fn of(db: &Db, labels: &mut Labels, ids: [Option<&str>; 3]) -> DbResult<Self> {
        let mut find = |named, id: Option<&str>| match id.filter(|id| !id.is_empty()) {
            Some(id) => labels.find(db, named, id),
            None => Ok(NameLabel::default()),
        };
        let [key, project, principal] = ids;
        let principal = find(NamedKind::Principal, principal)?;
        Ok(Self {
            key_name: find(NamedKind::Key, key)?.name,
            project_name: find(NamedKind::Project, project)?.name,
            principal_name: principal.name,
            principal_email: principal.email,
        })
    }

    /// Returns the names of the key, project and human of an exchange.
    pub(crate) fn of_record(db: &Db, labels: &mut Labels, record: &Record<'_>) -> DbResult<Self> {
        Self::of(
            db,
            labels,
            [RecordName::Key, RecordName::Project, RecordName::Principal].map(|name| Some(record.name(name))),
        )
    }
}

fn read(db: &Db, named: NamedKind, id: &str) -> DbResult<NameLabel> {
    if let Some(name) = id.strip_prefix(ADMINISTRATOR).filter(|_| named == NamedKind::Key) {
        return Ok(NameLabel { name: Some(name.to_owned()), email: None });
    }
    let (sql, kind) = match named {
        NamedKind::Key => (KEY, "key"),
        NamedKind::Project => (PROJECT, "project"),
        NamedKind::Principal => (PRINCIPAL, "principal"),
    };
    let label = |row: Row<'_>| Ok(NameLabel { name: row.get("name")?, email: row.get("email")? });
    if let Some(found) = db.optional_row(sql, [id], label)? {
        return Ok(found);
    }
    of_deleted(db, kind, id)
}

/// Returns the last label of an object that its changes in the audit show.
fn of_deleted(db: &Db, kind: &str, id: &str) -> DbResult<NameLabel> {
    let mut statement = db.prepare(CHANGES)?;
    let mut changes = statement.query([kind, id])?;
    while let Some(row) = changes.next()? {
        let detail = row.get::<Option<&str>>("detail")?.unwrap_or_default();
        let Ok(Change { before, after }) = serde_json::from_str(detail) else { continue };
        let (after, before) = (after.unwrap_or_default(), before.unwrap_or_default());
        if let Some(name) = after.name.or(before.name) {
            return Ok(NameLabel { name: Some(name), email: after.email.or(before.email) });
        }
    }
    Ok(NameLabel::default())
}

/// The labels in the detail of an audit record.
#[derive(Debug, Deserialize)]
struct Change {
    before: Option<NameLabel>,
    after: Option<NameLabel>,
}

/// The prefix of an administrator's name in the id of their key.
const ADMINISTRATOR: &str = "admin:";
/// Limit on the cached labels of each kind.
const LABELS_MAX: usize = 20_000;

/// The prefix of the object of an alert about a node.
const NODE_OBJECT: &str = "node_";

const NODE: &str = "SELECT name FROM nodes WHERE node = :node";
const KEY: &str = "SELECT name, NULL AS email FROM keys WHERE id = :id";
const PROJECT: &str = "SELECT name, NULL AS email FROM projects WHERE id = :id";
const PRINCIPAL: &str = "SELECT name, email FROM principals WHERE id = :id";
const CHANGES: &str = "SELECT detail FROM audit \
     WHERE object_kind = :kind AND object_id = :id AND outcome = 'done' ORDER BY id DESC";
