//! Waiting for a larger share of a limit that several nodes share. Only a request that found its counter full waits, and
//! only where there is a port to the shares.

use std::sync::Arc;
use std::time::Duration;

use shared::clock::{since_boot_ms, unix_ms};
use shared::port::ShareGrants;
use shared::quota::Exceeded;
use shared::quota::share::WAIT_MS;

use super::quota::{refused, without_share};
use crate::error::Fault;
use crate::record::Record;

/// Reserves again each time the share of this node has grown, until that succeeds, or until [`WAIT_MS`] have passed.
/// `exceeded` is the quota that the first try found exceeded; a quota that no other node shares is refused at once.
pub(crate) async fn reserve_when_granted(
    shares: Arc<dyn ShareGrants>,
    mut exceeded: Box<Exceeded>,
    record: &mut Record,
    mut reserve: impl FnMut(&mut Record) -> Result<(), Box<Exceeded>>,
) -> Result<(), Fault> {
    let until_ms = since_boot_ms().saturating_add(WAIT_MS);
    while let Some(need) = exceeded.share_need(unix_ms()) {
        let left = Duration::from_millis(until_ms.saturating_sub(since_boot_ms()));
        record.pause();
        let may_retry = tokio::time::timeout(left, shares.wait(need, until_ms)).await;
        record.resume();
        if !may_retry.unwrap_or(false) {
            if exceeded.is_left(unix_ms()) {
                return Err(without_share(&exceeded, record));
            }
            break;
        }
        match reserve(record) {
            Ok(()) => return Ok(()),
            Err(full) => exceeded = full,
        }
    }
    Err(refused(&exceeded, record))
}

#[cfg(test)]
mod tests;
