//! When a shard takes snapshots of its index, and how fast.
//!
//! One is taken after so much new log that replaying it would take too long, when requests have
//! ceased for a while, and at a clean stop. A step of it is a short look at the index in each turn;
//! its bytes go to a file one piece at a time, so that a slow disk slows the snapshot and nothing
//! else. The writer logs a snapshot that fails. No harm is done: the snapshot before it still
//! serves.

use penstock_storage::io::Blocks;
use penstock_storage::log::LogCounters;
use penstock_storage::snapshot::{SnapshotName, Taken, Taking};
use penstock_storage::store::Store;

use crate::now::Now;

/// When a shard takes snapshots of its index. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// Bytes of new log after which one is taken, if its records are short; none ever if 0. See
    /// [`Behind`].
    pub log_bytes: u64,
    /// How long a clean stop may wait for one.
    pub stop_us_max: u64,
}

/// Bytes for the file of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub struct SnapshotWrite {
    /// The name of the snapshot.
    pub name: SnapshotName,
    /// What to do with `bytes`.
    pub step: WriteStep,
    /// What follows in the file.
    pub bytes: Vec<u8>,
}

/// What is to be done with the file of a snapshot. Each of these is answered, once, before the
/// next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// Begin it. Another one of its log that was not finished is void.
    First,
    /// Write on.
    Next,
    /// Write the end, make it durable and give it its name. Older ones but the newest are removed.
    Last,
}

/// What a shard's snapshots did since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounters {
    /// Finished.
    pub snapshots: u64,
    /// Begun and not finished, because the file could not be written.
    pub snapshots_void: u64,
    /// Bytes of the last one that was finished.
    pub snapshot_bytes: u64,
}

/// What a start found of snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SnapshotStart {
    /// No snapshot has this number or a higher one.
    pub(crate) next_number: u64,
    /// The log behind the one that was used; all if none was.
    pub(crate) behind: Behind,
    /// Bytes of the one that was used.
    pub(crate) snapshot_bytes: u64,
}

/// Log that a start would have to replay, as far as records go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) bytes: u64,
    pub(crate) records: u64,
}

impl Behind {
    fn of(log: LogCounters) -> Self {
        Behind {
            bytes: log.record_bytes,
            records: log.records,
        }
    }

    fn plus(self, now: Behind, then: Behind) -> Self {
        Behind {
            bytes: self.bytes + now.bytes - then.bytes,
            records: self.records + now.records - then.records,
        }
    }

    /// What a replay takes, in bytes of short records. To take in a record costs as much as to read
    /// four hundred bytes more of it.
    fn cost_bytes(self) -> u64 {
        self.bytes / 4 + self.records * 100
    }

    /// Whether a snapshot is due that would have `snapshot_bytes`: it would spare a start sixteen
    /// times what it takes to read, or a start would read very much.
    fn is_long(self, log_bytes: u64, snapshot_bytes: u64) -> bool {
        let cost_bytes = self.cost_bytes();
        let pays = cost_bytes >= 16 * snapshot_bytes || self.bytes >= LEAST_BYTES_MAX;
        cost_bytes >= log_bytes && self.bytes >= least_bytes(snapshot_bytes) && pays
    }
}

/// Bytes of log from one snapshot to the next, at least. To write one takes a share of what the
/// device can: a sixteenth, or as much more as keeps the rest of the log short, up to a quarter.
fn least_bytes(snapshot_bytes: u64) -> u64 {
    (16 * snapshot_bytes)
        .min(LEAST_BYTES_MAX)
        .max(4 * snapshot_bytes)
}

/// The snapshots of one shard.
pub(crate) struct Snapshots {
    policy: SnapshotPolicy,
    hash_check: u64,
    next_number: u64,
    taking: Option<Taking>,
    /// Bytes of the file so far.
    taking_bytes: u64,
    /// A piece is on its way to the file.
    is_writing: bool,
    /// The last piece is.
    is_last: bool,
    /// The log behind the snapshot that a start would use, when so much was `logged`.
    behind: Behind,
    logged: Behind,
    /// Since when there were no requests.
    quiet_since_us: u64,
    stop_until_us: Option<u64>,
    counters: SnapshotCounters,
}

/// Entries of the index that a turn looks at: when it has requests, at least and at most; when it
/// has none; and at a stop.
const ENTRIES_BUSY_MIN: usize = 256;
const ENTRIES_BUSY_MAX: usize = 16 << 10;
const ENTRIES_IDLE: usize = 4 << 10;
const ENTRIES_STOPPING: usize = 64 << 10;
/// A stop takes no snapshot if less of the log than this is behind the last one.
const STOP_BYTES_MIN: u64 = 64 << 10;
/// A shard without requests for [`QUIET_US`] takes a snapshot from this much log on.
const QUIET_BYTES_MIN: u64 = 1 << 20;
const QUIET_US: u64 = 1_000_000;
/// A start replays about so much of a log of large records, unless the snapshot itself is as large.
const LEAST_BYTES_MAX: u64 = 384 << 20;
/// How often to look whether a piece was written, in microseconds.
const CHECK_US: u64 = 1_000;

