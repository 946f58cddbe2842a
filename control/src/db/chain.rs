//! The hash chain of the audit. Each row contains a MAC over itself and the MAC of the previous row, ids have no gaps,
//! and both ends of the chain are sealed in the vault. Verification therefore detects a row that was changed, removed
//! or inserted, also at the ends.
//!
//! It cannot detect that the whole database was replaced by an older copy of itself, nor any change by a holder of the
//! encryption key.

use std::fmt;

use ring::hmac;

use super::vault as rows;
use crate::common::vault::{SealPlace, VaultKeys};
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult, Row, Value};

/// The position of a row in the chain. [`ChainLink::START`] precedes the first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainLink {
    pub(super) id: i64,
    pub(super) mac: [u8; MAC_BYTES],
}

impl ChainLink {
    const START: Self = Self { id: 0, mac: [0; MAC_BYTES] };
}

/// Both ends: the row before the first one that is kept, and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) before_first: ChainLink,
    pub(super) last: ChainLink,
}

/// Seals the ends of an empty chain, in a new database or one from before the audit existed.
pub(crate) fn begin(tx: &Db, keys: &VaultKeys, now_ms: u64) -> DbResult<()> {
    if rows::sealed(tx, ENDS)?.is_some() {
        return Ok(());
    }
    let sealed = seal(keys, Ends { before_first: ChainLink::START, last: ChainLink::START })?;
    rows::insert(tx, ENDS, &sealed, now_ms)
}

/// Returns the sealed ends; `None` if they were changed or removed.
pub(super) fn ends(db: &Db, keys: &VaultKeys) -> DbResult<Option<Ends>> {
    let Some(sealed) = rows::sealed(db, ENDS)? else { return Ok(None) };
    let Ok(plain) = keys.open(&place(), &sealed) else { return Ok(None) };
    let (links, rest) = plain.expose().as_chunks::<LINK_BYTES>();
    Ok(match (links, rest) {
        ([first, last], []) => Some(Ends { before_first: link(first), last: link(last) }),
        _ => None,
    })
}

pub(super) fn set_ends(tx: &Db, keys: &VaultKeys, ends: Ends) -> DbResult<()> {
    rows::replace(tx, ENDS, &seal(keys, ends)?)
}

/// Returns the newest row, unverified.
pub(super) fn newest(db: &Db) -> DbResult<ChainLink> {
    let link = db.optional_row(NEWEST, (), |row| {
        let mac: Vec<u8> = row.get("mac")?;
        Ok(ChainLink { id: row.get("id")?, mac: mac.try_into().unwrap_or([0; MAC_BYTES]) })
    });
    Ok(link?.unwrap_or(ChainLink::START))
}

fn seal(keys: &VaultKeys, ends: Ends) -> DbResult<Vec<u8>> {
    let mut plain = Vec::with_capacity(2 * LINK_BYTES);
    for link in [ends.before_first, ends.last] {
        plain.extend_from_slice(&link.id.to_be_bytes());
        plain.extend_from_slice(&link.mac);
    }
    keys.seal(&place(), &plain).map_err(DbError::bad_value)
}

fn link(bytes: &[u8; LINK_BYTES]) -> ChainLink {
    let mut link = ChainLink::START;
    let (id, mac) = bytes.split_at(ID_BYTES);
    if let Ok(id) = id.try_into() {
        link.id = i64::from_be_bytes(id);
    }
    if let Ok(mac) = mac.try_into() {
        link.mac = mac;
    }
    link
}

fn place() -> SealPlace<'static> {
    SealPlace { table: "vault", column: "sealed", id: ENDS }
}

/// The key that signs rows.
#[derive(Debug)]
pub(super) struct ChainSigner(hmac::Key);

impl ChainSigner {
    pub(super) fn new(keys: &VaultKeys) -> Self {
        Self(keys.derived("audit chain"))
    }

    /// Returns the MAC of a row, whose `texts` are in the order of [`TEXTS`]. Every field is prefixed with its length,
    /// so that two different rows never encode to the same bytes.
    pub(super) fn sign(
        &self,
        before: &ChainLink,
        id: i64,
        at_ms: i64,
        texts: &[Option<&[u8]>; TEXTS.len()],
    ) -> [u8; MAC_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        let mut field = |bytes: &[u8]| {
            context.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            context.update(bytes);
        };
        field(&before.mac);
        field(&id.to_be_bytes());
        field(&at_ms.to_be_bytes());
        for text in texts {
            field(&[u8::from(text.is_some())]);
            field(text.unwrap_or_default());
        }
        context.sign().as_ref().try_into().unwrap_or([0; MAC_BYTES])
    }
}

/// The result of verifying an intact chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHolds {
    /// The number of rows.
    pub rows: i64,
    /// The id of the last row; 0 if there never was one.
    pub last_id: i64,
}

/// The first fault found in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainBroken {
    /// The row with this id was changed.
    Changed(i64),
    /// The rows from the first to the second id are missing.
    Missing(i64, i64),
    /// The row with this id was inserted.
    PutIn(i64),
    /// The sealed ends of the chain are missing or were changed.
    Ends,
}

impl ChainBroken {
    /// Returns the id of the first row that was changed, removed or inserted.
    pub(crate) fn first_id(self) -> Option<i64> {
        match self {
            Self::Changed(id) | Self::Missing(id, _) | Self::PutIn(id) => Some(id),
            Self::Ends => None,
        }
    }
}

