//! A database of a server.

use std::net::SocketAddr;

use crate::server::PostgresServer;
use crate::template::ROLE;

/// A database that belongs to one test. It is deleted when it is dropped.
#[derive(Debug)]
pub struct Database<'server> {
    server: &'server PostgresServer,
    name: String,
}

impl<'server> Database<'server> {
    pub(crate) fn new(server: &'server PostgresServer, name: String) -> Self {
        Self { server, name }
    }

    /// Returns the URL, with the owner and the password.
    pub fn url(&self) -> String {
        self.url_at(self.server.address())
    }

    /// Returns the URL at another address, such as that of a proxy.
    pub fn url_at(&self, address: SocketAddr) -> String {
        url(address, &self.name, self.server.options.tls)
    }

    /// Returns the name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates another database with the same content. Ends all sessions of this one: the copy needs it alone.
    pub fn copy(&self) -> Database<'server> {
        self.end_sessions();
        self.server.create_from(&self.name)
    }

    /// Ends all sessions of the database.
    pub fn end_sessions(&self) {
        let name = &self.name;
        self.server.query(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ));
    }

    /// Runs SQL as the superuser, and returns the rows.
    pub fn query(&self, sql: &str) -> Vec<Vec<String>> {
        self.server.psql(&self.name).query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // The server may have been stopped: then its data are deleted soon.
        let _ = self.server.try_query(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

pub(crate) fn url(address: SocketAddr, database: &str, tls: bool) -> String {
    let parameters = if tls { "?sslmode=require" } else { "" };
    format!("postgres://{ROLE}:{ROLE}@{address}/{database}{parameters}")
}
