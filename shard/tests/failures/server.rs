//! A shard, its disk and one connection to it, turned by hand; one request to the disk may fail.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use penstock_net::frame::{HEADER_BYTES, Medium};
use penstock_net::hello::{ClientHello, FEATURE_BEGAN};
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::program::ServedSchema;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{
    ITEM_FLAG_BEGAN, ITEM_FLAG_REPLAYED, ITEM_FLAG_SHOWN, KeyExpiry, ReplyItem, read_batch_reply,
};
use penstock_net::request::{BatchRequest, Condition, Version};
use penstock_net::status::Status;
use penstock_shard::cluster::{ClusterConfig, Plan};
use penstock_shard::opening::{SegmentFiles, open_shard, prove_spares, take_inventory};
use penstock_shard::replication::LinkId;
use penstock_shard::{
    Event, KeyTableCounters, KeyTableOrder, Mail, Now, Outbox, SessionId, Shard, ShardConfig,
    SnapshotWrite, WriteStep,
};
use penstock_storage::budget::Budget;
use penstock_storage::io::{BLOCK_BYTES, Block, Io, IoFailure, IoToken};
use penstock_storage::key_table::TableHome;
use penstock_storage::layout::Layout;
use penstock_storage::log::{LogConfig, SPARES_READY, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::snapshot::SnapshotName;
use penstock_storage::store::Usage;

pub use crate::config::{
    OUTPUT_BYTES_MAX, PARKED_BYTES_MAX, VALUE_BYTES_MAX, WRITE_STALL_US_MAX, log_config,
    shard_config,
};
use crate::config::{OWNER, shard_config_with};
use crate::device::Device;
use crate::heap::{Heap, HeapBlock};
use crate::image::Image;
use crate::key_tables;

pub const SEGMENT_BYTES: usize = 52 << 10;
const CACHE_BYTES: usize = 2_500;

const HELLO_ID: u64 = u64::MAX;
/// Turns in which everything that was begun must end.
const TURNS_MAX: usize = 10_000;

/// How a request to the disk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With this error, after so many sectors reached the platter.
    Ends(IoFailure, usize),
    /// Well, with one bit of what was read another.
    Flipped(usize),
    /// Well, with zeros.
    Zeros,
    /// With an error, as does every read that comes after it.
    Unreadable,
    /// The disk is full: no spare segment this time.
    NoSpare,
}

/// What a shard asks of the disk and of who makes its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Write,
    Sync,
    Read,
    Spare,
}

/// What the client received for one operation.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: Status,
    pub level: AckLevel,
    pub version: Version,
    pub value: Vec<u8>,
    /// The instruction that failed, and its reason.
    pub instruction: u8,
    pub reason: u8,
    /// The value is the one that kept the condition from holding.
    pub is_shown: bool,
    pub expiry: Option<KeyExpiry>,
    /// An earlier request with this token got this answer.
    pub is_replayed: bool,
    pub has_begun_since: bool,
}

pub struct Server {
    pub shard: Shard<Heap>,
    pub outbox: Outbox<HeapBlock>,
    pub device: Device,
    pub now: Now,
    pub session: SessionId,
    /// Sent by the client and not consumed.
    pub inbox: Vec<u8>,
    /// By request id.
    pub replies: BTreeMap<usize, Reply>,
    /// The most milliseconds that BUSY has told; 0 before it was told.
    pub wait_ms_max: u16,
    /// Everything that was asked of the disk.
    pub asked: Vec<Asked>,
    /// Reads of more than one block.
    pub wide_reads: usize,
    failing: Option<(usize, Failure)>,
    /// The client takes so many bytes of its replies in each turn, and never all of them.
    pub takes: Option<usize>,
    /// What the client has taken nothing of, if it takes nothing.
    pub withheld: Option<Vec<Pieces>>,
    /// What the client receives, if it is to be kept as it is.
    pub raw: Option<Vec<u8>>,
    /// Why the shard wants the connection closed.
    pub close: Option<&'static str>,
    /// Requests under way that are to fail.
    doomed: Vec<(IoToken, Failure)>,
    pub is_fatal: bool,
    /// No spare segment can be made, and what room comes back somebody else takes.
    pub is_full: bool,
    /// No spare segment can be made but of one that is removed.
    pub is_used_up: bool,
    /// How long spare segments are from now on.
    pub segment_bytes: usize,
    /// What is asked for of key tables is carried out when the test says so.
    pub holds_key_tables: bool,
    /// What waits for that.
    pub key_table_orders: Vec<KeyTableOrder>,
    /// Its finished snapshots, the newest two.
    pub snapshots: Snapshots,
    growing: Vec<u8>,
    /// The snapshot that the start used.
    pub used: Option<SnapshotName>,
    /// Why it did not use newer ones.
    pub refused: Vec<String>,
    salt: u64,
    hash_seed: u64,
    /// Its log, and those that it has inherited and not taken over.
    pub layout: Layout,
    /// What people were told of links and partitions.
    pub notices: Vec<String>,
    /// What people were told of effects that could not run.
    pub failed_effects: Vec<String>,
    /// Links with something to be sent.
    pub links: Vec<LinkId>,
    /// The least number of a file that it makes.
    pub files_from: u32,
    /// What other shards of the node are to get.
    pub mail: Vec<(u16, Mail)>,
}

