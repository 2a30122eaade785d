//! One shard and its disk, as whoever runs it drives them: a core of the server, a thread of an
//! embedding process, or that process's own thread.
//!
//! A driver hands over what happened ([`Engine::step`], [`Engine::reap`], [`Engine::take_spare`]) and ends the turn
//! with [`Engine::end_turn`], which submits the disk's requests with one system call. What is left in the
//! outbox then concerns sessions and mail and is the driver's to deliver.

use std::sync::Arc;

use penstock_net::status::Status;
use penstock_shard::linked::ReplicationStatus;
use penstock_shard::{BadPlace, Event, Fatal, KeyTableOrder, Now, Outbox, Shard, SpareFailure};
use penstock_storage::histogram::Histogram;
use penstock_storage::io::{BLOCK_BYTES, Completion};
use tracing::{error, warn};

use crate::directory::Segments;
use crate::directory::key_table_makers::{KeyTableHandle, KeyTableOutcome};
use crate::directory::snapshots::{SnapshotHandle, SnapshotOutcome};
use crate::directory::spares::{SpareHandle, SpareOutcome};
use crate::disk::Disk;
use crate::disk::arena::{Arena, ArenaBlock};
use crate::startup::node::ShardStart;
use crate::stats::{Sample, Stats, partitions_json, peers_json, roles_json};
use crate::system::advice;
use crate::system::memory::{MemoryBound, resident_bytes};

/// How often the numbers are published while the shard is busy.
const PUBLISH_US: u64 = 10_000;
/// How often what is known of the cluster is.
const LOOK_AROUND_US: u64 = 50_000;
/// How old they may become when it is busy no more.
const STALE_US_MAX: u64 = 100_000;
/// A loop with nothing to do turns so often, so that one that hangs is told from it.
const HEARTBEAT_US: u64 = 1_000_000;

/// How long after it was told that no segment can be made ready it is not told again.
const LACK_TOLD_US: u64 = 60_000_000;

/// The first segments are short if an earlier run left no spares: the first writes wait until they are
/// full of zeros. A write needs a spare behind the segment that it goes to, so there are two.
const FIRST_SEGMENTS: u8 = 2;
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;

/// Takes what became of a request for a segment file, on the thread that makes them.
pub(crate) type DeliverSpare = Arc<dyn Fn(SpareOutcome) + Send + Sync>;

/// One shard and its disk.
pub(crate) struct Engine {
    pub(crate) shard: Shard<Arena>,
    pub(crate) disk: Disk,
    pub(crate) outbox: Outbox<ArenaBlock>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) connections_refused: u64,
    completions: Vec<Completion<ArenaBlock>>,
    number: u16,
    segment_bytes: u64,
    short_segment_bytes: u64,
    /// Segments to ask for yet that are to be ready soon rather than long; unknown before the first is.
    first_segments: Option<u8>,
    segments: Segments,
    spares: SpareHandle,
    snapshot_writer: SnapshotHandle,
    key_tables: KeyTableHandle,
    deliver_spare: DeliverSpare,
    is_lack_told: bool,
    lack_tellable_us: u64,
    stats: Arc<Stats>,
    memory: Option<Arc<MemoryBound>>,
    info_head: String,
    turns: u64,
    published_us: u64,
    /// What is published of the cluster takes a look at every partition: less often.
    looked_around_us: u64,
    replication: ReplicationStatus,
    /// The turn that was published last.
    published_turn: u64,
    is_stopped: bool,
    /// Why nothing more may be written, until it is told.
    damage: Option<String>,
    is_dead: bool,
}

