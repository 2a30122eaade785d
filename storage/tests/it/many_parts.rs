//! Records of more parts than four bits number.

use std::collections::BTreeMap;

use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::extension::EffectsArea;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{Log, LogConfig, Purpose, Room, SyncMethod};
use penstock_storage::place::{FileId, LogStart, Place};
use penstock_storage::record::{
    FEW_PARTS_MAX, KindedValue, PARTS_MAX, PartKind, PartSpec, PartView, RecordSpec, ValueKind,
};
use penstock_storage::recovery::{recover, survey};
use penstock_storage::repair::plan;
use penstock_storage::store::{Change, ChangeKey, Found, ManyKeys, Store};

use crate::change::{NOW_MS, SLOT, store};
use crate::cleaning::{START_MS, Yard};
use crate::disk::Disk;
use crate::golden::{OWNER as GOLDEN_OWNER, SALT, hex_block};
use crate::heap::Heap;
use crate::journal::{Journal, OWNER, Parts, config, read_back};
use crate::random::Random;
use crate::seed::{Seed, seeds};

const FIRST: FileId = FileId(1);

/// So many parts with small values, some of them deletions.
fn many(prefix: &str, count: usize) -> Parts {
    (0..count)
        .map(|number| {
            let key = format!("{prefix}/{number}").into_bytes();
            (key, (number % 7 < 6).then(|| vec![0xA5; number % 20]))
        })
        .collect()
}

/// A record of two parts, one of twelve, one of one, and a mark.
fn twelve_between_others() -> Journal {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    for parts in [many("two", 2), many("twelve", 12), many("one", 1)] {
        let (lsn, _) = journal.append(&parts).expect("there is room");
        journal.log.want_durable(lsn);
    }
    journal.flush();
    journal.idle();
    journal
}

#[test]
fn records_of_nine_ten_and_as_many_parts_as_there_may_be_come_back_whole() {
    for count in [1, FEW_PARTS_MAX, FEW_PARTS_MAX + 1, 255, 256, PARTS_MAX] {
        let wide = LogConfig {
            frame_bytes: 512 << 10,
            record_bytes_max: 1 << 20,
            ..config(SyncMethod::DurableWrite)
        };
        let mut journal = Journal::with(wide, Disk::default(), 1);
        let file = journal.disk.create(8 << 20);
        journal.log.add_spare(file, 77, 8 << 20);
        let (lsn, places) = journal.append(&many("many", count)).expect("there is room");
        journal.put(b"behind", b"it");
        journal.log.want_durable(lsn);
        journal.flush();
        let records = read_back(&mut journal.disk).expect("sound").records;
        assert_eq!(records, journal.appended, "{count} parts");
        // Each part says where it stands, and can be read alone.
        let bytes = &journal.disk.files[&file];
        for (ordinal, place) in places.iter().enumerate() {
            let at = usize::try_from(place.offset).expect("short");
            let part = PartView::read(&bytes[at..]).expect("it checks");
            assert_eq!((part.ordinal(), part.count()), (ordinal, count));
            assert_eq!(part.bytes().len(), place.bytes as usize);
        }
    }
}

#[test]
fn parts_of_few_are_numbered_by_four_bits_and_those_of_many_by_eight_bytes() {
    for (count, bytes) in [(9, 9 * 56), (10, 10 * 64)] {
        let parts = vec![PartSpec::put(b"stock:42", &[7; 8]); count];
        let record = RecordSpec {
            slot: 5,
            epoch: 257,
            sequence: 9,
            time_ms: 3,
            parts: &parts,
            extension: &[],
        };
        assert_eq!(record.bytes(), bytes, "{count} parts");
    }
}

