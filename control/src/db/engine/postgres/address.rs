//! The address of a database of PostgreSQL.

use std::fmt;

use pg::{Listener, Settings};

use super::PostgresSession;
use crate::db::engine::{Db, DbResult};

/// The address of a database, with the user, the password and the encryption of its sessions. Its text form names host,
/// port and database alone.
#[derive(Clone, Debug)]
pub struct DatabaseAddress(Settings);

impl DatabaseAddress {
    /// Parses a URL such as `postgres://user:password@host:5432/database`, with the parameters of libpq (PostgreSQL
    /// documentation, 34.1.1.2). An error says what is wrong, without the password.
    pub fn parse(url: &str) -> Result<Self, String> {
        Settings::parse(url).map(Self).map_err(|error| error.to_string())
    }

    /// Makes a session of the node with this number, which connects at its first statement.
    pub(crate) fn connect(&self, node: u32) -> DbResult<Db> {
        PostgresSession::new(self, node).map(Db::from)
    }

    /// Makes a session that waits for notifications of a channel.
    pub(crate) fn listen(&self, channel: &str) -> DbResult<Listener> {
        Ok(Listener::new(self.0.clone(), channel)?)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.0
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0.place())
    }
}
