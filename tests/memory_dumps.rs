//! Protection of the process's memory, which holds keys and prompts.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::gateway::Setup;
use crate::support::{Yaml, wait};

/// True if the machine writes a core file for a process that ends by SIGABRT.
async fn machine_dumps_cores() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited 2>/dev/null; kill -ABRT $$"]).current_dir(folder.path());
    shell.status().await.unwrap().core_dumped()
}

/// Sends SIGABRT to a gateway that may write core files of any size to its own folder, and returns its exit status.
async fn aborted(setup: &Setup) -> ExitStatus {
    let folder = tempfile::tempdir().unwrap();
    let gateway = setup.command(&["serve"]);
    let mut shell = tokio::process::Command::new("sh");
    shell
        .args(["-c", "ulimit -c unlimited 2>/dev/null; exec \"$0\" serve"])
        .arg(gateway.as_std().get_program());
    shell.env_clear().envs(gateway.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(folder.path()).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = shell.spawn().unwrap();
    let database = setup.state().join("journal");
    wait::eventually("the gateway", async || database.exists().then_some(())).await;
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::ABORT).unwrap();
    wait::within(wait::PATIENCE, "its end", child.wait()).await.unwrap()
}

#[tokio::test]
async fn a_process_that_aborts_leaves_no_core_dump() {
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let status = aborted(&Setup::new(&yaml).without("LLMGW_CORE_DUMPS")).await;
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()));
    assert!(!status.core_dumped(), "{status:?}");
    let allowed = aborted(&Setup::new(&yaml).env("LLMGW_CORE_DUMPS", "true")).await;
    assert_eq!(allowed.signal(), Some(Signal::ABORT.as_raw()));
    assert_eq!(allowed.core_dumped(), machine_dumps_cores().await, "{allowed:?}");
}

/// In /proc, a process that is not dumpable belongs to root, but it can still read its own limits.
#[tokio::test]
async fn a_process_without_core_dumps_still_reads_its_limits() {
    let setup = Setup::new(&Yaml::new()).without("LLMGW_CORE_DUMPS");
    let shown = setup.run(&["config", "show"]).await;
    let allowed = setup.env("LLMGW_CORE_DUMPS", "true").run(&["config", "show"]).await;
    let connections = |output: &std::process::Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find(|line| line.starts_with("LLMGW_MAX_CONNECTIONS ")).unwrap().to_owned()
    };
    assert_eq!(connections(&shown), connections(&allowed), "from /proc/self/limits");
}
