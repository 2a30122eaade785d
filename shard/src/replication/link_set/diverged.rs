//! Diverged tails: looked for in the log, kept, and their keys written anew.

use std::collections::{BTreeSet, VecDeque};

use penstock_net::link::{Position, RefusalCode};
use penstock_net::slot::slot_of;
use penstock_storage::io::{Block, Blocks, Io};
use penstock_storage::keyspace::{SETTINGS_BYTES, Settings, prefix_of};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::Lsn;
use penstock_storage::record::PartKind;
use penstock_storage::store::{Found, Store};
use penstock_storage::version::partition_of;

use crate::replication::cursor::CursorStep;
use crate::replication::epoch::EpochHistory;
use crate::replication::notes::Notes;
use crate::replication::partition::Partition;
use crate::replication::planted::{Bug, is_planted};
use crate::replication::receiver::LinkRefusal;
use crate::replication::record::{ShippedRecord, records};
use crate::replication::{LinkId, PartitionId};

use super::prefetch::{Prefetcher, Waiter};
use super::{CURSOR_FRAMES, LinkAction, LinkSet, LinkTime, parts_of, position};

/// Keys that are written anew in one turn.
const REWIND_KEYS: usize = 64;

/// A diverged tail that is looked for in the log.
#[derive(Debug)]
pub(super) struct Tail {
    /// Who is told its keys; none if this node writes them anew itself.
    pub(super) link: Option<LinkId>,
    from: Position,
    history: EpochHistory,
    /// What was read of the log for it.
    behind: Lsn,
    /// Where it ends.
    until: Lsn,
    keys: BTreeSet<Vec<u8>>,
    is_read: bool,
    is_told_damaged: bool,
}

impl Tail {
    /// One that ends where the log ends now.
    pub(super) fn new<P: Blocks>(
        link: Option<LinkId>,
        from: Position,
        history: EpochHistory,
        store: &mut Store<P>,
    ) -> Self {
        let until = store.log().appended();
        store.log_mut().want_durable(until);
        Tail {
            link,
            from,
            history,
            behind: Lsn(0),
            until,
            keys: BTreeSet::new(),
            is_read: false,
            is_told_damaged: false,
        }
    }

    /// Whether a record is one of it.
    fn holds(&self, record: &ShippedRecord<'_>) -> bool {
        let endless = Position {
            epoch: self.history.last().map_or(0, |epoch| epoch.0),
            sequence: u64::MAX,
        };
        !record.is_local
            && record.position > self.from
            && !self.history.contains(record.position, endless)
    }

    /// Which keys of a record may have to be written anew.
    fn note_keys(&mut self, record: &ShippedRecord<'_>, epochs: &[u8]) {
        let is_own = self.link.is_none() && !record.is_local;
        let is_behind = self.holds(record) || is_own && record.position > self.from;
        for part in parts_of(record.bytes) {
            // A scan brings older values of keys that had been deleted here: with others of their records.
            let is_deleted = is_own && part.kind() == PartKind::Tombstone;
            if (is_behind || is_deleted) && part.key() != epochs {
                self.keys.insert(part.key().to_vec());
            }
        }
    }
}

/// Keys that are written anew for a member, or because what the log says of them is not what is here.
#[derive(Debug)]
pub(super) struct Rewrite {
    keys: VecDeque<Vec<u8>>,
    last: (Position, Lsn),
}

/// Whether all of a diverged tail is still in the log, or a scan brings the partition anew.
fn is_told_whole<P: Blocks>(
    state: &Partition,
    number: PartitionId,
    fork: Position,
    store: &Store<P>,
) -> bool {
    let facts = state.facts();
    // What came by a scan is told without what had been deleted before.
    let is_dense = facts.dense_behind <= fork.sequence || is_planted(Bug::TailOfScan);
    facts.scan_from.is_some()
        || store.forgotten(usize::from(number)) <= fork.sequence && is_dense
        || is_planted(Bug::TailHalfReleased)
}

/// Logs what is in force for a prefix anew, or that nothing is, under a revision that outranks those of
/// earlier epochs; nothing if there is no place for another prefix here, where the other one is in force
/// nowhere.
fn rewrite_settings<P: Blocks>(
    now_us: u64,
    slot: u16,
    key: &[u8],
    prefix: &[u8],
    store: &mut Store<P>,
) -> Option<Lsn> {
    let dropped = Settings {
        is_dropped: true,
        ..Settings::default()
    };
    let known = store.keyspaces().newest(prefix).copied().unwrap_or(dropped);
    let floor = u64::from(store.leads(partition_of(slot))) << 32;
    let settings = Settings {
        revision: known.revision.max(floor) + 1,
        ..known
    };
    store.hear(prefix, settings).ok()?;
    Some(store.commit_settings(now_us, slot, key, prefix))
}

