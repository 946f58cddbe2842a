//! A journal file that is appended to with write(2): where the file system does not hold what is written through
//! memory, and for a record that no other file has room for.

use std::fs::File;
use std::io::{self, Write as _};

/// The file, and how the last write to it went.
#[derive(Debug)]
pub(super) struct Written {
    file: File,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    /// Nothing was written.
    Failing,
    /// A part of a frame was written; it is cut off before the next one.
    Torn,
}

impl Written {
    /// The empty `file`, open for appending.
    pub(super) fn new(file: File) -> Self {
        Self { file, state: State::Good }
    }

    pub(super) fn is_good(&self) -> bool {
        self.state == State::Good
    }

    /// Appends the frame behind the `bytes` that are whole frames; false if it is not there now.
    pub(super) fn append(&mut self, bytes: u64, frame: &[u8]) -> bool {
        let before = self.state;
        let written = if before == State::Torn && self.file.set_len(bytes).is_err() {
            Err(io::Error::other("what is left of a cut record cannot be taken away"))
        } else {
            write_once(&self.file, frame)
        };
        self.state = match written {
            Ok(written) if written == frame.len() => State::Good,
            Ok(0) => State::Failing,
            Ok(_) => State::Torn,
            Err(error) => {
                if before == State::Good {
                    tracing::error!(
                        "the usage journal cannot be written; records go to the database alone: {error}"
                    );
                }
                if before == State::Torn { State::Torn } else { State::Failing }
            }
        };
        self.is_good()
    }

    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    #[cfg(test)]
    pub(super) fn set_torn(&mut self) {
        self.state = State::Torn;
    }
}

fn write_once(mut file: &File, frame: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(frame) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
