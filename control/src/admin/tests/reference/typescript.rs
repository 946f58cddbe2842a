//! The shapes as TypeScript.

use serde_json::{Map, Value};

use super::{ApiReference, REFERENCE, described};

/// Returns the file of the console's types.
pub(super) fn file(reference: &ApiReference) -> String {
    let declarations = reference.shapes.iter().map(|(name, shape)| declaration(name, shape));
    format!("{HEAD}{}", declarations.collect::<String>())
}

/// Returns the type of a value with this schema.
pub(super) fn type_of(schema: &Value) -> String {
    let Some(members) = schema.as_object() else { return "unknown".to_owned() };
    if let Some(name) = members.get("$ref").and_then(Value::as_str) {
        return name.trim_start_matches(REFERENCE).to_owned();
    }
    if let Some(value) = members.get("const") {
        return value.to_string();
    }
    if let Some(values) = members.get("enum").and_then(Value::as_array) {
        return union(values.iter().map(Value::to_string));
    }
    if let Some(parts) = members.get("anyOf").or_else(|| members.get("oneOf")).and_then(Value::as_array) {
        return union(parts.iter().map(type_of));
    }
    match members.get("type") {
        Some(Value::Array(names)) => union(names.iter().map(|name| of_kind(name, members))),
        Some(name) => of_kind(name, members),
        None => "unknown".to_owned(),
    }
}

fn of_kind(name: &Value, members: &Map<String, Value>) -> String {
    match name.as_str() {
        Some("integer" | "number") => "number".to_owned(),
        Some("array") => {
            let item = members.get("items").map_or_else(|| "unknown".to_owned(), type_of);
            if item.contains(' ') { format!("({item})[]") } else { format!("{item}[]") }
        }
        Some("object") => object(members),
        Some(name) => name.to_owned(),
        None => "unknown".to_owned(),
    }
}

/// Returns the type of an object inside another type.
fn object(members: &Map<String, Value>) -> String {
    match members.get("additionalProperties") {
        Some(Value::Object(of)) => format!("Record<string, {}>", type_of(&Value::Object(of.clone()))),
        _ => "Record<string, unknown>".to_owned(),
    }
}

/// Joins types, each once, null last.
fn union(types: impl Iterator<Item = String>) -> String {
    let mut joined: Vec<String> = Vec::new();
    for name in types.flat_map(|union| union.split(" | ").map(str::to_owned).collect::<Vec<_>>()) {
        if !joined.contains(&name) {
            joined.push(name);
        }
    }
    joined.sort_by_key(|name| name == "null");
    joined.join(" | ")
}

/// Returns the members of a shape: name, schema, and true if it is always there.
pub(super) fn members(shape: &Value) -> Vec<(&str, &Value, bool)> {
    let required: Vec<&str> =
        shape["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let members = shape["properties"].as_object().into_iter().flatten();
    members.map(|(name, schema)| (name.as_str(), schema, required.contains(&name.as_str()))).collect()
}

fn declaration(name: &str, shape: &Value) -> String {
    let mut text = comment(&described(shape), "");
    if shape["properties"].is_null() {
        return text + &format!("export type {name} = {};\n\n", type_of(shape));
    }
    text += &format!("export type {name} = {{\n");
    for (member, schema, is_required) in members(shape) {
        let mark = if is_required { "" } else { "?" };
        text += &comment(&described(schema), "  ");
        text += &format!("  {member}{mark}: {};\n", type_of(schema));
    }
    match &shape["additionalProperties"] {
        Value::Object(of) => {
            text += &format!("  [name: string]: {};\n", type_of(&Value::Object(of.clone())));
        }
        Value::Bool(true) => text += "  [name: string]: unknown;\n",
        _ => {}
    }
    text + "};\n\n"
}

fn comment(text: &str, indent: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{indent}/** {} */\n", text.replace("*/", "* /")) }
}

const HEAD: &str = "// Generated from the answers and bodies of the admin API: do not edit. `LLMGW_WRITE_REFERENCE=1 cargo test -p control \
reference` writes it.\n// docs/admin-api/ shows which route has which shape. Times are in milliseconds (_ms) or microseconds (_us).\n\n\
/** A page of a list. */\nexport type Page<T> = { data: T[]; next_cursor: string | null };\n\n";
