//! The sign-in method of a provider instance, and its secrets.

use std::path::Path;

use shared::id::CredentialNumber;
use shared::lanes::{KEYS_MAX, KEYS_MIN};
use shared::provider::{Auth, ProviderKind};
use shared::secret::Secret;

use super::model::{ConnectionAuth, KeptKey, ProviderKey};
use super::provider::{ProviderReader, WrittenIn, key};
use super::raw::ApiKey;
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
        let has_key = self.has_one_key();
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
                let has_keys = self.raw.api_keys.is_some() || self.has_credential_header();
                if self.place != WrittenIn::File && needs_key(kind, entry) && !has_keys {
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
                self.sign(&[key("api_key")], auth, (&secret, region))?;
                self.has_no_header(auth, "api_key");
                Some(secret)
            }
        }
    }

    /// Returns how requests are signed with a key, and notes a fault of the key.
    fn sign(
        &mut self,
        at: &[YamlStep],
        auth: Auth,
        (secret, region): (&Secret<String>, Option<&str>),
    ) -> Option<Sign> {
        let surroundings = self.surroundings();
        let around = CredentialContext { region, host: None, surroundings: &surroundings };
        Sign::of(auth, Some(secret), &around).map_err(|why| self.note(at, why)).ok()
    }

    /// Checks that no header takes the place of the one that the keys in `member` are sent in.
    fn has_no_header(&mut self, auth: Auth, member: &str) {
        let header = auth.header();
        if self.raw.headers.keys().any(|name| name.eq_ignore_ascii_case(header)) {
            let message = format!("{member} and the header {header} cannot be combined; keep one");
            self.note(&[key(member)], message);
        }
    }

    fn has_one_key(&self) -> bool {
        self.raw.api_key.as_deref().is_some_and(|key| !key.trim().is_empty())
    }

    /// Reads the list of keys. A disabled instance needs none that works.
    pub(super) fn api_keys(
        &mut self,
        kind: &ProviderKind,
        auth: ConnectionAuth,
        region: Option<&str>,
    ) -> Vec<ProviderKey> {
        let raw = self.raw;
        let Some(written) = &raw.api_keys else { return Vec::new() };
        let at = [key("api_keys")];
        if self.has_one_key() {
            self.note(&at, "api_key and api_keys cannot be combined; keep one of them");
        }
        if matches!(kind.auth, Auth::None | Auth::Oauth) {
            self.note(&at, format!("type {} sends no credential; omit it", kind.name));
            return Vec::new();
        }
        if auth != ConnectionAuth::ApiKey {
            let message = format!("auth {} cannot be combined with api_keys; omit one of them", auth.name());
            self.note(&at, message);
            return Vec::new();
        }
        if !(KEYS_MIN..=KEYS_MAX).contains(&written.len()) {
            let message = format!(
                "has {} keys; list {KEYS_MIN} to {KEYS_MAX}, or write a single key as api_key",
                written.len()
            );
            self.note(&at, message);
        }
        self.has_no_header(kind.auth, "api_keys");
        if raw.disabled {
            return Vec::new();
        }
        let mut keys: Vec<ProviderKey> = Vec::new();
        for (place, item) in written.iter().enumerate() {
            let at = [key("api_keys"), YamlStep::Item(place)];
            if let Some(read) = self.one_of_keys(&at, (place, item), kind.auth, region) {
                if keys.iter().any(|other| other.key.expose() == read.key.expose()) {
                    self.note(&at, "is the same key as an earlier one; omit it");
                } else if keys.iter().any(|other| other.number == read.number) {
                    self.note(&at, format!("has the ID {} of another key", read.number));
                }
                keys.push(read);
            }
        }
        keys
    }

    fn one_of_keys(
        &mut self,
        at: &[YamlStep],
        (place, item): (usize, &ApiKey),
        auth: Auth,
        region: Option<&str>,
    ) -> Option<ProviderKey> {
        let text = item.text().trim();
        if text.is_empty() {
            self.note(at, "is empty; write a key, or ${ENV:NAME}");
            return None;
        }
        let number = match item.id().map(CredentialNumber::named) {
            None => CredentialNumber(u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)),
            Some(Some(number)) => number,
            Some(None) => {
                self.note(at, "its id must be c1, c2 and so on");
                return None;
            }
        };
        let secret = self.secret(at, text)?;
        if let Sign::Token(_) = self.sign(at, auth, (&secret, region))? {
            self.note(
                at,
                "is an account that obtains tokens, of which a provider has one; write it as api_key",
            );
            return None;
        }
        Some(ProviderKey { number, hint: key_hint(text), key: secret })
    }

    pub(super) fn kept_key(
        &self,
        kind: &ProviderKind,
        entry: Option<&RegistryEntry>,
        auth: ConnectionAuth,
    ) -> KeptKey {
        let written = self.has_one_key() || self.raw.api_keys.is_some();
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

/// True for a reference to the environment, which is no secret.
pub(crate) fn is_reference(text: &str) -> bool {
    text.starts_with("${ENV:") && text.ends_with('}')
}

/// Returns the part of a written key that may be shown: the last four characters of one of at least `HINTED_BYTES_MIN`
/// bytes, or the whole text of a reference.
pub(crate) fn key_hint(text: &str) -> Option<String> {
    let is_file = text.starts_with("${FILE:") && text.ends_with('}');
    if is_reference(text) || is_file {
        return Some(text.to_owned());
    }
    let tail = text.char_indices().rev().nth(3).and_then(|(at, _)| text.get(at..));
    tail.filter(|_| text.len() >= HINTED_BYTES_MIN).map(str::to_owned)
}

const HINTED_BYTES_MIN: usize = 20;

/// True if an upstream of this kind requires a key.
fn needs_key(kind: &ProviderKind, entry: Option<&RegistryEntry>) -> bool {
    kind.api_key_required || entry.is_some_and(|entry| entry.api_key_env.is_some())
}

/// True if a header of this name probably contains a credential.
pub(super) fn is_credential(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    header == "authorization" || header.contains("key") || header.contains("token")
}
