//! Scans of a shard that makes key tables, while keys come, change and go, segments are cleaned,
//! the server starts again, and tables rot, get lost and come to stand beside other segments: what
//! is told is what a model holds, and a whole scan costs about the blocks of the tables.

use std::collections::{BTreeMap, HashMap};

use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::status::Status;
use penstock_shard::{KeyTableCounters, KeyTableOrder, Shard};
use penstock_storage::budget::Budget;
use penstock_storage::key_table::{KeyTable, TableHome};
use penstock_storage::layout::Layout;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;

use crate::heap::Heap;
use crate::image::Image;
use crate::inherited::begin_generation;
use crate::random::Random;
use crate::scan::key;
use crate::server::{Server, Snapshots, log_config};

/// Of the cache: most keys are cold.
const CACHE_BYTES: usize = 2_500;
/// Little, so that a table takes several passes.
const SORT_BYTES_MAX: usize = 3_000;

/// Makes the key table of a segment, if it can be made.
pub fn make(image: &mut Image, home: &TableHome, hash_seed: u64) -> Option<KeyTable> {
    let home_of = Shard::<Heap>::home_of(hash_seed);
    let mut file = Vec::new();
    let write = &mut |offset: u64, bytes: &[u8]| {
        let offset = usize::try_from(offset).expect("small files");
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    };
    let table = KeyTable::build(home, image, &home_of, SORT_BYTES_MAX, write).ok()?;
    image.files.insert(home.file.key_table(), file);
    Some(table)
}

/// Segments for which an earlier run has left tables, with the bytes of each table.
pub fn found(image: &Image) -> HashMap<FileId, u64> {
    let files = image.files.iter();
    let tables = files.filter_map(|(file, bytes)| Some((file.segment_of_table()?, bytes)));
    tables
        .map(|(file, bytes)| (file, bytes.len() as u64))
        .collect()
}

/// Reads what an earlier run has left of a segment's table.
pub fn load(image: &Image, home: &TableHome) -> Option<KeyTable> {
    let file = image.files.get(&home.file.key_table())?;
    let read = &mut |offset: u64, into: &mut [u8]| {
        let start = usize::try_from(offset).map_or(file.len(), |at| at.min(file.len()));
        let len = into.len().min(file.len() - start);
        into[..len].copy_from_slice(&file[start..start + len]);
        Ok(len)
    };
    KeyTable::load(home, file.len() as u64, read).ok()
}

struct Shop {
    server: Server,
    asked: usize,
    incarnation: u64,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Shop {
    fn new() -> Shop {
        Shop {
            server: opened(Layout::new(1), Image::default(), 1),
            asked: 0,
            incarnation: 1,
            model: BTreeMap::new(),
        }
    }

    /// With `keys` in memory nowhere.
    fn filled(keys: usize) -> Shop {
        let mut shop = Shop::new();
        for number in 0..keys {
            shop.set(&key(number), &[7; 200]);
        }
        shop.restart(|_| {});
        shop
    }

    fn restart(&mut self, spoil: impl FnOnce(&mut Image)) {
        self.incarnation += 1;
        let mut image = self.server.device.image.clone();
        spoil(&mut image);
        self.server = opened(self.server.layout.clone(), image, self.incarnation);
        self.server.settle();
    }

    /// Starts with a new log, and has no room to take over what the old one held.
    fn inherit(&mut self) {
        self.incarnation += 2;
        let mut image = self.server.device.image.clone();
        let layout = begin_generation(&mut image, &self.server.layout, self.incarnation - 1);
        self.server = opened(layout, image, self.incarnation);
        self.server.is_full = true;
        self.server.settle();
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.asked += 1;
        self.server.set(self.asked, key, value);
        self.answered();
        self.model.insert(key.to_vec(), value.to_vec());
    }

    fn delete(&mut self, key: &[u8]) {
        self.asked += 1;
        self.server.delete(self.asked, key);
        self.answered();
        self.model.remove(key);
    }

    fn answered(&mut self) -> Vec<u8> {
        self.server.settle();
        let reply = self.server.replies.remove(&self.asked).expect("a reply");
        assert_eq!(reply.status, Status::Ok);
        reply.value
    }

    /// All keys with `prefix`, and their values if they are asked for.
    fn scan(&mut self, prefix: &[u8], wants_values: bool) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let mut shown = BTreeMap::new();
        let mut cursor = 0;
        loop {
            self.asked += 1;
            let request = ScanRequest {
                cursor,
                prefix,
                entries_max: 1024,
                bytes_max: 64 << 10,
                wants_values,
                wants_types: false,
            };
            self.server.send(self.asked, |batch, out| {
                let mut item = Vec::new();
                request.write(&mut item);
                batch.raw(out, &item);
            });
            let page = self.answered();
            let page = ScanPage::read(&page).expect("a page");
            for entry in page.entries() {
                let value = match entry.value {
                    ScanValue::Bytes(value) => Some(value.to_vec()),
                    ScanValue::NotAsked => None,
                    ScanValue::LeftOut | ScanValue::Type(_) => panic!("all values are short"),
                };
                let before = shown.insert(entry.key.to_vec(), value);
                assert!(before.is_none(), "{:?} is told twice", entry.key);
            }
            cursor = page.cursor;
            if cursor == 0 {
                return shown;
            }
        }
    }