/// Finished snapshots.
pub type Snapshots = BTreeMap<SnapshotName, Vec<u8>>;

/// Segments and snapshots.
pub struct Files<'a> {
    pub image: &'a mut Image,
    pub snapshots: &'a Snapshots,
}

impl SegmentFiles for Files<'_> {
    type Reader = Image;

    fn reader(&self) -> Image {
        self.image.clone()
    }

    fn truncate(&mut self, file: FileId, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).expect("small files");
        self.image.file(file).truncate(bytes);
        Ok(())
    }

    fn remove(&mut self, file: FileId) -> io::Result<()> {
        self.image.files.remove(&file).expect("the file is there");
        Ok(())
    }

    fn set_aside(&mut self, file: FileId) -> io::Result<()> {
        self.remove(file)
    }

    fn sync(&mut self, _: FileId) -> io::Result<()> {
        Ok(())
    }

    fn snapshots(&mut self) -> io::Result<Vec<(SnapshotName, u64)>> {
        let snapshots = self.snapshots.iter();
        Ok(snapshots
            .map(|(name, bytes)| (*name, bytes.len() as u64))
            .collect())
    }

    fn read_snapshot(
        &mut self,
        name: SnapshotName,
        offset: u64,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let bytes = self.snapshots.get(&name).ok_or(io::ErrorKind::NotFound)?;
        let offset = usize::try_from(offset).expect("small files");
        let left = bytes.get(offset..).unwrap_or_default();
        let moved = left.len().min(into.len());
        into[..moved].copy_from_slice(&left[..moved]);
        Ok(moved)
    }

    fn expect_bytes(&mut self, _: u64) {}
}

impl Server {
    /// Opens the shard over `image`, as the server does, and connects.
    pub fn open(
        sync: SyncMethod,
        image: Image,
        incarnation: u64,
        failing: Option<(usize, Failure)>,
    ) -> Result<Self, String> {
        Self::open_at(1, sync, image, incarnation, failing)
    }

    /// The same when the wall clock shows `unix_ms`.
    pub fn open_at(
        unix_ms: u64,
        sync: SyncMethod,
        image: Image,
        incarnation: u64,
        failing: Option<(usize, Failure)>,
    ) -> Result<Self, String> {
        let budget = Budget::of_cache(CACHE_BYTES);
        Self::open_within(budget, unix_ms, sync, image, incarnation, failing)
    }

    /// The same with other bounds on its memory.
    pub fn open_within(
        budget: Budget,
        unix_ms: u64,
        sync: SyncMethod,
        image: Image,
        incarnation: u64,
        failing: Option<(usize, Failure)>,
    ) -> Result<Self, String> {
        let log = log_config(sync, incarnation);
        let none = (Snapshots::new(), 0);
        Self::open_with(none, budget, unix_ms, log, image, failing)
    }

    /// The same with snapshots; the number is the bytes of log between two of them.
    pub fn open_with(
        snapshots: (Snapshots, u64),
        budget: Budget,
        unix_ms: u64,
        log: LogConfig,
        image: Image,
        failing: Option<(usize, Failure)>,
    ) -> Result<Self, String> {
        let layout = Layout::new(1);
        Self::open_of(layout, snapshots, budget, unix_ms, log, image, failing)
    }

