//! Writes tools and the tool choice.

use super::Ask;
use super::content::end_block;
use crate::adapt::Rejection;
use crate::adapt::chat_over_messages::losses::{CUSTOM_CHOICE, CUSTOM_TOOL, refuse};
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::chat::request::{ChatFunction, ChatTool, NamedTool, OptionValue, RequestToolChoice, ToolKind};
use crate::json::JsonWriter;

/// The tools and the tool choice of a request.
pub(super) struct MessagesTools<'a, 't, 'i> {
    tools: Vec<&'a ChatFunction<'t, 'i>>,
    choice: Option<MessagesToolChoice<'a>>,
    parallel: bool,
    strict_is_known: bool,
}

#[derive(Clone, Copy)]
enum MessagesToolChoice<'a> {
    Auto,
    Any,
    None,
    Named(&'a str),
}

impl<'a, 't, 'i> MessagesTools<'a, 't, 'i> {
    /// Returns the tools and the choice, or those of the legacy form.
    pub(super) fn of(ask: &Ask<'a, 't, 'i>) -> Result<Self, Rejection> {
        let parallel = ask.request.option("parallel_tool_calls").and_then(OptionValue::as_bool);
        let mut all = Self {
            tools: Vec::new(),
            choice: None,
            parallel: parallel != Some(false),
            strict_is_known: ask.target.strict_tools,
        };
        let request = &ask.request.tools;
        if let Some(tools) = &request.tools {
            let path = MemberPath::top("tools");
            for (position, tool) in tools.iter().enumerate() {
                all.tools.push(function_of(tool, &path.at(position))?);
            }
            all.choose(request.choice.as_ref())?;
        } else if let Some(functions) = &request.functions {
            all.tools.extend(functions);
            all.choice = match &request.function_call {
                Some(RequestToolChoice::Word(word)) => {
                    Some(word_of(word, &MemberPath::top("function_call"))?)
                }
                Some(RequestToolChoice::Named(tool)) => Some(MessagesToolChoice::Named(&tool.name)),
                Some(RequestToolChoice::Allowed { .. }) | None => None,
            };
            // An answer in the legacy form can hold only one call.
            all.parallel = false;
        }
        Ok(all)
    }

    /// True if the target has to call a tool.
    pub(super) fn is_forced(&self) -> bool {
        matches!(self.choice, Some(MessagesToolChoice::Any | MessagesToolChoice::Named(_)))
            && !self.tools.is_empty()
    }

    pub(super) fn write(&self, names: &mut ToolNames, json: &mut JsonWriter) {
        if self.tools.is_empty() {
            return;
        }
        json.name("tools").list();
        for tool in &self.tools {
            write_tool(tool, self.strict_is_known, names, json);
        }
        json.end_list();
        if let Some(choice) = self.choice.or_else(|| (!self.parallel).then_some(MessagesToolChoice::Auto)) {
            self.write_choice(choice, names, json.name("tool_choice"));
        }
    }

    fn write_choice(&self, choice: MessagesToolChoice<'_>, names: &mut ToolNames, json: &mut JsonWriter) {
        json.object().name("type");
        match choice {
            MessagesToolChoice::Auto => json.text("auto"),
            MessagesToolChoice::Any => json.text("any"),
            MessagesToolChoice::None => json.text("none"),
            MessagesToolChoice::Named(name) => json.text("tool").name("name").text(&names.fit(name)),
        };
        if !self.parallel && !matches!(choice, MessagesToolChoice::None) {
            json.name("disable_parallel_tool_use").raw(b"true");
        }
        json.end_object();
    }

    fn choose(&mut self, choice: Option<&'a RequestToolChoice<'i>>) -> Result<(), Rejection> {
        let path = MemberPath::top("tool_choice");
        match choice {
            None => {}
            Some(RequestToolChoice::Word(word)) => self.choice = Some(word_of(word, &path)?),
            Some(RequestToolChoice::Named(tool)) => match tool.kind {
                ToolKind::Function => self.choice = Some(MessagesToolChoice::Named(&tool.name)),
                ToolKind::Custom => return Err(refuse(CUSTOM_CHOICE, path.to_string())),
                ToolKind::Unknown => return Err(path.reject(CHOICES)),
            },
            Some(RequestToolChoice::Allowed { mode, tools }) => self.allow(*mode, tools, &path)?,
        }
        Ok(())
    }

    /// Applies `allowed_tools`. The target has no such option, so tools that are not allowed are left out.
    fn allow(
        &mut self,
        mode: Option<&str>,
        allowed: &[NamedTool<'_>],
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        let path = path.member("allowed_tools");
        let mode = mode.ok_or_else(|| path.member("mode").reject("is missing."))?;
        self.choice = Some(word_of(mode, &path.member("mode"))?);
        let path = path.member("tools");
        if let Some(position) = allowed.iter().position(|tool| tool.kind != ToolKind::Function) {
            return Err(path.at(position).member("function").reject("is missing."));
        }
        self.tools.retain(|tool| allowed.iter().any(|allowed| allowed.name == tool.name));
        if self.tools.is_empty() {
            return Err(path.reject("does not name a tool of the request."));
        }
        Ok(())
    }
}

fn write_tool(
    tool: &ChatFunction<'_, '_>,
    strict_is_known: bool,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) {
    json.object().name("name").text(&names.fit(&tool.name));
    if let Some(description) = tool.description() {
        json.name("description").text(&description);
    }
    tool.write_parameters(json.name("input_schema"));
    if tool.strict && strict_is_known {
        json.name("strict").raw(b"true");
    }
    end_block(json, tool.cache);
}

fn function_of<'a, 't, 'i>(
    tool: &'a ChatTool<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<&'a ChatFunction<'t, 'i>, Rejection> {
    match tool {
        ChatTool::Function(function) => Ok(function),
        ChatTool::Custom(_) => Err(refuse(CUSTOM_TOOL, path.member("type").to_string())),
        ChatTool::Unknown => Err(path.member("type").refuse("must be `function` for this target.")),
    }
}

fn word_of<'a>(word: &str, path: &MemberPath<'_>) -> Result<MessagesToolChoice<'a>, Rejection> {
    match word {
        "auto" => Ok(MessagesToolChoice::Auto),
        "required" => Ok(MessagesToolChoice::Any),
        "none" => Ok(MessagesToolChoice::None),
        _ => Err(path.reject(CHOICES)),
    }
}

const CHOICES: &str = "must be `auto`, `none`, `required` or a function that the request defines.";
