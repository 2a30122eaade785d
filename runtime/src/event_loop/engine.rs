//! One shard and its disk. The driver of an engine is a core of the server, a thread of an
//! embedding process, or the thread that calls an embedded store.
//!
//! A driver hands over what happened ([`Engine::step`], [`Engine::reap`], [`Engine::take_spare`])
//! and ends the turn with [`Engine::end_turn`], which submits the disk's requests with one system
//! call. What concerns sessions, links and mail goes to the [`Network`] of the driver.

use penstock_shard::{Event, Network, Now, Outbox, Shard, carry_out};
use penstock_storage::io::Completion;
use tracing::warn;

use super::publisher::{Carried, Publisher, Traffic};
use super::shard_thread::ShardThread;
use super::shell::EngineShell;
use crate::directory::key_table_makers::KeyTableOutcome;
use crate::directory::snapshots::SnapshotOutcome;
use crate::directory::spares::SpareOutcome;
use crate::disk::Disk;
use crate::disk::arena::{Arena, ArenaBlock};
use crate::system::advice;

pub(crate) use super::shell::{Helpers, Turn};

/// Whom the shard of an engine talks to.
pub(crate) trait Peers: Network {
    /// Sends what links have to send, as much as their sockets take now. The thread waits for the
    /// device next.
    fn send_links_at_once(&mut self, shard: &mut Shard<Arena>);
}

