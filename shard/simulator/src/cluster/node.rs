//! One node: a disk of its own, the shards of its process while it runs, and the files that
//! operators keep for it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use penstock_net::hello::{AUTH_NONE, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::link::NodeStart;
use penstock_net::link::frame::LINK_VERSION_MAX;
use penstock_net::request::Token;
use penstock_shard::cluster::{ClusterConfig, NodeOffers, PartitionStatus, Plan};
use penstock_shard::lease::LeaseTable;
use penstock_shard::opening::{
    OpeningError, SegmentFiles, change_shards, open_shard, prove_spares, replay_all, take_inventory,
};
use penstock_shard::replication::handshake::{Introduction, Peer};
use penstock_shard::replication::link_set::LinkSetConfig;
use penstock_shard::{
    Event as ShardEvent, Now, Outbox, Shard, ShardConfig, SnapshotPolicy, Topology,
};
use penstock_storage::budget::Budget;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::key_home::KeyHome;
use penstock_storage::key_table::{KeyTable, TableHome};
use penstock_storage::layout::Layout;
use penstock_storage::log::LogConfig;
use penstock_storage::place::{FileId, Place};
use penstock_storage::record::{PartKind, PartView, part_bytes};
use penstock_storage::segment::Owner;
use penstock_storage::store::{At, Found, Store, WasAt};
use penstock_storage::summary::SUMMARY_BYTES_MAX;
use penstock_storage::version::Version;

use super::{Event, Setting, number_of};
use crate::border::judge_border;
use crate::coverage::Coverage;
use crate::damage;
use crate::disk::{Disk, Files, Pool, PoolBlock};
use crate::random::Random;
use crate::starts::compare_starts;

const CLUSTER_ID: [u8; 16] = [0xC1; 16];
const FRAME_BYTES_MAX: u32 = 4 << 20;
/// How long a reply at level replica waits for members.
const REPLICA_TIMEOUT_US: u64 = 300_000;

/// One shard of a process.
pub(super) struct Core {
    pub(super) shard: Shard<Pool>,
    pub(super) outbox: Outbox<PoolBlock>,
    /// When its next turn is due.
    pub(super) turn_us: Option<u64>,
    pub(super) mail_us: Vec<u64>,
    /// It was asked to stop, and has.
    pub(super) is_stopped: bool,
}

pub(super) struct Node {
    number: u8,
    node_id: [u8; 16],
    pub(super) disk: Rc<RefCell<Disk>>,
    pub(super) shards: u16,
    /// What the next start is to have.
    pub(super) wanted_shards: u16,
    /// How long its next start keeps tokens.
    pub(super) token_horizon_ms: u64,
    /// The logs that count.
    layout: Layout,
    /// Shards that have taken over what they inherit, in this run.
    taken_over: usize,
    incarnation: u64,
    hash_seed: u64,
    random: Random,
    /// Number of the start of the process.
    pub(super) run: u64,
    pub(super) was_started: bool,
    pub(super) was_wiped: bool,
    pub(super) cores: Option<Vec<Core>>,
    pub(super) paused_until_us: u64,
    /// When it was asked to stop, if it was.
    pub(super) stops_since_us: Option<u64>,
    pub(super) frozen: VecDeque<Event>,
    /// The cluster's file as it read it last.
    pub(super) plan: Arc<Plan>,
    /// When it last went by one that does not name it for some partition; 0: never.
    lacked_us: u64,
    /// What its leases and its shards tell each other, of one start.
    leases: Arc<LeaseTable>,
    /// What the other nodes have offered to them.
    offers: Arc<NodeOffers>,
    /// Handed out to be kept by a shard, and not durable yet.
    pub(super) kept: Vec<(usize, u16, Vec<u8>)>,
    /// Durable.
    lostfound: Vec<Vec<u8>>,
    /// An old copy of the directory, and the number of the start that it is from.
    older: Option<Older>,
}

/// What was found at a start.
#[derive(Default)]
pub(super) struct Started {
    /// A shard opened with a snapshot of its index: it must come to the same as without.
    pub(super) has_snapshot: bool,
    /// It has another number of shards than the one before.
    pub(super) has_changed: bool,
    /// ... which had not taken over what it had inherited.
    pub(super) inherited_already: bool,
}

/// A copy of a directory.
struct Older {
    disk: Disk,
    incarnation: u64,
    layout: Layout,
}

