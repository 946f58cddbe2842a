//! One sequence: a project with keys and limits, and its exchanges.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::exact::{Counts, Used};
use super::judge::Part;
use super::limits::{Admission, Limit};
use super::plan::{ALPHA, BETA, DARK, Exchange, Fate, HAZY, Operation};
use super::requests::{request, text};
use super::reserved::Reserved;
use super::{Plans, prices_of};
use crate::support::admin::{Admin, NewKey};
use crate::support::client::{Failure, Flow};
use crate::support::random::Random;
use crate::support::{Client, Gateway, wait};

pub(super) struct Sequence {
    pub(super) seed: u64,
    pub(super) random: Random,
    address: SocketAddr,
    pub(super) admin: Admin,
    plans: Plans,
    /// The amounts that requests reserve.
    pub(super) reserved: Arc<Reserved>,
    pub(super) project: String,
    pub(super) keys: Vec<Key>,
    families: u64,
    pub(super) limits: Vec<Limit>,
    pub(super) done: Vec<Done>,
}

#[derive(Clone)]
pub(super) struct Key {
    pub(super) issued: NewKey,
    pub(super) family: u64,
}

/// An exchange that has ended.
#[derive(Clone)]
pub(super) struct Done {
    /// Its index among the exchanges of the sequence.
    pub(super) number: usize,
    pub(super) request_id: String,
    pub(super) key: String,
    pub(super) family: u64,
    pub(super) operation: Operation,
    /// True if it named the endpoint.
    pub(super) is_line: bool,
    pub(super) outcome: &'static str,
    pub(super) provider: Option<&'static str>,
    /// The usage that the upstream reported; `None` if the gateway estimates it.
    pub(super) used: Option<Used>,
    /// The cost that it reserved at the target that served.
    pub(super) held: Option<u64>,
    /// True if it was interrupted under a hard limit on cost, and costs its reservation.
    pub(super) is_held: bool,
    pub(super) lost: Vec<Lost>,
    /// The results of its attempts, the one that served first; empty until its record is read.
    pub(super) parts: Vec<Part>,
}

/// A failed attempt that reported usage.
#[derive(Clone)]
pub(super) struct Lost {
    pub(super) provider: &'static str,
    pub(super) used: Used,
    /// The cost that was reserved at its target.
    pub(super) held: Option<u64>,
}

/// An exchange in progress when the process is killed.
pub(super) enum Running {
    /// A stream with some content.
    Stream { _flow: Flow },
    /// A request without a response.
    Whole(AbortHandle),
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Whole(task) = self {
            task.abort();
        }
    }
}

impl Sequence {
    pub(super) async fn new(seed: u64, gateway: &Gateway, plans: Plans, reserved: Arc<Reserved>) -> Self {
        let admin = Admin(gateway.client());
        let project = admin.project(&format!("sequence {seed}")).await;
        Self {
            seed,
            random: Random::of(seed),
            address: gateway.address(),
            admin,
            plans,
            reserved,
            project,
            keys: Vec::new(),
            families: 0,
            limits: Vec::new(),
            done: Vec::new(),
        }
    }

    pub(super) fn exchanges(&self) -> usize {
        self.done.len()
    }

    /// Reprices the past attempts at `provider` with these prices; an attempt that they do not cover keeps its cost.
    pub(super) fn reprice(&mut self, provider: &'static str, prices: &Value) {
        let parts = self.done.iter_mut().flat_map(|done| &mut done.parts);
        parts.filter(|part| part.provider == provider).for_each(|part| part.reprice(prices));
    }

