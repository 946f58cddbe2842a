//! Reads files that an operator names: configuration, secrets, certificates, archives.
//!
//! Such a path may lead to a FIFO, a device or an unresponsive file system. Therefore only regular files are opened,
//! the size read is bounded, and the read runs on another thread while the caller waits for a bounded time.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::oneshot;

/// Opens `path` for reading, without blocking, if it is a regular file or a link to one.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(NO_WAIT).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let what = match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file")))
}

/// Returns the content of `path`. Fails if it is not a regular file, is larger than `bytes_max`, or cannot be read
/// within 10 s.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    in_time(move || read_now(&path, bytes_max))?
}

/// Returns false only if `path` is known not to exist. A timeout counts as existing, because the read that follows
/// reports the error.
pub(crate) fn is_there(path: &Path) -> bool {
    let path = path.to_owned();
    in_time(move || fs::metadata(path).map_or_else(|error| !is_absence(&error), |_| true)).unwrap_or(true)
}

/// True if `error` means that the path does not exist: a part of it is missing, or is a file.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads like [`read`], but on the caller's thread.
pub(crate) fn read_now(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= bytes_max) {
        Ok(bytes)
    } else {
        Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {bytes_max} bytes")))
    }
}

/// Runs `work`, which reads files, on another thread and waits up to 10 s for its result.
pub fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (reply, done) = mpsc::sync_channel(1);
    start(move || drop(reply.send(work())))?;
    done.recv_timeout(TIME_MAX).map_err(|_| no_answer())
}

/// Async counterpart of [`in_time`]: does not block the caller's thread.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (reply, done) = oneshot::channel();
    start(move || drop(reply.send(work())))?;
    match tokio::time::timeout(TIME_MAX, done).await {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(_)) | Err(_) => Err(no_answer()),
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let place = WaitingPlace::take()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "its end is the end of one piece of work, not of the gateway"
    )]
    let started = thread::Builder::new().name("llmgw-file".into()).spawn(move || {
        work();
        drop(place);
    });
    started.map(drop)
}

/// A slot for a thread that reads files. The thread holds it until its file system answers.
struct WaitingPlace;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl WaitingPlace {
    fn take() -> io::Result<Self> {
        let place = Self;
        if TAKEN.fetch_add(1, Ordering::Relaxed) < THREADS_MAX {
            return Ok(place);
        }
        Err(io::Error::other(format!(
            "{THREADS_MAX} file reads are already waiting; a file system does not respond"
        )))
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

fn no_answer() -> io::Error {
    let seconds = TIME_MAX.as_secs();
    io::Error::new(io::ErrorKind::TimedOut, format!("its file system did not respond within {seconds} s"))
}

/// `NONBLOCK` opens a FIFO without waiting for a writer; `NOCTTY` keeps a terminal from becoming the controlling
/// terminal.
const NO_WAIT: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();
const THREADS_MAX: usize = 16;
/// Reading a file of 16 MiB takes about 0.1 s.
const TIME_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_up_to_the_size_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, fifo) =
            (folder.path().join("file"), folder.path().join("link"), folder.path().join("fifo"));
        fs::write(&file, "12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert_eq!(read(&link, 5).unwrap(), b"12345");
        for (path, bytes_max, want) in [
            (file.as_path(), 4, "it is larger than 4 bytes"),
            (fifo.as_path(), 5, "it is a FIFO, not a regular file"),
            (folder.path(), 5, "it is a directory, not a regular file"),
            (Path::new("/dev/zero"), 5, "it is a device, not a regular file"),
        ] {
            assert_eq!(read(path, bytes_max).unwrap_err().to_string(), want, "{}", path.display());
        }
        assert_eq!(read(&folder.path().join("none"), 5).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