impl Node {
    pub(super) fn new(
        place: usize,
        shards: u16,
        seed: u64,
        hash_seed: u64,
        plan: Arc<Plan>,
    ) -> Self {
        let number = number_of(place);
        let random = Random::new(seed, 110 + u64::from(number));
        Node {
            number,
            node_id: [number; 16],
            disk: Rc::new(RefCell::new(new_disk(random.clone()))),
            shards,
            wanted_shards: shards,
            token_horizon_ms: 3_600_000,
            layout: Layout::new(shards),
            taken_over: 0,
            incarnation: 0,
            hash_seed,
            random,
            run: 0,
            was_started: false,
            was_wiped: false,
            cores: None,
            paused_until_us: 0,
            stops_since_us: None,
            frozen: VecDeque::new(),
            plan,
            lacked_us: 0,
            leases: Arc::default(),
            offers: Arc::default(),
            kept: Vec::new(),
            lostfound: Vec::new(),
            older: None,
        }
    }

    fn owner(&self) -> Owner {
        Owner {
            cluster_id: CLUSTER_ID,
            node_id: self.node_id,
        }
    }

    fn log_config(&self, setting: &Setting, shard: u16) -> LogConfig {
        LogConfig {
            owner: self.owner(),
            incarnation: self.incarnation,
            log_id: self.layout.log_of(shard),
            frame_bytes: setting.frame_bytes,
            record_bytes_max: record_bytes_max(setting),
            frames_in_flight_max: 2,
            frames_sealed_max: 4,
            sync: setting.sync,
            interval_us: 1_000,
            idle_mark_us: 5_000,
        }
    }

    pub(super) fn segment_bytes(&self, setting: &Setting) -> u64 {
        let least = self.log_config(setting, 0).segment_bytes_min();
        least.next_multiple_of(4096) + setting.segment_bytes_more
    }

    fn introduction(&self, setting: &Setting, shard: u16) -> Introduction {
        Introduction {
            log_format: 1,
            cluster_id: CLUSTER_ID,
            node_id: self.node_id,
            start: NodeStart {
                incarnation: u32::try_from(self.incarnation).expect("few starts"),
                // No two starts have one, whatever became of the directory.
                start_id: u32::try_from(self.run).expect("few starts") + 1,
            },
            node: self.number,
            shard,
            shards: self.shards,
            record_bytes_max: u32::try_from(record_bytes_max(setting)).expect("small records"),
            frame_bytes_max: FRAME_BYTES_MAX,
        }
    }

    /// As the other end of a link sees it.
    pub(super) fn peer(&self, setting: &Setting, shard: usize) -> Peer {
        let me = self.introduction(setting, u16::try_from(shard).expect("few shards"));
        Peer {
            node_id: me.node_id,
            node: me.node,
            start: me.start,
            shard: me.shard,
            shards: me.shards,
            frame_bytes_max: me.frame_bytes_max,
            link_version: LINK_VERSION_MAX.into(),
        }
    }

    /// Opens every shard as the server does, by the plan that was read last.
    pub(super) fn start(
        &mut self,
        now: Now,
        setting: &Setting,
        is_new: bool,
    ) -> Result<Started, String> {
        self.open(now, setting, is_new)
            .map_err(|refusal| format!("is refused its own directory: {refusal}"))?
    }

