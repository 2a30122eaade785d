//! What a node notes about one of its partitions, and where the note stands in its log.

use penstock_net::link::Position;
use penstock_storage::place::Lsn;

use crate::replication::epoch::Epoch;
use crate::replication::planted::{Bug, is_planted};
use crate::replication::{Journal, PartitionId};

/// What a partition's local record tells, beside what its other records tell by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nothing is taken under a lower epoch.
    pub promised: Epoch,
    /// A scan has begun: complete only up to here.
    pub scan_from: Option<Position>,
    /// What the log holds behind this and is not of the history has diverged, and its keys are to
    /// be written anew.
    pub rewind_from: Option<Position>,
    /// The log has not every sequence up to this one: they came by a scan.
    pub dense_behind: u64,
    /// Up to here what the log had of the past of keys did not come in order. While a scan or a
    /// rewind is under way nothing of the past is known.
    pub past_floor: Option<PastFloor>,
}

/// From when on the kept versions of a partition are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastFloor {
    /// Each key was here as it was at this position, without its past; every later record is known.
    pub at: Position,
    /// No record up to there is younger, in unix milliseconds.
    pub time_ms: u64,
}

impl PastFloor {
    /// The partition is whole at this position, and this is the time of the store.
    fn behind(at: Position, time_ms: u64) -> Option<Self> {
        (!is_planted(Bug::FloorForgotten)).then_some(PastFloor { at, time_ms })
    }
}

impl Facts {
    /// Whether no scan and no rewind is unfinished.
    pub(super) fn is_whole(&self) -> bool {
        self.scan_from.is_none() && self.rewind_from.is_none()
    }
}

/// The facts of a partition. Each change is noted in the journal.
#[derive(Debug)]
pub(super) struct LocalRecord {
    partition: PartitionId,
    facts: Facts,
    /// The newest note.
    noted: Lsn,
}

fn earlier(known: Option<Position>, other: Position) -> Option<Position> {
    Some(known.map_or(other, |known| known.min(other)))
}

impl LocalRecord {
    /// What a start found.
    pub(super) fn recovered(partition: PartitionId, facts: Facts) -> Self {
        LocalRecord {
            partition,
            facts,
            noted: Lsn(0),
        }
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The newest note.
    pub(super) fn noted(&self) -> Lsn {
        self.noted
    }

    fn note(&mut self, journal: &mut impl Journal) {
        self.noted = journal.note(self.partition, &self.facts);
    }

    /// Nothing is taken under a lower epoch from now on.
    pub(super) fn promise(&mut self, epoch: Epoch, journal: &mut impl Journal) {
        self.facts.promised = epoch;
        self.note(journal);
    }

    /// The node begins to write by this sequence. If a scan or a rewind is unfinished, what is
    /// there is all there is, and the keys behind it are to be written anew.
    pub(super) fn begin(&mut self, first: u64, journal: &mut impl Journal) {
        let under_way = [self.facts.scan_from, self.facts.rewind_from];
        let Some(from) = under_way.into_iter().flatten().min() else {
            return;
        };
        self.facts.dense_behind = first;
        self.facts.scan_from = None;
        self.facts.rewind_from = Some(from).filter(|_| !is_planted(Bug::OwnTailStays));
        self.note(journal);
    }

    /// The keys behind the fork are written anew, the last of them here.
    pub(super) fn rewritten(&mut self, last: Position, time_ms: u64, journal: &mut impl Journal) {
        self.facts.rewind_from = None;
        self.facts.past_floor = PastFloor::behind(last, time_ms);
        self.note(journal);
    }

    /// A scan begins, a rewind, or both, unless an earlier one is under way.
    pub(super) fn go_on(
        &mut self,
        scan_from: Option<Position>,
        rewind_from: Option<Position>,
        journal: &mut impl Journal,
    ) {
        let mut facts = self.facts.clone();
        if let Some(from) = scan_from {
            facts.scan_from = earlier(facts.scan_from, from);
        }
        if let Some(from) = rewind_from {
            facts.rewind_from = earlier(facts.rewind_from, from);
        }
        if facts != self.facts {
            self.facts = facts;
            self.note(journal);
        }
    }

    /// The partition is complete up to the fork alone.
    ///
    /// # Panics
    /// If nothing has diverged.
    pub(super) fn must_scan(&mut self, journal: &mut impl Journal) {
        let fork = self.facts.rewind_from.expect("it has diverged");
        self.facts.scan_from = earlier(self.facts.scan_from, fork);
        self.note(journal);
    }

    /// The partition is whole up to this position.
    pub(super) fn joined(&mut self, at: Position, time_ms: u64, journal: &mut impl Journal) {
        if self.facts.scan_from.is_some() {
            self.facts.dense_behind = at.sequence;
        }
        if !self.facts.is_whole() {
            (self.facts.scan_from, self.facts.rewind_from) = (None, None);
            self.facts.past_floor = PastFloor::behind(at, time_ms);
            self.note(journal);
        }
    }
}
