//! Changes beside a model: the state after a commit, and that a dropped change leaves no trace.

use penstock_storage::extension::EffectsArea;
use penstock_storage::record::KindedValue;
use penstock_storage::store::{Change, FewKeys, NoRoom, Store};
use penstock_storage::timers::Timer;

use crate::change::{KEYS, NOW_MS, SLOT, all_found, filled_store, found, seen, store};
use crate::heap::Heap;
use crate::random::Random;
use crate::seed::{Seed, seeds};

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    bytes: Vec<u8>,
    expiry_ms: Option<u64>,
    /// What runs when it expires.
    effects: Option<Vec<u8>>,
}

type Held = Option<Value>;

fn held(store: &Store<Heap>) -> Vec<Held> {
    let seen = seen(store).into_iter().enumerate();
    seen.map(|(which, (_, seen))| {
        let (bytes, expiry_ms, _) = seen?;
        let id = found(store, which).cell.expect("it has a value");
        Some(Value {
            bytes,
            expiry_ms,
            effects: store.keys().effects(id).map(<[u8]>::to_vec),
        })
    })
    .collect()
}

/// Each armed key has its timer, and there is no other.
fn check_timers(store: &Store<Heap>, model: &[Held]) {
    let armed = model.iter().enumerate().filter_map(|(which, held)| {
        let held = held.as_ref().filter(|held| held.effects.is_some())?;
        Some(Timer {
            expiry_ms: held.expiry_ms.expect("an armed key expires"),
            slot: SLOT,
            hash: found(store, which).hash,
        })
    });
    let mut expected: Vec<Timer> = armed.collect();
    expected.sort_unstable();
    let mut timers = Vec::new();
    while let Some(next) = store.keys().timers().next_behind(timers.last().copied()) {
        timers.push(next);
    }
    assert_eq!(timers, expected);
}

const PUT: &[u8] = b"a longer value than it had";

/// Does something to one key, and the same to its model. Tells whether the key is in the record.
fn step(
    random: &mut Random,
    change: &mut Change<'_, '_, Heap, FewKeys<8>>,
    which: usize,
    model: &mut Held,
) {
    let expiry_ms = random
        .once_in(2)
        .then(|| NOW_MS + 9 + random.below(3) as u64);
    match (random.below(5), model) {
        (0, model) => {
            change.put(which, KindedValue::plain(PUT), expiry_ms);
            *model = Some(Value {
                bytes: PUT.to_vec(),
                expiry_ms,
                effects: None,
            });
        }
        (_, None) => {}
        (1, model) => {
            change.delete(which);
            *model = None;
        }
        (2, Some(value)) => {
            change.expire(which, expiry_ms);
            value.expiry_ms = expiry_ms;
            value.effects.take_if(|_| expiry_ms.is_none());
        }
        (3, Some(value)) => {
            change.replace(which, b"99");
            value.bytes = b"99".to_vec();
        }
        (_, Some(Value { bytes, .. })) => {
            let at = random.below(bytes.len());
            change.field_mut(which, at, 1)[0] ^= 0x55;
            bytes[at] ^= 0x55;
        }
    }
}

/// Arms some of the keys that have a value and an expiry.
fn arm(random: &mut Random, change: &mut Change<'_, '_, Heap, FewKeys<8>>, model: &mut [Held]) {
    for (which, held) in model.iter_mut().enumerate() {
        if let Some(value) = held
            && value.expiry_ms.is_some()
            && random.once_in(2)
        {
            let effects = vec![b'e'; random.below(40)];
            change.arm(which, EffectsArea::new(&effects));
            value.effects = Some(effects);
        }
    }
}

#[test]
fn keys_are_what_a_model_says_after_a_commit_and_as_they_were_after_a_drop() {
    let (mut committed, mut dropped) = (0, 0);
    for seed in seeds(300) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let mut store = filled_store();
        for _ in 0..4 {
            let first = random.below(KEYS.len());
            let count = 1 + random.below(KEYS.len() - first);
            let mut keys = all_found(&store);
            keys.rotate_left(first);
            let (before, mut model) = (seen(&store), held(&store));
            let appended = store.log().appended();
            let mut change = store.change(SLOT, keys, count);
            for _ in 0..random.below(8) {
                let which = random.below(count);
                step(&mut random, &mut change, which, &mut model[first + which]);
                let value = change.value(which);
                let expected = model[first + which].as_ref();
                assert_eq!(value, expected.map(|value| &value.bytes[..]));
            }
            arm(&mut random, &mut change, &mut model[first..first + count]);
            let bytes = change.record_bytes();
            if bytes > 0 && random.once_in(2) {
                let done = change.commit(0).expect("there is room");
                committed += 1;
                assert_eq!(held(&store), model);
                check_timers(&store, &model);
                assert_eq!(store.log().appended().0, appended.0 + 1, "one record");
                let changed = seen(&store).into_iter().zip(&before);
                let changed = changed.filter(|(now, before)| now != *before);
                let versions = changed.filter_map(|((_, now), _)| Some(now?.2));
                assert!(versions.into_iter().all(|version| version == done.version));
            } else {
                drop(change);
                dropped += 1;
                assert_eq!(seen(&store), before);
                check_timers(&store, &held(&store));
                assert_eq!(store.log().appended(), appended);
            }
        }
    }
    assert!(committed > 300 && dropped > 300, "{committed}, {dropped}");
}

#[test]
fn a_change_that_finds_no_room_leaves_every_key_as_it_was() {
    let mut store = store(0);
    let before = seen(&store);
    let keys = all_found(&store);
    let mut change = store.change(SLOT, keys, 8);
    change.put(0, KindedValue::plain(b"new"), None);
    change.put(7, KindedValue::plain(b"new"), None);
    let refused = change.commit(0).map(|_| ());
    assert_eq!(refused, Err(NoRoom::Wait), "no segment has come");
    assert_eq!(seen(&store), before);
}

#[test]
fn a_key_that_came_and_went_in_one_change_is_not_logged() {
    let mut store = filled_store();
    let new = found(&store, 7);
    let mut change = store.change(SLOT, [new], 1);
    change.put(0, KindedValue::plain(b"comes"), Some(NOW_MS + 1));
    assert!(change.record_bytes() > 0);
    change.delete(0);
    assert_eq!(change.record_bytes(), 0);
}
