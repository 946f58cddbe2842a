//! Reads an upstream's list of models, in the shapes that vendors and model servers use, one entry at a time.
//!
//! The list is untrusted input. Entries that cannot be models are skipped and counted, and the number of kept models is
//! bounded.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::model_rules::ModelRules;
use shared::prices::{Prices, Rates, femto_a_token};
use shared::provider::path::Pages;
use shared::usage::Class;

use crate::common::bounds::LISTED_MODELS;
use crate::common::model_facts::Facts;
use crate::routing::config::is_model_id;

/// A model as its upstream lists it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListedModel {
    /// Creation time, in seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owned_by: Option<String>,
    #[serde(default)]
    pub(crate) facts: Facts,
}

/// Counts of skipped entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct SkippedEntries {
    /// Entries without an id, or with an id that no request could name.
    pub(crate) without_usable_id: u64,
    /// Entries with the id of an earlier one.
    pub(crate) repeated: u64,
    /// Entries beyond the limit.
    pub(crate) over_limit: u64,
    /// Lists of which further pages were not read.
    pub(crate) unread_lists: u64,
}

/// An upstream's models by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UpstreamListing {
    pub(crate) models: BTreeMap<String, ListedModel>,
    pub(crate) skipped: SkippedEntries,
}

impl UpstreamListing {
    /// Builds the listing of models that are known without a list.
    pub(crate) fn known(ids: &[String]) -> Self {
        let models = ids.iter().map(|id| (id.clone(), ListedModel::default())).collect();
        Self { models, skipped: SkippedEntries::default() }
    }

    /// Adds the models of another page or list.
    pub(crate) fn join(&mut self, other: Self) {
        self.skipped.without_usable_id += other.skipped.without_usable_id;
        self.skipped.repeated += other.skipped.repeated;
        self.skipped.over_limit += other.skipped.over_limit;
        self.skipped.unread_lists += other.skipped.unread_lists;
        for (id, offer) in other.models {
            if self.models.contains_key(&id) {
                self.skipped.repeated += 1;
            } else if LISTED_MODELS.is_full(self.models.len()) {
                self.skipped.over_limit += 1;
            } else {
                self.models.insert(id, offer);
            }
        }
    }
}

/// Returns the query parameter that requests the next page; `None` if `body` is the last page.
pub(crate) fn next_page(body: &[u8], pages: Pages) -> Option<(&'static str, String)> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Tail {
        has_more: bool,
        last_id: Option<String>,
        #[serde(rename = "nextPageToken")]
        page_token: Option<String>,
        #[serde(rename = "nextToken")]
        token: Option<String>,
    }
    let tail: Tail = if pages == Pages::One { Tail::default() } else { serde_json::from_slice(body).ok()? };
    let (name, value) = match pages {
        Pages::One => return None,
        Pages::AfterId => ("after_id", tail.last_id.filter(|_| tail.has_more)),
        Pages::PageToken => ("pageToken", tail.page_token),
        Pages::NextToken => ("nextToken", tail.token),
    };
    Some((name, value.filter(|value| !value.is_empty() && value.len() <= PAGE_NAME_BYTES_MAX)?))
}

/// Reads `{data: [..]}`, `{models: [..]}`, the names that clouds use, or a bare array. The error describes why the body
/// is not a list.
pub(crate) fn read(body: &[u8]) -> Result<UpstreamListing, String> {
    let Shape(listing) = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    listing.ok_or_else(|| "it has neither `data` nor `models`".to_owned())
}

