//! The board, on which nodes show each other things for a short time: measurements, frames of live pages while somebody looks,
//! questions, and answers.
//!
//! ```text
//!  asker:  ask/live, again and again   others: frame, once a second, while there is ask/live
//!  asker:  ask/ID                      others: answer/ID, sealed; empty if the node does not have it
//! ```
//!
//! Invariant: without a question nothing is shown but measurements, and everything ends by itself within a minute.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared::secret::Secret;
use tokio::time::Instant;

use crate::common::vault::{SealPlace, VaultKeys, random};
use crate::db::cluster::board::{self, BoardRow};
use crate::db::cluster::nodes::{self, ALIVE_MS, NodeLabel, NodeRow, NodeStanding};
use crate::db::engine::{Db, DbError, DbResult};
use crate::db::error::QueryError;
use crate::db::readers::Readers;
use crate::db::record_id::NodeId;
use crate::routing::config::SharedDatabase;
use crate::routing::publish::Cancels;

/// The board, as one node uses it.
#[derive(Clone, Debug)]
pub(crate) struct NodeBoard {
    readers: Readers,
    keys: Arc<VaultKeys>,
    node: NodeId,
    me: NodeLabel,
    stale_after: Duration,
    cancels: Cancels,
}

/// A question to all other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeQuestion {
    /// Frames, and the requests with these keys, while the question stands.
    Live { keys: Vec<String> },
    /// The captured exchange of a request.
    Exchange { request_id: String },
    /// The recording of a run; that of a human's own run if it is a human who asks.
    Run { request_id: String, human: Option<String> },
}

/// A question of another node.
#[derive(Debug)]
pub(crate) struct AskedQuestion {
    /// The name under which it is answered.
    pub(crate) id: String,
    /// `None` if a newer release asks it.
    pub(crate) question: Option<NodeQuestion>,
}

/// The answers to a question.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// The answer of the first node that has what was asked for.
    pub(crate) found: Option<(NodeLabel, Secret<Vec<u8>>)>,
    /// Nodes that may have it and did not answer.
    pub(crate) silent: Vec<NodeRow>,
}

/// The topics of the measurements and of frames.
pub(crate) const MEASURED: &str = "measured";
pub(crate) const FRAME: &str = "frame";
const ASK: &str = "ask/";
const ASK_LIVE: &str = "ask/live";
const ASK_ONCE: &str = "ask/once";

impl NodeBoard {
    pub(crate) fn new(
        readers: &Readers,
        keys: &Arc<VaultKeys>,
        (node, database): (NodeId, &SharedDatabase),
        cancels: Cancels,
    ) -> Self {
        let me = NodeLabel { node: node.number(), name: database.node_name.clone() };
        let (readers, keys) = (readers.clone(), Arc::clone(keys));
        Self { readers, keys, node, me, stale_after: database.stale_after, cancels }
    }

    /// Shows a value to the other nodes for some time.
    pub(crate) async fn show(
        &self,
        topic: &'static str,
        body: Vec<u8>,
        time: Duration,
    ) -> Result<(), QueryError> {
        let node = self.node;
        self.readers.ask(move |db| board::put(db, node, topic, &body, time)).await
    }

    /// Returns what the other nodes show under a topic. Leaves out what a newer release shows and this one cannot read.
    pub(crate) async fn shown<T: DeserializeOwned>(
        &self,
        topic: &'static str,
    ) -> Result<Vec<(NodeLabel, T)>, QueryError> {
        let (board, me) = (self.clone(), self.node);
        let found = self.readers.ask(move |db| {
            let rows = board::all(db, topic)?.into_iter().filter(|(node, _)| *node != me);
            Ok((rows.collect::<Vec<_>>(), board.nodes(db)?))
        });
        let (rows, nodes) = found.await?;
        Ok(read(rows, &nodes))
    }

    /// Asks for frames for some seconds, and returns those that the other nodes show now.
    pub(crate) async fn frames<T: DeserializeOwned>(
        &self,
        keys: Vec<String>,
    ) -> Result<Vec<(NodeLabel, T)>, QueryError> {
        self.ask_for_frames(ASK_LIVE, keys).await?;
        self.shown(FRAME).await
    }

