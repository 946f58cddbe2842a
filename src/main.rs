//! The command line: reads arguments and environment, starts what they ask for, and turns every fault into one
//! clear line on stderr and an exit code by kind.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
