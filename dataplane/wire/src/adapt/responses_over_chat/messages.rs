//! Translates the items of a Responses request into chat messages.

use std::borrow::Cow;

use super::agent_losses;
use super::agents::{self, AgentTools};
use super::kept_reasoning::KeptReasoning;
use super::losses::refuse;
use crate::adapt::call_id::fitting;
use crate::adapt::read::{self, Object, as_text, member, member_text};
use crate::adapt::signature_in_call_id;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::tool_output::tool_output;
use crate::adapt::{Rejection, Traits};
use crate::chat::request::{
    CallInput, ChatContent, ChatFile, ChatMessage, ChatPart, ChatRole, MediaUrl, PartBody, RequestCall,
    SignedThought, ToolKind, append, joined,
};
use crate::json::Tree;

/// Collects the messages.
#[derive(Debug)]
pub(super) struct Messages<'a, 't, 'i> {
    target: &'a Traits<'a>,
    names: &'a mut ToolNames,
    /// The tools, if the target serves agents.
    agents: Option<&'a mut AgentTools<'t, 'i>>,
    pub(super) messages: Vec<ChatMessage<'t, 'i>>,
    /// The open assistant message, which further items may extend.
    turn: Option<AssistantTurn<'i>>,
    /// Media of tool outputs that wait for the user message that follows the outputs.
    lifted: Vec<(usize, PartBody<'i>)>,
    /// The item from which each message was made; `None` for the instructions.
    sources: Vec<Option<usize>>,
}

/// Consecutive text and calls of an assistant. Chat requires results of calls right after the message with the calls,
/// so text after the calls joins that message.
#[derive(Debug, Default)]
struct AssistantTurn<'i> {
    item: usize,
    text: Option<Cow<'i, str>>,
    refusal: Cow<'i, str>,
    /// The text of the reasoning before it.
    reasoning: Cow<'i, str>,
    /// The signed thoughts in it, and Gemini's signature.
    thoughts: Vec<SignedThought<'i>>,
    signature: Option<Cow<'i, str>>,
    calls: Vec<InputCall<'i>>,
    images: Vec<MediaUrl<'i>>,
}

#[derive(Debug)]
struct InputCall<'i> {
    id: &'i str,
    name: Cow<'i, str>,
    kind: ToolKind,
    input: &'i str,
}

/// Translates the items of `request`.
pub(super) fn translate<'t, 'i>(
    request: &Object<'t, 'i>,
    messages: &mut Messages<'_, 't, 'i>,
) -> Result<(), Rejection> {
    if let Some(instructions) = member(request, "instructions") {
        let text = read::text(instructions, || "instructions".to_owned())?;
        if !text.is_empty() {
            messages.add(None, messages.system(), ChatContent::text(text));
        }
    }
    match member(request, "input") {
        Some(input) if as_text(input).is_some() => {
            messages.add(Some(0), ChatRole::User, ChatContent::text(as_text(input).unwrap_or_default()));
        }
        Some(input) => {
            let items = input.as_array();
            let items =
                items.ok_or_else(|| Rejection::malformed("input", "must be a string or an array."))?;
            for (position, item) in items.iter().enumerate() {
                messages.item(position, &read::object(item, || format!("input.{position}"))?)?;
            }
        }
        None => return Err(Rejection::malformed("input", "is missing.")),
    }
    messages.end_turn();
    messages.add_lifted();
    Ok(())
}

