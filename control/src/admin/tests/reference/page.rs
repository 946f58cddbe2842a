//! The page of the documentation.

use http::Method;
use serde_json::Value;

use super::typescript::{members, type_of};
use super::{ApiReference, DescribedRoute, described};
use crate::admin::Route;
use crate::db::members::MemberRole;
use crate::permission::Permission;
use crate::permission::matrix::{Extent, grant};

/// Returns the page.
pub(super) fn text(reference: &ApiReference) -> String {
    let mut text = HEAD.replace("{permissions}", &permissions());
    for group in groups(reference) {
        text += &format!(
            "\n### Below {group}\n\n| route | does | needs | query | body | answer |\n|---|---|---|---|---|---|\n"
        );
        let of_group = reference.routes.iter().filter(|described| group_of(described) == group);
        let mut rows: Vec<String> = of_group.map(|described| row(reference, described)).collect();
        // A path of several segments has a route for each number of them.
        rows.dedup();
        text.extend(rows);
    }
    text += "\n## Shapes\n\nA member with `?` may be absent.\n";
    text.extend(reference.shapes.iter().map(|(name, shape)| section(reference, name, shape)));
    text
}

/// Returns the matrix of permissions.
fn permissions() -> String {
    let shown = |extent| match extent {
        Extent::Nothing => "no",
        Extent::Own => "own",
        Extent::Free => "own, unowned",
        Extent::All => "yes",
    };
    let roles = MemberRole::NAMES.map(|(_, role)| Some(role));
    let row = |permission: Permission| {
        let grant = grant(permission);
        let extents = roles.into_iter().chain([None]).map(|role| shown(grant.of(role)));
        let extents: Vec<&str> = extents.collect();
        format!("| `{}` | yes | {} |", permission.name(), extents.join(" | "))
    };
    let rows: Vec<String> = Permission::all().map(row).collect();
    rows.join("\n")
}

/// Returns the first segments of the paths, each once.
fn groups(reference: &ApiReference) -> Vec<&'static str> {
    let mut groups: Vec<&str> = Vec::new();
    for group in reference.routes.iter().map(group_of) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

fn group_of(described: &DescribedRoute) -> &'static str {
    described.route.pattern.split('/').next().unwrap_or_default()
}

fn row(reference: &ApiReference, described: &DescribedRoute) -> String {
    let route = described.route;
    let dry_run: &[&str] = if route.has_dry_run { &["dry_run"] } else { &[] };
    let query: Vec<String> = route
        .reference
        .query
        .iter()
        .chain(route.reference.filters)
        .chain(dry_run)
        .map(|name| format!("`{name}`"))
        .collect();
    let shape =
        |schema: &Option<Value>| schema.as_ref().map_or_else(String::new, |schema| linked(reference, schema));
    format!(
        "| `{} {}` | {} | `{}` | {} | {} | {} |\n",
        route.method,
        named(route),
        route.reference.doc,
        route.permission.name(),
        query.join(", "),
        shape(&described.body),
        shape(&described.answer),
    )
}

/// Returns the pattern of a route with names in place of its `{}`.
fn named(route: &Route) -> String {
    if route.method == Method::POST && route.pattern.starts_with("run/") {
        return "run/{path}".to_owned();
    }
    let pattern = route.pattern;
    let mut before = "";
    let mut parts = Vec::new();
    for part in pattern.split('/') {
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

fn section(reference: &ApiReference, name: &str, shape: &Value) -> String {
    let doc = described(shape);
    let mut text = format!("\n### {name}\n\n");
    if !doc.is_empty() {
        text += &format!("{doc}\n\n");
    }
    if shape["properties"].is_null() {
        return text + &format!("{}\n", linked(reference, shape));
    }
    text += "| member | type | meaning |\n|---|---|---|\n";
    for (member, schema, is_required) in members(shape) {
        let mark = if is_required { "" } else { "?" };
        text +=
            &format!("| `{member}{mark}` | {} | {} |\n", linked(reference, schema), cell(&described(schema)));
    }
    text
}

/// Returns the type of a schema, with a link to the shape that it names.
fn linked(reference: &ApiReference, schema: &Value) -> String {
    let name = type_of(schema);
    match name.as_str() {
        "NoContent" => return "204".to_owned(),
        "FileContent" => return "a file".to_owned(),
        "DataPlaneBody" | "DataPlaneAnswer" => return "as on that path".to_owned(),
        "NoMembers" => return "`{}`".to_owned(),
        "unknown" => return "any JSON".to_owned(),
        _ => {}
    }
    let mut shapes = name.split([' ', '[', ']', '(', ')', '<', '>', ',', '|']);
    match shapes.find(|part| reference.shapes.contains_key(*part)) {
        Some(shape) => format!("[`{}`](#{})", cell(&name), shape.to_lowercase()),
        None => format!("`{}`", cell(&name)),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const HEAD: &str = include_str!("head.md");
