//! Turns the metrics of exchanges into those of OTLP: the same sums, names and buckets as in `GET /metrics`.

use shared::snapshot::Snapshot;

use super::message::{
    Attribute, Histogram, HistogramPoint, Metric, MetricData, NumberPoint, NumberValue, Sum, Temporality,
};
use crate::common::bounds::Bounds;
use crate::usage::metrics::{BOUNDS_REACHED, Count, ExchangeSums, Figure, Instrument, SetLabels};

/// The time that sums cover, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// Returns all metrics that have values. The snapshot has the vendors of the providers.
pub(super) fn metrics(
    (sums, bounds): (&ExchangeSums, &Bounds),
    period: Period,
    snapshot: &Snapshot,
) -> Vec<Metric> {
    let histograms = Figure::ALL.into_iter().filter_map(|figure| histogram(sums, figure, period, snapshot));
    let counts = Count::ALL.into_iter().filter_map(|count| sum(sums, count, period, snapshot));
    histograms.chain(counts).chain(reached(bounds, period)).collect()
}

/// Returns how often each bound was reached, of those that were.
fn reached(bounds: &Bounds, period: Period) -> Option<Metric> {
    let points: Vec<_> = bounds
        .all()
        .filter(|bound| bound.count() > 0)
        .map(|bound| number(bound.count(), period, vec![Attribute::text(BOUNDS_REACHED.label, bound.name)]))
        .collect();
    total(&BOUNDS_REACHED, points)
}

fn number(value: u64, period: Period, attributes: Vec<Attribute>) -> NumberPoint {
    NumberPoint {
        start_ns: period.start_ns,
        end_ns: period.end_ns,
        value: Some(NumberValue::Whole(i64::try_from(value).unwrap_or(i64::MAX))),
        attributes,
    }
}

/// Returns a counter; `None` if it has no values.
fn total(instrument: &Instrument, points: Vec<NumberPoint>) -> Option<Metric> {
    let is_empty = points.is_empty();
    let data = Sum { points, temporality: Temporality::Cumulative.into(), is_monotonic: true };
    (!is_empty).then(|| metric(instrument, MetricData::Sum(data)))
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
        .map(|(labels, variant, count)| {
            number(*count, period, attributes(labels, (&instrument, variant), snapshot))
        })
        .collect();
    total(&instrument, points)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::METRIC_VARIANTS;

    #[test]
    fn the_bounds_that_were_reached_are_exported_by_name() {
        METRIC_VARIANTS.reach();
        let metric = reached(&Bounds::with(&[]), Period { start_ns: 1, end_ns: 2 }).unwrap();
        assert_eq!((metric.name.as_str(), metric.unit.as_str()), ("llmgw.bound.reached", "1"));
        let Some(MetricData::Sum(sum)) = metric.data else { panic!("{metric:?}") };
        let of = |point: &&NumberPoint| point.attributes == [Attribute::text("bound", "metric_variants")];
        let point = sum.points.iter().find(of).unwrap();
        assert!(matches!(point.value, Some(NumberValue::Whole(1..))), "{point:?}");
        assert_eq!((point.start_ns, point.end_ns, sum.is_monotonic), (1, 2, true));
    }
}
