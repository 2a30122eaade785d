//! The destination's side of one link: checks what comes, takes it in, tells how far it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::planted::{Bug, is_planted};
use penstock_net::link::frame::write_link_frame;
use penstock_net::link::message::REWIND_KEYS_MAX;
use penstock_net::link::{
    Answer, Epochs, LinkFrame, LinkHeader, LinkMessage, Marks, Open, Position, Records,
    RefusalCode, Rewind, State, UnderWay,
};
use penstock_storage::place::Lsn;

use super::epoch::Epoch;
use super::freshness::{Freshness, StrangeEcho};
use super::partition::{CannotGoOn, Misplaced, Opened, Partition, TakenOver};
use super::partition_map::PartitionMap;
use super::record::records;
use super::{Journal, LinkId, PartitionId, Work};

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
pub type Partitions = PartitionMap<Partition>;

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
    /// Up to this frame all is durable here.
    durable: u64,
    /// Partitions that it has opened and not lost.
    opened: BTreeSet<PartitionId>,
    /// Answers to OPEN, when what they tell is durable.
    answers: VecDeque<(Lsn, PartitionId)>,
    /// Partitions that are told rejected before anything else is.
    rejections: VecDeque<(PartitionId, Epoch)>,
    rewinds: BTreeMap<PartitionId, Rewinding>,
    /// Frames of which something is not durable here.
    frames: VecDeque<FrameNote>,
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

/// Keys of a diverged tail that the source is to write anew.
#[derive(Debug, Default)]
struct Rewinding {
    keys: VecDeque<Vec<u8>>,
    /// The tail is in lostfound, so all keys are known.
    is_saved: bool,
    /// REWOUND is awaited.
    waits: bool,
    is_last_sent: bool,
}

#[derive(Debug)]
struct FrameNote {
    number: u64,
    /// How many records and joins of each partition are not applied: each partition once,
    /// ascending.
    left: Vec<(PartitionId, u32)>,
    /// Behind which record of the log here all that was applied is durable.
    lsn: Lsn,
}

