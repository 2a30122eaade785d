//! Uniform reads of data that is several times the memory given to values.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use penstock::{Penstock, Verbs};

use crate::Outcome;
use crate::engine::{self, Class, Engine, Kind, Setting};
use crate::fio;
use crate::machine::Usage;
use crate::report::{Cell, Report, Table, median};
use crate::scratch::{self, Scratch};
use crate::workload::{self, Order, Random};

const KEY_BYTES: usize = 16;

#[derive(Args)]
pub struct Options {
    /// Memory for values or blocks of each store.
    #[arg(long, default_value = "128m", value_parser = scratch::bytes)]
    memory: u64,
    /// Data, in times of that.
    #[arg(long, default_value_t = 4)]
    times: u64,
    #[arg(long, default_value = "1024", value_parser = scratch::bytes)]
    value: u64,
    /// Reads under way at once.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Of each store in each round.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// How the reads of one row are made.
enum Way {
    /// One blocking call a thread.
    Threads(Box<dyn Engine>),
    /// One thread with all of them under way.
    Pipeline(Penstock),
}

struct Row {
    name: String,
    way: Result<Way, String>,
    rates: Vec<f64>,
    reads_per_get: Vec<f64>,
    bytes_per_get: Vec<f64>,
    cpu_us_per_get: Vec<f64>,
}

/// The rate of fio's random reads, or why there is none.
type Disk = Result<f64, String>;

pub fn run(options: &Options) -> Outcome<Report> {
    let scratch = Scratch::new(options.dir.as_deref())?;
    let keys = options.memory * options.times / options.value;
    let mut rows = stores(options, &scratch, keys)?;
    let disk = measure(options, &scratch, keys, &mut rows)?;
    let mut report = Report::default();
    report.tables.push(table(options, keys, rows, disk));
    report.note(
        "all in this process; CPU is the whole process's, callers included; device bytes are the \
         kernel's count for this process",
    );
    report.note(
        "RocksDB reads past the page cache (use_direct_reads, blocks, index and filters within \
         its cache); fjall cannot, so it reads the page cache and its column of device bytes says \
         how much",
    );
    report.note(
        "a share of 1/times of the reads is answered from memory, which lifts GET/s over the \
         disk's and lowers reads per GET",
    );
    Ok(report)
}

/// Fills each store that there is.
fn stores(options: &Options, scratch: &Scratch, keys: u64) -> Outcome<Vec<Row>> {
    let value = workload::value(usize::try_from(options.value)?);
    let mut rows = Vec::new();
    for (kind, is_pipelined) in [
        (Kind::Penstock, true),
        (Kind::Penstock, false),
        (Kind::RocksDb, false),
        (Kind::Fjall, false),
    ] {
        let way = filled(options, scratch, kind, is_pipelined, keys, &value);
        let how = if is_pipelined {
            "one thread, pipelined"
        } else {
            "a thread for each read"
        };
        rows.push(Row {
            name: format!("{}, {how}", kind.name()),
            way: way.map_err(|error| error.to_string()),
            rates: Vec::new(),
            reads_per_get: Vec::new(),
            bytes_per_get: Vec::new(),
            cpu_us_per_get: Vec::new(),
        });
    }
    Ok(rows)
}

/// Reads from all stores in turn, and from the bare disk.
fn measure(options: &Options, scratch: &Scratch, keys: u64, rows: &mut [Row]) -> Outcome<Disk> {
    let file = scratch.fresh("fio")?;
    let mut disk = Vec::new();
    let mut disk_error = None;
    for round in 0..options.rounds {
        match fio::random_reads(&file, keys * options.value, options.depth, options.seconds) {
            Ok(rate) => disk.push(rate),
            Err(error) => disk_error = Some(error),
        }
        for row in &mut *rows {
            let Ok(way) = &row.way else { continue };
            // The first quarter of a second fills the cache with its share.
            way.read(options, keys, 0.25, round as u64)?;
            let (before, counted) = (Usage::of(None)?, way.device_reads());
            let began = Instant::now();
            let gets = way.read(options, keys, options.seconds, 1000 + round as u64)? as f64;
            let elapsed = began.elapsed().as_secs_f64();
            let used = Usage::of(None)?.since(&before);
            row.rates.push(gets / elapsed);
            row.bytes_per_get.push(used.read_bytes as f64 / gets);
            row.cpu_us_per_get.push(used.cpu_seconds * 1e6 / gets);
            if let (Some(after), Some(before)) = (way.device_reads(), counted) {
                row.reads_per_get.push((after - before) as f64 / gets);
            }
        }
    }
    let why = disk_error.unwrap_or_else(|| "no round".into());
    Ok(middle(&mut disk).ok_or(why))
}

/// The median; none of no figures.
fn middle(figures: &mut [f64]) -> Option<f64> {
    (!figures.is_empty()).then(|| median(figures))
}

fn table(options: &Options, keys: u64, mut rows: Vec<Row>, disk: Disk) -> Table {
    let rocks_cpu = rows
        .iter_mut()
        .find(|row| row.name.starts_with(Kind::RocksDb.name()))
        .and_then(|row| middle(&mut row.cpu_us_per_get));
    let mut table = Table::new(
        format!(
            "{keys} values of {} B, memory for a {}th of them, depth {}: medians of {} rounds",
            options.value, options.times, options.depth, options.rounds
        ),
        &[
            "store",
            "GET/s",
            "of fio",
            "device reads/GET",
            "device B/GET",
            "CPU us/GET",
            "RocksDB's CPU / its own",
        ],
    );
    table.row(vec![
        Cell::text("fio, 4 KiB random reads"),
        match &disk {
            Ok(rate) => Cell::count(*rate),
            Err(why) => Cell::skipped(why.clone()),
        },
        Cell::Figure(1.0, 2),
        Cell::Figure(1.0, 2),
        Cell::count(4096.0),
        Cell::text("-"),
        Cell::text("-"),
    ]);
    for mut row in rows {
        let name = Cell::text(row.name);
        if let Err(why) = row.way {
            let mut cells = vec![name];
            cells.resize(7, Cell::skipped(why));
            table.row(cells);
            continue;
        }
        let rate = middle(&mut row.rates);
        let cpu = middle(&mut row.cpu_us_per_get);
        table.row(vec![
            name,
            Cell::count(rate.unwrap_or(0.0)),
            Cell::ratio(rate, disk.as_ref().ok().copied()),
            match middle(&mut row.reads_per_get) {
                Some(reads) => Cell::Figure(reads, 3),
                None => Cell::text("-"),
            },
            Cell::count(middle(&mut row.bytes_per_get).unwrap_or(0.0)),
            Cell::Figure(cpu.unwrap_or(0.0), 1),
            Cell::ratio(rocks_cpu, cpu),
        ]);
    }
    table
}

fn filled(
    options: &Options,
    scratch: &Scratch,
    kind: Kind,
    is_pipelined: bool,
    keys: u64,
    value: &[u8],
) -> Outcome<Way> {
    if let Some(why) = kind.lacks(Class::None) {
        return Err(why.into());
    }
    let setting = Setting {
        path: scratch.fresh(&format!("{kind:?}-{is_pipelined}"))?,
        class: Class::None,
        cache_bytes: options.memory,
        reads_directly: true,
    };
    {
        let filler = if kind.is_ours() {
            Kind::PenstockLocal
        } else {
            kind
        };
        let engine = engine::open(filler, &setting)?;
        let mut handle = engine.handle()?;
        let mut key = Vec::new();
        for number in 0..keys {
            workload::key_into(&mut key, number, KEY_BYTES, Order::Random);
            handle.set(&key, value)?;
        }
    }
    Ok(if is_pipelined {
        Way::Pipeline(Penstock::open(
            &setting.path,
            engine::penstock_options(&setting).shards(1),
        )?)
    } else {
        Way::Threads(engine::open(kind, &setting)?)
    })
}

impl Way {
    fn device_reads(&self) -> Option<u64> {
        match self {
            Way::Threads(engine) => engine.device_reads(),
            Way::Pipeline(store) => engine::device_reads(store),
        }
    }

