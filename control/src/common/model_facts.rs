//! The properties of a model as one source states them: its upstream, the price list, or an administrator. An absent
//! property is unknown to that source.

use serde::{Deserialize, Serialize};
use shared::model_rules::ModelRules;
use shared::operation::Dialect;
use shared::prices::Prices;
use shared::routing::Model;

/// The properties of a model that one source states; those that are absent are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ModelFacts"))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Facts {
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) display_name: Option<String>,
    /// Accepts image input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vision: Option<bool>,
    /// Can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<bool>,
    /// Reasons before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<bool>,
    /// Accepts audio input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audio: Option<bool>,
    /// Protocols that the model supports, if fewer than its provider instance supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<Vec<crate::common::shared_shapes::Protocol>>"))]
    pub(crate) protocols: Option<Vec<Dialect>>,
    /// Features of the Responses API that the model lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lacks: Option<Vec<String>>,
    /// The context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_window: Option<u64>,
    /// The maximum output in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_output_tokens: Option<u64>,
    /// The rules that the model imposes on requests. Each is taken from the first source that states it.
    #[serde(skip_serializing_if = "ModelRules::is_unknown")]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::ModelRules>"))]
    pub(crate) rules: ModelRules,
    /// Prices are taken from one source as a whole; prices of two sources are never mixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Prices>"))]
    pub(crate) prices: Option<Prices>,
}

impl Facts {
    /// Returns the facts that the configuration declares for a model.
    pub(crate) fn of_declared(model: &Model) -> Self {
        Self {
            display_name: model.display_name.clone(),
            vision: model.vision,
            tools: model.tools,
            reasoning: model.reasoning,
            audio: None,
            protocols: model.dialects.clone(),
            lacks: Some(model.lacks.clone()).filter(|lacks| !lacks.is_empty()),
            context_window: model.context_window,
            max_output_tokens: model.output_tokens_max,
            rules: model.rules.clone(),
            prices: model.prices.clone(),
        }
    }

    /// Takes each fact from `self` if it is known, otherwise from `other`.
    pub(crate) fn or(self, other: &Self) -> Self {
        Self {
            display_name: self.display_name.or_else(|| other.display_name.clone()),
            vision: self.vision.or(other.vision),
            tools: self.tools.or(other.tools),
            reasoning: self.reasoning.or(other.reasoning),
            audio: self.audio.or(other.audio),
            protocols: self.protocols.or_else(|| other.protocols.clone()),
            lacks: self.lacks.or_else(|| other.lacks.clone()),
            context_window: self.context_window.or(other.context_window),
            max_output_tokens: self.max_output_tokens.or(other.max_output_tokens),
            rules: self.rules.or(&other.rules),
            prices: self.prices.or_else(|| other.prices.clone()),
        }
    }

    /// Returns the first invalid field and an error message, or `None` if all fields are valid.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let name = self.display_name.as_deref();
        if name.is_some_and(|name| name.is_empty() || name.len() > 256 || name.chars().any(char::is_control))
        {
            return Some(("facts.display_name", "display_name must be 1 to 256 bytes on one line."));
        }
        if self.lacks.as_ref().is_some_and(|lacks| lacks.len() > LACKS_MAX) {
            return Some(("facts.lacks", "lacks must have at most 64 names."));
        }
        if self.context_window == Some(0) {
            return Some(("facts.context_window", "context_window must be a number of tokens, at least 1."));
        }
        if self.max_output_tokens == Some(0) {
            return Some((
                "facts.max_output_tokens",
                "max_output_tokens must be a number of tokens, at least 1.",
            ));
        }
        let absent = self.rules.reasoning_absent.as_deref().unwrap_or_default();
        if absent.len() > ABSENT_BYTES_MAX || absent.chars().any(char::is_control) {
            return Some((
                "facts.rules.reasoning_absent",
                "reasoning_absent must be at most 256 bytes on one line.",
            ));
        }
        if *self == Self::default() {
            return Some(("facts", "facts is empty. Set at least one, such as prices or vision."));
        }
        None
    }
}

/// The maximum length of the reasoning of messages that have none.
const ABSENT_BYTES_MAX: usize = 256;
/// The maximum number of features that one model can lack.
const LACKS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faulty_facts_are_refused_by_name() {
        for (text, want) in [
            (r#"{"prices":{"output":-1}}"#, "`output` must be dollars"),
            (r#"{"price":{}}"#, "unknown field `price`"),
        ] {
            let error = serde_json::from_str::<Facts>(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn facts_are_merged_one_by_one_and_prices_as_a_whole() {
        let prices = |text| Some(serde_json::from_str::<Prices>(text).unwrap());
        let first = Facts { vision: Some(false), prices: prices(r#"{"input":1}"#), ..Facts::default() };
        let second = Facts {
            vision: Some(true),
            tools: Some(true),
            prices: prices(r#"{"input":2,"output":2}"#),
            ..Facts::default()
        };
        let both = first.or(&second);
        assert_eq!((both.vision, both.tools), (Some(false), Some(true)));
        assert_eq!(both.prices, prices(r#"{"input":1}"#), "no output price of another list");
    }
}
