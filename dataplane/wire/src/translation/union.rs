//! Unions at the root of a tool's schema (`anyOf`, `oneOf`, `allOf`). Some vendors reject them, and with them the whole
//! request. An object that any valid input fits takes their place: its members are those of all branches.

use simd_json::prelude::ValueAsScalar as _;

use super::read::{self, Object};
use crate::json::{JsonWriter, Tree, write};

/// The object schema that replaces a union.
#[derive(Clone, Debug)]
pub(crate) struct MergedObject<'t, 'i> {
    /// The members of the root that are not merged, such as `description` and `$defs`.
    others: Vec<(&'i str, Tree<'t, 'i>)>,
    object: Branch<'t, 'i>,
}

/// The members of an object schema that are merged.
#[derive(Clone, Debug, Default)]
struct Branch<'t, 'i> {
    properties: Vec<(&'i str, PropertySchema<'t, 'i>)>,
    required: Vec<&'i str>,
    /// True if other members are forbidden.
    is_closed: bool,
}

/// The schema of one member.
#[derive(Clone, Debug)]
enum PropertySchema<'t, 'i> {
    One(Tree<'t, 'i>),
    /// The schemas of several branches, combined by `anyOf` or `allOf`.
    Several(Combination, Vec<PropertySchema<'t, 'i>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    /// `anyOf`, and `oneOf`, whose exclusivity an object cannot express.
    Any,
    All,
}

/// A union that cannot become one object: the name of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmergeable(pub(crate) &'static str);

/// The keywords of unions.
const UNIONS: [(&str, Combination); 3] =
    [("anyOf", Combination::Any), ("oneOf", Combination::Any), ("allOf", Combination::All)];
/// The maximum depth of unions within unions and of references, which may form a circle.
const DEPTH_MAX: usize = 16;

/// True if the root of `schema` is a union.
pub(crate) fn is_union(schema: Tree<'_, '_>) -> bool {
    let members = schema.as_object();
    members.is_some_and(|members| UNIONS.iter().any(|(name, _)| read::member(&members, name).is_some()))
}

/// Returns the object that replaces `schema`, whose root is a union.
pub(crate) fn merged<'t, 'i>(schema: Tree<'t, 'i>) -> Result<MergedObject<'t, 'i>, Unmergeable> {
    let Some(root) = schema.as_object() else { return Err(Unmergeable("type")) };
    let object = Merge { root: &root }.object(&root, DEPTH_MAX)?.ok_or(Unmergeable("type"))?;
    let others = root.iter().filter(|(name, _)| !MERGED.contains(name)).collect();
    Ok(MergedObject { others, object })
}

/// The members of the root that are merged.
const MERGED: [&str; 7] =
    ["type", "properties", "required", "additionalProperties", "anyOf", "oneOf", "allOf"];

struct Merge<'m, 't, 'i> {
    /// The root, which contains the definitions.
    root: &'m Object<'t, 'i>,
}

impl<'t, 'i> Merge<'_, 't, 'i> {
    /// Returns the object that fits every object that the schema `members` accepts; `None` if it accepts no object.
    fn object(&self, members: &Object<'t, 'i>, depth: usize) -> Result<Option<Branch<'t, 'i>>, Unmergeable> {
        let depth = depth.checked_sub(1).ok_or(Unmergeable("$ref"))?;
        if !accepts_objects(members) {
            return Ok(None);
        }
        let mut object = Branch::own(members);
        if let Some(reference) = read::member_text(members, "$ref") {
            let referenced = self.definition(reference).ok_or(Unmergeable("$ref"))?;
            let Some(referenced) = self.object(&referenced, depth)? else { return Ok(None) };
            object = object.and(referenced);
        }
        for (name, combination) in UNIONS {
            let Some(list) = read::member(members, name) else { continue };
            let list = list.as_array().ok_or(Unmergeable(name))?;
            let mut branches = Vec::new();
            for branch in list.iter() {
                let read = match (branch.as_object(), branch.as_bool()) {
                    (Some(branch), _) => self.object(&branch, depth)?,
                    (None, Some(true)) => Some(Branch::default()),
                    (None, Some(false)) => None,
                    (None, None) => return Err(Unmergeable(name)),
                };
                match read {
                    Some(branch) => branches.push(branch),
                    None if combination == Combination::All => return Ok(None),
                    None => {}
                }
            }
            let combined = match combination {
                Combination::All => branches.into_iter().reduce(Branch::and),
                Combination::Any => branches.into_iter().reduce(Branch::or),
            };
            let Some(combined) = combined else { return Ok(None) };
            object = object.and(combined);
        }
        Ok(Some(object))
    }

