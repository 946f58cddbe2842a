//! Stderr and stdout that are closed, full or read by nobody neither end nor stall a gateway: the lines are dropped and
//! counted.

use std::fs::{self, File};
use std::io::{PipeReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Upstream, Yaml, chat, wait};

/// What a gateway writes to, and what must live as long as the test.
type Output = (Stdio, Option<PipeReader>);

/// A device that is always full.
fn full() -> Output {
    (File::options().write(true).open("/dev/full").unwrap().into(), None)
}

/// A pipe whose reader is gone.
fn closed() -> Output {
    (std::io::pipe().unwrap().1.into(), None)
}

/// A full pipe that nobody reads.
fn blocked() -> Output {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4_096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (writer.into(), Some(reader))
}

/// Returns the address that the log file names.
async fn address_of(setup: &Setup) -> SocketAddr {
    let folder = setup.state().join("logs");
    let named = |path: &Path| -> Option<SocketAddr> {
        let text = fs::read_to_string(path).ok()?;
        text.split_once("listening on http://")?.1.split_whitespace().next()?.parse().ok()
    };
    wait::eventually("the address in the log file", async || {
        fs::read_dir(&folder).ok()?.flatten().find_map(|file| named(&file.path()))
    })
    .await
}

async fn stop(mut child: Child, code: i32) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let status = wait::within(2 * wait::PATIENCE, "the end of the gateway", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(code));
}

#[tokio::test]
async fn a_gateway_serves_and_stops_with_a_stderr_that_takes_nothing() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    for (what, (stderr, reader)) in [("full", full()), ("closed", closed()), ("blocked", blocked())] {
        let setup = Setup::new(&Yaml::one(upstream.base_url()))
            .env("LLMGW_LOG_FILE", "true")
            .env("LLMGW_LOG_REQUESTS", "true");
        let child = setup.command(&["serve"]).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        let client = Client::new(address_of(&setup).await, Some(ADMIN_KEY));
        for _ in 0..20 {
            assert_eq!(client.chat(chat::request("m")).await.status, 200, "{what}");
        }
        let metrics = client.get("/metrics").await.unwrap();
        let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
        let counted = |destination: &str| {
            let name = format!("llmgw_log_lines_dropped_total{{destination=\"{destination}\"}} ");
            let value = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
            value.unwrap_or_else(|| panic!("{name}: {metrics}")).parse::<u64>().unwrap()
        };
        // What waits for a blocked pipe is not dropped before the queue is full.
        assert_eq!(counted("stderr") >= 20, what != "blocked", "{what}: {metrics}");
        assert_eq!(counted("file"), 0, "{what}");
        stop(child, 0).await;
        drop(reader);
    }
}

#[tokio::test]
async fn a_gateway_that_cannot_start_ends_with_its_code_though_nobody_reads_why() {
    let setup = Setup::new(&Yaml::new()).yaml("providers: [\n");
    for (what, (stderr, _reader)) in [("full", full()), ("closed", closed()), ("blocked", blocked())] {
        let mut child = setup.command(&["serve"]).stderr(stderr).spawn().unwrap();
        let status = wait::within(wait::PATIENCE, what, child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(78), "{what}");
    }
}

#[tokio::test]
async fn quickstart_serves_and_stops_with_a_stdout_that_takes_nothing() {
    for (what, (stdout, _reader)) in [("full", full()), ("closed", closed()), ("blocked", blocked())] {
        let setup = Setup::new(&Yaml::new()).env("LLMGW_LOG_FILE", "true");
        let (stderr, _log) = blocked();
        let child = setup.command(&["quickstart"]).stdout(stdout).stderr(stderr).spawn().unwrap();
        let client = Client::new(address_of(&setup).await, None);
        assert_eq!(client.get("/health").await.unwrap().status, 200, "{what}");
        stop(child, 0).await;
    }
}

#[tokio::test]
async fn a_command_whose_output_is_lost_fails_and_never_panics() {
    let setup = Setup::new(&Yaml::one("http://127.0.0.1:9/v1"));
    let commands =
        [&["version"][..], &["--help"], &["--version"], &["config", "show"], &["completions", "bash"]];
    for arguments in commands {
        let status = setup.command(arguments).stdout(full().0).status().await.unwrap();
        assert_eq!(status.code(), Some(74), "{arguments:?}");
    }
    for (arguments, code) in [(&["no-such-command"][..], 64), (&["healthcheck"], 78), (&["version"], 0)] {
        let status = setup.command(arguments).stderr(full().0).status().await.unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
    let faulty = setup.yaml("providers: [\n");
    let status = faulty.command(&["config", "check"]).stderr(full().0).status().await.unwrap();
    assert_eq!(status.code(), Some(78));
}
