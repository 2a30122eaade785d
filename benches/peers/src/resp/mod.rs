//! Penstock's port for clients of Redis beside servers that speak the same protocol.

mod charts;
mod field;
mod goals;
mod latency;
mod mget;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::Outcome;
use crate::contender::{Class, Product};
use crate::disk;
use crate::program;
use crate::redis_benchmark::{self, Ask};
use crate::report::{Cell, Report, Table};
use crate::scratch::{self, Scratch};
use crate::workload;
use field::{Entrant, Work};

const VALUE_BYTES: usize = 64;
/// How long a sync is timed in each round.
const SYNC: Duration = Duration::from_millis(300);

#[derive(Args, Clone)]
pub struct Options {
    /// Rounds, in which the servers take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub rounds: u64,
    /// Of each load of each server in each round.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Keys of SET and GET.
    #[arg(long, default_value = "1m", value_parser = scratch::quantity)]
    pub keys: u64,
    /// Keys of MGET, of 1 KiB each.
    #[arg(long, default_value = "100k", value_parser = scratch::quantity)]
    pub pages: u64,
    /// Three short rounds.
    #[arg(long)]
    pub quick: bool,
    /// Where the scratch folder is made.
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

impl Options {
    fn rounds(&self) -> usize {
        if self.quick {
            3
        } else {
            usize::try_from(self.rounds).unwrap_or(1)
        }
    }

