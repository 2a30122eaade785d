//! Scans of a shard whose cache holds a few of its keys, while keys come, change and go between the
//! pages and the server starts again with another order of its keys: what stays is told, what was
//! never there is not, and every value is that of its key and version.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::request::Condition;
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::status::Status;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::random::Random;
use crate::server::{Asked, Failure, Reply, Server};

struct Shop {
    server: Server,
    asked: usize,
    incarnation: u64,
}

/// The value of a page's key: `None` if it was left out.
type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

impl Shop {
    fn new() -> Shop {
        Shop {
            server: Server::open(SyncMethod::DurableWrite, Image::default(), 1, None)
                .expect("it opens"),
            asked: 0,
            incarnation: 1,
        }
    }

    fn restart(&mut self) {
        self.incarnation += 1;
        let image = self.server.device.image.clone();
        self.server = Server::open(SyncMethod::DurableWrite, image, self.incarnation, None)
            .expect("it opens again");
    }

    fn reply(&mut self) -> Reply {
        self.server.settle();
        self.server.replies.remove(&self.asked).expect("a reply")
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.asked += 1;
        self.server.set(self.asked, key, value);
        assert_eq!(self.reply().status, Status::Ok);
    }

    fn delete(&mut self, key: &[u8]) {
        self.asked += 1;
        self.server.delete(self.asked, key);
        assert_eq!(self.reply().status, Status::Ok);
    }

    fn ask(&mut self, request: &ScanRequest<'_>) {
        self.asked += 1;
        self.server.send(self.asked, |batch, out| {
            let mut item = Vec::new();
            request.write(&mut item);
            batch.raw(out, &item);
        });
    }

    fn page(&mut self, request: &ScanRequest<'_>) -> (u64, Entries) {
        self.ask(request);
        let reply = self.reply();
        assert_eq!(reply.status, Status::Ok);
        page_of(&reply)
    }
}

fn page_of(reply: &Reply) -> (u64, Entries) {
    let page = ScanPage::read(&reply.value).expect("a page");
    let entries = page.entries().map(|entry| {
        let value = match entry.value {
            ScanValue::Bytes(value) => Some(value.to_vec()),
            ScanValue::NotAsked | ScanValue::LeftOut | ScanValue::Type(_) => None,
        };
        (entry.key.to_vec(), value)
    });
    (page.cursor, entries.collect())
}

fn request(cursor: u64) -> ScanRequest<'static> {
    ScanRequest {
        cursor,
        prefix: b"",
        entries_max: 1024,
        bytes_max: 4096,
        wants_values: true,
        wants_types: false,
    }
}

/// Half of the keys share a slot.
pub fn key(number: usize) -> Vec<u8> {
    match number % 4 {
        0 => format!("stock:{number}"),
        1 => format!("{{shop}}{number}"),
        2 => format!("stock:{{shop}}{number}"),
        _ => format!("sale:{number}"),
    }
    .into_bytes()
}

