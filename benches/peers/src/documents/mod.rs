//! Documents as JSON text, as binary JSON and as layouts: time, bytes, allocations and bytes in the
//! log of a store, over six shapes.

mod forms;
mod probe;
mod shapes;

use std::path::PathBuf;

use clap::Args;
use penstock::{Local, Penstock, Verbs};
use penstock_client::{Ask, Expiry, When};
use penstock_net::level::AckLevel;

use crate::Outcome;
use crate::chart::{Axis, Chart, Series};
use crate::pairs::{Ratio, median};
use crate::report::{Cell, Report, Table};
use crate::scratch::Scratch;
use forms::{FORMS, Form};
use probe::{Figures, Probe};
use shapes::Shape;

/// Documents that are inserted for the bytes in the log.
const INSERTS: usize = 20;
/// A binary form wins clearly if it is that much better in each of `MEASURES`, in each shape.
const CLEARLY: f64 = 1.2;
/// The measures that decide, by their columns.
const MEASURES: [&str; 5] = ["encode", "decode", "one field", "bytes", "log of 20"];

#[derive(Args, Clone)]
pub struct Options {
    /// Rounds, in which the forms take turns.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Of each of encode, decode and one field, in each form, shape and round.
    #[arg(long, default_value_t = 0.02)]
    seconds: f64,
    /// Three short rounds.
    #[arg(long)]
    pub quick: bool,
    /// Where the scratch folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What the rounds found of one shape in one form.
struct Found {
    form: Form,
    /// By encode, decode, one field: nanoseconds of each round.
    ns: [Vec<f64>; 3],
    allocations: [u64; 3],
    bytes: f64,
    log: Log,
}

/// What the inserts of one form added to a store.
#[derive(Clone, Copy, Default)]
struct Log {
    record_bytes: f64,
    device_bytes: f64,
}

pub fn run(options: &Options) -> Outcome<Report> {
    let (rounds, seconds) = match options.quick {
        true => (3, options.seconds.min(0.002)),
        false => (options.rounds, options.seconds),
    };
    let probe = Probe { seconds };
    let scratch = Scratch::new(options.dir.as_deref())?;
    let level = penstock::Options::default().level(AckLevel::Disk);
    let mut store = Penstock::open_local(scratch.fresh("store")?, level)?;
    // What a new log writes with its first record belongs to no form.
    store.set(b"warm", b"up")?;
    let mut report = Report::default();
    let mut shapes = Vec::new();
    for shape in shapes::all() {
        let found = measure(&shape, &probe, rounds, &mut store)?;
        report.tables.push(table(&shape, &found));
        shapes.push((shape, found));
    }
    store.close()?;
    let binary = [Form::MessagePack, Form::JsonbByText, Form::Jsonb];
    let mut summary = Table::new(
        "JSON text / this form, so above 1 this form is better: median of the shapes (least.. \
         greatest)",
        &[&["form", "beside"][..], &MEASURES, &["wins clearly"]].concat(),
    );
    for form in binary {
        summary.row(summarized(form, Form::Text, &shapes));
    }
    summary.row(summarized(Form::Layout, Form::TextOfStruct, &shapes));
    report.tables.push(summary);
    report.charts.push(chart(&shapes));
    notes(&mut report, rounds);
    Ok(report)
}

fn notes(report: &mut Report, rounds: u64) {
    report.note(format!(
        "medians of {rounds} rounds, in which the forms take turns"
    ));
    report.note(
        "one field: a number in the middle of the document; of JSON text and MessagePack by \
         passing over all else, without a tree",
    );
    report.note(
        "decode: a tree or struct of which every field can be read; jsonb into its own tree, which \
         borrows texts; of a layout the check of the bytes and of every text",
    );
    report.note("blocks: asked of the heap by one encode, one decode, one field; counted exactly");
    report.note(format!(
        "log of {INSERTS}: bytes of {INSERTS} records in the log of a store in this process, keys \
         of 16 B, level disk, as INFO counts them; device: bytes of the frames that carried them, \
         padded to blocks, all {INSERTS} asked at once"
    ));
    report.note(format!(
        "wins clearly: at least {CLEARLY} x better in each of these five, in each shape"
    ));
    report.note("an allocation counter is linked in, which costs each allocation about 2 ns");
}

fn measure(shape: &Shape, probe: &Probe, rounds: u64, store: &mut Local) -> Outcome<Vec<Found>> {
    let mut all: Vec<Found> = Vec::new();
    for round in 0..rounds {
        for form in FORMS {
            let Some(figures) = form.measure(shape, probe) else {
                continue;
            };
            let named = |error| format!("{}, {}: {error}", shape.name, form.name());
            let figures = figures.map_err(named)?;
            if round == 0 {
                all.push(Found::new(
                    form,
                    &figures,
                    insert(store, form, &figures.encoded)?,
                ));
            }
            let found = all.iter_mut().find(|it| it.form == form);
            found.ok_or("it was in the first round")?.add(&figures)?;
        }
    }
    Ok(all)
}

impl Found {
    fn new(form: Form, figures: &Figures, log: Log) -> Found {
        Found {
            form,
            ns: Default::default(),
            allocations: figures.allocations,
            bytes: figures.encoded.len() as f64,
            log,
        }
    }

