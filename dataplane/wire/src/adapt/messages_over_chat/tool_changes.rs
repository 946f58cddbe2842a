//! Changes of the tools in the middle of a conversation: `tool_addition` and `tool_removal` blocks of system messages.
//! Chat has one list of tools for a request, so the tools offered are those after the last message.

use simd_json::prelude::ValueAsScalar as _;

use super::request::{elements, member, refused, required, text_member};
use super::tools::is_search;
use crate::adapt::Rejection;
use crate::adapt::path::MemberPath;
use crate::json::Tree;

/// A tool that the model may call.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfferedTool<'t, 'i> {
    pub(super) tool: Tree<'t, 'i>,
    pub(super) place: ToolPlace,
}

/// The place of a tool's definition in the request.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolPlace {
    /// The index in `tools`.
    Tools(usize),
    /// The indices of the message and of its block.
    Block(usize, usize),
}

impl ToolPlace {
    /// Calls `use_path` with the path of the definition.
    pub(super) fn at<T>(self, use_path: impl FnOnce(&MemberPath<'_>) -> T) -> T {
        match self {
            Self::Tools(position) => use_path(&MemberPath::top("tools").at(position)),
            Self::Block(message, block) => {
                let messages = MemberPath::top("messages");
                let (message, content) = (messages.at(message), "content");
                let blocks = message.member(content);
                let block = blocks.at(block);
                use_path(&block.member("tool").member("definition"))
            }
        }
    }
}

/// A tool of the request while the changes are applied.
struct KnownTool<'t, 'i> {
    offered: OfferedTool<'t, 'i>,
    is_offered: bool,
    /// The tool is offered only after it has been added.
    is_deferred: bool,
}

/// True for the type of a block that changes the tools.
pub(super) fn is_change(kind: &str) -> bool {
    matches!(kind, "tool_addition" | "tool_removal")
}

/// Returns the tools that the model may call after the last message.
pub(super) fn offered<'t, 'i>(body: Tree<'t, 'i>) -> Result<Vec<OfferedTool<'t, 'i>>, Rejection> {
    let path = MemberPath::top("tools");
    let mut known = Vec::new();
    if let Some(tools) = member(body, "tools") {
        let tools = elements(tools).ok_or_else(|| path.reject("must be an array"))?;
        known.extend(tools.into_iter().enumerate().map(|(position, tool)| KnownTool {
            offered: OfferedTool { tool, place: ToolPlace::Tools(position) },
            is_offered: true,
            is_deferred: member(tool, "defer_loading").and_then(|deferred| deferred.as_bool()) == Some(true),
        }));
    }
    let changes = apply_all(body, &mut known)?;
    // The client adds deferred tools itself, unless the model finds them by a search.
    let by_addition = changes > 0 && !known.iter().any(|tool| is_search(tool.offered.tool));
    known.retain(|tool| tool.is_offered && !(by_addition && tool.is_deferred));
    Ok(known.into_iter().map(|tool| tool.offered).collect())
}

/// Applies the changes of all system messages. Returns their number.
fn apply_all<'t, 'i>(body: Tree<'t, 'i>, known: &mut Vec<KnownTool<'t, 'i>>) -> Result<usize, Rejection> {
    let (messages, mut changes) = (MemberPath::top("messages"), 0_usize);
    let list = member(body, "messages").and_then(elements).unwrap_or_default();
    let is_system = |message: &Tree<'_, '_>| text_member(*message, "role") == Some("system");
    for (position, message) in list.iter().enumerate().filter(|(_, message)| is_system(message)) {
        let blocks = member(*message, "content").and_then(elements).unwrap_or_default();
        for (index, block) in blocks.into_iter().enumerate() {
            let Some(kind) = text_member(block, "type").filter(|kind| is_change(kind)) else { continue };
            let message = messages.at(position);
            let content = message.member("content");
            let place = ToolPlace::Block(position, index);
            apply(block, kind == "tool_addition", place, &content.at(index), known)?;
            changes = changes.saturating_add(1);
        }
    }
    Ok(changes)
}

/// Applies one change, which is at `path`.
fn apply<'t, 'i>(
    block: Tree<'t, 'i>,
    adds: bool,
    place: ToolPlace,
    path: &MemberPath<'_>,
    known: &mut Vec<KnownTool<'t, 'i>>,
) -> Result<(), Rejection> {
    let path = path.member("tool");
    let changed = member(block, "tool").ok_or_else(|| path.reject("is required"))?;
    match required(changed, "type", &path)? {
        "tool_reference" => {
            let name = required(changed, "name", &path)?;
            let tool = known.iter_mut().find(|tool| text_member(tool.offered.tool, "name") == Some(name));
            let tool =
                tool.ok_or_else(|| path.member("name").reject("does not name a tool of the request"))?;
            tool.is_offered = adds;
            tool.is_deferred &= !adds;
        }
        "tool_definition" if adds => {
            let definition = path.member("definition");
            let tool = member(changed, "definition").ok_or_else(|| definition.reject("is required"))?;
            let name = text_member(tool, "name");
            known.retain(|tool| name.is_none() || text_member(tool.offered.tool, "name") != name);
            let offered = OfferedTool { tool, place };
            known.push(KnownTool { offered, is_offered: true, is_deferred: false });
        }
        _ => {
            return Err(refused(
                &path.member("type"),
                "only a reference to a tool, or the definition of one, can be adapted",
            ));
        }
    }
    Ok(())
}
