//! What a comparison found, as tables for people or as one JSON object.

use serde_json::{Value, json};

use crate::chart::Chart;
use crate::goal::Goal;
use crate::machine;

pub use crate::pairs::median;
pub use crate::table::{Cell, Table};

pub struct Report {
    /// The machine in words, as it was when the run began.
    pub machine: String,
    /// What was to be reached, and what was.
    pub goals: Vec<Goal>,
    pub tables: Vec<Table>,
    pub charts: Vec<Chart>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            machine: machine::in_words(),
            goals: Vec::new(),
            tables: Vec::new(),
            charts: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Report {
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes in what another run found.
    pub fn add(&mut self, other: Report) {
        self.goals.extend(other.goals);
        self.tables.extend(other.tables);
        self.charts.extend(other.charts);
        other.notes.into_iter().for_each(|note| self.note(note));
    }

    pub fn json(&self, command: &str) -> Value {
        json!({
            "command": command,
            "machine": self.machine,
            "goals": self.goals.iter().map(Goal::json).collect::<Vec<_>>(),
            "tables": self.tables.iter().map(Table::json).collect::<Vec<_>>(),
            "charts": self.charts.iter().map(Chart::json).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    pub fn print(&self, command: &str, as_json: bool) {
        if as_json {
            println!("{}", self.json(command));
            return;
        }
        println!("cargo peers {command}: {}", self.machine);
        for table in &self.tables {
            table.print();
        }
        if !self.goals.is_empty() {
            self.table_of_goals().print();
        }
        println!();
        for note in &self.notes {
            println!("note: {note}");
        }
    }

    pub fn table_of_goals(&self) -> Table {
        let mut table = Table::new("goals", &Goal::COLUMNS);
        for goal in &self.goals {
            table.row(goal.cells());
        }
        table
    }
}
