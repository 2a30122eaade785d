//! What a seed decides before anything runs: the machine, the traffic, the faults.

use std::collections::BTreeMap;

use penstock_net::level::AckLevel;
use penstock_net::request::Expiry;
use penstock_net::slot::slot_of;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::log::SyncMethod;

use crate::disk::DiskFaults;
use crate::operation::Operation;
use crate::random::Random;

/// Numbered seeds of nodes below are from before there was APPLY, and send none.
const APPLIES_FROM: u64 = 300_000_000;
/// Those below are from before there were tokens, and have none.
const TOKENS_FROM: u64 = 500_000_000;
/// Those below are from before keys had effects that run when they expire, and have none.
const HOLDS_FROM: u64 = 600_000_000;

/// Those below are from before clients ran transactions, and have none.
const TRANSACTIONS_FROM: u64 = 700_000_000;

/// Those below are from before shards were told what their logs may have of a small disk.
const ROOM_FROM: u64 = 800_000_000;

/// Units that a missing counter is made with are at least this many, and no others are.
const MADE_FROM: u64 = 1 << 40;

/// What must be survived, and what may only be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Crashes, errors and full disks: nothing acknowledged may be lost, every start succeeds.
    Survivable,
    /// Also damage that no crash explains: it must be refused or answered as an error, never
    /// served.
    Detectable,
}

/// Something that is done to the node when so many operations have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// kill -9.
    Kill,
    /// The power goes.
    PowerCut,
    /// SIGTERM.
    CleanStop,
    /// The process sleeps for this long, in microseconds.
    Pause(u64),
    /// The wall clock moves by so many milliseconds.
    ClockJump(i64),
    /// No segment can be made for so many microseconds.
    NoSpace(u64),
    /// A connection is cut at both ends.
    Cut,
    /// A client gives a connection up, and the server does not hear of it.
    HalfOpen,
    /// A client stops reading for so many microseconds.
    SlowReader(u64),
    /// A client that speaks no protocol.
    Hostile,
}

/// A key: name, slot, counter, strict.
type KeyPlan = (Vec<u8>, u16, bool, bool);

/// What segment files may have of the disk.
#[derive(Clone, Copy, Debug)]
pub struct FilesPlan {
    /// Files that it has room for; 0 for any number.
    pub most: usize,
    /// Shards are told what their logs may have of it.
    pub are_given: bool,
}

/// One simulated run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What must be survived.
    pub budget: Budget,
    /// There are thousands of keys, and all are set first.
    pub is_wide: bool,
    /// Shards of the node.
    pub shards: u16,
    /// Clients.
    pub clients: usize,
    /// Operations in all, before the last look.
    pub operations: usize,
    /// Keys: name, slot, counter, strict.
    pub keys: Vec<KeyPlan>,
    /// For each key whether it may get an expiry.
    pub expiring: Vec<bool>,
    /// Counters of one slot that APPLYs are about; none if a run has no APPLYs.
    pub groups: Vec<Vec<usize>>,
    /// Clients send writes with tokens.
    pub has_tokens: bool,
    /// Clients buy holds that give their units back when they expire.
    pub has_holds: bool,
    /// Clients run transactions.
    pub has_transactions: bool,
    /// Bytes of a value, at most.
    pub value_bytes_max: usize,
    /// Bytes of a frame block.
    pub frame_bytes: usize,
    /// Frames in flight.
    pub frames_in_flight_max: usize,
    /// Sealed frames that wait.
    pub frames_sealed_max: usize,
    /// How frames are made durable.
    pub sync: SyncMethod,
    /// Interval of level interval, in microseconds.
    pub interval_us: u64,
    /// Idleness before a mark, in microseconds.
    pub idle_mark_us: u64,
    /// Bytes of a segment beyond the least that is possible.
    pub segment_bytes_more: u64,
    /// Segments begin short and grow with the log.
    pub grows_segments: bool,
    /// When and how fast to clean.
    pub cleaning: CleaningConfig,
    /// Bytes of new log after which a shard takes a snapshot; 0 for none.
    pub snapshot_bytes: u64,
    /// Parts of a million of starts that ask for another number of shards.
    pub reshards: u32,
    /// Parts of a million of starts that ask for another limit of values, at most
    /// `value_bytes_max`.
    pub limits: u32,
    /// What segment files may have of the disk.
    pub segment_files: FilesPlan,
    /// Bytes of the value cache of each shard.
    pub cache_bytes: usize,
    /// Bytes of index and values of each shard, at most.
    pub memory_bytes_max: usize,
    /// Bytes of memory for the device of each shard.
    pub pool_bytes: usize,
    /// The least level of the server.
    pub level_min: AckLevel,
    /// Bytes of replies that a shard holds, at which it takes no more requests.
    pub replies_bytes_max: usize,
    /// Items between two shards, at most.
    pub mailed_items_max: usize,
    /// The levels that clients ask for.
    pub levels: &'static [AckLevel],
    /// Items of a batch, at most.
    pub batch_max: usize,
    /// Batches of a client on their way, at most.
    pub depth_max: usize,
    /// What a client waits between batches, typically, in microseconds.
    pub think_us: u64,
    /// What the network takes, typically, in microseconds.
    pub network_us: u64,
    /// Parts of a million of deliveries that take a thousand times longer.
    pub slow_network: u32,
    /// Parts of a million of batches that carry a short deadline.
    pub deadlines: u32,
    /// Zipf-like skew: the share of the first keys, in parts of a million.
    pub hot: u32,
    /// What a write and a read take, typically, in microseconds.
    pub disk_us: (u64, u64),
    /// Faults of the disk.
    pub disk: DiskFaults,
    /// Parts of a million of starts that end in a power cut soon after.
    pub early_crashes: u32,
    /// Parts of a million of starts that are cut off, or meet a read error.
    pub bad_starts: u32,
    /// Parts of a million of segments whose first frames meet a power cut on their way.
    pub first_frame_crashes: u32,
    /// Whether clients set a keyspace that keeps versions, and read the past of its keys.
    pub keeps_versions: bool,
    /// Sealed segments are looked through within this; never if it is 0.
    pub scrub_us: u64,
    /// What happens when, by operations sent, ascending.
    pub blows: Vec<(usize, Blow)>,
}