/// Returns the member of the client's request from which the value at `rest` below `messages` was made.
pub(super) fn origin(request: &Object<'_, '_>, target: &Traits<'_>, rest: &str) -> Option<String> {
    let mut names = ToolNames::default();
    let mut agents = target.agents.map(|_| AgentTools::read(request)).transpose().ok()?;
    let mut messages = Messages::new(target, &mut names, agents.as_mut());
    translate(request, &mut messages).ok()?;
    let (index, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let Some(item) = *messages.sources.get(index.parse::<usize>().ok()?)? else {
        return Some("instructions".to_owned());
    };
    let items = member(request, "input").and_then(|input| input.as_array());
    let source = items.and_then(|items| items.iter().nth(item)).and_then(|source| source.as_object());
    let content =
        if source.is_some_and(|source| member(&source, "output").is_some()) { "output" } else { "content" };
    let item =
        if member_text(request, "input").is_some() { "input".to_owned() } else { format!("input.{item}") };
    let part = rest.strip_prefix("content.").filter(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    Some(match part {
        Some(part) => format!("{item}.{content}.{}", part.split('.').next().unwrap_or_default()),
        None => item,
    })
}

impl<'a, 't, 'i> Messages<'a, 't, 'i> {
    /// Creates a collection without messages.
    pub(super) fn new(
        target: &'a Traits<'a>,
        names: &'a mut ToolNames,
        agents: Option<&'a mut AgentTools<'t, 'i>>,
    ) -> Self {
        let (messages, sources) = (Vec::new(), Vec::new());
        Self { target, names, agents, messages, turn: None, lifted: Vec::new(), sources }
    }

    fn system(&self) -> ChatRole<'i> {
        if self.target.developer_role { ChatRole::Developer } else { ChatRole::System }
    }

    /// Adds a message that is made from this item.
    fn add(&mut self, item: Option<usize>, role: ChatRole<'i>, content: ChatContent<'t, 'i>) {
        self.sources.push(item);
        self.messages.push(ChatMessage { role, content: Some(content), ..ChatMessage::default() });
    }

    fn item(&mut self, position: usize, item: &Object<'t, 'i>) -> Result<(), Rejection> {
        let path = || format!("input.{position}");
        let kind = member(item, "type").map(|kind| read::text(kind, || format!("input.{position}.type")));
        let implied = if member(item, "role").is_some() { "message" } else { "item_reference" };
        match kind.transpose()?.unwrap_or(implied) {
            "message" => self.message(position, item),
            "function_call" => {
                if member(item, "namespace").is_some() && self.agents.is_none() {
                    let param = format!("input.{position}.namespace");
                    return Err(refuse("input.*[function_call].namespace", param));
                }
                self.call(position, ToolKind::Function, item)
            }
            "function_call_output" => self.output(position, item),
            "custom_tool_call" if self.has_custom_tools() => self.call(position, ToolKind::Custom, item),
            "custom_tool_call_output" if self.has_custom_tools() => self.output(position, item),
            "reasoning" => match member(item, "encrypted_content") {
                Some(content) if !read::is_empty(content) => self.sealed_reasoning(position, content),
                Some(_) | None => {
                    self.reasoning(position, item);
                    Ok(())
                }
            },
            "image_generation_call" => self.image(position, item),
            kind if self.agents.is_some() && is_of_agents(kind) => self.item_of_agents(position, kind),
            "item_reference" => Err(refuse("input.*[item_reference]", path() + ".type")),
            _ => Err(refuse("input.*.type", path() + ".type")),
        }
    }

    fn message(&mut self, position: usize, item: &Object<'t, 'i>) -> Result<(), Rejection> {
        let path = || format!("input.{position}");
        let role = match read::needed_text(item, "role", path)? {
            "assistant" => return self.assistant(position, item),
            "system" | "developer" => self.system(),
            "user" => ChatRole::User,
            _ => {
                let why = "must be 'user', 'assistant', 'system' or 'developer'.";
                return Err(Rejection::malformed(path() + ".role", why));
            }
        };
        let content = needed(item, "content", position)?;
        self.end_turn();
        if role != ChatRole::User {
            self.add_lifted();
        }
        if let Some(text) = as_text(content).filter(|_| self.lifted.is_empty()) {
            self.add(Some(position), role, ChatContent::text(text));
            return Ok(());
        }
        if let Some(text) = as_text(content) {
            let mut parts = self.take_lifted();
            parts.push(PartBody::Text(text.into()).into());
            self.add(Some(position), role, ChatContent { parts, is_text: false });
            return Ok(());
        }
        let list = read::array(content, || format!("input.{position}.content"))?;
        let (mut texts, mut parts) = (Vec::new(), self.take_lifted());
        for (index, part) in list.iter().enumerate() {
            let path = || format!("input.{position}.content.{index}");
            let body = part_of(&read::object(part, path)?, &role, self.target, path)?;
            if let PartBody::Text(text) = &body {
                texts.push(text.clone());
            }
            parts.push(body.into());
        }
        let is_text = texts.len() == parts.len();
        let content =
            if is_text { ChatContent::text(joined(texts, "\n\n")) } else { ChatContent { parts, is_text } };
        self.add(Some(position), role, content);
        Ok(())
    }

    fn assistant(&mut self, position: usize, item: &Object<'t, 'i>) -> Result<(), Rejection> {
        let content = needed(item, "content", position)?;
        let (mut text, mut refusal) = (None::<Cow<'i, str>>, Cow::Borrowed(""));
        if let Some(whole) = as_text(content) {
            text = Some(whole.into());
        } else {
            let parts = read::array(content, || format!("input.{position}.content"))?;
            for (index, part) in parts.iter().enumerate() {
                let path = || format!("input.{position}.content.{index}");
                let part = read::object(part, path)?;
                match read::needed_text(&part, "type", path)? {
                    "output_text" | "input_text" => {
                        append(text.get_or_insert_default(), read::needed_text(&part, "text", path)?);
                    }
                    "refusal" => append(&mut refusal, read::needed_text(&part, "refusal", path)?),
                    _ => return Err(refuse("input.*.content.*.type", path())),
                }
            }
        }
        if self.turn.as_ref().is_some_and(|turn| turn.calls.is_empty() && !turn.is_only_reasoning()) {
            self.end_turn();
        }
        self.add_lifted();
        let turn =
            self.turn.get_or_insert_with(|| AssistantTurn { item: position, ..AssistantTurn::default() });
        turn.begin(position);
        match (&mut turn.text, text) {
            (Some(before), Some(text)) => before.to_mut().extend(["\n\n", &text]),
            (before @ None, text) => *before = text,
            (Some(_), None) => {}
        }
        turn.refusal = joined(vec![std::mem::take(&mut turn.refusal), refusal], "");
        Ok(())
    }

    fn call(&mut self, position: usize, kind: ToolKind, item: &Object<'_, 'i>) -> Result<(), Rejection> {
        let text = |name: &str| read::needed_text(item, name, || format!("input.{position}"));
        let input = if kind == ToolKind::Custom { "input" } else { "arguments" };
        let (id, name) = (text("call_id")?, text("name")?);
        let name = match &self.agents {
            Some(tools) => Cow::Owned(tools.flat(member_text(item, "namespace"), name)),
            None => Cow::Borrowed(name),
        };
        let call = InputCall { id, name, kind, input: text(input)? };
        self.add_lifted();
        let turn =
            self.turn.get_or_insert_with(|| AssistantTurn { item: position, ..AssistantTurn::default() });
        turn.begin(position);
        turn.calls.push(call);
        Ok(())
    }

    /// Adds an image of an earlier answer.
    fn image(&mut self, position: usize, item: &Object<'_, 'i>) -> Result<(), Rejection> {
        let base64 = read::needed_text(item, "result", || format!("input.{position}"))?;
        let format = member_text(item, "output_format").unwrap_or("png");
        let known =
            [("png", "image/png"), ("jpeg", "image/jpeg"), ("webp", "image/webp"), ("gif", "image/gif")];
        let known = known.iter().find(|(name, _)| *name == format);
        let (_, media_type) = known.ok_or_else(|| {
            let param = format!("input.{position}.output_format");
            Rejection::malformed(param, "must be 'png', 'jpeg', 'webp' or 'gif'.")
        })?;
        self.add_lifted();
        let turn =
            self.turn.get_or_insert_with(|| AssistantTurn { item: position, ..AssistantTurn::default() });
        turn.begin(position);
        turn.images.push(MediaUrl::Inline { media_type, base64 });
        Ok(())
    }

    /// Adds the text of a reasoning item to the message that it led to. Without content, its summary is used.
    fn reasoning(&mut self, position: usize, item: &Object<'t, 'i>) {
        let texts = ["content", "summary"].into_iter().map(|name| {
            let parts = member(item, name).and_then(|parts| parts.as_array());
            let parts = parts.into_iter().flat_map(|parts| parts.iter().collect::<Vec<_>>());
            parts.filter_map(|part| member_text(&part.as_object()?, "text")).collect::<Vec<_>>()
        });
        let texts = texts.into_iter().find(|texts| !texts.is_empty()).unwrap_or_default();
        let turn =
            self.turn.get_or_insert_with(|| AssistantTurn { item: position, ..AssistantTurn::default() });
        for text in texts {
            append(&mut turn.reasoning, text);
        }
    }

    /// Opens the reasoning of an earlier answer and adds it to the message that it led to.
    fn sealed_reasoning(&mut self, position: usize, content: Tree<'t, 'i>) -> Result<(), Rejection> {
        let param = || format!("input.{position}.encrypted_content");
        let Some(seal) = self.target.agents else {
            return Err(refuse("input.*[reasoning].encrypted_content", param()));
        };
        let mut kept = KeptReasoning::open(read::text(content, param)?, seal, param)?;
        let turn =
            self.turn.get_or_insert_with(|| AssistantTurn { item: position, ..AssistantTurn::default() });
        turn.reasoning.to_mut().push_str(&kept.text());
        if let Some(signature) = kept.signature.take() {
            turn.signature = Some(signature.into());
        }
        turn.thoughts.extend(kept.into_thoughts());
        Ok(())
    }

    /// Reads an item that only the rules for agents accept.
    fn item_of_agents(&mut self, position: usize, kind: &str) -> Result<(), Rejection> {
        if kind == COMPACTION {
            return Err(agent_losses::refuse(
                "input.*[compaction_trigger]",
                format!("input.{position}.type"),
            ));
        }
        if let Some(tools) = self.agents.as_mut().filter(|_| kind != agents::ADDITIONAL) {
            tools.drop(&format!("input.{kind}"));
        }
        Ok(())
    }

    /// Returns true if custom tools are supported, by the target or as functions.
    fn has_custom_tools(&self) -> bool {
        self.target.custom_tools || self.agents.is_some()
    }

    fn output(&mut self, position: usize, item: &Object<'t, 'i>) -> Result<(), Rejection> {
        let id = read::needed_text(item, "call_id", || format!("input.{position}"))?;
        let output = needed(item, "output", position)?;
        self.end_turn();
        let id = fitting(self.target.tool_ids, signature_in_call_id::split(id).0, "call_");
        let content = match as_text(output) {
            Some(text) => ChatContent::text(text),
            None => self.output_content(position, output)?,
        };
        self.add(Some(position), ChatRole::Tool(id), content);
        Ok(())
    }

    /// Returns the content of a call's output. A tool message of a chat target holds text alone: its texts are joined by
    /// line ends, and its media follow the outputs.
    fn output_content(
        &mut self,
        position: usize,
        output: Tree<'t, 'i>,
    ) -> Result<ChatContent<'t, 'i>, Rejection> {
        let list = read::array(output, || format!("input.{position}.output"))?;
        let mut parts = Vec::with_capacity(list.len());
        for (index, part) in list.iter().enumerate() {
            let path = || format!("input.{position}.output.{index}");
            parts.push(output_part(&read::object(part, path)?, self.target, path)?);
        }
        let (content, media) = tool_output(parts, self.target);
        self.lifted.extend(media.into_iter().map(|media| (position, media)));
        Ok(content)
    }

    /// Adds the media of tool outputs as a user message.
    fn add_lifted(&mut self) {
        let item = self.lifted.first().map(|(item, _)| *item);
        let parts = self.take_lifted();
        if !parts.is_empty() {
            self.add(item, ChatRole::User, ChatContent { parts, is_text: false });
        }
    }

    fn take_lifted(&mut self) -> Vec<ChatPart<'t, 'i>> {
        self.lifted.drain(..).map(|(_, media)| media.into()).collect()
    }

    /// Adds the open assistant message, if there is one.
    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let AssistantTurn { item, text, refusal, reasoning, thoughts, signature, calls, images } = turn;
        if text.is_none() && refusal.is_empty() && calls.is_empty() && images.is_empty() {
            return;
        }
        let beside = self.target.refusals;
        let refusal = Some(refusal).filter(|refusal| !refusal.is_empty());
        let within = refusal.clone().filter(|_| !beside);
        let texts: Vec<_> = text.into_iter().chain(within).collect();
        let calls = calls.into_iter().map(|call| call.translated(self.target, self.names)).collect();
        self.sources.push(Some(item));
        self.messages.push(ChatMessage {
            role: ChatRole::Assistant,
            content: (!texts.is_empty()).then(|| ChatContent::text(joined(texts, "\n\n"))),
            refusal: refusal.filter(|_| beside),
            reasoning: Some(reasoning).filter(|reasoning| !reasoning.is_empty()),
            thoughts,
            signature,
            calls,
            images,
            ..ChatMessage::default()
        });
    }
}

impl AssistantTurn<'_> {
    /// Records that the next part comes from the item at `position`, which is the message's if no part precedes it.
    fn begin(&mut self, position: usize) {
        if self.is_only_reasoning() {
            self.item = position;
        }
    }

    fn is_only_reasoning(&self) -> bool {
        self.text.is_none() && self.refusal.is_empty() && self.calls.is_empty() && self.images.is_empty()
    }
}

