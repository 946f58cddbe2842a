//! One deployment of `model_list`: its provider's settings, its model, and the facts about that.

use serde_json::{Map, Value, json};

use super::draft::{Draft, Instance};
use super::source::{Source, below};
use super::vendor::{Vendor, vendor_of};
use crate::routing::config::is_model_id;
use crate::routing::config::yaml::YamlPath;

/// A deployment that llmgw can serve.
pub(super) struct Deployment {
    pub(super) path: YamlPath,
    /// The index of its provider in the draft.
    pub(super) instance: usize,
    pub(super) model: String,
    /// Its rank among the deployments of its group.
    pub(super) order: i64,
}

/// A text of the source: itself, or the name of the variable that contains it.
enum Written {
    Literal(String),
    Variable(String),
}

/// Reads the deployment at `path`. Returns `None`, with a finding, if no provider of llmgw serves it.
pub(super) fn read(source: &mut Source, draft: &mut Draft, path: &YamlPath) -> Option<Deployment> {
    let params = below(path, &["litellm_params"]);
    let credential = credential(source, &params);
    let mut reader = Reader {
        source,
        draft,
        params,
        credential,
        settings: Map::new(),
        missing: Vec::new(),
        assumed: Vec::new(),
    };
    let (vendor, model) = reader.vendor(path)?;
    reader.address(vendor);
    reader.headers(vendor);
    reader.timeout();
    let Reader { mut settings, missing, assumed, .. } = reader;
    if !missing.is_empty() {
        settings.insert("disabled".to_owned(), Value::Bool(true));
    }
    let (instance, is_new) = draft.instance(Instance::new(vendor.prefix, settings, path.clone()));
    let id = draft.id(instance);
    for what in assumed.into_iter().filter(|_| is_new) {
        source.find(&below(path, &["litellm_params", "model"]), what);
    }
    for (path, what) in missing {
        source.find(&path, format!("the provider '{id}' is disabled: {what}, then remove `disabled`"));
    }
    if !model.contains('*') {
        facts(source, draft, path, (instance, &model));
    }
    limits(source, path, &id, &model);
    let order = below(path, &["litellm_params", "order"]);
    let order = source.take(&order).and_then(|value| value.as_i64()).unwrap_or(i64::MAX);
    Some(Deployment { path: path.clone(), instance, model, order })
}

/// Returns the path of the values of the credential that a deployment names.
fn credential(source: &mut Source, params: &YamlPath) -> Option<YamlPath> {
    let name = source.take(&below(params, &["litellm_credential_name"]))?;
    let list = below(&[], &["credential_list"]);
    let known = (0..source.count(&list)).map(|index| super::source::item(&list, index));
    let entry = known.into_iter().find(|entry| source.at(&below(entry, &["credential_name"])) == Some(&name));
    let Some(entry) = entry else {
        source
            .find(&below(params, &["litellm_credential_name"]), "not imported: no credential has this name");
        return None;
    };
    source.take(&below(&entry, &["credential_name"]));
    source.take(&below(&entry, &["credential_info"]));
    Some(below(&entry, &["credential_values"]))
}

struct Reader<'a> {
    source: &'a mut Source,
    draft: &'a mut Draft,
    params: YamlPath,
    credential: Option<YamlPath>,
    settings: Map<String, Value>,
    /// The settings that the provider lacks, each with the key of the source that it comes from.
    missing: Vec<(YamlPath, String)>,
    /// The assumptions about the provider, stated with its first deployment.
    assumed: Vec<&'static str>,
}

