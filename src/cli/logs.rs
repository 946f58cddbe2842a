//! Where log lines go and how they look.

use control::config::{LogFormat, Logging};
use tracing_subscriber::EnvFilter;

use super::{Failure, exit};

/// Sends the log to stderr for the rest of the process.
pub(super) fn begin(logging: &Logging) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&logging.filter)
        .map_err(|error| Failure::new(exit::CONFIG, format!("LLMGW_LOG: {error}")))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let result = match logging.format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    result.map_err(|error| Failure::new(exit::INTERNAL, format!("the log cannot begin: {error}")))
}
