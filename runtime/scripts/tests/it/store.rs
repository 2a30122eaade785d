//! A small store in memory that answers the commands of scripts, and a client of both.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use penstock_net::resp::{Protocol, Replies};
use penstock_scripts::{Lua, ScriptLimits, ScriptTexts};
use penstock_shard::scripts::{Called, Calls, Script, ScriptEnd, ScriptRun, Scripts, Spent};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    bytes: Vec<u8>,
    expires_ms: Option<u64>,
}

/// Strings with times to live. Its clock moves when a test says so.
#[derive(Debug, Default)]
pub struct Store {
    values: BTreeMap<Vec<u8>, Value>,
    pub now_ms: u64,
    /// Keys that must be read first: a call that names one has no answer.
    pub cold: BTreeSet<Vec<u8>>,
    pub calls: u64,
    pub log: Vec<(u8, Vec<u8>)>,
    pub is_read_only: bool,
}

const NOT_AN_INTEGER: &[u8] = b"ERR value is not an integer or out of range";
const WRONG_COUNT: &[u8] = b"ERR Wrong number of args calling command from script";

impl Store {
    fn live(&self, key: &[u8]) -> Option<&Value> {
        let is_live = |value: &&Value| value.expires_ms.is_none_or(|at| at > self.now_ms);
        self.values.get(key).filter(is_live)
    }

    pub fn get(&self, key: &str) -> Option<String> {
        let value = self.live(key.as_bytes())?;
        Some(String::from_utf8_lossy(&value.bytes).into_owned())
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.put(key.as_bytes(), value.as_bytes(), None);
    }

    fn put(&mut self, key: &[u8], bytes: &[u8], expires_ms: Option<u64>) {
        let bytes = bytes.to_vec();
        self.values
            .insert(key.to_vec(), Value { bytes, expires_ms });
    }

    fn add(&mut self, key: &[u8], by: i64, replies: &mut Replies<'_>) {
        let live = self.live(key);
        let expires_ms = live.and_then(|value| value.expires_ms);
        let number = live.map_or(Some(0), |value| number(&value.bytes));
        let Some(sum) = number.and_then(|number| number.checked_add(by)) else {
            return replies.error(NOT_AN_INTEGER);
        };
        self.put(key, sum.to_string().as_bytes(), expires_ms);
        replies.integer(sum);
    }

