//! A change that is made beside the store: beside a model, and that a dropped one leaves no trace.

use penstock_storage::store::{NoRoom, Staged, Store};

use crate::change::{KEYS, NOW_MS, SLOT, all_found, filled_store, found, seen, store};
use crate::heap::Heap;
use crate::random::Random;
use crate::seed::{Seed, seeds};

/// What a key has: its value and expiry.
type Held = Option<(Vec<u8>, Option<u64>)>;

fn held(store: &Store<Heap>) -> Vec<Held> {
    let seen = seen(store).into_iter();
    seen.map(|(_, seen)| seen.map(|(value, expiry_ms, _)| (value, expiry_ms)))
        .collect()
}

const PUT: &[u8] = b"a longer value than it had";

/// Does something to one key, and the same to its model. Tells whether the key is in the record.
fn step(random: &mut Random, staged: &mut Staged<'_, '_, Heap, 8>, which: usize, model: &mut Held) {
    let expiry_ms = random.once_in(2).then_some(NOW_MS + 9);
    match (random.below(5), model) {
        (0, model) => {
            staged.put(which, PUT, expiry_ms);
            *model = Some((PUT.to_vec(), expiry_ms));
        }
        (_, None) => {}
        (1, model) => {
            staged.delete(which);
            *model = None;
        }
        (2, Some((_, expiry))) => {
            staged.expire(which, expiry_ms);
            *expiry = expiry_ms;
        }
        (3, Some((value, _))) => {
            staged.replace(which, b"99");
            *value = b"99".to_vec();
        }
        (_, Some((value, _))) => {
            let at = random.below(value.len());
            staged.edit(which)[at] ^= 0x55;
            value[at] ^= 0x55;
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
            let mut staged = store.stage(SLOT, keys, count);
            for _ in 0..random.below(8) {
                let which = random.below(count);
                step(&mut random, &mut staged, which, &mut model[first + which]);
                let value = staged.value(which);
                let expected = model[first + which].as_ref();
                assert_eq!(value, expected.map(|(value, _)| &value[..]));
            }
            let bytes = staged.record_bytes();
            if bytes > 0 && random.once_in(2) {
                let done = staged.commit(0).expect("there is room");
                committed += 1;
                assert_eq!(held(&store), model);
                assert_eq!(store.log().appended().0, appended.0 + 1, "one record");
                let changed = seen(&store).into_iter().zip(&before);
                let changed = changed.filter(|(now, before)| now != *before);
                let versions = changed.filter_map(|((_, now), _)| Some(now?.2));
                assert!(versions.into_iter().all(|version| version == done.version));
            } else {
                drop(staged);
                dropped += 1;
                assert_eq!(seen(&store), before);
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
    let mut staged = store.stage(SLOT, keys, 8);
    staged.put(0, b"new", None);
    staged.put(7, b"new", None);
    let refused = staged.commit(0).map(|_| ());
    assert_eq!(refused, Err(NoRoom::Wait), "no segment has come");
    assert_eq!(seen(&store), before);
}

#[test]
fn a_key_that_came_and_went_in_one_change_is_not_logged() {
    let mut store = filled_store();
    let new = found(&store, 7);
    let mut staged = store.stage(SLOT, [new], 1);
    staged.put(0, b"comes", Some(NOW_MS + 1));
    assert!(staged.record_bytes() > 0);
    staged.delete(0);
    assert_eq!(staged.record_bytes(), 0);
}
