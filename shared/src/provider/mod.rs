//! The provider kinds: one file each, facts and pure functions. A difference between kinds is a field of
//! [`ProviderKind`], never an `if kind ==` elsewhere.

use std::time::Duration;

use self::path::{Layout, Missing, Place};
use self::quirks::Quirks;
use crate::operation::Dialect;

mod anthropic;
mod azure_openai;
mod bedrock;
mod builtin_speech;
mod compatible;
mod echo;
mod gemini;
mod local_server;
mod openai;
pub mod path;
pub mod quirks;
pub mod sigv4;
mod vertex;

/// A sort of provider (CFG-4).
#[derive(Debug)]
pub struct ProviderKind {
    /// The value of `type` in the configuration.
    pub name: &'static str,
    /// Values that are read as the same.
    pub other_names: &'static [&'static str],
    /// One line for people.
    pub summary: &'static str,
    /// Where requests go.
    pub reach: Reach,
    /// How a credential is sent.
    pub auth: Auth,
    /// Whether an instance without `api_key` makes sense.
    pub api_key_required: bool,
    /// The fields of an instance that mean something to it, of those that only some kinds have.
    pub fields: &'static [Field],
    /// Dialects that an instance speaks natively unless `protocols` says otherwise.
    pub dialects: &'static [Dialect],
    /// Which of them a model speaks, where that is not all: by how its name begins, the first that fits. Where
    /// nothing fits, and where a model's own protocols are known, this says nothing.
    pub families: &'static [(&'static str, &'static [Dialect])],
    /// Where it answers what: the first whose end of a base URL fits.
    pub layouts: &'static [Layout],
    /// Ends of a base URL that a vendor's own SDK adds itself.
    pub added_by_sdk: &'static [&'static str],
    /// Headers of every request in which nobody else has set them.
    pub headers: &'static [(&'static str, &'static str)],
    /// Its models, where no list of them can be read.
    pub models: &'static [&'static str],
    /// Bounds an attempt up to the response head (CFG-3).
    pub timeout: Duration,
    /// What sets it apart from others of its protocol.
    pub quirks: Quirks,
}

impl ProviderKind {
    /// Where it answers what below a base URL with the path `base`.
    pub fn layout(&self, base: &str) -> Option<&'static Layout> {
        self.layouts.iter().find(|layout| base.ends_with(layout.base_ends))
    }

    /// What a model of this name speaks; none where that is all that its instance speaks.
    pub fn dialects_of(&self, model: &str) -> Option<&'static [Dialect]> {
        let family = self.families.iter().find(|(start, _)| model.starts_with(start));
        family.map(|(_, dialects)| *dialects)
    }

    /// Whether `field` means something to an instance.
    pub fn has(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }
}

/// Where the requests of a kind go.
#[derive(Clone, Copy, Debug)]
pub enum Reach {
    /// `base_url` must be given.
    BaseUrl,
    /// `base_url` when given, else this address.
    Known(&'static str),
    /// `base_url` when given, else what the fields of the instance make of it.
    Placed(fn(&Place<'_>) -> Result<String, Missing>),
    /// Answered inside the process.
    InProcess(Inside),
}

/// What answers inside the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// The prompt's own words.
    Echo,
    /// A voice.
    Speech,
}

/// How the credential of an instance goes upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// This header, its value the key.
    Header(&'static str),
    /// A pair `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, perhaps with `:SESSION_TOKEN`, signs each request for this service;
    /// any other key goes as a bearer token.
    Aws {
        /// The service of the signature.
        service: &'static str,
    },
    /// A bearer token: the key itself, or what Google gives for the account that the key describes, or for the
    /// machine's own where there is no key.
    Google,
    /// The header `api-key`, its value the key; or a bearer token: the key itself, or what Microsoft Entra gives for the
    /// application `TENANT_ID:CLIENT_ID:CLIENT_SECRET` or for `managed_identity`, which is the machine's own.
    Azure,
    /// Nothing is sent.
    None,
}

impl Auth {
    /// The header in which the credential stands.
    pub fn header(self) -> &'static str {
        match self {
            Self::Header(name) => name,
            Self::Azure => "api-key",
            Self::Bearer | Self::Aws { .. } | Self::Google | Self::None => "authorization",
        }
    }
}

/// A field that only instances of some kinds have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Where a cloud's data centre is.
    Region,
    /// Who pays.
    Project,
    /// Where a cloud's data centre is.
    Location,
    /// Which version of an API is spoken.
    ApiVersion,
    /// The voice where a speech request names none.
    DefaultVoice,
}

impl Field {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Project => "project",
            Self::Location => "location",
            Self::ApiVersion => "api_version",
            Self::DefaultVoice => "default_voice",
        }
    }
}

/// Every kind that this release can route to.
pub static KINDS: &[&ProviderKind] = &[
    &compatible::KIND,
    &local_server::KIND,
    &openai::KIND,
    &azure_openai::KIND,
    &anthropic::KIND,
    &gemini::KIND,
    &vertex::KIND,
    &bedrock::KIND,
    &builtin_speech::KIND,
    &echo::KIND,
];

/// Kinds of the specification that this release knows by name and does not serve yet.
pub static KINDS_TO_COME: &[&str] = &["extension", "oauth_partner"];

/// The kind called `name`, which may be one of its other names.
pub fn kind(name: &str) -> Option<&'static ProviderKind> {
    KINDS.iter().copied().find(|kind| kind.name == name || kind.other_names.contains(&name))
}

/// What servers of OpenAI's API are asked for natively. Few of them have Responses, so that has to be said.
const COMPATIBLE_DIALECTS: &[Dialect] =
    &[Dialect::Chat, Dialect::Embeddings, Dialect::Speech, Dialect::Transcription, Dialect::Images];

#[cfg(test)]
mod tests;
