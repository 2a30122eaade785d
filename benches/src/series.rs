//! What a run measured, interval by interval and in all.

use std::time::Duration;

use hdrhistogram::Histogram;

/// A minute of latency is the end of the scale; three digits hold below it.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("fixed bounds")
}

/// One interval.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Number of the interleaved run that the interval belongs to, from 0.
    pub(crate) round: u32,
    /// Seconds since the warm-up of the round ended.
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) operations: u64,
    /// The quantiles of [`QUANTILES`], in microseconds.
    pub(crate) latency_us: [f64; QUANTILES.len()],
}

/// What is told of latencies.
pub(crate) const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];

pub(crate) fn quantiles_us(latency_ns: &Histogram<u64>) -> [f64; QUANTILES.len()] {
    QUANTILES.map(|(_, quantile)| latency_ns.value_at_quantile(quantile) as f64 / 1000.0)
}

/// Takes in latencies. An interval ends with the first turn of the generator behind its end, so a
/// stall shows as a long one.
pub(crate) struct Series {
    length: Duration,
    /// Since the measurement began.
    began: Duration,
    current: Histogram<u64>,
    pub(crate) all: Histogram<u64>,
    pub(crate) intervals: Vec<Interval>,
}

impl Series {
    pub(crate) fn new(length: Duration) -> Series {
        Series {
            length,
            began: Duration::ZERO,
            current: histogram(),
            all: histogram(),
            intervals: Vec::new(),
        }
    }

    /// So many operations took so long.
    pub(crate) fn record(&mut self, ns: u64, operations: u64) {
        self.current.saturating_record_n(ns.max(100), operations);
    }

    /// The latencies of this interval, or of all before it if it has none yet.
    pub(crate) fn latest(&self) -> &Histogram<u64> {
        match self.current.is_empty() {
            true => &self.all,
            false => &self.current,
        }
    }

    /// Forgets what came before the measurement.
    pub(crate) fn begin(&mut self) {
        self.current.reset();
    }

    /// So much of the measurement has passed.
    pub(crate) fn passed(&mut self, time: Duration) {
        if time >= self.began + self.length {
            self.close(time);
        }
    }

    /// The measurement has ended.
    pub(crate) fn end(&mut self, time: Duration) {
        if time > self.began {
            self.close(time);
        }
    }

    fn close(&mut self, time: Duration) {
        self.intervals.push(Interval {
            round: 0,
            from: self.began.as_secs_f64(),
            to: time.as_secs_f64(),
            operations: self.current.len(),
            latency_us: quantiles_us(&self.current),
        });
        self.all.add(&self.current).expect("the same bounds");
        self.current.reset();
        self.began = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_each_operation_once_and_a_stall_is_one_long_interval() {
        let mut series = Series::new(Duration::from_secs(1));
        series.record(5_000, 7);
        series.begin();
        series.record(200_000, 3);
        series.passed(Duration::from_millis(999));
        series.record(100_000, 2);
        series.passed(Duration::from_millis(1_001));
        series.record(9_000_000, 1);
        series.passed(Duration::from_millis(5_000));
        series.record(50, 4);
        series.end(Duration::from_millis(5_500));
        let rows: Vec<_> = series
            .intervals
            .iter()
            .map(|it| (it.from, it.to, it.operations))
            .collect();
        assert_eq!(rows, [(0.0, 1.001, 5), (1.001, 5.0, 1), (5.0, 5.5, 4)]);
        assert_eq!(series.all.len(), 10);
        let p50 = series.intervals[0].latency_us[0];
        assert!((199.0..=201.0).contains(&p50), "{p50}");
    }
}
