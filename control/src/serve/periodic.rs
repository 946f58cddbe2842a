//! The tasks that run at intervals on the control thread, as long as the control plane lives.

use std::sync::Arc;
use std::time::Duration;

use shared::alarm::Alarm;
use tokio::task::JoinHandle;

use crate::admin::backups::jobs::{Rehearsals, ScheduledBackups};
use crate::admin::{App, node_answers, oauth};
use crate::cluster::board::NodeBoard;
use crate::common::background::{JobTasks, Jobs};
use crate::common::credential::TokenRenewer;
use crate::db::jobs::put;
use crate::jobs::anonymous::{self, AnonymousAutomation};
use crate::jobs::oauth::{Refresher, Vendor};
use crate::jobs::otlp::{Exporter, ExporterParams};
use crate::jobs::outbox::Deliverer;
use crate::routing::catalog::periodic_sync::PeriodicSync;
use crate::routing::catalog::price_feed::PriceFeed;
use crate::routing::catalog::price_file::PriceFile;
use crate::routing::catalog::publication::Publication;
use crate::routing::publish::Touched;
use crate::serve::alert_watch::{self, AlertWatch};
use crate::serve::node_report;
use crate::state::affinity_file;
use crate::writer::WriterHandle;

/// Starts the tasks.
pub(crate) fn start(app: &Arc<App>, alarm: &Alarm) -> Vec<JoinHandle<()>> {
    let recorded = Arc::clone(app);
    tokio::spawn(oauth::resume(Arc::clone(app)));
    let vital = [
        spawn_vital(alarm, "the renewal of access tokens", renewer(app).run()),
        spawn_vital(alarm, "the refresh of OAuth sign-ins", refresher(app).run()),
        spawn_vital(alarm, "the rehearsal of restores", rehearsals(app).run()),
        spawn_vital(alarm, "the delivery of events", on_duty(app, |app| deliverer(app).run())),
        spawn_vital(alarm, "the export of telemetry", exporter(app).run()),
        spawn_vital(
            alarm,
            "the evaluation of alerts",
            on_duty(app, |app| AlertWatch::new(Arc::clone(app)).run()),
        ),
        spawn_vital(alarm, "the sync of catalogs", catalog_sync(app).run()),
        spawn_vital(alarm, "the file of prices", price_file(app).run()),
        spawn_vital(alarm, "the file of affinity", affinity(app)),
        spawn_vital(alarm, "the log of reached bounds", app.bounds.clone().log()),
        spawn_vital(alarm, "the end of recordings", async move { recorded.recordings.run().await }),
    ];
    let optional = [
        price_feed(app).map(|feed| spawn_vital(alarm, "the price feed", feed.run())),
        scheduled_backups(app).map(|backups| spawn_vital(alarm, "the scheduled backups", backups.run())),
        for_nodes(app, |app, _| node_report::run(app))
            .map(|task| spawn_vital(alarm, "the report of this node", task)),
        automation(app).map(|job| spawn_vital(alarm, "the automation of anonymous providers", job.run())),
        for_nodes(app, node_answers::run).map(|task| spawn_vital(alarm, "the answers to other nodes", task)),
        for_nodes(app, alert_watch::joined::show)
            .map(|task| spawn_vital(alarm, "the measurements for other nodes", task)),
    ];
    let storing = spawn_vital(alarm, "the storing of runs", store_runs(app.jobs.clone(), app.writer.clone()));
    vital.into_iter().chain(optional.into_iter().flatten()).chain([storing]).collect()
}

/// Runs a task that one node does for all.
fn on_duty<F: Future<Output = ()> + Send + 'static>(
    app: &Arc<App>,
    task: impl Fn(&Arc<App>) -> F + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let app = Arc::clone(app);
    app.duty.clone().run(move || task(&app))
}

