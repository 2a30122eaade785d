//! APPLY on more keys than eight: beside a map, over power cuts, and only where each node of the
//! plan knows records of many parts.

use std::collections::BTreeMap;

use penstock_net::apply::Apply;
use penstock_net::limits::{APPLY_KEYS_MAX, FEW_KEYS_MAX};
use penstock_net::link::frame::{LINK_VERSION, LINK_VERSION_LEVEL_ALL, LINK_VERSION_MANY_PARTS};
use penstock_net::request::Ask;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::level_all::writer_of_all;
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{Reply, Server};

/// Keys of the shop, all of one slot.
const KEYS: usize = 60;

fn name(number: usize) -> Vec<u8> {
    format!("{{m}}{number}").into_bytes()
}

struct Shop {
    server: Server,
    asked: usize,
    incarnation: u64,
    cache_bytes: usize,
}

impl Shop {
    fn new(cache_bytes: usize) -> Self {
        let mut shop = Shop {
            server: opened(cache_bytes, Image::default(), 1),
            asked: 0,
            incarnation: 1,
            cache_bytes,
        };
        shop.server.settle();
        shop
    }

    /// The power fails once all that was answered is durable.
    fn restart(&mut self) {
        self.incarnation += 1;
        let image = self.server.device.image.clone();
        self.server = opened(self.cache_bytes, image, self.incarnation);
        self.server.settle();
    }

    fn ask(&mut self, ask: Ask<'_>) -> Reply {
        self.asked += 1;
        let asked = self.asked;
        self.server.send(asked, |batch, out| ask.write(batch, out));
        self.server.settle();
        self.server.replies.remove(&asked).expect("a reply")
    }

    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let wanted = penstock_net::request::Wanted::ValueAndExpiry;
        let reply = self.ask(Ask::Get { key, wanted });
        (reply.status == Status::Ok).then_some(reply.value)
    }
}

fn opened(cache_bytes: usize, image: Image, incarnation: u64) -> Server {
    let (budget, sync) = (Budget::of_cache(cache_bytes), SyncMethod::DurableWrite);
    Server::open_within(budget, 1, sync, image, incarnation, None).expect("it opens")
}

/// Puts, adds to and deletes so many keys, and guards what the model says of them; with
/// `is_wrong`, the last guard does not hold. The keys as they are then.
fn order(
    random: &mut Random,
    model: &BTreeMap<usize, Vec<u8>>,
    count: usize,
    is_wrong: bool,
) -> (Apply, BTreeMap<usize, Vec<u8>>) {
    let (mut apply, mut after) = (Apply::new(), model.clone());
    let first = random.below(KEYS);
    for at in 0..count {
        let number = (first + at) % KEYS;
        let key = apply.key(&name(number));
        match (random.below(4), model.get(&number)) {
            (0, Some(_)) => {
                apply.then(key.delete());
                after.remove(&number);
            }
            (1, Some(before)) => {
                apply.then(key.u64(0).increase(3u64));
                let stock = u64::from_le_bytes(*before.first_chunk().expect("a u64"));
                let stock = (stock + 3).to_le_bytes();
                after.get_mut(&number).expect("known")[..8].copy_from_slice(&stock);
            }
            (2, None) => {
                apply.then(key.is_absent());
            }
            (_, _) => {
                let value = vec![random.next().to_le_bytes()[0] / 2; 8 + random.below(8)];
                apply.put(key, &value);
                after.insert(number, value);
            }
        }
    }
    if is_wrong {
        let number = first % KEYS;
        let key = apply.key(&name(number));
        match model.contains_key(&number) {
            true => apply.then(key.is_absent()),
            false => apply.then(key.exists()),
        };
    }
    (apply, after)
}

