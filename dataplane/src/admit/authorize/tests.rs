//! Tests of authorization through the front door: requests, lists of models and explanations agree with each other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use serde_json::{Value, json};
use shared::access::{Access, Allowlist, Role};
use shared::health::{Evidence, Failed};
use shared::id::{PrincipalId, ProjectId};
use shared::operation::Operation;
use shared::port::{self, Insider};
use shared::routing::{EchoOptions, ProviderInstance};
use shared::usage::{Outcome, StepResult};

use crate::fixture::{Fixture, asks, echo, insider, target, whole};

/// Creates the providers `a` and `b` without owners, and `hers`, which is owned by Ada and shared with the project `team`.
fn fixture() -> Fixture {
    let mut hers = echo("hers", EchoOptions::default());
    hers.owner = Some(PrincipalId::new("ada"));
    hers.shared_with = vec![ProjectId::new("team")];
    Fixture::start(vec![hers, echo("a", EchoOptions::default()), echo("b", EchoOptions::default())])
}

fn names<const N: usize>(names: [&str; N]) -> Option<std::collections::BTreeSet<Box<str>>> {
    Some(names.into_iter().map(Box::from).collect())
}

fn key(lists: Vec<Allowlist>) -> Access {
    Access { allowlists: lists.into_iter().map(Arc::new).collect(), ..Access::new("key", Role::Project) }
}

fn models<const N: usize>(listed: [&str; N]) -> Allowlist {
    Allowlist { models: names(listed), ..Allowlist::default() }
}

fn endpoints<const N: usize>(listed: [&str; N]) -> Allowlist {
    Allowlist { endpoints: names(listed), ..Allowlist::default() }
}

fn routes(listed: Vec<Operation>) -> Allowlist {
    Allowlist { routes: Some(listed), ..Allowlist::default() }
}

fn ada() -> Access {
    Access { acts_as: Some(PrincipalId::new("ada")), ..key(Vec::new()) }
}

fn team() -> Access {
    Access { project: Some(ProjectId::new("team")), ..key(Vec::new()) }
}

fn administrator() -> Access {
    Access::new("admin", Role::Administrator)
}

/// Returns the target that serves `selector`, or the error code; the explanation must agree.
async fn outcome(fixture: &Fixture, access: Access, selector: &str) -> String {
    let access = Arc::new(access);
    let ask = Insider::new(Arc::clone(&access));
    let response = fixture.chat(&asks(selector, false), Some(ask.clone())).await;
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let served = header("x-llmgw-provider").zip(header("x-llmgw-model"));
    let (status, body) = whole(response).await;
    let explanation = fixture.chat(&asks(selector, false), Some(Insider { explain: true, ..ask })).await;
    let (explained, explanation) = whole(explanation).await;
    assert_eq!(explained, 200, "{explanation}");
    match served {
        Some((provider, model)) => {
            assert_eq!(status, 200);
            assert_eq!(
                explanation["candidates"][0],
                json!({"provider": provider, "model": model}),
                "{explanation}"
            );
            assert_eq!(explanation["refusal"], Value::Null);
            format!("{provider}/{model}")
        }
        None => {
            let refusal = &explanation["refusal"];
            assert_eq!(
                (&refusal["code"], &refusal["status"]),
                (&body["error"]["code"], &json!(status)),
                "{explanation}"
            );
            assert_eq!(refusal["message"], body["error"]["message"]);
            format!("{status} {}", refusal["code"].as_str().unwrap())
        }
    }
}