    /// Asks for frames, and waits until all live nodes show one, for [`ANSWER_TIME_MAX`] at most. Returns also the nodes that
    /// may run requests and show none.
    pub(crate) async fn frames_of_all<T: DeserializeOwned>(
        &self,
    ) -> Result<(Vec<(NodeLabel, T)>, Vec<NodeRow>), QueryError> {
        // A topic of its own: it must not replace the keys of the live page.
        self.ask_for_frames(ASK_ONCE, Vec::new()).await?;
        let (mut rows, nodes) = self.wait_for_others(FRAME, |_| false).await?;
        rows.retain(|(node, _)| *node != self.node);
        let frames = read(rows, &nodes);
        let has_frame = |row: &NodeRow| frames.iter().any(|(node, _)| node.node == row.node.number());
        let missing = self.others(&nodes).filter(|row| !has_frame(row)).cloned().collect();
        Ok((frames, missing))
    }

    async fn ask_for_frames(&self, topic: &'static str, keys: Vec<String>) -> Result<(), QueryError> {
        self.show(topic, json(&NodeQuestion::Live { keys })?, LIVE_TIME).await
    }

    /// Returns the questions of the other nodes.
    pub(crate) async fn questions(&self) -> Result<Vec<AskedQuestion>, QueryError> {
        let me = self.node;
        let rows = self.readers.ask(move |db| board::below(db, ASK)).await?;
        let asked = |row: BoardRow| AskedQuestion {
            id: row.topic.strip_prefix(ASK).unwrap_or_default().to_owned(),
            question: serde_json::from_slice(&row.body).ok(),
        };
        Ok(rows.into_iter().filter(|row| row.node != me).map(asked).collect())
    }

    /// Returns a name for a question or an order that no other has.
    pub(crate) fn new_id() -> Result<String, QueryError> {
        let bytes: [u8; 16] = random().map_err(DbError::bad_value)?;
        Ok(shared::hex::encode(&bytes))
    }

    /// Asks all other nodes, and waits for the first that has what is asked for.
    pub(crate) async fn ask(&self, question: &NodeQuestion) -> Result<Replies, QueryError> {
        let id = Self::new_id()?;
        let (me, topic, body) = (self.node, format!("{ASK}{id}"), json(question)?);
        let asked = topic.clone();
        self.readers.ask(move |db| board::put(db, me, &asked, &body, QUESTION_TIME)).await?;
        let replies = self.replies(&id).await;
        let answers = answer_topic(&id);
        // Both would end by themselves.
        let forget = move |db: &Db| board::remove(db, &topic).and_then(|()| board::remove(db, &answers));
        if let Err(error) = self.readers.ask(forget).await {
            tracing::debug!("a question to other nodes stays on the board for a minute: {error}");
        }
        replies
    }

    /// Waits for the first node whose answer to the question or order `id` is not empty. Ends when all live nodes have
    /// answered, after [`ANSWER_TIME_MAX`] at most.
    pub(crate) async fn replies(&self, id: &str) -> Result<Replies, QueryError> {
        let topic = answer_topic(id);
        let (rows, nodes) = self.wait_for_others(&topic, |body| !body.is_empty()).await?;
        if let Some((node, sealed)) = rows.iter().find(|(_, body)| !body.is_empty()) {
            let opened = self.keys.open(&place(&topic), sealed);
            let opened = opened.map_err(|_| DbError::bad_value("the answer of a node has another seal"))?;
            return Ok(Replies { found: Some((label(&nodes, *node), opened)), silent: Vec::new() });
        }
        let has_answered = |row: &NodeRow| rows.iter().any(|(node, _)| *node == row.node);
        let silent = self.others(&nodes).filter(|row| !has_answered(row)).cloned().collect();
        Ok(Replies { found: None, silent })
    }

