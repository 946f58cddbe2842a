//! Threads of low priority, for work such as backups.

use std::{io, thread};

/// Runs `work` on a thread of its own, which gives way to requests and changes: it gets about a tenth of a core that others
/// want too. Threads that it starts do the same. On systems other than Linux it runs like all others.
///
/// # Errors
///
/// If the system starts no thread.
pub(crate) fn spawn_low(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let run = move || {
        give_way();
        work();
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "its end is the end of one piece of work, not of the gateway"
    )]
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Linux sets the priority of the calling thread, POSIX that of its process.
#[cfg(target_os = "linux")]
fn give_way() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!("the priority of a thread could not be lowered: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}

#[cfg(target_os = "linux")]
const NICE: i32 = 10;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_low_thread_and_its_children_give_way_and_others_do_not() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let (sender, receiver) = mpsc::channel();
        spawn_low("low", move || {
            let child = thread::scope(|scope| scope.spawn(priority).join().unwrap());
            sender.send((priority(), child)).unwrap();
        })
        .unwrap();
        assert_eq!(receiver.recv().unwrap(), (NICE, NICE));
        assert_eq!(priority(), before);
    }
}
