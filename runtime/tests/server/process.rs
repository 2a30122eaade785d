//! The real server, run by a test.
#![expect(unsafe_code, reason = "the limit of open files of the tests")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use penstock_client::{Client, ClientOptions};

/// Written by a test that loads every core, fills a disk or is measured: beside another test its
/// deadlines would be too short. Read by a test that waits for nodes of a cluster most of its time.
static MACHINE: RwLock<()> = RwLock::new(());

/// Waits until neither clusters nor another such test run, and keeps the machine for this test.
pub fn the_machine() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test has the machine for itself. Other clusters may run beside this one.
pub fn beside_clusters() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Gives this process, and who it starts, as many open files as it may have: a test that opens
/// hundreds of connections must not depend on the soft limit of a shell.
pub fn raise_open_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls take a number and the live structure that they fill or read.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Sends a process a signal, as `-TERM`, by the `kill` of the shell: not every machine has a
/// program of that name.
pub fn signal(process: u32, name: &str) {
    let pid = process.to_string();
    let mut shell = Command::new("sh");
    let sent = shell
        .args(["-c", "kill \"$0\" \"$1\"", name, &pid])
        .status();
    assert!(sent.expect("a shell").success(), "kill {name} {pid}");
}

/// A server that a failing test takes down with it.
pub struct Server {
    pub process: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Runs a command that serves, and waits until it is ready.
    pub fn start(command: &mut Command) -> Server {
        Server::start_with_banner(command).0
    }

    /// The same, with the lines of its banner.
    pub fn start_with_banner(command: &mut Command) -> (Server, Vec<String>) {
        let mut lines = Vec::new();
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
            lines.push(line);
        }
        std::thread::spawn(move || banner.for_each(drop));
        let server = Server {
            process,
            address: address.expect("it listens"),
        };
        (server, lines)
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
        signal(self.process.id(), name);
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
