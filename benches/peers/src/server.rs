//! The `penstock` server as a process of its own, built from the workspace that this harness lies
//! in.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions, Pending, Verbs};
use penstock_net::level::AckLevel;

use crate::Outcome;
use crate::machine::Usage;
use crate::program::pinned;
use crate::workload::{self, Order};

/// Operations under way while a store is filled.
const WINDOW: usize = 4096;

/// The server's binary: what PENSTOCK names, or else built now.
pub fn binary() -> Outcome<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| match std::env::var_os("PENSTOCK") {
        Some(path) => Ok(path.into()),
        None => build().map_err(|error| error.to_string()),
    });
    Ok(built.clone()?)
}

fn build() -> Outcome<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--quiet",
            "--bin",
            "penstock",
            "--message-format",
            "json",
        ])
        .current_dir(&workspace)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("cargo build --release --bin penstock failed".into());
    }
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| Some(message["executable"].as_str()?.into()))
        .ok_or_else(|| "cargo named no executable".into())
}

/// Whether the server knows an option, by its own help.
pub fn knows(option: &str) -> Outcome<bool> {
    let help = Command::new(binary()?).args(["serve", "--help"]).output()?;
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    Ok(text
        .split_whitespace()
        .any(|word| word == format!("--{option}")))
}

/// Flags of a server whose resident memory is measured: none of it is touched ahead.
pub fn without_prefault() -> Outcome<Vec<String>> {
    let flags: &[&str] = match knows("prefault-percent")? {
        true => &["--prefault-percent", "0"],
        false => &[],
    };
    Ok(flags.iter().map(|&flag| flag.to_string()).collect())
}

/// One run of it; killed when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts one shard on a data directory and waits until it says that it serves.
    pub fn start(data: &Path, options: &[String]) -> Outcome<Server> {
        Server::start_shards(data, 1, options)
    }

    /// The same with so many shards.
    pub fn start_shards(data: &Path, shards: u64, options: &[String]) -> Outcome<Server> {
        let mut options = options.to_vec();
        options.extend(["--durability", "none"].map(str::to_string));
        Server::spawn(Command::new(binary()?), data, shards, &options)
    }

    /// The same on these CPUs alone (as `taskset` takes them), with the durability among the
    /// options.
    pub fn start_pinned(
        data: &Path,
        shards: u64,
        cpus: &str,
        options: &[String],
    ) -> Outcome<Server> {
        Server::spawn(pinned(cpus, &binary()?), data, shards, options)
    }

    fn spawn(
        mut command: Command,
        data: &Path,
        shards: u64,
        options: &[String],
    ) -> Outcome<Server> {
        let mut child = command
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args(["--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", &shards.to_string()])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
        let mut address = None;
        let mut said = String::new();
        for line in lines.by_ref() {
            let line = line?;
            if let Some(rest) = line.strip_prefix("listening") {
                address = rest
                    .split_whitespace()
                    .next()
                    .and_then(|text| text.parse().ok());
            }
            if line == "ready" {
                break;
            }
            said.push_str(&line);
            said.push('\n');
        }
        // The pipe is read to its end, so that the server never waits for a reader.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        match address {
            Some(address) => Ok(Server { child, address }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("the server did not come up:\n{said}").into())
            }
        }
    }

    pub fn client(&self, level: AckLevel) -> Outcome<Client> {
        let options = ClientOptions {
            name: "peers".into(),
            level,
            deadline: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        Ok(Client::connect(self.address, options)?)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn usage(&self) -> Outcome<Usage> {
        Usage::of(Some(self.child.id()))
    }

    /// What `penstock bench` reports of a workload. Operations that were not answered OK are an
    /// error.
    pub fn bench(&self, workload: &str, options: &[String]) -> Outcome<serde_json::Value> {
        let output = Command::new(binary()?)
            .args(["bench", workload, "--json"])
            .args(["--addr", &self.address.to_string()])
            .args(options)
            .output()?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(format!("penstock bench {workload}: {}", told.trim()).into());
        }
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        for count in ["refused", "unknown", "unanswered"] {
            if report[count] != 0 {
                let told = &report[count];
                return Err(format!("penstock bench {workload}: {told} were {count}").into());
            }
        }
        Ok(report)
    }

    /// One of the counters that INFO tells.
    pub fn counter(&self, client: &Client, name: &str) -> Outcome<u64> {
        let info: serde_json::Value = serde_json::from_str(&client.info().wait()?)?;
        info["counters"][name]
            .as_u64()
            .ok_or_else(|| format!("INFO tells no {name}").into())
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `begin` for each number, at most `window` answers being awaited, the oldest first. Ends at
/// `until`. Gives how many were answered.
pub fn pipeline<T>(
    numbers: impl Iterator<Item = u64>,
    window: usize,
    until: Option<Instant>,
    mut begin: impl FnMut(u64) -> Pending<T>,
    mut answered: impl FnMut(T, Duration) -> Outcome<()>,
) -> Outcome<u64> {
    let mut under_way = std::collections::VecDeque::with_capacity(window);
    let mut count = 0;
    for number in numbers {
        if under_way.len() == window {
            let (began, oldest): (Instant, Pending<T>) = under_way.pop_front().expect("it is full");
            answered(oldest.wait()?, began.elapsed())?;
            count += 1;
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        under_way.push_back((Instant::now(), begin(number)));
    }
    for (began, pending) in under_way {
        answered(pending.wait()?, began.elapsed())?;
        count += 1;
    }
    Ok(count)
}

/// Writes keys `0..keys` and waits until all of them are durable.
pub fn fill(server: &Server, keys: u64, key_bytes: usize, value: &[u8]) -> Outcome<()> {
    let client = server.client(AckLevel::None)?;
    let mut key = Vec::new();
    pipeline(
        0..keys,
        WINDOW,
        None,
        |number| {
            workload::key_into(&mut key, number, key_bytes, Order::Random);
            client.set(&key, value)
        },
        |_, _| Ok(()),
    )?;
    // One durable write proves all before it, for there is one log.
    workload::key_into(&mut key, 0, key_bytes, Order::Random);
    server.client(AckLevel::Disk)?.set(&key, value).wait()?;
    Ok(())
}
