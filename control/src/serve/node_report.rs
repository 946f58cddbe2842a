//! The task in which one of several nodes reports itself to the others: its clock, its configuration file, and how far it is
//! behind with storing usage. They are shown by `GET nodes`, and alerts compare them.

use std::sync::Arc;
use std::time::Duration;

use crate::admin::App;
use crate::db::cluster::clock;
use crate::db::cluster::nodes::{self, NodeReport};
use crate::db::record_id::NodeId;
use crate::usage::gauge::read;

/// Reports this node for as long as the future is polled.
pub(crate) async fn run(app: Arc<App>) {
    loop {
        let file_digest = app.reload.read().in_force.unwrap_or(app.config.version).digest();
        let waits = read(&app.journal.gauge().waiting) > 0;
        let unstored_for_ms = app.figures.as_ref().filter(|_| waits).map(|figures| figures.shipping_lag_ms());
        let reported = app.writer.run(move |db| {
            let report = NodeReport { file_digest, clock_ahead_ms: clock::ahead_ms(db)?, unstored_for_ms };
            nodes::report_itself(db, NodeId::of(db), &report)
        });
        if let Err(error) = reported.await {
            tracing::debug!("this node cannot report itself yet: {error}");
        }
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

const REPORT_EVERY: Duration = Duration::from_secs(5);
