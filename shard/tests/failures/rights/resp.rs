//! Rights over the port for clients of Redis: a connection of RESP before the shard.

use std::sync::Arc;

use penstock_net::limits::Limits;
use penstock_net::program::ServedSchema;
use penstock_net::resp::{Client, Conversation, Host};
use penstock_net::rights::{Right, Rights};
use penstock_storage::budget::Budget;

use super::items::{KEY, take};
use super::secrecy::with_one_key;
use super::{open, rights_of};
use crate::interpreter::Lines;
use crate::server::Server;

/// A server around a connection that never changes.
pub struct Still {
    pub schema: Arc<ServedSchema>,
    pub unix_us: u64,
    /// Cores whose keys run together.
    pub joined_cores: u16,
}

impl Host for Still {
    fn unix_us(&self) -> u64 {
        self.unix_us
    }

    fn elapsed_us(&self) -> u64 {
        0
    }

    fn joined_cores(&self) -> u16 {
        self.joined_cores
    }

    fn schema(&self) -> Arc<ServedSchema> {
        Arc::clone(&self.schema)
    }
}

struct Peer {
    server: Server,
    talk: Conversation,
    host: Still,
}

impl Peer {
    fn connect(mut server: Server, rights: Option<Arc<Rights>>) -> Peer {
        let execution = server.shard.execution_mut();
        execution.serve_scripts(Box::new(Lines));
        let (shard, now) = (&mut server.shard, server.now);
        server.session = shard.front_mut().open_session_translated(now, 0);
        server
            .shard
            .front_mut()
            .set_rights(server.session, rights.clone());
        let limits = Limits {
            frame_bytes_max: 16 << 10,
            value_bytes_max: 3 << 10,
        };
        let mut talk = Conversation::new(Client::default(), limits, false);
        talk.set_rights(rights);
        server.raw = Some(Vec::new());
        server.inbox = Conversation::greeting();
        server.hand_over();
        let programs = penstock_net::program::Programs::new(vec![take()]);
        let text = String::new();
        Peer {
            server,
            talk,
            host: Still {
                joined_cores: 0,
                schema: Arc::new(ServedSchema {
                    programs,
                    layouts: Vec::new(),
                    text,
                }),
                unix_us: 1,
            },
        }
    }

    /// Sends a command and takes its reply. A tilde is a blank within a word.
    fn ask(&mut self, line: &str) -> Vec<u8> {
        let key = str::from_utf8(KEY).expect("text");
        let line = line.replace("<key>", key);
        let words: Vec<String> = line.split(' ').map(|word| word.replace('~', " ")).collect();
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(word.bytes());
            bytes.extend(b"\r\n");
        }
        for _ in 0..10 {
            let mut frame = Vec::new();
            let taken = self.talk.take(&bytes, &mut frame, &self.host);
            bytes.drain(..taken);
            self.server.inbox.extend(frame);
            self.server.hand_over();
            self.server.settle();
            let raw = self.server.raw.replace(Vec::new()).expect("kept");
            self.talk.answered(&raw, &self.host);
        }
        assert!(bytes.is_empty(), "{line} was not taken");
        std::mem::take(self.talk.out())
    }
}

