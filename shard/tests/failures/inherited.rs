//! A shard takes over what a log of before holds, with reads that fail and a slow disk.

use penstock_net::status::Status;
use penstock_shard::opening::{change_shards, take_inventory};
use penstock_storage::budget::Budget;
use penstock_storage::io::{BLOCK_BYTES, Io};
use penstock_storage::layout::Layout;
use penstock_storage::log::SyncMethod;

use crate::config::OWNER;
use crate::image::Image;
use crate::random::Random;
use crate::server::{Failure, Files, SEGMENT_BYTES, Server, Snapshots, log_config};

/// Large enough for all keys, so inherited logs are read for the takeover alone.
const CACHE_BYTES: usize = 1 << 20;
const KEYS: usize = 1_000;
/// Some of them stand in one frame.
const KEYS_AT_ONCE: usize = 20;
const STEPS_MAX: usize = 100_000;

/// Inherits the log of `layout`: the next start has a new one.
pub fn begin_generation(image: &mut Image, layout: &Layout, incarnation: u64) -> Layout {
    let mut files = Files {
        image,
        snapshots: &Snapshots::new(),
    };
    let inventory = take_inventory(&mut files, OWNER, layout, SEGMENT_BYTES as u64);
    let inventory = inventory.expect("the image is sound");
    let changed = change_shards(&mut files, &inventory, OWNER, 1, incarnation, false);
    changed.expect("it can be read").layout
}

fn opened(layout: Layout, image: Image, incarnation: u64) -> Server {
    let log = log_config(SyncMethod::DurableWrite, incarnation);
    let (snapshots, budget) = ((Snapshots::new(), 1 << 40), Budget::of_cache(CACHE_BYTES));
    Server::open_of(layout, snapshots, budget, 1, log, image, None).expect("it opens")
}

fn key(number: usize) -> Vec<u8> {
    format!("ticket:{number}").into_bytes()
}

#[test]
fn each_inherited_part_is_copied_once_however_often_its_segment_is_begun_again() {
    for seed in 1..=200 {
        let mut random = Random::new(seed);
        let mut before = opened(Layout::new(1), Image::default(), 1);
        for number in 0..KEYS {
            before.set(number, &key(number), &vec![7; 20 + random.below(200)]);
            if number % KEYS_AT_ONCE == 0 {
                before.settle();
            }
        }
        before.settle();
        let mut image = before.device.image.clone();
        let layout = begin_generation(&mut image, &before.layout, 2);
        let mut server = opened(layout, image, 3);
        let (mut steps, mut flips) = (0, 0);
        while !server.layout.inherited.is_empty() {
            server.turn();
            // Copies wait for the device long after they were made, while what they were made from
            // can be read.
            let under_way = server.device.under_way();
            let read = under_way
                .iter()
                .position(|it| matches!(it, Io::Read { .. }));
            match read {
                Some(read) => server.end(read),
                None if random.once_in(8) => server.end(0),
                None => {}
            }
            server.now.us += random.below(4_000) as u64;
            // Once more and the segment would be given up.
            if flips < 2 && random.once_in(10) {
                flips += 1;
                let bit = random.below(8 * BLOCK_BYTES);
                server.fail(server.asked.len() + random.below(4), Failure::Flipped(bit));
            }
            steps += 1;
            // What failed may have been a segment that was asked for.
            if steps % 1_000 == 0 {
                server.make_room();
            }
            assert!(
                steps < STEPS_MAX,
                "seed {seed}: never taken over, {} damaged, {flips} flips",
                server.damaged()
            );
        }
        assert_eq!(server.damaged(), 0, "seed {seed}");
        assert_eq!(server.copied(), KEYS as u64, "seed {seed}");
        for number in 0..KEYS {
            server.get(number, &key(number));
        }
        server.settle();
        let found = |number: usize| server.replies[&number].status == Status::Ok;
        assert!((0..KEYS).all(found), "seed {seed}");
    }
}
