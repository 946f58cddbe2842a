//! The pages of the documentation.

use std::collections::BTreeMap;

use serde_json::Value;

use super::typescript::{members, type_of};
use super::{ApiReference, DescribedRoute, REFERENCE, described};
use crate::admin::Route;
use crate::admin::permission::Permission;
use crate::admin::permission::matrix::{Extent, grant};
use crate::db::members::MemberRole;

/// Returns the pages by their paths below `docs/`: the head, one for each resource, and one of the shapes that several
/// resources share.
pub(super) fn texts(reference: &ApiReference) -> BTreeMap<String, String> {
    let pages = Pages { reference, places: places(reference) };
    let mut texts: BTreeMap<String, String> =
        pages.groups().into_iter().map(|group| (path_of(group), pages.resource(group))).collect();
    texts.insert(path_of(SHARED), pages.shared());
    texts.insert("admin-api.md".to_owned(), pages.head());
    texts
}

fn path_of(page: &str) -> String {
    format!("admin-api/{page}.md")
}

/// The pages of the documentation.
struct Pages<'a> {
    reference: &'a ApiReference,
    /// The page of each shape.
    places: BTreeMap<&'a str, &'static str>,
}

/// Returns the page of each shape: that of the only resource whose routes lead to it, or the shared one.
fn places(reference: &ApiReference) -> BTreeMap<&str, &'static str> {
    let mut places = BTreeMap::new();
    for described in &reference.routes {
        let mut names = Vec::new();
        for schema in described.body.iter().chain(&described.answer) {
            shapes_of(reference, schema, &mut names);
        }
        for name in names {
            let group = described.route.group();
            places
                .entry(name)
                .and_modify(|place| *place = if *place == group { group } else { SHARED })
                .or_insert(group);
        }
    }
    reference.shapes.keys().for_each(|name| {
        places.entry(name).or_insert(SHARED);
    });
    places
}

/// Adds the names of the shapes to which a schema refers, and of those to which they refer.
fn shapes_of<'a>(reference: &'a ApiReference, schema: &Value, names: &mut Vec<&'a str>) {
    match schema {
        Value::String(text) => {
            let found = text.strip_prefix(REFERENCE).and_then(|name| reference.shapes.get_key_value(name));
            if let Some((name, shape)) = found.filter(|(name, _)| !names.contains(&name.as_str())) {
                names.push(name);
                shapes_of(reference, shape, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| shapes_of(reference, item, names)),
        Value::Object(members) => members.values().for_each(|member| shapes_of(reference, member, names)),
        _ => {}
    }
}

impl Pages<'_> {
    fn head(&self) -> String {
        let mut text = HEAD.replace("{permissions}", &permissions());
        for group in self.groups() {
            let mut routes: Vec<String> =
                self.routes(group).map(|described| format!("`{}`", named(described.route))).collect();
            routes.dedup();
            text += &format!("| [{group}]({}) | {} |\n", path_of(group), routes.join(", "));
        }
        text
    }

    fn resource(&self, group: &str) -> String {
        let mut text = format!(
            "# Admin API: {group}\n\nThe routes of `{group}` in the [admin API](../admin-api.md), and the shapes of their bodies \
             and answers.\n\n| route | does | needs | query | body | answer |\n|---|---|---|---|---|---|\n"
        );
        let mut rows: Vec<String> = self.routes(group).map(|described| self.row(described)).collect();
        // A path of several segments has a route for each number of them.
        rows.dedup();
        text.extend(rows);
        text + &self.sections(group)
    }

    fn shared(&self) -> String {
        format!(
            "# Admin API: shared shapes\n\nThe shapes of bodies and answers that several resources of the \
             [admin API](../admin-api.md) use.\n{}",
            self.sections(SHARED)
        )
    }

    /// Returns the first segments of the paths, each once.
    fn groups(&self) -> Vec<&'static str> {
        let mut groups: Vec<&str> = Vec::new();
        for group in self.reference.routes.iter().map(|described| described.route.group()) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    fn routes(&self, group: &str) -> impl Iterator<Item = &DescribedRoute> {
        self.reference.routes.iter().filter(move |described| described.route.group() == group)
    }

    fn row(&self, described: &DescribedRoute) -> String {
        let route = described.route;
        let query: Vec<String> =
            route.parameters().iter().map(|parameter| format!("`{}`", parameter.name)).collect();
        let shape = |schema: &Option<Value>| {
            schema.as_ref().map_or_else(String::new, |schema| self.linked(route.group(), schema))
        };
        let statuses: Vec<String> = route.reference.statuses.iter().map(ToString::to_string).collect();
        format!(
            "| `{}` | {} | `{}` | {} | {} | {} |\n",
            named(route),
            route.reference.doc,
            route.permission.name(),
            query.join(", "),
            shape(&described.body),
            format!("{} {}", statuses.join(" or "), shape(&described.answer)).trim_start(),
        )
    }

    /// Returns the shapes of a page.
    fn sections(&self, page: &str) -> String {
        let shapes = self.reference.shapes.iter();
        let own =
            shapes.filter(|(name, _)| self.places.get(name.as_str()).is_some_and(|place| *place == page));
        own.map(|(name, shape)| self.section(page, name, shape)).collect()
    }

    fn section(&self, page: &str, name: &str, shape: &Value) -> String {
        let doc = described(shape);
        let mut text = format!("\n## {name}\n\n");
        if !doc.is_empty() {
            text += &format!("{doc}\n\n");
        }
        if shape["properties"].is_null() {
            return text + &format!("{}\n", self.linked(page, shape));
        }
        text += "| member | type | meaning |\n|---|---|---|\n";
        for (member, schema, is_required) in members(shape) {
            let mark = if is_required { "" } else { "?" };
            let meaning = cell(&described(schema));
            text += &format!("| `{member}{mark}` | {} | {meaning} |\n", self.linked(page, schema));
        }
        text
    }

    /// Returns the type of a schema, with a link to the shape that it names, as the page has it.
    fn linked(&self, page: &str, schema: &Value) -> String {
        let name = type_of(schema);
        match name.as_str() {
            "NoContent" => return "204".to_owned(),
            "FileContent" => return "a file".to_owned(),
            "DataPlaneBody" | "DataPlaneAnswer" => return "as on that path".to_owned(),
            "OpenApiDocument" => return "an OpenAPI document".to_owned(),
            "NoMembers" => return "`{}`".to_owned(),
            "unknown" => return "any JSON".to_owned(),
            _ => {}
        }
        let mut shapes = name.split([' ', '[', ']', '(', ')', '<', '>', ',', '|']);
        match shapes.find_map(|part| Some((part, self.places.get(part)?))) {
            Some((shape, place)) => {
                let file = if *place == page { String::new() } else { format!("{place}.md") };
                format!("[`{}`]({file}#{})", cell(&name), shape.to_lowercase())
            }
            None => format!("`{}`", cell(&name)),
        }
    }
}

fn named(route: &Route) -> String {
    format!("{} {}", route.method, route.named_pattern())
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

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The page of the shapes that several resources share.
const SHARED: &str = "shapes";
const HEAD: &str = include_str!("head.md");
