//! The one record of a finished exchange, what it cost, and the door through which it leaves the data plane.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error_kind::ErrorKind;
use crate::id::{EndpointName, KeyId, ModelId, PrincipalId, ProjectId, ProviderId};
use crate::operation::Operation;
use crate::routing::Prices;

/// What one exchange used, and how it went. Made exactly once an exchange that reached routing, whether it
/// succeeded, failed or was cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageEvent {
    /// The id in `X-Request-Id`.
    pub request_id: Box<str>,
    /// When the request's head had arrived, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// From then to the end, in microseconds.
    pub duration_us: u64,
    /// What was asked for.
    pub operation: Operation,
    /// Whose key.
    pub key: KeyId,
    /// Whose budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalId>,
    /// The `model` that the client sent, cut to 256 bytes.
    pub selector: Box<str>,
    /// The endpoint that it named, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointName>,
    /// Who served, or was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderId>,
    /// With which model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// The status that the client got; 499 when it left before one was sent.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorKind>,
    /// What was used.
    pub tokens: TokenCounts,
    /// Where `tokens` comes from.
    pub provenance: Provenance,
    /// What `tokens` cost, in nano-dollars; none where that is not known (ADM-6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// The label of the prices that made the cost; none where none were needed or known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Arc<str>>,
    /// What it counts for in quotas of cost while its cost is not known: what it had reserved there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_nano_usd: Option<u64>,
    /// From the request's head to the upstream's head, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_us: Option<u64>,
    /// From the request's head to the first content, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_content_us: Option<u64>,
    /// The route trace: every target considered, in order (FAIL-8).
    pub trace: Vec<TraceStep>,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The client has the whole answer.
    Completed,
    /// No target answered, or the answer was an error.
    Failed,
    /// The client left.
    Cancelled,
    /// The upstream broke off after output had started.
    Cut,
    /// The gateway ended before the exchange did; what it had reserved counts as used.
    Interrupted,
}

impl Outcome {
    /// The name in logs and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Cut => "cut",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Token classes, disjoint: each token is counted in exactly one (ADM-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Input that no cache served.
    pub input: u64,
    /// Input read from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Input written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Output without reasoning.
    pub output: u64,
    /// Reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TokenCounts {
    /// All classes together.
    pub fn total(&self) -> u64 {
        [self.input, self.cache_read, self.cache_write, self.output, self.reasoning]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// What `tokens` cost at `prices`, in nano-dollars, rounded once, half up. `None` where a class that was used
/// has no price, or the input is longer than the prices hold for: unknown is never free (ADM-6). Reasoning without
/// a price of its own is billed as output.
pub fn cost(tokens: &TokenCounts, prices: &Prices) -> Option<u64> {
    let input = tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
    if prices.input_tokens_max.is_some_and(|max| max < input) {
        return None;
    }
    // A micro-dollar for a million tokens is a pico-dollar for one; each token is in one class, billed once.
    let pico = [
        (tokens.input, prices.input),
        (tokens.cache_read, prices.cached_input),
        (tokens.cache_write, prices.cache_write),
        (tokens.output, prices.output),
        (tokens.reasoning, prices.reasoning.or(prices.output)),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .try_fold(0_u128, |sum, (count, price)| {
        Some(sum.saturating_add(u128::from(count) * u128::from(price?)))
    })?;
    Some(u64::try_from(pico.saturating_add(PICO_IN_NANO / 2) / PICO_IN_NANO).unwrap_or(u64::MAX))
}

const PICO_IN_NANO: u128 = 1_000;

/// Where token counts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// The upstream said so.
    Reported,
    /// The gateway counted what passed.
    Measured,
    /// The gateway estimated.
    Estimated,
    /// Nothing was used: no target began to answer.
    None,
}

/// One target that was considered for a request: tried, or passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceStep {
    /// The instance.
    pub provider: ProviderId,
    /// Its model.
    pub model: ModelId,
    /// What came of it.
    pub result: StepResult,
    /// The upstream's status, where it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// From the start of the attempt to the upstream's head, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_us: Option<u64>,
    /// From the start of the attempt to its end or first content, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_us: Option<u64>,
}

/// What came of a target in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// It answered.
    Served,
    /// Not tried: its circuit is open.
    CircuitOpen,
    /// Not tried: it cannot take images (CHAT-2).
    NoVision,
    /// Not tried: it does not speak the dialect.
    NoDialect,
    /// Not tried: the request holds what its dialect cannot say (MSG-2, CHAT-6, RESP-2).
    Unsupported,
    /// Not tried: what the request refers to was made by another target.
    Elsewhere,
    /// Not tried: its connection is not ready to be used.
    NotReady,
    /// Not tried: an allowlist of the key or its project does not name it (AUTH-2).
    NotAllowed,
    /// Not tried: it is a human's own, and the key does not act as that human (AUTH-4).
    Private,
    /// Not tried: the caller has a hard limit on cost, and nobody knows what it costs (ADM-4, ADM-6).
    NoPrice,
    /// Connection, TLS or protocol failure.
    Unreachable,
    /// Refused as an address that is never dialled (LIM-5).
    AddressRefused,
    /// No answer in time.
    TimedOut,
    /// An answer that is none.
    Invalid,
    /// An error status.
    Status,
    /// An error event inside a 200 stream, before any content.
    StreamError,
    /// The stream ended before any content.
    StreamEnded,
    /// The client left during the attempt.
    Cancelled,
    /// The failover budget ran out during the attempt.
    BudgetExhausted,
}