impl<B: Block> LinkSet<B> {
    /// What was kept of a partition is durable, and its keys may be told.
    pub fn tail_kept(&mut self, partition: PartitionId, link: Option<LinkId>) {
        let is_told = self
            .tails
            .get(&partition)
            .is_some_and(|tail| tail.link == link && tail.is_read);
        if !is_told {
            return;
        }
        let tail = self.tails.remove(&partition).expect("just seen");
        let Some(link) = link else {
            let keys = tail.keys.into_iter().collect();
            self.begin_rewrite(partition, None, keys);
            return;
        };
        if let Some(incoming) = self.incoming.get_mut(&link) {
            incoming.receiver.tail_saved(partition, tail.keys);
        }
    }

    pub(super) fn begin_rewrite(
        &mut self,
        partition: PartitionId,
        link: Option<LinkId>,
        keys: VecDeque<Vec<u8>>,
    ) {
        let last = (self.partitions[&partition].applied(), Lsn(0));
        let rewrite = Rewrite { keys, last };
        self.rewrites.insert((partition, link), rewrite);
        self.is_due = true;
    }

    /// Writes keys anew, each with its present value or as a deletion.
    pub(super) fn rewrite<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        // A link that has ended waits for nothing; what was read for it is memory that others lack.
        let rewrites = &self.rewrites;
        self.warming.retain(|waiter, _| match *waiter {
            Waiter::Apply(_) => true,
            Waiter::Rewind(number, link) => rewrites.contains_key(&(number, link)),
        });
        let mut left = REWIND_KEYS;
        let all: Vec<(PartitionId, Option<LinkId>)> = self.rewrites.keys().copied().collect();
        for (number, link) in all {
            let durable = store.log().durable();
            let state = &self.partitions[&number];
            let is_possible = match link {
                Some(_) => state.may_write(durable),
                None => state.own_tail().is_some(),
            };
            if !is_possible {
                self.rewrites.remove(&(number, link));
                continue;
            }
            let rewrite = self.rewrites.get_mut(&(number, link)).expect("just seen");
            while let Some(key) = rewrite.keys.front().filter(|_| left > 0) {
                let slot = slot_of(key);
                if partition_of(slot) != usize::from(number) {
                    // Nobody of this partition has such a key.
                    rewrite.keys.pop_front();
                    continue;
                }
                let hash = hash_of(key);
                if let Some(prefix) = prefix_of(key) {
                    if store.room(Purpose::Keep, key.len(), SETTINGS_BYTES, false) != Room::Yes {
                        break;
                    }
                    if let Some(lsn) = rewrite_settings(time.now_us, slot, key, prefix, store) {
                        store.log_mut().want_durable(lsn);
                        let state = self.partitions.get_mut(&number).expect("just seen");
                        rewrite.last = (state.next_position(), lsn);
                    }
                    rewrite.keys.pop_front();
                    self.counters.rewritten += 1;
                    left -= 1;
                    continue;
                }
                let warmer = Prefetcher {
                    warming: &mut self.warming,
                    reads: &mut self.reads,
                    actions: &mut self.actions,
                };
                let keys = (slot, &[key.as_slice()][..]);
                if !warmer.warm(Waiter::Rewind(number, link), keys, store, hash_of, io) {
                    break;
                }
                let found = store.find(slot, hash, key);
                let value_bytes = match found {
                    Found::Cached(id) => store.cell(id).value().len(),
                    Found::Absent | Found::Cold(_) => 0,
                };
                if store.room(Purpose::Keep, key.len(), value_bytes, true) != Room::Yes {
                    break;
                }
                let cell = match found {
                    Found::Cached(id) => id,
                    Found::Absent => {
                        let id = store.insert((slot, hash), key, &[], None);
                        store.delete(id);
                        id
                    }
                    Found::Cold(_) => unreachable!("it was read"),
                };
                let (lsn, version) = store.commit(time.now_us, slot, &[(hash, cell)]);
                store.log_mut().want_durable(lsn);
                let state = self.partitions.get_mut(&number).expect("just seen");
                let at = state.next_position();
                assert_eq!(at, position(version), "versions follow each other");
                rewrite.last = (at, lsn);
                rewrite.keys.pop_front();
                self.counters.rewritten += 1;
                self.is_due = true;
                left -= 1;
            }
            if !rewrite.keys.is_empty() {
                continue;
            }
            let (at, lsn) = rewrite.last;
            if let Some(link) = link {
                if let Some(outgoing) = self.outgoing.get_mut(&link) {
                    outgoing
                        .sender
                        .rewound(time.time_ms, number, at, lsn, &mut outgoing.output);
                }
            } else {
                let mut notes = Notes {
                    store,
                    tags: &self.tags,
                    now_us: time.now_us,
                };
                if !notes.has_room() {
                    continue;
                }
                let state = self.partitions.get_mut(&number).expect("just seen");
                state.own_tail_rewritten(&mut notes);
                self.is_due = true;
            }
            self.rewrites.remove(&(number, link));
        }
    }

    /// Asks for scans of the partitions whose tails are not all in the log any more.
    pub(super) fn judge_tails<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
    ) {
        let numbers: Vec<PartitionId> = self.tails.keys().copied().collect();
        for number in numbers {
            // Refusing the link of one tail has ended all that came by it.
            let Some(tail) = self.tails.get(&number) else {
                continue;
            };
            // What is gone of its own tail outranks nothing any more.
            let Some(link) = tail.link else {
                continue;
            };
            let fork = tail.from;
            let state = self.partitions.get_mut(&number).expect("it is the shard's");
            if is_told_whole(state, number, fork, store) {
                continue;
            }
            let mut notes = Notes {
                store,
                tags: &self.tags,
                now_us: time.now_us,
            };
            if !notes.has_room() {
                return;
            }
            state.must_scan(&mut notes);
            self.counters.tails_lost += 1;
            let text = format!(
                "partition {number}: records behind {fork:?} were given up here, so all of it is wanted"
            );
            self.refuse(
                link,
                LinkRefusal {
                    code: RefusalCode::Order,
                    text,
                },
            );
        }
    }

    /// Looks in the log for what has diverged: one reader for all tails, from where the one that is furthest
    /// behind was read to.
    pub(super) fn read_tails<P: Blocks<Block = B>>(
        &mut self,
        store: &mut Store<P>,
        io: &mut Vec<Io<B>>,
    ) {
        // What is inherited stands in other logs, which the cursor does not read: it is rewritten first.
        if store.is_inheriting() {
            return;
        }
        for _ in 0..CURSOR_FRAMES {
            let unread = self.tails.values().filter(|tail| !tail.is_read);
            let Some(behind) = unread.map(|tail| tail.behind).min() else {
                self.is_due |= self.tail_cursor.rest();
                return;
            };
            match self.tail_cursor.next(store, behind, &mut self.reads, io) {
                CursorStep::Frame(frame) => {
                    for record in records(frame.bytes).map_while(Result::ok) {
                        let number = record.partition;
                        let tail = self.tails.get_mut(&number);
                        let tail = tail.filter(|it| !it.is_read && it.behind < frame.last);
                        let Some(tail) = tail else { continue };
                        tail.note_keys(&record, &self.tags.epochs(number));
                        if !tail.holds(&record) {
                            continue;
                        }
                        if !is_planted(Bug::TailNotSaved) {
                            self.counters.kept += 1;
                            self.counters.kept_bytes += record.bytes.len() as u64;
                            self.actions.push_back(LinkAction::Keep {
                                partition: number,
                                record: record.bytes.to_vec(),
                            });
                        }
                        if is_planted(Bug::TailReadHalf) {
                            break;
                        }
                    }
                    for tail in self.tails.values_mut().filter(|tail| !tail.is_read) {
                        tail.behind = tail.behind.max(frame.last);
                    }
                    self.is_due = true;
                }
                CursorStep::UnderWay => return,
                CursorStep::End => {
                    if !self.end_tails(store) {
                        return;
                    }
                }
                // It is read again in the next turn: without it the partitions never are whole.
                CursorStep::Damaged { file, offset } => {
                    let mut is_told = true;
                    for tail in self.tails.values_mut().filter(|tail| !tail.is_read) {
                        is_told &= std::mem::replace(&mut tail.is_told_damaged, true);
                    }
                    if !is_told {
                        self.actions.push_back(LinkAction::Damaged { file, offset });
                    }
                    return;
                }
            }
        }
    }

    /// All that is durable was read for the tails; whether one of them is known whole by that.
    fn end_tails<P: Blocks<Block = B>>(&mut self, store: &mut Store<P>) -> bool {
        let mut has_ended = false;
        for (&number, tail) in self.tails.iter_mut().filter(|(_, tail)| !tail.is_read) {
            if store.log().durable() < tail.until && !is_planted(Bug::TailReadEarly) {
                continue;
            }
            // A part that is moved while it is looked for stands behind what was read.
            if let Some(lsn) = store.moving_until() {
                tail.until = lsn;
                store.log_mut().want_durable(lsn);
                continue;
            }
            // Some of it was released meanwhile.
            if tail.link.is_some()
                && !is_told_whole(&self.partitions[&number], number, tail.from, store)
            {
                continue;
            }
            tail.is_read = true;
            has_ended = true;
            self.actions.push_back(LinkAction::Sync {
                partition: number,
                link: tail.link,
            });
        }
        has_ended
    }
}