impl<'i> InputCall<'i> {
    fn translated<'t>(self, target: &Traits<'_>, names: &mut ToolNames) -> RequestCall<'t, 'i> {
        let (id, signature) = signature_in_call_id::split(self.id);
        let (kind, input) = match self.kind {
            ToolKind::Custom if !target.custom_tools => (ToolKind::Function, CallInput::FreeText(self.input)),
            kind @ (ToolKind::Function | ToolKind::Custom | ToolKind::Unknown) => {
                (kind, CallInput::Text(self.input))
            }
        };
        RequestCall {
            id: Some(fitting(target.tool_ids, id, "call_")),
            kind,
            name: match self.name {
                Cow::Borrowed(name) => names.fit(name),
                Cow::Owned(name) => names.fit(&name).into_owned().into(),
            },
            input,
            signature: signature.filter(|_| target.takes_signatures()).map(Cow::Owned),
            reasoning: None,
            cache: None,
        }
    }
}

/// Returns true for items that only the rules for agents accept, or reject for a reason of their own.
fn is_of_agents(kind: &str) -> bool {
    kind == agents::ADDITIONAL || kind == COMPACTION || agents::is_left_out_item(kind)
}

const COMPACTION: &str = "compaction_trigger";

/// Returns a part of a call's output.
fn output_part<'i>(
    part: &Object<'_, 'i>,
    target: &Traits<'_>,
    path: impl Fn() -> String,
) -> Result<PartBody<'i>, Rejection> {
    match read::needed_text(part, "type", &path)? {
        "input_text" => Ok(PartBody::Text(read::needed_text(part, "text", path)?.into())),
        "input_image" if target.images => image(part, path),
        "input_file" if target.files => file(part, target, path),
        _ => Err(refuse("input.*[function_call_output].output.*.type", path())),
    }
}

