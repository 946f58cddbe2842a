//! Several nodes share budgets in a real PostgreSQL while connections break, answers are lost and nodes are killed.
//!
//! Each seed is one run in a database of its own. `LLMGW_SHARE_SQL_SEEDS=200` runs more of them,
//! `LLMGW_SHARE_SQL_SEED=17` repeats one.

mod cluster;
mod nodes;
mod scenarios;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use postgres_server::installed;

use self::cluster::{Cluster, Figures};

#[expect(clippy::disallowed_methods, reason = "a test that takes its size from the environment")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn nodes_use_budgets_up_and_never_exceed_them_whatever_breaks() {
    if !installed() {
        return;
    }
    if let Some(seed) = number("LLMGW_SHARE_SQL_SEED") {
        println!("{:?}", Cluster::run(seed).unwrap());
        return;
    }
    let seeds = number("LLMGW_SHARE_SQL_SEEDS").unwrap_or(24);
    let (next, figures) = (AtomicU64::new(0), Figures::default());
    let faults: Vec<String> = thread::scope(|scope| {
        let workers = [(); RUNS_AT_ONCE].map(|()| {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return None;
                    }
                    match Cluster::run(seed) {
                        Ok(counts) => figures.add(&counts),
                        Err(fault) => {
                            next.store(seeds, Ordering::Relaxed);
                            return Some(format!("seed {seed}: {fault}"));
                        }
                    }
                }
            })
        });
        workers.map(|worker| worker.join().unwrap()).into_iter().flatten().collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    println!("figure: {seeds} seeds: {figures:?}");
    figures.check(seeds);
}

const RUNS_AT_ONCE: usize = 4;
