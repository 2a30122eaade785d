//! Bytes a second in batches of 1,000 messages of 1,000 bytes, as Apache Iggy measures.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::Outcome;
use crate::chart::{Axis, Chart, Series};
use crate::contender::{Class, Product, Running};
use crate::disk;
use crate::pairs::median;
use crate::program::{self, LOAD_CPU};
use crate::redis_benchmark::Ask;
use crate::report::{Cell, Report, Table};
use crate::scratch::{self, Scratch};
use crate::sql::histogram;

const MESSAGES: u64 = 1000;
const MESSAGE_BYTES: u64 = 1000;
const WHAT: &str = "batches of 1,000 messages of 1,000 bytes";

#[derive(Args, Clone)]
pub struct Options {
    /// Rounds, in which the servers take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Of each server in each round.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Senders, each with one batch under way.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    senders: u64,
    /// Keys that the messages have.
    #[arg(long, default_value = "100k", value_parser = scratch::quantity)]
    keys: u64,
    /// Three short rounds.
    #[arg(long)]
    pub quick: bool,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// How the messages come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One frame of Penstock's own protocol for a batch.
    Frame,
    /// A pipeline of SET commands.
    Pipeline,
}

/// Rate in bytes a second, and what a batch takes: average, p95 and p99 in microseconds.
#[derive(Clone, Copy)]
struct Sample {
    bytes: f64,
    average_us: f64,
    p95_us: f64,
    p99_us: f64,
}

struct Sender {
    product: Product,
    class: Class,
    way: Way,
    /// Of all rounds, or why there are none.
    samples: Result<Vec<Sample>, String>,
}

pub fn run(options: &Options) -> Outcome<Report> {
    program::check_pinning()?;
    let (rounds, seconds) = match options.quick {
        true => (3, options.seconds.min(1.0)),
        false => (options.rounds, options.seconds),
    };
    let scratch = Scratch::new(options.dir.as_deref())?;
    let folder = scratch.fresh("bulk")?;
    std::fs::create_dir(&folder)?;
    let mut senders = Vec::new();
    for class in [Class::Volatile, Class::Synced] {
        for (product, way) in [
            (Product::Penstock, Way::Frame),
            (Product::Penstock, Way::Pipeline),
            (Product::Valkey, Way::Pipeline),
            (Product::Redis, Way::Pipeline),
            (Product::Kevy, Way::Pipeline),
        ] {
            senders.push(Sender::new(product, class, way));
        }
    }
    let mut appended = Vec::new();
    for round in 0..rounds {
        appended.push(append(&folder, Duration::from_secs_f64(seconds))?);
        for at in 0..senders.len() {
            let at = if round % 2 == 0 {
                at
            } else {
                senders.len() - 1 - at
            };
            senders[at].measure(options, seconds, &folder);
        }
    }
    let mut report = Report::default();
    report.tables.push(table(&senders, &appended));
    report.charts.push(chart(&senders, &appended));
    for note in [
        "V volatile, S each batch durable before its answer; servers on CPU 0, load on CPU 1; each \
         server begins each round with an empty folder",
        "Penstock's own protocol is loaded by penstock bench, which times each message within its \
         batch; RESP by redis-benchmark, which times a whole pipeline",
        "disk: one program appends 1 MiB at a time to a new file, each write durable (O_DSYNC) \
         before the next",
        "Apache Iggy is not run: no registry has a package of its server. Its makers publish 992 \
         to 1,102 MB/s and p99 of 13 to 24 ms with a sync for each batch, on a machine of theirs \
         (February 2026); that stands beside these figures for orientation only",
    ] {
        report.note(note);
    }
    Ok(report)
}

fn append(folder: &Path, duration: Duration) -> Outcome<Sample> {
    let (bytes, taken) = disk::append_bytes(folder, duration)?;
    let us = |quantile| taken.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Sample {
        bytes,
        average_us: taken.mean() / 1000.0,
        p95_us: us(0.95),
        p99_us: us(0.99),
    })
}

impl Sender {
    fn new(product: Product, class: Class, way: Way) -> Sender {
        let samples = product.version().map(|_| Vec::new());
        let sender = Sender {
            product,
            class,
            way,
            samples,
        };
        if let Err(why) = &sender.samples {
            eprintln!("SKIPPED: {}: {why}", sender.name());
        }
        sender
    }

    fn name(&self) -> String {
        let (product, class) = (self.product.name(), self.class.letter());
        match self.way {
            Way::Frame => format!("{product}, own protocol, {class}"),
            Way::Pipeline => format!("{product}, RESP, {class}"),
        }
    }

    /// Starts a server, loads it and ends it. After a failure it takes no further part.
    fn measure(&mut self, options: &Options, seconds: f64, folder: &Path) {
        let Ok(samples) = &mut self.samples else {
            return;
        };
        let path = folder.join("server");
        let once = || -> Outcome<Sample> {
            scratch::remove(&path)?;
            let running = Running::start(self.product, self.class, &path)?;
            let sample = match self.way {
                Way::Frame => frames(&running, self.class, options, seconds),
                Way::Pipeline => pipelines(&running, options, seconds),
            };
            drop(running);
            scratch::remove(&path)?;
            sample
        };
        match once() {
            Ok(sample) => samples.push(sample),
            Err(error) => self.samples = Err(error.to_string()),
        }
    }
}

