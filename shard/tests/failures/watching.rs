//! WATCH of clients of Redis on one shard in virtual time: EXEC is null if and only if a watched
//! key has changed, whatever comes, goes and expires meanwhile, also within EXEC.

use penstock_net::limits::Limits;
use penstock_net::resp::{Client, Conversation, Host};
use penstock_shard::SessionId;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::Server;

const PEERS: usize = 3;
const KEYS: usize = 4;
const STEPS: usize = 400;
/// Rounds in which a command ends.
const ROUNDS_MAX: usize = 40;
/// Turns in which the disk is at rest.
const TURNS_MAX: usize = 1_000;
const START_MS: u64 = 1_800_000_000_000;

/// A server around connections that never changes.
struct Still;

impl Host for Still {
    fn unix_us(&self) -> u64 {
        START_MS * 1_000
    }

    fn elapsed_us(&self) -> u64 {
        0
    }
}

/// A connection, and the keys that it watches with the number of the last change of each.
struct Peer {
    session: SessionId,
    talk: Conversation,
    watched: Vec<(usize, u64)>,
}

/// A key as Redis has it.
#[derive(Clone, Debug, Default)]
struct Held {
    value: Option<i64>,
    expiry_ms: Option<u64>,
    /// How often it has changed.
    changes: u64,
}

impl Held {
    fn settle(&mut self, now_ms: u64) {
        if self.value.is_some() && self.expiry_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.put(None, None);
        }
    }

    fn put(&mut self, value: Option<i64>, expiry_ms: Option<u64>) {
        (self.value, self.expiry_ms) = (value, expiry_ms);
        self.changes += 1;
    }
}

struct World {
    server: Server,
    peers: Vec<Peer>,
    keys: [Held; KEYS],
    random: Random,
    story: String,
}

impl World {
    fn new(seed: u64) -> World {
        let sync = SyncMethod::DurableWrite;
        let server = Server::open_at(START_MS, sync, Image::default(), 1, None);
        let mut server = server.expect("it opens");
        server.raw = Some(Vec::new());
        let limits = Limits {
            frame_bytes_max: 16 << 10,
            value_bytes_max: 3 << 10,
        };
        let peers = (0..PEERS).map(|_| {
            let session = server
                .shard
                .front_mut()
                .open_session_translated(server.now, 0);
            server.session = session;
            server.inbox = Conversation::greeting();
            server.hand_over();
            Peer {
                session,
                talk: Conversation::new(Client::default(), limits, false),
                watched: Vec::new(),
            }
        });
        let peers = peers.collect();
        let mut world = World {
            server,
            peers,
            keys: std::array::from_fn(|_| Held::default()),
            random: Random::new(seed),
            story: String::new(),
        };
        world.settle();
        world.server.raw = Some(Vec::new());
        world
    }

