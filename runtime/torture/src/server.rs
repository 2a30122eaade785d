//! The real server as a process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use crate::options::Setting;
use crate::process;

/// A start may replay a log on a slow device beside other work.
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(60);

/// A server that did not come up: its exit code (`None` if it hung and was killed), and its output.
pub struct Refusal {
    pub code: Option<i32>,
    pub text: String,
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.code.map_or("none".into(), |code| code.to_string());
        format!(
            "the server did not come up (exit code {code}):\n{}",
            refusal.text
        )
    }
}

/// One run of it; killed when dropped.
pub struct Server {
    child: Child,
    /// Everything it says, on either stream.
    lines: Receiver<String>,
    said: Vec<String>,
    pub address: SocketAddr,
}

impl Server {
    /// Starts it and does not wait.
    pub fn spawn(binary: &Path, data: &Path, setting: Setting) -> Result<Server, String> {
        let mut command = process::bound_to_us(binary);
        command.arg("serve").arg("--data").arg(data);
        command.args(["--listen", "127.0.0.1:0", "--shard-ports", "0"]);
        command.args(["--io", setting.io]);
        command.args(["--shards", &setting.shards.to_string()]);
        // Small segments, so that rotation happens under every blow, and a small cache, so that
        // some answers come from the disk.
        command.args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"]);
        command.args(["--cache-bytes", "1MiB"]);
        Server::run(command)
    }

    /// Runs a command that serves, and does not wait.
    fn run(mut command: Command) -> Result<Server, String> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let (sender, lines) = mpsc::channel();
        // Read to the end, so that the server never waits for a reader.
        fn pass_on(stream: impl Read + Send + 'static, sender: mpsc::Sender<String>) {
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        pass_on(child.stdout.take().expect("piped"), sender.clone());
        pass_on(child.stderr.take().expect("piped"), sender);
        Ok(Server {
            child,
            lines,
            said: Vec::new(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        })
    }

    /// Starts it and waits until it serves.
    pub fn start(binary: &Path, data: &Path, setting: Setting) -> Result<Server, Refusal> {
        let plain = |text| Refusal { code: None, text };
        Server::spawn(binary, data, setting)
            .map_err(plain)?
            .until_ready()
    }

    /// Runs a command that serves, and waits until it does.
    pub fn start_by(command: Command) -> Result<Server, Refusal> {
        let plain = |text| Refusal { code: None, text };
        Server::run(command).map_err(plain)?.until_ready()
    }

    fn until_ready(mut self) -> Result<Server, Refusal> {
        let plain = |text| Refusal { code: None, text };
        let server = &mut self;
        let mut is_ended = false;
        let is_ready = process::wait(START_MAX, || {
            loop {
                match server.lines.try_recv() {
                    Ok(line) => {
                        let is_last = line == "ready";
                        server.said.push(line);
                        if is_last {
                            return true;
                        }
                    }
                    Err(TryRecvError::Empty) => return false,
                    Err(TryRecvError::Disconnected) => {
                        is_ended = true;
                        return true;
                    }
                }
            }
        })
        .map_err(plain)?;
        if !is_ready || is_ended {
            let ended =
                process::wait_for_end(&mut server.child, Duration::from_secs(5)).map_err(plain)?;
            return Err(Refusal {
                code: ended.and_then(|status| status.code()),
                text: server.said().join("\n"),
            });
        }
        server.address = server
            .said
            .iter()
            .find_map(|line| line.strip_prefix("listening")?.split_whitespace().next())
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| plain("no address in the banner".into()))?;
        Ok(self)
    }

    /// What it has said so far.
    pub fn said(&mut self) -> &[String] {
        // A line that was said before the end may still be on its way through the pipe.
        let patience = Duration::from_millis(if self.has_ended() { 500 } else { 0 });
        while let Ok(line) = self.lines.recv_timeout(patience) {
            self.said.push(line);
        }
        &self.said
    }

    /// Whether its start found the torn end of a crash.
    pub fn found_torn(&mut self) -> bool {
        self.said().iter().any(|line| line.contains("was torn at"))
    }

    /// Whether it makes writes durable by a sync after them, and not by durable writes.
    pub fn syncs_after_writes(&mut self) -> bool {
        self.said()
            .iter()
            .any(|line| line.starts_with("sync method  write, then fdatasync"))
    }

    /// Whether it is gone.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for it to end of its own accord; none if it did not.
    pub fn wait_for_end(&mut self, at_most: Duration) -> Result<Option<ExitStatus>, String> {
        process::wait_for_end(&mut self.child, at_most)
    }

    /// `kill -9`, and waits until it is gone. Works on a stopped one as well.
    pub fn kill(&mut self) -> Result<(), String> {
        let _ = self.child.kill();
        self.child
            .wait()
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// SIGTERM, and waits for the clean end.
    pub fn stop(&mut self) -> Result<(), String> {
        self.signal("-TERM")?;
        match self.wait_for_end(STOP_MAX)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!(
                "SIGTERM ended the server with {status}:\n{}",
                self.said().join("\n")
            )),
            None => {
                self.kill()?;
                Err(format!(
                    "SIGTERM did not end the server within {STOP_MAX:?}"
                ))
            }
        }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) -> Result<(), String> {
        process::run("kill", &[name, &self.child.id().to_string()])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