    /// Returns the definition in the same schema to which `reference` refers.
    fn definition(&self, reference: &str) -> Option<Object<'t, 'i>> {
        let (list, name) = reference.strip_prefix("#/")?.split_once('/')?;
        let known = ["$defs", "definitions"].contains(&list);
        let list = self.root.get(list).filter(|_| known)?.as_object()?;
        let name = name.replace("~1", "/").replace("~0", "~");
        list.get(name.as_str())?.as_object()
    }
}

/// True if the `type` of a schema permits objects.
fn accepts_objects(members: &Object<'_, '_>) -> bool {
    let Some(kind) = read::member(members, "type") else { return true };
    let is_object = |kind| read::as_text(kind) == Some("object");
    is_object(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is_object))
}

impl<'t, 'i> Branch<'t, 'i> {
    /// Reads the members of a schema itself, without its unions.
    fn own(members: &Object<'t, 'i>) -> Self {
        let properties = read::member(members, "properties").and_then(|properties| properties.as_object());
        let properties = properties.map(|properties| {
            properties.iter().map(|(name, schema)| (name, PropertySchema::One(schema))).collect()
        });
        let required = read::member(members, "required").and_then(|required| required.as_array());
        let closed = read::member(members, "additionalProperties").and_then(|others| others.as_bool());
        Self {
            properties: properties.unwrap_or_default(),
            required: required.iter().flatten().filter_map(read::as_text).collect(),
            is_closed: closed == Some(false),
        }
    }

    /// Returns the object that must fit both.
    fn and(mut self, other: Self) -> Self {
        let new = other.required.into_iter().filter(|name| !self.required.contains(name)).collect::<Vec<_>>();
        self.required.extend(new);
        self.is_closed |= other.is_closed;
        self.with(other.properties, Combination::All)
    }

    /// Returns the object that fits if one of the two does.
    fn or(mut self, other: Self) -> Self {
        self.required.retain(|name| other.required.contains(name));
        self.is_closed &= other.is_closed;
        self.with(other.properties, Combination::Any)
    }

    fn with(mut self, properties: Vec<(&'i str, PropertySchema<'t, 'i>)>, by: Combination) -> Self {
        for (name, schema) in properties {
            match self.properties.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.combine(schema, by),
                None => self.properties.push((name, schema)),
            }
        }
        self
    }
}

impl<'t, 'i> PropertySchema<'t, 'i> {
    fn combine(&mut self, other: Self, by: Combination) {
        if self.includes(&other, by) {
            return;
        }
        match self {
            Self::Several(combination, list) if *combination == by => list.push(other),
            Self::One(_) | Self::Several(..) => {
                let first = std::mem::replace(self, Self::Several(by, Vec::new()));
                *self = Self::Several(by, vec![first, other]);
            }
        }
    }

    /// True if `other` is this schema, or one of those that are combined.
    fn includes(&self, other: &Self, by: Combination) -> bool {
        match self {
            Self::Several(combination, list) if *combination == by => {
                list.iter().any(|one| one.written() == other.written())
            }
            Self::One(_) | Self::Several(..) => self.written() == other.written(),
        }
    }

    fn written(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::One(schema) => write(*schema, out),
            Self::Several(by, list) => {
                let head: &[u8] = match by {
                    Combination::Any => br#"{"anyOf":["#,
                    Combination::All => br#"{"allOf":["#,
                };
                out.extend_from_slice(head);
                for (position, schema) in list.iter().enumerate() {
                    if position > 0 {
                        out.push(b',');
                    }
                    schema.append_to(out);
                }
                out.extend_from_slice(b"]}");
            }
        }
    }
}

