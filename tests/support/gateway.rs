//! The gateway as users run it: the built binary in a separate process, on a free port, with a state directory that
//! outlives the process, so that a test can kill it and start it again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::clock;
use super::memory::Memory;
use super::{Client, Yaml, wait};

/// The static administrator key of every gateway in a test.
pub(crate) const ADMIN_KEY: &str = "test-admin-key-0123456789";
/// The encryption key of every gateway in a test: base64 of 32 bytes.
pub(crate) const ENCRYPTION_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// The configuration with which a gateway is started.
pub(crate) struct Setup {
    yaml: String,
    environment: BTreeMap<String, String>,
    state: Arc<TempDir>,
    directory: Option<PathBuf>,
    program: Option<PathBuf>,
}

impl Setup {
    /// Creates a setup with this configuration and an empty state directory.
    pub(crate) fn new(yaml: &Yaml) -> Self {
        let environment = [
            ("LLMGW_API_KEY", ADMIN_KEY),
            ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", ENCRYPTION_KEY),
            ("LLMGW_PORT", "0"),
            ("LLMGW_LOG", "info"),
            // A test of the delay sets its own.
            ("LLMGW_DRAIN_DELAY_SECONDS", "0"),
            // Without core dumps, /proc would hide descriptors and memory of the process from a test that does not run
            // as root.
            ("LLMGW_CORE_DUMPS", "true"),
        ];
        Self {
            yaml: yaml.text(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            state: Arc::new(tempfile::tempdir().unwrap()),
            directory: None,
            program: None,
        }
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the gateway's clock to half past twelve, far from the boundaries of an hour and a day.
    pub(crate) fn at_noon(self) -> Self {
        self.with_clock(clock::at_noon())
    }

    /// Sets the gateway's clock with an environment from [`clock::at`].
    pub(crate) fn with_clock(self, environment: Vec<(&str, String)>) -> Self {
        environment.into_iter().fold(self, |setup, (name, value)| setup.env(name, value))
    }

    /// Removes an environment variable.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self
    }

    /// Sets the working directory.
    pub(crate) fn directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.to_owned());
        self
    }

    /// Sets the program, such as one of another release; `None` for the built one.
    pub(crate) fn program(mut self, path: Option<PathBuf>) -> Self {
        self.program = path;
        self
    }

    /// Replaces the configuration file.
    pub(crate) fn yaml(mut self, yaml: impl Into<String>) -> Self {
        self.yaml = yaml.into();
        self
    }

    /// Returns the state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.state.path().join("state")
    }

    /// Returns the path of the configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.state.path().join("config.yaml")
    }

    /// Returns the command that runs the binary with this setup and `arguments`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        std::fs::write(self.config_path(), &self.yaml).unwrap();
        let built = Path::new(env!("CARGO_BIN_EXE_llmgw"));
        let mut command = Command::new(self.program.as_deref().unwrap_or(built));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.state.path())
            .env("LLMGW_STATE_DIR", self.state())
            .env("LLMGW_CONFIG", self.config_path())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Some(name) = without() {
            command.env_remove(name);
        }
        command.current_dir(self.directory.as_deref().unwrap_or_else(|| Path::new(".")));
        command
    }

    /// Runs the binary with `arguments` to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> std::process::Output {
        let what = format!("the end of llmgw {arguments:?}");
        wait::within(wait::PATIENCE, &what, self.command(arguments).output()).await.unwrap()
    }

    /// Runs the binary with `arguments` to its end and returns what it printed, `stdout` first. Fails unless it exits with
    /// `code` and without a panic.
    pub(crate) async fn output_of(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments).await;
        let printed = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(!printed.contains("panicked"), "{arguments:?}: {printed}");
        printed
    }

    /// Starts the gateway and waits until it is ready.
    pub(crate) async fn start(self) -> Gateway {
        let gateway = self.launch().await;
        gateway.ready().await;
        gateway
    }

    /// Starts the gateway and waits until it listens.
    pub(crate) async fn launch(self) -> Gateway {
        let mut child =
            self.command(&["serve"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Log::follow(child.stderr.take().unwrap());
        let address = log.address().await;
        Gateway { setup: self, child, log, address }
    }
}

/// Returns the variable that no gateway gets: `scripts/prove-variables` runs the proof of each variable without it.
#[expect(clippy::disallowed_methods, reason = "a test's own switch, no setting of the gateway")]
fn without() -> Option<std::ffi::OsString> {
    std::env::var_os("LLMGW_TEST_WITHOUT")
}

/// A running gateway. It is killed when dropped.
pub(crate) struct Gateway {
    setup: Setup,
    child: Child,
    log: Log,
    address: SocketAddr,
}

impl Gateway {
    /// Starts a gateway with this configuration and defaults otherwise.
    pub(crate) async fn start(yaml: &Yaml) -> Self {
        Setup::new(yaml).start().await
    }

    /// Returns the address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a client with the administrator key.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.address, Some(ADMIN_KEY))
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the gateway runs")
    }

    /// Returns the setup with which it was started.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.setup.state()
    }

    /// Returns everything that it has written to stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until the log contains `text`. A line is written and read by threads of their own, so it may come after an
    /// answer that was sent later.
    pub(crate) async fn logs(&self, text: &str) {
        let found = async {
            while !self.log().contains(text) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(wait::PATIENCE, found).await.is_err() {
            panic!("the log does not contain '{text}':\n{}", self.log());
        }
    }

    /// Returns a measurement of its memory that starts now.
    pub(crate) fn memory(&self) -> Memory {
        Memory::of(self.pid())
    }

    /// Returns the number of open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Replaces the configuration file of the running gateway.
    pub(crate) fn write_config(&self, text: impl AsRef<[u8]>) {
        replace(&self.setup.config_path(), text.as_ref());
    }

    /// Sets the limit of the process on file sizes, in bytes; returns the previous one.
    pub(crate) fn limit_file_bytes(&self, current: Option<u64>) -> Option<u64> {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap());
        let limit = Rlimit { current, ..getrlimit(Resource::Fsize) };
        prlimit(pid, Resource::Fsize, limit).unwrap().current
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the process has ended.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        self.exit_within(2 * wait::PATIENCE).await
    }

    /// Like [`Gateway::exit`], with `limit` as the time limit.
    pub(crate) async fn exit_within(&mut self, limit: Duration) -> ExitStatus {
        wait::within(limit, "the end of the gateway", self.child.wait()).await.unwrap()
    }

    /// Kills it with -9 and returns the setup for a restart.
    pub(crate) async fn kill(mut self) -> Setup {
        self.child.kill().await.unwrap();
        self.setup
    }

    /// Kills it with -9 and starts it again on the same state.
    pub(crate) async fn restart(self) -> Self {
        self.kill().await.start().await
    }

    /// Like [`Gateway::restart`], waiting only until it listens.
    pub(crate) async fn relaunch(self) -> Self {
        self.kill().await.launch().await
    }

    /// Stops it by SIGTERM and starts it again on the same state.
    pub(crate) async fn restart_in_order(mut self) -> Self {
        self.signal(Signal::TERM);
        assert_eq!(self.exit().await.code(), Some(0), "{}", self.log());
        self.setup.start().await
    }

    async fn ready(&self) {
        let client = Client::new(self.address, None);
        wait::eventually(&format!("/ready; log: {}", self.log()), async || {
            (client.get("/ready").await.ok()?.status == 200).then_some(())
        })
        .await;
    }

    /// Returns the stored record of the exchange with this id.
    pub(crate) async fn record_of(&self, request_id: &str) -> serde_json::Value {
        let (client, path) = (self.client(), format!("/admin/api/requests/{request_id}"));
        wait::eventually(&format!("the record of {request_id}"), async || {
            let answer = client.get(&path).await.ok()?;
            (answer.status == 200).then(|| answer.json())
        })
        .await
    }

    /// Waits until there are `count` stored records and returns all of them, newest first.
    pub(crate) async fn records(&self, count: usize) -> Vec<serde_json::Value> {
        let client = self.client();
        wait::eventually(&format!("{count} usage records"), async || {
            let answer = client.get("/admin/api/requests?limit=500").await.ok()?;
            let data = answer.json().get("data")?.as_array()?.clone();
            (data.len() >= count).then_some(data)
        })
        .await
    }
}

/// Replaces a file atomically, as careful editors do.
fn replace(path: &Path, bytes: &[u8]) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, bytes).unwrap();
    std::fs::rename(draft, path).unwrap();
}

/// The process's stderr, collected as it is written.
struct Log {
    text: Arc<Mutex<String>>,
    address: watch::Receiver<Option<SocketAddr>>,
}

impl Log {
    fn follow(stderr: impl tokio::io::AsyncRead + Unpin + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let (found, address) = watch::channel(None);
        let into = Arc::clone(&text);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, address)) = line.split_once("listening on ") {
                    let (_, address) = address.split_once("://").unwrap_or_default();
                    // In a line of JSON the message ends with a quote.
                    let address = address.split('"').next().unwrap_or_default();
                    found.send_replace(address.trim().parse().ok());
                }
                let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { text, address }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn address(&self) -> SocketAddr {
        let mut receiver = self.address.clone();
        let found = tokio::time::timeout(wait::PATIENCE, receiver.wait_for(Option::is_some)).await;
        match found {
            Ok(Ok(address)) => address.expect("waited for"),
            _ => panic!("the gateway did not print its address: {}", self.text()),
        }
    }
}
