//! Puts the build's identity into the binary: commit, time and target (HEALTH-1).

use std::process::Command;

fn main() {
    let commit = output_of("git", &["rev-parse", "--short=12", "HEAD"]);
    let built_at = output_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]);
    // `cargo run` passes these on to the program, which would warn of unknown variables if they began with `LLMGW_`.
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=BUILD_TIME={built_at}");
    println!("cargo::rustc-env=BUILD_TARGET={}", cargo_variable("TARGET"));
    // HEAD changes with the branch, the log with every commit on it.
    for file in [".git/HEAD", ".git/logs/HEAD"] {
        if std::path::Path::new(file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns the output of a command, or `unknown` if it fails or prints nothing: a source archive builds without git.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo passes facts about the build to a build script in its environment"
)]
fn cargo_variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| "unknown".to_owned())
}
