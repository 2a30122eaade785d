//! `cargo sim`: seeds, planted bugs, the ledger.
//!
//! Threads run whole seeds side by side; nothing is shared between two seeds.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use penstock_shard::replication::planted as cluster_bugs;
use penstock_simulator::cluster;
use penstock_simulator::coverage::Coverage;
use penstock_simulator::plan::VISITED_SEEDS;
use penstock_simulator::report::Report;
use penstock_simulator::visits;
use penstock_simulator::world;
use penstock_storage::planted as node_bugs;

/// Seeds that failed once: `<seed> <what it found>`. They are run for ever.
const STORED: &str = include_str!("../seeds.txt");
/// The same of clusters.
const STORED_CLUSTERS: &str = include_str!("../cluster-seeds.txt");
/// For each planted bug of a node the seed that has caught it. `--planted --ledger` writes this
/// file.
const PLANTED_SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/planted-seeds.txt");
/// The same of clusters.
const PLANTED_CLUSTER_SEEDS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/planted-cluster-seeds.txt");
/// Where the runs are counted.
const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/LEDGER.md");
/// A run of so many seeds must have met every kind of fault, row, operation and outcome.
const SEEDS_THAT_MEET_ALL: u64 = 1_000;
/// Every so many seeds one is run twice, and must be the same run.
const TWICE_EVERY: u64 = 50;

/// Bugs of a store that no node alone can meet.
const BUGS_OF_CLUSTERS: &[node_bugs::Bug] = &[
    node_bugs::Bug::TokenForgottenByScan,
    node_bugs::Bug::FireAsMember,
    node_bugs::Bug::CleanUnfired,
    node_bugs::Bug::RunOneChange,
];
/// Bugs that only nodes which decide by themselves can meet.
const BUGS_OF_DECIDERS: &[cluster_bugs::Bug] = &[
    cluster_bugs::Bug::LeaseFromReceiving,
    cluster_bugs::Bug::LeaseOnWallClock,
    cluster_bugs::Bug::LeaseOutlivesSuspension,
    cluster_bugs::Bug::SwapAssumedFailed,
    cluster_bugs::Bug::RemovedLate,
];
/// Bugs that only runs with level `all` can meet, or meet soonest.
const BUGS_OF_LEVEL_ALL: &[cluster_bugs::Bug] = &[
    cluster_bugs::Bug::AllIsDisk,
    cluster_bugs::Bug::EmptySetOfOldPlan,
    cluster_bugs::Bug::JoiningNotWaited,
    cluster_bugs::Bug::LeaseLostSaidOk,
];
/// Bugs of a store that both meet.
const BUGS_OF_BOTH: &[node_bugs::Bug] = &[
    node_bugs::Bug::RunOneVersion,
    node_bugs::Bug::RunKeepsUnlogged,
];

/// Bugs that only nodes with clients of Redis can meet.
const BUGS_OF_VISITS: &[node_bugs::Bug] = &[
    node_bugs::Bug::GroupInPart,
    node_bugs::Bug::CopyOfGroup,
    node_bugs::Bug::ScriptKeepsFailed,
    node_bugs::Bug::ScriptUngated,
    node_bugs::Bug::WatchForgetsRemoved,
    node_bugs::Bug::FlushForgottenByStart,
    node_bugs::Bug::FlushForgottenBySnapshot,
    node_bugs::Bug::FlushMarkMoved,
    node_bugs::Bug::FlushUngated,
    node_bugs::Bug::FlushUnannounced,
    node_bugs::Bug::InvalidatedLate,
    node_bugs::Bug::ExpiryUnannounced,
    node_bugs::Bug::ScriptReadUntracked,
    node_bugs::Bug::TextKeptFromSent,
    node_bugs::Bug::MembersUnlogged,
    node_bugs::Bug::MembersColdPlain,
    node_bugs::Bug::MembersReadPlain,
    node_bugs::Bug::MembersEditedAnew,
    node_bugs::Bug::MembersStay,
];

