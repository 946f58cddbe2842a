//! What the rules compare of the nodes that share the database: whether each is heard of, is set up as the others, and stores its
//! usage. A gateway with its own database has none of these conditions.

use std::collections::BTreeMap;

use super::sources::of;
use crate::admin::App;
use crate::db::alert_rules::AlertKind;
use crate::db::alerts::AlertFigures;
use crate::db::cluster::nodes::{self, NodeRow, NodeStanding};
use crate::db::error::QueryError;
use crate::db::names::node_object;
use crate::writer::alerts::{Measurement, Measurements};

/// Measures the nodes.
pub(super) async fn measure(app: &App, measured: &mut Measurements) -> Result<(), QueryError> {
    let nodes = match &app.config.database {
        None => Vec::new(),
        Some(database) => {
            let stale_after = database.stale_after;
            app.readers.ask(move |db| nodes::all(db, stale_after)).await?
        }
    };
    measured.add(AlertKind::NodeLost, nodes.iter().filter_map(lost));
    measured.add(AlertKind::NodeSkew, unlike(&nodes));
    measured.add(AlertKind::ShippingBehind, nodes.iter().filter_map(behind));
    Ok(())
}

fn lost(node: &NodeRow) -> Option<Measurement> {
    let refuses = match node.standing {
        NodeStanding::Live | NodeStanding::Left => return None,
        NodeStanding::Silent => "may still serve by an earlier state",
        NodeStanding::Stale => "refuses project keys if it still runs",
    };
    let text = format!(
        "The node {} was not heard of for some time, and {refuses}. What it had unused of limits counts as used. Start it again, \
         or forget it if its disk is lost.",
        node.name
    );
    Some(of(AlertKind::NodeLost, &node_object(node.node), text))
}

/// Returns the live nodes that differ from the others, and those whose clocks differ from that of the database.
fn unlike(nodes: &[NodeRow]) -> Vec<Measurement> {
    let live: Vec<&NodeRow> = nodes.iter().filter(|node| node.standing == NodeStanding::Live).collect();
    let release = most(live.iter().map(|node| node.release.as_str()));
    let digest = most(live.iter().map(|node| node.file_digest.as_str()));
    let found = live.into_iter().filter_map(|node| {
        let mut faults = Vec::new();
        if node.clock_ahead_ms.unsigned_abs() > AHEAD_MS_MAX {
            let (ms, side) = (node.clock_ahead_ms.unsigned_abs(), node.clock_ahead_ms.is_positive());
            let side = if side { "ahead of" } else { "behind" };
            faults.push(format!(
                "its clock is {ms} ms {side} that of the database: let both follow a time server"
            ));
        }
        if Some(node.release.as_str()) != release {
            let most = release.unwrap_or_default();
            faults.push(format!(
                "it runs release {}, most nodes run {most}: complete the upgrade",
                node.release
            ));
        }
        if Some(node.file_digest.as_str()) != digest {
            faults
                .push("its configuration file differs from that of most nodes: give all the same".to_owned());
        }
        let text = format!("The node {}: {}.", node.name, faults.join("; "));
        (!faults.is_empty()).then(|| of(AlertKind::NodeSkew, &node_object(node.node), text))
    });
    found.collect()
}

/// Returns the most frequent text, and of several the last in their order.
fn most<'a>(texts: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts = BTreeMap::<&str, usize>::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    counts.into_iter().max_by_key(|(text, count)| (*count, *text)).map(|(text, _)| text)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of years are far below 2^52")]
fn behind(node: &NodeRow) -> Option<Measurement> {
    let minutes = node.unstored_for_ms.filter(|_| node.standing != NodeStanding::Left)? as f64 / 60_000.0;
    let text = format!(
        "Usage of the node {} waits in its journal for {minutes:.0} minutes. See its log for the reason; if it does not run, start \
         it with its disk.",
        node.name
    );
    let figures = AlertFigures::from([("behind_minutes".to_owned(), minutes)]);
    Some(Measurement {
        value: minutes,
        figures,
        ..of(AlertKind::ShippingBehind, &node_object(node.node), text)
    })
}

/// A larger difference of clocks is reported.
const AHEAD_MS_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::record_id::NodeId;

    fn node(number: u32, standing: NodeStanding) -> NodeRow {
        NodeRow {
            node: NodeId::new(number),
            name: format!("n{number}"),
            release: "2".to_owned(),
            file_digest: "d".to_owned(),
            seen_version: 1,
            alive_until_ms: 1,
            left_at_ms: None,
            clock_ahead_ms: -1_000,
            unstored_for_ms: None,
            standing,
        }
    }

    #[test]
    fn nodes_that_are_not_heard_of_are_lost_and_those_that_left_are_not() {
        let is_lost = |standing| lost(&node(2, standing)).is_some();
        let all = [NodeStanding::Live, NodeStanding::Silent, NodeStanding::Stale, NodeStanding::Left];
        assert_eq!(all.map(is_lost), [false, true, true, false]);
    }

    #[test]
    fn a_live_node_that_differs_from_most_is_named_with_all_differences() {
        let live = |number| node(number, NodeStanding::Live);
        let mut nodes = [live(1), live(2), live(3), node(4, NodeStanding::Silent)];
        nodes[3].release = "1".to_owned();
        assert_eq!(unlike(&nodes), []);
        nodes[1].clock_ahead_ms = 1_001;
        nodes[1].file_digest = "e".to_owned();
        nodes[2].release = "1".to_owned();
        let found = unlike(&nodes);
        let objects: Vec<_> = found.iter().map(|found| found.object.as_deref().unwrap()).collect();
        assert_eq!(objects, ["node_2", "node_3"]);
        assert!(
            found[0].text.contains("1001 ms ahead") && found[0].text.contains("file differs"),
            "{found:?}"
        );
    }

    #[test]
    fn usage_that_waits_is_measured_in_minutes() {
        let waiting = |standing| NodeRow { unstored_for_ms: Some(90_000), ..node(2, standing) };
        assert_eq!(behind(&waiting(NodeStanding::Live)).unwrap().value.to_bits(), 1.5_f64.to_bits());
        assert_eq!(behind(&waiting(NodeStanding::Left)), None);
        assert_eq!(behind(&node(2, NodeStanding::Live)), None);
    }
}
