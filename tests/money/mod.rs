//! Money as a property (ADM-4, ADM-6, CAN-1, STATE-5): random sequences of keys, limits and exchanges of every protocol,
//! kills of the process and repricing, against a model of their own in exact arithmetic ([`exact`]).

mod answers;
mod dice;
mod exact;
mod judge;
mod plan;
mod requests;
mod sequence;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};

use self::plan::{BETA, Exchange, PROVIDERS, Provider, Speaks};
use self::sequence::Sequence;
use crate::support::admin::Admin;
use crate::support::figure::{figure, is_full};
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml};

/// The prices of a provider's model, as they are written in the configuration.
fn prices_of(provider: Provider) -> Value {
    match provider.id {
        "alpha" => json!({"input": 0.15, "cached_input": 0.075, "output": 0.6}),
        "beta" => json!({
            "input": 3, "cached_input": 0.3, "output": 15, "reasoning": 60.000_000_001,
            "input_tokens_max": 50_000,
            "above": [{"input_tokens": 50_000, "input": 6, "cached_input": 0.6, "output": 22.5, "reasoning": 90}],
        }),
        "gamma" => json!({
            "input": 3, "cached_input": 0.3, "cache_write": 3.75, "cache_write_1h": 6, "output": 15, "search": 0.01,
        }),
        "delta" => json!({"input": 1.25, "cached_input": 0.125, "output": 10}),
        "vector" => json!({"input": 0.02}),
        "voice" => json!({"characters": 15}),
        "ear" => json!({"audio_second": 0.000_1}),
        "brush" => json!({"image": 0.04}),
        _ => json!({}),
    }
}

/// The prices that repricing gives to `beta`.
fn later_prices() -> Value {
    json!({"input": 2.000_000_001, "cached_input": 0.2, "output": 10, "reasoning": 10})
}

/// The exchanges that are planned, by the number in their text; one upstream plays all providers.
#[derive(Clone, Default)]
struct Plans(Arc<Mutex<HashMap<u64, Exchange>>>);

impl Plans {
    fn add(&self, number: u64, exchange: Exchange) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, exchange);
    }

    /// The answer to a request with this first line and body.
    fn answer(&self, head: &str, body: &[u8]) -> Answer {
        let provider = PROVIDERS.into_iter().find(|provider| head.contains(&format!("/{}/", provider.id)));
        let provider = provider.expect("a path with a provider");
        let text = String::from_utf8_lossy(body);
        let number = text.split("plan:").nth(1).and_then(|rest| rest.split(':').next()?.parse().ok());
        let number: u64 = number.expect("a number in the text");
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let exchange = &plans[&number];
        let place =
            exchange.targets.iter().position(|target| *target == provider).expect("one of the targets");
        answers::answer(provider.speaks, exchange.stream, &exchange.fates[place])
    }
}

fn configuration(upstream: &Upstream) -> Yaml {
    let origin = format!("http://{}", upstream.address());
    let mut yaml = Yaml::new();
    for provider in PROVIDERS {
        let (base_url, members) = match provider.speaks {
            Speaks::Chat => (format!("{origin}/{}/v1", provider.id), "protocols: [chat]"),
            Speaks::Messages => (format!("{origin}/{}", provider.id), "protocols: [messages]"),
            Speaks::Responses => (format!("{origin}/{}/v1", provider.id), "protocols: [responses]"),
            Speaks::Embeddings => (format!("{origin}/{}/v1", provider.id), "protocols: [embeddings]"),
            Speaks::Speech => (format!("{origin}/{}/v1", provider.id), "protocols: [speech]"),
            Speaks::Transcription => (format!("{origin}/{}/v1", provider.id), "protocols: [transcription]"),
            Speaks::Images => (format!("{origin}/{}/v1", provider.id), "protocols: [images]"),
        };
        let prices = prices_of(provider);
        let model =
            if provider.is_priced { json!({"id": "m", "prices": prices}) } else { json!({"id": "m"}) };
        let members = format!("{members}\nmodels: [{model}]");
        yaml = yaml.provider_with(provider.id, base_url, &members);
    }
    let line: Vec<(&str, &str)> = plan::LINE.iter().map(|provider| (provider.id, "m")).collect();
    yaml.endpoint("line", &line)
}

/// Plays `count` sequences at the same time in one gateway, with a kill and two repricings in between. Returns the
/// number of exchanges.
async fn play(first_seed: u64, count: u64) -> usize {
    let upstream = Upstream::start().await;
    let plans = Plans::default();
    let answering = plans.clone();
    upstream.answering(move |request| answering.answer(&request.head, &request.body));
    let setup = Setup::new(&configuration(&upstream));
    let setup = setup.yaml(
        configuration(&upstream)
            .text()
            .replace("  gamma:\n    type: compatible", "  gamma:\n    type: anthropic"),
    );
    let gateway = setup.start().await;
    let (here, mut playing) = (LocalSet::new(), JoinSet::new());
    for seed in first_seed..first_seed + count {
        let mut sequence = Sequence::new(seed, &gateway, plans.clone()).await;
        let play = async move {
            sequence.play().await;
            sequence
        };
        playing.spawn_local_on(play, &here);
    }
    let mut sequences = here.run_until(playing.join_all()).await;
    check(&gateway, &sequences).await;
    let mut running = Vec::new();
    for sequence in &mut sequences {
        running.push(sequence.leave_running().await);
    }
    let gateway = gateway.restart().await;
    drop(running);
    sequences.iter_mut().for_each(|sequence| sequence.moved_to(&gateway));
    check(&gateway, &sequences).await;
    reprice(gateway, sequences).await
}

/// Reprices what `beta` served, twice, and checks everything after each.
async fn reprice(gateway: Gateway, mut sequences: Vec<Sequence>) -> usize {
    let admin = Admin(gateway.client());
    for round in 0..2 {
        let asked = json!({"from": 0, "to": u32::MAX as u64 * 1_000, "provider": BETA.id, "model": "m",
            "prices": later_prices()});
        let done = admin.done("POST", "usage/reprice", asked).await;
        assert!(round == 0 || done["changed"] == 0, "the second time changes nothing: {done}");
        if round == 0 {
            sequences.iter_mut().for_each(|sequence| sequence.reprice(BETA.id, &later_prices()));
        }
        check(&gateway, &sequences).await;
    }
    let gateway = gateway.restart().await;
    check(&gateway, &sequences).await;
    sequences.iter().map(Sequence::exchanges).sum()
}

async fn check(gateway: &Gateway, sequences: &[Sequence]) {
    let admin = Admin(gateway.client());
    for sequence in sequences {
        sequence.check(&admin).await;
    }
}

/// M-194: every record, sum and limit is what exact arithmetic makes of the plan. `LLMGW_TEST_FULL` plays 10,000 sequences.
#[tokio::test]
async fn money_is_exact_in_random_sequences() {
    let (rounds, width) = if is_full() { (200, 50) } else { (3, 50) };
    let mut exchanges = 0;
    for round in 0..rounds {
        exchanges += play(round * width, width).await;
    }
    figure("money", format!("{} sequences, {exchanges} exchanges, 0 differences", rounds * width));
}
