//! Alerts: which conditions begin and end an alert. Pure functions of rules, measurements and time; `alert_watch` measures,
//! and stores what follows.

mod engine;
mod spend;

pub(crate) use self::engine::{AlertChange, AlertEngine, Measurement, Measurements};
pub(crate) use self::spend::{BandSums, SpendBand, hours_of_band};
