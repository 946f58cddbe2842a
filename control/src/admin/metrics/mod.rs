//! The control service's part of `GET /metrics`. The data plane has authorized the reader, and puts its own counters in
//! front. The page is written when it is read, on this thread: writing thousands of lines would delay streams on a thread
//! of the data plane.

mod exchanges;
mod memory;
mod node;
mod stored;
mod text;

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use shared::port::Body;
use tokio::time::timeout;

use self::stored::StoredFigures;
use self::text::MetricsText;
use super::App;

/// Answers with the metrics, except those of the database and of running requests if these do not answer in time.
pub(super) async fn show(app: &App) -> Response<Body> {
    let mut text = MetricsText::default();
    exchanges::write(&app.metrics.read(), &mut text);
    memory::write(app, &mut text);
    if let Some(figures) = &app.figures {
        node::write(figures, &mut text);
    }
    let counters = Arc::clone(&app.counters);
    let stored = timeout(READING_TIME_MAX, app.readers.ask(move |db| StoredFigures::read(db, &counters)));
    let running = timeout(READING_TIME_MAX, app.exchanges.running());
    let (stored, running) = tokio::join!(stored, running);
    let (stored, running) = (stored.ok().and_then(Result::ok), running.ok());
    if let Some(stored) = &stored {
        stored.write(&mut text);
    }
    if let Some(running) = &running {
        memory::running(running, &mut text);
    }
    // Last, because writing the page may reach one.
    memory::bounds(&app.bounds, &mut text);
    text.single(
        "llmgw_metrics_complete",
        "gauge",
        "1 if the page contains all metrics, 0 if a part of the gateway did not answer.",
        u8::from(stored.is_some() && running.is_some()),
    );
    Response::new(shared::port::full(text.into_bytes()))
}

/// The page does not wait longer for the database and the data plane.
const READING_TIME_MAX: Duration = Duration::from_secs(2);
