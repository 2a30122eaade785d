//! The destination's side of one link: checks what comes, takes it in, tells how far it is.

mod rewind_requests;
mod unapplied_frames;

use std::collections::VecDeque;

use penstock_net::link::frame::write_link_frame;
use penstock_net::link::{
    Answer, Begin, Epochs, Handover, Join, LinkFrame, LinkHeader, LinkMessage, Marks, Open,
    PartitionSet, Position, Records, RefusalCode, Rewind, State, UnderWay,
};
use penstock_storage::place::Lsn;

use super::epoch::Epoch;
use super::freshness::{Freshness, StrangeEcho};
use super::partition::{CannotGoOn, Misplaced, Opened, Partition, TakenOver};
use super::partition_map::PartitionMap;
use super::planted::{Bug, is_planted};
use super::record::{ShippedRecord, records};
use super::summarized_map::SummarizedMap;
use super::{Journal, LinkId, PartitionId, Work};

use self::rewind_requests::RewindRequests;
use self::unapplied_frames::UnappliedFrames;

/// Why a link is ended by this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRefusal {
    /// For the peer.
    pub code: RefusalCode,
    /// For people.
    pub text: String,
}

pub(super) fn refusal<T>(code: RefusalCode, text: impl Into<String>) -> Result<T, LinkRefusal> {
    Err(LinkRefusal {
        code,
        text: text.into(),
    })
}

/// The partitions of a node, by number.
pub type Partitions = SummarizedMap<Partition>;

/// The destination's side of one link, once both sides have proven themselves.
#[derive(Debug)]
pub struct Receiver {
    link: LinkId,
    /// The node at the other end: it opens its own epochs.
    node: u8,
    /// The last frame that was sent.
    number: u64,
    /// The last frame that was taken.
    received: u64,
    /// Up to this frame all is durable at the source.
    announced: u64,
    /// Partitions that it has opened and not lost.
    opened: PartitionSet,
    /// Answers to OPEN, when what they tell is durable.
    answers: VecDeque<(Lsn, PartitionId)>,
    /// Partitions that are told rejected before anything else is.
    rejections: VecDeque<(PartitionId, Epoch)>,
    rewinds: RewindRequests,
    frames: UnappliedFrames,
    sent: Marks,
    freshness: Freshness,
    limits: KeptLimits,
}

/// How much a link may bring that is not applied.
#[derive(Clone, Copy, Debug)]
pub struct KeptLimits {
    /// Bytes beyond which it is not read from, if some of them can be applied.
    pub bytes_max: usize,
    /// Bytes of one frame, at most.
    pub frame_bytes_max: usize,
}

impl Receiver {
    /// A link from node `node` on which `sent` frames went out and `received` came in so far.
    #[must_use]
    pub fn new(link: LinkId, node: u8, (sent, received): (u64, u64), limits: KeptLimits) -> Self {
        Receiver {
            link,
            node,
            number: sent,
            received,
            announced: 0,
            opened: PartitionSet::none(),
            answers: VecDeque::new(),
            rejections: VecDeque::new(),
            rewinds: RewindRequests::default(),
            frames: UnappliedFrames::new(received),
            sent: Marks::default(),
            freshness: Freshness::default(),
            limits,
        }
    }

