//! One sequence: a project with keys and limits, and what happens to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::dice::Dice;
use super::exact::Counts;
use super::judge::Stored;
use super::plan::{ALPHA, DARK, Exchange, Fate, Operation, PROVIDERS};
use super::requests::{request, text};
use super::{Plans, prices_of};
use crate::support::admin::{Admin, NewKey};
use crate::support::client::Flow;
use crate::support::{Client, Gateway, wait};

pub(super) struct Sequence {
    pub(super) seed: u64,
    dice: Dice,
    address: SocketAddr,
    admin: Admin,
    plans: Plans,
    pub(super) project: String,
    keys: Vec<Key>,
    families: u64,
    pub(super) limits: Vec<Limit>,
    pub(super) done: Vec<Done>,
    /// The prices by provider, as they are now.
    pub(super) prices: BTreeMap<&'static str, Value>,
}

#[derive(Clone)]
struct Key {
    issued: NewKey,
    family: u64,
}

/// A hard limit in total.
pub(super) struct Limit {
    pub(super) id: String,
    /// The family of a key; `None` for the project.
    pub(super) family: Option<u64>,
    pub(super) metric: &'static str,
    /// In the unit of the metric; money in micro-dollars.
    limit: u64,
}

/// An exchange that has ended.
pub(super) struct Done {
    pub(super) request_id: String,
    pub(super) key: String,
    pub(super) family: u64,
    pub(super) outcome: &'static str,
    pub(super) provider: Option<&'static str>,
    /// What the upstream reported; `None` where the gateway estimates.
    pub(super) counts: Option<Counts>,
    /// It is about sound or pictures, whose tokens are estimated.
    pub(super) is_media: bool,
    /// What failed attempts reported, by provider.
    pub(super) lost: Vec<(&'static str, Counts)>,
    /// What its record says once it is known.
    stored: Option<Stored>,
}

impl Sequence {
    pub(super) async fn new(seed: u64, gateway: &Gateway, plans: Plans) -> Self {
        let admin = Admin(gateway.client());
        let project = admin.project(&format!("sequence {seed}")).await;
        Self {
            seed,
            dice: Dice::new(seed),
            address: gateway.address(),
            admin,
            plans,
            project,
            keys: Vec::new(),
            families: 0,
            limits: Vec::new(),
            done: Vec::new(),
            prices: PROVIDERS.iter().map(|provider| (provider.id, prices_of(*provider))).collect(),
        }
    }

    pub(super) fn exchanges(&self) -> usize {
        self.done.len()
    }

    /// From now on what `provider` served costs what these prices say.
    pub(super) fn reprice(&mut self, provider: &'static str, prices: &Value) {
        self.prices.insert(provider, prices.clone());
    }

    pub(super) async fn play(&mut self) {
        for _ in 0..6 + self.dice.below(8) {
            if self.keys.is_empty() {
                self.mint().await;
            }
            match self.dice.below(100) {
                0..=59 => self.exchange().await,
                60..=64 => self.mint().await,
                65..=74 => self.rotate().await,
                75..=79 => drop(self.revoke().await),
                80..=84 => self.delete().await,
                85..=94 => self.add_limit().await,
                95..=97 => self.change_limit().await,
                _ => self.drop_limit().await,
            }
        }
    }

    async fn mint(&mut self) {
        let issued = self.admin.key(json!({"project": self.project})).await;
        self.families += 1;
        self.keys.push(Key { issued, family: self.families });
    }

    async fn rotate(&mut self) {
        let key = self.dice.pick(&self.keys);
        let answer = self.admin.call("POST", &format!("keys/{}/rotate", key.issued.id), json!({})).await;
        // A key whose successor is live is not rotated again.
        if answer.status == 409 {
            return;
        }
        assert_eq!(answer.status, 201, "{answer:?}");
        let made = answer.json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        self.keys.push(Key { issued: NewKey { id: text("id"), key: text("key") }, family: key.family });
    }

    async fn revoke(&mut self) -> Key {
        let at = usize::try_from(self.dice.below(self.keys.len() as u64)).unwrap();
        let key = self.keys.remove(at);
        self.admin.done("PATCH", &format!("keys/{}", key.issued.id), json!({"state": "revoked"})).await;
        let refused = Client::new(self.address, Some(&key.issued.key)).get("/v1/models").await.unwrap();
        assert_eq!(refused.status, 401, "from the next request on");
        key
    }

    /// Deletes a key. The last of a family takes the limits of the family with it.
    async fn delete(&mut self) {
        let key = self.revoke().await;
        self.admin.done("DELETE", &format!("keys/{}", key.issued.id), Value::Null).await;
        self.forget_dropped_limits().await;
    }

