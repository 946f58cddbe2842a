//! The thinking of a Claude model whose rules are known, at its own API and at Bedrock: what the request asks, in the
//! form that the model accepts.

use shared::model_rules::{Effort, ModelRules, Thinking, ThinkingOff};
use simd_json::prelude::ValueAsScalar as _;

use super::thinking::{HIGH, LOW, MEDIUM, acts_unsigned, budget_that_fits};
use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_rules::FORCED;
use crate::adapt::{Rejection, Traits, read};
use crate::chat::request::ChatRequest;
use crate::json::JsonWriter;

/// The thinking settings of a request, as the rules of the model allow them.
#[derive(Debug)]
pub(in crate::adapt) struct RuledThinking<'i> {
    mode: RuledMode,
    /// The word for `display`.
    display: Option<&'i str>,
    /// The word for `output_config.effort`.
    pub(in crate::adapt) effort: Option<&'static str>,
    /// True if the model thinks without being asked.
    by_default: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuledMode {
    /// Not sent; the model decides.
    Unset,
    Off(ThinkingOff),
    Tokens(u64),
    Adaptive,
}

/// What a request asks of the model's thinking.
#[derive(Debug, Default)]
struct Asked<'i> {
    wish: Wish,
    effort: Option<Effort>,
    display: Option<&'i str>,
    /// The members that ask.
    members: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Nothing,
    Off,
    BetweenTools,
    Adaptive,
    Tokens(u64),
    /// As much as the effort, or a medium one.
    Some,
}

/// Returns the thinking settings for `target`; `None` if its rules are unknown or it does not reason. Rejects a forced
/// tool call if the model cannot but think.
pub(in crate::adapt) fn ruled_thinking<'i>(
    request: &ChatRequest<'_, 'i>,
    target: &Traits<'_>,
    tokens_max: Option<u64>,
    adjusted: &mut Adjusted,
) -> Result<Option<RuledThinking<'i>>, Rejection> {
    let rules = target.rules;
    let Some(thinking) = rules.thinking.filter(|_| target.reasoning) else { return Ok(None) };
    let asked = Asked::of(request);
    let mut mode = asked.mode(thinking, rules, tokens_max, adjusted);
    let by_default = rules.thinks_by_default == Some(true);
    let is_on = |mode| match mode {
        RuledMode::Tokens(_) | RuledMode::Adaptive => true,
        RuledMode::Off(off) => !off.is_complete(),
        RuledMode::Unset => by_default,
    };
    let is_forced = rules.forced_tool_excludes_thinking() && request.tools.forces_a_call();
    if is_on(mode) && (is_forced || acts_unsigned(&request.messages)) {
        let off = rules.thinking_off.unwrap_or(ThinkingOff::Thinking);
        if off.is_complete() {
            if mode != RuledMode::Unset {
                asked.dropped(adjusted);
            }
            mode = if by_default { RuledMode::Off(off) } else { RuledMode::Unset };
            if by_default {
                adjusted.set("thinking.type", "disabled");
            }
        } else if is_forced {
            return Err(Rejection::new("tool_choice", FORCED));
        }
    }
    let effort = asked.effort(mode, thinking, rules, adjusted);
    let is_hidden = rules.hides_thinking == Some(true) && mode == RuledMode::Adaptive;
    let display = asked.display.or_else(|| is_hidden.then_some("summarized"));
    Ok(Some(RuledThinking { mode, display, effort: effort.map(Effort::name), by_default }))
}

impl<'i> Asked<'i> {
    /// Reads `reasoning_effort`, the `reasoning` object that OpenRouter's clients send, and Anthropic's `thinking`.
    fn of(request: &ChatRequest<'_, 'i>) -> Self {
        let mut asked = Self::default();
        let reasoning = request.tree("reasoning").and_then(|reasoning| reasoning.as_object());
        let inner = |name: &str| reasoning.as_ref().and_then(|reasoning| read::member(reasoning, name));
        let (member, word) = match request.option("reasoning_effort") {
            Some(word) => ("reasoning_effort", word.as_text()),
            None => ("reasoning", inner("effort").and_then(read::as_text)),
        };
        let tokens = inner("max_tokens").and_then(|tokens| tokens.as_u64());
        match (word.and_then(Effort::of), tokens, inner("enabled").and_then(|on| on.as_bool())) {
            (Some(Effort::None), _, _) => asked.ask(Wish::Off, member),
            (Some(effort), _, _) => {
                asked.effort = Some(effort.max(Effort::Low));
                asked.ask(Wish::Some, member);
            }
            (None, Some(tokens), _) => asked.ask(Wish::Tokens(tokens), "reasoning"),
            (None, None, Some(on)) => asked.ask(if on { Wish::Some } else { Wish::Off }, "reasoning"),
            (None, None, None) => {}
        }
        let Some(own) = request.tree("thinking").and_then(|own| own.as_object()) else { return asked };
        asked.display = read::member_text(&own, "display");
        let tokens = read::member(&own, "budget_tokens").and_then(|tokens| tokens.as_u64());
        match (read::member_text(&own, "type"), tokens) {
            (Some("enabled"), Some(tokens)) => asked.ask(Wish::Tokens(tokens), "thinking"),
            (Some("enabled"), None) => asked.ask(Wish::Some, "thinking"),
            (Some("adaptive"), _) => asked.ask(Wish::Adaptive, "thinking"),
            (Some("disabled"), _) => asked.ask(Wish::Off, "thinking"),
            (Some("between_tools"), _) => asked.ask(Wish::BetweenTools, "thinking"),
            (Some(_) | None, _) => {}
        }
        asked
    }

    fn ask(&mut self, wish: Wish, member: &'static str) {
        self.wish = wish;
        self.members.push(member);
    }

