//! The frame that a node shows the others once a second while a live page is open at any of them: its running requests, its
//! circuits that are not closed, and the requests with watched keys.
//!
//! A frame has at most [`FRAME_BYTES_MAX`]. Running requests that do not fit are counted, as those beyond the listed ones.

use serde::{Deserialize, Serialize};
use shared::id::KeyId;

use super::seen::SeenValue;
use crate::admin::running::RunningNow;
use crate::admin::verdict::{OpenCircuit, StrandedEndpoint};
use crate::db::cluster::nodes::NodeLabel;

/// The frame of one node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeFrame {
    /// The start of its process, in milliseconds since the Unix epoch.
    pub(super) started_at_ms: u64,
    /// The number of client connections.
    pub(super) connections: u64,
    pub(crate) running: RunningNow,
    /// The circuits that are not closed.
    pub(super) circuits: Vec<OpenCircuit>,
    pub(super) stranded: Vec<StrandedEndpoint>,
    /// The latest requests with watched keys, each with a number that grows by one.
    pub(super) seen: Vec<(u64, SeenValue)>,
}

impl NodeFrame {
    /// Returns the frame as JSON of at most [`FRAME_BYTES_MAX`].
    pub(super) fn body(mut self) -> serde_json::Result<Vec<u8>> {
        loop {
            let body = serde_json::to_vec(&self)?;
            let listed = self.running.listed.len();
            if body.len() <= FRAME_BYTES_MAX || listed == 0 {
                return Ok(body);
            }
            self.running.listed.truncate(listed / 2);
        }
    }

    /// Names the node in its circuits and endpoints.
    pub(super) fn at(mut self, node: &NodeLabel) -> Self {
        let nodes = || vec![node.text()];
        self.circuits.iter_mut().for_each(|circuit| circuit.nodes = nodes());
        self.stranded.iter_mut().for_each(|endpoint| endpoint.nodes = nodes());
        self.running = self.running.at(node);
        self
    }
}

/// Returns the key IDs as questions have them.
pub(super) fn names(keys: &[KeyId]) -> Vec<String> {
    keys.iter().map(|key| key.as_str().to_owned()).collect()
}

/// The maximum number of bytes of a frame.
const FRAME_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::running::tests::running;

    #[test]
    fn a_frame_that_would_be_too_large_counts_what_it_leaves_out() {
        let long = "m".repeat(10_000);
        let all = RunningNow { listed: vec![running("r", &long); 100], total: 100, ..RunningNow::default() };
        let body = NodeFrame { running: all, ..NodeFrame::default() }.body().unwrap();
        assert!(body.len() <= FRAME_BYTES_MAX);
        let read: NodeFrame = serde_json::from_slice(&body).unwrap();
        assert_eq!((read.running.listed.len(), read.running.more()), (25, 75));
    }
}
