//! Applies the rules of a model to the request for a target that speaks chat. A request for a model without rules is
//! not changed, except that reasoning of earlier turns is left out.

use std::borrow::Cow;

use shared::model_rules::{Effort, ModelRules, ReasoningBack, Sampling, Thinking, ThinkingOff};
use simd_json::prelude::ValueAsScalar as _;

use super::adjusted::Adjusted;
use super::{Rejection, Traits};
use crate::chat::request::{ChatMessage, ChatRequest, ChatRole, OptionValue};

/// Applies the rules of `target` to `request`. Rejects a request that no change makes acceptable.
pub(super) fn apply(
    request: &mut ChatRequest<'_, '_>,
    target: &Traits<'_>,
    adjusted: &mut Adjusted,
) -> Result<(), Rejection> {
    let rules = target.rules;
    send_reasoning_back(&mut request.messages, rules);
    limit_output(request, target, adjusted);
    if rules.is_unknown() {
        return Ok(());
    }
    set_effort(request, rules, adjusted);
    allow_forced_tool(request, rules, adjusted)?;
    limit_sampling(request, rules, adjusted);
    Ok(())
}

/// Keeps the reasoning of those messages that must have it, and removes all other.
fn send_reasoning_back(messages: &mut [ChatMessage<'_, '_>], rules: &ModelRules) {
    let back = rules.reasoning_back.unwrap_or(ReasoningBack::Never);
    let loop_begins = messages.iter().rposition(|message| message.role == ChatRole::User).unwrap_or_default();
    for (position, message) in messages.iter_mut().enumerate() {
        let is_needed = message.role == ChatRole::Assistant
            && match back {
                ReasoningBack::Never => false,
                ReasoningBack::ToolLoop => position > loop_begins && message.has_calls(),
                ReasoningBack::ToolCalls => message.has_calls(),
                ReasoningBack::All => true,
            };
        if !is_needed {
            message.reasoning = None;
        } else if message.reasoning.is_none() {
            message.reasoning = rules.reasoning_absent.clone().map(Cow::Owned);
        }
        message.reasoning_member = rules.reasoning_member;
    }
}

/// Lowers the output limit to the largest output of the model.
fn limit_output(request: &mut ChatRequest<'_, '_>, target: &Traits<'_>, adjusted: &mut Adjusted) {
    for (name, value) in &mut request.options {
        if OUTPUT_LIMITS.contains(name)
            && let Some(asked) = value.tree().and_then(|tokens| tokens.as_u64())
            && let Some(most) = target.lower_limit(asked)
        {
            *value = OptionValue::Number(most);
            adjusted.set(name, most);
        }
    }
}

pub(super) const OUTPUT_LIMITS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// Replaces an effort word that the model does not know, and leaves the effort out where tools exclude it.
fn set_effort<'i>(request: &mut ChatRequest<'_, 'i>, rules: &ModelRules, adjusted: &mut Adjusted) {
    let asked = request.text(EFFORT).and_then(Effort::of);
    if rules.tools_with_effort == Some(false) && request.tools.offers_any() {
        let thinks = asked.is_some_and(|word| word != Effort::None);
        if rules.thinks_by_default == Some(true) && asked != Some(Effort::None) {
            turn_off(request, rules, adjusted);
        } else if thinks {
            request.remove(EFFORT);
            adjusted.drop(EFFORT);
        }
        return;
    }
    let Some(asked) = asked else { return };
    if rules.thinking == Some(Thinking::Never) {
        request.remove(EFFORT);
        adjusted.drop(EFFORT);
        return;
    }
    if asked == Effort::None
        && let Some(off) = rules.thinking_off
    {
        match off.member() {
            Some((EFFORT, _)) => {}
            Some((name, value)) => {
                request.remove(EFFORT);
                request.set(name, OptionValue::Json(value));
            }
            None => {
                request.remove(EFFORT);
                adjusted.drop(EFFORT);
            }
        }
        return;
    }
    match rules.nearest_effort(asked) {
        Some(word) if word == asked => {}
        Some(word) => {
            request.set(EFFORT, OptionValue::Text(word.name()));
            adjusted.set(EFFORT, word.name());
        }
        None => {
            request.remove(EFFORT);
            adjusted.drop(EFFORT);
        }
    }
}

/// Turns thinking off for a forced tool call, if the model cannot do both.
fn allow_forced_tool(
    request: &mut ChatRequest<'_, '_>,
    rules: &ModelRules,
    adjusted: &mut Adjusted,
) -> Result<(), Rejection> {
    if rules.forced_tool_excludes_thinking() && request.tools.forces_a_call() && thinks(request, rules) {
        if rules.thinking_off == Some(ThinkingOff::Unavailable) {
            return Err(Rejection::new("tool_choice", FORCED));
        }
        turn_off(request, rules, adjusted);
    }
    Ok(())
}

/// The reason why a forced tool call is rejected.
pub(super) const FORCED: &str =
    "forces a tool call, which the model refuses because it always thinks: use automatic choice.";

/// Leaves out the sampling members that the model refuses.
fn limit_sampling(request: &mut ChatRequest<'_, '_>, rules: &ModelRules, adjusted: &mut Adjusted) {
    let thinks = thinks(request, rules);
    let both = request.option("temperature").is_some() && request.option("top_p").is_some();
    for name in refused_sampling(rules, thinks, both) {
        if request.remove(name) {
            adjusted.drop(name);
        }
    }
}

/// Returns the sampling members that a model refuses; `both` is true if a request has `temperature` and `top_p`.
pub(super) fn refused_sampling(rules: &ModelRules, thinks: bool, both: bool) -> &'static [&'static str] {
    match rules.sampling {
        Some(Sampling::None) => &SAMPLING,
        Some(Sampling::WithoutThinking) if thinks => &SAMPLING,
        Some(Sampling::One) if both => &["top_p"],
        Some(Sampling::One | Sampling::WithoutThinking | Sampling::Any) | None => &[],
    }
}

/// The sampling members.
pub(super) const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];

/// True if the model thinks about the request.
fn thinks(request: &ChatRequest<'_, '_>, rules: &ModelRules) -> bool {
    let off = rules.thinking_off.and_then(ThinkingOff::member);
    let is_off = off.is_some_and(|(name, _)| name != EFFORT && request.option(name).is_some());
    match request.text(EFFORT) {
        _ if is_off => false,
        Some(word) => word != Effort::None.name(),
        None => rules.thinks_by_default == Some(true),
    }
}

/// Turns thinking off: by the member for it if the model thinks by default, otherwise by leaving the effort out.
fn turn_off(request: &mut ChatRequest<'_, '_>, rules: &ModelRules, adjusted: &mut Adjusted) {
    let had_effort = request.remove(EFFORT);
    let off = rules.thinking_off.filter(|_| rules.thinks_by_default == Some(true));
    match off.and_then(|off| Some((off.member()?, off.words()?))) {
        Some(((name, value), (path, word))) => {
            request.set(name, OptionValue::Json(value));
            adjusted.set(path, word);
        }
        None if had_effort => adjusted.drop(EFFORT),
        None => {}
    }
}

const EFFORT: &str = "reasoning_effort";
