//! The sign-in method of a provider instance, and its secrets.

use std::path::Path;

use shared::provider::{Auth, ProviderKind};
use shared::secret::Secret;

use super::model::{ConnectionAuth, KeptKey};
use super::provider::{ProviderReader, WrittenIn, key};
use super::registry::RegistryEntry;
use super::yaml::YamlStep;
use crate::common::credential::{CredentialContext, Sign};

impl ProviderReader<'_> {
    pub(super) fn auth(&mut self, kind: &ProviderKind) -> ConnectionAuth {
        let usual = match kind.auth {
            Auth::None => ConnectionAuth::Local,
            Auth::Oauth => ConnectionAuth::Oauth,
            _ if self.raw.oauth.is_some() => ConnectionAuth::Oauth,
            _ => ConnectionAuth::ApiKey,
        };
        let wanted = match self.place {
            WrittenIn::Database(wanted) => wanted,
            WrittenIn::File => None,
        };
        let auth = wanted.unwrap_or(usual);
        let has_key = self.raw.api_key.as_deref().is_some_and(|key| !key.trim().is_empty());
        if kind.auth == Auth::None && auth != ConnectionAuth::Local {
            self.note(
                &[key("auth")],
                format!("type {} sends no credential, so auth must be local", kind.name),
            );
        } else if kind.auth == Auth::Oauth && auth != ConnectionAuth::Oauth {
            let message = format!("type {} is signed in to, so auth must be oauth", kind.name);
            self.note(&[key("auth")], message);
        } else if has_key && kind.auth == Auth::None && self.place != WrittenIn::File {
            self.note(&[key("api_key")], format!("type {} sends no credential; omit it", kind.name));
        } else if has_key && auth == ConnectionAuth::Local && self.place == WrittenIn::File {
            // A key without effect is a warning in the file.
        } else if has_key && auth != ConnectionAuth::ApiKey {
            self.note(
                &[key("api_key")],
                format!("auth {} cannot be combined with api_key; omit one of them", auth.name()),
            );
        }
        auth
    }

    /// Reads the key. A disabled instance keeps its settings and needs no working credential.
    pub(super) fn api_key(
        &mut self,
        kind: &ProviderKind,
        entry: Option<&RegistryEntry>,
        auth: ConnectionAuth,
        region: Option<&str>,
    ) -> Option<Secret<String>> {
        if self.raw.disabled || auth == ConnectionAuth::Oauth {
            return None;
        }
        match (self.raw.api_key.as_deref().map(str::trim), kind.auth) {
            (None | Some(""), _) => {
                // An instance of the file may have its key in `secrets.json` or in the database, which is checked
                // later.
                if self.place != WrittenIn::File && needs_key(kind, entry) && !self.has_credential_header() {
                    let name = entry.and_then(|e| e.api_key_env.as_deref()).unwrap_or("NAME");
                    self.note(&[key("api_key")], format!("api_key is missing; write it as ${{ENV:{name}}}"));
                }
                None
            }
            (Some(_), Auth::None | Auth::Oauth) => {
                self.warnings.push(format!(
                    "providers.{}: type {} sends no credential, so api_key has no effect",
                    self.id, kind.name
                ));
                None
            }
            (Some(text), auth) => {
                let secret = self.secret(&[key("api_key")], text)?;
                let surroundings = self.surroundings();
                let around = CredentialContext { region, host: None, surroundings: &surroundings };
                if let Err(why) = Sign::of(auth, Some(&secret), &around) {
                    self.note(&[key("api_key")], why);
                    return None;
                }
                let header = auth.header();
                if self.raw.headers.keys().any(|name| name.eq_ignore_ascii_case(header)) {
                    let message = format!("api_key and the header {header} cannot be combined; keep one");
                    self.note(&[key("api_key")], message);
                }
                Some(secret)
            }
        }
    }

    pub(super) fn kept_key(
        &self,
        kind: &ProviderKind,
        entry: Option<&RegistryEntry>,
        auth: ConnectionAuth,
    ) -> KeptKey {
        let written = self.raw.api_key.as_deref().is_some_and(|key| !key.trim().is_empty());
        let of_file = self.place == WrittenIn::File && !self.raw.disabled;
        let has_key = auth == ConnectionAuth::ApiKey;
        if !of_file || written || !has_key || kind.auth == Auth::None || self.has_credential_header() {
            KeptKey::Ignored
        } else if needs_key(kind, entry) {
            KeptKey::Needed
        } else {
            KeptKey::Used
        }
    }

    pub(super) fn has_credential_header(&self) -> bool {
        self.raw.headers.keys().any(|name| is_credential(name))
    }

    /// Returns a literal secret, or the value of references: one `${ENV:NAME}` or `${FILE:/path}`, or several separated by
    /// colons.
    pub(super) fn secret(&mut self, at: &[YamlStep], text: &str) -> Option<Secret<String>> {
        if !text.contains("${") {
            return Some(Secret::new(text.to_owned()));
        }
        let mut parts = Vec::new();
        for part in text.replace("}:${", "}\n${").split('\n') {
            parts.push(self.referenced(at, part)?);
        }
        let text: Vec<&str> = parts.iter().map(|part| part.expose().as_str()).collect();
        Some(Secret::new(text.join(":")))
    }

    /// Returns the value of one reference.
    pub(super) fn referenced(&mut self, at: &[YamlStep], reference: &str) -> Option<Secret<String>> {
        let inner = reference.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        let inner =
            inner.filter(|inner| !inner.contains(['$', '{', '}'])).and_then(|inner| inner.split_once(':'));
        match inner {
            Some(("ENV", name)) => self.variable(at, name),
            Some(("FILE", path)) => self.secret_file(at, Path::new(path)),
            Some(_) | None => {
                self.note(at, "a reference must be the whole value: ${ENV:NAME} or ${FILE:/path}");
                None
            }
        }
    }

    /// Reads a secret from a file, which only the operator of the machine may name: through the API, an administrator could
    /// read every file of the process that way.
    fn secret_file(&mut self, at: &[YamlStep], path: &Path) -> Option<Secret<String>> {
        if self.place != WrittenIn::File {
            self.note(
                at,
                "${FILE:/path} is for the configuration file only; send the secret, or ${ENV:NAME}",
            );
            return None;
        }
        if !path.is_absolute() {
            self.note(
                at,
                format!("{} is not an absolute path, such as ${{FILE:/run/secrets/key}}", path.display()),
            );
            return None;
        }
        match self.notes.secret_files.read(path) {
            Ok(secret) if self.environment.is_own_secret(&secret) => {
                let message = format!(
                    "{} contains a secret of the gateway itself, which is never sent upstream",
                    path.display()
                );
                self.note(at, message);
                None
            }
            Ok(secret) => Some(secret),
            Err(message) => {
                self.note(at, message);
                None
            }
        }
    }

    fn variable(&mut self, at: &[YamlStep], name: &str) -> Option<Secret<String>> {
        if name.starts_with("LLMGW_") {
            self.note(at, format!("{name} is a setting of the gateway itself and is never sent upstream"));
            return None;
        }
        let value = self.environment.text_of(name).map(|value| value.expose().trim().to_owned());
        let value = value.filter(|value| !value.is_empty()).map(Secret::new);
        if value.is_none() {
            self.note(at, format!("the environment variable {name} is not set"));
        }
        value
    }
}

/// True if an upstream of this kind requires a key.
fn needs_key(kind: &ProviderKind, entry: Option<&RegistryEntry>) -> bool {
    kind.api_key_required || entry.is_some_and(|entry| entry.api_key_env.is_some())
}

/// True if a header of this name probably contains a credential.
pub(super) fn is_credential(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    header == "authorization" || header.contains("key") || header.contains("token")
}
