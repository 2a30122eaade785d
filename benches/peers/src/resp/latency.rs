//! The open loop: what a decrement waits at rates that do not depend on the answers.

use std::path::Path;
use std::time::Duration;

use super::field::Entrant;
use crate::Outcome;
use crate::chart::{Axis, Chart, Series};
use crate::contender::{Class, Running};
use crate::disk::Counters;
use crate::loader::{Found, Open};
use crate::report::{Cell, Report, Table};

const COMMAND: &[u8] = b"*2\r\n$4\r\nDECR\r\n$5\r\nstock\r\n";
const CONNECTIONS: usize = 50;
/// Shares of what Valkey of the same class does in a closed loop.
const SHARES: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 0.95];
/// The share whose course is shown.
const COURSE: f64 = 0.6;

/// Adds what was found at all rates to the report, of servers of class S.
pub fn run(
    entrants: &mut [Entrant],
    saturation: f64,
    seconds: f64,
    folder: &Path,
    report: &mut Report,
) {
    let mut table = Table::new(
        "DECR of one hot key, open loop, S: latency from the time at which a command was due",
        &[
            "server",
            "due/s",
            "answered/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "unanswered",
            "CPU us/op",
            "written B/op",
            "flushes/op",
        ],
    );
    let (mut p50, mut p99, mut course) = (Vec::new(), Vec::new(), Vec::new());
    let takes_part = |it: &&mut Entrant| it.class == Class::Synced && it.shards == 1;
    for entrant in entrants.iter_mut().filter(takes_part) {
        let name = entrant.name();
        for lines in [&mut p50, &mut p99, &mut course] {
            let (name, points) = (name.clone(), Vec::new());
            lines.push(Series { name, points });
        }
        for share in SHARES {
            let rate = (saturation * share).round();
            let mut row = vec![Cell::text(&name), Cell::count(rate)];
            entrant.with(|running| {
                let (found, cells) = measure(running, rate, seconds, folder)?;
                row.extend(cells);
                let last = |lines: &mut Vec<Series>, point| {
                    lines.last_mut().expect("pushed above").points.push(point);
                };
                last(&mut p50, (rate, found.us(0.5)));
                last(&mut p99, (rate, found.us(0.99)));
                if share == COURSE {
                    found
                        .series
                        .iter()
                        .for_each(|&point| last(&mut course, point));
                }
                Ok(())
            });
            if let Err(why) = &entrant.running {
                row.resize(table.columns.len(), Cell::skipped(why));
            }
            table.row(row);
        }
    }
    report.tables.push(table);
    let chart = |title: &str, below: &str, beside: &str, mut series: Vec<Series>| {
        series.retain(|it| !it.points.is_empty());
        Chart {
            title: format!("DECR of one hot key, open loop, S: {title}"),
            below: below.into(),
            beside: beside.into(),
            axis: Axis::Even,
            is_by_powers: true,
            series,
        }
    };
    report
        .charts
        .push(chart("p50 by rate", "commands due a second", "p50 us", p50));
    report
        .charts
        .push(chart("p99 by rate", "commands due a second", "p99 us", p99));
    let title = format!("p99 over time at {COURSE} of Valkey's closed loop");
    report
        .charts
        .push(chart(&title, "seconds", "p99 us", course));
    report.note(
        "the open loop is a small loader of this harness, as Debian has none for RESP; it goes \
         round its 50 connections, which takes some 20 us, and counts from the time at which a \
         command was due",
    );
}

fn measure(
    running: &Running,
    rate: f64,
    seconds: f64,
    folder: &Path,
) -> Outcome<(Found, Vec<Cell>)> {
    let (before, device) = (running.usage()?, Counters::below(folder));
    let found = Open {
        port: running.port,
        command: COMMAND,
        connections: CONNECTIONS,
        per_second: rate,
        duration: Duration::from_secs_f64(seconds),
        interval: Duration::from_secs_f64(seconds / 20.0),
    }
    .run()?;
    let used = running.usage()?.since(&before);
    let each = |figure: f64| figure / found.latency_ns.len().max(1) as f64;
    let flushes = Counters::below(folder)
        .zip(device)
        .map(|(now, then)| now.since(then).flushes);
    let cells = vec![
        Cell::count(found.per_second),
        Cell::Figure(found.us(0.5), 0),
        Cell::Figure(found.us(0.99), 0),
        Cell::Figure(found.us(0.999), 0),
        Cell::count(found.unanswered as f64),
        Cell::Figure(each(used.cpu_seconds * 1e6), 2),
        Cell::Figure(each(used.write_bytes as f64), 1),
        flushes.map_or_else(
            || Cell::skipped("the kernel counts no such device"),
            |it| Cell::Figure(each(it as f64), 4),
        ),
    ];
    Ok((found, cells))
}
