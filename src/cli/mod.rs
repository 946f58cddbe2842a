//! The commands. Each returns nothing or a [`CliFailure`], which contains one line for the operator and an exit code.

mod audit;
mod backup;
mod config;
mod credentials;
mod doctor;
mod export;
mod healthcheck;
mod import;
mod logs;
mod loopback;
mod manual;
mod migrate;
mod quickstart;
mod rollback;
mod serve;
mod state;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use control::StatePlace;
use control::config::{Environment, Offline, VARIABLES};
#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// A gateway for model inference.
#[derive(Parser)]
#[command(name = "llmgw", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run the gateway
    #[command(after_help = serve_help())]
    Serve,
    /// Run the gateway on a new machine: creates secrets and a configuration if there are none
    Quickstart,
    /// Check that the gateway of this environment is alive; exits 0 or 1
    Healthcheck {
        /// Check that it is ready to serve: it is not while it waits for its database or drains
        #[arg(long)]
        ready: bool,
    },
    /// Print the version
    Version,
    /// Examine this environment, its configuration and its state; report faults with the command that repairs each
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check and print the configuration without starting the gateway
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print the providers and endpoints of the database as a configuration file, without secrets; the gateway may run
    Export,
    /// Convert the configuration of another gateway
    Import {
        #[command(subcommand)]
        command: import::ImportCommand,
    },
    /// Manage stored secrets and their encryption key
    Credentials {
        #[command(subcommand)]
        command: CredentialsCommand,
    },
    /// Create, verify and restore archives of the state
    Backup {
        #[command(subcommand)]
        command: backup::BackupCommand,
    },
    /// Put the state back as it was before the last upgrade; the gateway must not run
    Rollback,
    /// Migrate the database of LLMGW_DATABASE_URL to this release, or create its tables; nodes may run
    Migrate,
    /// Move the state into PostgreSQL and back
    State {
        #[command(subcommand)]
        command: state::StateCommand,
    },
    /// Check the audit log
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// Print the script that completes commands in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages of all commands
    Manual {
        /// The directory to write them to
        directory: PathBuf,
    },
}

#[derive(Subcommand)]
enum CredentialsCommand {
    /// Re-encrypt the state with LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY; a gateway with its own files must not run
    ///
    /// Nodes that share a database go on: both keys open it until each has restarted with the new one.
    Rekey {
        /// Let only the new key open the database of nodes
        #[arg(long)]
        finish: bool,
    },
    /// Seal the keys of secrets.json in the database and remove that file; the gateway must not run
    Import,
    /// Decrypt every stored secret and list those that fail; the gateway may run
    Verify,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Detect changed, removed and inserted rows; the gateway may run
    Verify,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// List all faults of the environment and the file
    Check,
    /// Print the effective values and where each comes from, secrets masked
    Show,
    /// Print the JSON Schema of the file
    Schema,
}

/// Why a command ended without doing what it should.
#[derive(Debug)]
struct CliFailure {
    code: u8,
    message: String,
}

impl CliFailure {
    fn new(code: u8, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// Returns a failure whose reason is printed already.
    fn reported(code: u8) -> Self {
        Self { code, message: String::new() }
    }
}

/// Runs what `arguments` ask for.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap reports help and version as errors too, for stdout.
            let error = with_variable(error);
            let printed = error.print();
            return match error.use_stderr() {
                true => ExitCode::from(exit::USAGE),
                false => finish(printed_to_stdout(printed)),
            };
        }
    };
    let environment = || {
        let environment = Environment::of_process().with_tls_reader(llmgw::tls_reader());
        let environment = Arc::new(environment);
        protect_memory(&environment);
        environment
    };
    let result = match arguments.command {
        CliCommand::Serve => logs::detach().and_then(|()| serve::run(&environment())),
        CliCommand::Quickstart => logs::detach().and_then(|()| quickstart::run(&environment())),
        CliCommand::Healthcheck { ready } => healthcheck::run(&environment(), ready),
        CliCommand::Version => print(&version()),
        CliCommand::Doctor { json } => doctor::run(&environment(), json),
        CliCommand::Config { command: ConfigCommand::Check } => config::check(&environment()),
        CliCommand::Config { command: ConfigCommand::Show } => config::show(&environment()),
        CliCommand::Config { command: ConfigCommand::Schema } => config::schema(),
        CliCommand::Export => export::run(&environment()),
        CliCommand::Import { command } => {
            environment();
            import::run(command)
        }
        CliCommand::Credentials { command: CredentialsCommand::Rekey { finish } } => {
            credentials::rekey(&environment(), finish)
        }
        CliCommand::Credentials { command: CredentialsCommand::Import } => {
            credentials::import(&environment())
        }
        CliCommand::Credentials { command: CredentialsCommand::Verify } => {
            credentials::verify(&environment())
        }
        CliCommand::Backup { command } => backup::run(command, &environment()),
        CliCommand::Rollback => rollback::run(&environment()),
        CliCommand::Migrate => migrate::run(&environment()),
        CliCommand::State { command } => state::run(&command, &environment()),
        CliCommand::Audit { command: AuditCommand::Verify } => audit::verify(&environment()),
        CliCommand::Completions { shell } => manual::completions(shell, Arguments::command()),
        CliCommand::Manual { directory } => manual::pages(&directory, Arguments::command()),
    };
    finish(result)
}

