//! The amounts that requests of the test reserve of a limit on cost, measured by killing the process.

use std::collections::HashMap;

use serde_json::json;
use tokio::task::JoinSet;

use super::judge::nano;
use super::plan::{DARK, DELTA, Exchange, Fate, LINE, Operation, PROVIDERS, Provider, Speaks, TALKING};
use super::requests::request;
use super::{Plans, start};
use crate::support::admin::Admin;
use crate::support::{Client, Upstream};

/// Reservations in nano-dollars, by operation and selector. They do not depend on the text, which has a fixed length.
#[derive(Default)]
pub(super) struct Reserved(HashMap<(Operation, String), u64>);

impl Reserved {
    pub(super) fn of(&self, operation: Operation, selector: &str) -> u64 {
        self.0.get(&(operation, selector.to_owned())).copied().unwrap_or(0)
    }

    /// Sends one request of each combination under a limit with room for all, kills the process, and reads the
    /// reservations: a request interrupted under a hard limit costs its reservation.
    pub(super) async fn measure() -> Self {
        let (upstream, plans) = (Upstream::start().await, Plans::default());
        let gateway = start(&upstream, &plans).await;
        let admin = Admin(gateway.client());
        let key = admin.key(json!({"project": admin.project("measured").await})).await;
        let subject = json!({"kind": "key", "id": key.id});
        let quota = json!({"subject": subject, "metric": "cost_micro_usd", "window": "total", "limit": 1_000_000_000});
        admin.create("quotas", quota).await;
        let mut running = JoinSet::new();
        for (number, (operation, targets)) in (0..).zip(sorts()) {
            let mut fates = vec![vec![Fate::Unanswered { is_begun: false }]];
            fates.resize(targets.len(), Vec::new());
            let exchange = Exchange { operation, stream: false, targets, fates };
            let (url, content_type, body) = request(&exchange, number);
            plans.add(number, exchange);
            let client = Client::new(gateway.address(), Some(&key.key)).with("content-type", content_type);
            let client = client.with("x-request-id", &format!("measured-{number}"));
            running.spawn(async move { drop(client.send("POST", url, body.into()).await) });
            plans.attempted(number, 1).await;
        }
        let gateway = gateway.restart().await;
        let mut reserved = Self::default();
        for (number, (operation, targets)) in (0..).zip(sorts()) {
            let exchange = Exchange { operation, stream: false, targets, fates: Vec::new() };
            let record = gateway.record_of(&format!("measured-{number}")).await;
            assert_eq!(record["outcome"], "interrupted", "{record}");
            let held = nano(&record["cost_micro_usd"]).expect("a cost");
            reserved.0.insert((operation, exchange.selector()), held);
        }
        reserved
    }
}

/// Returns every operation with all its selectors.
fn sorts() -> Vec<(Operation, Vec<Provider>)> {
    let mut sorts = Vec::new();
    for operation in [Operation::Chat, Operation::Messages, Operation::Responses] {
        sorts.push((operation, LINE.into()));
        let talking = TALKING.into_iter().filter(|provider| *provider != DARK);
        let talking = talking.filter(|provider| operation != Operation::Messages || *provider != DELTA);
        sorts.extend(talking.map(|provider| (operation, vec![provider])));
    }
    for provider in PROVIDERS {
        let operation = match provider.speaks {
            Speaks::Embeddings => Operation::Embeddings,
            Speaks::Speech => Operation::Speech,
            Speaks::Transcription => Operation::Transcription,
            Speaks::Images => Operation::Images,
            Speaks::Videos => Operation::Videos,
            Speaks::Chat | Speaks::Messages | Speaks::Responses | Speaks::Gemini | Speaks::Bedrock => {
                continue;
            }
        };
        sorts.push((operation, vec![provider]));
    }
    sorts
}
