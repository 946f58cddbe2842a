//! The control plane in operation: its start and stop, the entrance of its requests, its periodic tasks.

pub(crate) mod alert_watch;
pub(crate) mod entrance;
pub(crate) mod node_report;
pub(crate) mod periodic;
pub(crate) mod service;
