//! Translates a chat request into a Messages request.

mod calls;
mod content;
mod messages;
mod parts;
mod thinking;
mod tools;

use simd_json::prelude::ValueAsScalar as _;

use super::answer::MessagesTarget;
use super::losses::{JSON_OBJECT, LOSSES, STOP, TEMPERATURE, refuse, refused};
use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{dropped, form, output_limit, sampling};
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Rejection, Traits, read};
use crate::chat::request::ChatRequest;
use crate::json::{JsonWriter, Tree};
use thinking::MessagesThinking;

/// Maximum length of a user id at the target, in characters.
const USER_ID_LENGTH_MAX: usize = 256;

/// The client's request and the target.
#[derive(Clone, Copy)]
struct Ask<'a, 't, 'i> {
    request: &'a ChatRequest<'t, 'i>,
    target: &'a Traits<'a>,
}

/// Maximum length of a tool name at the target, in characters.
const NAME_LENGTH_MAX: usize = 128;

/// Translates the request into the target's dialect.
pub(super) fn ask(request: &ChatRequest<'_, '_>, asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    let ask = Ask { request, target: asking.target };
    ask.reject_unsupported()?;
    let mut json = JsonWriter::with_capacity(asking.body.len().saturating_add(256));
    json.object();
    // Clouds that run Claude implement an older version of Messages with shorter tool names.
    let most = if ask.target.messages_version.is_some() { WORD_MAX } else { NAME_LENGTH_MAX };
    let mut names = ToolNames::new(Rule::Word(most));
    let mut adjusted = Adjusted::default();
    let thinking = ask.write(&mut names, &mut json, &mut adjusted)?;
    json.end_object();
    Ok(AskedOfTarget {
        body: json.finish(),
        target: Box::new(MessagesTarget { thinking_blocks: thinking.wanted, names }),
        form: form(asking, request),
        dropped: dropped(request, LOSSES),
        adjusted,
    })
}

