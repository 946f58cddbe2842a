//! Runs the model for many seeds, or for one with its trace.

use std::sync::atomic::{AtomicU64, Ordering};

use super::world::World;

#[test]
fn shares_hold_their_limits_and_lose_nothing_under_random_faults() {
    #[expect(clippy::disallowed_methods, reason = "a test that takes its size from the environment")]
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LLMGW_SHARE_SEED") {
        let mut world = World::new(seed, true);
        let result = world.run();
        assert!(result.is_ok(), "seed {seed}: {}", result.unwrap_err());
        return;
    }
    let seeds = number("LLMGW_SHARE_SEEDS").unwrap_or(10_000);
    let (next, sums) = (AtomicU64::new(0), [const { AtomicU64::new(0) }; 8]);
    let failed = std::thread::scope(|scope| {
        let workers = [(); 2].map(|()| {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return None;
                    }
                    let mut world = World::new(seed, false);
                    if let Err(fault) = world.run() {
                        next.store(seeds, Ordering::Relaxed);
                        return Some((seed, fault));
                    }
                    for (sum, count) in sums.iter().zip(world.counts) {
                        sum.fetch_add(count, Ordering::Relaxed);
                    }
                }
            })
        });
        workers.map(|worker| worker.join().unwrap()).into_iter().flatten().min()
    });
    if let Some((seed, fault)) = failed {
        let _ = World::new(seed, true).run();
        panic!("seed {seed}: {fault}; the trace is above");
    }
    let [served, refused, transactions, resynchronized, lost, starts, shorts, excused] =
        sums.each_ref().map(|sum| sum.load(Ordering::Relaxed));
    println!(
        "figure: {seeds} seeds: {served} requests served, {refused} refused, {transactions} transactions, {resynchronized} \
         resynchronizations, {lost} assertions, {starts} starts, {shorts} short holds, {excused} shares lost in failovers"
    );
    for (name, count) in [
        ("resynchronizations", resynchronized),
        ("assertions", lost),
        ("starts", starts),
        ("short holds", shorts),
        ("excused", excused),
    ] {
        assert!(count > seeds / 50, "the model hardly tests anything: {count} {name}");
    }
}
