//! The real server, run by a test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A server that a failing test takes down with it.
pub struct Server {
    pub process: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Runs a command that serves, and waits until it is ready.
    pub fn start(command: &mut Command) -> Server {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut banner = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut address = None;
        for line in banner.by_ref().map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix("listening") {
                address = rest.split_whitespace().next().map(|it| it.parse().unwrap());
            }
            if line == "ready" {
                break;
            }
        }
        std::thread::spawn(move || banner.for_each(drop));
        Server {
            process,
            address: address.expect("it listens"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
