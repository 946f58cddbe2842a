//! Groups of deployments with one name, which become endpoints, and the fallbacks between them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::deployment::{self, Deployment};
use super::draft::Draft;
use super::source::{Source, below, item};
use super::targets::{self, Target};
use crate::routing::config::yaml::YamlPath;

/// The deployments with one `model_name`.
pub(super) struct Group {
    pub(super) name: String,
    /// The first `model_name` of it.
    path: YamlPath,
    /// In the order in which they are tried.
    targets: Vec<Target>,
}

/// The name of a group, the first `model_name` of it, and its deployments with the indices of their providers.
type NamedDeployments = (String, YamlPath, Vec<(usize, Deployment)>);

/// Returns the names of all groups and aliases, which no provider may have.
pub(super) fn names(source: &Source) -> BTreeSet<String> {
    let list = source.tree().get("model_list").and_then(Value::as_array);
    let names = list.into_iter().flatten().filter_map(|entry| entry.get("model_name")?.as_str());
    let aliases = source.at(&below(&[], &ALIASES)).and_then(Value::as_object);
    let aliases = aliases.into_iter().flat_map(Map::keys);
    names.map(ToOwned::to_owned).chain(aliases.cloned()).collect()
}

/// Reads all deployments, in the order of the file.
pub(super) fn read(source: &mut Source, draft: &mut Draft) -> Vec<Group> {
    let mut found: Vec<(String, YamlPath, Deployment)> = Vec::new();
    let list = below(&[], &["model_list"]);
    for index in 0..source.count(&list) {
        let path = item(&list, index);
        let name_path = below(&path, &["model_name"]);
        let Some(Value::String(name)) = source.take(&name_path) else {
            source.find(&path, "not imported: model_name is missing or is no text");
            continue;
        };
        match deployment::read(source, draft, &path) {
            Some(deployment) => found.push((name, name_path, deployment)),
            // The finding covers the whole deployment.
            None => drop(source.take(&path)),
        }
    }
    let named = found.iter_mut().map(|(name, _, deployment)| (name.as_str(), deployment));
    deployment::keys::join(source, named);
    let mut groups: Vec<NamedDeployments> = Vec::new();
    for (name, name_path, mut deployment) in found {
        let instance = deployment.settle(source, draft);
        if name.contains('*') || deployment.model.contains('*') {
            wildcard(source, (&name, &name_path), (&draft.id(instance), &deployment));
            continue;
        }
        match groups.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, _, deployments)) => deployments.push((instance, deployment)),
            None => groups.push((name, name_path, vec![(instance, deployment)])),
        }
    }
    let group = |(name, path, deployments)| Group { name, path, targets: targets::of(source, deployments) };
    groups.into_iter().map(group).collect()
}

fn wildcard(source: &mut Source, (name, at): (&str, &YamlPath), (id, deployment): (&str, &Deployment)) {
    let message = if name == format!("{id}/*") && deployment.model == "*" {
        format!("llmgw serves {id}/MODEL for the models in the list of the upstream; any other is 404")
    } else {
        format!(
            "llmgw has no patterns: clients ask for {id}/MODEL. For a name without it, write an endpoint of that name"
        )
    };
    source.find(at, message);
}

/// Appends the targets of fallback groups, and adds the aliases of groups.
pub(super) fn connect(source: &mut Source, groups: &mut Vec<Group>) {
    let own: Vec<(String, Vec<Target>)> =
        groups.iter().map(|group| (group.name.clone(), group.targets.clone())).collect();
    let targets_of = |name: &str| own.iter().find(|(known, _)| known == name).map(|(_, targets)| targets);
    for section in ["router_settings", "litellm_settings"] {
        for (path, from, to) in fallbacks(source, section) {
            let is_known = from.as_ref().is_none_or(|name| targets_of(name).is_some());
            let (Some(added), true) = (targets_of(&to), is_known) else {
                source.find(&path, "not imported: a model_name of this fallback has no target here");
                continue;
            };
            for group in
                groups.iter_mut().filter(|group| from.as_ref().is_none_or(|name| *name == group.name))
            {
                targets::append(&mut group.targets, added);
            }
            source.find(
                &path,
                "imported as further targets: llmgw moves on if the upstream fails, not for an error of the request",
            );
        }
    }
    aliases(source, groups);
}

