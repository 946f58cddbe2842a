//! Repricings, retention and exports that are killed in their middle (STATE-3): sums equal records, limits count each record
//! once, a client notices that an export is cut, and what is repeated ends as if nothing had happened.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use shared::id::{KeyId, ModelId, ProjectId, ProviderId};
use shared::operation::Operation;
use shared::usage::{Details, Outcome, Provenance, TokenCounts, Units, Unpriced, UsageEvent};

use crate::support::admin::Admin;
use crate::support::client::Failure;
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Gateway, Yaml, clock, journal, wait};

const HOUR_MS: u64 = 3_600_000;
/// The limits that count everything: of the day, of the month, and of all time.
const WINDOWS: [&str; 3] = ["day", "month", "total"];

/// A stopped gateway whose journal has records of one key.
struct Recorded {
    setup: Setup,
    quotas: Vec<String>,
    /// The next half past twelve, in milliseconds since the Unix epoch.
    noon_ms: u64,
}

impl Recorded {
    /// Makes a key with limits on cost, and the records, each of which began this long before noon.
    async fn new(is_apart: bool, ages_ms: impl Iterator<Item = u64>) -> Self {
        let setup =
            Setup::new(&Yaml::one("http://127.0.0.1:9/v1")).env("LLMGW_USAGE_DB", is_apart.to_string());
        let noon_ms = u64::try_from(clock::next_noon()).unwrap() * 1_000;
        let gateway = at(setup, noon_ms).start().await;
        let admin = Admin(gateway.client());
        let project = admin.project("recorded").await;
        let key = admin.key(json!({"project": project})).await;
        let mut quotas = Vec::new();
        for window in WINDOWS {
            let subject = json!({"kind": "key", "id": key.id});
            let quota = json!({"subject": subject, "metric": "cost_micro_usd", "window": window,
                "limit": 1_000_000_000_000_u64});
            quotas.push(admin.create("quotas", quota).await);
        }
        let setup = gateway.kill().await;
        let events =
            (0..).zip(ages_ms).map(|(number, age_ms)| event(number, &key.id, &project, noon_ms - age_ms));
        journal::fill(&setup.state().join("journal"), events);
        Self { setup, quotas, noon_ms }
    }

    /// Starts it and waits until it has stored its journal.
    async fn start(self) -> (Gateway, Vec<String>) {
        let gateway = at(self.setup, self.noon_ms).start().await;
        stored(&gateway).await;
        (gateway, self.quotas)
    }
}

/// Sets the clock of the gateway to this time at its start.
fn at(setup: Setup, now_ms: u64) -> Setup {
    setup.with_clock(clock::at(i64::try_from(now_ms / 1_000).unwrap()).expect("a C compiler"))
}

/// A record of 1,000 tokens, which cost a thousandth of a dollar.
fn event(number: u64, key: &str, project: &str, started_at_ms: u64) -> UsageEvent {
    UsageEvent {
        request_id: format!("req-{number:06}").into(),
        started_at_ms,
        duration_us: 1_000,
        operation: Operation::ChatCompletions,
        key: KeyId::new(key),
        project: Some(ProjectId::new(project)),
        principal: None,
        selector: "up/m".into(),
        endpoint: None,
        provider: Some(ProviderId::new("up")),
        model: Some(ModelId::new("m")),
        stream: false,
        status: 200,
        outcome: Outcome::Completed,
        error: None,
        tokens: TokenCounts { input: 1_000, ..TokenCounts::default() },
        units: Units::ZERO,
        provenance: Provenance::Reported,
        tier: None,
        picture: None,
        vendor_cost_nano_usd: None,
        upstream_id: None,
        tags: None,
        end_user: None,
        cost_nano_usd: Some(1_000_000),
        quota_nano_usd: None,
        price: Some("config in 1".into()),
        unpriced: Unpriced::NOTHING,
        head_us: None,
        first_content_us: None,
        details: Details::default(),
        trace: Vec::new(),
    }
}

async fn get(gateway: &Gateway, path: &str) -> Value {
    Admin(gateway.client()).done("GET", path, Value::Null).await
}

/// Waits until the journal is stored, also what earlier processes have left, which is stored behind the start.
async fn stored(gateway: &Gateway) {
    wait::eventually("the journal is stored", async || {
        let usage = &get(gateway, "state").await["usage"];
        (usage["queued"] == 0 && usage["journal_waiting_bytes"] == 0).then_some(())
    })
    .await;
}

/// Returns the requests and their cost in micro-dollars, of a report.
async fn totals(gateway: &Gateway, query: &str) -> (u64, u64) {
    let report = get(gateway, &format!("usage?{query}")).await;
    let totals = &report["totals"];
    (totals["requests"].as_u64().unwrap(), micro(&totals["cost_micro_usd"]))
}

/// Returns an amount of whole micro-dollars.
fn micro(amount: &Value) -> u64 {
    amount.to_string().trim_end_matches(".0").parse().unwrap()
}

