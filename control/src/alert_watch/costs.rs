//! Measures spending of the current hour. The usual spending is read once an hour, the current one with each measurement.

use std::collections::HashMap;

use shared::clock::unix_ms;

use crate::admin::App;
use crate::alerts::{Measurement, Measurements, SpendBand, band, hours_of_band};
use crate::db::HOUR_MS;
use crate::db::alert_rules::AlertKind;
use crate::db::alerts::AlertFigures;
use crate::db::error::DbError;
use crate::db::names::{Labels, NamedKind};
use crate::usage::hour_costs::{CostSubject, HourCost, HourCosts, hour_costs};

/// The usual spending in the current hour.
#[derive(Debug, Default)]
pub(super) struct SpendWatch {
    hour: u64,
    bands: HashMap<CostSubject, SpendBand>,
}

impl SpendWatch {
    /// Adds the spending of each key and project in the current hour.
    pub(super) async fn measure(&mut self, app: &App, measured: &mut Measurements) -> Result<(), DbError> {
        let hour = unix_ms() / HOUR_MS;
        if self.hour != hour {
            let hours = hours_of_band(hour);
            let costs = app.readers.ask(move |db| hour_costs(db, &hours)).await?;
            self.bands = bands(hour, &costs);
            self.hour = hour;
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
            let usual = self.bands.get(&subject).copied().unwrap_or_default();
            anomaly(&subject, name.as_deref(), cost, usual)
        });
        measured.add(AlertKind::SpendAnomaly, found);
        Ok(())
    }
}

/// Returns the bands of all subjects in `hour`.
pub(super) fn bands(hour: u64, costs: &HourCosts) -> HashMap<CostSubject, SpendBand> {
    let of =
        |hours: &HashMap<u64, HourCost>| band(hour, |at| hours.get(&at).map_or(0.0, |cost| cost.micro_usd));
    costs.iter().map(|(subject, hours)| (subject.clone(), of(hours))).collect()
}

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
