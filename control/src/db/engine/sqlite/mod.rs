//! SQLite. Only this folder names `rusqlite`.

pub(crate) mod connect;
mod convert;
pub(crate) mod last_numbers;
pub(crate) mod row_sums;
pub(crate) mod schemas;
pub(crate) mod session;
