//! What was received and is durable at its source goes into the log here.

use penstock_storage::io::{Block, Blocks, Io};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::Lsn;
use penstock_storage::record::{PARTS_MAX, PartView};
use penstock_storage::store::{LOOK_AHEAD, Store};

use crate::replication::notes::Notes;
use crate::replication::partition::{Applicable, Partition, Role};
use crate::replication::planted::{Bug, is_planted};
use crate::replication::{LinkId, PartitionId};

use super::prefetch::{Prefetcher, Waiter};
use super::{LinkAction, LinkSet, LinkTime, parts_of};

/// Bytes of records that are applied in one turn, about: what a commit that shares the frame waits for.
const APPLY_BYTES: usize = 256 << 10;

/// Records of a partition that came in one frame and were applied one behind the other.
#[derive(Default)]
struct Run {
    frame: u64,
    /// The last of them here.
    lsn: Lsn,
    count: u32,
}

impl<B: Block> LinkSet<B> {
    /// Appends what was received and is durable at its source, in the order of each partition.
    pub(super) fn apply<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        let mut left = APPLY_BYTES;
        let holds = |state: &Partition| state.applicable(u64::MAX).is_some();
        let holding = self.partitions.iter().filter(|(_, state)| holds(state));
        let mut numbers: Vec<PartitionId> = holding.map(|(&number, _)| number).collect();
        let first = numbers.partition_point(|number| *number < self.apply_from);
        numbers.rotate_left(first);
        // How many of the records that come next have what they need in the processor's caches.
        let mut ahead = 0;
        for (at, &number) in numbers.iter().enumerate() {
            // What it supersedes of a tail would not be rewritten out of the logs that are inherited, and vanish with them.
            if store.is_inheriting()
                && self.tails.contains_key(&number)
                && !is_planted(Bug::TailSuperseded)
            {
                continue;
            }
            let (link, told) = self.told_of(number);
            let mut run = Run::default();
            let mut is_over = false;
            while let Some(applicable) = self.partitions[&number].applicable(told) {
                if left == 0 {
                    self.apply_from = number + 1;
                    is_over = true;
                    break;
                }
                if ahead == 0 {
                    ahead = self.look_ahead(&numbers[at..], store, hash_of);
                }
                let (frame, lsn) = match applicable {
                    Applicable::Record {
                        bytes, is_dense, ..
                    } => {
                        ahead = ahead.saturating_sub(1);
                        // They were checked when they came.
                        let first = PartView::again(bytes);
                        let all;
                        let parts = match first.count() {
                            1 => std::slice::from_ref(&first),
                            _ => {
                                all = parts_of(bytes);
                                &all
                            }
                        };
                        let mut keys: [&[u8]; PARTS_MAX] = [&[]; PARTS_MAX];
                        for (key, part) in keys.iter_mut().zip(parts) {
                            *key = part.key();
                        }
                        let keys = (first.slot(), &keys[..parts.len()]);
                        let warmer = Prefetcher {
                            warming: &mut self.warming,
                            reads: &mut self.reads,
                            actions: &mut self.actions,
                        };
                        if !warmer.warm(Waiter::Apply(number), keys, store, hash_of, io) {
                            break;
                        }
                        let room = store.room_for(Purpose::Grow, bytes.len());
                        if room != Room::Yes {
                            self.found_no_room(room);
                            is_over = true;
                            break;
                        }
                        if std::mem::take(&mut self.is_full) {
                            self.actions.push_back(LinkAction::Room { is_there: true });
                        }
                        left = left.saturating_sub(bytes.len());
                        self.counters.applied += 1;
                        let lsn = store.apply(time.now_us, parts, is_dense, hash_of);
                        let lsn = lsn.unwrap_or(store.log().appended());
                        let state = self.partitions.get_mut(&number).expect("just seen");
                        (state.record_applied(), lsn)
                    }
                    Applicable::Join => {
                        if self.partitions[&number].facts().scan_from.is_some()
                            && !self.sweep(time, number, store, hash_of, io)
                        {
                            break;
                        }
                        let mut notes = Notes {
                            store,
                            tags: &self.tags,
                            now_us: time.now_us,
                        };
                        if !notes.has_room() {
                            is_over = true;
                            break;
                        }
                        self.sweeps.remove(&number);
                        let state = self.partitions.get_mut(&number).expect("just seen");
                        let frame = state.join(&mut notes);
                        (frame, store.log().appended())
                    }
                };
                store.log_mut().want_durable(lsn);
                self.is_due = true;
                if frame != run.frame {
                    self.tell_applied(link, number, std::mem::take(&mut run));
                }
                run = Run {
                    frame,
                    lsn,
                    count: run.count + 1,
                };
            }
            self.tell_applied(link, number, run);
            if is_over {
                return;
            }
        }
    }

    /// What comes first of what was received has no room in the log.
    #[cold]
    fn found_no_room(&mut self, room: Room) {
        if room == Room::Full {
            self.counters.found_full += 1;
            if !std::mem::replace(&mut self.is_full, true) {
                self.actions.push_back(LinkAction::Room { is_there: false });
            }
        }
    }

    fn tell_applied(&mut self, link: Option<LinkId>, number: PartitionId, run: Run) {
        let incoming = link.and_then(|link| self.incoming.get_mut(&link));
        if let Some(incoming) = incoming.filter(|_| run.count > 0) {
            let Run { frame, lsn, count } = run;
            incoming.receiver.applied(number, frame, count, lsn);
        }
    }

    /// By which link a partition is shipped, and which of its frames are durable at the source.
    fn told_of(&self, number: PartitionId) -> (Option<LinkId>, u64) {
        let link = match self.partitions[&number].role() {
            Role::Member(member) => Some(member.link),
            _ => None,
        };
        let incoming = link.and_then(|link| self.incoming.get(&link));
        (link, incoming.map_or(0, |it| it.receiver.told()))
    }

    /// Loads what the first records of these partitions need that may be applied, and tells of how many: each of them alone
    /// would wait for memory several times.
    fn look_ahead<P: Blocks<Block = B>>(
        &self,
        numbers: &[PartitionId],
        store: &Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> usize {
        let mut homes = [(0, 0); LOOK_AHEAD];
        let mut count = 0;
        let records = numbers.iter().flat_map(|number| {
            let (_, told) = self.told_of(*number);
            self.partitions[number].upcoming(told)
        });
        let guesses = records.filter_map(PartView::guess);
        for (home, (slot, key)) in homes.iter_mut().zip(guesses) {
            *home = (slot, hash_of(key));
            count += 1;
        }
        store.look_ahead(&homes[..count]);
        count
    }
}
