//! `llmgw backup`: creates, verifies and restores archives of the state. A gateway may run meanwhile, except during a
//! restore.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use control::backup::{self, Archive, BackupError, Manifest, RestoreParams};
use control::config::{self, Environment};
use shared::alarm::Alarm;
use tokio::signal::unix::{SignalKind, signal};

use super::{CliFailure, exit, print};

#[derive(Subcommand)]
pub(super) enum BackupCommand {
    /// Create a verified archive in <state>/backups and keep the newest LLMGW_BACKUP_KEEP
    Create,
    /// List the archives in <state>/backups; those that changed since their last check are verified first
    List,
    /// Verify that an archive is intact
    Verify {
        /// The archive
        archive: PathBuf,
    },
    /// Restore a state directory from an archive
    Restore {
        /// The archive
        archive: PathBuf,
        /// An empty or new directory; default: the configured state directory
        directory: Option<PathBuf>,
        /// Maximum size of the decompressed archive
        #[arg(long, default_value_t = backup::BYTES_MAX)]
        max_bytes: u64,
    },
}

/// Does what was asked for. A signal that ends the command deletes the copies of the state that it has made.
pub(super) fn run(command: BackupCommand, environment: &Arc<Environment>) -> Result<(), CliFailure> {
    clean_up_on_signals().map_err(|error| CliFailure::new(exit::IO, error))?;
    let offline = || config::offline(environment).map_err(|error| CliFailure::new(exit::CONFIG, error));
    let failed = |error: BackupError| CliFailure::new(error.exit_code(), error);
    match command {
        BackupCommand::Create => {
            let offline = offline()?;
            let instead =
                "back up the database with pg_dump, or with pg_basebackup and an archive of its log";
            offline.expect_files(instead).map_err(|error| CliFailure::new(exit::CONFIG, error))?;
            let archive = backup::create(&offline.state_dir, offline.backups_kept).map_err(failed)?;
            let path = offline.state_dir.join("backups").join(&archive.name);
            print(&format!("{}\n{}", path.display(), description(&archive)))
        }
        BackupCommand::List => {
            let state_dir = offline()?.state_dir;
            backup::check_unchecked(&state_dir).map_err(failed)?;
            let archives = backup::list(&state_dir).map_err(failed)?;
            print(
                &archives
                    .iter()
                    .map(|archive| format!("{}  {}", archive.name, description(archive)))
                    .collect::<String>(),
            )
        }
        BackupCommand::Verify { archive } => {
            let manifest = backup::verify(&archive).map_err(failed)?;
            print(&format!("{} is intact: {}", archive.display(), contents(&manifest)))
        }
        BackupCommand::Restore { archive, directory, max_bytes } => {
            let offline = offline()?;
            let dir = directory.unwrap_or(offline.state_dir);
            let key = offline.encryption_key.as_ref();
            let params =
                RestoreParams { archive: &archive, dir: &dir, bytes_max: max_bytes, encryption_key: key };
            let restored = backup::restore(params).map_err(failed)?;
            print(&next(&dir, &restored.manifest, restored.opens))
        }
    }
}

/// Starts a thread that waits for SIGINT and SIGTERM.
fn clean_up_on_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let context = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(context);
    Alarm::default().spawn("llmgw-signals", move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => INTERRUPTED,
                _ = terminate.recv() => TERMINATED,
            }
        });
        backup::remove_temporary();
        std::process::exit(code)
    })?;
    Ok(())
}

/// Exit codes as of a shell for a command that a signal has ended.
const INTERRUPTED: i32 = 128 + 2;
const TERMINATED: i32 = 128 + 15;

fn description(archive: &Archive) -> String {
    let bytes = archive.bytes;
    match (&archive.manifest, &archive.fault) {
        (Some(manifest), None) => format!("{bytes} bytes, {}", contents(manifest)),
        (Some(manifest), Some(fault)) => format!("{bytes} bytes, damaged ({fault}), {}", contents(manifest)),
        (None, Some(fault)) => format!("{bytes} bytes, cannot be read ({fault})\n"),
        (None, None) => format!("{bytes} bytes, cannot be read\n"),
    }
}

fn contents(manifest: &Manifest) -> String {
    let files: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    format!(
        "made {} by llmgw {}, database version {}, {}\n",
        manifest.created_at,
        manifest.gateway_version,
        manifest.database_version,
        files.join(" and ")
    )
}

/// Returns the steps that remain for the operator after a restore.
fn next(dir: &Path, manifest: &Manifest, opens: Option<bool>) -> String {
    let mut text = format!("restored into {}: {}", dir.display(), contents(manifest));
    text.push_str(match opens {
        Some(true) => "LLMGW_CREDENTIAL_ENCRYPTION_KEY opens it.\n",
        Some(false) => {
            "LLMGW_CREDENTIAL_ENCRYPTION_KEY does not open it: set it to the key of the time of the backup.\n"
        }
        None => "Set LLMGW_CREDENTIAL_ENCRYPTION_KEY to the key of the time of the backup.\n",
    });
    let _ = write!(
        text,
        "next: set LLMGW_STATE_DIR={}, put your configuration file and administrator keys in place, which no \
         backup holds, and run 'llmgw serve'.\nKeys that were revoked and secrets that were changed after the \
         backup are as they were before: revoke and change them again.\n",
        dir.display()
    );
    text
}
