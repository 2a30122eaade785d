//! The source's side of one link: the records that a member has, those it is sent next, and the
//! replies that may count on it.
//!
//! Two cursors go over the source's log: *live* over the ring, for partitions that have joined, and
//! *catching up* for the others, over segments and then the ring, until the two meet. In dense mode
//! no record of a partition is shipped twice, so a cursor may be set back at any time.

mod frame_writer;
mod frames_under_way;
mod progress;

use std::collections::VecDeque;

use penstock_net::link::message::{RECORDS_HEAD_BYTES, REWIND_KEYS_MAX};
use penstock_net::link::{
    Answer, Begin, Close, Epochs, Handover, Join, LINK_HEADER_BYTES, LinkFrame, LinkMessage,
    Membership, Mode, Open, Position, RefusalCode, Rewound, State, UnderWay,
};
use penstock_storage::place::Lsn;
use penstock_storage::record::KEY_BYTES_MAX;

use super::epoch::{Epoch, EpochHistory, Fork};
use super::partition::Partition;
use super::planted::{self, Bug, is_planted};
use super::receiver::{LinkRefusal, Partitions};
use super::record::ShippedRecord;
use super::ring::Ring;
use super::standing::LinkState;
use super::summarized_map::SummarizedMap;
use super::{PartitionId, Work};
use penstock_storage::if_planted;

use self::frame_writer::{FRAME_BYTES, FrameWriter};
use self::progress::{Phase, Progress, Rewinding};

pub use frames_under_way::{Confirmation, Confirmed};

/// Whether a member counts at level `replica`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// It is not there, or has not joined durably.
    Not,
    /// It has all of the partition up to this record.
    UpTo(Lsn),
}

/// Bytes of the largest frame of a link whose source writes records of at most so many: of records,
/// or of keys that are to be written anew.
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
    /// The last frame that was taken.
    received: u64,
    progress: SummarizedMap<Progress>,
    cursors: Cursors,
    frames: FrameWriter,
    sends_clock: bool,
    /// The last frame, and the record of this log, up to which the member was known to have all on
    /// its disk when that was asked for last.
    durable_asked: (u64, Lsn),
}

/// How far the log was shipped.
#[derive(Debug)]
struct Cursors {
    /// What of the ring was shipped to the partitions that have joined.
    live: Lsn,
    /// What of the log was shipped to the others; none if there are none.
    catching_up: Option<Lsn>,
    /// What a scan left out was superseded up to this record, which a crash may still take back: no
    /// scan joins before it has passed this record, and no JOIN is announced durable before it is.
    judged: Lsn,
}

impl Cursors {
    /// Some partition needs what stands behind this record.
    fn catch_up_from(&mut self, start: Lsn) {
        self.catching_up = Some(self.catching_up.map_or(start, |at| at.min(start)));
    }

    /// All up to here is in frames.
    fn shipped(&self) -> Lsn {
        self.catching_up.map_or(self.live, |at| at.min(self.live))
    }

    /// The end of the ring, if both cursors have met there.
    fn met(&self, ring: &Ring) -> Option<Lsn> {
        self.catching_up
            .filter(|&at| at == ring.last() && at == self.live)
    }
}

/// What a source knows of its log.
pub trait LogReach {
    /// The record before the first that may be needed to go on from this position; `None` if
    /// records behind it were released.
    fn reach(&self, partition: PartitionId, from: Position) -> Option<Lsn>;
    /// The record before the first that still is in the log.
    fn oldest(&self) -> Lsn;
    /// Whether a scan may begin now. While deletions are on their way out of the log, a scan might
    /// bring the values that they hide and not the deletions.
    fn may_scan(&self) -> bool;
}

