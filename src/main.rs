//! Arguments and the machine → exit code.

use retrytoll::cli::{World, run};

fn main() {
    run(std::env::args_os(), World::real()).end()
}
