//! A server of this same binary for the time of one command: in a directory of its own, at free
//! ports, gone at the end. A command may kill it and start it again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use penstock::system::bound_child::bound_to_us;
use penstock_benches::sale::Venue;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(60);
/// Bytes of the server's messages that are told when it does not start.
const SHOWN_BYTES: usize = 2_000;
/// Its options. Small segments make the first start short.
pub(super) const OPTIONS: [&str; 11] = [
    "serve",
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
    folder: TemporaryFolder,
    child: Option<Child>,
}

impl TemporaryServer {
    /// Makes the directory, in that of temporary files.
    pub fn new(command: &str) -> Result<TemporaryServer, String> {
        Ok(TemporaryServer {
            folder: TemporaryFolder::new(command)?,
            child: None,
        })
    }
}

impl Venue for TemporaryServer {
    fn kill(&mut self) -> Result<(), String> {
        kill(&mut self.child)
    }

    fn start(&mut self) -> Result<SocketAddr, String> {
        let mut command = own_program().map_err(|error| error.to_string())?;
        command.args(OPTIONS).args(["--listen", "127.0.0.1:0"]);
        command.arg("--data").arg(self.folder.0.join("data"));
        let messages = self.folder.0.join("messages");
        let (child, addresses) = serve(command, &messages)?;
        self.child = Some(child);
        until_ready(&addresses, &messages).inspect_err(|_| {
            let _ = self.kill();
        })
    }
}

impl Drop for TemporaryServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// A directory that is removed when it is dropped.
pub(super) struct TemporaryFolder(pub(super) PathBuf);

impl TemporaryFolder {
    /// Makes it, in the directory of temporary files.
    pub(super) fn new(command: &str) -> Result<TemporaryFolder, String> {
        let name = format!("penstock-{command}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(TemporaryFolder(folder))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("penstock: {}: {error}", self.0.display());
        }
    }
}

/// A command of this same binary, without the environment of the person, which is about another
/// server.
pub(super) fn own_program() -> std::io::Result<Command> {
    let mut command = bound_to_us(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PENSTOCK_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Starts a server. Its messages go to this file; where it serves is told once it does.
pub(super) fn serve(
    mut command: Command,
    messages: &Path,
) -> Result<(Child, Receiver<SocketAddr>), String> {
    let failed = |error: std::io::Error| format!("cannot start a server: {error}");
    let to = File::options().create(true).append(true).open(messages);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(to.map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let banner = child.stdout.take().expect("piped above");
    let (banner_address, addresses) = mpsc::channel();
    std::thread::spawn(move || read_banner(BufReader::new(banner), &banner_address));
    Ok((child, addresses))
}

/// Waits until a server serves.
pub(super) fn until_ready(
    addresses: &Receiver<SocketAddr>,
    messages: &Path,
) -> Result<SocketAddr, String> {
    addresses.recv_timeout(START_MAX).map_err(|why| {
        let why = match why {
            RecvTimeoutError::Timeout => "did not start in time",
            RecvTimeoutError::Disconnected => "did not start",
        };
        format!("the server {why}: {}", said(messages))
    })
}

/// Kills a process, if it runs, and waits for its end.
pub(super) fn kill(child: &mut Option<Child>) -> Result<(), String> {
    let Some(mut child) = child.take() else {
        return Ok(());
    };
    let killed = child.kill().and_then(|()| child.wait());
    killed.map_err(|error| format!("cannot kill the server: {error}"))?;
    Ok(())
}

/// What has been said last in a file of messages.
pub(super) fn said(messages: &Path) -> String {
    let said = fs::read(messages).unwrap_or_default();
    let from = said.len().saturating_sub(SHOWN_BYTES);
    String::from_utf8_lossy(&said[from..]).trim().to_string()
}

/// Tells where the server serves once it does, and takes in what it says later.
fn read_banner(banner: impl BufRead, banner_address: &mpsc::Sender<SocketAddr>) {
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
            let _ = banner_address.send(address);
        }
    }
}
