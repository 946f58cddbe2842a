//! One deployment of `model_list`: its provider, its model and its rank.

use serde_json::{Map, Value, json};

use self::facts::{facts, limits};
use super::draft::{Draft, Instance};
use super::source::{Source, below, item};
use super::vendor::{UNKNOWN, Vendor, vendor_of};
use crate::routing::config::is_model_id;
use crate::routing::config::yaml::YamlPath;

mod address;
mod facts;
pub(super) mod keys;

/// A deployment that llmgw can serve.
pub(super) struct Deployment {
    pub(super) path: YamlPath,
    prefix: &'static str,
    settings: Map<String, Value>,
    pub(super) model: String,
    /// Its rank among the deployments of its group.
    pub(super) order: i64,
    /// Its share of the requests among those of its rank.
    pub(super) weight: Option<f64>,
    /// True if an earlier deployment has the same target, with this key among its keys.
    pub(super) is_further_key: bool,
    /// The settings that the provider lacks, each with the key of the source that it comes from.
    missing: Vec<(YamlPath, String)>,
    /// The assumptions about the provider, stated with its first deployment.
    assumed: Vec<&'static str>,
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
    let order = below(path, &["litellm_params", "order"]);
    let order = source.take(&order).and_then(|value| value.as_i64()).unwrap_or(i64::MAX);
    Some(Deployment {
        path: path.clone(),
        prefix: vendor.prefix,
        settings,
        model,
        order,
        weight: weight(source, path),
        is_further_key: false,
        missing,
        assumed,
    })
}

/// Returns the weight of a deployment.
fn weight(source: &mut Source, path: &YamlPath) -> Option<f64> {
    let place = below(path, &WEIGHT);
    let written = source.take(&place)?;
    let weight = written.as_f64().filter(|weight| weight.is_finite() && *weight >= 0.0);
    if weight.is_none() {
        source.find(&place, "not imported: a weight is a number of at least 0");
    }
    weight
}

/// The path of the weight below a deployment.
pub(super) const WEIGHT: [&str; 2] = ["litellm_params", "weight"];

impl Deployment {
    /// Adds the provider and what is known of the model to the draft. Returns the index of the provider.
    pub(super) fn settle(&mut self, source: &mut Source, draft: &mut Draft) -> usize {
        let (path, model) = (&self.path, &self.model);
        let wanted = Instance::new(self.prefix, std::mem::take(&mut self.settings), path.clone());
        let (instance, is_new) = draft.instance(wanted);
        let id = draft.id(instance);
        for what in self.assumed.drain(..).filter(|_| is_new) {
            source.find(&below(path, &["litellm_params", "model"]), what);
        }
        for (path, what) in self.missing.drain(..) {
            source.find(&path, format!("the provider '{id}' is disabled: {what}, then remove `disabled`"));
        }
        if !model.contains('*') {
            facts(source, draft, path, (instance, model));
        }
        limits(source, path, (&id, draft.keys(instance)), model);
        instance
    }
}

/// Returns the path of the values of the credential that a deployment names.
fn credential(source: &mut Source, params: &YamlPath) -> Option<YamlPath> {
    let name = source.take(&below(params, &["litellm_credential_name"]))?;
    let list = below(&[], &["credential_list"]);
    let known = (0..source.count(&list)).map(|index| item(&list, index));
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
        let (vendor, own) = match vendor_of(&model, explicit.as_deref()) {
            Some(found) => found,
            None if self.has_address() => {
                let own = own_name(&model, explicit.as_deref());
                let what = format!(
                    "imported as the model '{own}' of a provider of type compatible: check that the upstream speaks OpenAI's \
                     protocol, because llmgw does not know this prefix"
                );
                self.source.find(&place, what);
                (&UNKNOWN, own)
            }
            None => {
                self.source.find(
                    &place,
                    "not imported: llmgw does not know this prefix. If the upstream speaks OpenAI's protocol, add a \
                     provider of type compatible with its base_url (docs/providers.md)",
                );
                return None;
            }
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

    /// True if the deployment has an address of its own.
    fn has_address(&self) -> bool {
        ["api_base", "base_url"].iter().any(|key| self.source.at(&self.place(key)).is_some())
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

/// Returns the upstream's own name of a model whose prefix llmgw does not know.
fn own_name<'a>(model: &'a str, explicit: Option<&str>) -> &'a str {
    let prefix = explicit.or_else(|| Some(model.split_once('/')?.0)).unwrap_or_default();
    model.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or(model)
}
