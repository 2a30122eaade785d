//! A change of keys: the state after a commit, and that a dropped change leaves no trace.

use penstock_storage::contents::History;
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::{FileId, LogStart};
use penstock_storage::record::{KindedValue, ValueKind};
use penstock_storage::recovery::Replayed;
use penstock_storage::store::{ChangeKey, Found, NoRoom, Store};
use penstock_storage::version::Version;

use crate::heap::Heap;
use crate::journal::config;

pub const SLOT: u16 = 64;
const SEGMENT_BYTES: u64 = 1 << 20;
pub const NOW_MS: u64 = 10_000;
/// Keys: four with a value, one deleted, one expired, two that never had a value.
pub const KEYS: [&[u8]; 8] = [b"aa", b"bb", b"cc", b"dd", b"gone", b"over", b"n1", b"n2"];
const GONE: usize = 4;
const OVER: usize = 5;
const NEW: usize = 6;

/// A store with these keys, over a log with so many segment files.
pub fn store(files: u32) -> Store<Heap> {
    let config = LogConfig {
        frame_bytes: 64 << 10,
        ..config(SyncMethod::DurableWrite)
    };
    let log = Log::with_history(config, LogStart::default(), History::default(), Heap);
    let mut store = Store::new(log, Heap, 256, [0; 256], Replayed::new(1 << 26));
    for file in 1..=files {
        let salt = u64::from(file);
        store.log_mut().add_spare(FileId(file), salt, SEGMENT_BYTES);
    }
    store.log_mut().pump(0, &mut Vec::new());
    store.data_mut().observe(0, NOW_MS);
    store
}

pub fn filled_store() -> Store<Heap> {
    let mut store = store(3);
    for which in 0..NEW {
        let expiry_ms = (which == OVER).then_some(NOW_MS - 1);
        let key = found(&store, which);
        let mut change = store.change(SLOT, [key], 1);
        change.put(0, KindedValue::plain(b"12345678"), expiry_ms);
        change.commit(0).expect("there is room");
    }
    let gone = found(&store, GONE);
    let mut change = store.change(SLOT, [gone], 1);
    change.delete(0);
    change.commit(0).expect("there is room");
    store
}

fn hash(which: usize) -> u32 {
    u32::try_from(2 * which + 2).expect("few")
}

pub fn found(store: &Store<Heap>, which: usize) -> ChangeKey<'static> {
    let (key, hash) = (KEYS[which], hash(which));
    let (cell, exists, expiry_ms, kind) = match store.keys().find(SLOT, hash, key) {
        Found::Cached(id) => {
            let (exists, expiry_ms, kind, _, _) = store.data().standing(id);
            (Some(id), exists, expiry_ms, kind)
        }
        Found::Absent => (None, false, None, ValueKind::Plain),
        Found::Cold(_) => panic!("all are in memory"),
    };
    ChangeKey {
        key,
        hash,
        cell,
        exists,
        expiry_ms,
        kind,
    }
}

pub fn all_found(store: &Store<Heap>) -> [ChangeKey<'static>; 8] {
    std::array::from_fn(|which| found(store, which))
}

/// What a reader sees of a key, and whether the index has it.
pub type Seen = (bool, Option<(Vec<u8>, Option<u64>, Version)>);

pub fn seen(store: &Store<Heap>) -> Vec<Seen> {
    let one = |which| {
        let found = found(store, which);
        let value = found.cell.filter(|_| found.exists).map(|id| {
            let value = store.keys().cell(id).value().to_vec();
            (value, found.expiry_ms, store.keys().version(id))
        });
        (found.cell.is_some(), value)
    };
    (0..KEYS.len()).map(one).collect()
}

