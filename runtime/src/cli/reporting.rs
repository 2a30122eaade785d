//! `penstock report`: how many keys, and the sum, least and greatest number of fields.

use clap::Args;
use penstock_net::instruction::FieldType;
use penstock_net::level::AckLevel;

use super::layout_value::{Cell, read_field};
use super::output::{Output, count};
use super::schema::SchemaArgs;
use super::server::ServerAddress;
use super::values::{check_mark, parse_layout};
use super::{EXIT_CODES, Failure};
use penstock_net::expression::{Field, FieldKind, LayoutField, ValueLayout, is_name};

const REPORT_EXAMPLES: &str = "\
Each key counts as it is when its page is read: for the figures of one instant, stop the writers
first. A key may be counted twice if it goes away and comes back meanwhile. Sums are exact, but for
those of f32 and f64. Of a bool the sum tells how many are true.

Examples:
  penstock report stock:
  penstock report stock: --as Stock
  penstock report stock: --as units=u32@0,sold=u32@4
  penstock report product: --layout 'stock:u32@0;price_cents:u32@4;is_open:bool@8;name:text@9;=17'
  penstock report stock: --as u32@0 --json";

/// Arguments of `penstock report`.
#[derive(Args)]
#[command(after_help = format!("{REPORT_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ReportArgs {
    /// Only keys that begin so
    #[arg(default_value = "")]
    prefix: String,
    /// The name of a layout of the schema, or fields such as u32@0,u64be@8, or with names:
    /// units=u32@0,sold=u32@4
    #[arg(
        long = "as",
        value_name = "LAYOUT|FIELDS",
        value_parser = parse_form,
        conflicts_with = "layout"
    )]
    forms: Vec<Form>,
    /// The fields of the values, as LAYOUT of a program prints them; texts and bytes are left out
    #[arg(long, value_name = "FIELDS", value_parser = parse_layout)]
    layout: Option<ValueLayout>,
    #[command(flatten)]
    schema: SchemaArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerAddress,
}

impl ReportArgs {
    /// Prints the figures.
    pub fn run(self) -> Result<(), Failure> {
        let (named, given) = self.counted()?;
        let client = self.server.client(AckLevel::Disk)?;
        let (fields, fixed_bytes) = match named.as_ref().or(self.layout.as_ref()) {
            Some(layout) => {
                check_mark(&client, self.prefix.as_bytes(), layout)?;
                (layout.fields().to_vec(), layout.bytes())
            }
            None => (given, 0),
        };
        let mut figures = Figures::of(fields, fixed_bytes);
        for entry in client.scan(self.prefix.as_bytes(), true) {
            let entry = entry.map_err(|error| self.server.failed_read(&error))?;
            figures.add(entry.value.as_deref().unwrap_or_default());
        }
        let mut out = Output::stdout();
        match self.json {
            true => out.line(format_args!("{}", figures.json(&self.prefix))),
            false => out.bytes(figures.table().as_bytes()),
        }
        out.finish()
    }

    /// The layout that is named, or the fields that are given.
    fn counted(&self) -> Result<(Option<ValueLayout>, Vec<LayoutField>), Failure> {
        let mut fields = Vec::new();
        for form in &self.forms {
            match form {
                Form::Fields(more) => fields.extend_from_slice(more),
                Form::Layout(name) if self.forms.len() == 1 => {
                    let layout = self.schema.layout_at(&self.server, name)?;
                    return Ok((Some(layout), fields));
                }
                Form::Layout(name) => {
                    return Err(Failure::usage(format_args!(
                        "--as {name}: the name of a layout stands alone"
                    )));
                }
            }
        }
        Ok((None, fields))
    }
}

/// What is counted of a value.
#[derive(Clone, Debug)]
enum Form {
    /// The fields of the layout with this name.
    Layout(String),
    Fields(Vec<LayoutField>),
}

fn parse_form(text: &str) -> Result<Form, String> {
    if is_name(text) && FieldType::from_name(text).is_none() {
        return Ok(Form::Layout(text.into()));
    }
    let fields = text.split(',').map(|field| parse_field(field.trim()));
    let fields = fields.collect::<Result<_, _>>().map(Form::Fields);
    fields.map_err(|error| format!("{error}; or the name of a layout"))
}

/// `TYPE@OFFSET` or `NAME=TYPE@OFFSET`.
fn parse_field(text: &str) -> Result<LayoutField, String> {
    let (name, field) = match text.split_once('=') {
        Some((name, field)) => (name, field),
        None => (text, text),
    };
    let Field { field_type, offset } = Field::parse(field).map_err(|error| error.to_string())?;
    Ok(LayoutField {
        name: name.into(),
        kind: FieldKind::Number(field_type),
        offset: offset as usize,
    })
}

/// What all values have in common.
struct Figures {
    keys: u64,
    value_bytes: u64,
    fixed_bytes: usize,
    fields: Vec<FieldFigures>,
}

struct FieldFigures {
    field: LayoutField,
    /// Values that have it.
    count: u64,
    sum: Sum,
    /// The least and the greatest.
    ends: Option<(Cell, Cell)>,
}

#[derive(Clone, Copy)]
enum Sum {
    Whole(i128),
    Float(f64),
}

impl Figures {
    /// Nothing yet. Texts and bytes have no figures.
    fn of(fields: Vec<LayoutField>, fixed_bytes: usize) -> Figures {
        let counted = fields
            .into_iter()
            .filter(|it| !matches!(it.kind, FieldKind::Text | FieldKind::Bytes(_)));
        Figures {
            keys: 0,
            value_bytes: 0,
            fixed_bytes,
            fields: counted
                .map(|field| FieldFigures {
                    sum: match field.kind {
                        FieldKind::Float { .. } => Sum::Float(0.0),
                        _ => Sum::Whole(0),
                    },
                    field,
                    count: 0,
                    ends: None,
                })
                .collect(),
        }
    }