impl Snapshots {
    pub(crate) fn new(policy: SnapshotPolicy, hash_check: u64, start: SnapshotStart) -> Self {
        Snapshots {
            policy,
            hash_check,
            next_number: start.next_number.max(1),
            taking: None,
            taking_bytes: 0,
            is_writing: false,
            is_last: false,
            behind: start.behind,
            logged: Behind::default(),
            quiet_since_us: 0,
            stop_until_us: None,
            counters: SnapshotCounters {
                snapshot_bytes: start.snapshot_bytes,
                ..SnapshotCounters::default()
            },
        }
    }

    pub(crate) fn counters(&self) -> SnapshotCounters {
        self.counters
    }

    /// Goes on, once in each turn, between two changes.
    pub(crate) fn step<P: Blocks>(
        &mut self,
        now: Now,
        store: &mut Store<P>,
        is_idle: bool,
        into: &mut Vec<SnapshotWrite>,
    ) {
        if !is_idle {
            self.quiet_since_us = now.us;
        }
        if self.policy.log_bytes == 0 || self.is_writing {
            return;
        }
        let is_stopping = self.stop_until_us.is_some();
        let interval = self.interval();
        let Some(taking) = &mut self.taking else {
            if self.is_due(now, store) {
                self.begin(store, into);
            }
            return;
        };
        let entries = match (is_stopping, is_idle) {
            (true, _) => ENTRIES_STOPPING,
            (false, true) => ENTRIES_IDLE,
            (false, false) => {
                // It ends before the log has grown by half of what leads to the next one: what is
                // appended until then is replayed by a start that comes before the end.
                let grown = store.log().counters().record_bytes - self.logged.bytes;
                let pace = u128::from(interval / 2).max(1);
                let usage = store.data().usage();
                let entries = (usage.keys + usage.versions) as u128;
                let due = entries * u128::from(grown) / pace;
                usize::try_from(due.saturating_sub(taking.entries().into()))
                    .unwrap_or(usize::MAX)
                    .clamp(ENTRIES_BUSY_MIN, ENTRIES_BUSY_MAX)
            }
        };
        let (step, bytes) = match taking.step(store, entries) {
            Taken::Nothing => return,
            Taken::Chunk(bytes) => (WriteStep::Next, bytes),
            Taken::Last(bytes) => (WriteStep::Last, bytes),
        };
        let name = taking.name();
        self.write(name, step, bytes, into);
    }

    /// The last piece was written, or cannot be.
    pub(crate) fn written(&mut self, name: SnapshotName, is_good: bool, log: LogCounters) {
        let Some(taking) = self.taking.take_if(|taking| taking.name() == name) else {
            return;
        };
        self.is_writing = false;
        if !is_good {
            self.counters.snapshots_void += 1;
            // Not at once again: what fails once fails often.
            self.behind = Behind::default();
            self.logged = Behind::of(log);
        } else if self.is_last {
            self.counters.snapshots += 1;
            self.counters.snapshot_bytes = self.taking_bytes;
        } else {
            self.taking = Some(taking);
        }
    }

    /// Whether a clean stop need not wait for a snapshot any more. Everything should be durable
    /// then, so that little is left to be replayed.
    pub(crate) fn may_stop<P: Blocks>(&mut self, now: Now, store: &mut Store<P>) -> bool {
        if self.policy.log_bytes == 0 || store.cleaning().inheritance().is_there() {
            return true;
        }
        let until_us = *self
            .stop_until_us
            .get_or_insert(now.us + self.policy.stop_us_max);
        if now.us >= until_us {
            self.taking = None;
            return true;
        }
        let appended = store.log().appended();
        store.log_mut().want_durable(appended);
        self.taking.is_none() && self.behind(store).bytes < STOP_BYTES_MIN
    }

    /// When the next step is due, if nothing else happens.
    pub(crate) fn deadline_us<P: Blocks>(&self, now: Now, store: &Store<P>) -> Option<u64> {
        let stop_us = self.stop_until_us.filter(|&until_us| until_us > now.us);
        let taking = self.taking.as_ref();
        let step_us = taking.and_then(|taking| {
            if self.is_writing {
                Some(now.us + CHECK_US)
            } else {
                let waits = taking
                    .waits_for()
                    .is_some_and(|to| to > store.log().durable());
                (!waits).then_some(now.us)
            }
        });
        let quiet = taking.is_none()
            && self.policy.log_bytes > 0
            && self.behind(store).bytes >= QUIET_BYTES_MIN
            && now.us < self.quiet_since_us + QUIET_US;
        let quiet_us = quiet.then_some(self.quiet_since_us + QUIET_US);
        step_us.or(stop_us).or(quiet_us)
    }

