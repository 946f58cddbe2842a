//! The JSON schema of `rules` of a model. [`shared::model_rules`] defines the format itself.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::model_rules::{Effort, ModelRules};

/// Rules as they are written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Rules(pub(super) ModelRules);

impl JsonSchema for Rules {
    fn schema_name() -> Cow<'static, str> {
        "ModelRules".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Rules that a model imposes on requests. Omitted ones are unknown.",
            "type": "object",
            "properties": properties(),
            "additionalProperties": false,
        })
    }
}

fn properties() -> Map<String, Value> {
    let mut properties = Map::new();
    for (name, words, description) in WORDS {
        properties.insert((*name).to_owned(), json!({"description": description, "enum": words}));
    }
    for (name, description) in BOOLS {
        let schema = json!({"description": description, "type": ["boolean", "null"]});
        properties.insert((*name).to_owned(), schema);
    }
    let efforts = Effort::ALL.map(Effort::name);
    properties.insert(
        "efforts".to_owned(),
        json!({
            "description": "The effort words that the model knows; an unknown word becomes the next lower known one.",
            "type": ["array", "null"],
            "items": {"enum": efforts},
        }),
    );
    properties.insert(
        "thinking_budget_min".to_owned(),
        json!({
            "description": "The smallest thinking budget in tokens.",
            "type": ["integer", "null"],
            "minimum": 1,
        }),
    );
    properties.insert(
        "reasoning_absent".to_owned(),
        json!({
            "description": "The reasoning of a message that must have some and has none.",
            "type": ["string", "null"],
        }),
    );
    properties
}

/// Members with one of a few words.
const WORDS: &[(&str, &[&str], &str)] = &[
    (
        "thinking",
        &["never", "budget", "either", "adaptive", "always"],
        "How the model thinks: never, up to a budget of tokens, adaptively, either way, or adaptively without a way \
         to turn it off.",
    ),
    (
        "converse_fields",
        &["messages", "chat"],
        "Whose members additionalModelRequestFields of Converse may have: those of messages (thinking, output_config, \
         top_k), or of chat (reasoning_effort).",
    ),
    (
        "thinking_off",
        &[
            "thinking",
            "between_tools",
            "reasoning_effort",
            "reasoning",
            "enable_thinking",
            "chat_template",
            "unavailable",
        ],
        "The member that turns thinking off; unavailable if none does.",
    ),
    (
        "sampling",
        &["any", "one", "without_thinking", "none"],
        "The sampling members that the model accepts: any, only one of temperature and top_p, any unless it thinks, \
         or none.",
    ),
    (
        "reasoning_back",
        &["never", "tool_loop", "tool_calls", "all"],
        "The assistant's messages that must have their reasoning: none, those with tool calls since the last message \
         of the user, all with tool calls, or all.",
    ),
    (
        "reasoning_member",
        &["reasoning_content", "reasoning"],
        "The member of a message with its reasoning; reasoning_content by default.",
    ),
    (
        "call_signatures",
        &["accepted", "required"],
        "Whether signatures of tool calls are accepted, or required for calls of its own.",
    ),
    (
        "image_family",
        &["gemini", "gemini2", "imagen", "imagen3"],
        "The image sizes and the API call of a Google image model.",
    ),
];

const BOOLS: &[(&str, &str)] = &[
    ("thinks_by_default", "Thinks unless the request turns thinking off."),
    ("hides_thinking", "Sends its thoughts only if the request asks for their summary."),
    ("tools_with_effort", "False if a chat request with tools must not have an effort other than none."),
    ("forced_tool_with_thinking", "False if a forced tool call and thinking exclude each other."),
    ("signed_thinking", "Refuses thoughts that it has not signed itself."),
    ("mid_system", "Accepts system text between other messages of a Messages conversation."),
    ("media_in_tool_results", "Accepts images and documents in tool results of Converse."),
    ("root_unions", "False if the schema of a tool must not be a union at its root."),
    ("cache_points", "Accepts cache points of Converse."),
    ("searches", "Searches the web for every request, so that a search is reserved."),
    (
        "image_urls",
        "True if an image model answers with URLs unless asked for inline images; false if it rejects such a request.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_exactly_the_members_and_words_of_the_rules() {
        let all = json!({
            "thinking": "always", "thinks_by_default": true, "thinking_off": "thinking", "thinking_budget_min": 1,
            "hides_thinking": true, "efforts": ["low"], "sampling": "one", "tools_with_effort": false,
            "forced_tool_with_thinking": false, "signed_thinking": true, "reasoning_back": "all",
            "reasoning_member": "reasoning", "reasoning_absent": "", "converse_fields": "messages",
            "call_signatures": "accepted", "mid_system": true, "media_in_tool_results": true, "root_unions": false,
            "cache_points": true, "image_urls": true, "searches": true, "image_family": "imagen",
        });
        let rules: ModelRules = serde_json::from_value(all.clone()).unwrap();
        assert_eq!(serde_json::to_value(rules).unwrap(), all, "every member is set");
        let names: Vec<_> = properties().keys().cloned().collect();
        let want: Vec<_> = all.as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, want);
        for (name, words, _) in WORDS {
            for word in *words {
                assert!(serde_json::from_value::<ModelRules>(json!({*name: word})).is_ok(), "{name}: {word}");
            }
        }
    }
}
