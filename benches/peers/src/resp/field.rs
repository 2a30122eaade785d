//! The servers of a run, what is asked of them, and what was found.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use crate::Outcome;
use crate::contender::{Class, Product, Running};
use crate::disk::Counters;
use crate::pairs::median;
use crate::redis_benchmark::{Ask, Told};
use crate::report::{Cell, Table};

/// One load.
#[derive(Clone)]
pub struct Work {
    pub name: &'static str,
    pub ask: Ask,
    /// Only Penstock, of this class, has it.
    pub ours_alone: bool,
    /// A server of two shards has it, too.
    pub is_for_two_shards: bool,
}

/// What one run of one load found.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub told: Told,
    /// CPU of the server, per operation.
    pub cpu_us: f64,
    /// CPU of the server, per second.
    pub busy: f64,
    /// What the server's process wrote, per operation.
    pub written_bytes: f64,
    /// What the device wrote meanwhile, and its flushes, for all programs, per operation.
    pub device_bytes: Option<f64>,
    pub flushes: Option<f64>,
}

#[cfg(test)]
impl Sample {
    /// One with these figures of the CPU.
    pub fn of_cpu(cpu_us: f64, busy: f64) -> Sample {
        let told = Told {
            per_second: 1.0,
            average_us: 1.0,
            p50_us: 1.0,
            p95_us: 1.0,
            p99_us: 1.0,
        };
        Sample {
            told,
            cpu_us,
            busy,
            written_bytes: 0.0,
            device_bytes: None,
            flushes: None,
        }
    }
}

/// A server that takes part, or why it does not.
pub struct Entrant {
    pub product: Product,
    pub class: Class,
    pub shards: u64,
    pub running: Result<Running, String>,
    /// Of each load, in the order of the rounds.
    pub samples: BTreeMap<&'static str, Vec<Sample>>,
    /// Requests of each load that take about as long as was asked for.
    requests: BTreeMap<&'static str, u64>,
}

impl Entrant {
    pub fn start(product: Product, class: Class, shards: u64, folder: &Path) -> Entrant {
        let running = product
            .binary()
            .map_err(Into::into)
            .and_then(|_| Running::start_on(product, class, folder, shards));
        Entrant {
            product,
            class,
            shards,
            running: running.map_err(|error| error.to_string()),
            samples: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    /// One that takes no part.
    #[cfg(test)]
    pub fn missing(product: Product, class: Class, why: &str) -> Entrant {
        Entrant {
            product,
            class,
            shards: 1,
            running: Err(why.into()),
            samples: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    pub fn name(&self) -> String {
        let (product, class) = (self.product.name(), self.class.letter());
        match self.shards {
            1 => format!("{product} {class}"),
            shards => format!("{product}, {shards} shards, {class}"),
        }
    }

    /// Whether it takes part in a load.
    pub fn has(&self, work: &Work) -> bool {
        let is_ours = self.product == Product::Penstock;
        (!work.ours_alone || (is_ours && self.class == Class::Synced && self.shards == 1))
            && (self.shards == 1 || work.is_for_two_shards)
    }

    /// Does something with its server. If that fails, it takes no further part.
    pub fn with(&mut self, act: impl FnOnce(&Running) -> Outcome<()>) {
        if let Ok(running) = &self.running
            && let Err(error) = act(running)
        {
            eprintln!("{} takes no further part: {error}", self.name());
            self.running = Err(error.to_string());
        }
    }

    /// Runs a load once and keeps what was found.
    pub fn measure(&mut self, work: &Work, seconds: f64, folder: &Path) {
        let known = self.requests.get(work.name).copied();
        let mut found = None;
        self.with(|running| {
            let requests = match known {
                Some(requests) => requests,
                None => work.ask.calibrate(running.port, seconds)?,
            };
            found = Some((
                requests,
                sample(running, &work.ask, requests, seconds, folder)?,
            ));
            Ok(())
        });
        if let Some((requests, sample)) = found {
            self.requests.insert(work.name, requests);
            self.samples.entry(work.name).or_default().push(sample);
        }
    }

    /// Figures of all rounds of a load, or why there are none.
    pub fn figures(&self, work: &str, of: impl Fn(&Sample) -> f64) -> Result<Vec<f64>, String> {
        match (&self.running, self.samples.get(work)) {
            (_, Some(samples)) => Ok(samples.iter().map(of).collect()),
            (Err(why), None) => Err(why.clone()),
            (Ok(_), None) => Err("it was not measured".into()),
        }
    }

    pub fn middle(&self, work: &str, of: impl Fn(&Sample) -> f64) -> Result<f64, String> {
        self.figures(work, of)
            .map(|mut figures| median(&mut figures))
    }
}

fn sample(
    running: &Running,
    ask: &Ask,
    requests: u64,
    seconds: f64,
    folder: &Path,
) -> Outcome<Sample> {
    let (usage, counters) = (running.usage()?, Counters::below(folder));
    let began = Instant::now();
    let told = ask.run(running.port, requests, seconds)?;
    let elapsed = began.elapsed().as_secs_f64();
    let used = running.usage()?.since(&usage);
    let device = Counters::below(folder)
        .zip(counters)
        .map(|(now, then)| now.since(then));
    let each = |figure: f64| figure / requests as f64;
    Ok(Sample {
        told,
        cpu_us: each(used.cpu_seconds * 1e6),
        busy: used.cpu_seconds / elapsed,
        written_bytes: each(used.write_bytes as f64),
        device_bytes: device.map(|it| each(it.written_bytes as f64)),
        flushes: device.map(|it| each(it.flushes as f64)),
    })
}

/// The servers of a class, in the table of one load.
pub fn table(entrants: &[Entrant], work: &Work) -> Table {
    let Ask {
        connections, depth, ..
    } = work.ask;
    let mut table = Table::new(
        format!(
            "{}: {connections} connections, {depth} under way each",
            work.name
        ),
        &[
            "server",
            "op/s",
            "spread",
            "p50 us",
            "p99 us",
            "CPU us/op",
            "CPU busy",
            "written B/op",
            "device B/op",
            "flushes/op",
        ],
    );
    for entrant in entrants.iter().filter(|entrant| entrant.has(work)) {
        let of =
            |of: fn(&Sample) -> f64, decimals| Cell::of(&entrant.middle(work.name, of), decimals);
        let counted = |of: fn(&Sample) -> Option<f64>, decimals| {
            let figures = entrant.figures(work.name, |it| of(it).unwrap_or(f64::NAN));
            match figures.map(|mut it| median(&mut it)) {
                Ok(figure) if figure.is_nan() => Cell::skipped("the kernel counts no such device"),
                other => Cell::of(&other, decimals),
            }
        };
        let spread = entrant
            .figures(work.name, |it| it.told.per_second)
            .map(|figures| {
                let (least, most) = figures
                    .iter()
                    .fold((f64::MAX, 0.0f64), |(least, most), &it| {
                        (least.min(it), most.max(it))
                    });
                format!("{least:.0}..{most:.0}")
            });
        table.row(vec![
            Cell::text(entrant.name()),
            of(|it| it.told.per_second, 0),
            spread.map_or_else(Cell::skipped, Cell::text),
            of(|it| it.told.p50_us, 0),
            of(|it| it.told.p99_us, 0),
            of(|it| it.cpu_us, 3),
            of(|it| it.busy, 2),
            of(|it| it.written_bytes, 1),
            counted(|it| it.device_bytes, 1),
            counted(|it| it.flushes, 5),
        ]);
    }
    table
}
