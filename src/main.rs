//! The command line: parses arguments and environment, runs the command, and reports every failure as one line on
//! stderr and an exit code by kind.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