impl Reader<'_> {
    /// Returns the path of a parameter: of the deployment, or else of its credential.
    fn place(&self, key: &str) -> YamlPath {
        let own = below(&self.params, &[key]);
        let shared = self.credential.as_ref().map(|values| below(values, &[key]));
        match shared {
            Some(shared) if self.source.at(&own).is_none() && self.source.at(&shared).is_some() => shared,
            _ => own,
        }
    }

    fn text(&mut self, key: &str) -> Option<(YamlPath, Written)> {
        let path = self.place(key);
        let text = match self.source.at(&path)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        self.source.take(&path);
        if text.is_empty() {
            return None;
        }
        let variable = text.strip_prefix("os.environ/").map(|name| Written::Variable(name.to_owned()));
        Some((path, variable.unwrap_or(Written::Literal(text))))
    }

    fn vendor(&mut self, path: &YamlPath) -> Option<(&'static Vendor, String)> {
        let explicit = match self.text("custom_llm_provider") {
            Some((_, Written::Literal(name))) => Some(name),
            _ => None,
        };
        let place = self.place("model");
        let Some((_, Written::Literal(model))) = self.text("model") else {
            self.source.find(path, "not imported: litellm_params.model is missing or is no text");
            return None;
        };
        let Some((vendor, own)) = vendor_of(&model, explicit.as_deref()) else {
            self.source.find(
                &place,
                "not imported: llmgw does not know this prefix. If the upstream speaks OpenAI's protocol, add a \
                 provider of type compatible with its base_url (docs/providers.md)",
            );
            return None;
        };
        let own = match vendor.prefix {
            "bedrock" => self.bedrock_model(&place, own)?,
            "fireworks_ai" if !own.contains('/') && own != "*" => format!("accounts/fireworks/models/{own}"),
            "vertex_ai" | "vertex_ai_beta" if own.contains('/') => {
                self.source.find(&place, "not imported: llmgw serves only Gemini and Claude of Vertex AI");
                return None;
            }
            _ => own.to_owned(),
        };
        if !is_model_id(&own) {
            self.source.find(&place, "not imported: a model ID has 1 to 256 bytes and no white space");
            return None;
        }
        Some((vendor, own))
    }

    /// Returns the ID of a Bedrock model without LiteLLM's route and region.
    fn bedrock_model(&mut self, place: &YamlPath, own: &str) -> Option<String> {
        let mut model = own;
        while let Some((first, rest)) = model.split_once('/').filter(|_| !model.starts_with("arn:")) {
            match first {
                "converse" => {}
                "invoke" => {
                    self.source.find(place, "llmgw calls the model by Converse instead of invoke");
                }
                region if region.split('-').count() >= 3 => {
                    self.settings.insert("region".to_owned(), json!(region));
                }
                _ => {
                    self.source.find(place, "not imported: llmgw calls models of Bedrock by Converse only");
                    return None;
                }
            }
            model = rest;
        }
        Some(model.to_owned())
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.settings.insert(key.to_owned(), value.into());
    }

    /// Sets type, address and key.
    fn address(&mut self, vendor: &'static Vendor) {
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
                    self.source.find(
                        &path,
                        "imported without a key: LiteLLM would send OPENAI_API_KEY to this address. Write api_key if the \
                         upstream needs one",
                    );
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

    fn headers(&mut self, vendor: &'static Vendor) {
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

    fn timeout(&mut self) {
        let path = self.place("timeout");
        let Some(Value::Number(seconds)) = self.source.at(&path).cloned() else { return };
        self.set("timeout", seconds);
        self.source.find(
            &path,
            "imported as timeout of the provider: it ends at the head of the answer; LiteLLM's covers the whole request",
        );
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

/// Reads prices and abilities of the model, from both places where LiteLLM accepts them.
fn facts(source: &mut Source, draft: &mut Draft, entry: &YamlPath, (instance, model): (usize, &str)) {
    let mut prices = Map::new();
    let mut price_paths = Vec::new();
    for part in ["litellm_params", "model_info"] {
        for (from, to, is_fact) in FACTS {
            let path = below(entry, &[part, from]);
            if let Some(value) = source.at(&path).cloned().filter(is_fact) {
                source.take(&path);
                draft.add_fact(instance, model, to, value);
            }
        }
        for (from, to) in PRICES {
            let path = below(entry, &[part, from]);
            if let Some(dollars) = source.at(&path).and_then(Value::as_f64) {
                prices.insert((*to).to_owned(), json!((dollars * 1e12).round() / 1e6));
                price_paths.push(path);
            }
        }
    }
    let is_whole = prices.contains_key("input") && prices.contains_key("output");
    for path in price_paths {
        if is_whole {
            source.take(&path);
        } else {
            source.find(
                &path,
                "not imported: llmgw needs the prices of both input and output (docs/prices.md)",
            );
        }
    }
    if is_whole {
        draft.add_fact(instance, model, "prices", Value::Object(prices));
    }
}

/// Turns the limits of a deployment into findings that contain the quota.
fn limits(source: &mut Source, entry: &YamlPath, provider: &str, model: &str) {
    for part in ["", "litellm_params", "model_info"] {
        for (key, metric, window) in LIMITS {
            let keys = [part, key];
            let path = below(entry, if part.is_empty() { &keys[1..] } else { &keys });
            let Some(limit) = source.at(&path).and_then(whole_number) else { continue };
            let mut quota = json!({
                "subject": {"kind": "provider", "id": provider}, "model": format!("{provider}/{model}"),
                "metric": metric, "limit": limit, "enforcement": "hard",
            });
            if let (Some(quota), Some(window)) = (quota.as_object_mut(), window) {
                quota.insert("window".to_owned(), json!(window));
            }
            let shown = format!("not imported: for the same limit, POST /admin/api/quotas with {quota}");
            source.find(&path, shown);
        }
    }
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some_and(|count| count > 0)
}

/// Returns a whole number, also in the form `20_000` of YAML 1.1, which LiteLLM reads.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.replace('_', "").parse().ok())
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
/// LiteLLM's name of a fact, that of llmgw, and the values that it may have.
type Fact = (&'static str, &'static str, fn(&Value) -> bool);
const FACTS: &[Fact] = &[
    ("max_input_tokens", "context_window", is_count),
    ("max_output_tokens", "max_output_tokens", is_count),
    ("supports_vision", "vision", Value::is_boolean),
    ("supports_function_calling", "tools", Value::is_boolean),
    ("supports_reasoning", "reasoning", Value::is_boolean),
];
/// LiteLLM's prices are for one token, those of llmgw for a million.
const PRICES: &[(&str, &str)] = &[
    ("input_cost_per_token", "input"),
    ("output_cost_per_token", "output"),
    ("cache_read_input_token_cost", "cached_input"),
    ("cache_creation_input_token_cost", "cache_write"),
];
const LIMITS: &[(&str, &str, Option<&str>)] = &[
    ("rpm", "requests", Some("minute")),
    ("tpm", "total_tokens", Some("minute")),
    ("rpd", "requests", Some("day")),
    ("tpd", "total_tokens", Some("day")),
    ("max_parallel_requests", "concurrent_requests", None),
];
