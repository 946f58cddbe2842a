//! The figures that a group of exchanges adds to the sums.

use records::block::BlockNames;
use shared::operation::Operation;
use shared::usage::Class;

use super::{Count, Distribution, ExchangeSums, Figure, LabelledSums, NONE};
use crate::usage::target_groups::{GroupFigures, TargetGroup};

impl ExchangeSums {
    /// Adds a group of exchanges.
    pub(in crate::usage) fn add_group(
        &mut self,
        group: &TargetGroup,
        figures: &GroupFigures,
        names: &BlockNames,
    ) {
        let name_or_none = |place| Some(names.get(place)).filter(|name| !name.is_empty()).unwrap_or(NONE);
        let operation = operation(names.get(group.operation));
        let set = self.set(operation, name_or_none(group.provider), name_or_none(group.model));
        for (end, durations) in &figures.ends {
            set.add(Figure::Duration, end.name(names), durations);
        }
        for (figure, variant, values) in [
            (Figure::FirstContent, "", &figures.first_content),
            (Figure::PerOutputToken, "", &figures.per_output_token),
            (Figure::Gap, "", &figures.stream_gaps),
            (Figure::Overhead, "", &figures.overhead),
            (Figure::Tokens, "input", &figures.input_tokens),
            (Figure::Tokens, "output", &figures.output_tokens),
            (Figure::Cost, "", &figures.cost),
        ] {
            set.add(figure, variant, values);
        }
        for (class, number) in Class::ALL.into_iter().zip(figures.tokens.list()) {
            set.count(Count::Tokens, class.name(), number);
        }
        for (result, number) in &figures.results {
            set.count(Count::Targets, names.get(*result), *number);
        }
        set.count(Count::Failovers, "", figures.failovers);
        set.count(Count::Unpriced, "", figures.unpriced);
    }
}

impl LabelledSums {
    /// Adds values.
    fn add(&mut self, figure: Figure, variant: &str, values: &Distribution) {
        if let Some(variants) = self.figures.get_mut(figure as usize).filter(|_| !values.is_empty()) {
            variants.update(variant, |sum| sum.merge(values));
        }
    }

    fn count(&mut self, count: Count, variant: &str, number: u64) {
        if let Some(variants) = self.counts.get_mut(count as usize).filter(|_| number > 0) {
            variants.update(variant, |sum| *sum += number);
        }
    }
}

/// Returns the name of an operation in OpenTelemetry, or else its own.
fn operation(name: &str) -> &str {
    Operation::named(name).map_or(name, |operation| operation.genai_name())
}
