//! Examines the databases with the checks of a start, the secrets and the audit in them, and the journal.

use std::path::{Path, PathBuf};

use shared::clock::unix_ms;
use shared::secret::Secret;

use super::StateToExamine;
use super::finding::{Findings, Subject, quoted};
use crate::db::error::OpenError;
use crate::db::sqlite_state::files::{Files, USAGE};
use crate::db::sqlite_state::migrate;
use crate::db::sqlite_state::open::{
    DATABASE, JOURNAL, connect_reader, examine as examine_files, nothing_left_over,
};
use crate::db::sqlite_state::upgrade_snapshot::{self, ROLLING_BACK, SNAPSHOT};
use crate::routing::config::secrets_file;
use crate::state::StatePlace;
use crate::state::checks::{verify_audit, verify_credentials};
use crate::usage::journal::examine::examine as journal_content;

/// Examines the databases. `archive` is the newest intact archive of the state.
pub(super) fn examine(state: StateToExamine<'_>, archive: Option<&Path>, found: &mut Findings) {
    let StateToExamine { dir, encryption_key, .. } = state;
    let path = dir.join(DATABASE);
    examine_snapshot(dir, found);
    if !path.exists() && !dir.join(ROLLING_BACK).exists() {
        return match nothing_left_over(dir, &path) {
            Ok(()) => found.good(Subject::Database, "there is none yet; 'llmgw serve' creates it"),
            Err(error) => report(dir, &error, archive, found),
        };
    }
    match examine_files(dir, encryption_key) {
        Ok(version) => report_version(dir, version, found),
        Err(error) => return report(dir, &error, archive, found),
    }
    examine_place(state, found);
    examine_clock(dir, found);
    if let Some(key) = encryption_key {
        examine_contents(state.place(), key, found);
    }
}

/// Reports the snapshot of the last upgrade.
fn examine_snapshot(dir: &Path, found: &mut Findings) {
    let place = dir.join(SNAPSHOT);
    match upgrade_snapshot::read(&place) {
        Ok(None) => {}
        Ok(Some(snapshot)) => {
            let text = format!(
                "{} is the state of version {} before its upgrade at {}; 'llmgw rollback' returns to it, and it may be \
                 deleted",
                place.display(),
                snapshot.from,
                snapshot.made_at
            );
            found.good(Subject::Database, text);
        }
        Err(error) => {
            let text = format!("the snapshot {} cannot be read: {error}", place.display());
            found.warning(
                Subject::Database,
                text,
                format!("llmgw backup create && rm -r {}", quoted(&place)),
            );
        }
    }
}

fn report_version(dir: &Path, version: i64, found: &mut Findings) {
    let (subject, path) = (Subject::Database, dir.join(DATABASE));
    let newest = migrate::newest();
    if version == newest {
        found.good(subject, format!("{} is intact, version {version}", path.display()));
    } else {
        let text = format!(
            "{} is intact; it has version {version}, and the next start migrates it to version {newest}, after a snapshot",
            path.display()
        );
        found.warning(subject, text, "llmgw backup create, before the start");
    }
}

/// Reports the error that a start would end with.
pub(super) fn report(dir: &Path, error: &OpenError, archive: Option<&Path>, found: &mut Findings) {
    let restore = restore_command(dir, archive);
    let (subject, repair) = match error {
        OpenError::WrongKey { .. } => (Subject::Secrets, key_repair(dir)),
        OpenError::Newer { .. } => {
            let undo = if dir.join(SNAPSHOT).exists() { "llmgw rollback; or: " } else { "" };
            (Subject::Database, format!("start the newer llmgw that made it; or: {undo}{restore}"))
        }
        OpenError::UsageDamaged { path, .. } => {
            let file = quoted(path);
            (Subject::Database, format!("{restore}; or lose the usage only: mv {file} {file}.damaged"))
        }
        OpenError::UsageStray { path } => (Subject::Database, format!("mv {0} {0}.stray", quoted(path))),
        OpenError::Damaged { .. } | OpenError::Missing { .. } => (Subject::Database, restore),
        OpenError::RollbackUnfinished { .. } => (Subject::Database, "llmgw rollback".to_owned()),
        OpenError::NoRoomForSnapshot { .. } => (Subject::Disk, "free space on that disk".to_owned()),
        OpenError::Io { .. } | OpenError::Sql { .. } => {
            let file = quoted(&dir.join(DATABASE));
            (
                Subject::Database,
                format!("chown \"$(id -u)\" {file} && chmod u+rw {file}, as root; then run this again"),
            )
        }
        OpenError::Database { remedy, .. } => (Subject::Database, (*remedy).to_owned()),
        OpenError::TwoStates { .. } => (Subject::Database, "unset LLMGW_DATABASE_URL".to_owned()),
        OpenError::Locked { .. }
        | OpenError::Absent { .. }
        | OpenError::Older { .. }
        | OpenError::NoRandom => (Subject::Database, "llmgw serve".to_owned()),
    };
    found.fault(subject, error.to_string(), repair);
}

