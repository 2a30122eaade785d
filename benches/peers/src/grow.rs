//! GET and SET at sizes from thousands of keys to millions, and the memory that a key takes, beside
//! Valkey.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use penstock_net::level::AckLevel;

use crate::Outcome;
use crate::machine::{self, Usage};
use crate::report::{Cell, Report, Table, median};
use crate::scratch::{self, Scratch};
use crate::server::{self, Server};
use crate::valkey::{self, KEY_BYTES, Load, Valkey, Work};
use crate::workload;

const CONNECTIONS: u64 = 50;
const DEPTH: u64 = 64;
const WARM_UP: Duration = Duration::from_millis(300);
const WORKS: [Work; 2] = [Work::Get, Work::Set];
/// Most keys of `penstock bench`.
const KEYS_MAX: u64 = 100_000_000;
/// Most bytes of a value that a server takes by default.
const VALUE_BYTES_MAX: u64 = 1 << 20;
const SECONDS_MAX: f64 = 3600.0;
/// Memory that a key takes at most in Penstock and in Valkey, beyond 9/8 of key and value.
const MEMORY_KEY_BYTES: [u64; 2] = [48, 72];
/// Memory that a server takes beside its keys, at most.
const MEMORY_SERVER_BYTES: u64 = 1 << 30;
/// What a record of Penstock's log has beyond key and value.
const RECORD_BYTES: u64 = 56;
/// Disk for segments and for what is overwritten faster than it is cleaned.
const DISK_SPARE_BYTES: u64 = 4 << 30;

#[derive(Args)]
pub struct Options {
    /// Keys of each size, with commas.
    #[arg(
        long,
        default_value = "10k,1m,10m,100m",
        value_delimiter = ',',
        value_parser = keys
    )]
    keys: Vec<u64>,
    /// Bytes of a value, with commas.
    #[arg(long, default_value = "64", value_delimiter = ',', value_parser = value_bytes)]
    values: Vec<u64>,
    /// Shards of Penstock, with commas.
    #[arg(
        long,
        default_value = "1",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(1..=64)
    )]
    shards: Vec<u64>,
    /// Rounds of each size, in which the stores take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Of GET and of SET of each store in each round.
    #[arg(long, default_value = "1", value_parser = seconds)]
    seconds: f64,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn keys(text: &str) -> Result<u64, String> {
    at_most(text, scratch::quantity(text)?, KEYS_MAX, "keys")
}

fn value_bytes(text: &str) -> Result<u64, String> {
    at_most(text, scratch::bytes(text)?, VALUE_BYTES_MAX, "bytes")
}