    fn add(&mut self, value: &[u8]) {
        self.keys += 1;
        self.value_bytes += value.len() as u64;
        for figures in &mut self.fields {
            if let Some(cell) = read_field(&figures.field, self.fixed_bytes, value) {
                figures.add(&cell);
            }
        }
    }

    /// Lines for people.
    fn table(&self) -> String {
        let bytes = count(self.value_bytes, "byte");
        let mut lines = vec![format!(
            "{} with {bytes} of values",
            count(self.keys, "key")
        )];
        let head = ["field", "count", "sum", "min", "max"].map(String::from);
        let rows = self.fields.iter().map(|it| {
            let end = |end: Option<&Cell>| end.map_or("-".into(), Cell::to_string);
            let ends = it.ends.as_ref();
            [
                it.field.name.clone(),
                it.count.to_string(),
                it.sum.cell().to_string(),
                end(ends.map(|(least, _)| least)),
                end(ends.map(|(_, greatest)| greatest)),
            ]
        });
        let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
        if rows.len() > 1 {
            let widths: [usize; 5] = std::array::from_fn(|at| {
                let widths = rows.iter().map(|row| row[at].chars().count());
                widths.max().unwrap_or(0)
            });
            lines.extend(rows.iter().map(|row| {
                let cells = row.iter().zip(widths).enumerate();
                let cells = cells.map(|(at, (cell, width))| match at {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
                cells.collect::<Vec<_>>().join("  ")
            }));
        }
        for it in self.fields.iter().filter(|it| it.count < self.keys) {
            let lacking = count(self.keys - it.count, "value");
            lines.push(format!("{} cannot be read from {lacking}", it.field.name));
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// One object for programs.
    fn json(&self, prefix: &str) -> serde_json::Value {
        let fields = self.fields.iter().map(|it| {
            let ends = it.ends.as_ref();
            serde_json::json!({
                "name": it.field.name,
                "count": it.count,
                "sum": it.sum.cell().json(),
                "min": ends.map(|(least, _)| least.json()),
                "max": ends.map(|(_, greatest)| greatest.json()),
            })
        });
        serde_json::json!({
            "prefix": prefix,
            "keys": self.keys,
            "value_bytes": self.value_bytes,
            "fields": fields.collect::<Vec<_>>(),
        })
    }
}

impl FieldFigures {
    fn add(&mut self, cell: &Cell) {
        self.count += 1;
        self.sum = match (self.sum, cell) {
            (Sum::Whole(sum), Cell::Number(number)) => Sum::Whole(sum.saturating_add(*number)),
            (Sum::Whole(sum), Cell::Bool(is_true)) => Sum::Whole(sum + i128::from(*is_true)),
            (Sum::Float(sum), Cell::F32(number)) => Sum::Float(sum + f64::from(*number)),
            (Sum::Float(sum), Cell::F64(number)) => Sum::Float(sum + number),
            (sum, _) => sum,
        };
        self.ends = Some(match self.ends.take() {
            None => (cell.clone(), cell.clone()),
            Some((least, greatest)) => (
                if is_less(cell, &least) {
                    cell.clone()
                } else {
                    least
                },
                if is_less(&greatest, cell) {
                    cell.clone()
                } else {
                    greatest
                },
            ),
        });
    }
}

/// Whether a cell of one field is less than another one of it.
fn is_less(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Number(a), Cell::Number(b)) => a < b,
        (Cell::Bool(a), Cell::Bool(b)) => !a & b,
        (Cell::F32(a), Cell::F32(b)) => a.total_cmp(b).is_lt(),
        (Cell::F64(a), Cell::F64(b)) => a.total_cmp(b).is_lt(),
        _ => false,
    }
}

impl Sum {
    fn cell(self) -> Cell {
        match self {
            Sum::Whole(sum) => Cell::Number(sum),
            Sum::Float(sum) => Cell::F64(sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(fields: &[&str], values: &[&[u8]]) -> Figures {
        let fields = fields.iter().map(|it| parse_field(it).unwrap()).collect();
        let mut figures = Figures::of(fields, 0);
        values.iter().for_each(|value| figures.add(value));
        figures
    }

    #[test]
    fn sums_are_exact_beyond_64_bits_and_ends_are_signed() {
        let most = u64::MAX.to_le_bytes();
        let json = figures(&["u64@0", "low=i8@7"], &[&most, &most, &[0; 8]]).json("p");
        let whole = &json["fields"][0];
        assert_eq!(whole["sum"], "36893488147419103230");
        assert_eq!(
            (&whole["min"], &whole["max"]),
            (&0.into(), &u64::MAX.into())
        );
        let low = &json["fields"][1];
        assert_eq!(
            (&low["sum"], &low["min"], &low["max"]),
            (&(-2).into(), &(-1).into(), &0.into())
        );
        assert_eq!(
            (&json["keys"], &json["value_bytes"]),
            (&3.into(), &24.into())
        );
    }

    #[test]
    fn values_that_lack_a_field_are_reported() {
        let table = figures(&["units=u32@0"], &[&[1, 0, 0, 0], &[1]]).table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "2 keys with 5 bytes of values");
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["units", "1", "1", "1", "1"]
        );
        assert_eq!(lines[3], "units cannot be read from 1 value");
        let none = figures(&["u32@0"], &[]).table();
        assert!(none.contains("0 keys") && none.contains('-'), "{none}");
    }
}
