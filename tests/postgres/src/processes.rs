//! Signals to all processes of a server. Each of them is in a session of its own, so they have no common group.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until;

/// Kills the server's first process and all its children at once, as a power failure would, and waits for their end.
/// The first process remains as a zombie, which its parent waits for.
pub(crate) fn kill(first: u32) {
    // A stopped process starts no others.
    send(first, Signal::STOP);
    let children = children(first);
    for child in &children {
        send(*child, Signal::KILL);
    }
    send(first, Signal::KILL);
    until("the server's processes end", || children.iter().all(|child| ended(*child)).then_some(()));
}

/// Stops all processes of the server until [`resume`].
pub(crate) fn pause(first: u32) {
    send(first, Signal::STOP);
    // The signal takes effect some time after it was sent: the first process may have started others meanwhile.
    until("the server's first process stops", || (state(first) == Some('T')).then_some(()));
    for child in children(first) {
        send(child, Signal::STOP);
    }
}

/// Lets the processes of the server continue.
pub(crate) fn resume(first: u32) {
    for child in children(first) {
        send(child, Signal::CONT);
    }
    send(first, Signal::CONT);
}

/// Sends a signal; a process that has ended is none of its recipients.
pub(crate) fn send(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    let _ = kill_process(pid, signal);
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// True if the process is gone, or a zombie whose parent does not wait for it.
fn ended(process: u32) -> bool {
    !Path::new(&format!("/proc/{process}")).exists() || state(process) == Some('Z')
}

/// Returns the letter of the process's state in `/proc/PID/stat`, which follows the name in parentheses.
fn state(process: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}
