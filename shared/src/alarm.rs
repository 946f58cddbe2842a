//! The alarm: raised when a part of the process ends that the process cannot run without.
//!
//! A gateway that continues without one of its threads rejects requests forever, or loses records, and still looks
//! alive. So the end of such a part ends the process, and its supervisor restarts it. The first cause is kept.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// An alarm that is raised once, by the first part that ends early. Clones share the state.
#[derive(Clone)]
pub struct Alarm(Arc<Inner>);

struct Inner {
    cause: OnceLock<(String, io::ErrorKind)>,
    ring: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("cause", &self.cause()).finish_non_exhaustive()
    }
}

impl Default for Alarm {
    /// Creates an alarm that only records its cause.
    fn default() -> Self {
        Self::new(|| ())
    }
}

impl Alarm {
    /// Creates an alarm that calls `ring` when it is raised, on the thread that raises it.
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { cause: OnceLock::new(), ring: Box::new(ring) }))
    }

    /// Reports that `part` has ended, and the reason.
    pub fn raise(&self, part: &str, why: &io::Error) {
        if self.0.cause.set((format!("{part} ended: {why}"), why.kind())).is_ok() {
            (self.0.ring)();
        }
    }

    /// Returns the part that ended first and the reason, if the alarm was raised.
    pub fn cause(&self) -> Option<&str> {
        self.0.cause.get().map(|(cause, _)| cause.as_str())
    }

    /// True if that part ended because what it works with belongs to another process ([`io::ErrorKind::ResourceBusy`]).
    pub fn is_superseded(&self) -> bool {
        self.0.cause.get().is_some_and(|(_, kind)| *kind == io::ErrorKind::ResourceBusy)
    }

    /// Returns a guard that raises the alarm if a panic drops it. `part` names the guarded part of the current thread.
    pub fn guard(&self, part: &str) -> Guard {
        let thread = thread::current();
        Guard { alarm: self.clone(), part: format!("{part} of thread {}", thread.name().unwrap_or("main")) }
    }

    /// Spawns a thread that raises the alarm if `life` panics or returns an error.
    pub fn spawn(
        &self,
        name: &str,
        life: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let guard = Guard { alarm: self.clone(), part: format!("thread {name}") };
        #[expect(clippy::disallowed_methods, reason = "the one place that starts guarded threads")]
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(error) = life() {
                guard.alarm.raise(&guard.part, &error);
            }
        })
    }
}

/// Raises its alarm if it is dropped during a panic.
#[derive(Debug)]
pub struct Guard {
    alarm: Alarm,
    part: String,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.alarm.raise(&self.part, &io::Error::other("it panicked"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counted() -> (Alarm, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let rung = Arc::clone(&count);
        (Alarm::new(move || _ = rung.fetch_add(1, Ordering::Relaxed)), count)
    }

    #[test]
    fn a_failed_thread_raises_the_alarm_once_and_a_finished_one_does_not() {
        let (alarm, count) = counted();
        alarm.spawn("good", || Ok(())).unwrap().join().unwrap();
        assert_eq!((alarm.cause(), count.load(Ordering::Relaxed)), (None, 0));
        alarm.spawn("bad", || Err(io::Error::other("no epoll"))).unwrap().join().unwrap();
        alarm.spawn("worse", || panic!("on purpose")).unwrap().join().unwrap_err();
        assert_eq!((alarm.cause(), alarm.is_superseded()), (Some("thread bad ended: no epoll"), false));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let (alarm, _) = counted();
        let spawned = alarm.clone();
        let task = move || {
            let guard = spawned.guard("the acceptor");
            catch_unwind(AssertUnwindSafe(|| {
                let _guard = guard;
                panic!("on purpose")
            }))
            .or(Ok(()))
        };
        alarm.spawn("caught", task).unwrap().join().unwrap();
        assert_eq!(alarm.cause(), Some("the acceptor of thread caught ended: it panicked"));
        let (alarm, count) = counted();
        alarm.spawn("worse", || panic!("on purpose")).unwrap().join().unwrap_err();
        assert_eq!(alarm.cause(), Some("thread worse ended: it panicked"));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let (alarm, _) = counted();
        let taken = || Err(io::Error::new(io::ErrorKind::ResourceBusy, "taken"));
        alarm.spawn("node", taken).unwrap().join().unwrap();
        assert!(alarm.is_superseded());
    }
}
