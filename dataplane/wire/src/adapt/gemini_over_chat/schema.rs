//! Schemas of Gemini requests. Google's own, a message with upper-case types and `nullable`, becomes a JSON schema. Members
//! for JSON schemas pass as they are, except for the upper-case types that Gemini CLI writes there.

use simd_json::prelude::ValueAsScalar as _;

use crate::adapt::read::{as_text, as_whole, member};
use crate::json::{JsonWriter, Tree};

/// Writes Google's schema as a JSON schema.
pub(super) fn of_message(schema: Tree<'_, '_>, json: &mut JsonWriter) {
    let Some(members) = schema.as_object() else {
        json.tree(schema);
        return;
    };
    let is_nullable = member(&members, "nullable").and_then(|nullable| nullable.as_bool()) == Some(true);
    json.object();
    for (name, value) in members.iter() {
        let name = match name {
            "any_of" => "anyOf",
            "additional_properties" => "additionalProperties",
            "min_items" => "minItems",
            "max_items" => "maxItems",
            "min_length" => "minLength",
            "max_length" => "maxLength",
            "min_properties" => "minProperties",
            "max_properties" => "maxProperties",
            name => name,
        };
        match name {
            "nullable" | "propertyOrdering" | "property_ordering" | "example" => {}
            "format" if as_text(value) == Some("enum") => {}
            "type" => kind(as_text(value).unwrap_or_default(), is_nullable, json),
            "items" | "additionalProperties" => of_message(value, json.name(name)),
            "anyOf" => list(value, json.name(name), is_nullable, r#"{"type":"null"}"#, of_message),
            "enum" => list(value, json.name(name), is_nullable, "null", |value, json| {
                json.tree(value);
            }),
            "properties" => each(value, json.name(name), of_message),
            "defs" | "$defs" => each(value, json.name("$defs"), of_message),
            "ref" | "$ref" => drop(json.name("$ref").tree(value)),
            _ if NUMBERS.contains(&name) => number(value, json.name(name)),
            _ => drop(json.quoted_name(name).tree(value)),
        }
    }
    json.end_object();
}

/// Writes a JSON schema with types in lower case.
pub(super) fn of_json_schema(schema: Tree<'_, '_>, json: &mut JsonWriter) {
    if let Some(list) = schema.as_array() {
        json.list();
        list.iter().for_each(|schema| of_json_schema(schema, json));
        json.end_list();
        return;
    }
    let Some(members) = schema.as_object() else {
        json.tree(schema);
        return;
    };
    json.object();
    for (name, value) in members.iter() {
        json.quoted_name(name);
        match name {
            "type" => kinds(value, json),
            "properties" | "$defs" | "definitions" if value.is_object() => each(value, json, of_json_schema),
            "enum" | "const" | "default" | "examples" | "required" => drop(json.tree(value)),
            _ => of_json_schema(value, json),
        }
    }
    json.end_object();
}

/// Writes `type`, unless it is unspecified.
fn kind(name: &str, is_nullable: bool, json: &mut JsonWriter) {
    let kind = name.to_ascii_lowercase();
    if kind == "type_unspecified" {
        return;
    }
    json.name("type");
    match is_nullable {
        true => drop(json.list().text(&kind).text("null").end_list()),
        false => drop(json.text(&kind)),
    }
}

/// Writes the value of `type` in a JSON schema.
fn kinds(value: Tree<'_, '_>, json: &mut JsonWriter) {
    let lower = |name: &str| if TYPES.contains(&name) { name.to_ascii_lowercase() } else { name.to_owned() };
    match (as_text(value), value.as_array()) {
        (Some(name), _) => drop(json.text(&lower(name))),
        (None, Some(names)) => {
            json.list();
            for name in names.iter() {
                match as_text(name) {
                    Some(name) => drop(json.text(&lower(name))),
                    None => drop(json.tree(name)),
                }
            }
            json.end_list();
        }
        (None, None) => drop(json.tree(value)),
    }
}

/// Writes a list, with `null` as a last element if `is_nullable`.
fn list(
    value: Tree<'_, '_>,
    json: &mut JsonWriter,
    is_nullable: bool,
    null: &str,
    write: impl Fn(Tree<'_, '_>, &mut JsonWriter),
) {
    json.list();
    value.as_array().iter().flatten().for_each(|element| write(element, json));
    if is_nullable {
        json.raw(null.as_bytes());
    }
    json.end_list();
}

/// Writes an object whose members are schemas.
fn each(value: Tree<'_, '_>, json: &mut JsonWriter, write: impl Fn(Tree<'_, '_>, &mut JsonWriter)) {
    json.object();
    for (name, schema) in value.as_object().iter().flat_map(|members| members.iter().collect::<Vec<_>>()) {
        write(schema, json.quoted_name(name));
    }
    json.end_object();
}

/// Writes a whole number, which may be a string or have a fraction of zero.
pub(super) fn number(value: Tree<'_, '_>, json: &mut JsonWriter) {
    match as_text(value).map_or_else(|| as_whole(value), |text| text.parse().ok()) {
        Some(number) => drop(json.number(number)),
        None => drop(json.tree(value)),
    }
}

const TYPES: [&str; 7] = ["OBJECT", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "NULL"];
const NUMBERS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];
