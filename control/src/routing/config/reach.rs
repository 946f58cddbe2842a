//! The address of a provider instance: location fields, base URL, and the paths below it.

use shared::provider::path::{Missing, Place};
use shared::provider::{Auth, Field, ProviderKind, Reach};
use shared::routing::{HttpVersion, Origin};
use shared::secret::Secret;

use super::address;
use super::model::ConnectionAuth;
use super::provider::{ProviderReader, key};
use super::raw;
use super::registry::RegistryEntry;
use crate::common::credential::{CredentialContext, Grant, Metadata, Sign, Surroundings, is_express};

/// The fields of an instance that determine its address.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressFields {
    pub(super) region: Option<String>,
    pub(super) project: Option<String>,
    pub(super) location: Option<String>,
    pub(super) api_version: Option<String>,
    /// True if the credential determines the location.
    is_implied: bool,
}

impl AddressFields {
    /// Fills in the project of the credential if none is configured.
    pub(super) fn with_project_of(mut self, kind: &ProviderKind, api_key: Option<&Secret<String>>) -> Self {
        if self.project.is_none() && kind.has(Field::Project) {
            self.project = api_key.and_then(|key| Grant::project_of(key.expose()));
            self.is_implied =
                kind.auth == Auth::Google && api_key.is_some_and(|key| is_express(key.expose()));
        }
        self
    }

    fn as_place(&self) -> Place<'_> {
        Place {
            region: self.region.as_deref(),
            project: self.project.as_deref(),
            location: self.location.as_deref(),
            provider: None,
            api_version: self.api_version.as_deref(),
            is_implied: self.is_implied,
        }
    }
}

