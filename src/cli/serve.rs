//! `llmgw serve`: runs the gateway from a loaded configuration until it stops.

use std::net::SocketAddr;
use std::sync::Arc;

use control::config::{self, Config, Environment, Loaded};

use super::{CliFailure, exit, logs};
use llmgw::Gateway;

/// Runs the gateway until it is asked to stop.
pub(super) fn run(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let loaded = load(environment)?;
    let gateway = start(loaded)?;
    until_stopped(gateway)
}

/// Runs `gateway` until it is asked to stop, or one of its threads dies.
pub(super) fn until_stopped(gateway: Gateway) -> Result<(), CliFailure> {
    gateway.run_until_stopped().map_err(|error| {
        tracing::error!("{error}");
        CliFailure::new(error.exit_code(), error)
    })
}

/// Loads the configuration; the failure contains the first error.
pub(super) fn load(environment: &Arc<Environment>) -> Result<Loaded, CliFailure> {
    config::load(environment).map_err(|error| CliFailure::new(exit::CONFIG, error))
}

/// Initializes the log, writes the seed configuration if there is one, and starts the gateway.
pub(super) fn start(loaded: Loaded) -> Result<Gateway, CliFailure> {
    let Loaded { config, warnings } = loaded;
    let log = logs::begin(&config.logging, &config.state_dir)?;
    plant(&config)?;
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    let gateway =
        Gateway::start(config, warnings, log).map_err(|error| CliFailure::new(error.exit_code(), error))?;
    tracing::info!("listening on {scheme}://{}", gateway.address());
    Ok(gateway)
}

fn plant(config: &Config) -> Result<(), CliFailure> {
    let Some(seed) = &config.seed else { return Ok(()) };
    seed.plant().map_err(|error| {
        CliFailure::new(
            exit::IO,
            format!("LLMGW_CONFIG_SEED: {} cannot be written: {error}", seed.to.display()),
        )
    })
}

/// Returns a clear error if `address` is not free.
pub(super) fn expect_free(address: SocketAddr) -> Result<(), CliFailure> {
    match std::net::TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(CliFailure::new(
            exit::IO,
            format!("cannot listen on {address} ({error}); set LLMGW_PORT to a free port, or 0 for any"),
        )),
    }
}
