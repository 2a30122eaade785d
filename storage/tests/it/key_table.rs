//! Key tables: what the segment holds is told, whatever memory sorting has; the document tells
//! every byte; and nothing is believed of a table that is damaged, cut or of another segment.

use std::collections::BTreeMap;
use std::io;

use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::key_home::KeyHome;
use penstock_storage::key_table::{KeyTable, TableEntry, TableError, TableHome};
use penstock_storage::log::{Log, Purpose, Room, SyncMethod};
use penstock_storage::packed_place::PackedPlace;
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Place};
use penstock_storage::record::{FEW_PARTS_MAX, PartKind, PartSpec, RecordSpec, ValueKind};
use penstock_storage::segment::Owner;
use penstock_storage::version::Version;

use crate::disk::Disk;
use crate::golden;
use crate::heap::Heap;
use crate::journal::config;
use crate::random::Random;
use crate::seed::seeds;

const OWNER: Owner = Owner {
    cluster_id: [0xC1; 16],
    node_id: [0xD2; 16],
};
const HASH_CHECK: u64 = 0x0807_0605_0403_0201;
const LARGE: usize = 1 << 20;

/// Few slots and hashes, so that keys have them in common.
fn home_of(key: &[u8]) -> KeyHome {
    let sum = key
        .iter()
        .fold(7u32, |sum, &byte| sum.wrapping_mul(31) ^ u32::from(byte));
    let slot = u16::try_from(sum % 5 * 3_000).expect("below 16384");
    let hash = ((sum >> 4) % 97) << 25;
    KeyHome { slot, hash }
}

fn at(key: &[u8]) -> KeyHome {
    let KeyHome { slot, hash } = home_of(key);
    KeyHome { slot, hash }
}

/// Where the newest part of a key stands, unless it is a deletion, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Newest {
    place: Option<Place>,
    version: Version,
    expiry_ms: Option<u64>,
}

/// A sealed segment with all that it holds.
struct Sealed {
    disk: Disk,
    home: TableHome,
    model: BTreeMap<Vec<u8>, Newest>,
}

impl Sealed {
    /// Changes of so many keys of up to `key_bytes_max`, until a segment is full.
    fn filled(seed: u64, keys: usize, key_bytes_max: usize) -> Sealed {
        let mut random = Random::new(seed);
        let config = config(SyncMethod::DurableWrite);
        let owner = config.owner;
        let log_id = config.log_id;
        let bytes = usize::try_from(config.segment_bytes_min()).unwrap() + (64 << 10);
        let mut disk = Disk::default();
        let mut log = Log::new(config, LogStart::default(), Heap);
        let mut requests = Vec::new();
        let mut model = BTreeMap::new();
        for sequence in 1.. {
            while log.spares_wanted() > 0 {
                let file = disk.create(bytes);
                log.add_spare(file, random.next(), bytes as u64);
            }
            let number = random.below(keys);
            let mut key = format!("key:{number}:").into_bytes();
            let len = key.len().max(1 + number * 37 % key_bytes_max);
            key.resize(len, b'k');
            let is_put = !random.once_in(5);
            let value = vec![7; random.below(90)];
            let expiry_ms = (is_put && random.once_in(3)).then_some(5_000 + sequence);
            let part = PartSpec {
                kind: match is_put {
                    true => PartKind::Put,
                    false => PartKind::Tombstone,
                },
                key: &key,
                value: if is_put { &value } else { &[] },
                expiry_ms,
                value_kind: ValueKind::Plain,
                layout: 0,
                is_crowded: false,
            };
            let record = RecordSpec {
                slot: home_of(&key).slot,
                epoch: 257,
                sequence,
                time_ms: 1_000,
                parts: &[part],
                extension: &[],
            };
            let mut places = [Place::default(); FEW_PARTS_MAX];
            let room = log.room(Purpose::Grow, record.bytes());
            if room == Room::Yes {
                log.append(0, &record, &mut places);
            }
            // Several records to a frame.
            if room != Room::Yes || random.once_in(40) {
                log.want_durable(log.appended());
                loop {
                    log.pump(0, &mut requests);
                    disk.submit(&mut requests);
                    if disk.under_way().is_empty() {
                        break;
                    }
                    let completion = disk.complete(0);
                    log.completed(0, completion).expect("a sound disk");
                }
            }
            if room == Room::Yes && places[0].file == FileId(1) {
                let newest = Newest {
                    place: is_put.then_some(places[0]),
                    version: Version {
                        epoch: 257,
                        sequence,
                    },
                    expiry_ms,
                };
                model.insert(key, newest);
            }
            let sealed = log.sealed_segments().first();
            if let Some(sealed) = sealed.filter(|_| log.durable() == log.appended()) {
                let home = TableHome {
                    owner,
                    file: sealed.file,
                    log_id,
                    sequence: sealed.end.sequence,
                    salt: sealed.salt,
                    end_offset: sealed.end.end_offset,
                    hash_check: HASH_CHECK,
                };
                return Sealed { disk, home, model };
            }
        }
        unreachable!("a segment becomes full")
    }