#[tokio::test]
async fn a_request_reaches_only_targets_that_all_lists_and_owners_permit() {
    let fixture = fixture();
    let table = [
        // M-192, M-193: the key and its project must both permit it.
        ("no lists", key(vec![]), "a/m", "a/m"),
        ("its model", key(vec![models(["a/m"])]), "a/m", "a/m"),
        ("all of a provider", key(vec![models(["a/*"])]), "a/only-a", "a/only-a"),
        ("another model", key(vec![models(["b/m"])]), "a/m", "403 not_allowed"),
        ("a list of nothing", key(vec![models([])]), "a/m", "403 not_allowed"),
        (
            "the project's does not name it",
            key(vec![models(["a/m"]), models(["b/m"])]),
            "a/m",
            "403 not_allowed",
        ),
        ("members by model", key(vec![models(["b/m"])]), "line", "b/m"),
        ("members by endpoint", key(vec![endpoints(["line"])]), "line", "a/m"),
        ("an endpoint's member by itself", key(vec![endpoints(["line"])]), "a/m", "403 not_allowed"),
        ("another endpoint", key(vec![endpoints(["other"])]), "line", "403 not_allowed"),
        ("chat only", key(vec![routes(vec![Operation::ChatCompletions])]), "a/m", "a/m"),
        ("models only", key(vec![routes(vec![Operation::Models])]), "a/m", "403 not_allowed"),
        ("an alias", key(vec![models(["a/only-a"])]), "only-a", "a/only-a"),
        ("an alias of another", key(vec![models(["b/*"])]), "only-a", "403 not_allowed"),
        ("a name that several have", key(vec![]), "m", "404 model_not_found"),
        ("one of which it may use", key(vec![models(["b/m"])]), "m", "b/m"),
        ("no such model", key(vec![models(["a/m"])]), "c/m", "404 model_not_found"),
        // M-195, M-196, AUTH-4: an administrator has no allowlists, and no access to private providers.
        (
            "an administrator",
            Access { role: Role::Administrator, ..key(vec![models([]), routes(vec![])]) },
            "a/m",
            "a/m",
        ),
        ("private, for an administrator", administrator(), "hers/m", "403 private_provider"),
        ("private, for the local mode", Access::new("local", Role::Local), "hers/m", "403 private_provider"),
        // M-201, M-202: the owner's key, or a project with which the provider is shared.
        ("private, for a key", key(vec![]), "hers/m", "403 private_provider"),
        ("private, for its owner", ada(), "hers/m", "hers/m"),
        ("private, for the project", team(), "hers/m", "hers/m"),
        ("private and not listed", key(vec![models(["a/m"])]), "hers/m", "403 not_allowed"),
        ("private in an endpoint", key(vec![]), "line", "a/m"),
        ("private in an endpoint, for its owner", ada(), "line", "hers/m"),
        (
            "a private one is all that is listed",
            key(vec![models(["hers/m"])]),
            "line",
            "403 private_provider",
        ),
    ];
    for (what, access, selector, want) in table {
        assert_eq!(outcome(&fixture, access, selector).await, want, "{what}");
    }
}

#[tokio::test]
async fn the_trace_lists_skipped_candidates_with_the_reason() {
    let mut fixture = fixture();
    let access = key(vec![models(["hers/m", "b/m"])]);
    whole(fixture.chat(&asks("line", false), Some(insider(access))).await).await;
    let event = fixture.events.recv().await.unwrap();
    let steps: Vec<_> = event.trace.iter().map(|step| (step.provider.as_str(), step.result)).collect();
    let want = [("hers", StepResult::Private), ("a", StepResult::NotAllowed), ("b", StepResult::Served)];
    assert_eq!(steps, want);
    assert_eq!(event.outcome, Outcome::Completed);
}

#[tokio::test]
async fn an_operation_that_is_not_listed_is_refused_before_the_body_is_read() {
    let fixture = fixture();
    let body = http_body_util::BodyExt::boxed_unsync(Endless);
    let mut request = Request::post("/v1/chat/completions").body(body).unwrap();
    request.extensions_mut().insert(insider(key(vec![routes(vec![])])));
    let (status, answer) = whole(fixture.send(request).await).await;
    assert_eq!((status, &answer["error"]["code"]), (403, &json!("not_allowed")));
}

/// A body that never yields data.
struct Endless;

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = port::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, port::BoxError>>> {
        Poll::Pending
    }
}

/// Returns the status and the body of the caller's list of models.
async fn listed(fixture: &Fixture, access: Arc<Access>, path: &str, anthropic: bool) -> (u16, Value) {
    let mut request = Request::get(path).body(port::full("")).unwrap();
    if anthropic {
        request.headers_mut().insert("anthropic-version", "2023-06-01".parse().unwrap());
    }
    request.extensions_mut().insert(Insider::new(access));
    whole(fixture.send(request).await).await
}

