//! Money as a property (ADM-4, ADM-6, CAN-1, STATE-5): random sequences of keys, limits and exchanges of every protocol
//! and kind of provider, kills of the process and repricing, compared with an independent model in exact arithmetic
//! ([`exact`]).

mod answers;
mod bedrock;
mod exact;
mod judge;
mod limits;
mod plan;
mod requests;
mod reserved;
mod sequence;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use tokio::task::{JoinSet, LocalSet};

use self::exact::Counts;
use self::plan::{BETA, DARK, Exchange, HAZY, PROVIDERS, Provider, Speaks};
use self::reserved::Reserved;
use self::sequence::{Running, Sequence};
use crate::support::admin::Admin;
use crate::support::figure::{figure, is_full};
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, wait};

/// Returns the prices of a provider's model, as written in the configuration.
fn prices_of(provider: &str) -> Value {
    match provider {
        "alpha" => json!({
            "input": 0.15, "cached_input": 0.075, "output": 0.6, "tiers": {"priority": {"times": 1.1}},
        }),
        "beta" => json!({
            "input": 3, "cached_input": 0.3, "output": 15, "reasoning": 60.000_000_001,
            "input_tokens_max": 50_000,
            "above": [{"input_tokens": 50_000, "input": 6, "cached_input": 0.6, "output": 22.5, "reasoning": 90}],
            "tiers": {"flex": {"input": 1.5, "cached_input": 0.15, "output": 7.5}},
        }),
        "hazy" => json!({"input": 1, "output": 2}),
        "azure" => json!({"input": 2.5, "cached_input": 1.25, "output": 10, "input_tokens_max": 10_000}),
        "gamma" => json!({
            "input": 3, "cached_input": 0.3, "cache_write": 3.75, "cache_write_1h": 6, "output": 15, "search": 0.01,
            "tiers": {"priority": {"times": 2}},
        }),
        "delta" => json!({"input": 1.25, "cached_input": 0.125, "output": 10}),
        "gem" => json!({"input": 0.3, "cached_input": 0.03, "output": 2.5, "audio_input": 1}),
        "vert" => json!({"input": 0.3, "cached_input": 0.03, "output": 2.5}),
        "rock" => {
            json!({"input": 0.8, "cached_input": 0.08, "cache_write": 1, "cache_write_1h": 1.6, "output": 3.2})
        }
        "vector" => json!({"input": 0.02}),
        "voice" => json!({"characters": 15}),
        "ear" => json!({"audio_second": 0.000_1}),
        "brush" => json!({"image": 0.04}),
        "film" => json!({"video_second": 0.01}),
        _ => json!({}),
    }
}

/// Returns the prices that repricing applies to two of the providers.
fn later_prices() -> [(Provider, Value); 2] {
    let tiers = json!({"priority": {"times": 1.7}});
    let beta =
        json!({"input": 2.000_000_001, "cached_input": 0.2, "output": 10, "reasoning": 10, "tiers": tiers});
    let hazy = json!({"input": 1.1, "cached_input": 0.1, "output": 2.2, "tiers": {"flex": {"input": 0.5, "output": 1}}});
    [(BETA, beta), (HAZY, hazy)]
}

