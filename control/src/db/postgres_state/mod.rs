//! The state in a database of PostgreSQL: everything is checked before anything is written.
//!
//! ```text
//!  connect -> version, encoding, clock, changes allowed? -> are there tables?
//!    no:  one transaction: all tables, the keys, the ends of the audit
//!    yes: check the version and the key; migrate, unless nodes run that could not go on
//! ```

mod checks;
mod open;

pub(crate) use checks::examine;
pub(crate) use open::{database_error, keys_error, model, open, open_to_read, too_old, version};

#[cfg(test)]
mod tests;
