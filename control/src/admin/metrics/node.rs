//! Metrics of a node in the database that nodes share.

use super::text::MetricsText;
use crate::common::node_figures::{Count, FenceFigures, NodeFigures};

pub(super) fn write(figures: &NodeFigures, text: &mut MetricsText) {
    let name = "llmgw_node_fences_total";
    text.begin(name, "counter", "Transactions of the sessions that write shares and usage.");
    for (lane, fence) in [("shares", &figures.shares), ("shipping", &figures.shipping)] {
        let FenceFigures { passed, resynchronized, lost } = fence;
        for (result, count) in [("passed", passed), ("resynchronized", resynchronized), ("lost", lost)] {
            text.value(name, &[("lane", lane), ("result", result)], count.read());
        }
    }
    let changes = [("granted", &figures.granted), ("returned", &figures.returned)];
    counts(text, "llmgw_node_shares_total", "Changes of shares in limits.", "change", changes);
    let waits = [("granted", &figures.waited), ("refused", &figures.refused)];
    counts(
        text,
        "llmgw_node_share_waits_total",
        "Requests whose node had no share of a limit.",
        "result",
        waits,
    );
    let lag = figures.shipping_lag_ms();
    gauge(text, "llmgw_node_shipping_lag_seconds", "The age of the oldest record that is not stored.", lag);
    let age = figures.look_age_ms();
    gauge(
        text,
        "llmgw_node_look_age_seconds",
        "The time since the last look for changes of other nodes.",
        age,
    );
    text.single("llmgw_nodes_live", "gauge", "Nodes that are live.", figures.live());
}

fn counts(text: &mut MetricsText, name: &str, help: &str, label: &str, counts: [(&str, &Count); 2]) {
    text.begin(name, "counter", help);
    for (value, count) in counts {
        text.value(name, &[(label, value)], count.read());
    }
}

#[expect(clippy::cast_precision_loss, reason = "an age in milliseconds is far below 2^53")]
fn gauge(text: &mut MetricsText, name: &str, help: &str, ms: u64) {
    text.single(name, "gauge", help, ms as f64 / 1_000.0);
}
