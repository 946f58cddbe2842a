//! The table `device_sign_ins`: sign-ins of clients that a person approves in the console (RFC 8628). The process that deletes
//! the row of an approved sign-in issues its key, so each is issued once.

use serde::{Deserialize, Serialize};

use crate::common::actor::Actor;
use crate::common::bounds::DEVICE_SIGN_INS;
use crate::db::engine::{Db, DbResult, FromValue, Mismatch, Row, Value, named_params};

/// A sign-in that has begun and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSignIn {
    /// SHA-256 of the code that only the client knows.
    pub(crate) code_hash: Vec<u8>,
    /// The code that the person confirms: capital letters without separators.
    pub(crate) user_code: String,
    pub(crate) state: DeviceState,
    /// The address from which the client began it.
    pub(crate) address: Option<String>,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// The time until which it must be completed, in milliseconds since the Unix epoch.
    pub(crate) ends_at_ms: u64,
    /// Set if it is approved.
    pub(crate) approval: Option<Approval>,
}

/// The state of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DeviceSignInState"))]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceState {
    /// The person has not decided yet.
    Pending,
    /// The client gets its key with its next question.
    Approved,
    /// The person refused it.
    Denied,
}

impl FromValue<'_> for DeviceState {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        match <&str>::from_value(value)? {
            "pending" => Ok(Self::Pending),
            "approved" => Ok(Self::Approved),
            "denied" => Ok(Self::Denied),
            _ => Err(Mismatch),
        }
    }
}

/// The person who approved a sign-in, and what its key is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Approval {
    pub(crate) actor: Actor,
    /// The ID of the project.
    pub(crate) project: String,
    /// The ID of the human as whom the key acts.
    pub(crate) acts_as: Option<String>,
}

/// Stores a sign-in that has begun, after deleting those that have ended. Returns false, and stores nothing, if there are
/// [`DEVICE_SIGN_INS`] others.
pub(crate) fn begin(db: &Db, row: &DeviceSignIn) -> DbResult<bool> {
    db.execute(END_OLD, named_params! {":now": row.created_at_ms})?;
    let others: u64 = db.row(COUNT, (), |row| row.get("sign_ins"))?;
    if DEVICE_SIGN_INS.excess(usize::try_from(others).unwrap_or(usize::MAX).saturating_add(1)) > 0 {
        return Ok(false);
    }
    let values = named_params! {
        ":code_hash": row.code_hash,
        ":user_code": row.user_code,
        ":address": row.address,
        ":created": row.created_at_ms,
        ":ends": row.ends_at_ms,
    };
    db.execute(BEGIN, values)?;
    Ok(true)
}

/// Returns the sign-in with this code of the person, unless it has ended.
pub(crate) fn of_person(db: &Db, user_code: &str, now_ms: u64) -> DbResult<Option<DeviceSignIn>> {
    db.optional_row(OF_PERSON, named_params! {":user_code": user_code, ":now": now_ms}, of)
}

/// Returns the sign-in with this hash of the client's code, unless it has ended.
pub(crate) fn of_client(db: &Db, code_hash: &[u8], now_ms: u64) -> DbResult<Option<DeviceSignIn>> {
    db.optional_row(OF_CLIENT, named_params! {":code_hash": code_hash, ":now": now_ms}, of)
}

/// Approves a sign-in, or denies it without an approval. Returns false if it is not pending.
pub(crate) fn decide(db: &Db, user_code: &str, approval: Option<&Approval>, now_ms: u64) -> DbResult<bool> {
    let state = if approval.is_some() { "approved" } else { "denied" };
    let approval = approval.and_then(|approval| serde_json::to_string(approval).ok());
    let values = named_params! {
        ":user_code": user_code, ":state": state, ":approval": approval, ":now": now_ms,
    };
    Ok(db.execute(DECIDE, values)? > 0)
}

/// Deletes a sign-in. Returns false if it does not exist.
pub(crate) fn end(db: &Db, code_hash: &[u8]) -> DbResult<bool> {
    Ok(db.execute(END, named_params! {":code_hash": code_hash})? > 0)
}

/// Deletes up to `rows_max` sign-ins that ended before `before_ms`, and returns their number.
pub(crate) fn forget(db: &Db, before_ms: u64, rows_max: u32) -> DbResult<usize> {
    db.execute(FORGET, named_params! {":before": before_ms, ":rows": rows_max})
}

