//! The real server, run by a test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use penstock_client::{Client, ClientOptions};

/// Held by a test whose servers load every core, fill a disk, are measured, or listen on fixed
/// ports (nodes of a cluster). Beside another such test its deadlines would be too short.
static MACHINE: Mutex<()> = Mutex::new(());

/// Waits until no other of these tests runs.
pub fn the_machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

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

    pub fn client(&self) -> Client {
        // A machine that is busy with something else answers late.
        let options = ClientOptions {
            deadline: Duration::from_secs(120),
            ..ClientOptions::default()
        };
        Client::connect(self.address, options).unwrap()
    }

    /// Sends a signal, as `-TERM`.
    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success(), "kill {name}");
    }

    /// A clean stop, as a service manager asks for it.
    pub fn stop(mut self) {
        self.signal("-TERM");
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