/// Tells of a place for which a request was answered CORRUPT or IO.
fn tell_bad_place(shard: u16, segments: &Segments, place: &BadPlace) {
    let BadPlace {
        offset,
        slot,
        hash,
        status,
        is_last,
        ..
    } = *place;
    let path = segments.path(place.file);
    let file = path.display();
    let cause = match status {
        Status::Io => "cannot be read",
        _ => "does not hold what was written",
    };
    let more = match is_last {
        true => "; further places are neither told nor counted",
        false => "",
    };
    error!(
        shard,
        file = %file,
        offset,
        slot,
        key_hash = %format_args!("{hash:08x}"),
        answered = status.name(),
        "shard {shard}: {file} {cause} at offset {offset} (slot {slot}, key hash {hash:08x}): the request was answered {}, and so is every one that needs this place; restore a backup elsewhere, or see what a mend would give up, once the server is stopped: {}{more}",
        status.name(),
        advice::repair(segments.data())
    );
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
    /// Over a recovered shard; segment files that the shard asks for go to `deliver_spare`.
    pub(crate) fn new(
        start: &ShardStart,
        shard: Shard<Arena>,
        disk: Disk,
        deliver_spare: DeliverSpare,
    ) -> Engine {
        let config = &start.config;
        let info_head = format!(
            "\"version\":\"{}\",\"shard_count\":{},\"incarnation\":{},\"io\":\"{}\",\"durability\":\"{}\",\"interval_ms\":{},\"segment_bytes\":{},\"pid\":{}",
            env!("CARGO_PKG_VERSION"),
            start.shard_config.topology.shards(),
            start.shard_config.hello.incarnation,
            disk.engine(),
            config.durability.name(),
            config.interval_ms,
            config.segment_bytes,
            std::process::id()
        );
        let short_bytes = shard.store().log().config().segment_bytes_min();
        let mut engine = Engine {
            shard,
            disk,
            outbox: Outbox::default(),
            received_bytes: 0,
            sent_bytes: 0,
            connections_refused: 0,
            completions: Vec::new(),
            number: start.shard,
            segment_bytes: config.segment_bytes,
            short_segment_bytes: short_bytes.next_multiple_of(BLOCK_BYTES as u64),
            first_segments: None,
            segments: start.segments.clone(),
            spares: start.spares.clone(),
            snapshot_writer: start.snapshot_writer.clone(),
            key_tables: start.key_table_maker.clone(),
            deliver_spare,
            is_lack_told: false,
            lack_tellable_us: 0,
            stats: Arc::clone(&start.stats),
            memory: start.memory.clone(),
            info_head,
            turns: 0,
            published_us: 0,
            looked_around_us: 0,
            replication: ReplicationStatus::default(),
            published_turn: 0,
            is_stopped: false,
            damage: None,
            is_dead: false,
        };
        // Nobody is to take what one shard has told for all there is.
        engine.look_around(Now { us: 0, unix_ms: 0 });
        engine
    }

    /// Hands an event to the shard; returns what [`Shard::step`] returns.
    #[inline]
    pub(crate) fn step(&mut self, now: Now, event: Event<'_, ArenaBlock>) -> usize {
        self.shard.step(now, event, &mut self.outbox)
    }

    /// Gives the shard what the disk has finished, and whether there was any. Without a system call.
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

    /// Gives the shard what became of a segment file that it asked for. What people should know of
    /// it is returned: the helper tries again each second and tells each time, they are told of
    /// changes, and at most once in a minute. A store that is cleaned at its bound lacks one again and
    /// again.
    pub(crate) fn take_spare(&mut self, now: Now, outcome: SpareOutcome) -> Option<String> {
        let is_full = self.shard.store().log().is_full();
        // While cleaning gives back what is written a segment is refused now and then, and nothing else is.
        let lack = match &outcome {
            SpareOutcome::InheritedGone => {
                self.step(now, Event::InheritedGone);
                return (self.number == 0).then(|| {
                    "the logs of the earlier number of shards are rewritten and gone".into()
                });
            }
            SpareOutcome::Damaged(damage) => {
                self.damage = Some(format!(
                    "shard {}: {damage}; nothing more is written; to see all: {}; to see what a mend would give up: {}",
                    self.number,
                    advice::inspect(self.segments.data()),
                    advice::repair(self.segments.data())
                ));
                return None;
            }
            SpareOutcome::Failed { failure, error } => {
                let mend = match failure {
                    SpareFailure::NoDescriptor => {
                        "; close connections, or raise LimitNOFILE (ulimit -n)"
                    }
                    SpareFailure::System => "",
                };
                Some(format!("no segment can be made ready: {error}{mend}"))
            }
            SpareOutcome::Refused { free_bytes } if is_full => Some(format!(
                "no segment can be made ready, and what grows is answered FULL: the disk or disk_bytes_max is used up ({free_bytes} bytes of the disk are free){}",
                self.carried()
            )),
            SpareOutcome::Ready(_) | SpareOutcome::Refused { .. } => None,
        };
        let failure = match outcome {
            SpareOutcome::Failed { failure, .. } => Some(failure),
            _ => None,
        };
        let is_due = match lack {
            Some(_) => now.us >= self.lack_tellable_us,
            None => !is_full,
        };
        let text = (lack.is_some() != self.is_lack_told && is_due).then(|| {
            self.is_lack_told = lack.is_some();
            self.lack_tellable_us = now.us + LACK_TOLD_US;
            let text = lack.as_deref().unwrap_or("what grows is taken again");
            format!("shard {}: {text}", self.number)
        });
        if let SpareOutcome::Ready(spare) = outcome {
            self.disk.attach(spare.file, spare.fd);
            self.step(
                now,
                Event::Spare {
                    file: spare.file,
                    salt: spare.salt,
                    bytes: spare.bytes,
                    is_reused: spare.is_reused,
                },
            );
        } else {
            self.step(
                now,
                match failure {
                    Some(failure) => Event::SpareFailed(failure),
                    None => Event::SpareRefused,
                },
            );
        }
        let is_starved = self.shard.store().log().is_starved();
        self.spares.set_starved(is_starved);
        text
    }

    /// What the shard's share of the disk carries, if there is a limit.
    fn carried(&self) -> String {
        let store = self.shard.store();
        let Some(share) = store.disk_share() else {
            return String::new();
        };
        format!(
            ": {} MiB of records count in this shard, and its share of disk_bytes_max carries {} MiB; delete some, or give --disk-bytes-max more",
            store.counting_bytes() >> 20,
            share.live_bytes_max() >> 20
        )
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
        self.turns += 1;
        self.reap(now);
        if self.shard.is_writing_snapshot() {
            self.take_snapshot_outcomes(now);
        }
        if self.shard.awaits_key_table() {
            self.take_key_tables(now);
        }
        if self.key_tables.must_leave() {
            self.step(now, Event::GiveUpKeyTables);
        }
        if let Some(bound) = &self.memory {
            self.shard.set_memory_bytes_max(bound.share());
            bound.tell(self.number, self.shard.usage().memory_bytes);
        }
        self.step(now, Event::TurnEnds);
        if let Some(fatal) = self.outbox.fatal {
            self.is_dead = true;
            // What another node said of it comes first.
            let told = self.outbox.links.told.drain(..);
            let told: String = told.map(|told| format!("{told}; ")).collect();
            let text = format!("{told}{fatal}");
            // A start would not be what it was told of: whoever starts what has failed is to leave it alone.
            return match fatal {
                Fatal::GoneBack => Turn::Damaged(text),
                Fatal::Log { .. } => Turn::Fatal(text),
            };
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
        for file in self.outbox.removals.drain(..) {
            self.disk.detach(file);
            self.spares.release(file);
        }
        for file in self.outbox.forgotten.drain(..) {
            self.disk.detach(file);
        }
        if std::mem::take(&mut self.outbox.has_taken_over) {
            let deliver = Arc::clone(&self.deliver_spare);
            self.spares
                .taken_over(Box::new(move |outcome| deliver(outcome)));
        }
        for damaged in self.outbox.damaged.drain(..) {
            let (shard, offset) = (self.number, damaged.offset);
            let path = self.segments.path(damaged.file);
            let file = path.display();
            error!(
                shard,
                file = %file,
                offset,
                "shard {shard}: {file} is damaged at offset {offset}: cleaning leaves it as it is; to see more, once the server is stopped: {}",
                advice::inspect(self.segments.data())
            );
        }
        for _ in 0..std::mem::take(&mut self.outbox.spares) {
            let deliver = Arc::clone(&self.deliver_spare);
            let log = self.shard.store().log();
            let left = self.first_segments.get_or_insert(match log.has_spares() {
                true => 0,
                false => FIRST_SEGMENTS,
            });
            let bytes = match *left {
                0 => self.segment_bytes,
                _ => FIRST_SEGMENT_BYTES
                    .max(self.short_segment_bytes)
                    .min(self.segment_bytes),
            };
            *left = left.saturating_sub(1);
            let bytes = log.spare_bytes_wanted(bytes);
            self.spares.request(
                bytes,
                self.short_segment_bytes.min(bytes),
                Box::new(move |outcome| deliver(outcome)),
            );
        }
        for rotten in self.outbox.rotten.drain(..) {
            let shard = self.number;
            let data = self.segments.data().to_string_lossy();
            error!(
                shard,
                file = %self.segments.path(rotten.file).display(),
                offset = rotten.offset,
                "shard {shard}: {}; it is served as long as nobody needs that, and the next start that reads it refuses it: restore a backup elsewhere, or see what a mend would give up, once the server is stopped: {}",
                rotten.within(&data),
                advice::repair(self.segments.data())
            );
        }
        for place in self.outbox.bad_places.drain(..) {
            tell_bad_place(self.number, &self.segments, &place);
        }
        for write in self.outbox.snapshots.drain(..) {
            self.snapshot_writer.write(write);
        }
        for order in self.outbox.key_tables.drain(..) {
            // One that was not loaded is not open here.
            if let KeyTableOrder::Remove(file) = order
                && self.disk.is_attached(file.key_table())
            {
                self.disk.detach(file.key_table());
            }
            self.key_tables.order(order);
        }
        let is_stopped = self.outbox.is_stopped;
        let asked = std::mem::take(&mut self.outbox.info);
        if now.us >= self.published_us + PUBLISH_US || !asked.is_empty() || is_stopped {
            self.publish(now, !asked.is_empty());
        }
        let replication = match asked.is_empty() {
            true => String::new(),
            false => self.replication_json(),
        };
        for &(session, request_id) in &asked {
            let end = self.shard.store().log().durable_end();
            let head = format!(
                "{}{replication},\"memory_max\":{},\"resident_bytes\":{},\"uptime_ms\":{},\"log\":{{\"shard\":{},\"id\":{},\"durable_lsn\":{},\"segment\":{},\"end_offset\":{}}}",
                self.info_head,
                self.memory.as_ref().map_or(0, |bound| bound.max()),
                resident_bytes().unwrap_or(0),
                now.us / 1000,
                self.number,
                end.log_id,
                end.lsn.0,
                end.segment_sequence,
                end.end_offset
            );
            let text = &self.stats.json(&head);
            let told = Event::Info {
                session,
                request_id,
                text,
            };
            self.shard.step(now, told, &mut self.outbox);
        }
        let has_stopped = is_stopped && !std::mem::replace(&mut self.is_stopped, is_stopped);
        Turn::Ended {
            is_due_again: !asked.is_empty(),
            has_stopped,
        }
    }

    /// When a turn is due at the latest, for the sake of those who read the numbers.
    pub(crate) fn publish_deadline_us(&self) -> u64 {
        let is_known = !self.shard.is_linked() || self.looked_around_us == self.published_us;
        let patience_us = match self.published_turn == self.turns && is_known {
            true => HEARTBEAT_US,
            false => STALE_US_MAX,
        };
        self.published_us + patience_us
    }

    fn take_snapshot_outcomes(&mut self, now: Now) {
        while let Some(SnapshotOutcome { name, result }) = self.snapshot_writer.outcome() {
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
        while let Some(KeyTableOutcome { file, table }) = self.key_tables.outcome() {
            // Without a table a scan is slower, no more; the numbers tell.
            let table = table.ok().map(|(table, fd)| {
                self.disk.attach(file.key_table(), fd);
                table
            });
            self.step(now, Event::KeyTable { file, table });
        }
    }

    fn publish(&mut self, now: Now, is_asked: bool) {
        self.published_us = now.us;
        self.published_turn = self.turns;
        let store = self.shard.store();
        let log = store.log();
        let failure = self.shard.spare_failure();
        let sample = Sample {
            shard: self.shard.counters(),
            log: log.counters(),
            cleaning: store.cleaning_counters(),
            pace: store.pace_counters(),
            disk: self.disk.counters(),
            usage: self.shard.usage(),
            inherited_bytes: store.inherited_bytes(),
            scrub: store.scrub_counters(),
            snapshots: self.shard.snapshot_counters(),
            key_tables: self.shard.key_table_counters(),
            replication: self.shard.replication_counters(now),
            turns: self.turns,
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
            connections_refused: self.connections_refused,
            segments_held: log.sealed_segments().len() as u64
                + u64::from(log.open_segment().is_some()),
            is_disk_full: log.is_full() && failure.is_none(),
            has_no_descriptor: log.is_full() && failure == Some(SpareFailure::NoDescriptor),
            has_no_segment_file: log.is_full() && failure == Some(SpareFailure::System),
            is_log_full: log.has_most_segments(),
            is_memory_full: !store.has_room_for_keys() && !store.waits_for_keys(),
            visible_keys: store.visible_keys() as u64,
        };
        let none = &Histogram::default();
        let (received, durable) = self.shard.replication_delays().unwrap_or((none, none));
        let rest = [log.flushes_us(), log.batches(), received, durable];
        self.stats
            .publish(self.number, now.us, &sample, self.shard.stages(), rest);
        if is_asked || now.us >= self.looked_around_us + LOOK_AROUND_US {
            self.look_around(now);
        }
    }

    /// Publishes what is known of the cluster, if there is one.
    fn look_around(&mut self, now: Now) {
        if self.shard.is_linked() {
            self.looked_around_us = now.us;
            self.shard.look_around(now, &mut self.replication);
            self.stats
                .publish_replication(self.number, &mut self.replication);
        }
    }

    /// What INFO tells of a node of a cluster besides.
    fn replication_json(&self) -> String {
        let Some((me, nodes)) = self.shard.nodes() else {
            return String::new();
        };
        let nodes: Vec<String> = nodes
            .iter()
            .map(|(number, clients)| {
                let clients = serde_json::Value::from(clients.as_str());
                format!("{{\"node\":{number},\"clients\":{clients}}}")
            })
            .collect();
        let cores = self.stats.replication();
        format!(
            ",\"partitions\":{},\"replication\":{{\"node\":{me},\"nodes\":[{}],\"roles\":{},\"peers\":{}}}",
            partitions_json(&cores),
            nodes.join(","),
            roles_json(&cores),
            peers_json(&cores)
        )
    }
}