    /// Scans, and holds what is told against the model.
    fn judge(&mut self, prefix: &[u8], wants_values: bool, seed: u64) {
        let shown = self.scan(prefix, wants_values);
        let of_prefix = self.model.iter().filter(|(key, _)| key.starts_with(prefix));
        let expected: BTreeMap<_, _> = of_prefix
            .map(|(key, value)| (key.clone(), wants_values.then(|| value.clone())))
            .collect();
        assert_eq!(shown, expected, "seed {seed}");
    }

    /// What a scan costs.
    fn cost(&mut self, prefix: &[u8], wants_values: bool) -> KeyTableCounters {
        let before = self.server.key_tables();
        self.judge(prefix, wants_values, 0);
        let after = self.server.key_tables();
        KeyTableCounters {
            part_reads: after.part_reads - before.part_reads,
            block_reads: after.block_reads - before.block_reads,
            ..after
        }
    }

    /// Checks that every file of a key table belongs to a table in use and has the length that the
    /// table tells.
    fn judge_bytes(&self) -> bool {
        let tables = self.server.key_tables();
        let files = &self.server.device.image.files;
        let files = files.iter().filter(|it| it.0.segment_of_table().is_some());
        let bytes: u64 = files.clone().map(|(_, file)| file.len() as u64).sum();
        // The device keeps one that it read when it was given up.
        let is_same = files.count() as u64 == tables.standing;
        assert!(
            !is_same || bytes == tables.file_bytes,
            "{bytes}: {tables:?}"
        );
        is_same
    }

    fn tables(&self) -> Vec<FileId> {
        let files = self.server.device.image.files.keys();
        files.filter_map(|file| file.segment_of_table()).collect()
    }
}

/// The order of keys is the same in each run.
fn opened(layout: Layout, image: Image, incarnation: u64) -> Server {
    let log = log_config(SyncMethod::DurableWrite, incarnation);
    let snapshots = (Snapshots::new(), 1 << 40);
    Server::open_of(
        layout,
        snapshots,
        Budget::of_cache(CACHE_BYTES),
        1,
        log,
        image,
        None,
    )
    .expect("it opens")
}

#[test]
fn what_a_scan_shows_with_key_tables_is_what_the_model_holds_whatever_becomes_of_them() {
    let mut sum = KeyTableCounters::default();
    let (mut rotten, mut exchanged, mut starts, mut cleaned) = (0, 0, 0, 0);
    let mut counted = 0;
    for seed in 1..=12 {
        let mut random = Random::new(seed);
        let mut shop = Shop::new();
        for _ in 0..60 {
            for _ in 0..random.below(25) {
                let key = key(random.below(120));
                match random.once_in(4) && shop.model.contains_key(&key) {
                    true => shop.delete(&key),
                    false => {
                        let value = vec![7; 1 + random.below(700)];
                        shop.set(&key, &value);
                    }
                }
            }
            let prefix = [&b""[..], b"", b"stock:", b"sale:1", b"nothing"][random.below(5)];
            shop.judge(prefix, random.once_in(3), seed);
            counted += u64::from(shop.judge_bytes());
            let tables = shop.tables();
            let mut counts = |shop: &Shop| {
                let KeyTableCounters {
                    made,
                    void,
                    part_reads,
                    block_reads,
                    ..
                } = shop.server.key_tables();
                sum.made += made;
                sum.void += void;
                sum.part_reads += part_reads;
                sum.block_reads += block_reads;
                cleaned += shop.server.cleaned();
            };
            match random.below(12) {
                0 | 1 if !tables.is_empty() => {
                    let table = tables[random.below(tables.len())].key_table();
                    let file = shop.server.device.image.file(table);
                    // Anywhere, or in each block: which of them are read again is another question.
                    let all = random.once_in(2);
                    for block in file.chunks_mut(4096) {
                        if all || random.once_in(3) {
                            let at = random.below(block.len());
                            block[at] ^= 1 << random.below(8);
                        }
                    }
                    rotten += 1;
                }
                2 => {
                    counts(&shop);
                    shop.restart(|image| {
                        for table in &tables {
                            if random.once_in(3) {
                                let other = tables[random.below(tables.len())];
                                exchanged += u64::from(other != *table);
                                let file = image.files[&other.key_table()].clone();
                                image.files.insert(table.key_table(), file);
                            } else if random.once_in(4) {
                                let file = image.file(table.key_table());
                                file.truncate(random.below(file.len()));
                            }
                        }
                    });
                    starts += 1;
                }
                3 => shop.server.give_up_key_tables(),
                _ => {}
            }
        }
        let mut random = Random::new(seed);
        shop.judge(b"", random.once_in(2), seed);
        let counters = shop.server.key_tables();
        sum.made += counters.made;
        sum.void += counters.void;
        sum.block_reads += counters.block_reads;
        cleaned += shop.server.cleaned();
    }
    assert!(
        sum.made > 50 && sum.void > 0 && sum.block_reads > 200,
        "{sum:?}"
    );
    assert!(
        rotten > 20 && exchanged > 5 && starts > 20 && cleaned > 20,
        "{rotten} {exchanged} {starts} {cleaned}"
    );
    assert!(counted > 400, "{counted}");
}

