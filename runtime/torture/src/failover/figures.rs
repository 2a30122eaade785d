//! What each fault cost, and the table of all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

/// One fault.
pub struct Figures {
    pub round: u64,
    pub kind: &'static str,
    pub is_kill: bool,
    pub rules: &'static str,
    /// How long it lasted, until what was done was undone.
    pub lasts: Duration,
    /// From the fault to the first write that was acknowledged in another epoch; `None` if the
    /// writer was not replaced.
    pub first_write: Option<Duration>,
    /// The longest time without an acknowledged write of the hot stock.
    pub gap: Duration,
    /// Operations of buyers that were not executed, or not known to be, within five seconds.
    pub failed: u64,
    pub unknown: u64,
    /// From the end of the fault until all partitions had a writer and two members.
    pub whole: Duration,
    pub scans: u64,
    pub rewritten: u64,
    /// Writes at level replica behind the begin of the fault, until it is over or for two leases,
    /// as a part of those in the same time before it.
    pub ratio: Option<f64>,
    /// Changes of the plan.
    pub changes: u64,
    pub takeovers: u64,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Figures {
    /// One line for programs.
    pub fn json(&self) -> String {
        json!({
            "fault": self.kind,
            "round": self.round,
            "rules": self.rules,
            "lasts_ms": ms(self.lasts),
            "first_write_ms": self.first_write.map(ms),
            "gap_ms": ms(self.gap),
            "failed": self.failed,
            "unknown": self.unknown,
            "whole_ms": ms(self.whole),
            "scans": self.scans,
            "rewritten_keys": self.rewritten,
            "ratio": self.ratio,
            "plan_changes": self.changes,
            "replaced": self.takeovers,
        })
        .to_string()
    }
}

/// The value below which this part of the times lies.
fn part(times: &mut [u64], percent: usize) -> String {
    times.sort_unstable();
    match times.len() {
        0 => "-".into(),
        count => times[(count * percent).div_ceil(100).max(1) - 1].to_string(),
    }
}

/// A row for each kind of fault. Times are milliseconds.
pub fn table(all: &[Figures]) -> String {
    let mut kinds: BTreeMap<&str, Vec<&Figures>> = BTreeMap::new();
    for figures in all {
        kinds.entry(figures.kind).or_default().push(figures);
    }
    let mut text = format!(
        "{:28} {:>4} {:>8} | {:>6} {:>6} {:>6} | {:>6} {:>6} | {:>6} {:>6} | {:>5} {:>5} {:>5}",
        "fault (times in ms)",
        "n",
        "replaced",
        "first",
        "p99",
        "max",
        "gap",
        "p99",
        "whole",
        "max",
        "fail",
        "scans",
        "ratio"
    );
    for (kind, rows) in kinds {
        let of = |time: fn(&Figures) -> Option<Duration>| -> Vec<u64> {
            rows.iter().filter_map(|it| time(it)).map(ms).collect()
        };
        let mut first = of(|it| it.first_write);
        let mut gap = of(|it| Some(it.gap));
        let mut whole = of(|it| Some(it.whole));
        let ratios: Vec<f64> = rows.iter().filter_map(|it| it.ratio).collect();
        let ratio = match ratios.len() {
            0 => "-".into(),
            count => format!("{:.2}", ratios.iter().sum::<f64>() / count as f64),
        };
        let sum = |count: fn(&Figures) -> u64| rows.iter().map(|it| count(it)).sum::<u64>();
        text.push_str(&format!(
            "\n{kind:28} {:4} {:8} | {:>6} {:>6} {:>6} | {:>6} {:>6} | {:>6} {:>6} | {:>5} {:>5} \
             {ratio:>5}",
            rows.len(),
            sum(|it| u64::from(it.takeovers > 0)),
            part(&mut first, 50),
            part(&mut first, 99),
            part(&mut first, 100),
            part(&mut gap, 50),
            part(&mut gap, 99),
            part(&mut whole, 50),
            part(&mut whole, 100),
            sum(|it| it.failed + it.unknown),
            sum(|it| it.scans),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_part_of_times_is_one_of_them() {
        let mut times: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(part(&mut times, 50), "100");
        assert_eq!(part(&mut times, 99), "198");
        assert_eq!(part(&mut times, 100), "200");
        assert_eq!(part(&mut [7], 99), "7");
        assert_eq!(part(&mut [], 99), "-");
    }
}