/// An exchange that is on its way and was [noted](UsageLog::note), by its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Note(pub u32);

/// Takes usage events from one data-plane thread. An implementation makes the event durable against a kill of
/// the process before it returns, without a lock, an fsync or waking another thread (STATE-5).
pub trait UsageLog: Send {
    /// Records one exchange. Called before the client gets the last byte of its answer.
    fn append(&mut self, event: UsageEvent);

    /// Whether more exchanges may begin: false while so many records wait to be stored that another could be
    /// lost. A request then gets 503 rather than an unrecorded answer.
    fn has_room(&self) -> bool;

    /// Notes how an exchange is to be recorded if the process ends before it does, as durably as a record. None
    /// if too many are noted.
    fn note(&mut self, pending: &UsageEvent) -> Option<Note>;

    /// The exchange has been recorded otherwise.
    fn strike(&mut self, note: Note);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens([input, cache_read, cache_write, output, reasoning]: [u64; 5]) -> TokenCounts {
        TokenCounts { input, cache_read, cache_write, output, reasoning }
    }

    /// Dollars per million tokens, in thousandths of a cent.
    fn prices(list: [Option<u64>; 5]) -> Prices {
        let [input, cached_input, cache_write, output, reasoning] = list.map(|p| p.map(|price| price * 10));
        Prices { input, cached_input, cache_write, output, reasoning, input_tokens_max: None }
    }

    #[test]
    fn bills_are_those_of_public_price_lists() {
        // In dollars per million tokens: input, cached input, cache write, output.
        let mini = prices([Some(15_000), Some(7_500), None, Some(60_000), None]);
        let sonnet = prices([Some(300_000), Some(30_000), Some(375_000), Some(1_500_000), None]);
        let flash = prices([Some(30_000), Some(7_500), None, Some(250_000), None]);
        let cases = [
            // 1000 * 0.15 + 500 * 0.60 = 450 micro-dollars
            ("input and output", mini, [1_000, 0, 0, 500, 0], 450_000),
            // 1024 * 0.15 + 1024 * 0.075 + 200 * 0.60, each token in one class
            ("half of the input cached", mini, [1_024, 1_024, 0, 200, 0], 350_400),
            // 12 * 3 + 2_000 * 0.30 + 10_000 * 3.75 + 800 * 15
            ("a cache written and read", sonnet, [12, 2_000, 10_000, 800, 0], 50_136_000),
            // 100 * 0.30 + (50 + 900) * 2.50
            ("reasoning is output without a price of its own", flash, [100, 0, 0, 50, 900], 2_405_000),
            ("nothing used costs nothing", Prices::default(), [0; 5], 0),
            ("a free class is free", prices([Some(0), None, None, Some(0), None]), [7, 0, 0, 7, 0], 0),
            // 37.5 nano-dollars and a half up
            (
                "a fraction is rounded once",
                prices([Some(3_750), None, None, None, None]),
                [1, 0, 0, 0, 0],
                38,
            ),
            ("and not for each token", prices([Some(3_750), None, None, None, None]), [4, 0, 0, 0, 0], 150),
        ];
        for (name, prices, counts, nano) in cases {
            assert_eq!(cost(&tokens(counts), &prices), Some(nano), "{name}");
        }
        let own = Prices { reasoning: Some(1_000_000), ..flash };
        assert_eq!(cost(&tokens([0, 0, 0, 0, 9]), &own), Some(9_000), "reasoning by its own price");
    }

    #[test]
    fn a_class_that_was_used_and_has_no_price_makes_the_cost_unknown() {
        let all = [Some(1); 5];
        for missing in 0..4 {
            let mut list = all;
            list[missing] = None;
            list[4] = list[4].filter(|_| missing != 3);
            let mut counts = [5; 5];
            assert_eq!(cost(&tokens(counts), &prices(list)), None, "class {missing}");
            counts[missing] = 0;
            counts[4] *= u64::from(missing != 3);
            assert!(cost(&tokens(counts), &prices(list)).is_some(), "class {missing} was not used");
        }
    }

    #[test]
    fn prices_of_short_prompts_say_nothing_of_longer_ones() {
        let prices = Prices { input_tokens_max: Some(300), ..prices([Some(100_000); 5]) };
        assert_eq!(cost(&tokens([100, 100, 100, 9, 0]), &prices), Some(309_000));
        assert_eq!(cost(&tokens([100, 100, 101, 9, 0]), &prices), None);
    }

    #[test]
    fn absurd_counts_and_prices_saturate() {
        let prices = Prices { input: Some(u64::MAX), output: Some(u64::MAX), ..Prices::default() };
        assert_eq!(cost(&tokens([u64::MAX, 0, 0, u64::MAX, 0]), &prices), Some(u64::MAX));
    }
}
