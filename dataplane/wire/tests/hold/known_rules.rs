//! Targets with the rules that the gateway's built-in list has for their models.

use std::sync::LazyLock;

use shared::model_rules::{
    CallSignatures, ConverseFields, Effort, ImageFamily, ModelRules, Thinking, ThinkingOff,
};
use wire::adapt::Traits;

/// Returns a target with a model of this name, which is one of those below or unknown.
pub(crate) fn known(model: &str) -> Traits<'_> {
    let rules =
        RULES.iter().find(|(name, _)| model.contains(name)).map_or(&ModelRules::UNKNOWN, |(_, rules)| rules);
    Traits { rules, ..Traits::of(model) }
}

static RULES: LazyLock<[(&str, ModelRules); 12]> = LazyLock::new(|| {
    let gemini = ModelRules { call_signatures: Some(CallSignatures::Accepted), ..ModelRules::UNKNOWN };
    let budget = ModelRules { thinking: Some(Thinking::Budget), ..gemini.clone() };
    let levels = ModelRules {
        thinking: Some(Thinking::Always),
        call_signatures: Some(CallSignatures::Required),
        ..ModelRules::UNKNOWN
    };
    let of_images = |family| ModelRules { image_family: Some(family), ..ModelRules::UNKNOWN };
    let media =
        ModelRules { media_in_tool_results: Some(true), cache_points: Some(true), ..ModelRules::UNKNOWN };
    let converse = |fields| ModelRules { converse_fields: Some(fields), ..ModelRules::UNKNOWN };
    let claude =
        ModelRules { signed_thinking: Some(true), ..media.clone() }.or(&converse(ConverseFields::Messages));
    [
        ("gemini-2.5-flash-image", of_images(ImageFamily::Gemini2)),
        ("imagen-3", of_images(ImageFamily::Imagen3)),
        ("imagen", of_images(ImageFamily::Imagen)),
        (
            "gemini-2.5-pro",
            ModelRules {
                thinking_budget_min: Some(128),
                thinking_off: Some(ThinkingOff::Unavailable),
                ..budget.clone()
            },
        ),
        ("gemini-2.5", budget),
        (
            "gemini-3.1-pro",
            ModelRules { efforts: Some(vec![Effort::Low, Effort::Medium, Effort::High]), ..levels.clone() },
        ),
        ("gemini-3-pro", ModelRules { efforts: Some(vec![Effort::Low, Effort::High]), ..levels.clone() }),
        ("gemini-3", levels),
        (
            "claude-sonnet-4-5",
            ModelRules {
                thinking: Some(Thinking::Budget),
                thinking_budget_min: Some(1024),
                forced_tool_with_thinking: Some(false),
                ..claude.clone()
            },
        ),
        ("claude", claude),
        ("nova", media),
        ("gpt-oss", converse(ConverseFields::Chat)),
    ]
});