    fn build(&mut self, sort_bytes_max: usize) -> Result<(KeyTable, Vec<u8>), TableError> {
        build(&self.home, &mut self.disk, &home_of, sort_bytes_max)
    }
}

fn build(
    home: &TableHome,
    disk: &mut Disk,
    home_of: &dyn Fn(&[u8]) -> KeyHome,
    sort_bytes_max: usize,
) -> Result<(KeyTable, Vec<u8>), TableError> {
    let mut file = Vec::new();
    let table = KeyTable::build(home, disk, home_of, sort_bytes_max, &mut |offset, bytes| {
        let offset = usize::try_from(offset).unwrap();
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    })?;
    Ok((table, file))
}

fn reader(file: &[u8]) -> impl FnMut(u64, &mut [u8]) -> io::Result<usize> + '_ {
    |offset, into| {
        let start = usize::try_from(offset).map_or(file.len(), |at| at.min(file.len()));
        let len = into.len().min(file.len() - start);
        into[..len].copy_from_slice(&file[start..start + len]);
        Ok(len)
    }
}

fn load(home: &TableHome, file: &[u8]) -> Result<KeyTable, TableError> {
    KeyTable::load(home, file.len() as u64, &mut reader(file))
}

fn block(file: &[u8], number: u32) -> &[u8] {
    let offset = usize::try_from(KeyTable::offset_of(number)).unwrap();
    &file[offset..offset + BLOCK_BYTES]
}

/// What the table tells of the part at a place.
fn newest_in(table: &KeyTable, file: &[u8], key: &[u8], newest: &Newest) -> Option<Newest> {
    let place = newest.place?;
    let number = table.block_of(at(key))?;
    let block = table.check(number, block(file, number))?;
    let packed = PackedPlace::new(place, newest.version.sequence);
    let found: TableEntry<'_> = block.find(at(key), packed)?;
    assert_eq!(
        (found.key, found.at, found.offset),
        (key, at(key), place.offset)
    );
    Some(Newest {
        place: Some(place),
        version: found.version,
        expiry_ms: found.expiry_ms,
    })
}

#[test]
fn a_table_knows_the_newest_part_of_each_key_whatever_memory_sorting_has() {
    for seed in seeds(40) {
        let mut random = Random::new(seed ^ 0xAB1E);
        let keys = [20, 300, 3_000][random.below(3)];
        let key_bytes_max = [20, 300, 900][random.below(3)];
        let mut sealed = Sealed::filled(seed, keys, key_bytes_max);
        let mut files = Vec::new();
        for sort_bytes_max in [24_000, 60_000, LARGE] {
            let (table, file) = sealed.build(sort_bytes_max).unwrap();
            let loaded = load(&sealed.home, &file).unwrap();
            let verified =
                KeyTable::verify(&sealed.home, file.len() as u64, &mut reader(&file)).unwrap();
            assert_eq!((&table, &table), (&loaded, &verified), "seed {seed}");
            assert_eq!(table.file_bytes(), file.len() as u64);
            let mut missed = 0;
            for (key, newest) in &sealed.model {
                let found = newest_in(&table, &file, key, newest);
                match (&newest.place, found) {
                    (Some(_), Some(found)) => assert_eq!(found, *newest, "seed {seed}: {key:?}"),
                    // Of keys of one hash that stand in two blocks some may not be found.
                    (Some(_), None) => missed += 1,
                    (None, found) => assert_eq!(found, None),
                }
            }
            assert!(
                missed * 4 <= sealed.model.len(),
                "seed {seed}: {missed} of {}",
                sealed.model.len()
            );
            files.push(file);
        }
        assert!(
            files.iter().all(|file| *file == files[0]),
            "seed {seed}: it depends on the memory"
        );
    }
}

