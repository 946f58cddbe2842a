//! One round: callers and changes, a fault meanwhile, and the checks when everything works again.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::callers::{Callers, Subject};
use super::changes::Changes;
use super::checks::{self, Round};
use super::fault::{Fault, Standby, strike};
use super::rig::{NODES, Rig};
use crate::support::admin::Admin;
use crate::support::random::Random;
use crate::support::wait;

/// The counts of the rounds of a row.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) rounds: u64,
    pub(super) served: u64,
    pub(super) refused: u64,
    pub(super) unavailable: u64,
    pub(super) published: u64,
    pub(super) silent: u64,
    pub(super) raised: u64,
    pub(super) looks: u64,
    /// Changes that were answered, and that the server lost with its last commits.
    pub(super) lost: u64,
    /// The longest time from the end of a fault until a budget was used up.
    pub(super) used_up: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, served, refused, unavailable, published, silent, raised, looks, lost, used_up } =
            self;
        write!(
            f,
            "{rounds} rounds, {served} served, {refused} refused, {unavailable} unavailable, {published} revocations published \
             ({silent} with silent nodes), {raised} changes with If-Match, {looks} looks at shares, {lost} changes lost with the server, used up within {used_up:.1?}"
        )
    }
}

/// Runs a round.
pub(super) async fn run(rig: &mut Rig, fault: Fault, seed: u64, figures: &mut Figures) {
    let mut random = Random::of(seed);
    let victim = usize::try_from(random.between(0, NODES as u64)).unwrap();
    let admin = rig.admin(0);
    let budget = subject(&admin, "budget", seed, Some(("month", random.between(20, 120)))).await;
    let minute = subject(&admin, "minute", seed, Some(("minute", random.between(10, 40)))).await;
    let free = subject(&admin, "free", seed, None).await;
    let doomed = subject(&admin, "doomed", seed, None).await;
    let counter = admin.key(serde_json::json!({"project": free.project})).await.id;
    admin.done("PATCH", &format!("keys/{counter}"), serde_json::json!({"name": "0"})).await;

    let standby = Standby::start(fault, rig);
    let subjects = [(&budget, 2), (&minute, 1), (&free, 1), (&doomed, 1)];
    let subjects = subjects.map(|(subject, each)| (Arc::clone(subject), each));
    let callers = Callers::start(rig, &subjects, &mut random);
    let mut changes = || Changes { addresses: rig.addresses.clone(), random: random.part() };
    let revoked = tokio::spawn(changes().revoke(doomed.key_id.clone()));
    let created = tokio::spawn(changes().create_keys(free.project.clone(), seed));
    let raised = tokio::spawn(changes().raise(counter.clone()));
    random.pause_ms(100, 500).await;
    let numbers = (0..NODES).map(|at| rig.number(at)).collect();
    strike((fault, standby), rig, victim, &mut random).await;

    let ended = Instant::now();
    checks::all_ready(rig).await;
    let (revoked, created, raised) = (revoked.await.unwrap(), created.await.unwrap(), raised.await.unwrap());
    let looks = checks::look_at_shares(rig, fault).await;
    if !fault.loses_shares() {
        used_up(rig, &budget, seed).await;
    }
    figures.used_up = figures.used_up.max(ended.elapsed());
    let seen = callers.stop().await;
    let round = Round {
        fault,
        seed,
        victim,
        numbers,
        ended,
        subjects: [budget, minute, free, doomed],
        seen,
        revoked,
        created,
        raised,
        counter,
    };
    figures.lost += checks::all(rig, &round).await;

    let count = |status| round.seen.iter().filter(|seen| seen.status == status).count() as u64;
    figures.rounds += 1;
    figures.served += count(200);
    figures.refused += count(429);
    figures.unavailable += count(503);
    figures.published += u64::from(round.revoked.published);
    figures.silent += u64::from(!round.revoked.silent.is_empty());
    figures.raised += round.raised.surely.len() as u64;
    figures.looks += looks;
}

async fn subject(admin: &Admin, kind: &str, seed: u64, limit: Option<(&str, u64)>) -> Arc<Subject> {
    Arc::new(Subject::create(admin, format!("{kind}-{seed}"), limit).await)
}

/// Waits until the callers have used the budget up. A request that was admitted when its node was killed may not have been
/// sent: it counts as used.
async fn used_up(rig: &Rig, budget: &Subject, seed: u64) {
    let limit = budget.limit.unwrap();
    wait::eventually_within(
        USE_UP_TIME_MAX,
        &format!("seed {seed}: the budget of {limit} to be used up"),
        async || (rig.arrived.of(&budget.user) + UNSENT_MAX >= limit).then_some(()),
    )
    .await;
}

/// The requests of the budget that run at one node.
const UNSENT_MAX: u64 = 2;
/// A bound for unknown outcomes, which take some seconds to decide, however busy the machine is.
const USE_UP_TIME_MAX: Duration = Duration::from_secs(180);
