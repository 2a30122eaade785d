//! RAM per key whose value is on disk, and of hot counters in memory beside Valkey.

use std::path::PathBuf;

use clap::Args;
use penstock_net::level::AckLevel;

use crate::Outcome;
use crate::report::{Cell, Report, Table};
use crate::scratch::{self, Scratch};
use crate::server::{self, Server};
use crate::valkey::{self, Valkey};
use crate::workload;

const KEY_BYTES: usize = 16;
const COUNTER_BYTES: usize = 8;

#[derive(Args)]
pub struct Options {
    /// Keys whose values are on disk; they take about --value times as much of it.
    #[arg(long, default_value = "10m", value_parser = scratch::quantity)]
    keys: u64,
    /// Bytes of a value on disk.
    #[arg(long, default_value = "1024", value_parser = scratch::bytes)]
    value: u64,
    /// Memory for values while they are on disk.
    #[arg(long, default_value = "64m", value_parser = scratch::bytes)]
    cache: u64,
    /// The server's memory_max while values are on disk, if it has the option.
    #[arg(long, default_value = "512m", value_parser = scratch::bytes)]
    memory_max: u64,
    /// Counters in memory.
    #[arg(long, default_value = "10m", value_parser = scratch::quantity)]
    counters: u64,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

struct Footprint {
    keys: u64,
    cached: u64,
    index_bytes: u64,
    cache_bytes: u64,
    resident_empty: u64,
    resident: u64,
    disk_bytes: u64,
}

pub fn run(options: &Options) -> Outcome<Report> {
    let scratch = Scratch::new(options.dir.as_deref())?;
    let mut report = Report::default();
    cold_keys(options, &scratch, &mut report)?;
    hot_counters(options, &scratch, &mut report)?;
    report.note("Penstock writes a log meanwhile, Valkey runs without persistence");
    Ok(report)
}

/// Keys in memory with their values on disk.
fn cold_keys(options: &Options, scratch: &Scratch, report: &mut Report) -> Outcome<()> {
    let has_memory_max = server::knows("memory-max")?;
    let mut flags = vec!["--cache-bytes".into(), options.cache.to_string()];
    if has_memory_max {
        flags.extend(["--memory-max".into(), options.memory_max.to_string()]);
    }
    let value = workload::value(usize::try_from(options.value)?);
    let cold = footprint(scratch, &flags, options.keys, &value)?;
    let mut table = Table::new(
        format!(
            "{} keys of {KEY_BYTES} B, values of {} B on disk",
            cold.keys, options.value
        ),
        &["what", "bytes", "per key"],
    );
    let keys = cold.keys as f64;
    let mut row = |what: &str, bytes: u64| {
        table.row(vec![
            Cell::text(what),
            Cell::count(bytes as f64),
            Cell::Figure(bytes as f64 / keys, 2),
        ]);
    };
    row("index, by INFO", cold.index_bytes);
    row("value cache, by INFO", cold.cache_bytes);
    row("RSS, empty", cold.resident_empty);
    row("RSS, full", cold.resident);
    row(
        "RSS beyond empty and value cache",
        cold.resident
            .saturating_sub(cold.resident_empty + cold.cache_bytes),
    );
    row("disk", cold.disk_bytes);
    if has_memory_max {
        table.row(vec![
            Cell::text("RSS / memory_max"),
            Cell::count(options.memory_max as f64),
            Cell::ratio(Some(cold.resident as f64), Some(options.memory_max as f64)),
        ]);
    } else {
        table.row(vec![
            Cell::text("RSS / memory_max"),
            Cell::skipped("the server has no option memory_max"),
            Cell::skipped("the server has no option memory_max"),
        ]);
    }
    report.tables.push(table);
    report.note(format!(
        "{} of {} keys were cached at the end",
        cold.cached, cold.keys
    ));
    Ok(())
}

/// Counters that are all in memory, beside Valkey.
fn hot_counters(options: &Options, scratch: &Scratch, report: &mut Report) -> Outcome<()> {
    let mut table = Table::new(
        format!(
            "{} hot counters: key {KEY_BYTES} B, value {COUNTER_BYTES} B, all in memory",
            options.counters
        ),
        &[
            "store",
            "RSS empty",
            "RSS full",
            "bytes per key",
            "ratio to Valkey",
        ],
    );
    let hot_cache = (options.counters * 256).max(64 << 20);
    let flags = ["--cache-bytes".into(), hot_cache.to_string()];
    let ours = footprint(scratch, &flags, options.counters, &0u64.to_le_bytes())?;
    let theirs = match valkey::binary() {
        Ok(binary) => {
            let mut valkey = Valkey::start(&binary, &scratch.fresh("valkey")?)?;
            let empty = valkey.usage()?.resident_bytes;
            valkey.fill(options.counters, KEY_BYTES, &0u64.to_le_bytes())?;
            Ok((
                valkey.version.clone(),
                empty,
                valkey.usage()?.resident_bytes,
            ))
        }
        Err(why) => Err(why),
    };
    let full = theirs.as_ref().ok().map(|(_, _, full)| *full as f64);
    let counters = options.counters as f64;
    table.row(vec![
        Cell::text("Penstock"),
        Cell::count(ours.resident_empty as f64),
        Cell::count(ours.resident as f64),
        Cell::Figure((ours.resident - ours.resident_empty) as f64 / counters, 1),
        Cell::ratio(Some(ours.resident as f64), full),
    ]);
    table.row(match theirs {
        Ok((version, empty, full)) => vec![
            Cell::text(version),
            Cell::count(empty as f64),
            Cell::count(full as f64),
            Cell::Figure((full - empty) as f64 / counters, 1),
            Cell::Figure(1.0, 2),
        ],
        Err(why) => {
            eprintln!("SKIPPED: Valkey: {why}");
            let mut row = vec![Cell::text("Valkey")];
            row.resize(5, Cell::skipped(why));
            row
        }
    });
    report.tables.push(table);
    report.note(format!(
        "{} of {} counters were cached at the end",
        ours.cached, ours.keys
    ));
    Ok(())
}

fn footprint(scratch: &Scratch, flags: &[String], keys: u64, value: &[u8]) -> Outcome<Footprint> {
    let data = scratch.fresh("penstock")?;
    let mut flags = flags.to_vec();
    flags.extend(server::without_prefault()?);
    let server = Server::start(&data, &flags)?;
    let resident_empty = server.usage()?.resident_bytes;
    server::fill(&server, keys, KEY_BYTES, value)?;
    let client = server.client(AckLevel::Disk)?;
    let footprint = Footprint {
        keys: server.counter(&client, "keys")?,
        cached: server.counter(&client, "cached_keys")?,
        index_bytes: server.counter(&client, "index_bytes")?,
        cache_bytes: server.counter(&client, "cache_bytes")?,
        resident_empty,
        resident: server.usage()?.resident_bytes,
        disk_bytes: scratch::disk_bytes(&data),
    };
    server.kill()?;
    scratch::remove(&data)?;
    Ok(footprint)
}
