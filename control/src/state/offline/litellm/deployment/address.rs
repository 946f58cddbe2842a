//! The address, the credential and the headers of a deployment's provider. No secret is written: each becomes a variable.

use serde_json::{Map, Value, json};

use super::{Reader, Written};
use crate::routing::config::yaml::YamlPath;
use crate::state::offline::litellm::source::below;
use crate::state::offline::litellm::vendor::Vendor;

impl Reader<'_> {
    /// Sets type, address and key.
    pub(super) fn address(&mut self, vendor: &'static Vendor) {
        match vendor.kind() {
            "bedrock" => self.bedrock(),
            "vertex" => self.vertex(),
            _ => {
                let base = self.base(vendor);
                self.key(vendor, base.as_deref());
                if vendor.kind() == "azure_openai" {
                    self.azure(base.is_some());
                }
            }
        }
    }

    /// Sets the type and the address. Returns the address if it is not the vendor's.
    fn base(&mut self, vendor: &'static Vendor) -> Option<String> {
        let key = if self.source.at(&self.place("api_base")).is_some() { "api_base" } else { "base_url" };
        let usual = vendor.entry().and_then(|entry| entry.base_url.as_deref());
        let url = match self.text(key) {
            None => {
                self.set_type(vendor);
                return None;
            }
            Some((path, Written::Variable(name))) => {
                let what = format!(
                    "llmgw takes no address from the environment; write the value of {name} as base_url"
                );
                self.missing.push((path, what));
                placeholder_address(&name)
            }
            Some((_, Written::Literal(url))) => {
                let url = url.trim_end_matches('/');
                let suffix = Some(vendor.base_suffix).filter(|suffix| !url.ends_with(suffix));
                format!("{url}{}", suffix.unwrap_or_default())
            }
        };
        if usual == Some(url.as_str()) {
            self.set_type(vendor);
            return None;
        }
        if vendor.registry_id == "openai" {
            self.set("type", "compatible");
        } else {
            self.set_type(vendor);
        }
        self.set("base_url", url.as_str());
        Some(url)
    }

    fn set_type(&mut self, vendor: &'static Vendor) {
        let key = if vendor.entry().is_some() { "registry_id" } else { "type" };
        self.set(key, vendor.registry_id);
    }

    /// Sets the key. `base` is the address if it is not the vendor's.
    fn key(&mut self, vendor: &'static Vendor, base: Option<&str>) {
        let written = self.text("api_key");
        let is_local = vendor.kind() == "local_server";
        match written {
            Some((path, written)) => {
                if is_local {
                    // A local server sends no key; the type that does has no other difference.
                    let usual = vendor.entry().and_then(|entry| entry.base_url.clone());
                    self.settings.remove("registry_id");
                    self.set("type", "compatible");
                    self.set("base_url", base.map(ToOwned::to_owned).or(usual));
                }
                let reference = self.secret(&path, written, vendor.prefix);
                self.set("api_key", reference);
            }
            None if is_local => {}
            None if base.is_some_and(is_near) && vendor.registry_id == "openai" => {
                self.set("type", "local_server")
            }
            None if base.is_some() && vendor.registry_id == "openai" => {
                let path = self.place("api_base");
                let path = if self.source.at(&path).is_some() { path } else { self.place("base_url") };
                if !self.missing.iter().any(|(place, _)| *place == path) {
                    let sent = if vendor.key_variable.is_empty() {
                        ""
                    } else {
                        ": LiteLLM would send OPENAI_API_KEY to this address"
                    };
                    let what =
                        format!("imported without a key{sent}. Write api_key if the upstream needs one");
                    self.source.find(&path, what);
                }
            }
            None if vendor.key_variable.is_empty() => {}
            None => {
                let reference = self.draft.reference(vendor.key_variable);
                self.set("api_key", reference);
            }
        }
    }

    /// Returns a reference to the variable of a secret. A literal one gets a variable with a new name.
    fn secret(&mut self, path: &YamlPath, written: Written, prefix: &str) -> String {
        match written {
            Written::Variable(name) => self.draft.reference(&name),
            Written::Literal(secret) => {
                let name = self.draft.new_variable(&secret, prefix);
                self.source.find(
                    path,
                    format!("a secret is in the file: it became ${{ENV:{name}}}; set that variable to it"),
                );
                format!("${{ENV:{name}}}")
            }
        }
    }

    fn azure(&mut self, has_base: bool) {
        let model = below(&self.params, &["model"]);
        if !has_base {
            self.set("base_url", placeholder_address("AZURE_API_BASE"));
            self.missing.push((model, "write the value of AZURE_API_BASE as base_url".to_owned()));
        }
        self.word("api_version", "api_version");
    }

    fn bedrock(&mut self) {
        self.set("registry_id", "bedrock");
        if !self.settings.contains_key("region") && !self.word("aws_region_name", "region") {
            self.set("region", "us-west-2");
            self.assumed.push("region us-west-2 was written: LiteLLM takes AWS_REGION if it is set; write that region instead");
        }
        if let Some((path, endpoint)) =
            self.text("aws_bedrock_runtime_endpoint").or_else(|| self.text("api_base"))
        {
            self.own_base(path, endpoint);
        }
        let parts: Vec<_> = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"]
            .into_iter()
            .filter_map(|key| self.text(key).map(|(path, written)| (path, written, key)))
            .collect();
        let key = if let Some((path, written)) = self.text("api_key") {
            self.secret(&path, written, "bedrock")
        } else if parts.len() >= 2 {
            let references: Vec<_> =
                parts.into_iter().map(|(path, written, key)| self.secret(&path, written, key)).collect();
            references.join(":")
        } else {
            self.assumed.push("no key is in the file: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. LiteLLM also takes the account \
                 of the machine or a profile, which llmgw does not");
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| self.draft.reference(name)).join(":")
        };
        self.set("api_key", key);
    }

    fn vertex(&mut self) {
        self.set("registry_id", "vertex");
        let model = below(&self.params, &["model"]);
        if !self.word("vertex_project", "project") {
            self.set("project", placeholder("VERTEXAI_PROJECT"));
            self.missing.push((model.clone(), "write the value of VERTEXAI_PROJECT as project".to_owned()));
        }
        if !self.word("vertex_location", "location") {
            self.set("location", "us-central1");
            self.assumed.push("location us-central1 was written: LiteLLM takes VERTEXAI_LOCATION if it is set; write that location instead");
        }
        if let Some((path, base)) = self.text("api_base") {
            self.own_base(path, base);
        }
        if let Some((path, written)) = self.text("vertex_credentials") {
            let is_path = matches!(&written, Written::Literal(text) if !text.starts_with('{'));
            let reference = if is_path {
                let name = self.draft.new_variable("", "vertex_credentials");
                self.source.find(
                    &path,
                    format!("llmgw takes the JSON itself: set {name} to the content of this file"),
                );
                format!("${{ENV:{name}}}")
            } else {
                if let Written::Variable(name) = &written {
                    let what =
                        format!("{name} must contain the JSON of the account, not the path of its file");
                    self.source.find(&path, what);
                }
                self.secret(&path, written, "vertex_credentials")
            };
            self.set("api_key", reference);
        }
    }

    fn own_base(&mut self, path: YamlPath, written: Written) {
        match written {
            Written::Literal(url) => self.set("base_url", url.trim_end_matches('/')),
            Written::Variable(name) => {
                self.set("base_url", placeholder_address(&name));
                let what = format!(
                    "llmgw takes no address from the environment; write the value of {name} as base_url"
                );
                self.missing.push((path, what));
            }
        }
    }

    /// Sets `to` from a parameter that is no secret. A variable, which llmgw takes for secrets only, is replaced by
    /// a placeholder. Returns false if the parameter is absent.
    fn word(&mut self, from: &str, to: &str) -> bool {
        match self.text(from) {
            None => return false,
            Some((_, Written::Literal(text))) => self.set(to, text),
            Some((path, Written::Variable(name))) => {
                self.set(to, placeholder(&name));
                let what = format!(
                    "llmgw takes only secrets from the environment; write the value of {name} as {to}"
                );
                self.missing.push((path, what));
            }
        }
        true
    }

    pub(super) fn headers(&mut self, vendor: &'static Vendor) {
        let mut headers = Map::new();
        if vendor.registry_id == "openai"
            && let Some((path, written)) = self.text("organization")
        {
            let value = match written {
                Written::Literal(text) => text,
                Written::Variable(name) => self.secret(&path, Written::Variable(name), ""),
            };
            headers.insert("OpenAI-Organization".to_owned(), json!(value));
        }
        let place = self.place("extra_headers");
        let names: Vec<String> = self
            .source
            .at(&place)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys)
            .cloned()
            .collect();
        for name in names {
            let path = below(&place, &[&name]);
            let Some(Value::String(text)) = self.source.take(&path) else { continue };
            let lower = name.to_ascii_lowercase();
            let is_secret =
                ["auth", "key", "token", "secret", "cookie"].iter().any(|word| lower.contains(word));
            let value = match text.strip_prefix("os.environ/") {
                Some(variable) => self.draft.reference(variable),
                None if is_secret => {
                    self.secret(&path, Written::Literal(text), &format!("{}_{name}", vendor.prefix))
                }
                None => text,
            };
            headers.insert(name, json!(value));
        }
        if !headers.is_empty() {
            self.set("headers", headers);
        }
    }
}

/// True if the host of `url` is this machine or a private network.
fn is_near(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(address)) => address.is_loopback() || address.is_private(),
        Ok(std::net::IpAddr::V6(address)) => address.is_loopback() || address.is_unique_local(),
        Err(_) => !host.contains('.'),
    }
}

/// Returns a word that stands for the value of the variable `name`.
fn placeholder(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let word: String = name.chars().map(letter).take(PLACEHOLDER_CHARS).collect();
    let word = word.trim_matches('-');
    if word.is_empty() { "unknown".to_owned() } else { word.to_owned() }
}

/// Returns an address that stands for the one in the variable `name`. No host has a name that ends in `.invalid` (RFC 2606).
fn placeholder_address(name: &str) -> String {
    format!("https://{}.invalid/v1", placeholder(name))
}

/// The longest label of a host name.
const PLACEHOLDER_CHARS: usize = 63;
