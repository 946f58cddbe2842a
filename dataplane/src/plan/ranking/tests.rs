//! Shares, sessions and loads over many requests. Draws are random: a bound that one of a thousand runs misses is tried again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use shared::access::{Access, Role};
use shared::health::{InFlight, RateLimit, TargetLoad};
use shared::id::{EndpointName, ModelId};
use shared::operation::{Dialect, Operation};
use shared::prices::{Billed, Prices, price};
use shared::routing::{Model, ProviderInstance};
use shared::secret::Secret;
use shared::snapshot::Route;
use shared::usage::{Provenance, TokenCounts, Units};
use wire::request::{Head, HeadScan};

use super::*;
use crate::fixture::{NoOrigins, echo};
use crate::plan::response_affinity::{AffinityParams, ResponseAffinity};
use crate::plan::{Plan, order as plan_order};

/// An endpoint over providers `p0`, `p1`, ... and what a request to it needs.
struct Rig {
    route: Route,
    affinity: ResponseAffinity,
    access: Access,
    head: Box<Head>,
}

/// Weight and tier of a target.
type Member = (u16, u8);

impl Rig {
    fn new(order: TargetOrder, members: &[Member]) -> Self {
        Self::of(order, members, |_, instance| instance)
    }

    fn of(
        order: TargetOrder,
        members: &[Member],
        change: impl Fn(usize, ProviderInstance) -> ProviderInstance,
    ) -> Self {
        let provider = |place: usize| change(place, echo(&format!("p{place}"), Default::default()));
        let targets: Vec<_> =
            (0..members.len()).map(|place| crate::fixture::target(&Arc::new(provider(place)))).collect();
        let share =
            |(weight, tier): &Member| Share { tier: *tier, weight: *weight, load: Some(Arc::default()) };
        let balance = Balance { order, sticky: true, shares: members.iter().map(share).collect() };
        let endpoint = Endpoint::new(EndpointName::new("line"), targets);
        let affinity = AffinityParams {
            table_key: Secret::new([1; 32]),
            state_key: Secret::new([1; 32]),
            origins: Arc::new(NoOrigins),
        };
        Self {
            route: Route::Endpoint(Arc::new(Endpoint { balance: Some(Box::new(balance)), ..endpoint })),
            affinity: ResponseAffinity::new(affinity),
            access: Access::new("key", Role::Administrator),
            head: head(r#"{"model":"line","max_tokens":500,"messages":[{"role":"user","content":"hello"}]}"#),
        }
    }

    fn needs<'a>(&'a self, affinity_key: Option<&'a str>, session: Option<&'a str>) -> Needs<'a> {
        Needs {
            dialect: Dialect::Chat,
            single: false,
            vision: false,
            tools: false,
            affinity_key,
            session,
            reference: StateReference::Nothing,
            response_affinity: &self.affinity,
            demand: Demand { head: &self.head, output_default: 1_000, stored: None },
            access: &self.access,
        }
    }

    fn plan(&self, affinity_key: Option<&str>, session: Option<&str>) -> Plan<'_> {
        plan_order(&self.route, self.needs(affinity_key, session), &mut |_, _| {}).unwrap()
    }

    /// Returns the places of the targets in the order of the attempts.
    fn places(&self, session: Option<&str>) -> Vec<usize> {
        self.plan(None, session).candidates.into_iter().map(place).collect()
    }

    /// Orders the targets at a time of the loads, and returns the place of the first.
    fn first_at(&self, now_ms: u64) -> usize {
        let balanced = self.route.balanced().unwrap();
        let mut candidates: Vec<&Target> = self.route.targets().iter().collect();
        rank_at(&mut candidates, balanced, &self.needs(None, None), now_ms);
        place(candidates[0])
    }

    /// Remembers that `target` served the session, as an attempt does.
    fn serve(&self, choice: Option<Choice>, target: &Target) {
        if let Some(session) = choice.unwrap().session {
            self.affinity.note_session(session, target);
        }
    }

    /// Serves one turn of a session at its first target, and returns the place of that.
    fn turn(&self, session: &str) -> (usize, ChosenBy) {
        let Plan { candidates, choice } = self.plan(None, Some(session));
        let first = candidates.iter().find(|target| !is_resting(target)).unwrap();
        self.serve(choice, first);
        (place(first), choice.unwrap().recorded.chosen_by)
    }

    fn load(&self, place: usize) -> &Arc<TargetLoad> {
        self.route.balanced().unwrap().1.shares[place].load.as_ref().unwrap()
    }

    /// Lets the model of a target rest.
    fn rest(&self, place: usize, wait: Duration) {
        let Target { provider, model } = &self.route.targets()[place];
        let limit = RateLimit { wait: Some(wait), status: Some(429), at_ms: 0 };
        provider.circuits.rests().limit(&model.id, limit, monotonic_ms(), (Duration::from_secs(600), 0.0));
    }
}

