//! The source's side of one link: what a member has, what it is sent next, what it counts for.
//!
//! Two cursors go over the source's log: *live* over the ring, for partitions that have joined, and *catching up* for the
//! others, over segments and then the ring, until the two meet. What a partition was shipped already is
//! never shipped twice in dense mode, so a cursor may be set back at any time.

use std::collections::VecDeque;

use penstock_net::link::frame::{begin_link_frame, finish_link_frame, write_link_frame};
use penstock_net::link::message::{RECORDS, RECORDS_HEAD_BYTES, REWIND_KEYS_MAX, records_head};
use penstock_net::link::{
    Answer, Begin, Close, Epochs, Handover, Join, LINK_HEADER_BYTES, LinkFrame, LinkHeader,
    LinkMessage, Marks, Membership, Mode, Open, Position, RefusalCode, Rewound, State, UnderWay,
};
use penstock_storage::place::Lsn;
use penstock_storage::record::KEY_BYTES_MAX;

use super::epoch::{Epoch, EpochHistory, Fork};
use super::freshness::Echoing;
use super::partition_map::PartitionMap;
use super::planted::{Bug, is_planted};
use super::receiver::{LinkRefusal, Partitions};
use super::record::ShippedRecord;
use super::ring::Ring;
use super::standing::LinkState;
use super::{PartitionId, Work};

/// Whether a member counts at level `replica`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// It is not there, or has not joined durably.
    Not,
    /// It has all of the partition up to this record.
    UpTo(Lsn),
}

/// How far a member has told to have something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// In its memory.
    Received,
    /// On its disk, and to be read there.
    Durable,
}

/// Records that a member has told to have, as they were sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// How far.
    pub confirmed: Confirmed,
    /// The first of them.
    pub first: Lsn,
    /// How many.
    pub records: u32,
}

/// Frames under way on one link, at most.
const FRAMES_MAX: usize = 1024;
/// Bytes of records of one frame, about.
const FRAME_BYTES: usize = 128 << 10;

/// Bytes of the largest frame of a link whose source writes records of at most so many: of records, or
/// of keys that are to be written anew.
#[must_use]
pub fn frame_bytes_needed(record_bytes_max: u32) -> u32 {
    let head = LINK_HEADER_BYTES + RECORDS_HEAD_BYTES;
    let keys = REWIND_KEYS_MAX * (8 + KEY_BYTES_MAX);
    u32::try_from(head + keys.max(FRAME_BYTES))
        .expect("below a mebibyte")
        .saturating_add(record_bytes_max)
}

/// The source's side of one link, once both sides have proven themselves.
#[derive(Debug)]
pub struct Sender {
    /// The number of the node at the other end.
    peer: u8,
    /// The last frame that was sent, and the last that was taken.
    number: u64,
    received: u64,
    outgoing: PartitionMap<Outgoing>,
    /// What of the ring was shipped to the partitions that have joined.
    live: Lsn,
    /// What of the log was looked at for the others; none if there are none.
    catching_up: Option<Lsn>,
    /// What a scan left out was superseded up to this record, which a crash may still take back: no scan
    /// joins before it has passed it, and no JOIN is told durable before it is.
    judged: Lsn,
    /// Frames that the member has not told durable.
    notes: VecDeque<Note>,
    /// Up to this frame all is durable here.
    durable: u64,
    /// Up to this record of the ring the member has received all that it was to be shipped.
    received_lsn: Lsn,
    /// The same for what is durable there.
    member_durable: Lsn,
    /// What the member told last.
    marks: Marks,
    told: Marks,
    /// The frame that is being filled.
    open: Option<OpenFrame>,
    /// What the marks that came last confirmed of what was shipped live.
    confirmations: Vec<Confirmation>,
    echoing: Echoing,
    /// So many bytes of records may be under way and not be told durable, or not be received.
    window_bytes: usize,
    tells_clock: bool,
}

#[derive(Debug)]
struct OpenFrame {
    start: usize,
    count: u32,
    /// Of those that follow each other, not those of a scan.
    dense: u32,
    first: Lsn,
    lsn: Lsn,
    is_live: bool,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    number: u64,
    /// Its first record.
    first: Lsn,
    /// Durable here with this record.
    lsn: Lsn,
    /// Of records.
    bytes: usize,
    /// Records that follow each other.
    dense: u32,
    /// Of those the first that was shipped live, and how many were.
    live: Option<(Lsn, u32)>,
    /// The member waits to hear that it is durable.
    is_awaited: bool,
}

impl Note {
    /// This one and the next are one from now on, of the next one's number.
    fn join(&mut self, next: &Note) {
        let of_both = [*self, *next].into_iter();
        let firsts = of_both.clone().filter(|note| note.bytes > 0);
        let lives = of_both.filter_map(|note| note.live);
        *self = Note {
            number: next.number,
            first: firsts.map(|note| note.first).min().unwrap_or_default(),
            lsn: self.lsn.max(next.lsn),
            bytes: self.bytes + next.bytes,
            dense: self.dense.saturating_add(next.dense),
            live: lives.reduce(|one, other| (one.0.min(other.0), one.1.saturating_add(other.1))),
            is_awaited: self.is_awaited || next.is_awaited,
        };
    }
}