    /// Waits until all other live nodes show something under a topic, or one of them something that `is_enough`, for
    /// [`ANSWER_TIME_MAX`] at most. Returns what is shown then, and all nodes.
    async fn wait_for_others(
        &self,
        topic: &str,
        is_enough: fn(&[u8]) -> bool,
    ) -> Result<(Vec<(NodeId, Vec<u8>)>, Vec<NodeRow>), QueryError> {
        let until = Instant::now() + ANSWER_TIME_MAX;
        loop {
            let (board, topic) = (self.clone(), topic.to_owned());
            let found = self.readers.ask(move |db| Ok((board::all(db, &topic)?, board.nodes(db)?)));
            let (rows, nodes) = found.await?;
            let is_shown = |row: &NodeRow| rows.iter().any(|(node, _)| *node == row.node);
            let is_missing = |row: &NodeRow| row.standing == NodeStanding::Live && !is_shown(row);
            let waits = self.others(&nodes).any(is_missing) && !rows.iter().any(|(_, body)| is_enough(body));
            if !waits || Instant::now() >= until {
                return Ok((rows, nodes));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Answers a question or an order of another node; `None` if this node does not have what it is about.
    pub(crate) async fn answer(&self, id: &str, answer: Option<Vec<u8>>) -> Result<(), QueryError> {
        let (me, topic) = (self.node, answer_topic(id));
        let sealed = answer.map(|answer| self.keys.seal(&place(&topic), &answer)).transpose();
        let body = sealed.map_err(|error| DbError::bad_value(format_args!("{error:?}")))?.unwrap_or_default();
        self.readers.ask(move |db| board::put(db, me, &topic, &body, QUESTION_TIME)).await
    }

    /// Deletes what is no longer shown.
    pub(crate) async fn forget(&self) -> Result<(), QueryError> {
        self.readers.ask(|db| board::forget(db).map(drop)).await
    }

    /// Returns all nodes, also those that have stopped.
    pub(crate) async fn all_nodes(&self) -> Result<Vec<NodeRow>, QueryError> {
        let board = self.clone();
        self.readers.ask(move |db| board.nodes(db)).await
    }

    /// Returns the running requests that administrators cancel at any node.
    pub(crate) fn cancels(&self) -> &Cancels {
        &self.cancels
    }

    /// Returns this node, as answers name it.
    pub(crate) fn me(&self) -> &NodeLabel {
        &self.me
    }

    fn nodes(&self, db: &Db) -> DbResult<Vec<NodeRow>> {
        nodes::all(db, self.stale_after)
    }

    /// Returns the other nodes that may serve.
    fn others<'a>(&self, nodes: &'a [NodeRow]) -> impl Iterator<Item = &'a NodeRow> {
        let me = self.node;
        let may_serve = |row: &&NodeRow| matches!(row.standing, NodeStanding::Live | NodeStanding::Silent);
        nodes.iter().filter(move |row| row.node != me).filter(may_serve)
    }
}

/// Returns the clause that names a node and the time at which it was last heard of.
pub(crate) fn last_heard(row: &NodeRow) -> String {
    let name = NodeLabel::from(row).text();
    if row.standing == NodeStanding::Left {
        return format!("node {name}, which has stopped");
    }
    let at_ms = i64::try_from(row.alive_until_ms.saturating_sub(ALIVE_MS)).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at_ms).unwrap_or_default().round(jiff::Unit::Second);
    format!("node {name}, which was last heard of at {}", at.unwrap_or_default())
}

fn label(nodes: &[NodeRow], node: NodeId) -> NodeLabel {
    let known = nodes.iter().find(|row| row.node == node).map(NodeLabel::from);
    known.unwrap_or_else(|| NodeLabel { node: node.number(), name: String::new() })
}

fn read<T: DeserializeOwned>(rows: Vec<(NodeId, Vec<u8>)>, nodes: &[NodeRow]) -> Vec<(NodeLabel, T)> {
    let read = rows.into_iter().filter_map(|(node, body)| {
        let value = serde_json::from_slice(&body);
        let value = value.inspect_err(|error| tracing::debug!("a row of the board is not read: {error}"));
        Some((label(nodes, node), value.ok()?))
    });
    read.collect()
}

fn json(value: &impl Serialize) -> DbResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(DbError::bad_value)
}

fn answer_topic(id: &str) -> String {
    format!("answer/{id}")
}

/// The place to which an answer is sealed.
fn place(topic: &str) -> SealPlace<'_> {
    SealPlace { table: "board", column: "body", id: topic }
}

