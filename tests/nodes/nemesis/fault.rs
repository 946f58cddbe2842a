//! The faults, and how each begins and ends.

use std::path::Path;
use std::time::Duration;

use postgres_server::{PostgresProxy, PostgresServer, ProxyMode, Replication};
use rustix::process::Signal;
use tokio::task::block_in_place;

use super::rig::Rig;
use crate::support::clock;
use crate::support::gateway::Setup;
use crate::support::random::Random;
use crate::support::wait;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A node is killed, and started again on its disk.
    Kill,
    /// A node stands still for seconds.
    Pause,
    /// A node is killed, and its directory is lost.
    LoseDisk,
    /// A second process is started with a copy of the directory of a running node.
    StartCopy,
    /// A node is killed, and started again with a clock that is wrong by up to 25 s.
    SetClock,
    /// A node has no connection to the server, or one that stands still, swallows answers or is slow.
    CutOff,
    /// Answers to commits are lost, or the commits are late.
    LoseCommits,
    /// The server is killed, and started again.
    KillServer,
    /// The server is killed, and a standby that has every commit takes over.
    Promote,
    /// The server is killed, and a standby that lacks the last commits takes over.
    PromoteBehind,
}

impl Fault {
    /// True if records of the node with the fault may be lost with its disk.
    pub(super) fn loses_records(self) -> bool {
        matches!(self, Self::LoseDisk | Self::StartCopy)
    }

    /// True if requests that run at the node with the fault end with it.
    pub(super) fn kills_nodes(self) -> bool {
        matches!(self, Self::Kill | Self::SetClock)
    }

    /// True if the server may lose commits that it has acknowledged.
    pub(super) fn loses_commits(self) -> bool {
        self == Self::PromoteBehind
    }

    /// True if what the node had of limits stays counted, although nobody uses it.
    pub(super) fn loses_shares(self) -> bool {
        self == Self::LoseDisk
    }
}

/// A standby that follows the server, and takes over in this round.
pub(super) struct Standby {
    server: PostgresServer,
    /// The standby gets everything through it, and falls behind when it stands still. Without it, commits wait for the standby.
    link: Option<PostgresProxy>,
}

impl Standby {
    /// Starts the standby of a round, if a standby takes over in it.
    pub(super) fn start(fault: Fault, rig: &Rig) -> Option<Self> {
        match fault {
            Fault::Promote => {
                let server = block_in_place(|| rig.server.standby(Replication::Synchronous));
                Some(Self { server, link: None })
            }
            Fault::PromoteBehind => {
                let link = PostgresProxy::start(rig.server.address());
                let follow = || rig.server.standby_through(link.address(), Replication::Asynchronous);
                Some(Self { server: block_in_place(follow), link: Some(link) })
            }
            _ => None,
        }
    }
}

/// Lets the node at `at`, or the server, fail for a while. Afterwards all nodes run.
pub(super) async fn strike(
    (fault, standby): (Fault, Option<Standby>),
    rig: &mut Rig,
    at: usize,
    random: &mut Random,
) {
    match fault {
        Fault::Kill => restart(rig, at, random, |setup| setup).await,
        Fault::SetClock => {
            let seconds = i64::try_from(random.between(0, 50)).unwrap() - 25;
            let now = i64::try_from(shared::clock::unix_ms() / 1_000).unwrap();
            let clock = clock::at(now + seconds).unwrap_or_default();
            restart(rig, at, random, |setup| setup.with_clock(clock)).await;
        }
        Fault::Pause => {
            rig.nodes[at].signal(Signal::STOP);
            random.pause_ms(50, 8_000).await;
            rig.nodes[at].signal(Signal::CONT);
        }
        Fault::LoseDisk => {
            let empty = rig.setup(at);
            drop(kill(rig, at, random).await);
            rig.put(at, empty.start().await);
        }
        Fault::StartCopy => start_copy(rig, at).await,
        Fault::CutOff => {
            let modes = [
                ProxyMode::Cut,
                ProxyMode::HalfOpen,
                ProxyMode::DropAnswers,
                ProxyMode::Delay(Duration::from_millis(random.between(20, 400))),
                ProxyMode::Trickle { bytes: 40, every: Duration::from_millis(5) },
            ];
            let mode = modes[usize::try_from(random.between(0, modes.len() as u64)).unwrap()];
            block_in_place(|| rig.proxies[at].set(mode));
            random.pause_ms(100, 4_000).await;
            block_in_place(|| rig.proxies[at].set(ProxyMode::Pass));
        }
        Fault::LoseCommits => lose_commits(rig, random).await,
        Fault::KillServer => {
            block_in_place(|| rig.server.kill());
            random.pause_ms(0, 2_000).await;
            block_in_place(|| rig.server.restart());
        }
        Fault::Promote | Fault::PromoteBehind => {
            let standby = standby.unwrap();
            fall_behind(rig, &standby, random).await;
            take_over(rig, standby);
        }
    }
}

