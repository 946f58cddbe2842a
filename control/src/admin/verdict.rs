//! The verdict on the gateway: one state, since when, and why. A pure function of what was observed, so that every page
//! and every alert come to the same verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::common::bounds::VERDICT_REASONS;
use crate::usage::recent::{FAILING_PERCENT, Median, PROVIDER_FAILING_PERCENT, RecentFigures, Share, Trend};

/// The figures of the gateway at one moment. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Situation {
    /// The start of the process.
    pub(crate) started_at_ms: u64,
    pub(crate) now_ms: u64,
    pub(crate) unrecorded: Option<UnrecordedUsage>,
    pub(crate) draining: Option<Drain>,
    pub(crate) recent: RecentFigures,
    /// The circuits that are not closed.
    pub(crate) circuits: Vec<OpenCircuit>,
    /// Endpoints none of whose targets may be tried now.
    pub(crate) stranded: Vec<StrandedEndpoint>,
    /// True if a provider instance is configured.
    pub(crate) has_provider: bool,
    /// True if any exchange was ever recorded.
    pub(crate) has_usage: bool,
}

/// Usage that is not stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnrecordedUsage {
    pub(crate) since_ms: u64,
    /// Exchanges that no journal file accepted, since the start of the process.
    pub(crate) lost: u64,
    /// False while requests are rejected because the journal is full.
    pub(crate) has_room: bool,
}

/// The end of the process, which waits for running exchanges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) since_ms: u64,
    /// The time at which the remaining exchanges are cut.
    pub(crate) until_ms: u64,
    pub(crate) connections: u64,
}

/// A circuit that is open or half open.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OpenCircuit {
    /// The provider instance, or one of its models as `provider/model`.
    pub(crate) object: String,
    pub(crate) opened_at_ms: u64,
    pub(crate) retry_in_ms: u64,
    /// Consecutive failures.
    pub(crate) failures: u64,
    /// The nodes at which it is so; empty for a gateway with its own database.
    pub(crate) nodes: Vec<String>,
}

/// An endpoint none of whose targets may be tried now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StrandedEndpoint {
    pub(crate) name: String,
    pub(crate) since_ms: u64,
    pub(crate) targets: u64,
    /// The nodes at which it is so; empty for a gateway with its own database.
    pub(crate) nodes: Vec<String>,
}

/// A condition of one node that others may have too.
pub(crate) trait NodeCondition {
    fn object(&self) -> &str;
    /// Adds that other nodes have the condition, since the time of `other`.
    fn join(&mut self, other: Self);
}

impl NodeCondition for OpenCircuit {
    fn object(&self) -> &str {
        &self.object
    }

    fn join(&mut self, other: Self) {
        self.opened_at_ms = self.opened_at_ms.min(other.opened_at_ms);
        self.nodes.extend(other.nodes);
    }
}

impl NodeCondition for StrandedEndpoint {
    fn object(&self) -> &str {
        &self.name
    }

    fn join(&mut self, other: Self) {
        self.since_ms = self.since_ms.min(other.since_ms);
        self.nodes.extend(other.nodes);
    }
}

/// Adds the conditions of another node to those of `all`.
pub(crate) fn join<T: NodeCondition>(all: &mut Vec<T>, others: Vec<T>) {
    for other in others {
        match all.iter_mut().find(|known| known.object() == other.object()) {
            Some(known) => known.join(other),
            None => all.push(other),
        }
    }
}

/// The state of the gateway, the worst one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum VerdictState {
    /// Usage is not stored, or was lost.
    Unrecorded,
    /// The process is ending.
    Draining,
    /// Clients get errors for no fault of theirs.
    Failing,
    /// Clients are served, and something is wrong with an upstream.
    Degraded,
    /// Clients are served.
    Serving,
    /// There was no request in the last hour.
    Quiet,
    /// Nothing can be served yet, or nothing ever was.
    SetUp,
}

/// The verdict on the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GatewayVerdict {
    pub(crate) state: VerdictState,
    /// The beginning of the state, in milliseconds since the Unix epoch. States without trouble begin with the process
    /// or with the end of the last trouble.
    pub(crate) since_ms: u64,
    /// The faults, the worst first; then the requests of the last hour.
    pub(crate) reasons: Vec<VerdictReason>,
    /// The number of further faults.
    pub(crate) reasons_omitted: usize,
}

