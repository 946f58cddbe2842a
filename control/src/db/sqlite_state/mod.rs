//! The state on SQLite: the files of a state directory, their schema, and what happens to them at a start and while the
//! gateway runs. Another engine has none of it.

pub(crate) mod checkpoints;
pub(crate) mod copy;
pub(crate) mod files;
pub(crate) mod lock;
pub(crate) mod migrate;
pub(crate) mod moment_file;
pub(crate) mod open;
pub(crate) mod relocate;
pub(crate) mod upgrade_snapshot;