    /// Whether a piece is on its way to the file.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// The log that a snapshot would spare a start.
    fn behind<P: Blocks>(&self, store: &Store<P>) -> Behind {
        let now = Behind::of(store.log().counters());
        self.behind.plus(now, self.logged)
    }

    fn is_due<P: Blocks>(&self, now: Now, store: &Store<P>) -> bool {
        // One could not tell of inherited logs.
        if store.cleaning().inheritance().is_there() {
            return false;
        }
        let behind = self.behind(store);
        if self.stop_until_us.is_some() {
            let log = store.log();
            return log.durable() == log.appended() && behind.bytes >= STOP_BYTES_MIN;
        }
        if store.log().is_low() {
            // The last room of the disk belongs to what makes room.
            return false;
        }
        let is_quiet = now.us >= self.quiet_since_us + QUIET_US;
        (is_quiet && behind.bytes >= QUIET_BYTES_MIN)
            || behind.is_long(self.policy.log_bytes, self.counters.snapshot_bytes)
    }

    /// Bytes of log from one snapshot to the next under load, at least.
    fn interval(&self) -> u64 {
        least_bytes(self.counters.snapshot_bytes).max(self.policy.log_bytes)
    }

    fn begin<P: Blocks>(&mut self, store: &mut Store<P>, into: &mut Vec<SnapshotWrite>) {
        let Some((taking, bytes)) = Taking::begin(store, self.next_number, self.hash_check) else {
            return;
        };
        self.next_number += 1;
        self.behind = Behind::default();
        self.logged = Behind::of(store.log().counters());
        self.taking_bytes = 0;
        self.is_last = false;
        let name = taking.name();
        self.taking = Some(taking);
        self.write(name, WriteStep::First, bytes, into);
    }

    fn write(
        &mut self,
        name: SnapshotName,
        step: WriteStep,
        bytes: Vec<u8>,
        into: &mut Vec<SnapshotWrite>,
    ) {
        self.is_writing = true;
        self.is_last = step == WriteStep::Last;
        self.taking_bytes += bytes.len() as u64;
        into.push(SnapshotWrite { name, step, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(count: u64, bytes: u64) -> Behind {
        Behind {
            bytes: count * bytes,
            records: count,
        }
    }

    #[test]
    fn large_records_are_replayed_faster_so_more_of_them_lead_to_a_snapshot() {
        let log_bytes = 32 << 20;
        let least = |bytes: u64| {
            let mut counts = (0..).step_by(1_000);
            let count = counts.find(|&count| records(count, bytes).is_long(log_bytes, 0));
            count.expect("some day") * bytes
        };
        assert!((30 << 20..34 << 20).contains(&least(136)), "{}", least(136));
        assert!((90 << 20..100 << 20).contains(&least(1_080)));
    }

    #[test]
    fn a_snapshot_spares_sixteen_times_what_it_takes_unless_a_start_would_read_very_much() {
        let least = |bytes: u64, snapshot_bytes: u64| {
            let mut counts = (0..).step_by(1_000);
            let is_long = |&count: &u64| records(count, bytes).is_long(32 << 20, snapshot_bytes);
            counts.find(is_long).expect("some day") * bytes
        };
        let (few, many) = (3 << 20, 8 << 20);
        assert!((46 << 20..50 << 20).contains(&least(136, few)));
        assert!((128 << 20..132 << 20).contains(&least(136, many)));
        assert!((135 << 20..145 << 20).contains(&least(1_080, few)));
        assert!((360 << 20..384 << 20).contains(&least(1_080, many)));
        assert!((384 << 20..388 << 20).contains(&least(1_080, 2 * many)));
    }

    #[test]
    fn snapshots_take_at_most_a_quarter_of_what_is_logged_and_a_sixteenth_as_long_as_starts_stay_short()
     {
        let share = |snapshot_bytes: u64| least_bytes(snapshot_bytes) / snapshot_bytes;
        assert_eq!(share(1 << 10), 16);
        assert_eq!(share(24 << 20), 16);
        assert_eq!(share(64 << 20), 6);
        assert_eq!(share(96 << 20), 4);
        assert_eq!(share(1 << 30), 4);
        // Whatever the records are, a large index waits for it.
        let long = records(1 << 20, 136);
        assert!(long.is_long(32 << 20, 8 << 20));
        assert!(!long.is_long(32 << 20, 64 << 20));
    }

    #[test]
    fn what_is_behind_grows_with_the_log_from_where_a_snapshot_began() {
        let start = records(10, 100);
        let then = records(5, 50);
        let now = records(7, 50);
        assert_eq!(
            start.plus(now, then),
            Behind {
                bytes: 1_100,
                records: 12
            }
        );
    }
}
