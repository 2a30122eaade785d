//! One partition at one node: the promised epoch, the records, and the node's role.
//!
//! Two edges move through it. What was *received* stands in memory, in order; what was *applied*
//! stands in the node's log. Between them is what the primary's disk may still lose.

mod local_record;
mod overview;
mod pending;
mod role;

use std::collections::VecDeque;

use penstock_net::link::message::EpochEntry;
use penstock_net::link::{Begin, Mode, Position, UnderWay};
use penstock_storage::place::Lsn;

use super::epoch::{Epoch, EpochHistory};
use super::planted::{self, Bug, is_planted};
use super::record::ShippedRecord;
use super::{Journal, LinkId, PartitionId, Work};
use penstock_storage::if_planted;

use self::local_record::LocalRecord;
use self::pending::{Pending, PendingRecords};

pub use self::local_record::{Facts, PastFloor};
pub use self::overview::Overview;
pub use self::role::{Membership, Role};

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
        /// No key has a newer version. A key may have one in a scan, and while diverged records
        /// that were written under a later epoch than the one that is followed now are not
        /// rewritten.
        is_news: bool,
    },
    /// The partition is whole: [`Partition::join`].
    Join {
        /// The time of the source when it told so, in unix milliseconds.
        time_ms: u64,
    },
}

/// Why a node cannot begin to write a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotBegin {
    /// A later generation was promised, or another node has this one.
    Promised(Epoch),
    /// This node has started as often in this generation as one may.
    StartsUsedUp(Epoch),
    /// A scan or a rewind is not finished, or nothing was ever received: what it would serve never
    /// was.
    NotWhole,
    /// The node has started since it last followed. Records that it had only received are gone,
    /// perhaps also some that were acknowledged at level `replica`.
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
    /// An epoch of what is here was written again by a node that had gone back: what is here cannot
    /// be told from that.
    WrittenTwice(Epoch),
}

/// A message that has no place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

