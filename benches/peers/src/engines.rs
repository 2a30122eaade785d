//! Get, insert and update in process, in the same durability class, over a grid of sizes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::Outcome;
use crate::child;
use crate::engine::{self, ALL, Class, Engine, Kind, Setting};
use crate::report::{Cell, Report, Table, median};
use crate::scratch::{self, Scratch};
use crate::workload::{self, Order, Random};

const CACHE_BYTES: u64 = 256 << 20;
/// GrausDB compacts beyond 1 MiB of overwritten records by copying, for each key, the rest of that
/// key's log: with many keys that fills a disk. So it gets fewer updates than that takes.
const GRAUS_UPDATED_BYTES_MAX: u64 = 768 << 10;
/// Written before the clock runs, so that nobody's first file is in the figures.
const WARM_KEY: &[u8] = b"warm";

#[derive(Args)]
pub struct Options {
    /// Keys of each cell of the grid.
    #[arg(long, default_value = "20k", value_parser = scratch::quantity)]
    keys: u64,
    /// Most seconds for each phase (insert, update, get) of a store, class and cell of the grid.
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The whole grid: values 8/256/1024/4096 x keys 8/32/128/256, both orders, 1/2/4 writers.
    /// Takes hours.
    #[arg(long)]
    full: bool,
    /// Keys for the restarts and the sizes on disk.
    #[arg(long, default_value = "50k", value_parser = scratch::quantity)]
    restart_keys: u64,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// One cell of the grid.
#[derive(Clone, Copy)]
struct Shape {
    key: usize,
    value: usize,
    order: Order,
    writers: u64,
    class: Class,
}

/// Microseconds of one operation of one thread, for each phase.
struct Times {
    insert: f64,
    update: f64,
    get: f64,
}

pub fn run(options: &Options) -> Outcome<Report> {
    let scratch = Scratch::new(options.dir.as_deref())?;
    let mut report = Report::default();
    for shape in grid(options.full) {
        report.tables.push(cell_of_grid(options, &scratch, shape)?);
    }
    report.tables.push(restarts(options, &scratch)?);
    report.note(
        "us for one operation as one thread sees it; with several writers, time x writers \
         / operations",
    );
    report.note(
        "best / ours: the shortest time of any peer over the shorter of Penstock's two, \
         so above 1 Penstock is faster",
    );
    report.note(
        "class none: GrausDB, SurrealKV, fjall and RocksDB have handed the bytes to the \
         kernel when the call returns, so kill -9 takes nothing; redb has them in its own memory; \
        Penstock has them in its open frame, which leaves at once when the disk is idle",
    );
    report.note(
        "class immediate: fdatasync or its like for each commit; with 2 and 4 writers \
         those that group commits gain",
    );
    report.note(
        "update adds one to the value's first field: Penstock by UPDATE_IF, GrausDB by \
         update_if, SurrealKV and redb in one transaction, fjall and RocksDB by a get and a put \
        that are not atomic",
    );
    report.note(
        "one write goes before the clock runs, so that opening a store and its first file \
         is in nobody's figures",
    );
    report.note("an allocation counter is linked in, which costs each allocation about 2 ns");
    Ok(report)
}

fn grid(is_full: bool) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut add = |key, value, order, writers| {
        for class in [Class::None, Class::Immediate] {
            shapes.push(Shape {
                key,
                value,
                order,
                writers,
                class,
            });
        }
    };
    if is_full {
        for value in [8, 256, 1024, 4096] {
            for key in [8, 32, 128, 256] {
                for order in [Order::Sequential, Order::Random] {
                    for writers in [1, 2, 4] {
                        add(key, value, order, writers);
                    }
                }
            }
        }
    } else {
        add(8, 8, Order::Random, 1);
        add(32, 256, Order::Sequential, 1);
        add(128, 4096, Order::Random, 1);
        add(32, 256, Order::Random, 4);
    }
    shapes
}