    /// The same over the logs of `layout`, which has one shard.
    pub fn open_of(
        layout: Layout,
        (snapshots, snapshot_bytes): (Snapshots, u64),
        budget: Budget,
        unix_ms: u64,
        log: LogConfig,
        image: Image,
        failing: Option<(usize, Failure)>,
    ) -> Result<Self, String> {
        let config = shard_config_with(0, 1, log.incarnation, snapshot_bytes);
        Self::open_as(
            config, layout, snapshots, budget, unix_ms, log, image, failing,
        )
    }

    /// The same with tokens that are kept for so many milliseconds.
    pub fn open_with_tokens(
        token_horizon_ms: u64,
        (snapshots, snapshot_bytes): (Snapshots, u64),
        budget: Budget,
        unix_ms: u64,
        image: Image,
        incarnation: u64,
    ) -> Result<Self, String> {
        let log = log_config(SyncMethod::DurableWrite, incarnation);
        let config = ShardConfig {
            token_horizon_ms,
            ..shard_config_with(0, 1, incarnation, snapshot_bytes)
        };
        let layout = Layout::new(1);
        Self::open_as(config, layout, snapshots, budget, unix_ms, log, image, None)
    }

    /// The same as a node of a cluster.
    pub fn open_in_cluster(
        cluster: ClusterConfig,
        image: Image,
        incarnation: u64,
    ) -> Result<Self, String> {
        let config = ShardConfig {
            cluster: Some(cluster),
            ..shard_config(0, 1, incarnation)
        };
        let log = log_config(SyncMethod::DurableWrite, incarnation);
        let (snapshots, budget) = (Snapshots::new(), Budget::of_cache(CACHE_BYTES));
        let layout = Layout::new(1);
        Self::open_as(config, layout, snapshots, budget, 1, log, image, None)
    }

