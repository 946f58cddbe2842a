//! What a sequence must have come to: its records, their sums and its limits against the plan.

use serde_json::Value;

use super::exact::{self, Counts};
use super::sequence::{Done, Sequence};
use crate::support::admin::Admin;
use crate::support::wait;

/// What the record of an exchange says.
#[derive(Clone, Default)]
pub(super) struct Stored {
    pub(super) counts: Counts,
    pub(super) cost: Option<u64>,
    /// The counts and the costs of failed attempts.
    lost: Vec<(Counts, Option<u64>)>,
}

impl Stored {
    /// What it counts for in a limit; money in nano-dollars.
    pub(super) fn amount(&self, metric: &str, outcome: &str) -> u64 {
        let lost = self.lost.iter();
        match metric {
            "requests" => u64::from(outcome != "failed"),
            "total_tokens" => {
                let counts = lost.map(|(counts, _)| counts).chain([&self.counts]);
                counts.map(|counts| tokens(counts).values().sum::<u64>()).sum()
            }
            _ => lost.filter_map(|(_, cost)| *cost).chain(self.cost).sum(),
        }
    }
}

impl Sequence {
    /// Compares a record with what must be in it.
    pub(super) fn judge(&self, done: &Done, record: &Value) -> Stored {
        let about = format!("seed {}: {} {record}", self.seed, done.request_id);
        match done.outcome {
            // The end may be noticed before the client's leaving.
            "left early" => {
                assert!(["completed", "cancelled"].contains(&record["outcome"].as_str().unwrap()))
            }
            outcome => assert_eq!(record["outcome"], outcome, "{about}"),
        }
        assert_eq!(record["key"], done.key.as_str(), "{about}");
        let counts = counts_of(record);
        match &done.counts {
            // The tokens of sound and pictures are estimated; the units are exact.
            Some(planned) if done.is_media => assert_eq!(units(&counts), *planned, "{about}"),
            Some(planned) => assert_eq!(&counts, planned, "{about}"),
            None => assert_eq!(record["provenance"], "estimated", "{about}"),
        }
        if let Some(provider) = done.provider {
            assert_eq!(record["provider"], provider, "{about}");
        }
        let prices = done.provider.map(|provider| &self.prices[provider]);
        let cost = match done.outcome {
            // Under a limit on cost its reservation counts as used.
            "interrupted" if self.bounds_cost(done.family) => nano(&record["cost_micro_usd"]),
            _ => prices.map_or(Some(0), |prices| exact::cost(&counts, prices)),
        };
        assert_eq!(nano(&record["cost_micro_usd"]), cost, "{about}");
        Stored { counts, cost, lost: self.judge_lost(done, record) }
    }

    /// Compares what a record says of failed attempts.
    fn judge_lost(&self, done: &Done, record: &Value) -> Vec<(Counts, Option<u64>)> {
        let about = format!("seed {}: {} {record}", self.seed, done.request_id);
        let priced = |(provider, counts): &(&str, Counts)| {
            (counts.clone(), exact::cost(counts, &self.prices[provider]))
        };
        let lost: Vec<(Counts, Option<u64>)> = done.lost.iter().map(priced).collect();
        let known: u64 = lost.iter().filter_map(|(_, cost)| *cost).sum();
        assert_eq!(nano(&record["lost_micro_usd"]), Some(known), "{about}");
        if let Some(trace) = record["trace"].as_array() {
            let shown = trace.iter().map(|step| &step["lost"]).filter(|lost| !lost.is_null());
            let shown: Vec<_> = shown.map(|lost| (counts_of(lost), nano(&lost["cost_micro_usd"]))).collect();
            assert_eq!(shown, lost, "{about}");
        }
        lost
    }

    /// Compares records, sums and limits with what they must be.
    pub(super) async fn check(&self, admin: &Admin) {
        let path = format!("requests?project={}&limit=500", self.project);
        let records = wait::eventually(&path, async || {
            let list = admin.done("GET", &path, Value::Null).await["data"].as_array().unwrap().clone();
            (list.len() == self.done.len()).then_some(list)
        })
        .await;
        let mut stored = Vec::new();
        for done in &self.done {
            let record = records.iter().find(|record| record["request_id"] == done.request_id.as_str());
            stored.push(self.judge(done, record.expect("a record")));
        }
        self.check_sums(admin, &stored).await;
        for limit in &self.limits {
            let shown = admin.done("GET", &format!("quotas/{}", limit.id), Value::Null).await;
            let mine = self.done.iter().zip(&stored);
            let mine = mine.filter(|(done, _)| limit.family.is_none_or(|family| family == done.family));
            let used: u64 = mine.map(|(done, stored)| stored.amount(limit.metric, done.outcome)).sum();
            let used = if limit.metric == "cost_micro_usd" { used.div_ceil(1_000) } else { used };
            assert_eq!(shown["used"], used, "seed {}: {shown}", self.seed);
            assert_eq!(shown["reserved"], 0, "seed {}: {shown}", self.seed);
        }
    }

    async fn check_sums(&self, admin: &Admin, stored: &[Stored]) {
        let usage = admin.done("GET", &format!("usage?project={}", self.project), Value::Null).await;
        let totals = &usage["totals"];
        let about = format!("seed {}: {totals}", self.seed);
        assert_eq!(totals["requests"], self.done.len(), "{about}");
        let lost: Vec<_> = stored.iter().flat_map(|stored| &stored.lost).collect();
        let costs = stored.iter().map(|stored| stored.cost).chain(lost.iter().map(|(_, cost)| *cost));
        assert_eq!(totals["requests_unpriced"], costs.clone().filter(Option::is_none).count(), "{about}");
        assert_eq!(nano(&totals["cost_micro_usd"]), Some(costs.flatten().sum()), "{about}");
        let known = lost.iter().filter_map(|(_, cost)| *cost).sum();
        assert_eq!(nano(&totals["lost_micro_usd"]), Some(known), "{about}");
        for part in ["tokens", "units"] {
            for (name, sum) in totals[part].as_object().unwrap().iter().filter(|(name, _)| *name != "total") {
                let counts =
                    stored.iter().map(|stored| &stored.counts).chain(lost.iter().map(|(counts, _)| counts));
                let want: u64 = counts.filter_map(|counts| counts.get(name)).sum();
                assert_eq!(sum, want, "{name}, {about}");
            }
        }
    }
}

/// The counts of a record, or of a failed attempt in it, that are not zero.
fn counts_of(shown: &Value) -> Counts {
    let parts = ["tokens", "units"].into_iter().flat_map(|part| shown[part].as_object().unwrap());
    let counts = parts.map(|(name, count)| (name.clone(), count.as_u64().unwrap()));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// The counts that are tokens.
fn tokens(counts: &Counts) -> Counts {
    counts
        .iter()
        .filter(|(name, _)| !UNITS.contains(&name.as_str()))
        .map(|(name, n)| (name.clone(), *n))
        .collect()
}

/// The counts that are not tokens.
fn units(counts: &Counts) -> Counts {
    counts
        .iter()
        .filter(|(name, _)| UNITS.contains(&name.as_str()))
        .map(|(name, n)| (name.clone(), *n))
        .collect()
}

const UNITS: [&str; 6] = ["characters", "audio_ms", "video_ms", "images", "searches", "tool_calls"];

/// Micro-dollars with three decimals in nano-dollars.
fn nano(micro: &Value) -> Option<u64> {
    let text = micro.as_number()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    Some(format!("{whole}{part:0<3}").parse().unwrap())
}
