//! The `penstock` command: the server, its clients, its tools.

mod cli;

#[global_allocator]
static ALLOCATOR: penstock::HugePages = penstock::HugePages;

fn main() -> std::process::ExitCode {
    cli::run()
}
