//! Maps the member that an upstream's error names to the client's request.

use shared::operation::Dialect;

/// Returns the member of the client's request that corresponds to `param` of the adapted request, or `None` if that is
/// unknown. Only the top-level member is named, because positions in lists differ.
pub fn client_param(client: Dialect, target: Dialect, param: &str) -> Option<&'static str> {
    let root = param.split(['.', '[']).next().unwrap_or_default();
    if root == "model" {
        return Some("model");
    }
    let same = || SAME.iter().find(|name| **name == root).copied();
    match (client, target) {
        (Dialect::Chat, Dialect::Responses) => {
            same().or_else(|| RENAMED.iter().find(|(_, responses)| *responses == root).map(|(chat, _)| *chat))
        }
        (Dialect::Responses, Dialect::Chat) => {
            same().or_else(|| RENAMED.iter().find(|(chat, _)| *chat == root).map(|(_, responses)| *responses))
        }
        _ => None,
    }
}

/// Members that have the same name in Chat and Responses.
const SAME: [&str; 13] = [
    "temperature",
    "top_p",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "metadata",
    "user",
    "store",
    "top_logprobs",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
];

/// Pairs of a member's Chat name and its Responses name. If a member has two names, the current one is first.
const RENAMED: [(&str, &str); 5] = [
    ("messages", "input"),
    ("max_completion_tokens", "max_output_tokens"),
    ("max_tokens", "max_output_tokens"),
    ("response_format", "text"),
    ("reasoning_effort", "reasoning"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_param_is_translated_to_the_clients_member() {
        use Dialect::{Chat, Gemini, Messages, Responses};
        for (client, target, param, want) in [
            (Responses, Chat, "messages[0].content", Some("input")),
            (Responses, Chat, "max_tokens", Some("max_output_tokens")),
            (Responses, Chat, "tools[0].function.name", Some("tools")),
            (Responses, Chat, "frequency_penalty", None),
            (Chat, Responses, "input[1]", Some("messages")),
            (Chat, Responses, "max_output_tokens", Some("max_completion_tokens")),
            (Chat, Responses, "text.format", Some("response_format")),
            (Messages, Chat, "messages", None),
            (Chat, Gemini, "contents", None),
            (Chat, Gemini, "model", Some("model")),
        ] {
            assert_eq!(client_param(client, target, param), want, "{param}");
        }
    }
}
