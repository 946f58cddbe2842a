//! The query parameters of the admin API: their names, values and descriptions, which are those of the structs that take them.
//! `tests/queries.rs` compares the choices and the bounds with those that the gateway states when it refuses a value.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::described;
use crate::admin::dry_run::DryRunQuery;
use crate::admin::query::ANY_NAME;
use crate::admin::reference::Shape;
use crate::admin::{Route, TABLES};

/// A query parameter of a route.
#[derive(Clone, PartialEq)]
pub(in crate::admin::tests) struct Parameter {
    pub(in crate::admin::tests) name: String,
    pub(in crate::admin::tests) schema: Value,
    doc: String,
    is_required: bool,
}

impl Route {
    /// Returns the query parameters.
    pub(in crate::admin::tests) fn parameters(&self) -> Vec<Parameter> {
        let settings = SchemaSettings::draft2020_12()
            .for_deserialize()
            .with(|settings| settings.inline_subschemas = true);
        let mut generator = settings.into_generator();
        let shape = self.reference.query.map(|shape| shape(&mut generator));
        let dry_run = self.has_dry_run.then(|| DryRunQuery::json_schema(&mut generator));
        shape.into_iter().chain(dry_run).flat_map(|shape| members(&shape.to_value())).collect()
    }
}

/// Returns the parameters of a struct, or of the structs of a tuple.
fn members(shape: &Value) -> Vec<Parameter> {
    let structs = shape["prefixItems"].as_array().into_iter().flatten();
    let own = shape["properties"].as_object().into_iter().flatten().map(|(name, schema)| {
        let is_required = shape["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
        let (doc, mut schema) = (described(schema), present(schema));
        if let Some(prefix) = name.strip_suffix(ANY_NAME) {
            let pattern = format!("^{}", prefix.replace('.', "\\."));
            schema = json!({"type": "object", "patternProperties": {pattern: {"type": "string"}}, "additionalProperties": false});
        }
        Parameter { name: name.clone(), schema, doc, is_required }
    });
    structs.flat_map(members).chain(own).collect()
}

/// Returns the schema of a value that is present, and with the names of an enum in one list.
fn present(schema: &Value) -> Value {
    if let Some([one, ..]) = schema["anyOf"].as_array().map(Vec::as_slice) {
        return present(one);
    }
    if let Some(names) = schema["oneOf"].as_array() {
        let names = names
            .iter()
            .flat_map(|name| name["enum"].as_array().cloned().unwrap_or_else(|| vec![name["const"].clone()]));
        return json!({"type": "string", "enum": names.collect::<Vec<_>>()});
    }
    let mut schema = schema.clone();
    if let Some(kind) = schema["type"].get(0).cloned() {
        schema["type"] = kind;
    }
    if let Some(names) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        names.retain(|name| !name.is_null());
    }
    if let Some(items) = schema.get_mut("items") {
        *items = present(items);
    }
    if let Some(members) = schema.as_object_mut() {
        members.remove("description");
    }
    schema
}

/// The keys of the parameters among the components. The parameter that most routes have under a name has the name as its key.
pub(super) struct ParameterKeys(BTreeMap<String, Parameter>);

impl ParameterKeys {
    pub(super) fn new() -> Self {
        let mut counted: BTreeMap<String, Vec<(Parameter, usize)>> = BTreeMap::new();
        for parameter in TABLES.iter().copied().flatten().flat_map(Route::parameters) {
            let known = counted.entry(parameter.name.clone()).or_default();
            match known.iter_mut().find(|(other, _)| *other == parameter) {
                Some((_, count)) => *count += 1,
                None => known.push((parameter, 1)),
            }
        }
        let usual = counted.into_iter().filter_map(|(name, known)| {
            let most = known.iter().map(|(_, count)| *count).max()?;
            let mut usual = known.into_iter().filter(|(_, count)| *count == most);
            let (parameter, _) = usual.next()?;
            usual.next().is_none().then_some((name, parameter))
        });
        Self(usual.collect())
    }

    /// Returns the key of a parameter of a route.
    pub(super) fn key(&self, route: &Route, parameter: &Parameter) -> String {
        let name = parameter.shown_name();
        if self.0.get(&parameter.name) == Some(parameter) {
            return name;
        }
        format!("{}.{name}", route.pattern.replace("/{}", "").replace('/', "."))
    }
}

impl Parameter {
    /// Returns the name in the document: an object has that of several parameters.
    fn shown_name(&self) -> String {
        match self.name.strip_suffix(ANY_NAME) {
            Some(prefix) => format!("{}s", prefix.trim_end_matches('.')),
            None => self.name.clone(),
        }
    }

    /// Returns its Parameter Object.
    pub(super) fn object(&self) -> Value {
        let mut object =
            json!({"name": self.shown_name(), "in": "query", "description": self.doc, "schema": self.schema});
        if self.is_required {
            object["required"] = json!(true);
        }
        match self.schema["type"].as_str() {
            Some("array") => object["explode"] = json!(false),
            // Each member of the object is a parameter of its own.
            Some("object") => object["explode"] = json!(true),
            _ => {}
        }
        object
    }
}