struct Shape(Option<UpstreamListing>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of models")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut listing = UpstreamListing::default();
        // Parse one entry at a time: the whole list as a tree would take many times its size.
        while let Some(entry) = entries.next_element::<Value>()? {
            listing.take(&entry);
        }
        Ok(Shape(Some(listing)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Shape, A::Error> {
        let mut found: Option<UpstreamListing> = None;
        while let Some(name) = members.next_key::<String>()? {
            if LISTS.contains(&name.as_str()) {
                let ListValue(listing) = members.next_value()?;
                // Some servers send both, one of them empty.
                if let Some(listing) = listing
                    && found.as_ref().is_none_or(|earlier| earlier.models.len() < listing.models.len())
                {
                    found = Some(listing);
                }
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Shape(found))
    }
}

/// The value of `data` or `models`: a list, or null, which some servers send for an empty one.
struct ListValue(Option<UpstreamListing>);

impl<'de> Deserialize<'de> for ListValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = ListValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of models")
            }

            fn visit_unit<E: de::Error>(self) -> Result<ListValue, E> {
                Ok(ListValue(Some(UpstreamListing::default())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<ListValue, A::Error> {
                ShapeVisitor.visit_seq(entries).map(|Shape(listing)| ListValue(listing))
            }
        }
        from.deserialize_any(ListVisitor)
    }
}

impl UpstreamListing {
    fn take(&mut self, entry: &Value) {
        let fields = IDS.iter().map(|name| entry.get(name)).chain([Some(entry)]);
        let id = fields.flatten().find_map(Value::as_str).filter(|_| is_callable(entry));
        let plain = |id| PREFIXES.iter().find_map(|prefix| str::strip_prefix(id, prefix)).unwrap_or(id);
        let Some(id) = id.map(plain).filter(|id| is_model_id(id)) else {
            self.skipped.without_usable_id += 1;
            return;
        };
        if self.models.contains_key(id) {
            self.skipped.repeated += 1;
        } else if LISTED_MODELS.is_full(self.models.len()) {
            self.skipped.over_limit += 1;
        } else {
            self.models.insert(id.to_owned(), offer(entry, id));
        }
    }
}

fn offer(entry: &Value, id: &str) -> ListedModel {
    let names = NAMES.iter().filter_map(|name| entry.get(name));
    let name = names.into_iter().find_map(|name| line(name, id));
    let number =
        |paths: &[&str]| paths.iter().find_map(|path| entry.pointer(path)?.as_u64().filter(|n| *n > 0));
    ListedModel {
        created: entry.get("created").and_then(seconds).or_else(|| moment(entry.get("created_at")?)),
        owned_by: entry.get("owned_by").and_then(|owner| line(owner, "")),
        facts: Facts {
            display_name: name,
            vision: takes(entry, "image")
                .or_else(|| can(entry, "vision"))
                .or_else(|| can(entry, "image_input")),
            audio: takes(entry, "audio"),
            tools: supports(entry, "tools").or_else(|| can(entry, "function_calling")),
            reasoning: supports(entry, "reasoning")
                .or_else(|| can(entry, "reasoning"))
                .or_else(|| can(entry, "thinking"))
                .or_else(|| entry.get("thinking")?.as_bool()),
            protocols: None,
            lacks: None,
            context_window: number(CONTEXT_FIELDS),
            max_output_tokens: number(OUTPUT_FIELDS),
            rules: ModelRules::UNKNOWN,
            prices: entry.get("pricing").and_then(prices_a_token),
        },
    }
}

/// Returns a short single-line text that differs from the id.
fn line(value: &Value, id: &str) -> Option<String> {
    let text = value.as_str()?.trim();
    let is_good = !text.is_empty() && text.len() <= 256 && text != id && !text.chars().any(char::is_control);
    is_good.then(|| text.to_owned())
}

fn seconds(value: &Value) -> Option<u64> {
    let whole = value.as_u64().or_else(|| format!("{:.0}", value.as_f64()?).parse().ok());
    whole.filter(|seconds| *seconds > 0)
}

/// Parses an RFC 3339 time into seconds since the Unix epoch.
fn moment(value: &Value) -> Option<u64> {
    let at: jiff::Timestamp = value.as_str()?.parse().ok()?;
    u64::try_from(at.as_second()).ok().filter(|seconds| *seconds > 0)
}

/// True if requests can name the model: Bedrock lists models that are only reachable through an inference profile.
fn is_callable(entry: &Value) -> bool {
    let ways = entry.get("inferenceTypesSupported").and_then(Value::as_array);
    ways.is_none_or(|ways| ways.iter().any(|way| way == "ON_DEMAND"))
}

/// True if the list of input modalities, as OpenRouter and Bedrock provide it, contains `modality`.
fn takes(entry: &Value, modality: &str) -> Option<bool> {
    let places = ["/architecture/input_modalities", "/inputModalities"];
    let list = places.iter().find_map(|place| entry.pointer(place)?.as_array())?;
    Some(list.iter().filter_map(Value::as_str).any(|other| other.eq_ignore_ascii_case(modality)))
}

/// True if OpenRouter's list of parameters contains `parameter`.
fn supports(entry: &Value, parameter: &str) -> Option<bool> {
    let list = entry.get("supported_parameters")?.as_array()?;
    Some(list.iter().any(|other| other == parameter))
}

/// Reads a capability flag of Mistral or Anthropic.
fn can(entry: &Value, capability: &str) -> Option<bool> {
    let support = entry.get("capabilities")?.get(capability)?;
    support.as_bool().or_else(|| support.get("supported")?.as_bool())
}

/// Reads OpenRouter's prices: dollars per token, as text. Returns `None` if each request has a price too, because token
/// prices alone would be incomplete.
fn prices_a_token(pricing: &Value) -> Option<Prices> {
    let price = |name: &str| {
        let dollars: f64 = pricing.get(name)?.as_str()?.parse().ok()?;
        femto_a_token(dollars * 1e6)
    };
    if price("request").is_some_and(|request| request > 0) {
        return None;
    }
    let mut rates = Rates::default();
    rates.set(Class::Input, Some(price("prompt")?));
    rates.set(Class::Output, Some(price("completion")?));
    // Zero means that the class is not billed separately.
    for (class, name) in [
        (Class::CacheRead, "input_cache_read"),
        (Class::CacheWrite, "input_cache_write"),
        (Class::Reasoning, "internal_reasoning"),
    ] {
        rates.set(class, price(name).filter(|price| *price > 0));
    }
    Some(Prices::flat(rates))
}

/// Context length fields of OpenRouter, vLLM and SGLang, Mistral, Groq, llama.cpp, Ollama, Anthropic and Gemini.
const CONTEXT_FIELDS: &[&str] = &[
    "/context_length",
    "/max_model_len",
    "/max_context_length",
    "/context_window",
    "/meta/n_ctx",
    "/meta/n_ctx_train",
    "/max_input_tokens",
    "/inputTokenLimit",
];
/// Output limit fields of OpenRouter, Groq, Anthropic and Gemini.
const OUTPUT_FIELDS: &[&str] =
    &["/top_provider/max_completion_tokens", "/max_completion_tokens", "/max_tokens", "/outputTokenLimit"];
/// Names of the list: OpenAI's and most others', Gemini's and Ollama's, and the two of Bedrock.
const LISTS: &[&str] = &["data", "models", "modelSummaries", "inferenceProfileSummaries"];
/// Id prefixes that requests omit.
const PREFIXES: [&str; 2] = ["models/", "publishers/google/models/"];
/// Fields of the id.
const IDS: &[&str] = &["id", "modelId", "inferenceProfileId", "model", "name"];
/// Fields of the display name.
const NAMES: &[&str] = &["display_name", "displayName", "modelName", "inferenceProfileName", "name"];
const PAGE_NAME_BYTES_MAX: usize = 4_096;

#[cfg(test)]
mod tests;
