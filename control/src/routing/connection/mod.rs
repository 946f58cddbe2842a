//! Provider instances and endpoints, merged from the configuration file and the database.
//!
//! The file takes precedence. Objects that it defines are read-only in the API. An object of the database whose id or
//! name the file also uses (for a provider or for an endpoint) is shadowed: stored and shown, but not routed, until the
//! file no longer uses the name.

mod database;
mod endpoint;
mod extension;
mod merge;
mod provider;
mod routed;
mod sealed;
mod sign_ins;
mod stored_keys;

pub(crate) use database::{DatabaseInstances, StoredProvider};
pub(crate) use endpoint::{ListedEndpoint, ShownEndpoint};
pub(crate) use extension::{ConnectedProvider, Extensions};
pub(crate) use merge::{View, ViewCell, merge};
pub(crate) use provider::{
    NOT_CONNECTED, ObjectSource, ProviderConnection, ProviderStanding, ShownProvider, shadow_of,
};
pub(crate) use routed::{RoutedProvider, known_models};
pub(crate) use sealed::{StoredKey, open_written, seal_written};
pub(crate) use sign_ins::{ShownSignIn, SignInError, SignIns};
pub(crate) use stored_keys::StoredKeys;

#[cfg(test)]
mod tests;
