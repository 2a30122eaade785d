//! The program that GrausDB is shown with, beside GrausDB: a product is read and one unit is sold,
//! twenty thousand times; then a product of eleven fields is read a million times, as its bytes and
//! as JSON.

mod reads;
mod sales;

use std::path::PathBuf;

use clap::Args;

use crate::Outcome;
use crate::goal::{Found, Goal, Wanted};
use crate::pairs::{Ratio, median};
use crate::report::{Cell, Report, Table};
use crate::scratch::Scratch;
use reads::{READERS, Reader};
use sales::{Machine, SALES, Sale, Seller};

#[derive(Args, Clone)]
pub struct Options {
    /// Rounds, in which the programs take turns.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Reads and sales that the pipelined program has under way, at most.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=8000))]
    window: u64,
    /// Reads of the second program.
    #[arg(long, default_value = "1m", value_parser = crate::scratch::quantity)]
    reads: u64,
    /// Three rounds, and a tenth of the reads.
    #[arg(long)]
    pub quick: bool,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub fn run(options: &Options) -> Outcome<Report> {
    let (rounds, reads) = match options.quick {
        true => (3, (options.reads / 10).max(1)),
        false => (options.rounds, options.reads),
    };
    let scratch = Scratch::new(options.dir.as_deref())?;
    let mut report = Report::default();
    sell(
        &mut report,
        &scratch,
        rounds,
        usize::try_from(options.window)?,
    )?;
    read(&mut report, &scratch, rounds, reads)?;
    report.note(format!(
        "medians of {rounds} rounds, in which the programs take turns, the order turned round each \
         time; ratios are medians of the ratios of one round"
    ));
    report.note(
        "GrausDB's program is its author's: musli-zerocopy, a get and a check of the name, \
         update_if without a predicate, which at no stock would answer OK all the same. Penstock's \
         sale has the guard that one unit is there",
    );
    report.note(
        "durable: the sale is on the device when it is answered. GrausDB has handed it to the \
         kernel, and never syncs",
    );
    report.note(format!(
        "pipelined: one thread and one client, {} pairs of a read and a sale under way at most; \
         each read is checked to show the stock that the sales before it left",
        options.window
    ));
    report.note("an allocation counter is linked in, which costs each allocation about 2 ns");
    Ok(report)
}

fn sell(report: &mut Report, scratch: &Scratch, rounds: u64, window: usize) -> Outcome<()> {
    let machine = Machine::start(scratch, window)?;
    let mut found: Vec<(Seller, Vec<Sale>)> =
        Seller::ALL.into_iter().map(|it| (it, Vec::new())).collect();
    for round in 0..rounds {
        let mut turn = |(seller, sales): &mut (Seller, Vec<Sale>)| -> Outcome<()> {
            sales.push(machine.sell(*seller)?);
            Ok(())
        };
        match round % 2 {
            0 => found.iter_mut().try_for_each(&mut turn)?,
            _ => found.iter_mut().rev().try_for_each(&mut turn)?,
        }
    }
    let us = |sales: &[Sale]| -> Vec<f64> {
        let each = sales.iter().map(|it| it.seconds * 1e6 / f64::from(SALES));
        each.collect()
    };
    let theirs = us(&found[0].1);
    let mut table = Table::new(
        format!("{SALES} x read and sell one of a product: us of one such pair"),
        &[
            "program",
            "us",
            "least..greatest",
            "GrausDB / this",
            "spread",
            "durable writes",
            "CPU us, this process",
            "CPU us, server",
        ],
    );
    for (seller, sales) in &found {
        let mut own = us(sales);
        let ratio = Ratio::paired(&theirs, &own).ok_or("a time of 0")?;
        let mean = |of: fn(&Sale) -> f64| sales.iter().map(of).sum::<f64>() / rounds as f64;
        let middle = median(&mut own);
        table.row(vec![
            Cell::text(seller.name()),
            Cell::Figure(middle, 2),
            Cell::text(format!("{:.2}..{:.2}", own[0], own[own.len() - 1])),
            Cell::Figure(ratio.median, 2),
            Cell::text(format!("{:.2}..{:.2}", ratio.least, ratio.greatest)),
            Cell::count(mean(|it| it.flushes)),
            Cell::Figure(mean(|it| it.cpu_seconds) * 1e6 / f64::from(SALES), 2),
            Cell::Figure(mean(|it| it.server_cpu_seconds) * 1e6 / f64::from(SALES), 2),
        ]);
        if seller.is_over_tcp() {
            let rates = |us: &[f64]| us.iter().map(|it| 1e6 / it).collect::<Vec<f64>>();
            report.goals.push(Goal {
                number: "9",
                what: format!("read and sell one: {}", seller.name()),
                unit: "pairs/s",
                wanted: Wanted::AtLeast(2.0),
                found: Found::of(&rates(&us(sales)), &rates(&theirs)),
                remark: format!(
                    "{:.0} durable writes; CPU {:.2} us a pair here, {:.2} in the server",
                    mean(|it| it.flushes),
                    mean(|it| it.cpu_seconds) * 1e6 / f64::from(SALES),
                    mean(|it| it.server_cpu_seconds) * 1e6 / f64::from(SALES),
                ),
            });
        }
    }
    report.tables.push(table);
    Ok(())
}

fn read(report: &mut Report, scratch: &Scratch, rounds: u64, reads: u64) -> Outcome<()> {
    let mut readers = Reader::all(scratch)?;
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); readers.len()];
    for round in 0..rounds {
        let mut turn = |at: usize| -> Outcome<()> {
            let seconds = readers[at].read(reads)?.as_secs_f64();
            ns[at].push(seconds * 1e9 / reads as f64);
            Ok(())
        };
        match round % 2 {
            0 => (0..READERS).try_for_each(&mut turn)?,
            _ => (0..READERS).rev().try_for_each(&mut turn)?,
        }
    }
    let mut table = Table::new(
        format!("{reads} x get and read all 11 fields of a product: ns of one"),
        &[
            "store",
            "as its bytes",
            "as JSON",
            "JSON / bytes",
            "spread",
            "bytes",
            "JSON bytes",
        ],
    );
    for pair in (0..readers.len()).step_by(2) {
        let ratio = Ratio::paired(&ns[pair + 1], &ns[pair]).ok_or("a time of 0")?;
        let middle = |at: usize| Cell::Figure(median(&mut ns[at].clone()), 1);
        table.row(vec![
            Cell::text(readers[pair].store_name()),
            middle(pair),
            middle(pair + 1),
            Cell::Figure(ratio.median, 2),
            Cell::text(format!("{:.2}..{:.2}", ratio.least, ratio.greatest)),
            Cell::count(readers[pair].value_bytes() as f64),
            Cell::count(readers[pair + 1].value_bytes() as f64),
        ]);
    }
    let rates = |at: usize| ns[at].iter().map(|it| 1e9 / it).collect::<Vec<f64>>();
    report.goals.push(Goal {
        number: "10",
        what: format!("{reads} reads of a layout beside serde_json"),
        unit: "reads/s",
        wanted: Wanted::AtLeast(1.9),
        found: Found::of(&rates(0), &rates(1)),
        remark: "both from a Penstock store on the caller's thread".into(),
    });
    report.tables.push(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reader_finds_all_fields_of_the_same_product() {
        let scratch = Scratch::new(None).unwrap();
        // `read` fails if the sum of the fields is another than that of the product.
        for mut reader in Reader::all(&scratch).unwrap() {
            reader.read(3).unwrap();
        }
    }
}
