//! Alerts and the outbox as metrics in Prometheus text format, for `GET /metrics`.

use std::fmt::Write as _;

use crate::db::alert_rules::AlertKind;
use crate::db::alerts::{Alert, AlertState};
use crate::db::outbox::OutboxFigures;

/// Returns the metrics of the unresolved alerts, and of the deliveries that are not finished. Every kind has its lines, so that a
/// query finds a 0.
pub(super) fn text(alerts: &[Alert], outbox: OutboxFigures) -> String {
    let mut text =
        String::from("# HELP llmgw_alerts Alerts that are not resolved.\n# TYPE llmgw_alerts gauge\n");
    // Writing to a String cannot fail.
    for (kind, _) in AlertKind::ALL {
        for (name, state) in AlertState::ALL.into_iter().filter(|(_, state)| *state != AlertState::Resolved) {
            let count = alerts.iter().filter(|alert| alert.kind == kind && alert.state == state).count();
            writeln!(text, "llmgw_alerts{{kind=\"{kind}\",state=\"{name}\"}} {count}").ok();
        }
    }
    text.push_str("# HELP llmgw_outbox_deliveries Deliveries of events that are not finished.\n");
    text.push_str("# TYPE llmgw_outbox_deliveries gauge\n");
    let states = [("pending", outbox.pending), ("dead", outbox.dead), ("for_workers", outbox.for_workers)];
    for (state, count) in states {
        writeln!(text, "llmgw_outbox_deliveries{{state=\"{state}\"}} {count}").ok();
    }
    text
}
