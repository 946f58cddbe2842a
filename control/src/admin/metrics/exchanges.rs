//! The distributions and counts of exchanges in text format.

use super::text::MetricsText;
use crate::usage::metrics::{Count, Distribution, ExchangeSums, Figure, SetLabels};

/// Writes every instrument. One without values has only its head.
pub(super) fn write(sums: &ExchangeSums, text: &mut MetricsText) {
    for figure in Figure::ALL {
        let instrument = figure.instrument();
        let name = instrument.prometheus();
        text.begin(&name, "histogram", instrument.help);
        let names = HistogramNames::of(&name);
        for (labels, variant, distribution) in sums.distributions(figure) {
            names.write(text, figure, (labels, variant), distribution);
        }
    }
    for count in Count::ALL {
        let instrument = count.instrument();
        let name = instrument.prometheus() + "_total";
        text.begin(&name, "counter", instrument.help);
        for (labels, variant, number) in sums.counts(count) {
            text.value(&name, &all_labels(labels, (instrument.label, variant), ""), number);
        }
    }
}

/// The names of the lines of a histogram.
struct HistogramNames {
    bucket: String,
    sum: String,
    count: String,
}

impl HistogramNames {
    fn of(name: &str) -> Self {
        Self { bucket: format!("{name}_bucket"), sum: format!("{name}_sum"), count: format!("{name}_count") }
    }

    fn write(
        &self,
        text: &mut MetricsText,
        figure: Figure,
        (labels, variant): (&SetLabels, &str),
        distribution: &Distribution,
    ) {
        let instrument = figure.instrument();
        let own = (instrument.label, variant);
        let bounds = figure.bounds().iter().map(|bound| instrument.in_units(*bound).to_string());
        let mut cumulative = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(distribution.counts(figure.bounds())) {
            cumulative += count;
            text.value(&self.bucket, &all_labels(labels, own, &bound), cumulative);
        }
        let sum = instrument.in_units(distribution.sum);
        text.value(&self.sum, &all_labels(labels, own, ""), sum);
        text.value(&self.count, &all_labels(labels, own, ""), distribution.count());
    }
}

fn all_labels<'a>(labels: &'a SetLabels, own: (&'a str, &'a str), bound: &'a str) -> [(&'a str, &'a str); 5] {
    [
        ("gen_ai.operation.name", &labels.operation),
        ("gen_ai.provider.name", &labels.provider),
        ("gen_ai.request.model", &labels.model),
        own,
        ("le", bound),
    ]
}
