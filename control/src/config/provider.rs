//! One provider instance: from what the file says to what routing needs.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use shared::id::ProviderId;
use shared::provider::path::Place;
use shared::provider::{Auth, KINDS, KINDS_TO_COME, ProviderKind, Reach, kind};
use shared::routing::{HttpVersion, Model, Origin};
use shared::secret::Secret;

use super::address;
use super::describe::{dialects, echo, model, model_id, seconds};
use super::env::Environment;
use super::file::Notes;
use super::model::{ConnectionAuth, KeptKey, Provider};
use super::raw;
use super::registry::{self, Entry};
use super::schema::did_you_mean;
use super::yaml::{Path, Step};

/// Checks one instance. Faults and warnings are noted; the instance is only made when it could be.
pub(super) struct Reader<'a> {
    pub(super) id: &'a str,
    pub(super) raw: &'a raw::Provider,
    pub(super) environment: &'a Environment,
    pub(super) notes: &'a mut Notes,
    pub(super) warnings: &'a mut Vec<String>,
    pub(super) place: WrittenIn,
}

/// Where an instance is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenIn {
    /// In the file, where the kind says how it signs in.
    File,
    /// In the database, by way of the API, where the writer may say.
    Database(Option<ConnectionAuth>),
}

impl Reader<'_> {
    pub(super) fn read(mut self) -> Option<Provider> {
        if !shared::id::is_name(self.id) {
            self.note(
                &[],
                "a provider id is 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
            );
        }
        let entry = self.entry();
        let kind = self.kind(entry);
        // Everything is looked at before the first missing piece ends the work, so that all faults are told.
        let models = self.models();
        let headers = self.headers();
        let kind = kind?;
        let base_url = self.base_url(kind, entry);
        let origin = base_url.as_deref().and_then(|url| self.origin(kind, url));
        let auth = self.auth(kind);
        let api_key = self.api_key(kind, entry, auth);
        let kept_key = self.kept_key(kind, entry);
        self.echo_only_for_echo(kind);
        Some(Provider {
            id: ProviderId::new(self.id),
            kind,
            registry_id: entry.map(|entry| entry.id.clone()),
            base_url,
            origin,
            auth,
            api_key,
            kept_key,
            headers,
            dialects: self
                .raw
                .protocols
                .as_ref()
                .map_or_else(|| kind.dialects.to_vec(), |list| dialects(list)),
            timeout: seconds(self.raw.timeout).unwrap_or(kind.timeout),
            stream_idle_timeout: seconds(self.raw.stream_idle_timeout).unwrap_or(STREAM_IDLE_TIMEOUT),
            region: self.raw.region.clone(),
            project: self.raw.project.clone(),
            location: self.raw.location.clone(),
            default_voice: self.raw.default_voice.clone(),
            disabled: self.raw.disabled,
            force_api_support: self.raw.force_api_support,
            models,
            echo: self.raw.echo.as_ref().map(echo).unwrap_or_default(),
            owner: None,
            shared_with: Vec::new(),
        })
    }

    fn note(&mut self, below: &[Step], message: impl Into<String>) {
        let mut path: Path = vec![key("providers"), key(self.id)];
        path.extend_from_slice(below);
        self.notes.add(&path, message);
    }

    fn entry(&mut self) -> Option<&'static Entry> {
        let id = self.raw.registry_id.as_deref()?;
        let entry = registry::entry(id);
        if entry.is_none() {
            let known: Vec<&str> = registry::entries().iter().map(|entry| entry.id.as_str()).collect();
            let hint = did_you_mean(id, known.iter().copied());
            self.note(
                &[key("registry_id")],
                format!("'{id}' is not in the registry{hint} (known: {})", known.join(", ")),
            );
        }
        entry
    }

    fn kind(&mut self, entry: Option<&'static Entry>) -> Option<&'static ProviderKind> {
        let known = || KINDS.iter().map(|kind| kind.name);
        let Some(name) = self.raw.kind.as_deref().or_else(|| entry.map(|entry| entry.kind.as_str())) else {
            if self.raw.registry_id.is_none() {
                let hint = registry::entry(self.id)
                    .map(|entry| format!(", or write registry_id: {}", entry.id))
                    .unwrap_or_default();
                let list = known().collect::<Vec<_>>().join(", ");
                self.note(&[key("type")], format!("type is missing: say one of {list}{hint}"));
            }
            return None;
        };
        let found = kind(name);
        if found.is_none() && KINDS_TO_COME.contains(&name) {
            self.note(&[key("type")], format!("type {name} is not served by this release yet"));
        } else if found.is_none() {
            let hint = did_you_mean(name, known().chain(KINDS_TO_COME.iter().copied()));
            let list = known().collect::<Vec<_>>().join(", ");
            self.note(&[key("type")], format!("'{name}' is not a type of provider{hint} (known: {list})"));
        }
        found
    }

    fn base_url(&mut self, kind: &ProviderKind, entry: Option<&'static Entry>) -> Option<String> {
        let written = self.raw.base_url.clone();
        match (kind.reach, written) {
            (Reach::InProcess, None) => None,
            (Reach::InProcess, Some(_)) => {
                let name = kind.name;
                self.note(
                    &[key("base_url")],
                    format!("type {name} answers inside the process and has no address"),
                );
                None
            }
            (Reach::BaseUrl | Reach::Known(_), Some(url)) => Some(url),
            (Reach::Known(url), None) => Some(entry.map_or_else(|| url.to_owned(), |e| e.base_url.clone())),
            (Reach::BaseUrl, None) => {
                if entry.is_none() {
                    let message =
                        format!("type {} needs base_url, e.g. https://api.example.com/v1", kind.name);
                    self.note(&[key("base_url")], message);
                }
                entry.map(|entry| entry.base_url.clone())
            }
        }
    }

    fn origin(&mut self, kind: &ProviderKind, url: &str) -> Option<Origin> {
        let http = match self.raw.http_version {
            raw::HttpVersion::Auto => HttpVersion::Auto,
            raw::HttpVersion::Http1 => HttpVersion::Http1,
            raw::HttpVersion::Http2 => HttpVersion::Http2,
        };
        let place = Place {
            region: self.raw.region.as_deref(),
            project: self.raw.project.as_deref(),
            location: self.raw.location.as_deref(),
            api_version: None,
        };
        let origin = address::origin(kind, url, &place, http);
        origin.map_err(|message| self.note(&[key("base_url")], message)).ok()
    }

    fn auth(&mut self, kind: &ProviderKind) -> ConnectionAuth {
        let usual = match kind.auth {
            Auth::Bearer => ConnectionAuth::ApiKey,
            Auth::None => ConnectionAuth::Local,
        };
        let WrittenIn::Database(wanted) = self.place else { return usual };
        let auth = wanted.unwrap_or(usual);
        let has_key = self.raw.api_key.as_deref().is_some_and(|key| !key.trim().is_empty());
        if kind.auth == Auth::None && auth != ConnectionAuth::Local {
            self.note(&[key("auth")], format!("type {} sends no credential, so auth is local", kind.name));
        } else if has_key && kind.auth == Auth::None {
            self.note(&[key("api_key")], format!("type {} sends no credential; leave it out", kind.name));
        } else if has_key && auth != ConnectionAuth::ApiKey {
            self.note(
                &[key("api_key")],
                format!("auth {} takes no api_key; leave one of them out", auth.name()),
            );
        }
        auth
    }

    /// A disabled instance keeps its settings and needs no working credential.
    fn api_key(
        &mut self,
        kind: &ProviderKind,
        entry: Option<&Entry>,
        auth: ConnectionAuth,
    ) -> Option<Secret<String>> {
        if self.raw.disabled || auth == ConnectionAuth::Oauth {
            return None;
        }
        match (self.raw.api_key.as_deref().map(str::trim), kind.auth) {
            (None | Some(""), _) => {
                // One of the file may have its key elsewhere, which is known later.
                if self.place != WrittenIn::File && needs_key(kind, entry) && !self.has_credential_header() {
                    let name = entry.and_then(|e| e.api_key_env.as_deref()).unwrap_or("NAME");
                    self.note(&[key("api_key")], format!("api_key is missing; write it as ${{ENV:{name}}}"));
                }
                None
            }
            (Some(_), Auth::None) => {
                self.warnings.push(format!(
                    "providers.{}: type {} sends no credential, so api_key has no effect",
                    self.id, kind.name
                ));
                None
            }
            (Some(text), Auth::Bearer) => {
                let secret = self.secret(&[key("api_key")], text)?;
                if !fits_header(secret.expose()) {
                    self.note(&[key("api_key")], "holds characters that no header can carry");
                    return None;
                }
                if self.raw.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
                    self.note(
                        &[key("api_key")],
                        "both api_key and the header authorization are given; keep one",
                    );
                }
                Some(secret)
            }
        }
    }

    fn kept_key(&self, kind: &ProviderKind, entry: Option<&Entry>) -> KeptKey {
        let written = self.raw.api_key.as_deref().is_some_and(|key| !key.trim().is_empty());
        let of_file = self.place == WrittenIn::File && !self.raw.disabled;
        if !of_file || written || kind.auth == Auth::None || self.has_credential_header() {
            KeptKey::Ignored
        } else if needs_key(kind, entry) {
            KeptKey::Needed
        } else {
            KeptKey::Used
        }
    }

    fn has_credential_header(&self) -> bool {
        self.raw.headers.keys().any(|name| is_credential(name))
    }

    /// A literal, or `${ENV:NAME}` resolved.
    fn secret(&mut self, at: &[Step], text: &str) -> Option<Secret<String>> {
        let name = text.strip_prefix("${ENV:").and_then(|rest| rest.strip_suffix('}'));
        match name {
            Some(name) if name.starts_with("LLMGW_") => {
                self.note(at, format!("{name} is a setting of the gateway itself and never goes upstream"));
                None
            }
            Some(name) => {
                let value = self.environment.text_of(name).map(|value| value.expose().trim().to_owned());
                let value = value.filter(|value| !value.is_empty()).map(Secret::new);
                if value.is_none() {
                    self.note(at, format!("the environment variable {name} is not set"));
                }
                value
            }
            None if text.contains("${") => {
                self.note(at, "a reference to the environment is the whole value: ${ENV:NAME}");
                None
            }
            None => Some(Secret::new(text.to_owned())),
        }
    }

    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::new();
        let raw = self.raw;
        for (name, text) in &raw.headers {
            let at = [key("headers"), key(name)];
            let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
                self.note(&at, "is not a header name");
                continue;
            };
            if RESERVED_HEADERS.contains(&name.as_str()) {
                self.note(&at, "is set by llmgw itself");
                continue;
            }
            if headers.iter().any(|(earlier, _)| *earlier == name) {
                self.note(&at, "is there twice in another spelling");
                continue;
            }
            if raw.disabled {
                continue;
            }
            let Some(value) = self.secret(&at, text.trim()) else { continue };
            match HeaderValue::from_str(value.expose()) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.push((name, value));
                }
                Err(_) => self.note(&at, "holds characters that no header can carry"),
            }
        }
        headers
    }

    fn models(&mut self) -> Vec<Arc<Model>> {
        let mut models: Vec<Arc<Model>> = Vec::new();
        for (index, raw) in self.raw.models.iter().enumerate() {
            let model = model(raw);
            let at = [key("models"), Step::Item(index)];
            if let Err(message) = model_id(model.id.as_str()) {
                self.note(&at, message);
            } else if models.iter().any(|earlier| earlier.id == model.id) {
                self.note(&at, format!("the model '{}' is there twice", model.id));
            } else {
                models.push(Arc::new(model));
            }
        }
        models
    }

    fn echo_only_for_echo(&mut self, kind: &ProviderKind) {
        if self.raw.echo.is_some() && kind.reach != Reach::InProcess {
            self.note(&[key("echo")], format!("type {} has no echo options", kind.name));
        }
    }
}

/// Whether an upstream of this sort answers to nobody without a key.
fn needs_key(kind: &ProviderKind, entry: Option<&Entry>) -> bool {
    kind.api_key_required || entry.is_some_and(|entry| entry.api_key_env.is_some())
}

/// Whether `key` can be sent as a bearer token.
pub(super) fn fits_header(key: &str) -> bool {
    key.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}

fn is_credential(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    header == "authorization" || header.contains("key") || header.contains("token")
}

pub(super) fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

const STREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Headers that decide framing, routing and what the gateway itself negotiates.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