    #[expect(clippy::too_many_arguments)]
    pub fn open_as(
        config: ShardConfig,
        layout: Layout,
        snapshots: Snapshots,
        budget: Budget,
        unix_ms: u64,
        mut log: LogConfig,
        mut image: Image,
        failing: Option<(usize, Failure)>,
    ) -> Result<Self, String> {
        #[cfg(feature = "planted")]
        crate::config::plant_by_name();
        log.log_id = layout.log_of(config.shard);
        let incarnation = log.incarnation;
        let bytes = SEGMENT_BYTES as u64;
        let mut files = Files {
            image: &mut image,
            snapshots: &snapshots,
        };
        let inventory =
            take_inventory(&mut files, OWNER, &layout, bytes).map_err(|error| error.to_string())?;
        let hash_seed = config.hash_seed;
        let opened = open_shard(&mut files, &inventory, config, log, bytes, budget, Heap);
        let opened = opened.map_err(|error| error.to_string())?;
        let used = opened.snapshot.map(|(name, _)| name);
        let refused = opened.snapshots_refused.iter();
        let refused = refused.map(|(_, error)| error.to_string()).collect();
        let mut shard = opened.shard;
        let tables = key_tables::found(&image);
        shard.execution_mut().expect_key_tables(&tables);
        let now = Now { us: 1, unix_ms };
        let mut outbox = Outbox::default();
        let mut salt = 1_000 * incarnation;
        let left = inventory.left;
        prove_spares(&mut image.clone(), &left).map_err(|error| error.to_string())?;
        for &(file, _) in &left.superfluous {
            image.files.remove(&file).expect("the file is there");
        }
        for (file, bytes) in left.spares {
            salt += 1;
            shard.step(
                now,
                Event::Spare {
                    file,
                    salt,
                    bytes,
                    is_reused: false,
                },
                &mut outbox,
            );
        }
        let mut server = Server {
            session: shard.front_mut().open_session(now),
            shard,
            outbox,
            device: Device::holding(image),
            now,
            inbox: Vec::new(),
            replies: BTreeMap::new(),
            wait_ms_max: 0,
            asked: Vec::new(),
            wide_reads: 0,
            failing,
            takes: None,
            withheld: None,
            raw: None,
            close: None,
            doomed: Vec::new(),
            is_fatal: false,
            is_full: false,
            is_used_up: false,
            segment_bytes: SEGMENT_BYTES,
            holds_key_tables: false,
            key_table_orders: Vec::new(),
            snapshots,
            growing: Vec::new(),
            used,
            refused,
            salt,
            hash_seed,
            layout,
            notices: Vec::new(),
            failed_effects: Vec::new(),
            links: Vec::new(),
            files_from: 1,
            mail: Vec::new(),
        };
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: FEATURE_BEGAN,
            name: "worlds",
        };
        hello.write(&mut server.inbox, HELLO_ID);
        server.hand_over();
        Ok(server)
    }

    /// Leaves so much to index, versions and values from now on.
    pub fn set_memory_bytes_max(&mut self, bytes: usize) {
        let bound = Event::MemoryBound { bytes };
        self.shard.step(self.now, bound, &mut self.outbox);
    }

    /// Whether the shard wants another turn at once, though nothing has happened.
    pub fn is_restless(&self) -> bool {
        let deadline_us = self.shard.deadline_us(self.now);
        deadline_us.is_some_and(|deadline_us| deadline_us <= self.now.us)
    }

    pub fn counters(&self) -> penstock_shard::Counters {
        self.shard.counters()
    }

    /// How many operations passed queue, apply, flush and reply.
    pub fn staged(&self) -> [u64; 4] {
        let stages = self.shard.execution().stages();
        stages.all().map(|stage| stage.counts().iter().sum())
    }

    /// What its key tables did.
    pub fn key_tables(&self) -> KeyTableCounters {
        self.shard.execution().key_table_counters()
    }

    /// The segments that may have key tables.
    pub fn key_table_homes(&self) -> Vec<TableHome> {
        self.shard.execution().key_table_homes().collect()
    }

    /// There is no room for key tables.
    pub fn give_up_key_tables(&mut self) {
        let give_up = Event::GiveUpKeyTables;
        self.shard.step(self.now, give_up, &mut self.outbox);
    }

    /// Does what the shard asked for.
    pub fn carry_out_key_tables(&mut self) {
        for order in std::mem::take(&mut self.key_table_orders) {
            match order {
                KeyTableOrder::Load(home) => {
                    let image = &mut self.device.image;
                    let table = key_tables::load(image, &home);
                    if table.is_none() {
                        image.files.remove(&home.file.key_table());
                    }
                    let file = home.file;
                    let loaded = Event::KeyTable { file, table };
                    self.shard.step(self.now, loaded, &mut self.outbox);
                }
                KeyTableOrder::Make(home) => {
                    let image = &mut self.device.image;
                    let made = Event::KeyTable {
                        file: home.file,
                        table: key_tables::make(image, &home, self.hash_seed),
                    };
                    self.shard.step(self.now, made, &mut self.outbox);
                }
                KeyTableOrder::Remove(file) => {
                    let file = file.key_table();
                    let is_read = |request: &Io<HeapBlock>| match request {
                        Io::Read { file: of, .. } => *of == file,
                        _ => false,
                    };
                    if !self.device.under_way().iter().any(is_read) {
                        let gone = self.device.image.files.remove(&file);
                        gone.expect("a table is removed once");
                    }
                }
            }
        }
    }

    /// What the shard holds.
    pub fn usage(&self) -> Usage {
        self.shard.store().data().usage()
    }

    /// The request to the disk with this number is to fail.
    pub fn fail(&mut self, number: usize, failure: Failure) {
        self.failing = Some((number, failure));
    }

    /// No request fails any more, and what was on the platter is there again.
    pub fn heal(&mut self, good: &Image) {
        self.failing = None;
        for (file, bytes) in &good.files {
            if let Some(now) = self.device.image.files.get_mut(file) {
                now.clone_from(bytes);
            }
        }
    }

    /// Bytes that its log has taken.
    pub fn log_bytes(&self) -> u64 {
        self.shard.store().log().counters().commit_bytes
    }

    /// Segments that cleaning has found damaged.
    pub fn damaged(&self) -> u64 {
        self.shard.store().cleaning().counters().damaged
    }

    /// Segments that cleaning went through.
    pub fn cleaned(&self) -> u64 {
        self.shard.store().cleaning().counters().segments
    }

    /// Records that cleaning has copied.
    pub fn copied(&self) -> u64 {
        self.shard.store().log().counters().moved_records
    }

    /// There is room on the disk again.
    pub fn make_room(&mut self) {
        self.is_full = false;
        for _ in 0..SPARES_READY {
            self.add_spare();
        }
    }

    fn add_spare(&mut self) {
        self.salt += 1;
        let event = Event::Spare {
            file: self
                .device
                .image
                .create_from(self.files_from, self.segment_bytes),
            salt: self.salt,
            bytes: self.segment_bytes as u64,
            is_reused: false,
        };
        self.shard.step(self.now, event, &mut self.outbox);
    }

    /// The time of the store.
    pub fn time_ms(&self) -> u64 {
        self.shard.store().data().time_ms()
    }

    pub fn get(&mut self, id: usize, key: &[u8]) {
        self.send(id, |batch, out| batch.get(out, key));
    }

    pub fn set(&mut self, id: usize, key: &[u8], value: &[u8]) {
        self.send(id, |batch, out| {
            batch.set(out, key, value, Condition::Always)
        });
    }

    pub fn delete(&mut self, id: usize, key: &[u8]) {
        self.send(id, |batch, out| batch.del(out, key, Condition::Always));
    }

    pub fn send(&mut self, id: usize, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) {
        self.send_at(AckLevel::Disk, id, item);
    }

    /// The same of an item that asks for another level.
    pub fn send_at(
        &mut self,
        level: AckLevel,
        id: usize,
        item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>),
    ) {
        self.send_until(level, 0, id, item);
    }

    /// The same of an item with a deadline, in milliseconds from now.
    pub fn send_until(
        &mut self,
        level: AckLevel,
        deadline_ms: u16,
        id: usize,
        item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>),
    ) {
        let mut batch = BatchRequest::begin(&mut self.inbox, id as u64, level, deadline_ms, 1);
        item(&mut batch, &mut self.inbox);
        batch.finish(&mut self.inbox);
        self.hand_over();
    }

    /// Sends an item, and takes its reply once all is at rest. Both clocks go on alike.
    pub fn answer(
        &mut self,
        id: usize,
        item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>),
    ) -> Reply {
        self.send(id, item);
        let before = self.now.us;
        self.settle();
        self.now.unix_ms += (self.now.us - before) / 1_000;
        self.replies.remove(&id).expect("a reply")
    }

    pub fn sleep(&mut self, ms: u64) {
        self.now.us += ms * 1_000;
        self.now.unix_ms += ms;
    }

    pub fn hand_over(&mut self) {
        if !self.shard.front().is_paused(self.session) {
            let received = Event::Received {
                session: self.session,
                bytes: &self.inbox,
            };
            let consumed = self.shard.step(self.now, received, &mut self.outbox);
            self.inbox.drain(..consumed);
        }
    }

    /// The node reads another file of the cluster.
    pub fn replan(&mut self, plan: Plan) {
        let plan = Event::Plan(Arc::new(plan));
        self.shard.step(self.now, plan, &mut self.outbox);
    }

    /// The node reads other files of its schema.
    pub fn serve(&mut self, schema: ServedSchema) {
        let schema = Event::Schema(Arc::new(schema));
        self.shard.step(self.now, schema, &mut self.outbox);
    }

    /// The loop comes round; what the shard wants done is begun.
    pub fn turn(&mut self) {
        self.shard.step(self.now, Event::TurnEnds, &mut self.outbox);
        self.shard.end_turn(self.now, &mut self.outbox);
        let mut outbox = std::mem::take(&mut self.outbox);
        self.is_fatal |= outbox.fatal.is_some();
        self.mail.append(&mut outbox.mail);
        let mut requests = outbox.io;
        self.note_requests(&requests);
        assert!(
            !self.is_fatal || requests.is_empty(),
            "a stopped shard asks for {requests:?}"
        );
        self.device.submit(&mut requests);
        for _ in 0..outbox.spares {
            if self.ask(Asked::Spare).is_some() || self.is_full || self.is_used_up {
                self.shard
                    .step(self.now, Event::SpareRefused, &mut self.outbox);
            } else {
                self.add_spare();
            }
        }
        if self.is_used_up {
            outbox.removals.iter().for_each(|_| self.add_spare());
        }
        if outbox.has_taken_over {
            self.layout.inherited.clear();
            self.shard
                .step(self.now, Event::InheritedGone, &mut self.outbox);
        }
        for file in outbox.forgotten {
            let gone = self.device.image.files.remove(&file);
            gone.expect("an inherited file is let go of once");
        }
        for _ in outbox.removals.iter().filter(|_| self.is_full) {
            self.shard
                .step(self.now, Event::SpareRefused, &mut self.outbox);
        }
        for write in outbox.snapshots {
            self.write_snapshot(write);
        }
        self.notices.append(&mut outbox.links.notices);
        self.links.append(&mut outbox.links.sendable);
        let failed = outbox.failed_effects.into_iter();
        let failed = failed.map(|it| format!("{}: {}", it.key.escape_ascii(), it.why));
        self.failed_effects.extend(failed);
        self.key_table_orders.extend(outbox.key_tables);
        if !self.holds_key_tables {
            self.carry_out_key_tables();
        }
        for session in outbox.sendable {
            let mut pieces = Pieces::default();
            self.shard.take_pieces(self.now, session, &mut pieces);
            if let Some(withheld) = &mut self.withheld {
                withheld.push(pieces);
                continue;
            }
            let bytes = pieces.into_bytes();
            if self.takes.is_none() {
                self.step_quietly(Event::Sent { session });
            }
            self.read_replies(&bytes);
        }
        if let Some(bytes) = self.takes {
            let session = self.session;
            self.step_quietly(Event::Took { session, bytes });
        }
        for session in outbox.probes {
            let event = Event::Unacknowledged { session, bytes: 0 };
            self.shard.step(self.now, event, &mut self.outbox);
            outbox.close.append(&mut self.outbox.close);
        }
        self.close = outbox.close.first().map(|&(_, reason)| reason);
        assert!(
            self.takes.is_some() || self.close.is_none(),
            "{:?}",
            self.close
        );
        if !outbox.resume.is_empty() {
            self.hand_over();
        }
    }

    /// Notes requests to the disk, and which of them is to fail.
    fn note_requests(&mut self, requests: &[Io<HeapBlock>]) {
        for request in requests {
            if let Io::Read { len, .. } = request {
                self.wide_reads += usize::from(*len as usize > BLOCK_BYTES);
            }
            let (asked, token) = match request {
                Io::Write { token, .. } => (Asked::Write, *token),
                Io::Sync { token, .. } => (Asked::Sync, *token),
                Io::Read { token, .. } => (Asked::Read, *token),
            };
            if let Some(failure) = self.ask(asked) {
                self.doomed.push((token, failure));
            }
        }
    }

    fn write_snapshot(&mut self, write: SnapshotWrite) {
        let SnapshotWrite { name, step, bytes } = write;
        if step == WriteStep::First {
            self.growing.clear();
        }
        self.growing.extend(bytes);
        if step == WriteStep::Last {
            self.snapshots
                .insert(name, std::mem::take(&mut self.growing));
            while self.snapshots.len() > 2 {
                self.snapshots.pop_first();
            }
        }
        let is_good = true;
        let written = Event::SnapshotWritten { name, is_good };
        self.shard.step(self.now, written, &mut self.outbox);
    }

    /// Notes a request, and tells whether it is the one to fail.
    fn ask(&mut self, asked: Asked) -> Option<Failure> {
        self.asked.push(asked);
        let this = self.asked.len() - 1;
        self.failing
            .filter(|&(number, failure)| {
                let is_later = failure == Failure::Unreadable && asked == Asked::Read;
                number == this || is_later && number < this
            })
            .map(|(_, failure)| failure)
    }

    /// The client takes everything that it has taken nothing of, and nothing more.
    pub fn take_withheld(&mut self) {
        for pieces in self.withheld.replace(Vec::new()).unwrap_or_default() {
            self.read_replies(&pieces.into_bytes());
        }
        let session = self.session;
        self.step_quietly(Event::Sent { session });
    }

    pub fn step_quietly(&mut self, event: Event<'_, HeapBlock>) {
        self.shard.step(self.now, event, &mut self.outbox);
    }

    fn read_replies(&mut self, bytes: &[u8]) {
        if let Some(raw) = &mut self.raw {
            return raw.extend_from_slice(bytes);
        }
        let wait_ms_max = for_each_reply(bytes, |id, item| {
            let id =
                usize::try_from(id).expect("an id that was sent") + usize::from(item.head.item);
            let reply = Reply {
                status: item.head.status,
                level: item.head.level,
                version: item.head.version,
                value: item.value.to_vec(),
                instruction: item.head.instruction,
                reason: item.head.reason,
                is_shown: item.head.flags & ITEM_FLAG_SHOWN != 0,
                expiry: item.expiry,
                is_replayed: item.head.flags & ITEM_FLAG_REPLAYED != 0,
                has_begun_since: item.head.flags & ITEM_FLAG_BEGAN != 0,
            };
            let before = self.replies.insert(id, reply);
            assert!(before.is_none(), "operation {id} is answered twice");
        });
        self.wait_ms_max = self.wait_ms_max.max(wait_ms_max);
    }

    /// The request at `index`, or the last one, ends.
    pub fn end(&mut self, index: usize) {
        let Some(last) = self.device.under_way().len().checked_sub(1) else {
            return;
        };
        let index = index.min(last);
        let (Io::Write { token, .. } | Io::Sync { token, .. } | Io::Read { token, .. }) =
            self.device.under_way()[index];
        let doomed = self.doomed.iter().position(|(doomed, _)| *doomed == token);
        let doomed = doomed.map(|place| self.doomed.swap_remove(place));
        let completion = match doomed.map(|(_, failure)| failure) {
            None | Some(Failure::NoSpare) => self.device.complete(index),
            Some(Failure::Unreadable) => self.device.fail(index, IoFailure::Device(crate::EIO), 0),
            Some(Failure::Ends(failure, sectors)) => self.device.fail(index, failure, sectors),
            Some(wrong @ (Failure::Flipped(_) | Failure::Zeros)) => {
                let mut completion = self.device.complete(index);
                let block = completion.block.as_mut().expect("a read has a block");
                match wrong {
                    Failure::Flipped(bit) => block.bytes_mut()[bit / 8] ^= 1 << (bit % 8),
                    _ => block.bytes_mut().fill(0),
                }
                completion
            }
        };
        let completed = Event::Completed(completion);
        self.shard.step(self.now, completed, &mut self.outbox);
    }

    /// Until nothing is begun and not ended, and the log has written its mark.
    pub fn settle(&mut self) {
        let mut quiet_turns = 0;
        for _ in 0..TURNS_MAX {
            self.turn();
            let is_quiet = self.device.under_way().is_empty()
                && self.outbox.sendable.is_empty()
                && !self.shard.front().is_paused(self.session);
            quiet_turns = if is_quiet || self.is_fatal {
                quiet_turns + 1
            } else {
                0
            };
            if quiet_turns == 20 {
                return;
            }
            if quiet_turns == 10 && (self.is_full || self.is_used_up) {
                // The maker of spares tries once more, in vain.
                self.shard
                    .step(self.now, Event::SpareRefused, &mut self.outbox);
            }
            self.end(0);
            self.now.us += 1_000;
        }
        panic!("the shard never comes to rest");
    }
}

