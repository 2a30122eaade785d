//! The cache by itself: lengths, versions, who leaves, thin pages.

use crate::format::record::{KEY_BYTES_MAX, KindedValue};
use crate::memory::cache::cell::EXPIRY_BYTES;
use crate::memory::cache::cell::HEAD_BYTES;
use crate::memory::cache::cell::SMALL_BYTES_MAX;
use crate::memory::cache::cells::Cache;
use crate::memory::cache::cells::SPARE_BYTES;
use crate::memory::cache::cells::cell_bytes;
use crate::memory::cache::page::class_bytes;
use crate::memory::cache::page::class_of;
use crate::memory::index::entry::CellId;
use crate::types::packed_place::PackedPlace;
use crate::types::place::FileId;
use crate::types::place::Lsn;
use crate::types::place::Place;
use crate::types::place::rounded_bytes;
use crate::types::version::Version;
use std::collections::BTreeMap;
use std::sync::Arc;

fn packed(number: u64) -> PackedPlace {
    let place = Place {
        file: FileId(1),
        offset: 4096 + 8 * (number % 1_000),
        bytes: rounded_bytes(64),
    };
    PackedPlace::new(place, number)
}

fn version(epoch: u32, sequence: u64) -> Version {
    Version { epoch, sequence }
}

fn durable(cache: &mut Cache, id: CellId) {
    cache.set_change(id, version(1, 1), packed(1), None);
}

fn value_of(len: usize) -> Vec<u8> {
    vec![u8::try_from(len % 251).expect("small"); len]
}

#[test]
fn every_length_has_the_shortest_class_that_holds_it() {
    for bytes in HEAD_BYTES + 1..=SMALL_BYTES_MAX {
        let class = class_of(bytes);
        assert!(
            class_bytes(class) >= bytes && class_bytes(class - 1) < bytes,
            "{bytes}"
        );
        assert!(class_bytes(class) - bytes <= 1.max(bytes / 16), "{bytes}");
    }
}

#[test]
fn a_counter_takes_42_bytes_and_no_short_value_a_heap_block() {
    let mut cache = Cache::new(1 << 20);
    cache.insert(&[7; 16], KindedValue::plain(&[0; 8]), None);
    assert_eq!(cache.used_bytes(), 42);
    cache.insert(&[8; KEY_BYTES_MAX], KindedValue::plain(&[0; 20]), Some(1));
    assert_eq!((cache.heap_bytes, cache.large.len()), (0, 0));
    for (key, value) in [(16, 8), (16, 20), (64, 20), (3, 1024), (16, 65_536)] {
        let before = cache.used_bytes();
        let key_bytes = vec![9; key];
        let id = cache.insert(&key_bytes, KindedValue::plain(&vec![0; value]), None);
        assert_eq!(cache.used_bytes() - before, cell_bytes(key, value, false));
        cache.remove(id);
        assert_eq!(cache.used_bytes(), before);
    }
}

#[test]
fn values_and_expiries_of_all_lengths_come_and_go() {
    let mut cache = Cache::new(1 << 20);
    let mut id = cache.insert(b"key", KindedValue::plain(b""), None);
    durable(&mut cache, id);
    let lens = [
        0usize, 1, 27, 28, 29, 35, 100, 64, 28, 2_018, 2_020, 2_027, 2_028, 5_000, 2, 900,
    ];
    for len in lens.into_iter().chain(lens.into_iter().rev()) {
        let value = value_of(len);
        for (number, expiry) in [Some(5), None, Some(6), Some(7), None]
            .into_iter()
            .enumerate()
        {
            id = match number {
                0 => cache.set_value(id, KindedValue::plain(&value), expiry),
                _ => cache.set_expiry(id, expiry),
            };
            let cell = cache.cell(id);
            assert_eq!((cell.key(), cell.value()), (&b"key"[..], &value[..]));
            assert_eq!(cell.expiry_ms(), expiry, "{len} bytes");
            assert_eq!((cache.version(id), cache.len()), (version(1, 1), 1));
            assert!(cache.used_bytes() <= 2 * cell_bytes(3, len, true));
        }
        assert_eq!(cache.value_mut(id), value);
    }
    id = cache.set_value(id, KindedValue::plain(b"value"), Some(4));
    cache.mark_deleted(id);
    let cell = cache.cell(id);
    assert!(cell.is_deleted() && cell.value().is_empty());
    assert_eq!(cell.expiry_ms(), None, "a deletion does not expire");
    id = cache.set_value(id, KindedValue::plain(b""), None);
    assert!(!cache.cell(id).is_deleted());
    cache.remove(id);
    assert_eq!((cache.used_bytes(), cache.len()), (0, 0));
    assert_eq!(
        (cache.fresh_bytes, cache.heap_bytes),
        (0, 0),
        "pages are given back"
    );
}

