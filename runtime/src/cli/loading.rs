//! `penstock load`: rows of a file become keys and values.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use penstock_client::{Changed, Client, ClientError, Condition, Pending, Verbs};
use penstock_net::limits::{KEY_BYTES_MAX, VALUE_BYTES_HARD_MAX};
use penstock_net::status::Status;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::layout_value::{ValueWriter, bytes_of};
use super::output::{Output, count};
use super::rows::{Columns, Format, Row, Rows};
use super::server::{ServerAddress, failure_of};
use super::values::{Level, check_mark};
use super::{EXIT_CODES, Failure};

/// Rows that are sent and not answered, at most.
const ROWS_UNDER_WAY_MAX: usize = 1024;
/// Bytes of keys and values that are sent and not answered; one row may be more.
const BYTES_UNDER_WAY_MAX: usize = 8 << 20;

const LOAD_EXAMPLES: &str = "\
A key is written only if it does not exist. So a load that was interrupted is run again: what is
there with the value of its row counts as loaded. What is there with another value stays as it is,
is counted, and makes the exit code 1. --overwrite replaces it.

A row that does not fit ends the load, and is named by file, line, column and value. The rows
before it are loaded and counted. --check goes on and names the first 20 of such rows.

Without --layout and --as the value is the text of one column. Otherwise each field has its column:
true or false for a bool, a text for bytes. Keys, values and bytes that begin with 0x are
hexadecimal digits. Of JSON, {\"buyer\":{\"bought\":1}} has the column buyer.bought, and an array
sizes[0], sizes[1].

Examples:
  penstock load stock.csv --prefix stock: --key-column sku --layout 'units:u32@0;sold:u32@4;=8'
  penstock load stock.csv --prefix stock: --as Stock --schema deploy/programs
  penstock load prices.jsonl --overwrite
  penstock load products.csv --check                   reads all rows and writes none
  zcat all.csv.gz | penstock load - --format csv";

/// Rows that do not fit that a check names.
const MISFITS_SHOWN_MAX: u64 = 20;

/// Arguments of `penstock load`.
#[derive(Args)]
#[command(after_help = format!("{LOAD_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct LoadArgs {
    /// CSV with a header, or JSON lines; - is standard input
    file: PathBuf,
    /// How the rows are written; without it the end of the file's name decides
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    columns: Columns,
    /// What stands before each key
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Write keys that exist, too
    #[arg(long)]
    overwrite: bool,
    /// Begin with this line of the file
    #[arg(long, value_name = "N", default_value_t = 1)]
    from_line: u64,
    /// Read all rows and write none
    #[arg(long)]
    check: bool,
    /// How durable each row must be before it counts
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    server: ServerAddress,
}

impl LoadArgs {
    /// Loads the file.
    pub fn run(mut self) -> Result<(), Failure> {
        self.columns.find_layout(&self.server)?;
        let file = self.file.display().to_string();
        let format = self.format.or_else(|| Format::of_file(&self.file));
        let format = format.ok_or_else(|| {
            Failure::usage(format_args!(
                "{file}: --format csv or --format jsonl must say what it is"
            ))
        })?;
        let cannot = |error| Failure::usage(format_args!("cannot read {file}: {error}"));
        match self.file.as_os_str() == "-" {
            true => self.load(std::io::stdin().lock(), None, format, "standard input"),
            false => {
                let input = File::open(&self.file).map_err(cannot)?;
                let len = input.metadata().map_err(cannot)?.len();
                self.load(input, Some(len), format, &file)
            }
        }
    }

    fn load(
        &self,
        input: impl Read,
        len: Option<u64>,
        format: Format,
        file: &str,
    ) -> Result<(), Failure> {
        let bar = progress(len);
        let mut rows = Rows::begin(bar.wrap_read(input), format, file).map_err(Failure::usage)?;
        let client = match self.check {
            true => None,
            false => Some(self.server.client(self.level.ack())?),
        };
        if let (Some(client), Some(layout)) = (&client, &self.columns.layout) {
            check_mark(client, self.prefix.as_bytes(), layout)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The first one ends the load, a second one ends the process.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
                .map_err(|error| Failure::usage(format_args!("cannot watch signals: {error}")))?;
        }
        let mut load = Load {
            client,
            file,
            overwrites: self.overwrite,
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            counts: Counts::default(),
        };
        let outcome = self.rows(&mut rows, &mut load, &stop, &bar);
        // What is on its way is waited for, whatever ended the rows.
        let rest = load.finish();
        bar.finish_and_clear();
        load.counts.print(self.check)?;
        outcome.and(rest).map_err(|failure| match self.check {
            true => failure,
            false => load.counts.resumed(failure),
        })?;
        load.counts.judge(file)
    }