/// A verdict with the change that may have caused it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Verdict"))]
pub(crate) struct ExplainedVerdict {
    #[serde(flatten)]
    pub(crate) verdict: GatewayVerdict,
    /// The last action of an administrator up to the minute in which the trouble began; null without trouble, or if the
    /// audit has none.
    pub(crate) change_before: Option<ChangeBefore>,
}

/// An action of an administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ChangeBefore {
    /// The audit record.
    pub(crate) audit_id: i64,
    /// In milliseconds since the Unix epoch.
    pub(crate) at_ms: i64,
    /// The key or human.
    pub(crate) actor: String,
    /// Such as `endpoint.update`.
    pub(crate) action: String,
    /// The object as `kind/id`.
    pub(crate) object: String,
}

/// One reason for a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct VerdictReason {
    /// `usage_unrecorded`, `draining`, `requests_failing`, `no_eligible_target`, `circuit_open`, `provider_failing`,
    /// `first_content_slow`, `no_provider`, `no_request` or `requests`.
    pub(crate) code: &'static str,
    /// The endpoint, selector, provider or model; null if the reason concerns all of the gateway.
    pub(crate) object: Option<String>,
    /// Counts, and times in milliseconds or microseconds as their names state.
    pub(crate) figures: BTreeMap<&'static str, u64>,
    /// The names of the nodes at which it is so; absent if it concerns all of the gateway, and for a gateway with its own
    /// database.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<String>,
}

/// A reason with the state that it causes, and since when.
struct Finding {
    state: VerdictState,
    since_ms: u64,
    reason: VerdictReason,
}

impl GatewayVerdict {
    /// True if an operator should look after the gateway.
    pub(crate) fn is_trouble(&self) -> bool {
        self.state <= VerdictState::Degraded
    }
}

/// Returns the verdict on a situation.
pub(crate) fn verdict(situation: &Situation) -> GatewayVerdict {
    let mut findings: Vec<Finding> = unrecorded(situation)
        .into_iter()
        .chain(draining(situation))
        .chain(failing(situation))
        .chain(degraded(situation))
        .collect();
    let calm_since_ms = situation.recent.last_bad_ms.unwrap_or(0).max(situation.started_at_ms);
    if findings.is_empty() {
        findings.extend(unfinished(situation, calm_since_ms));
    }
    let (state, since_ms) = match findings.iter().map(|finding| finding.state).min() {
        Some(state) => {
            let of_state = findings.iter().filter(|finding| finding.state == state);
            (state, of_state.map(|finding| finding.since_ms).min().unwrap_or(0))
        }
        None if situation.recent.hour.requests > 0 => (VerdictState::Serving, calm_since_ms),
        None => (VerdictState::Quiet, calm_since_ms),
    };
    let mut reasons: Vec<VerdictReason> = findings.into_iter().map(|finding| finding.reason).collect();
    let reasons_omitted = VERDICT_REASONS.cut(&mut reasons);
    reasons.push(requests(situation));
    GatewayVerdict { state, since_ms: since_ms.min(situation.now_ms), reasons, reasons_omitted }
}

fn unrecorded(situation: &Situation) -> Option<Finding> {
    let UnrecordedUsage { since_ms, lost, has_room } = situation.unrecorded?;
    let figures = [("lost", lost), ("has_room", u64::from(has_room))];
    Some(Finding::new(VerdictState::Unrecorded, since_ms, "usage_unrecorded").with(figures))
}

fn draining(situation: &Situation) -> Option<Finding> {
    let Drain { since_ms, until_ms, connections } = situation.draining?;
    let figures = [("connections", connections), ("left_ms", until_ms.saturating_sub(situation.now_ms))];
    Some(Finding::new(VerdictState::Draining, since_ms, "draining").with(figures))
}

