//! Puts the build's identity into the binary: commit, time and target (HEALTH-1). A reproducible build sets
//! `SOURCE_DATE_EPOCH`, the time in seconds since the Unix epoch; a build without git sets `BUILD_COMMIT`.

use std::process::Command;

fn main() {
    let commit = cargo_variable("BUILD_COMMIT")
        .or_else(|| output_of("git", &["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(unknown);
    let built_at = match cargo_variable("SOURCE_DATE_EPOCH") {
        // The first form is that of GNU and BusyBox, the second that of BSD and macOS.
        Some(epoch) => output_of("date", &["-u", "-d", &format!("@{epoch}"), FORMAT])
            .or_else(|| output_of("date", &["-u", "-r", &epoch, FORMAT])),
        None => output_of("date", &["-u", FORMAT]),
    };
    // `cargo run` passes these on to the program, which would warn of unknown variables if they began with `LLMGW_`.
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=BUILD_TIME={}", built_at.unwrap_or_else(unknown));
    println!("cargo::rustc-env=BUILD_TARGET={}", cargo_variable("TARGET").unwrap_or_else(unknown));
    // HEAD changes with the branch, the log with every commit on it.
    for file in [".git/HEAD", ".git/logs/HEAD"] {
        if std::path::Path::new(file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
}

const FORMAT: &str = "+%Y-%m-%dT%H:%M:%SZ";

fn unknown() -> String {
    "unknown".to_owned()
}

/// Returns the output of a command, or `None` if it fails or prints nothing: a source archive builds without git.
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo passes facts about the build to a build script in its environment"
)]
fn cargo_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
