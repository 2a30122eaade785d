//! A store in a process of its own, so that it can be killed: filled, or opened and asked.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Outcome;
use crate::engine::{self, ALL, Class, Kind, Setting};
use crate::workload::{self, Order};

/// How long a child that nobody kills stays.
const STAY: Duration = Duration::from_secs(600);
const CACHE_BYTES: u64 = 256 << 20;

#[derive(Args, Clone)]
pub struct Options {
    /// Fill first; otherwise only open.
    #[arg(long)]
    fill: bool,
    #[arg(long)]
    kind: String,
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    key: usize,
    #[arg(long)]
    value: usize,
}

/// The report of a child that has opened its store and read its last key.
pub struct Opened {
    /// From the start of the process to its answer.
    pub since_start: Duration,
    /// Within it, from the call that opens to the answer.
    pub in_process: Duration,
}

/// Runs as the child: tells one line and waits to be killed.
pub fn run(options: &Options) -> Outcome<()> {
    let kind = ALL
        .into_iter()
        .find(|kind| format!("{kind:?}") == options.kind)
        .ok_or_else(|| format!("no store is called {}", options.kind))?;
    let setting = Setting {
        path: options.data.clone(),
        class: Class::None,
        cache_bytes: CACHE_BYTES,
        reads_directly: false,
    };
    let began = Instant::now();
    let engine = engine::open(kind, &setting)?;
    let mut handle = engine.handle()?;
    let mut key = Vec::new();
    if options.fill {
        let value = workload::value(options.value);
        for number in 0..options.keys {
            workload::key_into(&mut key, number, options.key, Order::Random);
            handle.set(&key, &value)?;
        }
        if kind == Kind::PenstockLocal {
            // A store on the caller's thread works only while it is called: this makes the rest
            // durable.
            drop((handle, engine));
            println!("filled");
            std::io::stdout().flush()?;
            std::thread::sleep(STAY);
            return Ok(());
        }
        // What is acknowledged and still on its way to the page cache or the disk gets there.
        std::thread::sleep(Duration::from_millis(500));
        println!("filled");
    } else {
        workload::key_into(&mut key, options.keys - 1, options.key, Order::Random);
        let found = handle.get(&key)?;
        let nanoseconds = began.elapsed().as_nanos();
        match found {
            Some(length) if length == options.value => println!("answered {nanoseconds}"),
            other => println!("failed: the last key gave {other:?}"),
        }
    }
    std::io::stdout().flush()?;
    std::thread::sleep(STAY);
    Ok(())
}

/// A child that is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fills a store in a child and kills it.
pub fn fill(kind: Kind, data: &Path, keys: u64, key: usize, value: usize) -> Outcome<()> {
    let (line, _) = spawn(kind, data, keys, key, value, true)?;
    if line == "filled" {
        Ok(())
    } else {
        Err(line.into())
    }
}

/// Opens it in a child, which is killed as soon as it has answered.
pub fn open(kind: Kind, data: &Path, keys: u64, key: usize, value: usize) -> Outcome<Opened> {
    let (line, since_start) = spawn(kind, data, keys, key, value, false)?;
    let nanoseconds = line
        .strip_prefix("answered ")
        .ok_or_else(|| line.clone())?
        .parse()?;
    Ok(Opened {
        since_start,
        in_process: Duration::from_nanos(nanoseconds),
    })
}

fn spawn(
    kind: Kind,
    data: &Path,
    keys: u64,
    key: usize,
    value: usize,
    fill: bool,
) -> Outcome<(String, Duration)> {
    let began = Instant::now();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["child", "--kind", &format!("{kind:?}")])
        .args(["--keys", &keys.to_string()])
        .args(["--key", &key.to_string()])
        .args(["--value", &value.to_string()])
        .arg("--data")
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if fill {
        command.arg("--fill");
    }
    let mut child = Process(command.spawn()?);
    let mut line = String::new();
    let output = child.0.stdout.take().ok_or("no pipe")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
    let elapsed = began.elapsed();
    if line.is_empty() {
        let mut error = String::new();
        std::io::Read::read_to_string(&mut child.0.stderr.take().ok_or("no pipe")?, &mut error)?;
        return Err(format!(
            "{} ended: {}",
            kind.name(),
            error.lines().next().unwrap_or("no word")
        )
        .into());
    }
    Ok((line.trim().to_string(), elapsed))
}