impl MergedObject<'_, '_> {
    pub(crate) fn write(&self, json: &mut JsonWriter) {
        json.object().name("type").text("object");
        for (name, value) in &self.others {
            json.quoted_name(name).tree(*value);
        }
        json.name("properties").object();
        for (name, schema) in &self.object.properties {
            json.quoted_name(name).raw(&schema.written());
        }
        json.end_object();
        if !self.object.required.is_empty() {
            json.name("required").list();
            for name in &self.object.required {
                json.text(name);
            }
            json.end_list();
        }
        if self.object.is_closed {
            json.name("additionalProperties").raw(b"false");
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn merge(schema: &Value) -> Result<Value, Unmergeable> {
        let mut bytes = schema.to_string().into_bytes();
        let tape = crate::json::parse(&mut bytes).unwrap();
        assert!(is_union(tape.as_value()), "{schema}");
        let mut json = JsonWriter::default();
        merged(tape.as_value())?.write(&mut json);
        Ok(serde_json::from_slice(&json.finish()).unwrap())
    }

    fn object(properties: &Value, required: &[&str]) -> Value {
        let mut object = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            object["required"] = json!(required);
        }
        object
    }

    #[test]
    fn branches_become_one_object() {
        let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
        let one = object(&json!({"a": text, "b": text}), &["a", "b"]);
        let two = object(&json!({"b": number, "c": text}), &["b", "c"]);
        let rows = [
            (
                "anyOf: required members are those of all branches",
                json!({"description": "d", "anyOf": [one, two]}),
                json!({"description": "d", "type": "object", "required": ["b"],
                    "properties": {"a": text, "b": {"anyOf": [text, number]}, "c": text}}),
            ),
            (
                "allOf: required members are those of any branch",
                json!({"allOf": [one, two]}),
                object(&json!({"a": text, "b": {"allOf": [text, number]}, "c": text}), &["a", "b", "c"]),
            ),
            ("oneOf with a single branch", json!({"oneOf": [one]}), one.clone()),
            (
                // marianfoo/mcp-sap-docs #51
                "branches that only require members",
                json!({"type": "object", "properties": {"v": text, "from": text}, "required": ["v"],
                    "anyOf": [{"required": ["v"]}, {"required": ["from"]}]}),
                object(&json!({"v": text, "from": text}), &["v"]),
            ),
            (
                // zereight/gitlab-mcp #551: a union of objects that share members, all closed
                "closed branches",
                json!({"oneOf": [
                    {"type": "object", "properties": {"id": text}, "required": ["id"], "additionalProperties": false},
                    {"type": "object", "properties": {"path": text}, "required": ["path"], "additionalProperties": false}]}),
                json!({"type": "object", "properties": {"id": text, "path": text}, "additionalProperties": false}),
            ),
            (
                "a discriminator keeps its values",
                json!({"oneOf": [
                    object(&json!({"kind": {"const": "a"}}), &["kind"]),
                    object(&json!({"kind": {"const": "b"}}), &["kind"]),
                    object(&json!({"kind": {"const": "a"}}), &["kind"])]}),
                object(&json!({"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}}), &["kind"]),
            ),
            (
                "branches that accept no object, and references",
                json!({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/one"}, false], "$defs": {"one": one}}),
                json!({"type": "object", "properties": {"a": text, "b": text}, "required": ["a", "b"],
                    "$defs": {"one": one}}),
            ),
            (
                // kenn-io/kata #365: exclusions within allOf
                "unions within unions",
                json!({"properties": {"a": text}, "allOf": [
                    {"anyOf": [{"required": ["a"]}, {"properties": {"b": text}, "required": ["b"]}]}]}),
                object(&json!({"a": text, "b": text}), &[]),
            ),
        ];
        for (name, schema, want) in rows {
            assert_eq!(merge(&schema), Ok(want), "{name}");
        }
    }

    #[test]
    fn a_union_that_is_no_object_is_not_merged() {
        let circle = json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}});
        for (schema, want) in [
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "type"),
            (json!({"anyOf": []}), "type"),
            (json!({"allOf": [{"type": "object"}, {"type": "string"}]}), "type"),
            (json!({"anyOf": [{"$ref": "https://example.com/a.json"}]}), "$ref"),
            (circle, "$ref"),
            (json!({"anyOf": [1]}), "anyOf"),
            (json!({"oneOf": {"a": 1}}), "oneOf"),
        ] {
            assert_eq!(merge(&schema), Err(Unmergeable(want)), "{schema}");
        }
    }
}
