//! Faults of a configuration and their places. A fault never quotes a value that may be secret.

use std::fmt;
use std::path::PathBuf;

use super::env::FILE_SUFFIX;

/// The place of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultPlace {
    /// An environment variable.
    Variable(String),
    /// A file as a whole: missing, unreadable, too large.
    File(PathBuf),
    /// A position in a file.
    Spot {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The path in the document, e.g. `providers.groq.base_url`; empty for the document itself.
        path: String,
    },
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The place of the fault.
    pub place: FaultPlace,
    /// The fault and its remedy, in one line.
    pub message: String,
}

impl ConfigFault {
    pub(super) fn variable(name: &str, message: impl Into<String>) -> Self {
        Self { place: FaultPlace::Variable(name.to_owned()), message: message.into() }
    }

    /// True if the fault concerns the environment variable `name`, or the one that names the file with its value.
    pub(super) fn is_of(&self, name: &str) -> bool {
        let FaultPlace::Variable(variable) = &self.place else { return false };
        variable == name || variable.strip_suffix(FILE_SUFFIX) == Some(name)
    }

    pub(super) fn file(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self { place: FaultPlace::File(path.into()), message: message.into() }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            FaultPlace::Variable(name) => write!(f, "{name}: {}", self.message),
            FaultPlace::File(file) => write!(f, "{}: {}", file.display(), self.message),
            FaultPlace::Spot { file, line, column, path } if path.is_empty() => {
                write!(f, "{}:{line}:{column}: {}", file.display(), self.message)
            }
            FaultPlace::Spot { file, line, column, path } => {
                write!(f, "{}:{line}:{column}: {path}: {}", file.display(), self.message)
            }
        }
    }
}

/// All faults; never empty. `Display` is one line: the first fault and the number of further ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    first: ConfigFault,
    others: Vec<ConfigFault>,
}

impl ConfigError {
    /// Returns all faults as an error, or `Ok` if there are none.
    pub(super) fn check(faults: Vec<ConfigFault>) -> Result<(), Self> {
        let mut faults = faults.into_iter();
        match faults.next() {
            Some(first) => Err(Self { first, others: faults.collect() }),
            None => Ok(()),
        }
    }

    /// Iterates over the faults in the order of the file.
    pub fn faults(&self) -> impl Iterator<Item = &ConfigFault> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl From<ConfigFault> for ConfigError {
    fn from(first: ConfigFault) -> Self {
        Self { first, others: Vec::new() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        match self.others.len() {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more fault: `llmgw config check` lists all)"),
            more => write!(f, " (and {more} more faults: `llmgw config check` lists all)"),
        }
    }
}

impl std::error::Error for ConfigError {}
