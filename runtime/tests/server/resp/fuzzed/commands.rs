//! Commands by chance: strings, keys, expiry, and what stands between MULTI and EXEC.

use super::chance::Chance;
use super::{lists, sets};

/// The words of a command.
pub(crate) type Words = Vec<Vec<u8>>;

const KEYS: [&[u8]; 20] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"k1",
    b"k2",
    b"n1",
    b"n2",
    b"stock:{7}",
    b"order:{7}:1",
    b"bits",
    b"text",
    b"long",
    b"float",
    b"with space",
    b"\x00\xff\r\n",
    b"*",
    b"[x]",
    b"12",
    b"K1",
];
pub(super) const PATTERNS: [&[u8]; 16] = [
    b"*", b"k*", b"?", b"??", b"[a-c]", b"[^a-c]*", b"\\*", b"*:{7}*", b"n[12]", b"", b"**a", b"[",
    b"[x", b"\\", b"[\\[]*", b"K?",
];
const NUMBERS: [&str; 31] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "5",
    "7",
    "8",
    "10",
    "16",
    "100",
    "1000",
    "-2",
    "-5",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775806",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "2147483647",
    "4294967295",
    "4294967296",
    "00",
    "+1",
    " 1",
    "1 ",
    "1.0",
    "-0",
    "abc",
];
const FLOATS: [&str; 20] = [
    "0", "1", "-1", "0.5", "0.25", "-0.75", "3.0e3", "1.5", "100.125", "10.", ".5", "-.5", "1e2",
    "abc", "", " 1", "1 ", "nan", "+2", "12.50",
];
/// Far enough that no clock comes near.
const TIMES_S: [&str; 13] = [
    "99999999999",
    "9999999999",
    "4102444800",
    "1",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
    "",
    "1.5",
    "5000000000",
    "4102444801",
];
const TIMES_MS: [&str; 12] = [
    "99999999999999",
    "4102444800000",
    "4102444800001",
    "1",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
    "",
    "5000000000123",
    "10000000000000",
];
/// Lifetimes: what is left of them is told in a unit that no run comes near.
const LIFETIMES: [&str; 11] = [
    "1000000",
    "100000000",
    "0",
    "-1",
    "-1000",
    "abc",
    "",
    "9223372036854775807",
    "9223372036854775",
    "-9223372036854775808",
    "2000000",
];

fn words(all: &[&[u8]]) -> Words {
    all.iter().map(|word| word.to_vec()).collect()
}

pub(super) fn key(chance: &mut Chance) -> Vec<u8> {
    chance.pick(&KEYS).to_vec()
}

pub(super) fn number(chance: &mut Chance) -> Vec<u8> {
    chance.pick(&NUMBERS).as_bytes().to_vec()
}

fn value(chance: &mut Chance) -> Vec<u8> {
    match chance.below(12) {
        0..=3 => number(chance),
        4 => chance.pick(&FLOATS).as_bytes().to_vec(),
        5 => Vec::new(),
        6 => {
            let len = chance.below(48);
            (0..len).map(|_| chance.next().to_le_bytes()[0]).collect()
        }
        7 => vec![b'x'; [43, 44, 45, 100, 1000, 5000, 20_000][chance.below(7)]],
        _ => chance
            .pick(&["v", "hello", "world", "ann", "{\"id\":7}", "Hello World"])
            .into(),
    }
}

/// A position in a value.
pub(super) fn place(chance: &mut Chance) -> Vec<u8> {
    match chance.below(8) {
        0 => number(chance),
        1 => b"-"
            .iter()
            .copied()
            .chain(chance.below(30).to_string().bytes())
            .collect(),
        _ => chance.below(40).to_string().into_bytes(),
    }
}

/// A place that is written to, within the longest value.
fn place_to_write(chance: &mut Chance) -> Vec<u8> {
    match chance.below(10) {
        0 => b"-1".to_vec(),
        1 => b"abc".to_vec(),
        2 => b"9223372036854775807".to_vec(),
        3 => b"4294967296".to_vec(),
        4 => chance.below(8000).to_string().into_bytes(),
        _ => chance.below(60).to_string().into_bytes(),
    }
}