#[tokio::test]
async fn the_model_list_holds_only_models_the_caller_may_use() {
    // M-129.
    let fixture = fixture();
    for (what, access, want) in [
        ("a key", key(vec![]), &["a/m", "a/only-a", "b/m", "b/only-b", "line", "only-a", "only-b"][..]),
        ("a key with one model", key(vec![models(["b/m"])]), &["b/m", "line", "m"]),
        ("a key with one endpoint", key(vec![endpoints(["line"])]), &["line"]),
        ("a key with nothing", key(vec![models([])]), &[]),
        (
            "an owner with her own only",
            Access { allowlists: vec![Arc::new(models(["hers/*"]))], ..ada() },
            &["hers/m", "hers/only-hers", "line", "m", "only-hers"],
        ),
    ] {
        let access = Arc::new(access);
        for anthropic in [false, true] {
            let (status, answer) = listed(&fixture, Arc::clone(&access), "/v1/models", anthropic).await;
            assert_eq!(status, 200);
            let ids: Vec<_> = answer["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| entry["id"].as_str().unwrap())
                .collect();
            assert_eq!(ids, want, "{what}");
            if anthropic {
                assert_eq!(answer["first_id"].as_str(), want.first().copied(), "{what}");
                assert_eq!(answer["last_id"].as_str(), want.last().copied(), "{what}");
            }
        }
    }
    let (_, line) = listed(&fixture, Arc::new(key(vec![models(["b/m"])])), "/v1/models/line", false).await;
    assert_eq!(line["failover"], json!([{"provider": "b", "model": "m"}]), "members that it may use");
    for (access, path, want) in [
        (key(vec![]), "/v1/models/a/m", 200),
        (key(vec![models(["b/m"])]), "/v1/models/a%2Fm", 404),
        (key(vec![]), "/v1/models/hers/m", 404),
        (ada(), "/v1/models/hers/m", 200),
        (key(vec![routes(vec![Operation::ChatCompletions])]), "/v1/models", 403),
    ] {
        assert_eq!(listed(&fixture, Arc::new(access), path, false).await.0, want, "{path}");
    }
}

/// Opens the circuit of an instance.
fn open_circuit(provider: &ProviderInstance) {
    let failed = Failed { at_ms: 0, result: StepResult::Unreachable, status: None };
    for _ in 0..provider.circuit_policy.failure_threshold {
        let mut admission = provider.circuits.unchecked(&provider.models[0].id);
        admission.failed((Evidence::InstanceFailed, failed), 1, &provider.circuit_policy);
    }
}

#[tokio::test]
async fn an_explanation_shows_the_plan_and_calls_no_upstream() {
    let resting = echo("a", EchoOptions::default());
    open_circuit(&resting);
    let mut speechless = echo("b", EchoOptions::default());
    speechless.dialects = Vec::new();
    let mut unready = echo("d", EchoOptions::default());
    unready.unready = Some("its OAuth sign-in is missing");
    let mut fixture = Fixture::start(vec![resting, speechless, echo("c", EchoOptions::default()), unready]);
    let ask = Insider { explain: true, ..insider(key(vec![models(["a/m", "b/m", "c/m", "d/m"])])) };
    let body =
        asks("line", true).replacen('{', r#"{"affinity_key": "talk", "fallback_timeout_ms": 900, "#, 1);
    let (status, explanation) = whole(fixture.chat(&body, Some(ask.clone())).await).await;
    assert_eq!(status, 200);
    for (member, want) in [
        ("operation", json!("chat_completions")),
        ("selector", json!("line")),
        ("stream", json!(true)),
        ("needs", json!(["chat"])),
        ("resolved", json!({"kind": "endpoint", "name": "line"})),
        ("candidates", json!([{"provider": "c", "model": "m"}])),
        ("budget_ms", json!(900)),
        ("refusal", Value::Null),
    ] {
        assert_eq!(explanation[member], want, "{member} in {explanation}");
    }
    assert_eq!(explanation["affinity"]["key"], json!("talk"));
    let reasons: Vec<_> = explanation["passed_over"].as_array().unwrap().iter().collect();
    assert_eq!(reasons[0], &json!({"provider": "b", "model": "m", "reason": "no_dialect"}));
    assert_eq!(reasons[1], &json!({"provider": "d", "model": "m", "reason": "not_ready"}));
    assert_eq!((&reasons[2]["provider"], &reasons[2]["reason"]), (&json!("a"), &json!("circuit_open")));
    assert!((1..=30_000).contains(&reasons[2]["wait_ms"].as_u64().unwrap()), "{explanation}");

    let (status, explanation) = whole(fixture.chat(&asks("a/m", false), Some(ask.clone())).await).await;
    assert_eq!(
        (status, &explanation["refusal"]["code"]),
        (200, &json!("no_eligible_target")),
        "{explanation}"
    );
    let (_, explanation) = whole(fixture.chat(&asks("d/m", false), Some(ask.clone())).await).await;
    assert_eq!(
        explanation["refusal"]["message"],
        json!("'d/m' cannot be used: its OAuth sign-in is missing.")
    );
    let (status, explanation) = whole(fixture.chat("no JSON", Some(ask.clone())).await).await;
    assert_eq!(
        (status, &explanation["refusal"]["status"], &explanation["selector"]),
        (200, &json!(400), &Value::Null)
    );
    let expired = Access { expires_at_ms: Some(1), ..key(vec![]) };
    let ask = Insider { explain: true, ..insider(expired) };
    let (_, explanation) = whole(fixture.chat(&asks("line", false), Some(ask)).await).await;
    assert_eq!(explanation["refusal"]["code"], json!("invalid_api_key"));
    assert!(fixture.events.try_recv().is_err(), "nothing is recorded");
}

#[tokio::test]
async fn a_single_target_request_ignores_its_selector_and_the_open_circuit() {
    let mut fixture = fixture();
    let unlisted: ProviderInstance = echo("draft", EchoOptions::default());
    open_circuit(&unlisted);
    let only = target(&Arc::new(unlisted));
    let ask = Insider { only: Some(only.clone()), ..insider(administrator()) };
    let (status, _) = whole(fixture.chat(&asks("anything", false), Some(ask)).await).await;
    assert_eq!(status, 200);
    assert_eq!(fixture.events.recv().await.unwrap().provider.unwrap().as_str(), "draft");
    assert_eq!(only.provider.circuits.instance().failures(), 0, "what it proved counts");
}