/// Kills a node, and starts it again on its disk with a setup that `changed` returns.
async fn restart(rig: &mut Rig, at: usize, random: &mut Random, changed: impl FnOnce(Setup) -> Setup) {
    let setup = kill(rig, at, random).await;
    rig.put(at, changed(setup).start().await);
}

/// Kills a node and waits for a while.
async fn kill(rig: &mut Rig, at: usize, random: &mut Random) -> Setup {
    let setup = rig.take(at).kill().await;
    random.pause_ms(0, 1_500).await;
    setup
}

/// Starts a second process with a copy of the node's directory, which ends the first.
async fn start_copy(rig: &mut Rig, at: usize) {
    let copy = rig.setup(at);
    copy_folder(&rig.nodes[at].state(), &copy.state());
    let second = copy.start().await;
    let mut first = rig.take(at);
    rig.put(at, second);
    assert!(!first.exit().await.success());
    first.logs("another process has started with the node.json").await;
}

/// Copies a folder whose files change meanwhile.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.unwrap(), to.to_owned());
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else if entry.file_type().unwrap().is_file() {
            let _ = std::fs::copy(entry.path(), to);
        }
    }
}

/// Loses answers to commits, or delays commits, at all nodes.
async fn lose_commits(rig: &Rig, random: &mut Random) {
    for _ in 0..3 {
        for proxy in &rig.proxies {
            let nth = u32::try_from(random.between(1, 6)).unwrap();
            let after = Duration::from_millis(random.between(10, 1_500));
            let mode = if random.between(0, 2) == 0 {
                ProxyMode::LoseCommitAnswer { nth }
            } else {
                ProxyMode::LateCommit { nth, after }
            };
            block_in_place(|| proxy.set(mode));
        }
        random.pause_ms(100, 1_000).await;
    }
    block_in_place(|| rig.proxies.iter().for_each(|proxy| proxy.set(ProxyMode::Pass)));
}

/// Stops what the standby gets if it has a link. The server then commits what the standby lacks.
async fn fall_behind(rig: &Rig, standby: &Standby, random: &mut Random) {
    let Some(link) = &standby.link else { return };
    let place = || rig.server.query("SELECT pg_current_wal_lsn()");
    let reached = block_in_place(|| {
        link.set(ProxyMode::HalfOpen);
        place()
    });
    random.pause_ms(100, 3_000).await;
    wait::eventually("a commit that the standby lacks", async || {
        block_in_place(|| place() != reached).then_some(())
    })
    .await;
}

/// Kills the server, and leads all nodes to the standby instead.
fn take_over(rig: &mut Rig, Standby { server, link }: Standby) {
    block_in_place(|| {
        rig.server.kill();
        server.promote();
        drop(link);
        for proxy in &rig.proxies {
            proxy.lead_to(server.address());
            proxy.set(ProxyMode::Cut);
            proxy.set(ProxyMode::Pass);
        }
    });
    rig.server = server;
}