#[derive(Debug)]
struct Outgoing {
    epoch: Epoch,
    phase: Phase,
    /// The last record that was shipped, dense.
    shipped: Position,
    rewind: Option<Rewinding>,
    /// The frame of JOIN, and the record up to which all was shipped with it.
    joined: Option<(u64, Lsn)>,
    /// The last frame with one of its records.
    shipped_in: u64,
}

#[derive(Debug)]
enum Phase {
    /// OPEN was sent.
    Asked,
    /// STATE has come; BEGIN goes when the log is durable up to here.
    Known {
        when: Lsn,
        mode: Mode,
        from: Position,
    },
    CatchingUp(Mode),
    Live,
    /// A higher epoch was promised there, or the partition was handed over.
    Over,
}

#[derive(Debug, Default)]
struct Rewinding {
    /// REWIND with keys was taken, and not answered yet.
    is_due: bool,
    is_last: bool,
    /// The last record that was written for it.
    lsn: Lsn,
}

/// What a source knows of its log.
pub trait LogReach {
    /// The record before the first that may be needed to go on from this position; `None` if records
    /// behind it were released.
    fn reach(&self, partition: PartitionId, from: Position) -> Option<Lsn>;
    /// The record before the first that still is in the log.
    fn oldest(&self) -> Lsn;
    /// Whether a scan may begin now: if deletions are on their way out of the log, it might bring what they hide
    /// and not them.
    fn may_scan(&self) -> bool;
}

impl Sender {
    /// A link to node `peer` on which `sent` frames went out and `received` came in so far.
    #[must_use]
    pub fn new(peer: u8, (sent, received): (u64, u64), window_bytes: usize) -> Self {
        Sender {
            peer,
            number: sent,
            received,
            outgoing: PartitionMap::new(),
            live: Lsn(0),
            catching_up: None,
            judged: Lsn(0),
            notes: VecDeque::new(),
            durable: sent,
            received_lsn: Lsn(0),
            member_durable: Lsn(0),
            marks: Marks::default(),
            told: Marks::default(),
            open: None,
            confirmations: Vec::new(),
            echoing: Echoing::default(),
            window_bytes,
            tells_clock: true,
        }
    }

