//! One partition at one node: what the node has promised, what it holds, what it is to it.
//!
//! Two edges move through it. What was *received* stands in memory, in order; what was *applied*
//! stands in the node's log. Between them is what the primary's disk may still lose.

use std::collections::VecDeque;

use super::planted::{Bug, is_planted};
use penstock_net::link::message::EpochEntry;
use penstock_net::link::{Begin, Mode, Position, UnderWay};
use penstock_storage::place::Lsn;

use super::epoch::{Epoch, EpochHistory};
use super::record::ShippedRecord;
use super::{Journal, LinkId, PartitionId, Work};

/// What a partition's local record tells, beside what its other records tell by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nothing is taken under a lower epoch.
    pub promised: Epoch,
    /// A scan has begun: complete only up to here.
    pub scan_from: Option<Position>,
    /// What the log holds behind this and is not of the history has diverged, and its keys are to be
    /// written anew.
    pub rewind_from: Option<Position>,
    /// The log has not every sequence up to this one: they came by a scan.
    pub dense_behind: u64,
}

/// What the node is to the partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing runs.
    Idle,
    /// It writes, or is about to: `begun` is the epoch's first record, once it was appended.
    Primary {
        /// Its epoch.
        epoch: Epoch,
        /// Of the epoch's first record.
        begun: Option<Lsn>,
    },
    /// It gets what a primary writes.
    Member(Membership),
}

/// A partition that gets what a primary writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// By which link.
    pub link: LinkId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// How, once it has begun.
    mode: Option<Mode>,
    /// It was told to have caught up, and has applied all up to there.
    joined: bool,
}

/// Received, and not applied.
#[derive(Debug)]
struct Kept {
    /// The frame that it came in, which must be told durable; 0 if that was told.
    frame: u64,
    what: KeptWhat,
}

#[derive(Debug)]
enum KeptWhat {
    /// Its bytes stand behind those of the records before it.
    Record {
        position: Position,
        bytes: usize,
    },
    Join {
        at: Position,
    },
}

/// The bytes of records that are received and not applied, one behind the other: one memory for all of a partition.
#[derive(Debug, Default)]
struct KeptBytes {
    bytes: Vec<u8>,
    /// Before here all were applied.
    start: usize,
}

/// What is kept for the next records when none are there.
const KEPT_IDLE_BYTES: usize = 16 << 10;

impl KeptBytes {
    /// Those of records that are not applied.
    fn behind(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
    }

    /// The first so many are applied.
    fn pass(&mut self, bytes: usize) {
        self.start += bytes;
        // Each byte is moved once at most for one that was passed.
        if self.start >= self.bytes.len().div_ceil(2) {
            self.bytes.drain(..self.start);
            self.start = 0;
            if self.bytes.is_empty() && self.bytes.capacity() > KEPT_IDLE_BYTES {
                self.bytes = Vec::new();
            }
        }
    }
}

/// The last position of a past that goes on.
fn endless(history: &EpochHistory) -> Position {
    Position {
        epoch: history.last().map_or(0, |epoch| epoch.0),
        sequence: u64::MAX,
    }
}

/// What is to be applied next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicable<'a> {
    /// A record to be appended to the log: [`Partition::record_applied`].
    Record {
        /// Its version.
        position: Position,
        /// Its parts, as they were shipped.
        bytes: &'a [u8],
        /// It must be in the log, also if all of its keys have newer versions.
        is_dense: bool,
        /// No key has a newer version. In a scan one may; and a diverged tail may have been written under a
        /// later epoch than what is followed now, until its keys are written anew.
        is_news: bool,
    },
    /// The partition is whole: [`Partition::join`].
    Join,
}

/// Why a node cannot begin to write a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotBegin {
    /// A later generation was promised, or another node has this one, or its starts are used up.
    Promised(Epoch),
    /// A scan or a rewind is not finished, or nothing was ever received: what it would serve never was.
    NotWhole,
    /// It has started since it last followed: what it had received by then is gone, and with it perhaps
    /// what was acknowledged at level `replica`.
    Behind,
}

