//! A goal, and how far it is reached.

use serde_json::{Value, json};

use crate::pairs::{Ratio, median};
use crate::table::Cell;

/// What a ratio must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Wanted {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Wanted::AtLeast(bound) => ratio >= bound,
            Wanted::AtMost(bound) => ratio <= bound,
        }
    }

    fn shown(self) -> String {
        match self {
            Wanted::AtLeast(bound) => format!("at least {bound}"),
            Wanted::AtMost(bound) => format!("at most {bound}"),
        }
    }
}

/// One line of the table of goals.
pub struct Goal {
    pub number: &'static str,
    pub what: String,
    pub unit: &'static str,
    pub wanted: Wanted,
    /// What was found, or why there is nothing.
    pub found: Result<Found, String>,
    /// What a reader must know to judge it, as what else was the limit.
    pub remark: String,
}

/// The medians of both sides and their ratio.
pub struct Found {
    pub ours: f64,
    pub theirs: f64,
    pub ratio: Ratio,
}

impl Found {
    /// Of the figures of all rounds.
    pub fn of(ours: &[f64], theirs: &[f64]) -> Result<Found, String> {
        let ratio = Ratio::paired(ours, theirs).ok_or("nothing to compare with")?;
        let middle = |figures: &[f64]| median(&mut figures.to_vec());
        Ok(Found {
            ours: middle(ours),
            theirs: middle(theirs),
            ratio,
        })
    }
}

impl Goal {
    pub const COLUMNS: [&str; 10] = [
        "#", "goal", "Penstock", "peer", "unit", "ratio", "spread", "wanted", "met", "why",
    ];

    /// `yes`, `no`, or `yes, not in every pair`.
    pub fn verdict(&self) -> String {
        let Ok(found) = &self.found else {
            return "not measured".into();
        };
        let ratio = found.ratio;
        let worst = match self.wanted {
            Wanted::AtLeast(_) => ratio.least,
            Wanted::AtMost(_) => ratio.greatest,
        };
        let met = self.wanted.holds(ratio.median);
        match (met, self.wanted.holds(worst)) {
            (true, true) => "yes".into(),
            (true, false) => "yes, not in every pair".into(),
            (false, _) => "no".into(),
        }
    }

    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::text(self.number), Cell::text(&self.what)];
        match &self.found {
            Ok(found) => {
                let decimals = if found.ours < 100.0 { 2 } else { 0 };
                let Ratio {
                    least, greatest, ..
                } = found.ratio;
                cells.extend([
                    Cell::Figure(found.ours, decimals),
                    Cell::Figure(found.theirs, decimals),
                    Cell::text(self.unit),
                    Cell::Figure(found.ratio.median, 2),
                    Cell::text(format!("{least:.2}..{greatest:.2}")),
                ]);
            }
            Err(why) => {
                cells.extend([
                    Cell::skipped(why),
                    Cell::skipped(why),
                    Cell::text(self.unit),
                ]);
                cells.extend([Cell::skipped(why), Cell::text("")]);
            }
        }
        cells.extend([
            Cell::text(self.wanted.shown()),
            Cell::text(self.verdict()),
            Cell::text(&self.remark),
        ]);
        cells
    }

    pub fn json(&self) -> Value {
        let found = match &self.found {
            Ok(found) => json!({
                "ours": found.ours,
                "theirs": found.theirs,
                "ratio": found.ratio.median,
                "least": found.ratio.least,
                "greatest": found.ratio.greatest,
            }),
            Err(why) => json!({ "skipped": why }),
        };
        json!({
            "number": self.number,
            "what": self.what,
            "unit": self.unit,
            "wanted": self.wanted.shown(),
            "found": found,
            "met": self.verdict(),
            "why": self.remark,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(wanted: Wanted, found: Result<Found, String>) -> Goal {
        Goal {
            number: "1",
            what: "a rate".into(),
            unit: "op/s",
            wanted,
            found,
            remark: String::new(),
        }
    }

    #[test]
    fn goal_is_met_by_its_median_and_tells_when_a_pair_missed_it() {
        let found = || Found::of(&[10.0, 30.0, 8.0], &[5.0, 10.0, 8.0]);
        assert_eq!(goal(Wanted::AtLeast(1.0), found()).verdict(), "yes");
        assert_eq!(
            goal(Wanted::AtLeast(1.5), found()).verdict(),
            "yes, not in every pair"
        );
        assert_eq!(goal(Wanted::AtLeast(2.1), found()).verdict(), "no");
        assert_eq!(goal(Wanted::AtMost(3.0), found()).verdict(), "yes");
        assert_eq!(
            goal(Wanted::AtMost(2.5), found()).verdict(),
            "yes, not in every pair"
        );
        assert_eq!(goal(Wanted::AtMost(1.9), found()).verdict(), "no");
    }

    #[test]
    fn goal_without_a_peer_is_not_measured_and_says_why() {
        let goal = goal(Wanted::AtLeast(1.0), Err("no kevy".into()));
        assert_eq!(goal.verdict(), "not measured");
        assert_eq!(goal.json()["found"]["skipped"], "no kevy");
        assert_eq!(goal.cells().len(), Goal::COLUMNS.len());
    }
}