fn cell_of_grid(options: &Options, scratch: &Scratch, shape: Shape) -> Outcome<Table> {
    let mut found: Vec<(Kind, Result<Vec<Times>, String>)> =
        ALL.into_iter().map(|kind| (kind, Ok(Vec::new()))).collect();
    for _ in 0..options.rounds {
        for (kind, times) in &mut found {
            let Ok(list) = times else { continue };
            let outcome = match why_not(*kind, shape) {
                Some(why) => Err(why.to_string()),
                None => measure(options, scratch, *kind, shape).map_err(|error| error.to_string()),
            };
            match outcome {
                Ok(round) => list.push(round),
                Err(why) => *times = Err(why),
            }
        }
    }
    let middles: Vec<(Kind, Result<[f64; 3], String>)> = found
        .into_iter()
        .map(|(kind, times)| (kind, times.map(|times| middle(&times))))
        .collect();
    let shortest = |phase: usize, ours: bool| {
        middles
            .iter()
            .filter(|(kind, _)| kind.is_ours() == ours)
            .filter_map(|(_, times)| times.as_ref().ok().map(|times| times[phase]))
            .min_by(f64::total_cmp)
    };
    let mut table = Table::new(
        format!(
            "class {}, key {} B, value {} B, {}, {} writer{}: us per operation, medians of {} \
             rounds",
            shape.class.name(),
            shape.key,
            shape.value,
            shape.order.name(),
            shape.writers,
            if shape.writers == 1 { "" } else { "s" },
            options.rounds
        ),
        &["store", "insert", "update", "get"],
    );
    for (kind, times) in &middles {
        let mut cells = vec![Cell::text(kind.name())];
        match times {
            Ok(times) => cells.extend(times.iter().map(|time| Cell::Figure(*time, 2))),
            Err(why) => cells.resize(4, Cell::skipped(why)),
        }
        table.row(cells);
    }
    let mut cells = vec![Cell::text("best / ours")];
    cells.extend((0..3).map(|phase| Cell::ratio(shortest(phase, false), shortest(phase, true))));
    table.row(cells);
    Ok(table)
}

fn middle(times: &[Times]) -> [f64; 3] {
    let of = |phase: fn(&Times) -> f64| median(&mut times.iter().map(phase).collect::<Vec<_>>());
    [
        of(|times| times.insert),
        of(|times| times.update),
        of(|times| times.get),
    ]
}

fn why_not(kind: Kind, shape: Shape) -> Option<&'static str> {
    if kind == Kind::PenstockLocal && shape.writers > 1 {
        return Some("it belongs to one thread");
    }
    kind.lacks(shape.class)
}

fn measure(options: &Options, scratch: &Scratch, kind: Kind, shape: Shape) -> Outcome<Times> {
    let setting = Setting {
        path: scratch.fresh("engine")?,
        class: shape.class,
        cache_bytes: CACHE_BYTES,
        reads_directly: false,
    };
    let engine = engine::open(kind, &setting)?;
    let value = workload::value(shape.value);
    // One handle for all phases where there is one thread: a store on the caller's thread is its
    // handle.
    let times = if shape.writers == 1 {
        let mut handle = engine.handle()?;
        handle.set(WARM_KEY, &value)?;
        let mut worker = Worker {
            handle: handle.as_mut(),
            shape,
            value: &value,
            first: 0,
        };
        let (inserted, insert) = worker.insert(options.keys, options.seconds)?;
        let updates = updates_max(kind, shape, options.keys);
        let (updated, update) = worker.update(inserted, updates, options.seconds)?;
        let (read, get) = worker.get(inserted, options.keys, options.seconds)?;
        Times {
            insert: us(insert, inserted, 1),
            update: us(update, updated, 1),
            get: us(get, read, 1),
        }
    } else {
        engine.handle()?.set(WARM_KEY, &value)?;
        together(options, engine.as_ref(), kind, shape, &value)?
    };
    drop(engine);
    scratch::remove(&setting.path)?;
    Ok(times)
}