/// Commands with keys, one at least of each name.
const KEYED: &[&str] = &[
    "APPEND <key> x",
    "DECR <key>",
    "DECRBY <key> 2",
    "DEL <key>",
    "DELEX <key>",
    "DELEX <key> IFEQ x",
    "EVAL last 1 <key> GET~<key>",
    "EVALSHA ffffffffffffffffffffffffffffffffffffffff 1 <key>",
    "EVALSHA_RO ffffffffffffffffffffffffffffffffffffffff 1 <key>",
    "EVAL_RO last 1 <key> GET~<key>",
    "EXISTS <key>",
    "EXPIRE <key> 10",
    "EXPIRE <key> 10 NX",
    "EXPIREAT <key> 99999999999",
    "EXPIRETIME <key>",
    "GET <key>",
    "GETDEL <key>",
    "GETEX <key>",
    "GETEX <key> PERSIST",
    "GETRANGE <key> 0 1",
    "HDEL <key> f",
    "HEXISTS <key> f",
    "HGET <key> f",
    "HGETALL <key>",
    "HINCRBY <key> f 1",
    "HINCRBYFLOAT <key> f 1.5",
    "HKEYS <key>",
    "HLEN <key>",
    "HMGET <key> f g",
    "HMSET <key> f v",
    "HRANDFIELD <key>",
    "HSCAN <key> 0",
    "HSET <key> f v g w",
    "HSETNX <key> f v",
    "HSTRLEN <key> f",
    "HVALS <key>",
    "INCR <key>",
    "INCRBY <key> 2",
    "INCREX <key>",
    "INCREX <key> UBOUND 3 SATURATE",
    "KV.GET <key> AS u8@0",
    "KV.APPLY <key> k1.decimal~+=~1",
    "KV.APPLY <key> k1~exists",
    "KV.RUN take <key> KEY <key>2 by=7",
    "BITCOUNT <key>",
    "BLMOVE <key> <key>2 LEFT RIGHT 0.01",
    "BLMPOP 0.01 1 <key> LEFT",
    "BLPOP <key> 0.01",
    "BRPOP <key> 0.01",
    "BRPOPLPUSH <key> <key>2 0.01",
    "BZMPOP 0.01 1 <key> MIN",
    "BZPOPMAX <key> 0.01",
    "BZPOPMIN <key> 0.01",
    "COPY <key> <key>2",
    "GETBIT <key> 1",
    "GETSET <key> x",
    "INCRBYFLOAT <key> 1.5",
    "KEYS k:*",
    "LINDEX <key> 0",
    "LINSERT <key> BEFORE a b",
    "LLEN <key>",
    "LMOVE <key> <key>2 LEFT RIGHT",
    "LMPOP 2 <key> <key>2 LEFT",
    "LPOP <key>",
    "LPOS <key> a",
    "LPUSH <key> a",
    "LPUSHX <key> a",
    "LRANGE <key> 0 -1",
    "LREM <key> 0 a",
    "LSET <key> 0 a",
    "LTRIM <key> 0 1",
    "MEMORY USAGE <key>",
    "MSETNX <key> x",
    "OBJECT ENCODING <key>",
    "RANDOMKEY",
    "RENAME <key> <key>2",
    "RENAMENX <key> <key>2",
    "SETBIT <key> 1 1",
    "TOUCH <key>",
    "MGET <key> <key>",
    "MSET <key> x",
    "PERSIST <key>",
    "PEXPIRE <key> 10000",
    "PEXPIREAT <key> 9999999999999",
    "PEXPIRETIME <key>",
    "PSETEX <key> 10000 x",
    "PTTL <key>",
    "RPOP <key> 2",
    "RPOPLPUSH <key> <key>2",
    "RPUSH <key> a",
    "RPUSHX <key> a",
    "SADD <key> a b",
    "SCAN 0 MATCH k:*",
    "SCARD <key>",
    "SDIFF <key> <key>2",
    "SDIFFSTORE <key>2 <key>",
    "SET <key> x",
    "SET <key> x NX",
    "SET <key> x XX",
    "SET <key> x GET",
    "SET <key> x KEEPTTL",
    "SETEX <key> 100 x",
    "SETNX <key> x",
    "SETRANGE <key> 1 x",
    "SINTER <key> <key>2",
    "SINTERCARD 1 <key>",
    "SINTERSTORE <key>2 <key>",
    "SISMEMBER <key> a",
    "SMEMBERS <key>",
    "SMISMEMBER <key> a b",
    "SMOVE <key> <key>2 a",
    "SPOP <key>",
    "SRANDMEMBER <key>",
    "SREM <key> a",
    "SSCAN <key> 0",
    "STRLEN <key>",
    "SUNION <key>",
    "SUNIONSTORE <key> <key>2",
    "TTL <key>",
    "TYPE <key>",
    "UNLINK <key>",
    "WATCH <key>",
    "ZADD <key> 1 a",
    "ZCARD <key>",
    "ZCOUNT <key> 1 2",
    "ZDIFF 1 <key>",
    "ZDIFFSTORE <key>2 1 <key>",
    "ZINCRBY <key> 1 a",
    "ZINTER 2 <key> <key>2",
    "ZINTERCARD 1 <key>",
    "ZINTERSTORE <key>2 1 <key>",
    "ZLEXCOUNT <key> - +",
    "ZMPOP 1 <key> MIN",
    "ZMSCORE <key> a b",
    "ZPOPMAX <key>",
    "ZPOPMIN <key> 2",
    "ZRANDMEMBER <key>",
    "ZRANGE <key> 0 -1",
    "ZRANGEBYLEX <key> - +",
    "ZRANGEBYSCORE <key> 1 2",
    "ZRANGESTORE <key>2 <key> 0 -1",
    "ZRANK <key> a",
    "ZREM <key> a",
    "ZREMRANGEBYLEX <key> - +",
    "ZREMRANGEBYRANK <key> 0 1",
    "ZREMRANGEBYSCORE <key> 1 2",
    "ZREVRANGE <key> 0 -1",
    "ZREVRANGEBYLEX <key> + -",
    "ZREVRANGEBYSCORE <key> 2 1",
    "ZREVRANK <key> a",
    "ZSCAN <key> 0",
    "ZSCORE <key> a",
    "ZUNION 1 <key>",
    "ZUNIONSTORE <key> 1 <key>2",
];

