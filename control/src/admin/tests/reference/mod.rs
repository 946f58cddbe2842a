//! Generates `docs/admin-api.md` and the console's types from the route table and the shapes of bodies and answers, and
//! compares them with the committed files. With `LLMGW_WRITE_REFERENCE=1` the tests write the files instead.

mod page;
mod typescript;

use std::collections::BTreeMap;
use std::path::Path;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::admin::dry_run::DryRunAnswer;
use crate::admin::{Route, TABLES};

/// A route and its description.
struct DescribedRoute {
    route: &'static Route,
    body: Option<Value>,
    answer: Option<Value>,
}

/// The routes in the order of the tables, and the named shapes to which they refer.
struct ApiReference {
    routes: Vec<DescribedRoute>,
    shapes: BTreeMap<String, Value>,
}

impl ApiReference {
    fn new() -> Self {
        let mut answers = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut bodies = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        let mut routes: Vec<DescribedRoute> = served()
            .map(|route| DescribedRoute {
                route,
                body: route.reference.body.map(|shape| shape(&mut bodies).to_value()),
                answer: route.reference.answer.map(|shape| shape(&mut answers).to_value()),
            })
            .collect();
        answers.subschema_for::<DryRunAnswer>();
        let mut shapes = definitions(answers);
        shapes.values_mut().for_each(without_null);
        let mut of_bodies = definitions(bodies);
        let differs =
            |(name, shape): &(&String, &Value)| shapes.get(*name).is_some_and(|known| known != *shape);
        let renamed: Vec<String> = of_bodies.iter().filter(differs).map(|(name, _)| name.clone()).collect();
        for name in &renamed {
            let bodies = routes.iter_mut().filter_map(|route| route.body.as_mut());
            bodies.chain(of_bodies.values_mut()).for_each(|schema| refer(schema, name));
        }
        let named = |(name, shape)| (if renamed.contains(&name) { body_name(&name) } else { name }, shape);
        shapes.extend(of_bodies.into_iter().map(named));
        shapes.retain(|name, _| !UNNAMED.contains(&name.as_str()));
        Self { routes, shapes }
    }
}

/// Returns all routes.
fn served() -> impl Iterator<Item = &'static Route> {
    TABLES.iter().copied().flatten()
}

fn definitions(mut generator: SchemaGenerator) -> BTreeMap<String, Value> {
    generator.take_definitions(true).into_iter().collect()
}

/// Removes null from the types of members that an answer leaves out instead, as their descriptions say.
fn without_null(shape: &mut Value) {
    let required = shape["required"].as_array().cloned().unwrap_or_default();
    let members = shape["properties"].as_object_mut().into_iter().flatten();
    let optional = members.filter(|(name, _)| !required.iter().any(|known| known == *name));
    for (_, schema) in optional.filter(|(_, schema)| described(schema).to_lowercase().contains("absent")) {
        for parts in ["type", "anyOf"] {
            if let Some(Value::Array(parts)) = schema.get_mut(parts) {
                parts.retain(|part| *part != "null" && part["type"] != "null");
            }
        }
    }
}

/// Returns the name of a shape in bodies, where the shape of that name in answers differs.
fn body_name(name: &str) -> String {
    format!("{name}Body")
}

/// Replaces the references to the shape `name` by its name in bodies.
fn refer(schema: &mut Value, name: &str) {
    match schema {
        Value::String(text) if *text == format!("{REFERENCE}{name}") => *text = body_name(text),
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, name)),
        Value::Object(members) => members.values_mut().for_each(|member| refer(member, name)),
        _ => {}
    }
}

/// Returns a description as one line, without the brackets of links in Rust's documentation.
fn described(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("[`", "`").replace("`]", "`")
}

/// Compares a committed file with its generated content, or writes it.
fn expect_current(path: &str, content: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    #[expect(clippy::disallowed_methods, reason = "a test writes the file only if its caller wants it")]
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(file, content).unwrap();
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(committed == content, "{path} is not current: run `{WRITE}=1 cargo test -p control reference`");
}

/// Shapes that the page describes in words.
const UNNAMED: [&str; 5] = ["NoContent", "FileContent", "DataPlaneBody", "DataPlaneAnswer", "NoMembers"];
const WRITE: &str = "LLMGW_WRITE_REFERENCE";
const REFERENCE: &str = "#/$defs/";

#[test]
fn the_consoles_types_are_those_of_the_answers() {
    expect_current("console/ui/api/types.ts", &typescript::file(&ApiReference::new()));
}

#[test]
fn the_page_of_the_admin_api_is_current() {
    expect_current("docs/admin-api.md", &page::text(&ApiReference::new()));
}

#[test]
fn every_route_is_described() {
    for route in served() {
        let name = format!("{} {}", route.method, route.pattern);
        let (reference, doc) = (&route.reference, route.reference.doc);
        assert!(
            doc.ends_with('.') && reference.answer.is_some(),
            "{name} needs .answers::<Shape>(\"A sentence.\")"
        );
    }
}