    /// The number that the next frame must have.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.received + 1
    }

    /// The number of the last frame that was sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.number
    }

    /// Up to which of its frames all was announced durable at the source.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.announced
    }

    /// How new what was applied is.
    #[must_use]
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// A reader of a partition of this link wants nothing that is older than this.
    pub fn want(&mut self, now_us: u64, staleness_us_max: u64) {
        self.freshness.want(now_us, staleness_us_max);
    }

    /// When it has something to ask, if nothing else happens.
    #[must_use]
    pub fn due_us(&self, now_us: u64) -> Option<u64> {
        let due = self.freshness.due_us(now_us);
        due.filter(|_| !self.opened.is_empty())
    }

    /// Whether the owner is to read no more from it now. If nothing can be applied what does so is
    /// still to be read: that it is durable at the source, or where the partition goes on.
    #[must_use]
    pub fn is_full(&self, partitions: &mut Partitions) -> bool {
        let holding = partitions.summary().holding().and(self.opened);
        let can_apply = |number| partitions[&number].applicable(self.announced).is_some();
        kept_bytes(holding, partitions) > self.limits.bytes_max && holding.iter().any(can_apply)
    }

    /// Takes a frame in.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the peer is to be told, then the link is to be ended by
    /// [`Receiver::close`]. Nothing of the frame was taken.
    pub fn frame(
        &mut self,
        frame: &LinkFrame<'_>,
        partitions: &mut Partitions,
        journal: &mut impl Journal,
        work: &mut VecDeque<Work>,
    ) -> Result<(), LinkRefusal> {
        let number = frame.header.number;
        assert_eq!(number, self.next_number(), "frames are read in order");
        check_partition(&frame.message, partitions)?;
        match &frame.message {
            LinkMessage::Open(open) => {
                let partition = partitions.get_mut(&open.partition).expect("checked");
                self.open(open, partition, journal, work)?;
            }
            LinkMessage::Begin(begin) => {
                let partition = partitions.get_mut(&begin.partition).expect("checked");
                self.begin(begin, partition, journal, work)?;
            }
            LinkMessage::Records(shipped) => self.records(number, shipped, partitions)?,
            LinkMessage::Join(join) => {
                let partition = partitions.get_mut(&join.partition).expect("checked");
                self.join(&frame.header, join, partition)?;
            }
            LinkMessage::Rewound(rewound) => self.rewinds.answered(rewound.partition),
            LinkMessage::Handover(handover) => {
                let partition = partitions.get_mut(&handover.partition).expect("checked");
                self.handover(handover, partition, work)?;
            }
            LinkMessage::Close(close) => {
                let partition = partitions.get_mut(&close.partition).expect("checked");
                if partition.is_opened_by(self.link) {
                    self.forget(close.partition);
                    partition.close();
                }
            }
            LinkMessage::Beat => {}
            other => {
                return refusal(
                    RefusalCode::Order,
                    format!("a source does not send {}", other.name()),
                );
            }
        }
        self.received = number;
        self.take_marks(number, frame.header.marks)
    }

    /// Takes what the source announces: how far it is durable, and a clock of this node.
    fn take_marks(&mut self, number: u64, marks: Marks) -> Result<(), LinkRefusal> {
        let announced = marks.durable;
        if announced < self.announced || announced > number {
            return refusal(
                RefusalCode::Order,
                format!("frame {number} tells frame {announced} durable"),
            );
        }
        self.announced = announced;
        let echo_us = marks.received;
        if self.freshness.take_echo(number, echo_us) == Err(StrangeEcho) {
            return refusal(
                RefusalCode::Order,
                format!("frame {number} tells back {echo_us}, which was not told"),
            );
        }
        Ok(())
    }

    /// The source tells where a partition goes on.
    fn begin(
        &mut self,
        begin: &Begin<'_>,
        partition: &mut Partition,
        journal: &mut impl Journal,
        work: &mut VecDeque<Work>,
    ) -> Result<(), LinkRefusal> {
        let (number, from) = (begin.partition, begin.from);
        if !self.is_live(number, partition) {
            return Ok(());
        }
        match partition.go_on(self.link, begin, journal, work) {
            Ok(true) => self.rewinds.begin(number),
            Ok(false) => {}
            Err(CannotGoOn::Misplaced) => {
                return refusal(
                    RefusalCode::Order,
                    format!("partition {number} cannot go on from {from:?}"),
                );
            }
            Err(CannotGoOn::WrittenTwice(epoch)) => {
                return refusal(
                    RefusalCode::Unrelated,
                    format!(
                        "partition {number}: epoch {epoch} was written twice, the second time by \
                         a node with an older copy of its directory, and this node has what was \
                         written first: it must be started on an empty directory"
                    ),
                );
            }
            Err(CannotGoOn::GoneBack) => {
                return refusal(
                    RefusalCode::GoneBack,
                    format!(
                        "partition {number}: node {} had told durable what it wrote up to {:?}, \
                         and has it up to {from:?} now: its directory is an older copy, or its \
                         disk has lost some",
                        self.node,
                        partition.applied(),
                    ),
                );
            }
        }
        Ok(())
    }

    /// The source tells that a partition has caught up.
    fn join(
        &mut self,
        header: &LinkHeader,
        join: &Join,
        partition: &mut Partition,
    ) -> Result<(), LinkRefusal> {
        if !self.is_live(join.partition, partition) {
            return Ok(());
        }
        let number = header.number;
        if partition.take_join(self.link, (number, header.time), join.at) == Err(Misplaced) {
            return refusal(
                RefusalCode::Order,
                format!("partition {} is not at {:?}", join.partition, join.at),
            );
        }
        self.frames.push(number, vec![(join.partition, 1)]);
        Ok(())
    }

    /// The source hands a partition over.
    fn handover(
        &mut self,
        handover: &Handover,
        partition: &mut Partition,
        work: &mut VecDeque<Work>,
    ) -> Result<(), LinkRefusal> {
        let (number, epoch) = (handover.partition, Epoch(handover.epoch));
        let is_live = partition.is_opened_by(self.link);
        match partition.take_handover(self.node, epoch, handover.at) {
            TakenOver::All => work.push_back(Work::Begin {
                partition: number,
                epoch,
            }),
            TakenOver::Lacks if is_live => {
                return refusal(
                    RefusalCode::Order,
                    format!("partition {number} is not all there"),
                );
            }
            TakenOver::Lacks => work.push_back(Work::Lacks {
                partition: number,
                node: self.node,
            }),
            TakenOver::Past => {}
        }
        Ok(())
    }

    fn open(
        &mut self,
        open: &Open,
        partition: &mut Partition,
        journal: &mut impl Journal,
        work: &mut VecDeque<Work>,
    ) -> Result<(), LinkRefusal> {
        let epoch = Epoch(open.epoch);
        if epoch.node() != self.node {
            return refusal(
                RefusalCode::Order,
                format!("node {} opens the epoch {epoch} of another", self.node),
            );
        }
        self.forget(open.partition);
        match partition.open(self.link, epoch, journal, work) {
            Opened::Rejected(higher) => self.rejections.push_back((open.partition, higher)),
            Opened::Accepted { gate } => {
                self.opened.insert(open.partition);
                self.answers.push_back((gate, open.partition));
            }
        }
        Ok(())
    }

    fn forget(&mut self, partition: PartitionId) {
        self.opened.set(partition, false);
        self.rewinds.forget(partition);
        self.answers.retain(|&(_, of)| of != partition);
        self.frames.forget(partition);
    }

    /// Whether the link still has a partition that it has opened. If not, the source is told before
    /// it is told that anything of this frame was received: what was dropped would count otherwise.
    fn is_live(&mut self, number: PartitionId, partition: &Partition) -> bool {
        if partition.is_opened_by(self.link) {
            return true;
        }
        if self.opened.has(number) {
            self.forget(number);
            self.rejections
                .push_back((number, partition.facts().promised));
        }
        false
    }

    /// Takes all records of a frame or none.
    fn records(
        &mut self,
        number: u64,
        shipped: &Records<'_>,
        partitions: &mut Partitions,
    ) -> Result<(), LinkRefusal> {
        let mut ends: PartitionMap<(Position, u32)> = PartitionMap::new();
        let mut taken = Vec::new();
        let mut count = 0;
        for record in records(shipped.bytes) {
            let record = match record {
                Ok(record) => record,
                Err(fault) => {
                    return refusal(RefusalCode::Records, format!("record {count}: {fault:?}"));
                }
            };
            count += 1;
            let partition = check_record(&record, partitions)?;
            if !self.is_live(record.partition, partition) {
                continue;
            }
            let known = ends.get(&record.partition).copied();
            let (end, records) = known.unwrap_or((partition.received(), 0));
            if !partition.may_follow(end, &record) {
                return refusal(
                    RefusalCode::Records,
                    format!(
                        "partition {}: {:?} does not follow {end:?}",
                        record.partition, record.position
                    ),
                );
            }
            ends.insert(record.partition, (record.position, records + 1));
            taken.push(record);
        }
        if count != shipped.count {
            return refusal(
                RefusalCode::Records,
                format!("{count} records, told {}", shipped.count),
            );
        }
        let holding = partitions.summary().holding().and(self.opened);
        let bytes = kept_bytes(holding, partitions);
        // By a link before this one, and by this one.
        let bytes_max = 2 * (self.limits.bytes_max + self.limits.frame_bytes_max);
        if bytes > bytes_max {
            return refusal(
                RefusalCode::Records,
                format!("{bytes} bytes are not applied; the limit is {bytes_max}"),
            );
        }
        for record in &taken {
            let partition = partitions.get_mut(&record.partition);
            partition.expect("seen before").take(number, record);
        }
        if !taken.is_empty() {
            let ends = ends.iter();
            let left = ends.map(|(&number, &(_, count))| (number, count));
            self.frames.push(number, left.collect());
        }
        Ok(())
    }

    /// So many records and joins of `partition` that came in `frame` were applied, and are durable
    /// with the record `lsn` of the log here.
    pub fn applied(&mut self, partition: PartitionId, frame: u64, count: u32, lsn: Lsn) {
        self.frames.applied(partition, frame, count, lsn);
    }

    /// The diverged records of a partition are in lostfound; these were their keys.
    pub fn diverged_saved(
        &mut self,
        partition: PartitionId,
        keys: impl IntoIterator<Item = Vec<u8>>,
    ) {
        self.rewinds.saved(partition, keys);
    }

    /// Appends the frames that can be sent, now that the log is durable up to `durable`.
    pub fn pump(&mut self, now_us: u64, durable: Lsn, partitions: &Partitions, out: &mut Vec<u8>) {
        self.advance(durable, partitions);
        let mut entries = Vec::new();
        let (ready, waiting): (VecDeque<_>, _) = std::mem::take(&mut self.answers)
            .into_iter()
            .partition(|&(gate, _)| gate <= durable);
        self.answers = waiting;
        for (_, number) in ready {
            let partition = &partitions[&number];
            if !self.is_live(number, partition) {
                continue;
            }
            let (under_way, complete, history) = partition.state();
            let state = State {
                partition: number,
                answer: Answer::Accepted,
                under_way,
                promised: partition.facts().promised.0,
                complete,
                epochs: Epochs::write(&mut entries, history.entries()),
            };
            self.send(now_us, &LinkMessage::State(state), out);
        }
        while let Some((partition, promised)) = self.rejections.pop_front() {
            let state = State {
                partition,
                answer: Answer::Rejected,
                under_way: UnderWay::Nothing,
                promised: promised.0,
                complete: Default::default(),
                epochs: Epochs::default(),
            };
            self.send(now_us, &LinkMessage::State(state), out);
        }
        self.pump_rewinds(now_us, out);
        let marks = self.marks();
        let is_due = self.due_us(now_us).is_some_and(|due| due <= now_us);
        if marks != self.sent || is_due {
            self.send(now_us, &LinkMessage::Beat, out);
        }
    }

    fn pump_rewinds(&mut self, now_us: u64, out: &mut Vec<u8>) {
        let mut encoded = Vec::new();
        let mut behind = None;
        while let Some(next) = self.rewinds.next(behind) {
            let views: Vec<&[u8]> = next.keys.iter().map(Vec::as_slice).collect();
            let rewind = Rewind::write(&mut encoded, next.partition, next.is_last, &views);
            self.send(now_us, &LinkMessage::Rewind(rewind), out);
            behind = Some(next.partition);
        }
    }

    fn advance(&mut self, durable: Lsn, partitions: &Partitions) {
        let link = self.link;
        let is_opened = |number| partitions[&number].is_opened_by(link);
        self.frames.advance(durable, self.received, is_opened);
    }

    fn marks(&self) -> Marks {
        Marks {
            durable: self.frames.durable(),
            received: self.received,
        }
    }

    fn send(&mut self, now_us: u64, message: &LinkMessage<'_>, out: &mut Vec<u8>) {
        self.number += 1;
        // One frame may have held records of several partitions that are rejected now: it counts as
        // received when the last of them is told so.
        if self.rejections.is_empty() || is_planted(Bug::MarksBetweenRejections) {
            self.sent = self.marks();
        }
        let header = LinkHeader {
            number: self.number,
            marks: self.sent,
            time: self.freshness.ask(now_us),
        };
        write_link_frame(out, header, message);
    }

    /// The link is gone. What was received stays with the partitions.
    pub fn close(self, partitions: &mut Partitions) {
        for number in self.opened.iter() {
            let partition = partitions.get_mut(&number).expect("opened before");
            if partition.is_opened_by(self.link) {
                partition.close();
            }
        }
    }
}