fn expiry_option(chance: &mut Chance) -> Words {
    let (name, all): (&[u8], &[&str]) = match chance.below(4) {
        0 => (b"EX", &LIFETIMES),
        1 => (b"PX", &LIFETIMES),
        2 => (b"EXAT", &TIMES_S),
        _ => (b"PXAT", &TIMES_MS),
    };
    words(&[name, chance.pick(all).as_bytes()])
}

fn set(chance: &mut Chance) -> Words {
    let mut command = vec![b"SET".to_vec(), key(chance), value(chance)];
    if chance.once_in(2) {
        return command;
    }
    for _ in 0..1 + chance.below(3) {
        match chance.below(9) {
            0 => command.push(b"NX".to_vec()),
            1 => command.push(b"XX".to_vec()),
            2 => command.push(b"GET".to_vec()),
            3 => command.push(b"KEEPTTL".to_vec()),
            4 => command.extend([b"IFEQ".to_vec(), value(chance)]),
            5 if chance.once_in(4) => command.push(b"BOGUS".to_vec()),
            _ => command.extend(expiry_option(chance)),
        }
    }
    command
}

fn expire(chance: &mut Chance) -> Words {
    // Which of two lifetimes ends later may depend on a millisecond, so times alone are compared.
    let (name, all, conditions): (&[u8], &[&str], &[&str]) = match chance.below(4) {
        0 => (b"EXPIRE", &LIFETIMES, &["NX", "XX", "ZZ"]),
        1 => (b"PEXPIRE", &LIFETIMES, &["nx", "xx"]),
        2 => (b"EXPIREAT", &TIMES_S, &["NX", "XX", "GT", "LT", "gt", "lt"]),
        _ => (b"PEXPIREAT", &TIMES_MS, &["NX", "XX", "GT", "LT"]),
    };
    let mut command = vec![name.to_vec(), key(chance), chance.pick(all).into()];
    while chance.once_in(3) {
        command.push(chance.pick(conditions).into());
    }
    command
}

fn bitcount(chance: &mut Chance) -> Words {
    let mut command = vec![b"BITCOUNT".to_vec(), key(chance)];
    if chance.once_in(2) {
        command.extend([place(chance), place(chance)]);
        if chance.once_in(2) {
            command.push(chance.pick(&["BIT", "BYTE", "bit", "x"]).into());
        }
    }
    command
}

pub(super) fn keys_of(chance: &mut Chance, name: &[u8]) -> Words {
    let count = 1 + chance.below(4);
    let keys = (0..count).map(|_| key(chance));
    [vec![name.to_vec()], keys.collect()].concat()
}

fn pairs_of(chance: &mut Chance, name: &[u8]) -> Words {
    let count = 1 + chance.below(4);
    let pairs = (0..count).flat_map(|_| [key(chance), value(chance)]);
    [vec![name.to_vec()], pairs.collect()].concat()
}

fn getex(chance: &mut Chance) -> Words {
    let mut command = vec![b"GETEX".to_vec(), key(chance)];
    match chance.below(5) {
        0 => {}
        1 => command.push(b"PERSIST".to_vec()),
        2 => {
            command.push(b"PERSIST".to_vec());
            command.extend(expiry_option(chance));
        }
        _ => command.extend(expiry_option(chance)),
    }
    command
}

fn field(chance: &mut Chance) -> Vec<u8> {
    chance
        .pick(&["f", "g", "h", "", "12", "a field", "\0\r\n"])
        .into()
}

/// A value that Redis keeps in a list.
fn short_value(chance: &mut Chance) -> Vec<u8> {
    match chance.below(4) {
        0 => number(chance),
        1 => chance.pick(&FLOATS).as_bytes().to_vec(),
        2 => vec![b'x'; chance.below(64)],
        _ => chance.pick(&["v", "", "{\"id\":7}"]).into(),
    }
}