fn of(row: Row<'_>) -> DbResult<DeviceSignIn> {
    let approval: Option<String> = row.get("approval")?;
    Ok(DeviceSignIn {
        code_hash: row.get("code_hash")?,
        user_code: row.get("user_code")?,
        state: row.get("state")?,
        address: row.get("address")?,
        created_at_ms: row.get("created_at_ms")?,
        ends_at_ms: row.get("ends_at_ms")?,
        approval: approval.and_then(|text| serde_json::from_str(&text).ok()),
    })
}

const BEGIN: &str = "INSERT INTO device_sign_ins (code_hash, user_code, state, address, created_at_ms, ends_at_ms, \
     approval) VALUES (:code_hash, :user_code, 'pending', :address, :created, :ends, NULL)";
const COUNT: &str = "SELECT count(*) AS sign_ins FROM device_sign_ins";
const END_OLD: &str = "DELETE FROM device_sign_ins WHERE ends_at_ms <= :now";
const OF_PERSON: &str = "SELECT code_hash, user_code, state, address, created_at_ms, ends_at_ms, approval \
     FROM device_sign_ins WHERE user_code = :user_code AND ends_at_ms > :now";
const OF_CLIENT: &str = "SELECT code_hash, user_code, state, address, created_at_ms, ends_at_ms, approval \
     FROM device_sign_ins WHERE code_hash = :code_hash AND ends_at_ms > :now";
const DECIDE: &str = "UPDATE device_sign_ins SET state = :state, approval = :approval \
     WHERE user_code = :user_code AND state = 'pending' AND ends_at_ms > :now";
const END: &str = "DELETE FROM device_sign_ins WHERE code_hash = :code_hash";
const FORGET: &str = "DELETE FROM device_sign_ins WHERE code_hash IN \
     (SELECT code_hash FROM device_sign_ins WHERE ends_at_ms < :before ORDER BY ends_at_ms LIMIT :rows)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::actor::Who;
    use crate::common::bounds::tests::passes;
    use crate::db::testing::migrated;

    fn row(number: u64) -> DeviceSignIn {
        DeviceSignIn {
            code_hash: number.to_be_bytes().to_vec(),
            user_code: format!("CODE{number}"),
            state: DeviceState::Pending,
            address: Some("10.0.0.1".to_owned()),
            created_at_ms: 10,
            ends_at_ms: 20,
            approval: None,
        }
    }

    #[test]
    fn a_sign_in_is_decided_once_and_ends_once() {
        let db = migrated();
        assert!(begin(&db, &row(1)).unwrap());
        assert_eq!(of_person(&db, "CODE1", 19).unwrap(), Some(row(1)));
        assert_eq!(of_person(&db, "CODE1", 20).unwrap(), None, "it has ended");
        let actor = Actor { who: Who::admin(), address: None, request_id: None };
        let approval = Approval { actor, project: "p".to_owned(), acts_as: None };
        assert!(!decide(&db, "CODE1", Some(&approval), 20).unwrap(), "it has ended");
        assert!(decide(&db, "CODE1", Some(&approval), 19).unwrap());
        assert!(!decide(&db, "CODE1", None, 19).unwrap(), "it was approved");
        let found = of_client(&db, &row(1).code_hash, 19).unwrap().unwrap();
        assert_eq!((found.state, found.approval), (DeviceState::Approved, Some(approval)));
        assert!(end(&db, &row(1).code_hash).unwrap() && !end(&db, &row(1).code_hash).unwrap());
    }

    #[test]
    fn sign_ins_are_bounded_and_those_that_ended_make_room() {
        let db = migrated();
        let most = DEVICE_SIGN_INS.max() as u64;
        let all = (0..most).all(|number| begin(&db, &row(number)).unwrap());
        assert!(all);
        assert!(!passes(&DEVICE_SIGN_INS, || begin(&db, &row(most)).unwrap()));
        let later = DeviceSignIn { created_at_ms: 20, ends_at_ms: 30, ..row(most) };
        assert!(begin(&db, &later).unwrap());
        assert_eq!(forget(&db, 30, 9).unwrap(), 0);
        assert_eq!(forget(&db, 31, 9).unwrap(), 1);
    }
}
