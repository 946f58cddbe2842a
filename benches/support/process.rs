//! The end of a gateway's process.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Lets the gateway stop by itself, as it then stores its records, and writes the profile of an instrumented build
/// (`scripts/profile`). A gateway that does not is killed.
pub(crate) fn terminate(child: &mut Child) {
    let began = Instant::now();
    let _ = Pid::from_raw(child.id().cast_signed()).map(|pid| kill_process(pid, Signal::TERM));
    while matches!(child.try_wait(), Ok(None)) && began.elapsed() < PATIENCE {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}

const PATIENCE: Duration = Duration::from_secs(10);
