//! Lists and cancels the running exchanges: asks every worker, each of which answers on its own thread.

use std::rc::Rc;

use shared::port::{BoxFuture, Exchanges};
use shared::running::RunningExchanges;
use tokio::sync::oneshot;

use super::{InProcess, WeakHandle};
use crate::inbox::Message;
use crate::worker::Worker;

impl Exchanges for InProcess {
    fn running(&self) -> BoxFuture<RunningExchanges> {
        let answers: Vec<_> =
            self.workers.iter().map(|handle| handle.ask(|worker| worker.running.copy())).collect();
        Box::pin(async move {
            let mut all = RunningExchanges::default();
            for answer in answers {
                all.add(answer.await.unwrap_or_default());
            }
            all
        })
    }

    fn cancel(&self, request_id: &str) -> BoxFuture<bool> {
        let cancel = |handle: &WeakHandle| {
            let request_id = request_id.to_owned();
            handle.ask(move |worker| worker.running.cancel(&request_id))
        };
        let answers: Vec<_> = self.workers.iter().map(cancel).collect();
        Box::pin(async move {
            let mut is_found = false;
            for answer in answers {
                is_found |= answer.await.unwrap_or_default();
            }
            is_found
        })
    }
}

impl WeakHandle {
    /// Asks the worker; `answer` runs on its thread. Returns `None` if the worker has ended.
    fn ask<T: Send + 'static>(
        &self,
        answer: impl FnOnce(&Worker) -> T + Send + 'static,
    ) -> BoxFuture<Option<T>> {
        let inbox = self.inbox.clone();
        Box::pin(async move {
            let (reply, answered) = oneshot::channel();
            let message = Message::run(|worker: Rc<Worker>| async move {
                reply.send(answer(&worker)).ok();
            });
            inbox.upgrade()?.send(message).await.ok()?;
            answered.await.ok()
        })
    }
}