#[test]
fn a_key_that_stays_is_shown_and_what_is_shown_was_there_whatever_happens_between_the_pages() {
    let mut has_left_out = false;
    for seed in 1..=12 {
        let mut random = Random::new(seed);
        let mut shop = Shop::new();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let change = |random: &mut Random, shop: &mut Shop, model: &mut BTreeMap<_, _>| {
            let key = key(random.below(60));
            if random.once_in(3) && model.contains_key(&key) {
                shop.delete(&key);
                model.remove(&key);
            } else {
                // Some are longer than half a frame, which is all that a page may have.
                let is_long = random.once_in(6);
                let len = if is_long {
                    2_040
                } else {
                    1 + random.below(300)
                };
                let value = vec![u8::try_from(random.below(256)).unwrap(); len];
                shop.set(&key, &value);
                model.insert(key, value);
            }
        };
        for _ in 0..80 {
            change(&mut random, &mut shop, &mut model);
        }
        for _ in 0..4 {
            let prefix = [&b""[..], b"stock:", b"s", b"nothing"][random.below(4)];
            let wants_values = random.once_in(2);
            let entries_max = [1, 3, 1024][random.below(3)];
            let is_of = |key: &Vec<u8>| key.starts_with(prefix);
            let mut stays: BTreeSet<Vec<u8>> =
                model.keys().filter(|key| is_of(key)).cloned().collect();
            let mut shown: Vec<Vec<u8>> = Vec::new();
            let (mut cursor, mut starts) = (0, 0);
            loop {
                let (next, entries) = shop.page(&ScanRequest {
                    cursor,
                    prefix,
                    entries_max,
                    wants_values,
                    ..request(0)
                });
                assert!(entries.len() <= entries_max as usize, "seed {seed}");
                for (key, value) in entries {
                    let expected = model.get(&key);
                    assert!(is_of(&key) && expected.is_some(), "seed {seed}: {key:?}");
                    match value {
                        Some(value) => assert_eq!(Some(&value), expected, "seed {seed}: {key:?}"),
                        None if wants_values => {
                            has_left_out = true;
                            assert!(expected.is_some_and(|value| value.len() == 2_040));
                        }
                        None => {}
                    }
                    shown.push(key);
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
                for _ in 0..random.below(4) {
                    change(&mut random, &mut shop, &mut model);
                    stays.retain(|key| model.contains_key(key));
                }
                if random.once_in(9) {
                    shop.restart();
                    starts += 1;
                }
            }
            assert!(
                stays.iter().all(|key| shown.contains(key)),
                "seed {seed}: {stays:?} are there all the time, {shown:?} are told"
            );
            if starts == 0 {
                // Twice only if the key was deleted and set again, which moves it nowhere.
                let distinct: BTreeSet<_> = shown.iter().collect();
                assert_eq!(distinct.len(), shown.len(), "seed {seed}");
            }
        }
    }
    assert!(has_left_out, "no value was too long for a page");
}

#[test]
fn a_scan_of_cold_keys_leaves_the_cache_as_it_was() {
    let mut shop = Shop::new();
    for number in 0..40 {
        shop.set(&key(number), &[7; 200]);
    }
    shop.restart();
    shop.server.settle();
    let cells = shop.server.usage().cells;
    let asked = shop.server.asked.len();
    let (mut cursor, mut shown) = (0, 0);
    loop {
        let (next, entries) = shop.page(&request(cursor));
        shown += entries.len();
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let reads = shop.server.asked[asked..]
        .iter()
        .filter(|&&what| what == Asked::Read)
        .count();
    assert_eq!((shown, shop.server.usage().cells), (40, cells));
    assert!((40 - cells..60).contains(&reads), "{reads} reads");
}

#[test]
fn a_key_that_is_written_while_a_scan_reads_it_is_shown_as_it_is_now() {
    let mut shop = Shop::new();
    for number in 0..20 {
        shop.set(&key(number), b"old");
    }
    // The cache has room for the last ones only.
    for number in 20..100 {
        shop.set(&key(number), &[7; 60]);
    }
    shop.ask(&request(0));
    let scan = shop.asked;
    shop.server.turn();
    assert!(
        !shop.server.replies.contains_key(&scan) && shop.server.asked.ends_with(&[Asked::Read]),
        "it waits for reads"
    );
    let reads = shop.server.device.under_way().len();
    for number in 0..20 {
        shop.server.set(1_000 + number, &key(number), b"new");
    }
    // What the changes ask of the disk ends before what the scan does.
    shop.server.turn();
    while shop.server.device.under_way().len() > reads {
        shop.server.end(usize::MAX);
        shop.server.turn();
    }
    assert!((0..20).all(|number| shop.server.replies.contains_key(&(1_000 + number))));
    let (mut cursor, entries) = page_of(&shop.reply());
    let mut values: Vec<_> = entries.into_iter().map(|(_, value)| value).collect();
    assert!(values.iter().any(|value| value.as_deref() == Some(b"new")));
    while cursor != 0 {
        let (next, entries) = shop.page(&request(cursor));
        values.extend(entries.into_iter().map(|(_, value)| value));
        cursor = next;
    }
    let count = |of: &[u8]| {
        let same = values.iter().filter(|value| value.as_deref() == Some(of));
        same.count()
    };
    assert_eq!((count(b"old"), count(b"new"), values.len()), (0, 20, 100));
}

#[test]
fn a_key_that_cannot_be_read_is_reported_by_file_and_offset_behind_what_stands_before_it() {
    for (rots, status, text) in [
        (false, Status::Io, "could not be read: Device(5)"),
        (true, Status::Corrupt, "does not hold what was written"),
    ] {
        let mut shop = Shop::new();
        for number in 0..40 {
            shop.set(&key(number), &[7; 200]);
        }
        shop.restart();
        shop.server.settle();
        let good = shop.server.device.image.clone();
        if rots {
            for bytes in shop.server.device.image.files.values_mut() {
                bytes[4096..].fill(0xA5);
            }
        } else {
            shop.server
                .fail(shop.server.asked.len(), Failure::Unreadable);
        }
        let (mut cursor, mut shown, mut refused) = (0, 0, 0);
        loop {
            shop.ask(&request(cursor));
            let reply = shop.reply();
            if reply.status == Status::Ok {
                let (next, entries) = page_of(&reply);
                shown += entries.len();
                cursor = next;
                if cursor == 0 {
                    break;
                }
                continue;
            }
            assert_eq!((reply.status, refused), (status, 0), "twice");
            let message = String::from_utf8_lossy(&reply.value).into_owned();
            assert!(
                message.contains(".seg at offset ") && message.ends_with(text),
                "{message}"
            );
            refused += 1;
            shop.server.heal(&good);
        }
        assert_eq!((shown, refused), (40, 1));
    }
}

#[test]
fn wrong_limits_and_too_many_scans_are_refused_by_name_and_the_others_are_answered() {
    let mut shop = Shop::new();
    shop.set(b"k", b"v");
    shop.ask(&ScanRequest {
        entries_max: 0,
        ..request(0)
    });
    let reply = shop.reply();
    assert_eq!(reply.status, Status::Malformed);
    assert_eq!(reply.value, b"entries of a scan are 1 to 1024, not 0");
    let first = shop.asked + 1;
    for _ in 0..70 {
        shop.ask(&request(0));
    }
    // More turns than the quiet ones that are the end of it elsewhere.
    (0..3).for_each(|_| shop.server.settle());
    let statuses: Vec<_> = (first..first + 70)
        .map(|id| shop.server.replies[&id].status)
        .collect();
    let ok = statuses
        .iter()
        .filter(|&&status| status == Status::Ok)
        .count();
    assert_eq!(ok, 16);
    assert!(statuses[16..].iter().all(|&status| status == Status::Busy));
}

#[test]
fn a_cursor_that_no_server_gave_is_a_place_all_the_same() {
    let mut shop = Shop::new();
    shop.set(b"foo", b"v");
    for cursor in [
        1,
        u64::MAX,
        0x0123_4567_89ab_cdef,
        12_181 << 32,
        12_182 << 32,
        12_183 << 32,
    ] {
        let (next, entries) = shop.page(&request(cursor));
        let slot = cursor >> 32 & 0x3FFF;
        assert_eq!(
            (next, entries.len()),
            (0, usize::from(slot <= 12_182)),
            "{cursor:#x}"
        );
    }
    shop.asked += 1;
    shop.server.send(shop.asked, |batch, out| {
        batch.del(out, b"foo", Condition::Present);
    });
    assert_eq!(shop.reply().status, Status::Ok);
    assert_eq!(shop.page(&request(0)), (0, vec![]));
}
