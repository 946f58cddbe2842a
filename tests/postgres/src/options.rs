//! Options of a server.

/// How a server is set up. The default is as durable as in production, without TLS.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub(crate) durable: bool,
    pub(crate) tls: bool,
    pub(crate) settings: Vec<(String, String)>,
}

impl ServerOptions {
    /// Returns the options of a server that a kill of its processes does not hurt and that nothing else must survive:
    /// commits do not wait for the disk, and no standby can follow it. Unit tests use it.
    pub fn fast() -> Self {
        let settings = [
            ("fsync", "off"),
            ("synchronous_commit", "off"),
            ("full_page_writes", "off"),
            ("wal_level", "minimal"),
            ("max_wal_senders", "0"),
            ("max_connections", "300"),
        ];
        settings.into_iter().fold(Self { durable: false, ..Self::default() }, |options, (name, value)| {
            options.with(name, value)
        })
    }

    /// Sets a parameter of `postgresql.conf`. The last value of a parameter holds.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the server accept TCP connections with TLS only. [`PostgresServer::ca_file`](crate::PostgresServer::ca_file)
    /// has the certificate, which is for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { durable: true, tls: false, settings: Vec::new() }
    }
}