#[test]
fn the_twelfth_part_of_a_hundred_is_the_one_of_the_document() {
    let record = RecordSpec {
        slot: 5,
        epoch: 257,
        sequence: 9,
        time_ms: 3,
        parts: &[PartSpec::put(b"stock:42", &[7; 8]); 100],
        extension: &[],
    };
    let mut bytes = [0xEE; 64];
    assert_eq!(record.encode_part(11, &mut bytes), 64);
    let shown = hex_block("**Number.**");
    assert_eq!(shown.len(), 10);
    for (at, byte) in shown {
        assert_eq!(bytes[at], byte, "at {at:#x}");
    }
}

#[test]
#[should_panic(expected = "4097 parts")]
fn no_record_of_more_parts_than_there_may_be_is_appended() {
    let mut store = store(3);
    let parts = vec![PartSpec::put(b"k", b""); PARTS_MAX + 1];
    let record = RecordSpec {
        slot: SLOT,
        epoch: 257,
        sequence: 1,
        time_ms: 3,
        parts: &parts,
        extension: &[],
    };
    let mut places = vec![Place::default(); PARTS_MAX + 1];
    let log = store.log_mut();
    assert_eq!(log.room(Purpose::Grow, 48), Room::Yes);
    log.append(0, &record, &mut places);
}

/// All parts of a record of eleven, each alone, with a key, a value and an expiry.
fn encoded(extension: &[&[u8]]) -> Vec<Vec<u8>> {
    let part = PartSpec {
        expiry_ms: Some(NOW_MS),
        ..PartSpec::put(b"hold", b"value")
    };
    let record = RecordSpec {
        slot: 5,
        epoch: 257,
        sequence: 9,
        time_ms: 3,
        parts: &[part; 11],
        extension,
    };
    let mut bytes = vec![0xEE; record.bytes()];
    let mut at = 0;
    let parts: Vec<Vec<u8>> = (0..11)
        .map(|ordinal| {
            let len = record.encode_part(ordinal, &mut bytes[at..]);
            at += len;
            bytes[at - len..at].to_vec()
        })
        .collect();
    assert_eq!(at, bytes.len());
    parts
}

