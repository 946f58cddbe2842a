//! Sends a test request to one model of a provider, along the path of client requests, and stores the result as evidence
//! (ADM-8).

use std::sync::Arc;

use serde_json::json;
use shared::access::Access;
use shared::clock::unix_ms;
use shared::id::ModelId;
use shared::port::{Handler, Insider};
use shared::routing::{Model, ProviderInstance, Target};
use shared::snapshot::SnapshotReader;

use crate::db::readers::Readers;
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::catalog::entry::Tested;
use crate::routing::catalog::evidence::CatalogFailure;
use crate::routing::catalog::sync::save;
use crate::routing::catalog::test_completion::{Trial, run};
use crate::routing::catalog::test_request::{TestProtocol, TestQuestion};
use crate::usage::requests::{self, NamedRequest, RequestRow};
use crate::writer::{FLUSH_TIME_MAX, WriterHandle};

/// The dependencies of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelTester<'a> {
    /// The data plane.
    pub(crate) plane: &'a Arc<dyn Handler>,
    pub(crate) catalog: &'a Arc<CatalogCache>,
    pub(crate) snapshot: &'a SnapshotReader,
    pub(crate) readers: &'a Readers,
    pub(crate) writer: &'a WriterHandle,
}

/// The result of a test.
#[derive(Debug)]
pub(crate) struct TestedModel {
    pub(crate) trial: Trial,
    /// The record of the exchange; `None` if it could not be read in time.
    pub(crate) record: Option<RequestRow>,
    /// The upstream's failure; `None` if the test succeeded, or no upstream was called.
    pub(crate) failure: Option<CatalogFailure>,
}

/// Error: the model serves no conversations. Contains the target.
#[derive(Debug)]
pub(crate) struct NoConversation(pub(crate) Target);

impl ModelTester<'_> {
    /// Asks `model` of `instance` for a short answer on behalf of `access`.
    pub(crate) async fn test(
        &self,
        instance: &Arc<ProviderInstance>,
        model: &str,
        (access, output_tokens_max): (Access, u32),
    ) -> Result<TestedModel, NoConversation> {
        let target = target(instance, model);
        let Some(protocol) = TestProtocol::of(&target) else { return Err(NoConversation(target)) };
        let question = TestQuestion {
            selector: &format!("{}/{model}", instance.id),
            messages: &json!([{"role": "user", "content": PROMPT}]),
            output_tokens_max,
            chat_bound: instance.quirks.output_limit.field(),
        };
        let insider = Insider { only: Some(target.clone()), ..Insider::new(Arc::new(access)) };
        let trial = run(self.plane, insider, protocol, &question).await;
        let record = self.record_of(&trial).await;
        let failure = failure(&trial, record.as_ref(), instance);
        if record.as_ref().and_then(RequestRow::first_step).is_some() {
            self.remember(instance, model, (&trial, failure.as_ref())).await;
        }
        Ok(TestedModel { trial, record, failure })
    }

    /// Returns the record of a test, as soon as it is stored.
    pub(crate) async fn record_of(&self, trial: &Trial) -> Option<RequestRow> {
        let named = NamedRequest::newest(trial.request_id.as_str());
        self.writer.flush(FLUSH_TIME_MAX).await;
        let row = self.readers.ask(move |db| requests::row(db, &named)).await;
        row.ok().flatten()
    }

    /// Stores the evidence: that the instance is reachable, and whether the model answers.
    async fn remember(
        &self,
        instance: &ProviderInstance,
        model: &str,
        (trial, failure): (&Trial, Option<&CatalogFailure>),
    ) {
        let hasher = self.snapshot.load().key_hasher.clone();
        self.catalog.change(instance, &hasher, |entry| {
            let now_ms = unix_ms();
            entry.evidence.reached(now_ms, "test completion", failure);
            let tested = match trial.ok {
                true => Tested::Completed { request_id: &trial.request_id },
                false => Tested::Failed(failure),
            };
            entry.learn(model, now_ms, tested);
        });
        save(self.catalog).await;
    }
}

fn target(instance: &Arc<ProviderInstance>, model: &str) -> Target {
    let known = instance.models.iter().find(|known| known.id.as_str() == model).cloned();
    let model = known.unwrap_or_else(|| Arc::new(Model::bare(ModelId::new(model))));
    Target { provider: Arc::clone(instance), model }
}

fn failure(
    trial: &Trial,
    record: Option<&RequestRow>,
    instance: &ProviderInstance,
) -> Option<CatalogFailure> {
    let error = trial.error.as_deref()?;
    let step = record.and_then(RequestRow::first_step)?;
    let secrets = instance.secrets();
    Some(match step.status.and_then(|status| u16::try_from(status).ok()) {
        Some(status) => CatalogFailure::answered(unix_ms(), status, error, &secrets),
        None => CatalogFailure::unanswered(unix_ms(), error, &secrets),
    })
}

/// The question of a test, if none is given.
pub(crate) const PROMPT: &str = "Reply with the one word: pong";
