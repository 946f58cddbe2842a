//! The exchanges that the data plane is running, as the control service reads them: a copy, taken at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bounds::RUNNING_LISTED;
use crate::id::{KeyId, ModelId, ProviderId};
use crate::operation::Operation;

/// A copy of the running exchanges.
#[derive(Clone, Debug, Default)]
pub struct RunningExchanges {
    /// The exchanges that have been silent longest, in that order; at most [`RUNNING_LISTED`].
    pub listed: Vec<RunningExchange>,
    /// The number of running exchanges.
    pub total: usize,
    /// The number of attempts in flight at each provider instance.
    pub attempts: BTreeMap<ProviderId, u32>,
}

/// One running exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningExchange {
    /// The request ID.
    pub request_id: Box<str>,
    /// The time at which the request's head had arrived.
    pub started_at_ms: u64,
    /// The key that the request was sent with.
    pub key: KeyId,
    /// The family and version of the client's software; empty if it does not name itself.
    pub client: Box<str>,
    /// The operation.
    pub operation: Operation,
    /// The client's selector; empty until the body has been read.
    pub selector: Box<str>,
    /// The target of the latest attempt; `None` before the first.
    pub target: Option<(ProviderId, ModelId)>,
    /// The number of attempts so far, over all targets.
    pub attempt: u32,
    /// The current stage.
    pub stage: Stage,
    /// Bytes of the answer's body that have gone to the client.
    pub bytes_out: u64,
    /// Pieces of a relayed answer that have arrived from the upstream.
    pub pieces: u64,
    /// The time of the last piece, to the second; `None` if none has arrived.
    pub last_piece_at_ms: Option<u64>,
    /// The output tokens so far, estimated from the length of the text.
    pub output_tokens_estimate: u64,
}

/// The stage of a running exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The client sends the request's body.
    Reading,
    /// The request waits in the line of a quota.
    Queued,
    /// The upstream has sent no head of an answer.
    Waiting,
    /// No attempt is in flight: the next one starts after a pause.
    Paused,
    /// The upstream has sent a head but no content, or a whole answer that has not ended; nothing goes to the client.
    Held,
    /// The answer is relayed.
    Streaming,
}

impl RunningExchanges {
    /// Adds the exchanges of another worker.
    pub fn add(&mut self, other: Self) {
        self.total += other.total;
        for (provider, attempts) in other.attempts {
            *self.attempts.entry(provider).or_default() += attempts;
        }
        self.listed.extend(other.listed);
        self.listed.sort_by_key(RunningExchange::silent_since_ms);
        RUNNING_LISTED.cut(&mut self.listed);
    }

    /// Returns the number of running exchanges that are not listed.
    pub fn more(&self) -> usize {
        self.total.saturating_sub(self.listed.len())
    }
}

impl RunningExchange {
    /// Returns the time of the last piece of an answer, or of the start if none has arrived.
    pub fn silent_since_ms(&self) -> u64 {
        self.last_piece_at_ms.unwrap_or(self.started_at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::tests::passes;

    fn exchange(id: usize, started_at_ms: u64, last_piece_at_ms: Option<u64>) -> RunningExchange {
        RunningExchange {
            request_id: id.to_string().into(),
            started_at_ms,
            key: KeyId::new("key_1"),
            client: "".into(),
            operation: Operation::ChatCompletions,
            selector: "m".into(),
            target: None,
            attempt: 0,
            stage: Stage::Waiting,
            bytes_out: 0,
            pieces: 0,
            last_piece_at_ms,
            output_tokens_estimate: 0,
        }
    }

    #[test]
    fn the_most_silent_of_all_workers_are_listed() {
        let of = |exchanges: Vec<RunningExchange>, provider: &str| RunningExchanges {
            total: exchanges.len(),
            listed: exchanges,
            attempts: [(ProviderId::new(provider), 2)].into(),
        };
        let mut all = RunningExchanges::default();
        all.add(of(vec![exchange(0, 5, None), exchange(1, 1, Some(9))], "a"));
        passes(&RUNNING_LISTED, || all.add(of((2..202).map(|id| exchange(id, 7, Some(8))).collect(), "a")));
        all.add(of(vec![exchange(202, 6, None)], "b"));
        let ids: Vec<&str> = all.listed.iter().take(3).map(|exchange| &*exchange.request_id).collect();
        assert_eq!(ids, ["0", "202", "2"]);
        assert_eq!((all.listed.len(), all.total, all.more()), (200, 203, 3));
        let attempts: Vec<u32> = all.attempts.values().copied().collect();
        assert_eq!(attempts, [4, 2]);
    }
}
