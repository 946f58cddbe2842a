//! Conversion of models, protocols and echo options from the file's form to that of routing.

use std::time::Duration;

use shared::id::ModelId;
use shared::operation::Dialect;
use shared::routing::{EchoOptions, Model};

use super::raw;

/// Validates a model id.
pub(super) fn model_id(id: &str) -> Result<(), &'static str> {
    match id {
        "" => Err("model IDs must not be empty"),
        _ if id.len() > 256 => Err("model IDs must have at most 256 bytes"),
        _ if id.chars().any(|c| c.is_control() || c.is_whitespace()) => {
            Err("model IDs must not contain white space or control characters")
        }
        _ => Ok(()),
    }
}

pub(super) fn model(raw: &raw::Model) -> Model {
    match raw {
        raw::Model::Id(id) => Model::bare(ModelId::new(id.as_str())),
        raw::Model::Described(raw) => described(raw),
    }
}

fn described(raw: &raw::DescribedModel) -> Model {
    let prices = raw.prices.as_ref().map(|written| written.0.clone().by_operator());
    Model {
        display_name: raw.display_name.clone(),
        vision: raw.vision,
        tools: raw.tools,
        reasoning: raw.reasoning,
        dialects: raw.protocols.as_ref().map(|list| dialects(list)),
        lacks: raw.lacks.clone().unwrap_or_default(),
        context_window: raw.context_window,
        output_tokens_max: raw.max_output_tokens,
        rules: raw.rules.as_ref().map(|written| written.0.clone()).unwrap_or_default(),
        price_label: prices.as_ref().map(|prices| prices.label("config")),
        prices,
        ..Model::bare(ModelId::new(raw.id.as_str()))
    }
}

/// Converts seconds to a duration. The schema limits the number.
pub(super) fn seconds(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

pub(super) fn dialects(list: &[raw::Protocol]) -> Vec<Dialect> {
    let mut dialects = Vec::new();
    for raw::Protocol(dialect) in list {
        if !dialects.contains(dialect) {
            dialects.push(*dialect);
        }
    }
    dialects
}

pub(super) fn echo(raw: &raw::Echo) -> EchoOptions {
    EchoOptions {
        delay: Duration::from_millis(raw.delay_ms),
        chunk_delay: Duration::from_millis(raw.chunk_delay_ms),
        status: raw.status,
        retry_after: raw.retry_after,
        cut_after_chunks: raw.cut_after_chunks,
        error_after_chunks: raw.error_after_chunks,
        fail_every: raw.fail_every,
        hang: raw.hang,
        hang_after_head: raw.hang_after_head,
        hang_after_chunks: raw.hang_after_chunks,
    }
}
