//! Rows of a file: the records of a CSV file with a header, or the objects of JSON lines.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use clap::{Args, ValueEnum};
use csv::StringRecord;
use penstock_net::limits::VALUE_BYTES_HARD_MAX;
use serde_json::Value;

use super::Failure;
use super::schema::SchemaArgs;
use super::server::ServerAddress;
use super::values::parse_layout;
use penstock_net::expression::ValueLayout;

/// The longest line of JSON: a value may be written with six bytes for each of its own.
const LINE_BYTES_MAX: usize = 8 * VALUE_BYTES_HARD_MAX;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated, the names of the columns in the first line
    Csv,
    /// One JSON object in each line
    Jsonl,
}

impl Format {
    /// What the end of a file's name says.
    pub fn of_file(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "csv" => Some(Format::Csv),
            "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
            _ => None,
        }
    }
}

/// Which columns the rows have.
#[derive(Args)]
pub struct Columns {
    /// The column of the keys
    #[arg(long = "key-column", value_name = "NAME", default_value = "key")]
    pub key: String,
    /// The column of the values
    #[arg(
        long = "value-column",
        value_name = "NAME",
        default_value = "value",
        conflicts_with_all = ["layout", "layout_name"]
    )]
    pub value: String,
    /// The fields of the values, as LAYOUT of a program prints them
    #[arg(
        long,
        value_name = "FIELDS",
        value_parser = parse_layout,
        conflicts_with = "layout_name"
    )]
    pub layout: Option<ValueLayout>,
    /// The fields of the values, by the name of their layout in the schema
    #[arg(long = "as", value_name = "LAYOUT")]
    layout_name: Option<String>,
    #[command(flatten)]
    schema: SchemaArgs,
}

impl Columns {
    /// Finds the layout that is named.
    ///
    /// # Errors
    /// There is none with the name.
    pub fn find_layout(&mut self, server: &ServerAddress) -> Result<(), Failure> {
        if let Some(name) = &self.layout_name {
            self.layout = Some(self.schema.layout_at(server, name)?);
        }
        Ok(())
    }
}

/// The rows that are still to come.
pub struct Rows<R: Read> {
    source: Source<R>,
    /// The name of the file, for messages.
    file: String,
}

enum Source<R: Read> {
    Csv {
        reader: Box<csv::Reader<R>>,
        header: StringRecord,
    },
    Jsonl {
        reader: BufReader<R>,
        line: u64,
    },
}

/// One row, with the text of each cell.
pub struct Row {
    /// The line of the file that it begins in, from 1.
    pub line: u64,
    cells: Cells,
}

enum Cells {
    Csv {
        header: StringRecord,
        record: StringRecord,
    },
    Json(BTreeMap<String, String>),
}

/// What is wrong with the file, and where: file, line, column, value.
#[derive(Debug, PartialEq, Eq)]
pub struct RowError(String);

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<R: Read> Rows<R> {
    /// Begins with the first row. Of CSV, the header is read.
    ///
    /// # Errors
    /// The header cannot be read, or has a name twice.
    pub fn begin(input: R, format: Format, file: &str) -> Result<Rows<R>, RowError> {
        let source = match format {
            Format::Jsonl => Source::Jsonl {
                reader: BufReader::new(input),
                line: 0,
            },
            Format::Csv => {
                let mut reader = Box::new(csv::Reader::from_reader(input));
                let header = reader.headers().cloned().map_err(|it| of_csv(file, &it))?;
                for (at, name) in header.iter().enumerate() {
                    if header.iter().take(at).any(|known| known == name) {
                        return Err(RowError(format!(
                            "{file}:1: column {}: the name {name:?} stands twice",
                            at + 1
                        )));
                    }
                }
                Source::Csv { reader, header }
            }
        };
        Ok(Rows {
            source,
            file: file.into(),
        })
    }

    /// The next row; `None` behind the last.
    ///
    /// # Errors
    /// The file cannot be read on, or the row is none.
    pub fn next(&mut self) -> Result<Option<Row>, RowError> {
        let file = &self.file;
        match &mut self.source {
            Source::Csv { reader, header } => {
                let mut record = StringRecord::new();
                let is_there = reader
                    .read_record(&mut record)
                    .map_err(|it| of_csv(file, &it))?;
                Ok(is_there.then(|| Row {
                    line: record.position().map_or(0, csv::Position::line),
                    cells: Cells::Csv {
                        header: header.clone(),
                        record,
                    },
                }))
            }
            Source::Jsonl { reader, line } => next_json(reader, line, file),
        }
    }

    /// A row does not fit: its line, the column, what was found there.
    pub fn misfit(&self, row: &Row, column: &str, found: Option<&str>, allowed: &str) -> RowError {
        let place = format!("{}:{}: {}", self.file, row.line, row.column(column));
        RowError(match found {
            Some(found) => format!("{place}: found {:?}, allowed is {allowed}", brief(found)),
            None => format!("{place}: it is missing; allowed is {allowed}"),
        })
    }
}

