//! The gateway as the command line sees it. A seam of one file: once the planes are composed in the library, this
//! is a re-export of its `Gateway`.

use std::fmt;
use std::net::SocketAddr;

use control::config::Config;

use super::exit;

/// A running gateway.
pub(super) struct Gateway {
    address: SocketAddr,
}

/// Why the gateway did not start.
#[derive(Debug)]
pub(super) struct StartError;

impl Gateway {
    #[expect(clippy::needless_pass_by_value, reason = "the gateway keeps the configuration and the warnings")]
    pub(super) fn start(config: Config, warnings: Vec<String>) -> Result<Self, StartError> {
        tracing::debug!(address = %config.server.bind, warnings = warnings.len(), "the planes are not composed");
        Err(StartError)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn run_until_stopped(self) {
        let Self { address: _ } = self;
    }
}

impl StartError {
    pub(super) fn exit_code(&self) -> u8 {
        exit::INTERNAL
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this build has no data plane and no control plane")
    }
}
