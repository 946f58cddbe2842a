//! Settings of a session, from a URL in the form of libpq (PostgreSQL documentation, section 34.1.1.2).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode};

/// Where the server is, who signs in, and how the connection is encrypted.
#[derive(Clone)]
pub struct Settings {
    pub(crate) config: Config,
    pub(crate) encryption: Encryption,
}

/// How a connection is encrypted, by the parameters of the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encryption {
    pub(crate) check: Check,
    /// `sslrootcert`: a file with the certificates of the authorities. Public ones and those of the system otherwise.
    pub(crate) authorities: Option<PathBuf>,
    /// `sslcert` and `sslkey`: the certificate by which this client is known, and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// The checks of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Nothing: the connection may be in clear text (`disable`), is encrypted if the server can (`prefer`), or must be
    /// encrypted (`require` without `sslrootcert`).
    Nothing,
    /// That an authority signed it (`verify-ca`).
    Authority,
    /// That an authority signed it for this host (`verify-full`).
    Name,
}

/// A URL that cannot be used. The message does not contain the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl Settings {
    /// Reads a URL: `postgres://user:password@host:5432/database?sslmode=verify-full&sslrootcert=/path/ca.pem`. Without
    /// `sslmode`, a connection to another machine is encrypted and the name of the server is verified, and one to this
    /// machine is encrypted if the server can.
    pub fn parse(url: &str) -> Result<Self, SettingsError> {
        let fault = |text: String| SettingsError(text);
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(fault("it does not begin with postgres:// or postgresql://".into()));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut ours = OurParameters::default();
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !ours.take(name, &decoded(value)?)? {
                others.push(pair);
            }
        }
        let rest = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        let mut config = Config::from_str(&rest).map_err(|error| {
            let cause =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            fault(cause)
        })?;
        if config.get_hosts().is_empty() {
            return Err(fault("it names no host".into()));
        }
        if config.get_user().is_none() {
            return Err(fault("it names no user".into()));
        }
        if config.get_dbname().is_none() {
            return Err(fault("it names no database".into()));
        }
        let encryption = ours.apply(&mut config)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("llmgw");
        }
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(3);
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
        Ok(Self { config, encryption })
    }

    /// Returns the server and the database for messages: `host:port/database`.
    #[must_use]
    pub fn place(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}/{}", self.config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("place", &self.place()).finish_non_exhaustive()
    }
}

/// The parameters that tokio-postgres does not know, or knows in fewer forms.
#[derive(Default)]
struct OurParameters {
    mode: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl OurParameters {
    /// Takes a parameter. Returns false if it belongs to tokio-postgres.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, SettingsError> {
        match name {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" if value == "system" => {}
            "sslrootcert" => self.authorities = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "sslpassword" | "sslcrl" | "sslcrldir" | "gssencmode" | "service" | "passfile" => {
                return Err(SettingsError(format!("the parameter {name} is not supported")));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply(self, config: &mut Config) -> Result<Encryption, SettingsError> {
        let default = if is_local(config) { "prefer" } else { "verify-full" };
        let (mode, check) = match self.mode.as_deref().unwrap_or(default) {
            "disable" => (SslMode::Disable, Check::Nothing),
            "allow" | "prefer" => (SslMode::Prefer, Check::Nothing),
            // As in libpq: with a file of authorities, `require` checks as `verify-ca` does.
            "require" if self.authorities.is_none() => (SslMode::Require, Check::Nothing),
            "require" | "verify-ca" => (SslMode::Require, Check::Authority),
            "verify-full" => (SslMode::Require, Check::Name),
            other => {
                return Err(SettingsError(format!(
                    "sslmode={other} is not one of disable, prefer, require, verify-ca, verify-full"
                )));
            }
        };
        config.ssl_mode(mode);
        if mode == SslMode::Disable {
            config.channel_binding(ChannelBinding::Disable);
        }
        let client = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(SettingsError("sslcert and sslkey belong together".into())),
        };
        Ok(Encryption { check, authorities: self.authorities, client })
    }
}

/// True if all hosts are this machine.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    })
}

/// Undoes percent-encoding.
fn decoded(value: &str) -> Result<String, SettingsError> {
    percent_encoding::percent_decode_str(value)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| SettingsError("a parameter is not UTF-8".into()))
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without data after which the connection is tested.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The time after which a connection ends whose data the server does not acknowledge.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn encryption(url: &str) -> (SslMode, Encryption) {
        let settings = Settings::parse(url).unwrap();
        (settings.config.get_ssl_mode(), settings.encryption)
    }

    #[test]
    fn another_machine_is_verified_by_default_and_this_one_is_not() {
        let (mode, found) = encryption("postgres://u@db.example/x");
        assert_eq!((mode, found.check), (SslMode::Require, Check::Name));
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let (mode, found) = encryption(&format!("postgres://u@{host}/x"));
            assert_eq!((mode, found.check), (SslMode::Prefer, Check::Nothing), "{host}");
        }
    }

    #[test]
    fn each_mode_checks_as_libpq_does() {
        for (query, mode, check) in [
            ("sslmode=disable", SslMode::Disable, Check::Nothing),
            ("sslmode=prefer", SslMode::Prefer, Check::Nothing),
            ("sslmode=require", SslMode::Require, Check::Nothing),
            ("sslmode=require&sslrootcert=%2Fa.pem", SslMode::Require, Check::Authority),
            ("sslmode=verify-ca", SslMode::Require, Check::Authority),
            ("sslmode=verify-full&sslrootcert=system", SslMode::Require, Check::Name),
        ] {
            let (found, encryption) =
                encryption(&format!("postgresql://u:p@db.example:1/x?{query}&application_name=a"));
            assert_eq!((found, encryption.check), (mode, check), "{query}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_without_its_password() {
        for (url, reason) in [
            ("mysql://u:secret@h/d", "it does not begin with postgres://"),
            ("postgres://u:secret@h", "it names no database"),
            ("postgres://h/d", "it names no user"),
            ("postgres://u:secret@h/d?sslmode=some", "sslmode=some is not one of"),
            ("postgres://u:secret@h/d?sslcert=/a", "sslcert and sslkey belong together"),
            ("postgres://u:secret@h/d?sslcrl=/a", "the parameter sslcrl is not supported"),
            ("postgres://u:secret@h:port/d", "invalid"),
            ("postgres://u:secret@h/d?colour=red", "unknown option"),
        ] {
            let error = Settings::parse(url).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains("secret"), "{url}: {error}");
        }
        let settings = Settings::parse("postgres://u:secret@h:7/d").unwrap();
        assert_eq!(settings.place(), "h:7/d");
        assert!(!format!("{settings:?}").contains("secret"));
    }
}
