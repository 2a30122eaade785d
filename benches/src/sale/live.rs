//! A sale as others see it while it runs: written by the driver and the watch, read by the screen,
//! the page and the result.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::sale::book::Counts;
use crate::sale::shop::Stock;

/// Points of the charts, at most; two neighbours become one beyond it.
const POINTS_MAX: usize = 2_000;

/// What a sale is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Stock is written.
    #[default]
    Opening,
    Selling,
    /// The server was killed and starts again.
    Killed,
    /// Nobody asks any more; abandoned holds come back.
    Closing,
    /// The records are read and compared.
    Ledger,
    Passed,
    Failed,
}

/// One point of the charts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    pub(crate) seconds: f64,
    pub(crate) stock: Stock,
    pub(crate) refused: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// The sale as it stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) stage: Stage,
    /// Where the server serves; nowhere while it is killed.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) seconds: f64,
    /// As the server has it.
    pub(crate) stock: Stock,
    pub(crate) counts: Counts,
    pub(crate) buyers_all: u32,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// When the server was killed, and how long until it served again.
    pub(crate) kills: Vec<(f64, f64)>,
    /// For each of them: how long until something was done for a buyer again.
    pub(crate) gaps: Vec<f64>,
    pub(crate) points: Vec<Point>,
    /// A digit for each buyer.
    pub(crate) buyers: String,
    /// The ledger, in the end.
    pub(crate) ledger: Option<Value>,
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Opening => "opening",
            Stage::Selling => "selling",
            Stage::Killed => "killed -9, starting again",
            Stage::Closing => "abandoned carts come back",
            Stage::Ledger => "reading the ledger",
            Stage::Passed => "PASS",
            Stage::Failed => "FAIL",
        }
    }
}

impl Snapshot {
    /// What the page shows; `with_buyers` adds the digit of each buyer.
    pub(crate) fn json(&self, with_buyers: bool) -> Value {
        let points: Vec<_> = self.points.iter().map(point_json).collect();
        json!({
            "stage": self.stage.name(),
            "is_over": matches!(self.stage, Stage::Passed | Stage::Failed),
            "seconds": self.seconds,
            "initial": self.stock.initial,
            "available": self.stock.available,
            "held": self.stock.held,
            "sold": self.stock.sold,
            "refused": self.counts.refused(),
            "buyers_come": self.counts.buyers,
            "buyers_all": self.buyers_all,
            "doubled": self.counts.doubled,
            "cut": self.counts.cut,
            "abandoned": self.counts.abandoned,
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "kills": self.kills,
            "points": points,
            "buyers": if with_buyers { self.buyers.as_str() } else { "" },
            "ledger": self.ledger,
        })
    }
}

fn point_json(it: &Point) -> Value {
    let tenth = |number: f64| (number * 10.0).round() / 10.0;
    json!([
        (it.seconds * 1000.0).round() / 1000.0,
        it.stock.available,
        it.stock.held,
        it.stock.sold,
        it.refused,
        tenth(it.per_second),
        tenth(it.p50_us),
        tenth(it.p99_us)
    ])
}

/// The snapshot, shared.
#[derive(Default)]
pub(crate) struct Live(Mutex<Snapshot>);

impl Live {
    pub(crate) fn now(&self) -> MutexGuard<'_, Snapshot> {
        // A snapshot is whole after each statement that changes it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        self.now().stage = stage;
    }

    /// The server was killed at this time.
    pub(crate) fn killed(&self, at: Duration) {
        let mut now = self.now();
        now.stage = Stage::Killed;
        now.address = None;
        now.kills.push((at.as_secs_f64(), 0.0));
    }

    /// It serves again.
    pub(crate) fn serves(&self, at: Duration, address: SocketAddr) {
        let mut now = self.now();
        now.address = Some(address);
        now.stage = Stage::Selling;
        if let Some((killed, away)) = now.kills.last_mut() {
            *away = at.as_secs_f64() - *killed;
        }
    }

    /// Something was done for a buyer, for the first time behind a kill.
    pub(crate) fn sells(&self, at: Duration) {
        let mut now = self.now();
        if let Some((killed, _)) = now.kills.last().copied() {
            now.gaps.push(at.as_secs_f64() - killed);
        }
    }

    /// The stock was seen. The last look, of the ledger, stays.
    pub(crate) fn see(&self, stock: Stock) {
        let mut now = self.now();
        if now.ledger.is_none() {
            now.stock = stock;
        }
    }

    /// Adds a point of the charts.
    pub(crate) fn add(&self, point: Point) {
        let mut now = self.now();
        if now.points.len() >= POINTS_MAX {
            let mut number = 0;
            now.points.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
        now.points.push(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stay_few_and_keep_beginning_and_end() {
        let live = Live::default();
        for number in 0..10 * POINTS_MAX {
            live.add(Point {
                seconds: number as f64,
                ..Point::default()
            });
        }
        let now = live.now();
        assert!(now.points.len() <= POINTS_MAX && now.points.len() > POINTS_MAX / 4);
        assert_eq!(now.points.last().map(|it| it.seconds), Some(19_999.0));
    }
}