fn updates_max(kind: Kind, shape: Shape, keys: u64) -> u64 {
    match kind {
        Kind::GrausDb => keys.min(GRAUS_UPDATED_BYTES_MAX / (shape.key + shape.value + 9) as u64),
        _ => keys,
    }
}

fn us(elapsed: Duration, operations: u64, writers: u64) -> f64 {
    elapsed.as_secs_f64() * 1e6 * writers as f64 / operations.max(1) as f64
}

/// Each writer on keys of its own, one phase after the other, all of them beginning a phase
/// together.
fn together(
    options: &Options,
    engine: &dyn Engine,
    kind: Kind,
    shape: Shape,
    value: &[u8],
) -> Outcome<Times> {
    let writers = shape.writers;
    let barrier = std::sync::Barrier::new(usize::try_from(writers)?);
    let keys = (options.keys / writers).max(1);
    let updates = (updates_max(kind, shape, options.keys) / writers).max(1);
    let phases: Vec<Outcome<[(u64, Duration); 3]>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let barrier = &barrier;
                scope.spawn(move || {
                    // A writer that fails goes on to each barrier, or the others would wait for
                    // ever.
                    let mut handle = engine.handle();
                    let mut found = [(0, Duration::ZERO); 3];
                    let mut failure = None;
                    let mut inserted = 0;
                    for (phase, found) in found.iter_mut().enumerate() {
                        barrier.wait();
                        let Ok(handle) = &mut handle else { continue };
                        let mut worker = Worker {
                            handle: handle.as_mut(),
                            shape,
                            value,
                            first: writer << 40,
                        };
                        let outcome = match phase {
                            0 => worker.insert(keys, options.seconds),
                            1 => worker.update(inserted, updates, options.seconds),
                            _ => worker.get(inserted, keys, options.seconds),
                        };
                        match outcome {
                            Ok(counted) => *found = counted,
                            Err(error) => failure = Some(error),
                        }
                        if phase == 0 {
                            inserted = found.0;
                        }
                    }
                    handle?;
                    match failure {
                        Some(error) => Err(error),
                        None => Ok(found),
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a thread panicked".into()))
            })
            .collect()
    });
    let mut sums = [(0, Duration::ZERO); 3];
    for phase in phases {
        for (sum, (operations, elapsed)) in sums.iter_mut().zip(phase?) {
            sum.0 += operations;
            sum.1 = sum.1.max(elapsed);
        }
    }
    let of = |(operations, elapsed)| us(elapsed, operations, writers);
    Ok(Times {
        insert: of(sums[0]),
        update: of(sums[1]),
        get: of(sums[2]),
    })
}

/// One thread's phases.
struct Worker<'a> {
    handle: &'a mut dyn engine::Handle,
    shape: Shape,
    value: &'a [u8],
    /// The number of its first key.
    first: u64,
}

impl Worker<'_> {
    fn insert(&mut self, keys: u64, seconds: f64) -> Outcome<(u64, Duration)> {
        let value = self.value;
        self.run(
            keys,
            seconds,
            |index| index,
            |handle, key| handle.set(key, value),
        )
    }

    fn update(&mut self, inserted: u64, updates: u64, seconds: f64) -> Outcome<(u64, Duration)> {
        let mut pick = self.picker(inserted, 1);
        self.run(updates, seconds, &mut pick, |handle, key| {
            handle.increase(key)
        })
    }

    fn get(&mut self, inserted: u64, gets: u64, seconds: f64) -> Outcome<(u64, Duration)> {
        let mut pick = self.picker(inserted, 2);
        self.run(gets, seconds, &mut pick, |handle, key| {
            handle.get(key)?.ok_or("a value is missing")?;
            Ok(())
        })
    }

    fn picker(&self, inserted: u64, seed: u64) -> impl FnMut(u64) -> u64 + use<> {
        let mut random = Random::new(seed);
        let (order, inserted) = (self.shape.order, inserted.max(1));
        move |index| match order {
            Order::Sequential => index % inserted,
            Order::Random => random.below(inserted),
        }
    }

    /// At most so many operations and seconds; the clock is read once in sixteen, or each time if
    /// they sync.
    fn run(
        &mut self,
        operations: u64,
        seconds: f64,
        mut pick: impl FnMut(u64) -> u64,
        mut operate: impl FnMut(&mut dyn engine::Handle, &[u8]) -> Outcome<()>,
    ) -> Outcome<(u64, Duration)> {
        let mut key = Vec::new();
        let until = Duration::from_secs_f64(seconds);
        let began = Instant::now();
        let mut done = 0;
        while done < operations {
            workload::key_into(
                &mut key,
                self.first + pick(done),
                self.shape.key,
                self.shape.order,
            );
            operate(self.handle, &key)?;
            done += 1;
            if (self.shape.class == Class::Immediate || done.is_multiple_of(16))
                && began.elapsed() >= until
            {
                break;
            }
        }
        Ok((done, began.elapsed()))
    }
}

