//! Writes a chat request for a target that speaks chat.

use shared::model_rules::ReasoningMember;

use super::{
    AnswerSchema, ChatContent, ChatFunction, ChatMessage, ChatPart, ChatRequest, ChatResponseFormat,
    ChatRole, ChatTool, CustomTool, OptionValue, PartBody, RequestCall, RequestToolChoice, RequestTools,
    SignedThought, ToolKind,
};
use crate::chat::form::signed;
use crate::json::{JsonWriter, quote};

impl ChatRequest<'_, '_> {
    /// Returns the request as JSON, with the target's name of the model. `bytes` is about its length.
    pub(crate) fn write(&self, model: &str, bytes: usize) -> Vec<u8> {
        let mut json = JsonWriter::with_capacity(bytes);
        json.object().name("model").text(model).name("messages").list();
        self.messages.iter().for_each(|message| message.write(&mut json));
        json.end_list();
        for (name, value) in &self.options {
            value.write(json.name(name));
        }
        if let Some(format) = &self.format {
            format.write(json.name("response_format"));
        }
        if self.include_usage {
            json.name("stream_options").object().name("include_usage").raw(b"true").end_object();
        }
        self.tools.write(&mut json);
        json.end_object();
        json.finish()
    }
}

impl ChatResponseFormat<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        json.object().name("type").text(self.kind);
        if let Some(AnswerSchema { name, description, schema, strict }) = self.schema {
            json.name("json_schema").object();
            let schema = schema.map(OptionValue::Tree);
            let members =
                [("name", name), ("description", description), ("schema", schema), ("strict", strict)];
            for (name, value) in members {
                if let Some(value) = value {
                    value.write(json.name(name));
                }
            }
            json.end_object();
        }
        json.end_object();
    }
}

impl ChatMessage<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        json.object().name("role").text(self.role.name());
        if let ChatRole::Tool(id) = &self.role {
            json.name("tool_call_id").text(id);
        }
        if let Some(name) = self.name {
            json.name("name").text(name);
        }
        match &self.content {
            Some(content) => content.write(json.name("content")),
            None => drop(json.name("content").raw(b"null")),
        }
        let reasoning = self.reasoning_member.unwrap_or(ReasoningMember::ReasoningContent).name();
        for (name, text) in [("refusal", &self.refusal), (reasoning, &self.reasoning)] {
            if let Some(text) = text {
                json.name(name).text(text);
            }
        }
        if !self.thoughts.is_empty() {
            json.name("thinking_blocks").list();
            self.thoughts.iter().for_each(|thought| thought.write(json));
            json.end_list();
        }
        if let Some(cache) = self.cache {
            json.name("cache_control").tree(cache.tree);
        }
        if let Some(signature) = &self.signature {
            json.raw(signed(&quote(signature)).as_bytes());
        }
        if let Some(call) = &self.function_call {
            call.write_called("arguments", json.name("function_call"));
        }
        if !self.calls.is_empty() {
            json.name("tool_calls").list();
            self.calls.iter().for_each(|call| call.write(json));
            json.end_list();
        }
        json.end_object();
    }
}

impl ChatRole<'_> {
    fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool(_) => "tool",
            Self::Function => "function",
            Self::Unknown(name) => name,
        }
    }
}

impl ChatContent<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        match self.parts.as_slice() {
            [part] if self.is_text => drop(json.text(part.text().unwrap_or_default())),
            parts => {
                json.list();
                parts.iter().for_each(|part| part.write(json));
                json.end_list();
            }
        }
    }
}

impl ChatPart<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        json.object();
        match &self.body {
            PartBody::Text(text) => drop(json.name("type").text("text").name("text").text(text)),
            PartBody::Refusal(text) => drop(json.name("type").text("refusal").name("refusal").text(text)),
            PartBody::Image { url, detail } => {
                let url = url.map(|url| url.text());
                write_source("image_url", [("url", url.as_deref()), ("detail", *detail)], json);
            }
            PartBody::Video(url) => {
                write_source("video_url", [("url", url.map(|url| url.text()).as_deref())], json);
            }
            PartBody::Audio { format, base64 } => {
                write_source("input_audio", [("format", *format), ("data", *base64)], json);
            }
            PartBody::File(file) => {
                let data = file.and_then(|file| file.data).map(|data| data.text());
                let (name, id) = (file.and_then(|file| file.name), file.and_then(|file| file.id));
                let members = [("filename", name), ("file_data", data.as_deref()), ("file_id", id)];
                write_source("file", members, json);
            }
            // No request of another dialect has such a part. The thoughts themselves are the message's.
            PartBody::Thought | PartBody::Unknown => {}
        }
        if let Some(cache) = self.cache {
            json.name("cache_control").tree(cache.tree);
        }
        json.end_object();
    }
}

/// Writes the members of a part of this kind.
fn write_source<const N: usize>(kind: &str, members: [(&str, Option<&str>); N], json: &mut JsonWriter) {
    json.name("type").text(kind).name(kind).object();
    for (name, text) in members {
        if let Some(text) = text {
            json.name(name).text(text);
        }
    }
    json.end_object();
}

impl SignedThought<'_> {
    fn write(&self, json: &mut JsonWriter) {
        json.object().name("type");
        match self {
            Self::Thinking { thinking, signature } => {
                json.text("thinking").name("thinking").text(thinking).name("signature").text(signature)
            }
            Self::Redacted { data } => json.text("redacted_thinking").name("data").text(data),
        };
        json.end_object();
    }
}

