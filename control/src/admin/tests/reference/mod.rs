//! Generates the pages of the admin API, its OpenAPI document and the console's types from the route table and the shapes of
//! bodies and answers, and compares them with the committed files. With `LLMGW_WRITE_REFERENCE=1` the tests write the files
//! instead.

mod openapi;
mod page;
pub(super) mod parameters;
mod typescript;

use std::collections::BTreeMap;
use std::path::Path;

use http::Method;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::admin::dry_run::DryRunAnswer;
use crate::admin::{FoundRoute, Route, TABLES, find_route};

/// A route and its description.
struct DescribedRoute {
    route: &'static Route,
    body: Option<Value>,
    /// True if the body has members that must not be absent.
    needs_members: bool,
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
                needs_members: false,
                answer: route.reference.answer.map(|shape| shape(&mut answers).to_value()),
            })
            .collect();
        answers.subschema_for::<DryRunAnswer>();
        let mut shapes = definitions(answers);
        shapes.values_mut().for_each(without_null);
        let mut of_bodies = definitions(bodies);
        for route in &mut routes {
            let name = route.body.as_ref().and_then(|body| body["$ref"].as_str()).unwrap_or_default();
            let shape = of_bodies.get(name.trim_start_matches(REFERENCE));
            route.needs_members = shape.is_some_and(|shape| !shape["required"].is_null());
        }
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

impl Route {
    /// Returns the first segment of its path, which names its resource, without the suffix of a file.
    fn group(&self) -> &'static str {
        self.pattern.split(['/', '.']).next().unwrap_or_default()
    }

    /// True for a request that the data plane answers.
    fn is_data_plane(&self) -> bool {
        self.method == Method::POST && self.group() == "run"
    }

    /// Returns the pattern with names in place of its `{}`.
    fn named_pattern(&self) -> String {
        if self.is_data_plane() {
            return "run/{path}".to_owned();
        }
        let mut before = "";
        let mut parts = Vec::new();
        for part in self.pattern.split('/') {
            parts.push(match (part, before) {
                ("{}", "endpoints" | "backups") => "{name}",
                ("{}", "members") => "{human}",
                ("{}", "bindings") => "{project}",
                ("{}", "run") => "{request_id}",
                ("{}", _) => "{id}",
                (part, _) => part,
            });
            before = part;
        }
        parts.join("/")
    }

    fn statuses_of_success(&self) -> &'static [u16] {
        let mut generator = SchemaGenerator::default();
        let answer = self.reference.answer.map(|shape| shape(&mut generator).to_value());
        match answer {
            _ if !self.reference.statuses.is_empty() => self.reference.statuses,
            Some(answer) if answer["$ref"].as_str().is_some_and(|name| name.ends_with("/NoContent")) => {
                &[204]
            }
            _ => &[200],
        }
    }
}

/// Fails if an answer has a status that the reference of its route lacks.
pub(super) fn expect_described(method: &Method, path: &str, status: u16) {
    let Some(path) = path.strip_prefix("/admin/api/") else { return };
    let Ok(FoundRoute { route, .. }) = find_route(method, path.trim_matches('/')) else { return };
    let is_dry_run = status == 200 && route.has_dry_run;
    let is_described = route.is_data_plane()
        || is_dry_run
        || route.statuses_of_success().contains(&status)
        || openapi::statuses_of_failure(route).contains(&status);
    assert!(is_described, "the reference of {method} {} lacks the status {status}", route.pattern);
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
    let members = shape.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
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
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        return std::fs::write(file, content).unwrap();
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(committed == content, "{path} is not current: run `{WRITE}=1 cargo test -p control reference`");
}

/// Shapes that the page describes in words.
const UNNAMED: [&str; 6] =
    ["NoContent", "FileContent", "DataPlaneBody", "DataPlaneAnswer", "NoMembers", "OpenApiDocument"];
const WRITE: &str = "LLMGW_WRITE_REFERENCE";
const REFERENCE: &str = "#/$defs/";

#[test]
fn the_consoles_types_are_those_of_the_answers() {
    expect_current("console/ui/api/types.ts", &typescript::file(&ApiReference::new()));
}

#[test]
fn the_openapi_document_is_current() {
    expect_current("control/openapi.json", &openapi::text(&ApiReference::new()));
}

#[test]
fn the_pages_of_the_admin_api_are_current() {
    let pages = page::texts(&ApiReference::new());
    for (path, text) in &pages {
        expect_current(&format!("docs/{path}"), text);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/admin-api");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = format!("admin-api/{}", entry.unwrap().file_name().to_str().unwrap());
        assert!(pages.contains_key(&path), "docs/{path} describes no resource: delete it");
    }
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