/// Bytes of these partitions that were received and are not applied, by this link or by one before
/// it.
fn kept_bytes(holding: PartitionSet, partitions: &Partitions) -> usize {
    let kept = |number| partitions[&number].kept_bytes();
    holding.iter().map(kept).sum()
}

/// Whether the partition that a message names is one of this shard.
fn check_partition(message: &LinkMessage<'_>, partitions: &Partitions) -> Result<(), LinkRefusal> {
    let named = match message {
        LinkMessage::Open(open) => open.partition,
        LinkMessage::Begin(begin) => begin.partition,
        LinkMessage::Join(join) => join.partition,
        LinkMessage::Handover(handover) => handover.partition,
        LinkMessage::Close(close) => close.partition,
        _ => return Ok(()),
    };
    match partitions.contains_key(&named) {
        true => Ok(()),
        false => refusal(
            RefusalCode::Order,
            format!("partition {named} is not of this shard"),
        ),
    }
}

/// The partition of a record, if a source may ship the record to this shard.
fn check_record<'a>(
    record: &ShippedRecord<'_>,
    partitions: &'a Partitions,
) -> Result<&'a Partition, LinkRefusal> {
    let number = record.partition;
    let Some(partition) = partitions.get(&number) else {
        return refusal(
            RefusalCode::Records,
            format!("partition {number} is not of this shard"),
        );
    };
    if record.is_local {
        return refusal(
            RefusalCode::Records,
            format!("partition {number}: a note of its node"),
        );
    }
    if record.is_strange {
        return refusal(
            RefusalCode::LogFormat,
            format!(
                "partition {number}: a record of the store's own that this version does not know"
            ),
        );
    }
    Ok(partition)
}

