//! Modules that every wing may use and that read no table: actors, secrets and the vault, files, money, the table of jobs.

pub(crate) mod actor;
pub(crate) mod background;
pub(crate) mod bounds;
pub(crate) mod change;
pub(crate) mod credential;
pub(crate) mod digest;
pub(crate) mod model_facts;
pub(crate) mod money;
pub(crate) mod node_figures;
pub(crate) mod private_file;
pub(crate) mod recorded;
pub mod regular_file;
#[cfg(test)]
pub(crate) mod shared_shapes;
pub(crate) mod vault;