/// A command of hashes.
fn of_hashes(chance: &mut Chance) -> Words {
    let name = |name: &str| name.as_bytes().to_vec();
    match chance.below(10) {
        0..=2 => {
            let mut command = vec![name(chance.pick(&["HSET", "HMSET"])), key(chance)];
            for _ in 0..1 + chance.below(3) {
                command.extend([field(chance), short_value(chance)]);
            }
            command
        }
        3 => vec![
            name("HSETNX"),
            key(chance),
            field(chance),
            short_value(chance),
        ],
        4 => {
            let command = chance.pick(&["HGETALL", "HKEYS", "HVALS", "HLEN", "HGETALL"]);
            vec![name(command), key(chance)]
        }
        5 => {
            let command = chance.pick(&["HGET", "HEXISTS", "HSTRLEN", "HGET"]);
            vec![name(command), key(chance), field(chance)]
        }
        6 => {
            let fields = (0..1 + chance.below(3)).map(|_| field(chance));
            let fields: Words = fields.collect();
            let command = chance.pick(&["HDEL", "HMGET", "HDEL"]);
            [vec![name(command), key(chance)], fields].concat()
        }
        7 => vec![name("HINCRBY"), key(chance), field(chance), number(chance)],
        8 => {
            let by = chance.pick(&FLOATS).into();
            vec![name("HINCRBYFLOAT"), key(chance), field(chance), by]
        }
        _ => {
            let mut command = vec![name("HSCAN"), key(chance), name("0")];
            if chance.once_in(2) {
                command.extend([name("MATCH"), chance.pick(&PATTERNS).to_vec()]);
            }
            if chance.once_in(4) {
                command.push(name("NOVALUES"));
            }
            command
        }
    }
}

/// A member of a sorted set: short, so that Redis keeps it in a list.
pub(super) fn member(chance: &mut Chance) -> Vec<u8> {
    chance
        .pick(&["a", "b", "c", "d", "e", "", "12", "a member", "\0\r\n"])
        .into()
}

/// Scores whose sums are exact, so that they do not depend on an order.
fn score(chance: &mut Chance) -> Vec<u8> {
    match chance.below(3) {
        0 => chance.pick(&FLOATS).as_bytes().to_vec(),
        1 => chance
            .pick(&[
                "inf",
                "-inf",
                "-0",
                "1e300",
                "4611686018427388928",
                "0.1",
                "-3",
            ])
            .into(),
        _ => chance.below(6).to_string().into_bytes(),
    }
}

pub(super) fn range_ends(chance: &mut Chance, name: &str) -> Words {
    let lex: [&[u8]; 10] = [
        b"-", b"+", b"[a", b"(a", b"[b", b"(c", b"[d", b"[", b"(", b"x",
    ];
    let mut ends: Words = (0..2)
        .map(|_| match name {
            _ if chance.once_in(40) => value(chance),
            "LEX" => chance.pick(&lex).to_vec(),
            "RANK" => chance
                .pick(&["0", "1", "2", "-1", "-2", "-3", "5", "-9"])
                .into(),
            _ => {
                let open: &[u8] = if chance.once_in(4) { b"(" } else { b"" };
                [open, &score(chance)].concat()
            }
        })
        .collect();
    // Half of all ranges are not empty by their ends.
    if chance.once_in(2) {
        match name {
            "LEX" => ends[0] = b"-".to_vec(),
            "RANK" => ends[1] = b"-1".to_vec(),
            _ => ends[0] = b"-inf".to_vec(),
        }
    }
    ends
}

/// ZRANGE in all its forms, behind its name and the keys.
fn range_options(chance: &mut Chance) -> Words {
    let kind = chance.pick(&["RANK", "SCORE", "LEX"]);
    let mut words = range_ends(chance, kind);
    match kind {
        "LEX" => words.push(b"BYLEX".to_vec()),
        "SCORE" => words.push(b"BYSCORE".to_vec()),
        _ => {}
    }
    if chance.once_in(3) {
        words.push(b"REV".to_vec());
        if kind != "RANK" && chance.once_in(2) {
            words.swap(0, 1);
        }
    }
    if chance.once_in(4) {
        let most = chance.pick(&["0", "1", "2", "-1", "9"]).into();
        words.extend([b"LIMIT".to_vec(), chance.below(3).to_string().into(), most]);
    }
    words
}