fn sealed(mut part: Vec<u8>) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&part[8..]);
    part[4..8].copy_from_slice(&hasher.finalize().to_le_bytes());
    part
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_numbered_part_is_seen() {
    let area = EffectsArea::new(b"what runs");
    for part in [&encoded(&[])[3], &encoded(&[area.bytes(); 11])[10]] {
        for bit in 0..part.len() * 8 {
            let mut flipped = part.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(PartView::read(&flipped).is_err(), "bit {bit}");
        }
        for cut in 0..part.len() {
            assert!(PartView::read(&part[..cut]).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn numbers_that_no_part_of_many_has_are_damage_even_under_a_good_crc() {
    let part = encoded(&[])[3].clone();
    let number = part.len() - 8;
    for (ordinal, count, rest, is_good) in [
        (3u16, 11u16, 0u8, true),
        (10, 11, 0, true),
        (4095, 4096, 0, true),
        (11, 11, 0, false),
        (3, 9, 0, false),
        (0, 0, 0, false),
        (3, 4097, 0, false),
        (3, 11, 1, false),
    ] {
        let mut part = part.clone();
        part[number..number + 2].copy_from_slice(&ordinal.to_le_bytes());
        part[number + 2..number + 4].copy_from_slice(&count.to_le_bytes());
        part[number + 7] = rest;
        let read = PartView::read(&part[..]).is_ok();
        assert!(
            !read || (ordinal, count) == (3, 11),
            "its CRC is the old one"
        );
        let part = sealed(part);
        let read = PartView::read(&part);
        assert_eq!(read.is_ok(), is_good, "{ordinal} of {count}, {rest}");
        if let Ok(read) = read {
            assert_eq!(
                (read.ordinal(), read.count()),
                (ordinal.into(), count.into())
            );
        }
    }
    // A numbered part has no other number, and a copy by cleaning has none.
    for (at, bits) in [(10, 0x21), (9, 4)] {
        let mut part = part.clone();
        part[at] ^= bits;
        assert!(PartView::read(&sealed(part)).is_err(), "byte {at}");
    }
}

#[test]
fn a_copy_of_a_numbered_part_is_a_record_alone_and_keeps_all_else() {
    let area = EffectsArea::new(b"what runs");
    for (extension, areas) in [(0, &[][..]), (32, &[area.bytes(); 11][..])] {
        let bytes = encoded(areas)[10].clone();
        let part = PartView::read(&bytes).expect("it checks");
        let same = |copy: &PartView<'_>| {
            assert_eq!((copy.ordinal(), copy.count()), (0, 1));
            assert_eq!(copy.effects(), part.effects());
            let of = |part: &PartView<'_>| (part.version(), part.time_ms(), part.expiry_ms());
            assert_eq!(of(copy), of(&part));
            assert_eq!((copy.key(), copy.value()), (part.key(), part.value()));
        };
        let mut copy = vec![0xEE; bytes.len() + 64];
        let len = part.encode_moved(PartKind::Put, true, &mut copy);
        assert_eq!(len, 64 + extension, "without its number");
        same(&PartView::read(&copy[..len]).expect("a copy checks"));
        let len = part.encode_superseded(part.version(), true, &mut copy);
        let superseded = PartView::read(&copy[..len]).expect("a copy checks");
        same(&superseded);
        assert_eq!(superseded.successor(), Some(part.version()));
        let len = part.encode_moved(PartKind::Tombstone, true, &mut copy);
        let gone = PartView::read(&copy[..len]).expect("a copy checks");
        assert_eq!((gone.kind(), gone.count()), (PartKind::Tombstone, 1));
    }
}

#[test]
fn every_flipped_bit_of_a_log_with_many_parts_is_refused_unless_it_stands_in_the_last_mark() {
    let mut journal = twelve_between_others();
    let mark = 2 * BLOCK_BYTES;
    // All of the frame; the header of the segment is that of every log.
    for bit in BLOCK_BYTES * 8..mark * 8 {
        let at = bit / 8;
        journal.disk.files.get_mut(&FIRST).expect("the segment")[at] ^= 1 << (bit % 8);
        assert!(read_back(&mut journal.disk).is_err(), "bit {bit}");
        journal.disk.files.get_mut(&FIRST).expect("the segment")[at] ^= 1 << (bit % 8);
    }
    let read = read_back(&mut journal.disk).expect("sound").records;
    assert_eq!(read, journal.appended);
}

#[test]
fn a_last_record_of_many_parts_cut_at_any_byte_is_there_whole_or_not_at_all() {
    let mut journal = twelve_between_others();
    let before = journal.appended.clone();
    let start = 3 * BLOCK_BYTES;
    let (lsn, places) = journal.append(&many("last", 60)).expect("there is room");
    journal.log.want_durable(lsn);
    journal.flush();
    let last = places[59];
    let end = usize::try_from(last.offset).expect("short") + last.bytes as usize;
    assert!(end - start > BLOCK_BYTES, "more than a block");
    let mut cuts = 0;
    for cut in start..=end + 16 {
        let mut files = journal.disk.files.clone();
        let lost = &mut files.get_mut(&FIRST).expect("the segment")[cut..];
        // The record ends with zeros, which are no loss.
        let is_whole = lost.iter().all(|byte| *byte == 0);
        lost.fill(0);
        let read = read_back(&mut Disk::from(files))
            .expect("a torn tail")
            .records;
        let expected = match is_whole {
            true => &journal.appended,
            false => &before,
        };
        assert_eq!(&read, expected, "cut at {cut}");
        cuts += usize::from(!is_whole);
    }
    assert!(cuts > BLOCK_BYTES, "{cuts}");
}

#[test]
fn a_repair_gives_up_a_record_of_many_parts_of_which_one_is_damaged_and_no_other() {
    let journal = twelve_between_others();
    let files: BTreeMap<FileId, Vec<u8>> = journal.disk.files.clone();
    let bytes = &files[&FIRST];
    for victim in [0, 5, 11] {
        let name = format!("twelve/{victim}").into_bytes();
        let at = bytes.windows(name.len()).position(|window| window == name);
        let mut damaged = files.clone();
        damaged.get_mut(&FIRST).expect("the segment")[at.expect("it stands there")] ^= 1;
        let plan = plan(&mut Disk::from(damaged.clone()), OWNER).expect("it can be listed");
        let damage = &plan.damages[0];
        assert_eq!((damage.kept_records, damage.lost_records), (2, Some(1)));
        // Every part of the lost record is named.
        assert_eq!(damage.lost_parts.len(), 12);
        let mut disk = Disk::from(damaged.clone());
        for rebuild in &plan.rebuilds {
            let mut bytes = vec![0; usize::try_from(rebuild.bytes).expect("short")];
            rebuild.read(&mut disk, 0, &mut bytes).expect("it reads");
            damaged.insert(rebuild.file, bytes);
        }
        let read = read_back(&mut Disk::from(damaged))
            .expect("repaired")
            .records;
        assert_eq!(read, [many("two", 2), many("one", 1)]);
    }
}

#[test]
fn cleaning_keeps_what_counts_of_records_that_are_partly_dead() {
    let log = Log::new(config(SyncMethod::DurableWrite), LogStart::default(), Heap);
    let mut yard = Yard::empty(log);
    yard.store.cleaning_mut().configure(CleaningConfig {
        space_percent_max: 101,
        bytes_per_s: 1 << 30,
        log_bytes_max: 0,
    });
    let mut model = BTreeMap::new();
    let mut random = Random::new(5);
    for round in 0..1_500u32 {
        let first = u32::try_from(random.below(900)).expect("few");
        let step = 1 + u32::try_from(random.below(9)).expect("few");
        let count = 10 + u32::try_from(random.below(60)).expect("few");
        let numbers: Vec<u32> = (0..count).map(|at| first + at * step).collect();
        let value = round.to_le_bytes();
        yard.put_together(&numbers, &value);
        model.extend(numbers.iter().map(|number| (*number, value)));
        yard.turn();
        yard.clean(|_| ());
    }
    let counters = yard.store.cleaning().counters();
    assert!(
        counters.segments > 20 && counters.segments > counters.unread + 5,
        "{counters:?}"
    );
    let yard = yard.restarted(START_MS);
    for (number, value) in &model {
        let key = number.to_le_bytes();
        let found = yard.store.keys().find(64, number << 1, &key);
        let Found::Cached(cell) = found else {
            panic!("{number} is gone");
        };
        assert_eq!(yard.store.keys().cell(cell).value(), value, "key {number}");
    }
}

type Held = Option<(Vec<u8>, Option<u64>)>;

const KEYS: usize = 300;

fn names() -> Vec<Vec<u8>> {
    let names = (0..KEYS).map(|number| format!("{{m}}{number}").into_bytes());
    names.collect()
}

fn hash(number: usize) -> u32 {
    u32::try_from(2 * number + 2).expect("few")
}

fn found<'k>(store: &Store<Heap>, number: usize, key: &'k [u8]) -> ChangeKey<'k> {
    let cell = match store.keys().find(SLOT, hash(number), key) {
        Found::Cached(id) => Some(id),
        Found::Absent => None,
        Found::Cold(_) => panic!("all are in memory"),
    };
    let standing = cell.map(|id| store.data().standing(id));
    ChangeKey {
        key,
        hash: hash(number),
        cell,
        exists: standing.is_some_and(|(exists, ..)| exists),
        expiry_ms: standing.and_then(|(_, expiry_ms, ..)| expiry_ms),
        kind: standing.map_or(ValueKind::Plain, |(_, _, kind, ..)| kind),
    }
}

fn held(store: &Store<Heap>, names: &[Vec<u8>]) -> Vec<Held> {
    let all = names.iter().enumerate().map(|(number, key)| {
        let found = found(store, number, key);
        let id = found.cell.filter(|_| found.exists)?;
        Some((store.keys().cell(id).value().to_vec(), found.expiry_ms))
    });
    all.collect()
}

/// Does something to a key, and the same to its model.
fn step(
    random: &mut Random,
    change: &mut Change<'_, '_, Heap, ManyKeys>,
    which: usize,
    model: &mut Held,
) {
    let later = NOW_MS + 9 + random.below(3) as u64;
    let expiry_ms = random.once_in(3).then_some(later);
    match (random.below(6), model) {
        (0 | 1, model) => {
            change.put(which, KindedValue::plain(b"a value that is put"), expiry_ms);
            *model = Some((b"a value that is put".to_vec(), expiry_ms));
        }
        (_, None) => {}
        (2, model) => {
            change.delete(which);
            *model = None;
        }
        (3, Some(held)) => {
            change.replace(which, b"99");
            held.0 = b"99".to_vec();
        }
        (4, Some(held)) => {
            change.expire(which, expiry_ms);
            held.1 = expiry_ms;
        }
        (_, Some((bytes, _))) => {
            let at = random.below(bytes.len());
            change.field_mut(which, at, 1)[0] ^= 0x55;
            bytes[at] ^= 0x55;
        }
    }
}

#[test]
fn many_keys_are_what_a_model_says_after_a_commit_and_as_they_were_after_a_drop() {
    let names = names();
    let (mut committed, mut dropped, mut wide) = (0, 0, 0);
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let mut store = store(3);
        for _ in 0..6 {
            let first = random.below(KEYS - 20);
            let count = 1 + random.below(KEYS - first);
            let keys: Vec<ChangeKey<'_>> = (first..first + count)
                .map(|number| found(&store, number, &names[number]))
                .collect();
            let before = held(&store, &names);
            let mut model = before.clone();
            let appended = store.log().appended();
            let mut change = store.change_many(SLOT, &keys);
            for _ in 0..random.below(2 * count) {
                let which = random.below(count);
                step(&mut random, &mut change, which, &mut model[first + which]);
                let expected = model[first + which].as_ref();
                assert_eq!(change.value(which), expected.map(|held| &held.0[..]));
            }
            let bytes = change.record_bytes();
            let fits = (1..=change.record_bytes_max()).contains(&bytes);
            if fits && random.once_in(2) {
                let in_log = store_bytes_behind(change);
                assert_eq!(in_log, bytes, "as much room as was asked for");
                assert_eq!(held(&store, &names), model);
                assert_eq!(store.log().appended().0, appended.0 + 1, "one record");
                committed += 1;
                wide += u32::from(bytes > 64 * 20);
            } else {
                drop(change);
                assert_eq!(held(&store, &names), before);
                assert_eq!(store.log().appended(), appended);
                dropped += 1;
            }
        }
    }
    assert!(committed > 40 && dropped > 100, "{committed}, {dropped}");
    assert!(wide > 30, "{wide}");
}

