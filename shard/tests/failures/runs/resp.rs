//! Pipelines of clients of Redis beside keyspaces that come and go: what is plain of them is
//! answered, logged and counted as one by one.

use std::sync::Arc;

use penstock_net::limits::Limits;
use penstock_net::program::{Programs, ServedSchema};
use penstock_net::resp::{Client, Conversation};

use crate::rights::resp::Still;

use super::ruled::{NAMES, change_keyspace, rules_some};
use super::*;

/// A shard behind a connection of RESP, and a native one.
struct Peer {
    side: Side,
    talk: Conversation,
    host: Still,
}

const OF_RESP: usize = 0;
const NATIVE: usize = 1;

impl Peer {
    fn new(mut side: Side, now: Now) -> Peer {
        side.sessions[OF_RESP] = side.shard.front_mut().open_session_translated(now, 0);
        side.inbox[OF_RESP] = Conversation::greeting();
        let limits = Limits {
            frame_bytes_max: 4 << 10,
            value_bytes_max: 2 << 10,
        };
        let (programs, text) = (Programs::new(Vec::new()), String::new());
        let mut peer = Peer {
            side,
            talk: Conversation::new(Client::default(), limits, false),
            host: Still {
                joined_cores: 0,
                schema: Arc::new(ServedSchema {
                    programs,
                    layouts: Vec::new(),
                    text,
                }),
                unix_us: 1,
            },
        };
        for which in [OF_RESP, NATIVE] {
            peer.side.send(now, which, &[]);
        }
        peer.side.settle(now);
        peer.talk.answered(&peer.side.sent[OF_RESP], &peer.host);
        peer.side.sent[OF_RESP].clear();
        peer
    }

    /// Sends a pipeline. Returns its replies.
    fn ask(&mut self, now: Now, mut pipeline: &[u8]) -> Vec<u8> {
        for _ in 0..1_000 {
            let mut frame = Vec::new();
            let taken = self.talk.take(pipeline, &mut frame, &self.host);
            pipeline = &pipeline[taken..];
            if frame.is_empty() && pipeline.is_empty() {
                return std::mem::take(self.talk.out());
            }
            self.side.send(now, OF_RESP, &frame);
            self.side.settle(now);
            self.talk.answered(&self.side.sent[OF_RESP], &self.host);
            self.side.sent[OF_RESP].clear();
        }
        panic!("{} bytes of a pipeline are left", pipeline.len());
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Commands, most of them plain, of keys that keyspaces rule and others.
fn pipeline(random: &mut Random) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..1 + random.below(60) {
        let key = NAMES[random.below(NAMES.len())];
        let len = [1, 8, 15, 16, 17, 24, 300][random.below(7)];
        let value = vec![b'0' + (random.next() & 3).to_le_bytes()[0]; len];
        all.extend(match random.below(30) {
            0 => command(&[b"DEL", key]),
            1 => command(&[b"SETEX", key, b"1", &value]),
            2 => command(&[b"SET", key, &value, b"XX"]),
            3 => command(&[b"EXISTS", key]),
            4 => command(&[b"TTL", key]),
            5..16 => command(&[b"GET", key]),
            _ => command(&[b"SET", key, &value]),
        });
    }
    all
}

/// Has the same pipelines answered by a shard that answers plain items and by one that does not.
/// How many plain items the first has answered, and how many of them while keyspaces ruled some of
/// the keys.
fn compare(seed: u64) -> [u64; 2] {
    let mut random = Random::new(seed);
    let log = LogConfig {
        frame_bytes: 16 * BLOCK_BYTES,
        ..log_config(SyncMethod::DurableWrite, 1)
    };
    let mut config = shard_config(0, 1, 1);
    config.shared_bytes_min = usize::MAX;
    let mut now = Now { us: 1, unix_ms: 1 };
    let mut peers = [(); 2].map(|()| {
        let side = Side::new(config.clone(), log.clone(), Budget::of_cache(1 << 20));
        Peer::new(side, now)
    });
    peers[1].side.shard.leave_repeats();
    let (mut last, mut beside) = (0, 0);
    for step in 0..150 {
        let context = format!("seed {seed}, step {step}");
        let commands = pipeline(&mut random);
        let [plain, alone] = peers.each_mut().map(|peer| peer.ask(now, &commands));
        assert_same(&plain, &alone, &context);
        let [_, gets, sets] = peers[0].side.quick();
        if rules_some(&peers[0].side) {
            beside += gets + sets - last;
        }
        last = gets + sets;
        if random.once_in(3) {
            let mut out = Vec::new();
            let mut batch = BatchRequest::begin(&mut out, step, AckLevel::Disk, 0, 1);
            change_keyspace(&mut random, &mut batch, &mut out);
            batch.finish(&mut out);
            for peer in &mut peers {
                peer.side.send(now, NATIVE, &out);
                peer.side.settle(now);
                peer.side.sent[NATIVE].clear();
            }
        }
        let said = peers.each_mut().map(|it| std::mem::take(&mut it.side.said));
        assert_same(&said[0], &said[1], &context);
        let accounts = peers.each_ref().map(|peer| peer.side.account());
        assert_same(accounts[0].as_bytes(), accounts[1].as_bytes(), &context);
        now.us += [0, 1, 700, 600_000][random.below(4)];
        now.unix_ms = now.us / 1_000;
    }
    assert_eq!(peers[1].side.quick(), [0; 3]);
    [last, beside]
}

#[test]
fn pipelines_of_redis_beside_keyspaces_are_answered_logged_and_counted_as_one_by_one() {
    let (mut plain, mut beside, mut count) = (0, 0, 0);
    for number in seeds(8) {
        let seed = Seed(number);
        let [all, of_those] = compare(seed.0);
        (plain, beside, count) = (plain + all, beside + of_those, count + 1);
    }
    assert!(
        plain > 200 * count && beside > 100 * count,
        "{plain} plain items, {beside} of them beside keyspaces"
    );
}