    /// Takes in a round.
    ///
    /// # Errors
    /// If it asked the heap for another number of blocks than the first: the count is not exact.
    fn add(&mut self, figures: &Figures) -> Outcome<()> {
        if self.allocations != figures.allocations {
            let (name, first) = (self.form.name(), self.allocations);
            let now = figures.allocations;
            return Err(
                format!("{name}: {first:?} blocks in one round, {now:?} in another").into(),
            );
        }
        for (list, ns) in self.ns.iter_mut().zip(figures.ns) {
            list.push(ns);
        }
        Ok(())
    }

    /// How much better it is than another, for each of `MEASURES`.
    fn beside(&self, other: &Found) -> Outcome<[f64; 5]> {
        let time = |at: usize| {
            let ratio = Ratio::paired(&other.ns[at], &self.ns[at]);
            ratio.map(|it| it.median).ok_or("a time of 0")
        };
        Ok([
            time(0)?,
            time(1)?,
            time(2)?,
            other.bytes / self.bytes,
            other.log.record_bytes / self.log.record_bytes,
        ])
    }
}

/// Inserts a document under new keys, and tells what that added to the log.
fn insert(store: &mut Local, form: Form, document: &[u8]) -> Outcome<Log> {
    let before = Log::of(store)?;
    let keys: Vec<String> = (0..INSERTS).map(|at| format!("document:{at:07}")).collect();
    let asks: Vec<Ask<'_>> = keys
        .iter()
        .map(|key| Ask::Set {
            key: key.as_bytes(),
            value: document,
            when: When::default(),
            expiry: Expiry::Never,
        })
        .collect();
    for outcome in store.submit(&asks) {
        outcome?.ok()?;
    }
    let after = Log::of(store)?;
    for key in &keys {
        let read = store.get_with(key.as_bytes(), |value, _| value == document)?;
        if read != Some(true) {
            return Err(format!("{}: {key} is not what was inserted", form.name()).into());
        }
    }
    Ok(Log {
        record_bytes: after.record_bytes - before.record_bytes,
        device_bytes: after.device_bytes - before.device_bytes,
    })
}

impl Log {
    fn of(store: &mut Local) -> Outcome<Log> {
        let info: serde_json::Value = serde_json::from_str(&store.info()?)?;
        let counter = |name: &str| {
            let counted = info["counters"][name].as_f64();
            counted.ok_or_else(|| format!("INFO tells no {name}"))
        };
        Ok(Log {
            record_bytes: counter("record_bytes")?,
            device_bytes: counter("device_bytes")?,
        })
    }
}

fn table(shape: &Shape, all: &[Found]) -> Table {
    let mut table = Table::new(
        format!(
            "{}: ns, bytes, and blocks of the heap (encode / decode / one field)",
            shape.name
        ),
        &[
            "form",
            "encode",
            "decode",
            "one field",
            "bytes",
            "blocks",
            "log of 20",
            "device",
        ],
    );
    for form in FORMS {
        let mut cells = vec![Cell::text(form.name())];
        match all.iter().find(|it| it.form == form) {
            Some(found) => {
                let middle = |at: usize| Cell::Figure(median(&mut found.ns[at].clone()), 1);
                let [encode, decode, field] = found.allocations;
                cells.extend([middle(0), middle(1), middle(2), Cell::count(found.bytes)]);
                cells.push(Cell::text(format!("{encode} / {decode} / {field}")));
                let Log {
                    record_bytes,
                    device_bytes,
                } = found.log;
                cells.extend([Cell::count(record_bytes), Cell::count(device_bytes)]);
            }
            None => cells.resize(8, Cell::skipped("a struct has a fixed number of elements")),
        }
        table.row(cells);
    }
    table
}

/// One row of the summary: a form beside another over all shapes that both can have.
fn summarized(form: Form, other: Form, shapes: &[(Shape, Vec<Found>)]) -> Vec<Cell> {
    let of = |all: &[Found], wanted: Form| all.iter().position(|it| it.form == wanted);
    let ratios: Vec<[f64; 5]> = shapes
        .iter()
        .filter_map(|(_, all)| all[of(all, form)?].beside(&all[of(all, other)?]).ok())
        .collect();
    let mut cells = vec![Cell::text(form.name()), Cell::text(other.name())];
    for at in 0..MEASURES.len() {
        let mut figures: Vec<f64> = ratios.iter().map(|it| it[at]).collect();
        let middle = median(&mut figures);
        let (least, greatest) = (figures[0], figures[figures.len() - 1]);
        cells.push(Cell::text(format!(
            "{middle:.2} ({least:.2}..{greatest:.2})"
        )));
    }
    let wins = ratios.iter().filter(|it| wins(it)).count();
    cells.push(Cell::text(format!("in {wins} of {} shapes", ratios.len())));
    cells
}

fn wins(ratios: &[f64; 5]) -> bool {
    ratios.iter().all(|ratio| *ratio >= CLEARLY)
}

/// Encode and decode together, by shape.
fn chart(shapes: &[(Shape, Vec<Found>)]) -> Chart {
    let series = FORMS.into_iter().map(|form| Series {
        name: form.name().into(),
        points: shapes
            .iter()
            .enumerate()
            .filter_map(|(group, (_, all))| {
                let found = all.iter().find(|it| it.form == form)?;
                let time = |at: usize| median(&mut found.ns[at].clone());
                Some((group as f64, time(0) + time(1)))
            })
            .collect(),
    });
    Chart {
        title: "encode and decode, ns".into(),
        below: String::new(),
        beside: "ns".into(),
        axis: Axis::Groups(shapes.iter().map(|(shape, _)| shape.name.into()).collect()),
        is_by_powers: true,
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserts_add_their_documents_and_no_more_than_a_head_each_to_the_log() {
        let scratch = Scratch::new(None).unwrap();
        let options = penstock::Options::default().level(AckLevel::Disk);
        let mut store = Penstock::open_local(scratch.fresh("store").unwrap(), options).unwrap();
        let short = insert(&mut store, Form::Text, &[b'x'; 100]).unwrap();
        let long = insert(&mut store, Form::Text, &[b'x'; 180]).unwrap();
        assert_eq!(
            long.record_bytes - short.record_bytes,
            (INSERTS * 80) as f64
        );
        let own = (INSERTS * (100 + 16)) as f64;
        assert!(
            (own..own * 2.0).contains(&short.record_bytes),
            "{}",
            short.record_bytes
        );
        assert!(short.device_bytes >= short.record_bytes);
    }

    #[test]
    fn a_form_wins_only_if_no_measure_is_near_or_worse() {
        assert!(wins(&[1.2, 3.0, 9.0, 1.5, 1.3]));
        assert!(!wins(&[1.1, 3.0, 9.0, 1.5, 1.3]));
        assert!(!wins(&[2.0, 3.0, 9.0, 1.5, 0.7]));
    }
}
