//! Delivers events to webhooks: at least once, signed, with pauses between tries (ADM-5).
//!
//! A delivery is pending in the database until the outcome of a try is stored, and nothing is stored before a try. A
//! process that is killed in between tries again after its next start; receivers recognize repetitions by the ID.

mod send;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shared::backoff::random_fraction;
use shared::clock::unix_ms;
use shared::port::HttpClient;

pub(crate) use self::send::{Message, SentMessage, send};
use crate::common::background::{JobTasks, NamedTasks, Panicked};
use crate::common::vault::VaultKeys;
use crate::db::outbox::delivery::{Tried, due, record};
use crate::db::readers::Readers;
use crate::db::webhooks::WebhookRow;
use crate::writer::WriterHandle;
use crate::writer::webhook::next_try_ms;

/// The background task that delivers.
#[derive(Debug)]
pub(crate) struct Deliverer {
    pub(crate) readers: Readers,
    pub(crate) writer: WriterHandle,
    pub(crate) keys: Arc<VaultKeys>,
    pub(crate) http: Arc<dyn HttpClient>,
    /// Reports the tries.
    pub(crate) tasks: JobTasks,
}

/// A delivery that is being tried.
#[derive(Debug)]
struct Trying {
    /// The number of the delivery.
    number: i64,
    webhook: WebhookRow,
    /// Its failures before this try.
    failures: u32,
}

/// The tries that are running.
type Tries = NamedTasks<Trying, SentMessage>;

impl Deliverer {
    /// Delivers for as long as the future is polled.
    pub(crate) async fn run(mut self) {
        let mut running = Tries::new();
        // The deliveries that are being tried, or whose outcome is not stored yet.
        let mut busy = BTreeSet::new();
        let mut outcomes: Vec<Tried> = Vec::new();
        loop {
            let pause = if self.store(&mut outcomes, &mut busy).await {
                self.start_due(&mut running, &mut busy).await;
                PAUSE
            } else {
                PAUSE_FAILING
            };
            tokio::select! {
                Some((trying, sent)) = running.next() => {
                    outcomes.push(trying.ended(sent));
                    while let Some((trying, sent)) = running.try_next() {
                        outcomes.push(trying.ended(sent));
                    }
                    self.report(&outcomes, running.len());
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reports the outcomes of tries, after which `left` are running.
    fn report(&mut self, outcomes: &[Tried], left: usize) {
        let error = outcomes.iter().find_map(|tried| tried.error.clone());
        self.tasks.ends(error.map_or(Ok(()), Err), left);
    }

    /// Stores the outcomes. Returns false if that fails; they are kept then.
    async fn store(&self, outcomes: &mut Vec<Tried>, busy: &mut BTreeSet<i64>) -> bool {
        if outcomes.is_empty() {
            return true;
        }
        let stored = outcomes.clone();
        let storing = self.writer.run(move |db| {
            let tx = db.transaction()?;
            stored.iter().try_for_each(|tried| record(&tx, tried, unix_ms()))?;
            tx.commit()
        });
        match storing.await {
            Ok(()) => {
                outcomes.drain(..).for_each(|tried| {
                    busy.remove(&tried.number);
                });
                true
            }
            Err(error) => {
                tracing::warn!("cannot store the outcome of deliveries; retrying: {error}");
                false
            }
        }
    }

    /// Starts the tries that are due, up to the limits.
    async fn start_due(&mut self, running: &mut Tries, busy: &mut BTreeSet<i64>) {
        let found = match self.readers.ask(|db| due(db, unix_ms(), ROWS)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!("cannot read the outbox: {error}");
                self.tasks.begins();
                self.tasks.ends(Err(format!("cannot read the outbox: {error}")), running.len());
                return;
            }
        };
        for of_webhook in found {
            let is_busy = |number: &i64| busy.contains(number);
            let numbers: Vec<i64> =
                of_webhook.deliveries.iter().filter_map(|due| due.id.parse().ok()).collect();
            let free =
                PER_WEBHOOK_MAX.saturating_sub(numbers.iter().filter(|number| is_busy(number)).count());
            let new: Vec<_> = std::iter::zip(numbers, of_webhook.deliveries)
                .filter(|(number, _)| !is_busy(number))
                .take(free)
                .collect();
            for (number, delivery) in new {
                busy.insert(number);
                self.tasks.begins();
                let webhook = of_webhook.webhook.clone();
                let message = Message::of(&delivery.event, webhook.format);
                let (keys, http, to) = (Arc::clone(&self.keys), Arc::clone(&self.http), webhook.clone());
                let trying = Trying { number, webhook, failures: delivery.tries };
                running.spawn(trying, async move { send(&keys, &http, &to, &message).await });
            }
        }
    }
}

impl Trying {
    /// Returns the outcome of the try.
    fn ended(self, sent: Result<SentMessage, Panicked>) -> Tried {
        let Self { number, webhook, failures } = self;
        let failed = |Panicked| SentMessage {
            status: None,
            error: Some(Panicked::TEXT.to_owned()),
            retry_after_ms: 0,
        };
        let sent = sent.unwrap_or_else(failed);
        let mut tried =
            Tried { number, tries_before: failures, status: sent.status, error: None, next_at_ms: None };
        if let Some(error) = sent.error {
            let (first, asked_ms) = (Duration::from_secs(webhook.retry_seconds.into()), sent.retry_after_ms);
            tried.next_at_ms = next_try_ms(first, unix_ms(), failures + 1, asked_ms, random_fraction());
            if tried.next_at_ms.is_none() {
                tracing::error!(
                    webhook.id = webhook.id,
                    "an event could not be delivered to {}: {error}",
                    webhook.name
                );
            }
            tried.error = Some(error);
        }
        tried
    }
}

/// Concurrent tries of one webhook; one that receives in order has one. Each webhook has its own, so that receivers that
/// hang do not delay others; the number of webhooks is bounded.
const PER_WEBHOOK_MAX: usize = 4;
/// The deliveries that are read for each webhook: those that are being tried, and as many new ones.
const ROWS: i64 = 8;
/// The interval at which the outbox is read while nothing happens.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_FAILING: Duration = Duration::from_secs(2);