/// Commits a change; how many bytes its record has in the log.
fn store_bytes_behind(mut change: Change<'_, '_, Heap, ManyKeys>) -> usize {
    let bytes = change.record_bytes();
    let done = change.commit(0).expect("there is room");
    assert!(done.lsn.0 > 0);
    bytes
}

/// The hexadecimal lines of a file in `storage/tests/golden`, all other bytes being zero.
fn golden() -> BTreeMap<usize, u8> {
    let mut bytes = BTreeMap::new();
    for line in include_str!("../golden/many_parts.hex").lines() {
        let (offset, hex) = line.split_once(": ").expect("an offset");
        let offset = usize::from_str_radix(offset, 16).expect("hexadecimal");
        for (at, byte) in (offset..).zip(hex.split_whitespace()) {
            bytes.insert(at, u8::from_str_radix(byte, 16).expect("hexadecimal"));
        }
    }
    bytes
}

const GOLDEN_SEGMENT_BYTES: usize = 1 << 20;

/// A record of one part, one of 16 with an expiry, a deletion and effects among them, and a mark.
fn golden_is_written() -> Vec<u8> {
    let config = LogConfig {
        owner: GOLDEN_OWNER,
        incarnation: 5,
        frame_bytes: 64 << 10,
        record_bytes_max: 64 << 10,
        ..config(SyncMethod::DurableWrite)
    };
    let mut disk = Disk::default();
    let file = disk.create(GOLDEN_SEGMENT_BYTES);
    let mut log = Log::new(config, LogStart::default(), Heap);
    log.add_spare(file, SALT, GOLDEN_SEGMENT_BYTES as u64);
    let names: Vec<Vec<u8>> = (0..16).map(|number| vec![b'a' + number; 8]).collect();
    let mut parts: Vec<PartSpec<'_>> = names
        .iter()
        .map(|name| PartSpec::put(name, &name[..5]))
        .collect();
    parts[3] = PartSpec::tombstone(&names[3]);
    parts[7].expiry_ms = Some(1_800_000_000_000);
    let area = EffectsArea::new(b"what runs");
    let mut areas = [&[][..]; 8];
    areas[7] = area.bytes();
    let record = RecordSpec {
        slot: 0x0ABC,
        epoch: 0x0201,
        sequence: 1,
        time_ms: 1_700_000_000_000,
        parts: &parts[..1],
        extension: &[],
    };
    let wide = RecordSpec {
        sequence: 2,
        parts: &parts,
        extension: &areas,
        ..record
    };
    for record in [record, wide] {
        assert_eq!(log.room(Purpose::Grow, record.bytes()), Room::Yes);
        let lsn = log.append(0, &record, &mut [Place::default(); 16]);
        log.want_durable(lsn);
    }
    let mut requests = Vec::new();
    for now_us in [0, 0, 5_000] {
        log.pump(now_us, &mut requests);
        disk.submit(&mut requests);
        while !disk.under_way().is_empty() {
            let completion = disk.complete(0);
            log.completed(now_us, completion).expect("a sound disk");
        }
    }
    disk.files.remove(&file).expect("just created")
}

