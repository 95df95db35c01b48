//! Arguments and the machine → exit code.

use std::process::ExitCode;

use retrytoll::cli::{World, run};

fn main() -> ExitCode {
    run(std::env::args_os(), World::real())
}
