//! Writes tools and the tool choice.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::Object;

use super::Ask;
use super::content::{cache_control, cache_of};
use crate::adapt::chat_over_messages::losses::{CUSTOM_CHOICE, CUSTOM_TOOL, refuse};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{self, ObjectWriter};
use crate::adapt::{Rejection, read, schema};
use crate::json::Tree;

/// The tools and the tool choice of a request.
pub(super) struct MessagesTools<'t, 'i> {
    tools: Vec<Tool<'t, 'i>>,
    choice: Option<MessagesToolChoice<'i>>,
    parallel: bool,
    strict_is_known: bool,
}

struct Tool<'t, 'i> {
    name: &'i str,
    function: Object<'t, 'i>,
    cache: Option<Tree<'t, 'i>>,
}

#[derive(Clone, Copy)]
enum MessagesToolChoice<'i> {
    Auto,
    Any,
    None,
    Named(&'i str),
}

impl<'t, 'i> MessagesTools<'t, 'i> {
    /// Reads `tools` and `tool_choice`, or the legacy `functions` and `function_call`.
    pub(super) fn of(ask: &Ask<'_, 't, 'i>) -> Result<Self, Rejection> {
        let mut all = Self {
            tools: Vec::new(),
            choice: None,
            parallel: ask.member("parallel_tool_calls").and_then(|parallel| parallel.as_bool())
                != Some(false),
            strict_is_known: ask.target.strict_tools,
        };
        if let Some(tools) = ask.member("tools") {
            for (position, tool) in read::array(tools, || "tools".to_owned())?.iter().enumerate() {
                all.tools.push(tool_of(tool, position)?);
            }
            all.choose(ask.member("tool_choice"))?;
        } else if let Some(functions) = ask.member("functions") {
            for (position, function) in read::array(functions, || "functions".to_owned())?.iter().enumerate()
            {
                let path = || format!("functions.{position}");
                let function = read::object(function, path)?;
                let name = read::needed_text(&function, "name", path)?;
                all.tools.push(Tool { name, function, cache: None });
            }
            all.choice = old_choice(ask.member("function_call"))?;
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

    pub(super) fn write(&self, names: &mut ToolNames, body: &mut ObjectWriter<'_>) {
        if self.tools.is_empty() {
            return;
        }
        let list = body.key("tools");
        list.push(b'[');
        for tool in &self.tools {
            write::comma(list);
            tool.write(self.strict_is_known, names, list);
        }
        list.push(b']');
        if let Some(choice) = self.choice.or_else(|| (!self.parallel).then_some(MessagesToolChoice::Auto)) {
            self.write_choice(choice, names, body.key("tool_choice"));
        }
    }

    fn write_choice(&self, choice: MessagesToolChoice<'_>, names: &mut ToolNames, out: &mut Vec<u8>) {
        let mut out = ObjectWriter::open(out);
        match choice {
            MessagesToolChoice::Auto => out.text("type", "auto"),
            MessagesToolChoice::Any => out.text("type", "any"),
            MessagesToolChoice::None => out.text("type", "none"),
            MessagesToolChoice::Named(name) => {
                out.text("type", "tool");
                out.text("name", &names.fit(name));
            }
        }
        if !self.parallel && !matches!(choice, MessagesToolChoice::None) {
            out.raw("disable_parallel_tool_use", "true");
        }
        out.close();
    }

    fn choose(&mut self, choice: Option<Tree<'t, 'i>>) -> Result<(), Rejection> {
        let Some(choice) = choice else { return Ok(()) };
        if let Some(word) = read::as_text(choice) {
            self.choice = Some(word_of(word, CHOICE)?);
            return Ok(());
        }
        let choice = read::object(choice, || CHOICE.to_owned())?;
        match read::needed_text(&choice, "type", || CHOICE.to_owned())? {
            "function" => self.choice = Some(MessagesToolChoice::Named(function_name(&choice, CHOICE)?)),
            "allowed_tools" => self.allow(&choice)?,
            "custom" => return Err(refuse(CUSTOM_CHOICE, CHOICE)),
            _ => return Err(Rejection::malformed(CHOICE, CHOICES)),
        }
        Ok(())
    }

    /// Applies `allowed_tools`. The target has no such option, so tools that are not allowed are left out.
    fn allow(&mut self, choice: &Object<'t, 'i>) -> Result<(), Rejection> {
        const ALLOWED: &str = "tool_choice.allowed_tools";
        let allowed = read::member(choice, "allowed_tools");
        let allowed = allowed.ok_or_else(|| Rejection::malformed(ALLOWED, "is missing."))?;
        let allowed = read::object(allowed, || ALLOWED.to_owned())?;
        let mode = read::needed_text(&allowed, "mode", || ALLOWED.to_owned())?;
        self.choice = Some(word_of(mode, "tool_choice.allowed_tools.mode")?);
        let list = || format!("{ALLOWED}.tools");
        let tools =
            read::member(&allowed, "tools").ok_or_else(|| Rejection::malformed(list(), "is missing."))?;
        let mut names = Vec::new();
        for (position, tool) in read::array(tools, list)?.iter().enumerate() {
            let path = format!("{ALLOWED}.tools.{position}");
            names.push(function_name(&read::object(tool, || path.clone())?, &path)?);
        }
        self.tools.retain(|tool| names.contains(&tool.name));
        if self.tools.is_empty() {
            return Err(Rejection::malformed(list(), "does not name a tool of the request."));
        }
        Ok(())
    }
}

impl Tool<'_, '_> {
    fn write(&self, strict_is_known: bool, names: &mut ToolNames, out: &mut Vec<u8>) {
        let mut tool = ObjectWriter::open(out);
        tool.text("name", &names.fit(self.name));
        let description = read::member_text(&self.function, "description");
        if let Some(text) = description.filter(|text| !text.is_empty()) {
            tool.text("description", text);
        }
        schema::write_object(read::member(&self.function, "parameters"), tool.key("input_schema"));
        let strict = read::member(&self.function, "strict").and_then(|strict| strict.as_bool());
        if strict == Some(true) && strict_is_known {
            tool.raw("strict", "true");
        }
        cache_control(&mut tool, self.cache);
        tool.close();
    }
}

fn tool_of<'t, 'i>(tool: Tree<'t, 'i>, position: usize) -> Result<Tool<'t, 'i>, Rejection> {
    let path = || format!("tools.{position}");
    let tool = read::object(tool, path)?;
    match read::member(&tool, "type").map(read::as_text) {
        None | Some(Some("function")) => {}
        Some(Some("custom")) => return Err(refuse(CUSTOM_TOOL, format!("{}.type", path()))),
        Some(_) => {
            return Err(Rejection::new(format!("{}.type", path()), "must be `function` for this target."));
        }
    }
    let inner = || format!("{}.function", path());
    let function =
        read::member(&tool, "function").ok_or_else(|| Rejection::malformed(inner(), "is missing."))?;
    let function = read::object(function, inner)?;
    let name = read::needed_text(&function, "name", inner)?;
    let cache = cache_of(&tool).or_else(|| cache_of(&function));
    Ok(Tool { name, function, cache })
}

fn old_choice<'i>(choice: Option<Tree<'_, 'i>>) -> Result<Option<MessagesToolChoice<'i>>, Rejection> {
    const CALL: &str = "function_call";
    let Some(choice) = choice else { return Ok(None) };
    if let Some(word) = read::as_text(choice) {
        return word_of(word, CALL).map(Some);
    }
    let choice = read::object(choice, || CALL.to_owned())?;
    read::needed_text(&choice, "name", || CALL.to_owned()).map(|name| Some(MessagesToolChoice::Named(name)))
}

fn word_of<'i>(word: &str, path: &str) -> Result<MessagesToolChoice<'i>, Rejection> {
    match word {
        "auto" => Ok(MessagesToolChoice::Auto),
        "required" => Ok(MessagesToolChoice::Any),
        "none" => Ok(MessagesToolChoice::None),
        _ => Err(Rejection::malformed(path, CHOICES)),
    }
}

fn function_name<'i>(choice: &Object<'_, 'i>, path: &str) -> Result<&'i str, Rejection> {
    let inner = || format!("{path}.function");
    let function =
        read::member(choice, "function").ok_or_else(|| Rejection::malformed(inner(), "is missing."))?;
    read::needed_text(&read::object(function, inner)?, "name", inner)
}

const CHOICE: &str = "tool_choice";
const CHOICES: &str = "must be `auto`, `none`, `required` or a function that the request defines.";