impl RequestCall<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        let (kind, input) = match self.kind {
            ToolKind::Custom => ("custom", "input"),
            ToolKind::Function | ToolKind::Unknown => ("function", "arguments"),
        };
        json.object().name("id").text(self.id.as_deref().unwrap_or_default()).name("type").text(kind);
        self.write_called(input, json.name(kind));
        if let Some(signature) = &self.signature {
            json.raw(signed(&quote(signature)).as_bytes());
        }
        if let Some(cache) = self.cache {
            json.name("cache_control").tree(cache.tree);
        }
        json.end_object();
    }

    fn write_called(&self, input: &str, json: &mut JsonWriter) {
        let text = self.input.text();
        json.object().name("name").text(&self.name).name(input).text(text.as_deref().unwrap_or("{}"));
        json.end_object();
    }
}

impl RequestTools<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        if let Some(tools) = &self.tools {
            json.name("tools").list();
            tools.iter().for_each(|tool| tool.write(json));
            json.end_list();
        }
        if let Some(functions) = &self.functions {
            json.name("functions").list();
            functions.iter().for_each(|function| function.write(json));
            json.end_list();
        }
        if let Some(choice) = &self.choice {
            choice.write(json.name("tool_choice"));
        }
        match &self.function_call {
            Some(RequestToolChoice::Named(tool)) => {
                json.name("function_call").object().name("name").text(&tool.name).end_object();
            }
            Some(choice) => choice.write(json.name("function_call")),
            None => {}
        }
    }
}

impl ChatTool<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        json.object();
        match self {
            Self::Function(function) => {
                function.write(json.name("type").text("function").name("function"));
                if let Some(cache) = function.cache {
                    json.name("cache_control").tree(cache.tree);
                }
            }
            Self::Custom(tool) => tool.write(json.name("type").text("custom").name("custom")),
            Self::Unknown => {}
        }
        json.end_object();
    }
}

impl ChatFunction<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        json.object().name("name").text(&self.name);
        self.write_description(json);
        if self.parameters.is_some() {
            self.write_parameters(json.name("parameters"));
        }
        if self.strict {
            json.name("strict").raw(b"true");
        }
        json.end_object();
    }
}

impl CustomTool<'_, '_> {
    fn write(&self, json: &mut JsonWriter) {
        json.object().name("name").text(&self.name);
        if let Some(description) = self.description {
            json.name("description").tree(description);
        }
        if let Some(format) = self.format {
            json.name("format").object().name("type").text(format.kind);
            if format.kind == "grammar" {
                json.name("grammar").object();
                for (name, value) in [("definition", format.definition), ("syntax", format.syntax)] {
                    if let Some(value) = value {
                        json.name(name).tree(value);
                    }
                }
                json.end_object();
            }
            json.end_object();
        }
        json.end_object();
    }
}

impl RequestToolChoice<'_> {
    fn write(&self, json: &mut JsonWriter) {
        match self {
            Self::Word(word) => drop(json.text(word)),
            Self::Named(tool) => write_named(tool, json),
            Self::Allowed { mode, tools } => {
                json.object().name("type").text("allowed_tools").name("allowed_tools").object();
                if let Some(mode) = mode {
                    json.name("mode").text(mode);
                }
                json.name("tools").list();
                tools.iter().for_each(|tool| write_named(tool, json));
                json.end_list().end_object().end_object();
            }
        }
    }
}

fn write_named(tool: &super::NamedTool<'_>, json: &mut JsonWriter) {
    let kind = tool.kind.name().unwrap_or("function");
    json.object().name("type").text(kind).name(kind).object().name("name").text(&tool.name);
    json.end_object().end_object();
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_chat_request_round_trips_through_reader_and_writer() {
        let mark = json!({"type": "ephemeral"});
        let signed = json!({"google": {"thought_signature": "c2ln"}});
        let document = json!({
            "model": "m",
            "messages": [
                {"role": "developer", "content": "s"},
                {"role": "user", "name": "n", "cache_control": mark, "content": [
                    {"type": "text", "text": "x\n", "cache_control": mark},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
                    {"type": "video_url", "video_url": {"url": "https://x/v.mp4"}},
                    {"type": "input_audio", "input_audio": {"format": "wav", "data": "aGk="}},
                    {"type": "file", "file": {"filename": "f", "file_data": "data:a/b;base64,aGk=", "file_id": "i"}},
                ]},
                {"role": "assistant", "content": null, "refusal": "no", "reasoning_content": "hm",
                    "extra_content": signed, "function_call": {"name": "f", "arguments": "{}"},
                    "thinking_blocks": [
                        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                        {"type": "redacted_thinking", "data": "cmVk"}],
                    "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"},
                            "extra_content": signed, "cache_control": mark},
                        {"id": "2", "type": "custom", "custom": {"name": "g", "input": "x"}}]},
                {"role": "tool", "tool_call_id": "1", "content": [{"type": "refusal", "refusal": "no"}]},
                {"role": "function", "name": "f", "content": ""},
            ],
            "temperature": 0.5, "stop": ["a"], "stream": true, "reasoning_effort": "low",
            "stream_options": {"include_usage": true},
            "response_format": {"type": "json_schema", "json_schema":
                {"name": "n", "description": "d", "schema": {"type": "object"}, "strict": true}},
            "tools": [
                {"type": "function", "cache_control": mark,
                    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}},
                {"type": "custom", "custom": {"name": "g", "description": "d", "format":
                    {"type": "grammar", "grammar": {"definition": "x", "syntax": "lark"}}}},
            ],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto",
                "tools": [{"type": "function", "function": {"name": "f"}}]}},
            "functions": [{"name": "f"}],
            "function_call": {"name": "f"},
        });
        let mut bytes = document.to_string().into_bytes();
        let tape = crate::json::parse(&mut bytes).unwrap();
        let request = ChatRequest::read(&tape.as_value().as_object().unwrap()).unwrap();
        let written: Value = serde_json::from_slice(&request.write("m", 0)).unwrap();
        assert_eq!(written, document);
    }
}