#[test]
fn a_scan_without_values_reads_the_blocks_of_the_tables_and_no_part() {
    let mut shop = Shop::filled(900);
    // They are made while it goes.
    let first = shop.cost(b"", false);
    assert!(
        first.made > 4 && first.part_reads > 4 * first.made,
        "{first:?}"
    );
    shop.restart(|_| {});
    let again = shop.cost(b"", false);
    assert!(again.standing > 4 && again.made == 0, "{again:?}");
    // A block of each, which has room for all that its segment holds, and what stands in the last
    // segment.
    assert!(
        again.block_reads <= 2 * again.standing && again.part_reads < 220,
        "{again:?}"
    );
    // Kept blocks are not read again.
    let kept = shop.cost(b"", false);
    assert_eq!(kept.block_reads, 0, "{kept:?}");
    // The first step did not wait for the tables that were left.
    assert_eq!(kept.part_reads + 16, again.part_reads);
}

#[test]
fn tables_that_were_left_are_loaded_when_a_scan_first_asks_and_leave_unread_with_their_segments() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    let made = shop.server.key_tables();
    shop.restart(|_| {});
    let left = shop.server.key_tables();
    assert_eq!(
        (left.standing, left.file_bytes),
        (made.standing, made.file_bytes)
    );
    shop.server.holds_key_tables = true;
    for round in 0..3 {
        for number in 0..900 {
            shop.set(&key(number), &[round; 210]);
        }
    }
    (0..20).for_each(|_| shop.server.settle());
    let removed = std::mem::take(&mut shop.server.key_table_orders);
    assert!(!removed.is_empty());
    let is_removal = |order: &KeyTableOrder| matches!(order, KeyTableOrder::Remove(_));
    assert!(removed.iter().all(is_removal), "{removed:?}");
    let left = shop.server.key_tables();
    assert_eq!(left.standing + removed.len() as u64, made.standing);
    assert_eq!(left.block_reads, 0);
}

#[test]
fn tables_are_loaded_all_at_once_and_one_that_is_of_no_use_is_removed() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    let tables = shop.tables();
    shop.restart(|image| image.file(tables[0].key_table())[50] ^= 1);
    shop.server.holds_key_tables = true;
    shop.judge(b"", false, 0);
    let orders = &shop.server.key_table_orders;
    let is_load = |order: &KeyTableOrder| matches!(order, KeyTableOrder::Load(_));
    assert_eq!(orders.len(), tables.len(), "{orders:?}");
    assert!(orders.iter().all(is_load), "nothing is made meanwhile");
    shop.server.carry_out_key_tables();
    let counters = shop.server.key_tables();
    assert_eq!(
        (counters.standing, counters.void),
        (tables.len() as u64 - 1, 1)
    );
    assert!(shop.judge_bytes());
}

#[test]
fn of_the_tables_that_were_left_no_more_stay_than_there_is_memory_for() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    let tables = shop.tables();
    assert!(tables.len() > 2);
    shop.restart(|_| {});
    shop.server.holds_key_tables = true;
    shop.judge(b"", false, 0);
    // A 64th of it is one byte: the first that comes is within it, and no other beside that one.
    shop.server.set_memory_bytes_max(64);
    shop.server.carry_out_key_tables();
    shop.server.set_memory_bytes_max(usize::MAX);
    shop.server.holds_key_tables = false;
    shop.server.settle();
    let left = shop.server.key_tables();
    assert_eq!((left.standing, left.made), (1, 0), "{left:?}");
    assert!(shop.judge_bytes() && shop.tables().len() == 1);
    shop.judge(b"", false, 0);
}

