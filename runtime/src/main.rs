//! The `penstock` command: the server, its clients, its tools.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
