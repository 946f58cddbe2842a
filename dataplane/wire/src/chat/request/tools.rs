//! The tools that a request offers, and the choice among them.

use std::borrow::Cow;

use simd_json::prelude::ValueAsScalar as _;

use super::content::CacheMark;
use super::free_text;
use crate::json::{JsonWriter, Tree};
use crate::translation::path::MemberPath;
use crate::translation::read::{self, Object};
use crate::translation::union::{self, MergedObject, Unmergeable};
use crate::translation::{Rejection, schema};

/// The tools offered and the choice among them. `None` is a member that the request does not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestTools<'t, 'i> {
    pub(crate) tools: Option<Vec<ChatTool<'t, 'i>>>,
    pub(crate) choice: Option<RequestToolChoice<'i>>,
    /// The legacy form of `tools`.
    pub(crate) functions: Option<Vec<ChatFunction<'t, 'i>>>,
    /// The legacy form of `choice`: a word or a name.
    pub(crate) function_call: Option<RequestToolChoice<'i>>,
}

impl RequestTools<'_, '_> {
    /// Returns true if the request offers a tool.
    pub(crate) fn offers_any(&self) -> bool {
        self.tools.as_ref().is_some_and(|tools| !tools.is_empty())
            || self.functions.as_ref().is_some_and(|functions| !functions.is_empty())
    }

    /// Returns true if the answer has to call a tool.
    pub(crate) fn forces_a_call(&self) -> bool {
        let is_forced = |choice: &RequestToolChoice<'_>| match choice {
            RequestToolChoice::Word(word) => *word == "required",
            RequestToolChoice::Named(_) => true,
            RequestToolChoice::Allowed { mode, .. } => *mode == Some("required"),
        };
        self.offers_any() && [&self.choice, &self.function_call].into_iter().flatten().any(is_forced)
    }
}

/// A tool offered to the model.
#[derive(Clone, Debug)]
pub(crate) enum ChatTool<'t, 'i> {
    Function(ChatFunction<'t, 'i>),
    /// A tool whose input is free text.
    Custom(CustomTool<'t, 'i>),
    Unknown,
}

/// A function offered to the model.
#[derive(Clone, Debug)]
pub(crate) struct ChatFunction<'t, 'i> {
    pub(crate) name: Cow<'i, str>,
    pub(crate) description: Option<Tree<'t, 'i>>,
    pub(crate) parameters: Option<ObjectSchema<'t, 'i>>,
    /// Replaces `parameters`, if their root is a union that the target rejects.
    pub(crate) merged: Option<MergedObject<'t, 'i>>,
    /// True if calls must match the schema.
    pub(crate) strict: bool,
    /// The format of the input, if the function stands for a custom tool: its only argument is the text.
    pub(crate) free_text: Option<FreeTextFormat<'t, 'i>>,
    pub(crate) cache: Option<CacheMark<'t, 'i>>,
}

/// The schema of an object; `None` is that of an object without members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectSchema<'t, 'i>(pub(crate) Option<Tree<'t, 'i>>);

/// A tool whose input is free text.
#[derive(Clone, Debug)]
pub(crate) struct CustomTool<'t, 'i> {
    pub(crate) name: Cow<'i, str>,
    pub(crate) description: Option<Tree<'t, 'i>>,
    pub(crate) format: Option<FreeTextFormat<'t, 'i>>,
}

/// The format of a custom tool's input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeTextFormat<'t, 'i> {
    pub(crate) kind: &'i str,
    /// The syntax and the definition of a grammar.
    pub(crate) syntax: Option<Tree<'t, 'i>>,
    pub(crate) definition: Option<Tree<'t, 'i>>,
}

/// The kind of a tool, a call or a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolKind {
    Function,
    Custom,
    Unknown,
}

/// A tool that a choice names.
#[derive(Clone, Debug)]
pub(crate) struct NamedTool<'i> {
    /// If it is unknown, the name is empty.
    pub(crate) kind: ToolKind,
    pub(crate) name: Cow<'i, str>,
}