fn frames(running: &Running, class: Class, options: &Options, seconds: f64) -> Outcome<Sample> {
    let server = running.server().ok_or("it is Penstock")?;
    let level = if class == Class::Synced {
        "disk"
    } else {
        "none"
    };
    let flags = [
        format!("--connections={}", options.senders),
        format!("--depth={MESSAGES}"),
        format!("--value-bytes={MESSAGE_BYTES}"),
        format!("--keys={}", options.keys),
        format!("--level={level}"),
        format!("--duration={seconds}"),
        "--warmup=0.3".into(),
        format!("--pin={LOAD_CPU}"),
    ];
    let told = server.bench("set", &flags)?;
    let rate = told["operations_per_second"]
        .as_f64()
        .ok_or("bench tells no rate")?;
    let (average_us, p95_us) = histogram(&told["histogram_ns"], 0.95)?;
    let (_, p99_us) = histogram(&told["histogram_ns"], 0.99)?;
    Ok(Sample {
        bytes: rate * MESSAGE_BYTES as f64,
        average_us,
        p95_us,
        p99_us,
    })
}

fn pipelines(running: &Running, options: &Options, seconds: f64) -> Outcome<Sample> {
    let (keys, bytes) = (options.keys.to_string(), MESSAGE_BYTES.to_string());
    let words = ["-t", "set", "-d", &bytes, "-r", &keys];
    let ask = Ask::new(options.senders, MESSAGES, &words);
    let requests = ask.calibrate(running.port, seconds)?;
    let told = ask.run(running.port, requests, seconds)?;
    Ok(Sample {
        bytes: told.per_second * MESSAGE_BYTES as f64,
        average_us: told.average_us,
        p95_us: told.p95_us,
        p99_us: told.p99_us,
    })
}

fn middle(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    median(&mut samples.iter().map(of).collect::<Vec<_>>())
}

fn cells(name: String, samples: &Result<Vec<Sample>, String>) -> Vec<Cell> {
    let figure = |of: fn(&Sample) -> f64, decimals| match samples {
        Ok(samples) => Cell::Figure(middle(samples, of), decimals),
        Err(why) => Cell::skipped(why),
    };
    let spread = samples.as_ref().map(|samples| {
        let rates = samples.iter().map(|it| it.bytes / 1e9);
        let (least, most) = rates.fold((f64::MAX, 0.0f64), |(a, b), it| (a.min(it), b.max(it)));
        format!("{least:.3}..{most:.3}")
    });
    vec![
        Cell::text(name),
        figure(|it| it.bytes / 1e9, 3),
        spread.map_or_else(Cell::skipped, Cell::text),
        figure(|it| it.average_us / 1000.0, 2),
        figure(|it| it.p95_us / 1000.0, 2),
        figure(|it| it.p99_us / 1000.0, 2),
    ]
}

fn table(senders: &[Sender], appended: &[Sample]) -> Table {
    let columns = ["server", "GB/s", "spread", "average ms", "p95 ms", "p99 ms"];
    let mut table = Table::new(WHAT, &columns);
    for sender in senders {
        table.row(cells(sender.name(), &sender.samples));
    }
    table.row(cells(
        "disk, appends of 1 MiB, S".into(),
        &Ok(appended.to_vec()),
    ));
    let iggy = Err("no registry has a package of its server".to_string());
    table.row(cells("Apache Iggy, S".into(), &iggy));
    table
}

fn chart(senders: &[Sender], appended: &[Sample]) -> Chart {
    let bars = |name: String, samples: &[Sample]| Series {
        name,
        points: vec![(0.0, middle(samples, |it| it.bytes / 1e9))],
    };
    let measured = senders
        .iter()
        .filter_map(|it| Some((it.name(), it.samples.as_ref().ok()?)));
    let mut series: Vec<Series> = measured
        .map(|(name, samples)| bars(name, samples))
        .collect();
    series.push(bars("disk S".into(), appended));
    Chart {
        title: WHAT.into(),
        below: String::new(),
        beside: "GB/s".into(),
        axis: Axis::Groups(vec!["1,000 x 1,000 B".into()]),
        is_by_powers: false,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_run_is_a_row_with_its_reason_and_no_bar() {
        let sender = Sender {
            product: Product::Kevy,
            class: Class::Synced,
            way: Way::Pipeline,
            samples: Err("no kevy on the PATH".into()),
        };
        let disk = Sample {
            bytes: 2e9,
            average_us: 1000.0,
            p95_us: 2000.0,
            p99_us: 3000.0,
        };
        let table = table(&[sender], &[disk]);
        assert_eq!(table.rows[0][1].why(), Some("no kevy on the PATH"));
        assert_eq!(table.rows[1][1].shown(), "2.000");
        assert_eq!(table.rows[1][5].shown(), "3.00");
        assert!(
            table.rows[2][1].why().is_some(),
            "Iggy is listed with its reason"
        );
        assert_eq!(chart(&[], &[disk]).series.len(), 1);
    }
}
