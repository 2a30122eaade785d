//! A table of figures, for people and as JSON.

use serde_json::{Map, Value, json};

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

    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Figure(figure, decimals) => format!("{figure:.decimals$}"),
            Cell::Skipped(_) => "skipped".into(),
        }
    }

    /// Why it was not measured, if it was not.
    pub fn why(&self) -> Option<&str> {
        match self {
            Cell::Skipped(why) => Some(why),
            _ => None,
        }
    }

    /// How a page shows it.
    pub fn class(&self) -> &'static str {
        match self {
            Cell::Text(text) if text.starts_with("yes") => "text yes",
            Cell::Text(text) if text == "no" => "text no",
            Cell::Text(_) => "text",
            Cell::Figure(..) => "figure",
            Cell::Skipped(_) => "skipped",
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

    pub fn json(&self) -> Value {
        let named = |row: &Vec<Cell>| {
            let cells = row.iter().map(Cell::json);
            Value::Object(
                self.columns
                    .iter()
                    .cloned()
                    .zip(cells)
                    .collect::<Map<_, _>>(),
            )
        };
        json!({ "title": self.title, "rows": self.rows.iter().map(named).collect::<Vec<_>>() })
    }

    pub fn print(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
