//! What a run measured, as two numbers, as a table, or as JSON.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::SystemTime;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use penstock_net::level::AckLevel;
use serde_json::json;

use crate::args::{BenchArgs, Workload};
use crate::connection::{Account, LEVELS};
use crate::host::host;
use crate::ledger::Ledger;
use crate::series::{Interval, QUANTILES};

/// The figures of one run, or of several of one level that took turns with others.
pub struct Report {
    pub(crate) args: BenchArgs,
    /// When the first run ended.
    pub(crate) date: SystemTime,
    pub(crate) seconds: f64,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) intervals: Vec<Interval>,
    /// Operations per second of each run, if there were several.
    pub(crate) rounds: Vec<f64>,
    pub(crate) account: Account,
    /// What the server's counters rose by during the run, warm-up included.
    pub(crate) server: BTreeMap<String, u64>,
    pub(crate) ledger: Option<Ledger>,
}

/// The level that promises least of those that were told, by their codes.
fn lowest(counts: &[u64; LEVELS]) -> Option<AckLevel> {
    let counts = (0..).zip(counts).filter(|&(_, &count)| count > 0);
    counts
        .filter_map(|(code, _)| AckLevel::from_code(code))
        .min()
}

/// What to know of a level that was asked for, if another one was reached.
fn other_level(asked: AckLevel, reached: AckLevel) -> Option<String> {
    let (asks, reaches) = (asked.name(), reached.name());
    let figures = format!("these are the figures of {reaches}");
    match reached.cmp(&asked) {
        Ordering::Equal => None,
        Ordering::Less => Some(format!(
            "level {asks} was asked for, and {reaches} was reached, because no other node may \
             write next: {figures}",
        )),
        Ordering::Greater if asked < AckLevel::Disk => Some(format!(
            "level {asks} was asked for, and the server raised it to {reaches}: {figures}. \
             `penstock serve --durability {asks}` lets it be less",
        )),
        Ordering::Greater => Some(format!(
            "level {asks} was asked for, and the server raised it to {reaches}, the least level of \
             the keyspace: {figures}",
        )),
    }
}

/// Counters that are worth a line per operation.
const PER_OPERATION: [(&str, &str); 6] = [
    ("storage_enters", "io_uring_enter of the storage ring"),
    ("turns", "turns of the loop"),
    ("flushes", "flushes of the device"),
    ("device_bytes", "bytes written to the device"),
    ("record_bytes", "bytes of log records"),
    ("reads", "device reads"),
];

impl Report {
    fn operations(&self) -> u64 {
        self.latency_ns.len()
    }

    fn per_second(&self) -> f64 {
        self.operations() as f64 / self.seconds
    }

    /// Takes in another run of the same level.
    pub(crate) fn add(&mut self, other: Report, round: u32) {
        if self.rounds.is_empty() {
            self.rounds.push(self.per_second());
        }
        self.rounds.push(other.per_second());
        self.seconds += other.seconds;
        self.latency_ns
            .add(&other.latency_ns)
            .expect("the same bounds");
        let intervals = other.intervals.into_iter();
        self.intervals
            .extend(intervals.map(|it| Interval { round, ..it }));
        self.account = self.account.plus(other.account);
        for (name, value) in other.server {
            *self.server.entry(name).or_default() += value;
        }
    }

    /// The level that promises least of those that answers told. `None` if nothing was answered
    /// that has one, as of an echo.
    fn level_reached(&self) -> Option<AckLevel> {
        lowest(&self.account.levels)
    }

    /// What to know if the server gave another level than was asked for.
    pub(crate) fn raised(&self) -> Option<String> {
        other_level(self.args.level.wire(), self.level_reached()?)
    }

    /// The share of the operations that was shed, if any was.
    fn shed(&self) -> String {
        let shed = self.account.shed as f64;
        let asked = shed + (self.account.acked + self.account.refused) as f64;
        match self.account.shed {
            0 => String::new(),
            _ => format!(", {:.1} % shed", 100.0 * shed / asked),
        }
    }

