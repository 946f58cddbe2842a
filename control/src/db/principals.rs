//! The table `principals`: humans.

use serde::Serialize;

use crate::db::engine::{Db, DbResult, Row, named_params};

/// A human, as stored and as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Principal {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Null if unknown.
    pub(crate) email: Option<String>,
    /// The stable name by which single sign-on knows the human; null until they first sign in.
    pub(crate) sso_subject: Option<String>,
    /// True if keys that act as this human are rejected.
    pub(crate) disabled: bool,
    /// Grows with each change; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// In milliseconds since the Unix epoch.
    pub(crate) updated_at_ms: u64,
}

impl Principal {
    fn of(row: Row<'_>) -> DbResult<Self> {
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            email: row.get("email")?,
            sso_subject: row.get("sso_subject")?,
            disabled: row.get("disabled")?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

/// A filter for lists of humans. An absent field matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrincipalFilter {
    pub(crate) disabled: Option<bool>,
    /// A part of the name, e-mail address or id; case is ignored for ASCII letters.
    pub(crate) text: Option<String>,
}

/// Returns up to `rows` humans with ids after `after`.
pub(crate) fn page(db: &Db, filter: &PrincipalFilter, after: &str, rows: i64) -> DbResult<Vec<Principal>> {
    let values = named_params! {
        ":disabled": filter.disabled,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":after": after,
        ":rows": rows,
    };
    db.rows(PAGE, values, Principal::of)
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<Principal>> {
    db.optional_row(FIND, [id], Principal::of)
}

/// True if another human has this e-mail address; upper and lower case are the same.
pub(crate) fn email_is_taken(db: &Db, email: &str, by_other_than: &str) -> DbResult<bool> {
    Ok(with_email(db, email)?.iter().any(|human| human.id != by_other_than))
}

/// Returns the human whom single sign-on knows by this name.
pub(crate) fn with_subject(db: &Db, subject: &str) -> DbResult<Option<Principal>> {
    db.optional_row(WITH_SUBJECT, [subject], Principal::of)
}

/// Returns the humans with this e-mail address; upper and lower case are the same.
pub(crate) fn with_email(db: &Db, email: &str) -> DbResult<Vec<Principal>> {
    let email = email.to_lowercase();
    let mut humans: Vec<_> = db.rows(WITH_EMAIL, [&email], Principal::of)?;
    humans.retain(|human| human.email.as_ref().is_some_and(|known| known.to_lowercase() == email));
    Ok(humans)
}

/// True if another human has this subject.
pub(crate) fn subject_is_taken(db: &Db, subject: &str, by_other_than: &str) -> DbResult<bool> {
    Ok(with_subject(db, subject)?.is_some_and(|human| human.id != by_other_than))
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Db, principal: &Principal) -> DbResult<()> {
    tx.execute(
        PUT,
        named_params! {
            ":id": principal.id,
            ":name": principal.name,
            ":email": principal.email,
            ":sso_subject": principal.sso_subject,
            ":disabled": principal.disabled,
            ":version": principal.version,
            ":created": principal.created_at_ms,
            ":updated": principal.updated_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, id: &str) -> DbResult<()> {
    tx.execute(DELETE, [id])?;
    Ok(())
}

const PAGE: &str = "SELECT * FROM principals WHERE id > :after AND (:disabled IS NULL OR disabled = :disabled) \
     AND (:q IS NULL OR instr(lower(name), :q) > 0 OR instr(lower(email), :q) > 0 OR instr(lower(id), :q) > 0) ORDER BY id LIMIT :rows";
const FIND: &str = "SELECT * FROM principals WHERE id = :id";
const WITH_SUBJECT: &str = "SELECT * FROM principals WHERE sso_subject = :sso_subject";
// SQLite knows upper and lower case of ASCII letters alone, so addresses with others are compared outside.
const WITH_EMAIL: &str =
    "SELECT * FROM principals WHERE lower(email) = :email OR octet_length(email) > length(email) ORDER BY id";
const PUT: &str = "INSERT INTO principals (id, name, email, sso_subject, disabled, version, \
     created_at_ms, updated_at_ms) \
     VALUES (:id, :name, :email, :sso_subject, :disabled, :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, email = excluded.email, \
     sso_subject = excluded.sso_subject, \
     disabled = excluded.disabled, version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM principals WHERE id = :id";
