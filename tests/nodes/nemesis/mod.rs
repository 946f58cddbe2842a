//! Three gateways on one PostgreSQL, which fail in rounds that depend on a seed. After each round, what upstreams and callers saw
//! is compared with what the database says: hard limits are never exceeded and can be used up, each completed answer has one
//! record, a revoked key is refused, and changes happen once and in one order.
//!
//! `.ci/run nemesis` runs 12 rounds of each row, and prints what they did. To run some by hand:
//! `cargo test --test main nodes::nemesis -- --ignored --nocapture --test-threads=1`. `LLMGW_NEMESIS_ROUNDS=500` runs more rounds,
//! `LLMGW_NEMESIS_FIRST=37` starts with another seed.

mod callers;
mod changes;
mod checks;
mod fault;
mod rig;
mod round;

use postgres_server::installed;

use crate::support::figure::figure;
use fault::Fault;
use rig::Rig;
use round::Figures;

/// Runs the rounds of a row of the table, each with its seed, on the same nodes.
async fn rounds(fault: Fault) {
    if !installed() {
        return;
    }
    let first = number("LLMGW_NEMESIS_FIRST").unwrap_or(1);
    let seeds = first..first + number("LLMGW_NEMESIS_ROUNDS").unwrap_or(ROUNDS);
    let (mut rig, mut figures) = (Rig::start().await, Figures::default());
    for seed in seeds {
        round::run(&mut rig, fault, seed, &mut figures).await;
    }
    let verified = rig.nodes[0].setup().output_of(&["audit", "verify"], 0).await;
    assert!(verified.contains("the audit log is intact"), "{verified}");
    figure(&format!("nemesis {fault:?}"), figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_nodes_are_killed() {
    rounds(Fault::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_nodes_are_paused() {
    rounds(Fault::Pause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_nodes_lose_their_disk() {
    rounds(Fault::LoseDisk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_copies_of_nodes_are_started() {
    rounds(Fault::StartCopy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_clocks_are_wrong() {
    rounds(Fault::SetClock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_nodes_are_cut_off() {
    rounds(Fault::CutOff).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_answers_to_commits_are_lost() {
    rounds(Fault::LoseCommits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_postgresql_is_killed() {
    rounds(Fault::KillServer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_a_synchronous_standby_takes_over() {
    rounds(Fault::Promote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine of its own"]
async fn promises_hold_while_a_standby_takes_over_that_lacks_commits() {
    rounds(Fault::PromoteBehind).await;
}

/// The rounds of each row unless the environment says otherwise.
const ROUNDS: u64 = 3;

#[expect(clippy::disallowed_methods, reason = "a test's own switch, no setting of the gateway")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