#[test]
fn a_block_that_others_share_is_copied_before_it_changes_and_edited_in_place_otherwise() {
    let mut cache = Cache::new(1 << 20);
    let value = value_of(5_000);
    let mut id = cache.insert(b"key", KindedValue::plain(&value), Some(7));
    durable(&mut cache, id);
    let share = |cache: &Cache, id| {
        let (block, range) = cache.shared_value(id).expect("it has a block");
        (Arc::clone(block), range)
    };
    // In place: the next who shares it has the same block.
    let first = Arc::as_ptr(&share(&cache, id).0);
    cache.value_mut(id)[0] = 1;
    id = cache.set_value(id, KindedValue::plain(&value), Some(8));
    id = cache.set_expiry(id, Some(9));
    assert_eq!(Arc::as_ptr(&share(&cache, id).0), first);

    let used = cache.used_bytes();
    type Change = fn(&mut Cache, CellId) -> CellId;
    let changes: [Change; 6] = [
        |cache, id| {
            cache.value_mut(id)[4_999] += 1;
            id
        },
        |cache, id| cache.set_value(id, KindedValue::plain(&value_of(5_001)), Some(5)),
        |cache, id| cache.set_value(id, KindedValue::plain(&value_of(4_000)), None),
        |cache, id| cache.set_expiry(id, Some(77)),
        |cache, id| cache.set_value(id, KindedValue::plain(b"short"), None),
        |cache, id| {
            cache.remove(id);
            cache.insert(b"key", KindedValue::plain(&value_of(3_000)), None)
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        id = cache.set_value(id, KindedValue::plain(&value), Some(8));
        let (block, range) = share(&cache, id);
        let before = block.to_vec();
        id = change(&mut cache, id);
        assert_eq!(*block, before, "change {number}");
        assert_eq!(block[range], value);
        assert_eq!(Arc::strong_count(&block), 1, "change {number}");
        assert_eq!(cache.cell(id).key(), b"key");
    }
    id = cache.set_value(id, KindedValue::plain(&value), Some(8));
    let (block, range) = share(&cache, id);
    cache.mark_deleted(id);
    assert!(cache.cell(id).value().is_empty() && block[range] == value);
    assert_eq!(
        cache.used_bytes(),
        used,
        "what others hold is not the cache's"
    );
    cache.remove(id);
    assert_eq!((cache.used_bytes(), cache.heap_bytes), (0, 0));
    assert_eq!(block.len(), 3 + 5_000 + EXPIRY_BYTES);
}

#[test]
fn no_block_is_shared_that_is_much_longer_than_its_value() {
    let mut cache = Cache::new(1 << 20);
    let mut id = cache.insert(b"key", KindedValue::plain(&value_of(SMALL_BYTES_MAX)), None);
    assert_eq!(
        cache.shared_value(id).expect("large").1,
        3..3 + SMALL_BYTES_MAX
    );
    let page = cache.insert(b"other", KindedValue::plain(b"value"), None);
    assert!(cache.shared_value(page).is_none());
    id = cache.set_value(id, KindedValue::plain(&value_of(7_000)), None);
    id = cache.set_value(id, KindedValue::plain(&value_of(6_590)), None);
    assert!(cache.shared_value(id).is_none(), "a block of 7,003 bytes");
    id = cache.set_value(id, KindedValue::plain(&value_of(6_592)), None);
    assert!(cache.shared_value(id).is_some());
}

#[test]
fn versions_of_any_epoch_and_sequence_are_kept() {
    let mut cache = Cache::new(1 << 20);
    cache.set_epoch(77);
    let mut kept = Vec::new();
    for number in 0..600u64 {
        let mut id = cache.insert(&number.to_le_bytes(), KindedValue::plain(b"value"), None);
        let epoch = u32::try_from(number / 2).expect("few") << 8;
        let version = match number % 2 {
            0 => version(epoch, number + 1),
            _ => version(77, (1 << 40) * number + number),
        };
        cache.set_change(id, version, packed(version.sequence), None);
        if number % 3 == 0 {
            id = cache.set_value(id, KindedValue::plain(&value_of(300)), None);
        }
        kept.push((id, version));
    }
    assert!(cache.versions.len() > 20, "{}", cache.versions.len());
    for &(id, version) in &kept {
        assert_eq!(cache.version(id), version);
    }
    for (id, _) in kept {
        cache.set_change(id, version(77, 5), packed(5), None);
        assert_eq!(cache.version(id), version(77, 5));
    }
    assert!(cache.versions.is_empty());
}

#[test]
fn a_cell_leaves_only_when_durable_and_not_deleted_and_after_a_second_chance() {
    let mut cache = Cache::new(0);
    let first = cache.insert(b"a", KindedValue::plain(b"1"), None);
    let second = cache.insert(b"b", KindedValue::plain(&value_of(5_000)), Some(1));
    let deleted = cache.insert(b"c", KindedValue::plain(b"3"), None);
    let unlogged = cache.insert(b"d", KindedValue::plain(b"4"), None);
    cache.set_change(first, version(1, 1), packed(1), Some(Lsn(5)));
    cache.settle(Lsn(0), usize::MAX, |_, _, _| true);
    cache.set_change(second, version(1, 2), packed(2), Some(Lsn(9)));
    durable(&mut cache, deleted);
    cache.mark_deleted(deleted);
    assert_eq!((cache.lsn(first), cache.lsn(second)), (Lsn(5), Lsn(9)));
    assert_eq!(
        cache.victim(Lsn(4), 0, &mut 100),
        None,
        "nothing durable, nothing leaves"
    );
    assert_eq!(cache.victim(Lsn(5), 0, &mut 100), Some(first));
    cache.touch(first);
    assert_eq!(cache.victim(Lsn(9), 0, &mut 100), Some(second));
    cache.remove(first);
    cache.remove(second);
    assert_eq!(cache.victim(Lsn(9), 0, &mut 100), None);
    assert_eq!(cache.cell(unlogged).key(), b"d");
}

/// What is kept is compared with a model, while lengths change and cells leave, and the memory
/// of pages must follow what is in use.
#[test]
fn thin_pages_are_emptied_and_nothing_is_lost() {
    let mut cache = Cache::new(1 << 30);
    let mut model: BTreeMap<u32, (CellId, usize)> = BTreeMap::new();
    let mut seed = 1u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut moves = 0;
    for phase in 0..4 {
        for number in 0..60_000u32 {
            let len = 20 + usize::try_from(random(80)).expect("small") + 100 * phase;
            let key = number.to_le_bytes();
            let id = match model.get(&number) {
                Some(&(id, _)) => cache.set_value(id, KindedValue::plain(&value_of(len)), None),
                None => cache.insert(&key, KindedValue::plain(&value_of(len)), None),
            };
            durable(&mut cache, id);
            model.insert(number, (id, len));
            if number % 8 == 0 {
                cache.settle(Lsn(0), usize::MAX, |cache, from, to| {
                    let to = to.expect("there is room elsewhere");
                    let key = cache.cell(to).key().try_into().expect("four bytes");
                    let entry = model.get_mut(&u32::from_le_bytes(key)).expect("it is kept");
                    assert_eq!(entry.0, from);
                    entry.0 = to;
                    moves += 1;
                    true
                });
            }
        }
        // Every third leaves.
        model.retain(|number, &mut (id, _)| {
            let leaves = number % 3 == 0;
            if leaves {
                cache.remove(id);
            }
            !leaves
        });
        for _ in 0..40_000 {
            cache.settle(Lsn(0), usize::MAX, |cache, _, to| {
                let to = to.expect("there is room elsewhere");
                let key = cache.cell(to).key().try_into().expect("four bytes");
                model
                    .get_mut(&u32::from_le_bytes(key))
                    .expect("it is kept")
                    .0 = to;
                moves += 1;
                true
            });
        }
        let (used, held) = (cache.used_bytes(), cache.memory_bytes());
        assert!(
            held <= used + used / 8 + 2 * SPARE_BYTES,
            "{held} bytes for {used}"
        );
        let expected: usize = model
            .values()
            .map(|&(_, len)| cell_bytes(4, len, false))
            .sum();
        assert!(used <= expected * 2 && cache.len() == model.len());
        for (number, &(id, len)) in &model {
            let cell = cache.cell(id);
            assert_eq!(
                (cell.key(), cell.value()),
                (&number.to_le_bytes()[..], &value_of(len)[..])
            );
        }
    }
    assert!(moves > 1_000, "{moves} cells were moved");
}

/// Of each of many lengths a few cells of many are left, spread over all pages.
#[test]
fn pages_are_held_within_a_bound_by_moving_cells_and_then_by_letting_some_leave() {
    const HELD_BYTES_MAX: usize = 6 << 20;
    let mut cache = Cache::new(1 << 30);
    let mut kept: BTreeMap<Vec<u8>, CellId> = BTreeMap::new();
    for len in (20..2_000).step_by(60) {
        let keys = (0..(1 << 20) / (len + 24)).map(|number| format!("{len} {number}").into_bytes());
        let cells: Vec<_> = keys
            .map(|key| {
                (
                    cache.insert(&key, KindedValue::plain(&value_of(len)), None),
                    key,
                )
            })
            .collect();
        for (number, (id, key)) in cells.into_iter().enumerate() {
            durable(&mut cache, id);
            match number % 97 {
                0 => _ = kept.insert(key, id),
                _ => cache.remove(id),
            }
        }
    }
    let (used, before) = (cache.used_bytes(), kept.len());
    assert!(cache.held_bytes() > 3 * HELD_BYTES_MAX && used < HELD_BYTES_MAX / 4);
    // A cell whose change is not durable holds its page, and no other.
    let undurable = cache.insert(b"undurable", KindedValue::plain(&value_of(1_000)), None);
    cache.set_change(undurable, version(1, 1), packed(1), Some(Lsn(9)));
    let mut undurable = Some(undurable);
    let (mut turns, mut moved, mut gone) = (0, 0, 0);
    while cache.held_bytes() > HELD_BYTES_MAX {
        turns += 1;
        assert!(turns < 1_000, "{} bytes are held", cache.held_bytes());
        cache.settle(Lsn(0), HELD_BYTES_MAX, |cache, from, to| {
            let key = cache.cell(to.unwrap_or(from)).key();
            let Some(to) = to else {
                assert!(key != b"undurable");
                gone += 1;
                return kept.remove(key).is_some();
            };
            moved += 1;
            match kept.get_mut(key) {
                Some(id) => *id = to,
                None => undurable = Some(to),
            }
            true
        });
    }
    assert!(
        moved > 100 && gone < before,
        "{moved} moved, {gone} of {before} left"
    );
    assert_eq!(cache.len(), kept.len() + 1);
    for (key, &id) in &kept {
        assert_eq!(cache.cell(id).key(), key);
    }
    assert_eq!(
        undurable.map(|id| cache.cell(id).key()),
        Some(&b"undurable"[..])
    );
    // Nothing may leave: that is told, and the loop rests.
    for _ in 0..5_000 {
        cache.settle(Lsn(0), 0, |_, _, to| to.is_some());
    }
    assert!(!cache.may_shrink());
}