/// The choice among the tools.
#[derive(Clone, Debug)]
pub(crate) enum RequestToolChoice<'i> {
    /// Normally `auto`, `none` or `required`; not checked.
    Word(&'i str),
    Named(NamedTool<'i>),
    /// Only some of the tools, and one of the words.
    Allowed {
        mode: Option<&'i str>,
        tools: Vec<NamedTool<'i>>,
    },
}

impl<'t, 'i> RequestTools<'t, 'i> {
    /// Reads the tools of a request.
    pub(super) fn read(request: &Object<'t, 'i>) -> Result<Self, Rejection> {
        Ok(Self {
            tools: each(request, "tools", ChatTool::read)?,
            choice: RequestToolChoice::read(request)?,
            functions: each(request, "functions", |function, path| {
                ChatFunction::read(function, CacheMark::of(function), path)
            })?,
            function_call: RequestToolChoice::legacy(request)?,
        })
    }

    /// Replaces unions at the roots of schemas by objects, for a target that rejects them.
    pub(crate) fn merge_unions(&mut self) -> Result<(), Rejection> {
        let (tools, functions) = (MemberPath::top("tools"), MemberPath::top("functions"));
        for (position, tool) in self.tools.iter_mut().flatten().enumerate() {
            if let ChatTool::Function(function) = tool {
                function.merge_union(&tools.at(position).member("function").member("parameters"))?;
            }
        }
        for (position, function) in self.functions.iter_mut().flatten().enumerate() {
            function.merge_union(&functions.at(position).member("parameters"))?;
        }
        Ok(())
    }

    /// True if the request offers its tools only in the legacy form.
    pub(crate) fn is_legacy(&self) -> bool {
        self.tools.is_none() && self.functions.is_some()
    }
}

/// Reads the objects in the list `name` of a request.
fn each<'t, 'i, T>(
    request: &Object<'t, 'i>,
    name: &str,
    read: impl Fn(&Object<'t, 'i>, &MemberPath<'_>) -> Result<T, Rejection>,
) -> Result<Option<Vec<T>>, Rejection> {
    let path = MemberPath::top(name);
    let Some(list) = read::member(request, name) else { return Ok(None) };
    let list = read::array(list, || path.to_string())?;
    let read = |(position, value): (usize, _)| {
        let path = path.at(position);
        read(&read::object(value, || path.to_string())?, &path)
    };
    list.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
}

impl<'t, 'i> ChatTool<'t, 'i> {
    fn read(tool: &Object<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let kind = ToolKind::read(tool, path)?;
        let Some(member) = kind.name() else { return Ok(Self::Unknown) };
        let path = path.member(member);
        let inner = nested(tool, member, &path)?;
        if kind == ToolKind::Custom {
            return CustomTool::read(&inner, &path).map(Self::Custom);
        }
        let cache = CacheMark::of(tool).or_else(|| CacheMark::of(&inner));
        ChatFunction::read(&inner, cache, &path).map(Self::Function)
    }
}

/// Returns the object that is the member `name` of a tool; `path` is the object's own.
fn nested<'t, 'i>(
    tool: &Object<'t, 'i>,
    name: &str,
    path: &MemberPath<'_>,
) -> Result<Object<'t, 'i>, Rejection> {
    let inner = read::member(tool, name).ok_or_else(|| path.reject("is missing."))?;
    read::object(inner, || path.to_string())
}

impl<'t, 'i> ChatFunction<'t, 'i> {
    fn read(
        function: &Object<'t, 'i>,
        cache: Option<CacheMark<'t, 'i>>,
        path: &MemberPath<'_>,
    ) -> Result<Self, Rejection> {
        let strict = read::member(function, "strict").and_then(|strict| strict.as_bool());
        Ok(Self {
            name: read::needed_text(function, "name", || path.to_string())?.into(),
            description: read::member(function, "description"),
            parameters: read::member(function, "parameters").map(|schema| ObjectSchema(Some(schema))),
            merged: None,
            strict: strict == Some(true),
            free_text: None,
            cache,
        })
    }

    /// Returns the function that stands for a custom tool at targets without such tools.
    pub(crate) fn of_custom(tool: CustomTool<'t, 'i>) -> Self {
        let text = FreeTextFormat { kind: "text", syntax: None, definition: None };
        Self {
            name: tool.name,
            description: tool.description,
            parameters: Some(ObjectSchema(None)),
            merged: None,
            strict: false,
            free_text: Some(tool.format.unwrap_or(text)),
            cache: None,
        }
    }

    /// Returns the description, unless it is empty.
    pub(crate) fn description(&self) -> Option<Cow<'i, str>> {
        let text = self.description.and_then(read::as_text).filter(|text| !text.is_empty());
        match self.free_text {
            Some(format) => Some(format.described(text.unwrap_or_default()).into()),
            None => text.map(Cow::Borrowed),
        }
    }

    /// Writes the member `description` as the client has it, if there is one.
    pub(crate) fn write_description(&self, json: &mut JsonWriter) {
        match self.description {
            Some(description) if self.free_text.is_none() => drop(json.name("description").tree(description)),
            Some(_) | None => {
                if let Some(text) = self.description() {
                    json.name("description").text(&text);
                }
            }
        }
    }

    /// Writes the schema of the parameters.
    pub(crate) fn write_parameters(&self, json: &mut JsonWriter) {
        match &self.merged {
            _ if self.free_text.is_some() => drop(json.raw(free_text::SCHEMA.as_bytes())),
            Some(merged) => merged.write(json),
            None => schema::write_object(self.parameters.and_then(|schema| schema.0), json),
        }
    }

    /// Replaces a union at the root of the parameters, which are at `path`, by one object.
    fn merge_union(&mut self, path: &MemberPath<'_>) -> Result<(), Rejection> {
        let schema = self.parameters.and_then(|schema| schema.0);
        let Some(schema) = schema.filter(|schema| union::is_union(*schema)) else { return Ok(()) };
        let merged = union::merged(schema).map_err(|Unmergeable(member)| {
            path.refuse(&format!(
                "is a union, which this target does not support, and its '{member}' cannot become part of one \
                 object. Describe the input as one object."
            ))
        })?;
        self.merged = Some(merged);
        // The members of the branches are optional, which strict schemas forbid.
        self.strict = false;
        Ok(())
    }
}

impl<'t, 'i> CustomTool<'t, 'i> {
    fn read(tool: &Object<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let format = read::member(tool, "format").and_then(|format| format.as_object());
        let format = format.map(|format| {
            let grammar = read::member(&format, "grammar").and_then(|grammar| grammar.as_object());
            let of_grammar = |name| grammar.as_ref().and_then(|grammar| read::member(grammar, name));
            FreeTextFormat {
                kind: read::member_text(&format, "type").unwrap_or("text"),
                syntax: of_grammar("syntax"),
                definition: of_grammar("definition"),
            }
        });
        Ok(Self {
            name: read::needed_text(tool, "name", || path.to_string())?.into(),
            description: read::member(tool, "description"),
            format,
        })
    }
}

impl ToolKind {
    /// Reads the kind of the tool, call or choice at `path`: a function if it has no `type`.
    pub(super) fn read(object: &Object<'_, '_>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let kind =
            read::member(object, "type").map(|kind| read::text(kind, || path.member("type").to_string()));
        Ok(match kind.transpose()? {
            None | Some("function") => Self::Function,
            Some("custom") => Self::Custom,
            Some(_) => Self::Unknown,
        })
    }

    /// Returns the kind's name, which is also that of the member with the details.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Function => Some("function"),
            Self::Custom => Some("custom"),
            Self::Unknown => None,
        }
    }
}