/// Returns the fallbacks of a section: the path, the group (`None`: all), and the group that follows.
fn fallbacks(source: &Source, section: &str) -> Vec<(YamlPath, Option<String>, String)> {
    let mut found = Vec::new();
    let list = below(&[], &[section, "fallbacks"]);
    for index in 0..source.count(&list) {
        let entry = item(&list, index);
        let Some(Value::Object(map)) = source.at(&entry) else { continue };
        for from in map.keys() {
            let names = below(&entry, &[from]);
            found.extend(texts(source, &names).map(|(path, to)| (path, Some(from.clone()), to)));
        }
    }
    let defaults = below(&[], &[section, "default_fallbacks"]);
    found.extend(texts(source, &defaults).map(|(path, to)| (path, None, to)));
    found
}

/// Returns the texts in the list at `path`.
fn texts(source: &Source, path: &YamlPath) -> impl Iterator<Item = (YamlPath, String)> {
    let text = |index| Some((item(path, index), source.at(&item(path, index))?.as_str()?.to_owned()));
    (0..source.count(path)).filter_map(text).collect::<Vec<_>>().into_iter()
}

fn aliases(source: &mut Source, groups: &mut Vec<Group>) {
    let section = below(&[], &ALIASES);
    let names: Vec<String> =
        source.at(&section).and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
    for name in names {
        let path = below(&section, &[&name]);
        let to = match source.at(&path) {
            Some(Value::String(to)) => Some(to.clone()),
            Some(Value::Object(map)) => map.get("model").and_then(Value::as_str).map(ToOwned::to_owned),
            _ => None,
        };
        let targets =
            to.and_then(|to| groups.iter().find(|group| group.name == to)).map(|g| g.targets.clone());
        let is_taken = groups.iter().any(|group| group.name == name);
        match targets {
            Some(targets) if !is_taken => {
                let is_hidden = source.at(&below(&path, &["hidden"])) == Some(&Value::Bool(true));
                if is_hidden {
                    source
                        .find(&path, "imported as an endpoint, which GET /v1/models lists: llmgw hides none");
                } else {
                    source.take(&path);
                }
                groups.push(Group { name, path, targets });
            }
            _ => source
                .find(&path, "not imported: its model_name has no target here, or its own name is taken"),
        }
    }
}

/// Returns the section `endpoints`, without what `draft` has rejected. Findings are added in the first call only.
pub(super) fn endpoints(source: &mut Source, draft: &mut Draft, groups: &[Group]) -> Map<String, Value> {
    let mut endpoints = Map::new();
    let names: BTreeSet<&String> = groups.iter().map(|group| &group.name).collect();
    for group in groups {
        let kept: Vec<_> = group.targets.iter().filter(|target| draft.is_kept(target.instance)).collect();
        if let [Target { instance, model, .. }] = kept.as_slice()
            && group.name == format!("{}/{model}", draft.id(*instance))
        {
            // The exact ID of the model is the same selector.
            draft.add_model(*instance, model);
            continue;
        }
        if kept.is_empty() {
            source.find(&group.path, "not imported: no target of this name is left");
            continue;
        }
        let name =
            valid_name(&group.name, |name| names.contains(&name.to_owned()) || endpoints.contains_key(name));
        if name != group.name {
            let message = format!(
                "the endpoint is called '{name}', because names are letters, digits, '.', '_' and '-'; clients ask for that"
            );
            source.find(&group.path, message);
        }
        if let Some(lost) = targets::lost_order(&kept) {
            source.find(&group.path, lost);
        }
        endpoints.insert(name, targets::endpoint(draft, &kept));
    }
    endpoints
}

/// Returns `name`, or a similar one that is valid and not taken.
fn valid_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if shared::id::is_name(name) {
        return name.to_owned();
    }
    let letter = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let text: String = name.chars().map(letter).take(NAME_CHARS).collect();
    let text = text.trim_start_matches(['.', '_', '-']);
    let base = if text.is_empty() { "endpoint" } else { text };
    let numbered = (2..).map(|number: u64| format!("{base}-{number}"));
    std::iter::once(base.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
}

const ALIASES: [&str; 2] = ["router_settings", "model_group_alias"];
/// The longest part of a name, which leaves room for a number.
const NAME_CHARS: usize = 56;