#[cfg(test)]
mod tests {
    use super::unapplied_frames::FRAMES_MAX;
    use super::*;
    use penstock_net::link::message::EpochEntry;
    use penstock_net::link::{Confirm, LinkHeader, Mode, PartitionSet};

    use crate::replication::tests::{Noted, encoded, keys_of_partition};
    use crate::replication::{EpochHistory, Facts};

    #[test]
    fn what_is_done_behind_a_frame_that_waits_takes_no_memory() {
        let limits = KeptLimits {
            bytes_max: 0,
            frame_bytes_max: 0,
        };
        let mut receiver = Receiver::new(LinkId(1), 1, (0, 0), limits);
        let mut partitions = Partitions::default();
        for number in [7, 8] {
            let facts = Facts::default();
            let history = EpochHistory::default();
            let mut partition = Partition::recovered(number, facts, history, Position::default());
            let epoch = Epoch::new(1, 0, 1);
            let opened = partition.open(LinkId(1), epoch, &mut Noted, &mut VecDeque::new());
            assert!(matches!(opened, Opened::Accepted { .. }));
            partitions.insert(number, partition);
        }
        for number in 1..=10 * FRAMES_MAX as u64 {
            receiver.received = number;
            let partition = if number == 3 { 7 } else { 8 };
            receiver.frames.push(number, vec![(partition, 1)]);
            receiver.applied(8, number, 1, Lsn(number));
            receiver.advance(Lsn(number), &partitions);
            assert!(receiver.frames.len() <= FRAMES_MAX + 1, "frame {number}");
        }
        assert_eq!(receiver.frames.durable(), 2);
        receiver.applied(7, 3, 1, Lsn(3));
        receiver.advance(Lsn(u64::MAX), &partitions);
        assert_eq!(receiver.frames.durable(), receiver.received);
        assert_eq!(receiver.frames.len(), 0);
    }

