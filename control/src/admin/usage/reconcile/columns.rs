//! The column names of vendor exports: OpenAI's, Anthropic's, or those that the request maps.

use serde::Deserialize;

/// Column names, or paths such as `amount.value` in JSON. For the day, the model and the cost, the first column
/// present in a row is used; counts are the sum of all columns present.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    pub(super) day: Vec<String>,
    pub(super) model: Vec<String>,
    pub(super) requests: Vec<String>,
    /// All input tokens, including cached ones.
    pub(super) input: Vec<String>,
    pub(super) cached_input: Vec<String>,
    pub(super) output: Vec<String>,
    /// In dollars.
    pub(super) cost: Vec<String>,
    pub(super) cost_cents: Vec<String>,
}

/// The `mapping` of a request: one column for each figure, or several that are summed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mapping {
    day: ColumnNames,
    model: ColumnNames,
    #[serde(default)]
    requests: ColumnNames,
    #[serde(default)]
    input: ColumnNames,
    #[serde(default)]
    cached_input: ColumnNames,
    #[serde(default)]
    output: ColumnNames,
    #[serde(default)]
    cost: ColumnNames,
    #[serde(default)]
    cost_cents: ColumnNames,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum ColumnNames {
    One(String),
    Several(Vec<String>),
}

impl Default for ColumnNames {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl From<ColumnNames> for Vec<String> {
    fn from(names: ColumnNames) -> Self {
        match names {
            ColumnNames::One(name) => vec![name],
            ColumnNames::Several(names) => names,
        }
    }
}

impl From<Mapping> for Columns {
    fn from(mapping: Mapping) -> Self {
        Self {
            day: mapping.day.into(),
            model: mapping.model.into(),
            requests: mapping.requests.into(),
            input: mapping.input.into(),
            cached_input: mapping.cached_input.into(),
            output: mapping.output.into(),
            cost: mapping.cost.into(),
            cost_cents: mapping.cost_cents.into(),
        }
    }
}

impl Columns {
    /// The columns of OpenAI's usage and cost exports, from its API or its dashboard. Its input tokens include cached
    /// ones.
    pub(super) fn openai() -> Self {
        Self {
            day: names(&["start_time_iso", "start_time"]),
            model: names(&["model", "line_item"]),
            requests: names(&["num_model_requests"]),
            input: names(&["input_tokens"]),
            cached_input: names(&["input_cached_tokens"]),
            output: names(&["output_tokens"]),
            cost: names(&["amount.value", "amount_value"]),
            cost_cents: Vec::new(),
        }
    }

    /// The columns of Anthropic's usage and cost reports, whose amounts are in cents, and of the files of its
    /// console.
    pub(super) fn anthropic() -> Self {
        Self {
            day: names(&["starting_at", "usage_date_utc"]),
            model: names(&["model", "model_version"]),
            requests: Vec::new(),
            input: names(&[
                "uncached_input_tokens",
                "cache_read_input_tokens",
                "cache_creation.ephemeral_5m_input_tokens",
                "cache_creation.ephemeral_1h_input_tokens",
                "usage_input_tokens_no_cache",
                "usage_input_tokens_cache_read",
                "usage_input_tokens_cache_write_5m",
                "usage_input_tokens_cache_write_1h",
            ]),
            cached_input: names(&["cache_read_input_tokens", "usage_input_tokens_cache_read"]),
            output: names(&["output_tokens", "usage_output_tokens"]),
            cost: names(&["cost_usd"]),
            cost_cents: names(&["amount"]),
        }
    }

    /// Returns an error that names the expected columns if the header of a table has no day or no model.
    pub(super) fn check(&self, header: &[String]) -> Result<(), String> {
        let has = |names: &[String]| names.iter().any(|name| header.iter().any(|known| known.trim() == name));
        for (what, names) in [("day", &self.day), ("model", &self.model)] {
            if !has(names) {
                return Err(format!("its first line has no column for the {what}: {}", names.join(" or ")));
            }
        }
        Ok(())
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
