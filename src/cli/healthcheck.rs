//! `llmgw healthcheck`: checks that the gateway of this environment is alive, or ready to serve. For images without
//! shell and curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use control::config::{self, Environment};
use shared::port::HttpLimits;

use super::{CliFailure, exit, loopback};

/// Requests `/health` from the configured address, or `/ready`.
pub(super) fn run(environment: &Arc<Environment>, ready: bool) -> Result<(), CliFailure> {
    let (bind, tls) =
        config::listens_at(environment).map_err(|error| CliFailure::new(exit::CONFIG, error))?;
    if bind.port() == 0 {
        return Err(CliFailure::new(
            exit::CONFIG,
            "LLMGW_PORT: is 0, so the port is unknown; set it to the \
             port of the running gateway",
        ));
    }
    if ready && tls {
        return Err(CliFailure::new(
            exit::CONFIG,
            "--ready: the gateway has TLS, which this command does not speak; leave it out, or ask for GET /ready \
             with a client that trusts the certificate",
        ));
    }
    let address = SocketAddr::new(reachable(bind.ip()), bind.port());
    let path = if ready { "/ready" } else { "/health" };
    let unhealthy = |why: String| CliFailure::new(exit::UNHEALTHY, format!("http://{address}{path}: {why}"));
    let answer = loopback::ask(address, path, LIMITS).map_err(|error| unhealthy(error.to_string()))?;
    match loopback::take_apart(&answer) {
        // A listener with TLS rejects plain text at once, which shows that the process does not hang.
        _ if tls => Ok(()),
        Some((200, _)) => Ok(()),
        Some((status, _)) => Err(unhealthy(format!("answers {status}"))),
        None => Err(unhealthy("the answer is not HTTP".to_owned())),
    }
}

/// Returns the address at which this machine reaches a listener on `ip`.
pub(super) fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(5), body_bytes_max: 64 << 10 };