/// Runs whole nodes in virtual time and tries to break their promise.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "sim",
    after_help = "A failing seed is repeated with --seed; a run is the same on every machine."
)]
struct Arguments {
    /// Run this one seed and print what it did; the last line is `trace <hash>`
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after so many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Stop after so many seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed of a run; the others follow it [default: from the clock]
    #[arg(long)]
    first: Option<u64>,
    /// Seeds, or planted bugs, that run side by side [default: one for each processor]
    #[arg(long)]
    jobs: Option<usize>,
    /// Run clusters of three nodes; without it a run is of one node
    #[arg(long)]
    cluster: bool,
    /// Run the seeds that failed once, and nothing else; with --planted, try the seed that has
    /// caught each bug before any other
    #[arg(long)]
    stored: bool,
    /// Plant each bug in turn, or the one that is named, and see whether it is caught within
    /// --minutes each, and within --seeds if that is given; the last line is `caught N of M`
    #[arg(long, num_args = 0..=1, default_missing_value = "all", value_name = "BUG")]
    planted: Option<String>,
    /// Print how often each kind was met
    #[arg(long)]
    coverage: bool,
    /// Print `<seed> <trace hash>` of each seed, in the order of seeds, and nothing else. A
    /// refactoring leaves these lines of --first and --seeds as they were
    #[arg(long)]
    traces: bool,
    /// Append a line about this run to the ledger; with --planted, store the seed that has caught
    /// each bug instead
    #[arg(long)]
    ledger: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |place| {
            format!(" at {}:{}", place.file(), place.line())
        });
        PANIC.with(|last| {
            *last.borrow_mut() = format!("panic{place}: {}", info.payload_as_str().unwrap_or("?"));
        });
    }));
    if let Some(name) = &arguments.planted {
        return if node_bugs::IS_COMPILED_IN {
            plant(&arguments, name)
        } else {
            build_with_bugs()
        };
    }
    if let Some(seed) = arguments.seed {
        return one(&arguments, seed);
    }
    if arguments.stored {
        return stored();
    }
    if arguments.traces {
        return traces(&arguments);
    }
    many(&arguments)
}

std::thread_local! {
    static PANIC: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Runs a seed; a panic is a failure like any other, without a report.
fn run(is_cluster: bool, seed: u64) -> Result<Report, String> {
    let run = match is_cluster {
        true => cluster::run,
        false => world::run,
    };
    panic::catch_unwind(AssertUnwindSafe(|| run(seed)))
        .map_err(|_| PANIC.with(|last| last.borrow().clone()))
}

fn failure_of(outcome: &Result<Report, String>) -> Option<String> {
    match outcome {
        Ok(report) => report.failure.clone(),
        Err(panic) => Some(panic.clone()),
    }
}

fn one(arguments: &Arguments, seed: u64) -> ExitCode {
    let outcome = run(arguments.cluster, seed);
    let failure = failure_of(&outcome);
    match &failure {
        Some(failure) => println!("seed {seed} failed: {failure}"),
        None => println!("seed {seed} holds"),
    }
    let hash = match &outcome {
        Ok(report) => {
            println!(
                "{} operations, {} answered, {} recoveries, {} keys judged twice, {:.3} s \
                 simulated",
                report.operations,
                report.answered,
                report.recoveries,
                report.judged_keys,
                seconds(report.simulated_us)
            );
            if arguments.coverage {
                print_coverage(arguments, &report.coverage);
            }
            report.hash
        }
        Err(_) => 0,
    };
    println!("trace {hash:032x}");
    exit_code(failure.is_none())
}

fn stored() -> ExitCode {
    let mut failed = 0;
    for (is_cluster, seeds) in [(false, STORED), (true, STORED_CLUSTERS)] {
        let lines = seeds.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let (seed, what) = line.split_once(' ').unwrap_or((line, ""));
            let seed = seed.parse().expect("each line begins with a seed");
            if let Some(failure) = failure_of(&run(is_cluster, seed)) {
                failed += 1;
                println!("seed {seed} failed again ({what}): {failure}");
            }
        }
    }
    println!("stored seeds: {failed} failed");
    exit_code(failed == 0)
}

