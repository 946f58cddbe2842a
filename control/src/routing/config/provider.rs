//! Conversion of one provider instance from the file's form to that of routing.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use shared::id::{ModelId, ProviderId};
use shared::operation::Dialect;
use shared::provider::{Inside, KINDS, ProviderKind, Reach, kind};
use shared::routing::{Model, Origin, PromptCache, ResponsesFallback};
use shared::secret::Secret;

use super::describe::{dialects, echo, model, model_id, seconds};
use super::env::Environment;
use super::file::Notes;
use super::model::{ConnectionAuth, ExtensionLink, Provider, ProviderKey};
use super::raw;
use super::registry::{self, RegistryEntry};
use super::schema::did_you_mean;
use super::yaml::{YamlPath, YamlStep};

/// Reads and checks one instance, and records faults and warnings. Builds the instance only if all required parts are
/// valid.
pub(super) struct ProviderReader<'a> {
    pub(super) id: &'a str,
    pub(super) raw: &'a raw::Provider,
    pub(super) environment: &'a Environment,
    pub(super) notes: &'a mut Notes,
    pub(super) warnings: &'a mut Vec<String>,
    pub(super) place: WrittenIn,
}

/// The place where an instance is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenIn {
    /// The file, where the kind determines the sign-in method.
    File,
    /// The database, through the API, where the client may choose the sign-in method.
    Database(Option<ConnectionAuth>),
}

