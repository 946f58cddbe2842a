//! Answers what other nodes ask on the board, and cancels the requests that administrators cancel at any of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::id::KeyId;

use super::App;
use crate::cluster::board::{AskedQuestion, FRAME, NodeBoard, NodeQuestion};
use crate::db::error::QueryError;
use crate::routing::publish::CancelOrder;

/// Answers the other nodes, for as long as the future is polled.
pub(crate) async fn run(app: Arc<App>, board: NodeBoard) {
    let answers = NodeAnswers { app, board };
    tokio::join!(answers.cancel(), answers.answer());
}

struct NodeAnswers {
    app: Arc<App>,
    board: NodeBoard,
}

impl NodeAnswers {
    /// Cancels requests, and answers whether this node had them.
    async fn cancel(&self) {
        loop {
            let CancelOrder { request_id, order } = self.board.cancels().next().await;
            let was_here = self.app.exchanges.cancel(&request_id).await;
            noted(self.board.answer(&order, was_here.then(|| b"cancelled".to_vec())).await);
        }
    }

    async fn answer(&self) {
        let (mut answered, mut next_frame) = (BTreeSet::new(), Instant::now());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let asked = noted(self.board.questions().await).unwrap_or_default();
            answered.retain(|id| asked.iter().any(|asked| asked.id == *id));
            let mut keys = None;
            for AskedQuestion { id, question } in asked {
                match question {
                    Some(NodeQuestion::Live { keys: more }) => {
                        keys.get_or_insert_with(BTreeSet::new).extend(more);
                    }
                    question => {
                        if answered.insert(id.clone()) {
                            noted(self.board.answer(&id, self.content(question).await).await);
                        }
                    }
                }
            }
            let is_due = keys.is_some() && Instant::now() >= next_frame;
            self.app.live.watch_for_others(keys.into_iter().flatten().map(KeyId::new).collect());
            if is_due {
                next_frame = Instant::now() + FRAME_EVERY;
                self.show_frame().await;
            }
        }
    }

    /// Returns what a question asks for as JSON; `None` if this node does not have it.
    async fn content(&self, question: Option<NodeQuestion>) -> Option<Vec<u8>> {
        let exchange = match question? {
            NodeQuestion::Exchange { request_id } => self.app.telemetry.find(request_id).await?,
            NodeQuestion::Run { request_id, human } => {
                self.app.recordings.find(&request_id, human.as_deref(), Instant::now())?.exchange()
            }
            NodeQuestion::Live { .. } => return None,
        };
        serde_json::to_vec(&exchange).ok()
    }

    async fn show_frame(&self) {
        if let Ok(frame) = self.app.live.frame_for_others().await {
            noted(self.board.show(FRAME, frame, FRAME_TIME).await);
        }
    }
}

/// Logs an error of the board, which a later look repairs.
fn noted<T>(outcome: Result<T, QueryError>) -> Option<T> {
    outcome.inspect_err(|error| tracing::debug!("the board of the nodes: {error}")).ok()
}

/// A question is answered within this time.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Less than a second, so that a frame is as old as the look after it at most.
const FRAME_EVERY: Duration = Duration::from_millis(900);
/// A node that shows no frame for this time is not in the lists of the others.
const FRAME_TIME: Duration = Duration::from_secs(2);
