//! PostgreSQL. Only this folder names the crate `pg`.

mod address;
pub(crate) mod partitions;
pub(crate) mod schema;
mod session;
#[cfg(test)]
mod tests;
mod text;

pub use address::DatabaseAddress;
pub(crate) use pg::{Heard, Listener};
pub(crate) use session::PostgresSession;
pub(super) use session::{PostgresRows, PostgresStatement};