impl ProviderReader<'_> {
    /// Reads the location fields. A field that does not apply to the kind is kept, with a warning.
    pub(super) fn place(&mut self, kind: &ProviderKind) -> AddressFields {
        let raw = self.raw;
        let written = [
            (Field::Region, raw.region.as_deref()),
            (Field::Project, raw.project.as_deref()),
            (Field::Location, raw.location.as_deref()),
            (Field::ApiVersion, raw.api_version.as_deref()),
            (Field::DefaultVoice, raw.default_voice.as_deref()),
        ];
        for (field, text) in written {
            let name = field.name();
            let Some(text) = text else { continue };
            if !kind.has(field) {
                let message = format!("providers.{}: {name} has no effect on type {}", self.id, kind.name);
                self.warnings.push(message);
            } else if field != Field::DefaultVoice && !is_word(text) {
                self.note(&[key(name)], "must be 1 to 100 letters, digits, '.', '_', ':' or '-'");
            }
        }
        // An invalid value has been reported; substitute a valid one so that the address can still be built.
        let fitting = |text: &String| if is_word(text) { text.clone() } else { "x".to_owned() };
        let text = |field, text: &Option<String>| {
            let own = text.as_ref().map(|text| if kind.has(field) { fitting(text) } else { text.clone() });
            own.or_else(|| (field == Field::Location && kind.has(field)).then(|| LOCATION.to_owned()))
        };
        AddressFields {
            region: text(Field::Region, &raw.region),
            project: text(Field::Project, &raw.project),
            location: text(Field::Location, &raw.location),
            api_version: text(Field::ApiVersion, &raw.api_version),
            is_implied: false,
        }
    }

    pub(super) fn base_url(
        &mut self,
        kind: &ProviderKind,
        entry: Option<&'static RegistryEntry>,
        place: &AddressFields,
    ) -> Option<String> {
        let of_entry = || entry.and_then(|entry| entry.base_url.clone());
        match (kind.reach, self.raw.base_url.clone()) {
            (Reach::InProcess(_) | Reach::Extension, None) => None,
            (Reach::Extension, Some(_)) => {
                self.note(&[key("base_url")], "type extension has the address of its extension; omit it");
                None
            }
            (Reach::InProcess(_), Some(_)) => {
                let message = format!("type {} runs inside the gateway and has no address", kind.name);
                self.note(&[key("base_url")], message);
                None
            }
            (_, Some(url)) => Some(url),
            (Reach::Known(url), None) => Some(of_entry().unwrap_or_else(|| url.to_owned())),
            (Reach::Placed(address), None) => match address(&place.as_place()) {
                Ok(url) => Some(of_entry().unwrap_or(url)),
                Err(missing) => {
                    self.missing(kind, missing);
                    None
                }
            },
            (Reach::BaseUrl, None) => {
                let url = of_entry();
                if url.is_none() {
                    let message =
                        format!("type {} needs base_url, e.g. https://api.example.com/v1", kind.name);
                    self.note(&[key("base_url")], message);
                }
                url
            }
        }
    }

    /// Parses the base URL. If `listed` is false, its models are known in advance and no list is requested.
    pub(super) fn origin(
        &mut self,
        kind: &ProviderKind,
        url: &str,
        place: &AddressFields,
        listed: bool,
    ) -> Option<Origin> {
        let http = self.http_version();
        let is_own = self.raw.base_url.is_some();
        match address::origin(kind, address::Base { url, is_own }, &place.as_place(), http) {
            Ok(origin) if listed => Some(origin),
            Ok(origin) => Some(Origin { lists: Vec::new(), ..origin }),
            Err(address::AddressFault::Address(message)) => {
                self.note(&[key("base_url")], message);
                None
            }
            Err(address::AddressFault::Missing(missing)) => {
                self.missing(kind, missing);
                None
            }
        }
    }

    pub(super) fn http_version(&self) -> HttpVersion {
        match self.raw.http_version {
            raw::HttpVersion::Auto => HttpVersion::Auto,
            raw::HttpVersion::Http1 => HttpVersion::Http1,
            raw::HttpVersion::Http2 => HttpVersion::Http2,
        }
    }

    fn missing(&mut self, kind: &ProviderKind, Missing(field): Missing) {
        // The rest of a disabled instance may be in a credential that was not read.
        if !self.raw.disabled {
            self.note(&[key(field)], format!("{field} is missing: type {} requires it", kind.name));
        }
    }

    /// Reads the variables in which the clouds' own tools configure machine identities.
    pub(super) fn surroundings(&self) -> Surroundings {
        let text = |name| {
            let text = self.environment.text_of(name)?;
            Some(text.expose().trim().to_owned()).filter(|text| !text.is_empty())
        };
        Surroundings {
            metadata: Metadata(text("GCE_METADATA_HOST")),
            authority: text("AZURE_AUTHORITY_HOST"),
            identity_endpoint: text("IDENTITY_ENDPOINT"),
            identity_header: text("IDENTITY_HEADER").map(Secret::new),
        }
    }

    /// Checks that tokens of the machine's own account, which the configuration does not contain, go only to the cloud
    /// that issues them.
    pub(super) fn machine_tokens_stay_at_home(
        &mut self,
        kind: &ProviderKind,
        (auth, api_key): (ConnectionAuth, Option<&Secret<String>>),
        origin: Option<&Origin>,
    ) {
        // The key of a disabled instance is not read.
        let is_read = !self.raw.disabled && auth != ConnectionAuth::Oauth;
        let Some(origin) = origin.filter(|_| is_read && !self.has_credential_header()) else { return };
        let surroundings = self.surroundings();
        let around =
            CredentialContext { region: None, host: Some(&origin.host), surroundings: &surroundings };
        let Ok(Sign::Token(grant)) = Sign::of(kind.auth, api_key, &around) else { return };
        let is_here = matches!(origin.host.as_str(), "127.0.0.1" | "::1" | "localhost");
        if !is_here && grant.is_machine() && self.raw.tls.as_ref().is_some_and(|tls| tls.ca.is_some()) {
            self.note(&[key("tls"), key("ca")], OWN_AUTHORITIES);
        }
        if !is_here && !(grant.trusts(&origin.host) && (origin.tls || !grant.is_machine())) {
            let who = if kind.auth == Auth::Google { GOOGLE } else { AZURE };
            self.note(&[key("base_url")], who);
        }
    }
}

const GOOGLE: &str = "without api_key the machine's own account signs in, and its tokens are sent only to \
                      https://*.googleapis.com; set api_key";
const OWN_AUTHORITIES: &str = "without api_key the machine's own account signs in, and its tokens are sent only to upstreams \
                               that the authorities of the gateway verify; omit it, or set api_key";
const AZURE: &str = "the tokens of a managed identity are sent only to https://*.openai.azure.com, \
                     *.services.ai.azure.com and *.cognitiveservices.azure.com; set another api_key";

/// True if `text` can be part of an address without escaping.
fn is_word(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    (1..=100).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('.')
}

const LOCATION: &str = "global";
