//! JSON schemas of tools and answers, for targets that require more of a schema than the client's vendor does.

use simd_json::prelude::ValueAsScalar as _;

use super::read::{self, Object};
use crate::json::{JsonWriter, Tree};

/// Writes the schema of a tool's input. Targets require an object schema: one without `type` gets it, and a missing or
/// empty one becomes that of an object without members.
pub(crate) fn write_object(schema: Option<Tree<'_, '_>>, json: &mut JsonWriter) {
    let members = schema.and_then(|schema| schema.as_object());
    match (schema, members.filter(|members| !members.is_empty())) {
        (Some(schema), Some(members)) if read::member(&members, "type").is_some() => drop(json.tree(schema)),
        (_, Some(members)) => {
            json.object().name("type").text("object");
            for (name, value) in members.iter().filter(|(name, _)| *name != "type") {
                json.quoted_name(name).tree(value);
            }
            json.end_object();
        }
        (_, None) => drop(json.raw(br#"{"type":"object","properties":{}}"#)),
    }
}

/// Returns true if OpenAI accepts the schema as strict: each object in it forbids other members and requires all its
/// own.
pub(crate) fn is_strict(schema: Tree<'_, '_>) -> bool {
    let Some(members) = schema.as_object() else { return true };
    let properties = read::member(&members, "properties").and_then(|properties| properties.as_object());
    let is_object = properties.is_some() || read::member_text(&members, "type") == Some("object");
    if is_object && !is_closed(&members, properties.as_ref()) {
        return false;
    }
    let of_maps = ["properties", "$defs", "definitions"].into_iter().filter_map(|name| {
        let inner = read::member(&members, name)?.as_object()?;
        Some(inner.iter().map(|(_, value)| value).collect::<Vec<_>>())
    });
    let of_lists = ["anyOf", "allOf", "oneOf", "prefixItems"].into_iter().filter_map(|name| {
        let inner = read::member(&members, name)?.as_array()?;
        Some(inner.iter().collect::<Vec<_>>())
    });
    let items = read::member(&members, "items").filter(|items| items.is_object());
    of_maps.chain(of_lists).flatten().chain(items).all(is_strict)
}

fn is_closed(members: &Object<'_, '_>, properties: Option<&Object<'_, '_>>) -> bool {
    let other = read::member(members, "additionalProperties").and_then(|other| other.as_bool());
    let required = read::member(members, "required").and_then(|required| required.as_array());
    let required: Vec<&str> = required.iter().flatten().filter_map(read::as_text).collect();
    let mut names = properties.into_iter().flat_map(|properties| properties.keys().collect::<Vec<_>>());
    other == Some(false) && names.all(|name| required.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(document: &str, read: impl FnOnce(Tree<'_, '_>) -> T) -> T {
        let mut bytes = document.as_bytes().to_vec();
        read(crate::json::parse(&mut bytes).unwrap().as_value())
    }

    #[test]
    fn a_schema_without_a_type_becomes_an_object_schema() {
        let rows = [
            ("{}", r#"{"type":"object","properties":{}}"#),
            (r#"{"properties":{"z":{},"a":{}}}"#, r#"{"type":"object","properties":{"z":{},"a":{}}}"#),
            (r#"{"type":null,"required":[]}"#, r#"{"type":"object","required":[]}"#),
            (r#"{"type":["object","null"]}"#, r#"{"type":["object","null"]}"#),
        ];
        for (schema, want) in rows {
            let mut json = JsonWriter::default();
            with(schema, |schema| write_object(Some(schema), &mut json));
            assert_eq!(String::from_utf8(json.finish()).unwrap(), want, "{schema}");
        }
    }

    #[test]
    fn a_strict_schema_has_no_optional_member_anywhere() {
        let closed =
            r#"{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}"#;
        let open = r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#;
        let inside = |inner: &str| {
            format!(
                r#"{{"properties":{{"x":{inner}}},"required":["x"],"additionalProperties":false,"$defs":{{"y":{inner}}}}}"#
            )
        };
        let rows = [
            (closed.to_owned(), true),
            (open.to_owned(), false),
            (r#"{"type":"object"}"#.to_owned(), false),
            (r#"{"type":"string"}"#.to_owned(), true),
            (inside(closed), true),
            (inside(open), false),
            (inside(&format!(r#"{{"type":"array","items":{open}}}"#)), false),
            (inside(&format!(r#"{{"anyOf":[{{"type":"null"}},{open}]}}"#)), false),
            (inside(&format!(r#"{{"anyOf":[{{"type":"null"}},{closed}]}}"#)), true),
        ];
        for (schema, want) in rows {
            assert_eq!(with(&schema, is_strict), want, "{schema}");
        }
    }
}
