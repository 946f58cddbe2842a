//! The JSON Schema of the file, generated from the types in `raw`, and the validation of a tree against it.
//!
//! Editors and the gateway use the same schema: the gateway rejects whatever the schema rejects, and reports all faults
//! at once. [`prune`] removes rejected nodes, so that the rest can be parsed and checked further.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::nearest::nearest;
use super::raw;
use super::yaml::{YamlPath, YamlStep};

/// Returns the JSON Schema of the configuration file.
pub fn json() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(raw::File).to_value());
    &SCHEMA
}

/// Returns the schema as the text that is committed.
pub fn text() -> String {
    format!("{:#}\n", json())
}

/// A node that does not fit the schema, with the reason.
#[derive(Debug)]
pub(super) struct SchemaFault {
    pub(super) path: YamlPath,
    pub(super) message: String,
}

/// Returns all nodes of `tree` that do not fit the schema, in the order of the tree.
pub(super) fn check(tree: &Value) -> Vec<SchemaFault> {
    let mut check = Check { path: YamlPath::new(), faults: Vec::new() };
    check.node(json(), tree);
    check.faults
}

/// Returns all nodes of `tree` that do not fit the schema of a provider instance.
pub(super) fn check_provider(tree: &Value) -> Vec<SchemaFault> {
    let mut check = Check { path: YamlPath::new(), faults: Vec::new() };
    if let Some(schema) = json().pointer("/$defs/Provider") {
        check.node(schema, tree);
    }
    check.faults
}

/// True if `server` of the file has this key.
pub(super) fn is_server_key(key: &str) -> bool {
    json().pointer("/$defs/Server/properties").is_some_and(|keys| keys.get(key).is_some())
}

/// Removes the node at `path` from `tree`. Removing the root leaves an empty map.
pub(super) fn prune(tree: &mut Value, path: &[YamlStep]) {
    let Some((last, above)) = path.split_last() else {
        *tree = Value::Object(Map::new());
        return;
    };
    let parent = above.iter().try_fold(tree, |node, step| match step {
        YamlStep::Key(key) => node.get_mut(key),
        YamlStep::Item(index) => node.get_mut(*index),
    });
    match (parent, last) {
        (Some(Value::Object(map)), YamlStep::Key(key)) => {
            map.remove(key);
        }
        // Leave null in place of a list item, so that the paths of its neighbours stay valid.
        (Some(Value::Array(list)), YamlStep::Item(index)) => {
            if let Some(item) = list.get_mut(*index) {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}

struct Check {
    path: YamlPath,
    faults: Vec<SchemaFault>,
}

impl Check {
    fn node(&mut self, schema: &Value, node: &Value) {
        let schema = resolve(schema);
        if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
            return self.branch(branches, node);
        }
        if let Some(words) = words_of(schema) {
            return self.word(&words, node);
        }
        if !fits_type(schema, node) {
            return self.fault(format!("expected {}, found {}", expected(schema), found(node)));
        }
        match node {
            Value::Object(map) => self.map(schema, map),
            Value::Array(list) => self.list(schema, list),
            Value::Number(_) => self.range(schema, node),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    /// Checks against the first alternative whose type fits; faults are reported in its terms.
    fn branch(&mut self, branches: &[Value], node: &Value) {
        let fitting = branches.iter().find(|branch| {
            let schema = resolve(branch);
            words_of(schema).map_or_else(|| fits_type(schema, node), |_| node.is_string())
        });
        match fitting {
            Some(branch) => self.node(branch, node),
            None => {
                let shapes: Vec<_> = branches
                    .iter()
                    .map(|branch| expected(resolve(branch)))
                    .filter(|shape| shape != "nothing")
                    .collect();
                self.fault(format!("expected {}, found {}", shapes.join(" or "), found(node)));
            }
        }
    }

    fn word(&mut self, words: &[&str], node: &Value) {
        let list = words.join(", ");
        match node.as_str() {
            Some(word) if words.contains(&word) => {}
            Some(word) => {
                let hint = did_you_mean(word, words.iter().copied());
                self.fault(format!("must be one of {list}{hint}"));
            }
            None => self.fault(format!("must be one of {list}; found {}", found(node))),
        }
    }

    fn map(&mut self, schema: &Value, map: &Map<String, Value>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let further = schema.get("additionalProperties");
        for (key, value) in map {
            self.path.push(YamlStep::Key(key.clone()));
            match (properties.and_then(|known| known.get(key)), further) {
                (Some(property), _) => self.node(property, value),
                (None, Some(schema @ Value::Object(_))) => self.node(schema, value),
                (None, Some(Value::Bool(true))) => {}
                (None, _) => self.unknown(key, properties),
            }
            self.path.pop();
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !map.contains_key(name) {
                self.fault(format!("{name} is missing"));
            }
        }
    }

    fn unknown(&mut self, key: &str, properties: Option<&Map<String, Value>>) {
        if key == "<<" {
            return self.fault("merge keys are not supported; repeat the settings".to_owned());
        }
        let known: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("; did you mean {near}?"),
            None => format!("; known keys: {}", known.join(", ")),
        };
        self.fault(format!("unknown key{hint}"));
    }

    fn list(&mut self, schema: &Value, list: &[Value]) {
        let Some(items) = schema.get("items") else { return };
        for (index, item) in list.iter().enumerate() {
            self.path.push(YamlStep::Item(index));
            self.node(items, item);
            self.path.pop();
        }
    }

    fn range(&mut self, schema: &Value, node: &Value) {
        let bound = |name| schema.get(name).and_then(Value::as_f64);
        let Some(number) = node.as_f64() else { return };
        let low = bound("minimum").filter(|minimum| number < *minimum);
        let high = bound("maximum").filter(|maximum| number > *maximum);
        match (low, high) {
            (Some(minimum), _) => self.fault(format!("must be at least {minimum}")),
            (None, Some(maximum)) => self.fault(format!("must be at most {maximum}")),
            (None, None) => {}
        }
    }

    fn fault(&mut self, message: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(SchemaFault { path: self.path.clone(), message });
        }
    }
}

/// Returns `; did you mean X?`, or an empty text if no known name is close.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

/// Follows a reference to its definition.
fn resolve(schema: &Value) -> &Value {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"));
    name.and_then(|name| json().get("$defs")?.get(name)).unwrap_or(schema)
}

/// Returns the values of an enumeration.
fn words_of(schema: &Value) -> Option<Vec<&str>> {
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return Some(words.iter().filter_map(Value::as_str).collect());
    }
    let choices = schema.get("oneOf").and_then(Value::as_array)?;
    choices.iter().map(|choice| choice.get("const").and_then(Value::as_str)).collect()
}

fn types_of(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn fits_type(schema: &Value, node: &Value) -> bool {
    types_of(schema).iter().any(|name| match *name {
        "null" => node.is_null(),
        "boolean" => node.is_boolean(),
        "integer" => node.is_i64() || node.is_u64(),
        "number" => node.is_number(),
        "string" => node.is_string(),
        "array" => node.is_array(),
        "object" => node.is_object(),
        _ => false,
    })
}

fn expected(schema: &Value) -> String {
    let words = types_of(schema).into_iter().filter(|name| *name != "null").map(|name| match name {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "text",
        "array" => "a list",
        "object" => "a map",
        other => other,
    });
    let words: Vec<_> = words.collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" or ") }
}

fn found(node: &Value) -> &'static str {
    match node {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false (put it in quotes if it is text)",
        Value::Number(_) => "a number (put it in quotes if it is text)",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

const FAULTS_MAX: usize = 100;
