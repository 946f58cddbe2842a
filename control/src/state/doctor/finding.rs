//! What an examination reports: findings, as text for people and as JSON for programs.

use std::fmt::Write as _;
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The environment variables.
    Environment,
    /// The configuration file and what it refers to.
    Configuration,
    /// The address to listen on.
    Address,
    /// The system's clock.
    Clock,
    /// Limits of the operating system.
    Limits,
    /// The lock of the state directory.
    Lock,
    /// The state directory and the permissions in it.
    Directory,
    /// Free space.
    Disk,
    /// The databases.
    Database,
    /// The encryption key and the secrets that it opens.
    Secrets,
    /// The audit log.
    Audit,
    /// The usage journal.
    Journal,
    /// The archives of the state.
    Backups,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Configuration => "configuration",
            Self::Address => "address",
            Self::Clock => "clock",
            Self::Limits => "limits",
            Self::Lock => "lock",
            Self::Directory => "directory",
            Self::Disk => "disk",
            Self::Database => "database",
            Self::Secrets => "secrets",
            Self::Audit => "audit",
            Self::Journal => "journal",
            Self::Backups => "backups",
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing is wrong.
    Ok,
    /// The gateway works, but not as well as it should.
    Warning,
    /// The gateway does not start, or loses something.
    Fault,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was examined.
    pub subject: Subject,
    /// How bad it is.
    pub level: Level,
    /// What was found, in one line.
    pub text: String,
    /// The command that repairs it, or the change to make; null if nothing is wrong.
    pub repair: Option<String>,
}

impl Finding {
    /// Returns a finding of this level. `repair` is empty if nothing needs to be done.
    pub fn new(subject: Subject, level: Level, text: impl Into<String>, repair: impl Into<String>) -> Self {
        let repair = Some(repair.into()).filter(|repair| !repair.is_empty());
        Self { subject, level, text: text.into(), repair }
    }
}

/// The findings of one examination.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn good(&mut self, subject: Subject, text: impl Into<String>) {
        self.0.push(Finding::new(subject, Level::Ok, text, ""));
    }

    pub(super) fn warning(&mut self, subject: Subject, text: impl Into<String>, repair: impl Into<String>) {
        self.0.push(Finding::new(subject, Level::Warning, text, repair));
    }

    pub(super) fn fault(&mut self, subject: Subject, text: impl Into<String>, repair: impl Into<String>) {
        self.0.push(Finding::new(subject, Level::Fault, text, repair));
    }
}

/// Returns the findings as lines of text, the repair of each below it, and a line with the counts.
pub fn report_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { subject, level, text: what, repair } in findings {
        let level = match level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Fault => "FAULT",
        };
        let _ = writeln!(text, "{level:<9}{:<15}{what}", subject.name());
        if let Some(repair) = repair {
            let _ = writeln!(text, "{:<24}repair: {repair}", "");
        }
    }
    let [faults, warnings] = [Level::Fault, Level::Warning].map(|level| count(findings, level));
    let _ = writeln!(text, "\nfaults: {faults}, warnings: {warnings}");
    text
}

/// Returns the findings as one JSON object.
pub fn report_json(findings: &[Finding]) -> String {
    let [faults, warnings] = [Level::Fault, Level::Warning].map(|level| count(findings, level));
    let report = Report { faults, warnings, findings };
    let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
    text.push('\n');
    text
}

#[derive(Serialize)]
struct Report<'a> {
    faults: usize,
    warnings: usize,
    findings: &'a [Finding],
}

fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

/// Returns the seconds since the Unix epoch of an RFC 3339 time; `None` for another text.
pub fn seconds_of(time: &str) -> Option<u64> {
    time.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_second()).ok())
}

/// Returns the path as one word of a shell command.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
