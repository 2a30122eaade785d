//! What a sale came to: printed, as JSON, and as what the page shows.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::BenchError;
use crate::host::host;
use crate::sale::driver::Driven;
use crate::sale::ledger::Ledger;
use crate::sale::live::Snapshot;
use crate::sale::plan::Arrivals;
use crate::sale::screen::{say, time};
use crate::series::{QUANTILES, quantiles_us};

/// A sale that is over.
pub(crate) struct SaleResult {
    pub(crate) driven: Driven,
    pub(crate) ledger: Ledger,
    pub(crate) snapshot: Snapshot,
    pub(crate) connections: usize,
}

impl SaleResult {
    /// Whether the ledger holds.
    pub(crate) fn outcome(&self) -> Result<(), BenchError> {
        match self.ledger.holds() {
            true => Ok(()),
            false => Err(BenchError::NotBalanced("the ledger does not hold".into())),
        }
    }

    fn verdict(&self) -> &'static str {
        if self.ledger.holds() { "PASS" } else { "FAIL" }
    }

    fn seconds(&self) -> f64 {
        self.driven.elapsed.as_secs_f64().max(1e-9)
    }

    fn quantiles_us(&self) -> [f64; QUANTILES.len()] {
        quantiles_us(&self.driven.series.all)
    }

    pub(crate) fn print_demo(&self, is_json: bool) {
        if is_json {
            say(format_args!("{}", self.json()));
            return;
        }
        say(format_args!(
            "The ledger: the server's records against what the buyers were told"
        ));
        say(format_args!("{}", self.ledger.to_string().trim_end()));
        say(format_args!("{}", self.verdict()));
    }

    pub(crate) fn print_bench(&self, is_json: bool, is_drop: bool) {
        if is_json {
            say(format_args!("{}", self.json()));
            return;
        }
        let book = &self.driven.book;
        let counts = book.counts();
        let [p50, _, p99, ..] = self.quantiles_us();
        say(format_args!(
            "{:.0} answers/s, p50 {}, p99 {}, {:.2} s, {} connections",
            counts.answered as f64 / self.seconds(),
            time(p50),
            time(p99),
            self.seconds(),
            self.connections
        ));
        say(format_args!(
            "buyers  {} came, {} carts held, {} paid, {} refused, {} sent twice, {} cut, {} kills",
            counts.buyers,
            counts.bought,
            counts.paid,
            counts.refused(),
            counts.doubled,
            counts.cut,
            self.snapshot.kills.len()
        ));
        for gap in &self.snapshot.gaps {
            say(format_args!(
                "gap     {:.0} ms from kill -9 to the first purchase that is done",
                gap * 1000.0
            ));
        }
        match book.sold_out_at() {
            Some(at) => say(format_args!(
                "taken   all units after {:.2} s",
                at.as_secs_f64()
            )),
            None if is_drop => say(format_args!(
                "taken   not all units: there were too few buyers"
            )),
            None => {}
        }
        say(format_args!("{}", self.ledger.to_string().trim_end()));
        say(format_args!("{}", self.verdict()));
    }

    /// What the page shows.
    pub(crate) fn page(&self) -> Value {
        self.snapshot.json(true)
    }

    fn json(&self) -> Value {
        let book = &self.driven.book;
        let (plan, counts) = (&book.plan, book.counts());
        let quantiles: serde_json::Map<_, _> = QUANTILES
            .iter()
            .zip(self.quantiles_us())
            .map(|((name, _), us)| ((*name).to_string(), json!(us)))
            .collect();
        let intervals = &self.driven.series.intervals;
        json!({
            "workload": "sale",
            "passes": self.ledger.holds(),
            "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            "version": env!("CARGO_PKG_VERSION"),
            "host": host(),
            "seed": plan.seed,
            "skus": plan.skus,
            "units": plan.units,
            "buyers": plan.buyers,
            "limit": plan.limit,
            "zipf": plan.zipf,
            "abandoned_percent": plan.abandoned_percent,
            "hold_seconds": plan.hold.as_secs_f64(),
            "rate": match plan.arrivals {
                Arrivals::Rate(rate) => Some(rate),
                Arrivals::Closed | Arrivals::Ramp(_) => None,
            },
            "connections": self.connections,
            "seconds": self.seconds(),
            "sold_out_seconds": book.sold_out_at().map(|at| at.as_secs_f64()),
            "operations": counts.answered,
            "operations_per_second": counts.answered as f64 / self.seconds(),
            "latency_us": quantiles,
            "counts": {
                "buyers": counts.buyers,
                "bought": counts.bought,
                "units_bought": counts.units_bought,
                "paid": counts.paid,
                "units_paid": counts.units_paid,
                "cancelled": counts.cancelled,
                "abandoned": counts.abandoned,
                "open": counts.open,
                "too_late": counts.too_late,
                "sold_out": counts.sold_out,
                "over_limit": counts.over_limit,
                "doubtful": counts.doubtful,
                "sent_twice": counts.doubled,
                "cut": counts.cut,
                "asked_again": counts.again,
                "replayed": counts.replayed,
            },
            "kills": self.snapshot.kills.iter()
                .map(|(at, away)| json!({"at": at, "away": away}))
                .collect::<Vec<_>>(),
            "gaps_ms": self.snapshot.gaps.iter()
                .map(|gap| (gap * 1000.0).round())
                .collect::<Vec<_>>(),
            "series": intervals.iter().map(crate::report::series_json).collect::<Vec<_>>(),
            "ledger": self.ledger.json(),
        })
    }
}
