//! What a comparison found, as tables for people or as one JSON object.

use serde_json::{Map, Value, json};

use crate::machine;

/// One cell of a table.
#[derive(Clone)]
pub enum Cell {
    Text(String),
    /// A figure, shown with so many decimals.
    Figure(f64, usize),
    /// Not measured, and why.
    Skipped(String),
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    pub fn skipped(why: impl ToString) -> Cell {
        Cell::Skipped(why.to_string())
    }

    /// A whole number.
    pub fn count(number: f64) -> Cell {
        Cell::Figure(number, 0)
    }

    /// `number / of`, or why there is none.
    pub fn ratio(number: Option<f64>, of: Option<f64>) -> Cell {
        match (number, of) {
            (Some(number), Some(of)) if of > 0.0 => Cell::Figure(number / of, 2),
            _ => Cell::skipped("nothing to compare with"),
        }
    }

    pub fn of(outcome: &Result<f64, String>, decimals: usize) -> Cell {
        match outcome {
            Ok(figure) => Cell::Figure(*figure, decimals),
            Err(why) => Cell::skipped(why),
        }
    }

    fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Figure(figure, decimals) => format!("{figure:.decimals$}"),
            Cell::Skipped(_) => "skipped".into(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Figure(figure, _) => json!(figure),
            Cell::Skipped(why) => json!({ "skipped": why }),
        }
    }
}

pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        Table {
            title: title.into(),
            columns: columns.iter().map(|column| (*column).to_string()).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a cell for every column");
        self.rows.push(row);
    }

    fn print(&self) {
        let shown: Vec<Vec<String>> = std::iter::once(self.columns.clone())
            .chain(
                self.rows
                    .iter()
                    .map(|row| row.iter().map(Cell::shown).collect()),
            )
            .collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                shown
                    .iter()
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        println!("\n{}", self.title);
        for row in &shown {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            println!("  {}", cells.join("  ").trim_end());
        }
        let mut told: Vec<&String> = Vec::new();
        for (row, cells) in self.rows.iter().enumerate() {
            for cell in cells {
                if let Cell::Skipped(why) = cell
                    && !told.contains(&why)
                {
                    println!("  SKIPPED in {}: {why}", shown[row + 1][0]);
                    told.push(why);
                }
            }
        }
    }
}

#[derive(Default)]
pub struct Report {
    pub tables: Vec<Table>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
}

impl Report {
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn print(&self, command: &str, as_json: bool) {
        let machine = machine::in_words();
        if as_json {
            let tables: Vec<Value> = self
                .tables
                .iter()
                .map(|table| {
                    let rows: Vec<Value> = table
                        .rows
                        .iter()
                        .map(|row| {
                            let cells = row.iter().map(Cell::json);
                            Value::Object(
                                table
                                    .columns
                                    .iter()
                                    .cloned()
                                    .zip(cells)
                                    .collect::<Map<_, _>>(),
                            )
                        })
                        .collect();
                    json!({ "title": table.title, "rows": rows })
                })
                .collect();
            let report = json!({
                "command": command,
                "machine": machine,
                "tables": tables,
                "notes": self.notes,
            });
            println!("{report}");
            return;
        }
        println!("cargo peers {command}: {machine}");
        for table in &self.tables {
            table.print();
        }
        println!();
        for note in &self.notes {
            println!("note: {note}");
        }
    }
}

/// The middle of the figures; the mean of the two middle ones of an even number.
pub fn median(figures: &mut [f64]) -> f64 {
    assert!(!figures.is_empty(), "a median of nothing");
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() % 2 {
        1 => figures[middle],
        _ => (figures[middle - 1] + figures[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_one_or_the_mean_of_two() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn a_ratio_to_nothing_is_skipped_and_says_so() {
        assert!(matches!(
            Cell::ratio(Some(1.0), Some(0.0)),
            Cell::Skipped(_)
        ));
        assert!(matches!(
            Cell::ratio(Some(3.0), Some(2.0)),
            Cell::Figure(1.5, 2)
        ));
    }
}
