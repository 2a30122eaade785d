//! One shard and its disk. The driver of an engine is a core of the server, a thread of an
//! embedding process, or the thread that calls an embedded store.
//!
//! A driver hands over what happened ([`Engine::step`], [`Engine::reap`], [`Engine::take_spare`])
//! and ends the turn with [`Engine::end_turn`], which submits the disk's requests with one system
//! call. What is then left in the outbox concerns sessions, links and mail: the driver delivers it.

use std::sync::Arc;

use penstock_shard::{Event, Fatal, KeyTableOrder, Now, Outbox, Shard};
use penstock_storage::io::Completion;
use tracing::{error, warn};

use super::news::tell_bad_place;
use super::publisher::{Publisher, Traffic};
use super::supply::SegmentSupply;
use crate::directory::key_table_makers::{KeyTableHandle, KeyTableOutcome};
use crate::directory::snapshots::{SnapshotHandle, SnapshotOutcome};
use crate::directory::spares::SpareOutcome;
use crate::disk::Disk;
use crate::disk::arena::{Arena, ArenaBlock};
use crate::system::advice;
use crate::system::memory::MemoryBound;

/// One shard and its disk.
pub(crate) struct Engine {
    pub(crate) shard: Shard<Arena>,
    pub(crate) disk: Disk,
    pub(crate) outbox: Outbox<ArenaBlock>,
    pub(crate) traffic: Traffic,
    completions: Vec<Completion<ArenaBlock>>,
    number: u16,
    helpers: Helpers,
    publisher: Publisher,
    is_stopped: bool,
    /// Why nothing more may be written, until it is told.
    damage: Option<String>,
    is_dead: bool,
}

/// The threads that work for all shards, as one shard reaches them.
pub(crate) struct Helpers {
    pub(crate) supply: SegmentSupply,
    pub(crate) snapshot_writer: SnapshotHandle,
    pub(crate) key_tables: KeyTableHandle,
    pub(crate) memory: Option<Arc<MemoryBound>>,
}

/// How a turn ended.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Well.
    Ended {
        /// Something was done that only another turn tells.
        is_due_again: bool,
        /// The log was sealed in this turn, for the clean stop.
        has_stopped: bool,
    },
    /// A write failed, or nothing more may be written: nothing is acknowledged any more. Told once.
    Fatal(String),
    /// A file turned out to be damaged, and nothing more is written. Told once.
    Damaged(String),
    /// It was told.
    Dead,
}

impl Engine {
    /// Over a recovered shard.
    pub(crate) fn new(
        number: u16,
        shard: Shard<Arena>,
        disk: Disk,
        helpers: Helpers,
        publisher: Publisher,
    ) -> Engine {
        let mut engine = Engine {
            shard,
            disk,
            outbox: Outbox::default(),
            traffic: Traffic::default(),
            completions: Vec::new(),
            number,
            helpers,
            publisher,
            is_stopped: false,
            damage: None,
            is_dead: false,
        };
        // Nobody is to take what one shard has told for all there is.
        let began = Now { us: 0, unix_ms: 0 };
        engine.publisher.look_around(began, &mut engine.shard);
        engine
    }

    /// Hands an event to the shard; returns what [`Shard::step`] returns.
    #[inline]
    pub(crate) fn step(&mut self, now: Now, event: Event<'_, ArenaBlock>) -> usize {
        self.shard.step(now, event, &mut self.outbox)
    }

    /// Gives the shard what the disk has finished, and whether there was any. Without a system
    /// call.
    #[inline]
    pub(crate) fn reap(&mut self, now: Now) -> bool {
        if self.disk.reap(&mut self.completions) == 0 {
            return false;
        }
        for completion in self.completions.drain(..) {
            self.shard
                .step(now, Event::Completed(completion), &mut self.outbox);
        }
        true
    }