/// Adds the variable that sets what an unknown option asks for, such as `LLMGW_PORT` for `--port`.
fn with_variable(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = format!("LLMGW_{}", option.trim_start_matches('-').replace('-', "_").to_uppercase());
    if VARIABLES.iter().any(|variable| variable.name == name) {
        let hint = format!("the environment variable {name} sets this").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
    }
    error
}

/// Returns the variables that most operators set, for the help of `serve`.
fn serve_help() -> String {
    let named = NEEDED_VARIABLES.iter().filter_map(|name| VARIABLES.iter().find(|row| row.name == *name));
    let lines: String = named.map(|row| format!("  {:33}{}\n", row.name, row.doc)).collect();
    format!(
        "It is configured by environment variables and a YAML file. The variables that most operators set:\n{lines}\
         `llmgw config show` lists all of them with their values, and docs/configuration.md describes them."
    )
}

/// Reports the failure of a command, if it has failed, and returns its exit code.
fn finish(result: Result<(), CliFailure>) -> ExitCode {
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                logs::report(&format!("llmgw: {}\n", failure.message));
            }
            ExitCode::from(failure.code)
        }
    };
    logs::flush();
    code
}

/// Keeps the memory of this process, which holds keys and prompts, out of core dumps and from debuggers of its user.
fn protect_memory(environment: &Environment) {
    #[cfg(target_os = "linux")]
    if !environment.allows_core_dumps()
        && let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable)
    {
        logs::report(&format!("llmgw: cannot disable core dumps: {error}\n"));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = environment;
}

/// Returns the place of the state that an offline command reads.
fn place(offline: &Offline) -> StatePlace<'_> {
    StatePlace { dir: &offline.state_dir, database: offline.database.as_ref() }
}

/// Writes to stdout. A reader that has gone away is no fault of ours.
fn print(text: &str) -> Result<(), CliFailure> {
    let mut out = std::io::stdout().lock();
    printed_to_stdout(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

fn printed_to_stdout(printed: std::io::Result<()>) -> Result<(), CliFailure> {
    match printed {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CliFailure::new(exit::IO, format!("stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Exit codes, those of sysexits.h where it has one.
mod exit {
    /// The gateway that was asked is not alive.
    pub(super) const UNHEALTHY: u8 = 1;
    /// A check found a fault.
    pub(super) const UNSOUND: u8 = 1;
    /// The command line is wrong.
    pub(super) const USAGE: u8 = 64;
    /// A fault of the gateway itself.
    pub(super) const INTERNAL: u8 = 70;
    /// State, files, sockets.
    pub(super) const IO: u8 = 74;
    /// Configuration or secrets.
    pub(super) const CONFIG: u8 = 78;
}

const NEEDED_VARIABLES: [&str; 6] = [
    "LLMGW_API_KEY",
    "LLMGW_CREDENTIAL_ENCRYPTION_KEY",
    "LLMGW_HOST",
    "LLMGW_PORT",
    "LLMGW_STATE_DIR",
    "LLMGW_CONFIG",
];

const AFTER_HELP: &str = "\
Everything else is configured by LLMGW_* variables and a YAML file; `llmgw config show` lists them all, and
docs/configuration.md describes them.
Exit codes: 0 success, 1 check failed, 64 command line, 70 internal, 74 state or input/output, 75 another process holds the
state, 78 configuration or secrets.";

/// The release and what it was built from.
fn version() -> String {
    let build = llmgw::BUILD;
    format!("llmgw {} ({}, built {}, {})\n", build.version, build.commit, build.built_at, build.target)
}
