//! Turns the metrics of exchanges into those of OTLP: the same sums, names and buckets as in `GET /metrics`.

use shared::snapshot::Snapshot;

use super::message::{
    Attribute, Histogram, HistogramPoint, Metric, MetricData, NumberPoint, NumberValue, Sum, Temporality,
};
use crate::usage::metrics::{Count, ExchangeSums, Figure, Instrument, SetLabels};

/// The time that sums cover, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// Returns all metrics that have values. The snapshot has the vendors of the providers.
pub(super) fn metrics(sums: &ExchangeSums, period: Period, snapshot: &Snapshot) -> Vec<Metric> {
    let histograms = Figure::ALL.into_iter().filter_map(|figure| histogram(sums, figure, period, snapshot));
    let counts = Count::ALL.into_iter().filter_map(|count| sum(sums, count, period, snapshot));
    histograms.chain(counts).collect()
}

fn histogram(sums: &ExchangeSums, figure: Figure, period: Period, snapshot: &Snapshot) -> Option<Metric> {
    let instrument = figure.instrument();
    let bounds: Vec<f64> = figure.bounds().iter().map(|bound| instrument.in_units(*bound)).collect();
    let found = sums.distributions(figure).into_iter();
    let points: Vec<_> = found
        .map(|(labels, variant, distribution)| HistogramPoint {
            start_ns: period.start_ns,
            end_ns: period.end_ns,
            count: distribution.count(),
            sum: Some(instrument.in_units(distribution.sum)),
            bucket_counts: distribution.counts(figure.bounds()),
            bounds: bounds.clone(),
            attributes: attributes(labels, (&instrument, variant), snapshot),
        })
        .collect();
    let is_empty = points.is_empty();
    let data = Histogram { points, temporality: Temporality::Cumulative.into() };
    (!is_empty).then(|| metric(&instrument, MetricData::Histogram(data)))
}

fn sum(sums: &ExchangeSums, count: Count, period: Period, snapshot: &Snapshot) -> Option<Metric> {
    let instrument = count.instrument();
    let found = sums.counts(count).into_iter();
    let points: Vec<_> = found
        .map(|(labels, variant, number)| NumberPoint {
            start_ns: period.start_ns,
            end_ns: period.end_ns,
            value: Some(NumberValue::Whole(i64::try_from(*number).unwrap_or(i64::MAX))),
            attributes: attributes(labels, (&instrument, variant), snapshot),
        })
        .collect();
    let is_empty = points.is_empty();
    let data = Sum { points, temporality: Temporality::Cumulative.into(), is_monotonic: true };
    (!is_empty).then(|| metric(&instrument, MetricData::Sum(data)))
}

fn metric(instrument: &Instrument, data: MetricData) -> Metric {
    Metric {
        name: instrument.name.to_owned(),
        description: instrument.help.to_owned(),
        unit: instrument.unit.to_owned(),
        data: Some(data),
    }
}

fn attributes(
    labels: &SetLabels,
    (instrument, variant): (&Instrument, &str),
    snapshot: &Snapshot,
) -> Vec<Attribute> {
    let provider = &*labels.provider;
    let found = snapshot.providers.binary_search_by(|instance| instance.id.as_str().cmp(provider)).ok();
    let vendor = found.and_then(|at| snapshot.providers.get(at)).map_or(provider, |found| found.genai_name);
    let texts = [
        ("gen_ai.operation.name", &*labels.operation),
        ("gen_ai.provider.name", vendor),
        ("gen_ai.request.model", &labels.model),
        ("llmgw.provider.id", provider),
        (instrument.label, variant),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    texts.map(|(key, text)| Attribute::text(key, text)).collect()
}
