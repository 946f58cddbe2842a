//! The seam between the SQL of the state and the engine that runs it: connections, statements, rows, values and errors
//! without a type of an engine. The engine is SQLite; no other folder names its library (`scripts/check-imports`).
//!
//! The SQL of all other modules is portable (`portable.rs`): another engine has to accept it as it stands.

mod error;
mod portable;
pub(crate) mod sqlite;
mod value;

pub(crate) use error::{DbError, DbErrorKind, DbResult};
pub(crate) use sqlite::session::{Db, Row, Rows, Statement, Transaction};
pub(crate) use value::{Column, FromValue, Mismatch, Place, ToValue, Value, Values, named_params};
