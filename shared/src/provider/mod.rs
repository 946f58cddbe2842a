//! The provider kinds: one file each, facts and pure functions. A difference between kinds is a field of
//! [`ProviderKind`], never an `if kind ==` elsewhere.

use std::time::Duration;

use self::path::Layout;
use crate::operation::Dialect;

mod compatible;
mod echo;
mod local_server;
mod openai;
pub mod path;

/// A sort of provider (CFG-4).
#[derive(Debug)]
pub struct ProviderKind {
    /// The value of `type` in the configuration.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Where requests go.
    pub reach: Reach,
    /// How a credential is sent.
    pub auth: Auth,
    /// Whether an instance without `api_key` makes sense.
    pub api_key_required: bool,
    /// Dialects that an instance speaks natively unless `protocols` says otherwise.
    pub dialects: &'static [Dialect],
    /// Where it answers what: the first whose end of a base URL fits.
    pub layouts: &'static [Layout],
    /// Bounds an attempt up to the response head (CFG-3).
    pub timeout: Duration,
    /// The member of a chat request that bounds the answer's tokens.
    pub output_limit_field: &'static str,
}

impl ProviderKind {
    /// Where it answers what below a base URL with the path `base`.
    pub fn layout(&self, base: &str) -> Option<&'static Layout> {
        self.layouts.iter().find(|layout| base.ends_with(layout.base_ends))
    }
}

/// Where the requests of a kind go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// `base_url` must be given.
    BaseUrl,
    /// `base_url` when given, else this address.
    Known(&'static str),
    /// Answered inside the process.
    InProcess,
}

/// How the credential of an instance goes upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// Nothing is sent.
    None,
}

/// Every kind that this release can route to.
pub static KINDS: &[&ProviderKind] = &[&compatible::KIND, &local_server::KIND, &openai::KIND, &echo::KIND];

/// Kinds of the specification that this release knows by name and does not serve yet.
pub static KINDS_TO_COME: &[&str] = &[
    "azure_openai",
    "anthropic",
    "gemini",
    "vertex",
    "bedrock",
    "builtin_speech",
    "extension",
    "oauth_partner",
];

/// The kind called `name`.
pub fn kind(name: &str) -> Option<&'static ProviderKind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}
