//! The fields of a Responses request that have another fate under the rules for agents (`responses_fallback: agents`).
//! All others have the fate of the strict rules.

use crate::adapt::Rejection;
use crate::adapt::loss::{self, Loss, hint, mapped, rejected};

/// The fates under the rules for agents.
pub(super) const AGENT_LOSSES: &[Loss] = &[
    mapped(
        "include.*=reasoning.encrypted_content",
        "the reasoning of the answer, with its signatures, in `encrypted_content` of its items: sealed by the gateway \
         for the project of the key, or for the key alone",
    ),
    mapped(
        "input.*[reasoning].encrypted_content",
        "opened, if this gateway sealed it for the same owner: thoughts go back to Claude, signatures to Gemini, texts \
         to models whose rules require them; elsewhere dropped, and named in `X-LLMGW-Dropped`. Rejected if it does \
         not open, or if another provider encrypted it",
    ),
    mapped("reasoning.summary", "the text of the reasoning is returned as its summary"),
    hint("reasoning.context", "the reasoning of earlier turns is in `input`"),
    mapped("input.*[additional_tools]", "its tools are part of `tools`"),
    mapped("input.*[function_call].namespace", "as the tool's `namespace`"),
    mapped(
        "input.*[custom_tool_call]",
        "a tool call; of a function with one argument if the target supports no custom tools",
    ),
    mapped("input.*[custom_tool_call_output]", "a `tool` message"),
    hint("input.*[web_search_call]", "dropped, and named in `X-LLMGW-Dropped`"),
    hint("input.*[tool_search_call]", "dropped, and named in `X-LLMGW-Dropped`"),
    hint("input.*[tool_search_output]", "dropped, and named in `X-LLMGW-Dropped`"),
    rejected(
        "input.*[compaction_trigger]",
        "asks for a compaction that only a target with a native Responses API can make. Let the client summarize the \
         conversation by a prompt: Codex does so for a provider whose `name` in config.toml is not OpenAI.",
    ),
    mapped(
        "tools.*[namespace]",
        "its functions, named `<namespace>__<name>`, which calls in the answer have apart again",
    ),
    mapped(
        "tools.*[custom]",
        "nested under `custom`, if the target supports custom tools; otherwise a function with one argument, with the \
         grammar in its description, whose calls are `custom_tool_call` items again",
    ),
    hint("tools.*[web_search*]", "dropped, and named in `X-LLMGW-Dropped`: the provider would run it"),
    hint("tools.*[image_generation]", "dropped, and named in `X-LLMGW-Dropped`: the provider would run it"),
    hint("tools.*[tool_search]", "dropped, and named in `X-LLMGW-Dropped`"),
    mapped("tool_choice[custom]", "the function that stands for it, if the target supports no custom tools"),
];

/// Returns the rejection of the value at `param`, with the reason from the row of `field`.
pub(super) fn refuse(field: &str, param: impl Into<String>) -> Rejection {
    loss::refuse(AGENT_LOSSES, field, param)
}
