//! Evaluates the rules for alerts in a background task of the control thread: measures, asks the
//! [engine](crate::writer::alerts) what has changed, and has the writer store it with its event.

mod costs;
pub(crate) mod joined;
mod nodes;
mod sources;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use shared::clock::unix_ms;

use self::costs::SpendWatch;
use crate::admin::App;
use crate::common::actor::Actor;
use crate::common::background::Job;
use crate::common::bounds::ALERT_CHANGES;
use crate::db::alert_rules::{self, AlertRule};
use crate::db::alerts::unresolved;
use crate::db::error::QueryError;
use crate::writer::alerts::{AlertChange, AlertEngine, Measurements};
use crate::writer::command::alerts::ChangeAlert;
use crate::writer::command::{AdminWrite, Answer};

/// The background task.
#[derive(Debug)]
pub(crate) struct AlertWatch {
    app: Arc<App>,
    engine: AlertEngine,
    spend: SpendWatch,
    job: Job,
    /// The number of evaluations.
    ticks: u64,
}

impl AlertWatch {
    pub(crate) fn new(app: Arc<App>) -> Self {
        let job = app.jobs.register("alert_evaluation", "every 2 s");
        Self { app, engine: AlertEngine::default(), spend: SpendWatch::default(), job, ticks: 0 }
    }

    /// Evaluates the rules for as long as the future is polled.
    pub(crate) async fn run(mut self) {
        while let Err(error) = self.restore().await {
            tracing::warn!("cannot read the open alerts; retrying: {error}");
            tokio::time::sleep(TICK).await;
        }
        loop {
            self.job.begins();
            let evaluated = self.tick().await;
            if let Err(error) = &evaluated {
                tracing::warn!("cannot evaluate alerts; retrying: {error}");
            }
            self.job.ends(evaluated.map_err(|error| error.to_string()));
            self.ticks += 1;
            self.job.waits_until(unix_ms().saturating_add(TICK_MS));
            tokio::time::sleep(TICK).await;
        }
    }

    /// Continues with the alerts that are not resolved.
    async fn restore(&mut self) -> Result<(), QueryError> {
        self.engine = AlertEngine::of(&self.app.readers.ask(unresolved).await?);
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), QueryError> {
        let rules = self.app.readers.ask(alert_rules::all).await?;
        let (measured, outcome) = self.measure(&rules).await;
        let mut changes = self.engine.step(&rules, &measured, unix_ms());
        ALERT_CHANGES.cut(&mut changes);
        for change in changes {
            self.store(change).await;
        }
        outcome
    }

    /// Measures what is in memory, and from time to time what is in the database. A source that fails leaves its kinds
    /// unmeasured, and no others.
    async fn measure(&mut self, rules: &[AlertRule]) -> (Measurements, Result<(), QueryError>) {
        let mut measured = Measurements::default();
        sources::in_memory(&self.app, &mut measured);
        let mut outcome = Ok(());
        if let Some(board) = self.app.board() {
            outcome = joined::join(board, rules, &mut measured).await;
        }
        if self.ticks.is_multiple_of(TICKS_BETWEEN_READS) {
            let stored = sources::stored(&self.app, rules, &mut measured).await;
            let nodes = nodes::measure(&self.app, &mut measured).await;
            outcome = outcome.and(stored).and(nodes).and(self.spend.measure(&self.app, &mut measured).await);
        }
        (measured, outcome)
    }

    /// Stores a change. If that fails, a later tick tries again.
    async fn store(&mut self, change: AlertChange) {
        let actor = Actor::gateway();
        let command = Box::new(ChangeAlert(change.clone()));
        let write = AdminWrite { command, actor, status: StatusCode::OK, idempotency: None };
        match self.app.writer.write(write).await {
            Ok(answer) => self.stored(change, &answer),
            Err(error) => tracing::warn!("cannot store an alert; retrying: {error:?}"),
        }
    }

    fn stored(&mut self, change: AlertChange, answer: &Answer) {
        match change {
            AlertChange::Open { rule, measurement, .. } => {
                let stored: BTreeMap<String, serde_json::Value> =
                    serde_json::from_slice(&answer.body).unwrap_or_default();
                let id = stored.get("id").and_then(serde_json::Value::as_str).unwrap_or_default();
                self.engine.opened(&rule, measurement.object.as_deref(), id);
                tracing::warn!(alert.id = id, "alert {}: {}", measurement.kind.name(), measurement.text);
            }
            AlertChange::Resolve { alert, .. } => {
                self.engine.resolved(&alert);
                tracing::info!(alert.id = alert, "an alert is resolved");
            }
            AlertChange::Again { .. } => {}
        }
    }
}

/// The interval of evaluations.
const TICK: Duration = Duration::from_millis(TICK_MS);
const TICK_MS: u64 = 2_000;
/// What is in the database is measured with every fifth evaluation.
const TICKS_BETWEEN_READS: u64 = 5;

#[cfg(test)]
mod tests;
