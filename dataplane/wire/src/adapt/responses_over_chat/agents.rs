//! The rules for agents (`responses_fallback: agents`), under which a target without the Responses API serves Codex: the
//! tools that only Responses has become functions, and calls get their names and kinds back.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use shared::reasoning_seal::ReasoningSeal;

use super::losses::refuse;
use super::reasoning_item::{CONTENT, ReasoningWords, SUMMARY};
use crate::adapt::Rejection;
use crate::adapt::read::{self, Object, member, member_text};
use crate::chat::escape;

/// The tools of a request, from `tools` and from items that add more.
#[derive(Debug, Default)]
pub(super) struct AgentTools<'t, 'i> {
    pub(super) declared: Vec<DeclaredTool<'t, 'i>>,
    /// The positions in `declared`, by namespace and name.
    places: HashMap<(Option<&'i str>, &'i str), usize>,
    /// The flat names.
    flats: HashSet<String>,
    /// The paths of what was left out, for the client.
    pub(super) dropped: Vec<String>,
}

/// A tool that the client runs.
pub(super) struct DeclaredTool<'t, 'i> {
    pub(super) tool: Object<'t, 'i>,
    /// The path of the tool in the request.
    pub(super) path: String,
    namespace: Option<&'i str>,
    name: &'i str,
    /// The name without a namespace, which no other tool has.
    pub(super) flat: String,
}

impl fmt::Debug for DeclaredTool<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclaredTool")
            .field("path", &self.path)
            .field("flat", &self.flat)
            .finish_non_exhaustive()
    }
}

/// The form of answers for agents. The default is that of the strict rules.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentForm {
    /// Seals the reasoning, if the client wants to send it back.
    pub(super) seal: Option<ReasoningSeal>,
    /// True if the text of the reasoning is its summary.
    pub(super) has_summary: bool,
    pub(super) calls: AgentCalls,
}

/// The names and kinds that calls in the answer get back, by the flat names of their tools, escaped as in JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentCalls(Arc<HashMap<String, AgentCall>>);

/// A tool whose calls differ from those of a function without a namespace. Its texts are escaped as in JSON.
#[derive(Debug)]
pub(super) struct AgentCall {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// True if the tool takes free text.
    pub(super) is_custom: bool,
}

impl<'t, 'i> AgentTools<'t, 'i> {
    /// Reads the tools of `request`.
    pub(super) fn read(request: &Object<'t, 'i>) -> Result<Self, Rejection> {
        let mut tools = Self::default();
        tools.list(request, "")?;
        let items = member(request, "input").and_then(|input| input.as_array());
        for (position, item) in items.iter().flat_map(|items| items.iter().enumerate()) {
            if let Some(item) = item.as_object()
                && member_text(&item, "type") == Some(ADDITIONAL)
            {
                tools.list(&item, &format!("input.{position}."))?;
            }
        }
        Ok(tools)
    }

    /// Reads the member `tools` of the object whose members' paths begin with `prefix`.
    fn list(&mut self, owner: &Object<'t, 'i>, prefix: &str) -> Result<(), Rejection> {
        let Some(list) = member(owner, "tools") else { return Ok(()) };
        let list = read::array(list, || format!("{prefix}tools"))?;
        for (position, tool) in list.iter().enumerate() {
            let path = format!("{prefix}tools.{position}");
            let tool = read::object(tool, || path.clone())?;
            match read::needed_text(&tool, "type", || path.clone())? {
                "namespace" => self.namespace(&tool, &path)?,
                kind => match left_out(kind) {
                    Some(name) => self.drop(name),
                    None => self.declare(tool, None, path)?,
                },
            }
        }
        Ok(())
    }

    fn namespace(&mut self, space: &Object<'t, 'i>, path: &str) -> Result<(), Rejection> {
        let namespace = read::needed_text(space, "name", || path.to_owned())?;
        let Some(list) = member(space, "tools") else { return Ok(()) };
        let list = read::array(list, || format!("{path}.tools"))?;
        for (position, tool) in list.iter().enumerate() {
            let path = format!("{path}.tools.{position}");
            let tool = read::object(tool, || path.clone())?;
            self.declare(tool, Some(namespace), path)?;
        }
        Ok(())
    }