impl Row {
    /// The text of the cell in a column.
    pub fn cell(&self, column: &str) -> Option<&str> {
        match &self.cells {
            Cells::Csv { header, record } => {
                let at = header.iter().position(|name| name == column)?;
                record.get(at)
            }
            Cells::Json(members) => members.get(column).map(String::as_str),
        }
    }

    /// The names of its columns.
    pub fn columns(&self) -> Vec<&str> {
        match &self.cells {
            Cells::Csv { header, .. } => header.iter().collect(),
            Cells::Json(members) => members.keys().map(String::as_str).collect(),
        }
    }

    /// A column as messages name it.
    fn column(&self, name: &str) -> String {
        let at = match &self.cells {
            Cells::Csv { header, .. } => header.iter().position(|known| known == name),
            Cells::Json(_) => None,
        };
        match at {
            Some(at) => format!("column {} ({name})", at + 1),
            None => format!("column {name}"),
        }
    }
}

fn next_json<R: Read>(
    reader: &mut BufReader<R>,
    line: &mut u64,
    file: &str,
) -> Result<Option<Row>, RowError> {
    loop {
        *line += 1;
        let mut text = Vec::new();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = reader.take(limit).read_until(b'\n', &mut text);
        let refuse = |what: &str| Err(RowError(format!("{file}:{line}: {what}")));
        match read {
            Err(error) => return refuse(&format!("cannot be read: {error}")),
            Ok(0) => return Ok(None),
            Ok(len) if len > LINE_BYTES_MAX => {
                return refuse(&format!("the line has more than {LINE_BYTES_MAX} bytes"));
            }
            Ok(_) if text.trim_ascii().is_empty() => continue,
            Ok(_) => {}
        }
        let members = match serde_json::from_slice(&text) {
            Ok(Value::Object(members)) => members,
            Ok(other) => {
                let found = brief(&other.to_string());
                return refuse(&format!("found {found:?}, allowed is a JSON object"));
            }
            Err(error) => {
                let (column, error) = (error.column(), error.to_string());
                let what = error.split(" at line ").next().unwrap_or_default();
                return refuse(&format!("column {column}: no JSON object: {what}"));
            }
        };
        let mut cells = BTreeMap::new();
        for (name, value) in members {
            flatten(name, value, &mut cells);
        }
        return Ok(Some(Row {
            line: *line,
            cells: Cells::Json(cells),
        }));
    }
}

/// A member as cells with full names: `buyer.bought`, `sizes[2]`. What is null is missing.
fn flatten(name: String, value: Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Bool(is_true) => drop(into.insert(name, is_true.to_string())),
        Value::Number(number) => drop(into.insert(name, number.to_string())),
        Value::String(text) => drop(into.insert(name, text)),
        Value::Array(values) => {
            for (at, value) in values.into_iter().enumerate() {
                flatten(format!("{name}[{at}]"), value, into);
            }
        }
        Value::Object(members) => {
            for (inner, value) in members {
                flatten(format!("{name}.{inner}"), value, into);
            }
        }
    }
}