fn is_resting(target: &Target) -> bool {
    target.provider.circuits.rests().of(&target.model.id, monotonic_ms).is_some()
}

fn place(target: &Target) -> usize {
    target.provider.id.as_str()[1..].parse().unwrap()
}

fn head(body: &str) -> Box<Head> {
    let mut scan = HeadScan::new(Dialect::Chat);
    scan.push(body.as_bytes()).unwrap();
    Box::new(scan.finish().unwrap())
}

/// Returns true if `hits` of `draws` lie within the 99.9 % interval of the probability.
fn fits(hits: usize, draws: usize, probability: f64) -> bool {
    let (hits, draws) = (hits as f64, draws as f64);
    (hits - draws * probability).abs() <= 3.291 * (draws * probability * (1.0 - probability)).sqrt()
}

/// True if one of three runs holds: an interval of 99.9 % misses once in a thousand, and all three once in 10^9.
fn mostly(run: impl Fn() -> bool) -> bool {
    (0..3).any(|_| run())
}

#[test]
fn shares_of_100_000_draws_are_in_proportion_to_the_weights() {
    let rig = Rig::new(TargetOrder::Weighted, &[(3, 1), (1, 1)]);
    let hits = || (0..100_000).filter(|_| rig.places(None)[0] == 0).count();
    assert!(mostly(|| fits(hits(), 100_000, 0.75)));
}

#[test]
fn what_is_left_is_drawn_in_proportion_to_its_weights() {
    let rig = Rig::new(TargetOrder::Weighted, &[(5, 1), (3, 1), (2, 1)]);
    let run = || {
        let orders: Vec<_> = (0..50_000).map(|_| rig.places(None)).filter(|order| order[0] == 0).collect();
        fits(orders.iter().filter(|order| order[1] == 1).count(), orders.len(), 0.6)
    };
    assert!(mostly(run));
}

#[test]
fn tiers_come_in_order_and_a_draining_target_last_in_its_tier() {
    for order in [TargetOrder::Weighted, TargetOrder::LeastBusy, TargetOrder::Fastest, TargetOrder::Cheapest]
    {
        let rig = Rig::new(order, &[(0, 1), (1, 2), (1, 1), (0, 2), (1, 1)]);
        for _ in 0..200 {
            let places = rig.places(None);
            let mut first = places[..2].to_vec();
            first.sort_unstable();
            assert_eq!((first, &places[2..]), (vec![2, 4], &[0, 1, 3][..]), "{order:?}");
        }
    }
}

#[test]
fn ten_thousand_weighted_sessions_of_twenty_turns_stay_where_they_are() {
    let members = [(3, 1), (1, 1), (2, 1), (2, 1)];
    let rig = Rig::new(TargetOrder::Weighted, &members);
    let names: Vec<String> = (0..10_000).map(|session| format!("session-{session}")).collect();
    let homes: Vec<usize> = names.iter().map(|name| rig.turn(name).0).collect();
    for _ in 1..20 {
        for (name, home) in names.iter().zip(&homes) {
            assert_eq!(rig.turn(name), (*home, ChosenBy::Session), "{name}");
        }
    }
    for (place, (weight, _)) in members.iter().enumerate() {
        let own = homes.iter().filter(|home| **home == place).count();
        // Hashes are no draws: the bound is wider than the interval of 99.9 %.
        let want = 10_000.0 * f64::from(*weight) / 8.0;
        assert!((own as f64 - want).abs() < 0.08 * want, "{own} of {want} at {place}");
    }
    // A removed target moves only its own sessions, and those in proportion to the weights that are left.
    rig.rest(2, Duration::from_secs(60));
    for (name, home) in names.iter().zip(&homes) {
        let (now, _) = rig.turn(name);
        assert!(now == *home || *home == 2, "{name} moved from {home} to {now}");
    }
}