/// ZUNION and its like, behind the name and the destination.
fn combined(chance: &mut Chance) -> Words {
    let count = 1 + chance.below(3);
    let given = if chance.once_in(40) { count + 1 } else { count };
    let mut words: Words = vec![given.to_string().into()];
    words.extend((0..count).map(|_| key(chance)));
    if chance.once_in(4) {
        words.push(b"WEIGHTS".to_vec());
        let weights = ["1", "2", "-1", "0", "0.5", "inf", "x"];
        words.extend((0..count).map(|_| chance.pick(&weights).into()));
    }
    if chance.once_in(4) {
        let how = chance.pick(&["SUM", "min", "MAX", "SUM", "MIN", "BOGUS"]);
        words.extend([b"AGGREGATE".to_vec(), how.into()]);
    }
    words
}

/// A command of sorted sets.
fn of_zsets(chance: &mut Chance) -> Words {
    let name = |name: &str| name.as_bytes().to_vec();
    match chance.below(16) {
        0..=3 => {
            let mut command = vec![name("ZADD"), key(chance)];
            while chance.once_in(4) {
                let options = ["NX", "XX", "GT", "LT", "CH", "INCR", "ch"];
                command.push(chance.pick(&options).into());
            }
            for _ in 0..1 + chance.below(3) {
                command.extend([score(chance), member(chance)]);
            }
            command
        }
        4 => vec![name("ZINCRBY"), key(chance), score(chance), member(chance)],
        5 => {
            let command = chance.pick(&["ZREM", "ZMSCORE", "ZREM"]);
            let members: Words = (0..1 + chance.below(3)).map(|_| member(chance)).collect();
            [vec![name(command), key(chance)], members].concat()
        }
        6 => {
            let command = chance.pick(&["ZSCORE", "ZRANK", "ZREVRANK"]);
            let mut command = vec![name(command), key(chance), member(chance)];
            if chance.once_in(4) {
                command.push(name("WITHSCORE"));
            }
            command
        }
        7 => vec![name("ZCARD"), key(chance)],
        8 => {
            let all = [
                ("ZCOUNT", "SCORE"),
                ("ZLEXCOUNT", "LEX"),
                ("ZREMRANGEBYRANK", "RANK"),
                ("ZREMRANGEBYSCORE", "SCORE"),
                ("ZREMRANGEBYLEX", "LEX"),
            ];
            let (command, kind) = all[chance.below(all.len())];
            let ends = range_ends(chance, kind);
            [vec![name(command), key(chance)], ends].concat()
        }
        9 | 10 => {
            let options = range_options(chance);
            let mut command = [vec![name("ZRANGE"), key(chance)], options].concat();
            if chance.once_in(2) {
                command.push(name("WITHSCORES"));
            }
            command
        }
        11 => {
            let all = [
                ("ZREVRANGE", "RANK"),
                ("ZRANGEBYSCORE", "SCORE"),
                ("ZREVRANGEBYSCORE", "SCORE"),
                ("ZRANGEBYLEX", "LEX"),
                ("ZREVRANGEBYLEX", "LEX"),
            ];
            let (command, kind) = all[chance.below(all.len())];
            let mut ends = range_ends(chance, kind);
            if command.contains("REVRANGEBY") {
                ends.reverse();
            }
            [vec![name(command), key(chance)], ends].concat()
        }
        12 => {
            let command = chance.pick(&["ZPOPMIN", "ZPOPMAX", "BZPOPMIN", "BZPOPMAX"]);
            let mut command = vec![name(command), key(chance)];
            if command[0][0] == b'B' {
                command.extend([key(chance), chance.pick(&["0.001", "-1", "x"]).into()]);
                return command;
            }
            if chance.once_in(2) {
                command.push(chance.pick(&["0", "1", "2", "-1"]).into());
            }
            command
        }
        13 => {
            let mut command = vec![name("ZMPOP"), name("2"), key(chance), key(chance)];
            if chance.once_in(4) {
                command.splice(0..1, [name("BZMPOP"), name("0.001")]);
            }
            command.push(chance.pick(&["MIN", "MAX", "max"]).into());
            if chance.once_in(2) {
                command.extend([name("COUNT"), chance.pick(&["1", "2", "0", "9"]).into()]);
            }
            command
        }
        14 => of_several_zsets(chance),
        _ => counted_or_scanned(chance),
    }
}

