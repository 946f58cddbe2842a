//! What `explain` predicts is what happens, in random configurations and failures (FAIL-8): the targets in their order, the
//! attempts at each with their results, the targets that are passed over, and the answer.
//!
//! `LLMGW_PREDICTED_WORLDS=100` tries more configurations, of which each answers a hundred requests; `LLMGW_PREDICTED_WORLD=17`
//! repeats one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const ORDERS: [&str; 5] = ["listed", "weighted", "least_busy", "fastest", "cheapest"];
const PROVIDERS: usize = 5;
const ENDPOINTS: usize = 25;
const CASES: usize = 100;

/// A sequence of numbers that depends on a seed alone.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// What an upstream does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Cut,
    Status(u16),
    /// An error with a text that rules know.
    Text(u16, &'static str),
    /// A rate limit for an hour.
    Limited,
}

const FAULTS: [Fault; 12] = [
    Fault::Limited,
    Fault::Limited,
    Fault::None,
    Fault::Cut,
    Fault::Status(500),
    Fault::Status(503),
    Fault::Status(401),
    Fault::Status(404),
    Fault::Status(409),
    Fault::Status(422),
    Fault::Text(400, "data_inspection_failed"),
    Fault::Text(400, "please try that again"),
];
/// The number of rate limits in front.
const LIMITS: usize = 2;
const RULES: &str = "errors: [{status: 400, contains: data_inspection_failed, then: next}, \
     {contains: try that again, then: retry}, {status: 500, then: stop}]";

impl Fault {
    fn answer(self, stream: bool) -> Answer {
        match self {
            Self::None if stream => Answer::events(&chat::events(&["hello"])),
            Self::None => Answer::completion("hello"),
            Self::Cut if stream => Answer::stream().chunk(chat::role()).close(),
            // Of no byte, an answer on a used connection would be taken for a connection that has ended before.
            Self::Cut => Answer::new().send("HTTP/1.1 200").close(),
            Self::Status(status) => Answer::error(status),
            Self::Text(status, text) => Answer::json(status, chat::error(text, "unknown")),
            Self::Limited => Answer::whole(
                429,
                &[("retry-after", "3600")],
                chat::error("slow down", "rate_limit_exceeded"),
            ),
        }
    }

    fn assumed(self, provider: usize) -> Option<Value> {
        let provider = format!("p{provider}");
        Some(match self {
            Self::None => return None,
            Self::Cut => json!({"provider": provider, "fault": "cut"}),
            Self::Status(status) => json!({"provider": provider, "fault": "status", "status": status}),
            Self::Text(status, text) => {
                json!({"provider": provider, "fault": "status", "status": status, "contains": text})
            }
            Self::Limited => json!({"provider": provider, "fault": "status", "status": 429}),
        })
    }
}

/// An endpoint: its order, whether its sessions stay, and the tier of each target, with those of weight 0 last.
struct Shape {
    order: &'static str,
    tiers: HashMap<String, (usize, bool)>,
}

/// A gateway with a random configuration, and its upstreams.
struct World {
    gateway: Gateway,
    admin: Admin,
    client: Client,
    upstreams: Vec<Upstream>,
    shapes: Vec<Shape>,
    numbers: Numbers,
    /// Circuits open or models rest, so that requests leave traces in later ones.
    remembers: bool,
    /// Upstreams limit the rate of requests.
    is_limited: bool,
}

/// One attempt: the provider and the result.
type Attempt = (String, String);