/// Frames that are noted before those of which nothing is left to do are taken out.
const FRAMES_MAX: usize = 1024;

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
            durable: received,
            opened: BTreeSet::new(),
            answers: VecDeque::new(),
            rejections: VecDeque::new(),
            rewinds: BTreeMap::new(),
            frames: VecDeque::new(),
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
    pub fn is_full(&self, partitions: &Partitions) -> bool {
        let can_apply = |number| partitions[number].applicable(self.announced).is_some();
        self.kept_bytes(partitions) > self.limits.bytes_max && self.opened.iter().any(can_apply)
    }

    /// Bytes that were received and are not applied, by this link or by one before it.
    fn kept_bytes(&self, partitions: &Partitions) -> usize {
        let kept = |number| partitions[number].kept_bytes();
        self.opened.iter().map(kept).sum()
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
        let named = match &frame.message {
            LinkMessage::Open(open) => Some(open.partition),
            LinkMessage::Begin(begin) => Some(begin.partition),
            LinkMessage::Join(join) => Some(join.partition),
            LinkMessage::Handover(handover) => Some(handover.partition),
            LinkMessage::Close(close) => Some(close.partition),
            _ => None,
        };
        if let Some(stranger) = named.filter(|named| !partitions.contains_key(named)) {
            return refusal(
                RefusalCode::Order,
                format!("partition {stranger} is not of this shard"),
            );
        }
        match &frame.message {
            LinkMessage::Open(open) => {
                let partition = partitions.get_mut(&open.partition).expect("checked");
                self.open(open, partition, journal, work)?;
            }
            LinkMessage::Begin(begin) => {
                let partition = partitions.get_mut(&begin.partition).expect("all are there");
                if self.is_live(begin.partition, partition) {
                    match partition.go_on(self.link, begin, journal, work) {
                        Ok(true) => {
                            self.rewinds.insert(begin.partition, Rewinding::default());
                        }
                        Ok(false) => {}
                        Err(CannotGoOn::Misplaced) => {
                            return refusal(
                                RefusalCode::Order,
                                format!(
                                    "partition {} cannot go on from {:?}",
                                    begin.partition, begin.from
                                ),
                            );
                        }
                        Err(CannotGoOn::WrittenTwice(epoch)) => {
                            return refusal(
                                RefusalCode::Unrelated,
                                format!(
                                    "partition {}: epoch {epoch} was written twice, the second time by a node with an older copy of its directory, \
                                     and this node has what was written first: it must be started on an empty directory",
                                    begin.partition
                                ),
                            );
                        }
                        Err(CannotGoOn::GoneBack) => {
                            return refusal(
                                RefusalCode::GoneBack,
                                format!(
                                    "partition {}: node {} had told durable what it wrote up to {:?}, and has it up to {:?} now: \
                                     its directory is an older copy, or its disk has lost some",
                                    begin.partition,
                                    self.node,
                                    partition.applied(),
                                    begin.from
                                ),
                            );
                        }
                    }
                }
            }
            LinkMessage::Records(shipped) => self.records(number, shipped, partitions)?,
            LinkMessage::Join(join) => {
                let partition = partitions.get_mut(&join.partition).expect("all are there");
                if self.is_live(join.partition, partition) {
                    if partition.take_join(self.link, number, join.at) == Err(Misplaced) {
                        return refusal(
                            RefusalCode::Order,
                            format!("partition {} is not at {:?}", join.partition, join.at),
                        );
                    }
                    self.frames.push_back(FrameNote {
                        number,
                        left: vec![(join.partition, 1)],
                        lsn: Lsn(0),
                    });
                }
            }
            LinkMessage::Rewound(rewound) => {
                if let Some(rewinding) = self.rewinds.get_mut(&rewound.partition) {
                    rewinding.waits = false;
                    if rewinding.is_last_sent {
                        self.rewinds.remove(&rewound.partition);
                    }
                }
            }
            LinkMessage::Handover(handover) => {
                let (number, epoch) = (handover.partition, Epoch(handover.epoch));
                let partition = partitions.get_mut(&number).expect("checked");
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
        let told = frame.header.marks.durable;
        if told < self.announced || told > number {
            return refusal(
                RefusalCode::Order,
                format!("frame {number} tells frame {told} durable"),
            );
        }
        self.announced = told;
        let echo_us = frame.header.marks.received;
        if self.freshness.heard(number, echo_us) == Err(StrangeEcho) {
            return refusal(
                RefusalCode::Order,
                format!("frame {number} tells back {echo_us}, which was not told"),
            );
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
        self.opened.remove(&partition);
        self.rewinds.remove(&partition);
        self.answers.retain(|&(_, of)| of != partition);
        for note in &mut self.frames {
            note.left.retain(|&(of, _)| of != partition);
        }
    }

    /// Whether the link still has a partition that it has opened. If not, the source is told before
    /// it is told that anything of this frame was received: what was dropped would count otherwise.
    fn is_live(&mut self, number: PartitionId, partition: &Partition) -> bool {
        if partition.is_opened_by(self.link) {
            return true;
        }
        if self.opened.contains(&number) {
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
                Err(_) if is_planted(Bug::HalfRecord) => break,
                Err(fault) => {
                    return refusal(RefusalCode::Records, format!("record {count}: {fault:?}"));
                }
            };
            count += 1;
            let Some(partition) = partitions.get(&record.partition) else {
                return refusal(
                    RefusalCode::Records,
                    format!("partition {} is not of this shard", record.partition),
                );
            };
            if record.is_local {
                return refusal(
                    RefusalCode::Records,
                    format!("partition {}: a note of its node", record.partition),
                );
            }
            if record.is_strange {
                return refusal(
                    RefusalCode::LogFormat,
                    format!(
                        "partition {}: a record of the store's own that this version does not know",
                        record.partition
                    ),
                );
            }
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
        if count != shipped.count && !is_planted(Bug::HalfRecord) {
            return refusal(
                RefusalCode::Records,
                format!("{count} records, told {}", shipped.count),
            );
        }
        let bytes = self.kept_bytes(partitions);
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
            self.frames.push_back(FrameNote {
                number,
                left: ends.map(|(&number, &(_, count))| (number, count)).collect(),
                lsn: Lsn(0),
            });
        }
        Ok(())
    }

    /// So many records and joins of `partition` that came in `frame` were applied, and are durable
    /// with the record `lsn` of the log here.
    pub fn applied(&mut self, partition: PartitionId, frame: u64, count: u32, lsn: Lsn) {
        let at = self.frames.partition_point(|note| note.number < frame);
        let Some(note) = self.frames.get_mut(at).filter(|note| note.number == frame) else {
            return;
        };
        if let Ok(at) = note.left.binary_search_by_key(&partition, |left| left.0) {
            note.left[at].1 -= count;
            note.lsn = note.lsn.max(lsn);
            if note.left[at].1 == 0 {
                note.left.remove(at);
            }
        }
    }

    /// The diverged tail of a partition is in lostfound; these were its keys.
    pub fn tail_saved(&mut self, partition: PartitionId, keys: impl IntoIterator<Item = Vec<u8>>) {
        if let Some(rewinding) = self.rewinds.get_mut(&partition) {
            rewinding.is_saved = true;
            rewinding.keys.extend(keys);
            if is_planted(Bug::RewindForgets) {
                rewinding.keys.clear();
            }
        }
    }

    /// Appends the frames that can be sent, now that the log is durable up to `durable`.
    pub fn pump(&mut self, now_us: u64, durable: Lsn, partitions: &Partitions, out: &mut Vec<u8>) {
        self.advance(durable, partitions);
        let mut entries = Vec::new();
        if is_planted(Bug::MarksBeforeRejection) && self.marks() != self.sent {
            return self.send(now_us, &LinkMessage::Beat, out);
        }
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
        let mut rewinds = std::mem::take(&mut self.rewinds);
        let mut encoded = Vec::new();
        for (&partition, rewinding) in &mut rewinds {
            if !rewinding.is_saved || rewinding.waits || rewinding.is_last_sent {
                continue;
            }
            let count = rewinding.keys.len().min(REWIND_KEYS_MAX);
            let keys: Vec<Vec<u8>> = rewinding.keys.drain(..count).collect();
            let views: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            rewinding.is_last_sent = rewinding.keys.is_empty();
            rewinding.waits = true;
            let rewind = Rewind::write(&mut encoded, partition, rewinding.is_last_sent, &views);
            self.send(now_us, &LinkMessage::Rewind(rewind), out);
        }
        self.rewinds = rewinds;
    }

    fn advance(&mut self, durable: Lsn, partitions: &Partitions) {
        let link = self.link;
        while let Some(note) = self.frames.front_mut() {
            // What another link has taken over is applied for that one.
            note.left
                .retain(|(number, _)| partitions[number].is_opened_by(link));
            if !note.left.is_empty() || note.lsn > durable {
                break;
            }
            self.frames.pop_front();
        }
        // Behind one that waits there may be any number of which nothing is left to do.
        if self.frames.len() > FRAMES_MAX {
            self.frames
                .retain(|note| !note.left.is_empty() || note.lsn > durable);
        }
        let until = self.frames.front().map(|note| note.number - 1);
        self.durable = self.durable.max(until.unwrap_or(self.received));
    }

    fn marks(&self) -> Marks {
        Marks {
            durable: self.durable,
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
        for number in self.opened {
            let partition = partitions.get_mut(&number).expect("opened before");
            if partition.is_opened_by(self.link) {
                partition.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::tests::Noted;
    use crate::replication::{EpochHistory, Facts};

    #[test]
    fn what_is_done_behind_a_frame_that_waits_takes_no_memory() {
        let limits = KeptLimits {
            bytes_max: 0,
            frame_bytes_max: 0,
        };
        let mut receiver = Receiver::new(LinkId(1), 1, (0, 0), limits);
        let mut partitions = Partitions::new();
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
            receiver.frames.push_back(FrameNote {
                number,
                left: vec![(partition, 1)],
                lsn: Lsn(0),
            });
            receiver.applied(8, number, 1, Lsn(number));
            receiver.advance(Lsn(number), &partitions);
            assert!(receiver.frames.len() <= FRAMES_MAX + 1, "frame {number}");
        }
        assert_eq!(receiver.durable, 2);
        receiver.applied(7, 3, 1, Lsn(3));
        receiver.advance(Lsn(u64::MAX), &partitions);
        assert_eq!(receiver.durable, receiver.received);
        assert!(receiver.frames.is_empty());
    }
}
