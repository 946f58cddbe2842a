//! `POST providers/{id}/test` and `POST endpoints/{name}/test`: sends one real request along the same path as client
//! requests (ADM-8). Hosted providers may bill it.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::access::{Access, Role};
use shared::error_kind::ErrorKind;
use shared::id::PrincipalId;
use shared::port::{Body, Insider};
use shared::provider::Auth;
use shared::routing::{ProviderInstance, Target};

use super::catalog::instance;
use super::{ANSWER_TIME_MAX, ApiError, App, Call, Route, route_of};
use crate::db::audit::AuditEntry;
use crate::db::principals;
use crate::jobs::model_test::{ModelTester, NoConversation, PROMPT, TestedModel};
use crate::routing::catalog::test_completion::{TIME_MAX, Trial, run};
use crate::routing::catalog::test_request::{TestProtocol, TestQuestion};
use crate::routing::config::is_model_id;
use crate::routing::publish::Touched;
use crate::usage::requests::RequestRow;
use crate::writer::command::Done;
use crate::writer::command::audit_only::AuditOnly;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::POST, "providers/{}/test", |call| Box::pin(provider(call)))
        .answers::<TrialReport>("Sends one real request to a provider, which may be billable.")
        .takes::<ProviderTest>()
        .time_max(TEST_TIME_MAX),
    route_of(Method::POST, "endpoints/{}/test", |call| Box::pin(endpoint(call)))
        .answers::<TrialReport>("Sends one real request through an endpoint, which may be billable.")
        .takes::<EndpointTest>()
        .time_max(TEST_TIME_MAX),
];

/// The time limit of a test's response. The model may have to be loaded first.
const TEST_TIME_MAX: Duration = TIME_MAX.saturating_add(ANSWER_TIME_MAX);

/// The result of a test, with the record of its exchange.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Trial"))]
struct TrialReport {
    #[serde(flatten)]
    trial: Trial,
    /// A hint for the operator; null if there is none.
    hint: Option<String>,
    /// True if the provider may bill the test.
    billable: bool,
    /// The record, including the trace of the targets that were considered; null if it could not be read in time.
    record: Option<RequestRow>,
}

/// A test of a provider.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ProviderTest {
    /// The provider's name of the model.
    model: String,
}

async fn provider(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    // A repeated request must not be billed twice.
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let ProviderTest { model } = call.json()?;
    let instance = instance(call.app, call.argument())?;
    let own = format!("{}/", instance.id);
    let model = model.strip_prefix(&own).unwrap_or(&model);
    if !is_model_id(model) {
        return Err(ApiError::parameter("model", "model must name one of the provider's models."));
    }
    // Acts as the instance's owner, so that an administrator can test a private connection.
    let access = administrator(&call, instance.owner.clone());
    let tested = tester(call.app).test(&instance, model, (access, OUTPUT_TOKENS_MAX)).await;
    let TestedModel { trial, record, failure } =
        tested.map_err(|NoConversation(target)| no_conversation(model, &target))?;
    let report = TrialReport {
        hint: failure.and_then(|failure| failure.hint).map(String::from),
        billable: is_hosted(&instance),
        trial,
        record,
    };
    let object_id = instance.id.to_string();
    finish(call, "provider.test", "provider", object_id, report).await
}

fn tester(app: &App) -> ModelTester<'_> {
    let App { plane, catalog, snapshot, readers, writer, .. } = app;
    ModelTester { plane, catalog, snapshot, readers, writer }
}

/// A test of an endpoint.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EndpointTest {
    /// The text to send; a short question by default.
    #[serde(default)]
    prompt: Option<String>,
    /// The conversation to send, instead of `prompt`.
    #[serde(default)]
    messages: Option<Vec<Value>>,
    /// The longest answer, in tokens; 128 by default.
    #[serde(default)]
    max_tokens: Option<u32>,
    /// The human on whose behalf the request is sent, for members with a private owner.
    #[serde(default)]
    principal_id: Option<String>,
}

