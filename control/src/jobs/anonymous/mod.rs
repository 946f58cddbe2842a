//! Anonymous providers (CFG-9): connects the curated providers that need no account, and checks each of them once a day.
//! A check reads the catalog and makes one tiny completion.
//!
//! The claim on a check is committed before its first request, so a process that is killed repeats nothing. A provider
//! that an operator has disabled, deleted or given a key is left alone, and neither keys nor endpoints are ever created.

mod curated;

use std::sync::Arc;
use std::time::Duration;

use shared::access::{Access, Role};
use shared::clock::unix_ms;
use shared::port::{Handler, HttpClient};
use shared::routing::{ProviderInstance, Target};
use shared::snapshot::SnapshotReader;

pub(crate) use self::curated::{CuratedProvider, curated};
use crate::common::actor::{Actor, Who};
use crate::common::background::{Job, sleep_until};
use crate::db::readers::Readers;
use crate::jobs::model_test::{ModelTester, TestedModel};
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::catalog::sync::Syncer;
use crate::routing::catalog::test_request::TestProtocol;
use crate::routing::publish::Touched;
use crate::writer::WriterHandle;
use crate::writer::command::anonymous::ClaimCheck;
use crate::writer::command::{AdminWrite, CommandRefusal};

/// The periodic job.
#[derive(Debug)]
pub(crate) struct AnonymousAutomation {
    /// The providers to connect and check.
    pub(crate) list: Vec<CuratedProvider>,
    pub(crate) plane: Arc<dyn Handler>,
    pub(crate) http: Arc<dyn HttpClient>,
    pub(crate) catalog: Arc<CatalogCache>,
    pub(crate) snapshot: SnapshotReader,
    pub(crate) readers: Readers,
    pub(crate) writer: WriterHandle,
    pub(crate) job: Job,
}

impl AnonymousAutomation {
    /// Checks the providers that are due, for as long as the future is polled.
    pub(crate) async fn run(self) {
        loop {
            self.job.begins();
            let mut outcome = Ok(());
            for entry in &self.list {
                outcome = outcome.and(self.visit(entry).await);
            }
            self.job.ends(outcome);
            let next = unix_ms().saturating_add(PAUSE_MS);
            self.job.waits_until(next);
            sleep_until(next).await;
        }
    }

    /// Checks a provider if this process gets the claim. The error is the reason why it could not be claimed or checked.
    async fn visit(&self, entry: &CuratedProvider) -> Result<(), String> {
        let claim = ClaimCheck { id: entry.id.clone(), settings: entry.settings() };
        let actor = Actor::gateway();
        let checked = match self.writer.write(AdminWrite::unanswered(claim, actor)).await {
            Ok(_) => self.check(entry).await,
            Err(CommandRefusal::Reported { message, .. }) => {
                tracing::debug!(provider.id = entry.id, "an anonymous provider is not checked: {message}");
                Ok(())
            }
            Err(CommandRefusal::Failed(error)) => {
                Err(format!("an anonymous provider cannot be checked: {error}"))
            }
            Err(CommandRefusal::Seal) => {
                Err("an anonymous provider cannot be checked: unreadable secret".to_owned())
            }
        };
        checked.map_err(|why| {
            tracing::warn!(provider.id = entry.id, "{why}");
            format!("{}: {why}", entry.id)
        })
    }

    async fn check(&self, entry: &CuratedProvider) -> Result<(), String> {
        let Some(instance) = self.instance(&entry.id) else { return Ok(()) };
        let hasher = self.snapshot.load().key_hasher.clone();
        let syncer = Syncer { catalog: &self.catalog, http: &self.http, hasher };
        let (outcomes, _) = syncer.sync(vec![instance]).await;
        if !outcomes.iter().any(|outcome| outcome.ok) {
            return Err("the catalog of an anonymous provider cannot be read".to_owned());
        }
        while !self.writer.publish(Touched::ROUTING) {
            tokio::time::sleep(QUEUE_FULL).await;
        }
        let Some(instance) = self.instance(&entry.id) else { return Ok(()) };
        self.complete(entry, &instance).await
    }

    /// Makes the completion.
    async fn complete(
        &self,
        entry: &CuratedProvider,
        instance: &Arc<ProviderInstance>,
    ) -> Result<(), String> {
        let model =
            self.model(entry, instance).ok_or("an anonymous provider lists no model for conversations")?;
        let Self { plane, catalog, snapshot, readers, writer, .. } = self;
        let tester = ModelTester { plane, catalog, snapshot, readers, writer };
        let quotas = snapshot.load().access.unbound.clone();
        let access = Access { quotas, ..Access::new(Who::Gateway.name(), Role::Administrator) };
        let tested = tester.test(instance, &model, (access, OUTPUT_TOKENS_MAX)).await;
        if let Some(error) = tested.ok().and_then(|TestedModel { trial, .. }| trial.error) {
            return Err(format!("an anonymous provider completed no request: {model}: {error}"));
        }
        tracing::info!(provider.id = entry.id, model, "an anonymous provider completed a request");
        Ok(())
    }

    /// Returns the model to test: that of the entry if the catalog lists it, or the first one that holds conversations.
    fn model(&self, entry: &CuratedProvider, instance: &Arc<ProviderInstance>) -> Option<String> {
        let listed = self.catalog.proven(instance, &self.snapshot.load().key_hasher)?;
        if listed.models.contains_key(&entry.model) {
            return Some(entry.model.clone());
        }
        let known = instance.models.iter().find(|model| {
            let target = Target { provider: Arc::clone(instance), model: Arc::clone(model) };
            TestProtocol::of(&target).is_some()
        });
        known.map(|model| model.id.to_string()).or_else(|| listed.models.keys().next().cloned())
    }

    fn instance(&self, id: &str) -> Option<Arc<ProviderInstance>> {
        let snapshot = self.snapshot.load();
        let found = snapshot.providers.iter().find(|instance| instance.id.as_str() == id);
        found.filter(|instance| instance.unready.is_none()).cloned()
    }
}

/// The pause between looks at which providers are due.
const PAUSE_MS: u64 = 60 * 60 * 1_000;
/// The pause before another attempt to queue the publication.
const QUEUE_FULL: Duration = Duration::from_secs(1);
/// The longest answer of the completion, in tokens.
const OUTPUT_TOKENS_MAX: u32 = 16;