/// ZRANGESTORE, ZUNION and their like.
fn of_several_zsets(chance: &mut Chance) -> Words {
    let name = |name: &str| name.as_bytes().to_vec();
    match chance.below(3) {
        0 => {
            let to = [name("ZRANGESTORE"), key(chance), key(chance)];
            [to.to_vec(), range_options(chance)].concat()
        }
        1 => {
            let all = ["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"];
            let command = chance.pick(&all);
            let to = vec![name(command), key(chance)];
            [to, combined(chance)].concat()
        }
        _ => {
            let command = chance.pick(&["ZUNION", "ZINTER", "ZDIFF"]);
            let mut command = [vec![name(command)], combined(chance)].concat();
            if chance.once_in(2) {
                command.push(name("WITHSCORES"));
            }
            command
        }
    }
}

/// ZINTERCARD or ZSCAN.
fn counted_or_scanned(chance: &mut Chance) -> Words {
    let name = |name: &str| name.as_bytes().to_vec();
    match chance.below(2) {
        0 => {
            let mut command = vec![name("ZINTERCARD"), name("2"), key(chance), key(chance)];
            if chance.once_in(2) {
                command.extend([name("LIMIT"), chance.pick(&["0", "1", "-1"]).into()]);
            }
            command
        }
        _ => {
            let mut command = vec![name("ZSCAN"), key(chance), name("0")];
            if chance.once_in(2) {
                command.extend([name("MATCH"), chance.pick(&PATTERNS).to_vec()]);
            }
            if chance.once_in(4) {
                command.push(name("NOSCORES"));
            }
            command
        }
    }
}

