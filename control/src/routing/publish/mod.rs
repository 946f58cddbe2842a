//! Turns configuration and rows into the snapshot that the data plane reads, and keeps it current. Process settings
//! (policies, static keys, server options) stay as they were at start-up.

mod access;
mod begun_sign_ins;
mod cancels;
mod effects;
mod ended_sessions;
mod holder;
mod preview;
mod publisher;
mod quotas;
mod reload;
mod routes;
mod touched;

pub(crate) use begun_sign_ins::BegunSignIns;
pub(crate) use cancels::Cancels;
pub(crate) use effects::{DeletedParts, EffectWarning, Effects};
pub(crate) use ended_sessions::EndedSessions;
pub(crate) use holder::AccessHolder;
pub(crate) use preview::ChangePreview;
pub(crate) use publisher::{Publisher, PublisherParams};
pub(crate) use reload::{ReloadReport, Reloader, Reloading, StatusCell};
pub(crate) use routes::{balance, content_timeouts, share};
pub(crate) use touched::{CancelOrder, ChangedKeys, Touched, TouchedAccess};

#[cfg(test)]
pub(crate) mod tests;
