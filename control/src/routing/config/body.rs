//! Changes of requests by a provider instance and its models: members of JSON bodies, and headers of models.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use shared::body_members::{BodyMember, BodyMembers, MemberChange, MemberValue};

use super::credential::is_credential;
use super::provider::{ProviderReader, RESERVED_HEADERS, is_of_extensions, key};
use super::raw;
use super::yaml::{YamlPath, YamlStep};

impl ProviderReader<'_> {
    /// Reads `body`, which is below `above`.
    pub(super) fn body(&mut self, above: &[YamlStep], raw: Option<&raw::BodyMembers>) -> Option<BodyMembers> {
        let raw = raw?;
        let mut members: Vec<BodyMember> = Vec::new();
        let count = raw.defaults.len() + raw.set.len() + raw.remove.len();
        let at = |steps: &[YamlStep]| -> YamlPath { [above, &[key("body")], steps].concat() };
        if count == 0 {
            self.note(&at(&[]), "changes nothing: set defaults, set or remove, or omit it");
        } else if count > BodyMembers::COUNT_MAX {
            self.note(&at(&[]), format!("at most {} members are possible", BodyMembers::COUNT_MAX));
            return None;
        }
        for (list, values) in [("defaults", &raw.defaults), ("set", &raw.set)] {
            for (name, value) in values {
                let at = at(&[key(list), key(name)]);
                let value = self.member_value(&at, value);
                let change = value.map(|value| match list {
                    "set" => MemberChange::Set(value),
                    _ => MemberChange::Default(value),
                });
                self.add_member(&at, name, change, &mut members);
            }
        }
        for (place, name) in raw.remove.iter().enumerate() {
            let at = at(&[key("remove"), YamlStep::Item(place)]);
            self.add_member(&at, name, Some(MemberChange::Remove), &mut members);
        }
        BodyMembers::new(members)
    }

    fn add_member(
        &mut self,
        at: &[YamlStep],
        name: &str,
        change: Option<MemberChange>,
        members: &mut Vec<BodyMember>,
    ) {
        if let Some(why) = fault_of_member(name) {
            self.note(at, why);
        } else if members.iter().any(|earlier| *earlier.name == *name) {
            self.note(at, format!("'{name}' occurs twice; keep one"));
        } else {
            members.extend(change.map(|change| BodyMember { name: name.into(), change }));
        }
    }

    /// Reads a value. A disabled instance keeps its settings and needs no working references.
    fn member_value(&mut self, at: &[YamlStep], value: &Value) -> Option<MemberValue> {
        let shown: Box<str> = value.to_string().into();
        let sent = if self.raw.disabled { value.clone() } else { self.resolved(at, value)? };
        let json: Box<str> = sent.to_string().into();
        if json.len() > BodyMembers::VALUE_BYTES_MAX {
            let most = BodyMembers::VALUE_BYTES_MAX;
            self.note(at, format!("has {} bytes; the maximum is {most}", json.len()));
            return None;
        }
        Some(MemberValue { json, shown })
    }

    /// Returns a value with the values of its references.
    fn resolved(&mut self, at: &[YamlStep], value: &Value) -> Option<Value> {
        Some(match value {
            Value::String(text) if text.contains("${") => {
                Value::String(self.referenced(at, text.trim())?.expose().clone())
            }
            Value::Array(values) => {
                let values: Option<Vec<Value>> =
                    values.iter().map(|value| self.resolved(at, value)).collect();
                Value::Array(values?)
            }
            Value::Object(members) => {
                let members =
                    members.iter().map(|(name, value)| Some((name.clone(), self.resolved(at, value)?)));
                let members: Option<Map<String, Value>> = members.collect();
                Value::Object(members?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        })
    }

    /// Reads the headers of a model, which is below `above`.
    pub(super) fn model_headers(
        &mut self,
        above: &[YamlStep],
        raw: &raw::DescribedModel,
    ) -> Box<[(HeaderName, HeaderValue)]> {
        let (mut headers, is_disabled) = (Vec::new(), self.raw.disabled);
        for (written, text) in &raw.headers {
            let at: YamlPath = [above, &[key("headers"), key(written)]].concat();
            let Ok(name) = HeaderName::from_bytes(written.as_bytes()) else {
                self.note(&at, "is not a header name");
                continue;
            };
            if RESERVED_HEADERS.contains(&name.as_str())
                || is_of_extensions(name.as_str()) && !is_credential(written)
            {
                self.note(&at, "is set by llmgw itself");
            } else if is_credential(written) {
                self.note(&at, "is a credential, which belongs to the provider: use its api_key or headers");
            } else if headers.iter().any(|(earlier, _)| *earlier == name) {
                self.note(&at, "occurs twice with different spellings");
            } else if let Some(secret) = (!is_disabled).then(|| self.secret(&at, text.trim())).flatten() {
                match HeaderValue::from_str(secret.expose()) {
                    Ok(mut value) => {
                        value.set_sensitive(true);
                        headers.push((name, value));
                    }
                    Err(_) => self.note(&at, "contains characters that are invalid in a header"),
                }
            }
        }
        headers.into()
    }
}

/// Returns the reason why a member cannot be changed, if there is one.
fn fault_of_member(name: &str) -> Option<String> {
    let is_named = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if name.is_empty() || name.len() > BodyMembers::NAME_BYTES_MAX || !is_named {
        let most = BodyMembers::NAME_BYTES_MAX;
        return Some(format!("member names must be 1 to {most} letters, digits, '_', '-' or '.'"));
    }
    FIXED.iter().find(|(names, _)| names.contains(&name)).map(|(_, why)| format!("'{name}' {why}"))
}

/// Returns the texts of a value that references stand for.
pub(crate) fn secrets_of(value: &MemberValue) -> Vec<String> {
    let mut found = Vec::new();
    if value.json != value.shown
        && let (Ok(sent), Ok(shown)) = (serde_json::from_str(&value.json), serde_json::from_str(&value.shown))
    {
        collect(&sent, &shown, &mut found);
    }
    found
}

fn collect(sent: &Value, shown: &Value, found: &mut Vec<String>) {
    match (sent, shown) {
        (Value::String(sent), Value::String(shown)) if sent != shown => found.push(sent.clone()),
        (Value::Array(sent), Value::Array(shown)) => {
            sent.iter().zip(shown).for_each(|(sent, shown)| collect(sent, shown, found));
        }
        (Value::Object(sent), Value::Object(shown)) => {
            sent.values().zip(shown.values()).for_each(|(sent, shown)| collect(sent, shown, found));
        }
        _ => {}
    }
}

/// Members that cannot be changed, and why.
const FIXED: &[(&[&str], &str)] = &[
    (&["model", "stream"], "decides where a request goes and how it is answered; it cannot be changed"),
    (
        &[
            "messages",
            "input",
            "contents",
            "system",
            "instructions",
            "systemInstruction",
            "system_instruction",
            "prompt",
        ],
        "is the content of a request; it cannot be changed",
    ),
    (&["n", "stream_options"], "decides what a request costs and reports; it cannot be changed"),
    (
        &["previous_response_id", "conversation"],
        "refers to what the client has stored at a provider; it cannot be changed",
    ),
    (&["affinity_key", "failover_budget_ms"], "is read by llmgw itself and not sent"),
];
