//! The gateway as its users get it: the built binary in a process of its own, on a free port, with a state
//! directory that outlives it, so that a test can kill it and start it again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
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

/// How a gateway is to be started.
pub(crate) struct Setup {
    yaml: String,
    environment: BTreeMap<String, String>,
    state: Arc<TempDir>,
    directory: Option<PathBuf>,
}

impl Setup {
    /// With this configuration and an empty state directory.
    pub(crate) fn new(yaml: &Yaml) -> Self {
        let environment = [
            ("LLMGW_API_KEY", ADMIN_KEY),
            ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", ENCRYPTION_KEY),
            ("LLMGW_PORT", "0"),
            ("LLMGW_LOG", "info"),
            // Else /proc shows a test that is not run by root neither descriptors nor memory of the process.
            ("LLMGW_CORE_DUMPS", "true"),
        ];
        Self {
            yaml: yaml.text(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            state: Arc::new(tempfile::tempdir().unwrap()),
            directory: None,
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

    /// Sets the gateway's clock to what [`clock::at`] returned.
    pub(crate) fn with_clock(self, environment: Vec<(&str, String)>) -> Self {
        environment.into_iter().fold(self, |setup, (name, value)| setup.env(name, value))
    }

    /// Leaves an environment variable unset.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self
    }

    /// Sets the working directory.
    pub(crate) fn directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.to_owned());
        self
    }

    /// Replaces the configuration file.
    pub(crate) fn yaml(mut self, yaml: impl Into<String>) -> Self {
        self.yaml = yaml.into();
        self
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.state.path().join("state")
    }

    /// The configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.state.path().join("config.yaml")
    }

    /// The binary with this set-up and `arguments`, not yet started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        std::fs::write(self.config_path(), &self.yaml).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.state.path())
            .env("LLMGW_STATE_DIR", self.state())
            .env("LLMGW_CONFIG", self.config_path())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command.current_dir(self.directory.as_deref().unwrap_or_else(|| Path::new(".")));
        command
    }

    /// Runs the binary with `arguments` to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> std::process::Output {
        let what = format!("the end of llmgw {arguments:?}");
        wait::within(wait::PATIENCE, &what, self.command(arguments).output()).await.unwrap()
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

/// A running gateway. It is killed when dropped.
pub(crate) struct Gateway {
    setup: Setup,
    child: Child,
    log: Log,
    address: SocketAddr,
}

impl Gateway {
    /// A gateway with this configuration and nothing else changed.
    pub(crate) async fn start(yaml: &Yaml) -> Self {
        Setup::new(yaml).start().await
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client with the administrator key.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.address, Some(ADMIN_KEY))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the gateway runs")
    }

    /// How it was started.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.setup.state()
    }

    /// Everything that it has written to stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// Its memory, watched from now on.
    pub(crate) fn memory(&self) -> Memory {
        Memory::of(self.pid())
    }

    /// Open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Replaces the configuration file of the running gateway.
    pub(crate) fn write_config(&self, text: impl AsRef<[u8]>) {
        replace(&self.setup.config_path(), text.as_ref());
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        self.exit_within(2 * wait::PATIENCE).await
    }

    /// As [`Gateway::exit`], for which `limit` is the time.
    pub(crate) async fn exit_within(&mut self, limit: std::time::Duration) -> ExitStatus {
        wait::within(limit, "the end of the gateway", self.child.wait()).await.unwrap()
    }

    /// Kills it with -9 and keeps what it needs to start again.
    pub(crate) async fn kill(mut self) -> Setup {
        self.child.kill().await.unwrap();
        self.setup
    }

    /// Kills it with -9 and starts it again on the same state.
    pub(crate) async fn restart(self) -> Self {
        self.kill().await.start().await
    }

    async fn ready(&self) {
        let client = Client::new(self.address, None);
        wait::eventually(&format!("/ready; log: {}", self.log()), async || {
            (client.get("/ready").await.ok()?.status == 200).then_some(())
        })
        .await;
    }

    /// The stored record of the exchange with this id.
    pub(crate) async fn record_of(&self, request_id: &str) -> serde_json::Value {
        let (client, path) = (self.client(), format!("/admin/api/requests/{request_id}"));
        wait::eventually(&format!("the record of {request_id}"), async || {
            let answer = client.get(&path).await.ok()?;
            (answer.status == 200).then(|| answer.json())
        })
        .await
    }

    /// The stored records of all exchanges, newest first, as soon as there are `count` of them.
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

/// Replaces a file in one step, as careful editors do.
fn replace(path: &Path, bytes: &[u8]) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, bytes).unwrap();
    std::fs::rename(draft, path).unwrap();
}

/// What the process writes to stderr, collected as it comes.
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
            _ => panic!("the gateway never said where it listens: {}", self.text()),
        }
    }
}