    fn set_with_options(&mut self, args: &[&[u8]], replies: &mut Replies<'_>) {
        let mut expires_ms = None;
        let mut options = args[3..].iter();
        while let Some(option) = options.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"NX" if self.live(args[1]).is_some() => return replies.null(),
                b"NX" => (),
                unit @ (b"EX" | b"PX") => {
                    let time = options.next().and_then(|time| number(time)).unwrap_or(0);
                    let factor = if unit == b"EX" { 1000 } else { 1 };
                    expires_ms = Some(self.now_ms + time.unsigned_abs() * factor);
                }
                _ => return replies.error(b"ERR syntax error"),
            }
        }
        self.put(args[1], args[2], expires_ms);
        replies.simple("OK");
    }

    fn expire(&mut self, key: &[u8], ms: i64, replies: &mut Replies<'_>) {
        let expires_ms = self.now_ms + ms.unsigned_abs();
        match self.live(key).cloned() {
            Some(value) => {
                self.put(key, &value.bytes, Some(expires_ms));
                replies.integer(1);
            }
            None => replies.integer(0),
        }
    }

    fn answer(&mut self, name: &[u8], args: &[&[u8]], replies: &mut Replies<'_>) {
        match (name, args.len()) {
            (b"GET", 2) => match self.live(args[1]) {
                Some(value) => replies.bulk(&value.bytes),
                None => replies.null(),
            },
            (b"SET", 3..) if self.is_read_only => {
                replies.error(b"ERR Write commands are not allowed from read-only scripts.");
            }
            (b"SET", 3..) => self.set_with_options(args, replies),
            (b"DEL", 2..) => {
                let live = args[1..]
                    .iter()
                    .filter(|key| self.live(key).is_some())
                    .count();
                args[1..]
                    .iter()
                    .for_each(|key| drop(self.values.remove(*key)));
                replies.integer(i64::try_from(live).expect("few"));
            }
            (b"EXISTS", 2) => replies.integer(i64::from(self.live(args[1]).is_some())),
            (b"INCR", 2) => self.add(args[1], 1, replies),
            (b"DECR", 2) => self.add(args[1], -1, replies),
            (b"INCRBY" | b"DECRBY", 3) => match number(args[2]) {
                Some(by) => self.add(args[1], if name[0] == b'I' { by } else { -by }, replies),
                None => replies.error(NOT_AN_INTEGER),
            },
            (b"EXPIRE", 3) => self.expire(args[1], 1000 * number(args[2]).unwrap_or(0), replies),
            (b"PEXPIRE", 3) => self.expire(args[1], number(args[2]).unwrap_or(0), replies),
            (b"PTTL" | b"TTL", 2) => {
                let unit = if name[0] == b'P' { 1 } else { 1000 };
                replies.integer(match self.live(args[1]).map(|value| value.expires_ms) {
                    Some(Some(at)) => i64::try_from((at - self.now_ms) / unit).expect("near"),
                    Some(None) => -1,
                    None => -2,
                });
            }
            (b"TIME", 1) => {
                replies.array(2);
                replies.bulk((self.now_ms / 1000).to_string().as_bytes());
                replies.bulk((self.now_ms % 1000 * 1000).to_string().as_bytes());
            }
            (b"ECHO", 2) => replies.bulk(args[1]),
            (b"MGET", 2..) => {
                replies.array(args.len() - 1);
                for key in &args[1..] {
                    match self.live(key) {
                        Some(value) => replies.bulk(&value.bytes),
                        None => replies.null(),
                    }
                }
            }
            // A reply of any form: what a test gives, as it is.
            (b"RAW", 2) => replies.raw(args[1]),
            (b"GET" | b"SET" | b"INCR" | b"DECR", _) => replies.error(WRONG_COUNT),
            _ => replies.error(b"ERR Unknown command called from script"),
        }
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Calls for Store {
    fn call(&mut self, args: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Called {
        self.calls += 1;
        if args[1..].iter().any(|key| self.cold.contains(*key)) {
            return Called::Missing;
        }
        let name = args[0].to_ascii_uppercase();
        self.answer(&name, args, &mut Replies::new(reply, protocol));
        Called::Answered
    }

    fn declare_read_only(&mut self) {
        self.is_read_only = true;
    }

    fn log(&mut self, level: u8, text: &[u8]) {
        self.log.push((level, text.to_vec()));
    }
}

/// A client of one core.
pub struct Client {
    pub lua: Lua,
    pub store: Store,
    pub texts: Arc<ScriptTexts>,
    pub protocol: Protocol,
    pub reply_bytes_max: usize,
    pub seed: u64,
    pub end: ScriptEnd,
    pub spent: Cell<Spent>,
    /// Each script is one more of the same item.
    pub goes_on: bool,
}

impl Client {
    pub fn new() -> Self {
        Client::with(ScriptLimits::default())
    }

    pub fn with(limits: ScriptLimits) -> Self {
        Client::of(Arc::new(ScriptTexts::new()), limits)
    }

    /// One of several cores.
    pub fn of(texts: Arc<ScriptTexts>, limits: ScriptLimits) -> Self {
        Client {
            lua: Lua::new(Arc::clone(&texts), limits),
            store: Store::default(),
            texts,
            protocol: Protocol::Resp2,
            reply_bytes_max: 64 << 20,
            seed: 1,
            end: ScriptEnd::Answered,
            spent: Cell::default(),
            goes_on: false,
        }
    }

    pub fn run(&mut self, script: Script<'_>, keys: &[&[u8]], arguments: &[&[u8]]) -> Vec<u8> {
        if !self.goes_on {
            self.spent.take();
        }
        let run = ScriptRun {
            script,
            keys,
            arguments,
            protocol: self.protocol,
            reply_bytes_max: self.reply_bytes_max,
            seed: self.seed,
            spent: &self.spent,
        };
        let mut reply = Vec::new();
        self.store.is_read_only = false;
        let before = self.store.values.clone();
        self.end = self.lua.run(&run, &mut self.store, &mut reply);
        if self.end != ScriptEnd::Answered {
            self.store.values = before;
        }
        reply
    }

    /// The reply to EVAL, as text.
    pub fn eval(&mut self, text: &str, keys: &[&str], arguments: &[&str]) -> String {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
        let reply = self.run(Script::Text(text.as_bytes()), &keys, &arguments);
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// The same without keys and arguments.
    pub fn value(&mut self, text: &str) -> String {
        self.eval(text, &[], &[])
    }

    /// The reply to EVALSHA.
    pub fn eval_sha(&mut self, digest: [u8; 20], keys: &[&str], arguments: &[&str]) -> String {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
        let reply = self.run(Script::Digest(digest), &keys, &arguments);
        String::from_utf8_lossy(&reply).into_owned()
    }
}

impl Client {
    pub fn lua_bytes(&self) -> usize {
        self.lua.bytes()
    }
}
