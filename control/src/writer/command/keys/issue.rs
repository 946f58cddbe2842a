//! Issues keys.

use std::collections::BTreeMap;

use serde_json::json;
use shared::access::Allowlist;
use shared::key_format::{key_of, shown_part};
use shared::key_hash::KeyHasher;
use shared::secret::Secret;

use super::issued::{Issued, PlainKey};
use super::shown::ShownKey;
use super::{refuse_others, replay};
use crate::common::change::AllowlistEdit;
use crate::common::vault::random;
use crate::db::audit::AuditEntry;
use crate::db::engine::DbResult;
use crate::db::ids::new_id;
use crate::db::keys::{self, KeyState, StoredKey};
use crate::db::names::Labels;
use crate::db::projects::{self, StoredProject};
use crate::db::quotas::KeyLimit;
use crate::db::{members, principals};
use crate::routing::publish::Touched;
use crate::writer::command::quotas::{self, QuotaStanding};
use crate::writer::command::{Command, CommandRefusal, Done, Write};

/// Issues a key.
#[derive(Debug)]
pub(crate) struct IssueKey {
    pub(crate) name: String,
    pub(crate) project: String,
    pub(crate) acts_as: Option<String>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) allowlist: AllowlistEdit,
    /// The default tags of its requests.
    pub(crate) tags: BTreeMap<String, String>,
    /// True to store a sealed copy of the key, which can be revealed later.
    pub(crate) recoverable: bool,
    /// The key's limits. Each overrides a default of its project that counts the same thing.
    pub(crate) limits: Vec<KeyLimit>,
}

impl Command for IssueKey {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let project = check_place(write, &self.project, self.acts_as.as_deref())?;
        quotas::check_key_limits(write, "limits", &self.limits)?;
        let mut limits = project.key_defaults;
        limits.retain(|default| !self.limits.iter().any(|own| own.counts_as(default)));
        limits.extend(self.limits.clone());
        let id = new_id("key", write.now_ms)?;
        let mut issued = issue(
            write,
            StoredKey {
                family: id.clone(),
                id,
                name: self.name.clone(),
                project: self.project.clone(),
                acts_as: self.acts_as.clone(),
                prefix: String::new(),
                state: KeyState::Active,
                expires_at_ms: self.expires_at_ms,
                allowlist: self.allowlist.of(Allowlist::default()),
                tags: self.tags.clone(),
                recoverable: self.recoverable,
                last_used_hour_ms: None,
                rotated_from: None,
                version: 1,
                created_at_ms: write.now_ms,
                updated_at_ms: write.now_ms,
            },
        )?;
        let key = &issued.shown.key;
        let rows = quotas::create_of_key(write, &key.family, limits)?;
        let audit = AuditEntry::done("key.create", "key", &key.id).after(json!({"key": key, "quotas": rows}));
        let touched = Touched::new_key(&key.id);
        let mut labels = Labels::default();
        let standing = |row| QuotaStanding::of(write.db, &mut labels, write.counters, row);
        issued.limits = rows.into_iter().map(standing).collect::<DbResult<_>>()?;
        Done::new(&issued, audit, touched)?.version(1).kept(&replay::kept(&issued))
    }

    fn replayed(
        &self,
        write: &Write<'_>,
        kept: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<AuditEntry>), CommandRefusal> {
        replay::replayed(write, kept)
    }
}

/// Stores a key with the attributes of `shown`, a new secret, and the secret's prefix.
pub(super) fn issue(write: &Write<'_>, shown: StoredKey) -> Result<Issued, CommandRefusal> {
    refuse_others(write, shown.acts_as.as_deref())?;
    let key = key_of(&Secret::new(random()?));
    let shown = StoredKey { prefix: shown_part(&key), ..shown };
    let hash = KeyHasher::new(&write.keys.key_hash_key).hash(key.expose().as_bytes());
    let seal = || write.keys.seal(&StoredKey::place(&shown.id), key.expose().as_bytes());
    let sealed = shown.recoverable.then(seal).transpose()?;
    keys::insert(write.db, &shown, hash, sealed.as_deref())?;
    let shown = ShownKey::of(write.db, &mut Labels::default(), shown)?;
    Ok(Issued { shown, key: PlainKey(key), limits: Vec::new() })
}

/// Returns the project of a key that acts as `acts_as`. Refuses a key that would grant no access.
pub(super) fn check_place(
    write: &Write<'_>,
    project: &str,
    acts_as: Option<&str>,
) -> Result<StoredProject, CommandRefusal> {
    let Some(found) = projects::find(write.db, project)? else {
        return Err(CommandRefusal::invalid("project", format!("There is no project '{project}'.")));
    };
    if found.disabled {
        return Err(CommandRefusal::conflict("The project is disabled. Enable it first."));
    }
    if let Some(principal) = acts_as {
        check_acts_as(write, project, principal)?;
    }
    Ok(found)
}

/// Checks that a key of `project` may act as `principal`.
pub(super) fn check_acts_as(write: &Write<'_>, project: &str, principal: &str) -> Result<(), CommandRefusal> {
    let invalid = |message| Err(CommandRefusal::invalid("acts_as", message));
    match principals::find(write.db, principal)? {
        None => invalid(format!("There is no principal '{principal}'.")),
        Some(human) if human.disabled => invalid("This principal is disabled. Enable it first.".to_owned()),
        Some(_) if members::find(write.db, project, principal)?.is_none() => invalid(format!(
            "This principal is not a member of project '{project}'. Add it first: PUT \
             projects/{project}/members/{principal}."
        )),
        Some(_) => Ok(()),
    }
}