    fn open(
        &mut self,
        now: Now,
        setting: &Setting,
        is_new: bool,
    ) -> Result<Result<Started, String>, OpeningError> {
        self.incarnation += 1;
        self.leases = Arc::default();
        self.offers = Arc::default();
        let segment_bytes = self.segment_bytes(setting);
        let mut files = Files(Rc::clone(&self.disk));
        self.disk.borrow_mut().owner = self.owner();
        self.disk.borrow_mut().forgotten.clear();
        let owner = self.owner();
        let mut inventory = take_inventory(&mut files, owner, &self.layout, segment_bytes)?;
        let mut started = Started::default();
        if self.wanted_shards != self.shards {
            started.has_changed = true;
            started.inherited_already = !self.layout.inherited.is_empty();
            let (shards, incarnation) = (self.wanted_shards, self.incarnation);
            self.layout =
                change_shards(&mut files, &inventory, owner, shards, incarnation, true)?.layout;
            self.shards = shards;
            inventory = take_inventory(&mut files, owner, &self.layout, segment_bytes)?;
        }
        self.taken_over = 0;
        let topology = Topology::new(self.shards);
        let mut cores = Vec::new();
        for shard in 0..self.shards {
            let log = self.log_config(setting, shard);
            let frame_bytes = log.frame_bytes.max(log.record_bytes_max + 4096);
            let pool_bytes = (log.frames_sealed_max + 1) * (frame_bytes + 4096) + SUMMARY_BYTES_MAX;
            let config = self.shard_config(setting, shard, topology, is_new);
            let budget = Budget {
                cache_bytes_max: setting.cache_bytes,
                memory_bytes_max: usize::MAX,
                cells_bytes_min: Budget::cells_bytes_min(setting.value_bytes + 8 * LIST_MAX),
            };
            let survey = &inventory.survey;
            let segments = survey.logs.get(&log.log_id).map_or(&[][..], Vec::as_slice);
            let alone = replay_all(&files, segments, self.hash_seed, budget);
            let opened = open_shard(
                &mut files,
                &inventory,
                config,
                log,
                segment_bytes,
                budget,
                Pool::new(pool_bytes + setting.read_bytes),
            )?;
            if let Some((name, _)) = opened.snapshot {
                started.has_snapshot = true;
                let (shard, recovered) = (&opened.shard, &opened.recovered);
                if let Err(difference) = compare_starts(alone, shard, recovered, &mut files) {
                    return Ok(Err(format!("with {name} a start differs: {difference}")));
                }
            }
            cores.push(Core {
                shard: opened.shard,
                outbox: Outbox::default(),
                turn_us: None,
                mail_us: vec![0; usize::from(self.shards)],
                is_stopped: false,
            });
        }
        let left = inventory.left;
        let rotten = prove_spares(&mut files, &left).map_err(OpeningError::Recovery)?;
        assert!(rotten.is_empty(), "nothing lets spares rot here");
        for &(file, _) in &left.superfluous {
            let action = "remove a spare segment that is not needed";
            files
                .remove(file)
                .map_err(|error| OpeningError::System { action, error })?;
        }
        for (place, (file, bytes)) in left.spares.into_iter().enumerate() {
            let core = place % cores.len();
            let Core { shard, outbox, .. } = &mut cores[core];
            let spare = ShardEvent::Spare {
                file,
                salt: self.random.bits(),
                bytes,
                is_reused: false,
            };
            shard.step(now, spare, outbox);
        }
        self.run += 1;
        self.was_started = true;
        self.cores = Some(cores);
        Ok(Ok(started))
    }

    fn shard_config(
        &self,
        setting: &Setting,
        shard: u16,
        topology: Topology,
        is_new: bool,
    ) -> ShardConfig {
        let limits = Limits {
            frame_bytes_max: 1 << 20,
            value_bytes_max: u32::try_from(value_bytes_max(setting)).expect("small values"),
        };
        let hello = ServerHello {
            protocol: 1,
            shard,
            shard_count: self.shards,
            auth_methods: AUTH_NONE,
            cluster_id: CLUSTER_ID,
            node_id: self.node_id,
            incarnation: self.incarnation,
            features: 0,
            nonce: [0; 32],
            limits,
            time_ms: 0,
            interval_ms: 1,
            slots: topology.ranges(|shard| 7000 + shard),
            placement: None,
        };
        ShardConfig {
            shard,
            topology,
            hello,
            level_min: AckLevel::None,
            output_bytes_max: 64 << 10,
            token_horizon_ms: self.token_horizon_ms,
            shared_bytes_min: 1,
            partial_frame_us_max: 60_000_000,
            write_stall_us_max: 60_000_000,
            idle_us_max: 0,
            replies_bytes_max: 64 << 20,
            input_bytes_max: 64 << 20,
            parked_bytes_max: 1 << 20,
            mailed_items_max: 1_024,
            memory_max: 0,
            hash_seed: self.hash_seed,
            takes_several_shards: false,
            cluster: Some(ClusterConfig {
                links: LinkSetConfig {
                    me: self.introduction(setting, shard),
                    ring_bytes_max: setting.ring_bytes_max,
                    backlog_bytes_max: setting.backlog_bytes_max,
                    catch_up_bytes_per_s: setting.catch_up_bytes_per_s,
                    pending_bytes_max: setting.pending_bytes_max,
                },
                plan: Arc::clone(&self.plan),
                leases: Arc::clone(&self.leases),
                offers: Arc::clone(&self.offers),
                replica_timeout_us: REPLICA_TIMEOUT_US,
                is_new,
            }),
            snapshots: SnapshotPolicy {
                log_bytes: setting.snapshot_bytes,
                stop_us_max: setting.stop_us_max,
            },
            cleaning: CleaningConfig {
                space_percent_max: setting.space_percent_max,
                bytes_per_s: setting.cleaning_bytes_per_s,
                log_bytes_max: 0,
            },
        }
    }