/// Returns the endpoints whose requests fail, or all requests if no single endpoint has enough failures.
fn failing(situation: &Situation) -> Vec<Finding> {
    let recent = &situation.recent;
    let is_failing = |trend: &Trend| trend.share.bad >= FAILURES_MIN && trend.share.is_bad(FAILING_PERCENT);
    let finding = |trend: &Trend| {
        let Share { total, bad } = trend.share;
        Finding::new(VerdictState::Failing, trend.since_ms, "requests_failing")
            .with([("requests", total), ("failed", bad)])
    };
    let failing = recent.selectors.iter().filter(|(_, trend)| is_failing(trend));
    let mut findings: Vec<Finding> = failing.map(|(name, trend)| finding(trend).of(name)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.reason.figures.get("failed").copied()));
    if findings.is_empty() && is_failing(&recent.all) {
        findings.push(finding(&recent.all));
    }
    findings.extend(situation.stranded.iter().map(|endpoint| {
        Finding::new(VerdictState::Failing, endpoint.since_ms, "no_eligible_target")
            .of(&endpoint.name)
            .at(&endpoint.nodes)
            .with([("targets", endpoint.targets)])
    }));
    findings
}

fn degraded(situation: &Situation) -> Vec<Finding> {
    let circuits = situation.circuits.iter().map(|circuit| {
        Finding::new(VerdictState::Degraded, circuit.opened_at_ms, "circuit_open")
            .of(&circuit.object)
            .at(&circuit.nodes)
            .with([("failures", circuit.failures), ("retry_in_ms", circuit.retry_in_ms)])
    });
    let providers = situation.recent.providers.iter().filter(|(_, trend)| {
        trend.share.total >= ATTEMPTS_MIN && trend.share.is_bad(PROVIDER_FAILING_PERCENT)
    });
    let providers = providers.map(|(name, trend)| {
        Finding::new(VerdictState::Degraded, trend.since_ms, "provider_failing")
            .of(name)
            .with([("attempts", trend.share.total), ("failed", trend.share.bad)])
    });
    circuits.chain(providers).chain(slow(situation)).collect()
}

fn slow(situation: &Situation) -> Option<Finding> {
    let recent = situation.recent.first_content.filter(is_significant)?;
    let before = situation.recent.first_content_before.filter(is_significant)?;
    if recent.value < before.value.saturating_mul(SLOWER_TIMES) || recent.value < SLOW_US_MIN {
        return None;
    }
    let since_ms = situation.now_ms.saturating_sub(crate::usage::recent::MINUTES * 60_000);
    let figures = [("first_content_us_p50", recent.value), ("before_us_p50", before.value)];
    Some(Finding::new(VerdictState::Degraded, since_ms, "first_content_slow").with(figures))
}

fn is_significant(median: &Median) -> bool {
    median.count >= ATTEMPTS_MIN
}

/// Returns the next step of the set-up, if nothing could be served or nothing ever was.
fn unfinished(situation: &Situation, since_ms: u64) -> Option<Finding> {
    let code = match (situation.has_provider, situation.has_usage) {
        (false, _) => "no_provider",
        (true, false) => "no_request",
        (true, true) => return None,
    };
    Some(Finding::new(VerdictState::SetUp, since_ms, code))
}

fn requests(situation: &Situation) -> VerdictReason {
    let hour = &situation.recent.hour;
    let figures = [
        ("requests", hour.requests),
        ("completed", hour.completed),
        ("failed_over", hour.failed_over),
        ("failed", hour.failed),
        ("cut", hour.cut),
        ("cancelled", hour.cancelled),
        ("refused", hour.refused),
    ];
    VerdictReason { code: "requests", object: None, figures: figures.into(), nodes: Vec::new() }
}

impl Finding {
    fn new(state: VerdictState, since_ms: u64, code: &'static str) -> Self {
        let (figures, nodes) = (BTreeMap::new(), Vec::new());
        Self { state, since_ms, reason: VerdictReason { code, object: None, figures, nodes } }
    }

    fn of(mut self, object: &str) -> Self {
        self.reason.object = Some(object.to_owned());
        self
    }

    fn at(mut self, nodes: &[String]) -> Self {
        self.reason.nodes = nodes.to_vec();
        self
    }

