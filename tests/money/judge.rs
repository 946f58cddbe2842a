//! Checks the result of a sequence: compares its records, their sums and its limits with the plan.

use serde_json::Value;

use super::exact::{Bill, Counts, Source, Used, bill};
use super::prices_of;
use super::sequence::{Done, Sequence, tokens};
use crate::support::admin::Admin;
use crate::support::wait;

/// The result of one attempt.
#[derive(Clone)]
pub(super) struct Part {
    /// Empty if no target was tried.
    pub(super) provider: &'static str,
    used: Used,
    source: Source,
    /// In nano-dollars; `None` while it is unknown.
    pub(super) cost: Option<u64>,
    /// The amount that it adds to limits on cost while its cost is unknown.
    pub(super) counts_as: u64,
}

impl Part {
    fn new(
        provider: &'static str,
        used: Used,
        source: Source,
        (prices, held): (&Value, Option<u64>),
    ) -> Self {
        let Bill { cost, known } = bill(&used, source, prices);
        let counts_as = held.map_or(0, |held| held.max(known));
        Self { provider, used, source, cost, counts_as }
    }

    pub(super) fn tokens(&self) -> u64 {
        tokens(&self.used.counts)
    }

    pub(super) fn reprice(&mut self, prices: &Value) {
        self.cost = bill(&self.used, self.source, prices).cost.or(self.cost);
    }
}

impl Done {
    /// Compares a record with its expected content. Counts that the gateway estimates are taken from the first record.
    pub(super) fn judge(&mut self, seed: u64, record: &Value, prices: impl Fn(&str) -> Value) {
        let about = format!("seed {seed}: {} {record}", self.request_id);
        match self.outcome {
            // The gateway may notice the end of the response before the client's disconnect.
            "left early" => {
                assert!(["completed", "cancelled"].contains(&record["outcome"].as_str().unwrap()))
            }
            outcome => assert_eq!(record["outcome"], outcome, "{about}"),
        }
        assert_eq!(record["key"], self.key.as_str(), "{about}");
        let counts = counts_of(record);
        match &self.used {
            // The tokens of sound and pictures are estimated; the units are exact.
            Some(planned) if self.operation.is_media() => {
                assert_eq!(units(&counts), planned.counts, "{about}")
            }
            Some(planned) => assert_eq!(counts, planned.counts, "{about}"),
            None => assert_eq!(record["provenance"], "estimated", "{about}"),
        }
        let reported = self.used.clone().unwrap_or_default();
        assert_eq!(record["tier"].as_str(), reported.tier, "{about}");
        assert_eq!(nano(&record["vendor_cost_micro_usd"]), reported.vendor_cost, "{about}");
        if let Some(provider) = self.provider {
            assert_eq!(record["provider"], provider, "{about}");
        }
        if self.parts.is_empty() {
            self.parts = self.first_parts(record, Used { counts, ..reported }, prices);
        } else {
            assert_eq!(counts, self.parts[0].used.counts, "{about}");
        }
        assert_eq!(nano(&record["cost_micro_usd"]), self.parts[0].cost, "{about}");
        self.judge_lost(record, &about);
    }

    /// Returns the attempt that served and the failed ones, at the prices of their time.
    fn first_parts(&self, record: &Value, used: Used, prices: impl Fn(&str) -> Value) -> Vec<Part> {
        let source = match record["provenance"].as_str() {
            Some("none") => Source::Nothing,
            Some("reported") => Source::Reported,
            _ if self.operation.is_media() => Source::EstimatedMedia,
            _ => Source::Reported,
        };
        let provider = self.provider.unwrap_or("");
        let mut served = Part::new(provider, used, source, (&prices(provider), self.held));
        if self.is_held {
            served.cost = self.held;
        }
        let lost = self.lost.iter().map(|lost| {
            let (prices, used) = (prices(lost.provider), lost.used.clone());
            Part::new(lost.provider, used, Source::Reported, (&prices, lost.held))
        });
        std::iter::once(served).chain(lost).collect()
    }

