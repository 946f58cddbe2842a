//! How far a change has come among the nodes that share a database, in the headers of its answer. A gateway with its own database
//! sends none of them.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::cluster::follow::Awaited;
use crate::db::cluster::nodes::{self, Unseen};
use crate::db::error::QueryError;
use crate::db::readers::Readers;

/// The nodes that may serve by a state before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach(Option<Unseen>);

impl Reach {
    /// Waits until all live nodes have seen a change, for [`REACH_TIME_MAX`] at most.
    pub(super) async fn wait(readers: &Readers, awaited: Awaited) -> Self {
        let Awaited { version, node, stale_after } = awaited;
        let Some(version) = version else { return Self(Some(Unseen::default())) };
        Self::wait_with(|| readers.ask(move |db| nodes::unseen(db, version, node, stale_after))).await
    }

    async fn wait_with<F: Future<Output = Result<Unseen, QueryError>>>(ask: impl Fn() -> F) -> Self {
        let until = Instant::now() + REACH_TIME_MAX;
        let mut pause = PAUSE_MIN;
        loop {
            let Ok(unseen) = ask().await else { return Self(None) };
            if unseen.live.is_empty() || Instant::now() + pause > until {
                return Self(Some(unseen));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Adds the headers: `x-llmgw-published`, which is `true` if the change is in force on all live nodes, and
    /// `x-llmgw-silent-nodes` with the numbers of those that are not heard of and may still serve.
    pub(super) fn show(&self, headers: &mut HeaderMap) {
        let is_everywhere = self.0.as_ref().is_some_and(|unseen| unseen.live.is_empty());
        let published = if is_everywhere { "true" } else { "false" };
        headers.insert(PUBLISHED, HeaderValue::from_static(published));
        let silent = self.0.iter().flat_map(|unseen| &unseen.silent);
        let silent: Vec<String> = silent.map(|node| node.number().to_string()).collect();
        if let Some(value) = HeaderValue::from_str(&silent.join(", ")).ok().filter(|_| !silent.is_empty()) {
            headers.insert("x-llmgw-silent-nodes", value);
        }
    }
}

/// True if the change is in force.
pub(super) const PUBLISHED: &str = "x-llmgw-published";
/// The maximum time that the answer to a change waits for other nodes.
const REACH_TIME_MAX: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;
    use crate::db::record_id::NodeId;

    /// Waits while a live node reports the change at the `nth` question. Returns the outcome, and how long it took.
    fn waited(nth: u32) -> (Reach, Duration) {
        let asked = Cell::new(0);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        runtime.block_on(async {
            let began = Instant::now();
            let reach = Reach::wait_with(|| {
                asked.set(asked.get() + 1);
                let live = if asked.get() < nth { vec![NodeId::new(2)] } else { Vec::new() };
                ready(Ok(Unseen { live, silent: vec![] }))
            });
            (reach.await, began.elapsed())
        })
    }

    #[test]
    fn an_answer_waits_for_live_nodes_for_a_second_at_most() {
        assert_eq!(waited(1).0, Reach(Some(Unseen::default())));
        let (reach, took) = waited(4);
        assert_eq!(reach, Reach(Some(Unseen::default())));
        assert!(took >= PAUSE_MIN * 7, "{took:?}");
        let (reach, took) = waited(u32::MAX);
        assert_eq!(reach.0.unwrap().live, [NodeId::new(2)]);
        assert!(took + PAUSE_MAX >= REACH_TIME_MAX, "{took:?}");
    }

    #[test]
    fn the_headers_name_silent_nodes_and_tell_whether_live_ones_have_the_change() {
        let node = NodeId::new;
        for (live, silent, expected) in [
            (vec![], vec![], ("true", None)),
            (vec![node(2)], vec![], ("false", None)),
            (vec![], vec![node(2), node(5)], ("true", Some("2, 5"))),
        ] {
            let mut headers = HeaderMap::new();
            Reach(Some(Unseen { live, silent })).show(&mut headers);
            let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!((text(PUBLISHED).unwrap(), text("x-llmgw-silent-nodes")), expected);
        }
        let mut headers = HeaderMap::new();
        Reach(None).show(&mut headers);
        assert_eq!(headers[PUBLISHED], "false", "the database could not be asked");
    }
}