    fn with<const N: usize>(mut self, figures: [(&'static str, u64); N]) -> Self {
        self.reason.figures.extend(figures);
        self
    }
}

/// The number of failed requests from which on a gateway is failing.
const FAILURES_MIN: u64 = 5;
/// The number of attempts, or of times to the first content, below which a provider is not judged.
const ATTEMPTS_MIN: u64 = 10;
/// First contents that take this many times as long as before are slow.
const SLOWER_TIMES: u64 = 2;
/// A time to the first content below this is never slow: it is noise of local models.
const SLOW_US_MIN: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::usage::periods::PeriodFigures;

    const NOW: u64 = 1_700_000_000_000;
    const START: u64 = NOW - 86_400_000;

    /// A gateway that has served 1,000 requests in the last hour, 3 of which failed.
    fn serving() -> Situation {
        let hour = PeriodFigures { requests: 1_000, completed: 997, failed: 3, ..PeriodFigures::default() };
        let recent = RecentFigures { hour, all: trend(80, 3, 0), ..RecentFigures::default() };
        let (started_at_ms, now_ms) = (START, NOW);
        Situation {
            started_at_ms,
            now_ms,
            recent,
            has_provider: true,
            has_usage: true,
            ..Situation::default()
        }
    }

    fn trend(total: u64, bad: u64, minutes_ago: u64) -> Trend {
        let since_ms = if minutes_ago == 0 { 0 } else { NOW - minutes_ago * 60_000 };
        Trend { share: Share { total, bad }, since_ms }
    }

    fn with_selector(name: &str, trend: Trend) -> Situation {
        let mut situation = serving();
        situation.recent.selectors.insert(name.into(), trend);
        situation
    }

    fn with_provider(total: u64, bad: u64) -> Situation {
        let mut situation = serving();
        situation.recent.providers.insert("up".into(), trend(total, bad, 3));
        situation
    }

    fn with_first_content(before: (u64, u64), recent: (u64, u64)) -> Situation {
        let mut situation = serving();
        let median = |(count, value)| Some(Median { count, value });
        situation.recent.first_content_before = median(before);
        situation.recent.first_content = median(recent);
        situation
    }

    fn circuit() -> OpenCircuit {
        let object = "up".into();
        OpenCircuit { object, opened_at_ms: NOW - 60_000, retry_in_ms: 5_000, failures: 3, nodes: vec![] }
    }

    fn unrecorded() -> UnrecordedUsage {
        UnrecordedUsage { since_ms: NOW - 7, lost: 0, has_room: true }
    }

    /// A name, a situation, and the state, its age in milliseconds and the codes and objects of its reasons.
    type Case = (&'static str, Situation, VerdictState, u64, &'static [(&'static str, Option<&'static str>)]);

    fn without_trouble() -> Vec<Case> {
        use VerdictState::{Quiet, Serving, SetUp};
        vec![
            ("serving", serving(), Serving, NOW - START, &[]),
            ("quiet", Situation { recent: RecentFigures::default(), ..serving() }, Quiet, NOW - START, &[]),
            (
                "serving after trouble",
                Situation {
                    recent: RecentFigures { last_bad_ms: Some(NOW - 99), ..serving().recent },
                    ..serving()
                },
                Serving,
                99,
                &[],
            ),
            (
                "nothing configured",
                Situation {
                    has_provider: false,
                    has_usage: false,
                    recent: RecentFigures::default(),
                    ..serving()
                },
                SetUp,
                NOW - START,
                &[("no_provider", None)],
            ),
            (
                "nothing asked yet",
                Situation { has_usage: false, recent: RecentFigures::default(), ..serving() },
                SetUp,
                NOW - START,
                &[("no_request", None)],
            ),
            ("few failures", with_selector("line", trend(10, 4, 2)), Serving, NOW - START, &[]),
            ("rare failures", with_selector("line", trend(1_000, 49, 2)), Serving, NOW - START, &[]),
        ]
    }

    fn failing_endpoints() -> Vec<Case> {
        use VerdictState::{Degraded, Failing};
        let stranded =
            StrandedEndpoint { name: "line".into(), since_ms: NOW - 500, targets: 2, nodes: vec![] };
        let minutes = |n: u64| n * 60_000;
        vec![
            (
                "an endpoint fails",
                with_selector("line", trend(100, 5, 26)),
                Failing,
                minutes(26),
                &[("requests_failing", Some("line"))],
            ),
            (
                "many selectors fail a little",
                Situation {
                    recent: RecentFigures { all: trend(100, 9, 4), ..serving().recent },
                    ..serving()
                },
                Failing,
                minutes(4),
                &[("requests_failing", None)],
            ),
            (
                "an endpoint has no target",
                Situation { stranded: vec![stranded], circuits: vec![circuit()], ..serving() },
                Failing,
                500,
                &[("no_eligible_target", Some("line")), ("circuit_open", Some("up"))],
            ),
            (
                "a circuit is open",
                Situation { circuits: vec![circuit()], ..serving() },
                Degraded,
                minutes(1),
                &[("circuit_open", Some("up"))],
            ),
        ]
    }

    fn failing_or_slow_providers() -> Vec<Case> {
        use VerdictState::{Degraded, Serving};
        let minutes = |n: u64| n * 60_000;
        vec![
            ("few attempts", with_provider(9, 9), Serving, NOW - START, &[]),
            ("rare attempt failures", with_provider(100, 19), Serving, NOW - START, &[]),
            (
                "a provider fails",
                with_provider(10, 2),
                Degraded,
                minutes(3),
                &[("provider_failing", Some("up"))],
            ),
            (
                "slow",
                with_first_content((500, 400_000), (10, 800_000)),
                Degraded,
                minutes(5),
                &[("first_content_slow", None)],
            ),
            (
                "not twice as slow",
                with_first_content((500, 400_000), (10, 799_999)),
                Serving,
                NOW - START,
                &[],
            ),
            ("slow once", with_first_content((500, 400_000), (9, 900_000)), Serving, NOW - START, &[]),
            ("slow by nothing", with_first_content((500, 1_000), (50, 9_000)), Serving, NOW - START, &[]),
        ]
    }

    fn ending() -> Vec<Case> {
        use VerdictState::{Draining, Unrecorded};
        let drain = Drain { since_ms: NOW - 9, until_ms: NOW + 24_000, connections: 12 };
        vec![
            (
                "ending while failing",
                Situation { draining: Some(drain), ..with_selector("line", trend(9, 9, 2)) },
                Draining,
                9,
                &[("draining", None), ("requests_failing", Some("line"))],
            ),
            (
                "nothing is stored",
                Situation { unrecorded: Some(unrecorded()), draining: Some(drain), ..serving() },
                Unrecorded,
                7,
                &[("usage_unrecorded", None), ("draining", None)],
            ),
        ]
    }

    #[test]
    fn the_verdict_is_the_worst_finding_and_names_every_reason() {
        let cases = [without_trouble(), failing_endpoints(), failing_or_slow_providers(), ending()];
        for (name, situation, state, age_ms, reasons) in cases.into_iter().flatten() {
            let found = verdict(&situation);
            assert_eq!((found.state, NOW - found.since_ms), (state, age_ms), "{name}: {found:?}");
            let codes = found.reasons.iter().map(|reason| (reason.code, reason.object.as_deref()));
            let want = reasons.iter().copied().chain([("requests", None)]);
            assert_eq!(codes.collect::<Vec<_>>(), want.collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn a_condition_of_several_nodes_is_one_reason_that_names_them() {
        let at =
            |node: &str, opened_at_ms| OpenCircuit { opened_at_ms, nodes: vec![node.into()], ..circuit() };
        let mut circuits = vec![at("n1", NOW - 5)];
        join(&mut circuits, vec![at("n2", NOW - 9), OpenCircuit { object: "other".into(), ..at("n2", NOW) }]);
        let found = verdict(&Situation { circuits, ..serving() });
        let nodes = |object: &str| {
            let reason = found.reasons.iter().find(|reason| reason.object.as_deref() == Some(object));
            reason.unwrap().nodes.join(" ")
        };
        assert_eq!((nodes("up"), nodes("other"), NOW - found.since_ms), ("n1 n2".into(), "n2".into(), 9));
        assert!(!serde_json::to_string(&verdict(&serving())).unwrap().contains("nodes"));
    }

    #[test]
    fn verdict_reasons_have_figures_and_are_bounded() {
        let found = verdict(&with_selector("line", trend(100, 41, 2)));
        let [failing, hour] = found.reasons.as_slice() else { panic!("{found:?}") };
        assert_eq!(failing.figures, [("requests", 100), ("failed", 41)].into());
        assert_eq!(hour.figures["requests"], 1_000);
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!((&json["state"], &json["reasons"][0]["object"]), (&"failing".into(), &"line".into()));
        let many = (0..99).map(|n| OpenCircuit { object: n.to_string(), ..circuit() }).collect();
        let cut = passes(&VERDICT_REASONS, || verdict(&Situation { circuits: many, ..serving() }));
        assert_eq!((cut.reasons.len(), cut.reasons_omitted), (VERDICT_REASONS.max() + 1, 79));
    }
}