    /// Loses the disk with all its data. The next start is another node.
    pub(super) fn wipe(&mut self, salt: u64) {
        self.node_id = [self.number.wrapping_add(100); 16];
        self.incarnation = 0;
        self.hash_seed = salt;
        self.was_wiped = true;
        self.layout = Layout::new(self.shards);
        self.wanted_shards = self.shards;
        self.kept.clear();
        self.lostfound.clear();
        self.disk = Rc::new(RefCell::new(new_disk(Random::new(salt, 1))));
    }

    /// Copies its directory, while nothing runs in it.
    pub(super) fn copy(&mut self) {
        self.older = Some(Older {
            disk: self.disk.borrow().copy(),
            incarnation: self.incarnation,
            layout: self.layout.clone(),
        });
    }

    /// Puts that copy in its place, if there is one and another start has had the directory since.
    pub(super) fn go_back(&mut self) -> bool {
        let is_older = |it: &mut Older| it.incarnation < self.incarnation;
        let Some(older) = self.older.take_if(is_older) else {
            return false;
        };
        self.disk = Rc::new(RefCell::new(older.disk));
        self.incarnation = older.incarnation;
        self.shards = older.layout.shards;
        self.wanted_shards = self.shards;
        self.layout = older.layout;
        true
    }

    /// One more shard needs nothing of what it inherits. Whether none does any more.
    pub(super) fn takes_over(&mut self) -> bool {
        self.taken_over += 1;
        self.taken_over == usize::from(self.shards)
    }

    /// The inherited logs are void from now on: their files.
    pub(super) fn void_inherited(&mut self) -> Vec<FileId> {
        let logs = std::mem::take(&mut self.layout.inherited);
        let disk = self.disk.borrow();
        let is_of = |image: &[u8]| {
            let header = damage::header_of(image);
            header.is_some_and(|header| logs.iter().any(|log| log.log_id == header.log_id))
        };
        let images = disk.images().filter(|(_, image)| is_of(image));
        images.map(|(file, _)| file).collect()
    }

    /// What its leases and its shards tell each other.
    pub(super) fn leases(&self) -> Arc<LeaseTable> {
        Arc::clone(&self.leases)
    }

    /// It goes by this plan from now on.
    pub(super) fn read_plan(&mut self, plan: Arc<Plan>, now_us: u64) {
        if self.lacks_some() {
            self.lacked_us = now_us;
        }
        self.plan = plan;
    }

    /// Whether its plan has not named it for some partition at some time since then.
    pub(super) fn has_lacked(&self, since_us: u64) -> bool {
        self.lacks_some() || self.lacked_us > 0 && self.lacked_us >= since_us
    }

    fn lacks_some(&self) -> bool {
        let is_there = |number: u8| self.plan.clients.iter().any(|&(it, _)| it == number);
        let mut written = self
            .plan
            .partitions
            .iter()
            .filter(|it| is_there(it.primary));
        written.any(|it| {
            let mut members = it.members.iter();
            it.primary != self.number && members.all(|&(member, _)| member != self.number)
        })
    }

    /// What it is to a partition, while it runs.
    pub(super) fn partition(&self, partition: u16) -> Option<PartitionStatus> {
        let mut cores = self.cores.iter().flatten();
        cores.find_map(|core| core.shard.execution().partition(partition))
    }

    /// The last version of a partition in its log, while it runs.
    pub(super) fn last_version(&self, partition: u16) -> Option<Version> {
        let mut cores = self.cores.iter().flatten();
        let core = cores.find(|core| core.shard.execution().partition(partition).is_some())?;
        Some(
            core.shard
                .store()
                .log()
                .history()
                .last(usize::from(partition)),
        )
    }

    /// Makes the key table of a segment.
    pub(super) fn make_key_table(&mut self, home: &TableHome) -> Option<KeyTable> {
        let home_of = Shard::<Pool>::home_of(self.hash_seed);
        let mut disk = self.disk.borrow_mut();
        disk.make_key_table(home, &home_of, 1 << 20)
    }

    /// What a shard handed out to be kept is durable.
    pub(super) fn sync_found(&mut self, shard: usize) {
        let of_shard = self.kept.extract_if(.., |(of, ..)| *of == shard);
        self.lostfound.extend(of_shard.map(|(_, _, record)| record));
    }

    /// What was kept of diverged records, on the disk or about to be.
    pub(super) fn found(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let kept = self.kept.iter().map(|(_, _, record)| record);
        self.lostfound.iter().chain(kept).cloned()
    }

