//! Changes of keys of several slots: one record for each slot, all of them in one frame, and all of
//! them there or none.

use std::collections::BTreeMap;

use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::extension::{EffectsArea, Group};
use penstock_storage::frame::FRAME_HEADER_BYTES;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::{FileId, LogStart};
use penstock_storage::record::{KindedValue, PartView, ValueKind};
use penstock_storage::repair::plan;
use penstock_storage::store::{
    Change, ChangeKey, Committed, Found, KeySlots, NoRoom, SlotOfEach, SpreadKeys,
};

use crate::cleaning::{START_MS, Yard, home_of};
use crate::disk::Disk;
use crate::heap::Heap;
use crate::journal::{OWNER, config, read_back};
use crate::random::Random;
use crate::seed::{Seed, seeds};

/// The values of all keys, by their numbers.
type Model = BTreeMap<u32, Vec<u8>>;

/// A key of a slot, which is the how-manieth.
fn key(slot: u32, number: u32) -> u32 {
    slot << 24 | number
}

fn yard() -> Yard {
    let config = LogConfig {
        frame_bytes: 16 << 10,
        ..config(SyncMethod::DurableWrite)
    };
    let mut yard = Yard::empty(Log::new(config, LogStart::default(), Heap));
    yard.turn();
    yard
}

/// Opens a change of these keys.
fn open<'y, 'k>(yard: &'y mut Yard, names: &'k [[u8; 4]]) -> Change<'y, 'k, Heap, SpreadKeys> {
    let keys: Vec<ChangeKey<'k>> = names
        .iter()
        .map(|name| {
            let home = home_of(name);
            let cell = match yard.store.keys().find(home.slot, home.hash, name) {
                Found::Cached(id) => Some(id),
                Found::Absent => None,
                Found::Cold(_) => panic!("all are in memory"),
            };
            let standing = cell.map(|id| yard.store.data().standing(id));
            ChangeKey {
                key: name,
                hash: home.hash,
                cell,
                exists: standing.is_some_and(|(exists, ..)| exists),
                expiry_ms: standing.and_then(|(_, expiry_ms, ..)| expiry_ms),
                kind: standing.map_or(ValueKind::Plain, |(_, _, kind, ..)| kind),
            }
        })
        .collect();
    let slot = |which: usize| home_of(&names[which]).slot;
    let slots = SlotOfEach::of_keys(slot(0), names.len(), slot);
    yard.store.change_of(slots, &keys, keys.len())
}

fn names_of(numbers: &[u32]) -> Vec<[u8; 4]> {
    numbers.iter().map(|number| number.to_le_bytes()).collect()
}

/// Gives each key this value, all at once.
fn put_all(yard: &mut Yard, numbers: &[u32], value: &[u8]) -> Committed {
    let (names, now_us) = (names_of(numbers), yard.now_us);
    let mut change = open(yard, &names);
    (0..numbers.len()).for_each(|which| change.put(which, KindedValue::plain(value), None));
    let committed = change.commit(now_us).expect("there is room");
    yard.store.log_mut().want_durable(committed.lsn);
    committed
}

fn held(yard: &Yard, numbers: impl Iterator<Item = u32>) -> Model {
    let all = numbers.filter_map(|number| {
        let (name, home) = (number.to_le_bytes(), home_of(&number.to_le_bytes()));
        let Found::Cached(id) = yard.store.keys().find(home.slot, home.hash, &name) else {
            return None;
        };
        let is_there = yard.store.data().exists(id);
        is_there.then(|| (number, yard.store.keys().cell(id).value().to_vec()))
    });
    all.collect()
}

/// The parts of the one segment that a log has, in order.
fn parts(files: &BTreeMap<FileId, Vec<u8>>) -> Vec<PartView<'_>> {
    let bytes = &files[&FileId(1)];
    let (mut found, mut at) = (Vec::new(), BLOCK_BYTES);
    while at < bytes.len() {
        match PartView::read(&bytes[at..]) {
            Ok(part) => {
                at += part.bytes().len();
                found.push(part);
            }
            Err(_) => at += 8,
        }
    }
    found
}

#[test]
fn a_change_of_three_slots_is_a_group_of_three_records_in_one_frame() {
    let mut yard = yard();
    put_all(&mut yard, &[key(2, 1)], b"before");
    yard.turn();
    let frames = yard.store.log().counters().frames;
    let numbers = [key(2, 1), key(0, 7), key(2, 8), key(5, 9)];
    let committed = put_all(&mut yard, &numbers, b"together");
    assert_eq!(committed.lsn.0, 4, "one record and three");
    assert_eq!(committed.version.sequence, 2, "that of the first slot");
    yard.turn();
    assert_eq!(yard.store.log().counters().frames, frames + 1);
    let files = yard.disk.files.clone();
    let listed: Vec<_> = parts(&files)
        .iter()
        .map(|part| (part.slot(), part.count(), part.group()))
        .collect();
    let group = |ordinal| Some(Group { ordinal, count: 3 });
    let expected = [
        (144, 1, None),
        (64, 1, group(0)),
        (144, 2, group(1)),
        (144, 2, None),
        (264, 1, group(2)),
    ];
    assert_eq!(listed, expected);
    let yard = yard.restarted(START_MS);
    let found = held(&yard, numbers.into_iter());
    assert_eq!(found.len(), 4);
    assert!(found.values().all(|value| value == b"together"));
}