    /// Limits go with the last key of their family; which those are, the list says. None of a living family may.
    async fn forget_dropped_limits(&mut self) {
        let mut kept = Vec::new();
        for limit in std::mem::take(&mut self.limits) {
            let found =
                self.admin.call("GET", &format!("quotas/{}", limit.id), Value::Null).await.status == 200;
            let is_alive = limit.family.is_none_or(|family| self.keys.iter().any(|key| key.family == family));
            assert!(found || !is_alive, "seed {}: a limit of a living family is gone", self.seed);
            if found {
                kept.push(limit);
            }
        }
        self.limits = kept;
    }

    async fn add_limit(&mut self) {
        let key = self.dice.pick(&self.keys);
        let (family, subject) = if self.dice.chance(50) {
            (Some(key.family), json!({"kind": "key", "id": key.issued.id}))
        } else {
            (None, json!({"kind": "project", "id": self.project}))
        };
        let metric = self.dice.pick(&["requests", "total_tokens", "cost_micro_usd"]);
        if self.limits.iter().any(|limit| limit.family == family && limit.metric == metric) {
            return;
        }
        let limit = self.some_limit(metric);
        let quota = json!({"subject": subject, "metric": metric, "window": "total", "limit": limit});
        let id = self.admin.create("quotas", quota).await;
        self.limits.push(Limit { id, family, metric, limit });
    }

    fn some_limit(&mut self, metric: &str) -> u64 {
        match metric {
            "requests" => 1 + self.dice.below(8),
            "total_tokens" => 1_000 + self.dice.below(200_000),
            _ => 100_000 + self.dice.below(1_000_000),
        }
    }

    async fn change_limit(&mut self) {
        if self.limits.is_empty() {
            return;
        }
        let at = usize::try_from(self.dice.below(self.limits.len() as u64)).unwrap();
        let limit = self.some_limit(self.limits[at].metric);
        let path = format!("quotas/{}", self.limits[at].id);
        self.admin.done("PATCH", &path, json!({"limit": limit})).await;
        self.limits[at].limit = limit;
    }

    async fn drop_limit(&mut self) {
        if let Some(limit) = self.limits.pop() {
            self.admin.done("DELETE", &format!("quotas/{}", limit.id), Value::Null).await;
        }
    }

    /// The gateway has been started again.
    pub(super) fn moved_to(&mut self, gateway: &Gateway) {
        self.address = gateway.address();
        self.admin = Admin(gateway.client());
    }

    /// Begins a stream that is running when the process is killed, if the limits have room for it.
    pub(super) async fn leave_running(&mut self) -> Option<Flow> {
        let key = self.keys.first()?.clone();
        if self.admission(key.family) != Admission::Granted {
            return None;
        }
        let (operation, targets, fates) = (Operation::Chat, vec![ALPHA], vec![Fate::Silent]);
        let exchange = Exchange { operation, stream: true, targets, fates };
        let number = self.seed * 1_000 + self.done.len() as u64;
        self.plans.add(number, exchange.clone());
        let mut flow = self.open(&key, &exchange, number).await;
        flow.event().await;
        let done = self.outcome(&key, &exchange, number, false);
        self.done.push(Done { outcome: "interrupted", ..done });
        Some(flow)
    }

    async fn open(&self, key: &Key, exchange: &Exchange, number: u64) -> Flow {
        let (path, content_type, body) = request(exchange, number);
        let client = Client::new(self.address, Some(&key.issued.key))
            .with("content-type", content_type)
            .with("x-request-id", &request_id(number));
        client.open("POST", path, body.into()).await.unwrap()
    }

    async fn exchange(&mut self) {
        let key = self.dice.pick(&self.keys);
        let exchange = Exchange::random(&mut self.dice);
        let number = self.seed * 1_000 + self.done.len() as u64;
        self.plans.add(number, exchange.clone());
        let admission = self.admission(key.family);
        let status = self.send(&key, &exchange, number).await;
        let refused = match admission {
            Admission::Granted => false,
            Admission::Refused => true,
            Admission::Either => status == 429 && !exchange.ends_in(429),
        };
        let done = self.outcome(&key, &exchange, number, refused);
        self.done.push(done);
        self.learn().await;
    }

