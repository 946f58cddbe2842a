//! `llmgw state`: moves the state between the files of the state directory and a database of PostgreSQL.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Subcommand};
use control::config::{self, Environment};
use control::{CopyNews, DatabaseAddress, StateCopied, StateCopyParams, copy_state_from, copy_state_to};

use super::{CliFailure, exit, logs, print};

#[derive(Subcommand)]
pub(super) enum StateCommand {
    /// Copy the state of LLMGW_STATE_DIR into an empty PostgreSQL database, or that of a database into files; no gateway may run
    /// on either
    ///
    /// The source is not changed. The destination gets the whole state in one transaction, or nothing. Before it ends, the
    /// number and a digest of the rows of each table are compared, and the audit log is verified. The encryption key stays the
    /// same.
    Copy(Direction),
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(super) struct Direction {
    /// Copy into this database, which must be empty; without a URL, into that of LLMGW_DATABASE_URL, which keeps its password
    /// out of the list of processes
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    to: Option<String>,
    /// Copy from this database into LLMGW_STATE_DIR, which must have no state; without a URL, from that of LLMGW_DATABASE_URL
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    from: Option<String>,
}

/// Copies the state, and prints the copied tables and what remains for the operator.
pub(super) fn run(command: &StateCommand, environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let StateCommand::Copy(Direction { to, from }) = command;
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    let key = offline.key().map_err(failed)?;
    let (option, url) = match (to, from) {
        (Some(url), _) => ("--to", url.as_str()),
        (None, url) => ("--from", url.as_deref().unwrap_or_default()),
    };
    let address = match (&offline.database, url) {
        (Some(address), "") => address.clone(),
        (None, "") => {
            return Err(CliFailure::new(
                exit::USAGE,
                format!("{option} needs the URL of a database, or LLMGW_DATABASE_URL"),
            ));
        }
        (_, url) => DatabaseAddress::parse(url)
            .map_err(|error| CliFailure::new(exit::USAGE, format!("{option}: {error}")))?,
    };
    let params = StateCopyParams { dir: &offline.state_dir, address: &address, encryption_key: key };
    let began = Instant::now();
    let copied = match to {
        Some(_) => copy_state_to(params, &mut report),
        None => copy_state_from(params, &mut report),
    };
    let copied = copied.map_err(|error| CliFailure::new(error.exit_code(), error))?;
    let place = match to {
        Some(_) => format!("the database {address}"),
        None => offline.state_dir.join("gateway.db").display().to_string(),
    };
    let StateCopied { tables, rows, records, audit } = copied;
    print(&format!(
        "{tables} tables with {rows} rows are in {place}, among them {records} usage records, after {:.1} s; the rows are those of \
         the source, and the audit log is intact: {} rows\n{}",
        began.elapsed().as_secs_f64(),
        audit.rows,
        next(to.is_some(), &offline.state_dir)
    ))
}

/// Prints a table that has rows, or a warning. A reader of stdout that has gone away does not end the copy.
fn report(news: CopyNews<'_>) {
    match news {
        CopyNews::Warning(text) => logs::report(&format!("llmgw: warning: {text}\n")),
        CopyNews::Table { rows: 0, .. } => {}
        CopyNews::Table { name, rows, time } => {
            drop(print(&format!("{name:<20} {rows:>12} rows {:>8} ms\n", time.as_millis())));
        }
    }
}

/// Returns what remains for the operator.
fn next(is_to_database: bool, dir: &Path) -> String {
    let dir = dir.display();
    if is_to_database {
        format!(
            "next: move the files gateway.db* and usage.db* out of {dir} and keep them as a backup; then start the gateway with \
             LLMGW_DATABASE_URL.\n"
        )
    } else {
        format!(
            "next: start the gateway with this state directory, {dir}, and without LLMGW_DATABASE_URL. Do not start nodes on the \
             database again: it is not changed, and would become another state.\n"
        )
    }
}