impl World {
    async fn start(seed: u64) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let circuits = *numbers.of(&[0, 0, 2, 5]);
        // A rehearsal does not know how long a rate limit will last: it expects retries, which a limit of an hour forbids.
        let (rests, retries) = *numbers.of(&[(600, 1), (0, 1), (0, 2), (0, 3)]);
        let mut yaml = format!(
            "policies: {{defaults: {{retry_max_attempts: {retries}, retry_initial_backoff_seconds: 0.001, \
             rate_limit_rest_max_seconds: {rests}, circuit_failure_threshold: {circuits}, circuit_cooldown_seconds: 3600}}}}\n\
             providers:\n"
        );
        let mut upstreams = Vec::new();
        for place in 0..PROVIDERS {
            let upstream = Upstream::start().await;
            let keys: Vec<String> =
                (0..1 + numbers.below(4)).map(|key| format!("key-{place}-{key}")).collect();
            let keys = match &keys[..] {
                [key] => format!("api_key: {key}"),
                keys => format!("api_keys: [{}]", keys.join(", ")),
            };
            let rules = if numbers.below(2) == 0 { RULES } else { "timeout: 60" };
            let window = if numbers.below(3) == 0 { ", context_window: 200" } else { "" };
            let prices = format!("{{input: {}, output: {}}}", numbers.below(4), 1 + numbers.below(4));
            let _ = writeln!(
                yaml,
                "  p{place}: {{type: compatible, base_url: '{}', {keys}, {rules}, models: [{{id: m, prices: \
                 {prices}{window}}}]}}",
                upstream.base_url()
            );
            upstreams.push(upstream);
        }
        yaml.push_str("endpoints:\n");
        let shapes = (0..ENDPOINTS).map(|number| endpoint(number, &mut numbers, &mut yaml)).collect();
        let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
        let (admin, client) = (Admin(gateway.client()), gateway.client());
        Self {
            gateway,
            admin,
            client,
            upstreams,
            shapes,
            numbers,
            remembers: circuits + rests > 0,
            is_limited: retries == 1,
        }
    }

    /// Explains a random request, sends it, and compares.
    async fn case(&mut self) -> Result<(), String> {
        let number = self.numbers.below(ENDPOINTS);
        let stream = self.numbers.below(2) == 0;
        let is_keyed = self.numbers.below(2) == 0;
        let mut body: Value = serde_json::from_str(&chat::request(&format!("e{number}"))).unwrap();
        body["stream"] = json!(stream);
        if is_keyed {
            body["affinity_key"] = json!(format!("session-{}", self.numbers.below(4)));
        }
        if self.numbers.below(3) == 0 {
            body["messages"][0]["content"] = json!("word ".repeat(400));
        }
        let mostly_good = self.numbers.below(2) == 0;
        let choices = if self.is_limited { &FAULTS[..] } else { &FAULTS[LIMITS..] };
        let faults: Vec<Fault> = (0..PROVIDERS)
            .map(|_| {
                if mostly_good && self.numbers.below(3) > 0 { Fault::None } else { *self.numbers.of(choices) }
            })
            .collect();
        for (upstream, fault) in self.upstreams.iter().zip(&faults) {
            upstream.always(fault.answer(stream));
        }
        let assumed: Vec<Value> =
            faults.iter().enumerate().filter_map(|(place, fault)| fault.assumed(place)).collect();
        let question = json!({"path": "/v1/chat/completions", "body": body, "faults": assumed});
        let explained = self.admin.done("POST", "explain", question).await;
        let answer = self.client.chat(body.to_string()).await;
        let record = self.gateway.record_of(answer.header("x-request-id").unwrap()).await;
        let case = Case {
            shape: &self.shapes[number],
            explained: &explained,
            record: &record,
            is_keyed,
            remembers: self.remembers,
        };
        let told = |what: String| format!("e{number}: {what}\nfaults {faults:?}\n{explained:#}\n{record:#}");
        case.compare(answer.status).map_err(told)
    }
}

/// Writes an endpoint with random targets.
fn endpoint(number: usize, numbers: &mut Numbers, yaml: &mut String) -> Shape {
    let order = *numbers.of(&ORDERS);
    let sticky = numbers.below(2) == 0;
    let (mut members, mut tiers) = (Vec::new(), HashMap::new());
    let first = numbers.below(PROVIDERS);
    let count =
        if order == "listed" { 1 + numbers.below(PROVIDERS) } else { 2 + numbers.below(PROVIDERS - 1) };
    for place in 0..count {
        let provider = (first + place * 2) % PROVIDERS;
        let (weight, tier) = (numbers.below(4), 1 + numbers.below(3));
        let settings = match order {
            "listed" => String::new(),
            "cheapest" if weight > 0 => format!(", tier: {tier}"),
            _ => format!(", weight: {weight}, tier: {tier}"),
        };
        tiers
            .insert(format!("p{provider}"), if order == "listed" { (1, false) } else { (tier, weight == 0) });
        members.push(format!("{{provider: p{provider}, model: m{settings}}}"));
    }
    let order_text = if count > 1 { format!("order: {order}, sticky: {sticky}, ") } else { String::new() };
    let _ = writeln!(yaml, "  e{number}: {{{order_text}failover: [{}]}}", members.join(", "));
    Shape { order, tiers }
}

/// A request, what was predicted of it, and what happened.
struct Case<'a> {
    shape: &'a Shape,
    explained: &'a Value,
    record: &'a Value,
    is_keyed: bool,
    remembers: bool,
}