/// What became of an OPEN.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// A higher epoch was promised.
    Rejected(Epoch),
    /// STATE may tell so when this is durable.
    Accepted { gate: Lsn },
}

/// What became of a HANDOVER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenOver {
    /// All of the partition is here: it may begin.
    All,
    /// It is not: what was there once is lost.
    Lacks,
    /// It was taken over before, or somebody else has it.
    Past,
}

/// Why a partition does not go on as its source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CannotGoOn {
    /// BEGIN has no place here, or not from there.
    Misplaced,
    /// The source has lost records that it had told durable: [`EpochHistory::has_gone_back`].
    GoneBack,
    /// An epoch of what is here was written again by a node that had gone back: what is here cannot be told from that.
    WrittenTwice(Epoch),
}

/// A message that has no place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

/// One partition at one node.
#[derive(Debug)]
pub struct Partition {
    number: PartitionId,
    facts: Facts,
    /// The newest record of the facts.
    noted: Lsn,
    /// Of the log, or of the primary that is followed.
    history: EpochHistory,
    /// The last record in the log; in a scan the highest version.
    applied: Position,
    /// The last record that is there, if only in memory. Means nothing in a scan.
    received: Position,
    role: Role,
    /// It has joined in this life.
    has_followed: bool,
    kept: VecDeque<Kept>,
    kept_bytes: KeptBytes,
}

impl Partition {
    /// What a start found in the log: nothing runs.
    #[must_use]
    pub fn recovered(
        number: PartitionId,
        facts: Facts,
        history: EpochHistory,
        highest: Position,
    ) -> Self {
        Partition {
            number,
            facts,
            noted: Lsn(0),
            history,
            applied: highest,
            received: highest,
            role: Role::Idle,
            has_followed: false,
            kept: VecDeque::new(),
            kept_bytes: KeptBytes::default(),
        }
    }

    /// What its local record tells.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What the node is to it.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Which epochs wrote what is applied.
    #[must_use]
    pub fn history(&self) -> &EpochHistory {
        &self.history
    }

    /// The last record in the log; in a scan the highest version.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// The last record that is there, if only in memory.
    #[must_use]
    pub fn received(&self) -> Position {
        self.received
    }