fn needed<'t, 'i>(item: &Object<'t, 'i>, name: &str, position: usize) -> Result<Tree<'t, 'i>, Rejection> {
    member(item, name).ok_or_else(|| Rejection::malformed(format!("input.{position}.{name}"), "is missing."))
}

/// Returns a part of a message that is not the assistant's.
fn part_of<'i>(
    part: &Object<'_, 'i>,
    role: &ChatRole<'_>,
    target: &Traits<'_>,
    path: impl Fn() -> String,
) -> Result<PartBody<'i>, Rejection> {
    let is_user = *role == ChatRole::User;
    match read::needed_text(part, "type", &path)? {
        "input_text" => Ok(PartBody::Text(read::needed_text(part, "text", path)?.into())),
        "input_image" if is_user => image(part, path),
        "input_file" if is_user => file(part, target, path),
        _ => Err(refuse("input.*.content.*.type", path())),
    }
}

fn image<'i>(part: &Object<'_, 'i>, path: impl Fn() -> String) -> Result<PartBody<'i>, Rejection> {
    let Some(url) = member(part, "image_url") else {
        return Err(refuse("input.*.content.*[input_image].file_id", path()));
    };
    let url = Some(MediaUrl::Url(read::text(url, || path() + ".image_url")?));
    let detail = member_text(part, "detail").map(|detail| if detail == "original" { "high" } else { detail });
    Ok(PartBody::Image { url, detail })
}

fn file<'i>(
    part: &Object<'_, 'i>,
    target: &Traits<'_>,
    path: impl Fn() -> String,
) -> Result<PartBody<'i>, Rejection> {
    for name in ["file_id", "file_url"] {
        if member(part, name).is_some() {
            return Err(refuse(&format!("input.*.content.*[input_file].{name}"), path()));
        }
    }
    if !target.files {
        return Err(refuse("input.*.content.*.type", path()));
    }
    let data = Some(MediaUrl::Url(read::needed_text(part, "file_data", path)?));
    let name = Some(member_text(part, "filename").unwrap_or("file"));
    Ok(PartBody::File(Some(ChatFile { id: None, name, data })))
}
