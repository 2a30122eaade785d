//! `cargo run --release -p penstock --example replica_cost -- [PAIRS [SECONDS [AWAY_SECONDS]]]`:
//! what a second node costs the one that writes.
//!
//! Runs of `penstock bench set` take turns: against a node with nobody to ship to, and against one
//! with a member that follows, at level disk and at level replica. Then the member is killed,
//! misses what is written for a while, and comes back, and at last a pair tells how long records
//! take to get to the member at half load; with no PAIRS that is all.
//!
//! Each node has a core of its own where there are two, or one would measure how they take turns:
//! the shard of each is pinned to the first core that it may use. The load shares these cores with
//! them. So shares of throughput are no costs, but the CPU time for an operation is one. How loaded
//! the machine was is said, too.

mod lag;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions};
use serde_json::Value;

/// How long a start, or the way back of a member, may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of the clock by which the kernel counts the time of processes.
const TICKS_PER_S: f64 = 100.0;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Who is there, and what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// One node.
    Alone,
    /// A member follows; nobody waits for it.
    Followed,
    /// A member follows and is waited for.
    Replica,
}

const MODES: [Mode; 3] = [Mode::Alone, Mode::Followed, Mode::Replica];

/// What one run has measured.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    per_second: f64,
    /// Of one connection with one operation under way.
    p50_us: f64,
    /// Of the node that writes, for an operation.
    primary_cpu_us: f64,
    /// Of the member.
    member_cpu_us: f64,
}

fn main() -> Outcome<()> {
    let number = |at: usize, otherwise: u64| -> Outcome<u64> {
        match std::env::args().nth(at) {
            Some(word) => Ok(word.parse().map_err(|_| format!("{word} is no number"))?),
            None => Ok(otherwise),
        }
    };
    let (pairs, seconds, away_seconds) = (number(1, 3)?, number(2, 3)?, number(3, 10)?);
    let binary = beside()?;
    println!("load average before: {}", load_average());
    if pairs == 0 {
        return lag::lag(&binary, 5 * seconds);
    }
    let mut all: Vec<(Mode, Measured)> = Vec::new();
    for pair in 0..pairs {
        // The other way round each time, so that none is always the first.
        let mut order = MODES;
        if pair % 2 == 1 {
            order.reverse();
        }
        for mode in order {
            let measured = measure(&binary, mode, seconds)?;
            println!(
                "{:9} {:9.0} op/s  p50 of one {:6.0} us  CPU for an operation {:5.2} us, of the \
                 member {:5.2} us",
                format!("{mode:?}"),
                measured.per_second,
                measured.p50_us,
                measured.primary_cpu_us,
                measured.member_cpu_us
            );
            all.push((mode, measured));
        }
    }
    let median = |mode: Mode, of: fn(&Measured) -> f64| {
        let runs = all.iter().filter(|(it, _)| *it == mode);
        let mut values: Vec<f64> = runs.map(|(_, measured)| of(measured)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let per_second = |mode| median(mode, |it| it.per_second);
    let cpu = |mode| median(mode, |it| it.primary_cpu_us);
    let p50 = |mode| median(mode, |it| it.p50_us);
    println!(
        "medians of {pairs}: followed has {:.2} of the throughput of alone, and takes {:.2} of \
         its CPU time for an operation; level replica adds {:.0} us to a p50 of {:.0} us",
        per_second(Mode::Followed) / per_second(Mode::Alone),
        cpu(Mode::Followed) / cpu(Mode::Alone),
        p50(Mode::Replica) - p50(Mode::Followed),
        p50(Mode::Followed),
    );
    come_back(&binary, away_seconds)?;
    lag::lag(&binary, 5 * seconds)?;
    println!("load average after: {}", load_average());
    Ok(())
}

fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The server of the same build.
fn beside() -> Outcome<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent);
    let binary = folder.ok_or("no directory of its own")?.join("penstock");
    match binary.exists() {
        true => Ok(binary),
        false => Err(format!("{} is not built", binary.display()).into()),
    }
}