fn of(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

/// The planned exchanges, by the number in their text; one upstream acts as all providers.
#[derive(Clone, Default)]
struct Plans(Arc<Mutex<HashMap<u64, Plan>>>);

struct Plan {
    exchange: Exchange,
    /// The targets of its attempts so far.
    attempts: Vec<Provider>,
}

impl Plans {
    fn add(&self, number: u64, exchange: Exchange) {
        let plan = Plan { exchange, attempts: Vec::new() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, plan);
    }

    /// Waits until an exchange has made this many attempts.
    async fn attempted(&self, number: u64, attempts: usize) {
        let is_there =
            || self.0.lock().unwrap_or_else(PoisonError::into_inner)[&number].attempts.len() >= attempts;
        wait::eventually(&format!("the upstream gets {attempts} requests for {number}"), async || {
            is_there().then_some(())
        })
        .await;
    }

    /// Returns the response to a request with this first line and body.
    fn answer(&self, head: &str, body: &[u8]) -> Answer {
        let provider = PROVIDERS.into_iter().find(|provider| head.contains(&format!("/{}/", provider.id)));
        let provider = provider.expect("a path with a provider");
        let text = String::from_utf8_lossy(body);
        let number = text.split("plan:").nth(1).and_then(|rest| rest.split(':').next()?.parse().ok());
        let number: u64 = number.expect("a number in the text");
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Plan { exchange, attempts } = plans.get_mut(&number).expect("a plan");
        let place = exchange.targets.iter().position(|target| *target == provider).expect("a target");
        let before = attempts.iter().filter(|target| **target == provider).count();
        attempts.push(provider);
        answers::answer(provider.speaks, exchange.stream, &exchange.fates[place][before])
    }
}

fn configuration(upstream: &Upstream) -> Value {
    let origin = format!("http://{}", upstream.address());
    let (mut providers, mut attempts) = (Map::new(), Map::new());
    for provider in PROVIDERS {
        let Provider { id, kind, speaks, .. } = provider;
        let (version, protocol) = match speaks {
            Speaks::Chat if kind == "azure_openai" => ("/openai/v1", Some("chat")),
            Speaks::Chat => ("/v1", Some("chat")),
            Speaks::Messages | Speaks::Gemini | Speaks::Bedrock => ("", None),
            Speaks::Responses => ("/v1", Some("responses")),
            Speaks::Embeddings => ("/v1", Some("embeddings")),
            Speaks::Speech => ("/v1", Some("speech")),
            Speaks::Transcription => ("/v1", Some("transcription")),
            Speaks::Images => ("/v1", Some("images")),
            Speaks::Videos => ("/v1", Some("videos")),
        };
        let mut model = json!({"id": "m", "prices": prices_of(id)});
        if provider == DARK {
            model.as_object_mut().unwrap().remove("prices");
        }
        if let Some(protocol) = protocol {
            model["protocols"] = json!([protocol]);
        }
        let mut settings =
            json!({"type": kind, "base_url": format!("{origin}/{id}{version}"), "models": [model]});
        if speaks == Speaks::Responses {
            // Lets it serve clients of other protocols too.
            settings["force_api_support"] = json!(true);
        }
        match kind {
            "local_server" => {}
            "vertex" => settings["api_key"] = json!("AIzaSyExpress"),
            "bedrock" => {
                (settings["api_key"], settings["region"]) = (json!("ABSKQmVkcm9jaw=="), json!("eu-west-1"))
            }
            _ => settings["api_key"] = json!("upstream-secret"),
        }
        providers.insert(id.to_owned(), settings);
        attempts.insert(id.to_owned(), json!({"retry_max_attempts": provider.attempts}));
    }
    let line = plan::LINE.map(|provider| json!({"provider": provider.id, "model": "m"}));
    let defaults = json!({"circuit_failure_threshold": 0, "retry_initial_backoff_seconds": 0.001,
        "retry_max_backoff_seconds": 0.001, "rate_limit_rest_max_seconds": 0});
    json!({
        "providers": providers, "endpoints": {"line": {"failover": line}},
        "policies": {"defaults": defaults, "overrides": attempts},
    })
}

/// Starts a gateway over one upstream that responds by the plans.
async fn start(upstream: &Upstream, plans: &Plans) -> Gateway {
    let answering = plans.clone();
    upstream.answering(move |request| answering.answer(&request.head, &request.body));
    Setup::new(&Yaml::new()).yaml(configuration(upstream).to_string()).start().await
}

/// Counts of the exchanges and other events of a run.
#[derive(Default)]
struct Played {
    exchanges: usize,
    kills: usize,
    /// Exchanges in progress when the process was killed.
    interrupted: usize,
    repricings: usize,
}

/// Runs `count` sequences concurrently in one gateway, with a kill and repricings in between.
async fn play(first_seed: u64, count: u64, reserved: &Arc<Reserved>, played: &mut Played) {
    let (upstream, plans) = (Upstream::start().await, Plans::default());
    let gateway = start(&upstream, &plans).await;
    let (here, mut playing) = (LocalSet::new(), JoinSet::new());
    for seed in first_seed..first_seed + count {
        let mut sequence = Sequence::new(seed, &gateway, plans.clone(), Arc::clone(reserved)).await;
        let play = async move {
            sequence.play().await;
            sequence
        };
        playing.spawn_local_on(play, &here);
    }
    let mut sequences = here.run_until(playing.join_all()).await;
    check(&gateway, &mut sequences).await;
    let mut running: Vec<Running> = Vec::new();
    for sequence in &mut sequences {
        running.extend(sequence.leave_running().await);
    }
    let gateway = restart(gateway, &mut sequences, played).await;
    played.interrupted += running.len();
    drop(running);
    for (provider, prices) in later_prices() {
        reprice(&gateway, &mut sequences, (provider, Some(&prices)), played).await;
    }
    // Back to the prices of the configuration.
    reprice(&gateway, &mut sequences, (BETA, None), played).await;
    restart(gateway, &mut sequences, played).await;
    played.exchanges += sequences.iter().map(Sequence::exchanges).sum::<usize>();
}

/// Kills the process, starts it again and checks everything.
async fn restart(gateway: Gateway, sequences: &mut [Sequence], played: &mut Played) -> Gateway {
    let gateway = gateway.restart().await;
    played.kills += 1;
    sequences.iter_mut().for_each(|sequence| sequence.moved_to(&gateway));
    check(&gateway, sequences).await;
    gateway
}

/// Reprices a provider's records twice, and checks everything after each.
async fn reprice(
    gateway: &Gateway,
    sequences: &mut [Sequence],
    (provider, prices): (Provider, Option<&Value>),
    played: &mut Played,
) {
    let admin = Admin(gateway.client());
    for round in 0..2 {
        let mut repricing =
            json!({"from": 0, "to": u32::MAX as u64 * 1_000, "provider": provider.id, "model": "m"});
        if let Some(prices) = prices {
            repricing["prices"] = prices.clone();
        }
        let done = admin.done("POST", "usage/reprice", repricing).await;
        assert!(round == 0 || done["changed"] == 0, "the second time changes nothing: {done}");
        if round == 0 {
            let prices = prices.cloned().unwrap_or_else(|| prices_of(provider.id));
            sequences.iter_mut().for_each(|sequence| sequence.reprice(provider.id, &prices));
        }
        check(gateway, sequences).await;
        played.repricings += 1;
    }
}

async fn check(gateway: &Gateway, sequences: &mut [Sequence]) {
    let admin = Admin(gateway.client());
    for sequence in sequences {
        sequence.check(&admin).await;
    }
}

/// M-194: every record, sum and limit equals the result of exact arithmetic on the plan. `LLMGW_TEST_FULL` runs 10,000
/// sequences.
#[tokio::test]
async fn money_is_exact_in_random_sequences() {
    let (rounds, width) = if is_full() { (200, 50) } else { (3, 50) };
    let reserved = Arc::new(Reserved::measure().await);
    let mut played = Played::default();
    for round in 0..rounds {
        play(round * width, width, &reserved, &mut played).await;
    }
    let Played { exchanges, kills, interrupted, repricings } = played;
    let text = format!(
        "{} sequences, {exchanges} exchanges, {interrupted} of them interrupted by {kills} kills, {repricings} repricings, \
         0 differences",
        rounds * width
    );
    figure("money", text);
}