impl<'i> NamedTool<'i> {
    fn read(tool: &Object<'_, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let kind = ToolKind::read(tool, path)?;
        let Some(member) = kind.name() else { return Ok(Self { kind, name: "".into() }) };
        let path = path.member(member);
        let inner = nested(tool, member, &path)?;
        Ok(Self { kind, name: read::needed_text(&inner, "name", || path.to_string())?.into() })
    }
}

impl<'i> RequestToolChoice<'i> {
    fn read(request: &Object<'_, 'i>) -> Result<Option<Self>, Rejection> {
        let path = MemberPath::top("tool_choice");
        let Some(choice) = read::member(request, "tool_choice") else { return Ok(None) };
        if let Some(word) = read::as_text(choice) {
            return Ok(Some(Self::Word(word)));
        }
        let choice = read::object(choice, || path.to_string())?;
        if read::needed_text(&choice, "type", || path.to_string())? != "allowed_tools" {
            return NamedTool::read(&choice, &path).map(|tool| Some(Self::Named(tool)));
        }
        let path = path.member("allowed_tools");
        let allowed = nested(&choice, "allowed_tools", &path)?;
        let mode = read::member(&allowed, "mode");
        let mode = mode.map(|mode| read::text(mode, || path.member("mode").to_string())).transpose()?;
        let path = path.member("tools");
        let list = read::member(&allowed, "tools").ok_or_else(|| path.reject("is missing."))?;
        let list = read::array(list, || path.to_string())?;
        let read = |(position, tool): (usize, _)| {
            let path = path.at(position);
            NamedTool::read(&read::object(tool, || path.to_string())?, &path)
        };
        let tools = list.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Some(Self::Allowed { mode, tools }))
    }

    /// Reads the legacy `function_call`, in which the function's name is a direct member.
    fn legacy(request: &Object<'_, 'i>) -> Result<Option<Self>, Rejection> {
        let path = MemberPath::top("function_call");
        let Some(choice) = read::member(request, "function_call") else { return Ok(None) };
        if let Some(word) = read::as_text(choice) {
            return Ok(Some(Self::Word(word)));
        }
        let choice = read::object(choice, || path.to_string())?;
        let name = read::needed_text(&choice, "name", || path.to_string())?.into();
        Ok(Some(Self::Named(NamedTool { kind: ToolKind::Function, name })))
    }
}