/// Returns the number of records and their cost, read one by one.
async fn records(gateway: &Gateway) -> (u64, u64) {
    let exported = gateway.client().get("/admin/api/usage/export?format=jsonl").await.unwrap();
    let lines = exported.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let rows: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let ids: BTreeSet<&str> = rows.iter().map(|row| row["request_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), rows.len(), "each record once");
    (ids.len() as u64, rows.iter().map(|row| micro(&row["cost_micro_usd"])).sum())
}

async fn used(gateway: &Gateway, quotas: &[String]) -> Vec<u64> {
    let mut all = Vec::new();
    for quota in quotas {
        all.push(get(gateway, &format!("quotas/{quota}")).await["used"].as_u64().unwrap());
    }
    all
}

/// Returns the cost of all records after a check that sums and limits have the same.
async fn whole(gateway: &Gateway, quotas: &[String], count: u64) -> u64 {
    let (found, cost) = records(gateway).await;
    assert_eq!(found, count, "no record is lost");
    // From daily sums, from hourly sums, by a name, and from sums of parts of an hour.
    for query in ["", "bucket=hour", "bucket=day&group_by=key", "from=1&to=4000000000001"] {
        assert_eq!(totals(gateway, query).await, (count, cost), "{query}");
    }
    assert_eq!(used(gateway, quotas).await, [cost; WINDOWS.len()], "limits count each record once");
    cost
}

/// Checks the files of a stopped gateway.
async fn verified(setup: &Setup) {
    setup.output_of(&["doctor"], 0).await;
    setup.output_of(&["audit", "verify"], 0).await;
}

/// The moment of a kill.
#[derive(Clone, Copy)]
enum Moment {
    /// This time after the request was sent.
    After(Duration),
    /// When this share of the records, in percent, has its new cost.
    Share(u64),
}

const MOMENTS: [Moment; 8] = [
    Moment::After(Duration::ZERO),
    Moment::After(Duration::from_millis(3)),
    Moment::After(Duration::from_millis(11)),
    Moment::Share(5),
    Moment::Share(20),
    Moment::Share(40),
    Moment::Share(60),
    Moment::Share(80),
];

async fn reprice(gateway: &Gateway, price: u64) -> Result<Value, Failure> {
    let body = json!({"from": 0, "to": "2100-01-01T00:00:00Z", "provider": "up", "model": "m",
        "prices": {"input": price, "output": 1}});
    let answer = gateway.client().send("POST", "/admin/api/usage/reprice", body.to_string().into()).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    Ok(answer.json())
}

#[tokio::test]
async fn a_repricing_may_be_killed_at_any_time() {
    const COUNT: u64 = 12_000;
    for is_apart in [false, true] {
        let step_ms = 10 * HOUR_MS / COUNT;
        let recorded = Recorded::new(is_apart, (0..COUNT).map(|n| (COUNT - n) * step_ms)).await;
        let (mut gateway, quotas) = recorded.start().await;
        let mut cost = whole(&gateway, &quotas, COUNT).await;
        assert_eq!(cost, COUNT * 1_000);
        let mut kills_in_middle = 0;
        // A price of its own for each kill, and the last one once more without.
        for (price, moment) in (2..).zip(MOMENTS) {
            let wanted = COUNT * 1_000 * price;
            let reached = async {
                match moment {
                    Moment::After(time) => tokio::time::sleep(time).await,
                    Moment::Share(percent) => {
                        let enough = cost + (wanted - cost) * percent / 100;
                        wait::eventually("a part is repriced", async || {
                            (totals(&gateway, "").await.1 >= enough).then_some(())
                        })
                        .await;
                    }
                }
            };
            tokio::select! {
                _ = reprice(&gateway, price) => {}
                () = reached => {}
            }
            let setup = gateway.kill().await;
            verified(&setup).await;
            gateway = setup.start().await;
            let before = cost;
            cost = whole(&gateway, &quotas, COUNT).await;
            assert!((before..=wanted).contains(&cost), "{before} {cost} {wanted}");
            kills_in_middle += u64::from(before < cost && cost < wanted);
        }
        assert!(kills_in_middle > 0);
        let price = 1 + MOMENTS.len() as u64;
        for is_again in [false, true] {
            let done = reprice(&gateway, price).await.unwrap();
            assert!(!is_again || done["changed"] == 0, "{done}");
            assert_eq!(whole(&gateway, &quotas, COUNT).await, COUNT * 1_000 * price);
        }
        let gateway = gateway.restart().await;
        assert_eq!(whole(&gateway, &quotas, COUNT).await, COUNT * 1_000 * price);
        let kills = MOMENTS.len();
        figure("killed repricings", format!("{kills} kills, {kills_in_middle} of them with a part repriced"));
    }
}

#[tokio::test]
async fn an_export_that_is_killed_is_cut_and_its_repetition_is_whole() {
    const COUNT: u64 = 10_000;
    let (mut gateway, quotas) = Recorded::new(false, (1..=COUNT).map(|n| n * 1_000)).await.start().await;
    let mut cuts = 0;
    for format in ["jsonl", "csv"] {
        let path = format!("/admin/api/usage/export?format={format}");
        let reference = gateway.client().get(&path).await.unwrap().body;
        let length = reference.len() as u64;
        for bytes in [0, 1, 70 << 10, 300 << 10, length / 4] {
            let mut flow = gateway.client().open("GET", &path, "".into()).await.unwrap();
            assert_eq!(flow.status, 200);
            let passed = flow.pass(bytes).await;
            let setup = gateway.kill().await;
            // A proper end means that all has arrived, be it in the buffers of the socket.
            match flow.whole().await {
                Ok(rest) => assert_eq!(passed + rest.body.len() as u64, length, "{format} {bytes}"),
                Err(_) => cuts += 1,
            }
            gateway = setup.start().await;
            assert!(gateway.client().get(&path).await.unwrap().body == reference, "{format} {bytes}");
        }
    }
    assert!(cuts > 0);
    figure("killed exports", format!("{cuts} of 10 exports cut, none of them with a proper end"));
    whole(&gateway, &quotas, COUNT).await;
    let setup = gateway.kill().await;
    verified(&setup).await;
}

/// Starts the gateway days later, when the records of the first days are expired, and kills it at a moment of retention.
async fn killed_in_retention(setup: Setup, later_ms: u64, delay: Option<Duration>) -> Setup {
    let gateway = at(setup.env("LLMGW_RETENTION_USAGE_DAYS", "2"), later_ms).launch().await;
    match delay {
        Some(delay) => tokio::time::sleep(delay).await,
        None => {
            // Without pauses: a pass takes few milliseconds.
            let begun = async {
                loop {
                    let state = Admin(gateway.client()).call("GET", "state", Value::Null).await;
                    let retention = (state.status == 200).then(|| state.json()["retention"].clone());
                    let Some(retention) = retention else { continue };
                    let is_begun = retention["usage_records_deleted"].as_u64() > Some(0);
                    if is_begun || retention["last_pass_at_ms"].is_u64() {
                        return;
                    }
                }
            };
            wait::within(wait::PATIENCE, "a step of retention", begun).await;
        }
    }
    gateway.kill().await
}

#[tokio::test]
async fn retention_may_be_killed_at_any_time() {
    const COUNT: u64 = 8_000;
    const DAYS: u64 = 8;
    const KEPT: u64 = COUNT / 4;
    for is_apart in [false, true] {
        // 1,000 records a day, from the day of the noon back; those of the last two days are kept.
        let age_ms =
            |n: u64| (DAYS - 1 - n * DAYS / COUNT) * 24 * HOUR_MS + (COUNT - n) % (COUNT / DAYS) * 10_000;
        let recorded = Recorded::new(is_apart, (0..COUNT).map(age_ms)).await;
        let later_ms = recorded.noon_ms + 24 * HOUR_MS;
        let (gateway, quotas) = recorded.start().await;
        assert_eq!(records(&gateway).await, (COUNT, COUNT * 1_000));
        let limits = used(&gateway, &quotas).await;
        let mut setup = gateway.kill().await;
        let (mut left, mut kills, mut kills_in_middle) = (COUNT, 0, 0);
        let delays = [0, 2, 5, 9, 14, 20, 30].map(|ms| Some(Duration::from_millis(ms)));
        for delay in delays.into_iter().chain(std::iter::repeat(None)) {
            setup = killed_in_retention(setup, later_ms, delay).await;
            kills += 1;
            verified(&setup).await;
            // Without retention nothing changes while it is looked at.
            let gateway = at(setup.env("LLMGW_RETENTION_USAGE_DAYS", "3650"), later_ms).start().await;
            let before = left;
            let cost;
            (left, cost) = records(&gateway).await;
            assert!((KEPT..=before).contains(&left), "{before} {left}");
            assert_eq!(cost, left * 1_000);
            // What waits in the journal is stored behind the start.
            wait::eventually("the sums of days, which are kept", async || {
                (totals(&gateway, "bucket=day").await == (COUNT, COUNT * 1_000)).then_some(())
            })
            .await;
            let total = used(&gateway, &quotas[2..]).await;
            assert_eq!(total, limits[2..], "what was used stays used");
            setup = gateway.kill().await;
            kills_in_middle += u64::from(KEPT < left && left < COUNT);
            if left == KEPT {
                break;
            }
        }
        assert!(kills_in_middle > 0);
        let gateway = at(setup.env("LLMGW_RETENTION_USAGE_DAYS", "2"), later_ms).start().await;
        wait::eventually_within(4 * wait::PATIENCE, "the end of a pass", async || {
            get(&gateway, "state").await["retention"]["last_pass_at_ms"].is_u64().then_some(())
        })
        .await;
        assert_eq!(records(&gateway).await, (KEPT, KEPT * 1_000));
        assert_eq!(
            totals(&gateway, "bucket=hour").await,
            (KEPT, KEPT * 1_000),
            "hours agree with the records"
        );
        assert_eq!(totals(&gateway, "bucket=day").await, (COUNT, COUNT * 1_000));
        figure("killed retention", format!("{kills} kills, {kills_in_middle} of them with a part deleted"));
    }
}