#[test]
fn an_entry_does_not_count_for_another_place_or_version() {
    let mut sealed = Sealed::filled(3, 300, 20);
    let (table, file) = sealed.build(LARGE).unwrap();
    let mut asked = 0;
    for (key, newest) in &sealed.model {
        let Some(place) = newest.place else { continue };
        for (offset, sequence) in [(8, 0), (0, 1), (0, 255), (4096, 0)] {
            let elsewhere = Newest {
                place: Some(Place {
                    offset: place.offset + offset,
                    ..place
                }),
                version: Version {
                    sequence: newest.version.sequence + sequence,
                    ..newest.version
                },
                ..newest.clone()
            };
            assert_eq!(newest_in(&table, &file, key, &elsewhere), None);
            asked += 1;
        }
    }
    assert!(asked > 100);
}

#[test]
fn a_byte_that_rots_anywhere_in_a_table_is_seen() {
    let mut sealed = Sealed::filled(5, 300, 20);
    let (table, mut file) = sealed.build(LARGE).unwrap();
    let blocks = table.blocks();
    assert!(blocks > 1);
    for at in 0..file.len() {
        let bit = 1 << (at % 8);
        file[at] ^= bit;
        let seen = match load(&sealed.home, &file) {
            Err(TableError::Damaged) => true,
            Err(other) => panic!("byte {at}: {other}"),
            Ok(loaded) => {
                assert_eq!(loaded, table, "byte {at}");
                let bad = (0..blocks).filter(|&it| loaded.check(it, block(&file, it)).is_none());
                let bad: Vec<u32> = bad.collect();
                bad == [u32::try_from(at / BLOCK_BYTES - 1).unwrap()]
            }
        };
        assert!(seen, "byte {at}");
        file[at] ^= bit;
    }
    // Every bit of a header, of a head of a block and of an entry.
    for at in (0..112).chain(4092..4096).chain(4096..4200) {
        for bit in 0..8 {
            file[at] ^= 1 << bit;
            let is_seen = load(&sealed.home, &file)
                .map_or(true, |loaded| loaded.check(0, block(&file, 0)).is_none());
            assert!(is_seen, "bit {bit} of byte {at}");
            file[at] ^= 1 << bit;
        }
    }
    assert!(load(&sealed.home, &file).is_ok());
}

#[test]
fn a_block_in_the_place_of_another_is_not_believed() {
    let mut sealed = Sealed::filled(6, 300, 20);
    let (table, file) = sealed.build(LARGE).unwrap();
    assert!(table.blocks() > 1);
    assert!(table.check(0, block(&file, 0)).is_some());
    assert!(table.check(0, block(&file, 1)).is_none());
    let mut other = Sealed::filled(7, 300, 20);
    let (_, file) = other.build(LARGE).unwrap();
    assert!(table.check(0, block(&file, 0)).is_none());
}

#[test]
fn a_table_that_is_cut_anywhere_is_none() {
    let mut sealed = Sealed::filled(8, 60, 20);
    let (_, file) = sealed.build(LARGE).unwrap();
    for end in 0..file.len() {
        assert!(load(&sealed.home, &file[..end]).is_err(), "cut at {end}");
        // Of a file that was made and not written to its end, the rest may be zeros.
        if end.is_multiple_of(64) {
            let mut torn = file.clone();
            torn[end..].fill(0);
            let is_same = torn == file;
            assert_eq!(load(&sealed.home, &torn).is_ok(), is_same, "torn at {end}");
        }
    }
}