impl Sender {
    /// A link to node `peer` on which `sent` frames went out and `received` came in so far.
    #[must_use]
    pub fn new(peer: u8, (sent, received): (u64, u64), window_bytes: usize) -> Self {
        Sender {
            peer,
            received,
            progress: SummarizedMap::default(),
            cursors: Cursors {
                live: Lsn(0),
                catching_up: None,
                judged: Lsn(0),
            },
            frames: FrameWriter::new(sent, window_bytes),
            sends_clock: true,
            durable_asked: (0, Lsn(0)),
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
        self.progress.insert(partition, Progress::asked(epoch));
        let open = Open {
            partition,
            membership,
            epoch: epoch.0,
        };
        self.frames.send(time_ms, &LinkMessage::Open(open), out);
    }

    /// The epoch in which a partition was offered on this link.
    #[must_use]
    pub fn opened(&self, partition: PartitionId) -> Option<Epoch> {
        self.progress.get(&partition).map(|progress| progress.epoch)
    }

    /// This node does not write a partition any more.
    pub fn close(&mut self, time_ms: u64, partition: PartitionId, out: &mut Vec<u8>) {
        let progress = self.progress.get_mut(&partition);
        let Some(progress) = progress.filter(|it| !it.is_over()) else {
            return;
        };
        progress.end();
        if_planted!(Bug::CloseUnannounced, return);
        let close = LinkMessage::Close(Close { partition });
        self.frames.send(time_ms, &close, out);
    }

    /// Up to where the member has what this node writes in a partition.
    #[must_use]
    pub fn counting(&self, partition: PartitionId) -> Counting {
        let Some(progress) = self.progress.get(&partition) else {
            return Counting::Not;
        };
        let under_way = &self.frames.under_way;
        match progress.joined_by(under_way.marks().durable) {
            None if is_planted(Bug::AckUnjoined) => Counting::UpTo(Lsn(u64::MAX)),
            Some(lsn) => Counting::UpTo(lsn.max(under_way.received_lsn())),
            None => Counting::Not,
        }
    }

    /// Whether [`Sender::member_durable`] may tell more than when this was asked last.
    pub fn take_durable_news(&mut self) -> bool {
        let under_way = &self.frames.under_way;
        let now = (under_way.marks().durable, under_way.durable_lsn());
        std::mem::replace(&mut self.durable_asked, now) != now
    }

    /// Up to which record of this log the member has all of each partition on its disk, of those
    /// that have joined.
    pub fn member_durable(&mut self) -> impl Iterator<Item = (PartitionId, Lsn)> + '_ {
        let announced = self.progress.summary().announced;
        let under_way = &self.frames.under_way;
        announced.iter().filter_map(|number| {
            let joined = self.progress[&number].joined_by(under_way.marks().durable)?;
            Some((number, joined.max(under_way.durable_lsn())))
        })
    }

