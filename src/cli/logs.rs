//! Destinations and format of log lines: stderr, and the log files of the state if they are on.
//!
//! A line may contain input from clients and upstreams, but such input cannot end the line, start another or control a
//! terminal: every line passes [`EscapedLine`], which escapes unprintable characters. Lines therefore have no colours: the
//! gateway's own escape sequences could not be distinguished from those in the input.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::OnceLock;

use control::config::{LogFormat, Logging};
use control::log_lines::{self, LineQueue, LogLines};
use shared::characters::is_direction_mark;
use tracing_subscriber::EnvFilter;

use super::{CliFailure, exit};

/// What a gateway prints: nothing waits for the reader of stderr or stdout, who may be gone, slow or blocked.
#[derive(Debug)]
struct Detached {
    stderr: LineQueue,
    stdout: LineQueue,
}

static DETACHED: OnceLock<Detached> = OnceLock::new();
/// The log of this process, once it has begun.
static LOG: OnceLock<LogLines> = OnceLock::new();

/// Lets threads write to stderr and stdout for the rest of the process, so that neither can stall or end it.
pub(super) fn detach() -> Result<(), CliFailure> {
    let queues = log_lines::to_stderr().and_then(|stderr| Ok((stderr, log_lines::to_stdout()?)));
    let (stderr, stdout) = queues.map_err(cannot_start)?;
    DETACHED.set(Detached { stderr, stdout }).ok();
    std::panic::set_hook(Box::new(report_panic));
    Ok(())
}

/// Sends the log to stderr, and to files in the state directory if they are on, for the rest of the process.
pub(super) fn begin(logging: &Logging, state_dir: &Path) -> Result<LogLines, CliFailure> {
    let filter = EnvFilter::try_new(&logging.filter)
        .map_err(|error| CliFailure::new(exit::CONFIG, format!("LLMGW_LOG: {error}")))?;
    let format = logging.format;
    let stderr = match DETACHED.get() {
        Some(detached) => detached.stderr.clone(),
        None => log_lines::to_stderr().map_err(cannot_start)?,
    };
    let log = LogLines::new(stderr, logging.file.then_some(state_dir)).map_err(|error| {
        let message =
            format!("LLMGW_LOG_FILE: the folder logs in {} cannot be used: {error}", state_dir.display());
        CliFailure::new(exit::IO, message)
    })?;
    LOG.set(log.clone()).ok();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        // It would print a line that it cannot format to stderr, without the queue.
        .log_internal_errors(false)
        .with_writer(move || EscapedLine { format });
    let result = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    result.map_err(cannot_start)?;
    Ok(log)
}

fn cannot_start(error: impl std::fmt::Display) -> CliFailure {
    CliFailure::new(exit::INTERNAL, format!("cannot start logging: {error}"))
}

/// Logs a panic as any other error, with a backtrace if `RUST_BACKTRACE` asks for one. The standard library's hook writes
/// to stderr itself, and waits for its reader.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
    let text = format!("thread '{name}' panicked{place}: {}", panic.payload_as_str().unwrap_or("no message"));
    if LOG.get().is_none() {
        return report(&format!("llmgw: {text}\n"));
    }
    tracing::error!("{text}");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        backtrace.to_string().lines().for_each(|line| tracing::error!("{line}"));
    }
}

/// Writes `lines` to stderr. A gateway does not wait for its reader.
pub(super) fn report(lines: &str) {
    match DETACHED.get() {
        Some(detached) => detached.stderr.push(lines),
        None => _ = io::stderr().write_all(lines.as_bytes()),
    }
}

/// Writes `lines` of a gateway to stdout, without waiting for its reader.
pub(super) fn announce(lines: &str) {
    if let Some(detached) = DETACHED.get() {
        detached.stdout.push(lines);
    }
}

/// Waits a short time until all lines are written.
pub(super) fn flush() {
    if let Some(log) = LOG.get() {
        log.flush();
    }
    if let Some(Detached { stderr, stdout }) = DETACHED.get() {
        stderr.flush();
        stdout.flush();
    }
}

/// Writer that escapes unprintable characters and passes the line to the log. Each write is one whole line, as
/// `tracing_subscriber` produces them.
struct EscapedLine {
    format: LogFormat,
}

impl Write for EscapedLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(log) = LOG.get() {
            log.push(&escaped_line(line, self.format));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns `line`, whose end is kept, with its unprintable characters escaped.
fn escaped_line(line: &[u8], format: LogFormat) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    let (content, end) = text.strip_suffix('\n').map_or((&*text, ""), |content| (content, "\n"));
    match escaped(content, format) {
        Cow::Borrowed(_) => text,
        Cow::Owned(mut content) => {
            content.push_str(end);
            content.into()
        }
    }
}

/// Escapes the content of a line in its format. In JSON, such characters occur only inside strings.
fn escaped(content: &str, format: LogFormat) -> Cow<'_, str> {
    if !content.contains(is_unprintable) {
        return content.into();
    }
    let mut text = String::with_capacity(content.len());
    for character in content.chars() {
        if !is_unprintable(character) {
            text.push(character);
            continue;
        }
        let code = u32::from(character);
        // Writing to a string cannot fail. All of these characters are in the Basic Multilingual Plane.
        let _ = match format {
            LogFormat::Text => write!(text, "\\u{{{code:x}}}"),
            LogFormat::Json => write!(text, "\\u{code:04x}"),
        };
    }
    text.into()
}

/// Returns true for control characters (C0, DEL, C1), line and paragraph separators, and characters that change the
/// text direction.
fn is_unprintable(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') || is_direction_mark(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &str, format: LogFormat) -> String {
        escaped_line(line.as_bytes(), format).into_owned()
    }

    #[test]
    fn unprintable_characters_in_a_log_line_are_escaped() {
        let unprintable = (0..0x20).chain(0x7f..0xa0).chain([0x61c, 0x200e, 0x200f]);
        for code in unprintable.chain(0x2028..0x202f).chain(0x2066..0x206a) {
            let character = char::from_u32(code).unwrap();
            let text = written(&format!("a{character}b\n"), LogFormat::Text);
            assert_eq!(text, format!("a\\u{{{code:x}}}b\n"));
            let json = written(&format!("{{\"a\":\"{character}\"}}\n"), LogFormat::Json);
            let read: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(read["a"], character.to_string(), "JSON readers get the character itself");
            assert!(!json.trim_end_matches('\n').contains(character), "{code:x}");
        }
    }

    #[test]
    fn a_line_that_can_be_printed_is_not_changed() {
        for line in ["", "\n", "INFO a: b c=\"d\\n\"\n", "größe 漢字 🙂\n", "without an end"] {
            for format in [LogFormat::Text, LogFormat::Json] {
                assert_eq!(written(line, format), line);
            }
        }
    }
}
