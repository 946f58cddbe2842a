//! Stderr or stdout as the destination of lines. It is written without the lock that the standard library holds during a
//! write: a write that blocks for ever must not block other writers.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::queue::LineSink;

/// A standard stream of the process.
#[derive(Debug)]
pub(super) struct StandardStream<F> {
    file: F,
    name: &'static str,
    /// True if the last write may have left a part of a line.
    is_torn: bool,
}

/// The time that a pipe in non-blocking mode may stay full. Another process that shares the pipe may have set that mode.
const FULL_TIME_MAX: Duration = Duration::from_secs(1);

impl<F: AsFd + Send + 'static> StandardStream<F> {
    pub(super) fn new(file: F, name: &'static str) -> Self {
        Self { file, name, is_torn: false }
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.file, bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.split_at_checked(count).unwrap_or_default().1,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self) -> io::Result<()> {
        let limit = Timespec::try_from(FULL_TIME_MAX).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&limit)) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<F: AsFd + Send + 'static> LineSink for StandardStream<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = if self.is_torn { self.write_all(b"\n") } else { Ok(()) };
        let written = written.and_then(|()| self.write_all(lines));
        self.is_torn = written.is_err();
        written
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    #[test]
    fn a_full_pipe_in_non_blocking_mode_is_an_error_and_the_next_line_is_whole() {
        let (mut reader, writer) = io::pipe().unwrap();
        fcntl_setfl(&writer, fcntl_getfl(&writer).unwrap() | OFlags::NONBLOCK).unwrap();
        let mut stream = StandardStream::new(writer, "a pipe");
        let line = [&b"x".repeat(1 << 20)[..], b"\n"].concat();
        assert_eq!(stream.write(&line).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut part = vec![0; 1 << 20];
        let count = reader.read(&mut part).unwrap();
        assert!(count > 0);
        stream.write(b"whole\n").unwrap();
        drop(stream);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(rest.trim_start_matches('x').starts_with("\nwhole\n"), "the torn line ends first");
    }

    #[test]
    fn a_device_without_room_and_a_pipe_without_a_reader_are_errors() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        StandardStream::new(full, "full").write(b"a line\n").unwrap_err();
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        StandardStream::new(writer, "closed").write(b"a line\n").unwrap_err();
    }
}