/// What a run of many seeds adds up to.
#[derive(Default)]
struct Totals {
    seeds: u64,
    simulated_us: u64,
    operations: u64,
    answered: u64,
    recoveries: u64,
    judged_keys: u64,
    repeated: u64,
    coverage: Coverage,
    failures: Vec<(u64, String)>,
    /// The trace hash of each seed; a seed that panicked has none.
    traces: BTreeMap<u64, u128>,
}

impl Totals {
    fn add(&mut self, seed: u64, outcome: Result<Report, String>) {
        self.seeds += 1;
        self.failures
            .extend(failure_of(&outcome).map(|failure| (seed, failure)));
        if let Ok(report) = outcome {
            self.traces.insert(seed, report.hash);
            self.simulated_us += report.simulated_us;
            self.operations += report.operations;
            self.answered += report.answered;
            self.recoveries += report.recoveries;
            self.judged_keys += report.judged_keys;
            self.coverage.add(&report.coverage);
        }
    }
}

/// Runs seeds until one of the limits is reached, or the first failure if that is asked for.
fn run_many(arguments: &Arguments, bug: Option<Bug>, stops_at_failure: bool) -> Totals {
    let first = arguments.first.unwrap_or_else(|| now_s() << 20);
    let seeds = arguments.seeds.unwrap_or(u64::MAX);
    let minutes = match (arguments.minutes, arguments.seeds) {
        (Some(minutes), _) => minutes,
        (None, Some(_)) => f64::INFINITY,
        (None, None) => 1.0,
    };
    let until = Duration::try_from_secs_f64(minutes * 60.0)
        .ok()
        .and_then(|limit| Instant::now().checked_add(limit));
    let jobs = jobs(arguments);
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                set_bug(bug);
                while !is_over.load(Ordering::Relaxed)
                    && until.is_none_or(|until| Instant::now() < until)
                {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        break;
                    }
                    let seed = first.wrapping_add(number);
                    let mut outcome = run(arguments.cluster, seed);
                    let is_repeated = bug.is_none() && number.is_multiple_of(TWICE_EVERY);
                    if is_repeated && let Ok(report) = &mut outcome {
                        let again = run(arguments.cluster, seed).map(|again| again.hash);
                        if again != Ok(report.hash) {
                            report.failure = Some("two runs of the seed differ".into());
                        }
                    }
                    let mut totals = totals.lock().expect("no thread panics with it");
                    totals.repeated += u64::from(is_repeated);
                    if let Some(failure) = failure_of(&outcome) {
                        if bug.is_none() {
                            let which = if arguments.cluster { " --cluster" } else { "" };
                            println!(
                                "seed {seed} failed: {failure}\n  repeat it: cargo \
                                 sim{which} --seed {seed}"
                            );
                        }
                        if stops_at_failure {
                            is_over.store(true, Ordering::Relaxed);
                        }
                    }
                    totals.add(seed, outcome);
                }
            });
        }
    });
    totals.into_inner().expect("no thread panics with it")
}