#[test]
fn a_table_of_another_segment_hash_or_node_is_refused_by_name() {
    let mut sealed = Sealed::filled(9, 60, 20);
    let (_, file) = sealed.build(LARGE).unwrap();
    let home = sealed.home;
    let others = [
        TableHome {
            salt: home.salt ^ 1,
            ..home
        },
        TableHome {
            file: FileId(home.file.0 + 1),
            ..home
        },
        TableHome {
            sequence: home.sequence + 1,
            ..home
        },
        TableHome {
            log_id: home.log_id + 1,
            ..home
        },
        TableHome {
            end_offset: home.end_offset + 4096,
            ..home
        },
        TableHome {
            hash_check: home.hash_check ^ 1,
            ..home
        },
        TableHome {
            owner: Owner {
                node_id: [8; 16],
                ..home.owner
            },
            ..home
        },
    ];
    for other in others {
        let refused = load(&other, &file);
        assert!(matches!(refused, Err(TableError::OfAnother)), "{other:?}");
    }
    assert!(load(&home, &file).is_ok());
}

#[test]
fn of_a_segment_that_does_not_hold_what_it_should_no_table_is_made() {
    let mut sealed = Sealed::filled(10, 60, 20);
    let end = usize::try_from(sealed.home.end_offset).unwrap();
    let (_, good) = sealed.build(LARGE).unwrap();
    for at in (BLOCK_BYTES..end).step_by(61) {
        let file = sealed.disk.files.get_mut(&sealed.home.file).unwrap();
        file[at] ^= 4;
        let refused = sealed.build(LARGE);
        assert!(matches!(refused, Err(TableError::Segment)), "byte {at}");
        sealed.disk.files.get_mut(&sealed.home.file).unwrap()[at] ^= 4;
    }
    let file = sealed.disk.files.get_mut(&sealed.home.file).unwrap();
    file.truncate(end - 4096);
    assert!(matches!(sealed.build(LARGE), Err(TableError::Segment)));
    assert!(!good.is_empty());
}

#[test]
fn keys_of_one_hash_that_find_no_room_in_memory_give_no_table() {
    let mut sealed = Sealed::filled(11, 3_000, 20);
    let same = |_: &[u8]| KeyHome::new(5, 5);
    let built = build(&sealed.home, &mut sealed.disk, &same, 4_000);
    assert!(matches!(built, Err(TableError::TooMany)));
    assert!(build(&sealed.home, &mut sealed.disk, &same, LARGE).is_ok());
}

#[test]
fn the_table_in_the_document_is_what_is_written_and_read() {
    let mut disk = Disk::from(BTreeMap::from([(FileId(1), golden::written())]));
    let home = TableHome {
        owner: OWNER,
        file: FileId(1),
        log_id: 3,
        sequence: 1,
        salt: 0x1122_3344_5566_7788,
        end_offset: 0x3000,
        hash_check: HASH_CHECK,
    };
    let example = |_: &[u8]| KeyHome::new(0xABC, 0x2A);
    let (table, written) = build(&home, &mut disk, &example, LARGE).unwrap();
    let mut documented = vec![0; written.len()];
    for (at, byte) in golden::hex_block("## Key table\n") {
        documented[at] = byte;
    }
    for (at, (shown, byte)) in documented.iter().zip(&written).enumerate() {
        assert_eq!(shown, byte, "at {at:#x}: the document and what is written");
    }
    assert_eq!(load(&home, &documented).unwrap(), table);
    let block = table.check(0, block(&documented, 0)).unwrap();
    let entries: Vec<TableEntry<'_>> = block.entries().collect();
    let entry = TableEntry {
        at: KeyHome::new(0xABC, 0x2A),
        offset: 4160,
        version: Version {
            epoch: 0x201,
            sequence: 1,
        },
        expiry_ms: None,
        key: b"stock:42",
    };
    assert_eq!(entries, [entry]);
}
