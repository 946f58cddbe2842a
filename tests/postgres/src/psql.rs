//! SQL as the superuser, through `psql` and the socket in the server's folder, independent of the client under test.

use std::io::{BufRead as _, BufReader, PipeReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::template::SUPERUSER;

/// Ends the output of a query.
const END: &str = "--end of the query--";

/// A running `psql`, which keeps its session.
#[derive(Debug)]
pub(crate) struct Psql {
    child: Child,
    input: ChildStdin,
    output: BufReader<PipeReader>,
}

impl Psql {
    /// Runs `psql`, a command without arguments, in a session of the database.
    pub(crate) fn start(mut psql: Command, folder: &Path, port: u16, database: &str) -> Self {
        let (output, writer) = std::io::pipe().unwrap();
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator=\t"]);
        psql.arg(format!("--host={}", folder.display())).arg(format!("--port={port}"));
        psql.arg(format!("--username={SUPERUSER}")).arg(format!("--dbname={database}"));
        psql.current_dir(folder).stdin(Stdio::piped()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = psql.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        // `psql` holds the other ends of the pipe, which otherwise has no end when it ends.
        drop(psql);
        Self { child, input, output: BufReader::new(output) }
    }

    /// Returns the rows of a statement, or the error's text. Values must not contain tabs or line breaks.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        // If `psql` has ended, its output has the reason.
        let _ = writeln!(self.input, "{sql}\n;\n\\echo '{END}'");
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return Err(format!("psql ended: {}", lines.join("\n")));
            }
            let line = line.trim_end_matches('\n');
            if line == END {
                break;
            }
            lines.push(line.to_owned());
        }
        if lines.iter().any(|line| ["ERROR: ", "FATAL: "].iter().any(|error| line.starts_with(error))) {
            return Err(lines.join("\n"));
        }
        Ok(lines.iter().map(|line| line.split('\t').map(ToOwned::to_owned).collect()).collect())
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
