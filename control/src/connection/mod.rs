//! Provider instances and endpoints as the file and the database together say they are.
//!
//! The rule: the file wins. What it names is read-only in the API; an object of the database whose id or name the
//! file also has (as a provider or as an endpoint) is shadowed: kept and shown, but not routed, until the file
//! lets go of the name.

mod endpoint;
mod found;
mod held;
mod kept;
mod merge;
mod provider;
mod sealed;

pub(crate) use endpoint::ListedEndpoint;
pub(crate) use found::{FoundProvider, known_models};
pub(crate) use held::{Holdings, StoredProvider};
pub(crate) use kept::KeptKeys;
pub(crate) use merge::{ViewCell, merge};
pub(crate) use provider::{NOT_CONNECTED, ObjectSource, ProviderConnection, ProviderStanding, shadow_of};
pub(crate) use sealed::{open_written, seal_written};

#[cfg(test)]
mod tests;
