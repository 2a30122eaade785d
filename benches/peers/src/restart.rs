//! From kill -9 to the first answer, and to full speed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use penstock_client::Verbs;
use penstock_net::level::AckLevel;

use crate::Outcome;
use crate::child;
use crate::engine::{Class, Kind};
use crate::fio;
use crate::report::{Cell, Report, Table, median};
use crate::scratch::{self, Scratch};
use crate::server::{self, Server};
use crate::workload::{self, Order, Random};

/// Reads under way at once when speed is measured.
const DEPTH: usize = 128;
/// One figure of speed.
const WINDOW: Duration = Duration::from_millis(100);
/// Full speed is so much of what it was before the kill.
const FULL: f64 = 0.9;
const FULL_SPEED_MAX: Duration = Duration::from_secs(120);
const GRID_KEYS: [usize; 3] = [32, 128, 256];
const GRID_VALUES: [usize; 5] = [64, 256, 1024, 4096, 16_384];
/// Keys and values of one table, at most.
const GRID_BYTES: u64 = 256 << 20;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value = "1m", value_parser = scratch::quantity)]
    keys: u64,
    #[arg(long, default_value_t = 32)]
    key: usize,
    #[arg(long, default_value_t = 64)]
    value: usize,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Instead: values of 1 KiB of so many bytes together, the server's time to first answer and to
    /// full speed.
    #[arg(long, value_parser = scratch::bytes, conflicts_with = "grid")]
    bytes: Option<u64>,
    /// Instead: keys of 32, 128 and 256 B with values of 64 to 16,384 B, at most `keys` of them and
    /// 256 MiB.
    #[arg(long)]
    grid: bool,
    /// Nothing of any store is in the page cache when it starts.
    #[arg(long)]
    cold: bool,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub fn run(options: &Options) -> Outcome<Report> {
    let scratch = Scratch::new(options.dir.as_deref())?;
    let mut report = Report::default();
    match options.bytes {
        Some(bytes) => return large(options, &scratch, bytes),
        None if options.grid => {
            for key in GRID_KEYS {
                for value in GRID_VALUES {
                    let keys = options.keys.min(GRID_BYTES / (key + value) as u64);
                    let table = beside_others(options, &scratch, (keys, key, value))?;
                    report.tables.push(table);
                }
            }
        }
        None => {
            let size = (options.keys, options.key, options.value);
            report.tables.push(beside_others(options, &scratch, size)?);
        }
    }
    report.note(
        "first answer: from the start of the process to the value of the key written \
         last; each start ends by kill -9",
    );
    report.note(match options.cold {
        true => "no store's files are in the page cache at its start",
        false => {
            "the others' files are in the page cache, of Penstock's only what its last start \
             has read: it writes and reads past the cache"
        }
    });
    report.note(
        "redb is left out: without durability it keeps nothing over a kill, and a million \
         durable commits take minutes",
    );
    report.note(
        "one row is killed after its store was closed: Penstock on the caller's thread, \
         which works only while it is called",
    );
    Ok(report)
}

/// Keys of so many bytes, with values of so many.
#[derive(Clone, Copy)]
struct Size {
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
}

struct Row {
    name: &'static str,
    kind: Option<Kind>,
    data: PathBuf,
    outcome: Result<(), String>,
    since_start_ms: Vec<f64>,
    in_process_ms: Vec<f64>,
}

fn beside_others(
    options: &Options,
    scratch: &Scratch,
    (keys, key_bytes, value_bytes): (u64, usize, usize),
) -> Outcome<Table> {
    let size = Size {
        keys,
        key_bytes,
        value_bytes,
    };
    let mut rows = filled(scratch, size)?;
    for _ in 0..options.rounds {
        for row in &mut rows {
            if row.outcome.is_err() {
                continue;
            }
            if options.cold {
                scratch::forget(&row.data)?;
            }
            row.start(size);
        }
    }
    Ok(table(options, size, rows))
}

