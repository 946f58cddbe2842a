//! Reads exports of OTLP as a collector would, by the field numbers of the official definitions (`opentelemetry/proto`).

use std::collections::BTreeMap;

use super::upstream::{Received, Upstream};
use super::wait;

/// A span that a collector received. IDs are in hexadecimal digits, and all values are texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentSpan {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    /// 1 is internal, 2 server, 3 client.
    pub(crate) kind: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    /// The attributes of the events.
    pub(crate) events: Vec<BTreeMap<String, String>>,
    /// 0 is unset, 2 an error.
    pub(crate) status: u64,
    pub(crate) flags: u64,
}

impl SentSpan {
    /// Returns the attribute, or an empty text.
    pub(crate) fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

/// Returns the attributes of the resource, and the spans of an export.
pub(crate) fn spans(request: &Received) -> (BTreeMap<String, String>, Vec<SentSpan>) {
    let resource_spans = Proto(&request.body).message(1);
    let resource = attributes(resource_spans.message(1), 1);
    let scope_spans = resource_spans.message(2);
    assert_eq!(scope_spans.message(1).text(1), "llmgw");
    (resource, scope_spans.messages(2).map(span).collect())
}

/// A metric that a collector received.
#[derive(Clone, Debug)]
pub(crate) struct SentMetric {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) points: Vec<SentPoint>,
}

/// A data point: of a histogram, or of a sum, whose value is the count.
#[derive(Clone, Debug)]
pub(crate) struct SentPoint {
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) buckets: usize,
    pub(crate) bounds: usize,
}

/// Returns the metrics of an export. All of them are cumulative.
pub(crate) fn metrics(request: &Received) -> Vec<SentMetric> {
    let scope_metrics = Proto(&request.body).message(1).message(2);
    scope_metrics.messages(2).map(metric).collect()
}

fn metric(metric: Proto<'_>) -> SentMetric {
    let (sum, histogram) = (metric.message(7), metric.message(9));
    let data = if sum.0.is_empty() { histogram } else { sum };
    assert_eq!(data.number(2), 2, "cumulative");
    let points = sum.messages(1).map(number_point).chain(histogram.messages(1).map(histogram_point));
    SentMetric { name: metric.text(1), unit: metric.text(3), points: points.collect() }
}

fn number_point(point: Proto<'_>) -> SentPoint {
    let attributes = attributes(point, 7);
    SentPoint { attributes, count: point.number(6), sum: 0.0, buckets: 0, bounds: 0 }
}

fn histogram_point(point: Proto<'_>) -> SentPoint {
    assert!(point.number(2) > 0 && point.number(3) >= point.number(2), "the times");
    SentPoint {
        attributes: attributes(point, 9),
        count: point.number(4),
        sum: f64::from_bits(point.number(5)),
        buckets: point.bytes(6).len() / 8,
        bounds: point.bytes(7).len() / 8,
    }
}

/// Waits until a collector has accepted this many spans, and returns them in the order of their start.
pub(crate) async fn received(collector: &Upstream, count: usize) -> Vec<SentSpan> {
    wait::eventually(&format!("{count} spans"), async || {
        let mut all: Vec<_> = collector.requests().iter().flat_map(|request| spans(request).1).collect();
        all.sort_by_key(|span| (span.start_ns, span.kind));
        (all.len() >= count).then_some(all)
    })
    .await
}

fn span(span: Proto<'_>) -> SentSpan {
    SentSpan {
        trace: hex(span.bytes(1)),
        id: hex(span.bytes(2)),
        state: span.text(3),
        parent: hex(span.bytes(4)),
        name: span.text(5),
        kind: span.number(6),
        start_ns: span.number(7),
        end_ns: span.number(8),
        attributes: attributes(span, 9),
        events: span.messages(11).map(|event| attributes(event, 3)).collect(),
        status: span.message(15).number(3),
        flags: span.number(16),
    }
}

fn attributes(message: Proto<'_>, field: u64) -> BTreeMap<String, String> {
    message.messages(field).map(|pair| (pair.text(1), value(pair.message(2)))).collect()
}

fn value(any: Proto<'_>) -> String {
    match any.fields().next().expect("an attribute has a value") {
        (1, Value::Bytes(text)) => String::from_utf8(text.into()).unwrap(),
        (2, Value::Number(flag)) => (flag == 1).to_string(),
        (3, Value::Number(number)) => number.to_string(),
        (4, Value::Number(bits)) => f64::from_bits(bits).to_string(),
        (5, Value::Bytes(list)) => {
            let values: Vec<String> = Proto(list).messages(1).map(value).collect();
            format!("[{}]", values.join(","))
        }
        other => panic!("the type of an attribute: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An encoded message of protobuf.
#[derive(Clone, Copy)]
struct Proto<'a>(&'a [u8]);

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Proto<'a> {
    fn fields(self) -> impl Iterator<Item = (u64, Value<'a>)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let tag = varint(&mut rest)?;
            let value = match tag & 7 {
                0 => Value::Number(varint(&mut rest).unwrap()),
                1 => Value::Number(u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap())),
                2 => {
                    let length = varint(&mut rest).unwrap().try_into().unwrap();
                    Value::Bytes(take(&mut rest, length))
                }
                5 => Value::Number(u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap()).into()),
                other => panic!("wire type {other}"),
            };
            Some((tag >> 3, value))
        })
    }

    fn all(self, field: u64) -> impl Iterator<Item = Value<'a>> {
        self.fields().filter(move |(number, _)| *number == field).map(|(_, value)| value)
    }

    fn messages(self, field: u64) -> impl Iterator<Item = Proto<'a>> {
        self.all(field).map(move |value| match value {
            Value::Bytes(bytes) => Proto(bytes),
            Value::Number(number) => panic!("field {field} is the number {number}"),
        })
    }

    /// Returns the message in a field, or an empty one.
    fn message(self, field: u64) -> Self {
        self.messages(field).last().unwrap_or(Self(&[]))
    }

    fn bytes(self, field: u64) -> &'a [u8] {
        self.message(field).0
    }

    fn text(self, field: u64) -> String {
        String::from_utf8(self.bytes(field).into()).unwrap()
    }

    fn number(self, field: u64) -> u64 {
        match self.all(field).last() {
            Some(Value::Number(number)) => number,
            None => 0,
            Some(Value::Bytes(_)) => panic!("field {field} is no number"),
        }
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (at, byte) in rest.iter().enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *rest = &rest[at + 1..];
            return Some(number);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(length);
    *rest = left;
    taken
}