async fn endpoint(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    // A repeated request must not be billed twice.
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let name = call.argument().to_owned();
    let test: EndpointTest = call.json()?;
    let snapshot = call.app.snapshot.load();
    let found = snapshot.endpoints.iter().find(|endpoint| endpoint.name.as_str() == name).cloned();
    let found = found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "There is no such endpoint."))?;
    let messages = match (test.prompt, test.messages) {
        (Some(_), Some(_)) => {
            return Err(ApiError::parameter("prompt", "Send prompt or messages, not both."));
        }
        (None, Some(messages)) => json!(messages),
        (prompt, None) => {
            let prompt = prompt.unwrap_or_else(|| PROMPT.to_owned());
            json!([{"role": "user", "content": prompt}])
        }
    };
    let acts_as = match test.principal_id {
        Some(id) => Some(principal(call.app, id).await?),
        None => None,
    };
    // An endpoint without targets reports that error itself.
    let protocol = match (TestProtocol::of_line(&found.targets), found.targets.first()) {
        (Some(protocol), _) => protocol,
        (None, Some(target)) => return Err(no_conversation(target.model.id.as_str(), target)),
        (None, None) => TestProtocol::Chat,
    };
    let question = TestQuestion {
        selector: &name,
        messages: &messages,
        output_tokens_max: test.max_tokens.unwrap_or(OUTPUT_TOKENS_MAX),
        chat_bound: "max_tokens",
    };
    let insider = Insider::new(Arc::new(administrator(&call, acts_as)));
    let trial = run(&call.app.plane, insider, protocol, &question).await;
    let record = tester(call.app).record_of(&trial).await;
    let billable = found.targets.iter().any(|target| is_hosted(&target.provider));
    let report = TrialReport { hint: None, billable, trial, record };
    finish(call, "endpoint.test", "endpoint", name, report).await
}

/// Returns the principal with this id, or an error if it does not exist.
pub(super) async fn principal(app: &App, id: String) -> Result<PrincipalId, ApiError> {
    let wanted = id.clone();
    let found = app.readers.ask(move |db| principals::find(db, &wanted)).await?;
    let message = "principal_id must be the ID of a principal.";
    found.map(|_| PrincipalId::new(id)).ok_or_else(|| ApiError::parameter("principal_id", message))
}

/// Returns the access of the calling administrator, acting as `acts_as`.
pub(super) fn administrator(call: &Call<'_>, acts_as: Option<PrincipalId>) -> Access {
    let quotas = call.app.snapshot.load().access.unbound.clone();
    Access { acts_as, quotas, ..Access::new(call.actor.who.name(), Role::Administrator) }
}

fn is_hosted(instance: &ProviderInstance) -> bool {
    instance.kind.auth != Auth::None
}

async fn finish(
    call: Call<'_>,
    action: &'static str,
    object_kind: &'static str,
    object_id: String,
    report: TrialReport,
) -> Result<Response<Body>, ApiError> {
    let trial = &report.trial;
    let detail = json!({
        "ok": trial.ok,
        "status": trial.status,
        "request_id": trial.request_id,
        "error": trial.error,
    });
    let audit = AuditEntry::done(action, object_kind, &object_id).after(detail);
    call.execute(StatusCode::OK, AuditOnly(Done::new(&report, audit, Touched::NOTHING)?)).await
}

/// Returns the error for a model that does not support conversations.
fn no_conversation(model: &str, target: &Target) -> ApiError {
    let spoken = target.provider.dialects.iter().filter(|dialect| target.speaks(**dialect));
    let spoken: Vec<&str> = spoken.map(|dialect| dialect.name()).collect();
    let spoken = if spoken.is_empty() { "nothing".to_owned() } else { spoken.join(", ") };
    let message = format!(
        "'{model}' does not support conversations: it supports {spoken} only. Test another model, or send a \
         request that it supports."
    );
    ApiError::parameter("model", message)
}

/// Enough tokens for a model that reasons briefly before it answers.
const OUTPUT_TOKENS_MAX: u32 = 128;