/// The beginning of a long text.
fn brief(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

fn of_csv(file: &str, error: &csv::Error) -> RowError {
    let at = |position: &Option<csv::Position>| position.as_ref().map_or(1, csv::Position::line);
    RowError(match error.kind() {
        csv::ErrorKind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => format!(
            "{file}:{}: found {len} columns, allowed is {expected_len}, as the header has",
            at(pos)
        ),
        csv::ErrorKind::Utf8 { pos, err } => format!(
            "{file}:{}: column {}: no UTF-8 behind {} bytes",
            at(pos),
            err.field() + 1,
            err.valid_up_to()
        ),
        _ => format!("{file}: cannot be read: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, format: Format) -> Result<Vec<Row>, RowError> {
        let mut rows = Rows::begin(text.as_bytes(), format, "f")?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(row);
        }
        Ok(found)
    }

    fn refusal(text: &str, format: Format) -> String {
        match all(text, format) {
            Ok(rows) => panic!("{text}: {} rows", rows.len()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn rows_of_csv_know_their_lines_over_quoted_line_breaks() {
        let rows = all("key,value\na,\"1\n2\"\nb,3\n", Format::Csv).unwrap();
        assert_eq!((rows[0].line, rows[1].line), (2, 4));
        assert_eq!(rows[0].cell("value"), Some("1\n2"));
        assert_eq!(rows[1].cell("key"), Some("b"));
        assert_eq!(rows[1].cell("other"), None);
    }

    #[test]
    fn members_of_json_are_cells_by_their_full_names() {
        let text = "\n{\"key\":\"a\",\"n\":18446744073709551615,\"b\":true,\"x\":null,\
                    \"in\":{\"a\":[1,{\"z\":-2}]}}\n\n{\"key\":\"b\"}";
        let rows = all(text, Format::Jsonl).unwrap();
        assert_eq!((rows[0].line, rows[1].line), (2, 4));
        assert_eq!(rows[0].columns(), ["b", "in.a[0]", "in.a[1].z", "key", "n"]);
        assert_eq!(rows[0].cell("n"), Some("18446744073709551615"));
        assert_eq!(rows[0].cell("in.a[1].z"), Some("-2"));
    }

    #[test]
    fn what_is_no_row_is_named_by_line_and_column() {
        assert_eq!(
            refusal("a,b\n1,2\n1,2,3\n", Format::Csv),
            "f:3: found 3 columns, allowed is 2, as the header has"
        );
        assert!(refusal("a,b,a\n", Format::Csv).contains("f:1: column 3: the name \"a\" stands"));
        assert!(
            refusal("{\"a\":1}\n{\"a\":}\n", Format::Jsonl).starts_with("f:2: column 6: no JSON")
        );
        assert!(refusal("[1]\n", Format::Jsonl).contains("f:1: found \"[1]\", allowed is a JSON"));
        let mut rows = Rows::begin(&b"a\n\xff\n"[..], Format::Csv, "f").unwrap();
        let error = rows.next().err().map(|it| it.to_string());
        assert_eq!(
            error.as_deref(),
            Some("f:2: column 1: no UTF-8 behind 0 bytes")
        );
    }

    #[test]
    fn a_cell_that_does_not_fit_is_named_by_file_line_column_and_value() {
        let mut rows = Rows::begin(&b"key,stock\na,many\n"[..], Format::Csv, "f.csv").unwrap();
        let row = rows.next().unwrap().unwrap();
        let error = rows.misfit(&row, "stock", row.cell("stock"), "a number");
        let text = "f.csv:2: column 2 (stock): found \"many\", allowed is a number";
        assert_eq!(error.to_string(), text);
        let error = rows.misfit(&row, "name", None, "a text").to_string();
        assert_eq!(
            error,
            "f.csv:2: column name: it is missing; allowed is a text"
        );
    }
}