/// How many seeds, or planted bugs, run side by side.
fn jobs(arguments: &Arguments) -> usize {
    arguments
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

fn traces(arguments: &Arguments) -> ExitCode {
    let totals = run_many(arguments, None, false);
    for (seed, hash) in &totals.traces {
        println!("{seed} {hash:032x}");
    }
    exit_code(totals.failures.is_empty())
}

fn many(arguments: &Arguments) -> ExitCode {
    let mut arguments = arguments.clone();
    let first = *arguments.first.get_or_insert_with(|| now_s() << 20);
    let began = Instant::now();
    println!("seeds from {first} on");
    let totals = run_many(&arguments, None, false);
    let wall_minutes = began.elapsed().as_secs_f64() / 60.0;
    let hours = seconds(totals.simulated_us) / 3600.0;
    if arguments.coverage {
        print_coverage(&arguments, &totals.coverage);
    }
    println!(
        "{} seeds ({} of them twice), {} operations, {} answered, {} recoveries, {} keys judged \
         twice",
        totals.seeds,
        totals.repeated,
        totals.operations,
        totals.answered,
        totals.recoveries,
        totals.judged_keys
    );
    println!(
        "{hours:.2} hours simulated in {wall_minutes:.2} minutes: {:.2} hours each minute",
        hours / wall_minutes
    );
    let missing = match totals.seeds >= SEEDS_THAT_MEET_ALL {
        true => missing(&arguments, &totals.coverage),
        false => Vec::new(),
    };
    for name in &missing {
        println!("never met: {name}");
    }
    if arguments.ledger
        && let Err(error) = write_ledger(first, &totals, hours, wall_minutes)
    {
        println!("the ledger was not written: {error}");
        return ExitCode::FAILURE;
    }
    println!("{} seeds failed", totals.failures.len());
    exit_code(totals.failures.is_empty() && missing.is_empty())
}

fn write_ledger(first: u64, totals: &Totals, hours: f64, minutes: f64) -> std::io::Result<()> {
    let (year, month, day) = date(now_s() / 86_400);
    let row = format!(
        "| {year}-{month:02}-{day:02} | {first} | {} | {} | {} | {hours:.2} | {minutes:.1} | {} |",
        totals.seeds,
        totals.operations,
        totals.recoveries,
        totals.failures.len()
    );
    fs::write(LEDGER, with_row(&fs::read_to_string(LEDGER)?, &row))
}

/// The ledger with one more row at the end of its first table.
fn with_row(ledger: &str, row: &str) -> String {
    let is_row = |line: &&str| line.starts_with('|');
    let before = ledger.lines().take_while(|line| !is_row(line)).count();
    let rows = ledger.lines().skip(before).take_while(is_row).count();
    let mut lines: Vec<&str> = ledger.lines().collect();
    lines.insert(before + rows, row);
    lines.join("\n") + "\n"
}

// ---- planted bugs ----

/// A bug of a node alone, or of replication.
#[derive(Clone, Copy)]
enum Bug {
    Node(node_bugs::Bug),
    Cluster(cluster_bugs::Bug),
}

/// Bugs of changes over several shards, which no client of these runs asks for:
/// `shard/tests/failures/joint` finds them.
const BUGS_OF_JOINT: [node_bugs::Bug; 4] = [
    node_bugs::Bug::DecideBeforeReady,
    node_bugs::Bug::CloseBeforeApplied,
    node_bugs::Bug::ForgetClaim,
    node_bugs::Bug::DecideBesideBackup,
];

impl Bug {
    /// All that these runs can meet.
    fn all(arguments: &Arguments) -> Vec<Bug> {
        let is_of_clusters = |bug: &&node_bugs::Bug| BUGS_OF_CLUSTERS.contains(bug);
        let is_of_both = |bug: &&node_bugs::Bug| BUGS_OF_BOTH.contains(bug);
        let of_nodes = node_bugs::Bug::ALL.iter();
        match arguments.cluster {
            true => {
                let of_stores = of_nodes.filter(|bug| is_of_clusters(bug) || is_of_both(bug));
                let of_clusters = cluster_bugs::Bug::ALL.iter();
                of_clusters
                    .map(|&bug| Bug::Cluster(bug))
                    .chain(of_stores.map(|&bug| Bug::Node(bug)))
                    .collect()
            }
            false => of_nodes
                .filter(|bug| !is_of_clusters(bug) && !BUGS_OF_JOINT.contains(bug))
                .map(|&bug| Bug::Node(bug))
                .collect(),
        }
    }

    /// The first seed that can meet it, if `first` is the first one that is asked for.
    fn first_seed(self, first: u64) -> u64 {
        match self {
            Bug::Cluster(bug) if BUGS_OF_LEVEL_ALL.contains(&bug) => {
                first.max(cluster::ALL_SEEDS.start)
            }
            Bug::Node(bug) if BUGS_OF_VISITS.contains(&bug) => first.max(VISITED_SEEDS.start),
            Bug::Cluster(bug) if BUGS_OF_DECIDERS.contains(&bug) => {
                first.max(cluster::FAILOVER_SEEDS.start)
            }
            _ => first,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Bug::Node(bug) => bug.name(),
            Bug::Cluster(bug) => bug.name(),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Bug::Node(bug) => bug.text(),
            Bug::Cluster(bug) => bug.text(),
        }
    }
}

#[cfg(feature = "planted")]
fn set_bug(bug: Option<Bug>) {
    let (mut of_node, mut of_cluster) = (None, None);
    match bug {
        Some(Bug::Node(bug)) => of_node = Some(bug),
        Some(Bug::Cluster(bug)) => of_cluster = Some(bug),
        None => {}
    }
    node_bugs::plant(of_node);
    cluster_bugs::plant(of_cluster);
}

#[cfg(not(feature = "planted"))]
fn set_bug(_: Option<Bug>) {}

/// The simulator that people run has no bugs compiled in, so this builds another one beside it, in
/// a profile that builds soon: most bugs are caught by the one seed that is stored.
fn build_with_bugs() -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--package", "penstock-simulator"])
        .args(["--profile", "planted", "--features", "planted"])
        .arg("--")
        .args(std::env::args_os().skip(1))
        .status();
    match status {
        Ok(status) => exit_code(status.success()),
        Err(error) => {
            println!("cannot build the simulator with planted bugs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn plant(arguments: &Arguments, name: &str) -> ExitCode {
    if name != "all" {
        let mut all = Bug::all(arguments).into_iter();
        let Some(bug) = all.find(|bug| bug.name() == name) else {
            println!("there is no planted bug {name}");
            return ExitCode::FAILURE;
        };
        if let Some(&seed) = planted_seeds(arguments).get(name)
            && arguments.stored
        {
            set_bug(Some(bug));
            let outcome = run(arguments.cluster, seed);
            set_bug(None);
            if let Some(failure) = failure_of(&outcome) {
                println!("seed {seed} as before: {failure}");
                return ExitCode::SUCCESS;
            }
        }
        let first = arguments.first.unwrap_or(1);
        let arguments = Arguments {
            first: Some(bug.first_seed(first)),
            ..arguments.clone()
        };
        let totals = run_many(&arguments, Some(bug), true);
        return match totals.failures.first() {
            Some((seed, failure)) => {
                println!("seed {seed} after {} seeds: {failure}", totals.seeds);
                ExitCode::SUCCESS
            }
            None => {
                println!("not caught by {} seeds", totals.seeds);
                ExitCode::FAILURE
            }
        };
    }
    let minutes = arguments.minutes.unwrap_or(3.0);
    let first = arguments.first.unwrap_or(1);
    let mut caught = 0;
    let mut by_seed = planted_seeds(arguments);
    let all = Bug::all(arguments);
    for (bug, verdict) in all.iter().zip(try_all(arguments, &all, first, minutes)) {
        let Ok(how) = verdict else { continue };
        caught += 1;
        let seed = how
            .strip_prefix("seed ")
            .and_then(|it| it.split(' ').next());
        if let Some(seed) = seed.and_then(|it| it.parse().ok()) {
            by_seed.insert(bug.name().into(), seed);
        }
    }
    if arguments.ledger {
        let lines = by_seed
            .iter()
            .map(|(name, seed)| format!("{name} {seed}\n"));
        let file = planted_seeds_file(arguments);
        if let Err(error) = fs::write(file, lines.collect::<String>()) {
            println!("cannot write {file}: {error}");
        }
    }
    println!("caught {caught} of {}", all.len());
    exit_code(caught == all.len())
}

/// For each bug, by its name, the seed that has caught it. When the generator draws otherwise, the
/// seed no longer catches the bug, and another search takes its place.
fn planted_seeds(arguments: &Arguments) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(planted_seeds_file(arguments)).unwrap_or_default();
    let entry = |line: &str| {
        let (name, seed) = line.split_once(' ')?;
        Some((name.to_string(), seed.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

fn planted_seeds_file(arguments: &Arguments) -> &'static str {
    match arguments.cluster {
        true => PLANTED_CLUSTER_SEEDS,
        false => PLANTED_SEEDS,
    }
}

/// How a bug was caught, or why not.
type Verdict = Result<String, String>;

/// Tries bugs side by side, each in a process of its own with one thread: a bug may hang its
/// process or eat the memory of it. Prints each verdict when it comes, and returns all of them in
/// the order of the bugs.
fn try_all(arguments: &Arguments, all: &[Bug], first: u64, minutes: f64) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs(arguments) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&bug) = all.get(number) else { break };
                    let began = Instant::now();
                    let verdict = try_one(arguments, bug, first, minutes);
                    let took = began.elapsed().as_secs_f64();
                    let (name, text) = (bug.name(), bug.text().trim());
                    match &verdict {
                        Ok(how) => println!("caught {name:<24} in {took:6.1} s: {how}"),
                        Err(how) => println!("MISSED {name:<24} in {took:6.1} s: {how} ({text})"),
                    }
                    let mut verdicts = verdicts.lock().expect("no thread panics with it");
                    verdicts.insert(number, verdict);
                }
            });
        }
    });
    let verdicts = verdicts.into_inner().expect("no thread panics with it");
    verdicts.into_values().collect()
}