/// One partition at one node.
#[derive(Debug)]
pub struct Partition {
    number: PartitionId,
    local: LocalRecord,
    /// The history of the log, or that of the primary that is followed.
    history: EpochHistory,
    /// The last record in the log; in a scan the highest version.
    applied: Position,
    /// The last record that is there, if only in memory. Means nothing in a scan.
    received: Position,
    role: Role,
    /// It has joined in this life.
    has_followed: bool,
    pending: PendingRecords,
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
            local: LocalRecord::recovered(number, facts),
            history,
            applied: highest,
            received: highest,
            role: Role::Idle,
            has_followed: false,
            pending: PendingRecords::default(),
        }
    }

    /// What its local record tells.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.local.facts()
    }

    /// What the node is to it.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The epochs that wrote the applied records.
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
        self.pending.bytes()
    }

    /// Whether it is a state that a primary had, and may be served: no scan and no rewind is
    /// unfinished.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.facts().is_whole() || is_planted(Bug::ScanReadable)
    }

    /// Whether the partition has joined since this start, and so still has all records that it had
    /// received.
    #[must_use]
    pub fn has_followed(&self) -> bool {
        self.has_followed
    }

    /// Whether a reader may see it: a member that has applied all up to a JOIN.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match &self.role {
            Role::Member(member) => member.joined,
            Role::Primary { begun, .. } => begun.is_some() && self.own_diverged().is_none(),
            Role::Idle => false,
        }
    }

    /// Whether `node`, the number of this node, wrote the last record here. Then all that the node
    /// acknowledged is on its disk.
    #[must_use]
    pub fn was_last(&self, node: u8) -> bool {
        let last = self.history.last_to(self.received);
        last.is_some_and(|last| last.node() == node)
    }

    /// The first frame of its link that is not applied whole.
    #[must_use]
    pub fn unapplied(&self) -> Option<u64> {
        self.pending.first_frame()
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
        let promised = self.facts().promised;
        let is_ours = (promised.generation(), promised.node()) == (generation, node);
        let epoch = Epoch::next(generation, node, promised).ok_or(match is_ours {
            true => CannotBegin::StartsUsedUp(promised),
            false => CannotBegin::Promised(promised),
        })?;
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
        self.local.promise(epoch, journal);
        self.role = Role::Primary { epoch, begun: None };
        self.pending.admit();
        Ok(epoch)
    }

    /// The first record of an epoch that has begun, once all that was received is applied: its
    /// position, and the history that is its value. `start_id` is of this start of the node.
    #[must_use]
    pub fn first_record(&self, start_id: u32) -> Option<(Position, EpochHistory)> {
        let Role::Primary { epoch, begun: None } = self.role else {
            return None;
        };
        if !self.pending.is_empty() {
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
            start_id: planted::or(Bug::StartsAlike, 0, start_id),
            first: position.sequence,
        });
        Some((position, history))
    }

    /// The position up to which all records are here. During a scan it stays where the scan began.
    fn complete(&self) -> Position {
        let Some(from) = self.facts().scan_from else {
            return self.applied;
        };
        // The first record of a history only tells that its epoch begins. So a node that knows the
        // history has this record, even if it holds nothing else before the scan.
        let first = self.history.entries().next();
        let first = first.filter(|first| first.first == 1 && from.sequence == 0);
        first.map_or(from, |first| Position {
            epoch: first.epoch,
            sequence: first.first,
        })
    }

    /// The first record was appended: the partition is served, unless there is an
    /// [`Partition::own_diverged`].
    ///
    /// # Panics
    /// If there is none to append.
    pub fn begun(&mut self, start_id: u32, lsn: Lsn, journal: &mut impl Journal) {
        let (position, history) = self.first_record(start_id).expect("it was asked for");
        self.history = history;
        (self.applied, self.received) = (position, position);
        self.local.begin(position.sequence, journal);
        if let Role::Primary { begun, .. } = &mut self.role {
            *begun = Some(lsn);
        }
    }

    /// It was begun by force in the middle of a scan or a rewind, and is complete up to here alone.
    /// What it got and deleted since may outrank what is here, behind a start or at a member: it is
    /// to be written anew first.
    #[must_use]
    pub fn own_diverged(&self) -> Option<Position> {
        match self.role {
            Role::Primary { begun: Some(_), .. } => self.facts().rewind_from,
            _ => None,
        }
    }

    /// The keys of its own diverged records are written anew: when that is durable, the partition
    /// is served. `time_ms` is the time of the store.
    ///
    /// # Panics
    /// If there are no such records.
    pub fn own_diverged_rewritten(&mut self, time_ms: u64, journal: &mut impl Journal) {
        assert!(self.own_diverged().is_some(), "it was begun by force");
        self.local.rewritten(self.applied, time_ms, journal);
        if let Role::Primary { begun, .. } = &mut self.role {
            // Behind all of them.
            *begun = Some(self.local.noted());
        }
    }

    /// The epoch in which it may be opened at members, now that the log is durable up to `durable`:
    /// were its first record lost, another start might use the epoch again. Not before what is here
    /// is what a start would find.
    #[must_use]
    pub fn may_open(&self, durable: Lsn) -> Option<Epoch> {
        let (epoch, begun) = self.opening()?;
        (begun <= durable || is_planted(Bug::PromiseNotDurable)).then_some(epoch)
    }

    /// The epoch in which it may be opened once this record is durable.
    fn opening(&self) -> Option<(Epoch, Lsn)> {
        let Role::Primary { epoch, begun } = self.role else {
            return None;
        };
        begun
            .filter(|_| self.own_diverged().is_none())
            .map(|begun| (epoch, begun))
    }

    /// Whether a client's write may be executed, now that the log is durable up to `durable`: a
    /// version that was told once must not be given out by another start.
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

    /// Somebody has promised a higher epoch: nothing is written any more, nor taken under a lower
    /// one. Whether it was primary.
    pub fn depose(&mut self, higher: Epoch, journal: &mut impl Journal) -> bool {
        if higher > self.facts().promised {
            self.local.promise(higher, journal);
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

    // ---- as a member ----

    /// A primary wants to ship under `epoch`.
    pub(super) fn open(
        &mut self,
        link: LinkId,
        epoch: Epoch,
        journal: &mut impl Journal,
        work: &mut VecDeque<Work>,
    ) -> Opened {
        let promised = self.facts().promised;
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
        self.role = Role::Member(Membership::opened(link, epoch));
        let gate = planted::or(Bug::PromiseNotDurable, Lsn(0), self.local.noted());
        Opened::Accepted { gate }
    }

    /// The contents of STATE: the unfinished scan or rewind, the position up to which the partition
    /// is complete, and the history up to that position.
    #[must_use]
    pub fn state(&self) -> (UnderWay, Position, EpochHistory) {
        let (under_way, complete) = match (self.facts().scan_from, self.facts().rewind_from) {
            (Some(_), _) if is_planted(Bug::ScanPosition) => (UnderWay::Nothing, self.received),
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
        let theirs = EpochHistory::of_peer(&begin.epochs);
        self.check_begin(link, begin, &theirs)?;
        let (under_way, complete, _) = self.state();
        let from = begin.from;

        let is_shared = |position| theirs.shares(&self.history, position, endless(&theirs));
        let diverged = self.pending.cut(from, is_shared);
        if !diverged.is_empty() && !is_planted(Bug::TailNotSaved) {
            work.push_back(Work::Save {
                partition: self.number,
                records: diverged,
            });
        }

        let owes_rewind = under_way != UnderWay::Nothing || from < complete;
        // What is only in memory is not there behind a crash.
        let there = planted::or(Bug::ScanCountsMemory, from, from.min(self.applied));
        let scan_from = (begin.mode == Mode::Scan).then_some(there);
        let rewind_from = owes_rewind.then_some(from);
        self.local.go_on(scan_from, rewind_from, journal);
        if let Some(from) = self.facts().rewind_from.filter(|_| owes_rewind) {
            work.push_back(Work::SaveDiverged {
                partition: self.number,
                link,
                from,
                history: theirs.clone(),
            });
        }
        self.history = theirs;
        self.received = from;
        if self.facts().scan_from.is_none() {
            self.applied = self.applied.min(from);
        }
        if let Role::Member(member) = &mut self.role {
            member.mode = Some(begin.mode);
        }
        Ok(owes_rewind)
    }

    /// Whether a source may begin here, with a history that it tells.
    fn check_begin(
        &self,
        link: LinkId,
        begin: &Begin<'_>,
        theirs: &EpochHistory,
    ) -> Result<(), CannotGoOn> {
        let is_awaited = matches!(&self.role, Role::Member(member)
            if member.awaits_begin(link, begin.epoch));
        let (under_way, complete, history) = self.state();
        let from = begin.from;
        let is_common = |history: &EpochHistory, head| {
            from == Position::default() || history.contains(from, head)
        };
        let is_possible = from <= complete
            && is_common(&history, complete)
            && is_common(theirs, endless(theirs))
            && (begin.mode == Mode::Scan || under_way != UnderWay::Scan);
        if !is_awaited || !is_possible {
            return Err(CannotGoOn::Misplaced);
        }
        // Every applied record was announced durable by the source. A member that knows of a gap
        // asks for a scan, so this check is for members without one.
        let mut held = self.history.clone();
        held.cut(self.applied);
        if self.facts().is_whole()
            && theirs.has_gone_back(&held, self.applied, from)
            && !is_planted(Bug::GoneBackFollowed)
        {
            return Err(CannotGoOn::GoneBack);
        }
        if let Some(epoch) = held.written_twice(theirs)
            && !is_planted(Bug::GoneBackFollowed)
        {
            // The node that wrote it the second time has the older copy, whatever generation it was
            // given since.
            return Err(match epoch.node() == Epoch(begin.epoch).node() {
                true => CannotGoOn::GoneBack,
                false => CannotGoOn::WrittenTwice(epoch),
            });
        }
        Ok(())
    }

    /// Its diverged records are not all in the log any more, so nobody can tell which keys they
    /// changed: it is complete up to the fork alone, until a scan has brought all of it.
    ///
    /// # Panics
    /// If no diverged records are looked for.
    pub fn must_scan(&mut self, journal: &mut impl Journal) {
        self.local.must_scan(journal);
    }

    /// Whether this link has opened the partition and no other link has since. Messages of other
    /// links are dropped.
    pub(super) fn is_opened_by(&self, link: LinkId) -> bool {
        matches!(&self.role, Role::Member(member) if member.link == link)
    }

    /// Whether the record may follow `received`, the last one before it by its link.
    pub(super) fn may_follow(&self, received: Position, record: &ShippedRecord<'_>) -> bool {
        matches!(&self.role, Role::Member(member) if member.may_follow(received, record))
    }

    /// Takes a record that may follow.
    pub(super) fn take(&mut self, frame: u64, record: &ShippedRecord<'_>) {
        let is_dense = matches!(&self.role, Role::Member(member) if member.is_dense());
        self.received = match is_dense {
            true => record.position,
            false => self.received.max(record.position),
        };
        self.pending.push(frame, record);
    }

    /// It has caught up, as a frame says, which tells the time of its source.
    pub(super) fn take_join(
        &mut self,
        link: LinkId,
        (frame, time_ms): (u64, u64),
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
        self.pending.push_join(frame, at, time_ms);
        Ok(())
    }

    /// What is to be applied next, if frames up to `announced` of its link are durable at the
    /// source.
    #[must_use]
    pub fn applicable(&self, announced: u64) -> Option<Applicable<'_>> {
        let (first, bytes) = self.pending.first(announced)?;
        Some(match first {
            Pending::Record { position, .. } => Applicable::Record {
                position,
                bytes,
                is_dense: self.facts().scan_from.is_none(),
                is_news: self.facts().is_whole(),
            },
            Pending::Join { time_ms, .. } => Applicable::Join { time_ms },
        })
    }

    /// The records that may be applied, if frames up to `announced` of its link are durable at the
    /// source, oldest first.
    pub fn upcoming(&self, announced: u64) -> impl Iterator<Item = &[u8]> {
        self.pending.upcoming(announced)
    }

    /// Notes that the record that was to be applied next is in the log. Returns the number of the
    /// frame that it came in; 0 if another link brought it.
    ///
    /// # Panics
    /// If none was to be applied.
    pub fn record_applied(&mut self) -> u64 {
        let (frame, position) = self.pending.take_record();
        self.applied = match self.facts().scan_from {
            Some(_) => self.applied.max(position),
            None => position,
        };
        frame
    }

    /// Node `source`, which wrote it, tells by a link to begin `epoch`: all that there is of it
    /// ends `at`, and was durable here once. That may be told again, behind a start of either node.
    pub(super) fn take_handover(&mut self, source: u8, epoch: Epoch, at: Position) -> TakenOver {
        let is_others = match &self.role {
            Role::Primary { .. } => true,
            Role::Member(member) => member.epoch.node() != source || member.epoch >= epoch,
            Role::Idle => false,
        };
        let promised = self.facts().promised;
        // Another node has begun since the source wrote last, so the source hands over what is not
        // its own any more.
        let is_outdated = promised.generation() < epoch.generation()
            && promised.node() != source
            && promised.0 > at.epoch;
        if is_others
            || is_outdated
            || promised.generation() > epoch.generation()
            || self.received > at
        {
            return TakenOver::Past;
        }
        if self.received != at || !self.is_whole() {
            return TakenOver::Lacks;
        }
        // As if it had joined: what it may have received before a start, and lost, was not
        // acknowledged.
        self.has_followed = true;
        TakenOver::All
    }

    /// All up to a JOIN is applied: its frame. `time_ms` is the time of the store, which is not
    /// before that of the JOIN.
    ///
    /// # Panics
    /// If no JOIN was next.
    pub fn join(&mut self, time_ms: u64, journal: &mut impl Journal) -> u64 {
        let (frame, at) = self.pending.take_join();
        self.applied = at;
        self.local.joined(at, time_ms, journal);
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
        if_planted!(Bug::PendingForgotten, self.pending.clear());
        self.received = planted::or(Bug::PendingForgotten, self.applied, self.received);
        self.pending.link_ended();
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
    fn a_handover_by_a_node_behind_which_another_one_has_begun_begins_nothing() {
        let (first, last) = (Epoch::new(1, 0, 1), Epoch::new(3, 0, 2));
        for (promised, expected) in [
            (first, TakenOver::All),
            (Epoch::new(1, 1, 1), TakenOver::All),
            (Epoch::new(2, 0, 3), TakenOver::Past),
            (last, TakenOver::All),
            (Epoch::new(4, 0, 3), TakenOver::Past),
        ] {
            let facts = Facts {
                promised,
                ..Facts::default()
            };
            let history = EpochHistory::default();
            let mut partition = Partition::recovered(7, facts, history, at(first, 6));
            let taken = partition.take_handover(1, last, at(first, 6));
            assert_eq!(taken, expected, "{promised}");
        }
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
        assert_eq!(partition.take_join(LINK, (4, 9), at(first, 1)), Ok(()));

        // Before its source's disk is known to have them it is promoted, and deposed before they
        // are applied.
        assert!(partition.begin(2, 2, true, &mut Noted).is_ok());
        let opened = partition.open(LinkId(2), later, &mut Noted, &mut VecDeque::new());
        assert!(matches!(opened, Opened::Accepted { .. }));
        assert_eq!(partition.record_applied(), 0);
        let join = Applicable::Join { time_ms: 9 };
        assert_eq!(partition.applicable(0), Some(join));
        assert_eq!(partition.join(9, &mut Noted), 0);
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
            assert_eq!(partition.own_diverged(), Some(complete));
            assert_eq!(partition.may_open(Lsn(3)), None);
            partition.own_diverged_rewritten(70, &mut Noted);
            assert_eq!(partition.may_open(Lsn(3)), Some(second));
            let floor = partition.facts().past_floor.expect("it has no past");
            assert_eq!(floor.at, partition.applied());
            assert_eq!(floor.time_ms, 70);
        }
    }
}
