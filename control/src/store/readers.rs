//! Connections that read, each on a thread of its own, so that a slow question holds neither the control thread
//! nor the writer.

use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::error::StoreError;
use super::open::connect_reader;

/// Where questions go. Clones share the threads, which end when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    questions: Sender<Question>,
}

type Question = Box<dyn FnOnce(&mut Connection) + Send>;

impl Readers {
    /// Opens the connections and starts their threads.
    pub(crate) fn start(path: &Path) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (questions, waiting) = bounded(QUESTIONS_MAX);
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let mut db = connect_reader(path)?;
            let waiting = waiting.clone();
            let thread =
                thread::Builder::new().name("llmgw-reader".into()).spawn(move || serve(&mut db, &waiting));
            threads.push(thread.map_err(|_| StoreError::Busy)?);
        }
        Ok((Self { questions }, threads))
    }

    /// Asks one question. It is given up after [`ANSWER_TIME_MAX`].
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Question = Box::new(move |db| {
            let _ = reply.send(in_time(db, question));
        });
        self.questions.try_send(job).map_err(|_| StoreError::Busy)?;
        answer.await.map_err(|_| StoreError::Stopping)?
    }
}

fn serve(db: &mut Connection, waiting: &Receiver<Question>) {
    for question in waiting {
        question(db);
    }
}

fn in_time<T>(
    db: &mut Connection,
    question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let until = Instant::now() + ANSWER_TIME_MAX;
    db.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() > until))?;
    Ok(question(db)?)
}

const THREADS: usize = 2;
const QUESTIONS_MAX: usize = 64;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
const STEPS_BETWEEN_LOOKS: i32 = 100_000;
