//! What a record adds to the sums.

use records::{Record, RecordName, Trace};
use shared::operation::Operation;
use shared::usage::{Class, Lost, Outcome, Provenance, TokenCounts};

use super::{Count, ExchangeSums, Figure, LabelledSums, NONE};
use crate::usage::requests::attempts::AttemptSummary;
use crate::usage::series::figures::lost_attempts;

impl ExchangeSums {
    /// Adds an exchange.
    pub(crate) fn observe(&mut self, record: &Record<'_>, trace: Trace<'_>) {
        let operation = operation(record.name(RecordName::Operation));
        let provider = record.name_if_any(RecordName::Provider).unwrap_or(NONE);
        let model = record.name_if_any(RecordName::Model).unwrap_or(NONE);
        let set = self.set(operation, provider, model);
        set.observe(Figure::Duration, error(record), record.duration_us);
        set.observe_stream(record);
        if let Some(us) = record.gateway_us {
            set.observe(Figure::Overhead, "", us);
        }
        if record.name(RecordName::Provenance) != Provenance::None.name() {
            set.observe(Figure::Tokens, "input", record.tokens.input_total());
            set.observe(Figure::Tokens, "output", record.tokens.output_total());
            set.bill(&record.tokens, record.cost_nano_usd);
        }
        // The trace of an interrupted exchange lacks the attempt that was in progress.
        let is_whole = record.name(RecordName::Outcome) != Outcome::Interrupted.name();
        if is_whole && AttemptSummary::has_failed_over(trace) {
            set.count(Count::Failovers, "", 1);
        }
        for step in trace {
            self.set(operation, step.provider, step.model).count(Count::Targets, step.result, 1);
        }
        for (provider, model, Lost { tokens, cost_nano_usd, .. }) in lost_attempts(record, trace) {
            self.set(operation, provider, model).bill(&tokens, cost_nano_usd);
        }
    }
}

impl LabelledSums {
    /// Adds the times of a stream that had content.
    fn observe_stream(&mut self, record: &Record<'_>) {
        let Some(first_us) = record.first_content_us.filter(|_| record.stream) else { return };
        self.observe(Figure::FirstContent, "", first_us);
        if let Some(gaps) = self.figures.get_mut(Figure::Gap as usize).filter(|_| !record.gaps.is_empty()) {
            gaps.update("", |distribution| distribution.add_gaps(&record.gaps));
        }
        let further = record.tokens.output_total().saturating_sub(1);
        let rest_us = record.duration_us.saturating_sub(first_us);
        let is_complete = record.name(RecordName::Outcome) == Outcome::Completed.name();
        if let Some(us) = rest_us.checked_div(further).filter(|_| is_complete) {
            self.observe(Figure::PerOutputToken, "", us);
        }
    }

    /// Adds what an attempt used.
    fn bill(&mut self, tokens: &TokenCounts, cost_nano_usd: Option<u64>) {
        match cost_nano_usd {
            Some(nano) => self.observe(Figure::Cost, "", nano),
            None => self.count(Count::Unpriced, "", 1),
        }
        let classes = Class::ALL.into_iter().zip(tokens.list()).filter(|(_, count)| *count > 0);
        classes.for_each(|(class, count)| self.count(Count::Tokens, class.name(), count));
    }
}

/// Returns the name of an operation in OpenTelemetry, or else its own.
fn operation(name: &str) -> &str {
    Operation::named(name).map_or(name, |operation| operation.genai_name())
}

/// Returns the kind of the error, or the outcome of an exchange that was not completed; empty for a complete answer.
pub(crate) fn error<'a>(record: &Record<'a>) -> &'a str {
    let outcome = Some(record.name(RecordName::Outcome)).filter(|name| *name != Outcome::Completed.name());
    record.name_if_any(RecordName::Error).or(outcome).unwrap_or("")
}
