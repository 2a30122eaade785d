//! Runs: changes of one key that are one record.

use penstock_storage::extension::EffectsArea;
use penstock_storage::key_home::KeyHome;
use penstock_storage::record::{KindedValue, part_bytes};
use penstock_storage::store::{RepeatStep, Store};

use crate::change::{NOW_MS, SLOT, filled_store, found, seen};
use crate::heap::Heap;

/// Bytes by which a part that stands for many changes is longer.
const CHANGES_BYTES: u64 = 24;

fn changed(store: &mut Store<Heap>, which: usize, values: &[&[u8; 8]]) -> Vec<u64> {
    let key = found(store, which);
    let id = key.cell.expect("it is there");
    let mut run = store
        .run(0, KeyHome::new(SLOT, key.hash), id)
        .expect("it has a value");
    let lsns = values
        .iter()
        .map(|value| run.replace(*value).expect("there is room").0);
    lsns.collect()
}

#[test]
fn changes_of_a_run_have_versions_of_their_own_and_one_record() {
    let mut store = filled_store();
    let before = seen(&store)[1].1.clone().expect("it has a value");
    let newest = store.data().numbering().sequences()[usize::from(SLOT) / 64];
    let (counters, last) = (store.log().counters(), store.log().appended());
    let values = [b"00000001", b"00000002", b"00000003"];
    assert_eq!(changed(&mut store, 1, &values), [last.0 + 1; 3]);
    let after = seen(&store)[1].1.clone().expect("it has a value");
    assert_eq!(after.0, b"00000003");
    assert_eq!(after.2.sequence, newest + 3);
    assert_eq!(after.2.epoch, before.2.epoch);
    let (now, bytes) = (store.log().counters(), part_bytes(2, 8, false, 0) as u64);
    assert_eq!(now.records - counters.records, 1);
    assert_eq!(
        now.record_bytes - counters.record_bytes,
        bytes + CHANGES_BYTES
    );
}

#[test]
fn a_run_of_one_change_is_a_record_as_any_other() {
    let mut store = filled_store();
    let counters = store.log().counters();
    changed(&mut store, 1, &[b"00000001"]);
    let (now, bytes) = (store.log().counters(), part_bytes(2, 8, false, 0) as u64);
    assert_eq!(now.record_bytes - counters.record_bytes, bytes);
}

#[test]
fn a_run_that_changes_nothing_logs_nothing() {
    let mut store = filled_store();
    let (before, counters) = (seen(&store), store.log().counters());
    let key = found(&store, 1);
    let id = key.cell.expect("it is there");
    let mut run = store
        .run(0, KeyHome::new(SLOT, key.hash), id)
        .expect("it has a value");
    assert_eq!(run.change(|_| Ok::<(), ()>(())), RepeatStep::Same);
    assert_eq!(run.change(|_| Err(7)), RepeatStep::Stopped(7));
    drop(run);
    assert_eq!(seen(&store), before);
    assert_eq!(store.log().counters().records, counters.records);
}

#[test]
fn a_change_of_a_run_that_finds_no_room_leaves_the_value_as_it_was() {
    let mut store = filled_store();
    let key = found(&store, 1);
    let id = key.cell.expect("it is there");
    // The open frame has 64 KiB. Each run takes 80 bytes of it at most.
    let mut runs = 0;
    loop {
        let before = seen(&store);
        let mut run = store
            .run(0, KeyHome::new(SLOT, key.hash), id)
            .expect("it has a value");
        let first = run.replace(b"00000001");
        if first.is_none() {
            drop(run);
            assert_eq!(seen(&store), before);
            break;
        }
        assert!(run.replace(b"00000002").is_some(), "a run goes on");
        runs += 1;
        assert!(runs < 64 << 10);
    }
    assert!(runs > 700, "{runs}");
}

#[test]
fn no_run_is_opened_on_a_key_that_is_gone_or_armed() {
    let mut store = filled_store();
    let (gone, armed) = (found(&store, 4), found(&store, 0));
    if let Some(id) = gone.cell {
        assert!(store.run(0, KeyHome::new(SLOT, gone.hash), id).is_none());
    }
    let mut change = store.change(SLOT, [armed], 1);
    change.put(0, KindedValue::plain(b"12345678"), Some(NOW_MS + 1));
    change.arm(0, EffectsArea::new(b"effects"));
    change.commit(0).expect("there is room");
    let armed = found(&store, 0);
    let id = armed.cell.expect("it has a value");
    assert!(store.run(0, KeyHome::new(SLOT, armed.hash), id).is_none());
}