    /// Names the members that ask as left out.
    fn dropped(&self, adjusted: &mut Adjusted) {
        self.members.iter().for_each(|member| adjusted.drop(member));
    }

    fn mode(
        &self,
        thinking: Thinking,
        rules: &ModelRules,
        tokens_max: Option<u64>,
        adjusted: &mut Adjusted,
    ) -> RuledMode {
        let by_tokens = |tokens: u64, adjusted: &mut Adjusted| {
            let enough = tokens.max(rules.thinking_budget_min.unwrap_or_default());
            match budget_that_fits(enough, tokens_max) {
                Some(fitting) => {
                    if fitting > tokens {
                        adjusted.set("thinking.budget_tokens", fitting);
                    }
                    RuledMode::Tokens(fitting)
                }
                None => {
                    self.dropped(adjusted);
                    RuledMode::Unset
                }
            }
        };
        match (self.wish, thinking) {
            (Wish::Nothing, _) => RuledMode::Unset,
            (Wish::Off, Thinking::Never) => RuledMode::Unset,
            (_, Thinking::Never) => {
                self.dropped(adjusted);
                RuledMode::Unset
            }
            (Wish::Off, _) => match rules.thinking_off {
                Some(ThinkingOff::Unavailable) => {
                    self.dropped(adjusted);
                    RuledMode::Unset
                }
                Some(off @ ThinkingOff::BetweenTools) => {
                    adjusted.set("thinking.type", "between_tools");
                    RuledMode::Off(off)
                }
                _ if rules.thinks_by_default == Some(true) => RuledMode::Off(ThinkingOff::Thinking),
                _ => RuledMode::Unset,
            },
            (Wish::BetweenTools, _) => RuledMode::Off(ThinkingOff::BetweenTools),
            (Wish::Tokens(tokens), Thinking::Budget | Thinking::Either) => by_tokens(tokens, adjusted),
            (Wish::Tokens(_), Thinking::Adaptive | Thinking::Always) => {
                adjusted.set("thinking.type", "adaptive");
                RuledMode::Adaptive
            }
            (Wish::Adaptive, Thinking::Budget) => {
                adjusted.set("thinking.type", "enabled");
                by_tokens(self.tokens(), adjusted)
            }
            (Wish::Some, Thinking::Budget) => by_tokens(self.tokens(), adjusted),
            (Wish::Adaptive | Wish::Some, _) => RuledMode::Adaptive,
        }
    }

    /// Returns the budget for the effort, or for a medium one.
    fn tokens(&self) -> u64 {
        match self.effort.unwrap_or(Effort::Medium) {
            Effort::None | Effort::Minimal | Effort::Low => LOW,
            Effort::Medium => MEDIUM,
            Effort::High | Effort::Xhigh | Effort::Max => HIGH,
        }
    }

    /// Returns the effort that goes with `mode`.
    fn effort(
        &self,
        mode: RuledMode,
        thinking: Thinking,
        rules: &ModelRules,
        adjusted: &mut Adjusted,
    ) -> Option<Effort> {
        if matches!(thinking, Thinking::Never | Thinking::Budget) {
            return None;
        }
        let asked = self.effort.or_else(|| match self.wish {
            Wish::Tokens(tokens) if mode == RuledMode::Adaptive => Some(effort_of(tokens)),
            Wish::Nothing
            | Wish::Off
            | Wish::BetweenTools
            | Wish::Adaptive
            | Wish::Tokens(_)
            | Wish::Some => None,
        })?;
        // With thinking off, a model that thinks by default refuses the highest words.
        let is_off = rules.thinks_by_default == Some(true) && matches!(mode, RuledMode::Off(_));
        let wanted = if is_off { asked.min(Effort::High) } else { asked };
        let sent = rules.nearest_effort(wanted);
        match sent {
            Some(word) if Some(word) != self.effort => adjusted.set("output_config.effort", word.name()),
            Some(_) => {}
            None => self.dropped(adjusted),
        }
        sent
    }
}

/// Returns the effort that thinks about as much as a budget.
fn effort_of(tokens: u64) -> Effort {
    match tokens {
        ..MEDIUM => Effort::Low,
        MEDIUM..HIGH => Effort::Medium,
        HIGH.. => Effort::High,
    }
}

impl RuledThinking<'_> {
    /// True if the model is certain to think.
    pub(in crate::adapt) fn is_on(&self) -> bool {
        match self.mode {
            RuledMode::Tokens(_) | RuledMode::Adaptive => true,
            RuledMode::Off(off) => !off.is_complete(),
            RuledMode::Unset => self.by_default,
        }
    }

    /// Returns the thinking budget.
    pub(in crate::adapt) fn tokens(&self) -> Option<u64> {
        match self.mode {
            RuledMode::Tokens(tokens) => Some(tokens),
            RuledMode::Unset | RuledMode::Off(_) | RuledMode::Adaptive => None,
        }
    }

    /// Writes the member `thinking`, if there is one.
    pub(in crate::adapt) fn write(&self, json: &mut JsonWriter) {
        let kind = match self.mode {
            RuledMode::Unset => return,
            RuledMode::Off(ThinkingOff::BetweenTools) => "between_tools",
            RuledMode::Off(_) => "disabled",
            RuledMode::Tokens(_) => "enabled",
            RuledMode::Adaptive => "adaptive",
        };
        json.name("thinking").object().name("type").text(kind);
        if let Some(tokens) = self.tokens() {
            json.name("budget_tokens").number(tokens);
        }
        if let Some(display) = self.display.filter(|_| self.is_on()) {
            json.name("display").text(display);
        }
        json.end_object();
    }
}
