//! What a run measured, as two numbers, as a table, or as JSON.

use std::collections::BTreeMap;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde_json::json;

use crate::args::{BenchArgs, Workload};
use crate::connection::Account;
use crate::ledger::Ledger;

/// The figures of one run.
pub struct Report {
    pub(crate) args: BenchArgs,
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) account: Account,
    /// What the server's counters rose by during the run, warm-up included.
    pub(crate) server: BTreeMap<String, u64>,
    pub(crate) ledger: Option<Ledger>,
}

const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];
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
    fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    fn us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// Operations of the whole run, to divide the server's counters by.
    fn answered(&self) -> f64 {
        (self.account.acked + self.account.refused).max(1) as f64
    }

    fn title(&self) -> String {
        let name = name_of(&self.args.workload);
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
            "workload": name_of(&self.args.workload),
            "level": name_of(&self.args.level),
            "connections": self.args.connections,
            "depth": self.args.depth,
            "single": self.args.single,
            "value_bytes": self.args.value_bytes,
            "rate": self.args.rate,
            "seconds": self.seconds,
            "operations": self.operations,
            "operations_per_second": self.per_second(),
            "latency_us": quantiles,
            "acked": self.account.acked,
            "refused": self.account.refused,
            "unknown": self.account.unknown,
            "elsewhere": self.account.elsewhere,
            "reconnected": self.account.reconnected,
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
    for report in reports {
        let level = if args.levels {
            format!("level {:9}", name_of(&report.args.level))
        } else {
            String::new()
        };
        println!(
            "{level}{:.0} op/s, p99 {:.0} us",
            report.per_second(),
            report.us(0.99)
        );
        if let Some(ledger) = report.ledger.filter(|_| args.ledger) {
            println!("ledger  {ledger}");
        }
        if args.full {
            table(report);
        }
    }
}

fn table(report: &Report) {
    println!("  {}", report.title());
    println!("  {:<40} {:>14}", "operations measured", report.operations);
    println!("  {:<40} {:>14.2}", "seconds", report.seconds);
    for (name, quantile) in QUANTILES {
        println!(
            "  {:<40} {:>11.1} us",
            format!("latency {name}"),
            report.us(quantile)
        );
    }
    println!("  {:<40} {:>14}", "refused", report.account.refused);
    println!("  {:<40} {:>14}", "unknown", report.account.unknown);
    if report.args.workload != Workload::Echo {
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