    /// Compares the failed attempts in a record with the plan.
    fn judge_lost(&self, record: &Value, about: &str) {
        let lost = &self.parts[1..];
        let known: u64 = lost.iter().filter_map(|part| part.cost).sum();
        assert_eq!(nano(&record["lost_micro_usd"]), Some(known), "{about}");
        if let Some(trace) = record["trace"].as_array() {
            let shown = trace.iter().map(|step| &step["lost"]).filter(|lost| !lost.is_null());
            let shown: Vec<_> = shown
                .map(|lost| {
                    let vendor_cost = nano(&lost["vendor_cost_micro_usd"]);
                    let (tier, cost) = (lost["tier"].as_str(), nano(&lost["cost_micro_usd"]));
                    (counts_of(lost), tier, vendor_cost, cost)
                })
                .collect();
            let want: Vec<_> = lost
                .iter()
                .map(|part| {
                    let Used { counts, tier, vendor_cost } = part.used.clone();
                    (counts, tier, vendor_cost, part.cost)
                })
                .collect();
            assert_eq!(shown, want, "{about}");
        }
    }
}

impl Sequence {
    /// Compares records, sums and limits with their expected values.
    pub(super) async fn check(&mut self, admin: &Admin) {
        let path = format!("requests?project={}&limit=500", self.project);
        let records = wait::eventually(&path, async || {
            let list = admin.done("GET", &path, Value::Null).await["data"].as_array().unwrap().clone();
            (list.len() >= self.done.len()).then_some(list)
        })
        .await;
        assert_eq!(records.len(), self.done.len(), "seed {}", self.seed);
        for done in &mut self.done {
            let record = records.iter().find(|record| record["request_id"] == done.request_id.as_str());
            done.judge(self.seed, record.expect("a record"), prices_of);
        }
        self.check_sums(admin).await;
        self.check_limits(admin).await;
    }

    async fn check_sums(&self, admin: &Admin) {
        let usage = admin.done("GET", &format!("usage?project={}", self.project), Value::Null).await;
        let totals = &usage["totals"];
        let about = format!("seed {}: {totals}", self.seed);
        assert_eq!(totals["requests"], self.done.len(), "{about}");
        let parts = || self.done.iter().flat_map(|done| &done.parts);
        let lost = self.done.iter().flat_map(|done| &done.parts[1..]);
        assert_eq!(
            totals["requests_unpriced"],
            parts().filter(|part| part.cost.is_none()).count(),
            "{about}"
        );
        for (name, sum) in [
            ("cost_micro_usd", parts().filter_map(|part| part.cost).sum()),
            ("lost_micro_usd", lost.filter_map(|part| part.cost).sum()),
            ("vendor_cost_micro_usd", parts().filter_map(|part| part.used.vendor_cost).sum::<u64>()),
        ] {
            assert_eq!(nano(&totals[name]), Some(sum), "{name}, {about}");
        }
        for part in ["tokens", "units"] {
            for (name, sum) in totals[part].as_object().unwrap().iter().filter(|(name, _)| *name != "total") {
                let want: u64 = parts().filter_map(|part| part.used.counts.get(name)).sum();
                assert_eq!(sum, want, "{name}, {about}");
            }
        }
    }
}

/// Returns the non-zero counts of a record, or of a failed attempt in it.
fn counts_of(shown: &Value) -> Counts {
    let parts = ["tokens", "units"].into_iter().flat_map(|part| shown[part].as_object().unwrap());
    let counts = parts.map(|(name, count)| (name.clone(), count.as_u64().unwrap()));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Returns the counts that are not tokens.
fn units(counts: &Counts) -> Counts {
    let mut units = counts.clone();
    units.retain(|name, count| tokens(&Counts::from([(name.clone(), *count)])) == 0);
    units
}

/// Converts micro-dollars with three decimals to nano-dollars.
pub(super) fn nano(micro: &Value) -> Option<u64> {
    let text = micro.as_number()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    Some(format!("{whole}{part:0<3}").parse().unwrap())
}