#[test]
fn a_session_of_a_measured_order_moves_only_with_a_failure_and_then_stays() {
    for order in [TargetOrder::LeastBusy, TargetOrder::Fastest, TargetOrder::Cheapest] {
        let rig = Rig::new(order, &[(1, 1), (1, 1), (1, 1), (1, 2)]);
        let names: Vec<String> = (0..10_000).map(|session| format!("session-{session}")).collect();
        let homes: Vec<_> = names.iter().map(|name| rig.turn(name)).collect();
        assert!(homes.iter().all(|(_, by)| *by == ChosenBy::Order));
        for turn in 1..20 {
            let _busy: Vec<InFlight> = (0..turn).map(|_| rig.load(turn % 3).begin()).collect();
            for (name, (home, _)) in names.iter().zip(&homes) {
                assert_eq!(rig.turn(name), (*home, ChosenBy::Session), "{name}");
            }
        }
        rig.rest(0, Duration::from_millis(300));
        let moved: HashMap<&String, usize> = names.iter().map(|name| (name, rig.turn(name).0)).collect();
        for (name, (home, _)) in names.iter().zip(&homes) {
            assert!(moved[name] == *home || (*home == 0 && moved[name] != 0), "{order:?} {name}");
        }
        while is_resting(&rig.route.targets()[0]) {
            std::thread::yield_now();
        }
        // Its prompt cache is at the new target now.
        for name in &names {
            assert_eq!(rig.turn(name), (moved[name], ChosenBy::Session), "{order:?} {name}");
        }
    }
}

#[test]
fn an_affinity_key_comes_before_the_session_and_state_before_both() {
    let rig = Rig::new(TargetOrder::Weighted, &[(1, 1), (1, 1), (1, 1)]);
    let first = |key: Option<&str>, session: Option<&str>| {
        let plan = rig.plan(key, session);
        (place(plan.candidates[0]), plan.choice.unwrap().recorded.chosen_by)
    };
    for number in 0..50 {
        let key = format!("key-{number}");
        assert_eq!(first(Some(&key), Some("session")), (first(None, Some(&key)).0, ChosenBy::Affinity));
    }
    let account = rig.affinity.account(&rig.route.targets()[1]);
    let needs = Needs { reference: StateReference::At(account), ..rig.needs(Some("key"), Some("session")) };
    let plan = plan_order(&rig.route, needs, &mut |_, _| {}).unwrap();
    let choice = plan.choice.unwrap().recorded.chosen_by;
    assert_eq!((plan.candidates.len(), place(plan.candidates[0]), choice), (1, 1, ChosenBy::State));
}

#[test]
fn without_sticky_only_an_explicit_key_holds_a_session() {
    let mut rig = Rig::new(TargetOrder::LeastBusy, &[(1, 1), (1, 1)]);
    let Route::Endpoint(endpoint) = &mut rig.route else { panic!("an endpoint") };
    Arc::get_mut(endpoint).unwrap().balance.as_mut().unwrap().sticky = false;
    let (home, _) = rig.turn("s");
    let _busy = rig.load(home).begin();
    assert_eq!(rig.turn("s"), (1 - home, ChosenBy::Order));
    let plan = rig.plan(Some("k"), None);
    rig.serve(plan.choice, plan.candidates[1]);
    let second = place(plan.candidates[1]);
    let again = rig.plan(Some("k"), None);
    assert_eq!(
        (place(again.candidates[0]), again.choice.unwrap().recorded.chosen_by),
        (second, ChosenBy::Affinity)
    );
}

#[test]
fn a_listed_endpoint_with_sticky_keeps_sessions_at_the_target_of_a_failover() {
    let rig = Rig::new(TargetOrder::Listed, &[(1, 1), (1, 1), (1, 1)]);
    assert_eq!((rig.places(None), rig.turn("s")), (vec![0, 1, 2], (0, ChosenBy::Order)));
    rig.rest(0, Duration::from_millis(100));
    assert_eq!(rig.turn("s"), (1, ChosenBy::Order));
    while is_resting(&rig.route.targets()[0]) {
        std::thread::yield_now();
    }
    assert_eq!((rig.turn("s"), rig.turn("t").0), ((1, ChosenBy::Session), 0));
    // An explicit key rotates the list as before.
    for key in 0..100 {
        let candidates = rig.plan(Some(&format!("{key}")), None).candidates;
        let places: Vec<_> = candidates.into_iter().map(place).collect();
        assert!([[0, 1, 2], [1, 2, 0], [2, 0, 1]].iter().any(|wrapped| places == wrapped), "{places:?}");
    }
}