impl Case<'_> {
    fn compare(&self, status: u16) -> Result<(), String> {
        let (mut predicted, mut tried) = (self.predicted(), self.tried());
        // Without a session each draws one of the provider's keys, and some keys may be nearer to an open circuit.
        if self.remembers && !self.is_keyed {
            predicted.dedup();
            tried.dedup();
        }
        // Explanation and request draw one order each.
        let order = self.shape.order;
        let is_drawn = matches!(order, "least_busy" | "fastest") || (order == "weighted" && !self.is_keyed);
        if is_drawn {
            self.drawn_alike(&predicted, &tried)?;
        } else if predicted != tried {
            return Err(format!("{order}: predicted {predicted:?}, tried {tried:?}"));
        }
        let passed = self.passed_over();
        let skipped = self.skipped();
        if !is_drawn && !passed.is_superset(&skipped) {
            return Err(format!("predicted to pass over {passed:?}, passed over {skipped:?}"));
        }
        let is_served = predicted.last().is_some_and(|(_, result)| result == "served");
        if !is_drawn && is_served != (status == 200) {
            return Err(format!("status {status}"));
        }
        let shown = json!({"order": self.record["order"], "chosen_by": self.record["chosen_by"]});
        let choice = &self.explained["choice"];
        let want = if choice.is_null() { json!({"order": null, "chosen_by": null}) } else { choice.clone() };
        if shown == want { Ok(()) } else { Err(format!("chosen {shown}, predicted {want}")) }
    }

    fn predicted(&self) -> Vec<Attempt> {
        let path = self.explained["path"].as_array().map(Vec::as_slice).unwrap_or_default();
        let tries = path.iter().flat_map(|step| {
            let provider = text(&step["target"]["provider"]);
            step["tries"]
                .as_array()
                .unwrap()
                .iter()
                .map(move |attempt| (provider.clone(), text(&attempt["result"])))
        });
        tries.collect()
    }

    fn steps(&self) -> &[Value] {
        self.record["trace"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn tried(&self) -> Vec<Attempt> {
        let tried = self.steps().iter().filter(|step| !step["start_us"].is_null());
        tried.map(|step| (text(&step["provider"]), text(&step["result"]))).collect()
    }

    /// The targets that were never tried, with the reason.
    fn skipped(&self) -> BTreeSet<Attempt> {
        let tried: BTreeSet<String> = self.tried().into_iter().map(|(provider, _)| provider).collect();
        let skipped = self.steps().iter().filter(|step| step["start_us"].is_null());
        let skipped = skipped.map(|step| (text(&step["provider"]), text(&step["result"])));
        skipped.filter(|(provider, _)| !tried.contains(provider)).collect()
    }

    fn passed_over(&self) -> BTreeSet<Attempt> {
        let passed = self.explained["passed_over"].as_array().unwrap().iter();
        let passed = passed.map(|step| (text(&step["provider"]), text(&step["reason"])));
        let opened = self.explained["path"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let opened = opened.filter(|step| step["attempts"] == 0);
        passed.chain(opened.map(|step| (text(&step["target"]["provider"]), text(&step["result"])))).collect()
    }

    /// Returns an error unless both orders keep to the tiers, and what both try has the same results.
    fn drawn_alike(&self, predicted: &[Attempt], tried: &[Attempt]) -> Result<(), String> {
        let by_target = |attempts: &[Attempt]| {
            let mut results: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (provider, result) in attempts {
                results.entry(provider.clone()).or_default().push(result.clone());
            }
            results
        };
        let (want, got) = (by_target(predicted), by_target(tried));
        for (provider, results) in &got {
            if want.get(provider).is_some_and(|want| want != results) {
                return Err(format!("{provider}: predicted {predicted:?}, tried {tried:?}"));
            }
        }
        let is = |provider: &str, result: &str| {
            self.steps().iter().any(|step| step["provider"] == provider && step["result"] == result)
        };
        // A remembered target comes before those of lower tiers.
        let remembered =
            usize::from(self.record["chosen_by"] == "session" || self.record["chosen_by"] == "affinity");
        let mut first: Vec<&String> = Vec::new();
        for (provider, _) in tried {
            // Those that rest come after all others, the first to be ready first.
            if !first.contains(&provider) && !is(provider, "resting") {
                first.push(provider);
            }
        }
        if !first
            .iter()
            .skip(remembered)
            .is_sorted_by_key(|provider| (is(provider, "too_long"), self.shape.tiers[*provider]))
        {
            return Err(format!("{first:?} by tiers {:?}", self.shape.tiers));
        }
        Ok(())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

#[expect(clippy::disallowed_methods, reason = "a test that takes its size from the environment")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_explain_predicts_is_what_happens() {
    let seeds = match number("LLMGW_PREDICTED_WORLD") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LLMGW_PREDICTED_WORLDS").unwrap_or(4),
    };
    let mut attempts = 0;
    for seed in seeds {
        let mut world = World::start(seed).await;
        for case in 0..CASES {
            world.case().await.unwrap_or_else(|fault| panic!("world {seed}, case {case}: {fault}"));
        }
        attempts += world.upstreams.iter().map(|upstream| upstream.requests().len()).sum::<usize>();
    }
    println!("figure: {attempts} attempts");
}