#[test]
fn tables_that_were_left_leave_unread_when_there_is_no_room() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    shop.restart(|_| {});
    assert!(!shop.tables().is_empty());
    shop.server.give_up_key_tables();
    shop.server.settle();
    assert_eq!(shop.tables(), []);
    assert!(shop.judge_bytes() && shop.server.key_tables().standing == 0);
}

#[test]
fn a_scan_for_the_values_of_few_keys_reads_the_parts_of_these_alone() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    let without = shop.cost(b"", false);
    let with_values = shop.cost(b"sale:11", true);
    let shown = shop.scan(b"sale:11", true).len() as u64;
    assert!(shown >= 3, "{shown}");
    assert!(
        with_values.part_reads <= without.part_reads + shown,
        "{with_values:?}"
    );
    // All values are read from their parts, and no block for them.
    let all = shop.cost(b"", true);
    assert!(all.block_reads == 0 && all.part_reads > 850, "{all:?}");
}

#[test]
fn a_table_whose_blocks_rot_is_given_up_and_made_again() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    shop.restart(|image| {
        let tables = image.files.iter_mut();
        let tables = tables.filter(|(file, _)| file.segment_of_table().is_some());
        tables.for_each(|(_, file)| file[4096 + 100] ^= 1);
    });
    let standing = shop.server.key_tables().standing;
    assert!(standing > 4, "their headers are sound: {standing}");
    let rotten = shop.cost(b"", false);
    assert_eq!(rotten.void, standing);
    let again = shop.cost(b"", false);
    assert!(again.made >= standing, "{again:?}");
}

#[test]
fn the_tables_of_an_inherited_log_serve_until_it_is_taken_over_and_leave_with_it() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    let tables = shop.tables();
    shop.inherit();
    assert!(!shop.server.layout.inherited.is_empty());
    assert_eq!(shop.server.key_tables().standing, tables.len() as u64);
    let first = shop.cost(b"", false);
    assert!(first.block_reads > 4, "{first:?}");
    let again = shop.cost(b"", false);
    assert!(again.part_reads + 16 >= first.part_reads && again.block_reads == 0);
    assert!(again.part_reads < 220 && again.made == 0, "{again:?}");
    assert!(shop.judge_bytes());
    // One rots meanwhile, and what is inherited goes on to the next start.
    shop.inherit();
    let rotten = shop.server.device.image.file(tables[1].key_table());
    rotten[4096 + 100] ^= 1;
    let third = shop.cost(b"", false);
    assert_eq!((third.void, third.standing), (1, tables.len() as u64 - 1));

    shop.server.make_room();
    (0..40).for_each(|_| shop.server.settle());
    assert!(shop.server.layout.inherited.is_empty(), "it is taken over");
    assert!(tables.iter().all(|it| !shop.tables().contains(it)));
    assert!(shop.judge_bytes());
    shop.judge(b"", false, 0);
    shop.restart(|_| {});
    shop.judge(b"", true, 0);
}

#[test]
fn a_table_that_is_being_made_when_there_is_no_room_any_more_is_removed_when_it_comes() {
    let mut shop = Shop::filled(900);
    shop.server.holds_key_tables = true;
    shop.judge(b"", false, 0);
    let orders = &shop.server.key_table_orders;
    assert!(matches!(orders[..], [KeyTableOrder::Make(_)]), "{orders:?}");
    shop.server.give_up_key_tables();
    shop.server.carry_out_key_tables();
    shop.server.settle();
    assert_eq!(shop.server.key_tables().standing, 0);
    let orders = std::mem::take(&mut shop.server.key_table_orders);
    assert!(
        matches!(orders[..], [KeyTableOrder::Remove(_), ..]),
        "{orders:?}"
    );
    // The next one is taken in.
    let next: Vec<_> = orders.into_iter().skip(1).collect();
    shop.server.key_table_orders = next;
    shop.server.holds_key_tables = false;
    shop.judge(b"", false, 0);
    assert!(shop.server.key_tables().standing > 2);
}

#[test]
fn the_tables_of_cleaned_segments_leave_with_them() {
    let mut shop = Shop::filled(900);
    shop.cost(b"", false);
    let before = shop.tables();
    assert!(before.len() > 4, "{}", before.len());
    for round in 0..3 {
        for number in 0..900 {
            shop.set(&key(number), &[round; 210]);
        }
    }
    (0..20).for_each(|_| shop.server.settle());
    let there = |file: &FileId| shop.server.device.image.files.contains_key(file);
    let homes = shop.server.key_table_homes();
    let left = before
        .iter()
        .filter(|table| !homes.iter().any(|home| home.file == **table));
    let left: Vec<_> = left.collect();
    assert!(left.len() > 3, "{} segments were released", left.len());
    assert!(left.iter().all(|table| !there(&table.key_table())));
    shop.judge(b"", true, 0);
}