impl ProviderReader<'_> {
    pub(super) fn read(mut self) -> Option<Provider> {
        self.id_is_a_name();
        let entry = self.entry();
        let kind = self.kind(entry);
        // Check everything before returning early for a missing part, so that all faults are reported.
        let models = self.models();
        let headers = self.headers();
        let body = self.body(&[], self.raw.body.as_ref());
        let kind = kind?;
        let (known, models) = self.with_built_in(kind, models);
        let auth = self.auth(kind);
        let place = self.place(kind);
        let api_key = self.api_key(kind, entry, auth, place.region.as_deref());
        let api_keys = self.api_keys(kind, auth, place.region.as_deref());
        let place = place.with_project_of(kind, first_key(&api_key, &api_keys));
        let base_url = self.base_url(kind, entry, &place);
        let listed = entry.is_none_or(|entry| entry.models.is_empty());
        let origin = base_url.as_deref().and_then(|url| self.origin(kind, url, &place, listed));
        let (origin, way) = self.with_way(kind, origin);
        let kept_key = self.kept_key(kind, entry, auth);
        let dialects = self.dialects(kind, entry, origin.as_ref());
        self.warn_of_unpriced(kind, &dialects, &models);
        self.models_speak(&dialects);
        self.machine_tokens_stay_at_home(kind, (auth, first_key(&api_key, &api_keys)), origin.as_ref());
        self.echo_only_for_echo(kind);
        let issuer = self.oauth(kind, auth);
        let extension = self.extension(kind);
        Some(Provider {
            id: ProviderId::new(self.id),
            kind,
            registry_id: entry.map(|entry| entry.id.clone()),
            base_url,
            origin,
            proxy: way.proxy,
            tls: way.tls,
            connect_to: way.connect_to,
            auth,
            api_key,
            api_keys,
            kept_key,
            headers,
            dialects,
            lacks: entry.map(|entry| entry.lacks.clone()).unwrap_or_default(),
            quirks: entry.map_or(kind.quirks, |entry| entry.quirks.over(kind.quirks)),
            timeout: seconds(self.raw.timeout).unwrap_or(kind.timeout),
            stream_idle_timeout: seconds(self.raw.stream_idle_timeout).unwrap_or(STREAM_IDLE_TIMEOUT),
            first_content_timeout: seconds(self.raw.first_content_timeout),
            error_rules: self.error_rules(),
            body,
            prompt_cache: self.prompt_cache(kind),
            region: place.region,
            project: place.project,
            location: place.location,
            api_version: place.api_version,
            surroundings: self.surroundings(),
            default_voice: self.raw.default_voice.clone(),
            disabled: self.raw.disabled,
            force_api_support: self.raw.force_api_support,
            responses_fallback: self.responses_fallback(),
            trace_context: self.raw.trace_context,
            models,
            models_known: models_known(known, entry),
            echo: self.raw.echo.as_ref().map(echo).unwrap_or_default(),
            extension,
            owner: None,
            is_anonymous: false,
            shared_with: Vec::new(),
            issuer,
            signed_in: None,
        })
    }

    fn id_is_a_name(&mut self) {
        if !shared::id::is_name(self.id) {
            self.note(
                &[],
                "provider IDs must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or \
                 digit",
            );
        }
    }

    /// Returns the models that the kind is known to have, and those of the instance. The models inside the process are known
    /// for certain: they are there without a sync, unless others are declared.
    fn with_built_in(
        &self,
        kind: &'static ProviderKind,
        declared: Vec<Arc<Model>>,
    ) -> (&'static [&'static str], Vec<Arc<Model>>) {
        let is_inside = kind.is_in_process();
        let known = if is_inside && !self.raw.models.is_empty() { &[] } else { kind.models };
        let built_in = known.iter().filter(|_| is_inside).map(|&id| Arc::new(Model::bare(ModelId::new(id))));
        (known, declared.into_iter().chain(built_in).collect())
    }

    pub(super) fn note(&mut self, below: &[YamlStep], message: impl Into<String>) {
        let mut path: YamlPath = vec![key("providers"), key(self.id)];
        path.extend_from_slice(below);
        self.notes.add(&path, message);
    }

    fn prompt_cache(&mut self, kind: &ProviderKind) -> Option<PromptCache> {
        let wanted = self.raw.prompt_cache?;
        if !kind.quirks.cache_marks {
            let message = format!(
                "type {} is not known to take cache marks that no client sent; anthropic and bedrock do. Omit it",
                kind.name
            );
            self.note(&[key("prompt_cache")], message);
        }
        Some(match wanted {
            raw::PromptCache::Auto => PromptCache::Auto,
            raw::PromptCache::Hour => PromptCache::Hour,
        })
    }

    fn responses_fallback(&self) -> ResponsesFallback {
        match self.raw.responses_fallback {
            raw::ResponsesFallback::Strict => ResponsesFallback::Strict,
            raw::ResponsesFallback::Agents => ResponsesFallback::Agents,
        }
    }

    fn entry(&mut self) -> Option<&'static RegistryEntry> {
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

    fn kind(&mut self, entry: Option<&'static RegistryEntry>) -> Option<&'static ProviderKind> {
        let known = || KINDS.iter().map(|kind| kind.name);
        let Some(name) = self.raw.kind.as_deref().or_else(|| entry.map(|entry| entry.kind.as_str())) else {
            if self.raw.registry_id.is_none() {
                let hint = registry::entry(self.id)
                    .map(|entry| format!(", or write registry_id: {}", entry.id))
                    .unwrap_or_default();
                let list = known().collect::<Vec<_>>().join(", ");
                self.note(&[key("type")], format!("type is missing: set one of {list}{hint}"));
            }
            return None;
        };
        let found = kind(name);
        if found.is_none() {
            let hint = did_you_mean(name, known());
            let list = known().collect::<Vec<_>>().join(", ");
            self.note(&[key("type")], format!("'{name}' is not a type of provider{hint} (known: {list})"));
        }
        if let Some(kind) = found.filter(|kind| kind.name != name) {
            let (id, right) = (self.id, kind.name);
            self.warnings.push(format!("providers.{id}: type {name} means {right}; write {right}"));
        }
        found
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
                self.note(&at, "occurs twice with different spellings");
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
                Err(_) => self.note(&at, "contains characters that are invalid in a header"),
            }
        }
        headers
    }

    fn models(&mut self) -> Vec<Arc<Model>> {
        let mut models: Vec<Arc<Model>> = Vec::new();
        for (index, raw) in self.raw.models.iter().enumerate() {
            let mut model = model(raw);
            let at = [key("models"), YamlStep::Item(index)];
            if let raw::Model::Described(described) = raw {
                model.body = self.body(&at, described.body.as_ref());
                model.headers = self.model_headers(&at, described);
            }
            if let Err(message) = model_id(model.id.as_str()) {
                self.note(&at, message);
            } else if models.iter().any(|earlier| earlier.id == model.id) {
                self.note(&at, format!("the model '{}' occurs twice", model.id));
            } else {
                models.push(Arc::new(model));
            }
        }
        models
    }

    /// Warns of models whose prices lack a class of tokens that their protocols report.
    fn warn_of_unpriced(&mut self, kind: &ProviderKind, dialects: &[Dialect], models: &[Arc<Model>]) {
        for model in models {
            let own = model.dialects.as_deref().or_else(|| kind.dialects_of(model.id.as_str()));
            let spoken: Vec<Dialect> = dialects
                .iter()
                .copied()
                .filter(|dialect| own.is_none_or(|own| own.contains(dialect)))
                .collect();
            let gaps = model.prices.as_ref().map(|prices| prices.gaps(&spoken, false).members(None));
            let gaps = gaps.unwrap_or_default();
            if !gaps.is_empty() {
                self.warnings.push(format!(
                    "providers.{}: the prices of '{}' lack {}; a request that uses a class without a price has no \
                     known cost. Set it, or narrow the model's protocols",
                    self.id,
                    model.id,
                    gaps.join(", ")
                ));
            }
        }
    }

    /// Checks that the instance supports the protocols of its models: a model with others would serve nothing.
    fn models_speak(&mut self, dialects: &[Dialect]) {
        let known: Vec<_> = dialects.iter().map(|dialect| dialect.name()).collect();
        for (index, raw) in self.raw.models.iter().enumerate() {
            let raw::Model::Described(described) = raw else { continue };
            for (place, raw::Protocol(dialect)) in described.protocols.iter().flatten().enumerate() {
                if !dialects.contains(dialect) {
                    let at = [key("models"), YamlStep::Item(index), key("protocols"), YamlStep::Item(place)];
                    let message = format!(
                        "the provider does not support {}; it supports {}",
                        dialect.name(),
                        known.join(", ")
                    );
                    self.note(&at, message);
                }
            }
        }
    }

    fn echo_only_for_echo(&mut self, kind: &ProviderKind) {
        if self.raw.echo.is_some() && !matches!(kind.reach, Reach::InProcess(Inside::Echo)) {
            self.note(&[key("echo")], format!("type {} has no echo options", kind.name));
        }
    }

    /// Reads the extension of an instance, and checks that no other setting interferes with its signature.
    fn extension(&mut self, kind: &ProviderKind) -> Option<ExtensionLink> {
        let raw = self.raw;
        let written = [("extension", &raw.extension), ("extension_provider", &raw.extension_provider)];
        if !matches!(kind.reach, Reach::Extension) {
            for (name, _) in written.into_iter().filter(|(_, text)| text.is_some()) {
                self.note(&[key(name)], format!("type {} has no extension", kind.name));
            }
            return None;
        }
        for (name, text) in written {
            if text.as_deref().is_some_and(|text| !shared::id::is_name(text)) {
                let message =
                    "must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit";
                self.note(&[key(name)], message);
            }
        }
        for name in raw.headers.keys().filter(|name| is_of_extensions(name)) {
            self.note(&[key("headers"), key(name)], "is set by llmgw itself on requests to extensions");
        }
        if raw.extension.is_none() {
            self.note(&[key("extension")], "type extension needs the name of an extension");
        }
        Some(ExtensionLink {
            name: raw.extension.clone()?,
            provider: raw.extension_provider.clone().unwrap_or_else(|| self.id.to_owned()),
            http: self.http_version(),
            access: None,
        })
    }

    /// Returns the native dialects: the configured ones, or the defaults of the type.
    fn dialects(
        &mut self,
        kind: &ProviderKind,
        entry: Option<&RegistryEntry>,
        origin: Option<&Origin>,
    ) -> Vec<Dialect> {
        let spoken = origin.map_or_else(|| kind.spoken(), |origin| origin.paths.dialects());
        let Some(listed) = &self.raw.protocols else {
            let usual = entry.and_then(|entry| entry.protocols.as_deref()).unwrap_or(kind.dialects);
            return usual.iter().copied().filter(|dialect| spoken.contains(dialect)).collect();
        };
        for (index, raw::Protocol(dialect)) in listed.iter().enumerate() {
            if !spoken.contains(dialect) {
                let known: Vec<_> = spoken.iter().map(|dialect| dialect.name()).collect();
                let message = format!(
                    "type {} has no address for {}; it has one for {}",
                    kind.name,
                    dialect.name(),
                    known.join(", ")
                );
                self.note(&[key("protocols"), YamlStep::Item(index)], message);
            }
        }
        dialects(listed)
    }
}

/// Returns the only key, or the first of several.
fn first_key<'a>(one: &'a Option<Secret<String>>, several: &'a [ProviderKey]) -> Option<&'a Secret<String>> {
    one.as_ref().or_else(|| several.first().map(|key| &key.key))
}

/// Returns the known models of the registry entry, or else `of_kind`.
fn models_known(of_kind: &[&str], entry: Option<&RegistryEntry>) -> Arc<[String]> {
    let of_entry = entry.map(|entry| entry.models.as_slice()).unwrap_or_default();
    if of_entry.is_empty() { of_kind.iter().map(|&id| id.to_owned()).collect() } else { of_entry.into() }
}

/// True if llmgw sets this header itself on requests to extensions.
pub(super) fn is_of_extensions(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    header == "authorization" || header.starts_with("webhook-") || header.starts_with("x-llmgw-")
}

pub(super) fn key(name: &str) -> YamlStep {
    YamlStep::Key(name.to_owned())
}

const STREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Headers for framing, routing and negotiation, which the gateway sets itself.
pub(super) const RESERVED_HEADERS: &[&str] = &[
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
