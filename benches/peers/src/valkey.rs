//! A Valkey server without persistence, as a process, spoken to by pipelined SETs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::machine::Usage;
use crate::workload::{self, Order};

const START_MAX: Duration = Duration::from_secs(10);
const PIPELINE: u64 = 1000;

pub struct Valkey {
    child: Child,
    stream: TcpStream,
    pub version: String,
}

/// What VALKEY_SERVER names, or `valkey-server` of the PATH.
pub fn binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("VALKEY_SERVER") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("valkey-server"))
        .find(|path| path.is_file())
}

impl Valkey {
    pub fn start(binary: &Path, folder: &Path) -> Outcome<Valkey> {
        std::fs::create_dir_all(folder)?;
        let version = String::from_utf8(Command::new(binary).arg("--version").output()?.stdout)?;
        // Free a moment ago; if somebody took it, the start fails and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut child = Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()?;
        let began = Instant::now();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > START_MAX => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(error.into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let words: Vec<&str> = version.split_whitespace().collect();
        let of = |name: &str| {
            words
                .iter()
                .find(|word| word.starts_with(name))
                .copied()
                .unwrap_or("")
        };
        let version = format!("Valkey {} {}", of("v="), of("malloc="));
        Ok(Valkey {
            child,
            stream,
            version,
        })
    }

    /// SETs keys `0..keys`.
    pub fn fill(&mut self, keys: u64, key_bytes: usize, value: &[u8]) -> Outcome<()> {
        let (mut key, mut request) = (Vec::new(), Vec::new());
        for first in (0..keys).step_by(usize::try_from(PIPELINE)?) {
            request.clear();
            let count = PIPELINE.min(keys - first);
            for number in first..first + count {
                workload::key_into(&mut key, number, key_bytes, Order::Random);
                write!(request, "*3\r\n$3\r\nSET\r\n${}\r\n", key.len())?;
                request.extend_from_slice(&key);
                write!(request, "\r\n${}\r\n", value.len())?;
                request.extend_from_slice(value);
                request.extend_from_slice(b"\r\n");
            }
            self.stream.write_all(&request)?;
            let mut replies = vec![0; usize::try_from(count)? * b"+OK\r\n".len()];
            self.stream.read_exact(&mut replies)?;
            if replies.chunks(5).any(|reply| reply != b"+OK\r\n") {
                return Err(format!("Valkey: {}", String::from_utf8_lossy(&replies[..40])).into());
            }
        }
        Ok(())
    }

    pub fn usage(&self) -> Outcome<Usage> {
        Usage::of(Some(self.child.id()))
    }
}

impl Drop for Valkey {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