    /// Sends the request and reads the answer as far as the plan says.
    async fn send(&self, key: &Key, exchange: &Exchange, number: u64) -> u16 {
        let mut flow = self.open(key, exchange, number).await;
        let status = flow.status;
        let last = exchange.fates.last().filter(|_| status == 200);
        if let Some(Fate::Silent) = last {
            flow.event().await;
        } else if let Some(Fate::LeftEarly(_, gate)) = last {
            while !flow.event().await.bytes.windows(6).any(|part| part == b"\"stop\"") {}
            drop(flow);
            gate.open(1);
        } else if exchange.stream && status == 200 {
            flow.rest().await;
        } else {
            flow.whole().await.unwrap();
        }
        status
    }

    /// Says if the limits have room for a request of this family.
    fn admission(&self, family: u64) -> Admission {
        let mut admission = Admission::Granted;
        for limit in self.limits.iter().filter(|limit| limit.family.is_none_or(|of| of == family)) {
            let used = self.used(limit);
            let (limit, least) = match limit.metric {
                "requests" => (limit.limit, 1),
                "total_tokens" => (limit.limit, LEAST_TOKENS_MAX),
                _ => (limit.limit * 1_000, LEAST_NANO_USD_MAX),
            };
            if used >= limit {
                return Admission::Refused;
            }
            if used + least > limit {
                admission = Admission::Either;
            }
        }
        admission
    }

    /// What counts against a limit so far; money in nano-dollars.
    fn used(&self, limit: &Limit) -> u64 {
        let counted = self.done.iter().filter(|done| limit.family.is_none_or(|family| family == done.family));
        counted
            .map(|done| done.stored.as_ref().map_or(0, |stored| stored.amount(limit.metric, done.outcome)))
            .sum()
    }

    /// True if a limit on cost binds the family, so that models without a price are passed over.
    pub(super) fn bounds_cost(&self, family: u64) -> bool {
        let mut limits = self.limits.iter().filter(|limit| limit.metric == "cost_micro_usd");
        limits.any(|limit| limit.family.is_none_or(|of| of == family))
    }

    /// What must come of an exchange.
    fn outcome(&self, key: &Key, exchange: &Exchange, number: u64, refused: bool) -> Done {
        let failed = Done {
            request_id: request_id(number),
            key: key.issued.id.clone(),
            family: key.family,
            outcome: "failed",
            provider: None,
            counts: Some(Counts::new()),
            is_media: false,
            lost: Vec::new(),
            stored: None,
        };
        if refused {
            return failed;
        }
        let without_price = self.bounds_cost(key.family);
        let mut lost = Vec::new();
        for (provider, fate) in exchange.targets.iter().zip(&exchange.fates) {
            if *provider == DARK && without_price {
                continue;
            }
            if let Fate::Lost(counts) = fate {
                lost.push((provider.id, counts.clone()));
            }
            if fate.moves_on() {
                continue;
            }
            let (outcome, counts) = match fate {
                Fate::Served(counts) if exchange.operation == Operation::Speech => {
                    let characters = text(number).chars().count() as u64;
                    ("completed", Some(with(counts, "characters", characters)))
                }
                Fate::Served(counts) if exchange.operation == Operation::Images => {
                    ("completed", Some(with(counts, "images", 2)))
                }
                Fate::Served(counts) => ("completed", Some(counts.clone())),
                Fate::LeftEarly(counts, _) => ("left early", Some(counts.clone())),
                Fate::Cut => ("cut", None),
                _ => ("cancelled", None),
            };
            let is_media = exchange.is_media();
            return Done { outcome, provider: Some(provider.id), counts, is_media, lost, ..failed };
        }
        Done { lost, ..failed }
    }

    /// Reads what the newest record says, which later limits are judged by.
    async fn learn(&mut self) {
        let newest = self.done.last().expect("an exchange");
        let path = format!("requests/{}", newest.request_id);
        let record = wait::eventually(&path, async || {
            let answer = self.admin.call("GET", &path, Value::Null).await;
            (answer.status == 200).then(|| answer.json())
        })
        .await;
        let stored = self.judge(newest, &record);
        self.done.last_mut().expect("an exchange").stored = Some(stored);
    }
}

/// What the limits let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Granted,
    Refused,
    /// There is room for a small request, but perhaps not for this one.
    Either,
}

fn with(counts: &Counts, name: &str, count: u64) -> Counts {
    let mut counts = counts.clone();
    counts.insert(name.to_owned(), count);
    counts
}

fn request_id(number: u64) -> String {
    format!("money-{number}")
}

/// More tokens than a request of the test reserves at least: its text, and `max_tokens` where it has one.
const LEAST_TOKENS_MAX: u64 = 200;
/// More nano-dollars: two pictures are the dearest request of the test.
const LEAST_NANO_USD_MAX: u64 = 100_000_000;
