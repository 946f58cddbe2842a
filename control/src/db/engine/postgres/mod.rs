//! PostgreSQL. Only this folder names the crate `pg`.
#![cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "no setting names a PostgreSQL yet; the tests hold that the state's SQL runs on one"
    )
)]

pub(crate) mod schema;
mod session;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use session::PostgresSession;
pub(super) use session::{PostgresRows, PostgresStatement};