impl<'t, 'i> Ask<'_, 't, 'i> {
    fn member(&self, name: &str) -> Option<Tree<'t, 'i>> {
        self.request.tree(name)
    }

    fn reject_unsupported(&self) -> Result<(), Rejection> {
        for (name, value) in self.request.trees() {
            if let Some(row) = refused(name)
                && asks_for_more(name, value)
            {
                return Err(refuse(row.field, name));
            }
        }
        Ok(())
    }

    fn write(
        &self,
        names: &mut ToolNames,
        json: &mut JsonWriter,
        adjusted: &mut Adjusted,
    ) -> Result<MessagesThinking<'t, 'i>, Rejection> {
        let max_tokens = self.max_tokens(adjusted)?;
        let tools = tools::MessagesTools::of(self)?;
        let thinking = MessagesThinking::of(self, max_tokens, tools.is_forced(), adjusted)?;
        match self.target.messages_version {
            Some(version) => json.name("anthropic_version").text(version),
            None => json.name("model").text(self.target.model),
        };
        json.name("max_tokens").number(max_tokens);
        messages::write(&self.request.messages, self.target, names, json)?;
        tools.write(names, json);
        self.sampling(thinking.is_on(), adjusted, json)?;
        self.stop(json)?;
        self.output_config(&thinking, json)?;
        thinking.write(json);
        self.user(json);
        self.copy_flags(json);
        Ok(thinking)
    }

    fn max_tokens(&self, adjusted: &mut Adjusted) -> Result<u64, Rejection> {
        for name in ["max_completion_tokens", "max_tokens"] {
            if let Some(value) = self.member(name) {
                let tokens = value.as_u64().filter(|tokens| *tokens > 0);
                tokens.ok_or_else(|| Rejection::malformed(name, "must be a whole number of at least 1."))?;
                break;
            }
        }
        Ok(output_limit(self.request, self.target, adjusted).unwrap_or(self.target.output_tokens_default))
    }

    fn sampling(
        &self,
        thinks: bool,
        adjusted: &mut Adjusted,
        json: &mut JsonWriter,
    ) -> Result<(), Rejection> {
        for (name, value) in sampling(self.request, self.target, thinks, adjusted) {
            let number = value.cast_f64().ok_or_else(|| Rejection::malformed(name, "must be a number."))?;
            if name == TEMPERATURE && number > 1.0 {
                return Err(Rejection::new(name, "is above 1, the maximum of the target."));
            }
            json.name(name).tree(value);
        }
        Ok(())
    }

    fn stop(&self, json: &mut JsonWriter) -> Result<(), Rejection> {
        let Some(stop) = self.member(STOP) else { return Ok(()) };
        let mut sequences: Vec<(String, &str)> = Vec::new();
        if let Some(items) = stop.as_array() {
            for (position, item) in items.iter().enumerate() {
                let path = format!("{STOP}.{position}");
                let text = read::text(item, || path.clone())?;
                sequences.push((path, text));
            }
        } else {
            let text = read::as_text(stop);
            let text =
                text.ok_or_else(|| Rejection::malformed(STOP, "must be a string or an array of strings."))?;
            sequences.push((STOP.to_owned(), text));
        }
        sequences.retain(|(_, text)| !text.is_empty());
        if let Some((path, _)) = sequences.iter().find(|(_, text)| text.trim().is_empty()) {
            return Err(Rejection::new(
                path.as_str(),
                "is blank, and the target does not support blank sequences.",
            ));
        }
        if !sequences.is_empty() {
            json.name("stop_sequences").list();
            for (_, text) in &sequences {
                json.text(text);
            }
            json.end_list();
        }
        Ok(())
    }

    fn output_config(
        &self,
        thinking: &MessagesThinking<'_, '_>,
        json: &mut JsonWriter,
    ) -> Result<(), Rejection> {
        let schema = self.schema()?;
        if schema.is_none() && thinking.effort.is_none() {
            return Ok(());
        }
        json.name("output_config").object();
        if let Some(schema) = schema {
            json.name("format").object().name("type").text("json_schema");
            json.name("schema").tree(schema).end_object();
        }
        if let Some(effort) = thinking.effort {
            json.name("effort").text(effort);
        }
        json.end_object();
        Ok(())
    }

    /// Returns the schema requested for the answer.
    fn schema(&self) -> Result<Option<Tree<'t, 'i>>, Rejection> {
        const FORMAT: &str = "response_format";
        let Some(format) = &self.request.format else { return Ok(None) };
        match format.kind {
            "text" => Ok(None),
            "json_object" => Err(refuse(JSON_OBJECT, FORMAT)),
            "json_schema" if !self.target.json_schema => {
                Err(Rejection::new(FORMAT, "is not supported by the target, which accepts no schema."))
            }
            "json_schema" => {
                const SCHEMA: &str = "response_format.json_schema";
                let inner = format.schema.ok_or_else(|| Rejection::malformed(SCHEMA, "is missing."))?;
                let missing =
                    || Rejection::new(format!("{SCHEMA}.schema"), "is missing: the target requires it.");
                inner.schema.map(Some).ok_or_else(missing)
            }
            _ => Err(Rejection::new(FORMAT, "must be of type `text` or `json_schema`.")),
        }
    }

    fn user(&self, json: &mut JsonWriter) {
        let user = self.member("safety_identifier").or_else(|| self.member("user"));
        let user = user.and_then(read::as_text);
        if let Some(user) = user.filter(|user| (1..=USER_ID_LENGTH_MAX).contains(&user.chars().count())) {
            json.name("metadata").object().name("user_id").text(user).end_object();
        }
    }

    fn copy_flags(&self, json: &mut JsonWriter) {
        if let Some(cache) = self.member("cache_control").filter(Tree::is_object) {
            json.name("cache_control").tree(cache);
        }
        if self.request.is_stream() {
            json.name("stream").raw(b"true");
        }
    }
}

/// True if a member that the target cannot express asks for more than the default behaviour.
fn asks_for_more(name: &str, value: Tree<'_, '_>) -> bool {
    match name {
        "n" => value.as_u64() != Some(1) && !read::is_empty(value),
        "modalities" => !value
            .as_array()
            .is_some_and(|items| items.iter().all(|item| read::as_text(item) == Some("text"))),
        _ => !read::asks_for_nothing(name, value),
    }
}
