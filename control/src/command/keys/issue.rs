//! Making keys.

use serde::{Serialize, Serializer};
use serde_json::json;
use shared::access::Allowlist;
use shared::key_format::{key_of, shown_part};
use shared::key_hash::KeyHasher;
use shared::secret::Secret;

use super::replay;
use crate::command::allowlist::AllowlistEdit;
use crate::command::{Command, Done, Refusal, Write, quotas};
use crate::publish::Touched;
use crate::store::audit::Entry;
use crate::store::ids::new_id;
use crate::store::keys::{self, Key, KeyState};
use crate::store::projects::{self, Project};
use crate::store::quotas::{KeyLimit, Row};
use crate::store::{members, principals};
use crate::vault::random;

/// Issues a key.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) name: String,
    pub(crate) project: String,
    pub(crate) acts_as: Option<String>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) allowlist: AllowlistEdit,
    /// Whether a sealed copy is kept, to be revealed later.
    pub(crate) recoverable: bool,
    /// Limits of its own, which take the place of its project's defaults that count the same.
    pub(crate) limits: Vec<KeyLimit>,
}

/// A new key, and the only place where it stands in plain.
#[derive(Debug, Serialize)]
pub(crate) struct Issued {
    #[serde(flatten)]
    pub(crate) shown: Key,
    pub(crate) key: Plain,
    /// The limits that were made with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) limits: Vec<Row>,
}

/// A key in plain, for its owner to read.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) Secret<String>);

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl Command for Create {
    type Output = Issued;

    fn apply(self, write: &Write<'_>) -> Result<Done<Issued>, Refusal> {
        let project = check_place(write, &self.project, self.acts_as.as_deref())?;
        quotas::check_key_limits(write, "limits", &self.limits)?;
        let mut limits = project.key_defaults;
        limits.retain(|default| !self.limits.iter().any(|own| own.counts_as(default)));
        limits.extend(self.limits);
        let id = new_id("key", write.now_ms)?;
        let mut issued = issue(
            write,
            Key {
                family: id.clone(),
                id,
                name: self.name,
                project: self.project,
                acts_as: self.acts_as,
                prefix: String::new(),
                state: KeyState::Active,
                expires_at_ms: self.expires_at_ms,
                allowlist: self.allowlist.of(Allowlist::default()),
                recoverable: self.recoverable,
                last_used_hour_ms: None,
                rotated_from: None,
                version: 1,
                created_at_ms: write.now_ms,
                updated_at_ms: write.now_ms,
            },
        )?;
        issued.limits = quotas::create_of_key(write, &issued.shown.family, limits)?;
        let audit = Entry::done("key.create", "key", &issued.shown.id)
            .after(json!({"key": issued.shown, "quotas": issued.limits}));
        let touched = Touched::keys([issued.shown.id.clone()]);
        Ok(Done { version: Some(1), output: issued, audit, touched })
    }

    fn kept(issued: &Issued) -> serde_json::Result<Vec<u8>> {
        replay::kept(issued)
    }

    fn replayed(write: &Write<'_>, kept: Vec<u8>) -> Result<(Vec<u8>, Option<Entry>), Refusal> {
        replay::replayed(write, kept)
    }
}

/// Stores a key as `shown`, with a new secret and the beginning of it.
pub(super) fn issue(write: &Write<'_>, shown: Key) -> Result<Issued, Refusal> {
    let key = key_of(&Secret::new(random()?));
    let shown = Key { prefix: shown_part(&key), ..shown };
    let hash = KeyHasher::new(&write.keys.key_hash_key).hash(key.expose().as_bytes());
    let seal = || write.keys.seal(&Key::place(&shown.id), key.expose().as_bytes());
    let sealed = shown.recoverable.then(seal).transpose()?;
    keys::insert(write.db, &shown, hash, sealed.as_deref())?;
    Ok(Issued { shown, key: Plain(key), limits: Vec::new() })
}

/// Returns the project of a key that acts as `acts_as`; refuses a key that would open nothing.
pub(super) fn check_place(
    write: &Write<'_>,
    project: &str,
    acts_as: Option<&str>,
) -> Result<Project, Refusal> {
    let Some(found) = projects::find(write.db, project)? else {
        return Err(Refusal::invalid("project", format!("There is no project '{project}'.")));
    };
    if found.disabled {
        return Err(Refusal::conflict("The project is disabled. Enable it first."));
    }
    if let Some(principal) = acts_as {
        check_acts_as(write, project, principal)?;
    }
    Ok(found)
}

/// Whether a key of `project` may stand for `principal`.
pub(super) fn check_acts_as(write: &Write<'_>, project: &str, principal: &str) -> Result<(), Refusal> {
    let told = |message| Err(Refusal::invalid("acts_as", message));
    match principals::find(write.db, principal)? {
        None => told(format!("There is no principal '{principal}'.")),
        Some(human) if human.disabled => told("This human is disabled. Enable them first.".to_owned()),
        Some(_) if members::find(write.db, project, principal)?.is_none() => told(format!(
            "This human is no member of project '{project}'. Make them one first: PUT \
             projects/{project}/members/{principal}."
        )),
        Some(_) => Ok(()),
    }
}
