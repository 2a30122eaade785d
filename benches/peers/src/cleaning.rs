//! Overwrites in a steady state: what is written and kept beyond the data, and what a caller waits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use penstock_client::Verbs;
use penstock_net::level::AckLevel;

use crate::Outcome;
use crate::engine::{self, Class, Kind, Setting};
use crate::machine::Usage;
use crate::report::{Cell, Report, Table};
use crate::scratch::{self, Scratch};
use crate::server::{self, Server};
use crate::workload::{self, Order, Random};

const KEY_BYTES: usize = 16;
/// Looks at the size on disk during the steady state.
const LOOKS: u64 = 32;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value = "400k", value_parser = scratch::quantity)]
    keys: u64,
    #[arg(long, default_value = "1024", value_parser = scratch::bytes)]
    value: u64,
    /// Live data in percent of the disk that Penstock may take.
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u64).range(10..=95))]
    fill: u64,
    /// Overwrites in times of the keys: the first 0.3 count as before cleaning, those from 2 on as
    /// the steady state.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(3..))]
    times: u64,
    /// Most seconds for each store; a store that is slower is measured on fewer overwrites.
    #[arg(long, default_value_t = 120.0)]
    seconds: f64,
    /// Overwrites under way at once over the one connection to Penstock's server.
    #[arg(long, default_value_t = 16)]
    depth: usize,
    /// A further option of Penstock's server, as often as you like: --serve=--spin-us=0.
    #[arg(long, allow_hyphen_values = true)]
    serve: Vec<String>,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

struct Findings {
    write_amplification: f64,
    space_amplification: f64,
    before: Histogram<u64>,
    steady: Histogram<u64>,
    per_second: f64,
}

/// What is measured while overwrites run, whoever runs them.
struct Watch<'a> {
    options: &'a Options,
    data: PathBuf,
    usage: Box<dyn Fn() -> Outcome<Usage> + 'a>,
    done: u64,
    started: Option<(Usage, Instant)>,
    largest_bytes: u64,
    before: Histogram<u64>,
    steady: Histogram<u64>,
}

pub fn run(options: &Options) -> Outcome<Report> {
    let scratch = Scratch::new(options.dir.as_deref())?;
    let mut table = Table::new(
        format!(
            "{} keys of {KEY_BYTES} B, values of {} B, {} times overwritten at random, class none",
            options.keys, options.value, options.times
        ),
        &[
            "store",
            "SET/s",
            "write amp",
            "space amp",
            "p99.9 us before",
            "p99.9 us steady",
            "steady / before",
        ],
    );
    let value = workload::value(usize::try_from(options.value)?);
    let limit = if server::knows("disk-bytes-max")? {
        Some("disk-bytes-max")
    } else {
        None
    };
    let ours = penstock(options, &scratch, limit, &value);
    row(&mut table, "Penstock, server", ours);
    for kind in [Kind::RocksDb, Kind::Fjall] {
        let found = match kind.lacks(Class::None) {
            Some(why) => Err(why.into()),
            None => in_process(options, &scratch, kind, &value),
        };
        row(&mut table, kind.name(), found);
    }
    let mut report = Report::default();
    report.tables.push(table);
    if limit.is_none() {
        report.note(
            "the server has no option disk_bytes_max: nothing bounds its log, so the \
             space column is the whole log's and the steady state is one without cleaning",
        );
    } else {
        report.note(format!(
            "Penstock may take live data / {} % of disk",
            options.fill
        ));
    }
    report.note(
        "write amp: bytes that the kernel counts for the process in the steady state, per \
         byte of key and value; space amp: the largest size of the files in the steady state, per \
        byte of live keys and values",
    );
    report.note(format!(
        "Penstock's latencies are those of {} pipelined overwrites over loopback \
         TCP, the others' of one blocking call: compare each with itself",
        options.depth
    ));
    report.note("RocksDB and fjall compress and write to the page cache; values do not compress");
    Ok(report)
}

fn row(table: &mut Table, name: &str, found: Outcome<Findings>) {
    let mut cells = vec![Cell::text(name)];
    match found {
        Ok(found) => {
            let late =
                |histogram: &Histogram<u64>| histogram.value_at_quantile(0.999) as f64 / 1000.0;
            let (before, steady) = (late(&found.before), late(&found.steady));
            cells.extend([
                Cell::count(found.per_second),
                Cell::Figure(found.write_amplification, 2),
                Cell::Figure(found.space_amplification, 2),
                Cell::Figure(before, 1),
                Cell::Figure(steady, 1),
                Cell::ratio(Some(steady), Some(before)),
            ]);
        }
        Err(why) => cells.resize(7, Cell::skipped(why)),
    }
    table.row(cells);
}