/// Returns the commands that replace the state by its newest intact archive.
fn restore_command(dir: &Path, archive: Option<&Path>) -> String {
    let mut aside = dir.as_os_str().to_owned();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    let (from, to) = (quoted(dir), quoted(&aside));
    match archive.and_then(|archive| archive.strip_prefix(dir).ok()) {
        Some(archive) => {
            let archive = quoted(&aside.join(archive));
            format!("mv {from} {to} && llmgw backup restore {archive} {from}")
        }
        None => {
            format!("mv {from} {to} && llmgw backup restore ARCHIVE {from}, with an archive from elsewhere")
        }
    }
}

fn key_repair(dir: &Path) -> String {
    let file = secrets_file(dir);
    let set = "set LLMGW_CREDENTIAL_ENCRYPTION_KEY to the key with which this state was created";
    if file.exists() { format!("{set}; quickstart keeps one in {}", quoted(&file)) } else { set.to_owned() }
}

/// Reports a `usage.db` that prevents the configured place of usage.
fn examine_place(state: StateToExamine<'_>, found: &mut Findings) {
    let path = state.dir.join(USAGE);
    let is_apart = Files::of(state.dir).is_ok_and(|files| files.usage.is_some());
    if state.usage_db && !is_apart && path.exists() {
        let error = OpenError::UsageStray { path };
        report(state.dir, &error, None, found);
    }
}

/// Compares the clock with the newest record of the audit.
fn examine_clock(dir: &Path, found: &mut Findings) {
    let read = || {
        let db = connect_reader(&dir.join(DATABASE))?;
        db.row(LAST_AUDIT, (), |row| row.get::<Option<i64>>(0))
    };
    let last = read().ok().flatten().and_then(|at| u64::try_from(at).ok());
    let Some(behind) =
        last.and_then(|last| last.checked_sub(unix_ms())).filter(|behind| *behind > CLOCK_MS_MAX)
    else {
        return;
    };
    let text = format!(
        "the clock is at least {} s behind the last record of the audit; keys do not expire and quotas do not reset in time",
        behind / 1_000
    );
    found.fault(Subject::Clock, text, "timedatectl set-ntp true");
}

/// Opens every secret, and verifies the audit. Both need the tables of the newest version.
pub(super) fn examine_contents(place: StatePlace<'_>, key: &Secret<[u8; 32]>, found: &mut Findings) {
    match verify_credentials(place, key) {
        Ok(survey) if survey.unopened_count == 0 => {
            found.good(Subject::Secrets, format!("all {} stored secrets open", survey.opened));
        }
        Ok(survey) => {
            let text = format!("{} stored secrets do not open", survey.unopened_count);
            found.fault(
                Subject::Secrets,
                text,
                "llmgw credentials verify names them; enter each of them again",
            );
        }
        Err(OpenError::Older { .. }) => return,
        Err(error) => found.fault(Subject::Secrets, error.to_string(), "llmgw credentials verify"),
    }
    match verify_audit(place, key) {
        Ok(Ok(holds)) => found.good(Subject::Audit, format!("intact: {} rows", holds.rows)),
        Ok(Err(broken)) => {
            let text = format!("the audit log was tampered with: {broken}");
            found.fault(Subject::Audit, text, "compare it with an export or a backup: llmgw audit verify");
        }
        Err(error) => found.fault(Subject::Audit, error.to_string(), "llmgw audit verify"),
    }
    if place.dir.join(PLAIN_SECRETS).exists() {
        let text = format!("{PLAIN_SECRETS} contains keys in plain text");
        found.warning(Subject::Secrets, text, "llmgw credentials import, while the gateway is stopped");
    }
}

/// Examines the journal of a state that no gateway uses.
pub(super) fn examine_journal(dir: &Path, found: &mut Findings) {
    let journal = dir.join(JOURNAL);
    let subject = Subject::Journal;
    match journal_content(&journal) {
        Ok(content) if content.unreadable_bytes > 0 => {
            let text = format!(
                "{} bytes in {} are no records: a write that was cut off, or damage; the next start stores the {} records \
                 around them that are not stored yet",
                content.unreadable_bytes,
                journal.display(),
                content.records
            );
            found.warning(subject, text, "llmgw serve");
        }
        Ok(content) if content.strangers > 0 => {
            let text = format!("{} files in {} are not of the journal", content.strangers, journal.display());
            found.warning(subject, text, format!("ls {}, and move them away", quoted(&journal)));
        }
        Ok(content) => {
            found.good(subject, format!("{} files with {} records", content.files, content.records));
        }
        Err(error) => {
            let repair = format!("chown -R \"$(id -u)\" {}, as root", quoted(&journal));
            found.fault(subject, format!("{} cannot be read: {error}", journal.display()), repair);
        }
    }
}

const PLAIN_SECRETS: &str = "secrets.json";
const LAST_AUDIT: &str = "SELECT max(at_ms) FROM audit";
/// The difference of two clocks that is not reported.
const CLOCK_MS_MAX: u64 = 60_000;