/// Fills each store that there is, and ends it by a kill.
fn filled(scratch: &Scratch, size: Size) -> Outcome<Vec<Row>> {
    let Size {
        keys,
        key_bytes,
        value_bytes,
    } = size;
    let value = workload::value(value_bytes);
    let mut rows = Vec::new();
    let data = scratch.fresh("server")?;
    {
        let server = Server::start(&data, &[])?;
        server::fill(&server, keys, key_bytes, &value)?;
        server.kill()?;
    }
    let row = |name, kind, data, outcome| Row {
        name,
        kind,
        data,
        outcome,
        since_start_ms: Vec::new(),
        in_process_ms: Vec::new(),
    };
    rows.push(row("Penstock, server", None, data, Ok(())));
    for kind in [
        Kind::PenstockLocal,
        Kind::Surreal06,
        Kind::Surreal12,
        Kind::Fjall,
        Kind::RocksDb,
        Kind::GrausDb,
    ] {
        let data = scratch.fresh(&format!("{kind:?}"))?;
        let outcome = match kind.lacks(Class::None) {
            Some(why) => Err(why.to_string()),
            None => child::fill(kind, &data, keys, key_bytes, value_bytes)
                .map_err(|error| error.to_string()),
        };
        rows.push(row(kind.name(), Some(kind), data, outcome));
    }
    Ok(rows)
}

impl Row {
    /// Starts the store once more, up to its first answer.
    fn start(&mut self, size: Size) {
        let Size {
            keys,
            key_bytes,
            value_bytes,
        } = size;
        let opened = match self.kind {
            None => {
                server_answer(&self.data, keys, key_bytes).map(|since_start| (since_start, None))
            }
            Some(kind) => child::open(kind, &self.data, keys, key_bytes, value_bytes)
                .map(|opened| (opened.since_start, Some(opened.in_process))),
        };
        match opened {
            Ok((since_start, in_process)) => {
                self.since_start_ms.push(since_start.as_secs_f64() * 1e3);
                self.in_process_ms
                    .extend(in_process.map(|time| time.as_secs_f64() * 1e3));
            }
            Err(error) => self.outcome = Err(error.to_string()),
        }
    }
}

fn table(options: &Options, size: Size, mut rows: Vec<Row>) -> Table {
    let Size {
        keys,
        key_bytes,
        value_bytes,
    } = size;
    let of = rows
        .iter_mut()
        .find(|row| row.kind == Some(Kind::Surreal06));
    let of = of
        .filter(|row| row.outcome.is_ok())
        .map(|row| median(&mut row.since_start_ms));
    let mut table = Table::new(
        format!(
            "{keys} keys of {key_bytes} B, values of {value_bytes} B, killed by -9: medians of {} \
             starts",
            options.rounds
        ),
        &[
            "store",
            "first answer ms",
            "of it open + get ms",
            "ratio to SurrealKV 0.6",
            "disk MB",
        ],
    );
    for mut row in rows {
        let mut cells = vec![Cell::text(row.name)];
        match row.outcome {
            Ok(()) => {
                let first = median(&mut row.since_start_ms);
                cells.extend([
                    Cell::Figure(first, 1),
                    if row.in_process_ms.is_empty() {
                        Cell::text("-")
                    } else {
                        Cell::Figure(median(&mut row.in_process_ms), 1)
                    },
                    Cell::ratio(Some(first), of),
                    Cell::Figure(scratch::disk_bytes(&row.data) as f64 / 1e6, 0),
                ]);
            }
            Err(why) => cells.resize(5, Cell::skipped(why)),
        }
        table.row(cells);
    }
    table
}

/// Starts the server and reads one key; the start is killed at the end.
fn server_answer(data: &Path, keys: u64, key_bytes: usize) -> Outcome<Duration> {
    let began = Instant::now();
    let server = Server::start(data, &[])?;
    let client = server.client(AckLevel::Disk)?;
    let mut key = Vec::new();
    workload::key_into(&mut key, keys - 1, key_bytes, Order::Random);
    client.get(&key).wait()?.ok_or("the last key is missing")?;
    let elapsed = began.elapsed();
    server.kill()?;
    Ok(elapsed)
}

