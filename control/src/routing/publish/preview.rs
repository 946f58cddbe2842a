//! The snapshot that a change would lead to, read before the change is rolled back. It has no effect on the published
//! snapshot, on counters, circuits, access tokens or the catalog.

use std::collections::HashMap;
use std::sync::Arc;

use shared::access::Access;
use shared::clock::unix_ms;
use shared::key_hash::KeyHash;
use shared::key_table::AccessTable;
use shared::quota::Quota;

use super::access::{AccessReader, openings_of};
use super::quotas::QuotasBySubject;
use super::routes::Routes;
use super::touched::TouchedAccess;
use crate::common::bounds::PREVIEWED_KEYS;
use crate::db::engine::{Db, DbResult};
use crate::db::keys::{self, OpeningKey};
use crate::db::quotas::Rules;

/// Routing and access before and after a change.
#[derive(Debug)]
pub(crate) struct ChangePreview {
    pub(super) before: Routes,
    pub(super) after: Routes,
    /// All callers before the change.
    pub(super) callers: Arc<AccessTable>,
    /// The keys that the change affects directly.
    pub(super) keys: Vec<PreviewedKey>,
    /// The limits of the gateway and of providers after the change, if they may have changed.
    pub(super) everywhere: Option<Vec<Arc<Quota>>>,
    /// True if all directly affected keys have been read.
    pub(super) is_complete: bool,
}

/// A key after the change.
#[derive(Debug)]
pub(super) struct PreviewedKey {
    pub(super) id: String,
    pub(super) hash: KeyHash,
    /// `None` if the key gives no access.
    pub(super) after: Option<Access>,
}

/// The part of a preview that concerns access.
#[derive(Debug)]
pub(super) struct AccessPreview {
    pub(super) keys: Vec<PreviewedKey>,
    pub(super) everywhere: Option<Vec<Arc<Quota>>>,
    pub(super) is_complete: bool,
}

impl AccessPreview {
    /// Reads the keys that a change touched, at most [`PREVIEWED_KEYS`], because the writer thread waits for this.
    pub(super) fn read(touched: &TouchedAccess, db: &Db) -> DbResult<Self> {
        let now_ms = unix_ms();
        let (mut openings, mut everywhere) = (Vec::new(), None);
        match touched {
            TouchedAccess::Nothing => {}
            TouchedAccess::Some(changed) => {
                for id in changed.keys.iter().take(PREVIEWED_KEYS.max() + 1) {
                    openings.extend(keys::opening(db, id, now_ms)?);
                }
                for group in &changed.groups {
                    openings.extend(openings_of(db, group, now_ms, PREVIEWED_KEYS.max() + 1)?);
                }
            }
            // Only limits on the gateway and on providers touch all keys.
            TouchedAccess::All => {
                let book = QuotasBySubject::uncounted(Rules::load_of(db, &[], [])?);
                everywhere = Some(book.everywhere().to_vec());
            }
        }
        let is_complete = PREVIEWED_KEYS.cut(&mut openings) == 0;
        Ok(Self { keys: previewed(openings, db)?, everywhere, is_complete })
    }
}

fn previewed(openings: Vec<OpeningKey>, db: &Db) -> DbResult<Vec<PreviewedKey>> {
    let book = QuotasBySubject::uncounted(Rules::load_of(db, &openings, [])?);
    let mut reader = AccessReader { db, book: &book, projects: HashMap::new() };
    let previewed = |key: OpeningKey| {
        Ok(PreviewedKey { id: key.id.clone(), hash: key.hash, after: reader.access_of(key)? })
    };
    openings.into_iter().map(previewed).collect()
}
