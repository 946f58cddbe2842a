//! A month of alerts in simulated time: the engine and the built-in rules over a load by the minute. The requests of the
//! agent are those of a real one, as a gateway recorded them (`tests/clients/record_agent.py`).

#![expect(clippy::cast_precision_loss, reason = "the minutes of a month are far below 2^52")]

use std::collections::BTreeMap;

use serde::Deserialize;
use shared::clock::unix_ms;
use shared::quota::{Metric, Period, Subject};

use super::costs::{UsualSpending, anomaly};
use super::sources::used_limits;
use crate::db::alert_rules::{self, AlertKind, AlertRule};
use crate::db::alerts::AlertFigures;
use crate::db::quotas::{self, Counted, Enforcement, Of, QuotaRow};
use crate::db::testing::migrated;
use crate::routing::publish::Touched;
use crate::routing::publish::tests::{config, started};
use crate::usage::hour_costs::{CostSubject, HourCost, HourCosts};
use crate::writer::alerts::{AlertChange, AlertEngine, Measurement, Measurements};

const MINUTE_MS: u64 = 60_000;
const DAY: u64 = 24 * 60;
/// The first minute of the month: a Monday, after four weeks of history.
const START: u64 = 29_376_000 + 28 * DAY;
const AGENT: &str = "key_agent";
const BATCH: &str = "key_batch";

/// The requests of two sessions of an agent, as milliseconds since the first one and micro-dollars.
#[derive(Deserialize)]
struct Recorded {
    ordinary: Vec<(u64, f64)>,
    /// The agent reads the same file again and again.
    looping: Vec<(u64, f64)>,
}

impl Recorded {
    fn read() -> Self {
        serde_json::from_str(include_str!("recorded_agent.json")).unwrap()
    }

    /// Returns an hour with this many sessions.
    fn sessions(&self, count: u64) -> HourCost {
        times(&self.ordinary, count)
    }

    /// Returns an hour in which the loop goes on at its recorded pace.
    fn looping(&self) -> HourCost {
        let (last_ms, requests) = (self.looping.last().unwrap().0, self.looping.len() as u64);
        times(&self.looping, 60 * MINUTE_MS / (last_ms * requests / (requests - 1)))
    }
}

fn times(requests: &[(u64, f64)], count: u64) -> HourCost {
    let micro_usd: f64 = requests.iter().map(|(_, micro_usd)| micro_usd).sum();
    HourCost { requests: requests.len() as u64 * count, micro_usd: micro_usd * count as f64 }
}

/// The spending of each hour, which repeats by the week: sessions of an agent in office hours, and a batch on Saturdays. In
/// one hour of the third week a session of the agent loops beside the others.
fn load(recorded: &Recorded) -> HourCosts {
    let mut costs = HourCosts::new();
    let first = START / 60 - 28 * 24;
    for hour in first..START / 60 + 31 * 24 {
        let (day, of_day) = ((hour - first) / 24 % 7, hour % 24);
        let jitter = (hour.wrapping_mul(0x9e37_79b9) >> 7) % 40;
        let mut put = |key: &str, cost: HourCost| {
            costs.entry(CostSubject::Key(key.into())).or_default().insert(hour, cost);
        };
        if day < 5 && (8..18).contains(&of_day) {
            let mut cost = recorded.sessions(8 + jitter / 10);
            if hour == LOOP_HOUR {
                let looping = recorded.looping();
                cost.requests += looping.requests;
                cost.micro_usd += looping.micro_usd;
            }
            put(AGENT, cost);
        }
        if day == 5 && (2..6).contains(&of_day) {
            let requests = 5_000 + 10 * jitter;
            put(BATCH, HourCost { requests, micro_usd: requests as f64 * 20_000.0 });
        }
    }
    costs
}

/// 14:00 of the Thursday of the third week.
const LOOP_HOUR: u64 = START / 60 + 17 * 24 + 14;

