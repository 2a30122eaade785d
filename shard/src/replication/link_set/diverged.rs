//! Diverged records: they are looked for in the log and handed out to be kept; their keys are
//! noted.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::link::{Position, RefusalCode};
use penstock_storage::io::{Block, Blocks};
use penstock_storage::place::{FileId, Lsn};
use penstock_storage::record::PartKind;
use penstock_storage::store::Store;

use crate::replication::cursor::{CursorFrame, CursorStep, LogCursor};
use crate::replication::epoch::EpochHistory;
use crate::replication::notes::Tags;
use crate::replication::partition::Partition;
use crate::replication::planted::{Bug, is_planted};
use crate::replication::receiver::{LinkRefusal, Partitions};
use crate::replication::record::{ShippedRecord, parts_of, records};
use crate::replication::{LinkId, PartitionId};
use penstock_storage::if_planted;

use super::effects::{Effects, LinkAction};
use super::replicas::Replicas;
use super::sender_link::CURSOR_FRAMES;
use super::store_turn::StoreTurn;

/// Partitions with diverged records in the log, and how far the log was read for them.
#[derive(Debug)]
pub(super) struct DivergedRecords<B> {
    searches: BTreeMap<PartitionId, Search>,
    /// Reads the log for all of them: one block of memory, and each frame once.
    cursor: LogCursor<B>,
    /// Where the cursor has met damage last.
    hangs_on: Option<(FileId, u64)>,
}

/// The search for the diverged records of one partition.
#[derive(Debug)]
struct Search {
    /// The link by which the keys are told; none if this node writes them anew itself.
    link: Option<LinkId>,
    /// The records stand behind this and are not of `history`.
    from: Position,
    history: EpochHistory,
    /// How far the log was read.
    behind: Lsn,
    /// Where the search ends.
    until: Lsn,
    keys: BTreeSet<Vec<u8>>,
    is_read: bool,
}

/// A partition whose diverged records are not all in the log any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete {
    pub(super) partition: PartitionId,
    pub(super) link: LinkId,
    pub(super) fork: Position,
}

impl Incomplete {
    /// What the peer is told when this is the first of so many such partitions of its link.
    pub(super) fn refusal(&self, partitions: usize) -> LinkRefusal {
        let text = format!(
            "partition {} and {} others: records behind {:?} were given up here, so all of each is \
             wanted",
            self.partition,
            partitions - 1,
            self.fork
        );
        let code = RefusalCode::Order;
        LinkRefusal { code, text }
    }
}

impl Search {
    /// Whether a record is one that is looked for.
    fn holds(&self, record: &ShippedRecord<'_>) -> bool {
        let endless = Position {
            epoch: self.history.last().map_or(0, |epoch| epoch.0),
            sequence: u64::MAX,
        };
        !record.is_local
            && record.position > self.from
            && !self.history.contains(record.position, endless)
    }

    /// Notes the keys of a record that may have to be written anew. `epochs` is the key of the
    /// partition's record of epochs.
    fn note_keys(&mut self, record: &ShippedRecord<'_>, epochs: &[u8]) {
        let is_own = self.link.is_none() && !record.is_local;
        let is_behind = self.holds(record) || is_own && record.position > self.from;
        for part in parts_of(record.bytes) {
            // A scan brings older values of keys that had been deleted here: with others of their
            // records.
            let is_deleted = is_own && part.kind() == PartKind::Tombstone;
            if (is_behind || is_deleted) && part.key() != epochs {
                self.keys.insert(part.key().to_vec());
            }
        }
    }
}

/// Whether all diverged records behind a fork are still in the log, or a scan brings the partition
/// anew.
fn are_all_there<P: Blocks>(
    state: &Partition,
    number: PartitionId,
    fork: Position,
    store: &Store<P>,
) -> bool {
    let facts = state.facts();
    // A scan left out what had been deleted before.
    let is_dense = facts.dense_behind <= fork.sequence || is_planted(Bug::TailOfScan);
    facts.scan_from.is_some()
        || store.forgotten(usize::from(number)) <= fork.sequence && is_dense
        || is_planted(Bug::TailHalfReleased)
}

impl<B: Block> Default for DivergedRecords<B> {
    fn default() -> Self {
        DivergedRecords {
            searches: BTreeMap::new(),
            cursor: LogCursor::default(),
            hangs_on: None,
        }
    }
}

impl<B: Block> DivergedRecords<B> {
    /// Looks for the records of a partition behind `from` that are not of `history`, up to where
    /// the log ends now. Their keys are told by the link; without one this node writes them anew
    /// itself.
    pub(super) fn search<P: Blocks<Block = B>>(
        &mut self,
        partition: PartitionId,
        link: Option<LinkId>,
        (from, history): (Position, EpochHistory),
        store: &mut Store<P>,
    ) {
        let until = store.log().appended();
        store.log_mut().want_durable(until);
        let search = Search {
            link,
            from,
            history,
            behind: Lsn(0),
            until,
            keys: BTreeSet::new(),
            is_read: false,
        };
        self.searches.insert(partition, search);
    }

    /// Whether the records of a partition are looked for.
    pub(super) fn is_searched(&self, partition: PartitionId) -> bool {
        self.searches.contains_key(&partition)
    }

    /// Where the search for a partition cannot go on.
    pub(super) fn hangs_on(&self, partition: PartitionId) -> Option<(FileId, u64)> {
        let search = self.searches.get(&partition)?;
        self.hangs_on.filter(|_| !search.is_read)
    }