#[test]
fn the_least_busy_target_for_its_weight_comes_first_and_ties_fall_by_weight() {
    let rig = Rig::new(TargetOrder::LeastBusy, &[(4, 1), (1, 1), (1, 1)]);
    let _busy: Vec<InFlight> = [0, 0, 1, 2, 2].map(|place| rig.load(place).begin()).into();
    assert_eq!(rig.places(None), [0, 1, 2]);
    let _more: Vec<InFlight> = (0..10).map(|_| rig.load(0).begin()).collect();
    assert_eq!(rig.places(None), [1, 2, 0]);
    let idle = Rig::new(TargetOrder::LeastBusy, &[(3, 1), (1, 1)]);
    let hits = || (0..20_000).filter(|_| idle.places(None)[0] == 0).count();
    assert!(mostly(|| fits(hits(), 20_000, 0.75)));
}

/// Twelve clients that ask again when they are answered, at four targets that answer in 100 ms. The first one answers in a
/// second until `RECOVERY_MS`. Returns its share of the requests before, and from half a minute after.
fn slow_shares(order: TargetOrder) -> (f64, f64) {
    let rig = Rig::new(order, &[(1, 1); 4]);
    let mut ends: BinaryHeap<Reverse<(u64, u64)>> =
        (0..12).map(|client| Reverse((client * 7, client))).collect();
    let mut running: HashMap<u64, (InFlight, u64)> = HashMap::new();
    let mut requests = [[0_u32; 2]; 2];
    while let Some(Reverse((now_ms, client))) = ends.pop() {
        if let Some((attempt, took_ms)) = running.remove(&client) {
            attempt.first_content(took_ms * 1_000, now_ms);
        }
        if now_ms > RECOVERY_MS + 60_000 {
            continue;
        }
        let first = rig.first_at(now_ms);
        let took_ms = if first == 0 && now_ms < RECOVERY_MS { 1_000 } else { 100 };
        running.insert(client, (rig.load(first).begin(), took_ms));
        ends.push(Reverse((now_ms + took_ms, client)));
        let period = match now_ms {
            ..RECOVERY_MS => Some(0),
            now_ms if now_ms >= RECOVERY_MS + 30_000 => Some(1),
            _ => None,
        };
        if let Some(period) = period {
            requests[period][usize::from(first == 0)] += 1;
        }
    }
    assert!((0..4).all(|place| rig.load(place).in_flight() == 0), "nothing is in flight");
    let [before, after] = requests.map(|[others, slow]| f64::from(slow) / f64::from(others + slow));
    (before, after)
}

const RECOVERY_MS: u64 = 60_000;

#[test]
fn a_slow_target_gets_under_a_fifth_of_an_equal_share_and_its_share_back_after_half_a_minute() {
    for order in [TargetOrder::LeastBusy, TargetOrder::Fastest] {
        let (before, after) = slow_shares(order);
        assert!(before < 0.05 && after > 0.2, "{order:?}: {before} before, {after} after");
    }
}

#[test]
fn of_two_drawn_targets_the_faster_comes_first_and_a_failure_is_slow() {
    let rig = Rig::new(TargetOrder::Fastest, &[(1, 1), (1, 1)]);
    rig.load(0).begin().first_content(200_000, 1_000);
    rig.load(1).begin().first_content(100_000, 1_000);
    assert_eq!(rig.first_at(1_000), 1);
    let _two = [rig.load(1).begin(), rig.load(1).begin()];
    assert_eq!(rig.first_at(1_000), 0, "attempts in flight count");
    rig.load(0).begin().failed(1, 1_100);
    assert_eq!(rig.first_at(1_100), 1);
    // Without a sample, the best time of the others counts.
    let unknown = Rig::new(TargetOrder::Fastest, &[(1, 1), (1, 1)]);
    unknown.load(0).begin().first_content(100_000, 1_000);
    let _busy = unknown.load(0).begin();
    assert_eq!(unknown.first_at(1_000), 1);
}