    /// Until the disk is at rest. No time passes.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            self.server.turn();
            if self.server.device.under_way().is_empty() {
                return self.server.turn();
            }
            self.server.end(0);
        }
        panic!("the shard never comes to rest");
    }

    /// What a peer is answered.
    fn ask(&mut self, peer: usize, line: &str) -> String {
        self.story += &format!("{peer}: {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
        for _ in 0..ROUNDS_MAX {
            let mut frame = Vec::new();
            let talk = &mut self.peers[peer].talk;
            let taken = talk.take(&bytes, &mut frame, &Still);
            bytes.drain(..taken);
            if bytes.is_empty() && frame.is_empty() && !talk.out().is_empty() {
                let reply = std::mem::take(talk.out());
                let reply = String::from_utf8(reply).expect("text");
                self.story += &format!(" => {}\n", reply.escape_default());
                return reply;
            }
            if frame.is_empty() {
                continue;
            }
            (self.server.session, self.server.inbox) = (self.peers[peer].session, frame);
            self.server.hand_over();
            self.settle();
            let raw = self.server.raw.replace(Vec::new()).expect("kept");
            self.peers[peer].talk.answered(&raw, &Still);
        }
        panic!("{line} has no answer\n{}", self.story);
    }

    fn now_ms(&self) -> u64 {
        self.server.time_ms()
    }

    fn pass(&mut self) {
        let ms = 1 + self.random.below(30) as u64;
        self.story += &format!("{ms} ms pass\n");
        self.server.sleep(ms);
        // What cleaning and expiries do by themselves.
        self.settle();
        let now_ms = self.now_ms();
        self.keys.iter_mut().for_each(|key| key.settle(now_ms));
    }

    /// A write or read of one key by a peer, in the world and in the model.
    fn change(&mut self, peer: usize) {
        let which = self.random.below(KEYS);
        let now_ms = self.now_ms();
        let ms = 1 + self.random.below(40) as u64;
        let number = self.random.below(1_000) as i64;
        let padded = format!("{number}{}", "0".repeat(self.random.below(10)));
        let number = padded.parse::<i64>().expect("short");
        let before = self.keys[which].clone();
        let (line, after) = match self.random.below(12) {
            0 => (format!("SET k {number}"), Some((Some(number), None))),
            1 | 2 => (
                format!("SET k {number} PX {ms}"),
                Some((Some(number), Some(now_ms + ms))),
            ),
            3 | 4 => ("DEL k".into(), before.value.map(|_| (None, None))),
            5 => ("GETDEL k".into(), before.value.map(|_| (None, None))),
            6 => {
                let sum = before.value.unwrap_or(0);
                ("INCRBY k 0".into(), Some((Some(sum), before.expiry_ms)))
            }
            7 => {
                let sum = before.value.unwrap_or(0) + 1;
                ("INCR k".into(), Some((Some(sum), before.expiry_ms)))
            }
            8 => (
                format!("PEXPIRE k {ms}"),
                before.value.map(|value| (Some(value), Some(now_ms + ms))),
            ),
            9 => ("PEXPIRE k -1".into(), before.value.map(|_| (None, None))),
            10 => ("GET k".into(), None),
            _ => ("EXISTS k".into(), None),
        };
        self.ask(peer, &line.replace(" k", &format!(" {}", name(which))));
        if let Some((value, expiry_ms)) = after {
            let expiry_ms = expiry_ms.filter(|_| value.is_some());
            self.keys[which].put(value, expiry_ms);
        }
    }

    /// A transaction of a peer, before whose EXEC others may change keys.
    fn exec(&mut self, peer: usize) -> [usize; 2] {
        let which = self.random.below(KEYS);
        let number = self.random.below(1_000) as i64;
        let line = match self.random.below(4) {
            0 => "PING".into(),
            1 => format!("GET {}", name(which)),
            _ => format!("SET {} {number}", name(which)),
        };
        assert_eq!(self.ask(peer, "MULTI"), "+OK\r\n");
        assert_eq!(self.ask(peer, &line), "+QUEUED\r\n");
        if self.random.once_in(2) {
            for _ in 0..4 {
                let other = (peer + 1 + self.random.below(PEERS - 1)) % PEERS;
                match self.random.once_in(4) {
                    true => self.pass(),
                    false => self.change(other),
                }
            }
        }
        let reply = self.ask(peer, "EXEC");
        let watched = std::mem::take(&mut self.peers[peer].watched);
        let has_changed = watched
            .iter()
            .any(|&(key, changes)| self.keys[key].changes != changes);
        let is_null = reply == "*-1\r\n";
        assert!(
            is_null == has_changed,
            "null: {is_null}, changed: {has_changed}, keys {:?}\n{}",
            self.keys,
            self.story
        );
        if !is_null && line.starts_with("SET") {
            self.keys[which].put(Some(number), None);
        }
        [usize::from(is_null), usize::from(!is_null)]
    }

    fn step(&mut self) -> [usize; 2] {
        let peer = self.random.below(PEERS);
        match self.random.below(10) {
            0 => self.pass(),
            1..=3 => {
                let which = self.random.below(KEYS);
                let line = format!("WATCH {}", name(which));
                assert_eq!(self.ask(peer, &line), "+OK\r\n");
                let peer = &mut self.peers[peer];
                if peer.watched.iter().all(|watched| watched.0 != which) {
                    peer.watched.push((which, self.keys[which].changes));
                }
            }
            4 | 5 => return self.exec(peer),
            _ => self.change(peer),
        }
        [0, 0]
    }
}

fn name(which: usize) -> String {
    format!("{{w}}{which}")
}

#[test]
fn exec_is_null_if_and_only_if_a_watched_key_has_changed() {
    let mut all = [0, 0];
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            let counts = world.step();
            all = [all[0] + counts[0], all[1] + counts[1]];
        }
    }
    assert!(all.iter().all(|count| *count > 100), "{all:?}");
}
