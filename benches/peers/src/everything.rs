//! All comparisons in one run.

use std::time::Instant;

use clap::Args;

use crate::Outcome;
use crate::report::{Cell, Report, Table};

#[derive(Args, Clone)]
pub struct Options {
    /// Small sizes and short rounds: some ten minutes in all.
    #[arg(long)]
    pub quick: bool,
}

/// The command lines, those first that others are compared by. The second half of a pair is for
/// `--quick`.
const LINES: [(&str, &str); 12] = [
    ("resp", "resp --quick"),
    ("sql", "sql --quick"),
    ("bulk", "bulk --quick"),
    ("product", "product --quick"),
    ("documents", "documents --quick"),
    ("values", "values --values 1k"),
    ("memory", "memory --keys 50k --counters 50k"),
    (
        "grow --keys 10k,1m,10m",
        "grow --keys 10k,100k --seconds 0.2",
    ),
    ("cold", "cold --memory 8m --seconds 0.5"),
    ("cleaning", "cleaning --keys 20k"),
    ("restart", "restart --keys 20k"),
    (
        "engines",
        "engines --keys 1k --seconds 0.05 --restart-keys 2k",
    ),
];

/// Runs each line by `one`. What fails is listed with its reason, and the rest runs.
pub fn run(options: &Options, mut one: impl FnMut(&[&str]) -> Outcome<Report>) -> Outcome<Report> {
    let mut report = Report::default();
    let mut table = Table::new("what ran", &["cargo peers", "seconds", "how it ended"]);
    for (whole, quick) in LINES {
        let line = if options.quick { quick } else { whole };
        eprintln!("== cargo peers {line}");
        let began = Instant::now();
        let outcome = one(&line.split(' ').collect::<Vec<_>>());
        let ended = match &outcome {
            Ok(_) => Cell::text("complete"),
            Err(why) => Cell::skipped(why),
        };
        let seconds = began.elapsed().as_secs_f64();
        table.row(vec![Cell::text(line), Cell::Figure(seconds, 0), ended]);
        match outcome {
            Ok(mut found) => {
                let name = line.split(' ').next().unwrap_or(line);
                for table in &mut found.tables {
                    table.title = format!("{name}: {}", table.title);
                }
                for note in &mut found.notes {
                    *note = format!("{name}: {note}");
                }
                report.add(found);
            }
            Err(why) => eprintln!("SKIPPED: {line}: {why}"),
        }
    }
    report.tables.insert(0, table);
    // As numbers, so that 10 stands behind 9.
    report
        .goals
        .sort_by_key(|goal| (goal.number.len(), goal.number));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_is_listed_with_its_reason_and_the_others_run() {
        let mut asked = Vec::new();
        let report = run(&Options { quick: true }, |line| {
            asked.push(line.join(" "));
            match line[0] {
                "sql" => Err("no postgres here".into()),
                name => {
                    let mut report = Report::default();
                    report.tables.push(Table::new("rates", &["server"]));
                    report.note(format!("of {name}"));
                    Ok(report)
                }
            }
        })
        .unwrap();
        assert_eq!(asked.len(), LINES.len());
        assert_eq!(report.tables[0].rows[1][2].why(), Some("no postgres here"));
        assert_eq!(report.tables[1].title, "resp: rates");
        assert_eq!(
            report.tables.len(),
            LINES.len(),
            "all but one, and what ran"
        );
        assert!(report.notes.contains(&"bulk: of bulk".to_string()));
    }
}