    fn us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// Operations of the whole run, to divide the server's counters by.
    fn answered(&self) -> f64 {
        (self.account.acked + self.account.refused).max(1) as f64
    }

    fn title(&self) -> String {
        let name = name_of(&self.args.workload());
        let loop_kind = self
            .args
            .rate
            .map_or("closed loop".into(), |rate| format!("{rate} op/s due"));
        format!(
            "{name}, {} connections, depth {}, {loop_kind}",
            self.args.connections, self.args.depth
        )
    }

    fn json(&self) -> serde_json::Value {
        let quantiles: serde_json::Map<_, _> = QUANTILES
            .iter()
            .map(|(name, quantile)| ((*name).to_string(), json!(self.us(*quantile))))
            .collect();
        json!({
            "workload": name_of(&self.args.workload()),
            "level": name_of(&self.args.level),
            "level_reached": self.level_reached().map(AckLevel::name),
            "date": humantime::format_rfc3339_seconds(self.date).to_string(),
            "version": env!("CARGO_PKG_VERSION"),
            "host": host(),
            "seed": self.args.seed,
            "keys": self.args.keys,
            "duration": self.args.duration,
            "warmup": self.args.warmup,
            "connections": self.args.connections,
            "depth": self.args.depth,
            "single": self.args.single,
            "value_bytes": self.args.value_bytes,
            "rate": self.args.rate,
            "seconds": self.seconds,
            "operations": self.operations(),
            "operations_per_second": self.per_second(),
            "latency_us": quantiles,
            "acked": self.account.acked,
            "refused": self.account.refused,
            "shed": self.account.shed,
            "unknown": self.account.unknown,
            "unanswered": self.account.unanswered,
            "elsewhere": self.account.elsewhere,
            "reconnected": self.account.reconnected,
            "rounds": self.rounds,
            "series": self.intervals.iter().map(series_json).collect::<Vec<_>>(),
            "histogram_ns": self.latency_ns.iter_recorded()
                .map(|it| (it.value_iterated_to(), it.count_at_value()))
                .collect::<Vec<_>>(),
            "server": self.server,
            "ledger": self.ledger.map(|ledger| json!({
                "initial": ledger.initial,
                "left": ledger.left,
                "sold": ledger.sold(),
                "missing": ledger.missing(),
                "is_balanced": ledger.is_balanced(),
            })),
        })
    }
}

pub(crate) fn series_json(interval: &Interval) -> serde_json::Value {
    let quantiles: serde_json::Map<_, _> = QUANTILES
        .iter()
        .zip(interval.latency_us)
        .map(|((name, _), us)| ((*name).to_string(), json!(us)))
        .collect();
    json!({
        "round": interval.round,
        "from": interval.from,
        "to": interval.to,
        "operations": interval.operations,
        "operations_per_second": interval.operations as f64 / (interval.to - interval.from),
        "latency_us": quantiles,
    })
}

fn name_of(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or(String::new(), |value| value.get_name().to_string())
}

/// Prints the reports of one command.
pub(crate) fn print(args: &BenchArgs, reports: &[Report]) {
    if args.json {
        let all: Vec<_> = reports.iter().map(Report::json).collect();
        println!(
            "{}",
            if args.levels {
                json!(all)
            } else {
                all.into_iter().next().unwrap_or_default()
            }
        );
        return;
    }
    if args.csv {
        // A reader that has seen enough closes the pipe.
        let _ = csv(reports, &mut std::io::stdout().lock());
        return;
    }
    for report in reports {
        let level = if args.levels {
            format!("level {:9}", name_of(&report.args.level))
        } else {
            String::new()
        };
        println!(
            "{level}{:.0} op/s, p99 {:.0} us{}{}",
            report.per_second(),
            report.us(0.99),
            spread(&report.rounds),
            report.shed()
        );
        if let Some(ledger) = report.ledger.filter(|_| args.ledger) {
            println!("ledger  {ledger}");
        }
        if args.full {
            table(report);
        }
    }
}

