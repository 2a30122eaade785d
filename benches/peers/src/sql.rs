//! One hot row: 64 clients take one from one stock, guarded, beside PostgreSQL.

use std::path::PathBuf;

use clap::Args;

use crate::Outcome;
use crate::chart::{Axis, Chart, Series};
use crate::contender::{Class, Product, Running};
use crate::disk::Counters;
use crate::goal::{Found, Goal, Wanted};
use crate::pairs::median;
use crate::postgres::Postgres;
use crate::program::{self, LOAD_CPU};
use crate::redis_benchmark::Ask;
use crate::report::{Cell, Report, Table};
use crate::scratch::Scratch;

const CLIENTS: u64 = 64;
const SQL: &str = "UPDATE stock SET n = n - 1 WHERE id = 1 AND n > 0;";
const WHAT: &str = "64 clients, one row, one at a time each, durable: decrements a second";

#[derive(Args, Clone)]
pub struct Options {
    /// Rounds, in which the servers take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Of each server in each round; whole seconds for pgbench.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Three short rounds.
    #[arg(long)]
    pub quick: bool,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What the rounds of one server found.
#[derive(Default)]
struct Found64 {
    per_second: Vec<f64>,
    average_us: Vec<f64>,
    cpu_us: Vec<f64>,
    device_bytes: Vec<f64>,
    flushes: Vec<f64>,
}

type Rounds = Result<Found64, String>;

pub fn run(options: &Options) -> Outcome<Report> {
    program::check_pinning()?;
    let (rounds, seconds) = match options.quick {
        true => (3, options.seconds.min(2.0)),
        false => (options.rounds, options.seconds),
    };
    let scratch = Scratch::new(options.dir.as_deref())?;
    let folder = scratch.fresh("sql")?;
    std::fs::create_dir(&folder)?;
    let ours = Running::start(Product::Penstock, Class::Synced, &folder.join("penstock"))?;
    let script = folder.join("hot.sql");
    std::fs::write(&script, SQL)?;
    let theirs = prepare(&folder.join("postgres"));
    let version = match &theirs {
        Ok(postgres) => postgres.version.clone(),
        Err(why) => {
            eprintln!("SKIPPED: PostgreSQL: {why}");
            "PostgreSQL".into()
        }
    };
    let mut native: Rounds = Ok(Found64::default());
    let mut resp: Rounds = Ok(Found64::default());
    let mut sql: Rounds = match &theirs {
        Ok(_) => Ok(Found64::default()),
        Err(why) => Err(why.clone()),
    };
    for round in 0..rounds {
        let theirs = |rounds: &mut Rounds| {
            let Ok(postgres) = &theirs else { return };
            keep(rounds, &folder, || {
                let before = postgres.cpu_seconds()?;
                let told = postgres.bench(&script, CLIENTS, seconds)?;
                let cpu = postgres.cpu_seconds()? - before;
                let count = told.per_second * seconds.ceil().max(1.0);
                Ok((told.per_second, told.average_us, cpu, count))
            });
        };
        if round % 2 == 1 {
            theirs(&mut sql);
        }
        keep(&mut native, &folder, || guarded(&ours, seconds));
        keep(&mut resp, &folder, || decremented(&ours, seconds));
        if round % 2 == 0 {
            theirs(&mut sql);
        }
    }
    if let Ok(postgres) = &theirs {
        check(postgres, &sql)?;
    }
    Ok(report(&version, &native, &resp, &sql))
}

fn prepare(folder: &std::path::Path) -> Result<Postgres, String> {
    let told = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
    let postgres = Postgres::start(folder).map_err(told)?;
    for sql in [
        "CREATE TABLE stock (id int PRIMARY KEY, n bigint)",
        "INSERT INTO stock VALUES (1, 4000000000000000000)",
    ] {
        postgres.query(sql).map_err(told)?;
    }
    match postgres.query("SHOW synchronous_commit").map_err(told)? {
        on if on == "on" => Ok(postgres),
        other => Err(format!("synchronous_commit is {other}")),
    }
}

/// The stock lost something in every round that was counted.
fn check(postgres: &Postgres, rounds: &Rounds) -> Outcome<()> {
    let left: i64 = postgres
        .query("SELECT n FROM stock WHERE id = 1")?
        .parse()?;
    match rounds {
        Ok(found) if !found.per_second.is_empty() && left == 4_000_000_000_000_000_000 => {
            Err("PostgreSQL's stock is as full as before".into())
        }
        _ => Ok(()),
    }
}

/// Runs one round; gives rate, average latency, CPU seconds and operations.
fn keep(
    rounds: &mut Rounds,
    folder: &std::path::Path,
    act: impl FnOnce() -> Outcome<(f64, f64, f64, f64)>,
) {
    let Ok(found) = rounds else { return };
    let before = Counters::below(folder);
    match act() {
        Ok((per_second, average_us, cpu_seconds, count)) => {
            found.per_second.push(per_second);
            found.average_us.push(average_us);
            found.cpu_us.push(cpu_seconds * 1e6 / count);
            if let Some((now, then)) = Counters::below(folder).zip(before) {
                let since = now.since(then);
                found.device_bytes.push(since.written_bytes as f64 / count);
                found.flushes.push(since.flushes as f64 / count);
            }
        }
        Err(error) => *rounds = Err(error.to_string()),
    }
}

/// Guarded decrements by Penstock's own protocol: the guard is that of the SQL statement.
fn guarded(ours: &Running, seconds: f64) -> Outcome<(f64, f64, f64, f64)> {
    let server = ours.server().ok_or("it is Penstock")?;
    let before = ours.usage()?;
    let flags = [
        format!("--connections={CLIENTS}"),
        "--depth=1".into(),
        "--single".into(),
        "--level=disk".into(),
        format!("--duration={seconds}"),
        "--warmup=0.2".into(),
        format!("--pin={LOAD_CPU}"),
    ];
    let told = server.bench("decr", &flags)?;
    let used = ours.usage()?.since(&before);
    let figure = |name: &str| told[name].as_f64().ok_or(format!("bench tells no {name}"));
    let (per_second, acked) = (figure("operations_per_second")?, figure("acked")?);
    let (average_us, _) = histogram(&told["histogram_ns"], 0.5)?;
    Ok((per_second, average_us, used.cpu_seconds, acked))
}

/// Average and a quantile of a histogram of `penstock bench`, in microseconds.
pub fn histogram(pairs: &serde_json::Value, quantile: f64) -> Outcome<(f64, f64)> {
    let pairs: Vec<(u64, u64)> = serde_json::from_value(pairs.clone())?;
    let count: u64 = pairs.iter().map(|it| it.1).sum();
    let sum: f64 = pairs
        .iter()
        .map(|&(ns, times)| ns as f64 * times as f64)
        .sum();
    let wanted = (count as f64 * quantile).ceil();
    let mut seen = 0.0;
    let at = pairs.iter().find(|it| {
        seen += it.1 as f64;
        seen >= wanted
    });
    let (ns, _) = at.ok_or("an empty histogram")?;
    Ok((sum / count as f64 / 1000.0, *ns as f64 / 1000.0))
}

/// The same by the port for clients of Redis, whose DECR has no guard.
fn decremented(ours: &Running, seconds: f64) -> Outcome<(f64, f64, f64, f64)> {
    let ask = Ask::new(CLIENTS, 1, &["DECR", "stock"]);
    let requests = ask.calibrate(ours.port, seconds)?;
    let before = ours.usage()?;
    let told = ask.run(ours.port, requests, seconds)?;
    let used = ours.usage()?.since(&before);
    Ok((
        told.per_second,
        told.average_us,
        used.cpu_seconds,
        requests as f64,
    ))
}

fn report(version: &str, native: &Rounds, resp: &Rounds, sql: &Rounds) -> Report {
    let mut report = Report::default();
    let rows = [
        ("Penstock, own protocol, guarded", native),
        ("Penstock, DECR of a client of Redis", resp),
        (version, sql),
    ];
    let mut table = Table::new(
        WHAT,
        &[
            "server",
            "decrements/s",
            "average us",
            "CPU us/op",
            "device B/op",
            "flushes/op",
        ],
    );
    let mut series = Vec::new();
    for (name, rounds) in rows {
        let middle = |of: fn(&Found64) -> &Vec<f64>| match rounds {
            Ok(found) if of(found).is_empty() => Err("it was not measured".into()),
            Ok(found) => Ok(median(&mut of(found).clone())),
            Err(why) => Err(why.clone()),
        };
        let rate = middle(|it| &it.per_second);
        table.row(vec![
            Cell::text(name),
            Cell::of(&rate, 0),
            Cell::of(&middle(|it| &it.average_us), 0),
            Cell::of(&middle(|it| &it.cpu_us), 1),
            Cell::of(&middle(|it| &it.device_bytes), 0),
            Cell::of(&middle(|it| &it.flushes), 4),
        ]);
        if let Ok(rate) = rate {
            let points = vec![(0.0, rate)];
            series.push(Series {
                name: name.into(),
                points,
            });
        }
    }
    report.tables.push(table);
    report.charts.push(Chart {
        title: WHAT.into(),
        below: String::new(),
        beside: "decrements/s".into(),
        axis: Axis::Groups(vec!["64 clients".into()]),
        is_by_powers: true,
        series,
    });
    let found = match (native, sql) {
        (Ok(ours), Ok(theirs)) => Found::of(&ours.per_second, &theirs.per_second),
        (Err(why), _) => Err(format!("Penstock: {why}")),
        (_, Err(why)) => Err(format!("PostgreSQL: {why}")),
    };
    report.goals.push(Goal {
        number: "7",
        what: format!("{WHAT}, beside {version}"),
        unit: "op/s",
        wanted: Wanted::AtLeast(30.0),
        found,
        remark: String::new(),
    });
    for note in [
        "PostgreSQL: synchronous_commit and fsync on, all else as its package has it, loopback \
         TCP, prepared statements, load by pgbench; Penstock: level disk, load by penstock bench \
         and redis-benchmark",
        SQL,
        "servers on CPU 0, load on CPU 1; they take turns, and ratios are medians of pairs",
    ] {
        report.note(note);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_and_quantile_come_from_the_pairs_of_a_histogram() {
        let pairs = serde_json::json!([[1000, 3], [5000, 1]]);
        assert_eq!(histogram(&pairs, 0.5).unwrap(), (2.0, 1.0));
        assert_eq!(histogram(&pairs, 0.99).unwrap().1, 5.0);
        assert!(histogram(&serde_json::json!([]), 0.5).is_err());
        assert!(histogram(&serde_json::Value::Null, 0.5).is_err());
    }

    #[test]
    fn without_postgresql_its_row_and_the_goal_tell_why_and_ours_stand() {
        let ours = || {
            Ok(Found64 {
                per_second: vec![9.0],
                average_us: vec![1.0],
                cpu_us: vec![1.0],
                ..Found64::default()
            })
        };
        let report = report("PostgreSQL", &ours(), &ours(), &Err("no postgres".into()));
        assert_eq!(report.tables[0].rows[2][1].why(), Some("no postgres"));
        assert_eq!(report.tables[0].rows[0][1].why(), None);
        assert_eq!(report.goals[0].verdict(), "not measured");
        assert_eq!(report.charts[0].series.len(), 2);
    }
}