fn restarts(options: &Options, scratch: &Scratch) -> Outcome<Table> {
    let shapes: &[(usize, usize)] = if options.full {
        &[
            (32, 64),
            (32, 256),
            (32, 1024),
            (32, 4096),
            (32, 16_384),
            (128, 64),
            (128, 256),
            (128, 1024),
            (128, 4096),
            (128, 16_384),
            (256, 64),
            (256, 256),
            (256, 1024),
            (256, 4096),
            (256, 16_384),
        ]
    } else {
        &[(32, 64), (128, 1024)]
    };
    let mut table = Table::new(
        format!(
            "reopen after kill -9, {} keys: ms of open + first get, medians of {} rounds; bytes \
             on disk per byte of key and value",
            options.restart_keys, options.rounds
        ),
        &[
            "store",
            "key B",
            "value B",
            "ms",
            "of SurrealKV 0.6",
            "disk / data",
        ],
    );
    for &(key, value) in shapes {
        let mut rows = Vec::new();
        for kind in [
            Kind::PenstockLocal,
            Kind::GrausDb,
            Kind::Surreal06,
            Kind::Surreal12,
            Kind::Fjall,
            Kind::RocksDb,
        ] {
            let found = match kind.lacks(Class::None) {
                Some(why) => Err(why.to_string()),
                None => {
                    restart(options, scratch, kind, key, value).map_err(|error| error.to_string())
                }
            };
            rows.push((kind, found));
        }
        let surreal = rows
            .iter()
            .find(|(kind, _)| *kind == Kind::Surreal06)
            .and_then(|(_, found)| found.as_ref().ok().map(|(ms, _)| *ms));
        for (kind, found) in rows {
            let mut cells = vec![
                Cell::text(kind.name()),
                Cell::count(key as f64),
                Cell::count(value as f64),
            ];
            match found {
                Ok((ms, amplification)) => cells.extend([
                    Cell::Figure(ms, 1),
                    Cell::ratio(Some(ms), surreal),
                    Cell::Figure(amplification, 2),
                ]),
                Err(why) => cells.resize(6, Cell::skipped(why)),
            }
            table.row(cells);
        }
    }
    Ok(table)
}

/// Milliseconds to the first answer, and what is on the disk per byte of data.
fn restart(
    options: &Options,
    scratch: &Scratch,
    kind: Kind,
    key: usize,
    value: usize,
) -> Outcome<(f64, f64)> {
    let data = scratch.fresh("restart")?;
    let keys = options.restart_keys;
    child::fill(kind, &data, keys, key, value)?;
    let disk = scratch::disk_bytes(&data) as f64 / (keys * (key + value) as u64) as f64;
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        times.push(
            child::open(kind, &data, keys, key, value)?
                .in_process
                .as_secs_f64()
                * 1e3,
        );
    }
    scratch::remove(&data)?;
    Ok((median(&mut times), disk))
}