    /// Bytes of records that are received and not applied.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes.behind().len()
    }

    /// Whether it is a state that a primary had, and may be served: no scan and no rewind is
    /// unfinished.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_unfinished = self.facts.scan_from.is_some() || self.facts.rewind_from.is_some();
        !is_unfinished || is_planted(Bug::ScanReadable)
    }

    /// Whether it has joined since this start, and so still has what it had received.
    #[must_use]
    pub fn has_followed(&self) -> bool {
        self.has_followed
    }

    /// Whether a reader may see it: a member that has applied all up to a JOIN.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match &self.role {
            Role::Member(member) => member.joined,
            Role::Primary { begun, .. } => begun.is_some() && self.own_tail().is_none(),
            Role::Idle => false,
        }
    }

    /// Whether this node, by its number, wrote the last record that it has: then all that it acknowledged is on its disk.
    #[must_use]
    pub fn was_last(&self, node: u8) -> bool {
        let last = self.history.last_to(self.received);
        last.is_some_and(|last| last.node() == node)
    }

    /// The first frame of its link of which something is not applied.
    #[must_use]
    pub fn unapplied(&self) -> Option<u64> {
        self.kept.front().map(|kept| kept.frame)
    }

    /// Whether a version is of its past and applied.
    #[must_use]
    pub fn holds(&self, version: Position) -> bool {
        version.sequence == 0
            || version <= self.applied && self.history.contains(version, self.applied)
    }

    // ---- as a primary ----

    /// Begins to write under the next epoch of a generation. What was received counts from now on;
    /// when it is applied, [`Partition::first_record`] is to be appended. With `is_forced` also
    /// what is not whole; so a partition is made.
    ///
    /// # Errors
    /// [`CannotBegin`]; nothing changed.
    pub fn begin(
        &mut self,
        generation: u32,
        node: u8,
        is_forced: bool,
        journal: &mut impl Journal,
    ) -> Result<Epoch, CannotBegin> {
        let promised = self.facts.promised;
        let epoch = match is_planted(Bug::EpochResumed) {
            true if promised.generation() == generation && promised.node() == node => promised,
            _ => Epoch::next(generation, node, promised).ok_or(CannotBegin::Promised(promised))?,
        };
        // A member that never got anything would begin another past.
        if (!self.is_whole() || self.received.sequence == 0) && !is_forced {
            return Err(CannotBegin::NotWhole);
        }
        if !self.was_last(node)
            && !self.has_followed
            && !is_forced
            && !is_planted(Bug::ReceivedIsDurable)
        {
            return Err(CannotBegin::Behind);
        }
        self.promise(epoch, journal);
        self.role = Role::Primary { epoch, begun: None };
        for kept in &mut self.kept {
            kept.frame = 0;
        }
        Ok(epoch)
    }

    /// The first record of an epoch that has begun, once all that was received is applied: its
    /// position, and the history that is its value. `start_id` is of this start of the node.
    #[must_use]
    pub fn first_record(&self, start_id: u32) -> Option<(Position, EpochHistory)> {
        let Role::Primary { epoch, begun: None } = self.role else {
            return None;
        };
        if !self.kept.is_empty() {
            return None;
        }
        let complete = self.complete();
        let position = Position {
            epoch: epoch.0,
            sequence: complete.sequence + 1,
        };
        let mut history = self.history.clone();
        history.cut(complete);
        history.push(EpochEntry {
            epoch: epoch.0,
            start_id: match is_planted(Bug::StartsAlike) {
                true => 0,
                false => start_id,
            },
            first: position.sequence,
        });
        Some((position, history))
    }

    /// Up to where all is here: of what a scan brings only some is.
    fn complete(&self) -> Position {
        let Some(from) = self.facts.scan_from else {
            return self.applied;
        };
        // The first record of a past tells it, and nothing else: who has nothing else has that.
        let first = self.history.entries().next();
        let first = first.filter(|first| first.first == 1 && from.sequence == 0);
        first.map_or(from, |first| Position {
            epoch: first.epoch,
            sequence: first.first,
        })
    }

    /// The first record was appended: the partition is served, unless there is an [`Partition::own_tail`].
    ///
    /// # Panics
    /// If there is none to append.
    pub fn begun(&mut self, start_id: u32, lsn: Lsn, journal: &mut impl Journal) {
        let (position, history) = self.first_record(start_id).expect("it was asked for");
        self.history = history;
        (self.applied, self.received) = (position, position);
        let under_way = [self.facts.scan_from, self.facts.rewind_from];
        if let Some(from) = under_way.into_iter().flatten().min() {
            // Forced: what is there is all there is.
            self.facts.dense_behind = position.sequence;
            self.facts.scan_from = None;
            self.facts.rewind_from = Some(from).filter(|_| !is_planted(Bug::OwnTailStays));
            self.noted = journal.note(self.number, &self.facts);
        }
        if let Role::Primary { begun, .. } = &mut self.role {
            *begun = Some(lsn);
        }
    }

    /// It was begun by force in the middle of a scan or a rewind, and is complete up to here alone. What it got and
    /// deleted since may outrank what is here, behind a start or at a member: it is to be written anew first.
    #[must_use]
    pub fn own_tail(&self) -> Option<Position> {
        match self.role {
            Role::Primary { begun: Some(_), .. } => self.facts.rewind_from,
            _ => None,
        }
    }

    /// The keys of its own tail are written anew: when that is durable, the partition is served.
    ///
    /// # Panics
    /// If there is no such tail.
    pub fn own_tail_rewritten(&mut self, journal: &mut impl Journal) {
        assert!(self.own_tail().is_some(), "it was begun by force");
        self.facts.rewind_from = None;
        self.noted = journal.note(self.number, &self.facts);
        if let Role::Primary { begun, .. } = &mut self.role {
            // Behind all of them.
            *begun = Some(self.noted);
        }
    }

    /// The epoch in which it may be opened at members, now that the log is durable up to `durable`:
    /// were its first record lost, another start might use the epoch again. Not before what is here is what a
    /// start would find.
    #[must_use]
    pub fn may_open(&self, durable: Lsn) -> Option<Epoch> {
        match self.role {
            Role::Primary {
                epoch,
                begun: Some(begun),
            } if begun <= durable || is_planted(Bug::PromiseNotDurable) => {
                self.own_tail().is_none().then_some(epoch)
            }
            _ => None,
        }
    }

    /// Whether a client's write may be executed, now that the log is durable up to `durable`: a version
    /// that was told once must not be given out by another start.
    #[must_use]
    pub fn may_write(&self, durable: Lsn) -> bool {
        self.may_open(durable).is_some()
    }

    /// The position of the next write.
    ///
    /// # Panics
    /// If it may not write.
    pub fn next_position(&mut self) -> Position {
        let Role::Primary {
            epoch,
            begun: Some(_),
        } = self.role
        else {
            panic!("a partition is written by its primary");
        };
        self.applied = Position {
            epoch: epoch.0,
            sequence: self.applied.sequence + 1,
        };
        self.received = self.applied;
        self.applied
    }

    /// A primary has written up to this sequence.
    ///
    /// # Panics
    /// If it had written more.
    pub fn written_up_to(&mut self, sequence: u64) {
        if let Role::Primary {
            epoch,
            begun: Some(_),
        } = self.role
            && sequence != self.applied.sequence
        {
            assert!(sequence > self.applied.sequence, "writes follow each other");
            self.applied = Position {
                epoch: epoch.0,
                sequence,
            };
            self.received = self.applied;
        }
    }

    /// Somebody has promised a higher epoch: nothing is written any more, nor taken under a lower one.
    /// Whether it was primary.
    pub fn depose(&mut self, higher: Epoch, journal: &mut impl Journal) -> bool {
        if higher > self.facts.promised {
            self.promise(higher, journal);
        }
        let was_primary = matches!(self.role, Role::Primary { epoch, .. } if epoch < higher);
        if was_primary {
            self.role = Role::Idle;
        }
        if matches!(&self.role, Role::Member(member) if member.epoch < higher) {
            self.close();
        }
        was_primary
    }

    fn promise(&mut self, epoch: Epoch, journal: &mut impl Journal) {
        self.facts.promised = epoch;
        self.noted = journal.note(self.number, &self.facts);
    }

    // ---- as a member ----

    /// A primary wants to ship under `epoch`.
    pub(super) fn open(
        &mut self,
        link: LinkId,
        epoch: Epoch,
        journal: &mut impl Journal,
        work: &mut VecDeque<Work>,
    ) -> Opened {
        let promised = self.facts.promised;
        if epoch < promised && !is_planted(Bug::LowerEpochAccepted) {
            return Opened::Rejected(promised);
        }
        // A node's own epochs come back to it by nobody.
        if let Role::Primary { epoch: own, .. } = self.role
            && own >= epoch
        {
            return Opened::Rejected(own);
        }
        if self.depose(epoch, journal) {
            work.push_back(Work::Deposed {
                partition: self.number,
                epoch,
            });
        }
        self.close();
        self.role = Role::Member(Membership {
            link,
            epoch,
            mode: None,
            joined: false,
        });
        let gate = match is_planted(Bug::PromiseNotDurable) {
            true => Lsn(0),
            false => self.noted,
        };
        Opened::Accepted { gate }
    }

    /// What STATE tells: what is under way, up to where it is complete, and the history up to there.
    #[must_use]
    pub fn state(&self) -> (UnderWay, Position, EpochHistory) {
        let (under_way, complete) = match (self.facts.scan_from, self.facts.rewind_from) {
            (Some(_), _) if is_planted(Bug::ScanPosition) => {
                (UnderWay::Nothing, self.received.max(self.applied))
            }
            (Some(from), _) => (UnderWay::Scan, from),
            (None, Some(_)) => (UnderWay::Rewind, self.received),
            (None, None) => (UnderWay::Nothing, self.received),
        };
        let mut history = self.history.clone();
        history.cut(complete);
        (under_way, complete, history)
    }

    /// Goes on from a position that both have: all up to it is durable at the source, and what is
    /// behind it and not of the source's history has diverged. Whether REWIND is owed.
    pub(super) fn go_on(
        &mut self,
        link: LinkId,
        begin: &Begin<'_>,
        journal: &mut impl Journal,
        work: &mut VecDeque<Work>,
    ) -> Result<bool, CannotGoOn> {
        let is_awaited = matches!(&self.role, Role::Member(member)
            if member.link == link && member.epoch.0 == begin.epoch && member.mode.is_none());
        let (under_way, complete, history) = self.state();
        let from = begin.from;
        let told = EpochHistory::told(&begin.epochs);
        let is_common = |history: &EpochHistory, head| {
            from == Position::default() || history.contains(from, head)
        };
        let is_possible = from <= complete
            && is_common(&history, complete)
            && is_common(&told, endless(&told))
            && (begin.mode == Mode::Scan || under_way != UnderWay::Scan);
        if !is_awaited || !is_possible {
            return Err(CannotGoOn::Misplaced);
        }
        // What is applied was told durable there. A scan is asked for by who knows that it lacks some.
        let is_whole = self.facts.scan_from.is_none() && self.facts.rewind_from.is_none();
        let mut held = self.history.clone();
        held.cut(self.applied);
        if is_whole
            && told.has_gone_back(&held, self.applied, from)
            && !is_planted(Bug::GoneBackFollowed)
        {
            return Err(CannotGoOn::GoneBack);
        }
        if let Some(epoch) = held.written_twice(&told)
            && !is_planted(Bug::GoneBackFollowed)
        {
            // Who wrote it the second time has the older copy, whatever generation it was given since.
            return Err(match epoch.node() == Epoch(begin.epoch).node() {
                true => CannotGoOn::GoneBack,
                false => CannotGoOn::WrittenTwice(epoch),
            });
        }

        let mut diverged = Vec::new();
        let mut before = std::mem::take(&mut self.kept_bytes);
        for mut kept in std::mem::take(&mut self.kept) {
            // A join of another connection says nothing of this one.
            let KeptWhat::Record { position, bytes } = kept.what else {
                continue;
            };
            let record = &before.behind()[..bytes];
            if position <= from {
                kept.frame = 0;
                self.kept_bytes.push(record);
                self.kept.push_back(kept);
            } else if !told.shares(&self.history, position, endless(&told)) {
                diverged.push(record.to_vec());
            }
            // What else is of its past, the source ships again.
            before.pass(bytes);
        }
        if !diverged.is_empty() && !is_planted(Bug::TailNotSaved) {
            work.push_back(Work::Save {
                partition: self.number,
                records: diverged,
            });
        }

        let owes_rewind = under_way != UnderWay::Nothing || from < complete;
        let mut facts = self.facts.clone();
        if begin.mode == Mode::Scan {
            // What is only in memory is not there behind a crash.
            let there = match is_planted(Bug::ScanCountsMemory) {
                true => from,
                false => from.min(self.applied),
            };
            facts.scan_from = Some(facts.scan_from.map_or(there, |before| before.min(there)));
        }
        if owes_rewind {
            facts.rewind_from = Some(facts.rewind_from.map_or(from, |before| before.min(from)));
        }
        if facts != self.facts {
            self.facts = facts;
            self.noted = journal.note(self.number, &self.facts);
        }
        if let Some(from) = self.facts.rewind_from.filter(|_| owes_rewind) {
            work.push_back(Work::SaveTail {
                partition: self.number,
                link,
                from,
                history: told.clone(),
            });
        }
        self.history = told;
        self.received = from;
        if self.facts.scan_from.is_none() {
            self.applied = self.applied.min(from);
        }
        if let Role::Member(member) = &mut self.role {
            member.mode = Some(begin.mode);
        }
        Ok(owes_rewind)
    }

    /// Its diverged tail is not all in the log any more, so nobody can tell which keys it changed: it is
    /// complete up to the fork alone, until a scan has brought all of it.
    ///
    /// # Panics
    /// If no tail is looked for.
    pub fn must_scan(&mut self, journal: &mut impl Journal) {
        let fork = self.facts.rewind_from.expect("it has diverged");
        self.facts.scan_from = Some(self.facts.scan_from.map_or(fork, |before| before.min(fork)));
        self.noted = journal.note(self.number, &self.facts);
    }

    /// Whether this link has opened it and not lost it to another: what else comes is dropped.
    pub(super) fn is_opened_by(&self, link: LinkId) -> bool {
        matches!(&self.role, Role::Member(member) if member.link == link)
    }

    /// Whether the record may follow `received`, the last one before it by its link.
    pub(super) fn may_follow(&self, received: Position, record: &ShippedRecord<'_>) -> bool {
        let Role::Member(member) = &self.role else {
            return false;
        };
        if record.position.epoch > member.epoch.0 {
            return false;
        }
        match member.mode {
            Some(Mode::Dense) => {
                let is_next = record.position.sequence == received.sequence + 1
                    || (is_planted(Bug::GapAccepted)
                        && record.position.sequence > received.sequence);
                is_next && record.position.epoch >= received.epoch && !record.is_copy
            }
            Some(Mode::Scan) => true,
            None => false,
        }
    }

    /// Takes a record that may follow.
    pub(super) fn take(&mut self, frame: u64, record: &ShippedRecord<'_>) {
        let is_dense =
            matches!(&self.role, Role::Member(member) if member.mode == Some(Mode::Dense));
        self.received = match is_dense {
            true => record.position,
            false => self.received.max(record.position),
        };
        self.kept_bytes.push(record.bytes);
        self.kept.push_back(Kept {
            frame: match is_planted(Bug::ApplyUntold) {
                true => 0,
                false => frame,
            },
            what: KeptWhat::Record {
                position: record.position,
                bytes: record.bytes.len(),
            },
        });
    }

    /// It has caught up.
    pub(super) fn take_join(
        &mut self,
        link: LinkId,
        frame: u64,
        at: Position,
    ) -> Result<(), Misplaced> {
        let Role::Member(member) = &mut self.role else {
            return Err(Misplaced);
        };
        let is_in_place = member.link == link
            && match member.mode {
                Some(Mode::Dense) => at == self.received,
                Some(Mode::Scan) => true,
                None => false,
            };
        if !is_in_place {
            return Err(Misplaced);
        }
        member.mode = Some(Mode::Dense);
        self.received = at;
        self.kept.push_back(Kept {
            frame,
            what: KeptWhat::Join { at },
        });
        Ok(())
    }

    /// What is to be applied next, if frames up to `told` of its link are durable at the source.
    #[must_use]
    pub fn applicable(&self, told: u64) -> Option<Applicable<'_>> {
        let kept = self.kept.front().filter(|kept| kept.frame <= told)?;
        Some(match kept.what {
            KeptWhat::Record { position, bytes } => Applicable::Record {
                position,
                bytes: &self.kept_bytes.behind()[..bytes],
                is_dense: self.facts.scan_from.is_none(),
                is_news: self.facts.scan_from.is_none() && self.facts.rewind_from.is_none(),
            },
            KeptWhat::Join { .. } => Applicable::Join,
        })
    }

    /// The records that may be applied, if frames up to `told` of its link are durable at the source, oldest first.
    pub fn upcoming(&self, told: u64) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.kept_bytes.behind();
        let told = self.kept.iter().take_while(move |kept| kept.frame <= told);
        told.filter_map(move |kept| match kept.what {
            KeptWhat::Record { bytes, .. } => {
                let (record, behind) = rest.split_at(bytes);
                rest = behind;
                Some(record)
            }
            KeptWhat::Join { .. } => None,
        })
    }

    /// The record that was to be applied is in the log. Which frame it came in; 0 if by another link.
    ///
    /// # Panics
    /// If none was to be applied.
    pub fn record_applied(&mut self) -> u64 {
        let Some(Kept {
            frame,
            what: KeptWhat::Record { position, bytes },
        }) = self.kept.pop_front()
        else {
            panic!("a record was to be applied");
        };
        self.kept_bytes.pass(bytes);
        self.applied = match self.facts.scan_from {
            Some(_) => self.applied.max(position),
            None => position,
        };
        frame
    }

    /// Node `source`, which wrote it, tells by a link to begin `epoch`: all that there is of it ends `at`, and was
    /// durable here once. That may be told again, behind a start of either node.
    pub(super) fn take_handover(&mut self, source: u8, epoch: Epoch, at: Position) -> TakenOver {
        let is_others = match &self.role {
            Role::Primary { .. } => true,
            Role::Member(member) => member.epoch.node() != source || member.epoch >= epoch,
            Role::Idle => false,
        };
        if is_others || self.facts.promised.generation() > epoch.generation() || self.received > at
        {
            return TakenOver::Past;
        }
        if self.received != at || !self.is_whole() {
            return TakenOver::Lacks;
        }
        // As if it had joined: what it may have received before a start, and lost, was not acknowledged.
        self.has_followed = true;
        TakenOver::All
    }

    /// All up to a JOIN is applied. Its frame.
    ///
    /// # Panics
    /// If no JOIN was next.
    pub fn join(&mut self, journal: &mut impl Journal) -> u64 {
        let Some(Kept {
            frame,
            what: KeptWhat::Join { at },
        }) = self.kept.pop_front()
        else {
            panic!("a join was to be applied");
        };
        self.applied = at;
        if self.facts.scan_from.is_some() {
            self.facts.dense_behind = at.sequence;
        }
        if self.facts.scan_from.is_some() || self.facts.rewind_from.is_some() {
            (self.facts.scan_from, self.facts.rewind_from) = (None, None);
            self.noted = journal.note(self.number, &self.facts);
        }
        // One from before it was primary says nothing of whom it follows now.
        if let Role::Member(member) = &mut self.role
            && frame > 0
        {
            member.joined = true;
            self.has_followed = true;
        }
        frame
    }

    /// Its link is gone, or another one takes over. What was received stays: somebody may have been
    /// told that it was.
    pub(super) fn close(&mut self) {
        if matches!(self.role, Role::Member(_)) {
            self.role = Role::Idle;
        }
        if is_planted(Bug::PendingForgotten) {
            self.kept.clear();
            self.kept_bytes = KeptBytes::default();
            self.received = self.applied;
        }
        for kept in &mut self.kept {
            // Of no link that is there: told durable by the next BEGIN, or by nobody.
            if kept.frame > 0 {
                kept.frame = u64::MAX;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::link::message::Epochs;

    use super::*;
    use crate::replication::record::records;
    use crate::replication::tests::{Noted, encoded, keys_of_partition};

    const LINK: LinkId = LinkId(1);

    fn at(epoch: Epoch, sequence: u64) -> Position {
        Position {
            epoch: epoch.0,
            sequence,
        }
    }

    fn opened(partition: &mut Partition, epoch: Epoch) {
        let mut work = VecDeque::new();
        let opened = partition.open(LINK, epoch, &mut Noted, &mut work);
        assert_eq!(opened, Opened::Accepted { gate: Lsn(0) });
        assert_eq!(work, []);
    }

    /// Goes on with a past of this one epoch, from its begin.
    fn gone_on(partition: &mut Partition, epoch: Epoch, mode: Mode) -> VecDeque<Work> {
        let entry = EpochEntry {
            epoch: epoch.0,
            start_id: 11,
            first: 1,
        };
        let mut entries = Vec::new();
        let begin = Begin {
            partition: 7,
            mode,
            epoch: epoch.0,
            from: Position::default(),
            epochs: Epochs::write(&mut entries, [entry]),
        };
        let mut work = VecDeque::new();
        let gone_on = partition.go_on(LINK, &begin, &mut Noted, &mut work);
        assert!(gone_on.is_ok(), "{gone_on:?}");
        work
    }

    /// Goes on by a scan: whether something has diverged.
    fn scan_diverges(partition: &mut Partition, epoch: Epoch) -> bool {
        let work = gone_on(partition, epoch, Mode::Scan);
        work.iter().any(|it| matches!(it, Work::Save { .. }))
    }

    fn empty() -> Partition {
        Partition::recovered(
            7,
            Facts::default(),
            EpochHistory::default(),
            Position::default(),
        )
    }

    #[test]
    fn what_a_scan_has_brought_is_no_diverged_tail_when_the_scan_begins_again() {
        let epoch = Epoch::new(1, 0, 1);
        let mut partition = empty();
        opened(&mut partition, epoch);
        assert!(!scan_diverges(&mut partition, epoch));
        let key = keys_of_partition(7, 1).remove(0);
        let bytes = encoded(at(epoch, 5), &[(&key, 1)]);
        let record = records(&bytes).next().expect("one").expect("sound");
        partition.take(3, &record);
        partition.close();
        opened(&mut partition, epoch);
        assert!(!scan_diverges(&mut partition, epoch));
        // One that another start of the same epoch wrote is one.
        partition.take(3, &record);
        partition.close();
        partition.history = EpochHistory::default();
        opened(&mut partition, epoch);
        assert!(scan_diverges(&mut partition, epoch));
    }

    #[test]
    fn a_member_under_a_lower_epoch_than_is_promised_is_one_no_more() {
        let (low, high) = (Epoch::new(1, 0, 1), Epoch::new(2, 0, 2));
        let mut partition = empty();
        opened(&mut partition, low);
        assert!(!partition.depose(low, &mut Noted));
        assert!(partition.is_opened_by(LINK));
        assert!(!partition.depose(high, &mut Noted));
        assert!(!partition.is_opened_by(LINK));
        assert_eq!(partition.facts().promised, high);
    }

    #[test]
    fn a_join_of_an_earlier_primary_makes_no_member_of_a_later_one() {
        let (first, later) = (Epoch::new(1, 0, 1), Epoch::new(3, 0, 3));
        let mut partition = empty();
        opened(&mut partition, first);
        gone_on(&mut partition, first, Mode::Dense);
        let key = keys_of_partition(7, 1).remove(0);
        let bytes = encoded(at(first, 1), &[(&key, 1)]);
        let record = records(&bytes).next().expect("one").expect("sound");
        partition.take(3, &record);
        assert_eq!(partition.take_join(LINK, 4, at(first, 1)), Ok(()));

        // Before its source's disk is known to have them it is promoted, and deposed before they are applied.
        assert!(partition.begin(2, 2, true, &mut Noted).is_ok());
        let opened = partition.open(LinkId(2), later, &mut Noted, &mut VecDeque::new());
        assert!(matches!(opened, Opened::Accepted { .. }));
        assert_eq!(partition.record_applied(), 0);
        assert_eq!(partition.applicable(0), Some(Applicable::Join));
        assert_eq!(partition.join(&mut Noted), 0);
        assert!(!partition.is_readable() && !partition.has_followed());
    }

    #[test]
    fn who_begins_in_the_middle_of_a_scan_claims_no_more_than_it_has() {
        let (first, second) = (Epoch::new(1, 0, 1), Epoch::new(2, 0, 2));
        let history = EpochHistory::of([EpochEntry {
            epoch: first.0,
            start_id: 1,
            first: 1,
        }]);
        for (complete, claimed) in [(at(first, 6), 6), (Position::default(), 1)] {
            let facts = Facts {
                promised: first,
                scan_from: Some(complete),
                ..Facts::default()
            };
            let mut partition = Partition::recovered(7, facts, history.clone(), at(first, 17));
            let refused = partition.begin(2, 2, false, &mut Noted);
            assert_eq!(refused, Err(CannotBegin::NotWhole));
            assert_eq!(partition.begin(2, 2, true, &mut Noted), Ok(second));
            partition.begun(5, Lsn(3), &mut Noted);
            assert_eq!(partition.applied(), at(second, claimed + 1));
            let claims = |sequence| {
                let history = partition.history();
                history.contains(at(first, sequence), partition.applied())
            };
            assert_eq!((claims(claimed), claims(claimed + 1)), (true, false));
            assert_eq!(partition.own_tail(), Some(complete));
            assert_eq!(partition.may_open(Lsn(3)), None);
            partition.own_tail_rewritten(&mut Noted);
            assert_eq!(partition.may_open(Lsn(3)), Some(second));
        }
    }
}
