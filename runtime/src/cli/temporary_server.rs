//! A server of this same binary for the time of one command: in a directory of its own, at free
//! ports, gone at the end. A command may kill it and start it again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use penstock::system::bound_child::bound_to_us;
use penstock_benches::sale::Venue;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(60);
/// Bytes of the server's messages that are told when it does not start.
const TOLD_BYTES: usize = 2_000;
/// Its options. Small segments make the first start short.
const OPTIONS: [&str; 13] = [
    "serve",
    "--listen",
    "127.0.0.1:0",
    "--shard-ports",
    "0",
    "--admin-listen",
    "off",
    "--resp-listen",
    "off",
    "--value-bytes-max",
    "64KiB",
    "--segment-bytes",
    "16MiB",
];

/// The server, and its directory.
pub struct TemporaryServer {
    folder: PathBuf,
    child: Option<Child>,
}

impl TemporaryServer {
    /// Makes the directory, in that of temporary files.
    pub fn new(command: &str) -> Result<TemporaryServer, String> {
        let name = format!("penstock-{command}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(TemporaryServer {
            folder,
            child: None,
        })
    }

    /// What the server has said last on standard error.
    fn said(&self) -> String {
        let said = fs::read(self.folder.join("messages")).unwrap_or_default();
        let from = said.len().saturating_sub(TOLD_BYTES);
        String::from_utf8_lossy(&said[from..]).trim().to_string()
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let messages = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("messages"))?;
        let mut command = bound_to_us(std::env::current_exe()?);
        // The environment of the person is about another server.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PENSTOCK_") {
                command.env_remove(name);
            }
        }
        command
            .args(OPTIONS)
            .arg("--data")
            .arg(self.folder.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(messages)
            .spawn()
    }
}

impl Venue for TemporaryServer {
    fn kill(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let killed = child.kill().and_then(|()| child.wait());
        killed.map_err(|error| format!("cannot kill the server: {error}"))?;
        Ok(())
    }

    fn start(&mut self) -> Result<SocketAddr, String> {
        let mut child = self
            .spawn()
            .map_err(|error| format!("cannot start a server: {error}"))?;
        let banner = child.stdout.take().expect("piped above");
        self.child = Some(child);
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || read_banner(BufReader::new(banner), &tell));
        match told.recv_timeout(START_MAX) {
            Ok(address) => Ok(address),
            Err(why) => {
                let _ = self.kill();
                let why = match why {
                    RecvTimeoutError::Timeout => "did not start in time",
                    RecvTimeoutError::Disconnected => "did not start",
                };
                Err(format!("the server {why}: {}", self.said()))
            }
        }
    }
}

/// Tells where the server serves once it does, and takes in what it says later.
fn read_banner(banner: impl BufRead, tell: &mpsc::Sender<SocketAddr>) {
    let mut address = None;
    for line in banner.lines().map_while(Result::ok) {
        if let Some(rest) = line.strip_prefix("listening") {
            address = rest
                .split_whitespace()
                .next()
                .and_then(|it| it.parse().ok());
        }
        if line == "ready"
            && let Some(address) = address
        {
            // Who waited too long has given up.
            let _ = tell.send(address);
        }
    }
}

impl Drop for TemporaryServer {
    fn drop(&mut self) {
        let _ = self.kill();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("penstock: {}: {error}", self.folder.display());
        }
    }
}