fn at_most(text: &str, number: u64, most: u64, what: &str) -> Result<u64, String> {
    match number <= most {
        true => Ok(number),
        false => Err(format!("{text:?}: at most {most} {what}")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    seconds
        .filter(|&seconds| 0.0 < seconds && seconds <= SECONDS_MAX)
        .ok_or_else(|| format!("{text:?}: seconds above 0, at most {SECONDS_MAX}"))
}

/// What is measured at once: one server of each store with so many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    shards: u64,
    value_bytes: u64,
    keys: u64,
}

/// Bytes that the machine has for the servers.
struct Room {
    memory_bytes: u64,
    disk_bytes: u64,
    /// A server of Valkey runs beside Penstock's.
    has_valkey: bool,
}

impl Size {
    /// All that are asked for, the small ones of each kind first.
    fn all(options: &Options) -> Vec<Size> {
        let mut sizes = Vec::new();
        let mut sorted_keys = options.keys.clone();
        sorted_keys.sort_unstable();
        sorted_keys.dedup();
        for &shards in &options.shards {
            for &value_bytes in &options.values {
                sizes.extend(sorted_keys.iter().map(|&keys| Size {
                    shards,
                    value_bytes,
                    keys,
                }));
            }
        }
        sizes
    }

    /// Memory that Penstock and Valkey take at most.
    fn memory_bytes(&self) -> [u64; 2] {
        let pair_bytes = self.value_bytes + KEY_BYTES as u64;
        MEMORY_KEY_BYTES
            .map(|key_bytes| self.keys * (pair_bytes * 9 / 8 + key_bytes) + MEMORY_SERVER_BYTES)
    }

    /// Disk that Penstock takes at most.
    fn disk_bytes(&self) -> u64 {
        let record_bytes = self.value_bytes + KEY_BYTES as u64 + RECORD_BYTES;
        self.keys * record_bytes * 2 + DISK_SPARE_BYTES
    }

    /// Why the machine has no room for it, if it has none.
    fn beyond(&self, room: &Room) -> Option<String> {
        let lacking = |what: &str, need: u64, has: u64| {
            let gb = |bytes| bytes as f64 / 1e9;
            (need > has).then(|| {
                format!(
                    "{self} may take {:.1} GB of {what}, {:.1} GB are free",
                    gb(need),
                    gb(has)
                )
            })
        };
        let [ours, theirs] = self.memory_bytes();
        let memory_bytes = if room.has_valkey { ours + theirs } else { ours };
        lacking("memory", memory_bytes, room.memory_bytes)
            .or_else(|| lacking("disk", self.disk_bytes(), room.disk_bytes))
    }

    /// Whether the other differs in the number of keys alone.
    fn is_like(&self, other: &Size) -> bool {
        (self.shards, self.value_bytes) == (other.shards, other.value_bytes)
    }

    /// As `penstock bench` takes it.
    fn flags(&self) -> [String; 2] {
        [
            format!("--keys={}", self.keys),
            format!("--value-bytes={}", self.value_bytes),
        ]
    }

    /// The first cells of its rows.
    fn cells(&self) -> Vec<Cell> {
        let numbers = [self.keys, self.value_bytes, self.shards];
        numbers.map(|number| Cell::count(number as f64)).into()
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Size {
            shards,
            value_bytes,
            keys,
        } = self;
        let plural = if *shards == 1 { "" } else { "s" };
        write!(
            f,
            "{keys} keys, values of {value_bytes} B, {shards} shard{plural}"
        )
    }
}

/// What was found of one store at one size.
#[derive(Clone, Debug)]
struct Figures {
    /// Operations a second, the medians of GET and of SET.
    rates: [f64; 2],
    key_bytes: f64,
}

/// Of Penstock and of Valkey; the text says why there are none.
type Both = [Result<Figures, String>; 2];

pub fn run(options: &Options) -> Outcome<Report> {
    let scratch = Scratch::new(options.dir.as_deref())?;
    let room = Room {
        memory_bytes: machine::memory_available_bytes()?,
        disk_bytes: scratch.free_bytes()?,
        has_valkey: valkey::binary().is_ok(),
    };
    let mut found = Vec::new();
    for size in Size::all(options) {
        let both = match size.beyond(&room) {
            Some(why) => {
                eprintln!("SKIPPED: {why}");
                [Err(why.clone()), Err(why)]
            }
            None => {
                eprintln!("{size}");
                measure(options, &scratch, size)
            }
        };
        found.push((size, both));
    }
    let mut report = Report::default();
    report.tables.push(rates(options, &found));
    report.tables.push(memory(&found));
    report.note(
        "Penstock answers a SET when it is durable, Valkey runs without persistence and is one \
         thread however many shards Penstock has",
    );
    report.note(
        "both servers run at once and are asked in turn, Penstock by `penstock bench`; server and \
         caller share the CPUs, and nothing is pinned",
    );
    report.note("cost: operations a second of the size before, by those of this size");
    report.note(
        "B/key: resident memory after filling beyond that of the empty server; of few keys it is \
         mostly what a server takes for any",
    );
    Ok(report)
}

/// Fills a fresh server of each store and lets them take turns. A store that fails is left out from
/// then on.
fn measure(options: &Options, scratch: &Scratch, size: Size) -> Both {
    let load = Load {
        connections: CONNECTIONS,
        depth: DEPTH,
        warm_up: WARM_UP,
        duration: Duration::from_secs_f64(options.seconds),
    };
    let told = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
    let mut stores = [Running::penstock, Running::valkey].map(|start| {
        start(scratch, size)
            .and_then(|it| Store::fill(it, size))
            .map_err(told)
    });
    for _ in 0..options.rounds {
        for work in WORKS {
            for store in &mut stores {
                if let Ok(running) = store
                    && let Err(error) = running.round(work, &load)
                {
                    *store = Err(told(error));
                }
            }
        }
    }
    stores.map(|store| store.map(Store::figures))
}

/// A server, killed when dropped.
enum Running {
    Penstock(Server),
    Valkey(Valkey),
}

impl Running {
    fn penstock(scratch: &Scratch, size: Size) -> Outcome<Running> {
        // A quarter more than is needed: replies and requests have shares of memory_max.
        let memory = (size.memory_bytes()[0] * 5 / 4).to_string();
        let disk = size.disk_bytes().to_string();
        let flags = ["--memory-max", &memory, "--cache-bytes", &memory];
        let flags = flags.into_iter().chain(["--disk-bytes-max", &disk]);
        let mut flags: Vec<String> = flags.map(str::to_string).collect();
        flags.extend(server::without_prefault()?);
        let data = scratch.fresh("penstock")?;
        Server::start_shards(&data, size.shards, &flags).map(Running::Penstock)
    }

    fn valkey(scratch: &Scratch, _: Size) -> Outcome<Running> {
        let folder = scratch.fresh("valkey")?;
        Valkey::start(&valkey::binary()?, &folder).map(Running::Valkey)
    }

    fn resident_bytes(&self) -> Outcome<u64> {
        let usage: Usage = match self {
            Running::Penstock(server) => server.usage()?,
            Running::Valkey(valkey) => valkey.usage()?,
        };
        Ok(usage.resident_bytes)
    }
}

struct Store {
    running: Running,
    size: Size,
    value: Vec<u8>,
    key_bytes: f64,
    /// Of GET and of SET in each round.
    rates: [Vec<f64>; 2],
}

impl Store {
    fn fill(mut running: Running, size: Size) -> Outcome<Store> {
        let value = workload::value(usize::try_from(size.value_bytes)?);
        let empty = running.resident_bytes()?;
        match &mut running {
            Running::Penstock(server) => {
                // One read, for which all keys are written first.
                let flags = [
                    "--requests", "1", "--warmup", "0", "--connections", "1", "--keep",
                ];
                let flags = flags.map(str::to_string);
                server.bench("get", &[&flags[..], &size.flags()].concat())?;
                let client = server.client(AckLevel::Disk)?;
                let cached = server.counter(&client, "cached_keys")?;
                if cached < size.keys {
                    return Err(format!("{cached} of {} keys are in memory", size.keys).into());
                }
            }
            Running::Valkey(valkey) => valkey.fill(size.keys, KEY_BYTES, &value)?,
        }
        let full = running.resident_bytes()?;
        Ok(Store {
            running,
            size,
            value,
            key_bytes: full.saturating_sub(empty) as f64 / size.keys as f64,
            rates: [Vec::new(), Vec::new()],
        })
    }

    fn round(&mut self, work: Work, load: &Load) -> Outcome<()> {
        let rate = match &self.running {
            Running::Penstock(server) => {
                let flags = [
                    "--filled".into(),
                    format!("--connections={}", load.connections),
                    format!("--depth={}", load.depth),
                    format!("--warmup={}", load.warm_up.as_secs_f64()),
                    format!("--duration={}", load.duration.as_secs_f64()),
                ];
                let flags = [&flags[..], &self.size.flags()].concat();
                let report = server.bench(&work.name().to_lowercase(), &flags)?;
                let rate = report["operations_per_second"].as_f64();
                rate.ok_or("penstock bench tells no operations_per_second")?
            }
            Running::Valkey(valkey) => valkey.rate(work, load, self.size.keys, &self.value)?,
        };
        self.rates[work as usize].push(rate);
        Ok(())
    }

    fn figures(mut self) -> Figures {
        Figures {
            rates: WORKS.map(|work| median(&mut self.rates[work as usize])),
            key_bytes: self.key_bytes,
        }
    }
}

fn rates(options: &Options, found: &[(Size, Both)]) -> Table {
    let mut table = Table::new(
        format!(
            "random keys of {KEY_BYTES} B, {CONNECTIONS} connections, depth {DEPTH}: operations a \
             second, medians of {} rounds of {} s",
            options.rounds, options.seconds
        ),
        &[
            "keys",
            "value B",
            "shards",
            "operation",
            "Penstock",
            "Valkey",
            "Penstock / Valkey",
            "cost, Penstock",
            "cost, Valkey",
        ],
    );
    for (number, (size, both)) in found.iter().enumerate() {
        let rate = |both: &Both, store: usize, work: Work| match &both[store] {
            Ok(figures) => Ok(figures.rates[work as usize]),
            Err(why) => Err(why.clone()),
        };
        for work in WORKS {
            let cost = |store: usize| {
                let mut before = found[..number].iter().rev();
                let before = before.find_map(|(other, both)| {
                    rate(both, store, work).ok().filter(|_| size.is_like(other))
                });
                match (before, rate(both, store, work)) {
                    (Some(before), Ok(now)) => Cell::Figure(before / now, 2),
                    _ => Cell::text("-"),
                }
            };
            let [ours, theirs] = [0, 1].map(|store| rate(both, store, work));
            let mut row = size.cells();
            row.extend([
                Cell::text(work.name()),
                Cell::of(&ours, 0),
                Cell::of(&theirs, 0),
                quotient(ours, theirs),
                cost(0),
                cost(1),
            ]);
            table.row(row);
        }
    }
    table
}

fn memory(found: &[(Size, Both)]) -> Table {
    let mut table = Table::new(
        format!("resident memory with keys of {KEY_BYTES} B, all in memory"),
        &[
            "keys",
            "value B",
            "shards",
            "Penstock B/key",
            "Valkey B/key",
            "Penstock / Valkey",
        ],
    );
    for (size, both) in found {
        let [ours, theirs] = both.clone().map(|store| store.map(|it| it.key_bytes));
        let mut row = size.cells();
        row.extend([
            Cell::of(&ours, 1),
            Cell::of(&theirs, 1),
            quotient(ours, theirs),
        ]);
        table.row(row);
    }
    table
}

/// One by the other; a dash where one was not measured, which its own cell explains.
fn quotient(number: Result<f64, String>, of: Result<f64, String>) -> Cell {
    match (number, of) {
        (Ok(number), Ok(of)) => Cell::ratio(Some(number), Some(of)),
        _ => Cell::text("-"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Result<Options, String> {
        let words = ["grow"].iter().chain(words);
        let parsed = Cli::try_parse_from(words).map(|cli| cli.options);
        parsed.map_err(|error| error.to_string())
    }

    fn size(keys: u64) -> Size {
        Size {
            shards: 1,
            value_bytes: 64,
            keys,
        }
    }

    fn figures(rate: f64, key_bytes: f64) -> Result<Figures, String> {
        Ok(Figures {
            rates: [rate, rate / 2.0],
            key_bytes,
        })
    }

    #[test]
    fn lists_are_taken_with_commas_and_small_sizes_come_first() {
        let options = options(&[
            "--keys",
            "1m,10k,1m",
            "--values",
            "16,4k",
            "--shards",
            "1,2",
        ]);
        let sizes = Size::all(&options.unwrap());
        assert_eq!(sizes.len(), 8);
        assert_eq!((sizes[0].keys, sizes[1].keys), (10_000, 1_000_000));
        assert!(sizes[0].is_like(&sizes[1]) && !sizes[1].is_like(&sizes[2]));
        assert_eq!(
            sizes[7].to_string(),
            "1000000 keys, values of 4096 B, 2 shards"
        );
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_its_value_and_the_limit() {
        for (words, told) in [
            (["--keys", "10k,101m"], "\"101m\": at most 100000000 keys"),
            (["--values", "2m"], "\"2m\": at most 1048576 bytes"),
            (["--seconds", "-1"], "\"-1\": seconds above 0, at most 3600"),
            (["--shards", "65"], "65 is not in 1..=64"),
            (["--rounds", "0"], "0 is not in 1..=100"),
        ] {
            let words = format!("{}={}", words[0], words[1]);
            let error = options(&[&words]).err().expect(&words);
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_size_beyond_memory_or_disk_is_left_out_and_says_what_it_may_take() {
        let mut room = Room {
            memory_bytes: 8 << 30,
            disk_bytes: 80 << 30,
            has_valkey: true,
        };
        assert_eq!(size(10_000_000).beyond(&room), None);
        let why = size(100_000_000).beyond(&room).expect("too much");
        assert!(
            why.starts_with("100000000 keys, values of 64 B, 1 shard may take "),
            "{why}"
        );
        assert!(why.ends_with(" GB of memory, 8.6 GB are free"), "{why}");
        let one = size(50_000_000);
        assert!(one.beyond(&room).is_some());
        room.has_valkey = false;
        assert_eq!(one.beyond(&room), None);
        room.disk_bytes = 1 << 30;
        let why = size(10_000).beyond(&room).expect("too much");
        assert!(why.ends_with("4.3 GB of disk, 1.1 GB are free"), "{why}");
    }

    #[test]
    fn a_size_costs_as_much_more_as_the_last_measured_one_before_it_was_faster() {
        let found = [
            (size(1000), [figures(120.0, 200.0), figures(60.0, 100.0)]),
            (size(2000), [Err("it died".into()), figures(50.0, 100.0)]),
            (size(4000), [figures(100.0, 150.0), figures(50.0, 100.0)]),
        ];
        let shown = |table: &Table, row: usize, column: usize| match &table.rows[row][column] {
            Cell::Figure(figure, _) => format!("{figure:.2}"),
            Cell::Text(text) | Cell::Skipped(text) => text.clone(),
        };
        let table = rates(&options(&[]).unwrap(), &found);
        let row = |row| {
            (4..9)
                .map(|column| shown(&table, row, column))
                .collect::<Vec<_>>()
        };
        assert_eq!(row(0), ["120.00", "60.00", "2.00", "-", "-"]);
        assert_eq!(row(1), ["60.00", "30.00", "2.00", "-", "-"]);
        assert_eq!(row(2), ["it died", "50.00", "-", "-", "1.20"]);
        assert_eq!(row(5), ["50.00", "25.00", "2.00", "1.20", "1.00"]);
        let table = memory(&found);
        assert_eq!(
            [3, 4, 5].map(|column| shown(&table, 2, column)),
            ["150.00", "100.00", "1.50"]
        );
        assert_eq!(shown(&table, 1, 5), "-");
    }
}