    /// Gives the shard what became of a segment file that it asked for, and returns what people
    /// should know of it.
    pub(crate) fn take_spare(&mut self, now: Now, outcome: SpareOutcome) -> Option<String> {
        match &outcome {
            SpareOutcome::InheritedGone => {
                self.step(now, Event::InheritedGone);
                return (self.number == 0).then(|| {
                    "the logs of the earlier number of shards are rewritten and gone".into()
                });
            }
            SpareOutcome::Damaged(damage) => {
                let data = self.helpers.supply.segments.data();
                self.damage = Some(format!(
                    "shard {}: {damage}; nothing more is written; to see all: {}; to see what a \
                     mend would give up: {}",
                    self.number,
                    advice::inspect(data),
                    advice::repair(data)
                ));
                return None;
            }
            _ => {}
        }
        let is_full = self.shard.store().log().is_full();
        let shard = &self.shard;
        let supply = &mut self.helpers.supply;
        let news = supply.news(now, &outcome, is_full, || carried(shard));
        let news = news.map(|text| format!("shard {}: {text}", self.number));
        let event = match outcome {
            SpareOutcome::Ready(spare) => {
                self.disk.attach(spare.file, spare.fd);
                Event::Spare {
                    file: spare.file,
                    salt: spare.salt,
                    bytes: spare.bytes,
                    is_reused: spare.is_reused,
                }
            }
            SpareOutcome::Failed { failure, .. } => Event::SpareFailed(failure),
            _ => Event::SpareRefused,
        };
        self.step(now, event);
        let is_starved = self.shard.store().log().is_starved();
        self.helpers.supply.set_starved(is_starved);
        news
    }

    /// Ends the turn: takes in what the disk has finished and begins what the shard wants of it.
    pub(crate) fn end_turn(&mut self, now: Now) -> Turn {
        if self.is_dead {
            return Turn::Dead;
        }
        if let Some(text) = self.damage.take() {
            self.is_dead = true;
            return Turn::Damaged(text);
        }
        self.publisher.count_turn();
        self.take_in(now);
        self.step(now, Event::TurnEnds);
        if let Some(fatal) = self.outbox.fatal {
            return self.die(fatal);
        }
        for io in self.outbox.io.drain(..) {
            self.disk.submit(io);
        }
        if let Err(error) = self.disk.flush() {
            self.is_dead = true;
            return Turn::Fatal(format!(
                "shard {}: the disk engine is lost: {error}",
                self.number
            ));
        }
        self.serve_files();
        self.order_from_helpers();
        self.tell_news();
        let is_stopped = self.outbox.is_stopped;
        let is_due_again = self.publish(now, is_stopped);
        let has_stopped = is_stopped && !std::mem::replace(&mut self.is_stopped, is_stopped);
        Turn::Ended {
            is_due_again,
            has_stopped,
        }
    }

    /// Gives the shard what came in since the last turn.
    fn take_in(&mut self, now: Now) {
        self.reap(now);
        if self.shard.is_writing_snapshot() {
            self.take_snapshot_outcomes(now);
        }
        if self.shard.awaits_key_table() {
            self.take_key_tables(now);
        }
        if self.helpers.key_tables.must_leave() {
            self.step(now, Event::GiveUpKeyTables);
        }
        if let Some(bound) = &self.helpers.memory {
            let bytes = bound.share();
            bound.tell(self.number, self.shard.usage().memory_bytes);
            self.step(now, Event::MemoryBound { bytes });
        }
    }

    /// The shard must not go on.
    fn die(&mut self, fatal: Fatal) -> Turn {
        self.is_dead = true;
        // What another node said of it comes first.
        let told = self.outbox.links.told.drain(..);
        let told: String = told.map(|told| format!("{told}; ")).collect();
        let text = format!("{told}{fatal}");
        // A new start would not help a node that has gone back. Its exit code keeps a supervisor
        // from starting it again.
        match fatal {
            Fatal::GoneBack => Turn::Damaged(text),
            Fatal::Log { .. } => Turn::Fatal(text),
        }
    }

    /// Gives back the files that the shard has released, and asks for those that it wants.
    fn serve_files(&mut self) {
        let supply = &mut self.helpers.supply;
        for file in self.outbox.removals.drain(..) {
            self.disk.detach(file);
            supply.release(file);
        }
        for file in self.outbox.forgotten.drain(..) {
            self.disk.detach(file);
        }
        if std::mem::take(&mut self.outbox.has_taken_over) {
            supply.taken_over();
        }
        let log = self.shard.store().log();
        for _ in 0..std::mem::take(&mut self.outbox.spares) {
            supply.request(log.has_spares(), |bytes| log.spare_bytes_wanted(bytes));
        }
    }