#[test]
fn a_change_of_keys_that_turn_out_to_be_of_one_slot_is_a_record_without_a_group() {
    let mut yard = yard();
    let names = names_of(&[key(1, 1), key(2, 2), key(1, 3)]);
    let mut change = open(&mut yard, &names);
    change.put(0, KindedValue::plain(b"a"), None);
    change.put(2, KindedValue::plain(b"c"), None);
    assert_eq!(change.record_bytes(), 2 * 56, "no area");
    assert_eq!(change.commit(0).expect("there is room").lsn.0, 1);
    yard.turn();
    yard.store
        .log_mut()
        .want_durable(penstock_storage::place::Lsn(1));
    yard.turn();
    let files = yard.disk.files.clone();
    assert!(parts(&files).iter().all(|part| part.group().is_none()));
    assert_eq!(parts(&files).len(), 2);
}

#[test]
fn keys_of_several_slots_are_what_a_model_says_after_a_commit_a_drop_and_a_start() {
    let (mut committed, mut dropped, mut groups) = (0, 0, 0);
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let mut yard = yard();
        let all: Vec<u32> = (0..5)
            .flat_map(|slot| (0..12).map(move |number| key(slot, number)))
            .collect();
        let mut model = Model::new();
        for round in 0..30_u32 {
            let mut numbers = all.clone();
            numbers.retain(|_| random.once_in(5));
            if numbers.is_empty() {
                continue;
            }
            let (names, now_us) = (names_of(&numbers), yard.now_us);
            let value = [&b"a value of round "[..], &round.to_le_bytes()].concat();
            let (mut after, appended) = (model.clone(), yard.store.log().appended());
            let before = yard.store.log().counters().record_bytes;
            let mut change = open(&mut yard, &names);
            for (which, number) in numbers.iter().enumerate() {
                match (random.below(5), after.get_mut(number)) {
                    (0 | 1, _) => {
                        change.put(which, KindedValue::plain(&value), None);
                        after.insert(*number, value.clone());
                    }
                    (2, Some(_)) => {
                        change.delete(which);
                        after.remove(number);
                    }
                    (3, Some(held)) => {
                        change.field_mut(which, 1, 1)[0] ^= 0x55;
                        held[1] ^= 0x55;
                    }
                    _ => {}
                }
            }
            let bytes = change.record_bytes();
            if bytes == 0 || random.once_in(3) {
                drop(change);
                assert_eq!(held(&yard, all.iter().copied()), model);
                assert_eq!(yard.store.log().appended(), appended);
                dropped += 1;
                continue;
            }
            let mut done = change.commit(now_us);
            while matches!(done, Err(NoRoom::Wait)) {
                yard.turn();
                let mut change = open(&mut yard, &names);
                for (which, number) in numbers.iter().enumerate() {
                    match (model.get(number), after.get(number)) {
                        (held, now) if held == now => {}
                        (_, Some(now)) => change.put(which, KindedValue::plain(now), None),
                        (_, None) => change.delete(which),
                    }
                }
                done = change.commit(now_us);
            }
            let done = done.expect("there is room");
            assert_eq!(
                yard.store.log().counters().record_bytes - before,
                bytes as u64,
                "as much room as was asked for"
            );
            yard.store.log_mut().want_durable(done.lsn);
            groups += u32::from(done.lsn.0 > appended.0 + 1);
            committed += 1;
            model = after;
            assert_eq!(held(&yard, all.iter().copied()), model);
        }
        yard.turn();
        let yard = yard.restarted(START_MS);
        assert_eq!(held(&yard, all.iter().copied()), model);
    }
    assert!(committed > 500 && dropped > 200, "{committed}, {dropped}");
    assert!(groups > 400, "{groups}");
}

/// A record, a group of three records with six parts, one of them armed, and a record.
fn group_between_others() -> BTreeMap<FileId, Vec<u8>> {
    let mut yard = yard();
    put_all(&mut yard, &[key(0, 1)], b"before");
    let numbers = [
        key(0, 2),
        key(1, 3),
        key(1, 4),
        key(1, 5),
        key(2, 6),
        key(2, 7),
    ];
    let names = names_of(&numbers);
    let mut change = open(&mut yard, &names);
    (0..6).for_each(|which| change.put(which, KindedValue::plain(b"together"), Some(START_MS + 9)));
    change.arm(1, EffectsArea::new(b"what runs"));
    change.commit(0).expect("there is room");
    put_all(&mut yard, &[key(1, 8)], b"behind");
    yard.turn();
    yard.pass(10_000);
    yard.turn();
    yard.disk.files
}

/// The keys that a directory has, with one letter for each value.
fn found(files: &BTreeMap<FileId, Vec<u8>>) -> Vec<(Vec<u8>, bool)> {
    let read = read_back(&mut Disk::from(files.clone())).expect("it is sound");
    let parts = read.records.into_iter().flatten();
    parts
        .map(|(key, value)| (key, value.is_some_and(|value| value == b"together")))
        .collect()
}

