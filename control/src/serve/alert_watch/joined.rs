//! The measurements of several nodes: each shows its own on the board, and the node that evaluates alerts joins them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::sources;
use crate::admin::App;
use crate::cluster::board::{MEASURED, NodeBoard};
use crate::common::bounds::ALERT_CONDITIONS;
use crate::db::alert_rules::{AlertKind, AlertRule};
use crate::db::cluster::nodes::NodeLabel;
use crate::db::error::QueryError;
use crate::writer::alerts::{Measurement, Measurements};

/// Shows what this node measures in memory, for as long as the future is polled.
pub(crate) async fn show(app: Arc<App>, board: NodeBoard) {
    loop {
        if let Err(error) = show_once(&app, &board).await {
            tracing::debug!("the measurements for other nodes: {error}");
        }
        tokio::time::sleep(SHOW_EVERY).await;
    }
}

async fn show_once(app: &App, board: &NodeBoard) -> Result<(), QueryError> {
    let mut measured = Measurements::default();
    sources::in_memory(app, &mut measured);
    ALERT_CONDITIONS.cut(&mut measured.found);
    if let Ok(body) = serde_json::to_vec(&measured.found) {
        board.show(MEASURED, body, SHOWN_TIME).await?;
    }
    if app.duty.is_held() {
        board.forget().await?;
    }
    Ok(())
}

/// Joins the measurements of this node with those of the others. Without an answer of the database nothing is measured.
pub(super) async fn join(
    board: &NodeBoard,
    rules: &[AlertRule],
    measured: &mut Measurements,
) -> Result<(), QueryError> {
    let own = std::mem::take(measured);
    let mut of_nodes = vec![(board.me().clone(), own.found)];
    of_nodes.extend(board.shown::<Vec<Measurement>>(MEASURED).await?);
    *measured = Measurements { kinds: own.kinds, found: joined(of_nodes, rules) };
    Ok(())
}

/// Returns one measurement for each condition: that of the node at which it is worst, with the names of all nodes at which a rule
/// might be met.
fn joined(of_nodes: Vec<(NodeLabel, Vec<Measurement>)>, rules: &[AlertRule]) -> Vec<Measurement> {
    let count = of_nodes.len();
    let mut conditions = BTreeMap::<(AlertKind, Option<String>), Vec<(NodeLabel, Measurement)>>::new();
    for (node, found) in of_nodes {
        for measurement in found {
            let condition = (measurement.kind, measurement.object.clone());
            conditions.entry(condition).or_default().push((node.clone(), measurement));
        }
    }
    let join = |((kind, _), mut measured): (_, Vec<(NodeLabel, Measurement)>)| {
        // Of what is compared at all here, such as free space, less is worse.
        measured.sort_by(|(_, one), (_, other)| one.value.total_cmp(&other.value));
        let enabled = rules.iter().filter(|rule| rule.enabled && rule.kind == kind);
        let threshold = enabled.filter_map(|rule| rule.threshold).reduce(f64::max);
        let met = |value: f64| threshold.is_none_or(|threshold| value <= threshold);
        let mut at: Vec<&NodeLabel> =
            measured.iter().filter(|(_, found)| met(found.value)).map(|(node, _)| node).collect();
        if at.is_empty() {
            at.extend(measured.first().map(|(node, _)| node));
        }
        at.sort_by_key(|node| node.node);
        let place = place(&at, count);
        let nodes = u32::try_from(at.len()).map_or(f64::MAX, f64::from);
        let (_, mut worst) = measured.into_iter().next()?;
        worst.text = format!("{place}: {}", worst.text);
        worst.figures.insert("nodes".to_owned(), nodes);
        Some(worst)
    };
    conditions.into_iter().filter_map(join).collect()
}

/// Returns the words for the nodes at which something is so.
fn place(at: &[&NodeLabel], count: usize) -> String {
    if let [node] = at {
        return format!("At node {}", node.text());
    }
    let mut names: Vec<String> = at.iter().take(NAMED_MAX).map(|node| node.text()).collect();
    let more = at.len() - names.len();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    format!("At {} of {count} nodes ({})", at.len(), names.join(", "))
}

const SHOW_EVERY: Duration = Duration::from_secs(10);
/// The measurements of a node that is not heard of count for this time.
const SHOWN_TIME: Duration = Duration::from_secs(30);
const NAMED_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::alert_rules;
    use crate::db::alerts::AlertFigures;
    use crate::db::testing::migrated;

    #[test]
    fn a_condition_of_several_nodes_is_measured_once_and_names_them() {
        let rules = alert_rules::all(&migrated()).unwrap();
        let measured = |kind, object: Option<&str>, value| Measurement {
            kind,
            object: object.map(str::to_owned),
            value,
            text: format!("It is {value}."),
            figures: AlertFigures::new(),
        };
        let down = || measured(AlertKind::ProviderDown, Some("up"), 0.0);
        let disk = |percent| measured(AlertKind::DiskLow, None, percent);
        let node = |number: u32, found: Vec<Measurement>| {
            (NodeLabel { node: number, name: format!("n{number}") }, found)
        };
        let texts = |of_nodes| {
            let found = joined(of_nodes, &rules).into_iter();
            found.map(|found| (found.text, found.figures["nodes"])).collect::<Vec<_>>()
        };
        let found = texts(vec![node(1, vec![disk(50.0)]), node(2, vec![down(), disk(2.0)]), node(3, vec![])]);
        assert_eq!(
            found,
            [("At node n2: It is 0.".to_owned(), 1.0), ("At node n2: It is 2.".to_owned(), 1.0)]
        );
        let found = texts((1..=12).map(|number| node(number, vec![down()])).collect());
        let want = "At 12 of 12 nodes (n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, 2 more): It is 0.";
        assert_eq!(found, [(want.to_owned(), 12.0)]);
        let found = texts(vec![node(1, vec![disk(50.0)]), node(2, vec![disk(40.0)])]);
        assert_eq!(found, [("At node n2: It is 40.".to_owned(), 1.0)], "it is low nowhere");
    }
}