    /// The number of the last frame that was sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.frames.number()
    }

    /// What the last frame that was taken confirmed.
    #[must_use]
    pub fn confirmations(&self) -> &[Confirmation] {
        self.frames.under_way.confirmations()
    }

    /// How many records were shipped that the member has not confirmed so far, and behind which
    /// record of the log they stand.
    #[must_use]
    pub fn unconfirmed(&self, confirmed: Confirmed) -> (u64, Option<Lsn>) {
        self.frames.under_way.unconfirmed(confirmed)
    }

    /// The last record of a partition that was shipped, and behind which record of the log the next
    /// one stands; `None` until BEGIN was sent.
    #[must_use]
    pub fn shipped(&self, partition: PartitionId) -> Option<(u64, Lsn)> {
        let progress = self.progress.get(&partition)?;
        let live = self.cursors.live;
        let at = match progress.phase {
            Phase::Asked | Phase::Known { .. } | Phase::Over => return None,
            Phase::CatchingUp(_) => self.cursors.catching_up.unwrap_or(live),
            Phase::Live => live,
        };
        Some((progress.shipped.sequence, at))
    }

    /// Whether a partition goes on live, if it was offered on this link.
    #[must_use]
    pub fn link_state(&self, partition: PartitionId) -> LinkState {
        let progress = self.progress.get(&partition);
        progress.map_or(LinkState::Handshake, Progress::link_state)
    }

    /// The partitions that are shipped.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.progress.keys().copied()
    }

    // ---- what the member sends ----

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
                let progress = self.progress.get_mut(&rewind.partition);
                match progress.and_then(|it| it.take_rewind(rewind)) {
                    Some(true) => work.push_back(Work::Rewind {
                        partition: rewind.partition,
                        keys: rewind.keys().map(<[u8]>::to_vec).collect(),
                    }),
                    Some(false) => {}
                    None => return Err(out_of_place("REWIND", rewind.partition)),
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
        self.frames.echoing.came(frame.header.time, appended);
        let (marks, sent) = (frame.header.marks, self.frames.number());
        let live = self.cursors.live;
        self.frames.under_way.take_marks(marks, sent, live)
    }

    /// The member tells what it has of a partition.
    fn state(
        &mut self,
        state: &State<'_>,
        partitions: &Partitions,
        reach: &impl LogReach,
        appended: Lsn,
        work: &mut VecDeque<Work>,
    ) -> Result<(), LinkRefusal> {
        let number = state.partition;
        let Some(progress) = self.progress.get_mut(&number) else {
            return Err(out_of_place("STATE", number));
        };
        // It may answer an earlier OPEN, in an epoch that this node has left since.
        let is_stale = match state.answer {
            Answer::Accepted => state.promised != progress.epoch.0,
            Answer::Rejected => state.promised <= progress.epoch.0,
        };
        if is_stale {
            return Ok(());
        }
        if state.answer == Answer::Rejected {
            progress.end();
            work.push_back(Work::Deposed {
                partition: number,
                epoch: Epoch(state.promised),
            });
            return Ok(());
        }
        match progress.phase {
            Phase::Asked => {}
            // It was deposed since it asked.
            Phase::Over => return Ok(()),
            _ => return Err(out_of_place("STATE", number)),
        }
        let partition = &partitions[&number];
        let from = common_position(number, partition, state)?;
        let is_dense = may_go_on_dense(self.peer, partition, state, from)
            && reach.reach(number, from).is_some();
        let mode = match is_dense {
            true => Mode::Dense,
            false => Mode::Scan,
        };
        let owes_rewind = state.under_way != UnderWay::Nothing || from < state.complete;
        progress.rewind = owes_rewind.then(Rewinding::default);
        progress.phase = Phase::Known {
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
        let progress = self.progress.get_mut(&partition);
        if let Some(rewinding) = progress.and_then(|progress| progress.rewind.as_mut()) {
            rewinding.written(lsn);
            let rewound = LinkMessage::Rewound(Rewound { partition, at });
            self.frames.send(time_ms, &rewound, out);
        }
    }

    /// Whether the member has all of a partition that ends here on its disk.
    #[must_use]
    pub fn has_all(&self, partition: PartitionId, end: Position) -> bool {
        self.progress.get(&partition).is_some_and(|progress| {
            progress.shipped == end
                && progress.shipped_in <= self.frames.under_way.marks().durable
                && matches!(self.counting(partition), Counting::UpTo(_))
        })
    }

    /// Tells the member to begin an epoch of its own, once on this link. It has all of the
    /// partition, which ends `at` here, nothing more is written to it here, and that is durable.
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
        self.frames
            .send(time_ms, &LinkMessage::Handover(handover), out);
        // It follows nobody from there on, and need not be told.
        let progress = Progress::handed_over(epoch, at);
        self.progress.insert(partition, progress);
    }

    // ---- what the log brings ----

    /// The record of the log behind which the owner is to read next, if it is not in the ring:
    /// [`Sender::feed`].
    #[must_use]
    pub fn wants_log(&self, ring: &Ring) -> Option<Lsn> {
        let at = self.cursors.catching_up;
        at.filter(|&lsn| lsn < ring.before() && self.has_window())
    }

    /// The next record of the log, which the owner has read. `counts` tells whether it is the
    /// newest of one of its keys, or a deletion that is still needed, by an index that knows of all
    /// up to `appended`.
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
            self.cursors.judged = self.cursors.judged.max(appended);
        }
        self.catch_up(time_ms, lsn, record, counts, partitions, out)
    }

    /// The owner has read all records up to this one and fed those that there are; by now the log
    /// has `appended`.
    pub fn fed(&mut self, time_ms: u64, lsn: Lsn, appended: Lsn, out: &mut [u8]) {
        // A segment that was not read, because cleaning gives it up, has its copies among these.
        let appended = planted::or(Bug::ScanMissesMoves, Lsn(0), appended);
        self.cursors.judged = self.cursors.judged.max(appended);
        if let Some(at) = &mut self.cursors.catching_up {
            *at = (*at).max(lsn);
        }
        self.frames.flush(time_ms, out);
    }

    fn has_window(&self) -> bool {
        self.frames.under_way.has_window()
    }

    /// Whether the destination's clock is told back: what it has is as new as that, unless somebody
    /// else writes by now.
    pub fn send_clock(&mut self, is_sent: bool) {
        self.sends_clock = is_sent;
    }

    /// Whether records of a partition are shipped.
    #[must_use]
    pub fn ships(&self, partition: PartitionId) -> bool {
        let progress = self.progress.get(&partition);
        progress.is_some_and(|it| it.is_catching_up() || it.is_live())
    }

    /// Whether deletions must stay in the log, whatever is not there any more: a scan is under way,
    /// or about to begin.
    #[must_use]
    pub fn wants_deletions(&mut self) -> bool {
        !self.progress.summary().wanting_deletions.is_empty()
    }

    // ---- what is sent ----

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
        if self.sends_clock {
            let shipped = self.cursors.shipped();
            if self.cursors.catching_up.is_some() && self.frames.echoing.is_due(shipped) {
                self.skipped_nothing(reach)?;
            }
            self.frames.echoing.shipped(shipped);
        }
        self.frames.under_way.advance(durable);
        if self.frames.has_news() {
            self.frames.send(time_ms, &LinkMessage::Beat, out);
        }
        Ok(())
    }

    /// The cursor passes over segments that were released meanwhile. What a partition lacks of
    /// those would be found with its next record; a clock that goes back before that would call the
    /// partition new.
    fn skipped_nothing(&self, reach: &impl LogReach) -> Result<(), LinkRefusal> {
        let lacks = |(partition, progress): &(&PartitionId, &Progress)| {
            progress.is_delta() && reach.reach(**partition, progress.shipped).is_none()
        };
        match self.progress.iter().find(lacks) {
            None => Ok(()),
            Some((partition, progress)) => Err(LinkRefusal {
                code: RefusalCode::Records,
                text: format!(
                    "partition {partition}: records behind {:?} were released before they were \
                     read",
                    progress.shipped
                ),
            }),
        }
    }

    /// Sends BEGIN of the partitions whose STATE was answered by what is durable now.
    fn begin_known(
        &mut self,
        time_ms: u64,
        durable: Lsn,
        partitions: &Partitions,
        reach: &impl LogReach,
        out: &mut Vec<u8>,
    ) {
        let mut entries = Vec::new();
        let known = self.progress.summary().known;
        let ready: Vec<_> = known
            .iter()
            .filter_map(|number| match self.progress[&number].phase {
                Phase::Known { when, mode, from }
                    if when <= durable
                        && partitions[&number].history().last() == self.opened(number) =>
                {
                    Some((number, mode, from))
                }
                _ => None,
            })
            .collect();
        for (partition, mode, from) in ready {
            let start = reach.reach(partition, from).filter(|_| mode == Mode::Dense);
            // What was there when STATE came may have been released since.
            let mode = match start {
                Some(_) => Mode::Dense,
                None => Mode::Scan,
            };
            let start = start.unwrap_or(reach.oldest());
            let progress = self.progress.get_mut(&partition).expect("just seen");
            if mode == Mode::Scan && !reach.may_scan() {
                let when = Lsn(0);
                progress.phase = Phase::Known { when, mode, from };
                continue;
            }
            self.cursors.catch_up_from(start);
            progress.phase = Phase::CatchingUp(mode);
            progress.shipped = from;
            let history = partitions[&partition].history().entries();
            let begin = Begin {
                partition,
                mode,
                epoch: progress.epoch.0,
                from,
                epochs: Epochs::write(&mut entries, history),
            };
            self.frames.send(time_ms, &LinkMessage::Begin(begin), out);
        }
    }

    /// Ships what is new in the ring to the partitions that have joined.
    fn ship_live(
        &mut self,
        time_ms: u64,
        ring: &Ring,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkRefusal> {
        let live = self.progress.summary().live;
        if live.is_empty() {
            self.cursors.live = ring.last();
            return Ok(());
        }
        if self.cursors.live < ring.before() && !is_planted(Bug::OverrunSkips) {
            for number in live.iter() {
                let progress = self.progress.get_mut(&number);
                progress.expect("it was offered").overtaken();
            }
            self.cursors.catch_up_from(self.cursors.live);
            return Ok(());
        }
        let mut reached = ring.last();
        let mut sent = None;
        for (lsn, record) in ring.behind(self.cursors.live) {
            // The window only shrinks with another frame.
            let number = self.frames.number();
            if sent.replace(number) != Some(number) && !self.has_window() {
                reached = self.cursors.live;
                break;
            }
            if let Some(progress) = self.progress.get_mut(&record.partition)
                && progress.is_live()
                && !record.is_copy
                && record.position.epoch <= progress.epoch.0
            {
                progress.follow(&record)?;
                let is_lost = record.position.sequence % 7 == 3;
                if_planted!(Bug::GapAccepted, is_lost, continue);
                put(&mut self.frames, progress, time_ms, lsn, &record, out);
            }
            self.cursors.live = lsn;
        }
        // Behind the last record there may be copies.
        self.cursors.live = reached;
        self.frames.flush(time_ms, out);
        self.frames.under_way.pass_over(reached);
        Ok(())
    }

    /// Ships what is in the ring to the partitions that are catching up.
    fn ship_from_ring(
        &mut self,
        time_ms: u64,
        ring: &Ring,
        partitions: &Partitions,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkRefusal> {
        let at = self.cursors.catching_up;
        let Some(at) = at.filter(|&at| at >= ring.before()) else {
            return Ok(());
        };
        let mut reached = ring.last();
        let mut passed = at;
        let mut sent = None;
        for (lsn, record) in ring.behind(at) {
            let number = self.frames.number();
            if sent.replace(number) != Some(number) && !self.has_window() {
                reached = passed;
                break;
            }
            self.catch_up(time_ms, lsn, &record, true, partitions, out)?;
            passed = lsn;
        }
        self.cursors.catching_up = Some(reached);
        self.frames.flush(time_ms, out);
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
        let Some(progress) = self.progress.get_mut(&record.partition) else {
            return Ok(());
        };
        // A former primary still has the records behind its fork in its log, and their keys were
        // written anew since. If it was promoted before the keys were written anew, the old values
        // count, and a scan brings them.
        let partition = &partitions[&record.partition];
        let is_past = partition
            .history()
            .contains(record.position, partition.applied());
        if !is_past && !progress.is_scan() && !is_planted(Bug::OwnTailShipped) {
            return Ok(());
        }
        // The record is of an epoch that this node has begun since. The partition is offered anew
        // under it.
        if record.position.epoch > progress.epoch.0 {
            return Ok(());
        }
        let is_next = !record.is_copy && record.position.sequence > progress.shipped.sequence;
        if progress.is_delta() && is_next {
            progress.follow(record)?;
        } else if !(progress.is_scan() && counts) {
            return Ok(());
        }
        put(&mut self.frames, progress, time_ms, lsn, record, out);
        Ok(())
    }

    /// Sends JOIN of the partitions that have caught up, once both cursors have met.
    fn join(&mut self, time_ms: u64, ring: &Ring, out: &mut Vec<u8>) -> Result<(), LinkRefusal> {
        let Some(lsn) = self.cursors.met(ring) else {
            return Ok(());
        };
        let mut is_over = true;
        let mut ready = Vec::new();
        for partition in self.progress.summary().catching_up.iter() {
            let newest = ring.position(partition);
            match self.progress[&partition].may_join(lsn, self.cursors.judged, newest) {
                true => ready.push(partition),
                false => is_over = false,
            }
        }
        for partition in ready {
            let progress = self.progress.get_mut(&partition).expect("just seen");
            let at = ring.position(partition);
            progress.go_live(partition, at)?;
            let join = LinkMessage::Join(Join { partition, at });
            self.frames.send(time_ms, &join, out);
            progress.joined(self.frames.number(), lsn);
            let frame = self.frames.under_way.last_mut();
            frame.is_awaited = true;
            frame.lsn = planted::or(Bug::ScanJoinsEarly, frame.lsn, lsn);
        }
        if is_over {
            self.cursors.catching_up = None;
        }
        Ok(())
    }

    /// The link ends: what was put into the open frame is not sent.
    pub fn abandon(&mut self, out: &mut Vec<u8>) {
        self.frames.abandon(out);
    }
}

/// Adds a record of a partition to the open frame.
fn put(
    frames: &mut FrameWriter,
    progress: &mut Progress,
    time_ms: u64,
    lsn: Lsn,
    record: &ShippedRecord<'_>,
    out: &mut Vec<u8>,
) {
    let kind = (progress.is_live(), !progress.is_scan());
    frames.put(time_ms, lsn, record, kind, out);
    progress.shipped_in = frames.number() + 1;
}

/// The last position that the member has in common with this node.
fn common_position(
    number: PartitionId,
    partition: &Partition,
    state: &State<'_>,
) -> Result<Position, LinkRefusal> {
    let theirs = EpochHistory::of_peer(&state.epochs);
    let ours = partition.history();
    let is_behind = state.complete.sequence <= partition.applied().sequence;
    match ours.fork(partition.applied(), &theirs, state.complete) {
        _ if is_behind && is_planted(Bug::ForkBySequence) => Ok(state.complete),
        Fork::Prefix => Ok(state.complete),
        Fork::At(at) => Ok(at),
        Fork::Unrelated => Err(LinkRefusal {
            code: RefusalCode::Unrelated,
            // The cause comes first: a long text is cut.
            text: format!(
                "partition {number}: the nodes have no epoch in common: sequence {} of {theirs} \
                 there, sequence {} of {ours} here",
                state.complete.sequence,
                partition.applied().sequence
            ),
        }),
    }
}

/// Whether the member may go on in the order of the log, as far as the log is still there.
fn may_go_on_dense(peer: u8, partition: &Partition, state: &State<'_>, from: Position) -> bool {
    // The member wrote this partition once and now has no record: it has lost its disk. If it got
    // its own old records in order, it and its next start would take the partition for complete
    // before all records are there. A scan makes it complete only at its end.
    let mut epochs = partition.history().entries();
    let is_lost = state.complete.sequence == 0
        && epochs.any(|entry| Epoch(entry.epoch).node() == peer)
        && !is_planted(Bug::LostByDelta);
    state.under_way != UnderWay::Scan && !is_lost && from.sequence >= partition.facts().dense_behind
}

fn out_of_place(message: &str, partition: PartitionId) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Order,
        text: format!("{message} of partition {partition} has no place here"),
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::link::Marks;

    use super::frames_under_way::FRAMES_MAX;
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
    fn no_clock_is_sent_back_while_another_node_may_write_what_is_shipped() {
        let mut sender = Sender::new(2, (0, 0), 4 << 20);
        let (ring, partitions) = (Ring::new(0, Lsn(0)), Partitions::default());
        let echoed = |sender: &mut Sender| {
            let mut out = Vec::new();
            let durable = Lsn(0);
            let pumped = sender.pump(0, durable, &ring, &partitions, &Nowhere, &mut out);
            pumped.expect("nothing is shipped");
            sender.frames.echoing.echo()
        };
        sender.frames.echoing.came(100, Lsn(0));
        assert_eq!(echoed(&mut sender), 100);
        sender.send_clock(false);
        sender.frames.echoing.came(200, Lsn(0));
        assert_eq!(echoed(&mut sender), 100);
        sender.send_clock(true);
        assert_eq!(echoed(&mut sender), 200);
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
        let mut progress = Progress::asked(Epoch(256));
        progress.phase = Phase::Live;
        sender.progress.insert(7, progress);
        let count = 5 * FRAMES_MAX as u64;
        for sequence in 1..=count {
            assert!(sender.has_window(), "frame {sequence}");
            let bytes = encoded(at(sequence), &[(&key, 1)]);
            let record = records(&bytes).next().expect("one").expect("sound");
            let frames = &mut sender.frames;
            frames.put(
                0,
                Lsn(sequence),
                &record,
                (sequence % 5 > 0, true),
                &mut out,
            );
            frames.flush(0, &mut out);
            frames.send(0, &LinkMessage::Beat, &mut out);
            // Durable here and received there; of the third frame something is not applied.
            let sent = frames.number();
            frames.under_way.set_durable(sent);
            let marks = Marks {
                received: sent,
                durable: sent.min(2),
            };
            let taken = frames.under_way.take_marks(marks, sent, Lsn(0));
            taken.expect("they rise");
            out.clear();
        }
        let under_way = &mut sender.frames.under_way;
        assert!(under_way.len() <= FRAMES_MAX, "{}", under_way.len());
        // The first record was confirmed by itself.
        let lacked = under_way.unconfirmed(Confirmed::Durable);
        assert_eq!(lacked, (count - 1, Some(Lsn(1))));
        let sent = sender.sent();
        let all = Marks {
            received: sent,
            durable: sent,
        };
        let under_way = &mut sender.frames.under_way;
        under_way.take_marks(all, sent, Lsn(0)).expect("they rise");
        assert_eq!(under_way.unconfirmed(Confirmed::Durable), (0, None));
        assert_eq!(under_way.len(), 0);
        assert_eq!(under_way.durable_lsn(), Lsn(count - 1));
    }
}