fn priced(prices: Option<serde_json::Value>) -> impl Fn(usize, ProviderInstance) -> ProviderInstance {
    move |place, instance| {
        let prices: Option<Prices> =
            prices.as_ref().and_then(|all| serde_json::from_value(all[place].clone()).ok());
        let model = Model { prices, ..Model::bare(ModelId::new("m")) };
        ProviderInstance { models: vec![Arc::new(model)], ..instance }
    }
}

#[test]
fn the_cheapest_order_is_that_of_the_bills() {
    let long = "word ".repeat(150_000);
    let bodies = [
        r#"{"model":"line","max_tokens":500,"messages":[{"role":"user","content":"hello"}]}"#.to_owned(),
        format!(r#"{{"model":"line","max_tokens":90000,"messages":[{{"role":"user","content":"{long}"}}]}}"#),
    ];
    let prices = serde_json::json!([
        {"input": 3, "output": 1},
        {"input": 1, "output": 20},
        null,
        {"input": 2, "output": 4, "above": [{"input_tokens": 50_000, "input": 9, "output": 9}]},
        {"input": 0.1, "cached_input": 0.01, "output": 30},
        {"input": 0, "output": 0},
    ]);
    let mut seen = Vec::new();
    for body in bodies {
        let rig = Rig::of(TargetOrder::Cheapest, &[(1, 1); 6], priced(Some(prices.clone())));
        let rig = Rig { head: head(&body), ..rig };
        let demand = rig.needs(None, None).demand;
        let bill = |target: &Target| {
            let input = rig.head.input.likely(target.model.id.as_str()).text;
            let tokens =
                TokenCounts { input, output: rig.head.max_output_tokens.unwrap(), ..TokenCounts::ZERO };
            let billed = Billed {
                operation: Operation::ChatCompletions,
                provenance: Provenance::Reported,
                tokens: &tokens,
                units: &Units::ZERO,
                tier: None,
                picture: None,
                vendor_cost: None,
            };
            price(&billed, target.model.prices.as_ref()).cost
        };
        let targets = rig.route.targets();
        for target in targets {
            assert_eq!(demand.probable_cost(target), bill(target), "{}", target.provider.id);
        }
        let mut want: Vec<usize> = (0..targets.len()).collect();
        want.sort_by_key(|place| (bill(&targets[*place]).is_none(), bill(&targets[*place])));
        assert_eq!(rig.places(None), want);
        assert_eq!(want.last(), Some(&2), "an unknown price comes last");
        seen.push(want);
    }
    assert_ne!(seen[0], seen[1], "the order depends on the request");
}

/// Whatever the endpoint: the order is a permutation by tier, those of weight 0 are last in their tier, and what depends on no
/// draw is the same each time.
#[test]
fn an_order_keeps_its_tiers() {
    let below = |end: u16| (random_fraction() * f64::from(end)).min(f64::from(end) - 0.5) as u16;
    for _ in 0..2_000 {
        let members: Vec<Member> = (0..=below(11)).map(|_| (below(4), 1 + below(3) as u8)).collect();
        let order = TargetOrder::ALL[1 + usize::from(below(4))];
        let session = Some("session").filter(|_| below(2) == 0);
        let rig = Rig::new(order, &members);
        let places = rig.places(session);
        let mut all = places.clone();
        all.sort_unstable();
        assert_eq!(all, (0..members.len()).collect::<Vec<_>>());
        let group = |place: &usize| (members[*place].1, members[*place].0 == 0);
        assert!(places.is_sorted_by_key(group), "{order:?} of {members:?}: {places:?}");
        if order == TargetOrder::Cheapest || (order == TargetOrder::Weighted && session.is_some()) {
            assert_eq!(places, rig.places(session), "{order:?} of {members:?}");
        }
        let candidates = rig.plan(None, None).candidates;
        let (of, demand) = (rig.route.balanced().unwrap(), rig.needs(None, None).demand);
        for (target, (weight, tier)) in rig.route.targets().iter().zip(&members) {
            let shown = ShownShare::of(target, &candidates, of, demand).unwrap();
            assert_eq!((shown.weight, shown.tier), (*weight, *tier));
            assert!(shown.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
}