    fn seconds(&self) -> f64 {
        if self.quick {
            self.seconds.min(0.5)
        } else {
            self.seconds
        }
    }
}

/// All loads, in the order in which they are run.
fn works(keys: u64) -> Vec<Work> {
    let keys = keys.to_string();
    let work = |name, connections, depth, words: &[&str]| Work {
        name,
        ask: Ask::new(connections, depth, words),
        ours_alone: false,
        is_for_two_shards: false,
    };
    let many = |work: Work| Work {
        is_for_two_shards: true,
        ..work
    };
    vec![
        work("DECR P128", 50, 128, &["DECR", "stock"]),
        work("DECR P16", 50, 16, &["DECR", "stock"]),
        work("DECR P1", 50, 1, &["DECR", "stock"]),
        work("DECR one client", 1, 1, &["DECR", "stock"]),
        Work {
            ours_alone: true,
            ..work("PING one client", 1, 1, &["PING"])
        },
        work("GET one client", 1, 1, &["-t", "get", "-r", &keys]),
        many(work(
            "SET P128",
            50,
            128,
            &["-t", "set", "-d", "64", "-r", &keys],
        )),
        many(work("GET P128", 50, 128, &["-t", "get", "-r", &keys])),
    ]
}

pub fn run(options: &Options) -> Outcome<Report> {
    program::check_pinning()?;
    let tool = redis_benchmark::binary()?;
    let scratch = Scratch::new(options.dir.as_deref())?;
    let folder = scratch.fresh("resp")?;
    std::fs::create_dir(&folder)?;
    let mut report = Report::default();
    let mut entrants = start(&folder);
    report.tables.push(contenders(&entrants));
    entrants.iter_mut().for_each(|it| fill(it, options.keys));
    let sync_us = measure(&mut entrants, options, &folder)?;
    if let Some(saturation) = goals::saturation(&entrants) {
        let seconds = if options.quick { 1.0 } else { 10.0 };
        latency::run(&mut entrants, saturation, seconds, &folder, &mut report);
    }
    report.goals = goals::of(&entrants, &sync_us);
    let mut charts = charts::of(&entrants);
    charts.append(&mut report.charts);
    report.charts = charts;
    for work in works(options.keys) {
        report.tables.push(field::table(&entrants, &work));
    }
    // Their memory and their CPU are free before other servers start.
    drop(entrants);
    let (rounds, seconds) = (options.rounds(), options.seconds());
    mget::run(options.pages, rounds, seconds, &folder, &mut report)?;
    report.goals.sort_by_key(|goal| goal.number);
    let tool = program::version(&tool, "--version", "redis-benchmark")?;
    notes(&mut report, &tool, &sync_us);
    Ok(report)
}

/// Every server in every class; one that cannot run is listed with its reason.
fn start(folder: &Path) -> Vec<Entrant> {
    let mut entrants = Vec::new();
    let products = [
        Product::Penstock,
        Product::Valkey,
        Product::Redis,
        Product::Kevy,
    ];
    for class in Class::ALL {
        for product in products {
            let folder = folder.join(format!("{}-{}", product.name(), class.letter()));
            entrants.push(Entrant::start(product, class, 1, &folder));
        }
    }
    let two = folder.join("two-shards");
    entrants.push(Entrant::start(Product::Penstock, Class::Synced, 2, &two));
    for entrant in &entrants {
        if let Err(why) = &entrant.running {
            eprintln!("SKIPPED: {}: {why}", entrant.name());
        }
    }
    entrants
}

/// Who takes part, in which version.
fn contenders(entrants: &[Entrant]) -> Table {
    let mut table = Table::new("servers", &["server", "version"]);
    for entrant in entrants {
        table.row(vec![
            Cell::text(entrant.name()),
            match &entrant.running {
                Err(why) => Cell::skipped(why),
                Ok(running) => {
                    let version = entrant.product.version().unwrap_or_else(|why| why);
                    let remark = running.remark.as_ref().map(|it| format!("; {it}"));
                    Cell::text(version + &remark.unwrap_or_default())
                }
            },
        ]);
    }
    table
}

/// The keys of GET and SET, as `redis-benchmark` names them.
fn fill(entrant: &mut Entrant, keys: u64) {
    let value = workload::value(VALUE_BYTES);
    entrant.with(|running| {
        running.fill(
            keys,
            |requests, number| {
                let head = format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{number:012}\r\n$64\r\n");
                requests.extend_from_slice(head.as_bytes());
                requests.extend_from_slice(&value);
                requests.extend_from_slice(b"\r\n");
            },
            b"+OK\r\n",
        )
    });
}

/// Runs all loads; gives what a sync of the disk took in each round, in microseconds.
fn measure(entrants: &mut [Entrant], options: &Options, folder: &Path) -> Outcome<Vec<f64>> {
    let mut sync_us = Vec::new();
    for work in works(options.keys) {
        eprintln!("{}", work.name);
        for round in 0..options.rounds() {
            if work.name == "DECR one client" {
                sync_us.push(disk::sync_us(folder, SYNC)?);
            }
            for at in 0..entrants.len() {
                // Each second round goes back, so that a pair is as near in the one order as in
                // the other.
                let at = if round % 2 == 0 {
                    at
                } else {
                    entrants.len() - 1 - at
                };
                if entrants[at].has(&work) {
                    entrants[at].measure(&work, options.seconds(), folder);
                }
            }
        }
    }
    Ok(sync_us)
}

fn notes(report: &mut Report, tool: &str, sync_us: &[f64]) {
    let sync: Vec<String> = sync_us.iter().map(|it| format!("{it:.0}")).collect();
    let notes = [
        format!(
            "load: {tool}, one thread on CPU 1; each server on CPU 0 with one shard or thread, two \
             shards on both CPUs"
        ),
        "classes: V volatile (Valkey and Redis without persistence, Penstock at level none), E up \
         to a second (appendfsync everysec, Penstock at level interval of 1 s), S after the sync \
         of the device (appendfsync always, Penstock at level disk)"
            .into(),
        "all servers run at once and take turns; ratios are medians of pairs of one round, the \
         spread is the least and the greatest of them"
            .into(),
        "at P128 the tool itself may be the limit: where CPU busy is below 1, CPU us/op says more \
         than op/s"
            .into(),
        "latency at a depth above 1 is that of a whole pipeline".into(),
        "CPU us/op: utime and stime of the server's process; written B/op: its write_bytes, which \
         count a page of the page cache each time it is dirtied; device B/op and flushes/op: of \
         all programs on that device"
            .into(),
        "rewrites of the append-only files of peers are off, for they would fall into some rounds"
            .into(),
        format!(
            "a write of 4 KiB and its sync took {} us in the rounds, p50",
            sync.join(", ")
        ),
    ];
    notes.into_iter().for_each(|note| report.note(note));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_peer_is_skipped_with_its_reason_and_hinders_nobody() {
        let mut absent = Entrant::missing(Product::Kevy, Class::Synced, "no kevy on the PATH");
        let work = &works(10)[0];
        fill(&mut absent, 10);
        absent.measure(work, 0.1, Path::new("/tmp"));
        let entrants = [absent];
        let servers = contenders(&entrants);
        assert_eq!(servers.rows[0][1].why(), Some("no kevy on the PATH"));
        let rates = field::table(&entrants, work);
        assert_eq!(rates.rows[0][1].why(), Some("no kevy on the PATH"));
        assert!(
            charts::of(&entrants)
                .iter()
                .all(|chart| chart.series.is_empty())
        );
    }

    #[test]
    fn echo_is_asked_of_penstock_alone_and_two_shards_only_where_keys_are_many() {
        let of = |product, class, shards| {
            let mut entrant = Entrant::missing(product, class, "not here");
            entrant.shards = shards;
            entrant
        };
        let (ours, peer) = (Product::Penstock, Product::Valkey);
        for work in works(10) {
            let many = work.name.ends_with("T P128");
            assert_eq!(of(ours, Class::Synced, 2).has(&work), many, "{}", work.name);
            assert!(of(ours, Class::Synced, 1).has(&work));
            assert_eq!(
                of(peer, Class::Synced, 1).has(&work),
                work.name != "PING one client"
            );
        }
    }
}