/// Commands without keys.
const OTHERS: &[&str] = &[
    "AUTH x",
    "CLIENT ID",
    "CLIENT GETNAME",
    "CLIENT LIST",
    "CLIENT KILL 1.2.3.4:5",
    "CLIENT PAUSE 1",
    "CLIENT UNBLOCK 7",
    "CLIENT UNPAUSE",
    "CLUSTER INFO",
    "COMMAND COUNT",
    "CONFIG GET maxmemory",
    "DBSIZE",
    "DEBUG SLEEP 0",
    "DISCARD",
    "ECHO x",
    "EXEC",
    "FLUSHALL",
    "FLUSHDB ASYNC",
    "HELLO 2",
    "INFO",
    "KV.OPTS",
    "MULTI",
    "PING",
    "PSUBSCRIBE c*",
    "PUBLISH c x",
    "PUBSUB CHANNELS",
    "PUNSUBSCRIBE",
    "READONLY",
    "READWRITE",
    "SCRIPT FLUSH",
    "SELECT 0",
    "SLOWLOG GET",
    "SLOWLOG LEN",
    "SPUBLISH c x",
    "SSUBSCRIBE c",
    "SUBSCRIBE c",
    "SUNSUBSCRIBE",
    "TIME",
    "UNSUBSCRIBE",
    "UNWATCH",
    "WAIT 0 10",
    "RESET",
    "QUIT",
];

fn shown(reply: &[u8]) -> String {
    reply.escape_ascii().to_string()
}

#[test]
fn each_command_is_one_of_those_that_are_tested() {
    let mut peer = Peer::connect(open(Budget::of_cache(1 << 20)), None);
    let list = String::from_utf8(peer.ask("COMMAND LIST")).expect("names");
    let names: Vec<&str> = list
        .lines()
        .filter(|line| !line.starts_with(['*', '$']))
        .collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        let mut tested = KEYED.iter().chain(OTHERS);
        let is_it = |line: &&str| line.split(' ').next().unwrap().eq_ignore_ascii_case(name);
        assert!(tested.any(is_it), "{name} is not tested");
    }
}

