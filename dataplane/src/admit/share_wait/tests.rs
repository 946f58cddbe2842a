//! Requests whose node has no share of a limit, through the front door.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shared::access::{Access, Role};
use shared::port::{BoxFuture, Insider};
use shared::quota::{Counter, Counters, Metric, Period, Quota, Scope, ShareNeed, Subject};
use shared::routing::EchoOptions;

use super::*;
use crate::fixture::{Fixture, asks, echo, whole};

/// Grants so much, at the n-th time that a request waits.
#[derive(Debug)]
struct Script {
    counters: Counters,
    grant: u64,
    at: u64,
    waits: AtomicU64,
    answers: bool,
}

impl ShareGrants for Script {
    fn wait(&self, need: ShareNeed, until_ms: u64) -> BoxFuture<bool> {
        assert_eq!((need.need.least, need.need.wanted, need.period), (1, 1, Some(Period::Total)));
        assert!(until_ms.saturating_sub(since_boot_ms()) <= WAIT_MS);
        if self.waits.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            let counter = self.counters.get(&need.key.quota).unwrap();
            counter.share().unwrap().raise(need.key.start_ms, self.grant);
        }
        if self.answers { Box::pin(std::future::ready(true)) } else { Box::pin(std::future::pending()) }
    }
}

/// Starts a data plane whose callers have a limit of requests.
fn start(limit: u64, script: Script) -> (Fixture, Insider, Arc<Script>) {
    start_with((limit, 0), script)
}

/// Like [`start`], with the time for which requests wait in the line.
fn start_with((limit, wait_ms): (u64, u64), script: Script) -> (Fixture, Insider, Arc<Script>) {
    let quota = Quota {
        id: "q".into(),
        subject: Subject::Gateway,
        scope: Scope::default(),
        metric: Metric::Requests,
        period: Some(Period::Total),
        limit,
        is_hard: true,
        wait_ms,
        counter: Arc::new(Counter::of_shared(Some(Period::Total), 0)),
    };
    let quota = script.counters.put(quota);
    let script = Arc::new(script);
    let shares: Arc<dyn ShareGrants> = Arc::<Script>::clone(&script);
    let fixture = Fixture::start_with(vec![echo("a", EchoOptions::default())], Some(shares));
    let access = Access { quotas: Box::new([quota]), ..Access::new("key", Role::Project) };
    (fixture, Insider::new(Arc::new(access)), script)
}

fn script(grant: u64, at: u64, answers: bool) -> Script {
    Script { counters: Counters::of_node(1), grant, at, waits: AtomicU64::new(0), answers }
}

#[tokio::test]
async fn a_request_waits_for_its_share_and_others_use_the_rest_of_it() {
    let (fixture, insider, script) = start(9, script(2, 3, true));
    for waits in [3, 3] {
        let response = fixture.chat(&asks("a/m", false), Some(insider.clone())).await;
        assert_eq!(whole(response).await.0, 200);
        assert_eq!(script.waits.load(Ordering::SeqCst), waits);
    }
}

#[tokio::test]
async fn a_request_without_a_grant_is_refused_in_time_and_told_to_try_again() {
    let (fixture, insider, script) = start(9, script(0, 0, false));
    let began = tokio::time::Instant::now();
    let response = fixture.chat(&asks("a/m", false), Some(insider)).await;
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(script.waits.load(Ordering::SeqCst), 1);
    let body = whole(response).await.1.to_string();
    assert!(body.contains("is not used up, but this node got no share"), "{body}");
}

#[tokio::test]
async fn a_request_is_told_that_other_nodes_have_used_the_limit_up() {
    let (fixture, insider, script) = start(9, script(0, 0, false));
    script.counters.get("q").unwrap().share().unwrap().set_elsewhere(0, 9);
    let response = fixture.chat(&asks("a/m", false), Some(insider)).await;
    assert_eq!(response.status(), 429);
    let body = whole(response).await.1.to_string();
    assert!(body.contains("is used up"), "{body}");
}

#[tokio::test]
async fn a_request_that_exceeds_the_whole_limit_does_not_wait() {
    let (fixture, insider, script) = start(0, script(1, 1, true));
    let response = fixture.chat(&asks("a/m", false), Some(insider)).await;
    assert_eq!(response.status(), 429);
    assert_eq!(script.waits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_in_a_line_asks_other_nodes_until_one_returns_a_share() {
    let (fixture, insider, script) = start_with((9, 60_000), script(1, 2, true));
    let response = fixture.chat(&asks("a/m", false), Some(insider.clone())).await;
    assert_eq!(whole(response).await.0, 200);
    assert_eq!(script.waits.load(Ordering::SeqCst), 2, "once at first, then after a pause");
    let (fixture, insider, _) = start_with((9, 1_200), self::script(0, 0, false));
    let response = fixture.chat(&asks("a/m", false), Some(insider)).await;
    assert_eq!(response.status(), 429);
    let body = whole(response).await.1.to_string();
    assert!(body.contains("waited as long as it may"), "{body}");
}