    /// Holds tokens that are there for certain, each with its slot, against the running node.
    pub(super) fn judge_tokens(&self, tokens: &[(u16, Token)]) -> Result<(), String> {
        let topology = Topology::new(self.shards);
        let disk = self.disk.borrow();
        let home_of = Shard::<Pool>::home_of(self.hash_seed);
        for (shard, core) in self.cores.iter().flatten().enumerate() {
            let tokens = tokens.iter().copied();
            let owned = tokens.filter(|&(slot, _)| usize::from(topology.owner(slot)) == shard);
            judge_border((core.shard.store(), &disk), &home_of, owned)
                .map_err(|wrong| format!("at node {} {wrong}", self.number))?;
        }
        Ok(())
    }

    /// The slot and hash of a key.
    pub(super) fn home_of(&self, key: &[u8]) -> KeyHome {
        Shard::<Pool>::home_of(self.hash_seed)(key)
    }

    /// The store of the running node that has the keys of a slot.
    fn store_of(&self, slot: u16) -> &Store<Pool> {
        let owner = usize::from(Topology::new(self.shards).owner(slot));
        self.cores.as_ref().expect("it runs")[owner].shard.store()
    }

    /// The version behind which the running node keeps those of a key, if it keeps any.
    pub(super) fn keeps_since(&self, key: &[u8]) -> Option<Version> {
        let slot = self.home_of(key).slot;
        let rule = self.store_of(slot).keyspaces().rule(slot, key);
        rule.map(|rule| rule.since.version)
    }

    /// What the running node knows of a key as it was, if its newest version is in memory, or there
    /// is none.
    pub(super) fn was_at(&self, key: &[u8], at: At) -> Option<WasAt> {
        let KeyHome { slot, hash } = self.home_of(key);
        let store = self.store_of(slot);
        let current = match store.keys().find(slot, hash, key) {
            Found::Cached(id) => Some(id),
            Found::Absent => None,
            Found::Cold(_) => return None,
        };
        Some(store.version_at(KeyHome { slot, hash }, key, current, at))
    }

    /// The value that stands there on the disk, if it has this key and version.
    pub(super) fn value_at(
        &self,
        key: &[u8],
        version: Version,
        place: Place,
    ) -> Result<Option<Vec<u8>>, String> {
        let disk = self.disk.borrow();
        let image = disk.image(place.file).ok_or("a version's file is gone")?;
        let start = usize::try_from(place.offset).expect("small files");
        let part = PartView::read(&image[start..]).map_err(|_| "a version cannot be read")?;
        let is_it = part.key() == key && part.version() == version;
        Ok(is_it.then(|| part.value().to_vec()))
    }

    /// The version and value of a key in the store of the running node, read from the disk if the
    /// cache lacks them. None for a key that has expired by then.
    pub(super) fn read(
        &self,
        key: &[u8],
        now_ms: u64,
    ) -> Result<Option<(Version, Vec<u8>)>, String> {
        let is_over = |expiry_ms: Option<u64>| expiry_ms.is_some_and(|at_ms| at_ms <= now_ms);
        let KeyHome { slot, hash } = Shard::<Pool>::home_of(self.hash_seed)(key);
        let owner = usize::from(Topology::new(self.shards).owner(slot));
        let core = &self.cores.as_ref().expect("it runs")[owner];
        let store = core.shard.store();
        let place = match store.keys().find(slot, hash, key) {
            Found::Absent => return Ok(None),
            Found::Cached(id) => {
                let cell = store.keys().cell(id);
                let value = cell.value().to_vec();
                return Ok((store.data().exists(id) && !is_over(cell.expiry_ms()))
                    .then(|| (store.keys().version(id), value)));
            }
            Found::Cold(place) => place,
        };
        let disk = self.disk.borrow();
        let image = disk.image(place.file).ok_or("a key's file is gone")?;
        let start = usize::try_from(place.offset).expect("small files");
        let part = PartView::read(&image[start..]).map_err(|_| "a key's part cannot be read")?;
        if part.key() != key || part.kind() == PartKind::Tombstone || is_over(part.expiry_ms()) {
            return Ok(None);
        }
        Ok(Some((part.version(), part.value().to_vec())))
    }
}

/// Entries of a list, at most.
pub(super) const LIST_MAX: usize = 40;

/// The largest value: a list with its padding.
pub(super) fn value_bytes_max(setting: &Setting) -> usize {
    8 + 8 * LIST_MAX + setting.value_bytes
}

fn record_bytes_max(setting: &Setting) -> usize {
    2 * part_bytes(1024, value_bytes_max(setting), true, 0)
}

fn new_disk(random: Random) -> Disk {
    Disk::new(random, Rc::new(RefCell::new(Coverage::default())))
}
