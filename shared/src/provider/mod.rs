//! The provider kinds: one file each, with constants and pure functions. A difference between kinds is a field of
//! [`ProviderKind`], never an `if kind ==` elsewhere.

use std::time::Duration;

use self::path::Layout;
use self::quirks::Quirks;
use crate::operation::Dialect;

mod anthropic;
mod azure_openai;
mod bedrock;
mod builtin_speech;
mod compatible;
mod echo;
mod extension;
mod gemini;
mod local_server;
mod oauth_partner;
mod openai;
pub mod path;
pub mod quirks;
pub mod signer;
pub mod sigv4;
mod vertex;

/// A provider kind (CFG-4).
#[derive(Debug)]
pub struct ProviderKind {
    /// The value of `type` in the configuration.
    pub name: &'static str,
    /// Other accepted values of `type`.
    pub other_names: &'static [&'static str],
    /// A one-line description for people.
    pub summary: &'static str,
    /// The `gen_ai.provider.name` of OpenTelemetry. Servers of OpenAI's API have its name, as with its SDKs.
    pub genai_name: &'static str,
    /// The source of the base URL.
    pub reach: Reach,
    /// The way in which the credential is sent.
    pub auth: Auth,
    /// True if an instance must have an `api_key`.
    pub api_key_required: bool,
    /// The optional fields that instances of this kind accept.
    pub fields: &'static [Field],
    /// The dialects that an instance speaks natively unless `protocols` overrides them.
    pub dialects: &'static [Dialect],
    /// The dialects of model families, if a model speaks only some of the kind's dialects: the first entry whose
    /// prefix matches the model name applies. Without a match, or if a model's own protocols are known, this list is ignored.
    pub families: &'static [(&'static str, &'static [Dialect])],
    /// The path layouts; the first one whose suffix matches the base URL applies.
    pub layouts: &'static [Layout],
    /// Suffixes of a base URL that a vendor's own SDK appends itself.
    pub added_by_sdk: &'static [&'static str],
    /// Default headers of every request, sent unless they are set otherwise.
    pub headers: &'static [(&'static str, &'static str)],
    /// The kind's models, if no list of them can be read. An instance that runs inside the process has them at once, if
    /// its configuration declares none.
    pub models: &'static [&'static str],
    /// The default timeout of an attempt up to the response head (CFG-3).
    pub timeout: Duration,
    /// Differences from other servers of the same protocol.
    pub quirks: Quirks,
}

impl ProviderKind {
    /// Returns the path layout for a base URL with the path `base`.
    pub fn layout(&self, base: &str) -> Option<&'static Layout> {
        self.layouts.iter().find(|layout| base.ends_with(layout.base_ends))
    }

    /// Returns the dialects of a model with this name; `None` if it speaks all dialects of its instance.
    pub fn dialects_of(&self, model: &str) -> Option<&'static [Dialect]> {
        let family = self.families.iter().find(|(start, _)| model.starts_with(start));
        family.map(|(_, dialects)| *dialects)
    }

    /// Returns every dialect for which a layout has a path; the kind's own dialects if it has no layout.
    pub fn spoken(&self) -> Vec<Dialect> {
        if self.layouts.is_empty() {
            return self.dialects.to_vec();
        }
        let mut dialects: Vec<Dialect> =
            self.layouts.iter().flat_map(|layout| layout.rules).map(|rule| rule.dialect).collect();
        dialects.dedup();
        dialects
    }

    /// Returns true if requests are answered inside the process, without an upstream.
    pub fn is_in_process(&self) -> bool {
        matches!(self.reach, Reach::InProcess(_))
    }

    /// Returns true if instances of this kind accept `field`.
    pub fn has(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }
}

/// The source of a kind's base URL.
#[derive(Clone, Copy, Debug)]
pub enum Reach {
    /// `base_url` is required.
    BaseUrl,
    /// `base_url` if configured, otherwise this address.
    Known(&'static str),
    /// `base_url` if configured, otherwise the address computed from the fields of the instance.
    Placed(path::BaseUrl),
    /// The address of an extension, which is stored apart from its providers.
    Extension,
    /// Requests are answered inside the process.
    InProcess(Inside),
}

/// The implementation of an in-process provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Repeats the prompt.
    Echo,
    /// Synthesizes speech.
    Speech,
}

/// The way in which the credential of an instance is sent upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// This header with the key as its value.
    Header(&'static str),
    /// A key pair `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, optionally followed by `:SESSION_TOKEN`, signs each request for
    /// this service; any other key is sent as a bearer token.
    Aws {
        /// The service of the signature.
        service: &'static str,
    },
    /// A bearer token: the key itself, or an access token that Google issues for the account that the key describes,
    /// or for the machine's own account if there is no key.
    Google,
    /// The header `api-key` with the key as its value; or a bearer token: the key itself, or an access token that
    /// Microsoft Entra issues for the application `TENANT_ID:CLIENT_ID:CLIENT_SECRET` or for `managed_identity`, the
    /// machine's own identity.
    Azure,
    /// An access token that a human has granted, as a bearer token.
    Oauth,
    /// No credential is sent.
    None,
}

impl Auth {
    /// Returns the name of the header that carries the credential.
    pub fn header(self) -> &'static str {
        match self {
            Self::Header(name) => name,
            Self::Azure => "api-key",
            Self::Bearer | Self::Aws { .. } | Self::Google | Self::Oauth | Self::None => "authorization",
        }
    }
}

/// A field that only instances of some kinds accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The region of a cloud.
    Region,
    /// The cloud project that is billed.
    Project,
    /// The location of a cloud.
    Location,
    /// The version of the API.
    ApiVersion,
    /// The voice for speech requests that specify none.
    DefaultVoice,
}

impl Field {
    /// Returns the field's name in the configuration.
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

/// Every kind that this release supports.
pub static KINDS: &[&ProviderKind] = &[
    &compatible::KIND,
    &local_server::KIND,
    &openai::KIND,
    &azure_openai::KIND,
    &anthropic::KIND,
    &gemini::KIND,
    &vertex::KIND,
    &bedrock::KIND,
    &oauth_partner::KIND,
    &builtin_speech::KIND,
    &echo::KIND,
    &extension::KIND,
];

/// Returns the kind with this name or alternative name.
pub fn kind(name: &str) -> Option<&'static ProviderKind> {
    KINDS.iter().copied().find(|kind| kind.name == name || kind.other_names.contains(&name))
}

/// The native dialects of servers of OpenAI's API. Few of them support Responses, so it must be configured.
const COMPATIBLE_DIALECTS: &[Dialect] =
    &[Dialect::Chat, Dialect::Embeddings, Dialect::Speech, Dialect::Transcription, Dialect::Images];

#[cfg(test)]
mod tests;