    fn rows<R: Read>(
        &self,
        rows: &mut Rows<R>,
        load: &mut Load<'_>,
        stop: &AtomicBool,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        let mut misfits = 0_u64;
        while let Some(row) = rows.next().map_err(Failure::usage)? {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::server("interrupted"));
            }
            if row.line < self.from_line {
                continue;
            }
            if load.counts.rows == 0 {
                self.report_unused(&row, bar);
            }
            let (key, value) = match self.key_and_value(rows, &row) {
                Err(failure) if self.check => {
                    misfits += 1;
                    if misfits <= MISFITS_SHOWN_MAX {
                        bar.suspend(|| eprintln!("{}", failure.line));
                    }
                    continue;
                }
                read => read?,
            };
            load.row(row.line, &key, value)?;
            if load.counts.rows.is_multiple_of(1024) {
                bar.set_message(count(load.counts.rows, "row"));
            }
        }
        match misfits {
            0 => Ok(()),
            1 => Err(Failure::usage(format_args!(
                "{}: 1 row does not fit",
                load.file
            ))),
            _ => Err(Failure::usage(format_args!(
                "{}: {misfits} rows do not fit",
                load.file
            ))),
        }
    }

    /// What the row says, checked.
    fn key_and_value<R: Read>(
        &self,
        rows: &Rows<R>,
        row: &Row,
    ) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let misfit = |column: &str, allowed: &str| {
            Failure::usage(rows.misfit(row, column, row.cell(column), allowed))
        };
        let text_of = |column: &str| {
            let text = row.cell(column).ok_or_else(|| misfit(column, "a text"))?;
            bytes_of(text).map_err(|allowed| misfit(column, &allowed))
        };
        let own = text_of(&self.columns.key)?;
        let key = [self.prefix.as_bytes(), &own].concat();
        if own.is_empty() || key.len() > KEY_BYTES_MAX {
            let allowed = format!("1 to {} bytes", KEY_BYTES_MAX - self.prefix.len());
            return Err(misfit(&self.columns.key, &allowed));
        }
        let Some(layout) = &self.columns.layout else {
            let value = text_of(&self.columns.value)?;
            return match value.len() > VALUE_BYTES_HARD_MAX {
                true => {
                    let allowed = format!("at most {VALUE_BYTES_HARD_MAX} bytes");
                    Err(misfit(&self.columns.value, &allowed))
                }
                false => Ok((key, value)),
            };
        };
        let mut writer = ValueWriter::begin(layout);
        for field in layout.fields() {
            let cell = row.cell(&field.name);
            cell.ok_or_else(|| "a cell for each field of the layout".to_string())
                .and_then(|cell| writer.put(field, cell))
                .map_err(|allowed| misfit(&field.name, &allowed))?;
        }
        Ok((key, writer.finish()))
    }

    /// Names the columns that become nothing, in the way of the progress bar.
    fn report_unused(&self, row: &Row, bar: &ProgressBar) {
        let is_used = |column: &str| {
            column == self.columns.key
                || match &self.columns.layout {
                    Some(layout) => layout.fields().iter().any(|it| it.name == column),
                    None => column == self.columns.value,
                }
        };
        let unused: Vec<&str> = row
            .columns()
            .into_iter()
            .filter(|it| !is_used(it))
            .collect();
        if !unused.is_empty() {
            bar.suspend(|| eprintln!("not loaded: {}", unused.join(", ")));
        }
    }
}