    /// Whether nothing is looked for.
    pub(super) fn is_idle(&self) -> bool {
        self.searches.is_empty()
    }

    /// Ends the search for a partition.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.searches.remove(&partition);
    }

    /// Ends the search for a partition whose keys this node was to write anew itself.
    pub(super) fn forget_own(&mut self, partition: PartitionId) {
        self.searches
            .retain(|&of, search| of != partition || search.link.is_some());
    }

    /// Ends what was looked for to be told by a link that has ended.
    pub(super) fn link_ended(&mut self, link: LinkId) {
        self.searches.retain(|_, search| search.link != Some(link));
    }

    /// The keys of the diverged records of a partition, once those are kept; `None` if another
    /// search has taken the place of this one.
    pub(super) fn take_keys(
        &mut self,
        partition: PartitionId,
        link: Option<LinkId>,
    ) -> Option<BTreeSet<Vec<u8>>> {
        let search = self.searches.get(&partition)?;
        if search.link != link || !search.is_read {
            return None;
        }
        let search = self.searches.remove(&partition)?;
        Some(search.keys)
    }

    /// The first partition from this one on whose diverged records are not all in the log any more.
    pub(super) fn incomplete_from<P: Blocks<Block = B>>(
        &self,
        from: PartitionId,
        partitions: &Partitions,
        store: &Store<P>,
    ) -> Option<Incomplete> {
        // Records that this node would write anew itself outrank nothing once they are gone.
        self.searches.range(from..).find_map(|(&number, search)| {
            let (link, fork) = (search.link?, search.from);
            let is_complete = are_all_there(&partitions[&number], number, fork, store);
            (!is_complete).then_some(Incomplete {
                partition: number,
                link,
                fork,
            })
        })
    }

    /// Reads the log: one cursor for all partitions, from where the one that is furthest behind was
    /// read to.
    pub(super) fn read<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
    ) {
        // Inherited records stand in other logs, which the cursor does not read: they are rewritten
        // first.
        if turn.store.cleaning().inheritance().is_there() {
            return;
        }
        let effects = &mut replicas.effects;
        for _ in 0..CURSOR_FRAMES {
            let unread = self.searches.values().filter(|search| !search.is_read);
            let Some(behind) = unread.map(|search| search.behind).min() else {
                if self.cursor.release() {
                    effects.progressed();
                }
                return;
            };
            let reads = &mut replicas.prefetch.reads;
            match self.cursor.next(turn.store, behind, reads, turn.io) {
                CursorStep::Frame(frame) => {
                    self.hangs_on = None;
                    take_frame(&mut self.searches, &frame, turn.tags, effects);
                    effects.progressed();
                }
                CursorStep::UnderWay => return,
                CursorStep::End => {
                    if !self.end(turn, &replicas.partitions, effects) {
                        return;
                    }
                }
                // It is read again: without that frame the partitions never are whole.
                CursorStep::Damaged {
                    file,
                    offset,
                    report,
                } => {
                    self.hangs_on = Some((file, offset));
                    if let Some(unread) = report {
                        let mut unread_of = self.searches.iter().filter(|(_, it)| !it.is_read);
                        let partition = unread_of.next().map(|(&number, _)| number);
                        effects.ask(LinkAction::Unread { partition, unread });
                    }
                    effects.progressed();
                    return;
                }
            }
        }
    }

    /// All that is durable was read. Whether a search has ended by that.
    fn end<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        partitions: &Partitions,
        effects: &mut Effects,
    ) -> bool {
        let store = &mut *turn.store;
        let mut has_ended = false;
        for (&number, search) in self.searches.iter_mut().filter(|(_, it)| !it.is_read) {
            if store.log().durable() < search.until && !is_planted(Bug::TailReadEarly) {
                continue;
            }
            // A part that is moved during the search stands behind what was read.
            if let Some(lsn) = store.moving_until() {
                search.until = lsn;
                store.log_mut().want_durable(lsn);
                continue;
            }
            // Some of it was released meanwhile.
            if search.link.is_some()
                && !are_all_there(&partitions[&number], number, search.from, store)
            {
                continue;
            }
            search.is_read = true;
            has_ended = true;
            effects.ask(LinkAction::Sync {
                partition: number,
                link: search.link,
            });
        }
        has_ended
    }

    /// Releases the memory in which the log is read.
    pub(super) fn release(&mut self) {
        self.cursor = LogCursor::default();
    }

    /// The cursor, for the end of its reads.
    pub(super) fn cursor_mut(&mut self) -> &mut LogCursor<B> {
        &mut self.cursor
    }
}

/// Looks for diverged records in a frame of the log.
fn take_frame(
    searches: &mut BTreeMap<PartitionId, Search>,
    frame: &CursorFrame<'_>,
    tags: &Tags,
    effects: &mut Effects,
) {
    for record in records(frame.bytes).map_while(Result::ok) {
        let number = record.partition;
        let search = searches.get_mut(&number);
        let search = search.filter(|it| !it.is_read && it.behind < frame.last);
        let Some(search) = search else { continue };
        search.note_keys(&record, &tags.epochs(number));
        if !search.holds(&record) {
            continue;
        }
        if_planted!(Bug::TailNotSaved, continue);
        effects.keep(number, record.bytes.to_vec());
        if_planted!(Bug::TailReadHalf, break);
    }
    for search in searches.values_mut().filter(|it| !it.is_read) {
        search.behind = search.behind.max(frame.last);
    }
}