/// Two nodes of a cluster, in a folder of their own; gone when dropped.
struct Pair<'a> {
    binary: &'a Path,
    folder: PathBuf,
    clients: [String; 2],
    admin: [String; 2],
    nodes: [Option<Child>; 2],
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        for node in 0..2 {
            self.kill(node);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Pair<'_> {
    fn new(binary: &Path, are_two: bool) -> Outcome<Pair<'_>> {
        // Below those that the kernel gives out by itself: the load takes many of these.
        let mut ports = 20_000..30_000;
        let mut free = || -> Outcome<String> {
            let mut addresses = ports.by_ref().map(|port| format!("127.0.0.1:{port}"));
            let found = addresses.find(|address| TcpListener::bind(address).is_ok());
            found.ok_or_else(|| "no port is free".into())
        };
        let folder = std::env::temp_dir().join(format!("penstock-cost-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut pair = Pair {
            binary,
            folder,
            clients: [free()?, free()?],
            admin: [free()?, free()?],
            nodes: [None, None],
        };
        let file = format!(
            "version = 1
cluster_id = \"c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1\"
secret_file = \"secret\"

[[node]]
number = 1
links = \"{}\"
clients = \"{}\"

[[node]]
number = 2
links = \"{}\"
clients = \"{}\"

[[placement]]
partitions = [0, 255]
generation = 1
primary = 1
sync = [{}]
",
            free()?,
            pair.clients[0],
            free()?,
            pair.clients[1],
            if are_two { "2" } else { "" }
        );
        fs::write(pair.folder.join("secret"), "cost ".repeat(8))?;
        fs::write(pair.folder.join("cluster.toml"), file)?;
        pair.start(0, &["--cluster-new"])?;
        if are_two {
            pair.start(1, &[])?;
        }
        pair.until("primary", 0)?;
        if are_two {
            pair.until("following", 1)?;
        }
        Ok(pair)
    }

    fn start(&mut self, node: usize, more: &[&str]) -> Outcome<()> {
        let said = self.folder.join(format!("node-{}.said", node + 1));
        let mut serve = Command::new(self.binary);
        serve
            .args(["serve", "--shards", "1", "--shard-ports", "0"])
            .args(["--admin-listen", &self.admin[node]])
            .args(["--listen", &self.clients[node]])
            .args(["--cluster-node", &(node + 1).to_string(), "--cluster"])
            .arg(self.folder.join("cluster.toml"))
            .arg("--data")
            .arg(self.folder.join(format!("node-{}", node + 1)))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&said)?);
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let core = cores.get(node % cores.len().max(1)).copied();
        // A process may use the cores that the thread may which starts it.
        let starting = std::thread::spawn(move || {
            core.map(core_affinity::set_for_current);
            serve.spawn()
        });
        let mut child = starting.join().map_err(|_| "no thread")??;
        let mut banner = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        self.nodes[node] = Some(child);
        let is_ready = banner
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line == "ready");
        std::thread::spawn(move || banner.for_each(drop));
        match is_ready {
            true => Ok(()),
            false => {
                let said = fs::read_to_string(said)?;
                Err(format!("node {} did not start: {said}", node + 1).into())
            }
        }
    }

    /// As hard as a crash.
    fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn info(&self, node: usize) -> Outcome<Value> {
        let options = ClientOptions {
            follows: false,
            ..ClientOptions::default()
        };
        let client = Client::connect(self.clients[node].parse()?, options)?;
        Ok(serde_json::from_str(&client.info().wait()?)?)
    }

    /// The sum of what is applied, if a node is this to all partitions.
    fn applied(&self, role: &str, node: usize) -> Outcome<Option<u64>> {
        let info = self.info(node)?;
        let partitions = info["partitions"].as_array().ok_or("no partitions")?;
        let is_all = partitions.iter().all(|it| it["role"] == role);
        let applied = partitions.iter().filter_map(|it| it["applied"].as_u64());
        Ok(is_all.then(|| applied.sum()))
    }

    fn until(&self, role: &str, node: usize) -> Outcome<u64> {
        let begun = Instant::now();
        loop {
            if let Some(applied) = self.applied(role, node)? {
                return Ok(applied);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("node {} is not {role} in {PATIENCE:?}", node + 1).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the kernel has counted for a node, in microseconds.
    fn cpu_us(&self, node: usize) -> Outcome<f64> {
        let Some(child) = &self.nodes[node] else {
            return Ok(0.0);
        };
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
        let behind = stat.rsplit(") ").next().ok_or("no stat")?;
        let fields: Vec<&str> = behind.split(' ').collect();
        let (user, system): (f64, f64) = (fields[11].parse()?, fields[12].parse()?);
        Ok((user + system) / TICKS_PER_S * 1e6)
    }

    /// The page of numbers of the node that writes.
    fn metrics(&self) -> Outcome<String> {
        lag::ask(&self.admin[0])
    }

    fn bench(&self, level: &str, connections: u32, depth: u32, more: &[&str]) -> Outcome<Value> {
        let output = Command::new(self.binary)
            .args(["bench", "set", "--json", "--warmup", "0", "--level", level])
            .args(["--connections", &connections.to_string()])
            .args(["--depth", &depth.to_string()])
            .args(more)
            .args(["--keys", "100000", "--addr", &self.clients[0]])
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn measure(binary: &Path, mode: Mode, seconds: u64) -> Outcome<Measured> {
    let pair = Pair::new(binary, mode != Mode::Alone)?;
    let level = match mode {
        Mode::Replica => "replica",
        Mode::Alone | Mode::Followed => "disk",
    };
    // The first segments of a log are short, and pages are touched for the first time.
    pair.bench(level, 16, 16, &["--duration", "1"])?;
    let before = [pair.cpu_us(0)?, pair.cpu_us(1)?];
    let many = pair.bench(level, 32, 32, &["--duration", &seconds.to_string()])?;
    let after = [pair.cpu_us(0)?, pair.cpu_us(1)?];
    let one = pair.bench(level, 1, 1, &["--duration", "1"])?;
    let figure = |of: &Value, name: &str| of[name].as_f64().ok_or(format!("no {name}"));
    let operations = figure(&many, "acked")?;
    Ok(Measured {
        per_second: figure(&many, "operations_per_second")?,
        p50_us: figure(&one["latency_us"], "p50")?,
        primary_cpu_us: (after[0] - before[0]) / operations,
        member_cpu_us: (after[1] - before[1]) / operations,
    })
}

/// A member is killed, and comes back when much was written without it.
fn come_back(binary: &Path, seconds: u64) -> Outcome<()> {
    let mut pair = Pair::new(binary, true)?;
    pair.bench("disk", 16, 16, &["--duration", "1"])?;
    pair.kill(1);
    let before = pair.until("primary", 0)?;
    pair.bench("disk", 32, 32, &["--duration", &seconds.to_string()])?;
    let missed = pair.until("primary", 0)? - before;
    let begun = Instant::now();
    pair.start(1, &[])?;
    let started = begun.elapsed();
    let all = pair.until("primary", 0)?;
    // A scan is such a state until it is over, and no delta is.
    let mut roles = BTreeSet::new();
    while pair.applied("following", 1)? != Some(all) {
        let info = pair.info(1)?;
        let partitions = info["partitions"].as_array().ok_or("no partitions")?;
        roles.extend(partitions.iter().map(|it| it["role"].to_string()));
        if begun.elapsed() > PATIENCE {
            return Err("the member did not come back in time".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!(
        "came back behind {missed} records, written in {seconds} s: it had all {:.1} s after its \
         start, which took {:.1} s; meanwhile it was {}: {}",
        begun.elapsed().as_secs_f64(),
        started.as_secs_f64(),
        roles.iter().cloned().collect::<Vec<_>>().join(", "),
        match roles.contains("\"scanning\"") {
            true => "it was scanned",
            false => "by delta only",
        }
    );
    Ok(())
}
