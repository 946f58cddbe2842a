//! The restriction of a live stream to the requests of a human's projects. Roles are read again for each frame, so that a
//! human who leaves a project sees nothing more of it.

use std::collections::HashSet;

use shared::id::KeyId;
use shared::snapshot::SnapshotReader;

use crate::admin::Call;
use crate::admin::authorize::standing;
use crate::admin::running::keys_in_scope;
use crate::db::readers::Readers;
use crate::usage::scope::UsageScope;

/// The requests of a human's projects.
#[derive(Debug)]
pub(super) struct OwnRequests {
    principal: String,
    readers: Readers,
    snapshot: SnapshotReader,
}

impl OwnRequests {
    /// Returns the restriction of the caller; `None` for an administrator.
    pub(super) fn of(call: &Call<'_>) -> Option<Self> {
        let principal = call.standing.human()?.to_owned();
        Some(Self { principal, readers: call.app.readers.clone(), snapshot: call.app.snapshot.clone() })
    }

    /// Returns the usable keys of the human's projects; `None` if the human is disabled or deleted.
    pub(super) async fn keys(&self) -> Option<HashSet<KeyId>> {
        let principal = self.principal.clone();
        let standing = self.readers.ask(move |db| standing(db, principal)).await.ok()?.ok()?;
        Some(keys_in_scope(&self.snapshot.load(), &UsageScope::of(standing.projects())))
    }
}
