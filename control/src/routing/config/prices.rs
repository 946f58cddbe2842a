//! The JSON schema of `prices` in the file. [`shared::prices`] defines the format itself.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::prices::fields;

/// Prices as they are written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Prices(pub(super) shared::prices::Prices);

/// The schema of an entry of `above`.
struct PriceStepSchema;

/// The schema of an entry of `tiers`.
struct Tier;

impl JsonSchema for Prices {
    fn schema_name() -> Cow<'static, str> {
        "Prices".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = schedule(generator);
        properties.insert(
            "tiers".to_owned(),
            json!({
                "description": "Prices of service tiers that an answer reports, such as flex, priority, batch, fast or geo:us.",
                "type": "object",
                "additionalProperties": generator.subschema_for::<Tier>(),
            }),
        );
        json_schema!({
            "description": "Prices of a model, in dollars. Omitted prices are unknown, not zero.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

impl JsonSchema for PriceStepSchema {
    fn schema_name() -> Cow<'static, str> {
        "PriceStep".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut properties = rates();
        let input_tokens = json!({
            "description": "The prices apply to prompts with more input tokens than this.",
            "type": "integer",
            "minimum": 1,
        });
        properties.insert("input_tokens".to_owned(), input_tokens);
        json_schema!({
            "description": "The prices of longer prompts. They inherit nothing from shorter ones.",
            "type": "object",
            "properties": properties,
            "required": ["input_tokens"],
            "additionalProperties": false,
        })
    }
}

impl JsonSchema for Tier {
    fn schema_name() -> Cow<'static, str> {
        "PriceTier".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = schedule(generator);
        let times = json!({
            "description": "Factor on the standard prices of tokens, instead of own prices.",
            "type": "number",
            "minimum": 0,
            "maximum": 1_000,
        });
        properties.insert("times".to_owned(), times);
        json_schema!({
            "description": "The prices of a service tier, or a factor on the standard ones.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

/// The members of the prices of one tier.
fn schedule(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut properties = rates();
    let pictures = json!({
        "description": "The price of a generated picture, or of a second of video, by size, or by quality/size.",
        "type": "object",
        "additionalProperties": {"type": "number", "minimum": 0, "maximum": 10_000},
    });
    let input_tokens_max = json!({
        "description": "Input tokens up to which these prices apply; the cost of a longer prompt is unknown.",
        "type": ["integer", "null"],
        "minimum": 1,
    });
    let above = json!({
        "description": "Prices of longer prompts.",
        "type": "array",
        "items": generator.subschema_for::<PriceStepSchema>(),
    });
    properties.insert("pictures".to_owned(), pictures);
    properties.insert("input_tokens_max".to_owned(), input_tokens_max);
    properties.insert("above".to_owned(), above);
    properties
}

fn rates() -> Map<String, Value> {
    let rate = |field: &shared::prices::PriceField| {
        let schema = json!({
            "description": field.description,
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": field.dollars_max(),
        });
        (field.name.to_owned(), schema)
    };
    fields().iter().map(rate).collect()
}
