//! Scans of the embedded store, held against a model: beside writers on other threads, between the
//! changes of one thread, and over a close and an open with another number of shards.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use penstock::embedded::{Answer, Ask, ClientError, Entry, Page, ScanRequest};
use penstock::{Options, Penstock, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::Wanted;
use penstock_net::status::Status;

use crate::scratch::Scratch;

/// Small, so that most keys are on disk only and cleaning has much to do.
fn options() -> Options {
    Options::default()
        .deadline(std::time::Duration::from_secs(60))
        .level(AckLevel::None)
        .segment_bytes(2 << 20)
        .value_bytes_max(128 << 10)
        .cache_bytes(1 << 20)
}

fn two_shards_or_one() -> u16 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(cpus.min(2)).unwrap()
}

/// A sequence that a printed seed repeats.
struct Seeded(u64);

impl Seeded {
    fn new() -> Seeded {
        let seed = std::env::var("PENSTOCK_SEED").map_or(1, |seed| seed.parse().unwrap());
        println!("PENSTOCK_SEED={seed}");
        Seeded(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        let state = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        self.0 = state;
        (state >> 33) % end
    }
}

fn steady(number: usize) -> Vec<u8> {
    format!("steady:{number}").into_bytes()
}

/// The number of the change, then the key, then what makes lengths differ.
fn value(change: u64, key: &[u8]) -> Vec<u8> {
    let mut value = change.to_le_bytes().to_vec();
    value.extend_from_slice(key);
    value.resize(100 + key.len() * 37 % 500, 7);
    value
}

fn change_of(key: &[u8], value: &[u8]) -> u64 {
    assert_eq!(value[8..8 + key.len()], *key);
    u64::from_le_bytes(*value.first_chunk().unwrap())
}

/// What INFO counts, by its name, all shards together.
fn counted(info: &str, name: &str) -> u64 {
    let info: serde_json::Value = serde_json::from_str(info).unwrap();
    info["counters"][name].as_u64().unwrap()
}

#[test]
fn beside_writers_what_stays_is_shown_once_and_not_older_than_what_was_answered() {
    const STEADY: usize = 3_000;
    const CHANGES: u64 = 30_000;
    for shards in BTreeSet::from([1, two_shards_or_one()]) {
        let scratch = Scratch::new("scan-beside");
        let store = Penstock::open(&scratch.0, options().shards(shards)).unwrap();
        for number in 0..STEADY {
            let key = steady(number);
            store.set(&key, &value(0, &key)).wait().unwrap();
        }
        let answered: Vec<AtomicU64> = (0..STEADY).map(|_| AtomicU64::new(0)).collect();
        let scan = |prefix: &[u8]| -> BTreeMap<Vec<u8>, u64> {
            let mut shown = BTreeMap::new();
            for entry in store.scan(prefix, true) {
                let Entry { key, value, .. } = entry.unwrap();
                let change = change_of(&key, &value.unwrap());
                assert!(shown.insert(key.to_vec(), change).is_none(), "told twice");
            }
            shown
        };
        let (scans, left) = std::thread::scope(|scope| {
            let edits = scope.spawn(|| {
                for change in 1..=CHANGES {
                    let number = usize::try_from(change * 7919).unwrap() % STEADY;
                    let key = steady(number);
                    store.set(&key, &value(change, &key)).wait().unwrap();
                    answered[number].store(change, Ordering::Release);
                }
            });
            // Keys that come and go, and more and more of them.
            let passing = scope.spawn(|| {
                let mut left = BTreeMap::new();
                for change in 1..=CHANGES {
                    let number = change * 31 % (1 + change / 2);
                    let key = format!("passing:{number}").into_bytes();
                    if change % 5 == 0 {
                        store.del(&key).wait().unwrap();
                        left.remove(&key);
                    } else {
                        store.set(&key, &value(change, &key)).wait().unwrap();
                        left.insert(key, change);
                    }
                }
                left
            });
            let mut scans = 0;
            while scans < 3 || !edits.is_finished() || !passing.is_finished() {
                scans += 1;
                let before: Vec<u64> = answered
                    .iter()
                    .map(|change| change.load(Ordering::Acquire))
                    .collect();
                let shown = scan([&b""[..], b"steady:"][scans % 2]);
                for (number, before) in before.into_iter().enumerate() {
                    let change = shown.get(&steady(number));
                    assert!(
                        change >= Some(&before),
                        "key {number}: {change:?}, and {before} was answered before"
                    );
                }
            }
            edits.join().unwrap();
            (scans, passing.join().unwrap())
        });
        println!("{scans} scans with {shards} shards");
        assert_eq!(scan(b"passing:"), left);
        assert_eq!(scan(b"").len(), left.len() + STEADY);
        let info = store.info().wait().unwrap();
        assert!(counted(&info, "moved_bytes") > 0, "nothing was cleaned");
        store.close().unwrap();
    }
}

/// A scan by pages, held against all that was there meanwhile.
#[derive(Default)]
struct Held {
    /// There from the first page on.
    there: HashSet<Vec<u8>>,
    shown: HashSet<Vec<u8>>,
    pages: usize,
}

impl Held {
    fn begin<'a>(keys: impl Iterator<Item = &'a Vec<u8>>, prefix: &[u8]) -> Held {
        Held {
            there: keys
                .filter(|key| key.starts_with(prefix))
                .cloned()
                .collect(),
            ..Held::default()
        }
    }