fn large(options: &Options, scratch: &Scratch, bytes: u64) -> Outcome<Report> {
    const VALUE_BYTES: u64 = 1024;
    let keys = (bytes / VALUE_BYTES).max(1);
    let data = scratch.fresh("server")?;
    let speed_before = {
        let server = Server::start(&data, &[])?;
        server::fill(
            &server,
            keys,
            options.key,
            &workload::value(usize::try_from(VALUE_BYTES)?),
        )?;
        let speeds = speeds(&server, keys, options.key, Duration::from_secs(3), |_| {
            false
        })?;
        let mut speeds: Vec<f64> = speeds.into_iter().map(|(_, speed)| speed).collect();
        server.kill()?;
        median(&mut speeds)
    };
    let disk_bytes = scratch::disk_bytes(&data);
    let file = scratch.fresh("fio")?;
    let sequential = fio::sequential_bytes(&file, disk_bytes.min(2 << 30), 3.0);
    let tenth = sequential.map(|rate| disk_bytes as f64 / 10.0 / rate);
    let _ = std::fs::remove_file(&file);
    let (mut first, mut full) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        scratch::forget(&data)?;
        let began = Instant::now();
        let server = Server::start(&data, &[])?;
        let client = server.client(AckLevel::Disk)?;
        let mut key = Vec::new();
        workload::key_into(&mut key, keys - 1, options.key, Order::Random);
        client.get(&key).wait()?.ok_or("the last key is missing")?;
        first.push(began.elapsed().as_secs_f64());
        let is_full = |speed: f64| speed >= FULL * speed_before;
        let found = speeds(&server, keys, options.key, FULL_SPEED_MAX, is_full)?;
        if let Some((at, _)) = found.iter().find(|(_, speed)| is_full(*speed)) {
            full.push(at.duration_since(began).as_secs_f64());
        }
        server.kill()?;
    }
    let first = median(&mut first);
    let full = if full.len() == options.rounds {
        Ok(median(&mut full))
    } else {
        Err(format!("not within {} s", FULL_SPEED_MAX.as_secs()))
    };
    let mut table = Table::new(
        format!(
            "{keys} values of 1 KiB, {:.1} GB on disk, killed by -9: medians of {} starts",
            disk_bytes as f64 / 1e9,
            options.rounds
        ),
        &["what", "seconds", "ratio to reading a tenth"],
    );
    let tenth_figure = tenth.as_ref().ok().copied();
    table.row(vec![
        Cell::text("first answer"),
        Cell::Figure(first, 3),
        Cell::ratio(Some(first), tenth_figure),
    ]);
    table.row(vec![
        Cell::text("full speed"),
        Cell::of(&full, 3),
        Cell::ratio(full.ok(), tenth_figure),
    ]);
    table.row(vec![
        Cell::text("fio reads a tenth of it"),
        Cell::of(&tenth, 3),
        Cell::Figure(1.0, 2),
    ]);
    let mut report = Report::default();
    report.tables.push(table);
    report.note("nothing of the directory is in the page cache when the server starts");
    report.note(format!(
        "full speed: the first {} ms with {:.0} % of the {speed_before:.0} GET/s, \
         uniform, that were measured before the kill",
        WINDOW.as_millis(),
        FULL * 100.0
    ));
    Ok(report)
}

/// Uniform reads: the speed of one window after the other, until one satisfies or the time is over.
fn speeds(
    server: &Server,
    keys: u64,
    key_bytes: usize,
    at_most: Duration,
    is_enough: impl Fn(f64) -> bool,
) -> Outcome<Vec<(Instant, f64)>> {
    let client = server.client(AckLevel::Disk)?;
    let mut random = Random::new(11);
    let mut key = Vec::new();
    let until = Instant::now() + at_most;
    let mut speeds = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let numbers = std::iter::repeat_with(|| random.below(keys));
        let count = server::pipeline(
            numbers,
            DEPTH,
            Some(began + WINDOW),
            |number| {
                workload::key_into(&mut key, number, key_bytes, Order::Random);
                client.get(&key)
            },
            |value, _| value.map(drop).ok_or_else(|| "a value is missing".into()),
        )?;
        let speed = count as f64 / began.elapsed().as_secs_f64();
        speeds.push((Instant::now(), speed));
        if is_enough(speed) {
            break;
        }
    }
    Ok(speeds)
}