/// A command with keys, of those that may stand behind MULTI and in scripts.
pub(crate) fn of_keys(chance: &mut Chance) -> Words {
    let key_alone: [&[u8]; 15] = [
        b"GET",
        b"STRLEN",
        b"TYPE",
        b"INCR",
        b"DECR",
        b"PERSIST",
        b"GETDEL",
        b"PEXPIRETIME",
        b"EXPIRETIME",
        b"TTL",
        b"PTTL",
        b"GET",
        b"INCR",
        b"GET",
        b"EXISTS",
    ];
    match chance.below(60) {
        36..=43 => of_zsets(chance),
        44..=51 => lists::of_lists(chance),
        52..=59 => sets::of_sets(chance),
        0..=4 => set(chance),
        5..=9 => vec![chance.pick(&key_alone).to_vec(), key(chance)],
        10 => vec![b"SETNX".to_vec(), key(chance), value(chance)],
        11 => {
            let name = chance.pick(&["SETEX", "PSETEX"]).into();
            let lifetime = chance.pick(&LIFETIMES).into();
            vec![name, key(chance), lifetime, value(chance)]
        }
        12 | 13 => expire(chance),
        14 => {
            let name = chance.pick(&["INCRBY", "DECRBY"]).into();
            vec![name, key(chance), number(chance)]
        }
        15 => vec![b"APPEND".to_vec(), key(chance), value(chance)],
        16 => vec![
            b"GETRANGE".to_vec(),
            key(chance),
            place(chance),
            place(chance),
        ],
        17 => {
            let at = place_to_write(chance);
            vec![b"SETRANGE".to_vec(), key(chance), at, value(chance)]
        }
        18 => {
            let bit = chance.pick(&["0", "1", "0", "1", "2", "x"]).into();
            vec![b"SETBIT".to_vec(), key(chance), place_to_write(chance), bit]
        }
        19 => vec![b"GETBIT".to_vec(), key(chance), place(chance)],
        20 => bitcount(chance),
        21 => getex(chance),
        22 => vec![b"GETSET".to_vec(), key(chance), value(chance)],
        23 => {
            let number = chance.pick(&FLOATS).into();
            let key = chance.pick(&["float", "float2", "n1", "text"]).into();
            vec![b"INCRBYFLOAT".to_vec(), key, number]
        }
        24 => {
            let name = chance.pick(&["DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "MGET"]);
            keys_of(chance, name.as_bytes())
        }
        25 => {
            let name = chance.pick(&["MSET", "MSETNX"]);
            pairs_of(chance, name.as_bytes())
        }
        26 => {
            let name = chance.pick(&["RENAME", "RENAMENX"]).into();
            vec![name, key(chance), key(chance)]
        }
        27 => {
            let mut command = vec![b"COPY".to_vec(), key(chance), key(chance)];
            if chance.once_in(2) {
                command.push(b"REPLACE".to_vec());
            }
            command
        }
        28 => vec![b"SET".to_vec(), key(chance), number(chance)],
        29..=34 => of_hashes(chance),
        _ => vec![chance.pick(&["ECHO", "PING"]).into(), value(chance)],
    }
}

/// A command that a user mistyped: a word more, fewer, twice or in other letters.
fn mistyped(chance: &mut Chance, mut command: Words) -> Words {
    let at = chance.below(command.len());
    // Other counts of what is picked by chance are no replies to compare.
    if matches!(&command[0][..], b"SPOP" | b"SRANDMEMBER") {
        return command;
    }
    match chance.below(6) {
        0 if command.len() > 1 => drop(command.remove(at.max(1))),
        1 => command.push(value(chance)),
        2 => command[at].make_ascii_lowercase(),
        3 => command[at] = number(chance),
        4 => command.insert(at.max(1), key(chance)),
        _ => command.truncate(at.max(1)),
    }
    command
}

/// A command, by which no connection changes its mode.
pub(crate) fn any(chance: &mut Chance) -> Words {
    let command = match chance.below(40) {
        0 => words(&[b"KEYS", chance.pick(&PATTERNS)]),
        1 => words(&[
            b"SCAN",
            b"0",
            b"COUNT",
            b"1000",
            b"MATCH",
            chance.pick(&PATTERNS),
        ]),
        2 => {
            let what = chance
                .pick(&["ENCODING", "REFCOUNT", "FREQ", "BOGUS"])
                .into();
            vec![b"OBJECT".to_vec(), what, key(chance)]
        }
        3 => words(&[chance.pick(&[b"PING".as_slice(), b"UNWATCH", b"EXEC", b"DISCARD"])]),
        4 => words(&[
            b"SELECT",
            chance.pick(&[b"0".as_slice(), b"1", b"-1", b"x"]),
        ]),
        _ => of_keys(chance),
    };
    // A page of SCAN is compared as long as it is all that there is.
    match command[0] != b"SCAN" && chance.once_in(25) {
        true => mistyped(chance, command),
        false => command,
    }
}

/// What stands between MULTI and EXEC, with both.
pub(crate) fn transaction(chance: &mut Chance) -> Vec<Words> {
    let mut all = Vec::new();
    if chance.once_in(4) {
        all.push(keys_of(chance, b"WATCH"));
        if chance.once_in(2) {
            all.push(of_keys(chance));
        }
    }
    all.push(words(&[b"MULTI"]));
    for _ in 0..chance.below(8) {
        let command = of_keys(chance);
        all.push(match chance.once_in(60) {
            true => mistyped(chance, command),
            false => command,
        });
    }
    let end: &[u8] = if chance.once_in(10) {
        b"DISCARD"
    } else {
        b"EXEC"
    };
    all.push(words(&[end]));
    all
}

/// Keys that no command may empty of state: what is read back at the end.
pub(crate) fn all_keys() -> Vec<Vec<u8>> {
    KEYS.iter().map(|key| key.to_vec()).collect()
}
