//! Converts samples to a table: medians over rounds. Ratios are computed within each round before their median is
//! taken, because a machine drifts more between rounds than within one.

use std::collections::BTreeSet;

use super::proxy::Kind;
use super::scenario::{Sample, Scenario, Unit};

/// The samples of one scenario: for each round, those of each proxy.
pub(crate) type Rounds = Vec<Vec<(Kind, Sample)>>;

/// Prints the table of one scenario.
pub(crate) fn print(scenario: &Scenario, rounds: &Rounds) {
    let unit = match scenario.unit {
        Unit::Request => "req",
        Unit::Chunk => "chunk",
        Unit::Megabyte => "MB",
    };
    println!("\n{}: {} ({} rounds)", scenario.name, scenario.about, rounds.len());
    println!(
        "  {:<18} {:>10} {:>8} {:>8} {:>10} {:>9} {:>10} {:>9} {:>10} {:>7} {:>8} {:>6}",
        "proxy",
        format!("us/{unit}"),
        "x floor",
        "x nginx",
        format!("{unit}/s"),
        "p50 us",
        "p99 us",
        "+p50",
        "+p99",
        "MiB",
        "KiB/str",
        "faults"
    );
    for kind in Kind::all() {
        let samples = of(rounds, kind);
        if samples.is_empty() {
            continue;
        }
        let median = |field: fn(&Sample) -> f64| median(samples.iter().map(|sample| field(sample)).collect());
        let against = |other, field| median_ratio(rounds, kind, other, field);
        let added = |field| median_difference(rounds, kind, Kind::Direct, field);
        println!(
            "  {:<18} {:>10} {:>8} {:>8} {:>10} {:>9} {:>10} {:>9} {:>10} {:>7} {:>8} {:>6}",
            kind.name(),
            shown(median(|sample| sample.cpu_us), 2),
            shown(against(Kind::Floor, |sample| sample.cpu_us), 2),
            shown(against(Kind::Nginx, |sample| sample.cpu_us), 2),
            shown(median(|sample| sample.per_second), 0),
            shown(median(|sample| sample.p50_us), 0),
            shown(median(|sample| sample.p99_us), 0),
            shown(added(|sample| sample.p50_us), 0),
            shown(added(|sample| sample.p99_us), 0),
            shown(median(|sample| sample.resident_mib), 1),
            shown(median(|sample| sample.stream_kib), 1),
            samples.iter().map(|sample| sample.faults).sum::<u64>(),
        );
        print_threads(&samples);
    }
    print_compared(rounds, Kind::Llmgw, Kind::Floor);
    Kind::all().filter(|kind| kind.is_variant()).for_each(|kind| print_compared(rounds, kind, Kind::Llmgw));
    let growth = median_ratio(rounds, Kind::Many, Kind::Few, |sample| sample.cpu_us);
    if growth.is_finite() {
        println!("  many to few: {growth:.2} x CPU");
    }
    for (what, kind, other) in [
        ("project key to administrator's", Kind::Keyed, Kind::Llmgw),
        ("limits to none", Kind::Limited, Kind::Keyed),
    ] {
        let ratio = median_ratio(rounds, kind, other, |sample| sample.cpu_us);
        if ratio.is_finite() {
            println!("  {what}: {ratio:.2} x CPU");
        }
    }
}

/// Prints what a proxy costs, compared with another one.
fn print_compared(rounds: &Rounds, kind: Kind, other: Kind) {
    let compared = |name: &str, field: fn(&Sample) -> f64| {
        let ratios = ratios(rounds, kind, other, field);
        let (least, most) = interval(&ratios)?;
        Some(format!("{:.3} x {name} (95 %: {least:.3} to {most:.3})", median(ratios)))
    };
    let figures = [
        compared("CPU", |sample| sample.cpu_us),
        compared("p50", |sample| sample.p50_us),
        compared("p99", |sample| sample.p99_us),
    ];
    let shown: Vec<String> = figures.into_iter().flatten().collect();
    if !shown.is_empty() {
        println!("  {} to {}: {}", kind.name(), other.name(), shown.join(", "));
    }
}

/// Prints the CPU time per thread of a process with several busy threads.
fn print_threads(samples: &[&Sample]) {
    let names: BTreeSet<&String> = samples.iter().flat_map(|sample| sample.threads_us.keys()).collect();
    let shares: Vec<String> = names
        .into_iter()
        .map(|name| {
            let times = samples.iter().map(|sample| sample.threads_us.get(name).copied().unwrap_or(0.0));
            (name, median(times.collect()))
        })
        .filter(|(_, us)| *us >= 0.01)
        .map(|(name, us)| format!("{name} {us:.2}"))
        .collect();
    if shares.len() > 1 {
        println!("  {:<18} {}", "", shares.join(", "));
    }
}

fn of(rounds: &Rounds, kind: Kind) -> Vec<&Sample> {
    rounds.iter().filter_map(|round| in_round(round, kind)).collect()
}

fn in_round(round: &[(Kind, Sample)], kind: Kind) -> Option<&Sample> {
    round.iter().find(|(other, _)| *other == kind).map(|(_, sample)| sample)
}

fn median_ratio(rounds: &Rounds, kind: Kind, other: Kind, field: fn(&Sample) -> f64) -> f64 {
    median(ratios(rounds, kind, other, field))
}

fn ratios(rounds: &Rounds, kind: Kind, other: Kind, field: fn(&Sample) -> f64) -> Vec<f64> {
    paired(rounds, kind, other, |mine, theirs| field(mine) / field(theirs))
}

fn median_difference(rounds: &Rounds, kind: Kind, other: Kind, field: fn(&Sample) -> f64) -> f64 {
    median(paired(rounds, kind, other, |mine, theirs| field(mine) - field(theirs)))
}

fn paired(rounds: &Rounds, kind: Kind, other: Kind, compare: impl Fn(&Sample, &Sample) -> f64) -> Vec<f64> {
    let pairs = rounds.iter().filter_map(|round| Some((in_round(round, kind)?, in_round(round, other)?)));
    pairs.map(|(mine, theirs)| compare(mine, theirs)).collect()
}

/// Returns the interval that holds the median of what was sampled with a probability of about 95 %: the two values that are
/// 0.98 roots of their number away from the middle (the normal approximation of the sign test).
fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.retain(|value| value.is_finite());
    sorted.sort_by(f64::total_cmp);
    let from_the_end =
        (sorted.len() as f64 / 2.0 - 0.98 * (sorted.len() as f64).sqrt()).floor().max(0.0) as usize;
    Some((*sorted.get(from_the_end)?, *sorted.iter().nth_back(from_the_end)?))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

fn shown(value: f64, decimals: usize) -> String {
    if value.is_finite() && value != 0.0 { format!("{value:.decimals$}") } else { "-".to_owned() }
}