    /// The number that the next frame must have.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.received + 1
    }

    /// Offers a partition that this node writes in `epoch`, whose first record is durable.
    pub fn open(
        &mut self,
        time_ms: u64,
        partition: PartitionId,
        epoch: Epoch,
        membership: Membership,
        out: &mut Vec<u8>,
    ) {
        let outgoing = Outgoing {
            epoch,
            phase: Phase::Asked,
            shipped: Position::default(),
            rewind: None,
            joined: None,
            shipped_in: 0,
        };
        self.outgoing.insert(partition, outgoing);
        let open = Open {
            partition,
            membership,
            epoch: epoch.0,
        };
        self.send(time_ms, &LinkMessage::Open(open), out);
    }

    /// The epoch in which a partition was offered on this link.
    #[must_use]
    pub fn opened(&self, partition: PartitionId) -> Option<Epoch> {
        self.outgoing.get(&partition).map(|outgoing| outgoing.epoch)
    }

    /// This node does not write a partition any more.
    pub fn close(&mut self, time_ms: u64, partition: PartitionId, out: &mut Vec<u8>) {
        let outgoing = self.outgoing.get_mut(&partition);
        let Some(outgoing) = outgoing.filter(|it| !matches!(it.phase, Phase::Over)) else {
            return;
        };
        outgoing.phase = Phase::Over;
        outgoing.joined = None;
        if !is_planted(Bug::CloseUntold) {
            self.send(time_ms, &LinkMessage::Close(Close { partition }), out);
        }
    }

    /// Up to where the member has what this node writes in a partition.
    #[must_use]
    pub fn counting(&self, partition: PartitionId) -> Counting {
        let Some(outgoing) = self.outgoing.get(&partition) else {
            return Counting::Not;
        };
        if is_planted(Bug::AckUnjoined) && matches!(outgoing.phase, Phase::CatchingUp(_)) {
            return Counting::UpTo(Lsn(u64::MAX));
        }
        match outgoing.joined {
            Some((frame, lsn)) if frame <= self.marks.durable => {
                Counting::UpTo(lsn.max(self.received_lsn))
            }
            _ => Counting::Not,
        }
    }

    /// Up to which record of this log the member has all of each partition on its disk, of those that have
    /// joined.
    pub fn member_durable(&self) -> impl Iterator<Item = (PartitionId, Lsn)> + '_ {
        let joined = self
            .outgoing
            .iter()
            .filter_map(|(&number, outgoing)| Some((number, outgoing.joined?)));
        joined
            .filter(|(_, (frame, _))| *frame <= self.marks.durable)
            .map(|(number, (_, lsn))| (number, lsn.max(self.member_durable)))
    }

    /// The number of the last frame that was sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.number
    }

    /// What the last frame that was taken confirmed.
    #[must_use]
    pub fn confirmations(&self) -> &[Confirmation] {
        &self.confirmations
    }

    /// How many records were shipped that the member has not confirmed so far, and behind which record of the log they
    /// stand.
    #[must_use]
    pub fn unconfirmed(&self, confirmed: Confirmed) -> (u64, Option<Lsn>) {
        let mark = match confirmed {
            Confirmed::Received => self.marks.received,
            Confirmed::Durable => self.marks.durable,
        };
        let is_open = |note: &&Note| note.number > mark && note.dense > 0;
        self.notes
            .iter()
            .filter(is_open)
            .fold((0, None), |(records, behind), note| {
                let before = Lsn(note.first.0.saturating_sub(1));
                let behind = behind.map_or(before, |at: Lsn| at.min(before));
                (records + u64::from(note.dense), Some(behind))
            })
    }

    /// The last record of a partition that was shipped, and behind which record of the log the next one stands; `None` until
    /// BEGIN was sent.
    #[must_use]
    pub fn shipped(&self, partition: PartitionId) -> Option<(u64, Lsn)> {
        let outgoing = self.outgoing.get(&partition)?;
        let at = match outgoing.phase {
            Phase::Asked | Phase::Known { .. } | Phase::Over => return None,
            Phase::CatchingUp(_) => self.catching_up.unwrap_or(self.live),
            Phase::Live => self.live,
        };
        Some((outgoing.shipped.sequence, at))
    }

    /// Whether a partition goes on live, if it was offered on this link.
    #[must_use]
    pub fn link_state(&self, partition: PartitionId) -> LinkState {
        match self.outgoing.get(&partition).map(|it| &it.phase) {
            None | Some(Phase::Asked | Phase::Known { .. } | Phase::Over) => LinkState::Handshake,
            Some(Phase::CatchingUp(_)) => LinkState::CatchingUp,
            Some(Phase::Live) => LinkState::Live,
        }
    }

    /// The partitions that are shipped.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.outgoing.keys().copied()
    }

    /// Takes a frame in.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the peer is to be told, then the link is to be ended.
    pub fn frame(
        &mut self,
        frame: &LinkFrame<'_>,
        partitions: &Partitions,
        reach: &impl LogReach,
        appended: Lsn,
        work: &mut VecDeque<Work>,
    ) -> Result<(), LinkRefusal> {
        let number = frame.header.number;
        assert_eq!(number, self.next_number(), "frames are read in order");
        match &frame.message {
            LinkMessage::State(state) => self.state(state, partitions, reach, appended, work)?,
            LinkMessage::Rewind(rewind) => {
                let Some(outgoing) = self.outgoing.get_mut(&rewind.partition) else {
                    return Err(out_of_place("REWIND", rewind.partition));
                };
                let has_begun = matches!(outgoing.phase, Phase::CatchingUp(_));
                match &mut outgoing.rewind {
                    // For an OPEN before this one.
                    _ if !has_begun => {}
                    Some(rewinding) if !rewinding.is_due && !rewinding.is_last => {
                        rewinding.is_due = true;
                        rewinding.is_last = rewind.is_last;
                        work.push_back(Work::Rewind {
                            partition: rewind.partition,
                            keys: rewind.keys().map(<[u8]>::to_vec).collect(),
                        });
                    }
                    _ => return Err(out_of_place("REWIND", rewind.partition)),
                }
            }
            LinkMessage::Beat => {}
            other => {
                return Err(LinkRefusal {
                    code: RefusalCode::Order,
                    text: format!("a destination does not send {}", other.name()),
                });
            }
        }
        self.received = number;
        self.echoing.came(frame.header.time, appended);
        self.take_marks(frame.header.marks)
    }

    fn take_marks(&mut self, marks: Marks) -> Result<(), LinkRefusal> {
        let is_rising = marks.received >= self.marks.received
            && marks.durable >= self.marks.durable
            && marks.durable <= marks.received
            && marks.received <= self.number;
        if !is_rising {
            return Err(LinkRefusal {
                code: RefusalCode::Order,
                text: format!("{marks:?} behind {:?}", self.marks),
            });
        }
        let before = std::mem::replace(&mut self.marks, marks);
        self.confirmations.clear();
        let told = |note: &Note| note.number <= before.durable;
        let from = self.notes.partition_point(told);
        for note in self.notes.range(from..) {
            let news = [
                (Confirmed::Received, before.received, marks.received),
                (Confirmed::Durable, before.durable, marks.durable),
            ];
            for (confirmed, from, to) in news {
                if let Some((first, records)) = note.live.filter(|live| live.1 > 0)
                    && (from + 1..=to).contains(&note.number)
                {
                    self.confirmations.push(Confirmation {
                        confirmed,
                        first,
                        records,
                    });
                }
            }
            if note.number <= marks.received && note.live.is_some() {
                self.received_lsn = self.received_lsn.max(note.lsn);
            }
            if note.number <= marks.durable && note.live.is_some() {
                self.member_durable = self.member_durable.max(note.lsn);
            }
        }
        self.pass_over();
        self.drop_notes();
        Ok(())
    }

    /// What of the ring was not for the member, it has: where nothing is under way, all that was looked at counts.
    fn pass_over(&mut self) {
        let last = self.notes.iter().rev().find(|note| note.live.is_some());
        let last = last.map_or(0, |note| note.number);
        if last <= self.marks.received {
            self.received_lsn = self.received_lsn.max(self.live);
        }
        if last <= self.marks.durable {
            self.member_durable = self.member_durable.max(self.live);
        }
    }

    fn state(
        &mut self,
        state: &State<'_>,
        partitions: &Partitions,
        reach: &impl LogReach,
        appended: Lsn,
        work: &mut VecDeque<Work>,
    ) -> Result<(), LinkRefusal> {
        let number = state.partition;
        let Some(outgoing) = self.outgoing.get_mut(&number) else {
            return Err(out_of_place("STATE", number));
        };
        // It may answer an earlier OPEN, in an epoch that this node has left since.
        let is_stale = match state.answer {
            Answer::Accepted => state.promised != outgoing.epoch.0,
            Answer::Rejected => state.promised <= outgoing.epoch.0,
        };
        if is_stale {
            return Ok(());
        }
        if state.answer == Answer::Rejected {
            outgoing.phase = Phase::Over;
            outgoing.joined = None;
            work.push_back(Work::Deposed {
                partition: number,
                epoch: Epoch(state.promised),
            });
            return Ok(());
        }
        match outgoing.phase {
            Phase::Asked => {}
            // It was deposed since it asked.
            Phase::Over => return Ok(()),
            _ => return Err(out_of_place("STATE", number)),
        }
        let partition = &partitions[&number];
        let theirs = EpochHistory::told(&state.epochs);
        let ours = partition.history();
        let fork = match is_planted(Bug::ForkBySequence) {
            true if state.complete.sequence <= partition.applied().sequence => Fork::Prefix,
            _ => ours.fork(partition.applied(), &theirs, state.complete),
        };
        let from = match fork {
            Fork::Prefix => state.complete,
            Fork::At(at) => at,
            Fork::Unrelated => {
                return Err(LinkRefusal {
                    code: RefusalCode::Unrelated,
                    text: format!(
                        "partition {number}: {:?} of {theirs:?} there and {:?} of {ours:?} here have no epoch in common",
                        state.complete,
                        partition.applied()
                    ),
                });
            }
        };
        // It wrote once and has nothing: its disk is another one. With some of what it wrote itself it would take
        // all for there, and so would its next start; in a scan it is whole when it has all.
        let is_lost = state.complete.sequence == 0
            && ours
                .entries()
                .any(|entry| Epoch(entry.epoch).node() == self.peer)
            && !is_planted(Bug::LostByDelta);
        let is_dense = state.under_way != UnderWay::Scan
            && !is_lost
            && from.sequence >= partition.facts().dense_behind
            && reach.reach(number, from).is_some();
        let mode = match is_dense {
            true => Mode::Dense,
            false => Mode::Scan,
        };
        let owes_rewind = state.under_way != UnderWay::Nothing || from < state.complete;
        outgoing.rewind = owes_rewind.then(Rewinding::default);
        outgoing.phase = Phase::Known {
            when: appended,
            mode,
            from,
        };
        Ok(())
    }

    /// The keys of a REWIND were written, the last of them as this.
    pub fn rewound(
        &mut self,
        time_ms: u64,
        partition: PartitionId,
        at: Position,
        lsn: Lsn,
        out: &mut Vec<u8>,
    ) {
        let outgoing = self.outgoing.get_mut(&partition);
        if let Some(rewinding) = outgoing.and_then(|outgoing| outgoing.rewind.as_mut()) {
            rewinding.is_due = false;
            rewinding.lsn = rewinding.lsn.max(lsn);
            let rewound = Rewound { partition, at };
            self.send(time_ms, &LinkMessage::Rewound(rewound), out);
        }
    }

    /// Whether the member has all of a partition that ends here on its disk.
    #[must_use]
    pub fn has_all(&self, partition: PartitionId, end: Position) -> bool {
        self.outgoing.get(&partition).is_some_and(|outgoing| {
            outgoing.shipped == end
                && outgoing.shipped_in <= self.marks.durable
                && matches!(self.counting(partition), Counting::UpTo(_))
        })
    }

    /// Tells the member to begin an epoch of its own, once on this link. It has all of the partition, which ends
    /// `at` here, nothing more is written to it here, and that is durable.
    pub fn hand_over(
        &mut self,
        time_ms: u64,
        partition: PartitionId,
        epoch: Epoch,
        at: Position,
        out: &mut Vec<u8>,
    ) {
        if self.opened(partition) == Some(epoch) {
            return;
        }
        let handover = Handover {
            partition,
            epoch: epoch.0,
            at,
        };
        self.send(time_ms, &LinkMessage::Handover(handover), out);
        // It follows nobody from there on, and need not be told.
        self.outgoing.insert(
            partition,
            Outgoing {
                epoch,
                phase: Phase::Over,
                shipped: at,
                rewind: None,
                joined: None,
                shipped_in: 0,
            },
        );
    }

    /// The record of the log behind which the owner is to read next, if it is not in the ring:
    /// [`Sender::feed`].
    #[must_use]
    pub fn wants_log(&self, ring: &Ring) -> Option<Lsn> {
        self.catching_up
            .filter(|&lsn| lsn < ring.before() && self.has_window())
    }

    /// The next record of the log, which the owner has read. `counts` tells whether it is the newest of
    /// one of its keys, or a deletion that is still needed, by an index that knows of all up to `appended`.
    ///
    /// # Errors
    /// [`LinkRefusal`] if the own log has a gap: the link is to be ended.
    pub fn feed(
        &mut self,
        time_ms: u64,
        lsn: Lsn,
        record: &ShippedRecord<'_>,
        (counts, appended): (bool, Lsn),
        partitions: &Partitions,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkRefusal> {
        if !counts && !is_planted(Bug::ScanJoinsEarly) {
            self.judged = self.judged.max(appended);
        }
        self.catch_up(time_ms, lsn, record, counts, partitions, out)
    }

    /// The owner has read all records up to this one and fed those that there are; by now the log has
    /// `appended`.
    pub fn fed(&mut self, time_ms: u64, lsn: Lsn, appended: Lsn, out: &mut [u8]) {
        // A segment that was not read, because cleaning gives it up, has its copies among these.
        if !is_planted(Bug::ScanMissesMoves) {
            self.judged = self.judged.max(appended);
        }
        if let Some(at) = &mut self.catching_up {
            *at = (*at).max(lsn);
        }
        self.flush(time_ms, out);
    }

    fn has_window(&self) -> bool {
        let pending = self.notes_behind(self.durable.min(self.marks.received));
        let pending: usize = pending.map(|note| note.bytes).sum();
        self.notes.len() < FRAMES_MAX && pending < self.window_bytes
    }

    /// The frames behind this one that are still noted.
    fn notes_behind(&self, number: u64) -> impl DoubleEndedIterator<Item = &Note> {
        let from = self.notes.partition_point(|note| note.number <= number);
        self.notes.range(from..)
    }

    /// Whether the destination's clock is told back: what it has is as new as that, unless somebody else writes by now.
    pub fn tell_clock(&mut self, tells: bool) {
        self.tells_clock = tells;
    }

    /// Whether records of a partition are shipped.
    #[must_use]
    pub fn ships(&self, partition: PartitionId) -> bool {
        let outgoing = self.outgoing.get(&partition);
        outgoing.is_some_and(|it| matches!(it.phase, Phase::CatchingUp(_) | Phase::Live))
    }

    /// Whether deletions must stay in the log, whatever is not there any more: a scan is under way, or about to begin.
    #[must_use]
    pub fn wants_deletions(&self) -> bool {
        let is_scan = |outgoing: &Outgoing| {
            matches!(
                outgoing.phase,
                Phase::Known {
                    mode: Mode::Scan,
                    ..
                } | Phase::CatchingUp(Mode::Scan)
            )
        };
        self.outgoing.values().any(is_scan)
    }

    /// Appends the frames that can be sent, now that the log is durable up to `durable`.
    ///
    /// # Errors
    /// [`LinkRefusal`] if the own log has a gap: the link is to be ended.
    pub fn pump(
        &mut self,
        time_ms: u64,
        durable: Lsn,
        ring: &Ring,
        partitions: &Partitions,
        reach: &impl LogReach,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkRefusal> {
        self.begin_known(time_ms, durable, partitions, reach, out);
        self.ship_live(time_ms, ring, out)?;
        self.ship_from_ring(time_ms, ring, partitions, out)?;
        self.join(time_ms, ring, out)?;
        let shipped = self.catching_up.map_or(self.live, |at| at.min(self.live));
        if self.tells_clock {
            if self.catching_up.is_some() && self.echoing.is_due(shipped) {
                self.skipped_nothing(reach)?;
            }
            self.echoing.shipped(shipped);
        }
        let behind = self.notes_behind(self.durable);
        if let Some(last) = behind.take_while(|note| note.lsn <= durable).last() {
            self.durable = last.number;
        }
        self.drop_notes();
        let untold = self.notes_behind(self.told.durable);
        let mut untold = untold.take_while(|note| note.number <= self.durable);
        let is_news = untold.any(|note| note.is_awaited);
        drop(untold);
        if is_news || self.echoing.is_news() {
            self.send(time_ms, &LinkMessage::Beat, out);
        }
        Ok(())
    }

    /// Who reads the log passes over segments that were released meanwhile. What a partition lacks of those would be
    /// found with its next record; a clock that goes back before that would call it new.
    fn skipped_nothing(&self, reach: &impl LogReach) -> Result<(), LinkRefusal> {
        let lacks = |(partition, outgoing): &(&PartitionId, &Outgoing)| {
            matches!(outgoing.phase, Phase::CatchingUp(Mode::Dense))
                && reach.reach(**partition, outgoing.shipped).is_none()
        };
        match self.outgoing.iter().find(lacks) {
            None => Ok(()),
            Some((partition, outgoing)) => Err(LinkRefusal {
                code: RefusalCode::Records,
                text: format!(
                    "partition {partition}: records behind {:?} were released before they were read",
                    outgoing.shipped
                ),
            }),
        }
    }

    /// Forgets the frames that are durable on both sides.
    fn drop_notes(&mut self) {
        let until = self.marks.durable.min(self.durable);
        while self.notes.front().is_some_and(|note| note.number <= until) {
            self.notes.pop_front();
        }
        if self.notes.len() >= FRAMES_MAX {
            self.join_notes();
        }
    }

    /// Makes one of neighbours that are received there and durable here. The member tells durable what stands before the
    /// first frame of which it has not applied all: one partition that waits there, for a read that fails or a sweep, must not
    /// keep all others of the link waiting here.
    fn join_notes(&mut self) {
        let settled = self.marks.received.min(self.durable);
        let mut joined: VecDeque<Note> = VecDeque::new();
        for note in self.notes.drain(..) {
            match joined.back_mut() {
                Some(last) if note.number <= settled => last.join(&note),
                _ => joined.push_back(note),
            }
        }
        self.notes = joined;
    }

    fn begin_known(
        &mut self,
        time_ms: u64,
        durable: Lsn,
        partitions: &Partitions,
        reach: &impl LogReach,
        out: &mut Vec<u8>,
    ) {
        let mut entries = Vec::new();
        let ready: Vec<_> = self
            .outgoing
            .iter()
            .filter_map(|(&number, outgoing)| match outgoing.phase {
                Phase::Known { when, mode, from }
                    if when <= durable
                        && partitions[&number].history().last() == Some(outgoing.epoch) =>
                {
                    Some((number, outgoing.epoch, mode, from))
                }
                _ => None,
            })
            .collect();
        for (partition, epoch, mode, from) in ready {
            let start = reach.reach(partition, from).filter(|_| mode == Mode::Dense);
            // What was there when STATE came may have been released since.
            let mode = match start {
                Some(_) => Mode::Dense,
                None => Mode::Scan,
            };
            let start = start.unwrap_or(reach.oldest());
            let outgoing = self.outgoing.get_mut(&partition).expect("just seen");
            if mode == Mode::Scan && !reach.may_scan() {
                let when = Lsn(0);
                outgoing.phase = Phase::Known { when, mode, from };
                continue;
            }
            self.catching_up = Some(self.catching_up.map_or(start, |at| at.min(start)));
            outgoing.phase = Phase::CatchingUp(mode);
            outgoing.shipped = from;
            let history = partitions[&partition].history().entries();
            let begin = Begin {
                partition,
                mode,
                epoch: epoch.0,
                from,
                epochs: Epochs::write(&mut entries, history),
            };
            self.send(time_ms, &LinkMessage::Begin(begin), out);
        }
    }

    fn ship_live(
        &mut self,
        time_ms: u64,
        ring: &Ring,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkRefusal> {
        let is_live = |outgoing: &Outgoing| matches!(outgoing.phase, Phase::Live);
        if !self.outgoing.values().any(is_live) {
            self.live = ring.last();
            return Ok(());
        }
        if self.live < ring.before() {
            if is_planted(Bug::OverrunSkips) {
                self.live = ring.before();
            } else {
                // Overtaken: as if it had never joined. What was shipped is remembered.
                for outgoing in self.outgoing.values_mut().filter(|it| is_live(it)) {
                    outgoing.phase = Phase::CatchingUp(Mode::Dense);
                    outgoing.joined = None;
                }
                let at = self.live;
                self.catching_up = Some(self.catching_up.map_or(at, |before| before.min(at)));
                return Ok(());
            }
        }
        let mut reached = ring.last();
        let mut sent = None;
        for (lsn, record) in ring.behind(self.live) {
            // It is only smaller behind another frame.
            if sent.replace(self.number) != Some(self.number) && !self.has_window() {
                reached = self.live;
                break;
            }
            if let Some(outgoing) = self.outgoing.get_mut(&record.partition)
                && is_live(outgoing)
                && !record.is_copy
                && record.position.epoch <= outgoing.epoch.0
            {
                let skips = is_planted(Bug::GapAccepted) && record.position.sequence % 7 == 3;
                follow(outgoing, &record)?;
                if !skips {
                    self.put(time_ms, lsn, &record, true, out);
                }
            }
            self.live = lsn;
        }
        // Behind the last record there may be copies.
        self.live = reached;
        self.flush(time_ms, out);
        self.pass_over();
        Ok(())
    }

    fn ship_from_ring(
        &mut self,
        time_ms: u64,
        ring: &Ring,
        partitions: &Partitions,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkRefusal> {
        let Some(at) = self.catching_up.filter(|&at| at >= ring.before()) else {
            return Ok(());
        };
        let mut reached = ring.last();
        let mut looked_at = at;
        let mut sent = None;
        for (lsn, record) in ring.behind(at) {
            if sent.replace(self.number) != Some(self.number) && !self.has_window() {
                reached = looked_at;
                break;
            }
            self.catch_up(time_ms, lsn, &record, true, partitions, out)?;
            looked_at = lsn;
        }
        self.catching_up = Some(reached);
        self.flush(time_ms, out);
        Ok(())
    }

    /// Ships a record to the partition that is catching up, if it lacks it.
    fn catch_up(
        &mut self,
        time_ms: u64,
        lsn: Lsn,
        record: &ShippedRecord<'_>,
        counts: bool,
        partitions: &Partitions,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkRefusal> {
        let Some(outgoing) = self.outgoing.get_mut(&record.partition) else {
            return Ok(());
        };
        // What a former primary wrote behind its fork still stands in its log. Its keys were written anew since,
        // unless it was let write before they were: then what counts is what it serves, and a scan brings that.
        let partition = &partitions[&record.partition];
        let is_past = partition
            .history()
            .contains(record.position, partition.applied());
        let is_scan = matches!(outgoing.phase, Phase::CatchingUp(Mode::Scan));
        if !is_past && !is_scan && !is_planted(Bug::OwnTailShipped) {
            return Ok(());
        }
        // Of an epoch that this node has begun since; it is offered anew.
        if record.position.epoch > outgoing.epoch.0 {
            return Ok(());
        }
        match outgoing.phase {
            Phase::CatchingUp(Mode::Dense)
                if !record.is_copy && record.position.sequence > outgoing.shipped.sequence =>
            {
                follow(outgoing, record)?;
                self.put(time_ms, lsn, record, false, out);
            }
            Phase::CatchingUp(Mode::Scan) if counts => {
                self.put(time_ms, lsn, record, false, out);
            }
            _ => {}
        }
        Ok(())
    }

    fn join(&mut self, time_ms: u64, ring: &Ring, out: &mut Vec<u8>) -> Result<(), LinkRefusal> {
        let Some(at) = self
            .catching_up
            .filter(|&at| at == ring.last() && at == self.live)
        else {
            return Ok(());
        };
        let mut is_over = true;
        let mut ready = Vec::new();
        for (&partition, outgoing) in &self.outgoing {
            if !matches!(outgoing.phase, Phase::CatchingUp(_)) {
                continue;
            }
            let is_rewound = outgoing
                .rewind
                .as_ref()
                .is_none_or(|it| it.is_last && !it.is_due && it.lsn <= at);
            let is_judged = (matches!(outgoing.phase, Phase::CatchingUp(Mode::Dense))
                || self.judged <= at)
                && ring.position(partition).epoch <= outgoing.epoch.0;
            match is_rewound && is_judged {
                true => ready.push(partition),
                false => is_over = false,
            }
        }
        for partition in ready {
            let outgoing = self.outgoing.get_mut(&partition).expect("just seen");
            let at_position = ring.position(partition);
            if matches!(outgoing.phase, Phase::CatchingUp(Mode::Dense))
                && outgoing.shipped != at_position
            {
                // The last records of the partition were released before they were read.
                return Err(gap(partition, at_position, outgoing.shipped));
            }
            outgoing.phase = Phase::Live;
            outgoing.rewind = None;
            outgoing.shipped = at_position;
            let join = Join {
                partition,
                at: at_position,
            };
            self.send(time_ms, &LinkMessage::Join(join), out);
            let outgoing = self.outgoing.get_mut(&partition).expect("just seen");
            outgoing.joined = Some((self.number, at));
            let note = self.notes.back_mut().expect("just sent");
            note.is_awaited = true;
            if !is_planted(Bug::ScanJoinsEarly) {
                note.lsn = at;
            }
        }
        if is_over {
            self.catching_up = None;
        }
        Ok(())
    }

    /// Adds a record to the open frame.
    fn put(
        &mut self,
        time_ms: u64,
        lsn: Lsn,
        record: &ShippedRecord<'_>,
        is_live: bool,
        out: &mut Vec<u8>,
    ) {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.is_live != is_live || out.len() - open.start > FRAME_BYTES)
        {
            self.flush(time_ms, out);
        }
        let open = self.open.get_or_insert_with(|| {
            let start = begin_link_frame(out);
            out.extend_from_slice(&[0; RECORDS_HEAD_BYTES]);
            OpenFrame {
                start,
                count: 0,
                dense: 0,
                first: lsn,
                lsn: Lsn(0),
                is_live,
            }
        });
        out.extend_from_slice(record.bytes);
        open.count += 1;
        open.first = open.first.min(lsn);
        open.lsn = open.lsn.max(lsn);
        if let Some(outgoing) = self.outgoing.get_mut(&record.partition) {
            outgoing.shipped_in = self.number + 1;
            open.dense += u32::from(!matches!(outgoing.phase, Phase::CatchingUp(Mode::Scan)));
        }
    }

    fn flush(&mut self, time_ms: u64, out: &mut [u8]) {
        let Some(open) = self.open.take() else { return };
        let head = open.start + penstock_net::link::LINK_HEADER_BYTES;
        out[head..head + RECORDS_HEAD_BYTES].copy_from_slice(&records_head(open.count));
        let header = self.header(time_ms);
        finish_link_frame(out, open.start, header, RECORDS);
        self.notes.push_back(Note {
            number: self.number,
            first: open.first,
            lsn: open.lsn,
            bytes: out.len() - open.start,
            dense: open.dense,
            live: open.is_live.then_some((open.first, open.dense)),
            is_awaited: true,
        });
    }

    /// The link ends: what was put into the open frame is not sent, because half a frame would hide what comes behind it.
    pub fn abandon(&mut self, out: &mut Vec<u8>) {
        if let Some(open) = self.open.take() {
            out.truncate(open.start);
        }
    }

    fn header(&mut self, time_ms: u64) -> LinkHeader {
        self.number += 1;
        self.told = Marks {
            durable: self.durable,
            received: 0,
        };
        LinkHeader {
            number: self.number,
            marks: Marks {
                received: self.echoing.tell(),
                ..self.told
            },
            time: time_ms,
        }
    }

    fn send(&mut self, time_ms: u64, message: &LinkMessage<'_>, out: &mut Vec<u8>) {
        self.flush(time_ms, out);
        let header = self.header(time_ms);
        write_link_frame(out, header, message);
        // It is durable with what stands before it.
        self.notes.push_back(Note {
            number: self.number,
            first: Lsn(0),
            lsn: Lsn(0),
            bytes: 0,
            dense: 0,
            live: None,
            is_awaited: false,
        });
    }
}

/// The record is the next one of its partition, or the own log has a gap, which must not be shipped
/// over.
fn follow(outgoing: &mut Outgoing, record: &ShippedRecord<'_>) -> Result<(), LinkRefusal> {
    if record.position.sequence != outgoing.shipped.sequence + 1 {
        return Err(gap(record.partition, record.position, outgoing.shipped));
    }
    outgoing.shipped = record.position;
    Ok(())
}

fn gap(partition: PartitionId, found: Position, shipped: Position) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Records,
        text: format!(
            "partition {partition}: {found:?} does not follow {shipped:?} in the log of the source"
        ),
    }
}

fn out_of_place(message: &str, partition: PartitionId) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Order,
        text: format!("{message} of partition {partition} has no place here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::record::records;
    use crate::replication::tests::{encoded, keys_of_partition};

    struct Nowhere;

    impl LogReach for Nowhere {
        fn reach(&self, _: PartitionId, _: Position) -> Option<Lsn> {
            None
        }

        fn oldest(&self) -> Lsn {
            Lsn(0)
        }

        fn may_scan(&self) -> bool {
            true
        }
    }

    #[test]
    fn no_clock_is_told_back_while_another_node_may_write_what_is_shipped() {
        let mut sender = Sender::new(2, (0, 0), 4 << 20);
        let (ring, partitions) = (Ring::new(0, Lsn(0), []), Partitions::new());
        let told = |sender: &mut Sender| {
            let mut out = Vec::new();
            let durable = Lsn(0);
            let pumped = sender.pump(0, durable, &ring, &partitions, &Nowhere, &mut out);
            pumped.expect("nothing is shipped");
            sender.echoing.tell()
        };
        sender.echoing.came(100, Lsn(0));
        assert_eq!(told(&mut sender), 100);
        sender.tell_clock(false);
        sender.echoing.came(200, Lsn(0));
        assert_eq!(told(&mut sender), 100);
        sender.tell_clock(true);
        assert_eq!(told(&mut sender), 200);
    }

    #[test]
    fn a_partition_that_waits_at_the_member_keeps_no_others_waiting_and_no_memory() {
        let mut sender = Sender::new(2, (0, 0), 4 << 20);
        let mut out = Vec::new();
        let key = keys_of_partition(7, 1).remove(0);
        let at = |sequence| Position {
            epoch: 256,
            sequence,
        };
        let outgoing = Outgoing {
            epoch: Epoch(256),
            phase: Phase::Live,
            shipped: at(0),
            rewind: None,
            joined: None,
            shipped_in: 0,
        };
        sender.outgoing.insert(7, outgoing);
        let count = 5 * FRAMES_MAX as u64;
        for sequence in 1..=count {
            assert!(sender.has_window(), "frame {sequence}");
            let bytes = encoded(at(sequence), &[(&key, 1)]);
            let record = records(&bytes).next().expect("one").expect("sound");
            sender.put(0, Lsn(sequence), &record, sequence % 5 > 0, &mut out);
            sender.flush(0, &mut out);
            sender.send(0, &LinkMessage::Beat, &mut out);
            // Durable here and received there; of the third frame something is not applied.
            sender.durable = sender.number;
            let marks = Marks {
                received: sender.number,
                durable: sender.number.min(2),
            };
            sender.take_marks(marks).expect("they rise");
            out.clear();
        }
        assert!(sender.notes.len() <= FRAMES_MAX, "{}", sender.notes.len());
        // The first record was confirmed by itself.
        let lacked = sender.unconfirmed(Confirmed::Durable);
        assert_eq!(lacked, (count - 1, Some(Lsn(1))));
        let all = Marks {
            received: sender.number,
            durable: sender.number,
        };
        sender.take_marks(all).expect("they rise");
        assert_eq!(sender.unconfirmed(Confirmed::Durable), (0, None));
        assert!(sender.notes.is_empty());
        assert_eq!(sender.member_durable, Lsn(count - 1));
    }
}