#[test]
fn the_golden_log_with_a_record_of_many_parts_is_what_the_log_writes_and_is_read_back() {
    let golden = golden();
    let written = golden_is_written();
    if std::env::var_os("PENSTOCK_GOLDEN").is_some() {
        for (row, bytes) in written.chunks(16).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                println!("{:04x}: {}", row * 16, hex.join(" "));
            }
        }
    }
    let of = |at: usize| golden.get(&at).copied().unwrap_or(0);
    let other = written
        .iter()
        .enumerate()
        .find(|(at, byte)| of(*at) != **byte);
    assert_eq!(other, None, "offset and byte that the log writes");
    let bytes: Vec<u8> = (0..GOLDEN_SEGMENT_BYTES).map(of).collect();
    let mut disk = Disk::from(BTreeMap::from([(FIRST, bytes)]));
    let survey = survey(&mut disk, GOLDEN_OWNER).expect("sound");
    let mut parts = Vec::new();
    let segments = survey.logs.values().next().expect("a log");
    let recovered = recover(&mut disk, segments, &mut |part, _| {
        parts.push((part.ordinal(), part.count(), part.key()[0], part.kind()));
        assert_eq!(
            part.effects(),
            (part.key()[0] == b'h').then_some(&b"what runs"[..])
        );
        Ok(())
    });
    assert_eq!(recovered.expect("sound").records, 2);
    let wide = (0..16).zip(b'a'..).map(|(ordinal, first)| {
        let kind = match ordinal {
            3 => PartKind::Tombstone,
            _ => PartKind::Put,
        };
        (ordinal, 16, first, kind)
    });
    let first = (0, 1, b'a', PartKind::Put);
    let all: Vec<_> = std::iter::once(first).chain(wide).collect();
    assert_eq!(parts, all);
}