/// A bar on a terminal; nothing elsewhere.
fn progress(len: Option<u64>) -> ProgressBar {
    let template = match len {
        Some(_) => "{bar:40} {bytes}/{total_bytes} {msg} {elapsed}, left {eta}",
        None => "{spinner} {bytes} {msg} {elapsed}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is constant");
    let bar = match len {
        Some(len) => ProgressBar::new(len),
        None => ProgressBar::new_spinner(),
    };
    bar.with_style(style)
}

/// The rows that are on their way, and what became of the others.
struct Load<'a> {
    /// None if nothing is to be written.
    client: Option<Client>,
    file: &'a str,
    overwrites: bool,
    under_way: VecDeque<Sent>,
    bytes_under_way: usize,
    counts: Counts,
}

/// A row whose answer is not there.
struct Sent {
    line: u64,
    key: String,
    value: Vec<u8>,
    answer: Pending<Changed>,
}

#[derive(Default)]
struct Counts {
    rows: u64,
    written: u64,
    /// Keys that had the value of their row.
    same: u64,
    /// Keys that have another value.
    other: u64,
    /// The line of the last row whose answer is there; all before it have theirs.
    line: u64,
    /// Line and key of the first row whose key has another value.
    first_other: Option<(u64, String)>,
}

impl Load<'_> {
    /// Sends a row, and waits until there is room for it.
    fn row(&mut self, line: u64, key: &[u8], value: Vec<u8>) -> Result<(), Failure> {
        self.counts.rows += 1;
        let Some(client) = &self.client else {
            self.counts.line = line;
            return Ok(());
        };
        let condition = match self.overwrites {
            true => Condition::Always.into(),
            false => Condition::Absent.showing(),
        };
        let answer = client.set_if(key, &value, condition);
        self.bytes_under_way += value.len();
        self.under_way.push_back(Sent {
            line,
            key: super::layout_value::printed(key),
            value,
            answer,
        });
        while self.under_way.len() > ROWS_UNDER_WAY_MAX
            || self.bytes_under_way > BYTES_UNDER_WAY_MAX
        {
            self.oldest()?;
        }
        Ok(())
    }

    /// Waits for the answers that are still to come. The first failure is told.
    fn finish(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        while !self.under_way.is_empty() {
            let one = self.oldest();
            outcome = outcome.and(one);
        }
        outcome
    }

    /// Waits for the answer to the oldest row, if there is one.
    fn oldest(&mut self) -> Result<(), Failure> {
        let Some(sent) = self.under_way.pop_front() else {
            return Ok(());
        };
        self.bytes_under_way -= sent.value.len();
        let counts = &mut self.counts;
        match sent.answer.wait() {
            Ok(_) => counts.written += 1,
            Err(ClientError::No(answer)) if answer.status == Status::Exists => {
                match answer.shown().is_some_and(|it| it.bytes == sent.value) {
                    true => counts.same += 1,
                    false => {
                        counts.other += 1;
                        counts.first_other.get_or_insert((sent.line, sent.key));
                    }
                }
            }
            Err(error) => {
                let place = format!("{}:{}: key {:?}", self.file, sent.line, sent.key);
                return Err(failure_of(&error).behind(&place));
            }
        }
        counts.line = counts.line.max(sent.line);
        Ok(())
    }
}

impl Counts {
    fn print(&self, only_checked: bool) -> Result<(), Failure> {
        let mut out = match only_checked {
            true => Output::stdout(),
            false => Output::of_write(),
        };
        let rows = count(self.rows, "row");
        match only_checked {
            true => out.line(format_args!("{rows} read; nothing was written")),
            false => out.line(format_args!(
                "{rows}: {} written, {} there with the same value, {} there with another value",
                self.written, self.same, self.other
            )),
        }
        out.finish()
    }

    /// The failure that ended the load, and how the user goes on.
    fn resumed(&self, failure: Failure) -> Failure {
        failure.followed_by(&format!(
            "; answered are {}, through line {}; the same command goes on",
            count(self.written + self.same + self.other, "row"),
            self.line
        ))
    }

    /// The answer is no if a key has another value.
    fn judge(&self, file: &str) -> Result<(), Failure> {
        match &self.first_other {
            None => Ok(()),
            Some((line, key)) => Err(Failure::no(format_args!(
                "{file}:{line}: {key:?} exists with another value, which stays; --overwrite \
                 replaces it"
            ))),
        }
    }
}
