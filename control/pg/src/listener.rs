//! A connection that waits for notifications.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use crate::tls;

/// A session that waits for notifications of one channel, and blocks the calling thread meanwhile. Behind a transaction pooler
/// it hears nothing.
pub struct Listener {
    settings: Settings,
    connector: MakeRustlsConnect,
    runtime: Runtime,
    /// The text that subscribes to the channel.
    listen: String,
    live: Option<Listening>,
}

/// A connection that is subscribed.
struct Listening {
    client: Client,
    heard: Arc<Notify>,
    /// Ends with the connection.
    connection: JoinHandle<()>,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// There was a notification, or several.
    Notification,
    /// What the caller waited for beside has come.
    Other,
}

impl Listener {
    /// Makes a listener to the channel of this name, which connects when it first waits.
    pub fn new(settings: Settings, channel: &str) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::new(ErrorKind::Other, format!("cannot start a runtime: {error}")))?;
        let connector = tls::connector(&settings.encryption)?;
        Ok(Self { settings, connector, runtime, listen: format!("LISTEN {channel}"), live: None })
    }

    /// Waits for a notification that has not been reported yet, or for `other`. Connects first if there is no connection. After
    /// an error the connection is gone, and notifications may have been missed.
    pub fn wait(&mut self, other: impl Future<Output = ()>) -> Result<Heard, Error> {
        let Self { settings, connector, runtime, listen, live } = self;
        let outcome = runtime.block_on(async {
            let listening = match live {
                Some(listening) => listening,
                None => live.insert(Listening::start(settings, connector, listen).await?),
            };
            tokio::select! {
                () = listening.heard.notified() => Ok(Heard::Notification),
                () = other => Ok(Heard::Other),
                _ = &mut listening.connection => Err(ended()),
            }
        });
        if outcome.is_err() {
            self.live = None;
        }
        outcome
    }

    /// Asks the server for an answer, so that a connection that has ended silently is noticed.
    pub fn probe(&mut self) -> Result<(), Error> {
        let Some(Listening { client, .. }) = &self.live else { return Ok(()) };
        let answer = in_time(client.batch_execute("SELECT 1"));
        let outcome = self.runtime.block_on(answer);
        if outcome.is_err() {
            self.live = None;
        }
        outcome
    }
}

impl Listening {
    async fn start(settings: &Settings, connector: &MakeRustlsConnect, listen: &str) -> Result<Self, Error> {
        let (client, mut connection) = in_time(settings.config.connect(connector.clone())).await?;
        let heard = Arc::new(Notify::new());
        let told = Arc::clone(&heard);
        let connection = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    told.notify_one();
                }
            }
        });
        let listening = Self { client, heard, connection };
        in_time(listening.client.batch_execute(listen)).await?;
        Ok(listening)
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER_TIME_MAX, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::too_slow()),
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unreachable, "the connection to the database ended")
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("settings", &self.settings).finish_non_exhaustive()
    }
}

const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