/// The condition of one object over the month, in minutes since its start: true if it is met.
fn scripted(minute: u64) -> Vec<(AlertKind, &'static str, f64)> {
    let (day, of_day) = (minute / DAY, minute % DAY);
    let mut found = Vec::new();
    // A daily limit of which a twentieth is used each hour, and twice as much on day 9.
    let used = of_day as f64 / 60.0 * if day == 9 { 10.0 } else { 3.0 };
    found.push((AlertKind::QuotaWarning, "quota_day", used));
    found.push((AlertKind::QuotaExhausted, "quota_day", used));
    // A key that expires at the end of day 20.
    if minute < 21 * DAY {
        found.push((AlertKind::KeyExpiring, "key_old", (21 * DAY - minute) as f64 / DAY as f64));
    }
    // A provider that is down for an hour, one that flaps for half a day, and failures too short for an alert.
    let is_down = (5 * DAY + 600..5 * DAY + 660).contains(&minute);
    let flaps = (12 * DAY..12 * DAY + 720).contains(&minute) && minute % 3 < 2;
    let is_short = minute % 1_000 == 999;
    if is_down || flaps {
        found.push((AlertKind::ProviderDown, "up", 0.0));
    }
    if is_short {
        found.push((AlertKind::ProviderDown, "other", 0.0));
    }
    if (22 * DAY..22 * DAY + 90).contains(&minute) {
        found.push((AlertKind::CredentialBroken, "up", 0.0));
    }
    if (8 * DAY + 30..8 * DAY + 45).contains(&minute) {
        found.push((AlertKind::ConfigReloadFailed, "", 0.0));
    }
    // The disk fills up by two per cent a day and is cleaned on day 26.
    let free = if day < 26 { 60.0 - minute as f64 / DAY as f64 * 2.0 } else { 50.0 };
    found.push((AlertKind::DiskLow, "", free));
    if (3..4).contains(&day) {
        found.push((AlertKind::BackupFailed, "", 0.0));
    }
    if (15..17).contains(&day) {
        found.push((AlertKind::CatalogDrift, "coding", 0.0));
    }
    found
}

fn measured(minute: u64, costs: &HourCosts, usual: &mut (u64, UsualSpending)) -> Measurements {
    let kinds = AlertKind::ALL.iter().map(|(_, kind)| *kind).collect();
    let mut measured = Measurements { kinds, found: Vec::new() };
    for (kind, object, value) in scripted(minute) {
        let object = Some(object.to_owned()).filter(|object| !object.is_empty());
        let figures = AlertFigures::new();
        measured.found.push(Measurement { kind, object, value, text: String::new(), figures });
    }
    let hour = (START + minute) / 60;
    if usual.0 != hour {
        *usual = (hour, UsualSpending::of(hour));
        usual.1.add(costs);
    }
    for (subject, hours) in costs {
        let Some(cost) = hours.get(&hour) else { continue };
        // The hour has been spent evenly up to this minute.
        let part = ((START + minute) % 60 + 1) as f64 / 60.0;
        let cost = HourCost { requests: cost.requests, micro_usd: cost.micro_usd * part };
        measured.found.push(anomaly(subject, None, cost, usual.1.band(subject)));
    }
    measured
}

fn built_in() -> Vec<AlertRule> {
    let db = migrated();
    alert_rules::all(&db).unwrap()
}

