//! What somebody says of a model: its upstream, the price list, or an administrator. What is left out is not
//! known, and stays so.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use shared::operation::Dialect;
use shared::routing::{Model, Prices};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Facts {
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) display_name: Option<String>,
    /// Takes image input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vision: Option<bool>,
    /// Can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<bool>,
    /// Thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<bool>,
    /// Takes audio input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audio: Option<bool>,
    /// Protocols that it speaks, where narrower than its instance's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocols: Option<Vec<Dialect>>,
    /// Tokens that fit into a conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_window: Option<u64>,
    /// The longest answer in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_output_tokens: Option<u64>,
    /// Written in dollars per million tokens. They hold together: a price of one source never stands beside
    /// one of another.
    #[serde(skip_serializing_if = "Option::is_none", with = "in_dollars")]
    pub(crate) prices: Option<Prices>,
}

impl Facts {
    /// What the configuration says of a model.
    pub(crate) fn of_declared(model: &Model) -> Self {
        Self {
            display_name: model.display_name.clone(),
            vision: model.vision,
            tools: model.tools,
            reasoning: model.reasoning,
            audio: None,
            protocols: model.dialects.clone(),
            context_window: model.context_window,
            max_output_tokens: model.output_tokens_max,
            prices: model.prices,
        }
    }

    /// Each fact from `self`, or else from `other`.
    pub(crate) fn or(self, other: &Self) -> Self {
        Self {
            display_name: self.display_name.or_else(|| other.display_name.clone()),
            vision: self.vision.or(other.vision),
            tools: self.tools.or(other.tools),
            reasoning: self.reasoning.or(other.reasoning),
            audio: self.audio.or(other.audio),
            protocols: self.protocols.or_else(|| other.protocols.clone()),
            context_window: self.context_window.or(other.context_window),
            max_output_tokens: self.max_output_tokens.or(other.max_output_tokens),
            prices: self.prices.or(other.prices),
        }
    }

    /// What is wrong with it, if anything is, and with which field.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let name = self.display_name.as_deref();
        if name.is_some_and(|name| name.is_empty() || name.len() > 256 || name.chars().any(char::is_control))
        {
            return Some(("facts.display_name", "display_name is 1 to 256 bytes on one line."));
        }
        if self.context_window == Some(0) {
            return Some(("facts.context_window", "context_window is a number of tokens from 1."));
        }
        if self.max_output_tokens == Some(0) {
            return Some(("facts.max_output_tokens", "max_output_tokens is a number of tokens from 1."));
        }
        if *self == Self::default() {
            return Some(("facts", "facts says nothing. Give at least one, such as prices or vision."));
        }
        None
    }
}

/// Prices as people write them: dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Dollars {
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_input: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens_max: Option<u64>,
}

impl Dollars {
    pub(crate) fn of(prices: &Prices) -> Self {
        Self {
            input: prices.input.and_then(dollars),
            cached_input: prices.cached_input.and_then(dollars),
            cache_write: prices.cache_write.and_then(dollars),
            output: prices.output.and_then(dollars),
            reasoning: prices.reasoning.and_then(dollars),
            input_tokens_max: prices.input_tokens_max,
        }
    }

    /// The same in micro-dollars; the name of the field that cannot be a price otherwise.
    fn prices(&self) -> Result<Prices, &'static str> {
        let price = |name: &'static str, dollars: Option<f64>| match dollars {
            None => Ok(None),
            Some(dollars) => micro_dollars(dollars).map(Some).ok_or(name),
        };
        Ok(Prices {
            input: price("input", self.input)?,
            cached_input: price("cached_input", self.cached_input)?,
            cache_write: price("cache_write", self.cache_write)?,
            output: price("output", self.output)?,
            reasoning: price("reasoning", self.reasoning)?,
            input_tokens_max: self.input_tokens_max,
        })
    }
}

fn dollars(micro: u64) -> Option<f64> {
    format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000).parse().ok()
}

/// Dollars to micro-dollars, rounded; none for what no price can be.
pub(super) fn micro_dollars(dollars: f64) -> Option<u64> {
    let is_price = (0.0..=DOLLARS_MAX).contains(&dollars);
    if is_price { format!("{:.0}", dollars * 1e6).parse().ok() } else { None }
}

mod in_dollars {
    use super::{Deserialize, Deserializer, Dollars, Prices, Serialize, Serializer, de};

    pub(super) fn serialize<S: Serializer>(prices: &Option<Prices>, to: S) -> Result<S::Ok, S::Error> {
        prices.as_ref().map(Dollars::of).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Prices>, D::Error> {
        let Some(dollars) = Option::<Dollars>::deserialize(from)? else { return Ok(None) };
        dollars.prices().map(Some).map_err(|field| {
            de::Error::custom(format!("`{field}` must be dollars per million tokens, from 0 to 1000000"))
        })
    }
}

const DOLLARS_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_written_in_dollars_and_kept_exactly() {
        for (text, want) in [
            (
                r#"{"prices":{"input":0.15,"cached_input":0.075,"output":0.6}}"#,
                [Some(150_000), Some(75_000), Some(600_000)],
            ),
            (r#"{"prices":{"input":1e-6,"output":0.0}}"#, [Some(1), None, Some(0)]),
            (r#"{"prices":{"input":1000000.0}}"#, [Some(1_000_000_000_000), None, None]),
        ] {
            let facts: Facts = serde_json::from_str(text).unwrap();
            let prices = facts.prices.unwrap();
            assert_eq!([prices.input, prices.cached_input, prices.output], want, "{text}");
            assert_eq!(serde_json::to_string(&facts).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_a_price_is_refused_by_name() {
        for text in [
            r#"{"prices":{"input":-1}}"#,
            r#"{"prices":{"input":1e7}}"#,
            r#"{"prices":{"input":"1"}}"#,
            r#"{"prices":{"inputs":1}}"#,
            r#"{"price":{}}"#,
        ] {
            assert!(serde_json::from_str::<Facts>(text).is_err(), "{text}");
        }
        let error = serde_json::from_str::<Facts>(r#"{"prices":{"output":-1}}"#).unwrap_err().to_string();
        assert!(error.starts_with("`output` must be dollars"), "{error}");
    }

    #[test]
    fn one_source_goes_before_another_fact_by_fact_and_prices_stay_together() {
        let prices = |input| Some(Prices { input, ..Prices::default() });
        let first = Facts { vision: Some(false), prices: prices(Some(1)), ..Facts::default() };
        let second = Facts {
            vision: Some(true),
            tools: Some(true),
            prices: Some(Prices { input: Some(2), output: Some(2), ..Prices::default() }),
            ..Facts::default()
        };
        let both = first.or(&second);
        assert_eq!((both.vision, both.tools), (Some(false), Some(true)));
        assert_eq!(both.prices, prices(Some(1)), "no output price of another list");
    }
}