    /// Reads at random for so long; gives how many values were found. A missing one is an error.
    fn read(&self, options: &Options, keys: u64, seconds: f64, seed: u64) -> Outcome<u64> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        match self {
            Way::Pipeline(store) => {
                let mut random = Random::new(seed);
                let mut key = Vec::new();
                let mut under_way = std::collections::VecDeque::new();
                let mut gets = 0;
                while Instant::now() < until || !under_way.is_empty() {
                    if under_way.len() < options.depth && Instant::now() < until {
                        workload::key_into(&mut key, random.below(keys), KEY_BYTES, Order::Random);
                        under_way.push_back(store.get(&key));
                    } else if let Some(oldest) = under_way.pop_front() {
                        oldest.wait()?.ok_or("a value is missing")?;
                        gets += 1;
                    }
                }
                Ok(gets)
            }
            Way::Threads(engine) => {
                let gets = AtomicU64::new(0);
                std::thread::scope(|scope| -> Outcome<u64> {
                    let threads: Vec<_> = (0..options.depth as u64)
                        .map(|thread| {
                            let gets = &gets;
                            scope.spawn(move || -> Outcome<()> {
                                let mut handle = engine.handle()?;
                                let mut random = Random::new(seed * 1000 + thread);
                                let mut key = Vec::new();
                                while Instant::now() < until {
                                    workload::key_into(
                                        &mut key,
                                        random.below(keys),
                                        KEY_BYTES,
                                        Order::Random,
                                    );
                                    handle.get(&key)?.ok_or("a value is missing")?;
                                    gets.fetch_add(1, Ordering::Relaxed);
                                }
                                Ok(())
                            })
                        })
                        .collect();
                    for thread in threads {
                        thread.join().map_err(|_| "a thread panicked")??;
                    }
                    Ok(gets.load(Ordering::Relaxed))
                })
            }
        }
    }
}