    #[test]
    fn what_belongs_to_a_connection_of_its_own_ends_a_link_of_records() {
        let limits = KeptLimits {
            bytes_max: 0,
            frame_bytes_max: 0,
        };
        let granted = Confirm {
            number: 1,
            plan: 1,
            granted: PartitionSet::default(),
        };
        let frame = LinkFrame {
            header: LinkHeader {
                number: 1,
                ..LinkHeader::default()
            },
            message: LinkMessage::Confirm(granted),
            bytes: 0,
        };
        let mut receiver = Receiver::new(LinkId(1), 1, (0, 0), limits);
        let (mut partitions, mut work) = (Partitions::default(), VecDeque::new());
        let outcome = receiver.frame(&frame, &mut partitions, &mut Noted, &mut work);
        let refusal = outcome.expect_err("it is out of place");
        assert_eq!(refusal.code, RefusalCode::Order);
        assert_eq!(refusal.text, "a source does not send CONFIRM");
    }

    #[test]
    fn no_record_of_a_frame_is_taken_when_one_of_them_is_bad_or_missing() {
        let limits = KeptLimits {
            bytes_max: 1 << 20,
            frame_bytes_max: 1 << 20,
        };
        let (link, epoch) = (LinkId(1), Epoch::new(1, 0, 1));
        let at = |sequence| Position {
            epoch: epoch.0,
            sequence,
        };
        let key = keys_of_partition(7, 1).remove(0);
        let first = encoded(at(1), &[(&key, 1)]);
        let whole = [first.clone(), encoded(at(2), &[(&key, 2)])].concat();
        let mut bad = whole.clone();
        *bad.last_mut().expect("a record") ^= 1;
        let taken = |bytes: &[u8], count| {
            let mut receiver = Receiver::new(link, 1, (0, 0), limits);
            let (facts, history) = (Facts::default(), EpochHistory::default());
            let mut partition = Partition::recovered(7, facts, history, Position::default());
            let mut work = VecDeque::new();
            partition.open(link, epoch, &mut Noted, &mut work);
            let mut entries = Vec::new();
            let entry = EpochEntry {
                epoch: epoch.0,
                start_id: 1,
                first: 1,
            };
            let begin = Begin {
                partition: 7,
                mode: Mode::Dense,
                epoch: epoch.0,
                from: Position::default(),
                epochs: Epochs::write(&mut entries, [entry]),
            };
            let gone_on = partition.go_on(link, &begin, &mut Noted, &mut work);
            assert!(gone_on.is_ok(), "{gone_on:?}");
            let mut partitions = Partitions::default();
            partitions.insert(7, partition);
            let result = receiver.records(1, &Records { count, bytes }, &mut partitions);
            (result.is_ok(), partitions[&7].received())
        };
        assert_eq!(taken(&whole, 2), (true, at(2)));
        assert_eq!(taken(&bad, 2), (false, Position::default()));
        assert_eq!(taken(&first, 2), (false, Position::default()));
    }
}