/// What the keys of the keyspace that keeps versions begin with, if there is one.
pub const KEYSPACE: &[u8] = b"{t";

/// What some of those begin with: a keyspace of its own, which comes and goes.
pub const LONGER: &[u8] = b"{t1";

/// What clients ask for; now and then nobody ever waits for the disk.
const LEVELS: &[&[AckLevel]] = &[
    &[
        AckLevel::Disk,
        AckLevel::Disk,
        AckLevel::Disk,
        AckLevel::Interval,
        AckLevel::None,
    ],
    &[AckLevel::Disk, AckLevel::Disk, AckLevel::Interval],
    &[AckLevel::Disk],
    &[AckLevel::Disk, AckLevel::None],
    &[AckLevel::None, AckLevel::Interval],
];

/// In clusters of these seeds nodes decide by themselves, and clients ask for level `all`. The odd
/// ones send all kinds of writes, the even ones lists alone.
pub const ALL_SEEDS: std::ops::Range<u64> = 1_210_000_000..1_310_000_000;

/// Whether a seed sends a kind of writes: numbered seeds do from `first` on, and those that a clock
/// gives from `clock_from` on.
fn sends(seed: u64, first: u64, clock_from: u64) -> bool {
    let is_numbered = (first..1_000_000_000).contains(&seed);
    is_numbered || ALL_SEEDS.contains(&seed) && seed % 2 == 1 || seed >= clock_from
}

/// Whether a seed may send writes with tokens: numbered seeds do from `first` on, and those that a
/// clock gives since there are holds.
pub(crate) fn sends_tokens(seed: u64, first: u64) -> bool {
    sends(seed, first, 1_882_970_000_000_000)
}

/// Whether a seed may send holds: numbered seeds do from `first` on, and those that a clock gives
/// since there are holds.
pub(crate) fn sends_holds(seed: u64, first: u64) -> bool {
    sends(seed, first, 1_882_970_000_000_000)
}