/// Stores the runs of jobs, for as long as the future is polled.
async fn store_runs(jobs: Jobs, writer: WriterHandle) {
    loop {
        let runs = jobs.unstored();
        if runs.is_empty() {
            jobs.ended().await;
            continue;
        }
        let rows = runs.clone();
        let storing = writer.run(move |db| {
            let tx = db.transaction()?;
            put(&tx, &rows)?;
            tx.commit()
        });
        match storing.await {
            Ok(()) => jobs.mark_stored(runs),
            Err(error) => {
                tracing::warn!("cannot store the runs of periodic jobs; retrying: {error}");
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
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

/// Returns a function that requests the publication of routing.
fn publish(app: &App) -> impl Fn() -> bool + Send + Sync + 'static {
    let writer = app.writer.clone();
    move || writer.publish(Touched::ROUTING)
}

fn renewer(app: &App) -> TokenRenewer {
    let job = app.jobs.register("token_renewal", WHEN_DUE);
    TokenRenewer::new(app.tokens.clone(), Arc::clone(&app.http), Box::new(publish(app)), job)
}

fn refresher(app: &App) -> Refresher {
    let job = app.jobs.register("sign_in_refresh", WHEN_DUE);
    Refresher::new(app.refreshes.clone(), Vendor::new(&app.http), app.writer.clone(), (app.duty.clone(), job))
}

fn rehearsals(app: &App) -> Rehearsals {
    Rehearsals { config: Arc::clone(&app.config), job: app.rehearsals.clone() }
}

fn deliverer(app: &App) -> Deliverer {
    Deliverer {
        readers: app.readers.clone(),
        writer: app.writer.clone(),
        keys: Arc::clone(&app.keys),
        http: Arc::clone(&app.http),
        tasks: JobTasks::of(app.jobs.register("webhook_delivery", WHEN_DUE)),
    }
}

/// Builds the exporter of telemetry.
fn exporter(app: &App) -> Exporter {
    Exporter::new(ExporterParams {
        settings: app.config.otlp.clone(),
        queue: app.traces.clone(),
        metrics: Arc::clone(&app.metrics),
        bounds: app.bounds.clone(),
        snapshot: app.snapshot.clone(),
        http: Arc::clone(&app.http),
        status: Arc::clone(&app.otlp),
        build: app.build,
    })
}

fn catalog_sync(app: &App) -> PeriodicSync {
    PeriodicSync {
        catalog: Arc::clone(&app.catalog),
        http: Arc::clone(&app.http),
        snapshot: app.snapshot.clone(),
        publication: Publication::new(publish(app)),
        job: app.jobs.register("catalog_sync", "daily"),
    }
}

fn price_file(app: &App) -> PriceFile {
    PriceFile {
        catalog: Arc::clone(&app.catalog),
        publication: Publication::new(publish(app)),
        job: app.jobs.register("price_file", "every 10 s"),
        seen: (None, Ok(())),
    }
}

/// Returns the job that writes the file of affinity.
fn affinity(app: &App) -> impl Future<Output = ()> + Send + 'static {
    affinity_file::keep(Arc::clone(&app.affinity), app.jobs.register("affinity_file", "every minute"))
}

/// Builds the job that fetches prices, if an address is configured.
fn price_feed(app: &App) -> Option<PriceFeed> {
    Some(PriceFeed {
        url: app.config.prices_url.clone()?,
        catalog: Arc::clone(&app.catalog),
        http: Arc::clone(&app.http),
        publication: Publication::new(publish(app)),
        job: app.jobs.register("price_list", "daily"),
    })
}

/// Returns a task for the other nodes, if there may be any.
fn for_nodes<F: Future<Output = ()>>(
    app: &Arc<App>,
    task: impl FnOnce(Arc<App>, NodeBoard) -> F,
) -> Option<F> {
    Some(task(Arc::clone(app), app.board()?.clone()))
}

/// Builds the job that makes backups, if a schedule is configured.
fn scheduled_backups(app: &App) -> Option<ScheduledBackups> {
    let schedule = app.config.backup_schedule.clone()?;
    Some(ScheduledBackups { backups: app.backups.clone(), schedule, writer: app.writer.clone() })
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
        job: app.jobs.register("anonymous_providers", "hourly"),
    })
}

/// The interval of jobs that run when something is due.
const WHEN_DUE: &str = "when due";
const STORE_PAUSE: Duration = Duration::from_secs(30);
