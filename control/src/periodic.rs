//! The tasks that run at intervals on the control thread, as long as the control plane lives.

use std::sync::Arc;

use shared::alarm::Alarm;
use tokio::task::JoinHandle;

use crate::admin::App;
use crate::admin::backups::jobs::{Rehearsals, ScheduledBackups};
use crate::alert_watch::AlertWatch;
use crate::anonymous::{self, AnonymousAutomation};
use crate::catalog::price_feed::PriceFeed;
use crate::credential::TokenRenewer;
use crate::oauth::{Refresher, Vendor};
use crate::otlp::{ExporterParams, SpanExporter};
use crate::outbox::Deliverer;
use crate::publish::Touched;

/// Starts the tasks.
pub(crate) fn start(app: &Arc<App>, alarm: &Alarm) -> Vec<JoinHandle<()>> {
    let publish = || {
        let handle = app.writer.clone();
        Box::new(move || handle.publish(Touched::ROUTING))
    };
    let renewer = TokenRenewer::new(app.tokens.clone(), Arc::clone(&app.http), publish());
    let refresher = Refresher::new(app.refreshes.clone(), Vendor::new(&app.http), app.writer.clone());
    let feed = app.config.prices_url.clone().map(|url| PriceFeed {
        url,
        catalog: Arc::clone(&app.catalog),
        http: Arc::clone(&app.http),
        publish: publish(),
        job: app.jobs.register("price_list", "daily"),
    });
    let recorded = Arc::clone(app);
    let vital = [
        spawn_vital(alarm, "the renewal of access tokens", renewer.run()),
        spawn_vital(alarm, "the refresh of OAuth sign-ins", refresher.run()),
        spawn_vital(alarm, "the rehearsal of restores", rehearsals(app).run()),
        spawn_vital(alarm, "the delivery of events", deliverer(app).run()),
        spawn_vital(alarm, "the evaluation of alerts", AlertWatch::new(Arc::clone(app)).run()),
        spawn_vital(alarm, "the end of recordings", async move { recorded.recordings.run().await }),
    ];
    let optional = [
        feed.map(|feed| spawn_vital(alarm, "the price feed", feed.run())),
        scheduled_backups(app).map(|backups| spawn_vital(alarm, "the scheduled backups", backups.run())),
        exporter(app).map(|exporter| spawn_vital(alarm, "the export of traces", exporter.run())),
        automation(app).map(|job| spawn_vital(alarm, "the automation of anonymous providers", job.run())),
    ];
    vital.into_iter().chain(optional.into_iter().flatten()).collect()
}

/// Spawns a task that lives as long as the control plane. The runtime catches a panic in the task, so a guard reports
/// it.
pub(crate) fn spawn_vital(
    alarm: &Alarm,
    part: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let guard = alarm.guard(part);
    tokio::spawn(async move {
        let _guard = guard;
        task.await;
    })
}

fn rehearsals(app: &App) -> Rehearsals {
    Rehearsals { config: Arc::clone(&app.config), job: app.jobs.register("restore_rehearsal", "daily") }
}

fn deliverer(app: &App) -> Deliverer {
    Deliverer {
        readers: app.readers.clone(),
        writer: app.writer.clone(),
        keys: Arc::clone(&app.keys),
        http: Arc::clone(&app.http),
    }
}

/// Builds the exporter of traces, if requests are traced.
fn exporter(app: &App) -> Option<SpanExporter> {
    let (queue, status) = app.traces.clone()?;
    let settings = app.config.otlp.clone();
    let traces = settings.traces.clone()?;
    let (snapshot, http) = (app.snapshot.clone(), Arc::clone(&app.http));
    Some(SpanExporter::new(ExporterParams {
        settings,
        traces,
        queue,
        snapshot,
        http,
        status,
        build: app.build,
    }))
}

/// Builds the job that makes backups, if a schedule is configured.
fn scheduled_backups(app: &App) -> Option<ScheduledBackups> {
    let schedule = app.config.backup_schedule.clone()?;
    Some(ScheduledBackups {
        backups: app.backups.clone(),
        job: app.jobs.register("backup", schedule.text()),
        schedule,
        writer: app.writer.clone(),
    })
}

/// Builds the job that connects and checks anonymous providers, if it is enabled.
fn automation(app: &App) -> Option<AnonymousAutomation> {
    app.config.anonymous_provider_automation.then(|| AnonymousAutomation {
        list: anonymous::curated(),
        plane: Arc::clone(&app.plane),
        http: Arc::clone(&app.http),
        catalog: Arc::clone(&app.catalog),
        snapshot: app.snapshot.clone(),
        readers: app.readers.clone(),
        writer: app.writer.clone(),
    })
}
