//! Examines the archives in the default directory. The newest one is read to its end; of the others the last check counts.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::finding::{Findings, Subject, quoted};
use crate::state::backup::{self, Archive, FOLDER};

/// The archives of a state.
#[derive(Debug)]
pub(super) struct ExaminedBackups {
    /// The newest intact archive.
    pub(super) newest: Option<PathBuf>,
}

/// Examines the archives of the state in `dir`.
pub(super) fn examine(dir: &Path, found: &mut Findings) -> ExaminedBackups {
    let subject = Subject::Backups;
    let archives = match backup::list(dir) {
        Ok(archives) => archives,
        Err(error) => {
            let repair = format!("ls -l {}", quoted(&dir.join(FOLDER)));
            found.warning(subject, format!("archives cannot be listed: {error}"), repair);
            return ExaminedBackups { newest: None };
        }
    };
    let mut newest = None;
    for archive in archives {
        let path = dir.join(FOLDER).join(&archive.name);
        let fault = match (&archive.fault, &newest) {
            (None, None) => backup::check(&path).err().map(|error| error.to_string()),
            (fault, _) => fault.clone(),
        };
        match fault {
            Some(fault) => found.warning(
                subject,
                format!("{} is damaged: {fault}", path.display()),
                format!("llmgw backup create && rm {}", quoted(&path)),
            ),
            None => {
                newest.get_or_insert((path, archive));
            }
        }
    }
    if let Some((_, archive)) = &newest {
        report_age(archive, found);
    }
    ExaminedBackups { newest: newest.map(|(path, _)| path) }
}

fn report_age(archive: &Archive, found: &mut Findings) {
    let made = archive.manifest.as_ref().and_then(|manifest| manifest.created_at.parse::<Timestamp>().ok());
    let now = i64::try_from(shared::clock::unix_ms()).unwrap_or(i64::MAX);
    let days = made.map(|made| now.saturating_sub(made.as_millisecond()) / DAY_MS);
    let text = format!("the newest archive, {}, is intact", archive.name);
    match days {
        Some(days) if days > DAYS_MAX => found.warning(
            Subject::Backups,
            format!("{text}, but {days} days old"),
            "llmgw backup create; or set LLMGW_BACKUP_SCHEDULE",
        ),
        _ => found.good(Subject::Backups, text),
    }
}

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// The age of the newest archive, in days, from which it is reported.
const DAYS_MAX: i64 = 7;
