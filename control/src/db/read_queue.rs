//! The questions that wait for a reader thread. Those who ask take turns, and humans together never hold all threads: however
//! many long questions a human asks, an administrator's runs next.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::common::bounds::QUESTIONS_WAITING;
use crate::db::engine::Db;

/// A query, to be run on a reader's connection.
pub(super) type ReaderQuestion = Box<dyn FnOnce(&mut Db) + Send>;

/// The queue between those who ask and the reader threads.
#[derive(Default)]
pub(super) struct ReadQueue {
    state: Mutex<QueueState>,
    /// Notified when a question may have become ready to run.
    ready: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Those who have questions waiting, in the order of their turns.
    askers: VecDeque<Asker>,
    waiting: usize,
    waiting_of_humans: usize,
    running_of_humans: usize,
    /// True if no further question comes.
    is_closed: bool,
}

/// One who asks, with the questions in the order of their arrival.
struct Asker {
    /// The ID of a human; `None` for administrators and the gateway itself.
    human: Option<Arc<str>>,
    questions: VecDeque<ReaderQuestion>,
}

/// A question whose turn has come. Dropping it after the run lets the next question of a human run.
pub(super) struct Turn<'a> {
    queue: &'a ReadQueue,
    pub(super) question: Option<ReaderQuestion>,
    is_of_human: bool,
}

/// The queue has no place for the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Of the human who asks.
    OfHuman,
    /// Of all who ask.
    OfAll,
}

impl fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadQueue").field("waiting", &self.lock().waiting).finish_non_exhaustive()
    }
}

impl ReadQueue {
    /// Adds a question of `human`, or of an administrator or the gateway.
    pub(super) fn push(&self, human: Option<Arc<str>>, question: ReaderQuestion) -> Result<(), Full> {
        let mut state = self.lock();
        let at = state.askers.iter().position(|asker| asker.human == human);
        let own = at.and_then(|at| state.askers.get(at)).map_or(0, |asker| asker.questions.len());
        if human.is_some() && own >= WAITING_OF_HUMAN_MAX {
            QUESTIONS_WAITING.reach();
            return Err(Full::OfHuman);
        }
        let is_full_of_humans = human.is_some() && state.waiting_of_humans >= WAITING_OF_HUMANS_MAX;
        if state.waiting >= QUESTIONS_WAITING.max() || is_full_of_humans {
            QUESTIONS_WAITING.reach();
            return Err(Full::OfAll);
        }
        state.waiting += 1;
        state.waiting_of_humans += usize::from(human.is_some());
        match at.and_then(|at| state.askers.get_mut(at)) {
            Some(asker) => asker.questions.push_back(question),
            None => state.askers.push_back(Asker { human, questions: VecDeque::from([question]) }),
        }
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for the next question. Returns `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<Turn<'_>> {
        let mut state = self.lock();
        loop {
            if let Some((question, is_of_human)) = state.take() {
                return Some(Turn { queue: self, question: Some(question), is_of_human });
            }
            if state.is_closed && state.askers.is_empty() {
                return None;
            }
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the threads end after the questions that wait.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Takes a question of the first asker whose questions may run, and puts that asker at the end.
    fn take(&mut self) -> Option<(ReaderQuestion, bool)> {
        let may_humans = self.running_of_humans < RUNNING_OF_HUMANS_MAX;
        let at = self.askers.iter().position(|asker| may_humans || asker.human.is_none())?;
        let mut asker = self.askers.remove(at)?;
        let question = asker.questions.pop_front()?;
        let is_of_human = asker.human.is_some();
        if !asker.questions.is_empty() {
            self.askers.push_back(asker);
        }
        self.waiting -= 1;
        self.waiting_of_humans -= usize::from(is_of_human);
        self.running_of_humans += usize::from(is_of_human);
        Some((question, is_of_human))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_of_human {
            self.queue.lock().running_of_humans -= 1;
            self.queue.ready.notify_all();
        }
    }
}

/// The number of reader threads. One of them is never busy with a question of a human.
pub(super) const THREADS: usize = 3;
const RUNNING_OF_HUMANS_MAX: usize = THREADS - 1;
const WAITING_OF_HUMANS_MAX: usize = 48;
/// The text of `QueryError::BusyForHuman` contains it.
const WAITING_OF_HUMAN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::common::bounds::tests::passes;

    fn named(name: &str) -> Option<Arc<str>> {
        Some(name.into())
    }

    #[test]
    fn those_who_ask_take_turns_and_humans_leave_a_thread_to_others() {
        let queue = ReadQueue::default();
        let (ran, order_of_runs) = mpsc::channel();
        let question = |name: &'static str| -> ReaderQuestion {
            let ran = ran.clone();
            Box::new(move |_: &mut Db| ran.send(name).unwrap())
        };
        for _ in 0..3 {
            queue.push(named("eve"), question("eve")).unwrap();
        }
        queue.push(named("bob"), question("bob")).unwrap();
        queue.push(None, question("admin")).unwrap();
        let mut db = Db::in_memory().unwrap();
        let mut run = |turn: &mut Turn<'_>| turn.question.take().unwrap()(&mut db);
        let (mut first, mut second) = (queue.next().unwrap(), queue.next().unwrap());
        run(&mut first);
        run(&mut second);
        // Two questions of humans are running now.
        let mut third = queue.next().unwrap();
        run(&mut third);
        drop(third);
        queue.push(None, question("admin")).unwrap();
        run(&mut queue.next().unwrap());
        drop((first, second));
        for _ in 0..2 {
            run(&mut queue.next().unwrap());
        }
        queue.close();
        assert!(queue.next().is_none());
        assert_eq!(
            order_of_runs.try_iter().collect::<Vec<_>>(),
            ["eve", "bob", "admin", "admin", "eve", "eve"]
        );
    }

    #[test]
    fn one_human_and_all_humans_fill_a_part_of_the_queue_only() {
        let queue = ReadQueue::default();
        let push = |human: Option<Arc<str>>| queue.push(human, Box::new(|_| ()));
        for name in ["eve", "bob", "ada"] {
            (0..WAITING_OF_HUMAN_MAX).for_each(|_| push(named(name)).unwrap());
            assert_eq!(push(named(name)), Err(Full::OfHuman), "{name}");
        }
        assert_eq!(
            push(named("joe")),
            Err(Full::OfAll),
            "humans have {WAITING_OF_HUMANS_MAX} places together"
        );
        (WAITING_OF_HUMANS_MAX..QUESTIONS_WAITING.max()).for_each(|_| push(None).unwrap());
        assert_eq!(passes(&QUESTIONS_WAITING, || push(None)), Err(Full::OfAll));
    }
}
