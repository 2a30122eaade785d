//! `penstock export`: keys and values become rows.

use clap::Args;
use penstock_client::Entry;
use penstock_net::level::AckLevel;

use super::layout_value::{printed, read_value};
use super::output::Output;
use super::rows::{Columns, Format};
use super::server::ServerAddress;
use super::values::check_mark;
use super::{EXIT_CODES, Failure};

const EXPORT_EXAMPLES: &str = "\
What load reads again: it writes the same keys and bytes. Bytes that are no text, and texts that
begin with 0x, are printed as 0x and hexadecimal digits. Each key is printed as it is when its page
is read, in no order. Expiries and earlier versions are not exported: backup has all of it.

With --layout or --as each field has a column of its own. A value that has more or fewer bytes than
its fields and texts ends the export, and is named.

Examples:
  penstock export > all.jsonl
  penstock export stock: --as Stock --format csv > stock.csv
  penstock export stock: --format csv --layout 'units:u32@0;sold:u32@4;=8' > stock.csv";

/// Arguments of `penstock export`.
#[derive(Args)]
#[command(after_help = format!("{EXPORT_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ExportArgs {
    /// Only keys that begin so
    #[arg(default_value = "")]
    prefix: String,
    /// How the rows are written
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: Format,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    server: ServerAddress,
}

impl ExportArgs {
    /// Prints the rows.
    pub fn run(mut self) -> Result<(), Failure> {
        self.columns.find_layout(&self.server)?;
        let mut columns = vec![self.columns.key.as_str()];
        match &self.columns.layout {
            Some(layout) => columns.extend(layout.fields().iter().map(|it| it.name.as_str())),
            None => columns.push(&self.columns.value),
        }
        if columns[1..].contains(&columns[0]) {
            return Err(Failure::usage(format_args!(
                "the column {:?} would stand twice: --key-column gives the keys another name",
                columns[0]
            )));
        }
        let client = self.server.client(AckLevel::Disk)?;
        if let Some(layout) = &self.columns.layout {
            check_mark(&client, self.prefix.as_bytes(), layout)?;
        }
        let mut out = Output::stdout();
        if self.format == Format::Csv {
            out.bytes(&csv_line(&columns)?);
        }
        for entry in client.scan(self.prefix.as_bytes(), true) {
            let entry = entry.map_err(|error| self.server.failed_read(&error))?;
            if entry.value.is_none() {
                out.finish()?;
                return Err(Failure::no(format_args!(
                    "{:?} has members, such as the fields of a hash: they are not exported",
                    printed(&entry.key)
                )));
            }
            let line = self.line(&columns, &entry);
            match line {
                Ok(line) => out.bytes(&line),
                Err(failure) => {
                    out.finish()?;
                    return Err(failure);
                }
            }
            if out.is_broken() {
                break;
            }
        }
        out.finish()
    }

    fn line(&self, columns: &[&str], entry: &Entry) -> Result<Vec<u8>, Failure> {
        let value = entry.value.as_deref().unwrap_or_default();
        let key = printed(&entry.key);
        let mut cells = vec![serde_json::Value::from(key.as_str())];
        match &self.columns.layout {
            None => cells.push(printed(value).into()),
            Some(layout) => {
                let fields = read_value(layout, value).map_err(|why| {
                    Failure::no(format_args!("{key:?} is not of the layout: {why}"))
                })?;
                cells.extend(fields.iter().map(|cell| cell.json()));
            }
        }
        match self.format {
            Format::Csv => {
                let texts: Vec<String> = cells.iter().map(text_of).collect();
                csv_line(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
            Format::Jsonl => Ok(json_line(columns, &cells)),
        }
    }
}

/// A cell of CSV: a text without the quotes of JSON.
fn text_of(cell: &serde_json::Value) -> String {
    match cell {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn csv_line(cells: &[&str]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = writer.write_record(cells).map_err(Failure::usage);
    written.and_then(|()| writer.into_inner().map_err(Failure::usage))
}

/// An object whose members stand in the order of the columns.
fn json_line(columns: &[&str], cells: &[serde_json::Value]) -> Vec<u8> {
    let members: Vec<String> = columns
        .iter()
        .zip(cells)
        .map(|(name, cell)| format!("{}:{cell}", serde_json::Value::from(*name)))
        .collect();
    format!("{{{}}}\n", members.join(",")).into_bytes()
}