fn penstock(
    options: &Options,
    scratch: &Scratch,
    limit: Option<&str>,
    value: &[u8],
) -> Outcome<Findings> {
    let data = scratch.fresh("penstock")?;
    // Small segments, for the data is small: a store of this size would not be given 64 MiB ones.
    let mut flags = vec!["--segment-bytes".to_string(), "16MiB".into()];
    flags.extend(["--cache-bytes".into(), "64MiB".into()]);
    if let Some(limit) = limit {
        let most = live_bytes(options) * 100 / options.fill;
        flags.extend([format!("--{limit}"), most.to_string()]);
    }
    // Enough for four of the largest records in a segment.
    flags.extend(["--value-bytes-max".into(), "64KiB".into()]);
    flags.extend(options.serve.iter().cloned());
    let server = Server::start(&data, &flags)?;
    server::fill(&server, options.keys, KEY_BYTES, value)?;
    let client = server.client(AckLevel::None)?;
    let mut watch = Watch::new(options, data, Box::new(|| server.usage()))?;
    let mut random = Random::new(3);
    let mut key = Vec::new();
    let numbers = std::iter::repeat_with(|| random.below(options.keys));
    let total = usize::try_from(options.keys * options.times)?;
    server::pipeline(
        numbers.take(total),
        options.depth,
        Some(watch.until()),
        |number| {
            workload::key_into(&mut key, number, KEY_BYTES, Order::Random);
            client.set(&key, value)
        },
        |_, waited| watch.overwrote(waited),
    )?;
    watch.finish()
}

fn in_process(options: &Options, scratch: &Scratch, kind: Kind, value: &[u8]) -> Outcome<Findings> {
    let setting = Setting {
        path: scratch.fresh("peer")?,
        class: Class::None,
        cache_bytes: 64 << 20,
        reads_directly: false,
    };
    let engine = engine::open(kind, &setting)?;
    let mut handle = engine.handle()?;
    let mut key = Vec::new();
    for number in 0..options.keys {
        workload::key_into(&mut key, number, KEY_BYTES, Order::Random);
        handle.set(&key, value)?;
    }
    let mut watch = Watch::new(options, setting.path.clone(), Box::new(|| Usage::of(None)))?;
    let until = watch.until();
    let mut random = Random::new(3);
    for _ in 0..options.keys * options.times {
        workload::key_into(
            &mut key,
            random.below(options.keys),
            KEY_BYTES,
            Order::Random,
        );
        let began = Instant::now();
        handle.set(&key, value)?;
        watch.overwrote(began.elapsed())?;
        if Instant::now() >= until {
            break;
        }
    }
    watch.finish()
}

fn live_bytes(options: &Options) -> u64 {
    options.keys * (options.value + KEY_BYTES as u64)
}

impl<'a> Watch<'a> {
    fn new(
        options: &'a Options,
        data: PathBuf,
        usage: Box<dyn Fn() -> Outcome<Usage> + 'a>,
    ) -> Outcome<Watch<'a>> {
        Ok(Watch {
            options,
            data,
            usage,
            done: 0,
            started: None,
            largest_bytes: 0,
            before: Histogram::new(3)?,
            steady: Histogram::new(3)?,
        })
    }

    fn until(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.options.seconds)
    }

    fn overwrote(&mut self, waited: Duration) -> Outcome<()> {
        let keys = self.options.keys;
        let nanoseconds = u64::try_from(waited.as_nanos())?.max(1);
        self.done += 1;
        if self.done <= keys * 3 / 10 {
            self.before.record(nanoseconds)?;
        } else if self.done > keys * 2 {
            if self.started.is_none() {
                self.started = Some(((self.usage)()?, Instant::now()));
            }
            self.steady.record(nanoseconds)?;
            if self
                .done
                .is_multiple_of((keys * (self.options.times - 2) / LOOKS).max(1))
            {
                self.largest_bytes = self.largest_bytes.max(scratch::disk_bytes(&self.data));
            }
        }
        Ok(())
    }

    fn finish(self) -> Outcome<Findings> {
        let Some((usage, began)) = self.started else {
            return Err(format!(
                "{} overwrites within {} s, the steady state begins at {}",
                self.done,
                self.options.seconds,
                self.options.keys * 2
            )
            .into());
        };
        let record_bytes = (self.options.value + KEY_BYTES as u64) as f64;
        let count = self.steady.len() as f64;
        let written = (self.usage)()?.since(&usage).write_bytes as f64;
        let largest = self.largest_bytes.max(scratch::disk_bytes(&self.data)) as f64;
        Ok(Findings {
            write_amplification: written / (count * record_bytes),
            space_amplification: largest / live_bytes(self.options) as f64,
            per_second: count / began.elapsed().as_secs_f64(),
            before: self.before,
            steady: self.steady,
        })
    }
}
