//! Commands on the outbox: manual retries, and the leases of external workers.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use shared::backoff::random_fraction;

use super::{Command, CommandRefusal, Done, Write};
use crate::common::vault::random;
use crate::db::audit::AuditEntry;
use crate::db::outbox::lease::{self, Claim};
use crate::db::outbox::{self, Delivery, DeliveryState, Event, delivery};
use crate::routing::publish::Touched;
use crate::writer::webhook::next_try_ms;

/// Makes a delivery due again that is pending, leased or dead.
#[derive(Debug)]
pub(crate) struct RetryDelivery {
    pub(crate) number: i64,
}

/// Leases deliveries to a worker.
#[derive(Debug)]
pub(crate) struct ClaimDeliveries {
    pub(crate) worker: String,
    pub(crate) lease_ms: u64,
    pub(crate) limit: u32,
    pub(crate) kinds: Option<Vec<String>>,
}

/// Ends the lease of a delivery.
#[derive(Debug)]
pub(crate) struct EndLease {
    pub(crate) number: i64,
    pub(crate) lease: String,
    /// The failure; `None` if the delivery is done.
    pub(crate) failure: Option<WorkerFailure>,
}

/// A failure that a worker reports.
#[derive(Debug)]
pub(crate) struct WorkerFailure {
    pub(crate) error: String,
    /// The pause that the worker asks for.
    pub(crate) retry_after_ms: u64,
}

/// The deliveries that a worker got.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClaimedDeliveries {
    /// Oldest first; empty if nothing waits.
    pub(crate) data: Vec<ClaimedDelivery>,
    /// The name of the lease, for `delivered` and `failed`; null if nothing was claimed.
    pub(crate) lease: Option<String>,
    /// The end of the lease, in milliseconds since the Unix epoch; null if nothing was claimed.
    pub(crate) lease_until_ms: Option<u64>,
}

/// A delivery for a worker.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClaimedDelivery {
    pub(crate) id: String,
    /// The failures so far.
    pub(crate) tries: u32,
    pub(crate) event: Event,
}

impl Command for RetryDelivery {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = find(write, self.number)?;
        let after = delivery::retry(write.db, self.number, write.now_ms)?
            .ok_or_else(|| CommandRefusal::conflict("This delivery has been delivered."))?;
        let audit = AuditEntry::done("outbox.retry", "delivery", &after.id)
            .before(json!({"state": before.state, "tries": before.tries, "last_error": before.last_error}));
        Done::new(&after, audit, Touched::NOTHING)
    }
}

impl Command for ClaimDeliveries {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        for ended in lease::ended(write.db, write.now_ms)? {
            let failure = Some((LEASE_ENDED, next_try(&ended, 0, write.now_ms)));
            lease::end(write.db, &ended, failure, write.now_ms)?;
        }
        let random: [u8; 16] = random()?;
        let claim = Claim {
            worker: self.worker.clone(),
            lease: format!("lease_{:032x}", u128::from_be_bytes(random)),
            until_ms: write.now_ms.saturating_add(self.lease_ms),
            limit: self.limit,
            kinds: self.kinds.clone().map(|kinds| json!(kinds).to_string()),
        };
        let claimed = lease::claim(write.db, &claim, write.now_ms)?;
        let ids: Vec<&str> = claimed.iter().map(|delivery| delivery.id.as_str()).collect();
        let audit =
            AuditEntry::done("outbox.claim", "worker", &claim.worker).after(json!({"deliveries": ids}));
        let has_some = !claimed.is_empty();
        let output = ClaimedDeliveries {
            lease: has_some.then_some(claim.lease),
            lease_until_ms: has_some.then_some(claim.until_ms),
            data: claimed
                .into_iter()
                .map(|delivery| ClaimedDelivery {
                    id: delivery.id,
                    tries: delivery.tries,
                    event: delivery.event,
                })
                .collect(),
        };
        Done::new(&output, audit, Touched::NOTHING)
    }
}

impl Command for EndLease {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let held = find(write, self.number)?;
        if held.state != DeliveryState::Leased || held.lease.as_ref() != Some(&self.lease) {
            return Err(CommandRefusal::conflict(
                "This lease does not hold the delivery: it has ended, or the delivery is finished.",
            ));
        }
        let failure = self
            .failure
            .as_ref()
            .map(|failure| (failure.error.as_str(), next_try(&held, failure.retry_after_ms, write.now_ms)));
        lease::end(write.db, &held, failure, write.now_ms)?;
        let after = find(write, self.number)?;
        let action = if failure.is_none() { "outbox.delivered" } else { "outbox.failed" };
        let audit = AuditEntry::done(action, "delivery", &after.id).after(json!({"state": after.state}));
        Done::new(&after, audit, Touched::NOTHING)
    }
}

/// Returns the time of the next try after one more failure, or `None` if the delivery is dead.
fn next_try(held: &Delivery, asked_ms: u64, now_ms: u64) -> Option<u64> {
    next_try_ms(WORKER_RETRY, now_ms, held.tries + 1, asked_ms, random_fraction())
}

fn find(write: &Write<'_>, number: i64) -> Result<Delivery, CommandRefusal> {
    outbox::find(write.db, number)?.ok_or_else(|| CommandRefusal::not_found("delivery", &number.to_string()))
}

const LEASE_ENDED: &str = "The lease ended before the worker reported.";
/// The longest pause after a worker's first failure.
const WORKER_RETRY: Duration = Duration::from_secs(5);
