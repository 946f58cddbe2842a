//! Exports the metrics of exchanges at an interval. They are cumulative, so an export that fails loses nothing: the next one
//! contains the same sums.

use std::sync::Arc;

use prost::Message as _;
use shared::clock::unix_ms;

use super::message::{ExportMetrics, ResourceMetrics, ScopeMetrics};
use super::metrics::{Period, metrics};
use super::post::post;
use super::{Exporting, scope};
use crate::common::bounds::Bounds;
use crate::routing::config::OtlpMetrics;
use crate::usage::metrics::ExchangeMetrics;

/// Exports the metrics of exchanges.
#[derive(Debug)]
pub(super) struct MetricExporter {
    exporting: Exporting,
    settings: OtlpMetrics,
    metrics: Arc<ExchangeMetrics>,
    bounds: Bounds,
    started_ms: u64,
}

impl MetricExporter {
    pub(super) fn new(
        exporting: Exporting,
        settings: OtlpMetrics,
        (metrics, bounds): (Arc<ExchangeMetrics>, Bounds),
    ) -> Self {
        Self { exporting, settings, metrics, bounds, started_ms: unix_ms() }
    }

    /// Exports at the interval for as long as the future is polled.
    pub(super) async fn export(&self) {
        loop {
            tokio::time::sleep(self.settings.interval).await;
            self.export_once().await;
        }
    }

    pub(super) async fn export_once(&self) {
        let Exporting { settings, snapshot, http, status, build, resource } = &self.exporting;
        let period = Period {
            start_ns: self.started_ms.saturating_mul(1_000_000),
            end_ns: unix_ms().saturating_mul(1_000_000),
        };
        let metrics = metrics((&self.metrics.read(), &self.bounds), period, &snapshot.load());
        if metrics.is_empty() {
            return;
        }
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope(build)), metrics }];
        let resource_metrics = vec![ResourceMetrics { resource: Some(resource.clone()), scope_metrics }];
        let body = ExportMetrics { resource_metrics }.encode_to_vec().into();
        let posted = post(http, settings, &self.settings.endpoint, body).await;
        match posted {
            Ok(rejected) => status.metrics.succeeded(1, u64::from(rejected > 0)),
            Err(failure) => status.metrics.failed(failure.error, 1),
        }
    }
}
