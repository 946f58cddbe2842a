//! Wakes the writer thread when another node has made a change. Only a hint: a node looks every 250 ms in any case, and hears
//! nothing through a transaction pooler.
//!
//! It has a session of its own, because a session that waits cannot be used meanwhile.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use shared::alarm::Alarm;
use tokio::sync::watch;

use crate::db::engine::postgres::{Heard, Listener};

/// Lets the writer thread look for changes; returns when it has begun to. False if the thread has ended.
pub(crate) type Look = Box<dyn Fn() -> bool + Send>;

/// The running thread.
#[derive(Debug)]
pub(crate) struct ListenThread {
    stop: watch::Sender<()>,
    thread: JoinHandle<()>,
}

impl ListenThread {
    /// Starts the thread.
    pub(crate) fn start(listener: Listener, look: Look, alarm: &Alarm) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(());
        let thread = alarm.spawn("llmgw-listen", move || {
            run(listener, &look, stopped);
            Ok(())
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub(crate) fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread that listens for changes had ended unexpectedly");
        }
    }
}

/// Waits for notifications until it is stopped. While the server is away it tries to connect, with growing pauses.
fn run(mut listener: Listener, look: &Look, mut stopped: watch::Receiver<()>) {
    let mut pause = PAUSE_MIN;
    loop {
        // It never changes, but ends.
        let is_over = async {
            tokio::select! {
                _ = stopped.changed() => {}
                () = tokio::time::sleep(PROBE_AFTER) => {}
            }
        };
        let heard = listener.wait(is_over);
        if stopped.has_changed().is_err() {
            return;
        }
        let outcome = match heard {
            Ok(Heard::Notification) if !look() => return,
            Ok(Heard::Notification) => {
                // Changes that follow at once are looked for together.
                std::thread::park_timeout(LOOK_PAUSE);
                Ok(())
            }
            Ok(Heard::Other) => listener.probe(),
            Err(error) => Err(error),
        };
        pause = match outcome {
            Ok(()) => PAUSE_MIN,
            Err(error) => {
                tracing::debug!("notifications of changes are not heard: {error}");
                std::thread::park_timeout(pause);
                (pause * 2).min(PAUSE_MAX)
            }
        };
    }
}

/// The least time between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// The pause after a failure. A stop waits for the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
