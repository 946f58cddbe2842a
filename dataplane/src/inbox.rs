//! The inbox of a worker: messages from other threads.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;

use crate::server::accept::{self, Accepted};
use crate::server::io::Order;
use crate::worker::Worker;

/// A worker's inbox and its load.
pub(crate) type WorkerHandle = accept::WorkerHandle<Message>;

/// Message to a worker from another thread.
pub(crate) enum Message {
    /// A connection that another worker accepted.
    Socket(Accepted),
    /// Accept connections until `end` contains a time.
    Listen {
        listener: std::net::TcpListener,
        workers: Vec<WorkerHandle>,
        end: watch::Receiver<Option<Duration>>,
    },
    /// Apply an order to all connections.
    Order(Order),
    /// Run a task on the worker's thread.
    Run(Box<WorkerTask>),
}

/// Creates a task of a worker on its thread.
type WorkerTask = dyn FnOnce(Rc<Worker>) -> Pin<Box<dyn Future<Output = ()>>> + Send;

impl Message {
    /// Returns a message that runs the future that `task` creates.
    pub(crate) fn run<F: Future<Output = ()> + 'static>(
        task: impl FnOnce(Rc<Worker>) -> F + Send + 'static,
    ) -> Self {
        Self::Run(Box::new(|worker| Box::pin(task(worker))))
    }
}

impl From<Accepted> for Message {
    fn from(accepted: Accepted) -> Self {
        Self::Socket(accepted)
    }
}