#[test]
fn replies_are_the_same_whether_a_key_exists_or_not_for_who_may_not_read_it() {
    let users: [&[(Right, &[u8])]; 3] = [
        &[],
        &[(Right::Read, b"o:"), (Right::Write, b"k:")],
        &[(Right::Admin, b""), (Right::Write, b"")],
    ];
    for user in users {
        for line in KEYED {
            let replies = [true, false].map(|is_there| {
                let server = with_one_key(Budget::of_cache(1 << 20), is_there, b"7");
                let mut peer = Peer::connect(server, Some(rights_of(user)));
                let reply = peer.ask(line);
                // The same behind MULTI, and in the middle of others.
                let more = ["MULTI", line, "EXEC", "PING"].map(|line| peer.ask(line));
                [reply, more.concat()].concat()
            });
            assert_eq!(shown(&replies[0]), shown(&replies[1]), "{line} of {user:?}");
            let text = shown(&replies[0]);
            assert!(
                text.contains("-NOPERM")
                    || line.starts_with("SET") && !user.is_empty()
                    || line.starts_with("MSET")
                    || line.starts_with("PSETEX"),
                "{line}: {text}"
            );
        }
    }
}

#[test]
fn a_denied_command_is_answered_in_the_words_of_redis() {
    let server = with_one_key(Budget::of_cache(1 << 20), true, b"7");
    let mut peer = Peer::connect(server, Some(rights_of(&[(Right::Read, b"o:")])));
    let no_key = b"-NOPERM No permissions to access a key\r\n";
    for line in KEYED
        .iter()
        .filter(|line| !line.starts_with("KV.") && !line.starts_with("MGET"))
    {
        assert_eq!(shown(&peer.ask(line)), shown(no_key), "{line}");
    }
    let each = [b"*2\r\n", &no_key[..], no_key].concat();
    assert_eq!(shown(&peer.ask("MGET <key> <key>")), shown(&each));
    let run = peer.ask("KV.RUN take <key> KEY <key>2 by=7");
    let expected = "-NOPERM user till has no right to run take at \"k:{1}a\"\r\n";
    assert_eq!(shown(&run), shown(expected.as_bytes()));
    let info = peer.ask("INFO");
    let expected = "-NOPERM User till has no permissions to run the 'info' command\r\n";
    assert_eq!(shown(&info), shown(expected.as_bytes()));
    let list = shown(&peer.ask("CLIENT LIST"));
    assert!(list.contains("client|list"), "{list}");
    assert_eq!(peer.ask("PING"), b"+PONG\r\n", "the connection lives");
}

/// The commands of the second table of RIGHTS.md that need a right, with what it is.
fn table() -> Vec<(String, Right)> {
    let document = include_str!("../../../../net/RIGHTS.md");
    let begin = document.find("| command | rights |").expect("the table");
    let rows = document[begin..].lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with('|') && !line.contains("all others"));
    let mut all = Vec::new();
    for row in rows {
        let (commands, right) = row.trim_matches('|').split_once('|').expect("two cells");
        let right = right.trim().split(',').next().expect("a right");
        let right = Right::named(right).unwrap_or_else(|| panic!("{right} is no right"));
        let names = commands.split('`').skip(1).step_by(2);
        all.extend(names.map(|name| (name.to_string(), right)));
    }
    all
}

#[test]
fn commands_without_keys_need_the_rights_that_the_table_names() {
    let table = table();
    assert_eq!(table.len(), 19);
    for line in OTHERS {
        let needed = table
            .iter()
            .find(|(name, _)| line.starts_with(name))
            .map(|it| it.1);
        for right in [
            None,
            Some(Right::Read),
            Some(Right::Write),
            Some(Right::Admin),
        ] {
            let rights = right
                .map(|right| vec![(right, &b""[..])])
                .unwrap_or_default();
            let server = open(Budget::of_cache(1 << 20));
            let mut peer = Peer::connect(server, Some(rights_of(&rights)));
            let reply = shown(&peer.ask(line));
            if reply.contains("this node has no channels") {
                // Rights of channels are judged where there are some.
                continue;
            }
            let is_denied = needed.is_some() && needed != right;
            assert_eq!(reply.starts_with("-NOPERM"), is_denied, "{line}: {reply}");
        }
    }
}