impl fmt::Display for ChainBroken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(id) => write!(f, "row {id} was changed"),
            Self::Missing(first, last) if first == last => write!(f, "row {first} is missing"),
            Self::Missing(first, last) => write!(f, "rows {first} to {last} are missing"),
            Self::PutIn(id) => write!(f, "row {id} was inserted"),
            Self::Ends => f.write_str("the record of the chain's ends was changed or removed"),
        }
    }
}

/// Verifies the chain from its first row to its last, in constant memory, and stops at the first fault.
pub(crate) fn verify(db: &Db, keys: &VaultKeys) -> DbResult<Result<ChainHolds, ChainBroken>> {
    let Some(ends) = ends(db, keys)? else { return Ok(Err(ChainBroken::Ends)) };
    let signer = ChainSigner::new(keys);
    let mut statement = db.prepare(PAGE)?;
    let mut before = ends.before_first;
    let (mut from, mut rows) = (i64::MIN, ROWS_A_PAGE);
    while rows == ROWS_A_PAGE {
        rows = 0;
        let mut found = statement.query([from, i64::from(ROWS_A_PAGE)])?;
        while let Some(row) = found.next()? {
            (from, rows) = (row.get::<i64>("id")?.saturating_add(1), rows + 1);
            match next(row, &signer, &before, &ends)? {
                Ok(link) => before = link,
                Err(broken) => return Ok(Err(broken)),
            }
        }
    }
    Ok(if before.id < ends.last.id {
        Err(ChainBroken::Missing(before.id.saturating_add(1), ends.last.id))
    } else if before == ends.last {
        Ok(ChainHolds { rows: before.id.saturating_sub(ends.before_first.id), last_id: before.id })
    } else {
        Err(ChainBroken::Changed(before.id))
    })
}

/// Verifies up to `rows_max` rows from before `before_ms` at the beginning of the chain. Returns the last of them.
pub(super) fn oldest(
    db: &Db,
    keys: &VaultKeys,
    ends: &Ends,
    before_ms: i64,
    rows_max: u32,
) -> DbResult<Result<ChainLink, ChainBroken>> {
    let signer = ChainSigner::new(keys);
    let mut statement = db.prepare(OLDEST)?;
    let mut found = statement.query([rows_max])?;
    let mut before = ends.before_first;
    while let Some(row) = found.next()? {
        if row.get::<i64>("at_ms")? >= before_ms {
            break;
        }
        match next(row, &signer, &before, ends)? {
            Ok(link) => before = link,
            Err(broken) => return Ok(Err(broken)),
        }
    }
    Ok(Ok(before))
}

fn next(
    row: Row<'_>,
    signer: &ChainSigner,
    before: &ChainLink,
    ends: &Ends,
) -> DbResult<Result<ChainLink, ChainBroken>> {
    let id: i64 = row.get("id")?;
    let expected = before.id.saturating_add(1);
    if id < expected || id > ends.last.id {
        return Ok(Err(if id > expected && before.id < ends.last.id {
            ChainBroken::Missing(expected, ends.last.id)
        } else {
            ChainBroken::PutIn(id)
        }));
    }
    if id > expected {
        return Ok(Err(ChainBroken::Missing(expected, id.saturating_sub(1))));
    }
    let mut texts = [None; TEXTS.len()];
    for (text, column) in texts.iter_mut().zip(TEXTS) {
        *text = match bytes(row, column) {
            // A text that is not UTF-8 was not written by the gateway: a finding, not an error.
            Err(error) if error.kind() == DbErrorKind::BadValue => return Ok(Err(ChainBroken::Changed(id))),
            bytes => bytes?,
        };
    }
    let mac = signer.sign(before, id, row.get("at_ms")?, &texts);
    let stored = bytes(row, "mac")?.unwrap_or_default();
    Ok(if mac == stored { Ok(ChainLink { id, mac }) } else { Err(ChainBroken::Changed(id)) })
}

/// Returns the bytes of a text or blob.
fn bytes<'a>(row: Row<'a>, column: &str) -> DbResult<Option<&'a [u8]>> {
    Ok(match row.get::<Value<'a>>(column)? {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Blob(bytes) => Some(bytes),
        Value::Null | Value::Integer(_) | Value::Real(_) => None,
    })
}

/// The columns that contain text, in the order in which they are signed.
pub(super) const TEXTS: [&str; 8] =
    ["actor", "action", "object_kind", "object_id", "outcome", "address", "request_id", "detail"];

/// The name of the ends in the vault.
const ENDS: &str = "audit_ends";
const ID_BYTES: usize = 8;
const MAC_BYTES: usize = 32;
const LINK_BYTES: usize = ID_BYTES + MAC_BYTES;
const NEWEST: &str = "SELECT id, mac FROM audit ORDER BY id DESC LIMIT 1";
const PAGE: &str = "SELECT * FROM audit WHERE id >= :from ORDER BY id LIMIT :rows";
/// The rows of the chain that are in memory at a time with PostgreSQL.
const ROWS_A_PAGE: u32 = 1_000;
const OLDEST: &str = "SELECT * FROM audit ORDER BY id LIMIT :rows";