/// One shard and its disk.
pub(crate) struct Engine {
    pub(crate) shard: Shard<Arena>,
    pub(crate) disk: Disk,
    pub(crate) outbox: Outbox<ArenaBlock>,
    pub(crate) traffic: Traffic,
    completions: Vec<Completion<ArenaBlock>>,
    number: u16,
    thread: ShardThread,
    helpers: Helpers,
    publisher: Publisher,
    is_stopped: bool,
    /// Why nothing more may be written, until it is told.
    damage: Option<String>,
    is_dead: bool,
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
            thread: ShardThread::of_caller(),
            helpers,
            publisher,
            is_stopped: false,
            damage: None,
            is_dead: false,
        };
        // Nobody is to take what one shard has told for all there is.
        let began = Now { us: 0, unix_ms: 0 };
        engine.publisher.publish_cluster(began, &mut engine.shard);
        engine
    }

    /// The calling thread runs this shard alone from now on.
    pub(crate) fn run_on(&mut self, thread: ShardThread) {
        self.thread = thread;
    }

    /// Whether other programs want the CPU of the shard's thread.
    #[inline]
    pub(crate) fn is_contended(&self) -> bool {
        self.thread.is_contended()
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

    /// Tells the shard the outcome of its request for a segment file. Returns a message for people,
    /// if the outcome deserves one.
    pub(crate) fn take_spare(&mut self, now: Now, outcome: SpareOutcome) -> Option<String> {
        self.give_room(now);
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
            refused if self.helpers.supply.is_overtaken(refused) => return None,
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

    /// Ends the turn: takes in what the disk has finished and carries out what the shard wants, of
    /// its disk here and of those it talks to by `network`. Under leases `clock` is read behind all
    /// that ran.
    pub(crate) fn end_turn(
        &mut self,
        now: Now,
        clock: impl FnOnce() -> Now,
        network: &mut impl Peers,
    ) -> Turn {
        if self.is_dead {
            return Turn::Dead;
        }
        if let Some(text) = self.damage.take() {
            self.is_dead = true;
            return Turn::Damaged(text);
        }
        // Before anything of this turn is written or leaves.
        if let Some(text) = self.helpers.lock_loss.text() {
            self.is_dead = true;
            return Turn::Fatal(text.into());
        }
        self.publisher.count_turn();
        self.thread.sample(self.number, now.us);
        self.disk.set_contended(self.thread.waited_us());
        self.take_in(now);
        self.step(now, Event::TurnEnds);
        if self.shard.execution().is_unchecked() {
            self.shard.end_turn(clock(), &mut self.outbox);
        }
        // Before an answer tells of it.
        if self.publisher.notes_flush(&self.shard) {
            self.publish_figures(now, false);
        }
        let was_stopped = self.is_stopped;
        let mut shell = EngineShell {
            number: self.number,
            shard: &self.shard,
            disk: &mut self.disk,
            helpers: &mut self.helpers,
            network: &mut *network,
            is_stopped: &mut self.is_stopped,
            may_wait_for_device: self.shard.execution().may_wait_for_device(&self.outbox),
        };
        if let Err(end) = carry_out(&mut self.outbox, &mut shell) {
            self.is_dead = true;
            return end;
        }
        if self.disk.has_inline_write() {
            network.send_links_at_once(&mut self.shard);
            self.disk.write_inline();
        }
        let is_due_again = self.publish(now) | self.disk.has_inline_arrival();
        Turn::Ended {
            is_due_again,
            has_stopped: self.is_stopped && !was_stopped,
        }
    }

    /// Gives the shard what came in since the last turn.
    fn take_in(&mut self, now: Now) {
        self.reap(now);
        if self.shard.execution().is_writing_snapshot() {
            self.take_snapshot_outcomes(now);
        }
        if self.shard.execution().awaits_key_table() {
            self.take_key_tables(now);
        }
        if self.helpers.key_tables.must_leave() {
            self.step(now, Event::GiveUpKeyTables);
        }
        self.give_room(now);
        self.warn_of_full(now);
        if let Some(text) = self.helpers.supply.fill_news(now, self.shard.store()) {
            let shard = self.number;
            warn!(shard, "shard {shard}: {text}");
        }
        self.bound_memory(now);
    }

    /// Tells the shard what index and values may take now.
    fn bound_memory(&mut self, now: Now) {
        let Some(bound) = &self.helpers.memory else {
            return;
        };
        bound.note_held(self.number, self.shard.store().data().usage().memory_bytes);
        let mut bytes = bound.share();
        self.shard
            .step(now, Event::MemoryBound { bytes }, &mut self.outbox);
        // Before the first new key is refused.
        if !self.shard.store().data().has_room_for_keys() {
            bound.make_room();
            bytes = bound.share();
            self.shard
                .step(now, Event::MemoryBound { bytes }, &mut self.outbox);
        }
    }

    /// Tells the shard what its log may have of the disk, if that is due.
    fn give_room(&mut self, now: Now) {
        if let Some(room) = self.helpers.supply.room_news(now, self.shard.store()) {
            self.step(now, Event::Room(room));
        }
    }

    /// Tells people that what grows is answered FULL, and that it is taken again.
    fn warn_of_full(&mut self, now: Now) {
        let is_full =
            self.shard.store().log().is_full() && self.shard.execution().spare_failure().is_none();
        let supply = &mut self.helpers.supply;
        if let Some(text) = supply.full_news(now, is_full, || carried(&self.shard)) {
            let shard = self.number;
            warn!(shard, "shard {shard}: {text}");
        }
    }

    /// Publishes the numbers if that is due, and answers INFO; whether it did, for only another
    /// turn sends the answer.
    fn publish(&mut self, now: Now) -> bool {
        let asked = std::mem::take(&mut self.outbox.info);
        let is_asked = !asked.is_empty();
        if self.publisher.is_due(now) || is_asked || self.is_stopped {
            self.publish_figures(now, is_asked);
        }
        for &(session, request_id) in &asked {
            let memory = self.helpers.memory.as_deref();
            let text = &self
                .publisher
                .info(now, (session, request_id), &self.shard, memory);
            let event = Event::Info {
                session,
                request_id,
                text,
            };
            self.shard.step(now, event, &mut self.outbox);
        }
        is_asked
    }

    fn publish_figures(&mut self, now: Now, is_asked: bool) {
        let carried = Carried {
            disk: self.disk.counters(),
            thread: self.thread.figures(),
            traffic: self.traffic,
            fill: self.helpers.supply.fill(),
        };
        self.publisher
            .publish(now, &mut self.shard, &carried, is_asked);
    }

    /// When a turn is due at the latest, for the sake of those who read the numbers.
    pub(crate) fn publish_deadline_us(&self) -> u64 {
        self.publisher
            .deadline_us(self.shard.execution().is_linked())
    }

    fn take_snapshot_outcomes(&mut self, now: Now) {
        while let Some(SnapshotOutcome { name, result }) = self.helpers.snapshot_writer.outcome() {
            if let Err(error) = &result {
                warn!(
                    shard = self.number,
                    snapshot = %name,
                    %error,
                    "snapshot {name} could not be written: {error}; the next start reads more of \
                     the log"
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
    let Some(share) = store.cleaning().disk_share(store.log()) else {
        return String::new();
    };
    format!(
        ": {} MiB of records count in this shard, and its share of disk_bytes_max carries {} MiB; \
         delete some, or give --disk-bytes-max more",
        store.cleaning().counting_bytes() >> 20,
        share.live_bytes_max() >> 20
    )
}
