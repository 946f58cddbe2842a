//! The running requests that administrators cancel at any node, on their way from the writer thread to the task that cancels
//! them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::touched::CancelOrder;

/// The orders that wait. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancels(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    orders: Mutex<VecDeque<CancelOrder>>,
    added: Notify,
}

impl Cancels {
    /// Adds orders. One that finds [`WAITING_MAX`] is dropped: its sender reads that this node has not answered.
    pub(super) fn add(&self, orders: Vec<CancelOrder>) {
        if orders.is_empty() {
            return;
        }
        let mut waiting = self.0.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let room = WAITING_MAX.saturating_sub(waiting.len());
        waiting.extend(orders.into_iter().take(room));
        drop(waiting);
        self.0.added.notify_one();
    }

    /// Waits for an order.
    pub(crate) async fn next(&self) -> CancelOrder {
        loop {
            let next = self.0.orders.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(order) => return order,
                None => self.0.added.notified().await,
            }
        }
    }
}

const WAITING_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn orders_come_in_their_order_and_those_beyond_the_maximum_are_dropped() {
        let cancels = Cancels::default();
        let order = |n: usize| CancelOrder { request_id: n.to_string(), order: String::new() };
        cancels.add((0..=WAITING_MAX).map(order).collect());
        for n in 0..WAITING_MAX {
            assert_eq!(cancels.next().await, order(n));
        }
        cancels.add(vec![order(7)]);
        assert_eq!(cancels.next().await, order(7), "the last one of before was dropped");
    }
}
