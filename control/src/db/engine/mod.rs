//! The seam between the SQL of the state and the engine that runs it: connections, statements, rows, values and errors
//! without a type of an engine. Only `sqlite` and `postgres` name the libraries of their engines (`scripts/check-imports`).
//!
//! The SQL of all other modules is portable (`portable.rs`): both engines accept it as it stands.

mod error;
mod portable;
pub(crate) mod postgres;
mod session;
pub(crate) mod sqlite;
pub(crate) mod table;
mod value;

pub(crate) use error::{DbError, DbErrorKind, DbResult};
pub(crate) use session::{Db, Row, Rows, Transaction};
pub(crate) use value::{Column, FromValue, Mismatch, Place, ToValue, Value, Values, named_params};