/// One to three tags that begin with a name, for keys of a few slots. Two places with one tag would
/// be one, and what happens there would be counted together.
pub(crate) fn distinct_tags(random: &mut Random, name: &str) -> Vec<String> {
    let count = random.within(1, 3);
    let mut tags: Vec<String> = Vec::new();
    for _ in 0..count {
        let tag = format!("{{{name}{}}}", random.below(10_000));
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

/// Whether a seed may send rushes, which are batches of equal changes: numbered seeds do from
/// `first` on, and those that a clock gives since there are rushes.
pub(crate) fn sends_rushes(seed: u64, first: u64) -> bool {
    sends(seed, first, 1_882_994_000_000_000)
}

/// In these seeds clients of Redis visit nodes, beside those of the native protocol.
pub const VISITED_SEEDS: std::ops::Range<u64> = 1_310_000_000..1_410_000_000;

/// Whether clients of Redis visit a node: in numbered seeds of their own.
pub(crate) fn has_visits(seed: u64) -> bool {
    VISITED_SEEDS.contains(&seed)
}

/// Whether a visited node has keepers of shelves: a quarter of the seeds, so that the others stay
/// the runs that they were.
pub(crate) fn has_shelves(seed: u64) -> bool {
    has_visits(seed) && (4..6).contains(&(seed % 8))
}

/// Whether shards may be told what their logs may have of the disk: those of numbered seeds from
/// [`ROOM_FROM`] on are, and those of seeds that a clock gives since then.
fn has_room_given(seed: u64) -> bool {
    (ROOM_FROM..1_000_000_000).contains(&seed) || seed >= 1_883_251_000_000_000
}

/// Whether a seed may send APPLYs: numbered seeds do from `first` on, and those that a clock gives
/// since there is APPLY. Stored seeds of before keep their draws.
pub(crate) fn sends_applies(seed: u64, first: u64) -> bool {
    sends(seed, first, 1_882_900_000_000_000)
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed, 1);
        let budget = match random.chance(250_000) {
            true => Budget::Detectable,
            false => Budget::Survivable,
        };
        let mut shards = random.pick(&[2, 2, 2, 3, 4]);
        let operations = usize::try_from(random.within(5_000, 5_400)).expect("few");
        let value_bytes_max = random.pick(&[256, 1024, 3000]);
        let expiring_keys = random.pick(&[0, 300_000, 300_000, 700_000]);
        let is_wide = random.chance(30_000);
        let (mut keys, mut expiring) = Self::keys(random, is_wide, expiring_keys);
        let groups = match sends_applies(seed, APPLIES_FROM) || has_visits(seed) {
            true => Self::groups(&mut Random::new(seed, 17), &mut keys, &mut expiring),
            false => Vec::new(),
        };
        let disk = Self::disk_faults(random, budget);
        let blows = Self::blows(random, operations);
        let mut batch_max = random.pick(&[1, 4, 16, 48]);
        if is_wide {
            // Every key is set first, so that the tables of the index grow with most keys cold.
            (shards, batch_max) = (2, 48);
        }
        Plan {
            budget,
            is_wide,
            shards,
            clients: random.index(9) + 8,
            operations,
            keys,
            expiring,
            groups,
            has_tokens: sends_tokens(seed, TOKENS_FROM) || has_visits(seed),
            has_holds: sends_holds(seed, HOLDS_FROM),
            has_transactions: sends_tokens(seed, TRANSACTIONS_FROM),
            value_bytes_max,
            frame_bytes: random.pick(&[4096, 8192, 16_384]),
            frames_in_flight_max: random.pick(&[1, 1, 2, 3, 4]),
            frames_sealed_max: random.pick(&[2, 4, 8]),
            sync: random.pick(&[SyncMethod::DurableWrite, SyncMethod::WriteThenSync]),
            interval_us: random.pick(&[1_000, 5_000, 20_000, 100_000]),
            idle_mark_us: random.pick(&[500, 2_000, 5_000]),
            segment_bytes_more: random.pick(&[0, 4096, 65_536, 262_144]),
            grows_segments: Random::new(seed, 30).chance(400_000),
            cleaning: CleaningConfig {
                space_percent_max: random.pick(&[101, 110, 130, 140, 200]),
                bytes_per_s: random.pick(&[4_096, 1 << 20, 32 << 20]),
                log_bytes_max: 0,
            },
            snapshot_bytes: Random::new(seed, 6).pick(&[0, 4 << 10, 16 << 10, 64 << 10, 1 << 20]),
            reshards: Random::new(seed, 10).pick(&[0, 0, 300_000, 800_000]),
            replies_bytes_max: Random::new(seed, 13).pick(&[500, 4_000, 32_000, 1 << 20]),
            limits: Random::new(seed, 11).pick(&[0, 0, 300_000, 800_000]),
            segment_files: FilesPlan {
                most: random.pick(&[0, 0, 0, 5, 8, 14]) * usize::from(shards),
                are_given: has_room_given(seed) && Random::new(seed, 122).chance(800_000),
            },
            cache_bytes: random.pick(&[0, 2_000, 8_000, 32_000, 1 << 20]),
            // Index without keys and what is kept for values, and room for some keys more.
            memory_bytes_max: match random.chance(150_000) {
                true => (2 << 20 | 524_400) * 8 / 7 + random.index(6_000),
                false => usize::MAX,
            },
            pool_bytes: random.pick(&[0, 16 << 10, 192 << 10, 4 << 20]),
            level_min: random.pick(&[
                AckLevel::None,
                AckLevel::None,
                AckLevel::Interval,
                AckLevel::Disk,
            ]),
            mailed_items_max: random.pick(&[4, 64, 65_536]),
            levels: random.pick(LEVELS),
            batch_max,
            depth_max: random.pick(&[1, 2, 4, 8]),
            think_us: random.pick(&[0, 100, 1_000, 20_000]),
            network_us: random.pick(&[10, 50, 200, 2_000]),
            slow_network: random.pick(&[0, 0, 2_000, 20_000]),
            deadlines: random.pick(&[0, 50_000, 400_000]),
            hot: random.pick(&[100_000, 400_000, 700_000]),
            disk_us: random.pick(&[(90, 70), (90, 70), (1_500, 70), (90, 1_500)]),
            disk,
            early_crashes: random.pick(&[0, 0, 300_000]),
            bad_starts: 300_000,
            first_frame_crashes: random.pick(&[0, 0, 40_000]),
            scrub_us: random.pick(&[0, 1_000_000, 20_000_000]),
            // Drawn apart, so that the other runs stay as they were.
            keeps_versions: !is_wide && Random::new(seed, 6).chance(400_000),
            blows,
        }
    }

    /// The keys of all operations but APPLY, and which of them may get an expiry.
    fn keys(random: &mut Random, is_wide: bool, expiring_keys: u32) -> (Vec<KeyPlan>, Vec<bool>) {
        let (mut keys, mut expiring) = (Vec::new(), Vec::new());
        let count = match is_wide {
            true => random.within(2_000, 3_000),
            false => random.within(12, 60),
        };
        for number in 0..count {
            // A tag shared by two, so that moves have pairs.
            let name = match random.below(3) {
                0 => format!("k{number}"),
                _ => format!("{{t{}}}:{number}", number / 4),
            }
            .into_bytes();
            let mut name = name;
            if random.chance(50_000) {
                let len = random.index(300);
                name.resize(name.len() + len, b'x');
            }
            let slot = slot_of(&name);
            keys.push((name, slot, random.chance(700_000), random.chance(400_000)));
            expiring.push(random.chance(expiring_keys));
        }
        (keys, expiring)
    }

    /// Adds keys for APPLYs, and tells which keys one APPLY may be about.
    fn groups(
        random: &mut Random,
        keys: &mut Vec<KeyPlan>,
        expiring: &mut Vec<bool>,
    ) -> Vec<Vec<usize>> {
        let expiring_keys = random.pick(&[0, 200_000, 500_000]);
        for group in 0..random.within(1, 3) {
            for number in 0..random.pick(&[2, 3, 5, 8]) {
                let name = format!("{{t{}}}:{number}", 8_000 + group).into_bytes();
                let slot = slot_of(&name);
                keys.push((name, slot, true, false));
                expiring.push(random.chance(expiring_keys));
            }
        }
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (number, &(_, slot, is_counter, is_strict)) in keys.iter().enumerate() {
            if is_counter && !is_strict {
                by_slot.entry(slot).or_default().push(number);
            }
        }
        let groups = by_slot.into_values();
        groups.filter(|group| group.len() > 1).collect()
    }

    fn disk_faults(random: &mut Random, budget: Budget) -> DiskFaults {
        let rate = |random: &mut Random, often: u32| random.pick(&[0, 0, 0, often]);
        let mut faults = DiskFaults {
            write_error: rate(random, 700),
            short_write: rate(random, 500),
            sync_error: rate(random, 700),
            read_error: rate(random, 10_000),
            bad_read: rate(random, 10_000),
            is_passing: random.chance(600_000),
            stall: rate(random, 1_500),
            ..DiskFaults::default()
        };
        if !faults.is_passing {
            // What is read again fails again so often that a client is told.
            faults.read_error *= 6;
            faults.bad_read *= 6;
        }
        if budget == Budget::Detectable {
            match random.below(4) {
                0 => faults.lost_write = 1_000,
                1 => faults.misdirected_write = 1_000,
                2 => faults.lying_flush = 4_000,
                _ => {}
            }
        }
        faults
    }

    fn blows(random: &mut Random, operations: usize) -> Vec<(usize, Blow)> {
        let mut blows = Vec::new();
        let mut add =
            |random: &mut Random, most: u64, least: u64, make: &dyn Fn(&mut Random) -> Blow| {
                for _ in 0..random.within(least, most) {
                    let blow = make(random);
                    blows.push((random.index(operations - operations / 10), blow));
                }
            };
        let crash = |random: &mut Random| match random.below(5) {
            0 => Blow::Kill,
            1 => Blow::CleanStop,
            _ => Blow::PowerCut,
        };
        add(random, 6, 1, &crash);
        add(random, 2, 0, &|random| match random.below(8) {
            0 => Blow::Pause(random.within(1_000_000, 600_000_000)),
            _ => Blow::Pause(random.within(1_000, 1_000_000)),
        });
        add(random, 2, 0, &|random| {
            Blow::ClockJump(
                i64::try_from(random.below(172_800_000)).expect("two days") - 86_400_000,
            )
        });
        add(random, 1, 0, &|random| {
            Blow::NoSpace(random.within(100_000, 5_000_000))
        });
        add(random, 4, 0, &|_| Blow::Cut);
        add(random, 3, 0, &|_| Blow::HalfOpen);
        add(random, 2, 0, &|random| {
            Blow::SlowReader(random.within(1_000, 8_000_000))
        });
        add(random, 2, 0, &|_| Blow::Hostile);
        blows.sort_by_key(|&(at, _)| at);
        blows
    }

    /// A key, the first ones more often than the others.
    pub fn key(&self, random: &mut Random) -> usize {
        if random.chance(self.hot) {
            random.index(3)
        } else {
            random.index(self.keys.len())
        }
    }

    /// What to do with a key.
    pub fn operation(&self, random: &mut Random, is_counter: bool) -> Operation {
        loop {
            let all = Operation::ALL.iter();
            let total: u64 = all.clone().map(|it| it.weight()).sum();
            let mut left = random.below(total);
            let picked = *all
                .clone()
                .find(|it| match left.checked_sub(it.weight()) {
                    Some(rest) => {
                        left = rest;
                        false
                    }
                    None => true,
                })
                .expect("below the total");
            if is_counter || !picked.needs_counter() {
                return picked;
            }
        }
    }

    /// The expiry that an operation gives its key, which gets one only if `can_expire`, at this
    /// time of its shard; `None` if the operation cannot change it.
    pub fn expiry(
        random: &mut Random,
        operation: Operation,
        can_expire: bool,
        time_ms: u64,
    ) -> Option<Expiry> {
        let lifetime_ms = random.pick(&[1, 5, 20, 100, 500, 100_000]);
        let given = match random.below(3) {
            0 => Expiry::At(time_ms.saturating_sub(20).max(1) + lifetime_ms),
            _ => Expiry::In(lifetime_ms),
        };
        let is_given = can_expire && random.chance(500_000);
        match operation {
            Operation::Expire => can_expire.then_some(given),
            Operation::Persist => can_expire.then_some(Expiry::Never),
            Operation::Set
            | Operation::SetAbsent
            | Operation::SetPresent
            | Operation::SetVersion => match random.below(4) {
                0 if can_expire => Some(Expiry::Keep),
                _ if is_given => Some(given),
                _ => Some(Expiry::Never),
            },
            Operation::TakeOrMake | Operation::TakeAndFail if is_given => Some(given),
            Operation::Take if is_given && random.chance(300_000) => Some(given),
            _ => Some(Expiry::Keep),
        }
    }

    /// What the keyspace is set to: superseded versions, and milliseconds for which they are kept.
    pub fn keyspace(random: &mut Random) -> (u8, u64) {
        random.pick(&[
            (1, 0),
            (5, 0),
            (5, 0),
            (40, 0),
            (255, 0),
            (3, 2_000),
            (0, 500),
            (0, 60_000),
        ])
    }

    /// Units that the counter made by operation `number` begins with, if it is made by one that
    /// takes at once.
    #[must_use]
    pub fn made_stock(number: usize) -> u64 {
        MADE_FROM + number as u64 * (1 << 20)
    }
}
