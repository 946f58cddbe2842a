//! The duty of the cluster: the jobs that one node does for all of them, such as the evaluation of alerts. The node that has it
//! renews its lease; when that fails for too long, another node takes it.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::db::cluster::leases::{self, LEASE};
use crate::db::engine::{Db, DbResult};
use crate::db::record_id::NodeId;

/// Tells whether this node has the duty. Clones share the answer. A gateway with its own database always has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Duty(Option<watch::Receiver<Option<Instant>>>);

/// Claims the duty, and renews the claim. Belongs to the writer thread.
#[derive(Debug)]
pub(crate) struct DutyClaim {
    node: NodeId,
    /// The time until which this node has the duty.
    until: watch::Sender<Option<Instant>>,
    next: Instant,
}

impl DutyClaim {
    pub(crate) fn new(node: NodeId) -> Self {
        Self { node, until: watch::Sender::new(None), next: Instant::now() }
    }

    pub(crate) fn duty(&self) -> Duty {
        Duty(Some(self.until.subscribe()))
    }

    /// Ends the duty on this node, so that another one takes it.
    pub(crate) fn give_up(&mut self, db: &Db) -> DbResult<()> {
        if self.until.send_replace(None).is_none() {
            return Ok(());
        }
        tracing::info!("this node no longer has the duty of the jobs that one node does for all");
        leases::release(db, self.node)
    }

    /// Claims the duty or renews the claim, if it is time.
    pub(crate) fn claim(&mut self, db: &Db) -> DbResult<()> {
        let asked_at = Instant::now();
        if asked_at < self.next {
            return Ok(());
        }
        self.next = asked_at + CLAIM_EVERY;
        let has_it = leases::claim(db, DUTY, self.node)?;
        let had_it = self.until.send_replace(has_it.then(|| asked_at + LEASE - MARGIN)).is_some();
        if has_it != had_it {
            let change = if has_it { "has" } else { "no longer has" };
            tracing::info!("this node {change} the duty of the jobs that one node does for all");
        }
        Ok(())
    }
}

impl Duty {
    /// True if this node has the duty now.
    pub(crate) fn is_held(&self) -> bool {
        self.0.as_ref().is_none_or(|until| is_ahead(*until.borrow()).is_some())
    }

    /// Runs a task that `make` returns, which never ends, whenever this node has the duty. The task is dropped when the duty ends.
    pub(crate) async fn run<F: Future<Output = ()>>(self, make: impl Fn() -> F) {
        let Some(mut until) = self.0 else { return make().await };
        loop {
            if until.wait_for(|until| is_ahead(*until).is_some()).await.is_err() {
                return;
            }
            tokio::select! {
                () = make() => return,
                () = ended(until.clone()) => {}
            }
        }
    }
}

/// Waits until the duty has ended.
async fn ended(mut until: watch::Receiver<Option<Instant>>) {
    loop {
        let held = is_ahead(*until.borrow_and_update());
        let Some(end) = held else { return };
        tokio::select! {
            () = tokio::time::sleep_until(end.into()) => {}
            changed = until.changed() => if changed.is_err() { return },
        }
    }
}

fn is_ahead(until: Option<Instant>) -> Option<Instant> {
    until.filter(|until| Instant::now() < *until)
}

const DUTY: &str = "jobs";
const CLAIM_EVERY: Duration = Duration::from_secs(3);
/// The duty ends on this node this long before another one can have it.
const MARGIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;
    use crate::db::testing::shared_database;

    #[test]
    fn one_of_two_nodes_has_the_duty_and_the_other_takes_it_over() {
        let Some(database) = shared_database() else { return };
        let db = database.connect();
        let (mut one, mut two) = (DutyClaim::new(NodeId::new(1)), DutyClaim::new(NodeId::new(2)));
        let held = |claim: &DutyClaim| claim.duty().is_held();
        one.claim(&db).unwrap();
        two.claim(&db).unwrap();
        assert_eq!((held(&one), held(&two)), (true, false));
        one.give_up(&db).unwrap();
        two.next = Instant::now();
        two.claim(&db).unwrap();
        one.next = Instant::now();
        one.claim(&db).unwrap();
        assert_eq!((held(&one), held(&two)), (false, true));
        assert!(Duty::default().is_held(), "a gateway with its own database does its jobs itself");
    }

    /// Lowers the count of running tasks when the task is dropped.
    struct Running(Arc<AtomicI32>);

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_task_runs_while_the_duty_is_held_and_begins_again_with_it() {
        let (until, started) = (watch::Sender::new(None), Arc::new(AtomicI32::new(0)));
        let running = Arc::new(AtomicI32::new(0));
        let make = {
            let (started, running) = (Arc::clone(&started), Arc::clone(&running));
            move || {
                started.fetch_add(1, Ordering::Relaxed);
                running.fetch_add(1, Ordering::Relaxed);
                let guard = Running(Arc::clone(&running));
                async move {
                    let _guard = guard;
                    std::future::pending().await
                }
            }
        };
        let task = tokio::spawn(Duty(Some(until.subscribe())).run(make));
        let counts = || (started.load(Ordering::Relaxed), running.load(Ordering::Relaxed));
        let settled = async |expected: (i32, i32)| {
            while counts() != expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::task::yield_now().await;
        assert_eq!(counts(), (0, 0));
        let far = || Some(Instant::now() + Duration::from_mins(1));
        until.send_replace(far());
        settled((1, 1)).await;
        until.send_replace(None);
        settled((1, 0)).await;
        until.send_replace(far());
        settled((2, 1)).await;
        // Nothing renews it.
        until.send_replace(Some(Instant::now()));
        settled((2, 0)).await;
        drop(until);
        task.await.unwrap();
    }
}
