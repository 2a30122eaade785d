//! When records were appended, and how long members took to confirm them.

use penstock_storage::histogram::Histogram;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::store::Store;

use crate::replication::sender::{Confirmation, Confirmed};
use crate::replication::standing::Lag;
use crate::replication::timeline::Timeline;

/// Times of records that were shipped.
#[derive(Debug)]
pub(super) struct Confirmations {
    timeline: Timeline,
    /// Microseconds until members confirmed to have received each record that was shipped live.
    received_us: Histogram,
    /// The same until it was on their disks.
    durable_us: Histogram,
}

impl Confirmations {
    /// For a log that ends at `appended`.
    pub(super) fn new(appended: Lsn) -> Self {
        Confirmations {
            timeline: Timeline::new(appended),
            received_us: Histogram::default(),
            durable_us: Histogram::default(),
        }
    }

    /// Notes when the records were appended that are new in the log.
    pub(super) fn note_appended<P: Blocks>(&mut self, now_us: u64, store: &Store<P>) {
        let log = store.log();
        let bytes = log.counters().record_bytes;
        self.timeline.note(now_us, log.appended(), bytes);
    }

    /// A member has confirmed these records.
    pub(super) fn add(&mut self, now_us: u64, confirmations: &[Confirmation]) {
        for it in confirmations {
            let before = Lsn(it.first.0.saturating_sub(1));
            let Some(behind) = self.timeline.behind(before) else {
                continue;
            };
            let delays = match it.confirmed {
                Confirmed::Received => &mut self.received_us,
                Confirmed::Durable => &mut self.durable_us,
            };
            let us = now_us.saturating_sub(behind.since_us);
            delays.add(us, it.records.into());
        }
    }

    /// The delays of both kinds, in microseconds.
    pub(super) fn delays(&self) -> (&Histogram, &Histogram) {
        (&self.received_us, &self.durable_us)
    }

    /// The lag of a member that lacks so many records behind this one.
    pub(super) fn lag(&self, now_us: u64, records: u64, behind: Option<Lsn>) -> Lag {
        let behind = behind.and_then(|lsn| self.timeline.behind(lsn));
        Lag {
            records,
            bytes: behind.map_or(0, |it| it.bytes),
            us: behind.map_or(0, |it| now_us.saturating_sub(it.since_us)),
        }
    }

    /// Forgets the times of records up to this one: every member has them.
    pub(super) fn forget(&mut self, until: Lsn) {
        self.timeline.forget(until);
    }
}