#[test]
fn a_repair_gives_up_a_group_whole_whichever_of_its_bytes_is_damaged() {
    let files = group_between_others();
    let whole = found(&files);
    assert_eq!(
        whole.iter().filter(|(_, is_of_group)| *is_of_group).count(),
        6
    );
    let bytes = &files[&FileId(1)];
    let parts = parts(&files);
    let start = bytes.as_ptr() as usize;
    let end = parts
        .iter()
        .map(|part| part.bytes().as_ptr_range().end as usize - start)
        .max()
        .expect("there are parts");
    // The bytes that are key or value of a part of the group, and no field of it.
    let is_text = |at: usize| {
        parts.iter().any(|part| {
            let text = [part.key(), part.value()].map(|text| text.as_ptr_range());
            let at = start + at;
            part.value() == b"together"
                && text
                    .iter()
                    .any(|text| (text.start as usize..text.end as usize).contains(&at))
        })
    };
    let (mut given_up, mut texts) = (0, 0);
    for at in BLOCK_BYTES + FRAME_HEADER_BYTES..end {
        let mut damaged = files.clone();
        damaged.get_mut(&FileId(1)).expect("the segment")[at] ^= 1 << (at % 8);
        assert!(
            read_back(&mut Disk::from(damaged.clone())).is_err(),
            "byte {at}: a start says so"
        );
        let plan = plan(&mut Disk::from(damaged.clone()), OWNER).expect("it can be listed");
        assert!(plan.beyond.is_empty(), "byte {at}: {:?}", plan.beyond);
        let mut disk = Disk::from(damaged.clone());
        for rebuild in &plan.rebuilds {
            let mut bytes = vec![0; usize::try_from(rebuild.bytes).expect("short")];
            rebuild.read(&mut disk, 0, &mut bytes).expect("it reads");
            damaged.insert(rebuild.file, bytes);
        }
        let left = found(&damaged);
        let of_group = left.iter().filter(|(_, is_of_group)| *is_of_group).count();
        assert!([0, 6].contains(&of_group), "byte {at}: {of_group} of 6");
        given_up += u32::from(of_group == 0);
        if is_text(at) {
            texts += 1;
            assert_eq!(
                left.len(),
                2,
                "byte {at}: the records beside the group stay"
            );
            let lost = plan.damages.iter().flat_map(|it| &it.lost_parts);
            assert_eq!(lost.count(), 6, "byte {at}: each key is named");
        }
    }
    assert!(given_up > 300 && texts > 50, "{given_up}, {texts}");
}

#[test]
fn a_group_cut_at_any_byte_is_there_whole_or_not_at_all() {
    let mut yard = yard();
    put_all(&mut yard, &[key(0, 1)], b"before");
    yard.turn();
    let start = 2 * BLOCK_BYTES;
    let numbers: Vec<u32> = (0..90).map(|number| key(number % 7, number)).collect();
    put_all(&mut yard, &numbers, b"together");
    yard.turn();
    let files = yard.disk.files;
    let bytes = &files[&FileId(1)];
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("written") + 1;
    assert!(end > start + BLOCK_BYTES, "more than a block");
    for cut in (start..end).step_by(3).chain([end - 1]) {
        let mut cut_off = files.clone();
        cut_off.get_mut(&FileId(1)).expect("the segment")[cut..].fill(0);
        assert_eq!(found(&cut_off).len(), 1, "cut at {cut}");
    }
    assert_eq!(found(&files).len(), 91);
}

#[test]
fn cleaning_copies_what_counts_of_groups_as_records_alone() {
    let mut yard = Yard::empty(Log::new(
        config(SyncMethod::DurableWrite),
        LogStart::default(),
        Heap,
    ));
    yard.turn();
    yard.store.cleaning_mut().configure(CleaningConfig {
        space_percent_max: 101,
        bytes_per_s: 1 << 30,
        log_bytes_max: 0,
    });
    let mut model = Model::new();
    let mut random = Random::new(5);
    for round in 0..1_500_u32 {
        let first = u32::try_from(random.below(200)).expect("few");
        let numbers: Vec<u32> = (first..first + 2 + round % 40)
            .map(|number| key(number % 6, number))
            .collect();
        let value = [round.to_le_bytes(); 8].concat();
        let names = names_of(&numbers);
        loop {
            let now_us = yard.now_us;
            let mut change = open(&mut yard, &names);
            (0..names.len()).for_each(|which| change.put(which, KindedValue::plain(&value), None));
            if let Ok(done) = change.commit(now_us) {
                yard.store.log_mut().want_durable(done.lsn);
                break;
            }
            yard.turn();
        }
        model.extend(numbers.iter().map(|number| (*number, value.clone())));
        yard.turn();
        yard.clean(|_| ());
    }
    let counters = yard.store.cleaning().counters();
    assert!(
        counters.segments > 10 && counters.segments > counters.unread,
        "{counters:?}"
    );
    let yard = yard.restarted(START_MS);
    assert_eq!(held(&yard, model.keys().copied()), model);
}