/// Shows each reply item with the id of its request. Returns the most milliseconds of BUSY.
pub fn for_each_reply(bytes: &[u8], mut show: impl FnMut(u64, ReplyItem<'_>)) -> u16 {
    let mut receiver = Receiver::new(u32::MAX);
    if bytes.get(28..HEADER_BYTES) == Some(&[0; 4]) {
        receiver.set_medium(Medium::Memory);
    }
    let (mut at, mut wait_ms_max) = (0, 0);
    while at < bytes.len() {
        let Received::Frame {
            header,
            body,
            consumed,
        } = receiver.next(&bytes[at..])
        else {
            panic!("a frame is not whole: {:?}", &bytes[at..])
        };
        at += consumed;
        assert_eq!(header.level_or_status, Status::Ok as u16, "of the frame");
        let wait_ms = header.deadline_or_retry_ms;
        if header.request_id == HELLO_ID {
            assert_eq!(wait_ms, 0);
            continue;
        }
        let batch = read_batch_reply(body).expect("a batch");
        let mut is_busy = false;
        for number in 0..batch.len() {
            let item = ReplyItem::read(batch.item(number)).expect("an item");
            is_busy |= item.head.status == Status::Busy;
            show(header.request_id, item);
        }
        let expected = if is_busy { 1..=1000 } else { 0..=0 };
        assert!(expected.contains(&wait_ms), "{wait_ms} ms, BUSY: {is_busy}");
        wait_ms_max = wait_ms_max.max(wait_ms);
    }
    wait_ms_max
}
