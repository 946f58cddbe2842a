//! Measures spending of the current hour. The usual spending is read once an hour, hour by hour and for a bounded time in each
//! turn, so that no number of keys makes a read too long. The current one is read with each measurement.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use shared::clock::unix_ms;

use crate::admin::App;
use crate::db::HOUR_MS;
use crate::db::alert_rules::AlertKind;
use crate::db::alerts::AlertFigures;
use crate::db::error::QueryError;
use crate::db::names::{Labels, NamedKind};
use crate::usage::hour_costs::{CostSubject, HourCost, HourCosts, hour_costs};
use crate::writer::alerts::{BandSums, Measurement, Measurements, SpendBand, hours_of_band};

/// The usual spending in the current hour.
#[derive(Debug, Default)]
pub(super) struct SpendWatch {
    usual: UsualSpending,
}

/// The bands of an hour, in so far as its history has been read.
#[derive(Debug, Default)]
pub(super) struct UsualSpending {
    hour: u64,
    /// The hours that are left to read.
    left: Vec<u64>,
    sums: HashMap<CostSubject, BandSums>,
}

impl UsualSpending {
    /// Begins to read the history of `hour`.
    pub(super) fn of(hour: u64) -> Self {
        Self { hour, left: hours_of_band(hour), sums: HashMap::new() }
    }

    /// Adds the spending of one hour.
    pub(super) fn add(&mut self, costs: &HourCosts) {
        for (subject, hours) in costs {
            let sums = self.sums.entry(subject.clone()).or_default();
            hours.iter().for_each(|(at, cost)| sums.add(self.hour, *at, cost.micro_usd));
        }
    }

    /// Returns the band of a subject.
    pub(super) fn band(&self, subject: &CostSubject) -> SpendBand {
        self.sums.get(subject).copied().unwrap_or_default().band()
    }

    /// Reads on, until all is read or `until` is over. Returns true if all is read.
    async fn read(&mut self, app: &App, until: Instant) -> Result<bool, QueryError> {
        while let Some(at) = self.left.last().copied() {
            if Instant::now() >= until {
                return Ok(false);
            }
            let costs = app.readers.ask(move |db| hour_costs(db, &[at])).await?;
            self.add(&costs);
            self.left.pop();
        }
        Ok(true)
    }
}

impl SpendWatch {
    /// Adds the spending of each key and project in the current hour. Adds nothing while the usual one is still being read.
    pub(super) async fn measure(&mut self, app: &App, measured: &mut Measurements) -> Result<(), QueryError> {
        let hour = unix_ms() / HOUR_MS;
        if self.usual.hour != hour {
            self.usual = UsualSpending::of(hour);
        }
        if !self.usual.read(app, Instant::now() + READING_TIME).await? {
            return Ok(());
        }
        let spent = app.readers.ask(move |db| {
            let mut labels = Labels::default();
            let mut named = Vec::new();
            for (subject, hours) in hour_costs(db, &[hour])? {
                let kind = match subject {
                    CostSubject::Key(_) => NamedKind::Key,
                    CostSubject::Project(_) => NamedKind::Project,
                };
                let name = labels.find(db, kind, subject.id())?.name;
                named.push((subject, name, hours.get(&hour).copied().unwrap_or_default()));
            }
            Ok(named)
        });
        let found = spent.await?.into_iter().map(|(subject, name, cost)| {
            let usual = self.usual.band(&subject);
            anomaly(&subject, name.as_deref(), cost, usual)
        });
        measured.add(AlertKind::SpendAnomaly, found);
        Ok(())
    }
}

/// The time for which one turn reads the history. A read that has begun is completed.
const READING_TIME: Duration = Duration::from_secs(1);

/// Returns the measurement of a subject that has spent `cost` in the current hour. Its value is the multiple of the upper
/// bound of what is usual.
#[expect(clippy::cast_precision_loss, reason = "the requests of an hour are far below 2^52")]
pub(super) fn anomaly(
    subject: &CostSubject,
    name: Option<&str>,
    cost: HourCost,
    usual: SpendBand,
) -> Measurement {
    let dollars = |micro_usd: f64| micro_usd / 1e6;
    let what = match subject {
        CostSubject::Key(_) => "key",
        CostSubject::Project(_) => "project",
    };
    let text = format!(
        "The {what} {} has spent ${:.2} in this hour with {} requests. Usual at this hour of the week: ${:.2}, at most ${:.2}.",
        name.unwrap_or_else(|| subject.id()),
        dollars(cost.micro_usd),
        cost.requests,
        dollars(usual.mean),
        dollars(usual.upper),
    );
    let figures = AlertFigures::from([
        ("spent_micro_usd".to_owned(), cost.micro_usd),
        ("requests".to_owned(), cost.requests as f64),
        ("usual_micro_usd".to_owned(), usual.mean),
        ("usual_max_micro_usd".to_owned(), usual.upper),
    ]);
    let value = if usual.upper > 0.0 { cost.micro_usd / usual.upper } else { f64::MAX };
    Measurement { kind: AlertKind::SpendAnomaly, object: Some(subject.id().to_owned()), value, text, figures }
}