    pub(super) async fn play(&mut self) {
        for _ in 0..6 + self.random.below(8) {
            if self.keys.is_empty() {
                self.mint().await;
            }
            match self.random.below(100) {
                0..=59 => self.exchange().await,
                60..=64 => self.mint().await,
                65..=71 => self.rotate().await,
                72..=75 => drop(self.revoke().await),
                76..=79 => self.delete().await,
                80..=92 => self.add_limit().await,
                93..=97 => self.change_limit().await,
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
        let key = self.random.pick(&self.keys);
        let answer = self.admin.call("POST", &format!("keys/{}/rotate", key.issued.id), json!({})).await;
        // A key whose successor is active is not rotated again.
        if answer.status == 409 {
            return;
        }
        assert_eq!(answer.status, 201, "{answer:?}");
        let made = answer.json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        self.keys.push(Key { issued: NewKey { id: text("id"), key: text("key") }, family: key.family });
    }

    async fn revoke(&mut self) -> Key {
        let at = usize::try_from(self.random.below(self.keys.len() as u64)).unwrap();
        let key = self.keys.remove(at);
        self.admin.done("PATCH", &format!("keys/{}", key.issued.id), json!({"state": "revoked"})).await;
        let refused = Client::new(self.address, Some(&key.issued.key)).get("/v1/models").await.unwrap();
        assert_eq!(refused.status, 401, "from the next request on");
        key
    }

    /// Deletes a key. The limits of a family are deleted with its last key.
    async fn delete(&mut self) {
        let key = self.revoke().await;
        self.admin.done("DELETE", &format!("keys/{}", key.issued.id), Value::Null).await;
        self.forget_dropped_limits().await;
    }

    /// Switches to the restarted gateway.
    pub(super) fn moved_to(&mut self, gateway: &Gateway) {
        self.address = gateway.address();
        self.admin = Admin(gateway.client());
    }

    /// Starts an exchange that is in progress when the process is killed, if the limits have room for it: a stream, or
    /// a request for a whole response under a hard limit. Without such a limit, the latter leaves no record.
    pub(super) async fn leave_running(&mut self) -> Option<Running> {
        let key = self.keys.first()?.clone();
        let stream = self.random.chance(50);
        if self.admission(key.family) != Admission::Granted || !(stream || self.bounds(key.family)) {
            return None;
        }
        let fate = if stream { Fate::Silent } else { Fate::Unanswered { is_begun: self.random.chance(50) } };
        let targets = vec![self.random.pick(&[ALPHA, BETA, HAZY])];
        let exchange = Exchange { operation: Operation::Chat, stream, targets, fates: vec![vec![fate]] };
        let number = self.number();
        self.plans.add(number, exchange.clone());
        let done = self.outcome(&key, &exchange, number, false);
        let is_held = self.bounds_cost(key.family);
        let opening = self.open(&key, &exchange, number);
        let running = if stream {
            let mut flow = opening.await.unwrap();
            flow.event().await;
            Running::Stream { _flow: flow }
        } else {
            let running = Running::Whole(tokio::spawn(opening).abort_handle());
            self.plans.attempted(number, 1).await;
            running
        };
        self.done.push(Done { outcome: "interrupted", is_held, ..done });
        Some(running)
    }

    fn number(&self) -> u64 {
        self.seed * 1_000 + self.done.len() as u64
    }

    /// Sends a request; returns when the head of its response has arrived.
    fn open(
        &self,
        key: &Key,
        exchange: &Exchange,
        number: u64,
    ) -> impl Future<Output = Result<Flow, Failure>> + use<> {
        let (path, content_type, body) = request(exchange, number);
        let client = Client::new(self.address, Some(&key.issued.key))
            .with("content-type", content_type)
            .with("x-request-id", &request_id(number));
        async move { client.open("POST", path, body.into()).await }
    }

    async fn exchange(&mut self) {
        let key = self.random.pick(&self.keys);
        let exchange = Exchange::random(&mut self.random);
        let number = self.number();
        self.plans.add(number, exchange.clone());
        let admission = self.admission(key.family);
        let status = self.send(&key, &exchange, number).await;
        let refused = match admission {
            Admission::Granted => false,
            Admission::Refused => true,
            Admission::Either => status == Some(429) && !exchange.ends_in(429),
        };
        let done = self.outcome(&key, &exchange, number, refused);
        self.done.push(done);
        self.learn().await;
    }

    /// Sends the request and reads the response as far as the plan specifies. Returns the status; `None` if the client
    /// disconnected before it had one.
    async fn send(&self, key: &Key, exchange: &Exchange, number: u64) -> Option<u16> {
        let last = exchange.last();
        let opening = self.open(key, exchange, number);
        let mut flow = if let Some(Fate::Unanswered { .. }) = last {
            let attempts = exchange.fates.iter().map(Vec::len).sum();
            tokio::select! {
                flow = opening => flow.unwrap(),
                () = self.plans.attempted(number, attempts) => return None,
            }
        } else {
            opening.await.unwrap()
        };
        let status = flow.status;
        let last = last.filter(|_| status == 200);
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
        Some(status)
    }

    /// Returns the expected result of an exchange that starts now.
    fn outcome(&self, key: &Key, exchange: &Exchange, number: u64, refused: bool) -> Done {
        let failed = Done {
            number: self.done.len(),
            request_id: request_id(number),
            key: key.issued.id.clone(),
            family: key.family,
            operation: exchange.operation,
            is_line: exchange.is_line(),
            outcome: "failed",
            provider: None,
            used: Some(Used::default()),
            held: None,
            is_held: false,
            lost: Vec::new(),
            parts: Vec::new(),
        };
        if refused {
            return failed;
        }
        let without_price = self.bounds_cost(key.family);
        let mut lost = Vec::new();
        for (provider, fates) in exchange.targets.iter().zip(&exchange.fates) {
            if *provider == DARK && without_price {
                continue;
            }
            let held = self.held(key.family, exchange, provider.id);
            for fate in fates {
                if let Fate::Lost(used) = fate {
                    lost.push(Lost { provider: provider.id, used: used.clone(), held });
                }
                if !fate.moves_on() {
                    let (outcome, used) = ended(exchange.operation, fate, number);
                    return Done { outcome, provider: Some(provider.id), used, held, lost, ..failed };
                }
            }
        }
        Done { lost, ..failed }
    }

    /// Reads the newest record, which later limits are checked against.
    async fn learn(&mut self) {
        let mut newest = self.done.last().expect("an exchange").clone();
        let path = format!("requests/{}", newest.request_id);
        let record = wait::eventually(&path, async || {
            let answer = self.admin.call("GET", &path, Value::Null).await;
            (answer.status == 200).then(|| answer.json())
        })
        .await;
        newest.judge(self.seed, &record, prices_of);
        *self.done.last_mut().expect("an exchange") = newest;
    }
}

/// Returns the outcome of an attempt that ends the exchange, and the usage that its upstream reports.
fn ended(operation: Operation, fate: &Fate, number: u64) -> (&'static str, Option<Used>) {
    match fate {
        Fate::Served(used) => {
            let mut used = used.clone();
            let unit = match operation {
                Operation::Speech => Some(("characters", text(number).chars().count() as u64)),
                Operation::Images => Some(("images", 2)),
                Operation::Videos => Some(("video_ms", 4_000)),
                _ => None,
            };
            used.counts.extend(unit.map(|(name, count)| (name.to_owned(), count)));
            ("completed", Some(used))
        }
        Fate::LeftEarly(used, _) => ("left early", Some(used.clone())),
        Fate::Cut => ("cut", None),
        _ => ("cancelled", None),
    }
}

fn request_id(number: u64) -> String {
    format!("money-{number}")
}

/// Returns the sum of the counts that are tokens.
pub(super) fn tokens(counts: &Counts) -> u64 {
    let units = ["characters", "audio_ms", "video_ms", "images", "searches", "tool_calls"];
    counts.iter().filter(|(name, _)| !units.contains(&name.as_str())).map(|(_, count)| count).sum()
}