/// What fired in a month, what should have fired, and none twice.
#[test]
fn a_month_of_load_raises_each_alert_once_and_no_other() {
    let (rules, costs) = (built_in(), load(&Recorded::read()));
    let (mut engine, mut usual) = (AlertEngine::default(), (0, UsualSpending::default()));
    let mut open: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut fired: BTreeMap<(String, String), Vec<(u64, u64)>> = BTreeMap::new();
    let mut began: BTreeMap<String, u64> = BTreeMap::new();
    let mut flaps = 0;
    for minute in 0..31 * DAY {
        for change in engine.step(&rules, &measured(minute, &costs, &mut usual), (START + minute) * MINUTE_MS)
        {
            match change {
                AlertChange::Open { rule, measurement, .. } => {
                    let alert = format!("alert {} {minute}", began.len());
                    let subject = (rule.clone(), measurement.object.clone().unwrap_or_default());
                    assert!(!open.values().any(|other| *other == subject), "{subject:?} is open already");
                    engine.opened(&rule, measurement.object.as_deref(), &alert);
                    began.insert(alert.clone(), minute);
                    open.insert(alert, subject);
                }
                AlertChange::Resolve { alert, .. } => {
                    engine.resolved(&alert);
                    let subject = open.remove(&alert).expect("it was open");
                    fired.entry(subject).or_default().push((began[&alert], minute));
                }
                AlertChange::Again { .. } => flaps += 1,
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let day = |day: u64, minute: u64| day * DAY + minute;
    let want: BTreeMap<(String, String), Vec<(u64, u64)>> = [
        // 80 per cent and all of the daily limit on day 9, until the window ends; five minutes without the condition.
        ("quota_warning", "quota_day", day(9, 480), day(10, 5)),
        ("quota_exhausted", "quota_day", day(9, 600), day(10, 5)),
        // A week before its end, until it has expired.
        ("key_expiring", "key_old", day(14, 0), day(21, 1)),
        ("credential_broken", "up", day(22, 1), day(22, 95)),
        ("spend_anomaly", AGENT, 0, 0),
        ("catalog_drift", "coding", day(15, 0), day(17, 5)),
        ("config_reload_failed", "", day(8, 30), day(8, 46)),
        ("disk_low", "", day(25, 2), day(26, 10)),
        ("backup_failed", "", day(3, 0), day(4, 0)),
    ]
    .into_iter()
    .map(|(kind, object, from, to)| ((format!("rule_{kind}"), object.to_owned()), vec![(from, to)]))
    .chain([(
        ("rule_provider_down".to_owned(), "up".to_owned()),
        vec![(day(5, 601), day(5, 662)), (day(12, 1), day(12, 721))],
    )])
    .collect();
    let spend =
        fired.get_mut(&("rule_spend_anomaly".to_owned(), AGENT.to_owned())).expect("the loop was found");
    let [(from, to)] = spend.as_slice() else { panic!("{spend:?}") };
    let loop_minute = LOOP_HOUR * 60 - START;
    assert!(
        (loop_minute..loop_minute + 20).contains(from),
        "found {} minutes after its start",
        from - loop_minute
    );
    assert!(*to <= loop_minute + 3 * 60, "{to}");
    *spend = vec![(0, 0)];
    assert_eq!(fired, want);
    assert!(flaps > 200, "the provider that flaps has one alert: {flaps}");
}

#[test]
fn the_newest_of_many_limits_is_measured_against_its_current_amount() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _reader) = shared::snapshot::channel();
    let (mut publisher, db) = started(&config(folder.path(), "", &[]), out);
    let limit = |n: u64, limit: u64| QuotaRow {
        id: format!("quo_{n:05}"),
        counted: Counted {
            subject: Of { kind: Subject::Project, id: format!("prj_{n:05}") },
            model: None,
            endpoint: None,
        },
        metric: Metric::Requests,
        period: Some(Period::Day),
        limit,
        enforcement: Enforcement::Hard,
        wait_ms: 0,
        version: 1,
        created_at_ms: n,
        updated_at_ms: n,
    };
    let newest = 12_000;
    (0..=newest).for_each(|n| quotas::put(&db, &limit(n, 10)).unwrap());
    publisher.touch(Touched::ACCESS, &db).unwrap();
    let measured = |publisher: &crate::routing::publish::Publisher| {
        let found = used_limits(&db, publisher.counters(), 80.0).unwrap();
        found.into_iter().map(|found| (found.object.unwrap(), found.value)).collect::<Vec<_>>()
    };
    assert!(measured(&publisher).is_empty());
    let counter = publisher.counters().get(&limit(newest, 10).id).unwrap();
    counter.add(unix_ms(), 9, unix_ms());
    assert_eq!(measured(&publisher), [("quo_12000".to_owned(), 90.0)]);
    quotas::put(&db, &limit(newest, 90)).unwrap();
    publisher.touch(Touched::ACCESS, &db).unwrap();
    assert!(measured(&publisher).is_empty(), "it is 10 % of the changed limit");
}
