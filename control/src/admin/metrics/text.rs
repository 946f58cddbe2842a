//! Writes the text format of Prometheus.

use std::fmt::{Display, Write as _};

use bytes::Bytes;

/// A page of metrics.
#[derive(Debug, Default)]
pub(super) struct MetricsText(String);

/// Labels with their values. Those with an empty value are left out.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

impl MetricsText {
    /// Begins a metric. `kind` is `counter`, `gauge` or `histogram`.
    pub(super) fn begin(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
    }

    /// Adds a value of the metric.
    pub(super) fn value(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        let mut opening = '{';
        for (label, text) in labels.iter().filter(|(_, text)| !text.is_empty()) {
            self.0.push(opening);
            opening = ',';
            // A label of OpenTelemetry has dots.
            self.0.extend(label.chars().map(|char| if char == '.' { '_' } else { char }));
            self.0.push_str("=\"");
            self.escaped(text);
            self.0.push('"');
        }
        if opening == ',' {
            self.0.push('}');
        }
        writeln!(self.0, " {value}").ok();
    }

    /// Adds a metric that has one value without labels.
    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        self.value(name, &[], value);
    }

    fn escaped(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_strangers_cannot_end_a_label() {
        let mut text = MetricsText::default();
        text.begin("m_total", "counter", "Help.");
        text.value("m_total", &[("a.b", "\"}\\\n"), ("empty", ""), ("c", "ä")], 7);
        text.single("g", "gauge", "Help.", 0.5);
        let want = "# HELP m_total Help.\n# TYPE m_total counter\nm_total{a_b=\"\\\"}\\\\\\n\",c=\"ä\"} 7\n\
                    # HELP g Help.\n# TYPE g gauge\ng 0.5\n";
        assert_eq!(text.into_bytes(), want);
    }
}