fn try_one(arguments: &Arguments, bug: Bug, first: u64, minutes: f64) -> Verdict {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["--planted", bug.name(), "--first", &first.to_string()])
        .args(["--minutes", &minutes.to_string(), "--jobs", "1"])
        .stdout(Stdio::piped());
    if let Some(seeds) = arguments.seeds {
        command.args(["--seeds", &seeds.to_string()]);
    }
    if arguments.cluster {
        command.arg("--cluster");
    }
    if arguments.stored {
        command.arg("--stored");
    }
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0 + 10.0);
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok("it never came to an end".into());
            }
        }
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line: String = text
        .lines()
        .last()
        .unwrap_or("no word")
        .chars()
        .take(150)
        .collect();
    if output.status.success() || output.status.code().is_none() {
        Ok(line)
    } else {
        Err(line)
    }
}

// ---- small things ----

fn print_coverage(arguments: &Arguments, coverage: &Coverage) {
    for (name, count) in table(arguments, coverage) {
        println!("{count:>12} {name}");
    }
}

fn table(arguments: &Arguments, coverage: &Coverage) -> Vec<(String, u64)> {
    match arguments.cluster {
        true => coverage.cluster_table().collect(),
        false => coverage.table().collect(),
    }
}

/// What was never met. Nodes that decide by themselves have a list of their own, and nodes with
/// visits, too.
fn missing(arguments: &Arguments, coverage: &Coverage) -> Vec<String> {
    let first = arguments.first.unwrap_or_default();
    let ask_for_all = arguments.cluster && cluster::ALL_SEEDS.contains(&first);
    let decide = arguments.cluster && cluster::FAILOVER_SEEDS.contains(&first) || ask_for_all;
    let are_visited = !arguments.cluster && VISITED_SEEDS.contains(&first);
    let is_due = |name: &str| {
        if are_visited {
            return visits::MUST_MEET.contains(&name);
        }
        !decide
            || cluster::MET_BY_DECIDERS.contains(&name)
            || ask_for_all && cluster::MET_AT_ALL.contains(&name)
    };
    let all = table(arguments, coverage).into_iter();
    all.filter(|(name, count)| *count == 0 && is_due(name))
        .map(|(name, _)| name)
        .collect()
}

fn exit_code(is_good: bool) -> ExitCode {
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Year, month and day of a day since 1970 (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::with_row;

    #[test]
    fn a_run_is_counted_in_the_first_table_and_nothing_else_moves() {
        let ledger = "# Ledger\n\n| a |\n|---|\n| 1 |\n\ntext\n\n| b |\n|---|\n| 2 |\n";
        let longer = "# Ledger\n\n| a |\n|---|\n| 1 |\n| 3 |\n\ntext\n\n| b |\n|---|\n| 2 |\n";
        assert_eq!(with_row(ledger, "| 3 |"), longer);
    }
}
