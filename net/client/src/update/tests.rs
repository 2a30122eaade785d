//! Writers of one key in virtual time: every latency and every pause comes from the seed.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::operation::Execution;
use penstock_net::level::AckLevel;
use penstock_net::reply::NO_INSTRUCTION;
use penstock_net::request::Version;

struct Random(u64);

impl Random {
    /// SplitMix64 (Steele, Lea, Flood, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[derive(Clone, Copy)]
struct Setting {
    /// Microseconds from a writer to the server and back, at least.
    round_trip_us: u64,
    /// What comes on top by chance, at most.
    varies_us: u64,
    /// The first writer takes so many times as long.
    slow: u64,
    /// The server shows the value that won.
    shows: bool,
}

enum Event {
    Send,
    Read,
    Write(Vec<u8>, Condition),
    Found(Option<Value>),
    Wrote(Option<Answer>),
}

struct Writer {
    update: Update,
    done: u64,
    began_us: u64,
    longest_us: u64,
}

struct World {
    setting: Setting,
    random: Random,
    now_us: u64,
    events: BTreeMap<(u64, u64), (usize, Event)>,
    event_count: u64,
    /// Sequence and value of the key.
    stored: (u64, u64),
    writers: Vec<Writer>,
}

fn version(sequence: u64) -> Version {
    Version { epoch: 1, sequence }
}

impl World {
    fn at(&mut self, delay_us: u64, writer: usize, event: Event) {
        self.event_count += 1;
        let when = (self.now_us + delay_us, self.event_count);
        self.events.insert(when, (writer, event));
    }

    fn way_us(&mut self, writer: usize) -> u64 {
        let Setting {
            round_trip_us,
            varies_us,
            slow,
            ..
        } = self.setting;
        let one_way = (round_trip_us + self.random.next() % (varies_us + 1)) / 2;
        one_way * if writer == 0 { slow } else { 1 }
    }

    fn stored(&self) -> Option<Value> {
        let (sequence, value) = self.stored;
        (sequence > 0).then(|| Value {
            bytes: Bytes::copy_from_slice(&value.to_le_bytes()),
            version: version(sequence),
        })
    }

    /// `None` if the write took effect.
    fn write(&mut self, bytes: &[u8], condition: Condition) -> Option<Answer> {
        let stored = self.stored();
        let is_right = match (&stored, condition) {
            (None, Condition::Absent) => true,
            (Some(stored), Condition::Version(version)) => version == stored.version,
            _ => false,
        };
        if is_right {
            let value = u64::from_le_bytes(*bytes.first_chunk().expect("a number"));
            self.stored = (self.stored.0 + 1, value);
            return None;
        }
        let is_shown = self.setting.shows && stored.is_some();
        Some(Answer {
            status: match (&stored, condition) {
                (None, _) => Status::NotFound,
                (_, Condition::Absent) => Status::Exists,
                _ => Status::VersionMismatch,
            },
            reason: 0,
            instruction: NO_INSTRUCTION,
            is_overflow: false,
            execution: Execution::Now,
            is_shown,
            level: AckLevel::Disk,
            version: version(self.stored.0),
            expiry: None,
            standing: None,
            value: stored
                .filter(|_| is_shown)
                .map(|it| it.bytes)
                .unwrap_or_default(),
        })
    }

    fn event(&mut self, who: usize, event: Event) {
        let way_us = self.way_us(who);
        match event {
            Event::Send => {
                let mut edit = |bytes: &mut Vec<u8>| {
                    let count = bytes.first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
                    *bytes = (count + 1).to_le_bytes().to_vec();
                    true
                };
                let request = match self.writers[who].update.step(&mut edit) {
                    Step::Read => Event::Read,
                    Step::Write { bytes, condition } => Event::Write(bytes, condition),
                    Step::Declined => panic!("it is never declined"),
                };
                self.at(way_us, who, request);
            }
            Event::Read => {
                let found = self.stored();
                self.at(way_us, who, Event::Found(found));
            }
            Event::Write(bytes, condition) => {
                let answer = self.write(&bytes, condition);
                self.at(way_us, who, Event::Wrote(answer));
            }
            Event::Found(found) => {
                self.writers[who].update.found(found);
                self.at(0, who, Event::Send);
            }
            Event::Wrote(Some(answer)) => {
                let random = self.random.next();
                let pause = self.writers[who].update.lost(&answer, random);
                let pause_us = u64::try_from(pause.as_micros()).expect("short");
                self.at(pause_us, who, Event::Send);
            }
            Event::Wrote(None) => {
                let now_us = self.now_us;
                let writer = &mut self.writers[who];
                writer.longest_us = writer.longest_us.max(now_us - writer.began_us);
                writer.began_us = now_us;
                writer.update = Update::default();
                writer.done += 1;
                self.at(0, who, Event::Send);
            }
        }
    }
}

/// Writers add one to one key for so long, each as fast as it can.
fn contest(seed: u64, count: usize, ends_us: u64, setting: Setting) -> World {
    let writer = || Writer {
        update: Update::default(),
        done: 0,
        began_us: 0,
        longest_us: 0,
    };
    let mut world = World {
        setting,
        random: Random(seed),
        now_us: 0,
        events: BTreeMap::new(),
        event_count: 0,
        stored: (0, 0),
        writers: (0..count).map(|_| writer()).collect(),
    };
    (0..count).for_each(|who| world.at(0, who, Event::Send));
    while world.now_us < ends_us {
        let ((now_us, _), (who, event)) = world.events.pop_first().expect("they go on for ever");
        world.now_us = now_us;
        world.event(who, event);
    }
    for writer in &mut world.writers {
        writer.longest_us = writer.longest_us.max(world.now_us - writer.began_us);
    }
    world
}

const ALIKE: Setting = Setting {
    round_trip_us: 100,
    varies_us: 100,
    slow: 1,
    shows: true,
};
/// Without pauses one of these writers wins each time, and the others never.
const IN_STEP: Setting = Setting {
    varies_us: 0,
    ..ALIKE
};
const SHOWS_NOTHING: Setting = Setting {
    shows: false,
    ..ALIKE
};

#[test]
fn four_writers_of_one_key_do_not_starve_one() {
    for setting in [ALIKE, IN_STEP, SHOWS_NOTHING] {
        for seed in 0..20 {
            let world = contest(seed, 4, 2_000_000, setting);
            let done: Vec<u64> = world.writers.iter().map(|it| it.done).collect();
            let (least, most) = (done.iter().min(), done.iter().max());
            assert!(least > Some(&1_000), "seed {seed}: {done:?}");
            assert!(
                most < least.map(|it| 2 * it).as_ref(),
                "seed {seed}: {done:?}"
            );
            assert_eq!(world.stored.1, world.stored.0, "each is applied once");
        }
    }
}

#[test]
fn a_writer_that_is_twice_as_slow_as_three_others_ends_each_update_within_the_deadline() {
    let slow = Setting { slow: 2, ..ALIKE };
    for seed in 0..20 {
        let world = contest(seed, 4, 10_000_000, slow);
        let longest = world.writers.iter().map(|it| it.longest_us).max();
        assert!(longest < Some(5_000_000), "seed {seed}: {longest:?}");
        assert!(world.writers[0].done > 20, "{}", world.writers[0].done);
    }
}