#[test]
fn many_keys_change_together_or_not_at_all_in_memory_and_cold_and_over_starts() {
    let (mut done, mut denied, mut cold) = (0, 0, 0);
    for seed in seeds(24) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let mut shop = Shop::new(if seed % 2 == 0 { 0 } else { 1 << 20 });
        let mut model = BTreeMap::new();
        for round in 0..8 {
            // The largest record of these servers has 4 KiB.
            let counts = [9, 10, 16, 30, 40];
            let count = counts[random.below(counts.len())];
            let is_wrong = random.once_in(3);
            let (apply, after) = order(&mut random, &model, count, is_wrong);
            let (parked, bytes) = (shop.server.counters().parked, shop.server.log_bytes());
            let reply = shop.ask(Ask::Apply(&apply));
            cold += shop.server.counters().parked - parked;
            if is_wrong {
                let expected = [Status::GuardFailed, Status::NotFound];
                assert!(expected.contains(&reply.status), "{:?}", reply.status);
                assert_eq!(
                    usize::from(reply.instruction),
                    apply.instructions().len() - 1
                );
                assert_eq!(shop.server.log_bytes(), bytes, "a refusal logs nothing");
                denied += 1;
            } else {
                assert_eq!(reply.status, Status::Ok);
                model = after;
                done += 1;
            }
            if round % 3 == 2 {
                shop.restart();
            }
            for number in (0..KEYS).step_by(1 + random.below(9)) {
                let value = shop.value(&name(number));
                assert_eq!(value.as_ref(), model.get(&number), "key {number}");
            }
        }
        for number in 0..KEYS {
            assert_eq!(shop.value(&name(number)).as_ref(), model.get(&number));
        }
    }
    assert!(
        done > 80 && denied > 30 && cold > 60,
        "{done}, {denied}, {cold}"
    );
}

/// Puts so many keys.
fn puts(count: usize) -> Apply {
    let mut apply = Apply::new();
    for number in 0..count {
        let key = apply.key(&name(number));
        apply.put(key, b"value");
    }
    apply
}

#[test]
fn more_than_eight_keys_are_refused_in_a_cluster_whatever_its_nodes_understand() {
    let [oldest, older, newer] = [
        LINK_VERSION,
        LINK_VERSION_LEVEL_ALL,
        LINK_VERSION_MANY_PARTS,
    ]
    .map(u16::from);
    // The newest link counts.
    let offers: [(&[u16], Status); 5] = [
        (&[], Status::Unsupported),
        (&[oldest], Status::Unsupported),
        (&[older], Status::Unsupported),
        (&[newer, older], Status::Unsupported),
        (&[older, newer], Status::Unsupported),
    ];
    for (versions, expected) in offers {
        let mut server = writer_of_all(versions);
        for (id, count, expected) in [
            (1, FEW_KEYS_MAX, Status::Ok),
            (2, FEW_KEYS_MAX + 1, expected),
            (3, 40, expected),
        ] {
            let apply = puts(count);
            server.send(id, |batch, out| batch.apply(out, &apply));
            server.settle();
            let reply = &server.replies[&id];
            assert_eq!(reply.status, expected, "{versions:?}, {count} keys");
            if expected == Status::Unsupported {
                let text = String::from_utf8_lossy(&reply.value);
                assert!(text.contains("an APPLY has at most 8 keys"), "{text}");
            }
        }
        // What was refused has changed nothing, and what was there before is there.
        for (id, number, expected) in [(4, 0, Status::Ok), (5, 39, missing_if(expected))] {
            server.get(id, &name(number));
            server.settle();
            assert_eq!(server.replies[&id].status, expected, "key {number}");
        }
    }
}

fn missing_if(refused: Status) -> Status {
    match refused {
        Status::Unsupported => Status::NotFound,
        status => status,
    }
}

#[test]
fn more_keys_or_instructions_than_there_may_be_are_refused_by_the_limit() {
    let mut shop = Shop::new(1 << 20);
    let refused = |shop: &mut Shop, apply: &Apply| {
        let reply = shop.ask(Ask::Apply(apply));
        (
            reply.status,
            String::from_utf8_lossy(&reply.value).into_owned(),
        )
    };
    let named = |count: usize| {
        let mut apply = Apply::new();
        for number in 0..count {
            apply.key(&name(number));
        }
        apply
    };
    let (status, text) = refused(&mut shop, &named(APPLY_KEYS_MAX + 1));
    assert_eq!(status, Status::Malformed);
    assert!(text.contains("1 to 255 keys"), "{text}");
    let mut few = puts(FEW_KEYS_MAX);
    let key = few.key(&name(0));
    for _ in 0..60 {
        few.then(key.exists());
    }
    let (status, text) = refused(&mut shop, &few);
    assert_eq!(status, Status::Malformed);
    assert!(text.contains("0 to 64 instructions"), "{text}");
    let (status, text) = refused(&mut shop, &puts(80));
    assert_eq!(status, Status::TooLarge);
    assert!(text.contains("what this APPLY writes"), "{text}");
    for apply in [named(APPLY_KEYS_MAX), puts(40)] {
        assert_eq!(shop.ask(Ask::Apply(&apply)).status, Status::Ok);
    }
    assert_eq!(shop.value(&name(39)), Some(b"value".to_vec()));
}