/// How long a node that looks is known to look, unless it asks again.
const LIVE_TIME: Duration = Duration::from_secs(5);
/// How long questions and answers stand, unless the asker removes them.
const QUESTION_TIME: Duration = Duration::from_secs(60);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use shared::alarm::Alarm;

    use super::*;
    use crate::db::cluster::nodes::{NodeStart, register, renew};
    use crate::db::testing::{ClusterDatabase, shared_database};

    /// Registers a live node and returns its board.
    fn join(database: &ClusterDatabase<'_>, name: &str) -> NodeBoard {
        let mut db = database.connect();
        let start = NodeStart {
            identity: name,
            number: None,
            release: "1",
            file_digest: "",
            name,
            schema_version: 41,
            key_seal: "",
        };
        let node = register(&mut db, &start).unwrap().node;
        renew(&db, node).unwrap();
        let (readers, _) = Readers::start(&database.storage(node), &Alarm::default()).unwrap();
        let keys = VaultKeys { key_hash_key: Secret::new([1; 32]), data_key: Secret::new([2; 32]) };
        let (address, stale_after) = (database.address(), Duration::from_mins(5));
        let database = SharedDatabase { address, node_name: name.to_owned(), stale_after, migrates: true };
        NodeBoard::new(&readers, &Arc::new(keys), (node, &database), Cancels::default())
    }

    /// Answers each question of other nodes with this, for as long as the future is polled.
    async fn answer(board: &NodeBoard, answer: Option<&str>) {
        loop {
            for AskedQuestion { id, .. } in board.questions().await.unwrap() {
                board.answer(&id, answer.map(|text| text.as_bytes().to_vec())).await.unwrap();
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn a_question_is_answered_by_the_node_that_knows_and_is_removed() {
        let Some(database) = shared_database() else { return };
        let (runtime, db) = (runtime(), database.connect());
        let [one, two, three] = ["n1", "n2", "n3"].map(|name| join(&database, name));
        let live = || db.batch("UPDATE nodes SET alive_until_ms = now_ms() + 600000").unwrap();
        let question = NodeQuestion::Exchange { request_id: "r".to_owned() };
        let ask = |third: Option<&str>| {
            live();
            runtime.block_on(async {
                tokio::select! {
                    replies = one.ask(&question) => replies.unwrap(),
                    () = answer(&two, None) => unreachable!(),
                    () = answer(&three, third) => unreachable!(),
                }
            })
        };
        let (node, found) = ask(Some("here")).found.unwrap();
        assert_eq!((node.text().as_str(), found.expose().as_slice()), ("n3", b"here".as_slice()));
        let none = ask(None);
        assert!(none.found.is_none() && none.silent.is_empty());
        assert!(!db.exists("SELECT 1 FROM board WHERE topic LIKE 'ask/%'", ()).unwrap());

        // A node that is not heard of is not waited for, and is named; one that is live and does not answer is waited for.
        db.batch("UPDATE nodes SET alive_until_ms = now_ms() - 1 WHERE node > 1").unwrap();
        let silent = runtime.block_on(one.ask(&question)).unwrap().silent;
        assert_eq!(silent.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["n2", "n3"]);
        assert!(last_heard(&silent[0]).starts_with("node n2, which was last heard of at 20"));
        live();
        let began = Instant::now();
        let silent = runtime.block_on(one.ask(&question)).unwrap().silent;
        assert!(began.elapsed() >= ANSWER_TIME_MAX && silent.len() == 2);
    }

    #[test]
    fn frames_are_wanted_while_a_node_asks_for_them() {
        let Some(database) = shared_database() else { return };
        let (runtime, db) = (runtime(), database.connect());
        let [one, two] = ["n1", "n2"].map(|name| join(&database, name));
        let questions = || runtime.block_on(two.questions()).unwrap();
        assert!(questions().is_empty());
        let keys = vec!["key_1".to_owned()];
        assert!(runtime.block_on(one.frames::<u32>(keys.clone())).unwrap().is_empty());
        db.batch("UPDATE board SET until_ms = until_ms + 600000").unwrap();
        assert_eq!(questions()[0].question, Some(NodeQuestion::Live { keys }));
        runtime.block_on(two.show(FRAME, b"7".to_vec(), QUESTION_TIME)).unwrap();
        let (frames, missing) = runtime.block_on(one.frames_of_all::<u32>()).unwrap();
        assert_eq!((frames[0].0.text().as_str(), frames[0].1, missing.len()), ("n2", 7, 0));
        db.batch("UPDATE board SET until_ms = 0").unwrap();
        assert!(questions().is_empty(), "nobody looks");
        runtime.block_on(two.forget()).unwrap();
        assert!(!db.exists("SELECT 1 FROM board", ()).unwrap());
    }
}