/// Changes eight keys in every way, and commits that if it is asked to.
fn change_all(store: &mut Store<Heap>, is_committed: bool) -> Result<(), NoRoom> {
    let keys = all_found(store);
    let mut change = store.change(SLOT, keys, KEYS.len());
    for field in [&b"xy"[..], b"z"] {
        change.field_mut(0, 0, field.len()).copy_from_slice(field);
    }
    change.put(
        1,
        KindedValue::plain(b"a longer value than it had"),
        Some(NOW_MS + 5),
    );
    change.delete(2);
    change.expire(3, Some(NOW_MS + 7));
    for which in [GONE, OVER, NEW] {
        assert!(change.value(which).is_none(), "it has no value");
        change.put(which, KindedValue::plain(b"begun"), None);
        change.field_mut(which, 0, 1)[0] = b'B';
    }
    change.put(7, KindedValue::plain(b"new"), None);
    assert!(change.record_bytes() > 0);
    match is_committed {
        true => change.commit(0).map(|_| ()),
        false => Ok(()),
    }
}

#[test]
fn a_change_that_is_dropped_leaves_every_key_as_it_was() {
    let mut store = filled_store();
    let (before, appended) = (seen(&store), store.log().appended());
    assert_eq!(change_all(&mut store, false), Ok(()));
    assert_eq!(seen(&store), before);
    assert_eq!(store.log().appended(), appended, "nothing was logged");
}

#[test]
fn a_change_that_finds_no_room_leaves_every_key_as_it_was() {
    let mut store = store(0);
    let before = seen(&store);
    let keys = all_found(&store);
    let mut change = store.change(SLOT, keys, KEYS.len());
    change.put(NEW, KindedValue::plain(b"begun"), None);
    change.put(7, KindedValue::plain(b"new"), None);
    let refused = change.commit(0).map(|_| ());
    assert_eq!(refused, Err(NoRoom::Wait), "no segment has come");
    assert_eq!(seen(&store), before);
}

#[test]
fn a_committed_change_of_eight_keys_is_one_record_of_one_version() {
    let mut store = filled_store();
    let appended = store.log().appended();
    assert_eq!(change_all(&mut store, true), Ok(()));
    let seen = seen(&store);
    let values: Vec<Option<(&[u8], Option<u64>)>> = seen
        .iter()
        .map(|(_, seen)| seen.as_ref().map(|(value, ms, _)| (&value[..], *ms)))
        .collect();
    assert_eq!(
        values,
        [
            Some((&b"zy345678"[..], None)),
            Some((b"a longer value than it had", Some(NOW_MS + 5))),
            None,
            Some((b"12345678", Some(NOW_MS + 7))),
            Some((b"Begun", None)),
            Some((b"Begun", None)),
            Some((b"Begun", None)),
            Some((b"new", None)),
        ]
    );
    let mut versions = seen.iter().filter_map(|(_, seen)| Some(seen.as_ref()?.2));
    let first = versions.next().expect("seven have a value");
    assert!(versions.all(|version| version == first), "one record");
    assert_eq!(store.log().appended().0, appended.0 + 1);
}

#[test]
fn fields_that_were_edited_before_their_key_was_put_or_deleted_come_back_with_a_drop() {
    for way in 0..4 {
        let mut store = filled_store();
        let before = seen(&store);
        let mut change = store.change(SLOT, [found(&store, 0)], 1);
        change.field_mut(0, 0, 2).copy_from_slice(b"xy");
        change.field_mut(0, 1, 4).copy_from_slice(b"abcd");
        match way {
            0 => change.put(0, KindedValue::plain(b"other"), None),
            1 => change.delete(0),
            2 => change.replace(0, b"of another length"),
            _ => {
                change.put_keeping(0, KindedValue::plain(b"other"));
                change.field_mut(0, 0, 1)[0] = b'O';
            }
        }
        drop(change);
        assert_eq!(seen(&store), before, "way {way}");
    }
}

#[test]
fn a_key_that_is_logged_unchanged_has_a_new_version_and_its_value() {
    let mut store = filled_store();
    let before = seen(&store);
    let mut change = store.change(SLOT, [found(&store, 0)], 1);
    assert_eq!(change.record_bytes(), 0);
    change.log_unchanged(0);
    assert!(change.record_bytes() > 0);
    let done = change.commit(0).expect("there is room");
    let (_, now) = &seen(&store)[0];
    let (value, expiry_ms, version) = now.clone().expect("it has a value");
    let (old_value, old_expiry_ms, old_version) = before[0].1.clone().expect("a value");
    assert_eq!((value, expiry_ms), (old_value, old_expiry_ms));
    assert!(version == done.version && version != old_version);
}