/// Between which rates the rounds were.
fn spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().reduce(f64::min);
    let most = rounds.iter().copied().reduce(f64::max);
    match (least, most) {
        (Some(least), Some(most)) => {
            let count = rounds.len();
            format!(", {count} rounds of {least:.0} to {most:.0} op/s")
        }
        _ => String::new(),
    }
}

/// The time series: a line for each interval of each report.
fn csv(reports: &[Report], out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "workload,level,level_reached,connections,depth,value_bytes,keys,seed,round,from_s,to_s,operations,\
         operations_per_second,p50_us,p90_us,p99_us,p99.9_us,max_us"
    )?;
    for report in reports {
        let args = &report.args;
        for interval in &report.intervals {
            let per_second = interval.operations as f64 / (interval.to - interval.from);
            write!(
                out,
                "{},{},{},{},{},{},{},{},{},{:.3},{:.3},{},{per_second:.1}",
                name_of(&args.workload()),
                name_of(&args.level),
                report.level_reached().map_or("", AckLevel::name),
                args.connections,
                args.depth,
                args.value_bytes,
                args.keys,
                args.seed,
                interval.round,
                interval.from,
                interval.to,
                interval.operations,
            )?;
            for us in interval.latency_us {
                write!(out, ",{us:.1}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn table(report: &Report) {
    println!("  {}", report.title());
    println!(
        "  {:<40} {:>14}",
        "operations measured",
        report.operations()
    );
    let level = report.level_reached().map_or("none", AckLevel::name);
    println!("  {:<40} {:>14}", "level reached", level);
    println!("  {:<40} {:>14.2}", "seconds", report.seconds);
    for (name, quantile) in QUANTILES {
        println!(
            "  {:<40} {:>11.1} us",
            format!("latency {name}"),
            report.us(quantile)
        );
    }
    println!("  {:<40} {:>14}", "refused", report.account.refused);
    println!("  {:<40} {:>14}", "shed", report.account.shed);
    println!("  {:<40} {:>14}", "unknown", report.account.unknown);
    println!(
        "  {:<40} {:>14}",
        "unanswered at the end", report.account.unanswered
    );
    if !matches!(report.args.workload(), Workload::Echo | Workload::EchoItems) {
        for (counter, meaning) in PER_OPERATION {
            if let Some(value) = report.server.get(counter) {
                println!(
                    "  {:<40} {:>14.4}",
                    format!("{meaning} per operation"),
                    *value as f64 / report.answered()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_reached_is_the_one_that_promises_least_whatever_its_code() {
        let lowest_of = |levels: &[AckLevel]| {
            let mut counts = [0; LEVELS];
            for level in levels {
                counts[usize::from(level.code())] += 1;
            }
            lowest(&counts)
        };
        assert_eq!(lowest_of(&[]), None);
        assert_eq!(lowest_of(&[AckLevel::All]), Some(AckLevel::All));
        let both = [AckLevel::Replica, AckLevel::All];
        assert_eq!(lowest_of(&both), Some(AckLevel::All));
        let ended = [AckLevel::All, AckLevel::Disk, AckLevel::All];
        assert_eq!(lowest_of(&ended), Some(AckLevel::Disk));
    }

    #[test]
    fn another_level_than_was_asked_for_is_reported_with_its_reason() {
        let reason_of = |asked, reached| other_level(asked, reached).unwrap_or_default();
        assert_eq!(reason_of(AckLevel::All, AckLevel::All), "");
        let alone = reason_of(AckLevel::All, AckLevel::Disk);
        assert!(alone.contains("no other node may write next"), "{alone}");
        let raised = reason_of(AckLevel::Disk, AckLevel::All);
        assert!(raised.contains("raised it to all, the least"), "{raised}");
        let served = reason_of(AckLevel::None, AckLevel::Disk);
        assert!(served.contains("--durability none"), "{served}");
    }
}