    /// A page shows each key as it is now; returns the next cursor.
    fn take(
        &mut self,
        page: Page,
        request: &ScanRequest<'_>,
        now: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Option<u64> {
        self.pages += 1;
        for Entry { key, value, .. } in page.entries {
            assert!(key.starts_with(request.prefix));
            let is = now.get(&key[..]).expect("it is there");
            match value {
                Some(value) => assert!(request.wants_values && value[..] == is[..]),
                None => assert!(!request.wants_values || is.len() > 4_000, "{}", is.len()),
            }
            assert!(self.shown.insert(key.to_vec()), "{key:?} is told twice");
        }
        page.next
    }

    fn end(&self) {
        let missing = self.there.difference(&self.shown).next();
        assert!(missing.is_none(), "{missing:?} was there and was not told");
    }
}

#[test]
fn between_the_changes_of_one_thread_every_page_agrees_with_a_model() {
    let mut seeded = Seeded::new();
    let scratch = Scratch::new("scan-local");
    let mut store = Penstock::open_local(&scratch.0, options()).unwrap();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for number in 0..4_000 {
        let key = format!("{}:{number}", ["a", "ab", "b"][number % 3]).into_bytes();
        let len = usize::try_from(seeded.below(1_000)).unwrap();
        let value = vec![number.to_le_bytes()[0]; len];
        store.set(&key, &value).unwrap();
        model.insert(key, value);
    }
    let mut pages = 0;
    for scan in 0..20 {
        let prefix: &[u8] = [&b""[..], b"a", b"ab:", b"ab:1", b"none"][scan % 5];
        let mut held = Held::begin(model.keys(), prefix);
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let request = ScanRequest {
                cursor: from,
                entries_max: u32::try_from(1 + seeded.below(200)).unwrap(),
                bytes_max: u32::try_from(4_096 + seeded.below(60_000)).unwrap(),
                wants_values: seeded.below(2) == 0,
                ..ScanRequest::begin(prefix)
            };
            cursor = held.take(store.scan_page(&request).unwrap(), &request, &model);
            for _ in 0..seeded.below(40) {
                let number = seeded.below(6_000);
                let key = format!(
                    "{}:{number}",
                    ["a", "ab", "b"][usize::try_from(number % 3).unwrap()]
                );
                let key = key.into_bytes();
                if seeded.below(3) == 0 {
                    assert_eq!(store.del(&key).unwrap(), model.remove(&key).is_some());
                    held.there.remove(&key);
                } else {
                    // Some are too long for the least page.
                    let len = usize::try_from(seeded.below([600, 600, 9_000][scan % 3])).unwrap();
                    let value = vec![number.to_le_bytes()[0]; len];
                    store.set(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
        }
        held.end();
        pages += held.pages;
        // All that is there, in one go.
        let all: BTreeMap<Vec<u8>, Vec<u8>> = store
            .scan(prefix, true)
            .map(|entry| entry.map(|it| (it.key.to_vec(), it.value.unwrap().to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        let of_model = model.iter().filter(|(key, _)| key.starts_with(prefix));
        assert!(all.iter().eq(of_model), "scan {scan}");
    }
    let info = store.info().unwrap();
    let cleaned = counted(&info, "moved_bytes");
    println!("{pages} pages, {cleaned} bytes were moved");
    assert!(cleaned > 0, "nothing was cleaned");
    store.close().unwrap();
}

#[test]
fn a_scan_goes_on_where_it_was_after_opens_with_other_numbers_of_shards() {
    let scratch = Scratch::new("scan-reopened");
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let store = Penstock::open(&scratch.0, options().shards(two_shards_or_one())).unwrap();
    for number in 0..3_000u64 {
        let key = format!("{{{}}}:{number}", number % 700).into_bytes();
        let value = value(number, &key);
        store.set(&key, &value).wait().unwrap();
        model.insert(key, value);
    }
    let mut held = Held::begin(model.keys(), b"");
    let mut cursor = Some(0);
    let request = |cursor| ScanRequest {
        cursor,
        entries_max: 50,
        wants_values: true,
        ..ScanRequest::begin(b"")
    };
    while let Some(from) = cursor.take_if(|_| held.shown.len() < 1_000) {
        let page = store.scan_page(&request(from)).wait().unwrap();
        cursor = held.take(page, &request(from), &model);
    }
    store.close().unwrap();

    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    while let Some(from) = cursor.take_if(|_| held.shown.len() < 2_000) {
        // What comes and goes changes no other key's place.
        let gone = held.there.iter().next().expect("some are left").clone();
        assert!(local.del(&gone).unwrap());
        held.there.remove(&gone);
        model.remove(&gone);
        let new = format!("new:{from}").into_bytes();
        local.set(&new, b"now").unwrap();
        model.insert(new, b"now".to_vec());
        let page = local.scan_page(&request(from)).unwrap();
        cursor = held.take(page, &request(from), &model);
    }
    local.close().unwrap();

    let store = Penstock::open(&scratch.0, options().shards(two_shards_or_one())).unwrap();
    assert!(cursor.is_some(), "the scan is not over");
    while let Some(from) = cursor {
        let page = store.scan_page(&request(from)).wait().unwrap();
        cursor = held.take(page, &request(from), &model);
    }
    held.end();
    store.close().unwrap();
}

#[test]
fn a_value_that_has_no_room_in_a_page_comes_by_itself_and_an_expired_key_does_not_come() {
    let scratch = Scratch::new("scan-large");
    let wide = options().segment_bytes(16 << 20).value_bytes_max(1 << 20);
    let mut store = Penstock::open_local(&scratch.0, wide).unwrap();
    let film = vec![9; 900_000];
    store.set(b"film", &film).unwrap();
    store.set(b"gone", b"soon").unwrap();
    let at_once = penstock_net::request::Expiry::At(1);
    store.set_expiry(b"gone", at_once).unwrap();
    let request = ScanRequest {
        wants_values: true,
        ..ScanRequest::begin(b"")
    };
    let page = store.scan_page(&request).unwrap();
    assert_eq!(page.next, None);
    let [
        Entry {
            key, value: None, ..
        },
    ] = &page.entries[..]
    else {
        panic!("{:?}", page.entries.len());
    };
    assert_eq!(key, &b"film"[..]);
    let all: Vec<Entry> = store.scan(b"", true).collect::<Result<_, _>>().unwrap();
    assert_eq!(all.len(), 1);
    assert!(all[0].value.as_deref() == Some(&film[..]));
    store.close().unwrap();
}

#[test]
fn a_scan_is_an_operation_of_a_batch_like_any_other() {
    let scratch = Scratch::new("scan-batch");
    let store = Penstock::open(&scratch.0, options().shards(two_shards_or_one())).unwrap();
    store.set(b"k", b"v").wait().unwrap();
    let scan = Ask::Scan(ScanRequest::begin(b"k"));
    let get = Ask::Get {
        key: b"k",
        wanted: Wanted::Value,
    };
    let keys_of = |answer: Result<Answer, ClientError>| -> Vec<Vec<u8>> {
        let page = answer.unwrap().page().unwrap();
        page.entries
            .iter()
            .map(|entry| entry.key.to_vec())
            .collect()
    };
    let mut batch = store.batch();
    batch.ask(scan);
    batch.ask(get);
    // The key is in a page of one of the shards.
    let second = Ask::Scan(ScanRequest {
        cursor: store
            .scan_page(&ScanRequest::begin(b"k"))
            .wait()
            .unwrap()
            .next
            .unwrap_or(0),
        ..ScanRequest::begin(b"k")
    });
    batch.ask(second);
    let mut outcomes = batch.submit().wait().into_iter();
    let mut keys = keys_of(outcomes.next().unwrap());
    assert_eq!(outcomes.next().unwrap().unwrap().value, b"v"[..]);
    keys.extend(keys_of(outcomes.next().unwrap()));
    keys.dedup();
    assert_eq!(keys, [b"k"]);
    store.close().unwrap();

    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    let mut outcomes = local.submit(&[get, scan, get]).into_iter();
    assert_eq!(outcomes.next().unwrap().unwrap().value, b"v"[..]);
    assert_eq!(keys_of(outcomes.next().unwrap()), [b"k"]);
    assert_eq!(outcomes.next().unwrap().unwrap().value, b"v"[..]);
}

#[test]
fn a_scan_that_cannot_be_done_says_why_and_ends() {
    let scratch = Scratch::new("scan-refused");
    let store = Penstock::open(&scratch.0, options()).unwrap();
    for number in 0..2_000u32 {
        store.set(&number.to_le_bytes(), &[7; 100]).wait().unwrap();
    }
    let long = [b'x'; 1_025];
    let none = ScanRequest {
        entries_max: 0,
        ..ScanRequest::begin(b"")
    };
    for (request, named) in [(ScanRequest::begin(&long), "1025"), (none, "1024")] {
        match store.scan_page(&request).wait() {
            Err(ClientError::Refused(answer)) => {
                let text = String::from_utf8_lossy(&answer.value).into_owned();
                assert_eq!(answer.status, Status::Malformed);
                assert!(text.contains(named), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let mut scan = store.scan(&[b'x'; 70_000], true);
    assert!(matches!(scan.next(), Some(Err(ClientError::Refused(_)))));
    assert!(scan.next().is_none(), "it ends behind an error");
    // Any number is a cursor.
    for cursor in [1, u64::MAX, 0x1234_5678_9abc_def0] {
        let request = ScanRequest {
            cursor,
            ..ScanRequest::begin(b"")
        };
        store.scan_page(&request).wait().unwrap();
    }
    // More pages at a time than a shard has room for: each is answered, and those beyond it by
    // BUSY.
    let pending: Vec<_> = (0..200)
        .map(|_| store.scan_page(&ScanRequest::begin(b"")))
        .collect();
    let pages = pending.into_iter().map(|it| it.wait());
    let full = pages
        .map(|page| match page {
            Ok(page) => usize::from(!page.entries.is_empty()),
            Err(ClientError::Busy(text)) => {
                assert!(text.contains("scans are under way"), "{text}");
                0
            }
            Err(error) => panic!("{error}"),
        })
        .sum::<usize>();
    assert!(full >= 16, "{full} pages");

    let mut scan = store.scan(b"", false);
    assert!(scan.next().unwrap().is_ok());
    store.close().unwrap();
    // What is in memory of it is told, and then why there is no more.
    let last = scan.last().unwrap();
    assert!(matches!(last, Err(ClientError::NotSent(_))), "{last:?}");
}
