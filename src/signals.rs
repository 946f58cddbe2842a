//! Events that interrupt a running gateway: signals, and the alarm of a thread that has died.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use rustix::process::Signal as SignalNumber;
use shared::alarm::Alarm;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// The alarm, and the signals caught since its creation. SIGTERM and SIGINT end a gateway that is still starting; they
/// are caught from [`Signals::hold_stop`] on.
#[derive(Debug)]
pub(crate) struct Signals {
    runtime: Runtime,
    pub(crate) alarm: Alarm,
    caught: Caught,
}

#[derive(Debug)]
struct Caught {
    /// SIGTERM and SIGINT.
    stop: Option<(Signal, Signal)>,
    hangup: Signal,
    /// SIGUSR1 and SIGUSR2.
    user: (Signal, Signal),
    died: Arc<Notify>,
}

impl Signals {
    /// Catches all signals but SIGTERM and SIGINT. SIGXFSZ then has no effect: a write past a limit on file sizes
    /// (RLIMIT_FSIZE) returns an error, as one to a full disk does, instead of ending the process.
    pub(crate) fn catch() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let died = Arc::new(Notify::new());
        let rung = Arc::clone(&died);
        let alarm = Alarm::new(move || rung.notify_one());
        let context = runtime.enter();
        let user = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
        // The handler stays when the stream of its signals is dropped.
        drop(signal(SignalKind::from_raw(SignalNumber::XFSZ.as_raw()))?);
        let caught = Caught { stop: None, hangup: signal(SignalKind::hangup())?, user, died };
        drop(context);
        Ok(Self { runtime, alarm, caught })
    }

    /// Stops SIGTERM and SIGINT from ending the process; [`Signals::until_stopped`] reports them from now on.
    pub(crate) fn hold_stop(&mut self) -> std::io::Result<()> {
        let _context = self.runtime.enter();
        self.caught.stop = Some((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?));
        Ok(())
    }

    /// Waits for SIGTERM or SIGINT and calls `reload` for each SIGHUP. Returns `None` at once if the alarm is raised.
    pub(crate) fn until_stopped(&mut self, reload: impl Fn()) -> Option<StopSignal> {
        self.runtime.block_on(self.caught.until_stopped(reload))
    }

    /// Runs `work` to its end and calls `hurry` for each SIGTERM and SIGINT; other signals have no effect. Returns false
    /// at once if the alarm is raised.
    pub(crate) fn unless_died(&mut self, work: impl Future<Output = ()>, hurry: impl Fn()) -> bool {
        let Caught { stop, died, .. } = &mut self.caught;
        self.runtime.block_on(async {
            let mut work = pin!(work);
            loop {
                tokio::select! {
                    () = &mut work => return true,
                    () = died.notified() => return false,
                    _ = stopped(stop) => hurry(),
                }
            }
        })
    }
}

/// A signal that stops the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGTERM, from a supervisor.
    Terminate,
    /// SIGINT, from a terminal.
    Interrupt,
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}

impl Caught {
    async fn until_stopped(&mut self, reload: impl Fn()) -> Option<StopSignal> {
        loop {
            tokio::select! {
                () = self.died.notified() => return None,
                stop = stopped(&mut self.stop) => return Some(stop),
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP: reloading the configuration file");
                    reload();
                }
                _ = self.user.0.recv() => tracing::info!("SIGUSR1 has no effect"),
                _ = self.user.1.recv() => tracing::info!("SIGUSR2 has no effect"),
            }
        }
    }
}

async fn stopped(signals: &mut Option<(Signal, Signal)>) -> StopSignal {
    match signals {
        Some((terminate, interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => StopSignal::Terminate,
                _ = interrupt.recv() => StopSignal::Interrupt,
            }
        }
        None => std::future::pending().await,
    }
}