    fn declare(
        &mut self,
        tool: Object<'t, 'i>,
        namespace: Option<&'i str>,
        path: String,
    ) -> Result<(), Rejection> {
        let kind = read::needed_text(&tool, "type", || path.clone())?;
        if !matches!(kind, "function" | "custom") {
            return Err(refuse("tools.*.type", path + ".type"));
        }
        let name = read::needed_text(&tool, "name", || path.clone())?;
        let place = self.declared.len();
        if self.places.contains_key(&(namespace, name)) {
            // Later items repeat tools that earlier ones have added.
            return Ok(());
        }
        let mut flat = flattened(namespace, name);
        while self.flats.contains(&flat) {
            flat = format!("{flat}_{place}");
        }
        self.places.insert((namespace, name), place);
        self.flats.insert(flat.clone());
        self.declared.push(DeclaredTool { tool, path, namespace, name, flat });
        Ok(())
    }

    /// Returns the flat name of the tool that the client calls by these names.
    pub(super) fn flat(&self, namespace: Option<&str>, name: &str) -> String {
        let place = self.places.get(&(namespace, name)).copied();
        let known = place.and_then(|place| self.declared.get(place));
        known.map_or_else(|| flattened(namespace, name), |known| known.flat.clone())
    }

    /// Records that the value at `path` was left out.
    pub(super) fn drop(&mut self, path: &str) {
        if !self.dropped.iter().any(|known| known == path) {
            self.dropped.push(path.to_owned());
        }
    }

    /// Returns the names and kinds that calls get back.
    pub(super) fn calls(&self) -> AgentCalls {
        let call = |known: &DeclaredTool<'_, '_>| {
            let written = |text: &str| escape(text.into()).into_owned();
            let is_custom = member_text(&known.tool, "type") == Some("custom");
            let differs = is_custom || known.flat != known.name;
            let call = || AgentCall {
                name: written(known.name),
                namespace: known.namespace.map(written),
                is_custom,
            };
            differs.then(|| (written(&known.flat), call()))
        };
        AgentCalls(Arc::new(self.declared.iter().filter_map(call).collect()))
    }
}

impl AgentForm {
    /// Returns the form of answers to `request`, without the calls.
    pub(super) fn of(request: &Object<'_, '_>, seal: &ReasoningSeal) -> Result<Self, Rejection> {
        let reasoning = member(request, "reasoning").and_then(|reasoning| reasoning.as_object());
        let asks = |name: &str| reasoning.as_ref().is_some_and(|reasoning| member(reasoning, name).is_some());
        Ok(Self {
            seal: includes_reasoning(request)?.then(|| seal.clone()),
            has_summary: asks("summary") || asks("generate_summary"),
            calls: AgentCalls::default(),
        })
    }
}

impl AgentForm {
    /// Returns the names under which the text of the reasoning is reported.
    pub(super) fn words(&self) -> &'static ReasoningWords {
        if self.has_summary { &SUMMARY } else { &CONTENT }
    }
}

impl AgentCalls {
    /// Returns the tool with the flat name `flat`, which is escaped, if its calls differ from those of a function.
    pub(super) fn get(&self, flat: &str) -> Option<&AgentCall> {
        self.0.get(flat)
    }
}

/// Returns the path of a tool that is left out: one that the vendor runs and Codex always offers, or its search for more
/// tools.
fn left_out(kind: &str) -> Option<&'static str> {
    match kind {
        "tool_search" => Some("tools.tool_search"),
        "image_generation" => Some("tools.image_generation"),
        _ => kind.starts_with("web_search").then_some("tools.web_search"),
    }
}

/// Returns true for items of earlier answers about tools that are left out.
pub(super) fn is_left_out_item(kind: &str) -> bool {
    matches!(kind, "web_search_call" | "tool_search_call" | "tool_search_output")
}

fn flattened(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}__{name}"))
}

/// The type of the item that adds tools.
pub(super) const ADDITIONAL: &str = "additional_tools";
/// The value of `include` that requests sealed reasoning.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Returns true if `include` requests sealed reasoning. Rejects any other value.
fn includes_reasoning(request: &Object<'_, '_>) -> Result<bool, Rejection> {
    let Some(include) = member(request, "include").filter(|include| !read::is_empty(*include)) else {
        return Ok(false);
    };
    let is_known = include
        .as_array()
        .is_some_and(|values| values.iter().all(|value| read::as_text(value) == Some(ENCRYPTED)));
    if is_known { Ok(true) } else { Err(refuse("include", "include")) }
}