    /// Hands snapshots and key tables to the threads that write them.
    fn order_from_helpers(&mut self) {
        for write in self.outbox.snapshots.drain(..) {
            self.helpers.snapshot_writer.write(write);
        }
        for order in self.outbox.key_tables.drain(..) {
            // One that was not loaded is not open here.
            if let KeyTableOrder::Remove(file) = order
                && self.disk.is_attached(file.key_table())
            {
                self.disk.detach(file.key_table());
            }
            self.helpers.key_tables.order(order);
        }
    }

    /// Logs what the shard found wrong on the disk.
    fn tell_news(&mut self) {
        let shard = self.number;
        let segments = &self.helpers.supply.segments;
        let data = segments.data();
        for damaged in self.outbox.damaged.drain(..) {
            let offset = damaged.offset;
            let path = segments.path(damaged.file);
            let file = path.display();
            error!(
                shard,
                file = %file,
                offset,
                "shard {shard}: {file} is damaged at offset {offset}: cleaning leaves it as it is; \
                 to see more, once the server is stopped: {}",
                advice::inspect(data)
            );
        }
        for rotten in self.outbox.rotten.drain(..) {
            error!(
                shard,
                file = %segments.path(rotten.file).display(),
                offset = rotten.offset,
                "shard {shard}: {}; it is served as long as nobody needs that, and the next start \
                 that reads it refuses it: restore a backup elsewhere, or see what a mend would \
                 give up, once the server is stopped: {}",
                rotten.within(&data.to_string_lossy()),
                advice::repair(data)
            );
        }
        for place in self.outbox.bad_places.drain(..) {
            tell_bad_place(shard, segments, &place);
        }
    }

    /// Publishes the numbers if that is due, and answers INFO; whether it did, for only another
    /// turn sends the answer.
    fn publish(&mut self, now: Now, is_stopped: bool) -> bool {
        let asked = std::mem::take(&mut self.outbox.info);
        let is_asked = !asked.is_empty();
        if self.publisher.is_due(now) || is_asked || is_stopped {
            let disk = self.disk.counters();
            self.publisher
                .publish(now, &mut self.shard, disk, self.traffic, is_asked);
        }
        for &(session, request_id) in &asked {
            let memory = self.helpers.memory.as_deref();
            let text = &self.publisher.info(now, &self.shard, memory);
            let told = Event::Info {
                session,
                request_id,
                text,
            };
            self.shard.step(now, told, &mut self.outbox);
        }
        is_asked
    }

    /// When a turn is due at the latest, for the sake of those who read the numbers.
    pub(crate) fn publish_deadline_us(&self) -> u64 {
        self.publisher.deadline_us(self.shard.is_linked())
    }

    fn take_snapshot_outcomes(&mut self, now: Now) {
        while let Some(SnapshotOutcome { name, result }) = self.helpers.snapshot_writer.outcome() {
            if let Err(error) = &result {
                warn!(
                    shard = self.number,
                    snapshot = %name,
                    %error,
                    "snapshot {name} could not be written: {error}; the next start reads more of the log"
                );
            }
            let is_good = result.is_ok();
            self.step(now, Event::SnapshotWritten { name, is_good });
        }
    }

    fn take_key_tables(&mut self, now: Now) {
        while let Some(KeyTableOutcome { file, table }) = self.helpers.key_tables.outcome() {
            // Without a table a scan is slower, no more; the numbers tell.
            let table = table.ok().map(|(table, fd)| {
                self.disk.attach(file.key_table(), fd);
                table
            });
            self.step(now, Event::KeyTable { file, table });
        }
    }
}

/// What the shard's share of the disk carries, if there is a limit.
fn carried(shard: &Shard<Arena>) -> String {
    let store = shard.store();
    let Some(share) = store.disk_share() else {
        return String::new();
    };
    format!(
        ": {} MiB of records count in this shard, and its share of disk_bytes_max carries {} MiB; \
         delete some, or give --disk-bytes-max more",
        store.counting_bytes() >> 20,
        share.live_bytes_max() >> 20
    )
}
