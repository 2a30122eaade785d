//! What an embedded store takes from the heap, under an allocator that counts for the whole
//! process: nothing for a call once it is warm, neither by the caller nor by the shard's thread,
//! and for a scan a few pages however much there is.

use std::sync::atomic::Ordering;

use penstock::embedded::{Apply, ClientError, Entry, Field};
use penstock::{Options, Penstock, Verbs};
use penstock_net::level::AckLevel;

use crate::counting::{ALLOCATIONS, HELD, HELD_MAX};
use crate::the_counters;

const CALLS: u64 = 4_000;
/// What the store does besides, by time and not by call: segment files, and numbers for INFO.
const BESIDES_MAX: u64 = 200;

/// Makes the calls once to warm up and once to count; the allocations of the second time.
fn count(mut call: impl FnMut()) -> u64 {
    (0..CALLS).for_each(|_| call());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..CALLS).for_each(|_| call());
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Takes one of the stock and counts it elsewhere.
fn order() -> Apply {
    let mut order = Apply::new();
    let (stock, sold) = (order.key(b"stock"), order.key(b"{stock}sold"));
    order
        .then(stock.u64(0).decrease(1u64))
        .start(sold, &[0; 8])
        .then(sold.u64(0).increase(1u64));
    order
}

#[test]
fn calls_allocate_nothing_once_they_are_warm() {
    let _counters = the_counters();
    let directory = std::env::temp_dir().join(format!("penstock-heap-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let options = Options::default().level(AckLevel::None);
    let stock = Field::u64(0);
    let buy = [stock.at_least(1), stock.decrease(1)];
    let value = [7; 1024];
    let order = order();
    let mut counted = Vec::new();

    let store = Penstock::open(&directory, options.clone()).unwrap();
    store
        .set(b"stock", &(1u64 << 60).to_le_bytes())
        .wait()
        .unwrap();
    store.set(b"value", &value).wait().unwrap();
    let get = || {
        assert_eq!(
            store.get_with(b"value", |value, _| value.len()).unwrap(),
            Some(1024)
        )
    };
    let set = || drop(store.set(b"value", &value).wait().unwrap());
    let update_if = || drop(store.update_if(b"stock", &buy).wait().unwrap());
    let apply = || drop(store.apply(&order).wait().unwrap());
    let miss = || assert_eq!(store.get(b"nobody").wait().unwrap(), None);
    counted.push(("get", count(get)));
    counted.push(("set", count(set)));
    counted.push(("update_if", count(update_if)));
    counted.push(("apply", count(apply)));
    counted.push(("get of nothing", count(miss)));
    store.close().unwrap();

    let mut store = Penstock::open_local(&directory, options).unwrap();
    counted.push((
        "local get",
        count(|| {
            let len = store.get_with(b"value", |value, _| value.len()).unwrap();
            assert_eq!(len, Some(1024));
        }),
    ));
    counted.push((
        "local set",
        count(|| drop(store.set(b"value", &value).unwrap())),
    ));
    counted.push((
        "local update_if",
        count(|| drop(store.update_if(b"stock", &buy).unwrap())),
    ));
    counted.push(("local apply", count(|| drop(store.apply(&order).unwrap()))));
    store.close().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();

    println!("{CALLS} calls each: {counted:?}");
    for (name, allocations) in counted {
        assert!(
            allocations <= BESIDES_MAX,
            "{name}: {allocations} allocations"
        );
    }
}

const SCANNED: u32 = 8_000;
const SCANNED_BYTES: usize = 4 << 10;
/// Two pages of 256 KiB, with all that is copied on their way, and what the store does besides.
const HELD_BY_SCAN_MAX: u64 = 4 << 20;

/// The bytes that a scan of everything has held at most beyond what was held before.
fn held_by(scan: impl Iterator<Item = Result<Entry, ClientError>>) -> u64 {
    let before = HELD.load(Ordering::Relaxed);
    HELD_MAX.store(before, Ordering::Relaxed);
    let values = scan.map(|entry| entry.unwrap().value.unwrap().len());
    assert_eq!(values.sum::<usize>(), SCANNED as usize * SCANNED_BYTES);
    HELD_MAX.load(Ordering::Relaxed) - before
}

#[test]
fn a_scan_holds_a_few_pages_however_much_there_is() {
    let _counters = the_counters();
    let directory = std::env::temp_dir().join(format!("penstock-pages-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let options = Options::default()
        .level(AckLevel::None)
        .segment_bytes(16 << 20)
        .cache_bytes(1 << 20);
    let store = Penstock::open(&directory, options.clone()).unwrap();
    for number in 0..SCANNED {
        let set = store.set(&number.to_le_bytes(), &[7; SCANNED_BYTES]);
        set.wait().unwrap();
    }
    let shared = held_by(store.scan(b"", true));
    store.close().unwrap();
    let mut store = Penstock::open_local(&directory, options).unwrap();
    let local = held_by(store.scan(b"", true));
    store.close().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    println!("a scan of 32 MiB held {shared} bytes, and {local} on the caller's thread");
    assert!(shared.max(local) <= HELD_BY_SCAN_MAX, "{shared}, {local}");
}
