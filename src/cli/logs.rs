//! Destinations and format of log lines: stderr, and the log files of the state if they are on.
//!
//! A line may contain input from clients and upstreams, but such input cannot end the line, start another or control a
//! terminal: every line passes [`LogLines`], which escapes unprintable characters. Lines therefore have no colours: the
//! gateway's own escape sequences could not be distinguished from those in the input.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

use control::LogFiles;
use control::config::{LogFormat, Logging};
use tracing_subscriber::EnvFilter;

use super::{CliFailure, exit};

/// The log files of this process, if they are on.
static FILES: OnceLock<LogFiles> = OnceLock::new();

/// Sends the log to stderr, and to files in the state directory if they are on, for the rest of the process.
pub(super) fn begin(logging: &Logging, state_dir: &Path) -> Result<(), CliFailure> {
    let filter = EnvFilter::try_new(&logging.filter)
        .map_err(|error| CliFailure::new(exit::CONFIG, format!("LLMGW_LOG: {error}")))?;
    let format = logging.format;
    if logging.file {
        let files = LogFiles::start(state_dir).map_err(|error| {
            let message =
                format!("LLMGW_LOG_FILE: the folder logs in {} cannot be used: {error}", state_dir.display());
            CliFailure::new(exit::IO, message)
        })?;
        FILES.set(files).ok();
    }
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(move || LogLines { format, to: io::stderr(), files: FILES.get() });
    let result = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    result.map_err(|error| CliFailure::new(exit::INTERNAL, format!("cannot start logging: {error}")))
}

/// Waits a short time until the log files contain all lines.
pub(super) fn flush() {
    if let Some(files) = FILES.get() {
        files.flush();
    }
}

/// Writer that escapes unprintable characters. Each write is one whole line, as `tracing_subscriber` produces them.
struct LogLines<'a, W> {
    format: LogFormat,
    to: W,
    files: Option<&'a LogFiles>,
}

impl<W: Write> Write for LogLines<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (content, end) = text.strip_suffix('\n').map_or((&*text, ""), |content| (content, "\n"));
        let text = match escaped(content, self.format) {
            Cow::Borrowed(_) => text,
            Cow::Owned(mut content) => {
                content.push_str(end);
                content.into()
            }
        };
        if let Some(files) = self.files {
            files.push(&text);
        }
        self.to.write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
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
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &str, format: LogFormat) -> String {
        let mut lines = LogLines { format, to: Vec::new(), files: None };
        lines.write_all(line.as_bytes()).unwrap();
        String::from_utf8(lines.to).unwrap()
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
