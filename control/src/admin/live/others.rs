//! The other nodes in live pages. While a page is open at any node, each node shows a [`NodeFrame`] on the board once a second,
//! and the node that answers joins them with its own state.

use shared::id::KeyId;

use super::hub::LiveHub;
use super::node_frame::{NodeFrame, names};
use super::seen::SeenValue;
use crate::admin::observer::{circuits, stranded_endpoints};
use crate::admin::running::RunningNow;
use crate::admin::verdict::{Situation, join};

/// What is joined apart from the running requests and the situation.
#[derive(Debug, Default)]
pub(super) struct JoinedOthers {
    /// The number of client connections of the other nodes.
    pub(super) connections: u64,
    /// The requests with watched keys, by the process that answered them.
    pub(super) seen: Vec<(SeenAt, Vec<(u64, SeenValue)>)>,
}

/// A process of a node: its number and its start.
pub(super) type SeenAt = (u32, u64);

impl LiveHub {
    /// Replaces the keys whose requests the other nodes want.
    pub(crate) fn watch_for_others(&self, keys: Vec<KeyId>) {
        self.seen.watch_for_others(&self.observer.activity.watch, keys);
    }

    /// Returns the frame of this node for the others.
    pub(crate) async fn frame_for_others(&self) -> serde_json::Result<Vec<u8>> {
        let mut seen = self.seen.since(&self.observer.activity.watch, 0);
        seen.drain(..seen.len().saturating_sub(SEEN_SHOWN));
        let snapshot = self.observer.snapshot.load();
        let frame = NodeFrame {
            started_at_ms: self.observer.started_at_ms,
            connections: self.observer.connections(),
            running: self.exchanges.running().await.into(),
            circuits: circuits(&snapshot),
            stranded: stranded_endpoints(&snapshot),
            seen,
        };
        frame.body()
    }

    /// Joins the other nodes with the running requests and the situation of this one. Without an answer of the database, and
    /// for a gateway with its own one, these stay as they are.
    pub(super) async fn join_others(
        &self,
        running: &mut RunningNow,
        situation: &mut Situation,
    ) -> JoinedOthers {
        let Some(board) = &self.observer.board else { return JoinedOthers::default() };
        let frames = match board.frames::<NodeFrame>(names(&self.seen.keys())).await {
            Ok(frames) => frames,
            Err(error) => {
                tracing::debug!("the frames of other nodes cannot be read: {error}");
                Vec::new()
            }
        };
        let (mut joined, me) = (JoinedOthers::default(), board.me());
        *running = std::mem::take(running).at(me);
        situation.circuits.iter_mut().for_each(|circuit| circuit.nodes = vec![me.text()]);
        situation.stranded.iter_mut().for_each(|endpoint| endpoint.nodes = vec![me.text()]);
        for (node, frame) in frames {
            let at = (node.node, frame.started_at_ms);
            let frame = frame.at(&node);
            running.add(frame.running);
            join(&mut situation.circuits, frame.circuits);
            join(&mut situation.stranded, frame.stranded);
            joined.connections += frame.connections;
            joined.seen.push((at, frame.seen));
        }
        joined
    }
}

/// The latest requests with watched keys in a frame.
const SEEN_SHOWN: usize = 64;
